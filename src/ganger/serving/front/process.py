"""The front of a service as a process: `python -m ganger.serving.front SETTINGS`.

A small parent holds the port, so that a front that is killed is followed by the next one at once
(`serving/outliving`), which goes on with what the last one kept in its file. The front asks the
daemon as any client does: it may do what its user may, and goes on while there is no daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ganger.client.control import answer, listen
from ganger.client.places import open_private
from ganger.core.errors import GangerError
from ganger.serving.front.balance import Replica, Version
from ganger.serving.front.counts import Counts
from ganger.serving.front.link import (
    SOCKET,
    TABLE,
    Asked,
    Known,
    ReplicaTold,
    Settings,
    Table,
    Told,
    VersionTold,
    folder_of,
)
from ganger.serving.front.proxy import Front, Terms
from ganger.serving.front.rollout import Rollout, stepped, weighed
from ganger.serving.front.watch import Found, Watch
from ganger.serving.http.connections import Door, Request
from ganger.serving.http.limits import Limits, limits_of
from ganger.serving.listening import listen as listen_at
from ganger.serving.outliving import Began, Inherited, Parent, watch_parent
from ganger.serving.server import AccessLog
from ganger.serving.tenants import Tenants

log = logging.getLogger("ganger.front")
DESCRIPTORS: Final = 16_384
"""That a front wants to have; it takes what the system lets it."""
_LOOK_SECONDS: Final = 0.25
_GRACEFUL_SECONDS: Final = 30.0
_HEALTH: Final = ("/v2/health/live", "/v2/health/ready", "/health")
"""What needs no key."""


class Process:
    """A front with all that is around it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = folder_of(Path(settings.home), settings.name)
        self._tenants = Tenants(Path(settings.keys) if settings.keys else None)
        terms = Terms(wait_seconds=settings.wait_seconds, health=settings.health)
        self.front = Front(terms, keyed=self._tenants.keyed)
        self._access = AccessLog() if settings.access_log else None
        self._door = Door(self.front.handle, self._answered, _limits(), self._admit)
        self._rollout: Rollout | None = None
        self._step_began = 0.0
        self._window: dict[int, Counts] = {}
        """By version, what it did since the step began."""
        self._daemon = False
        self._over = set[int]()
        self._written = b""
        self._ends = asyncio.Event()
        self._watch = Watch(Path(settings.home), self._asked, self._heard_there)
        self._loop = asyncio.get_running_loop()
        self._sock: socket.socket
        self._parent = -1

    # ------------------------------------------------------------------ its life

    async def run(self, inherited: Inherited) -> None:
        """Until SIGTERM, SIGINT, or until it is told to end."""
        self._read_table()
        self._sock, self._parent = inherited.sock, parent_at(inherited.control)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._ends.set)
        self._loop.add_signal_handler(signal.SIGHUP, self._read_keys)
        watch_parent(self._loop, inherited.control, self._ends.set)
        control = await listen(self._folder, SOCKET, self._control)
        server = await self._loop.create_server(self._door.make, sock=self._sock)
        self._door.start()
        self._watch.start()
        inherited.report(Began(f"{self._settings.name} is served at {self._url()}"))
        while not self._ends.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ends.wait(), _LOOK_SECONDS)
            self._look()
        control.close()
        server.close()
        self._door.stop()
        last = self._loop.time() + _GRACEFUL_SECONDS
        while self._door.open and self._loop.time() < last:
            await asyncio.sleep(0.02)
        self._door.end()
        self._watch.end()
        self.front.close()
        if self._access is not None:
            self._access.close()

    def _url(self) -> str:
        host, port = self._sock.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def _look(self) -> None:
        """What is due now and then."""
        self.front.look()
        self._move()
        self._write_table()
        if self._access is not None:
            self._access.flush(self._loop)

    def _read_keys(self) -> None:
        try:
            self._tenants.read()
        except GangerError as fault:
            log.error("%s; what was read before stays in force", fault)

    # ------------------------------------------------------------------ clients

    def _admit(self, path: str, headers: Mapping[bytes, bytes]) -> int | None:
        if not self._tenants.keyed or path in _HEALTH:
            return 0
        tenant = self._tenants.of(headers.get(b"authorization", b""))
        return None if tenant is None else tenant.code

    def _answered(self, request: Request | None, status: int, seconds: float) -> None:
        if self._access is None:
            return
        fields: dict[str, Any] = {"status": int(status), "ms": round(seconds * 1000, 3)}
        if request is not None:
            fields |= {
                "id": request.id,
                "method": request.method,
                "path": request.path[:500],
                "note": request.note,
                "tenant": self._tenants.names[request.tenant],
            }
        self._access.add(**fields)

    # ------------------------------------------------------------------ the daemon

    def _asked(self) -> tuple[list[int], dict[int, dict[str, float]]]:
        """On the thread that watches: what is to be asked and told."""
        done = asyncio.run_coroutine_threadsafe(self._to_tell(), self._loop)
        return done.result(30.0)

    async def _to_tell(self) -> tuple[list[int], dict[int, dict[str, float]]]:
        front = self.front
        figures = dict[int, dict[str, float]]()
        for version in front.versions:
            counts = front.counts[version.job]
            mine = [each for each in front.replicas.values() if each.version == version.job]
            p50, p99 = counts.since_told()
            figures[version.job] = {
                "arrivals": float(counts.arrivals),
                "answered": float(counts.answers),
                "dropped": float(counts.dropped),
                "ongoing": float(sum(len(each.requests) for each in mine)),
                "queue": float(front.waiting_for(version.job)),
                "p50": p50,
                "p99": p99,
            }
        return [version.job for version in front.versions], figures

    def _heard_there(self, answers: dict[int, Found] | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._heard, answers)

    def _heard(self, answers: dict[int, Found] | None) -> None:
        """What the daemon said."""
        self._daemon = answers is not None
        if answers is None:
            return
        self._over = {job for job, answer in answers.items() if answer.over}
        mine = {answer.job for answer in self.front.versions}
        self.front.set_replicas(
            Replica(seen.job, seen.attempt, job, seen.host, seen.port, leaving=seen.leaving)
            for job, answer in answers.items()
            for seen in answer.replicas
            if job in mine
        )
        if mine and mine <= self._over:
            log.error("the service is over")
            self._ends.set()

    # ------------------------------------------------------------------ rollouts

    def _move(self) -> None:
        """See to the rollout under way."""
        rollout = self._rollout
        if rollout is None:
            return
        if rollout.over:
            self._let_go(rollout)
            return
        ready = any(
            replica.version == rollout.new and replica.takes(time.monotonic())
            for replica in self.front.replicas.values()
        )
        seconds = time.monotonic() - self._step_began
        after = stepped(rollout, ready, seconds, self._window)
        if after is not None:
            self._set_rollout(after)

    def _let_go(self, rollout: Rollout) -> None:
        """Have the version cancelled that lost, once it has answered what it had."""
        loser = rollout.old if rollout.state == "done" else rollout.new
        mine = [each for each in self.front.replicas.values() if each.version == loser]
        if any(each.requests for each in mine):
            return
        others = [each for each in self.front.versions if each.job != loser]
        if len(others) < len(self.front.versions):
            self._watch.cancel(loser)
            self.front.set_versions(others)

    def _set_rollout(self, rollout: Rollout) -> None:
        self._rollout, self._step_began = rollout, time.monotonic()
        self._window = {job: Counts() for job in (rollout.old, rollout.new)}
        self.front.windows = self._window
        self.front.set_versions(weighed(self.front.versions, rollout))
        what = f" ({rollout.why})" if rollout.why else ""
        part = f"{rollout.part:.0%} of requests go to job {rollout.new}"
        log.warning("rollout: %s; %s%s", rollout.state, part, what)

    # ------------------------------------------------------------------ its file

    def _read_table(self) -> None:
        """What the last front kept, else the versions of the settings."""
        versions, table = self._settings.versions, None
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            table = msgspec.json.decode((self._folder / TABLE).read_bytes(), type=Table)
        if table is not None and table.settings == self._settings:
            versions, self._rollout = table.versions, table.rollout
        self.front.set_versions(versions)
        if table is not None and table.settings == self._settings:
            self.front.set_replicas(
                Replica(replica.job, replica.attempt, replica.version, replica.host, replica.port)
                for replica in table.replicas
            )
            if table.rollout is not None and not table.rollout.over:
                self._set_rollout(table.rollout)

    def _write_table(self) -> None:
        known = [
            Known(replica.job, replica.attempt, replica.version, replica.host, replica.port)
            for replica in self.front.replicas.values()
            if not replica.leaving
        ]
        table = Table(self._settings, self.front.versions, known, self._rollout)
        data = msgspec.json.encode(table)
        if data == self._written:
            return
        part = self._folder / f"{TABLE}.part"
        try:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()
            with open_private(part) as file:
                file.write(data)
            part.replace(self._folder / TABLE)
            self._written = data
        except OSError as fault:
            log.error("%s: %s", part, fault.strerror)

    # ------------------------------------------------------------------ its socket

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await answer(reader, writer, Asked, self._obey)
        if asked is not None and asked.end:
            with contextlib.suppress(FileNotFoundError):
                (self._folder / TABLE).unlink()
            if os.getppid() == self._parent:  # else that is one who adopts orphans
                os.kill(self._parent, signal.SIGTERM)
            self._ends.set()

    def _obey(self, asked: Asked) -> Told:
        """Do what is asked; how it is then."""
        if asked.versions is not None:
            self.front.set_versions(asked.versions)
        if asked.closed is not None:
            self.front.closed = asked.closed
        if asked.stop_rollout and self._rollout is not None and not self._rollout.over:
            why = "it was rolled back"
            self._set_rollout(msgspec.structs.replace(self._rollout, state="back", why=why))
        if asked.rollout is not None:
            jobs = {version.job for version in self.front.versions}
            if asked.rollout.new not in jobs:
                new = Version(asked.rollout.new, 0.0)
                self.front.set_versions([*self.front.versions, new])
            self._set_rollout(asked.rollout)
        self._watch.soon()
        self._write_table()
        return self.status()

    def status(self) -> Told:
        """How it is."""
        front, now = self.front, time.monotonic()
        return Told(
            self._url(),
            os.getpid(),
            self._parent,
            self._settings,
            [
                VersionTold(
                    each.job,
                    each.weight,
                    each.shadow,
                    front.counts[each.job].answers,
                    front.counts[each.job].errors,
                    front.counts[each.job].quantile(0.5),
                    front.counts[each.job].quantile(0.99),
                )
                for each in front.versions
            ],
            [
                ReplicaTold(
                    each.job,
                    each.version,
                    f"{each.host}:{each.port}",
                    _state(each, now),
                    len(each.requests),
                    each.believed(now),
                )
                for each in front.replicas.values()
            ],
            front.all.arrivals,
            front.all.answers,
            front.all.errors,
            front.all.dropped,
            front.open,
            front.waiting,
            front.closed,
            self._daemon,
            self._rollout,
        )


