"""Harmony's placement: the sum of speeds, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ganger.core.plan import Plan
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import Locality
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.recipes import registry
from ganger.recipes.training.placement.harmony import Residents
from worlds import Played, Work, cluster, gpus, job, play

ALIKE_HURT = Profiles(
    {
        "x": Profile(disturbed={"x": 2.0, "y": 1 / 0.9}),
        "y": Profile(disturbed={"y": 2.0, "x": 1 / 0.9}),
    }
)
"""Two of a kind slow each other to a half, one of each to 0.9."""


def nodes(run: Played, name: str) -> list[int]:
    """Where it was started: the nodes, ascending."""
    said = next(said for _, said in run.actions if said.startswith(f"start {name} "))
    return sorted(int(part.split(":")[0]) for part in said.split(" on ")[1].split())


def test_the_card_two_of_each_kind_end_up_one_of_each_on_both_servers() -> None:
    """X, X, Y, Y: XY + XY, each at 0.9, so that 9 s of work take 10 s; best fit pairs X with X."""
    works = [job(f"{model}{at}", at, 9, model=model) for at, model in enumerate("xxyy")]
    run = play("harmony", works, cluster(2, 2), profiles=ALIKE_HURT, until=4 * SECOND)
    assert [nodes(run, f"{model}{at}") for at, model in enumerate("xxyy")] == [[0], [1], [0], [1]]
    assert [run.jobs.rate[row] for row in range(4)] == pytest.approx([0.9] * 4)
    packed = play("fifo", works, cluster(2, 2), profiles=ALIKE_HURT, until=4 * SECOND)
    assert [packed.jobs.rate[row] for row in range(4)] == pytest.approx([0.5] * 4)


def test_it_counts_what_others_lose_where_topology_aware_counts_crumbs_too() -> None:
    """Beside three that it slows by a tenth they lose 0.27 jobs in all. Alone on the other node
    nobody loses anything, but three of its GPUs stay free, which topology-aware minds more."""
    known = Profiles({"x": Profile(disturbed={"y": 1.1}), "y": Profile()})
    works = [job("three", 0, 9, size=3, model="x"), job("y", 1, 9, model="y")]
    assert nodes(play("harmony", works, cluster(2, 4), profiles=known), "y") == [1]
    assert nodes(play("topology-aware", works, cluster(2, 4), profiles=known), "y") == [0]


def test_whoever_is_slowed_already_has_less_to_lose() -> None:
    """On node 1 an `x` that a `z` has slowed to 0.2 would lose 0.1 by a `y`; on node 0 one at full
    speed would lose 0.5."""
    known = Profiles({"x": Profile(disturbed={"y": 2.0, "z": 5.0}), "y": Profile(), "z": Profile()})
    works = [
        job("fast", 0, 99, model="x", size=4),
        job("z", 1, 99, model="z", size=2),
        job("slow", 2, 99, model="x", size=2),
        job("y", 3, 9, model="y"),
    ]
    run = play("harmony", works, cluster(2, 5), profiles=known, until=4 * SECOND)
    assert [nodes(run, name) for name in ("fast", "z", "slow", "y")] == [[0], [1], [1], [1]]


def test_a_gang_is_spread_where_that_costs_less_than_its_neighbours() -> None:
    """Beside its own kind on one node both would run at 2 / 3; over two nodes it
    runs at 1 / 1.2. Where a spread costs more than that, it stays on one."""

    def placed(apart: float, **shape: Locality) -> list[int]:
        known = Profiles(
            {
                "x": Profile(locality=(1.0, 1.0, apart, apart), disturbed={"x": 1.5}),
                "calm": Profile(),
            }
        )
        works: list[Work] = [
            job("x", 0, 99, model="x", size=2),
            *(job(f"calm {at}", 1, 99, model="calm", size=3) for at in range(2)),
            job("gang", 2, 9, model="x", shape=gpus(2, **shape)),
        ]
        return nodes(
            play("harmony", works, cluster(3, 4), profiles=known, until=3 * SECOND), "gang"
        )

    assert placed(1.2) == [1, 2]
    assert placed(20.0) == [0]
    assert placed(1.2, locality=Locality.NODE) == [0]


def test_a_job_stays_away_from_one_that_slows_it_though_it_slows_nobody() -> None:
    known = Profiles({"net": Profile(disturbed={"loud": 3.0}), "loud": Profile()})
    works = [job("loud", 0, 9, model="loud"), job("net", 1, 9, model="net")]
    assert nodes(play("harmony", works, cluster(2, 4), profiles=known), "net") == [1]


def test_among_places_as_good_it_takes_the_fullest_node_and_spreads_over_the_fewest() -> None:
    """Nobody disturbs `calm`. GPUs free: 0, 2, 1 and 1."""
    known = Profiles({"x": Profile(disturbed={"x": 1.5}), "calm": Profile()})
    works = [
        job("x", 0, 99, model="x", size=4),
        *(job(f"calm {at}", at, 99, model="calm", size=size) for at, size in enumerate((2, 3, 3))),
    ]
    for size, expected in ((1, [2]), (3, [1, 2])):
        late = job("late", 3, 9, model="calm", size=size)
        assert nodes(play("harmony", [*works, late], cluster(4, 4), profiles=known), "late") == (
            expected
        )


def test_racks_bound_a_spread_and_make_it_cheaper() -> None:
    """Two nodes a rack. GPUs free: 2 beside an `x`, and 1 of each other node; over a rack a step
    takes 1.2 times as long, beyond 4 times."""
    known = Profiles(
        {"x": Profile(locality=(1.0, 1.0, 1.2, 4.0), disturbed={"x": 1.5}), "calm": Profile()}
    )
    works = [
        job("x", 0, 99, model="x", size=2),
        *(job(f"calm {at}", 1, 99, model="calm", size=3) for at in range(3)),
    ]
    for within in (Locality.RACK, Locality.ANY):
        gang = job("gang", 2, 9, model="x", shape=gpus(2, locality=within))
        run = play("harmony", [*works, gang], cluster(4, 4, nodes_per_rack=2), profiles=known)
        assert nodes(run, "gang") == ([2, 3] if within is Locality.RACK else [0])


class Watched:
    """Another policy; what it keeps of residents must be what the books say."""

    orders: tuple[type, ...] = ()
    name = "watched"

    def __init__(self) -> None:
        self.inner, self.looks = registry.make("harmony(walk=skip)"), 0

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """As the inner one, and look."""
        plan, _ = self.inner.decide(view, memory)
        kept, anew = view.cached(Residents), Residents()
        for each in (kept, anew):
            each.look(view.ledger)
        for node in range(view.nodes.n):
            for model in range(len(view.jobs.models)):
                assert kept.harm(view, model, node) == anew.harm(view, model, node)
                self.looks += 1
        return plan, None


def test_what_it_keeps_of_residents_is_what_the_books_say() -> None:
    rng = np.random.default_rng(7)
    known = Profiles(
        {
            name: Profile(disturbed={other: 1 + each / 10 for each, other in enumerate("xyz", at)})
            for at, name in enumerate("xyz")
        }
    )
    works = [
        job(
            f"{at}", at, float(rng.integers(1, 30)), int(rng.choice([1, 2, 5])), model="xyz"[at % 3]
        )
        for at in range(60)
    ]
    watched = Watched()
    play(watched, works, cluster(3, 4), profiles=known)
    assert watched.looks > 500
