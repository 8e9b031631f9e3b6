"""Requests as a fluid, and the clock that they share with the simulator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.events import (
    Accepted,
    AnyEvent,
    Failed,
    Finished,
    Released,
    Served,
    Started,
    Submitted,
    Woke,
)
from ganger.core.plan import Plan, Resize, Resume, Slot, Start, Stop, Suspend
from ganger.core.profiles import Load
from ganger.core.spec import JobSpec, Kind, Role, Shape
from ganger.core.units import NEVER, SECOND
from ganger.sim.engine import IDLE_WAKES, Simulator
from ganger.sim.hosted import Hosted
from ganger.sim.load import Fluid
from ganger.sim.physics import Physics
from worlds import Work, cluster, job, trace_of

WEB = job("web", at=5, lasts=None, kind=Kind.SERVE, shape=Shape((Role(size=3, least=1, most=5),)))
LOAD = Load((0.0, 20.0, 40.0), (30.0, 90.0, 7.0), 20.0)
"""30 a second until 25 s, then 90 until 45 s, then none; a replica answers 20."""


def fluid(*works: Work, loads: dict[str, Load] | None = None, window: int = 10) -> Fluid:
    """The host of some services, from 5 s on."""
    return Fluid(trace_of(works or (WEB,)).declared, loads or {"web": LOAD}, window * SECOND)


def place(workers: int) -> Any:
    """So many workers on one node, and another role beside them."""
    return (Slot(0, (1 << workers) - 1, workers), Slot(1, 1, 1, role=1))


def replica(host: Fluid, row: int, at: int) -> None:
    """A replica comes and begins to answer."""
    host.happened(at * SECOND, [Accepted(row, JobSpec(name=f"r{row}", parent="web"), spawned=True)])
    host.planned(at * SECOND, [Start(row, 1, place(1))])
    host.happened(at * SECOND, [Started(row, 1)])


def window(host: Fluid, at: int) -> dict[str, float | None]:
    """What the window that ends at `at` seconds was like."""
    assert host.next_time() == at * SECOND
    (told,) = host.advance(at * SECOND)
    assert isinstance(told, Served)
    assert (told.since, told.services) == ((at - 10) * SECOND, (0,))
    return {name: column[0] for name, column in told.figures.items()}


def test_what_comes_is_answered_as_far_as_there_are_replicas_and_the_rest_queues() -> None:
    host = fluid()
    none = window(host, 10)  # it was submitted at 5 s
    assert none == {"arrivals": 150, "answered": 0, "queue": 150, "replicas": 0, "busy": None}
    replica(host, 1, 10)
    replica(host, 2, 10)
    assert window(host, 20) == {
        "arrivals": 300,
        "answered": 400,
        "queue": 50,
        "replicas": 2,
        "busy": 1.0,
    }
    replica(host, 3, 20)  # 50 wait: 60 a second are answered, until 25 s 30 come and then 90
    assert window(host, 30) == {
        "arrivals": 600,
        "answered": 500,
        "queue": 150,
        "replicas": 3,
        "busy": 500 / 600,
    }
    assert window(host, 40)["queue"] == 450
    last = window(host, 50)  # none come from 45 s on
    assert last == {"arrivals": 450, "answered": 600, "queue": 300, "replicas": 3, "busy": 1.0}
    assert host.next_time() == NEVER


@pytest.mark.parametrize(
    "gone",
    [
        lambda host: host.happened(15 * SECOND, [Finished(1, 1)]),
        lambda host: host.happened(15 * SECOND, [Failed(1, 1)]),
        lambda host: host.happened(15 * SECOND, [Released(1, 1)]),
        lambda host: host.planned(15 * SECOND, [Stop(1, 1)]),
        lambda host: host.planned(15 * SECOND, [Suspend(1, 1)]),
        lambda host: host.planned(15 * SECOND, [Resize(1, 2, place(2))]),
    ],
)
def test_a_replica_answers_until_it_is_told_to_go(gone: Any) -> None:
    host = fluid()
    window(host, 10)
    replica(host, 1, 10)
    gone(host)
    assert (window(host, 20)["answered"], window(host, 30)["answered"]) == (100, 0)


def test_one_that_goes_on_or_was_moved_answers_again() -> None:
    host = fluid()
    window(host, 10)
    replica(host, 1, 10)
    host.planned(12 * SECOND, [Suspend(1, 1)])
    host.planned(15 * SECOND, [Resume(1, 1)])
    assert window(host, 20)["answered"] == 7 * 20
    host.planned(20 * SECOND, [Resize(1, 2, place(2))])
    host.happened(25 * SECOND, [Started(1, 2)])
    assert window(host, 30)["answered"] == 5 * 40
    host.happened(30 * SECOND, [Started(7, 1)])  # a job that is no replica
    assert window(host, 40)["answered"] == 10 * 40


def test_a_service_that_runs_whole_answers_with_its_own_workers() -> None:
    host = fluid()
    host.planned(5 * SECOND, [Start(0, 1, place(3))])
    host.happened(5 * SECOND, [Started(0, 1)])
    assert window(host, 10) == {
        "arrivals": 150,
        "answered": 150,
        "queue": 0,
        "replicas": 1,
        "busy": 0.5,
    }
    host.happened(12 * SECOND, [Finished(0, 1)])
    assert host.advance(20 * SECOND) == [], "it is over"
    assert host.next_time() == NEVER


def test_replicas_of_the_trace_are_known_and_windows_begin_with_the_first_service() -> None:
    other = job("other", at=17, lasts=None, kind=Kind.SERVE)
    own = job("own", at=5, lasts=None, kind=Kind.SERVE, parent="web")
    loads = {"web": LOAD, "other": Load((0.0, 100.0), (1.0, 0.0), 9.0)}
    host = fluid(WEB, own, other, loads=loads)
    host.planned(5 * SECOND, [Start(1, 1, place(1))])
    host.happened(5 * SECOND, [Started(1, 1)])
    (told,) = host.advance(10 * SECOND)
    assert isinstance(told, Served)
    assert (told.services, told.figures["answered"]) == ((0,), (100.0,))
    (told,) = host.advance(20 * SECOND)
    assert isinstance(told, Served)
    assert (told.services, told.figures["arrivals"]) == ((0, 2), (300.0, 3.0))
    assert fluid(job("x", lasts=5), loads={"x": LOAD}).next_time() == NEVER


@given(
    rates=st.lists(st.floats(0, 100), min_size=2, max_size=6),
    each=st.floats(0.5, 50),
    steps=st.lists(st.tuples(st.integers(1, 15), st.integers(0, 4)), max_size=8),
)
def test_no_request_is_lost_or_answered_twice(
    rates: list[float], each: float, steps: list[tuple[int, int]]
) -> None:
    times = tuple(float(7 * at) for at in range(len(rates)))
    host = fluid(loads={"web": Load(times, tuple(rates), each)})
    now, came, answered, queue = 5, 0.0, 0.0, 0.0
    for lasts, replicas in steps:
        host.planned(now * SECOND, [Start(0, 1, place(replicas))])
        host.happened(now * SECOND, [Started(0, 1)])
        now += lasts
        (told,) = host.advance(now * SECOND)
        assert isinstance(told, Served)
        figures = {name: column[0] or 0.0 for name, column in told.figures.items()}
        came, answered = came + figures["arrivals"], answered + figures["answered"]
        queue = figures["queue"]
        assert -1e-6 <= figures["answered"] <= replicas * each * lasts + 1e-6
        assert 0.0 <= figures["busy"] <= 1.0 + 1e-9
        assert came == pytest.approx(answered + queue)
    if steps:
        until = min(now - 5, times[-1])
        assert came == pytest.approx(
            sum(
                rate * max(min(end, until) - begin, 0.0)
                for begin, end, rate in zip(times, times[1:], rates, strict=False)
            )
        )


# ---------------------------------------------------------------------- one clock


class Bell:
    """A host that rings at some seconds, and keeps what it heard."""

    def __init__(self, *at: int, says: AnyEvent | None = None) -> None:
        self.at = [time * SECOND for time in at]
        self.says = says
        self.heard: list[tuple[int, AnyEvent]] = []
        self.plans: list[tuple[int, int]] = []

    def next_time(self) -> int:
        """The next ring."""
        return self.at[0] if self.at else NEVER

    def advance(self, now: int) -> list[AnyEvent]:
        """It rings."""
        self.at.pop(0)
        return [self.says or Served(0, (), {})]

    def happened(self, now: int, events: Any) -> list[AnyEvent]:
        """Keep them."""
        self.heard += [(now // SECOND, event) for event in events]
        return []

    def planned(self, now: int, actions: Any) -> None:
        """Keep how many."""
        self.plans.append((now // SECOND, len(actions)))


def hosted(*bells: Bell, works: tuple[Work, ...] = (job("a", at=4),)) -> Hosted:
    """The simulator of some jobs with these bells."""
    trace = trace_of(works)
    from ganger.core.state.cluster import Nodes

    return Hosted(Simulator(trace.declared, trace.duration, Physics(Nodes(cluster()))), bells)


class Echo(Bell):
    """One that also answers to the end of a job."""

    def happened(self, now: int, events: Any) -> list[AnyEvent]:
        """Answer."""
        return [Served(7, (), {}) for event in events if isinstance(event, Finished)]


def test_what_is_reported_because_of_events_is_in_the_same_batch() -> None:
    engine = hosted(Echo())
    batch = engine.poll(9 * SECOND)
    assert batch is not None
    assert [type(event) for event in batch.events] == [Submitted]
    engine.apply(Plan([Start(0, 1, (Slot(0, 1, 1),))]), batch.at)
    batches = []
    while (batch := engine.poll(100 * SECOND)) is not None and batch.at < 100 * SECOND:
        batches.append([type(event) for event in batch.events])
    assert batches[-1] == [Finished, Served]


def test_jobs_hosts_and_wakes_come_in_the_order_of_time() -> None:
    first, second = Bell(2, 4, 6), Bell(4, 9)
    engine, seen = hosted(first, second), list[tuple[int, list[str]]]()
    for until in (3, 3, 6, 6, 8, 20, 20):
        batch = engine.poll(until * SECOND)
        assert batch is not None
        seen.append((batch.at // SECOND, [type(event).__name__ for event in batch.events]))
    assert seen == [
        (2, ["Served"]),
        (3, ["Woke"]),
        (4, ["Served", "Served", "Submitted"]),
        (6, ["Served", "Woke"]),
        (8, ["Woke"]),
        (9, ["Served"]),
        (20, ["Woke"]),
    ]
    assert (4, Submitted(0)) in first.heard
    assert [at for at, event in second.heard if event == Woke()] == [3, 6, 8, 20]
    assert engine.poll(NEVER) is None


def test_hosts_hear_of_plans_and_the_jobs_do_what_these_say() -> None:
    bell = Bell(1)
    engine = hosted(bell)
    engine.poll(4 * SECOND)
    engine.poll(4 * SECOND)
    engine.apply(Plan([Start(0, 1, (Slot(0, 1, 1),))]), 4 * SECOND)
    assert bell.plans == [(4, 1)]
    batch = engine.poll(NEVER)
    assert batch is not None
    assert batch.events == [Started(0, 1)]
    batch = engine.poll(NEVER)
    assert batch is not None
    assert (batch.at, batch.events) == (5 * SECOND, [Finished(0, 1)])


def test_a_host_that_reports_keeps_the_run_alive() -> None:
    engine = hosted(Bell(*range(1, IDLE_WAKES + 20)), works=(job("a"),))
    for at in range(IDLE_WAKES + 19):
        batch = engine.poll(NEVER)
        assert batch is not None, at
