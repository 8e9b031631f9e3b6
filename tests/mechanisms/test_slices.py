"""MIG: where slices lie, that they stay there, and what a new one costs."""

from __future__ import annotations

import json
import os
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.core.books.mig import KNOB, MIG_SLICES, Instances, place, read, written
from ganger.core.events import Finished
from ganger.core.plan import Tune
from ganger.core.spec import ClusterSpec, GpuType, Needs, NodeSpec, Role, Shape
from ganger.core.units import SECOND
from ganger.sim.physics import Costs
from worlds import Played, Work, job, play

BY_SIZE = {each.compute: each for each in MIG_SLICES["A100"] if each.memory != 2 * each.compute}
MIG = "space-sharing(mode=mig)"


def a100s(gpus: int = 1) -> ClusterSpec:
    """One node of A100 with 40 GiB."""
    return ClusterSpec((NodeSpec(gpus=gpus, gpu_type="A100"),), (GpuType("A100", 40960),))


def slices(name: str, compute: int, at: float = 0, lasts: float = 10, size: int = 1) -> Work:
    """A job that needs a slice of so many sevenths of each of its devices."""
    needs = Needs(share=1000 * compute // 7)
    return job(name, at, lasts, shape=Shape((Role(size=size, needs=needs),)))


def lying(run: Played) -> dict[str, list[tuple[int, int]]]:
    """By job the start and the size of its slices."""
    return {
        run.jobs.name(action.job): list(read(action.knobs[KNOB]).values())
        for _, plan in run.diary.steps
        for action in (plan.actions if plan is not None else ())
        if isinstance(action, Tune)
    }


def test_slices_of_running_jobs_cannot_be_moved_so_a_sum_that_fits_may_not() -> None:
    """Seven of one seventh lie at 6, 5, ... 0. When only those at 4 and 3 are left, six slots are
    free, but three sevenths start at 0 or 4 only. Two start at 0."""
    works = [slices(f"{at}", 1, lasts=99 if at in (4, 3) else 10) for at in (6, 5, 4, 3, 2, 1, 0)]
    works += [slices("three", 3, 20, 9), slices("two", 2, 21, 9)]
    run = play(MIG, works, a100s())
    found = lying(run)
    assert {name: found[name] for name in map(str, range(7))} == {
        str(at): [(at, 1)] for at in range(7)
    }
    assert run.started("three") == 99
    assert run.started("two") == 21
    assert found["two"] == [(0, 2)]


def test_where_a_slice_lies_it_leaves_most_room() -> None:
    """One seventh lies at the end, so that four sevenths and two still start."""
    run = play(MIG, [slices("1", 1), slices("4", 4), slices("2", 2)], a100s())
    assert lying(run) == {"1": [(6, 1)], "4": [(0, 4)], "2": [(4, 2)]}
    assert run.jct() == [10] * 3


def test_a_gang_has_a_slice_on_each_of_its_devices() -> None:
    run = play(MIG, [slices("gang", 3, size=2), slices("late", 4, 1)], a100s(2))
    assert lying(run) == {"gang": [(4, 4), (4, 4)], "late": [(0, 4)]}


def test_a_slice_that_is_there_costs_nothing_and_a_new_one_does() -> None:
    """`c` takes the slots of `a`'s slice, which stayed when `a` had ended; `d` needs it again."""
    works = [
        slices("a", 3, 0, 10), slices("b", 3, 20, 10), slices("c", 2, 40, 10),
        slices("d", 3, 60, 10),
    ]  # fmt: skip
    run = play(MIG, works, a100s(), costs=Costs(slicing=4 * SECOND))
    assert run.jct() == [14, 10, 14, 14]
    assert play(MIG, works, a100s()).jct() == [10] * 4


def test_a_device_keeps_the_slices_that_nobody_needs_the_room_of() -> None:
    made = Instances()
    assert [made.need((0, 0), *each) for each in ((0, 4), (4, 4), (0, 4), (6, 1), (0, 4))] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert made.existing == {(0, 0): {0: 4, 6: 1}}


@pytest.mark.skipif("GANGER_TRACES" not in os.environ, reason="no folder of traces")
def test_all_partitions_that_were_measured_on_an_a100_can_be_laid_out() -> None:
    """MISO's list, in the best order of each."""
    path = Path(os.environ["GANGER_TRACES"]) / "miso-mig" / "partition_code.json"
    for sizes in json.loads(path.read_text()).values():
        assert any(_fits(order) for order in set(permutations(sizes))), sizes
    assert not any(_fits(order) for order in permutations((3, 3, 1)))
    assert not any(_fits(order) for order in permutations((4, 4)))


def _fits(sizes: tuple[int, ...]) -> bool:
    taken: dict[int, int] = {}
    for size in sizes:
        at = place(BY_SIZE[size], taken, "A100")
        if at < 0:
            return False
        taken[at] = BY_SIZE[size].memory
    return True


some_jobs = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(1, 6), st.integers(1, 2)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=30)
@given(some_jobs, st.sampled_from(["A100", "A30"]))
def test_slices_lie_where_they_may_beside_each_other_and_all_jobs_end(
    jobs: list[tuple[int, int, int, int]], kind: str
) -> None:
    on = ClusterSpec((NodeSpec(gpus=2, gpu_type=kind),), (GpuType(kind, 40960),))
    works = [slices(f"{n}", each[2], *each[:2], each[3]) for n, each in enumerate(jobs)]
    run = play(MIG, works, on, validate=True)
    assert run.phase("0") == "finished"
    legal = {(each.memory, at) for each in MIG_SLICES[kind] for at in each.starts}
    there: dict[int, dict[tuple[int, int], set[int]]] = {}
    for batch, plan in run.diary.steps:
        for event in batch.events:
            if isinstance(event, Finished):
                there.pop(event.job, None)
        for action in plan.actions if plan is not None else ():
            if isinstance(action, Tune):
                found = read(action.knobs[KNOB])
                assert written(found) == action.knobs[KNOB]
                assert {(size, at) for at, size in found.values()} <= legal
                there[action.job] = {
                    device: set(range(at, at + size)) for device, (at, size) in found.items()
                }
        used = [
            (device, slot) for each in there.values() for device in each for slot in each[device]
        ]
        assert len(used) == len(set(used)), "two slices have the same slot"
    assert (run.jobs.finished[: run.jobs.n] > 0).all()
