"""ServeGen's parameters (Alibaba Model Studio, 2025): the load of each client in windows of ten
minutes, from which requests are generated.

Columns: `client, window_s, rate, cv, pattern, p1, p2`. In each window a client has rate x 600 s
requests (rounded up or down at random), and gaps of the `pattern` (Gamma or Weibull) with the shape
`p1`, scaled so that they fill the window; so the scale `p2` is not used, and `cv` follows from the
shape. A client is a tenant. The option `tokens` names the file of token lengths, JSON Lines of
`{client, dataset: {start: {input_tokens, output_tokens}}}`, whose values are texts like
`{13: 0.4, 14: 0.6}`; a client that it lacks takes the lengths of one that it has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.units import SECOND
from ganger.workloads.files import open_text
from ganger.workloads.requests.columns import I64, Chunk, Requests
from ganger.workloads.requests.counts import positive, whole
from ganger.workloads.requests.processes import stream
from ganger.workloads.requests.reading import Reading, log, word
from ganger.workloads.requests.stream import delimited
from ganger.workloads.rows import Choice, Count, Kind, Number

HEADER = ("client", "window_s", "rate", "cv", "pattern", "p1", "p2")
WINDOW_SECONDS = 600
_PATTERNS = {"gamma": 0, "weibull": 1}
_PROMPTS = ("input_tokens", "text_tokens")
F64 = NDArray[np.float64]


def read(
    path: Path,
    *,
    skip_bad: bool = False,
    ordered: bool = True,
    seed: object = 0,
    scale: object = 1.0,
    tokens: object = "",
    model: object = "llm",
) -> Requests:
    """Requests of all clients, generated; `scale` multiplies their rates. Raises BadInput."""
    number, factor = whole(seed, "seed"), positive(scale, "scale")
    lengths = _Lengths(Path(word(tokens))) if tokens else None

    def rows(reading: Reading) -> Iterator[Chunk]:
        window, client, rate, pattern, shape = _parameters(path, reading)
        requests, draws = reading.requests, stream(number, "gaps")
        tenants = np.array(
            [requests.tenants.code(str(each)) for each in range(int(client.max(initial=-1)) + 1)],
            np.int32,
        )
        if lengths is not None:
            lengths.begin(number)
        edges = np.flatnonzero(np.diff(window, prepend=-1, append=-1))
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            some = slice(begin, end)
            wanted = rate[some] * (factor * WINDOW_SECONDS)
            n = np.floor(wanted + draws.random(end - begin)).astype(np.int64)
            at, who = _window(n, pattern[some], shape[some], draws)
            at += int(window[begin]) * SECOND
            asking = client[some][who]
            chunk = Chunk(at, np.zeros(len(at), np.int32), tenant=tenants[asking])
            if len(at):
                yield chunk if lengths is None else lengths.give(chunk, asking, int(window[begin]))
        if lengths is not None and (strange := len(set(client.tolist()) - set(lengths.known))):
            requests.remarks.note(
                f"{strange:,} clients have no token lengths of their own; they"
                f" take those of the {len(lengths.known)} that have"
            )

    return log(path, rows, skip_bad=skip_bad, ordered=True, models=[word(model)])


def _parameters(path: Path, reading: Reading) -> tuple[I64, I64, F64, I64, F64]:
    """The rows by window, then client: window (s), client, rate, pattern and shape."""
    kinds: dict[str, Kind] = {
        "client": Count(0, 10_000_000),
        "window_s": Count(0, 1 << 31),
        "rate": Number(0, 1e7),
        "pattern": Choice(_PATTERNS, -1),
        "p1": Number(1e-3, 1e6),
    }
    found: dict[str, list[Any]] = {name: [] for name in kinds}
    for table in delimited(path, reading.complaints, kinds):
        table.refuse(table["pattern"] < 0, "pattern", "it is empty", "use Gamma or Weibull")
        for name, columns in found.items():
            columns.append(table[name][table.good])
    window, client, rate, pattern, shape = (
        np.concatenate([np.zeros(0, float if name in ("rate", "p1") else np.int64), *found[name]])
        for name in ("window_s", "client", "rate", "pattern", "p1")
    )
    order = np.lexsort((client, window))
    return window[order], client[order], rate[order], pattern[order], shape[order]


def _window(n: I64, pattern: I64, shape: F64, draws: np.random.Generator) -> tuple[I64, I64]:
    """Arrivals (microseconds into the window, in order) and the row of each, of clients with `n`
    requests: n + 1 gaps fill the window."""
    rows = np.repeat(np.arange(len(n)), n + 1)
    shapes = shape[rows]
    gap = np.where(pattern[rows] == 0, draws.standard_gamma(shapes), draws.weibull(shapes)) + 1e-12
    ends = np.cumsum(n + 1)
    total = np.cumsum(gap)
    before = np.concatenate(([0.0], total[ends[:-1] - 1]))
    part = (total - before[rows]) / (total[ends - 1] - before)[rows]
    inner = np.ones(len(rows), bool)
    inner[ends - 1] = False
    width = WINDOW_SECONDS * SECOND
    at = np.clip((part[inner] * width).astype(np.int64), 0, width - 1)
    order = np.argsort(at, kind="stable")
    return at[order], rows[inner][order]


class _Line(msgspec.Struct):
    client: int
    dataset: dict[str, dict[str, str]]


class _Lengths:
    """Distributions of token counts, by client and by the time from which they hold."""

    def __init__(self, path: Path) -> None:
        file = open_text(path)
        self.known: dict[int, list[tuple[int, list[tuple[I64, F64]]]]] = {}
        for at, text in enumerate(file.text.split("\n"), 1):
            if not text.strip():
                continue
            where = f"{path}: line {at}"
            try:
                line = msgspec.json.decode(text, type=_Line)
                parts = [
                    (int(start), _pair(tables))
                    for start, tables in line.dataset.items()
                    if not _is_empty(tables)
                ]
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise BadInput(
                    f"no token lengths: {error}", where=where, mend="see docs/requests.md"
                ) from None
            if parts:
                self.known[line.client] = sorted(parts, key=lambda part: part[0])
        self.order = sorted(self.known)
        if not self.order:
            raise BadInput(
                "no client has token lengths",
                where=str(path),
                mend="name another file, or leave the option out",
            )
        self.rng = np.random.default_rng(0)

    def begin(self, seed: int) -> None:
        """Start anew with the draws of a seed."""
        self.rng = stream(seed, "tokens")

    def give(self, chunk: Chunk, client: I64, window: int) -> Chunk:
        """The same requests of these clients, with lengths."""
        sizes = np.zeros((2, len(chunk)), np.int32)
        order = np.argsort(client, kind="stable")
        edges = np.flatnonzero(np.diff(client[order], prepend=-1, append=-1))
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            rows = order[begin:end]
            who = int(client[rows[0]])
            parts = self.known.get(who) or self.known[self.order[who % len(self.order)]]
            at = max(bisect_right(parts, window, key=lambda part: part[0]) - 1, 0)
            for size, (values, edge) in zip(sizes, parts[at][1], strict=True):
                drawn = np.searchsorted(edge, self.rng.random(len(rows)), side="right")
                size[rows] = values[np.minimum(drawn, len(values) - 1)]
        return Chunk(
            chunk.arrival,
            chunk.model,
            tenant=chunk.tenant,
            prompt_tokens=sizes[0],
            output_tokens=sizes[1],
        )


def _is_empty(tables: dict[str, str]) -> bool:
    """Whether a client sent nothing in that time."""
    return any(tables.get(name, "").strip() == "{}" for name in (*_PROMPTS, "output_tokens"))


def _pair(tables: dict[str, str]) -> list[tuple[I64, F64]]:
    """The distributions of prompts and of outputs."""
    prompt = next((name for name in _PROMPTS if name in tables), _PROMPTS[0])
    for name in (prompt, "output_tokens"):
        if name not in tables:
            raise ValueError(f"{name} is missing")
    return [_distribution(tables[prompt]), _distribution(tables["output_tokens"])]


def _distribution(text: str) -> tuple[I64, F64]:
    """Values and cumulative weights of a text like `{13: 0.4, 14: 0.6}`. Raises ValueError."""
    cells = np.array(
        text.strip().removeprefix("{").removesuffix("}").replace(":", ",").split(","), float
    )
    values, weights = cells[::2], cells[1::2]
    if (
        len(values) != len(weights)
        or not ((values >= 0) & (values < 1 << 31)).all()
        or not (weights >= 0).all()
        or not 0 < weights.sum() < np.inf
    ):
        raise ValueError(f"{text[:40]!r} is not a distribution")
    return values.astype(np.int64), np.cumsum(weights) / weights.sum()
