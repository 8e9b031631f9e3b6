"""A server in this process: desk, endpoints and door over real lanes, and clients in its loop."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ganger.core.serving.router import Router
from ganger.lab.serving.live import Machine
from ganger.serving.desk import Desk, Terms
from ganger.serving.figures import Figures
from ganger.serving.http.connections import Door
from ganger.serving.http.endpoints import Endpoints
from ganger.serving.http.limits import Limits
from ganger.serving.tenants import Tenants
from serving.live.rig import Bench, run
from serving.live.server import Answer, request

ROW = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
ASK: dict[str, Any] = {"inputs": [ROW]}


def keys_file(folder: Path, **tenants: str) -> Path:
    """A file of keys, of terms for each tenant."""
    path = folder / "keys.toml"
    path.touch(mode=0o600)
    lines = ['format = "ganger.keys/1"']
    lines += [f"[tenants.{name}]\n{terms}" for name, terms in tenants.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


class Room:
    """What a server is made of, in the running loop."""

    def __init__(
        self,
        file: Path,
        recipe: str | Router = "serve.triton",
        *,
        keys: Path | None = None,
        terms: Terms | None = None,
        limits: Limits | None = None,
        limit: int = 10_000,
        lanes: int = 1,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.bench = Bench(file, recipe, Machine(lanes), limit)
        self.tenants = Tenants(keys)
        self.bench.world.tenants = self.tenants.names
        self.figures = Figures([each.signature.name for each in self.bench.served.models])
        self.bench.seen.figures = self.figures
        self.desk = Desk(
            self.bench.plane,
            self.bench.served.models,
            loop,
            self.tenants,
            terms or Terms(),
            self.figures,
        )
        endpoints = Endpoints(self.desk)
        self.log: list[tuple[int, str]] = []
        self.door = Door(
            endpoints.handle,
            lambda asked, status, _: self.log.append((status, asked.note if asked else "")),
            limits or Limits(),
            endpoints.admit,
        )

    async def __aenter__(self) -> Room:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(self.door.make, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.door.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.close()
        self.door.end()
        await asyncio.sleep(0.02)
        self.bench.close()
        if fault is None:
            assert self.door.held == 0
            assert not any(self.door.held_of.values())
            assert not any(tenant.under_way for tenant in self.tenants.all)

    async def send(self, data: bytes, trust: ssl.SSLContext | None = None) -> Answer:
        """Raw bytes on a connection of their own, and the first answer to them."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=trust)
        try:
            writer.write(data)
            return await answer(reader)
        finally:
            writer.close()

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        return await self.send(request(method, path, body, headers))

    async def infer(
        self, body: dict[str, Any], key: str = "", model: str = "double", **headers: str
    ) -> Answer:
        if key:
            headers["authorization"] = f"Bearer {key}"
        path = f"/v2/models/{model}/infer"
        return await self.ask("POST", path, json.dumps(body).encode(), headers)

    def batches(self) -> Sequence[tuple[int, int]]:
        """(model, requests) of what lanes ran."""
        return self.bench.seen.batches


async def answer(reader: asyncio.StreamReader) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    body = await reader.readexactly(int(headers["content-length"]))
    return Answer(int(first.split()[1]), headers, body)


def play(make: Callable[[], Room], story: Callable[[Room], Any]) -> None:
    """A story in a room of its own."""

    async def inside() -> None:
        async with make() as room:
            await asyncio.wait_for(story(room), 60)

    run(inside)
