"""Rounds in the ways of Gavel's public simulator: what each switch does, counted by hand."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ganger.core.events import STARTED, Batch, Submitted, Woke
from ganger.core.kernel import Kernel
from ganger.core.profiles import Measured, Profile, Profiles
from ganger.core.state.cluster import Nodes
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.common.python_random import Draws, shuffle
from ganger.recipes import registry
from ganger.recipes.training.gavel.simulator_rounds import BarrierRounds, Turn, Ways
from ganger.sim.physics import Physics
from ganger.workloads.clusters import load_cluster
from worlds import Work, gpus, job, trace_of

EVERY = "every=100s"


def steps_of(**rates: float) -> Profile:
    """One GPU does so many steps per second by type."""
    return Profile(measured=Measured({kind: {1: rate} for kind, rate in rates.items()}, "V100"))


def work(name: str, model: str, steps: float, lasts: float, **more: Any) -> Work:
    """A job of so many steps that takes `lasts` seconds on its GPUs of type V100."""
    return job(name, lasts=lasts, model=model, steps=steps, **more)


def finishes(works: list[Work], ways: str, profiles: Profiles, cluster: str = "1x1xV100") -> Any:
    """Seconds at which each job finishes under gavel in these ways; NaN for never."""
    setup = Setup(profiles=profiles, validate=True)
    run = run_one(trace_of(works), load_cluster(cluster), f"gavel({EVERY},{ways})", setup)
    return run.jobs.finish


THIRDS = Profiles({"m": steps_of(V100=1 / 3), "n": steps_of(V100=1.0)})


def test_a_round_is_whole_steps_and_ends_for_all_at_once() -> None:
    # 33 steps of 3 s are 99 s; both share one GPU, so that each gets every second round.
    works = [work("a", "m", 66, 198), work("b", "m", 66, 198)]
    plain = finishes(works, "barrier=yes", THIRDS)
    whole = finishes(works, "barrier=yes,whole_steps=yes", THIRDS)
    assert sorted(whole) == pytest.approx([297, 396])
    assert sorted(plain) == pytest.approx([398 - 100, 396])


def test_without_a_barrier_whole_steps_leave_the_rest_of_the_round_idle() -> None:
    works = [work("a", "m", 66, 198), work("b", "m", 66, 198)]
    whole = finishes(works, "whole_steps=yes", THIRDS)
    assert sorted(whole) == pytest.approx([200 + 99, 299 + 99])  # at 299 nobody runs


@pytest.mark.parametrize("more", ["", ",by_type=yes", ",centred=yes,left_over=yes,by_type=yes"])
def test_nobody_is_turned_to_a_type_on_which_it_may_not_run(more: str) -> None:
    works = [job("a", lasts=10, shape=gpus(1, gpu_types=("K80",)))]
    cluster = "1x1xV100+1x1xK80"
    found = finishes(works, f"barrier=yes{more}", Profiles(), cluster)
    assert found == pytest.approx([10], abs=100)


def test_behind_a_barrier_arrivals_wait_for_the_round_to_end() -> None:
    works = [work("a", "n", 150, 150), work("b", "n", 10, 10, at=5)]
    assert finishes(works, "barrier=yes", THIRDS, "2x1xV100") == pytest.approx([150, 110])
    free = finishes(works, "objective=max-min", THIRDS, "2x1xV100")
    assert free == pytest.approx([150, 15])


def test_a_round_ends_early_when_all_are_through() -> None:
    works = [work("a", "n", 30, 30), work("b", "n", 10, 10, at=5)]
    assert finishes(works, "barrier=yes", THIRDS) == pytest.approx([30, 40])
    assert finishes(works, "whole_steps=yes", THIRDS) == pytest.approx([30, 40])


def test_patience_keeps_an_allocation_that_newcomers_are_not_in() -> None:
    # The allocation at 0 does not count; the one at 100, for a and b, then lasts to 400.
    works = [
        work("a", "n", 1000, 1000),
        work("b", "n", 1000, 1000, at=5),
        work("c", "n", 50, 50, at=105),
    ]
    ways = "barrier=yes,whole_steps=yes"
    assert finishes(works, ways, THIRDS, "3x1xV100")[2] == pytest.approx(250)
    late = finishes(works, f"{ways},patience=300s", THIRDS, "3x1xV100")
    assert late[2] == pytest.approx(450)


TWO_TYPES = Profiles({"fast": steps_of(V100=1.0, P100=2.0)})


def test_what_is_left_over_is_taken_although_allocated_elsewhere() -> None:
    works = [work("a", "fast", 400, 400)]
    cluster = "1x1xV100+1x1xP100"
    assert finishes(works, "barrier=yes", TWO_TYPES, cluster) == pytest.approx([200])
    # V100s are filled first, by whoever fits.
    ways = "barrier=yes,by_type=yes,left_over=yes"
    assert finishes(works, ways, TWO_TYPES, cluster) == pytest.approx([400])
    assert finishes(works, "barrier=yes,left_over=yes", TWO_TYPES, cluster) == pytest.approx([200])


def test_those_held_back_take_gpus_and_do_not_run() -> None:
    works = [
        work("a", "n", 1000, 1000),
        work("b", "n", 1000, 1000, at=5),
        work("c", "n", 50, 50, at=105),
    ]
    ways = "barrier=yes,whole_steps=yes,patience=300s,left_over=yes"
    cluster = "3x1xV100"
    assert finishes(works, ways, THIRDS, cluster)[2] == pytest.approx(250)
    assert finishes(works, f"{ways},held_back=yes", THIRDS, cluster)[2] == pytest.approx(450)


def test_fewer_steps_than_gpus_are_never_done() -> None:
    gang = Profiles({"g": Profile(measured=Measured({"V100": {4: 1.0}}, "V100"))})
    works = [work("a", "g", 101, 101, size=4), work("b", "g", 8, 8, size=4, at=300)]
    ways = "barrier=yes,whole_steps=yes"
    kept = finishes(works, ways, gang, "4x1xV100")
    assert kept == pytest.approx([101, 308])
    lost = finishes(works, f"{ways},dropped=yes", gang, "4x1xV100")
    assert np.isnan(lost[0])
    assert lost[1] == pytest.approx(308)


def test_counters_begin_with_half_a_round() -> None:
    # With counters a job that got a round has 150 of 250 s; without, all of the time.
    works = [work("a", "n", 300, 300), work("b", "n", 300, 300)]
    ways = "barrier=yes,whole_steps=yes,counters=yes"
    done = finishes(works, ways, THIRDS)
    assert sorted(done) == pytest.approx([500, 600])


def test_fifo_in_order_stops_at_the_first_that_finds_no_room() -> None:
    slow = Profiles({"m": Profile(measured=Measured({"V100": {1: 1.0, 2: 1.0}}, "V100"))})
    works = [
        work("a", "m", 100, 100), work("wide", "m", 100, 100, size=2), work("c", "m", 100, 100),
        work("d", "m", 100, 100),  # so that c weighs more for each GPU than wide does
    ]  # fmt: skip
    ways = "objective=fifo,barrier=yes,whole_steps=yes"
    strict = finishes(works, f"{ways},in_order=yes", slow, "2x1xV100")
    assert strict == pytest.approx([100, 200, 300, 300])
    programme = finishes(works, ways, slow, "2x1xV100")
    assert programme[2] == pytest.approx(100)


def test_fifo_in_order_gives_nobody_a_type_on_which_it_does_not_run() -> None:
    profiles = Profiles({"any": steps_of(V100=1.0, K80=0.5), "v": steps_of(V100=1.0, K80=0.0)})
    works = [
        work("a", "any", 100, 100), work("b", "v", 100, 100), work("c", "any", 100, 100),
        work("d", "any", 100, 100),
    ]  # fmt: skip
    ways = "objective=fifo,barrier=yes,in_order=yes"
    # While a holds the V100, b runs nowhere, and the K80s are for those behind it.
    assert finishes(works, ways, profiles, "1x1xV100+2x1xK80") == pytest.approx(
        [100, 200, 200, 200]
    )


def test_the_public_fifo_gives_the_last_free_type_and_its_heir_keeps_it() -> None:
    # In alphabetical order K80, V100. The first gets the last of them. That is full then, and
    # the first number below 2 after seed 0 is 1, so that it is struck off; the next gets the K80.
    profiles = Profiles({"m": steps_of(V100=1.0, K80=2.0)})
    works = [work("a", "m", 300, 300), work("b", "m", 200, 200), work("c", "m", 100, 100)]
    cluster = "1x1xV100+1x1xK80"
    standing = finishes(works, "objective=fifo,agnostic=yes,compatible=yes", profiles, cluster)
    # c takes over the K80 of b, which ends at 100; without an heir it would wait for the V100.
    assert standing == pytest.approx([300, 100, 150], abs=1)
    fastest = finishes(works, "objective=fifo,compatible=yes", profiles, cluster)
    assert fastest == pytest.approx([150, 200, 250], abs=1)


@pytest.mark.parametrize("seed", [0, 3, 91])
def test_random_numbers_are_those_of_pythons_generator(seed: int) -> None:
    generator, draws = random.Random(seed), Draws(seed)
    limits = [1 + at % 5 for at in range(60)]
    assert [draws.below(limit) for limit in limits] == [generator.randrange(n) for n in limits]
    later = Draws(seed, draws.count)  # as a memory that was kept goes on
    assert [later.below(7) for _ in range(9)] == [generator.randrange(7) for _ in range(9)]


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_types_are_shuffled_as_by_pythons_generator(seed: int) -> None:
    class Desk(SimpleNamespace):
        scratch: dict[Any, Any]
        cached = View.cached

    generator, view = random.Random(seed + 5), Desk(seed=seed, scratch={})
    for number in range(200):
        expected = [0, 1, 2]
        generator.shuffle(expected)
        if number % 50 == 0:
            view.scratch.clear()  # it may vanish at any time
        order: list[int] = shuffle(view, number, 3)  # type: ignore[arg-type]
        assert order == expected
    assert sorted(shuffle(view, 3, 3)) == [0, 1, 2]  # type: ignore[arg-type]


def test_a_paused_job_may_be_moved() -> None:
    # Shares of two types that differ: jobs change places between rounds, and lose nothing.
    profiles = Profiles({"x": steps_of(V100=1.0, K80=0.7), "y": steps_of(V100=1.0, K80=0.9)})
    works = [work(f"j{i}", "xy"[i % 2], 300, 300) for i in range(4)]
    setup = Setup(profiles=profiles, validate=True)
    cluster = load_cluster("1x1xV100+1x1xK80")
    run = run_one(trace_of(works), cluster, f"gavel({EVERY},compatible=yes)", setup)
    assert run.jobs.state == ["finished"] * 4
    assert (run.jobs.lost == 0).all()
    assert run.jobs.preemptions.sum() > 0


def test_a_turn_in_which_no_step_fits_ends_a_microsecond_later() -> None:
    ways = Ways(*[True] * len(Ways._fields))
    rounds = BarrierRounds("gavel", cast("Any", None), 100 * SECOND, ways._replace(dropped=False))
    view = cast("View", SimpleNamespace(now=7))
    pace = cast("Any", SimpleNamespace(steps=lambda job, kind: (0.009, 5)))
    assert rounds._turn(view, pace, 0, "V100") == Turn(0, "V100", 8)
    pace = cast("Any", SimpleNamespace(steps=lambda job, kind: (0.02, 5)))
    assert rounds._turn(view, pace, 0, "V100") == Turn(0, "V100", 7 + 100 * SECOND)


def test_a_turn_that_ended_since_the_last_look_is_seen_at_the_next() -> None:
    trace, setup = trace_of([work("a", "n", 300, 300)]), Setup(profiles=THIRDS)
    policy = registry.make(f"gavel({EVERY},barrier=yes,whole_steps=yes)")
    nodes = Nodes(load_cluster("1x1xV100"))
    oracle = make_oracle(trace, Physics(nodes, THIRDS, setup.costs), setup)
    kernel = Kernel(nodes, trace.declared, policy, validate=True, oracle=oracle)
    kernel.step(Batch(0, [Submitted(0)]))
    kernel.step(Batch(50 * SECOND, [Woke()]))
    kernel.step(Batch(150 * SECOND, [Woke()]))  # its turn was over at 100, and it has not begun
    assert kernel.until & STARTED
