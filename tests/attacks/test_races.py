"""A user races root inside folders that are the user's: links are swapped while root works there.

Needs root, to have a second user: without it these tests are skipped, and say so.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.conformance import Play, on
from engines.rig import Agents, LocalBench
from ganger.core.errors import BadInput
from ganger.core.events import Evaluated, Failed, Finished, Progressed, Released, Started
from ganger.core.plan import Start, Stop
from ganger.core.units import SECOND
from ganger.engines.agent.attempt.output import Output
from ganger.engines.agent.attempt.steps import Steps
from ganger.engines.agent.reading import read_piece
from ganger.engines.agent.rights import rights_of
from worlds import open_way

pytestmark = pytest.mark.skipif(
    os.getuid() != 0, reason="ATTACKS BY A SECOND USER ARE NOT TESTED: only root can make one"
)
USER = "gangermallory"
TRIES = 60
PYTHON = "/usr/bin/python3"

SWAPS = """
import os, sys
base, first, tries, victim = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
for job in range(first, first + tries):
    folder, then = f"{base}/{job}.1.0/job", f"{base}/{job + 1}.1.0"
    linked = moved = False
    turns = 0
    while not (linked and moved):
        turns += 1
        try:
            if not linked:
                os.symlink(victim, folder + "/script"); linked = True
        except FileExistsError:
            linked = True
        except OSError:
            pass
        try:
            if not moved:
                os.rename(folder + "/sdk", folder + "/old")
                os.symlink(victim, folder + "/sdk"); moved = True
        except OSError:
            pass
        if not turns % 64 and os.path.exists(then):
            break
