"""An open loop: requests go out at the times of a log, whether answers have come or not.

Latency counts from the time at which a request should have gone out (Tene: How not to measure
latency, 2013): a server that stalls is not asked less while it does, and a client that lags counts
against what it measures; how much it lagged is a figure.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from math import prod
from time import monotonic
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec
import numpy as np

from ganger.core.errors import BadInput
from ganger.core.serving.world import ANSWERED, Known, World
from ganger.core.units import NEVER, SECOND
from ganger.lab.serving.loading.client import Pool, fetch, http
from ganger.lab.serving.tally import Tally
from ganger.workloads.requests.columns import Requests

_TICK: Final = SECOND // 1000
_REASONS_MAX: Final = 50
_ELEMENTS_MAX: Final = 1 << 26
_FLOATS: Final = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
_BYTES_EACH: Final = {"BOOL": 1, "8": 1, "16": 2, "32": 4, "64": 8}
LATE: Final = "the deadline has passed"


@dataclass(frozen=True)
class Target:
    """Where load goes."""

    host: str
    port: int

    @property
    def name(self) -> str:
        """As a header and people name it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class Loaded:
    """What became of the requests: the metrics of the simulator, as far as a client sees them, and
    `sent_late_p99_seconds`, by how much the client itself lagged."""

    metrics: dict[str, float | int | None]
    dropped: Mapping[str, int]
    models: list[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "metrics": self.metrics, "dropped_by_reason": dict(self.dropped), "models": self.models
        }  # fmt: skip