def _state(replica: Replica, now: float) -> str:
    if replica.leaving:
        return "leaving"
    if not replica.healthy:
        return "deaf" if replica.latency else "starting"
    return "ready" if replica.takes(now) else "out"


def parent_at(control: socket.socket) -> int:
    """The process that made both ends of a control socket."""
    peer = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", peer)[0])


def _limits() -> Limits:
    """A client's request takes a descriptor at a replica too, and idle connections, copies and
    checks take some: a quarter are for clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return limits_of(connections=min(Limits().connections, max(soft, wanted) // 4))


def main(words: list[str]) -> int:
    """Run the parent, or as its child a front; the exit code."""
    logging.basicConfig(format="%(asctime)s %(message)s", stream=sys.stderr)
    settings = msgspec.json.decode(words[0], type=Settings)
    folder = folder_of(Path(settings.home), settings.name)
    try:
        if len(words) == 1:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return _parent(settings, words[0])
        inherited = Inherited.of(words[2])
        if not inherited.wait():
            return 0
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(settings, inherited))
    except GangerError as fault:
        print(f"ganger: {fault}", file=sys.stderr)
        return 1
    return 0


def _parent(settings: Settings, text: str) -> int:
    sock = listen_at(settings.host, settings.port)
    command = [sys.executable, "-m", "ganger.serving.front", text]

    def tell(first: bool, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with sock:
        return Parent(command, sock, tell).run()


async def _run(settings: Settings, inherited: Inherited) -> None:
    await Process(settings).run(inherited)
