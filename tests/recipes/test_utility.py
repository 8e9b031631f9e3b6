"""Placement by utility, part by part: which devices, which nodes, which threshold."""

from __future__ import annotations

from itertools import combinations
from math import nextafter

import pytest

from bench import Bench, on
from ganger.core.books.ledger import Ledger, members
from ganger.core.events import Submitted, Woke
from ganger.core.plan import Slot, Start
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import Locality
from ganger.core.state.cluster import Nodes
from ganger.core.view import View
from ganger.recipes.training.placement import topology
from ganger.recipes.training.placement.topology import ByUtility
from worlds import cluster, gpus, job, play

ISLANDS = cluster(1, 12, island=4)


def view_of(size: int, spec: object = ISLANDS) -> View:
    """At a job of so many GPUs that waits."""
    return play("fifo", [job("a", 0, 1, size=size)], spec, until=0).kernel.view  # type: ignore[arg-type]


def islands(devices: int) -> int:
    """How many islands of four are touched."""
    return len({device // 4 for device in members(devices)})


@pytest.mark.parametrize("need", range(1, 10))
@pytest.mark.parametrize("taken", [(0, 0, 0), (3, 1, 2), (2, 2, 2), (1, 3, 0), (4, 1, 1)])
def test_devices_lie_in_as_few_islands_as_can_be(taken: tuple[int, ...], need: int) -> None:
    free = sum(((1 << 4 - out) - 1) << 4 * at for at, out in enumerate(taken))
    if free.bit_count() < need:
        return
    devices = topology._closest(free, (1 << 12) - 1, need, 4)
    assert devices.bit_count() == need
    assert not devices & ~free
    best = min(
        islands(sum(1 << each for each in some)) for some in combinations(list(members(free)), need)
    )
    assert islands(devices) == best
    assert topology._closest(free, (1 << 12) - 1, need, 0) == sum(
        1 << device for device in list(members(free))[:need]
    )


def test_a_utility_that_just_meets_the_threshold_will_do() -> None:
    """One GPU on an empty node of four: three quarters are left free."""
    view = view_of(1, cluster(1, 4))
    ledger = Ledger(Nodes(cluster(1, 4)))
    utility = ByUtility(threshold=0.0).utility(view, ledger, 0, (Slot(0, 1, 1),), 1.0)
    assert utility == 3 / (1 + 1 + 1.75)
    assert ByUtility(threshold=utility).find(view, ledger, 0) == (Slot(0, 1, 1),)
    assert ByUtility(threshold=nextafter(utility, 1)).find(view, ledger, 0) is None


def test_among_equals_the_first_node_is_taken() -> None:
    view = view_of(2, cluster(3, 4))
    ledger = Ledger(Nodes(cluster(3, 4)))
    assert ByUtility(threshold=0.0).find(view, ledger, 0) == (Slot(0, 0b11, 2),)
    ledger.take(9, gpus(2), (Slot(2, 0b11, 2),))
    assert ByUtility(threshold=0.0).find(view, ledger, 0) == (Slot(2, 0b1100, 2),)


NOISY = Profiles({"net": Profile(disturbed={"loud": 3.0}), "loud": Profile(), "calm": Profile()})


@pytest.mark.parametrize(("first", "second"), [("loud", "calm"), ("calm", "loud")])
def test_of_two_nodes_that_are_as_full_the_quiet_one_is_taken(first: str, second: str) -> None:
    """What disturbs sits on node 0 or on node 1; both have three of four GPUs free."""
    works = [job("x", 0, 90, model=first), job("fill", 0, 1, size=3),
             job("y", 0.5, 90, model=second), job("net", 2, 9, model="net")]  # fmt: skip
    run = play("topology-aware", works, cluster(2, 4), profiles=NOISY)
    starts = {
        said.split()[1]: said.split(" on ")[1][0]
        for _, said in run.actions
        if said.startswith("start")
    }
    assert {starts["x"], starts["y"]} == {"0", "1"}
    assert starts["net"] == starts["x" if first == "calm" else "y"]


@pytest.mark.parametrize(
    ("placement", "distance"),
    [
        (on(0b1), 1.0),
        (on(0b11), 1.0),
        (on(0b101), 20.0),
        ((*on(0b1), *on(0b1, 1)), 40.0),
        ((*on(0b1), *on(0b1, 2)), 80.0),
        (on(0b111), (1 + 20 + 20) / 3),
        ((*on(0b11), *on(0b1, 1)), (1 + 40 + 40) / 3),
    ],
)
def test_the_distance_is_the_mean_over_all_pairs(
    placement: tuple[Slot, ...], distance: float
) -> None:
    ledger = Ledger(Nodes(cluster(4, 4, island=2, nodes_per_rack=2)))
    assert ByUtility(threshold=0.0)._distance(ledger, placement) == pytest.approx(distance)


def test_what_is_left_free_counts_in_the_islands_that_are_touched() -> None:
    ledger = Ledger(Nodes(cluster(2, 4, island=2)))
    assert topology._left_free(ledger, on(0b11)) == 0
    assert topology._left_free(ledger, on(0b01)) == 0.5
    assert topology._left_free(ledger, on(0b0101)) == 0.5
    assert topology._left_free(ledger, on(0b0111)) == 0.25
    ledger.take(9, gpus(1), on(0b1000))
    assert topology._left_free(ledger, on(0b0111)) == 0
    whole = Ledger(Nodes(cluster(2, 4)))
    assert topology._left_free(whole, on(0b0001)) == 0.75
    assert topology._left_free(whole, (*on(0b0001), *on(0b1111, 1))) == 0.375


def test_who_is_disturbed_counts_and_whom_it_disturbs() -> None:
    both = Profiles(
        {
            "a": Profile(disturbed={"b": 2.0, "c": 1.5}),
            "b": Profile(disturbed={"a": 4.0}),
            "c": Profile(),
        }
    )
    works = [job("one", 0, 9, model="b"), job("two", 0, 9, model="c"), job("new", 1, 9, model="a")]
    view = play("fifo", works, cluster(2, 4), profiles=both, until=0).kernel.view
    ledger = view.ledger
    assert topology._interference(view, ledger, 2, on(0b100)) == (2.0 * 1.5 + 4.0 + 1.0) / 3
    assert topology._interference(view, ledger, 2, on(0b1, 1)) == 1.0
    none = play("fifo", works, cluster(2, 4), until=0).kernel.view
    assert topology._interference(none, none.ledger, 2, on(0b100)) == 1.0


@pytest.mark.parametrize(
    ("within", "size", "wheres"),
    [
        (Locality.ISLAND, 2, [(0,)]),
        (Locality.NODE, 3, [(0,)]),
        (Locality.NODE, 5, []),
        (Locality.RACK, 5, [(0, 1)]),
        (Locality.ANY, 5, [(0, 1), (0, 1)]),
        (Locality.ANY, 9, [(0, 1, 2)]),
        (Locality.RACK, 9, []),
    ],
)
def test_candidates_are_nodes_then_racks_then_all(
    within: Locality, size: int, wheres: list[tuple[int, ...]]
) -> None:
    spec = cluster(4, 4, island=2, nodes_per_rack=2)
    bench = Bench(job("a", shape=gpus(size, locality=within)), on=spec)
    bench.feed(0, Submitted(0))
    view, rule = bench.kernel.view, ByUtility(threshold=0.0)
    found = rule._candidates(view, view.ledger, 0, view.ledger.cells, size)
    assert [tuple(sorted(slot.node for slot in each)) for each in found] == wheres


def test_a_whole_island_that_is_free_is_tried_on_every_kind_of_node() -> None:
    """Nodes that are down are no candidates, and of those that are alike one is enough."""
    bench = Bench(job("b", size=1), job("a", size=2), on=cluster(4, 4, island=2))
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, on(0b1, 1))])
    bench.kernel.ledger.switch(0, up=False)
    bench.feed(1, Woke())
    view, rule = bench.kernel.view, ByUtility(threshold=0.0)
    found = list(rule._candidates(view, view.ledger, 1, view.ledger.cells, 2))
    assert found == [on(0b1100, 1), on(0b0011, 2)]
