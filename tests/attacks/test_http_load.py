"""Nobody without a token, and no local user, takes the descriptors, the memory, the log or the
processor of the others."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from attacks.http_rig import ANN, EVE, by_port, by_socket, eventually, open_folder, request, sent
from ganger.client.connection import Client
from ganger.core.errors import BadInput
from ganger.service import agents
from ganger.service.durable import sandbox as trial
from ganger.service.http import connections, looks
from ganger.service.http.bodies import Bodies, Busy
from ganger.service.http.connections import Connection, Limits, Listener, limits_of
from ganger.service.http.looks import Looks, TooLong
from ganger.service.http.server import Uvicorn
from ganger.service.jobs.submission import Who
from ganger.service.log import MOST, OneLine, Sparing
from service.desk import Desk
from service.machines import Machine

DESCRIPTORS = 1024
IDLE = 1300
root_only = pytest.mark.skipif(os.getuid() != 0, reason="other users need root")


@contextlib.contextmanager
def descriptors(soft: int) -> Iterator[None]:
    """This process, and what it starts, may have so many files open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A daemon with 1,024 descriptors, shared where that can be."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2 * IDLE:
        pytest.skip("this process may not have enough descriptors to attack with")
    with open_folder() as base:
        made = Machine(base / "home", listen="127.0.0.1:0", shared=os.getuid() == 0)
        with descriptors(DESCRIPTORS):
            made.up()
        soft = max(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2 * IDLE)
        with descriptors(soft):
            yield made
            made.end()


@pytest.fixture(scope="module")
def listen(machine: Machine) -> str:
    """HOST:PORT of its TCP listener."""
    found: str = machine.client.call("GET", "/v1/status")["listen"]
    return found


