"""The server: a socket, a plane and the lanes behind it, from its begin to its end.

SIGTERM and SIGINT end it gracefully: it is no longer ready, takes nothing new, answers what is
under way, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ganger.core.errors import BadInput
from ganger.core.serving.router import Router
from ganger.core.serving.world import World
from ganger.core.units import NEVER, SECOND
from ganger.serving.calls import CallIds
from ganger.serving.crew import Crew, Servable
from ganger.serving.desk import Desk, Terms
from ganger.serving.figures import Figures
from ganger.serving.listening import listen
from ganger.serving.outliving import Inherited, watch_parent
from ganger.serving.plane import LivePlane
from ganger.serving.tenants import Tenants

if TYPE_CHECKING:
    from ganger.serving.grpc.service import GrpcService
    from ganger.serving.http.connections import Door, Request
    from ganger.serving.http.tls import Certificate, Reception

log = logging.getLogger("ganger.serving")

_LINES_MAX: Final = 10_000
"""Lines of the access log that wait to be written; more are counted and left out."""
_SWITCH_SECONDS: Final = 0.0005
"""How long the interpreter stays with one thread while others wait."""
_LINGER_SECONDS: Final = (0.2, 1.0)
"""How long a server that ends still listens, so that balancers see that it is not ready: at least,
and while there are connections."""


Began = Callable[[str, int, int | None], None]
"""Hears the host, the port of HTTP, and that of gRPC, if that is spoken."""


class Settings(Struct, frozen=True):
    """How a server runs. Times in microseconds, sizes in bytes; `grpc_port`: where gRPC is spoken,
    None: nowhere; `cores`: of the machine, for lanes; `threads`: of each lane; `kept`: of answers
    for clients that ask again; `keys`: the file of keys, None: nobody needs one;
    `graceful_seconds`: for what is under way when it ends."""

    host: str = "127.0.0.1"
    port: int = 8000
    cores: tuple[int, ...] = (0,)
    threads: int = 1
    limit: int = 10_000
    slo: int = NEVER
    longest: int = 60 * SECOND
    body: int = 64 << 20
    memory: int = 512 << 20
    kept: int = 32 << 20
    connections: int = 1024
    access_log: bool = False
    keys: Path | None = None
    certificate: Path | None = None
    certificate_key: Path | None = None
    grpc_port: int | None = None
    graceful_seconds: float = 30.0

    def notes(self) -> list[str]:
        """What its operator should know before others can ask."""
        if self.host == "localhost" or self.host.startswith("127.") or self.host == "::1":
            return []
        notes = []
        if self.keys is None:
            notes.append(f"whatever reaches {self.host} may ask: --keys lets bearers of a key in")
        if self.certificate is None:
            notes.append("requests travel in the clear: --tls-cert and --tls-key encrypt them")
        return notes


class AccessLog:
    """A line for each answer, in JSON, on standard error; written by a thread, so that a reader
    that lags delays nobody."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._left_out = 0
        self._writing: asyncio.Future[Any] | None = None

    def add(self, **fields: Any) -> None:
        """One answer."""
        if len(self._lines) >= _LINES_MAX:
            self._left_out += 1
        else:
            self._lines.append(json.dumps({"time": round(time.time(), 6), **fields}))

    def flush(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to write what is there, unless that before is still being written."""
        if self._lines and (self._writing is None or self._writing.done()):
            self._writing = loop.run_in_executor(None, _write, self._taken())

    def close(self) -> None:
        """Write the rest."""
        _write(self._taken())

    def _taken(self) -> str:
        if self._left_out:
            self._lines.append(json.dumps({"left_out": self._left_out}))
            self._left_out = 0
        lines, self._lines = self._lines, []
        return "".join(f"{line}\n" for line in lines)


def _write(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def serve(
    world: World,
    router: Router,
    models: Sequence[Servable],
    settings: Settings,
    began: Began = lambda host, port, grpc_port: None,
    inherited: Inherited | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; `began` hears where, once it is ready; `inherited`: at the
    socket of a parent, and until that ends. SIGHUP has the files of
    keys and certificate read again. Raises BadInput."""
    try:
        import uvloop
    except ImportError:
        raise BadInput(
            "serving models needs uvloop", mend="pip install 'ganger[serving]'"
        ) from None
    server = Server(world, router, models, settings)
    sock = listen(settings.host, settings.port) if inherited is None else inherited.sock
    sys.setswitchinterval(_SWITCH_SECONDS)
    with sock, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.serve(sock, began, inherited))


