"""The server: a socket, a plane and the lanes behind it, from its begin to its end.

SIGTERM and SIGINT end it gracefully: it is no longer ready, takes nothing new, answers what is
under way, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from ganger.core.errors import BadInput
from ganger.core.serving.router import Router
from ganger.core.serving.world import World
from ganger.core.units import NEVER, SECOND
from ganger.serving.crew import Crew, Servable
from ganger.serving.figures import Figures
from ganger.serving.plane import LivePlane

_LINES_MAX: Final = 10_000
"""Lines of the access log that wait to be written; more are counted and left out."""
_SWITCH_SECONDS: Final = 0.0005
"""How long the interpreter stays with one thread while others wait."""
_LINGER_SECONDS: Final = 0.2
"""How long a server that ends still listens, so that balancers see that it is not ready."""


class Settings(Struct, frozen=True):
    """How a server runs. Times in microseconds; `cores`: of the machine, for lanes; `threads`: of
    each lane; `graceful_seconds`: for what is under way when it ends."""

    host: str = "127.0.0.1"
    port: int = 8000
    cores: tuple[int, ...] = (0,)
    threads: int = 1
    limit: int = 10_000
    slo: int = NEVER
    longest: int = 60 * SECOND
    body: int = 64 << 20
    memory: int = 512 << 20
    connections: int = 1024
    access_log: bool = False
    graceful_seconds: float = 30.0


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises BadInput."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as fault:
        mend = "write an address of this machine"
        if fault.errno == errno.EADDRINUSE:
            mend = "use another port, as in --port 8001; 0 takes any that is free"
        why = os.strerror(fault.errno) if fault.errno and fault.errno > 0 else fault.strerror
        raise BadInput(f"{host}:{port}: {why}", where="--port", mend=mend) from None


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
    began: Callable[[str, int], None] = lambda host, port: None,
) -> None:
    """Serve until SIGTERM or SIGINT; `began` hears where, once it is ready. Raises BadInput."""
    try:
        import uvloop
    except ImportError:
        raise BadInput(
            "serving models needs uvloop", mend="pip install 'ganger[serving]'"
        ) from None
    sock = listen(settings.host, settings.port)
    sys.setswitchinterval(_SWITCH_SECONDS)
    with sock, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(sock, world, router, models, settings, began))


async def _serve(
    sock: socket.socket, world: World, router: Router, models: Sequence[Servable],
    settings: Settings, began: Callable[[str, int], None],
) -> None:  # fmt: skip
    from ganger.serving.http.connections import SWEEP_SECONDS, Door, Request, limits_of
    from ganger.serving.http.endpoints import Endpoints

    loop = asyncio.get_running_loop()

    def deliver(done: Callable[[Any], None], result: Any) -> None:
        loop.call_soon_threadsafe(done, result)

    crew = Crew(models, world.lanes, settings.cores, settings.threads, deliver)
    figures = Figures([each.signature.name for each in models])
    plane = LivePlane(world, router, crew, loop, figures, settings.limit)
    if not world.stores:
        crew.load_all()
    endpoints = Endpoints(plane, models, figures, loop, settings.slo, settings.longest)
    access = AccessLog() if settings.access_log else None

    def answered(request: Request | None, status: int, seconds: float) -> None:
        figures.answers[status] = figures.answers.get(status, 0) + 1
        if access is not None:
            path = ("", "", "", "") if request is None else (
                request.id, request.method, request.path[:500], request.note
            )  # fmt: skip
            fields = dict(zip(("id", "method", "path", "note"), path, strict=True))
            access.add(**fields, status=int(status), ms=round(seconds * 1000, 3))

    limits = limits_of(
        connections=settings.connections, body=settings.body, memory=settings.memory
    )  # fmt: skip
    door = Door(endpoints.handle, answered, limits)

    async def sweep() -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            endpoints.sweep()
            figures.connections = len(door.open)
            if access is not None:
                access.flush(loop)

    sweeping = asyncio.create_task(sweep())
    ends = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ends.set)
    server = await loop.create_server(door.make, sock=sock)
    door.start()
    began(*sock.getsockname()[:2])
    await ends.wait()
    endpoints.ready = False
    await asyncio.sleep(_LINGER_SECONDS)
    server.close()
    door.stop()
    last = loop.time() + settings.graceful_seconds
    while (plane.waiting or door.open) and loop.time() < last:
        await asyncio.sleep(0.01)
    sweeping.cancel()
    door.end()
    crew.close()
    if access is not None:
        access.close()
