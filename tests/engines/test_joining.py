"""Agents that join over TCP: who may, what happens when one is cut off and comes back."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engines.conformance import Does, Play, on
from engines.rig import Agents, LocalBench, hangs_up, processes_of
from ganger.core.errors import BadInput
from ganger.core.events import Failed, Finished, NodeDown, NodeUp, Refused, Released, Started
from ganger.core.plan import Plan, Start, Stop
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.engines.agent.detached import start_agent
from ganger.engines.agent.protocol import (
    NONCE_BYTES,
    OLDEST,
    VERSION,
    Challenge,
    Denied,
    Hello,
    Key,
    Part,
    Prepare,
    Read,
    Ready,
    Text,
    ToAgent,
    Welcome,
    proof,
)
from ganger.engines.agent.wire import GoneError, Link
from ganger.engines.launch import Launch
from ganger.engines.local import Hold, LocalEngine

TOKEN = "a token that nobody guesses"
LOST_AFTER = 3 * SECOND // 2


class JoinedBench(LocalBench):
    """Agents that dial the engine; one that is killed is started again by its test."""

    def __init__(
        self, base: Path, host: str, prefixes: Sequence[Sequence[str]], *options: str
    ) -> None:
        self._options = options
        self.token = base / "token"
        self.token.write_text(TOKEN + "\n")
        self._host, self._prefixes = host, prefixes
        self._port = 0
        agents = Agents(base, [])
        agents.homes = {f"far{i}": base / f"far{i}" for i in range(len(prefixes))}
        super().__init__(agents)
        for i in range(len(prefixes)):
            self.start(i)

    def start(self, i: int) -> None:
        """Start an agent that joins."""
        name = f"far{i}"
        self.agents.started.append(
            start_agent(
                self.agents.homes[name],
                "--gpus",
                "4",
                "--name",
                name,
                "--silence",
                "1.5",
                "--join",
                f"{self._host}:{self.engine.port}",
                "--token-file",
                str(self.token),
                *self._options,
                prefix=self._prefixes[i],
            )
        )

    def connected(self, holds: Sequence[Hold]) -> LocalEngine:
        engine = LocalEngine(
            self.launches.__getitem__,
            self._admit,
            listen=(self._host, self._port),
            token=TOKEN,
            lost_after=LOST_AFTER,
            cluster="joined",
            progress_every=SECOND // 10,
        )
        self._port = engine.port
        engine.adopt(holds)
        return engine


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Play]:
    """Two agents that joined over the loopback."""
    bench = JoinedBench(tmp_path, "127.0.0.1", [(), ()])
    bench.settle()
    yield Play(bench)
    bench.engine.close()
    bench.agents.close()


def heard(engine: LocalEngine, node: int, order: Read) -> Text:
    """What the node's machine reads. Raises BadInput."""
    answer = engine.read(node, order)
    assert answer is not None
    until = time.monotonic() + 10
    while not answer.done() and time.monotonic() < until:
        engine.poll(engine.clock.now() + SECOND // 50)
    return answer.result(0)


def bench_of(play: Play) -> JoinedBench:
    """The bench of a play."""
    assert isinstance(play.bench, JoinedBench)
    return play.bench


def test_a_gang_runs_over_agents_that_joined(far: Play) -> None:
    job = far.running(Does.SAVES, on(0, 0), on(1, 0))
    far.apply(Stop(job, 1))
    far.until(Released, job)


def test_outputs_are_read_where_they_lie(far: Play, tmp_path: Path) -> None:
    bench, job = bench_of(far), far.number()
    named = tmp_path / "named"
    bench.launch(job, "sh", "-c", "for i in 1 2 3; do echo line $i of $RANK; done")
    far.apply(Start(job, 1, (on(0, 0), on(1, 0))))
    far.until(Finished, job)

    def read(node: int, **order: Any) -> Text:
        return heard(bench.engine, node, Read(0, job, 1, **order))

    whole = b"line 1 of %d\nline 2 of %d\nline 3 of %d\n"
    assert read(0).data == whole % (0, 0, 0)
    assert read(1, node_rank=1).data == whole % (1, 1, 1)
    tail = read(0, lines=2)
    assert (tail.data, tail.at) == (b"line 2 of 0\nline 3 of 0\n", 36)
    assert read(0, at=36).data == b""
    assert read(0, path=str(named)).at == -1
    named.write_text("mine")
    assert read(0, path=str(named)).data == b"mine"
    assert "Permission denied" in read(0, path=str(named), uid=os.getuid() + 1).why
    assert "not a regular file" in read(0, path=str(tmp_path)).why
    piece, big = 0, bytes(range(256)) * 3000
    named.write_bytes(big)
    found = b""
    while data := (answer := read(0, path=str(named), at=piece)).data:
        found, piece = found + data, answer.at
    assert found == big


def test_the_owner_restarts_and_agents_find_it_again(far: Play) -> None:
    job = far.running(Does.SAVES, on(0, 0), on(1, 0))
    far.bench.reconnect([(job, 1, "RUNNING", (on(0, 0), on(1, 0)))])
    far.at_work(job)
    far.apply(Stop(job, 1))
    assert far.until(Released, job).kept == pytest.approx(7000)
    assert far.bench.starts(job) == 2


def test_a_silent_node_is_down_and_its_jobs_have_failed_until_it_is_back(far: Play) -> None:
    bench = bench_of(far)
    lost, stays = far.running(Does.RUNS, on(0, 0)), far.running(Does.RUNS, on(1, 0))
    gang = far.running(Does.RUNS, on(0, 1), on(1, 1))
    agent = int((bench.agents.homes["far0"] / "lock").read_text())
    os.kill(agent, signal.SIGSTOP)
    try:
        for job in (lost, gang):
            failed = far.until(Failed, job)
            assert (failed.why, failed.final) == ("NodeFail", False)
        far.wait(lambda: NodeDown(0) in far.events, "NodeDown")
        assert bench.alive(lost)  # nobody can reach it
        far.wait(lambda: bench.alive(gang) == 1, "end of the gang's other half")
    finally:
        os.kill(agent, signal.SIGCONT)
    far.wait(lambda: NodeUp(0) in far.events[far.events.index(NodeDown(0)) :], "NodeUp")
    assert not bench.alive(lost)  # given up, so it was killed before the node came up
    assert not bench.alive(gang)
    assert bench.alive(stays)
    far.apply(Start(lost, 2, (on(0, 0),)))
    far.until(Started, lost, 2)
    assert not far.find(Failed, stays)


def test_a_node_whose_agent_restarts_in_time_was_never_down(far: Play) -> None:
    bench = bench_of(far)
    job = far.running(Does.RUNS)
    bench.kill_agent(0)
    bench.start(0)
    far.apply(Stop(job, 1))
    far.until(Released, job)
    assert NodeDown(0) not in far.events


@pytest.mark.parametrize("fence", [(), ("--fence", "2")])
def test_an_agent_with_a_fence_kills_its_jobs_when_it_is_cut_off(
    tmp_path: Path, fence: tuple[str, ...]
) -> None:
    bench = JoinedBench(tmp_path, "127.0.0.1", [()], *fence)
    try:
        bench.settle()
        play = Play(bench)
        job = play.running(Does.RUNS)
        later = time.monotonic() + 3.5
        play.wait(lambda: time.monotonic() > later, "time")
        assert bench.alive(job)  # it hears pings
        bench.engine.close()  # to the agent this is a cut
        time.sleep(1.0)
        assert bench.alive(job)
        until = time.monotonic() + 5
        while bench.alive(job) and time.monotonic() < until:
            time.sleep(0.05)
        assert bool(bench.alive(job)) == (not fence)
        bench.engine = bench.connected([Hold(job, 1, Phase.RUNNING, (on(0, 0),))])
        if fence:
            failed = Play(bench).until(Failed, job)
            assert (failed.why, failed.final) == ("NodeFail", False)
    finally:
        bench.engine.close()
        bench.agents.close()


# ---------------------------------------------------------------------- who may join


def test_listening_needs_a_token() -> None:
    with pytest.raises(BadInput, match="token"):
        LocalEngine(lambda job: None, lambda hello: [], listen=("127.0.0.1", 0))  # type: ignore[arg-type, return-value]


@pytest.fixture
def open_engine(request: pytest.FixtureRequest) -> Iterator[LocalEngine]:
    """An engine that listens, and is patient unless the test says otherwise."""
    engine = LocalEngine(
        lambda job: Launch(command=("true",), script="#!x" if job == 7 else "", listens=job == 9),
        lambda hello: [0],
        listen=("127.0.0.1", 0),
        token=TOKEN,
        lost_after=getattr(request, "param", 30 * SECOND),
    )
    yield engine
    engine.close()


@pytest.fixture
def dial(open_engine: LocalEngine) -> Iterator[Callable[[], Link]]:
    """Makes connections to it, as an agent does."""
    links: list[Link] = []

    def connect() -> Link:
        sock = socket.create_connection(("127.0.0.1", open_engine.port))
        links.append(Link(sock, ToAgent))
        return links[-1]

    yield connect
    for link in links:
        link.close()


def hear(engine: LocalEngine, link: Link) -> list[object]:
    """What the engine says within some time; ends with None if it hung up."""
    heard: list[object] = []
    for _ in range(100):
        engine.poll(engine.clock.now() + 2000)
        try:
            heard += link.receive()
        except GoneError:
            return [*heard, None]
        if heard:
            return heard
    return heard


def test_a_wrong_token_is_turned_away(open_engine: LocalEngine, dial: Callable[[], Link]) -> None:
    link = dial()
    challenge = hear(open_engine, link)[0]
    assert isinstance(challenge, Challenge)
    nonce = bytes(NONCE_BYTES)
    wrong = proof("guessed", "agent", challenge.nonce, nonce)
    link.send(Hello("x", (), nonce=nonce, proof=wrong))
    answer = hear(open_engine, link)
    assert isinstance(answer[0], Denied)
    assert not open_engine.boxes


def test_a_proof_of_another_connection_is_worth_nothing(
    open_engine: LocalEngine, dial: Callable[[], Link]
) -> None:
    first, second = dial(), dial()
    challenge = hear(open_engine, first)[0]
    hear(open_engine, second)
    assert isinstance(challenge, Challenge)
    nonce = bytes(NONCE_BYTES)
    good = proof(TOKEN, "agent", challenge.nonce, nonce)
    second.send(Hello("x", (), nonce=nonce, proof=good))
    assert isinstance(hear(open_engine, second)[0], Denied)
    first.send(Hello("x", (), nonce=nonce, proof=good))
    hear(open_engine, first)
    assert set(open_engine.boxes) == {"x"}


def welcome(engine: LocalEngine, link: Link, version: int) -> object:
    """What the engine answers to an agent with one node that speaks this version."""
    challenge = hear(engine, link)[0]
    assert isinstance(challenge, Challenge)
    nonce = bytes(NONCE_BYTES)
    good = proof(TOKEN, "agent", challenge.nonce, nonce)
    link.send(Hello("x", (), nonce=nonce, proof=good, version=version))
    return hear(engine, link)[0]


def test_a_version_that_is_too_old_is_turned_away_in_words(
    open_engine: LocalEngine, dial: Callable[[], Link]
) -> None:
    answer = welcome(open_engine, dial(), OLDEST - 1)
    assert isinstance(answer, Denied)
    assert f"version {OLDEST - 1}" in answer.why


def test_a_newer_agent_is_welcome(open_engine: LocalEngine, dial: Callable[[], Link]) -> None:
    assert isinstance(welcome(open_engine, dial(), VERSION + 1), Welcome)


def test_an_agent_of_version_1_gets_what_it_knows(
    open_engine: LocalEngine, dial: Callable[[], Link]
) -> None:
    link = dial()
    assert isinstance(welcome(open_engine, link, 1), Welcome)
    link.send(Ready())
    with pytest.raises(BadInput, match="speaks version 1"):
        heard(open_engine, 0, Read(0, 0, 1))
    for job, what in ((7, "scripts"), (9, "commands with {port}")):
        open_engine.apply(Plan([Start(job, 1, (on(0, 0),))]), 0)
        batch = open_engine.poll(open_engine.clock.now() + SECOND)
        assert batch is not None
        assert [type(event) for event in batch.events] == [Refused]
        assert f"does not support {what}" in batch.events[0].why  # type: ignore[union-attr]
    open_engine.apply(Plan([Start(8, 1, (on(0, 0),))]), 0)
    told = hear(open_engine, link)
    order = next(one for one in told if isinstance(one, Prepare))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(order.launch)) == {"command": ["true"]}


