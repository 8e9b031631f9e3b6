"""Replicas that are told at which port to listen: where they are found, how they leave, and that
nothing of them stays."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engines.conformance import Play, on
from engines.rig import LocalBench, processes_of
from ganger.core.events import Failed, Released
from ganger.core.plan import Start, Stop
from ganger.engines.agent.attempt.steps import Steps
from ganger.sdk import replica

SERVER = """
import os, signal, socket, sys, time
word, port = sys.argv[1], os.environ["GANGER_PORT"]
assert word == f"--port={port}", word
listener = socket.create_server(("127.0.0.1", int(port)))
def leave(*_):
    listener.close()
    print("left", flush=True)
    time.sleep(.1)  # the rest of its answers
    sys.exit(int(os.environ.get("CODE", "0")))
signal.signal(signal.SIGTERM, leave)
print("up", os.getpid(), flush=True)
while True:
    with listener.accept()[0] as sock: sock.sendall(b"here")
"""
LISTENS: dict[str, Any] = {"listens": True, "step_micros": 0.0, "counted": False}


def served(play: Play, *words: str, **fields: Any) -> int:
    """A replica that runs this command."""
    job = play.number()
    assert isinstance(play.bench, LocalBench)
    play.bench.launch(job, *words, **LISTENS, **fields)
    play.apply(Start(job, 1, (on(0, 0),)))
    return job


def server(play: Play, **env: str) -> tuple[int, int, int]:
    """A replica that listens: its job, its port, and the server's process."""
    job = served(play, sys.executable, "-S", "-c", SERVER, "--port={port}", env=env)
    assert isinstance(play.bench, LocalBench)
    progress, agents = play.bench.engine.progress, play.bench.agents
    play.wait(lambda: job in progress and "up" in agents.log(job), "port")
    return job, int(progress[job].served["port"]), int(agents.log(job).split()[1])


def answers(port: int) -> bool:
    """Whether the replica answers there."""
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as sock:
            return sock.recv(9) == b"here"
    except OSError:
        return False


def parent(pid: int) -> int:
    """The process that started it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def nothing_is_left(play: Play, job: int) -> bool:
    """Whether no process of the job is there any more, within some seconds."""
    late = time.monotonic() + 10
    while processes_of(job) and time.monotonic() < late:
        play.poll(0.05)
    return not processes_of(job)


def test_a_replica_is_found_where_it_listens_and_answers_on_while_it_drains(play: Play) -> None:
    job, port, _ = server(play, GANGER_DRAIN="1.5")
    assert answers(port)
    play.apply(Stop(job, 1))
    asked = time.monotonic()
    while time.monotonic() < asked + 1.0:
        assert answers(port), "whoever brings requests may not have heard yet"
        play.poll(0.1)
    play.until(Released, job)
    assert time.monotonic() >= asked + 1.5
    assert not answers(port)
    assert play.bench.agents.log(job).split()[2:] == ["left"]  # type: ignore[attr-defined]
    assert nothing_is_left(play, job)


def test_signals_reach_the_command_and_its_end_is_the_replicas(play: Play) -> None:
    job, port, pid = server(play, GANGER_DRAIN="0.2", CODE="7")
    began = time.monotonic()
    os.kill(parent(pid), signal.SIGTERM)
    assert answers(port)
    assert play.until(Failed, job).why == "exit code 7"
    assert time.monotonic() >= began + 0.2
    for words, why in (
        (("sh", "-c", "kill -SEGV $$"), "killed by signal 11"),
        (("sh", "-c", "kill -KILL $$"), "killed by signal 9"),
        (("no-such-program", "{port}"), "exit code 127"),
    ):
        job = served(play, *words)
        assert play.until(Failed, job).why == why
    log = play.bench.agents.log(job)  # type: ignore[attr-defined]
    assert log == "replica: no-such-program: No such file or directory\n"


def test_whoever_is_killed_leaves_no_process(play: Play) -> None:
    job, port, pid = server(play)
    os.kill(parent(pid), signal.SIGKILL)
    assert play.until(Failed, job).why == "killed by signal 9"
    assert nothing_is_left(play, job)
    assert not answers(port)
    job, _, pid = server(play)
    os.kill(parent(parent(pid)), signal.SIGKILL)  # the supervisor
    play.until(Failed, job)
    assert nothing_is_left(play, job)


def test_no_two_replicas_are_told_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = replica._ephemeral()
    port, ours = replica.reserved_port()
    ours.close()
    assert replica.LOWEST_PORT <= port < 1 << 16
    assert not first <= port <= last, "an outgoing connection might take it"
    monkeypatch.setattr(replica, "LOWEST_PORT", port)
    monkeypatch.setattr(replica, "_ephemeral", lambda: (port + 2, (1 << 16) - 1))
    with socket.create_server(("127.0.0.1", port)):
        found, kept = replica.reserved_port()
        assert found == port + 1, "the other one is taken"
        with kept, pytest.raises(OSError, match="no port"):
            replica.reserved_port()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 2), ("0", 0), ("0.5", 0.5), ("-1", 2), ("nan", 2), ("inf", 2), ("soon", 2)],
)
def test_how_long_it_drains(text: str, seconds: float) -> None:
    assert replica.drain_seconds(text) == seconds


def test_a_port_stands_until_another_is_told_and_nonsense_is_none() -> None:
    steps = Steps()
    for told in (8000, 0.5, -1, 1 << 16, float("nan"), float("inf")):
        steps.take({"served": {"port": told}})
    steps.take({"served": {"arrivals": 3}})  # the command itself may count
    assert steps.served == {"port": 8000, "arrivals": 3}
