"""Named nodes, bookings ahead, and what is free: small questions with one answer each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench import Bench
from ganger.core.allocation import Allocation
from ganger.core.books.fit import Fit
from ganger.core.books.ledger import Ledger
from ganger.core.events import Submitted
from ganger.core.plan import Slot, Start
from ganger.core.spec import ClusterSpec, Locality, Needs, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.mechanisms.placement.place import Place, Sampled, counted, on_nodes
from worlds import cluster, gpus, job, play


def books(nodes: int = 3, each: int = 4, **more: Any) -> Ledger:
    """An empty cluster's."""
    return Ledger(Nodes(cluster(nodes, each, **more)))


def test_gpus_on_named_nodes_are_there_only_if_they_are_free_on_all_of_them() -> None:
    ledger = books()
    ledger.take(0, gpus(3), (Slot(1, 0b0111, 3),))
    assert on_nodes(ledger, ((0, 4), (1, 1))) == (Slot(0, 0b1111, 4), Slot(1, 0b1000, 1))
    assert on_nodes(ledger, ((0, 4), (1, 2))) is None, "one lacks room"
    assert on_nodes(ledger, ((0, 5), (1, 1))) is None, "the other does"
    ledger.switch(2, up=False)
    assert on_nodes(ledger, ((0, 1), (2, 1))) is None, "one is down"


def test_counting_a_placement_undoes_placing_it() -> None:
    placement = (Slot(2, 0b11, 2), Slot(0, 0b100, 1), Slot(2, 0b1000, 1))
    assert counted(placement) == ((0, 1), (2, 3))


def test_a_place_is_free_if_all_of_its_devices_are_and_its_nodes_are_up() -> None:
    ledger, shape = books(), gpus(2)
    both = (Slot(0, 0b1, 1), Slot(1, 0b1, 1))
    assert ledger.is_free(shape, both)
    assert ledger.is_free(shape, ())
    ledger.take(0, gpus(1), (Slot(1, 0b1, 1),))
    assert not ledger.is_free(shape, both)
    assert ledger.is_free(shape, (Slot(0, 0b1, 1), Slot(1, 0b10, 1)))
    ledger.switch(0, up=False)
    assert not ledger.is_free(shape, (Slot(0, 0b1, 1), Slot(1, 0b10, 1)))


def test_half_a_gpu_is_free_beside_another_half_and_looking_changes_nothing() -> None:
    ledger = books()
    half = Shape((Role(needs=Needs(share=500)),))
    there = (Slot(0, 0b1, 1, 0, 500),)
    ledger.take(0, half, there)
    free = ledger.free
    assert ledger.is_free(half, there)
    ledger.take(1, half, there)
    assert not ledger.is_free(half, there)
    assert ledger.free == free


def test_who_leaves_is_waited_for_by_device_until_it_has_gone() -> None:
    ledger, shape = books(), gpus(2)
    for row, devices in ((0, 0b0011), (1, 0b1100)):
        ledger.take(row, shape, (Slot(0, devices, 2),))
        ledger.give(row, leaving=True)
    whole = (Slot(0, 0b1111, 4),)
    assert ledger.waits(whole) == (0, 1)
    assert ledger.waits((Slot(0, 0b0100, 1),)) == (1,)
    assert ledger.waits((Slot(1, 0b0100, 1),)) == ()
    ledger.gone(1, (Slot(0, 0b0011, 2),))
    assert ledger.waits(whole) == (0, 1), "it does not hold those"
    ledger.gone(0, (Slot(0, 0b0011, 2),))
    assert ledger.waits(whole) == (1,)
    ledger.gone(1, (Slot(0, 0b1100, 2),))
    assert ledger.waits(whole) == ()
    assert not ledger.leaving


def test_withholding_takes_what_nobody_leaves_first_and_gives_back_what_is_too_much() -> None:
    ledger, shape = books(1), gpus(2)
    ledger.take(0, shape, (Slot(0, 0b1100, 2),))
    ledger.give(0, leaving=True)
    assert ledger.withhold(0, 1) == 0
    assert ledger.withheld(0) == 0b0010, "the highest that nobody is leaving"
    assert ledger.withhold(0, 3) == 0
    assert ledger.withheld(0) == 0b1011
    assert ledger.withhold(0, 1) == 0
    assert ledger.withheld(0).bit_count() == 1
    ledger.take(1, gpus(3), (Slot(0, 0b1111 & ~ledger.withheld(0), 3),))
    assert ledger.withhold(0, 4) == 3, "three are held"