class Watch:
    """What a daemon took since this was made: processor seconds, bytes of log and of memory."""

    def __init__(self, machine: Machine) -> None:
        assert machine.process is not None
        self._machine, self._process = machine, Path(f"/proc/{machine.process.pid}")
        self._before = self._read()

    def _read(self) -> tuple[float, int, int]:
        fields = (self._process / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        pages = int((self._process / "statm").read_text().split()[1])
        return ticks / os.sysconf("SC_CLK_TCK"), len(self._machine.said()), pages * 4096

    def taken(self) -> tuple[float, int, int]:
        """The differences."""
        now = self._read()
        return now[0] - self._before[0], now[1] - self._before[1], now[2] - self._before[2]


def opened(stack: contextlib.ExitStack, count: int, make: Any) -> list[socket.socket]:
    """Many connections on which nothing is said; some may have been ended at once."""
    found = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            found.append(stack.enter_context(make()))
    return found


def all_opened(stack: contextlib.ExitStack, count: int, make: Any) -> list[socket.socket]:
    """So many connections, however often it takes: a daemon that is busy may have no room in its
    queue for a moment."""
    found: list[socket.socket] = []

    def are_all() -> bool:
        found.extend(opened(stack, count - len(found), make))
        return len(found) == count

    assert eventually(are_all)
    return found


def still_served(machine: Machine, listen: str) -> None:
    """The administrator at the socket and the bearer of the token are answered, soon."""
    token = (machine.root / "token").read_text().strip()
    began = time.monotonic()
    for client in (
        Client(machine.root, timeout=10),
        Client(url=f"http://{listen}", token=token, timeout=10),
    ):
        with client:
            assert client.call("GET", "/v1/status")["listen"] == listen
    assert time.monotonic() - began < 8


def test_idle_connections_to_the_port_stop_nobody(machine: Machine, listen: str) -> None:
    watch = Watch(machine)
    with contextlib.ExitStack() as stack:
        opened(stack, IDLE, lambda: by_port(listen))
        time.sleep(2)
        still_served(machine, listen)
        processor, log, memory = watch.taken()
    assert processor < 1.5
    assert log < 8_000, machine.said()[-2000:]
    assert memory < 40 << 20


@root_only
def test_idle_connections_of_one_user_stop_no_other(machine: Machine, listen: str) -> None:
    watch = Watch(machine)
    with contextlib.ExitStack() as stack:
        opened(stack, IDLE, lambda: by_socket(machine.root, EVE))
        still_served(machine, listen)
        assert sent(by_socket(machine.root, ANN), request("GET", "/v1/jobs"))[0] == 200
        processor, log, memory = watch.taken()
    assert processor < 1.5
    assert log < 8_000, machine.said()[-2000:]
    assert memory < 40 << 20


def is_refused(make: Callable[[], socket.socket]) -> bool:
    """Whether a request on one more connection gets the answer that there are too many."""
    with contextlib.suppress(BlockingIOError):
        status, said = sent(make(), request("GET", "/v1/status"))
        return status == 429 and b"Too many connections" in said
    return False


def has_ended(connection: socket.socket) -> bool:
    """Whether the daemon has ended it, all that it sent read."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@root_only
def test_a_user_may_be_served_on_so_many_connections_and_no_more(
    machine: Machine, listen: str
) -> None:
    most = limits_of(socket.AF_UNIX, DESCRIPTORS).user
    with contextlib.ExitStack() as stack:
        streams = all_opened(stack, most, lambda: by_socket(machine.root, EVE))
        for one in streams:
            one.sendall(request("GET", "/v1/events"))
        assert all(one.recv(12) == b"HTTP/1.1 200" for one in streams)
        refused = eventually(lambda: is_refused(lambda: by_socket(machine.root, EVE)))
        if not refused and any(map(has_ended, streams)):
            pytest.skip("not all connections are being served any more: the machine is too busy")
        assert refused
        assert sent(by_socket(machine.root, ANN), request("GET", "/v1/jobs"))[0] == 200
        still_served(machine, listen)
    assert eventually(
        lambda: sent(by_socket(machine.root, EVE), request("GET", "/v1/jobs"))[0] == 200
    )


def test_a_bearer_may_be_served_on_so_many_connections_and_no_more(
    machine: Machine, listen: str
) -> None:
    token = f"Authorization: Bearer {(machine.root / 'token').read_text().strip()}"
    most = limits_of(socket.AF_INET, DESCRIPTORS).user
    with contextlib.ExitStack() as stack:
        streams = all_opened(stack, most, lambda: by_port(listen))
        for one in streams:
            one.sendall(request("GET", "/v1/events", token))
        assert all(one.recv(12) == b"HTTP/1.1 200" for one in streams)
        status, said = sent(by_port(listen), request("GET", "/v1/status", token))
        assert (status, json.loads(said)["title"]) == (429, "Too many connections")
        assert sent(by_port(listen), request("GET", "/v1/status"))[0] == 401


def test_nothing_that_is_sent_without_a_token_stays_in_memory(
    machine: Machine, listen: str
) -> None:
    watch = Watch(machine)
    giant = b"GET / HTTP/1.1\r\nX: " + b"x" * (4 << 20) + b"\r\n\r\n"
    body = b"y" * (4 << 20)
    many = "".join(f"X-{i}: y\r\n" for i in range(100_000)).encode()
    assert sent(by_port(listen), giant)[0] in (0, 400)
    assert sent(by_port(listen), b"GET / HTTP/1.1\r\n" + many)[0] in (0, 400)
    assert sent(by_port(listen), b"x" * (4 << 20))[0] in (0, 400)
    for _ in range(8):
        assert sent(by_port(listen), request("POST", "/v1/jobs", body=body))[0] in (0, 401)
    with contextlib.ExitStack() as stack:
        halves = opened(stack, 200, lambda: by_port(listen))
        for one in halves:
            with contextlib.suppress(OSError):
                one.sendall(giant[:15_000])
        time.sleep(0.5)
        _, log, memory = watch.taken()
    assert memory < 40 << 20
    assert log < 8_000, machine.said()[-2000:]


def test_what_is_no_http_does_not_fill_the_log(machine: Machine, listen: str) -> None:
    watch = Watch(machine)
    upgrade = request("GET", "/", "Upgrade: websocket").replace(b": close", b": upgrade")
    for i in range(400):
        sent(by_port(listen), b"\x16\x03\x01 no http\r\n\r\n" if i % 2 else upgrade)
    assert watch.taken()[1] < 8_000, machine.said()[-2000:]


# ---------------------------------------------------------------------- a listener by itself


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Answers every request; of the user in its path."""
    served = scope["state"][connections.CONNECTION].serves(scope["path"][1:])
    if scope["path"] in ("/slow", "/later"):
        await asyncio.sleep(60 if scope["path"] == "/slow" else 0.6)
    await send(
        {
            "type": "http.response.start",
            "status": 200 if served else 429,
            "headers": [(b"content-length", b"2")],
        }
    )
    await send({"type": "http.response.body", "body": b"ok"})


class Small:
    """A listener with small limits, over `hello`."""

    def __init__(self, limits: Limits) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.listen = "{}:{}".format(*self.socket.getsockname())
        self._server = Uvicorn(
            uvicorn.Config(hello, http=Connection, lifespan="off", log_config=None, ws="none")
        )
        self._server.config.load()
        self._server.lifespan = self._server.config.lifespan_class(self._server.config)
        self._limits = limits
        self.listener: Listener

    async def __aenter__(self) -> Small:
        await self._server.startup([])
        state = self._server.server_state
        self.listener = Listener(
            self.socket,
            lambda listener, peer, uid: Connection(
                listener, peer, uid, config=self._server.config, server_state=state, app_state={}
            ),
            self._limits,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.listener.close()
        for one in list(self._server.server_state.connections):
            one.hang_up()  # type: ignore[union-attr]
        await asyncio.sleep(0.05)
        self.socket.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to it."""
        host, _, port = self.listen.rpartition(":")
        return await asyncio.open_connection(host, int(port))


GET = b"GET /ann HTTP/1.1\r\nHost: x\r\n\r\n"


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    await reader.readexactly(2)
    return head[9:12]


def _seconds_it_lives(monkeypatch: pytest.MonkeyPatch, first: bytes, drip: bytes) -> float:
    """How long a connection is kept on which `first` is sent and then a byte now and then."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.4)

    async def attack() -> float:
        async with Small(Limits(10, 10, 0)) as server:
            reader, writer = await server.connect()
            writer.write(first)
            if first:
                assert await _answer(reader) == b"200"
            began = time.monotonic()
            for byte in drip:
                writer.write(bytes([byte]))
                with contextlib.suppress(TimeoutError):
                    if not await asyncio.wait_for(reader.read(1), 0.05):
                        break
            lived = time.monotonic() - began
            writer.close()
            return lived

    return asyncio.run(attack())


@pytest.mark.parametrize("first", [b"", GET], ids=["at the begin", "after an answer"])
def test_a_head_that_comes_byte_by_byte_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    assert 0.3 < _seconds_it_lives(monkeypatch, first, b"GET /ann HTTP/1.1\r\nX: " + b"y" * 60) < 2


def test_an_answer_may_take_longer_than_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)

    async def ask() -> None:
        async with Small(Limits(10, 10, 0)) as server:
            reader, writer = await server.connect()
            writer.write(GET.replace(b"ann", b"later") * 2)
            assert [await _answer(reader) for _ in range(2)] == [b"200", b"200"]
            writer.close()

    asyncio.run(ask())


def test_who_waits_longest_for_nothing_makes_way_and_who_is_served_stays() -> None:
    async def attack() -> None:
        async with Small(Limits(4, 3, 0)) as server:
            slow, writer = await server.connect()
            writer.write(GET.replace(b"ann", b"slow"))
            known, known_writer = await server.connect()
            known_writer.write(GET)
            assert await _answer(known) == b"200"
            idle = [await server.connect() for _ in range(2)]
            late, late_writer = await server.connect()
            late_writer.write(GET)
            assert await _answer(late) == b"200"
            assert await idle[0][0].read() == b""  # the oldest that proved nothing
            known_writer.write(GET)
            assert await _answer(known) == b"200"
            assert not slow.at_eof()
            for one in (writer, known_writer, late_writer, *(pair[1] for pair in idle)):
                one.close()

    asyncio.run(attack())


def test_a_user_has_so_many_connections_and_one_more_when_one_is_closed() -> None:
    async def attack() -> None:
        async with Small(Limits(10, 2, 0)) as server:
            pairs = [await server.connect() for _ in range(3)]
            said = []
            for reader, writer in pairs:
                writer.write(GET)
                said.append(await _answer(reader))
            assert said == [b"200", b"200", b"429"]
            pairs[2][1].write(GET.replace(b"ann", b"bob"))
            assert await _answer(pairs[2][0]) == b"200"
            pairs[0][1].close()
            await asyncio.sleep(0.1)
            pairs[2][1].write(GET)
            assert await _answer(pairs[2][0]) == b"200"
            for _, writer in pairs:
                writer.close()

    asyncio.run(attack())


class Exhausted(socket.socket):
    """A socket that has no descriptors to give."""

    asked = 0

    def accept(self) -> Any:
        """Fail."""
        Exhausted.asked += 1
        raise OSError(errno.EMFILE, "Too many open files")


def test_without_descriptors_it_waits_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "RETRY_SECONDS", 0.1)

    async def attack() -> None:
        server = Small(Limits(10, 2, 0))
        server.socket = Exhausted(fileno=server.socket.detach())
        async with server:
            _, writer = await server.connect()
            await asyncio.sleep(1)
            writer.close()

    caplog.handler.addFilter(sparing := Sparing())
    try:
        asyncio.run(attack())
    finally:
        caplog.handler.removeFilter(sparing)
    assert 3 <= Exhausted.asked <= 12
    assert 1 <= sum("no connection can be accepted" in one for one in caplog.messages) <= MOST


