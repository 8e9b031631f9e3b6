"""What hostile, broken and unlucky jobs can do to the machine: nothing that outlives them."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.conformance import Does, Play, on
from engines.rig import PYTHON, Agents, LocalBench, processes_of
from ganger.core.events import Failed, Finished, Progressed, Released, Started
from ganger.core.plan import Resume, Slot, Start, Stop, Suspend
from ganger.core.spec import Needs, Role, Shape
from ganger.core.units import SECOND
from ganger.engines.agent.attempt.output import TAIL_BYTES
from ganger.engines.launch import MIB
from worlds import open_way

as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")
NOBODY = 65534


def run(play: Play, *command: str, **more: Any) -> int:
    """Order a job that runs `command` on node 0."""
    job = play.number()
    assert isinstance(play.bench, LocalBench)
    play.bench.launch(job, *command, **more)
    play.apply(Start(job, 1, (on(0, 0),)))
    return job


def eats(mib: int) -> tuple[str, ...]:
    """A program that fills so much memory and then waits."""
    return (*PYTHON, f"x = bytearray({mib} << 20); import time; time.sleep(60)")


SMALL = Shape(roles=(Role(needs=Needs(memory=64)),))


def test_a_time_limit_ends_the_job_for_good(play: Play) -> None:
    job = run(play, "sleep", "60", limit=SECOND // 10, retries=9)
    failed = play.until(Failed, job)
    assert (failed.why, failed.final) == ("TimeLimit", True)
    assert play.bench.alive(job) == 0


def test_time_in_suspension_does_not_count(play: Play) -> None:
    job = run(play, "sleep", "60", limit=SECOND)
    play.until(Started, job)
    play.apply(Suspend(job, 1))
    play.quiet(1.3)
    assert not play.find(Failed, job)
    play.apply(Resume(job, 1))
    assert play.until(Failed, job).why == "TimeLimit"


def test_a_suspended_job_does_nothing(play: Play, tmp_path: Path) -> None:
    ticks = tmp_path / "ticks"
    job = run(play, "sh", "-c", f"while :; do echo x >> {ticks}; sleep .005; done")
    play.wait(ticks.exists, "tick")
    play.apply(Suspend(job, 1))
    before = still(play, ticks)
    play.apply(Resume(job, 1))
    play.wait(lambda: ticks.stat().st_size > before, "tick after the pause")
    play.apply(Stop(job, 1))
    play.until(Released, job)


def still(play: Play, file: Path) -> int:
    """The size of a file that has stopped to grow."""
    for _ in range(20):
        before = file.stat().st_size
        play.quiet(0.2)
        if file.stat().st_size == before:
            return before
    pytest.fail("it does not stand still")


def test_more_memory_than_asked_for_kills_the_job(play: Play) -> None:
    job = run(play, *eats(200), shape=SMALL)
    assert play.until(Failed, job).why == "OutOfMemory"
    assert play.bench.alive(job) == 0


def test_as_much_memory_as_asked_for_is_fine(play: Play) -> None:
    job = run(play, *PYTHON, "x = bytearray(30 << 20)", shape=SMALL)
    play.until(Finished, job)


def test_a_flood_of_output_is_bounded_and_keeps_its_end(play: Play, agents: Agents) -> None:
    text = "import sys\nfor i in range(400000): print('line', i)\nprint('the end')"
    job = run(play, *PYTHON, text, output_limit=MIB)
    play.until(Finished, job)
    log = agents.log(job)
    assert MIB < len(log) <= MIB + TAIL_BYTES + 100
    assert log.startswith("line 0\n")
    assert log.endswith("the end\n")
    lost = sum(len(f"line {i}\n") for i in range(400000)) + len("the end\n") - MIB - TAIL_BYTES
    assert f"[ganger: {lost} bytes are missing here]" in log
    said = f"{lost} bytes of its output are missing: the job wrote more than is kept"
    assert isinstance(play.bench, LocalBench)
    assert play.bench.engine.lost_output(job, 1) == said


def test_output_and_error_go_where_they_should(play: Play, tmp_path: Path) -> None:
    out, err = tmp_path / "o $(x)", tmp_path / "e;y"
    job = run(play, "sh", "-c", "echo one; echo two >&2", output=str(out), error=str(err))
    play.until(Finished, job)
    assert (out.read_text(), err.read_text()) == ("one\n", "two\n")


def test_nothing_is_ever_read_by_a_shell(play: Play, tmp_path: Path) -> None:
    evil = f"$(touch {tmp_path}/x); `touch {tmp_path}/y` | & ' \" \n \\ *"
    cwd = tmp_path / "a $(touch z) ;"
    cwd.mkdir()
    told = tmp_path / "told"
    text = (
        "import json, os, sys; json.dump([sys.argv[1], os.environ['EVIL'], os.getcwd(),"
        f" os.environ['GANGER_JOB_NAME']], open({str(told)!r}, 'w'))"
    )
    job = run(play, *PYTHON, text, evil, counted=False, env={"EVIL": evil}, cwd=str(cwd), name=evil)
    play.until(Finished, job)
    assert json.loads(told.read_text()) == [evil, evil, str(cwd), evil]
    assert not {"x", "y", "z"} & {path.name for path in [*tmp_path.iterdir(), *cwd.iterdir()]}


@pytest.mark.parametrize("cwd", ["/no/such/folder", "/etc/passwd"])
def test_a_folder_that_is_none_fails_the_job_in_words(play: Play, cwd: str) -> None:
    job = run(play, "true", counted=False, cwd=cwd)
    failed = play.until(Failed, job)
    assert failed.final
    assert cwd in failed.why


def test_a_nul_in_an_argument_fails_the_job(play: Play) -> None:
    job = run(play, "echo", "a\0b", counted=False)
    assert play.until(Failed, job).final


def test_a_worker_that_is_killed_takes_its_gang_along(play: Play) -> None:
    job = play.number()
    bench = play.bench
    assert isinstance(bench, LocalBench)
    bench.launch(job, "sleep", "60", counted=False)
    play.apply(Start(job, 1, (Slot(0, 3, 2), Slot(1, 1, 1))))
    play.until(Started, job)
    os.kill(processes_of(job)[-1], signal.SIGKILL)
    failed = play.until(Failed, job)
    assert "signal 9" in failed.why
    assert play.bench.alive(job) == 0


def test_a_killed_keeper_takes_its_job_along(play: Play) -> None:
    job = play.running(Does.FORKS)
    play.wait(lambda: play.bench.alive(job) >= 3, "children")
    os.kill(keeper_of(play, job), signal.SIGKILL)
    failed = play.until(Failed, job)
    assert failed.why.startswith("NodeFail")
    assert not failed.final
    assert play.bench.alive(job) == 0


def keeper_of(play: Play, job: int) -> int:
    """The parent of a job's workers: the one outside the job."""
    inside, parents = processes_of(job), set()
    for pid in inside:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue  # it has ended since
        parents.add(int(stat.rpartition(")")[2].split()[1]))
    (keeper,) = parents.difference(inside)
    assert keeper > 1
    return keeper


