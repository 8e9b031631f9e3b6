"""Hand checks of Chronus, and where it differs from its neighbours."""

from __future__ import annotations

import pytest

from ganger.core.spec import ClusterSpec, Kind, Needs, NodeSpec, Role, Shape
from ganger.core.units import SECOND
from ganger.mechanisms.common.two_level import TwoLevel
from ganger.recipes import registry
from ganger.recipes.training.deadlines import chronus
from worlds import cluster, job, play

FOUR = cluster(1, 4)
A = job("a", 0, 20, size=4, deadline=40)
B = job("b", 0, 20, size=2, deadline=20)
C = job("c", 0, 20, size=2)


def test_chronus_packs_a_late_deadline_late_and_best_effort_fills() -> None:
    """4 GPUs, leases of 10 s: B and C in leases 0 and 1, A in 2 and 3; fifo lets B miss."""
    run = play("chronus(lease=10s)", [A, B, C], FOUR)
    assert [run.ended(name) for name in "abc"] == [40, 20, 20]
    late = play("fifo", [A, B, C], FOUR)
    assert [late.ended(name) for name in "abc"] == [20, 40, 40]


def test_chronus_refuses_a_deadline_that_it_cannot_keep() -> None:
    """D comes in lease 1; 2 and 3, before its deadline, are A's. It runs as best effort, after A,
    and A keeps its promise. Earliest deadline first would not refuse."""
    late = job("d", 15, 10, deadline=40)
    run = play("chronus(lease=10s)", [A, B, C, late], FOUR)
    assert [run.ended(name) for name in "abcd"] == [40, 20, 20, 50]
    memory = play("chronus(lease=10s)", [A, B, C, late], FOUR, until=25 * SECOND).kernel.memory
    assert memory.accepted == {0: "V100"}
    assert memory.refused == [3]


def test_chronus_differs_from_edf_in_what_best_effort_gets() -> None:
    """The deadline is far: best effort goes first, and the deadline is still met."""
    works = [job("slo", 0, 20, size=4, deadline=100), job("quick", 1, 10, size=4)]
    chronus = play("chronus(lease=10s)", works, FOUR)
    edf = play("edf", works, FOUR)
    assert [chronus.ended(name) for name in ("slo", "quick")] == [30, 20]
    assert [edf.ended(name) for name in ("slo", "quick")] == [20, 30]


def test_chronus_starts_who_asks_for_no_gpus_at_once_also_between_leases() -> None:
    """All GPUs are held until the lease ends at 20 s; a core is free for one job at a time."""
    cores = Shape((Role(needs=Needs(gpus=0, cpus=1000)),))
    works = [A, job("first", 3, 4, shape=cores), job("next", 4, 2, shape=cores), job("b", 5, 5)]
    one = ClusterSpec((NodeSpec(gpus=4, gpu_type="V100", cpus=1500),))
    run = play("chronus(lease=20s)", works, one)
    assert [run.started(name) for name in ("a", "first", "next", "b")] == [0, 3, 7, 20]


@pytest.mark.parametrize(("small", "accepted"), [(6, [0, 1, 2]), (5, [0, 1])])
def test_chronus_asks_the_programme_where_the_rule_finds_nothing_and_that_is_small(
    small: int, accepted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 GPUs, two leases. By the rule the third takes half of the last lease, and the first, which
    asks for both GPUs, has none. Three jobs times two leases are the programme's size."""
    monkeypatch.setattr(chronus, "SMALL", small)
    works = [
        job("both", 0, 10, size=2, deadline=20),
        job("soon", 0, 10, deadline=10),
        job("late", 0, 10, deadline=20),
    ]
    memory = play("chronus(lease=10s)", works, cluster(1, 2), until=5 * SECOND).kernel.memory
    assert sorted(memory.accepted) == accepted
    assert memory.refused == [at for at in range(3) if at not in accepted]


def test_chronus_has_no_leases_for_the_trials_of_a_search() -> None:
    """Not for those of the first job, either: the long one is first in line, and begins."""
    works = [
        job("search", 0, None, kind=Kind.TUNE),
        job("long", 0, 10, parent="search"),
        job("short", 0, 2, parent="search"),
    ]
    policy = TwoLevel(registry.make("fifo"), registry.make("chronus(lease=5s)"))
    run = play(policy, works, FOUR, until=30 * SECOND)
    assert [run.ended(name) for name in ("long", "short")] == [10, 12]
