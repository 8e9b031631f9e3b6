"""The agent itself: its folder, its disk, who may command it, what a restart of it finds."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.conformance import Does, Play, on
from engines.rig import PYTHON, Agents, LocalBench, hangs_up
from ganger.core.errors import BadInput
from ganger.core.events import (
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Progressed,
    Refused,
    Released,
    Started,
)
from ganger.core.plan import Resize, Slot, Start, Stop
from ganger.core.spec import OnPreempt
from ganger.core.units import SECOND
from ganger.engines.agent.attempt.attempt_dir import AttemptDir, SupervisorRecord, short_path
from ganger.engines.agent.attempt.spawn import Places, workers_of
from ganger.engines.agent.attempt.steps import Steps
from ganger.engines.agent.detached import start_agent
from ganger.engines.agent.protocol import Denied, Exit, Go, Hello, Key, Part, Prepare
from ganger.engines.agent.wire import GoneError, Link
from ganger.engines.clock import Clock
from ganger.engines.gang import UNCHANGED, Attempt, outcome, parts_of
from ganger.engines.gpus import find_nodes, short_name
from ganger.engines.launch import Launch
from ganger.engines.life import Status
from ganger.engines.local import AgentAt, LocalEngine

as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


def one_agent(tmp_path: Path) -> Play:
    """A play on an agent of its own."""
    bench = LocalBench(Agents(tmp_path, ["one"]))
    bench.settle()
    return Play(bench)


def refuse_all(job: int) -> Launch:
    """Nothing can be launched."""
    raise BadInput(f"job {job} is unknown")


def agents_of(play: Play) -> Agents:
    """The agents of a play."""
    assert isinstance(play.bench, LocalBench)
    return play.bench.agents


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Play]:
    """A play on an agent of its own."""
    play = one_agent(tmp_path)
    yield play
    play.bench.engine.close()  # type: ignore[attr-defined]
    agents_of(play).close()


# ---------------------------------------------------------------------- its folder


def test_two_agents_do_not_share_a_folder(own: Play) -> None:
    home = agents_of(own).homes["one"]
    second = start_agent(home, "--gpus", "1")
    assert second.wait(10) == 2
    assert "another agent runs here" in (home / "agent.log").read_text()


def test_an_agent_serves_one_cluster(own: Play) -> None:
    home = agents_of(own).homes["one"]
    for cluster, welcome in (("mine", True), ("other", False), ("mine", True)):
        engine = LocalEngine(
            refuse_all, lambda hello: [0], agents=[AgentAt(home / "agent")], cluster=cluster
        )
        batch = engine.poll(engine.clock.now() + SECOND // 5)
        assert batch is not None
        assert (NodeUp(0) in batch.events) == welcome
        engine.close()


def test_the_newest_engine_is_obeyed_and_the_older_steps_back(own: Play) -> None:
    home = agents_of(own).homes["one"]
    second = LocalEngine(refuse_all, lambda hello: [0], agents=[AgentAt(home / "agent")])
    batch = second.poll(second.clock.now() + 5 * SECOND)
    assert batch is not None
    assert NodeUp(0) in batch.events
    own.quiet(0.3)  # the first one is turned away, and waits before it asks again
    assert second.boxes["one"].link is not None
    second.close()


@as_root
def test_only_its_user_and_root_may_command_it(own: Play) -> None:
    home = agents_of(own).homes["one"]
    os.chmod(home, 0o755)
    os.chmod(home / "agent", 0o777)
    text = (
        "import os, socket, sys; os.chdir(sys.argv[1]); os.setuid(65534);"
        "s = socket.socket(socket.AF_UNIX); s.connect('agent'); s.settimeout(5); print(s.recv(1))"
    )
    asked = subprocess.run([*PYTHON, text, str(home)], capture_output=True, text=True, check=False)
    assert asked.stdout == "b''\n", asked.stderr


def test_orders_of_an_engine_that_was_not_welcomed_are_not_obeyed(own: Play) -> None:
    home = agents_of(own).homes["one"]
    sock = socket.socket(socket.AF_UNIX)
    with short_path(home, "agent") as path:
        sock.connect(path)
    link = Link(sock, Hello | Denied)
    link.send(Prepare(Key(9999, 1), Launch(command=("true",)), (Part(),), go=True))
    assert hangs_up(link)
    link.close()
    assert not (home / "attempts" / "9999.1.0").exists()


# ---------------------------------------------------------------------- restarts


def test_after_a_restart_of_the_machine_everything_that_ran_is_lost(own: Play) -> None:
    runs, done, agents = own.running(Does.RUNS), own.job(Does.FINISHES), agents_of(own)
    own.apply(Start(done, 1, (on(0, 1),)))
    record = agents.homes["one"] / "attempts" / f"{done}.1.0" / "exit"
    late = time.monotonic() + 10
    while not record.exists():
        assert time.monotonic() < late
        time.sleep(0.01)
    agents.kill("one")
    for pid in keepers(agents.homes["one"]):
        os.kill(pid, signal.SIGKILL)
    while own.bench.alive(runs):
        assert time.monotonic() < late
    (agents.homes["one"] / "boot").write_text("another boot")
    failed = own.until(Failed, runs)
    assert failed.why == "NodeFail: the machine restarted"
    assert not failed.final
    own.until(Finished, done)


def keepers(home: Path) -> list[int]:
    """The processes that were forked from the home's agent."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
            pid = int(path.parent.name)
            if str(home).encode() in words and pid != int((home / "lock").read_text()):
                found.append(pid)
        except OSError:
            continue
    return found