class Server:
    """What a server is made of. Raises BadInput for files of keys or of a certificate that are not
    valid."""

    def __init__(
        self, world: World, router: Router, models: Sequence[Servable], settings: Settings
    ) -> None:
        self._world, self._router, self._models = world, router, models
        self._settings = settings
        self.tenants = Tenants(settings.keys)
        world.tenants = self.tenants.names
        self._certificate = _certificate(settings)
        self._figures = Figures([each.signature.name for each in models])
        self._access = AccessLog() if settings.access_log else None

    async def serve(
        self, sock: socket.socket, began: Began, inherited: Inherited | None = None
    ) -> None:
        """From its begin to its end, in a running event loop."""
        from ganger.serving.http.connections import Door
        from ganger.serving.http.endpoints import Endpoints
        from ganger.serving.http.limits import limits_of

        loop = asyncio.get_running_loop()

        def deliver(done: Callable[[Any], None], result: Any) -> None:
            loop.call_soon_threadsafe(done, result)

        settings, world = self._settings, self._world
        crew = Crew(
            self._models[: len(world.models)],
            world.lanes,
            settings.cores,
            settings.threads,
            deliver,
        )
        plane = LivePlane(world, self._router, crew, loop, self._figures, settings.limit)
        if not world.stores:
            crew.load_all()
        terms = Terms(settings.slo, settings.longest, settings.kept)
        desk = Desk(plane, self._models, loop, self.tenants, terms, self._figures)
        endpoints = Endpoints(desk)
        limits = limits_of(
            connections=settings.connections,
            body=settings.body,
            memory=settings.memory,
            each_memory=settings.memory // (2 if self.tenants.keyed else 1),
        )
        door = Door(endpoints.handle, self._answered, limits, endpoints.admit)
        sweeping = asyncio.create_task(self._sweep(desk, door))
        ends = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ends.set)
        loop.add_signal_handler(signal.SIGHUP, self._read_again)
        if inherited is not None:
            watch_parent(loop, inherited.control, ends.set)
        listener = await self._listen(door, sock)
        door.start()
        service, grpc_port = await self._speak_grpc(desk, limits.connections)
        host, port = sock.getsockname()[:2]
        began(host, port, grpc_port)
        await ends.wait()
        desk.ready = False
        least, longest = (loop.time() + seconds for seconds in _LINGER_SECONDS)
        while loop.time() < least or (door.open and loop.time() < longest):
            await asyncio.sleep(0.02)
        listener.close()
        door.stop()
        last = loop.time() + settings.graceful_seconds
        if service is not None:
            await service.stop(settings.graceful_seconds)
        while (plane.waiting or door.open) and loop.time() < last:
            await asyncio.sleep(0.01)
        sweeping.cancel()
        door.end()
        crew.close()
        if self._access is not None:
            self._access.close()

    async def _listen(self, door: Door, sock: socket.socket) -> Reception | asyncio.Server:
        """Take connections."""
        loop = asyncio.get_running_loop()
        if self._certificate is None:
            return await loop.create_server(door.make, sock=sock)
        from ganger.serving.http.tls import Reception

        reception = Reception(door, sock, self._certificate)
        reception.start()
        return reception

    async def _speak_grpc(self, desk: Desk, calls: int) -> tuple[GrpcService | None, int | None]:
        """The service over gRPC, and its port. Raises BadInput."""
        settings = self._settings
        if settings.grpc_port is None:
            return None, None
        from ganger.serving.grpc.service import Address, GrpcService

        service = GrpcService(desk, self._answered, CallIds())
        address = Address(settings.host, settings.grpc_port, settings.body, calls)
        return service, await service.start(address, self._certificate)

    def _answered(self, request: Request | None, status: int, seconds: float) -> None:
        answers = self._figures.answers
        answers[status] = answers.get(status, 0) + 1
        if self._access is not None:
            fields = {"id": "", "method": "", "path": "", "note": "", "tenant": ""}
            if request is not None:
                fields = {
                    "id": request.id,
                    "method": request.method,
                    "path": request.path[:500],
                    "note": request.note,
                    "tenant": self.tenants.names[request.tenant],
                }
                if request.trace is not None:
                    fields |= request.trace._asdict()
            self._access.add(**fields, status=int(status), ms=round(seconds * 1000, 3))

    async def _sweep(self, desk: Desk, door: Door) -> None:
        from ganger.serving.http.connections import SWEEP_SECONDS

        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            desk.sweep()
            self._figures.connections = len(door.open)
            if self._access is not None:
                self._access.flush(asyncio.get_running_loop())

    def _read_again(self) -> None:
        """Keys and certificate may have changed; what is not valid changes nothing."""
        for read in (self.tenants.read, self._certificate and self._certificate.read):
            try:
                if read:
                    read()
            except BadInput as fault:
                log.error("%s; what was read before stays in force", fault)


def _certificate(settings: Settings) -> Certificate | None:
    chain, key = settings.certificate, settings.certificate_key
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        raise BadInput(
            "it needs the other one, too",
            where="--tls-cert" if key is None else "--tls-key",
            mend="give both --tls-cert and --tls-key",
        )
    from ganger.serving.http.tls import Certificate

    return Certificate(chain, key)