def test_a_port_accepts_so_many_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ACCEPTS_A_SECOND", 50)

    async def attack() -> tuple[int, float]:
        async with Small(Limits(1000, 1000, 0)) as server:
            began = time.monotonic()
            pairs = [await server.connect() for _ in range(200)]
            await asyncio.sleep(0.5)
            accepted = len(server.listener._open)
            for _, writer in pairs:
                writer.close()
            return accepted, time.monotonic() - began

    accepted, lasted = asyncio.run(attack())
    assert 50 <= accepted <= min(50 + 50 * lasted + 1, 199)


# ---------------------------------------------------------------------- bodies and the log


class Sent:
    """A request whose body comes in these parts."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts

    async def stream(self) -> Any:
        """The parts."""
        for one in self._parts:
            await asyncio.sleep(0)
            yield one


def test_a_users_bodies_are_bounded_together_and_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ganger.service.http.bodies.USER_BYTES_MAX", 30)
    monkeypatch.setattr("ganger.service.http.bodies.ALL_BYTES_MAX", 50)

    async def attack() -> None:
        bodies = Bodies()
        for _ in range(3):
            with bodies.of("eve", 20) as one, bodies.of("eve", 20) as two:
                await one.read(Sent(b"x" * 10, b"x" * 10))  # type: ignore[arg-type]
                with pytest.raises(Busy):
                    await two.read(Sent(b"x" * 10, b"x" * 10))  # type: ignore[arg-type]
                with bodies.of("ann", 20) as other:
                    await other.read(Sent(b"x" * 20))  # type: ignore[arg-type]
                    with bodies.of("bob", 20) as third, pytest.raises(Busy):
                        await third.read(Sent(b"x" * 20))  # type: ignore[arg-type]
        with bodies.of("eve", 20) as one, pytest.raises(BadInput, match="larger"):
            await one.read(Sent(b"x" * 21))  # type: ignore[arg-type]
        monkeypatch.setattr("ganger.service.http.bodies.BODY_SECONDS", 0.05)

        class Slow(Sent):
            async def stream(self) -> Any:
                while True:
                    yield b"x"
                    await asyncio.sleep(0.02)

        with bodies.of("eve", 20) as one, pytest.raises(BadInput, match="longer than"):
            await one.read(Slow())  # type: ignore[arg-type]

    asyncio.run(attack())


def test_questions_that_take_long_wait_for_each_other() -> None:
    """One at a time for each user, two in all, and not without end."""

    async def attack() -> None:
        queue, now, most, go = Looks(), [0], [0, 0], threading.Event()

        def work(user: str) -> None:
            now[0] += 1
            most[0] = max(most[0], now[0])
            go.wait(10)
            now[0] -= 1

        eve = [asyncio.create_task(queue.look(Who("eve"), work, "eve")) for _ in range(8)]
        await asyncio.sleep(0.1)
        assert now[0] == 1
        with pytest.raises(Busy):
            await queue.look(Who("eve"), work, "eve")
        others = [asyncio.create_task(queue.look(Who(f"u{i}"), work, "u")) for i in range(3)]
        await asyncio.sleep(0.1)
        assert now[0] == 2
        go.set()
        await asyncio.gather(*eve, *others)
        assert (most[0], now[0]) == (2, 0)
        await queue.look(Who("eve"), work, "eve")

    asyncio.run(attack())


def test_a_question_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe may search as long as its parameters say, and survives the errors of its parts."""
    ends: list[str] = []

    def work() -> None:
        while True:
            with contextlib.suppress(Exception):
                ends.append("a step")
                del ends[:]

    async def attack() -> None:
        queue = Looks()
        monkeypatch.setattr(looks, "PATIENCE_SECONDS", 0.2)
        with pytest.raises(TooLong):
            await queue.look(Who("eve"), work)
        monkeypatch.setattr(looks, "PATIENCE_SECONDS", 600.0)
        asyncio.get_running_loop().call_later(0.2, queue.end_all)
        with pytest.raises(TooLong):
            await queue.look(Who("eve"), work)
        assert await queue.look(Who("eve"), lambda: "done") == "done"
        assert not queue._works

    asyncio.run(attack())


