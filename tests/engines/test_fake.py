"""The scripted engine passes the suite, too: what is tested on it holds on others."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from engines.conformance import Bench, Conformance, Does
from ganger.core.events import AnyEvent, Batch, Command, Failed, Finished, Started, Woke
from ganger.core.plan import Placement, Plan, Resume, Slot, Start, Suspend
from ganger.core.units import NEVER, SECOND
from ganger.engines.testing.fake import FakeEngine, Script

SCRIPTS = {
    Does.FINISHES: Script(runs=10),
    Does.FAILS: Script(runs=10, fails="exit code 3"),
    Does.STUMBLES: Script(runs=10, fails="exit code 3", final=False),
    Does.RUNS: Script(),
    Does.SAVES: Script(kept=7000.0),
    Does.DEAF: Script(stop=5 * SECOND),
    Does.ABSENT: Script(start=0, runs=0, fails="LaunchFailed"),
}


class FakeBench(Bench):
    """A fake engine that plays a script per job."""

    lacks = frozenset({"processes", "restart", "agents"})

    def __init__(self) -> None:
        self.does: dict[int, Script] = {}
        self.refused: set[int] = set()
        self.engine: FakeEngine = FakeEngine(self._script)

    def _script(self, job: int, attempt: int) -> Script:
        if job in self.refused and attempt == 1:
            return Script(refuse="no room")
        return self.does[job]

    def declare(self, job: int, does: Does) -> None:
        self.does[job] = SCRIPTS[does]

    def refuse(self, job: int) -> None:
        self.refused.add(job)

    def starts(self, job: int) -> int:
        return sum(one == job for one, _ in self.engine.started)

    def alive(self, job: int) -> int:
        return int(job in self.engine.running)

    def post(self, *events: AnyEvent) -> None:
        self.engine.post(*events)

    def now(self) -> int:
        return self.engine.now

    def reconnect(self, holds: Iterable[tuple[int, int, str, Placement]]) -> None:
        raise NotImplementedError

    def kill_agent(self, node: int) -> None:
        raise NotImplementedError


@pytest.fixture
def bench() -> FakeBench:
    """A new engine."""
    return FakeBench()


class TestFake(Conformance):
    """The suite."""


def test_time_jumps_and_ends_when_nothing_is_ahead() -> None:
    engine = FakeEngine(lambda job, attempt: Script(start=5, runs=90))
    engine.apply(Plan([Start(1, 1, (Slot(0, 1),))]), 0)
    assert engine.poll(NEVER) == Batch(5, [Started(1, 1)])
    assert engine.poll(50) == Batch(50, [Woke()])
    assert engine.poll(NEVER) == Batch(95, [Finished(1, 1)])
    assert engine.poll(NEVER) is None


def test_a_suspended_attempt_ends_later_by_as_much() -> None:
    engine = FakeEngine(lambda job, attempt: Script(start=0, runs=100, fails="boom"))
    engine.apply(Plan([Start(1, 1, (Slot(0, 1),))]), 0)
    engine.poll(NEVER)
    engine.poll(40)
    engine.apply(Plan([Suspend(1, 1)]), 40)
    assert engine.poll(1000) == Batch(1000, [Woke()])
    engine.apply(Plan([Resume(1, 1)]), 1000)
    assert engine.poll(NEVER) == Batch(1060, [Failed(1, 1, 0.0, "boom", True)])


def test_a_patient_engine_waits_for_its_owner() -> None:
    engine = FakeEngine(lambda job, attempt: Script(), patient=True)
    timer = threading.Timer(0.05, lambda: engine.post(Command(3, "cancel")))
    timer.start()
    assert engine.poll(NEVER) == Batch(0, [Command(3, "cancel")])
    timer.join()
