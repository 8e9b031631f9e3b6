"""CPU time of a request to a served model: in process beside bare onnxruntime, and over HTTP.

    python benchmarks/serving_live.py
    python benchmarks/serving_live.py --requests 5000 --no-write

Models are chains of dense layers with random weights, made here (needs the package onnx). CPU times
are of the whole process, all threads: the one that decides, and the lane. The least of `--runs`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httptools
import msgspec
import numpy as np
import onnx
import uvloop
from onnx import TensorProto, helper, numpy_helper
from provenance import machine, made, write

from ganger.lab.serving.live import Machine, available_cores, prepared
from ganger.serving.crew import Crew
from ganger.serving.figures import Figures
from ganger.serving.plane import LivePlane
from ganger.serving.runtime import open_session
from ganger.serving.tickets import Ticket
from ganger.workloads.models.reading import read_models

PAGE: Final = Path(__file__).with_suffix(".md")
WIDTH: Final = 256
DEPTHS: Final = {"2 MB": 8, "129 MB": 490}
BATCH: Final = 32
RECIPES: Final = ("serve.triton(size=32)", "clipper", "clockwork", "nexus")
CONNECTIONS: Final = 128
STARLETTE: Final = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
async def infer(request):
    return Response(await request.body())
app = Starlette(routes=[Route("/v2/models/net/infer", infer, methods=["POST"])])
print("http://127.0.0.1:8765", flush=True)
uvicorn.run(app, port=8765, access_log=False, log_level="error", loop="uvloop", http=sys.argv[1])
"""


def net(folder: Path, depth: int) -> Path:
    """A models file of one net, with latencies that are near enough for every recipe."""
    rng = np.random.default_rng(0)
    names = ["x", *(f"h{at}" for at in range(depth - 1)), "y"]
    weights = [
        numpy_helper.from_array(
            (rng.standard_normal((WIDTH, WIDTH)) / WIDTH).astype(np.float32), f"w{at}"
        )
        for at in range(depth)
    ]
    nodes = [
        helper.make_node("MatMul", [names[at], f"w{at}"], [names[at + 1]]) for at in range(depth)
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in ("x", "y")
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(folder / "net.onnx"))
    file = folder / "models.toml"
    file.write_text(
        'format = "ganger.models/1"\n[[devices]]\nname = "cpu"\n[[models]]\nname = "net"\n'
        'onnx = "net.onnx"\n[[models.latency]]\ndevice = "cpu"\n'
        f"base = {depth * 4e-6}\neach = {depth * 1e-6}\nlargest = {BATCH}\n"
    )
    return file