"""


@pytest.fixture(scope="module")
def mallory() -> Iterator[int]:
    """The number of a real second user."""
    if shutil.which("useradd") is None:
        pytest.skip("ATTACKS BY A SECOND USER ARE NOT TESTED: there is no useradd")
    subprocess.run(["userdel", "-f", USER], capture_output=True, check=False)
    subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", USER], check=True)
    yield int(subprocess.check_output(["id", "-u", USER]))
    subprocess.run(["userdel", "-f", USER], capture_output=True, check=False)


@pytest.fixture
def own(agents: Agents) -> Iterator[Play]:
    """A play on agents that other users can pass through to what is theirs."""
    open_way(agents.homes["a"])
    bench = LocalBench(agents)
    bench.settle()
    yield Play(bench)
    bench.engine.close()


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    """An agent of root."""
    agents = Agents(tmp_path_factory.mktemp("attacked"), ["a"])
    yield agents
    agents.close()


@contextlib.contextmanager
def attacking(uid: int, text: str, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the user that runs this program in a loop of its own."""
    process = subprocess.Popen(
        [PYTHON, "-I", "-S", "-c", text, *map(str, words)], user=uid, group=uid, extra_groups=[]
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def run(play: Play, uid: int, *command: str, **more: object) -> int:
    """Order a job of the user on node 0."""
    job = play.number()
    assert isinstance(play.bench, LocalBench)
    play.bench.launch(job, *command, counted=False, uid=uid, gid=uid, **more)
    play.apply(Start(job, 1, (on(0, 0),)))
    return job


@pytest.mark.skipif(not Path(PYTHON).exists(), reason="no Python for all users")
def test_links_that_are_swapped_while_a_job_starts_lead_root_nowhere(
    own: Play, agents: Agents, mallory: int, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("root's")
    open_way(tmp_path)
    first = own.number() + 1
    attempts = agents.homes["a"] / "attempts"
    with attacking(mallory, SWAPS, attempts, first, TRIES, victim):
        for _ in range(TRIES):
            job = run(own, mallory, script="#!/bin/sh\nexit 0\n")
            own.until(Finished, job)
            assert victim.read_text() == "root's"
            assert victim.stat().st_uid == 0


def test_a_pipe_in_place_of_the_file_leave_does_not_hold_the_keeper(
    own: Play, mallory: int
) -> None:
    text = (
        "trap '' USR1; mkfifo $GANGER_DIR/leave; echo $! > $GANGER_DIR/ready;"
        " while :; do sleep .1; done"
    )
    job = run(own, mallory, "sh", "-c", text, grace=SECOND // 10, kill_after=SECOND // 10)
    own.until(Started, job)
    folder = agents_home(own) / "attempts" / f"{job}.1.0" / "job"
    own.wait((folder / "ready").exists, "the pipe")
    own.apply(Stop(job, 1))
    own.until(Released, job)


def agents_home(play: Play) -> Path:
    """The folder of the attacked agent."""
    assert isinstance(play.bench, LocalBench)
    return play.bench.agents.homes["a"]


def test_a_tree_as_deep_as_can_be_does_not_end_the_agent(own: Play, mallory: int) -> None:
    text = (
        "import os; os.chdir(os.environ['GANGER_DIR'])\n"
        "for _ in range(3000): os.mkdir('d'); os.chdir('d')"
    )
    job = run(own, mallory, PYTHON, "-I", "-S", "-c", text)
    own.until(Finished, job)
    after = run(own, mallory, "true")
    own.until(Finished, after)
    folder = agents_home(own) / "attempts" / f"{job}.1.0"
    own.wait(lambda: not folder.exists(), "the folder to go")


# ---------------------------------------------------------------------- reading output


def test_an_output_that_became_a_link_shows_nobody_elses_file(mallory: int, tmp_path: Path) -> None:
    open_way(tmp_path)
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, mallory, mallory)
    (folder / "out").symlink_to("/etc/shadow")
    with pytest.raises(BadInput):
        read_piece(folder / "out", -1, 0, mallory)


def test_what_a_user_cannot_reach_cannot_be_probed_through_root(
    mallory: int, tmp_path: Path
) -> None:
    open_way(tmp_path)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "there").write_text("secret")
    said = []
    for name in ("there", "not-there"):
        link = tmp_path / name
        link.symlink_to(closed / name)
        with pytest.raises(BadInput) as told:
            read_piece(link, -1, 0, mallory)
        said.append(str(told.value).replace(name, ""))
    assert said[0] == said[1]


def test_a_device_is_not_even_opened(mallory: int, tmp_path: Path) -> None:
    # To open some devices does something: a watchdog restarts the machine.
    open_way(tmp_path)
    device = tmp_path / "device"
    os.mknod(device, 0o600 | 0o020000, os.makedev(10, 130))  # watchdog: no driver, or no right
    with pytest.raises(BadInput, match="Permission denied"):
        read_piece(device, -1, 0, mallory)


def test_a_file_is_read_as_its_owner_and_rights_come_back(mallory: int, tmp_path: Path) -> None:
    open_way(tmp_path)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, mallory, mallory)
    with rights_of(mallory):
        (theirs / "out").write_text("mine\n")
        with pytest.raises(PermissionError):
            Path("/etc/shadow").read_bytes()
    assert (theirs / "out").stat().st_uid == mallory
    theirs.chmod(0o700)
    assert read_piece(theirs / "out", -1, 0, mallory).data == b"mine\n"
    assert Path("/etc/shadow").read_bytes()


# ---------------------------------------------------------------------- writing output


@pytest.mark.parametrize("folder", ["sys/vm/swappiness", "sys/kernel/core_pattern"])
def test_an_output_turns_no_switch_of_the_kernel(
    own: Play, agents: Agents, mallory: int, folder: str
) -> None:
    """Below /proc/sys the kernel asks for the effective user, not for the user of files; by
    core_pattern anybody would become root."""
    switch = Path("/proc") / folder
    before = switch.read_text()
    job = run(own, mallory, "printf", before.strip(), output=str(switch))
    ended = own.until(Failed, job)
    assert "LaunchFailed" in ended.why
    assert str(switch) in ended.why
    assert switch.read_text() == before


def test_an_output_is_written_with_no_more_rights_than_its_users(own: Play, mallory: int) -> None:
    """What is written to can ask who writes: root may keep any process from the OOM killer."""
    with attacking(mallory, "import time; time.sleep(60)") as process:
        score = Path(f"/proc/{process.pid}/oom_score_adj")
        assert score.stat().st_uid == mallory
        before = score.read_text()
        job = run(own, mallory, "printf", "-1000", output=str(score))
        own.until(Finished, job)
        assert score.read_text() == before


