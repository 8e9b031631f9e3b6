"""A service on a daemon: its address stays whatever becomes of replicas, daemon and front."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cli.typed import typed
from ganger.serving.front.link import Told, asked_at
from service.machines import Machine
from soaking import many, rarely

ECHO = str(Path(__file__).with_name("echo.py"))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(
        tmp_path_factory.mktemp("service") / "home", serving="scale.static-peak", inner="fifo"
    )
    made.up()
    yield made
    made.end()


def said(machine: Machine, *words: str, code: int = 0) -> str:
    """What a command of `ganger service` prints."""
    env = {**os.environ, "GANGER_HOME": str(machine.root)}
    if words[0] != "start":
        result = typed(machine.root.parent, "service", *words, code=code, env=env)
        return result.stdout + result.stderr
    ganger = [sys.executable, "-m", "ganger.cli", "service", *words]  # its front outlives it
    done = subprocess.run(ganger, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def shown(machine: Machine, name: str) -> Told:
    told = asked_at(machine.root, name)
    assert told is not None
    return told


def eventually(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def ready(machine: Machine, name: str, count: int) -> bool:
    found = [each for each in shown(machine, name).replicas if each.state != "leaving"]
    return [each.state for each in found] == ["ready"] * count


class Load:
    """Clients that ask again and again, while something happens."""

    def __init__(self, url: str, clients: int = 4) -> None:
        self.port, self.clients = int(url.rpartition(":")[2]), clients
        self.statuses: Counter[int] = Counter()
        self.versions: Counter[str] = Counter()
        self.pids: set[int] = set()
        self.wrong = 0
        """Answers to something else than what was asked."""
        self._numbers = count()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()))

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def goes_on(self, more: int = 50) -> None:
        """Until so many more were answered."""
        before = self.statuses.total()
        eventually(lambda: self.statuses.total() >= before + more)

    async def _all(self) -> None:
        await asyncio.gather(*(self._client() for _ in range(self.clients)))

    async def _client(self) -> None:
        while not self._ends.is_set():
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                while not self._ends.is_set():
                    await self._ask(reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                self.statuses[0] += 1  # the connection broke
            finally:
                writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = b"%08d" % next(self._numbers)
        head = b"POST /v2/models/m/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 8\r\n\r\n"
        writer.write(head + asked)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        body: dict[str, Any] = json.loads(await reader.readexactly(length))
        self.statuses[int(head.split()[1])] += 1
        if "version" in body:
            self.versions[body["version"]] += 1
            self.pids.add(body["pid"])
            self.wrong += body["asked"] != asked.decode()


@pytest.fixture(scope="module")
def web(machine: Machine) -> Iterator[str]:
    """A service of two replicas."""
    words = ("--replicas", "2", "--port", "0", "--", sys.executable, ECHO, "{port}", "v1")
    assert "web is served at http://127.0.0.1:" in said(machine, "start", "web", *words)
    yield "web"
    if asked_at(machine.root, "web") is not None:
        said(machine, "stop", "web")


def test_every_replica_answers_and_each_is_seen(machine: Machine, web: str) -> None:
    eventually(lambda: ready(machine, web, 2))
    with Load(shown(machine, web).url) as load:
        load.goes_on(200)
    assert set(load.statuses) == {200}
    assert load.wrong == 0
    assert len(load.pids) == 2
    listed, whole = said(machine, "list"), said(machine, "show", web)
    assert "2/2 ready" in listed
    assert whole.count(" ready ") == 2
    jobs = json.loads(said(machine, "show", web, "--json"))["replicas"]
    states = {machine.client.call("GET", f"/v1/jobs/{job['job']}")[0]["state"] for job in jobs}
    assert states == {"RUNNING"}


def test_a_name_is_taken_once(machine: Machine, web: str) -> None:
    words = ("start", web, "--", "true")
    assert "is served already" in said(machine, *words, code=2)
    assert "no service 'other' is served here" in said(machine, "show", "other", code=2)


def test_a_killed_replica_is_not_noticed(machine: Machine, web: str) -> None:
    with Load(shown(machine, web).url) as load:
        load.goes_on()
        victim = next(iter(load.pids))
        os.kill(victim, signal.SIGKILL)
        load.goes_on(200)
    assert set(load.statuses) == {200}
    eventually(lambda: ready(machine, web, 2))


def test_requests_flow_while_there_is_no_daemon(machine: Machine, web: str) -> None:
    with Load(shown(machine, web).url) as load:
        machine.kill()
        load.goes_on(200)
        eventually(lambda: not shown(machine, web).daemon)
        machine.up()
        eventually(lambda: shown(machine, web).daemon)
        load.goes_on()
    assert set(load.statuses) == {200}
    assert ready(machine, web, 2)


def test_a_killed_front_is_followed_at_once_under_the_last_table(
    machine: Machine, web: str
) -> None:
    machine.kill()  # the next front has nobody to ask
    try:
        before = shown(machine, web)
        with Load(before.url) as load:
            load.goes_on()
            os.kill(before.pid, signal.SIGKILL)
            load.goes_on(200)
        assert load.statuses[0] <= load.clients  # their connections were reset, once
        assert set(load.statuses) <= {0, 200}
        assert shown(machine, web).pid != before.pid
        assert len(load.pids) == 2
    finally:
        machine.up()
    eventually(lambda: shown(machine, web).daemon)


def test_it_is_scaled_without_a_failed_request(machine: Machine, web: str) -> None:
    with Load(shown(machine, web).url) as load:
        said(machine, "scale", web, "3")
        eventually(lambda: ready(machine, web, 3))
        said(machine, "scale", web, "1")
        eventually(lambda: ready(machine, web, 1))
        load.goes_on()
        said(machine, "scale", web, "2")
        eventually(lambda: ready(machine, web, 2))
    assert set(load.statuses) == {200}


def test_a_worse_version_goes_back(machine: Machine, web: str) -> None:
    old = [each.job for each in shown(machine, web).versions]
    words = (
        "--steps",
        "50%,100%",
        "--hold",
        "1h",
        "--",
        sys.executable,
        ECHO,
        "{port}",
        "v2",
        "bad",
    )
    with Load(shown(machine, web).url) as load:
        said(machine, "rollout", web, *words)
        eventually(lambda: getattr(shown(machine, web).rollout, "state", "") == "back")
        eventually(lambda: [each.job for each in shown(machine, web).versions] == old)
        before = load.versions["v2"]
        load.goes_on(100)
    assert load.versions["v2"] == before
    assert "of its answers were errors" in said(machine, "show", web)
    assert "no rollout is under way" in said(machine, "rollback", web, code=2)


def test_a_rollout_ends_with_the_next_version_and_no_request_fails(
    machine: Machine, web: str
) -> None:
    old = shown(machine, web).versions[0].job
    words = ("--steps", "20%,100%", "--hold", "100ms", "--max-slower", "1000",
             "--", sys.executable, ECHO, "{port}", "v3")  # fmt: skip
    with Load(shown(machine, web).url) as load:
        said(machine, "rollout", web, *words)
        eventually(lambda: getattr(shown(machine, web).rollout, "state", "") == "done")
        eventually(lambda: old not in [each.job for each in shown(machine, web).versions])
        load.goes_on(100)
    assert set(load.statuses) == {200}
    assert load.versions["v3"] > 0
    ended = lambda: machine.client.call("GET", f"/v1/jobs/{old}")[0]["state"] == "CANCELLED"  # noqa: E731
    eventually(ended)


def kill_one(machine: Machine, name: str, random: Random, load: Load) -> str:
    """Something of a service, as kill -9 does it."""
    victim = random.choice(["replica", "replica", "front", "daemon"])
    if victim == "daemon":
        machine.kill()
        load.goes_on(20)
        machine.up()
    elif victim == "front":
        os.kill(shown(machine, name).pid, signal.SIGKILL)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(random.choice(sorted(load.pids)), signal.SIGKILL)
        load.pids.clear()
    return victim


@pytest.mark.parametrize("kills", [10, rarely(190)])
def test_whatever_is_killed_every_request_gets_its_own_answer(
    machine: Machine, web: str, kills: int
) -> None:
    random = Random(kills)
    with Load(shown(machine, web).url) as load:
        load.goes_on(20)
        killed = Counter[str]()
        for _ in range(many(kills)):
            killed[kill_one(machine, web, random, load)] += 1
            load.goes_on(30)
    assert load.wrong == 0
    assert set(load.statuses) <= {0, 200, 502, 503}
    assert load.statuses[0] <= load.clients * killed["front"]
    assert load.statuses[200] > 0.9 * load.statuses.total()
    assert load.statuses[502] <= load.clients * killed["replica"]
    eventually(lambda: shown(machine, web).daemon)
    eventually(lambda: ready(machine, web, 2), 60.0)


def test_a_drained_service_says_so_and_a_stopped_one_leaves_nothing(
    machine: Machine, web: str
) -> None:
    told = shown(machine, web)
    assert "takes no new requests" in said(machine, "drain", web)
    with Load(told.url, clients=1) as load:
        load.goes_on(3)
    assert set(load.statuses) == {503}
    said(machine, "drain", web, "--resume")
    with Load(told.url, clients=1) as load:
        load.goes_on(3)
    assert set(load.statuses) == {200}
    assert "has ended" in said(machine, "stop", web)
    assert asked_at(machine.root, web) is None
    jobs = [told.versions[0].job, *(each.job for each in told.replicas)]
    path = "/v1/jobs/" + ",".join(map(str, jobs))
    over = lambda: {job["state"] for job in machine.client.call("GET", path)} == {"CANCELLED"}  # noqa: E731
    eventually(over)
