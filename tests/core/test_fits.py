"""What is told apart between nodes that all have room: fits, islands, memory to the last MiB."""

from __future__ import annotations

import pytest

from ganger.core.books.fit import Fit
from ganger.core.books.ledger import Ledger
from ganger.core.books.stock import Cell
from ganger.core.plan import Slot
from ganger.core.spec import ClusterSpec, GpuType, Locality, Needs, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from worlds import cluster, gpus, where

CORES = Needs(cpus=1000)


def filled(each: int, *held: int) -> Ledger:
    """A node of `each` GPUs and cores per entry of `held`, with so many GPUs of each taken."""
    ledger = Ledger(Nodes(cluster(len(held), each, cpus=1000 * each, memory=1024 * each)))
    for node, count in enumerate(held):
        if count:
            ledger.take(node, gpus(count), (Slot(node, (1 << count) - 1, count),))
    return ledger


def never(count: int) -> int:
    """A draw that nobody asked for."""
    raise AssertionError(f"drew of {count}")


@pytest.mark.parametrize(
    "shape",
    [gpus(1), gpus(6), Shape((Role(size=2, needs=CORES),)), Shape((Role(size=7, needs=CORES),))],
    ids=str,
)
def test_only_a_random_fit_draws_and_without_draws_it_is_first_fit(shape: Shape) -> None:
    ledger = filled(4, 3, 1, 0, 2)
    for fit in (Fit.BEST, Fit.WORST, Fit.FIRST):
        assert ledger.find(shape, fit=fit, draw=never) == ledger.find(shape, fit=fit)
    first = ledger.find(shape, fit=Fit.FIRST)
    assert ledger.find(shape, fit=Fit.RANDOM) == first
    drawn = [
        ledger.find(shape, fit=Fit.RANDOM, draw=draw) for draw in (lambda n: 0, lambda n: n - 1)
    ]
    assert drawn != [first, first]


@pytest.mark.parametrize("free", [0, 1, 2, 3])
def test_no_cell_has_as_many_free_as_are_asked_for(free: int) -> None:
    ledger = filled(3, 3 - free)
    for size in (1, 2, 3):
        for needs in (Needs(), CORES):
            shape = Shape((Role(size=size, needs=needs),))
            assert ledger.lacks(shape) == (size > free)
            assert ledger.is_whole(shape)
    for cannot_tell in (Needs(gpus=0, cpus=1), Needs(share=500)):
        shape = Shape((Role(needs=cannot_tell),))
        assert not ledger.lacks(shape)
        assert not ledger.is_whole(shape)


ALONE = ClusterSpec(
    (NodeSpec(gpus=2, gpu_type="A", cpus=4000, memory=2048), NodeSpec(cpus=2000, memory=512)),
    (GpuType("A", memory=10_000),),
)


@pytest.mark.parametrize(
    ("needs", "size", "cells"),
    [
        (Needs(share=500, gpu_memory=10_000), 1, [0]),
        (Needs(share=500, gpu_memory=10_001), 1, []),
        (Needs(cpus=4000), 1, [0]),
        (Needs(cpus=4001), 1, []),
        (Needs(memory=2048), 1, [0]),
        (Needs(memory=2049), 1, []),
        (Needs(gpus=2, cpus=1), 1, [0]),
        (Needs(gpus=3, cpus=1), 1, []),
        (Needs(gpus=0, cpus=2000), 1, [0, 1]),
        (Needs(gpus=0, cpus=2001), 1, [0]),
        (Needs(gpus=0, memory=512), 1, [0, 1]),
        (Needs(gpus=0, memory=513), 1, [0]),
    ],
    ids=str,
)
def test_a_worker_may_ask_for_all_that_an_empty_node_has_and_no_more(
    needs: Needs, size: int, cells: list[int]
) -> None:
    ledger = Ledger(Nodes(ALONE))
    shape = Shape((Role(size=size, needs=needs),))
    assert [cell.index for cell in ledger.cells_for(shape)] == cells
    assert [ledger.find(shape, cells=[cell]) is not None for cell in ledger.cells_for(shape)] == [
        True
    ] * len(cells)