def test_a_prepared_part_survives_the_agent_and_starts_once(tmp_path: Path) -> None:
    prepare = Prepare(Key(1, 1), Launch(command=("true",)), (Part(),))
    folder = AttemptDir.make(tmp_path, prepare)
    with pytest.raises(FileExistsError):
        AttemptDir.make(tmp_path, prepare)
    assert folder.key == Key(1, 1)
    assert folder.prepare() == prepare
    assert not folder.was_taken()
    lock = folder.take(SupervisorRecord({}))
    assert folder.is_kept()
    with pytest.raises(FileExistsError):
        folder.take(SupervisorRecord({}))
    os.close(lock)
    assert not folder.is_kept()
    folder.write_exit(Exit(code=5))
    assert folder.exit() == Exit(code=5)


# ---------------------------------------------------------------------- a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no small disk can be mounted: {done.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_loses_output_but_no_exit_and_refuses_starts(small_disk: Path) -> None:
    own = one_agent(small_disk)
    try:
        text = "for i in range(100000): print('x' * 60, end='')\nraise SystemExit(5)"
        job = own.number()
        assert isinstance(own.bench, LocalBench)
        own.bench.launch(job, *PYTHON, text, counted=False)
        own.apply(Start(job, 1, (on(0, 0),)))
        assert own.until(Failed, job).why == "exit code 5"
        said = own.bench.engine.lost_output(job, 1)
        log = agents_of(own).homes["one"] / "logs" / f"{job}.1.log"
        missing = 6_000_000 - log.read_bytes().count(b"x")
        assert said == f"{missing} bytes of its output are missing: No space left on device"
        filler = small_disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        refused = own.number()
        own.bench.launch(refused, "true", counted=False)
        own.apply(Start(refused, 1, (on(0, 0),)))
        event = own.until(Refused, refused)
        assert "No space left" in event.why
        filler.unlink(missing_ok=True)
        log.unlink()
        own.apply(Start(refused, 2, (on(0, 0),)))
        own.until(Finished, refused, 2)
    finally:
        own.bench.engine.close()  # type: ignore[attr-defined]
        agents_of(own).close()


# ---------------------------------------------------------------------- refusals


def test_refusals_come_later_and_later_and_stopping_one_releases_it(own: Play) -> None:
    job = own.number()
    assert isinstance(own.bench, LocalBench)
    own.bench.launch(job, "true", counted=False)
    beyond = (Slot(0, 1 << 50),)  # no such device
    own.apply(Start(job, 1, beyond))
    own.until(Refused, job, 1)
    own.apply(Start(job, 2, beyond))
    own.quiet(0.2)
    assert not own.find(Refused, job, 2)
    own.apply(Stop(job, 2))
    assert own.until(Released, job, 2).kept == UNCHANGED
    own.quiet(1.0)
    assert not own.find(Refused, job, 2)


