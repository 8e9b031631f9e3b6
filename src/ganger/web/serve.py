"""The process of the pages: `python -m ganger.web SETTINGS`. It listens on loopback at a port of
the kernel's choice, and on a socket where its own user asks for links."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final
from urllib.parse import urlsplit

import msgspec
import uvicorn

from ganger.client.control import answer, listen, only_one
from ganger.core.errors import BadInput, GangerError
from ganger.web.app import application
from ganger.web.backend import Backend
from ganger.web.connections import CONNECTIONS_MAX, Connection
from ganger.web.door import Address, Door
from ganger.web.links import SOCKET, Asked, Settings, Told, folder_of
from ganger.web.live import Live
from ganger.web.pages.frame import Pages
from ganger.web.sessions import Sessions

UNUSED_SECONDS: Final = 24 * 3600.0
"""Pages that nobody looked at for so long end."""
ALONE_SECONDS: Final = 600.0
"""So do those without a daemon and without anybody who looks, sooner."""
_NICENESS: Final = 5
_PREFIX_MAX: Final = 200
_LAST_SECONDS: Final = 1
"""So long the daemon may still answer what was asked before the pages end."""
_GARBAGE: Final = 20_000
"""Objects that a search for garbage waits for: a request leaves some dozens."""


def address_of(settings: Settings, name: str) -> Address:
    """Under which names the pages answer. Raises BadInput."""
    prefix = settings.prefix.rstrip("/")
    parts = prefix.split("/")[1:]
    plain = all(word and word.replace("-", "").replace("_", "").isalnum() for word in parts)
    if prefix and not (prefix.startswith("/") and prefix.isascii() and plain):
        raise BadInput(f"{prefix[:80]!r} is not a path", where="--web-prefix", mend="/ganger")
    if len(prefix) > _PREFIX_MAX:
        raise BadInput("it is too long", where="--web-prefix")
    hosts, secure = set(), set()
    for text in settings.hosts:
        split = urlsplit(text if "//" in text else f"//{text}")
        host = split.hostname or ""
        if split.scheme not in ("", "http", "https") or not host or split.path not in ("", "/"):
            raise BadInput(
                f"{text[:80]!r} is not the name of a host",
                where="--web-host",
                mend="write like gpu.example.org or https://gpu.example.org",
            )
        host = f"[{host}]" if ":" in host else host
        hosts.add(host)
        if split.scheme == "https":
            secure.add(host)
    return Address(name, frozenset(hosts), frozenset(secure), prefix)


def own_name(folder: Path) -> str:
    """The home's own host name, made once. Other pages of this machine are another site."""
    path = folder / "name"
    with contextlib.suppress(OSError):
        if (text := path.read_text().strip()).isalnum() and len(text) == 16:
            return f"ganger-{text}.localhost"
    text = os.urandom(8).hex()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    return f"ganger-{text}.localhost"


class _Listener(uvicorn.Server):
    """uvicorn handles SIGTERM and SIGINT itself while it serves: here they end the pages."""

    def __init__(self, config: uvicorn.Config, end: Callable[[], None]) -> None:
        super().__init__(config)
        self._end = end

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the pages; streams of changes end first."""
        self._end()


class Server:
    """The pages of one home, until they are ended."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        root = Path(settings.home)
        self._folder = folder_of(root)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        self._lock = only_one(self._folder, "the pages of this home are served already")
        address = address_of(settings, own_name(self._folder))
        try:
            self._socket = socket.create_server(("127.0.0.1", settings.port), backlog=256)
        except OSError as error:
            raise BadInput(
                f"127.0.0.1:{settings.port}: {error.strerror}",
                where="--web-port",
                mend="use another port",
            ) from None
        self._port = self._socket.getsockname()[1]
        self._backend = backend = Backend(root)
        self._sessions = Sessions(time.monotonic, time.time)
        self._live = Live(backend, alone=settings.lab)
        self._pages = Pages(
            backend, self._live, self._sessions, address, settings.home, lab=settings.lab
        )
        self._listening: asyncio.Server | None = None
        self._own = 0
        self._uvicorn = _Listener(
            uvicorn.Config(
                Door(application(self._pages), self._sessions, address),
                http=Connection,
                ws="none",
                lifespan="off",
                log_level="error",  # strangers cause warnings, as many as they like
                loop="asyncio",
                access_log=False,
                timeout_graceful_shutdown=8 * _LAST_SECONDS,  # of a machine that is very busy
                timeout_keep_alive=20,
                limit_concurrency=CONNECTIONS_MAX,
                h11_max_incomplete_event_size=16 << 10,
                server_header=False,
                log_config=None,
                proxy_headers=False,
            ),
            self.stop,
        )

    @property
    def url(self) -> str:
        """Where the pages are."""
        address = self._pages.address
        return f"http://{address.name}:{self._port}{address.prefix}"

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT, an order, or until nobody has looked for long."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        asyncio.run(self._main())

    def stop(self) -> None:
        """End, after what is being answered."""
        self._live.leave()
        self._uvicorn.should_exit = True

    async def _main(self) -> None:
        path = self._folder / SOCKET
        await self._live.look()
        following = asyncio.create_task(self._live.run())
        watching = asyncio.create_task(self._watch())
        expecting = asyncio.create_task(self._pages.expected.run())
        leaving = asyncio.create_task(self._hang_up())
        self._listening = await listen(self._folder, SOCKET, self._control)
        self._own = path.stat().st_ino
        try:
            await self._uvicorn.serve(sockets=[self._socket])
        finally:
            await self._pages.pool.close()
            following.cancel()
            watching.cancel()
            expecting.cancel()
            self._unlisten()
            leaving.cancel()
            await self._backend.close()

    async def _hang_up(self) -> None:
        """At the end, wait no longer for a daemon that works on a question."""
        await self._live.leaving.wait()
        await asyncio.sleep(_LAST_SECONDS)
        await self._backend.close()

    def _unlisten(self) -> None:
        """Give no more links; the socket of others that came since stays."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            path = self._folder / SOCKET
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == self._own:
                    path.unlink()

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Give a link to a process of the same user, or of root."""
        asked = await answer(reader, writer, Asked, self._answer)
        if asked is not None and asked.end:
            self.stop()

    def _answer(self, asked: Asked) -> Told:
        if asked.end:  # whoever asks from here on finds no pages
            self._unlisten()
        token = "" if asked.end else self._sessions.link(read_only=asked.read_only)
        return Told(self.url, token, os.getpid(), self._settings)

    async def _watch(self) -> None:
        """End when nobody has looked for long."""
        while True:
            await asyncio.sleep(30.0)
            live = self._live
            unused = 0.0 if live.streams else time.monotonic() - live.used
            if unused > UNUSED_SECONDS or (not live.up and unused > ALONE_SECONDS):
                self.stop()


def main(text: str) -> int:
    """Serve as the settings (JSON) say; the exit code."""
    try:
        settings = msgspec.json.decode(text, type=Settings)
        with contextlib.suppress(OSError):
            os.nice(_NICENESS)  # no job and no decision waits for a page
        server = Server(settings)
        gc.freeze()  # what is loaded stays: no search for garbage goes through it again
        gc.set_threshold(_GARBAGE)
        server.run()
    except GangerError as error:
        print(f"ganger: {error}", file=sys.stderr)
        return 2
    return 0
