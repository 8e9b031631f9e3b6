"""Switching idle nodes off and on: what is kept of the use of nodes, and who is switched when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bench import Bench
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, QUEUED, NodeDown, Started, Submitted
from ganger.core.plan import Provision
from ganger.core.units import NEVER, SECOND
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.provisioning.provision import EnergySaving, PowerMemory, PowerSaver, Use
from worlds import cluster, job

SAVING = EnergySaving(buffer=1, hold=3, falls=1.0)


def falling(series: Sequence[float], ahead: int) -> list[float]:
    """Nobody will use anything."""
    return [0.0] * ahead


def same(series: Sequence[float], ahead: int) -> list[float]:
    """It stays as it is."""
    return [series[-1]] * ahead


def test_of_the_use_of_nodes_two_days_are_kept() -> None:
    """In bins of ten minutes: as much as a forecast from yesterday looks at."""
    use = Use((), 4)
    for bin_ in range(3 * 144):
        use = SAVING.step(use, bin_ % 4, 4, same)
        assert use.used == tuple(float(at % 4) for at in range(bin_ + 1))[-288:]
    assert len(use.used) == 288


@pytest.mark.parametrize(
    ("use", "used", "then"),
    [
        (Use((6.0,) * 6, 6), 7, (8, 3)),
        (Use((6.0,) * 6, 6), 6, (6, 0)),
        (Use((6.0,) * 6, 8), 5, (8, 0)),
        (Use((6.0,) * 6, 8), 4, (5, 0)),
        (Use((6.0,) * 6, 6), 4, (5, 0)),
        (Use((9.0, 6.0, 5.0, 5.0, 5.0, 5.0), 8), 4, (5, 0)),
        (Use((6.0,) * 6, 5), 4, (5, 0)),
        (Use((6.0,) * 6, 8, hold=2), 4, (8, 1)),
        (Use((6.0,) * 6, 8, hold=2), 9, (10, 3)),
        (Use((9.0,) * 6, 9), 10, (10, 3)),
    ],
    ids=[
        "more than are on",
        "as many as are on",
        "fallen by too little",
        "fallen enough",
        "one would go",
        "fallen by just enough",
        "nothing would go",
        "held",
        "held, but more is used",
        "no more than there are",
    ],
)
def test_how_many_nodes_are_on_after_one_more_bin(
    use: Use, used: int, then: tuple[int, int]
) -> None:
    nodes = 10
    after = SAVING.step(use, used, nodes, falling)
    assert (after.active, after.hold) == then
    assert after.used == (*use.used, float(used))


@pytest.mark.parametrize(
    ("soon", "later", "on"),
    [(3.0, 3.0, 5), (3.1, 3.1, 8), (3.0, 2.0, 5), (3.0, 3.1, 8)],
    ids=["just enough lower", "too little lower", "and lower still", "and then higher again"],
)
def test_nodes_go_off_if_the_next_hours_are_forecast_as_much_lower_and_no_higher_after_that(
    soon: float, later: float, on: int
) -> None:
    """Four nodes are used where it were six; eighteen bins are soon, and as many later."""
    coming = [soon] * 18 + [later] * 18
    assert SAVING.step(Use((6.0,) * 6, 8), 4, 10, lambda series, ahead: coming).active == on


def saver(*works: int, nodes: int = 4, each: int = 2) -> Bench:
    """Jobs of so many GPUs; bins of 10 s, and a policy that forecasts that all will end."""
    policy = PowerSaver(QueuePolicy("q"), falling, SAVING, 10 * SECOND)
    return Bench(
        *(job(f"job {i}", size=size) for i, size in enumerate(works)),
        on=cluster(nodes, each),
        policy=policy,
    )


def test_it_is_asked_again_at_the_end_of_the_bin_and_when_jobs_or_nodes_come_and_go() -> None:
    bench = saver(2)
    plan = bench.feed(3, Submitted(0))
    assert plan is not None
    assert plan.wake == 13 * SECOND
    changes = CAPACITY_FREED | CAPACITY_LOST | QUEUED
    assert plan.until & changes == changes
    assert bench.policy.name == "q"


def test_while_nobody_runs_or_waits_and_nobody_did_lately_no_bin_ends() -> None:
    bench = saver(2)
    plan = bench.feed(3, NodeDown(3))
    assert plan is not None
    assert plan.wake == NEVER


@pytest.mark.parametrize(
    ("waits", "woken"), [((2,), [1, 2]), ((4,), [1, 2, 3]), ((3, 1), [1, 2, 3]), ((1,), [1, 2])]
)
def test_as_many_nodes_are_woken_as_those_who_wait_ask_for_and_the_buffer(
    waits: tuple[int, ...], woken: list[int]
) -> None:
    """One job holds the only node that is on; the others are off, the first for the longest."""
    bench = saver(2, *waits)
    bench.feed(0, Submitted(0))
    bench.feed(0, Started(0, 1))
    bench.feed(1, *(NodeDown(node) for node in (1, 2, 3)))
    bench.feed(2, *(Submitted(row) for row in range(1, bench.jobs.n)))
    memory = PowerMemory(None, Use((1.0,) * 6, 1), 10 * SECOND, [1, 2, 3])
    saving: Any = bench.policy
    plan, after = saving.decide(bench.kernel.view, memory)
    assert plan.actions == [Provision(node, "on") for node in woken]
    assert after.off == [node for node in (1, 2, 3) if node not in woken]
    assert (after.use.active, after.use.hold) == (1 + len(woken), 3)