def test_what_a_job_writes_is_written_as_its_user(
    mallory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root would write past the user's disk quota, and into what is kept for root."""
    file, (reads, writes) = os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY), os.pipe()
    users, write = [], os.write

    def noted(descriptor: int, data: bytes) -> int:
        users.append(os.geteuid())
        return write(descriptor, data)

    output = Output(reads, file, 4, mallory)
    write(writes, b"some words")
    os.close(writes)
    monkeypatch.setattr(os, "write", noted)
    output.pump()
    output.finish()
    assert users == [mallory, mallory]  # what came at once, and what was kept of the end
    assert os.geteuid() == 0
    assert (tmp_path / "out").read_bytes() == b"some words"


def test_root_sees_no_processes_for_a_user(mallory: int) -> None:
    """Ways through other users' processes lead past closed folders."""
    for name in ("cwd", "root", "fd/0"):
        with rights_of(mallory), pytest.raises(PermissionError):
            os.stat(f"/proc/{os.getppid()}/{name}/")


# ---------------------------------------------------------------------- what jobs report

HOSTILE = [
    b'{"step": Infinity, "at": 1}',
    b'{"step": 1e400, "at": 1}',
    b'{"saved": Infinity}',
    b"[" * 60_000,
    json.dumps({"step": 10**300, "at": 1}).encode(),
    json.dumps({"step": 1, "total": 10**300, "at": 1}).encode(),
    b'{"step": 1, "at": NaN}',
    b'{"step": 2, "at": 1, "metrics": {"a": Infinity}}',
    b'{"report": 1}',
    b'{"report": {}}',
    b'{"report": {"step": 1e999, "metrics": {"a": 1}}}',
    b'{"report": {"step": 1, "metrics": {"a": "b"}}}',
    b'{"report": {"step": 1, "metrics": []}}',
    b'{"served": 1}',
    b'{"served": {"arrivals": "many"}}',
    b'{"served": {"p99": NaN}}',
]


def test_reports_of_nonsense_do_not_end_the_keeper(own: Play, mallory: int) -> None:
    text = (
        "import os, socket, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "s.connect(os.environ['GANGER_DIR'] + '/sdk')\n"
        f"for one in {HOSTILE!r}: s.send(one)\n"
        'time.sleep(.2); s.send(b\'{"step": 1, "at": 1}\')\n'
        'time.sleep(.2); s.send(b\'{"step": 3, "at": 2}\'); time.sleep(1)'
    )
    job = run(own, mallory, PYTHON, "-I", "-S", "-c", text)
    own.until(Progressed, job)
    own.until(Finished, job)


def test_a_job_that_reports_without_end_waits(own: Play, mallory: int) -> None:
    text = (
        "import json, os, socket, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "s.connect(os.environ['GANGER_DIR'] + '/sdk'); began = time.monotonic()\n"
        "while time.monotonic() < began + 2:\n"
        "    s.settimeout(.1)\n"
        '    try: s.send(b\'{"report": {"step": 1, "metrics": {"loss": 1}}}\')\n'
        "    except TimeoutError: pass"
    )
    job = run(own, mallory, PYTHON, "-I", "-S", "-c", text)
    own.until(Finished, job)
    assert 200 <= len(own.find(Evaluated, job)) < 1000, "of thousands"


def test_metrics_stay_few_and_short_however_many_are_told() -> None:
    # A report larger than a frame would end the machine's connection, each time it comes back.
    steps = Steps()
    for i in range(500):
        names = {f"{i}.{j}" + "x" * 30_000: 1.0 for j in range(2)}
        steps.take({"step": i, "at": float(i), "metrics": names | {"loss": 1.0 / (i + 1)}})
    assert len(steps.metrics) <= 64
    assert max(map(len, steps.metrics)) <= 128
    assert sys.getsizeof(str(steps.metrics)) < 1 << 16