@pytest.mark.parametrize("fit", Fit)
@pytest.mark.parametrize(("size", "fits"), [(4, True), (5, False)])
def test_a_gang_with_cores_may_take_the_last_of_all_nodes(fit: Fit, size: int, fits: bool) -> None:
    """Two nodes of two GPUs, and a core for each."""
    ledger = Ledger(Nodes(ClusterSpec((NodeSpec(count=2, gpus=2, gpu_type="A", cpus=2000),))))
    shape = Shape((Role(size=size, needs=Needs(cpus=1000)),))
    assert (ledger.find(shape, fit=fit) is not None) is fits


def state(ledger: Ledger, cell: Cell) -> dict[str, list[int]]:
    """What is free on the nodes of a cell."""
    columns = ledger.columns(cell)
    names = ("gpus", "cpus", "memory", "share", "empty")
    return {name: getattr(columns, name).tolist() for name in names}


def test_columns_say_what_is_free() -> None:
    ledger = Ledger(Nodes(ALONE))
    one, other = ledger.cells
    whole = {"gpus": [2], "cpus": [4000], "memory": [2048], "share": [0], "empty": [2000]}
    cores = {"gpus": [0], "cpus": [2000], "memory": [512], "share": [0], "empty": [2000]}
    assert (state(ledger, one), state(ledger, other)) == (whole, cores)
    part = Shape((Role(needs=Needs(share=300, cpus=500)),))
    ledger.take(0, part, (Slot(0, 0b01, 1),))
    ledger.take(1, part, (Slot(0, 0b10, 1),))
    ledger.take(2, part, (Slot(0, 0b10, 1),))
    assert state(ledger, one) == {
        "gpus": [0],
        "cpus": [2500],
        "memory": [2048],
        "share": [700],
        "empty": [1100],
    }
    ledger.take(3, Shape((Role(needs=Needs(gpus=0, cpus=1500, memory=500)),)), (Slot(1, 0, 1),))
    assert state(ledger, other) == {
        "gpus": [0],
        "cpus": [500],
        "memory": [12],
        "share": [0],
        "empty": [500],
    }
    ledger.settle()
    ledger.switch(1, up=False)
    assert state(ledger, other) == {name: [-1] for name in cores}


def test_columns_follow_those_that_sleep_and_those_without_a_gpu() -> None:
    """What was looked at before says what is so afterwards: CPUs alone, and memory of a sleeper."""
    node = NodeSpec(gpus=1, gpu_type="A", cpus=4000, memory=2048)
    ledger = Ledger(Nodes(ClusterSpec((node,), (GpuType("A", memory=16_000),))))
    (cell,) = ledger.cells
    seen = [state(ledger, cell)]
    ledger.take(0, Shape((Role(needs=Needs(gpus=0, cpus=500, memory=48)),)), (Slot(0, 0, 1),))
    seen.append(state(ledger, cell))
    keeps = Shape((Role(needs=Needs(cpus=500, memory=1000, gpu_memory=4000)),))
    ledger.take(1, keeps, (Slot(0, 1, 1),))
    seen.append(state(ledger, cell))
    ledger.doze(1)
    seen.append(state(ledger, cell))
    ledger.take(2, keeps, (Slot(0, 1, 1),))
    seen.append(state(ledger, cell))
    ledger.give(1)
    seen.append(state(ledger, cell))
    ledger.give(0)
    seen.append(state(ledger, cell))
    assert [(each["gpus"], each["share"]) for each in seen] == [
        ([1], [0]),
        ([1], [0]),
        ([0], [0]),
        ([0], [1000]),
        ([0], [0]),
        ([0], [0]),
        ([0], [0]),
    ]
    assert [each["cpus"] for each in seen] == [
        [4000],
        [3500],
        [3000],
        [3500],
        [3000],
        [3000],
        [3500],
    ]
    assert [each["memory"] for each in seen] == [
        [2048],
        [2000],
        [1000],
        [1000],
        [0],
        [1000],
        [1048],
    ]