def test_a_job_that_ends_while_it_is_to_be_resized_has_finished(own: Play) -> None:
    job = own.job(Does.FINISHES)
    own.apply(Start(job, 1, (on(0, 0),)))
    time.sleep(0.3)  # it ends unseen
    own.until(Started, job)
    own.apply(Resize(job, 2, (on(0, 0, 1),)))
    own.until(Finished, job, 2)
    own.until(Released, job, 1)
    assert own.bench.starts(job) == 1


def test_a_job_that_has_ended_unseen_is_not_started_again(own: Play) -> None:
    """As after what replaced an attempt was refused, and its owner died."""
    job = own.job(Does.FINISHES)
    own.apply(Start(job, 1, (on(0, 0),)))
    time.sleep(0.3)  # it ends unseen
    own.until(Started, job)
    own.apply(Start(job, 3, (on(0, 0),)))
    own.until(Finished, job, 3)
    own.until(Released, job, 1)
    assert own.bench.starts(job) == 1


# ---------------------------------------------------------------------- parts and figures


def test_the_clock_ignores_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    first = clock.now()
    for jump in (10**18, -(10**18)):
        real = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda jump=jump, real=real: real + jump)
        assert first <= clock.now() < first + 10 * SECOND
        monkeypatch.undo()
    assert Clock(first + 10**12).now() >= first + 10**12


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("8", [("simulated", 8)]),
        ("8xV100+4xK80", [("V100", 8), ("K80", 4)]),
        ("0", [("", 0)]),
    ],
)
def test_simulated_gpus(text: str, nodes: list[tuple[str, int]]) -> None:
    found = find_nodes(text, "box")
    assert [(node.gpu_type, node.gpus) for node in found] == nodes
    assert all(node.cpus > 0 and node.memory > 0 for node in found)


@pytest.mark.parametrize("text", ["x", "8x", "-1", "65", "8xV100+", "99999"])
def test_nonsense_gpus(text: str) -> None:
    with pytest.raises(Exception, match=r"write like|at most|fewer|more than"):
        find_nodes(text)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("Tesla V100-PCIE-16GB", "V100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX2080Ti"),
        ("Tesla T4", "T4"),
        ("", "GPU"),
    ],
)
def test_names_of_gpus(name: str, short: str) -> None:
    assert short_name(name) == short


def test_the_ranks_of_a_gang_of_two_roles() -> None:
    placement = (Slot(3, 0b11, 2, 0), Slot(5, 0b1, 1, 0), Slot(3, 0, 1, 1))
    parts = parts_of(placement, "worker")
    assert list(parts) == [3, 5]
    assert [(one.role, one.first_rank, one.devices) for one in parts[3]] == [
        (0, 0, (0, 1)),
        (1, 2, ()),
    ]
    assert (parts[5][0].first_rank, parts[5][0].role_rank, parts[5][0].role_size) == (3, 2, 3)
    assert {one.world_size for group in parts.values() for one in group} == {4}


@pytest.mark.parametrize(
    ("exit_", "finished", "why", "final", "kept_all"),
    [
        (Exit(), True, "", False, True),
        (Exit(code=3), False, "exit code 3", False, False),
        (Exit(code=-11), False, "killed by signal 11", False, False),
        (Exit(code=-15, why="TimeLimit"), False, "TimeLimit", True, False),
        (Exit(code=75, asked=True, saved=4), False, "", False, True),
        (Exit(code=0, asked=True), False, "", False, True),
        (Exit(code=0, asked=True, step=9, total=9), True, "", False, True),
        (Exit(code=-9, asked=True), False, "", False, False),
    ],
)
def test_how_an_end_is_judged(
    exit_: Exit, finished: bool, why: str, final: bool, kept_all: bool
) -> None:
    one = Attempt(1, 1, (Slot(0, 1),), Launch(command=("x",), on_preempt=OnPreempt.CHECKPOINT))
    one.seats[0].status, one.seats[0].exit = Status.EXITED, exit_
    end = outcome(one)
    assert (end.finished, end.why, end.final, end.kept_all) == (finished, why, final, kept_all)