def test_an_exit_while_no_agent_was_there_is_not_lost(play: Play, agents: Agents) -> None:
    job = run(play, "sleep", "0.3", counted=False)
    play.until(Started, job)
    agents.kill("a")
    time.sleep(0.5)
    assert play.bench.alive(job) == 0
    play.until(Finished, job)


def test_zombies_are_reaped(play: Play, agents: Agents) -> None:
    text = "for i in 1 2 3 4 5 6 7 8; do (sh -c 'exit 0' &) ; done; sleep .2"
    job = run(play, "sh", "-c", text)
    play.until(Started, job)
    keeper = keeper_of(play, job)
    play.quiet(0.1)
    assert zombies_of(keeper) == []
    play.until(Finished, job)
    play.quiet(0.1)
    assert zombies_of(int((agents.homes["a"] / "lock").read_text())) == []


def zombies_of(parent: int) -> list[int]:
    """Dead children that nobody has asked about."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, mother = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state == "Z" and int(mother) == parent:
            found.append(int(path.parent.name))
    return found


def test_the_environment_is_torchruns_and_ours(play: Play, tmp_path: Path) -> None:
    job, bench = play.number(), play.bench
    assert isinstance(bench, LocalBench)
    text = (
        "import json, os, sys;"
        "json.dump(dict(os.environ), open(sys.argv[1] + '/' + os.environ['RANK'], 'w'))"
    )
    shape = Shape(roles=(Role("worker", 3, needs=Needs(cpus=2000)),))
    bench.launch(
        job, *PYTHON, text, str(tmp_path), counted=False, shape=shape, name="n", env={"HOME": "/x"}
    )
    play.apply(Start(job, 1, (Slot(0, 0b110, 2), Slot(1, 0b1000, 1))))
    play.until(Finished, job)
    envs = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(3)]
    assert [env["WORLD_SIZE"] for env in envs] == ["3"] * 3
    assert [env["LOCAL_RANK"] for env in envs] == ["0", "1", "0"]
    assert [env["LOCAL_WORLD_SIZE"] for env in envs] == ["2", "2", "1"]
    assert [env["GROUP_RANK"] for env in envs] == ["0", "0", "1"]
    assert [env["CUDA_VISIBLE_DEVICES"] for env in envs] == ["1,2", "1,2", "3"]
    assert len({(env["MASTER_ADDR"], env["MASTER_PORT"]) for env in envs}) == 1
    first = envs[0]
    assert first["OMP_NUM_THREADS"] == "2"
    assert first["HOME"] == "/x"
    assert (first["GANGER_JOB"], first["GANGER_ATTEMPT"]) == (str(job), "1")
    assert (first["GANGER_JOB_NAME"], first["TORCHELASTIC_RESTART_COUNT"]) == ("n", "0")
    assert set(os.listdir(first["PYTHONPATH"])) == {"ganger"}


@pytest.mark.parametrize(("per", "ranks"), [("node", {"0", "1"}), ("job", {"0"})])
def test_one_process_per_node_or_in_all(
    play: Play, tmp_path: Path, per: str, ranks: set[str]
) -> None:
    job, bench = play.number(), play.bench
    assert isinstance(bench, LocalBench)
    bench.launch(job, "sh", "-c", f"touch {tmp_path}/$RANK", counted=False, per=per)
    play.apply(Start(job, 1, (Slot(0, 3, 2), Slot(1, 3, 2))))
    play.until(Finished, job)
    assert {path.name for path in tmp_path.iterdir()} == ranks


# ---------------------------------------------------------------------- other users


@as_root
def test_a_job_runs_as_its_user_and_its_log_is_theirs(play: Play, agents: Agents) -> None:
    for folder in agents.base.parents:  # the tests' own folders are closed to others
        if folder.stat().st_mode & 0o007 == 0:
            folder.chmod(folder.stat().st_mode | 0o001)
    agents.base.chmod(0o711)
    for home in agents.homes.values():
        home.chmod(0o711)
    job = run(
        play,
        "sh",
        "-c",
        "id -u; id -G; cd $GANGER_DIR; pwd; ls sdk; id -u > $GANGER_CHECKPOINT_DIR/x",
        counted=False,
        uid=NOBODY,
        gid=NOBODY,
    )
    play.until(Finished, job)
    folder = agents.homes["a"] / "attempts" / f"{job}.1.0" / "job"
    assert agents.log(job).split() == [str(NOBODY), str(NOBODY), str(folder), "sdk"]
    assert (agents.homes["a"] / "checkpoints" / str(job) / "x").read_text() == f"{NOBODY}\n"
    found = (agents.homes["a"] / "logs" / f"{job}.1.log").stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (NOBODY, 0o600)


@as_root
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="no Python for all users")
def test_the_sdk_works_for_another_user_and_its_links_are_not_followed(
    play: Play, agents: Agents, tmp_path: Path
) -> None:
    open_way(agents.homes["a"])
    victim = tmp_path / "victim"
    text = (
        "import os, sys, time; from ganger import sdk\n"
        "os.symlink(sys.argv[1], os.environ['GANGER_DIR'] + '/leave')\n"
        "sdk.progress(1, 9); time.sleep(.06); sdk.progress(2, 9); sdk.should_checkpoint()\n"
        "time.sleep(60)"
    )
    job = run(
        play,
        "/usr/bin/python3",
        "-S",
        "-c",
        text,
        str(victim),
        counted=False,
        uid=NOBODY,
        gid=NOBODY,
        grace=SECOND // 10,
    )
    play.until(Progressed, job)
    play.apply(Stop(job, 1))
    play.until(Released, job)
    assert not victim.exists()


@as_root
def test_a_users_output_is_opened_with_the_users_rights(play: Play, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    path = tmp_path / "closed" / "out"
    job = run(play, "true", counted=False, uid=NOBODY, gid=NOBODY, output=str(path))
    failed = play.until(Failed, job)
    assert "Permission denied" in failed.why
    assert not path.exists()


# ---------------------------------------------------------------------- without cgroups


@pytest.fixture(scope="module")
def bare_agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    """An agent that may not use cgroups."""
    agents = Agents(tmp_path_factory.mktemp("bare"), ["bare"], "--no-cgroups")
    yield agents
    agents.close()


@pytest.fixture
def bare(bare_agents: Agents) -> Iterator[Play]:
    """A play on it."""
    bench = LocalBench(bare_agents)
    bench.settle()
    yield Play(bench)
    bench.engine.close()


def test_without_cgroups_children_that_fled_die_too(bare: Play) -> None:
    job = bare.running(Does.FORKS)
    bare.wait(lambda: bare.bench.alive(job) >= 3, "children")
    bare.apply(Stop(job, 1))
    bare.until(Released, job)
    assert bare.bench.alive(job) == 0


def test_without_cgroups_a_killed_keeper_takes_its_job_along(bare: Play) -> None:
    job = bare.running(Does.FORKS)
    bare.wait(lambda: bare.bench.alive(job) >= 3, "children")
    os.kill(keeper_of(bare, job), signal.SIGKILL)
    bare.until(Failed, job)
    assert bare.bench.alive(job) == 0


def test_without_cgroups_memory_is_watched(bare: Play) -> None:
    job = run(bare, *eats(200), shape=SMALL)
    assert bare.until(Failed, job).why == "OutOfMemory"
    assert bare.bench.alive(job) == 0


def test_without_cgroups_suspending_stops_all(bare: Play, tmp_path: Path) -> None:
    ticks = tmp_path / "ticks"
    job = run(bare, "sh", "-c", f"(while :; do echo x >> {ticks}; sleep .005; done) & wait")
    bare.wait(ticks.exists, "tick")
    bare.apply(Suspend(job, 1))
    still(bare, ticks)
    bare.apply(Stop(job, 1))
    bare.until(Released, job)
    assert bare.bench.alive(job) == 0
