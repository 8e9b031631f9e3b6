"""uvicorn over sockets of our own: the user at the other end is known from them, not from
headers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import Sequence

import uvicorn

from ganger.core.errors import BadInput
from ganger.engines.agent.attempt.attempt_dir import short_path
from ganger.service.home import Home
from ganger.service.http.api import Identify, application
from ganger.service.http.app_context import AppContext
from ganger.service.http.connections import Connection, Listener


class Server:
    """uvicorn over our sockets."""

    def __init__(self, world: AppContext, sockets: list[socket.socket]) -> None:
        self._sockets = sockets
        self._world = world
        app = Identify(application(world), world)
        self._server = Uvicorn(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="off",
                log_level="warning",
                loop="asyncio",
                access_log=False,
                timeout_graceful_shutdown=2,
                server_header=False,
                log_config=None,
                proxy_headers=False,
            )
        )
        world.go_down = self.stop

    def stop(self) -> None:
        """Answer what is being asked, then end."""
        self._world.leaving = True
        self._server.should_exit = True

    def run(self) -> None:
        """Serve until `stop`, SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())  # uvicorn raises them again at its end

        async def main() -> None:
            self._world.listen_for_steps(asyncio.get_running_loop())
            self._world.notifier.start()
            watching = asyncio.create_task(self._world.idleness.watch())
            await self._server.serve(sockets=self._sockets)
            self._world.looks.end_all()
            watching.cancel()
            self._world.notifier.close()

        asyncio.run(main())


class Uvicorn(uvicorn.Server):
    """uvicorn, over listeners that bound their connections."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on our sockets."""
        await self.lifespan.startup()

        def make(listener: Listener, peer: str, uid: int) -> Connection:
            return Connection(
                listener,
                peer,
                uid,
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )

        self.servers = [Listener(one, make) for one in sockets or ()]  # type: ignore[misc]
        self.started = True


def unix_socket(home: Home, shared: bool) -> socket.socket:
    """The socket in the folder, for its user or (`shared`) for all."""
    with contextlib.suppress(FileNotFoundError):
        home.socket.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o111 if shared else 0o177)
    try:
        with short_path(home.root, home.socket.name) as path:
            made.bind(path)
    finally:
        os.umask(before)
    made.listen(1024)
    return made


def address(text: str, where: str) -> tuple[str, int]:
    """HOST:PORT in its parts. Raises BadInput."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise BadInput(f"{text!r} is not a valid address", where=where, mend="write HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def tcp_socket(listen: str) -> socket.socket:
    """A socket that listens on HOST:PORT. Raises BadInput."""
    host, port = address(listen, "--listen")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise not_there(listen, "--listen", error) from None


def not_there(listen: str, where: str, error: OSError) -> BadInput:
    """Why nobody can listen there, and what to do."""
    mend = "write an address of this machine"
    if error.errno == errno.EADDRINUSE:
        port = listen.rpartition(":")[2]
        mend = f"use another port, or end the process that has this one: `ss -ltnp sport = :{port}`"
    elif error.errno == errno.EACCES:
        mend = "use a port from 1024 on"
    return BadInput(f"{listen}: {error.strerror}", where=where, mend=mend)


def spoken(sockets: Sequence[socket.socket]) -> str:
    """Where they listen, in words."""
    return ",".join("{}:{}".format(*sock.getsockname()[:2]) for sock in sockets)