def bare(file: Path, count: int, batch: int) -> float:
    """CPU microseconds a request of onnxruntime alone, in full batches."""
    session = open_session(file.with_name("net.onnx"), 1)
    x = np.ones((batch, WIDTH), np.float32)
    session.run(None, {"x": x})
    before = time.process_time()
    for _ in range(max(count // batch, 1)):
        session.run(None, {"x": x})
    return (time.process_time() - before) / (max(count // batch, 1) * batch) * 1e6


def in_process(file: Path, recipe: str, count: int) -> tuple[float, float]:
    """CPU microseconds a request through a live plane, 256 under way; requests a batch."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_in_process(file, recipe, count))


async def _in_process(file: Path, recipe: str, count: int) -> tuple[float, float]:
    loop = asyncio.get_running_loop()
    served, figures = prepared(read_models(file), recipe, Machine()), Figures(["net"])

    def deliver(done: Callable[[Any], None], result: Any) -> None:
        loop.call_soon_threadsafe(done, result)

    crew = Crew(served.models, served.world.lanes, available_cores(), 1, deliver)
    crew.load_all()
    plane = LivePlane(served.world, served.router, crew, loop, figures)
    signature, x = served.models[0].signature, np.ones((1, WIDTH), np.float32)
    over = asyncio.Event()
    counts = {"sent": 0, "over": 0}

    def answered(_: Ticket) -> None:
        counts["over"] += 1
        if counts["sent"] < count:
            submit()
        elif counts["over"] == count:
            over.set()

    def submit() -> None:
        counts["sent"] += 1
        feeds = {"x": x}
        items = signature.items(feeds)
        plane.submit(Ticket(0, feeds, items, plane.now() + 10_000_000, 0, answered))

    before = time.process_time()
    for _ in range(256):
        submit()
    await over.wait()
    took = (time.process_time() - before) / count * 1e6
    crew.close()
    model = figures.models[0]
    return took, sum(model.outcomes.values()) / model.batches


class Client(asyncio.Protocol):
    """Sends the next request once the last is answered, until all of them are."""

    def __init__(self, data: bytes, left: list[int], over: asyncio.Event) -> None:
        self._data, self._counts, self._over = data, left, over

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._transport = transport
        self._send()

    def _send(self) -> None:
        if self._counts[0] > 0:
            self._counts[0] -= 1
            self._parser = httptools.HttpResponseParser(self)
            self._transport.write(self._data)
        else:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """An answer."""
        assert self._parser.get_status_code() == 200
        self._counts[1] -= 1
        if not self._counts[1]:
            self._over.set()
        self._send()


async def _ask(port: int, data: bytes, count: int) -> None:
    loop, over, counts = asyncio.get_running_loop(), asyncio.Event(), [count, count]
    for _ in range(CONNECTIONS):
        await loop.create_connection(lambda: Client(data, counts, over), "127.0.0.1", port)
    await over.wait()


def cpu_seconds(process: int) -> float:
    """Of a process, so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(command: Sequence[str]) -> Iterator[tuple[int, int]]:
    """A server: its process and its port."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        place = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert place is not None
        time.sleep(1.5)
        try:
            yield process.pid, int(place[1])
        finally:
            process.send_signal(signal.SIGTERM)


def body(*, binary: bool) -> bytes:
    """A request of one item."""
    tensor: dict[str, Any] = {"name": "x", "shape": [1, WIDTH], "datatype": "FP32"}
    if binary:
        tensor["parameters"] = {"binary_data_size": 4 * WIDTH}
        asked = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
        head = msgspec.json.encode(asked)
        length = f"inference-header-content-length: {len(head)}\r\n"
        data = head + bytes(4 * WIDTH)
    else:
        tensor["data"] = [0.5] * WIDTH
        data, length = msgspec.json.encode({"inputs": [tensor]}), ""
    first = f"POST /v2/models/net/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n"
    return f"{first}{length}\r\n".encode() + data


def over_http(command: Sequence[str], count: int, *, binary: bool) -> float:
    """CPU microseconds that a server takes a request, 128 connections asking at once."""
    with (
        server(command) as (process, port),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        data = body(binary=binary)
        runner.run(_ask(port, data, CONNECTIONS * 4))
        before = cpu_seconds(process)
        runner.run(_ask(port, data, count))
        return (cpu_seconds(process) - before) / count * 1e6


def rows(count: int, runs: int) -> tuple[list[str], list[str]]:
    """The rows of both tables."""
    inside, outside = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size, depth in DEPTHS.items():
            file, some = net(folder, depth), max(count * 8 // depth // BATCH, 8) * BATCH
            alone = min(bare(file, some, BATCH) for _ in range(runs))
            single = min(bare(file, some, 1) for _ in range(runs))
            inside.append(
                f"| {size} | onnxruntime, batches of {BATCH} | {alone:.1f} | 1 | {BATCH} |"
            )
            inside.append(
                f"| {size} | onnxruntime, one by one | {single:.1f} | {single / alone:.1f} | 1 |"
            )
            for recipe in RECIPES:
                took, batch = min(in_process(file, recipe, some) for _ in range(runs))
                inside.append(
                    f"| {size} | {recipe} | {took:.1f} | {took / alone:.1f} | {batch:.1f} |"
                )
        file = net(folder, 1)
        main = "from ganger.cli.main import main; main()"
        ours = [sys.executable, "-c", main, "serve", str(file), "--port", "0",
                "--recipe", RECIPES[0]]  # fmt: skip
        theirs = [sys.executable, "-c", STARLETTE]
        for words, command, binary in (
            ("ganger serve, binary tensors", ours, True),
            ("ganger serve, JSON tensors", ours, False),
            ("Starlette over uvicorn (h11), which gives the body back", [*theirs, "h11"], True),
            ("the same over httptools", [*theirs, "httptools"], True),
        ):
            took = min(over_http(command, count, binary=binary) for _ in range(runs))
            outside.append(f"| {words} | {took:.0f} | {1e6 / took:,.0f} |")
    return inside, outside


def main() -> None:
    """Measure, print, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    inside, outside = rows(options.requests, options.runs)
    text = "\n".join(
        [
            "# A request to a served model\n",
            f"Made by {made()}; {machine()}; the least of {options.runs} runs. CPU time of the"
            " whole process, all its threads. One lane of one core.\n",
            f"## In process\n\n256 requests under way, each of one item of {WIDTH} numbers. The"
            " recipe decides, reasons and figures are kept.\n",
            "| model | by | CPU us a request | times bare | requests a batch |",
            "|:---|:---|---:|---:|---:|",
            *inside,
            f"\n## Over HTTP\n\n{CONNECTIONS} connections, each with one request under way, to a"
            " model of one dense layer, under serve.triton(size=32). What onnxruntime takes is in"
            " it; the client is another process.\n",
            "| server | CPU us a request | requests a CPU second |",
            "|:---|---:|---:|",
            *outside,
        ]
    )
    print(text)
    if not options.no_write:
        write(PAGE, text)


if __name__ == "__main__":
    main()