def test_the_daemon_goes_down_beside_a_question_that_takes_long(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "home")
    client = machine.up()
    try:
        client.call("POST", "/v1/jobs", body={"command": ["sleep", "4"], "array": "0-99"})
        body = json.dumps({"recipes": ["pollux(population=10000,generations=100000)"]}).encode()
        with by_socket(machine.root) as asks:
            asks.sendall(request("POST", "/v1/whatif", body=body))
            time.sleep(2.0)  # until it searches
            client.call("POST", "/v1/shutdown", body={})
            assert machine.process is not None
            assert machine.process.wait(30) == 0
    finally:
        machine.end()
        agents.stop(machine.root / "agent")


@pytest.mark.parametrize("days", [0, 30])
def test_looking_ahead_ends_when_patience_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    desk = Desk(tmp_path)
    for _ in range(3):
        desk.submit(gpus=4)
    desk.until_quiet()
    (waits,) = desk.submit(gpus=4, hold=True)
    assert trial.futures(desk.daemon, ["srtf"], (), days)
    monkeypatch.setattr(looks, "PATIENCE_SECONDS", -1.0)
    with pytest.raises(BadInput, match="takes longer than"):
        trial.futures(desk.daemon, ["srtf"], (), days)
    assert trial.outlook(desk.daemon, waits) is None
    desk.close()


def test_the_log_repeats_nothing_without_end_and_a_message_is_one_line() -> None:
    now = [0.0]
    sparing, line = Sparing(lambda: now[0]), OneLine("%(name)s: %(message)s")

    def said(text: str, *values: object) -> str:
        record = logging.LogRecord("x", logging.WARNING, "", 0, text, values, None)
        return line.format(record) if sparing.filter(record) else ""

    forged = "ann\n2026 root: all is well\x1b[2J\u2028\u202e"
    assert said("job %s", forged) == "x: job " + (r"ann\n2026 root: all is well\x1b[2J\u2028\u202e")
    kept = [said("job %s", i) for i in range(1000)]
    assert len([one for one in kept if one]) == MOST - 1
    assert said("other") == "x: other"
    now[0] = 61.0
    assert said("job %s", 7) == f"x: job 7 (and {1001 - MOST} more like it before)"
    for i in range(5000):
        said(f"kind {i}")
