"""Warm starts: workers forked from an interpreter that has its imports done."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ganger
from engines.conformance import Play, on
from engines.rig import Agents, LocalBench, processes_of
from ganger.core.events import Failed, Finished, Progressed, Released, Started
from ganger.core.plan import Slot, Start, Stop

SOURCE = Path(ganger.__file__).parents[1]
SLOW = "import time; time.sleep(0.5); LOADED = time.monotonic()"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A folder with a module that takes half a second to import."""
    (tmp_path / "slowmodule.py").write_text(SLOW)
    return tmp_path


def run(play: Play, module: Path, *words: str, slot: Slot | None = None) -> int:
    """A job that wants the module warm."""
    job = play.number()
    assert isinstance(play.bench, LocalBench)
    play.bench.launch(
        job,
        sys.executable,
        *words,
        counted=False,
        warm=("slowmodule",),
        env={"PYTHONPATH": f"{module}:{SOURCE}"},
    )
    play.apply(Start(job, 1, (slot or on(0, 0),)))
    return job


@pytest.fixture
def warm(module: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Play, Path]]:
    """A play on an agent whose interpreter is warm, and the module's folder."""
    agents = Agents(tmp_path_factory.mktemp("warm"), ["a"])
    bench = LocalBench(agents)
    bench.settle()
    play = Play(bench)
    try:
        play.until(Finished, run(play, module, "-c", "import slowmodule"))
        late = time.monotonic() + 10
        while not list((agents.homes["a"] / "warm").glob("*.ready")):
            assert time.monotonic() < late
            time.sleep(0.02)
        yield play, module
    finally:
        bench.engine.close()
        agents.close()


def test_a_warm_job_is_like_a_cold_one_but_quicker(warm: tuple[Play, Path]) -> None:
    play, module = warm
    (module / "script.py").write_text(
        "import os, sys, time\nbefore = time.monotonic()\nimport slowmodule, helper\n"
        "assert time.monotonic() - before < .4\n"
        "print(__name__, sys.argv[1:], os.environ['RANK'], os.getcwd() == os.environ['PWDIS'])\n"
        "print('to stderr', file=sys.stderr)\nimport atexit; atexit.register(print, 'bye')\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    (module / "helper.py").write_text("")
    job, bench = play.number(), play.bench
    assert isinstance(bench, LocalBench)
    bench.launch(
        job,
        sys.executable,
        "-u",
        str(module / "script.py"),
        "7",
        counted=False,
        warm=("slowmodule",),
        cwd=str(module),
        env={"PWDIS": str(module), "PYTHONPATH": f"{module}:{SOURCE}"},
    )
    play.apply(Start(job, 1, (on(0, 0),)))
    assert play.until(Failed, job).why == "exit code 7"
    log = bench.agents.log(job).splitlines()
    assert sorted(log) == ["__main__ ['7'] 0 True", "bye", "to stderr"]


def test_a_warm_job_is_stopped_and_its_children_with_it(warm: tuple[Play, Path]) -> None:
    play, module = warm
    text = (
        "import os, time, slowmodule\nfrom ganger import sdk\n"
        "if not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(99)\n"
        "sdk.progress(1, 9); time.sleep(.06); sdk.progress(2, 9)\n"
        "while not sdk.should_checkpoint(): time.sleep(.01)\nsdk.leave(2)"
    )
    job = run(play, module, "-c", text)
    play.until(Progressed, job)
    assert len(processes_of(job)) == 0  # a fork shows the environment of its interpreter
    members = group_of(play, job)
    assert len(members) == 2
    play.apply(Stop(job, 1))
    assert play.until(Released, job).kept == pytest.approx(2000)
    assert not [pid for pid in members if Path(f"/proc/{pid}").exists() and not zombie(pid)]


def group_of(play: Play, job: int) -> list[int]:
    """Who is in the job's cgroup."""
    agents = play.bench.agents  # type: ignore[attr-defined]
    name = f"ganger-{agents.homes['a'].stat().st_ino}"
    paths = Path("/sys/fs/cgroup").glob(f"**/{name}/{job}.1.0/cgroup.procs")
    return [int(pid) for path in paths for pid in path.read_text().split()]


def zombie(pid: int) -> bool:
    """Whether it is dead but not reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_warm_workers_of_a_gang_have_their_own_ranks(warm: tuple[Play, Path]) -> None:
    play, module = warm
    text = "import os, slowmodule; print('rank', os.environ['RANK'], os.environ['WORLD_SIZE'])"
    job = run(play, module, "-c", text, slot=Slot(0, 0b111, 3))
    play.until(Finished, job)
    log = play.bench.agents.log(job)  # type: ignore[attr-defined]
    assert sorted(log.splitlines()) == [f"rank {rank} 3" for rank in range(3)]


def test_a_killed_warm_worker_and_a_killed_interpreter_are_noticed(
    warm: tuple[Play, Path],
) -> None:
    play, module = warm
    killed = run(play, module, "-c", "import time; time.sleep(99)")
    play.until(Started, killed)
    worker = group_of(play, killed)[0]
    interpreter = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(worker, signal.SIGKILL)
    assert "signal 9" in play.until(Failed, killed).why
    orphaned = run(play, module, "-c", "import time; time.sleep(99)")
    play.until(Started, orphaned)
    worker = group_of(play, orphaned)[0]
    os.kill(interpreter, signal.SIGKILL)
    assert "signal 9" in play.until(Failed, orphaned).why
    assert zombie(worker)
    again = run(play, module, "-c", "import slowmodule")  # cold
    play.until(Finished, again)
