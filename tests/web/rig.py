"""A daemon and the pages over it, as processes of their own, and requests to them as they are."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode, urlsplit

import msgspec

from forks import Fork
from ganger.client.connection import Client, NoDaemon
from ganger.web.links import Settings, Told, asked_at

START_SECONDS = 120.0
FORM = "application/x-www-form-urlencoded"


class Standin:
    """A daemon whose jobs run without processes, over `nodes` of `gpus` GPUs."""

    def __init__(self, home: Path, nodes: int = 1, gpus: int = 8, jobs: int = 0) -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.home, self.client = home, Client(home)
        self.process = Fork("web.standin", str(home), nodes, gpus, jobs)
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            assert self.process.poll() is None
            with contextlib.suppress(NoDaemon):
                self.client.call("GET", "/v1/status")
                return
            time.sleep(0.02)
        raise AssertionError("the daemon does not answer")

    def end(self) -> None:
        """SIGTERM, and wait."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


class Answer:
    """What came back: status, headers with small letters, the body as text."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.text = response.read().decode(errors="replace")


class Pages:
    """The process of the pages of a home."""

    def __init__(self, home: Path, log: IO[bytes] | None = None, **settings: object) -> None:
        self.home = home
        stated = msgspec.convert({"home": str(home), **settings}, Settings)
        self.process = Fork("ganger.web.serve", msgspec.json.encode(stated).decode(), stderr=log)
        until = time.monotonic() + START_SECONDS
        while (told := asked_at(home)) is None or told.pid != self.process.pid:
            assert self.process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        self.url = told.url
        self.host = urlsplit(told.url).netloc
        self.port = int(self.host.rpartition(":")[2])

    def link(self, *, read_only: bool = False) -> str:
        """The token of a new link."""
        told = asked_at(self.home, read_only=read_only)
        assert isinstance(told, Told)
        return told.token

    def ask(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        form: list[tuple[str, str]] | dict[str, str] | None = None,
        host: str = "",
    ) -> Answer:
        """A request with these headers and no others that a browser would add."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        body = None if form is None else urlencode(form)
        sent = {"Host": host or self.host, "Accept": "text/html", **(headers or {})}
        if body is not None:
            sent.setdefault("Content-Type", FORM)
        try:
            connection.request(method, path, body, sent)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def enter(self, token: str, **headers: str) -> Answer:
        """Use a link."""
        return self.ask("POST", "/enter", headers, {"token": token})

    def cookie(self, *, read_only: bool = False) -> dict[str, str]:
        """The header of a new session's cookie."""
        answer = self.enter(self.link(read_only=read_only))
        assert answer.status == 204, answer.text
        return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}

    def csrf(self, cookie: dict[str, str], path: str = "/queue") -> str:
        """The token in the forms of a page."""
        text = self.ask("GET", path, cookie).text
        return text.partition('name="csrf" value="')[2].partition('"')[0]

    def end(self, seconds: float = 20.0) -> None:
        """SIGTERM, and wait for so long at most."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(seconds)


class Stream:
    """A browser's stream of changes, with the parts at `see`. `head`: its answer."""

    def __init__(self, pages: Pages, cookie: dict[str, str], *see: str, **sent: str) -> None:
        self._asked = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=20)
        headers = {"Host": pages.host, "Accept-Encoding": "gzip", **cookie, **sent}
        query = urlencode([("see", each) for each in see])
        self._asked.request("GET", f"/events?{query}", headers=headers)
        self.head = self._asked.getresponse()
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS + 16)
        self._text, self._packs = "", self.head.headers["Content-Encoding"] == "gzip"

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._asked.close()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Kinds of events, and what they say."""
        while data := self.head.read1(1 << 16):
            self._text += (self._inflate.decompress(data) if self._packs else data).decode()
            *whole, self._text = self._text.split("\n\n")
            for event in whole:
                kind, _, said = event.partition("\ndata: ")
                if said:
                    yield kind.removeprefix("event: "), json.loads(said)

    def state(self) -> dict[str, str]:
        """The parts that come until the next tick, by their addresses."""
        parts = dict[str, str]()
        for kind, said in self:
            if kind == "tick":
                break
            parts[said["part"]] = said["text"]
        return parts

    def until(self, part: str, word: str) -> list[str]:
        """The addresses of the parts that come until `part` has the word."""
        came = list[str]()
        for kind, said in self:
            if kind == "part":
                came.append(said["part"])
                if said["part"] == part and word in said["text"]:
                    return came
        raise AssertionError(word)


@contextlib.contextmanager
def served(home: Path, log: IO[bytes] | None = None, **settings: object) -> Iterator[Pages]:
    """The pages of a home while they are needed; what their process says goes to `log`."""
    pages = Pages(home, log, **settings)
    try:
        yield pages
    finally:
        pages.end()


def raw(port: int, data: bytes) -> bytes:
    """Bytes as they are, and what comes back until it is hung up."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(data)
        found = b""
        with contextlib.suppress(ConnectionError):
            while part := sock.recv(65536):
                found += part
        return found
