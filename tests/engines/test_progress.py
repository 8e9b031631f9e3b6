"""What an engine makes of reports: little where a job is steady, and never far from the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ganger.core.events import Failed, Measured, Progressed, Sampled, Started, Unable
from ganger.core.plan import Plan, Provision, Route, Slot, Start, Tune
from ganger.core.units import HOUR, NEVER, SECOND
from ganger.engines.agent import protocol as wire
from ganger.engines.attempts import Attempts
from ganger.engines.launch import Launch
from ganger.engines.local import FleetEngine
from ganger.engines.machines import Box
from ganger.engines.slurm.engine import SlurmEngine

EVERY = 5 * SECOND
STEP = 500_000.0


class Quiet:
    """A fleet of one machine to which nothing needs to be said."""

    def __init__(self) -> None:
        self.owner: Any = None
        self.by_name: dict[str, Box] = {}

    def send(self, box: Box, message: wire.Message) -> None:
        """Heard."""

    def wait(self, seconds: float) -> None:
        """Nothing comes."""

    def interrupt(self) -> None:
        """Nobody waits."""

    def address(self, box: Box) -> tuple[str, str] | None:
        """This machine."""
        return None

    def noted_exit(self, job: int, attempt: int, node_rank: int) -> wire.Exit | None:
        """Nothing was noted."""
        return None

    def close(self) -> None:
        """Nothing to leave."""


class Reporting:
    """A running job whose reports come in by hand."""

    def __init__(self) -> None:
        self.now = 0
        launch = Launch(command=("x",), step_micros=STEP)
        self.attempts = Attempts(Quiet(), lambda job: launch, lambda: self.now, 30 * SECOND, EVERY)
        self.box = Box(wire.Hello("a", ()), (0,))
        self.box.ready = self.box.up = True
        self.attempts.welcomed(self.box)
        self.attempts.start(0, 1, (Slot(0, 1, 1),), (), {})
        self.key = wire.Key(0, 1, 0)
        self.attempts.told(self.box, wire.Launched(self.key))
        assert Started(0, 1) in self.attempts.events
        self.attempts.events.clear()

    def report(self, step: int, micros: float, total: int = 0, **metrics: float) -> list[Any]:
        """The events that one report makes."""
        message = wire.Progress(self.key, step, total, micros, metrics=metrics)
        self.attempts.told(self.box, message)
        found, self.attempts.events[:] = list(self.attempts.events), []
        return found


def hour(noise: float, slower: float = 1.0) -> tuple[int, float]:
    """An hour of steps of half a second with this spread, which from its middle on take `slower`
    times as long: how often progress was told, and how far the account of it was ever off after a
    report, in steps of half a second."""
    job, luck = Reporting(), np.random.default_rng(0)
    times, off, step, at, smooth = 0, 0.0, 0, 0.0, 0.0
    work = rate = since = 0.0
    while job.now < HOUR:
        took = STEP * (slower if job.now > HOUR // 2 else 1.0) * float(luck.lognormal(0.0, noise))
        at, step = at + took, step + 1
        job.now = round(at)
        smooth = smooth + 0.3 * (took - smooth) if smooth else took
        for event in job.report(step, smooth):
            if isinstance(event, Progressed):
                times, work, rate, since = times + 1, event.work, event.rate, job.now
        off = max(off, abs(step - (work + rate * (job.now - since)) / STEP))
    return times, off


@pytest.mark.parametrize(
    ("noise", "slower", "most"), [(0.0, 1.0, 1), (0.05, 1.0, 60), (0.3, 1.0, 250), (0.0, 2.0, 3)]
)
def test_progress_is_told_when_the_account_is_amiss(noise: float, slower: float, most: int) -> None:
    times, off = hour(noise, slower)
    assert 1 <= times <= most
    assert off < 2.5 * EVERY / STEP


def test_the_last_step_is_told() -> None:
    job = Reporting()
    job.now = round(STEP)
    assert len(job.report(1, STEP, 10)) == 1
    job.now = round(4 * STEP)  # much faster than it seemed
    assert job.report(9, STEP / 2, 10) == []
    assert [event.work for event in job.report(10, STEP / 2, 10)] == [10 * STEP]


def test_measurements_are_told_when_they_settled_and_when_they_changed() -> None:
    job, told = Reporting(), list[tuple[int, Measured]]()
    for second in range(1, 3601):
        job.now = second * SECOND
        took = STEP * (1.0 if second < 1800 else 2.0)
        events = job.report(second, took, batch_size=64.0, grad_sqr=2.0, grad_var=500.0)
        told += [(second, event) for event in events if isinstance(event, Measured)]
    assert [event.step for _, event in told] == [STEP, 2 * STEP]
    assert told[0][0] <= 10
    assert 1800 <= told[1][0] <= 1900
    assert {(event.batch, event.noise) for _, event in told} == {(64.0, 250.0)}


def test_what_a_job_uses_is_told_at_once_and_then_when_it_changed() -> None:
    job = Reporting()

    def looked(seconds: int, gpu: float, cores: float = 1.0, seat: int = 0) -> list[Sampled]:
        job.now = seconds * SECOND
        job.attempts.events.clear()
        job.attempts.used(job.box, wire.Used(wire.Key(0, 1, seat), gpu, cores))
        return [event for event in job.attempts.events if isinstance(event, Sampled)]

    assert looked(1, 0.5) == [Sampled(0, 1, 0.5, 1.0)]
    assert looked(100, 0.59) == [], "not by a tenth"
    assert looked(200, 0.61) == [Sampled(0, 1, 0.61, 1.0)]
    assert looked(229, 0.9) == [], "too soon"
    assert looked(231, 0.9) == [Sampled(0, 1, 0.9, 1.0)]
    assert looked(300, 0.9, 1.25) == []
    assert looked(400, 0.9, 1.26) == [Sampled(0, 1, 0.9, 1.26)]
    assert looked(500, 0.2, float("nan")) == [], "nonsense"
    assert looked(600, 0.2, seat=7) == [], "none of its nodes"


def test_actions_that_nothing_is_done_about_are_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = FleetEngine(Quiet(), lambda job: Launch(command=()), None, 30 * SECOND, EVERY)
    for _ in range(3):
        engine.apply(Plan([Tune(0, 1, {"batch": 2.0}), Provision(0, "off")]), 0)
    assert [record.message.split(":")[0] for record in caplog.records] == ["Tune", "Provision"]


def test_what_an_engine_cannot_do_it_refuses_by_an_event() -> None:
    engine = FleetEngine(Quiet(), lambda job: Launch(command=()), None, 30 * SECOND, EVERY)
    assert not engine.capabilities.actions & {"Provision", "Route"}
    engine.apply(Plan([Tune(3, 1, {"batch": 2.0}), Route(4, {5: 1.0}), Provision(0, "off")]), 0)
    batch = engine.poll(NEVER)
    assert batch is not None
    assert batch.events == [
        Unable(3, "Tune", why="this engine does not turn such knobs of jobs"),
        Unable(4, "Route", why="this engine does not route requests"),
    ]


def test_an_engine_without_grants_fails_who_would_only_hold_something() -> None:
    engine = FleetEngine(Quiet(), lambda job: Launch(command=(), hollow=True), None, 0, EVERY)
    engine.capabilities = SlurmEngine.capabilities
    engine.apply(Plan([Start(3, 1, (Slot(0, 1),))]), 0)
    batch = engine.poll(NEVER)
    assert batch is not None
    (failed,) = batch.events
    assert isinstance(failed, Failed)
    assert failed.final
    assert "holds no devices for the children" in failed.why
