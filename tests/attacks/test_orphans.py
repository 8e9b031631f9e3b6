"""What a job left behind is ended before anything else starts on its devices."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.conformance import Play, on
from engines.rig import PYTHON, Agents, LocalBench, processes_of
from ganger.core.events import Failed, Started
from ganger.core.plan import Start, Stop
from ganger.engines.agent.attempt import processes

FLEES = """
import os, sys, time
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        if os.fork() == 0: time.sleep(300)  # and one in the session of the one that fled
        time.sleep(300)
print("fled", flush=True)
time.sleep(300)
"""


@pytest.fixture(params=[(), ("--no-cgroups",)], ids=["cgroups", "bare"])
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Play]:
    """An engine on one agent, with and without cgroups."""
    agents = Agents(tmp_path, ["one"], *request.param)
    bench = LocalBench(agents)
    bench.settle()
    yield Play(bench)
    bench.engine.close()
    agents.close()


def keeper_of(job: int) -> int:
    """The process of the job's keeper: its workers' parent."""
    for pid in processes_of(job):
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if "ganger.engines.agent" in Path(f"/proc/{parent}/cmdline").read_text():
            return parent
    pytest.fail("no keeper")


def test_agent_and_keeper_are_killed_and_what_fled_does_not_meet_the_next_attempt(
    own: Play,
) -> None:
    bench = own.bench
    assert isinstance(bench, LocalBench)
    job = own.number()
    bench.launch(job, *PYTHON, FLEES, counted=False)
    own.apply(Start(job, 1, (on(0, 0),)))
    own.until(Started, job)
    own.wait(lambda: len(processes_of(job)) >= 5, "those that flee")
    keeper = keeper_of(job)
    bench.agents.kill("one")
    os.kill(keeper, signal.SIGKILL)
    assert own.until(Failed, job).why.startswith("NodeFail")
    assert processes_of(job) == []
    own.apply(Start(job, 2, (on(0, 0),)))
    own.until(Started, job, 2)
    own.apply(Stop(job, 2))


def test_a_process_of_another_user_is_not_ended_for_its_environment() -> None:
    if os.getuid():
        pytest.skip("ORPHANS OF OTHER USERS ARE NOT TESTED: needs root")
    theirs = subprocess.Popen(["sleep", "60"], user=65534, env={"GANGER_DIR": "/x/job"})
    try:
        assert processes.marked("GANGER_DIR=/x/job", os.getuid()) == []
        assert processes.marked("GANGER_DIR=/x/job", 65534) == [theirs.pid]
    finally:
        theirs.kill()
        theirs.wait()