def test_a_part_goes_where_the_least_is_left_of_a_gpu() -> None:
    part = {size: Shape((Role(needs=Needs(share=size)),)) for size in (100, 200, 500, 800)}
    ledger = Ledger(Nodes(cluster(1, 4)))
    ledger.take(0, part[200], (Slot(0, 0b0010, 1),))
    ledger.take(1, part[500], (Slot(0, 0b0100, 1),))
    ledger.take(2, part[800], (Slot(0, 0b1000, 1),))
    for size, device in ((100, "0:3"), (200, "0:3"), (500, "0:2"), (800, "0:1")):
        found = ledger.find(part[size])
        assert found is not None
        assert where(found) == device
    pair = ledger.find(Shape((Role(size=2, needs=Needs(share=200)),)))
    assert pair is not None
    assert where(pair) == "0:2,3"


@pytest.mark.parametrize(
    ("size", "devices"),
    [(1, "0:4"), (2, "0:2,3"), (3, "0:5,6,7"), (4, "0:2,3,4,5")],
)
def test_devices_of_the_fullest_island_that_has_room(size: int, devices: str) -> None:
    """Islands of 4: two GPUs are free in the first, and in the second four or three."""
    ledger = Ledger(Nodes(cluster(1, 8, island=4)))
    ledger.take(0, gpus(2), (Slot(0, 0b0000_0011, 2),))
    if size in (1, 3):
        taken = 0b1110_1100 if size == 1 else 0b0001_0000
        ledger.take(1, gpus(taken.bit_count()), (Slot(0, taken, taken.bit_count()),))
    if size == 4:
        ledger.take(1, gpus(2), (Slot(0, 0b1100_0000, 2),))
    found = ledger.find(gpus(size))
    assert found is not None
    assert where(found) == devices


def test_of_islands_that_are_equally_full_the_first_is_taken() -> None:
    found = Ledger(Nodes(cluster(1, 8, island=4))).find(gpus(2))
    assert found is not None
    assert where(found) == "0:0,1"


@pytest.mark.parametrize("within", [Locality.ISLAND, Locality.NODE])
def test_workers_with_cores_that_want_one_island_get_one(within: Locality) -> None:
    ledger = Ledger(Nodes(cluster(2, 4, island=2, cpus=8000)))
    for node, mask in ((0, 0b0101), (1, 0b0001)):
        ledger.take(node, gpus(mask.bit_count()), (Slot(node, mask, mask.bit_count()),))
    shape = Shape((Role(size=2, needs=CORES),), locality=within)
    found = ledger.find(shape)
    assert found is not None
    assert where(found) == ("1:2,3" if within is Locality.ISLAND else "0:1,3")


@pytest.mark.parametrize(
    ("size", "rack", "place"),
    [
        (5, "the fuller", "2:0,1,2 3:1,2"),
        (6, "the fuller", "2:0,1,2 3:1,2,3"),
        (7, "the emptier", "0:0,1,2,3 1:1,2,3"),
        (8, "none", None),
    ],
)
def test_workers_with_cores_that_want_one_rack_get_the_one_with_the_least_room(
    size: int, rack: str, place: str | None
) -> None:
    """Racks of two nodes: 7 GPUs are free in the first and 6 in the second; a node has 4."""
    ledger = Ledger(Nodes(cluster(4, 4, cpus=8000, nodes_per_rack=2)))
    for node, mask in ((1, 0b0001), (2, 0b1000), (3, 0b0001)):
        ledger.take(node, gpus(1), (Slot(node, mask, 1),))
    found = ledger.find(Shape((Role(size=size, needs=CORES),), locality=Locality.RACK))
    assert (where(found) if found else None) == place, rack
