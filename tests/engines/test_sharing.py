"""Jobs that share a device, on core sets: real processes that compute on the same core."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ganger
from engines.conformance import Play, on
from engines.rig import Agents, LocalBench, processes_of
from ganger.core.events import Released, Started
from ganger.core.plan import Slot, Start, Stop, Tune
from ganger.engines.agent.meter import cpu_seconds
from ganger.engines.gpus import core_sets

SOURCE = Path(ganger.__file__).parents[1]
COMPUTES = """
import time
from ganger import sdk
steps = 0
while True:
    until = time.process_time() + 0.005
    while time.process_time() < until: pass
    steps += 1
    sdk.progress(steps, 10**9)
    {hook}
    if sdk.should_checkpoint(): sdk.leave(steps)
"""
FIRM: dict[str, float | str] = {"request": 1.0, "control": "step-time", "settle_s": 10.0}
LOOSE: dict[str, float | str] = {**FIRM, "request": 0.0}


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """A play on a machine with four devices, each a set of cores."""
    agents = Agents(tmp_path, ["a"], "--core-sets", "--meter", "0.5")
    bench = LocalBench(agents)
    bench.settle()
    yield Play(bench)
    bench.engine.close()
    agents.close()


def computing(play: Play, terms: dict[str, float | str], hook: str = "pass", **more: int) -> int:
    """A job that computes all the time on half of device 0, on these terms."""
    job, bench = play.number(), play.bench
    assert isinstance(bench, LocalBench)
    command = (sys.executable, "-S", "-c", COMPUTES.format(hook=hook))
    bench.launch(job, *command, counted=False, env={"PYTHONPATH": str(SOURCE)})
    play.apply(Start(job, 1, (Slot(0, 1, share=500),)), Tune(job, 1, terms))
    play.at_work(job)
    return job


def cores_of(play: Play, job: int, seconds: float) -> float:
    """How many cores the job used, on average over the next seconds."""
    before, began = sum(map(cpu_seconds, processes_of(job))), time.monotonic()
    play.quiet(seconds)
    return (sum(map(cpu_seconds, processes_of(job))) - before) / (time.monotonic() - began)


@pytest.mark.parametrize("hook", ["pass", "sdk.step()"])
def test_an_opportunistic_job_yields_to_a_guaranteed_one_within_two_seconds_and_comes_back(
    play: Play, hook: str
) -> None:
    loose = computing(play, LOOSE, hook)
    play.quiet(1.0)
    before = cores_of(play, loose, 2.0)
    firm = computing(play, FIRM)
    play.quiet(0.5)
    beside = cores_of(play, loose, 1.5)
    assert beside < before / 4
    assert beside < 0.1
    play.apply(Stop(firm, 1, "cancelled"))
    play.until(Released, firm)
    play.quiet(1.0)
    assert cores_of(play, loose, 2.0) > 4 * beside + 0.1
    play.apply(Stop(loose, 1))
    play.until(Released, loose)


def test_jobs_run_on_the_cores_of_their_devices_only(play: Play) -> None:
    sets = core_sets(4)
    job = computing(play, FIRM)
    (pid,) = processes_of(job)
    assert os.sched_getaffinity(pid) == sets[0]
    both = play.number()
    assert isinstance(play.bench, LocalBench)
    play.bench.launch(both, "sleep", "60", counted=False)
    play.apply(Start(both, 1, (on(0, 1, 2),)))
    play.until(Started, both)
    assert {frozenset(os.sched_getaffinity(pid)) for pid in processes_of(both)} == {
        sets[1] | sets[2]
    }


def test_terms_outlive_the_agent(play: Play) -> None:
    """The next agent on the folder paces the job as the one before."""
    loose, firm = computing(play, LOOSE), computing(play, FIRM)
    bench = play.bench
    assert isinstance(bench, LocalBench)
    play.quiet(1.0)
    bench.agents.kill("a")
    play.quiet(3.0)
    assert bench.engine.boxes["a"].link is not None, "it is there again"
    assert cores_of(play, loose, 1.0) < 0.1
    assert cores_of(play, firm, 1.0) > 0.2


def test_sets_of_cores_are_even_and_apart_unless_there_are_too_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 4, 5, 7})
    assert [sorted(cores) for cores in core_sets(2)] == [[0, 2], [4, 5, 7]]
    assert [sorted(cores) for cores in core_sets(5)] == [[0], [2], [4], [5], [7]]
    assert [sorted(cores) for cores in core_sets(7)] == [[0], [2], [4], [5], [7], [0], [2]]