def target_of(url: str, *, mine: bool) -> Target:
    """The server of a URL. Raises BadInput for one that is not of this machine, unless it is the
    user's own (`mine`)."""
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        host, port, parts = "", 0, urlsplit("")
    if not host or parts.scheme not in ("", "http") or parts.path not in ("", "/"):
        raise BadInput(
            f"{url!r} is not a valid URL", where="--url", mend="write http://127.0.0.1:8000"
        )
    if not mine and not _is_loopback(host):
        raise BadInput(
            f"{host} is another machine, and load may harm what it serves",
            where="--url",
            mend="add --yes-this-is-mine if it is yours",
        )
    return Target(host, port)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def load(
    requests: Requests,
    target: Target,
    *,
    slo: int = NEVER,
    faster: float = 1.0,
    connections: int = 256,
    length: int = 0,
    wait_seconds: float = 60.0,
    progress: Callable[[int], None] = lambda _: None,
) -> Loaded:
    """Send all requests. `slo`: microseconds that requests have that state no deadline; `faster`:
    they come so many times as fast; `length`: of open lengths besides the items, 0: there are none;
    `wait_seconds`: for answers after the last. Raises BadInput."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        driver = _Driver(requests, target, slo, faster, Pool(target.host, target.port, connections))
        return runner.run(driver.drive(length, wait_seconds, progress))


class _Driver:
    """One run."""

    def __init__(
        self, requests: Requests, target: Target, slo: int, faster: float, pool: Pool
    ) -> None:
        self._requests, self._target, self._slo = requests, target, slo
        self._faster, self._pool = faster, pool
        self._bodies: dict[tuple[int, int], tuple[bytes, bytes, str]] = {}
        """By model and items: the JSON behind the parameters, the tensors, the path."""
        self._metadata: dict[int, Any] = {}
        self._columns = {name: array("q") for name in ("arrival", "deadline", "model")}
        self._ended, self._outcome = array("q"), bytearray()
        self._lag = array("q")
        self._reasons: list[str] = []
        self._open = 0
        self._begin = 0.0

    async def drive(
        self, length: int, wait_seconds: float, progress: Callable[[int], None]
    ) -> Loaded:
        """Send, wait, add up. Raises BadInput."""
        try:
            return await self._drive(length, wait_seconds, progress)
        finally:
            self._pool.close()
            await asyncio.sleep(0)  # so that connections are closed before the loop is

    async def _drive(
        self, length: int, wait_seconds: float, progress: Callable[[int], None]
    ) -> Loaded:
        before = await self._batches()
        first, sent = -1, 0
        for chunk in self._requests.chunks(4096):
            await self._prepare(chunk, length)
            if first < 0:
                self._begin, first = monotonic() + 0.05, int(chunk.arrival[0])
            due = chunk.deadline
            items = [1] * len(chunk) if chunk.items is None else chunk.items.tolist()
            for at, (arrival, model) in enumerate(
                zip(chunk.arrival.tolist(), chunk.model.tolist(), strict=True)
            ):
                when = round((arrival - first) / self._faster)
                within = self._slo if due is None or due[at] >= NEVER else int(due[at]) - arrival
                await self._until(when, at)
                self._send(when, model, items[at], within)
            sent += len(chunk)
            progress(sent)
        end = monotonic() + wait_seconds
        while self._open and monotonic() < end:
            await asyncio.sleep(0.01)
        self._give_up()
        return self._added_up(before, await self._batches())

    async def _until(self, when: int, number: int) -> None:
        """Wait for a time; the last millisecond without sleep, which is counted in those. Answers
        are read meanwhile, and now and then however far this lags."""
        ahead = when - self._now()
        if ahead <= 0 and not number % 16:
            await asyncio.sleep(0)
        while ahead > 0:
            await asyncio.sleep((ahead - _TICK) / SECOND if ahead > 2 * _TICK else 0)
            ahead = when - self._now()

    def _now(self) -> int:
        """Microseconds since the first request should have gone out."""
        return int((monotonic() - self._begin) * SECOND)

    async def _prepare(self, chunk: Any, length: int) -> None:
        """Make the bodies of all kinds of requests that a chunk has. Raises BadInput."""
        items = np.ones(len(chunk), np.int64) if chunk.items is None else chunk.items
        kinds = np.unique(np.stack([chunk.model, items], axis=1), axis=0).tolist()
        for model, count in kinds:
            if (model, count) in self._bodies:
                continue
            name = self._requests.models[model]
            if model not in self._metadata:
                path = f"/v2/models/{quote(name, safe='')}"
                self._metadata[model] = await fetch(self._pool, path, self._target.name)
            if not isinstance(self._metadata[model], dict):
                raise BadInput(
                    f"it serves no model {name!r}",
                    where=f"http://{self._target.name}",
                    mend="let requests name its models",
                )
            try:
                self._bodies[model, count] = _body(self._metadata[model], name, count, length)
            except (KeyError, TypeError, ValueError, AttributeError):
                raise BadInput(
                    f"what it says of model {name!r} is not valid",
                    where=f"http://{self._target.name}",
                    mend="load a server of the Open Inference Protocol v2",
                ) from None

    def _send(self, when: int, model: int, items: int, within: int) -> None:
        row, now = len(self._ended), self._now()
        deadline = min(when + within, NEVER)
        for name, value in (("arrival", when), ("deadline", deadline), ("model", model)):
            self._columns[name].append(value)
        self._ended.append(0)
        self._outcome.append(0)
        self._lag.append(max(now - when, 0))
        self._open += 1
        head, tensors, path = self._bodies[model, items]
        parameters = b"{}"
        if deadline < NEVER:
            parameters = b'{"timeout":%d}' % max(deadline - now, 1)
        json = b'{"parameters":' + parameters + b"," + head
        data = http("POST", path, self._target.name, json + tensors, len(json))

        def done(status: int, headers: dict[bytes, bytes], body: bytes) -> None:
            if self._outcome[row]:
                return
            self._open -= 1
            self._ended[row] = max(self._now(), when)
            if status == 200:
                self._outcome[row] = ANSWERED
            else:
                self._outcome[row] = self._reason(_why(status, body))

        self._pool.send(data, done)

    def _reason(self, why: str) -> int:
        """The outcome for a reason."""
        if why not in self._reasons:
            if len(self._reasons) >= _REASONS_MAX:
                why = self._reasons[-1]
            else:
                self._reasons.append(why)
        return self._reasons.index(why) + 2

    def _give_up(self) -> None:
        for row, outcome in enumerate(self._outcome):
            if not outcome:
                self._outcome[row] = self._reason("no answer came")
                self._ended[row] = max(self._now(), self._columns["arrival"][row])

    async def _batches(self) -> tuple[int, int]:
        """Batches and requests in them so far, as the server counts."""
        found = await fetch(self._pool, "/v2/models/stats", self._target.name)
        try:
            sizes = [each for model in found["model_stats"] for each in model["batch_stats"]]
            counts = [(each["batch_size"], each["compute_infer"]["count"]) for each in sizes]
        except (TypeError, KeyError):
            return 0, 0
        return sum(count for _, count in counts), sum(size * count for size, count in counts)

    def _added_up(self, before: tuple[int, int], after: tuple[int, int]) -> Loaded:
        if not self._ended:
            raise BadInput("there are no requests", where=self._requests.file, mend="give some")
        names = self._requests.models.values
        world = World([Known(name, {}) for name in names], [])
        tally = Tally(world, [None] * len(names))
        requests = world.requests
        requests.add(self._columns)
        requests.ended[:] = self._ended
        requests.outcome[:] = self._outcome
        for why in self._reasons:
            world.reasons.code(why)
        tally.settled(world, len(self._ended))
        metrics = tally.metrics(0)
        batches, executed = (b - a for a, b in zip(before, after, strict=True))
        metrics["batches"] = batches or None
        metrics["batch_mean"] = executed / batches if batches else None
        metrics["sent_late_p99_seconds"] = float(np.quantile(self._lag, 0.99)) / SECOND
        asked, in_time, dropped = tally.by_model.tolist()
        models = [
            {
                "model": name,
                "requests": asked[at],
                "attainment": in_time[at] / asked[at],
                "dropped": dropped[at],
            }
            for at, name in enumerate(names)
            if asked[at]
        ]
        return Loaded(metrics, Counter(tally.dropped), models)


def _why(status: int, body: bytes) -> str:
    """Why a request was not answered."""
    if not status:
        return "the connection failed"
    try:
        why = str(msgspec.json.decode(body)["error"])[:100]
    except (msgspec.DecodeError, TypeError, KeyError):
        why = ""
    return why if status in (503, 504) and why else f"{status} {why}".strip()


def _body(metadata: Any, name: str, items: int, length: int) -> tuple[bytes, bytes, str]:
    """A request for a model with random tensors. Raises BadInput for what cannot be made up."""
    rng, described, tensors = np.random.default_rng(0), [], []
    for each in metadata["inputs"]:
        where = f"model {name!r}: input {each['name']!r}"
        shape = [items if not at and long < 0 else long for at, long in enumerate(each["shape"])]
        if any(long < 0 for long in shape) and not length:
            raise BadInput(
                f"its shape is {each['shape']}",
                where=where,
                mend="say with --length how long open lengths are",
            )
        shape = [length if long < 0 else long for long in shape]
        if prod(shape) > _ELEMENTS_MAX:
            raise BadInput(f"{shape} is too large", where=where, mend="give a smaller --length")
        data = _random(each["datatype"], shape, rng, where)
        tensors.append(data)
        described.append(
            {
                "name": each["name"],
                "datatype": each["datatype"],
                "shape": shape,
                "parameters": {"binary_data_size": len(data)},
            }
        )
    rest = msgspec.json.encode({"inputs": described})[1:]
    binary = b'"outputs":%b,' % msgspec.json.encode(
        [
            {"name": each["name"], "parameters": {"binary_data": True}}
            for each in metadata["outputs"]
        ]
    )
    return binary + rest, b"".join(tensors), f"/v2/models/{quote(name, safe='')}/infer"


def _random(datatype: str, shape: list[int], rng: np.random.Generator, where: str) -> bytes:
    count = prod(shape)
    if datatype in _FLOATS:
        return rng.standard_normal(count).astype(_FLOATS[datatype]).tobytes()
    if datatype == "BYTES":
        return b"\1\0\0\0a" * count
    width = _BYTES_EACH.get(datatype, _BYTES_EACH.get(datatype.lstrip("UINT"), 0))
    if not width:
        raise BadInput(
            f"its datatype is {datatype}", where=where, mend="load a model of other types"
        )
    return (1).to_bytes(width, "little") * count
