"""Jobs that end the supervisor that runs them: real processes, under a daemon."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.rig import Agents
from ganger.core.state.jobs import Phase
from ganger.engines.launch import KILLS
from service.live_desk import LiveDesk

KILLS_ITS_SUPERVISOR = """
import os, sys, time
kept, times = sys.argv[1], int(sys.argv[2])
before = os.path.getsize(kept) if os.path.exists(kept) else 0
open(kept, "a").write(".")
if before < times:
    os.kill(os.getppid(), 9)
    time.sleep(60)
sys.exit(before < times + int(sys.argv[3]))
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[LiveDesk]:
    """A daemon over a node of four GPUs."""
    agents = Agents(tmp_path / "agents", ["a"])
    desk = LiveDesk(tmp_path, agents, "fifo")
    yield desk
    desk.close()
    agents.close()


def submit(desk: LiveDesk, times: int, fails: int = 0) -> int:
    """A job that kills its supervisor so many times and then fails as often as it is forgiven."""
    command = [sys.executable, "-S", "-c", KILLS_ITS_SUPERVISOR]
    kept = str(desk.root / f"kept-{times}")
    command += [kept, str(times), str(fails)]
    (row,) = desk.submit(command=command, gpus=1, retries=fails)
    return row


def test_a_job_that_kills_its_supervisor_without_end_fails_and_says_so(desk: LiveDesk) -> None:
    job, other = submit(desk, 10**6), submit(desk, 0)
    desk.until(lambda: desk.phase(job) == Phase.FAILED)
    attempts = desk.journal.attempts(job)
    assert len(attempts) == KILLS + 1
    assert {each.outcome for each in attempts} == {"NodeFail: the supervisor of the job was killed"}
    desk.until(lambda: desk.phase(other) == Phase.FINISHED)


def test_a_supervisor_that_was_killed_costs_its_job_no_retry(desk: LiveDesk) -> None:
    job = submit(desk, KILLS, fails=1)
    desk.until(lambda: desk.phase(job) in (Phase.FINISHED, Phase.FAILED))
    assert desk.phase(job) == Phase.FINISHED
    assert len(desk.journal.attempts(job)) == KILLS + 2