def test_the_time_of_a_step() -> None:
    steps = Steps()
    steps.take({"step": 0, "at": 10.0})
    assert steps.micros == 0.0
    steps.take({"step": 4, "at": 10.4, "metrics": {"loss": 2}})
    assert steps.micros == pytest.approx(100_000)
    steps.pause()
    steps.take({"step": 5, "at": 99.0})
    assert steps.micros == pytest.approx(100_000)
    assert (steps.step, steps.metrics) == (5, {"loss": 2.0})
    with pytest.raises((ValueError, TypeError, OverflowError)):
        steps.take({"step": "x"})


def test_frames_come_whole_however_they_are_cut() -> None:
    ours, theirs = socket.socketpair()
    sender, receiver = Link(ours, Exit), Link(theirs, Hello)
    hello = Hello("x" * 1000, ())
    sender.send(hello)
    sender.send(hello)
    whole = theirs.recv(1 << 20)
    got = []
    for byte in whole:
        ours.send(bytes([byte]))
        got += receiver.receive()
    assert got == [hello, hello]
    sender.close()
    with pytest.raises(GoneError):
        receiver.receive()
    receiver.close()


# ---------------------------------------------------------------------- machines that leave


def test_a_machine_that_will_be_gone_is_closed_and_its_jobs_save_and_leave(
    alone: LocalBench,
) -> None:
    play, home = Play(alone), alone.agents.homes["a"]
    job, other = play.running(Does.SAVES), play.running(Does.RUNS, on(1, 0))
    play.until(Progressed, job)
    (home / "leaving").write_text("the price rose")
    os.kill(int((home / "lock").read_text()), signal.SIGUSR1)
    assert play.until(Released, job).kept == pytest.approx(7000)
    assert NodeDown(0) in play.events
    late = play.job(Does.FINISHES)
    play.apply(Start(late, 1, (on(0, 0),)))
    play.until(Refused, late)
    assert alone.alive(other)
    (home / "leaving").unlink()
    alone.agents.kill("a")  # as if it came back
    play.wait(lambda: NodeUp(0) in play.events, "a node that is there again")
    play.until(Finished, play.running(Does.FINISHES))


def slurms(launch: Launch, part: Part) -> list[dict[str, str]]:
    """Slurm's variables of each worker."""
    root = Path("/nowhere")
    prepare = Prepare(Key(4, 1), launch, (part,))
    places = Places(root, root, root, root, root)
    workers = workers_of(prepare, Go(Key(4, 1), "here", 1), places, 0, {})
    return [
        {name: value for name, value in one.env.items() if name.startswith("SLURM_")}
        for one in workers
    ]


def test_slurms_variables_by_how_often_a_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    part = Part(workers=2, first_rank=2, world_size=4, node_rank=1, nodes=2)
    ids = {"GANGER_JOB_ID": "5", "GANGER_ARRAY_ID": "3", "GANGER_ARRAY_INDEX": "9"}

    def ranks(per: str) -> list[tuple[str, ...]]:
        names = ("NTASKS", "PROCID", "LOCALID", "NODEID", "NNODES", "JOB_ID")
        launch = Launch(command=("true",), per=per, env=ids)
        return [tuple(one[f"SLURM_{name}"] for name in names) for one in slurms(launch, part)]

    assert ranks("worker") == [("4", "2", "0", "1", "2", "5"), ("4", "3", "1", "1", "2", "5")]
    assert ranks("node") == [("2", "1", "0", "1", "2", "5")]
    assert slurms(Launch(command=("true",), env={"A": "1"}), part) == [{}, {}], "no daemon's job"
    launch = Launch(command=("true",), per="job", env=ids)
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "a[1-2]")
    (on_a_pilot,) = slurms(launch, part)
    assert on_a_pilot["SLURM_JOB_ID"] == "5", "the pilot's number would cancel the pilot"
    assert "SLURM_JOB_NODELIST" not in on_a_pilot
    monkeypatch.setenv("GANGER_SLURM_JOB", "77")
    (in_its_own,) = slurms(launch, part)
    assert in_its_own["SLURM_JOB_ID"] == "77"
    assert in_its_own["SLURM_ARRAY_TASK_ID"] == "9"
    assert in_its_own["SLURM_JOB_NODELIST"] == "a[1-2]"