def test_the_rows_of_an_allocation_that_a_job_is_in() -> None:
    allocation = Allocation()
    allocation.add((1,), "A", 2, 0.5)
    allocation.add((1, 2), "B", 1, 0.25)
    allocation.add((2,), "B", 1, 0.0)
    allocation.add((2,), "B", 0, 1.0)
    assert [row.gpu_type for row in allocation.of(1)] == ["A", "B"]
    assert [row.jobs for row in allocation.of(2)] == [(1, 2)]
    assert len(allocation) == len(list(allocation)) == 2


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(), "3 x 1 GPUs"),
        (Needs(2, cpus=1500), "3 x 2 GPUs with 1.5 CPUs"),
        (Needs(memory=64), "3 x 1 GPUs with 64 MiB"),
        (Needs(cpus=2000, memory=64), "3 x 1 GPUs with 2 CPUs and 64 MiB"),
    ],
)
def test_what_a_shape_asks_for_as_people_say_it(needs: Needs, words: str) -> None:
    assert str(Shape((Role(size=3, needs=needs),))) == words


def test_a_job_as_a_row_for_people() -> None:
    bench = Bench(job("a", size=2, priority=3), on=ClusterSpec((NodeSpec(1, 4, "V100"),)))
    row = bench.kernel.view.job(0)
    assert (row.id, row.spec.name, row.spec.priority, row.gpus) == (0, "a", 3, 0)
    assert (row.placement, row.attempt, row.first_start, row.finished) == (None, 0, -1, -1)
    assert (row.attained_service, row.work, row.preemptions) == (0, 0.0, 0)


def test_what_placers_do_unless_told_otherwise() -> None:
    assert (Place().fit, Place().within) == (Fit.BEST, Locality.ANY)
    assert not Place.patient
    assert not Place.sizes
    assert Place.by_room


@pytest.mark.parametrize(
    ("needs", "starts"),
    [
        (Needs(share=250), [0, 0, 0, 0]),
        (Needs(share=250, cpus=1000), [0, 0, 10, 10]),
        (Needs(share=250, cpus=700), [0, 0, 10, 10]),
        (Needs(share=250, cpus=500), [0, 0, 0, 0]),
        (Needs(share=250, memory=1000), [0, 0, 0, 10]),
        (Needs(share=250, cpus=500, memory=3000), [0, 10, 20, 30]),
    ],
)
def test_parts_of_a_gpu_are_as_many_as_cores_and_host_memory_feed(
    needs: Needs, starts: list[float]
) -> None:
    """One GPU, two cores, 3000 MiB; four jobs of 10 s, which want a quarter of the GPU each."""
    works = [job(f"j{i}", 0, 10, shape=Shape((Role(needs=needs),))) for i in range(4)]
    one = cluster(1, 1, cpus=2000, memory=3000)
    for recipe in ("space-sharing", "fifo", "ali-mlaas"):
        run = play(recipe, works, one)
        assert [run.started(f"j{i}") for i in range(4)] == starts, recipe


# ---------------------------------------------------------------------- sampled assignments


def held(each: int, *gone: int, bias: float, samples: int = 100) -> Callable[[int], Any]:
    """Where a gang of so many GPUs is put on nodes of `each`, of which so many are held."""
    works = [
        *(job(f"held {node}", size=count) for node, count in enumerate(gone) if count),
        *(job(f"gang {size}", size=size) for size in range(1, 20)),
    ]
    bench = Bench(*works, on=cluster(len(gone), each))
    taken = [node for node, count in enumerate(gone) if count]
    starts = [
        Start(row, 1, (Slot(node, (1 << gone[node]) - 1, gone[node]),))
        for row, node in enumerate(taken)
    ]
    bench.feed(0, *(Submitted(row) for row in range(len(taken))), then=starts)
    view, place = bench.kernel.view, Sampled(samples=samples, bias=bias)

    def put(size: int) -> Any:
        found = place.find(view, view.ledger, bench.jobs.find(f"gang {size}"))
        return found and counted(found)

    return put


def test_of_the_samples_the_one_on_the_fewest_nodes_wins_whatever_it_leaves_beside_it() -> None:
    """Nine GPUs: on three nodes with 3 free each nothing would be left, on two with 5 one is."""
    put = held(5, 0, 0, 2, 2, 2, bias=0.0)(9)
    assert put in (((0, 4), (1, 5)), ((0, 5), (1, 4)))


def test_of_those_on_as_few_nodes_the_one_that_leaves_the_least_beside_it_wins() -> None:
    """Five GPUs on nodes with 3, 3 and 2 free: a three and the two."""
    put = held(4, 1, 1, 2, bias=0.0)
    assert put(5) in (((0, 3), (2, 2)), ((1, 3), (2, 2)))
    assert put(2) == ((2, 2),)
    assert put(8) == ((0, 3), (1, 3), (2, 2))
    assert put(9) is None


def test_the_fuller_a_node_the_likelier_it_is_drawn() -> None:
    """One sample each: with a strong bias it is always the fullest node that has room."""
    assert held(8, 0, 3, 6, 5, bias=60.0, samples=1)(2) == ((2, 2),)
    assert held(8, 0, 3, 6, 5, bias=60.0, samples=1)(3) == ((3, 3),)
    assert held(8, 0, 3, 6, 5, bias=60.0, samples=1)(6) == ((0, 6),)