@pytest.mark.parametrize(
    "bytes_", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\0\0\0\1\xc1", b"\0\0\0\2{}"]
)
def test_garbage_ends_the_connection_and_nothing_else(
    open_engine: LocalEngine, dial: Callable[[], Link], bytes_: bytes
) -> None:
    link = dial()
    hear(open_engine, link)
    link.socket.send(bytes_)
    assert hear(open_engine, link) == [None]
    assert hear(open_engine, dial())


@pytest.mark.parametrize("open_engine", [SECOND // 4], indirect=True)
def test_who_says_nothing_is_dropped(open_engine: LocalEngine, dial: Callable[[], Link]) -> None:
    link = dial()
    hear(open_engine, link)
    late = time.monotonic() + 5
    while hear(open_engine, link) != [None]:
        assert time.monotonic() < late


PREPARE = Prepare(Key(1, 1), Launch(command=("true",)), (Part(),), go=True)


def test_an_engine_that_does_not_know_the_token_commands_nobody(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = start_agent(
            tmp_path / "home",
            "--gpus",
            "1",
            "--join",
            f"127.0.0.1:{server.getsockname()[1]}",
            "--token-file",
            str(tmp_path / "token"),
        )
        try:
            sock, _ = server.accept()
            link = Link(sock, Hello | Denied)
            link.send(Challenge(bytes(NONCE_BYTES)))
            late = time.monotonic() + 10
            while not (heard := link.receive()):
                assert time.monotonic() < late
                time.sleep(0.01)
            assert isinstance(heard[0], Hello)
            link.send(PREPARE)
            assert hangs_up(link)
            assert not list((tmp_path / "home" / "attempts").iterdir())
            link.close()
        finally:
            process.kill()
            process.wait()


# ---------------------------------------------------------------------- two machines


def ip(*words: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def wires() -> Iterator[tuple[str, list[str]]]:
    """Two network namespaces on a bridge: (the bridge's address, their names)."""
    if shutil.which("ip") is None or os.getuid() != 0:
        pytest.skip("network namespaces need root and iproute2")
    tag = f"g{os.getpid() % 100000}"
    names, net = [f"{tag}a", f"{tag}b"], "10.213.77"
    try:
        ip("link", "add", f"{tag}br", "type", "bridge")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    try:
        ip("addr", "add", f"{net}.254/24", "dev", f"{tag}br")
        ip("link", "set", f"{tag}br", "up")
        for i, name in enumerate(names):
            ip("netns", "add", name)
            ip("link", "add", f"{name}v", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{name}v", "master", f"{tag}br", "up")
            ip("-n", name, "addr", "add", f"{net}.{i + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield f"{net}.254", names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", f"{tag}br"], check=False, capture_output=True)


RENDEZVOUS = """
import os, socket, time
host, port, rank = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), os.environ["RANK"]
if rank == "0":
    with socket.create_server(("", port)) as server:
        sock, _ = server.accept()
        assert sock.recv(10) == b"rank 1"
else:
    for _ in range(500):
        try:
            sock = socket.create_connection((host, port)); break
        except OSError: time.sleep(.01)
    sock.send(b"rank 1")
print("rank", rank, "has met", flush=True)
time.sleep(float(os.environ.get("STAY", "0")))
"""


def test_two_machines_on_a_network_are_one_cluster(
    wires: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, names = wires
    bench = JoinedBench(tmp_path, address, [("ip", "netns", "exec", name) for name in names])
    play = Play(bench)
    try:
        bench.settle()
        job = play.number()
        bench.launch(job, "python3", "-c", RENDEZVOUS)
        play.apply(Start(job, 1, (on(0, 0), on(1, 0))))
        play.until(Finished, job)
        for i in (0, 1):
            answer = heard(bench.engine, i, Read(0, job, 1, node_rank=i))
            assert answer.data == b"rank %d has met\n" % i

        cut = play.number()
        bench.launch(cut, "python3", "-c", RENDEZVOUS, env={"STAY": "60"})
        play.apply(Start(cut, 1, (on(0, 0), on(1, 0))))
        play.until(Started, cut)
        ip("link", "set", f"{names[1]}v", "down")
        assert play.until(Failed, cut).why == "NodeFail"
        play.wait(lambda: NodeDown(1) in play.events, "NodeDown")
        with pytest.raises(BadInput, match="away"):
            heard(bench.engine, 1, Read(0, job, 1, node_rank=1))
        ip("link", "set", f"{names[1]}v", "up")
        play.wait(lambda: NodeUp(1) in play.events[play.events.index(NodeDown(1)) :], "NodeUp")
        assert not processes_of(cut)
        play.apply(Start(cut, 2, (on(1, 0), on(0, 0))))
        play.until(Started, cut, 2)
        play.apply(Stop(cut, 2))
        play.until(Released, cut, 2)
    finally:
        bench.engine.close()
        bench.agents.close()
