"""What was measured of models, ready to be asked: latency and memory by batch, tokens, load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
_NO_TIME: Final = 1e-9
"""Of a batch's time; less cannot be told from nothing."""
_TIERS: Final = ("host", "disk", "remote")
_THOUSANDTH: Final = 1e-3
"""Shares of devices are booked in these."""


@dataclass(frozen=True, eq=False)
class Latency:
    """Seconds that a batch takes on a `share` of a device, linear between the batches measured.

    `batch` rises; a batch smaller than the first takes as long as the first. `p99`: of which 99 in
    100 batches take no more; the mean where it was not measured. `memory_bytes`: of the model and a
    batch; None: not measured. `beside`: how many times longer a batch takes with 1, 2, ... others
    on the device. `source`: where the figures are from.
    """

    device: str
    share: float
    batch: I64
    mean: F64
    p99: F64
    memory_bytes: I64 | None = None
    source: str = ""
    beside: tuple[float, ...] = ()

    @property
    def largest(self) -> int:
        """The largest batch that the profile speaks of."""
        return int(self.batch[-1])

    def mean_seconds(self, batch: Any) -> F64:
        """The mean of batches of such sizes; nan beyond the largest."""
        return np.asarray(np.interp(batch, self.batch, self.mean, right=np.nan), np.float64)

    def p99_seconds(self, batch: Any) -> F64:
        """The 99th percentile of batches of such sizes; nan beyond the largest."""
        return np.asarray(np.interp(batch, self.batch, self.p99, right=np.nan), np.float64)

    @property
    def best(self) -> tuple[int, float]:
        """The batch with the highest throughput, and that in items per second."""
        rate = self.batch / self.mean
        at = int(rate.argmax())
        return int(self.batch[at]), float(rate[at])


@dataclass(frozen=True, eq=False)
class Tokens:
    """What a language model takes on `devices` devices of a type, in seconds.

    `prefill`: base, per token, per squared length; or a table of tokens and seconds. `decode`: rows
    of largest batch, base, per request, per token of context; or a table of batches and seconds.
    `cache_bytes_per_token`: 0 where not stated.
    """

    device: str
    devices: int
    prefill: tuple[float, float, float] | None
    prefill_table: tuple[I64, F64] | None
    decode: F64 | None
    decode_table: tuple[I64, F64] | None
    cache_bytes_per_token: int = 0

    def prefill_seconds(self, tokens: Any, squares: Any = 0.0) -> F64:
        """Reading prompts of so many tokens in all; `squares`: the sum of their squared lengths. A
        table is linear between its points and goes on as between the last two."""
        if self.prefill is not None:
            base, each, squared = self.prefill
            return np.asarray(base + each * np.asarray(tokens) + squared * np.asarray(squares))
        return _beyond(tokens, self.prefill_table)

    def decode_seconds(self, batch: Any, context: Any = 0.0) -> F64:
        """A step of so many requests, which have `context` tokens behind them in all."""
        if self.decode is None:
            return _beyond(batch, self.decode_table)
        row = self.decode[np.searchsorted(self.decode[:, 0], batch)]
        return np.asarray(
            row[..., 1] + row[..., 2] * np.asarray(batch) + row[..., 3] * np.asarray(context)
        )


def _beyond(at: Any, table: tuple[I64, F64] | None) -> F64:
    assert table is not None, "either coefficients or a table"
    x, y = table
    inside = np.interp(at, x, y)
    slope = (y[-1] - y[-2]) / (x[-1] - x[-2]) if len(x) > 1 else 0.0
    return np.asarray(inside + slope * np.maximum(np.asarray(at) - x[-1], 0))


@dataclass(frozen=True, eq=False)
class Operators:
    """The graph of a model in the order in which it runs.

    `time`: parts of a batch's time, one together; `inputs`: the numbers of the operators that each
    reads; `output_bytes`: for each item, 0 where not stated; `parameters`: identities, empty where
    it has none that are named; `border`: whether a batch may be cut behind it.
    """

    names: tuple[str, ...]
    time: F64
    inputs: tuple[tuple[int, ...], ...]
    output_bytes: I64
    parameters: tuple[str, ...]
    border: NDArray[np.bool_]

    @property
    def segments(self) -> list[tuple[int, int, float]]:
        """What runs uncut: the first operator, the one behind the last, the part of the time.
        Operators that take no time do not make a segment."""
        found: list[tuple[int, int, float]] = []
        first, count = 0, len(self.names)
        for at in range(count):
            part = float(self.time[first : at + 1].sum())
            if (self.border[at] or at == count - 1) and part > _NO_TIME:
                found.append((first, at + 1, part))
                first = at + 1
        begin, _, part = found[-1]
        found[-1] = begin, count, part
        return found

    @property
    def layers(self) -> tuple[str, ...]:
        """What each segment is: its operators with their inputs and parameters. "" for one of which
        no operator names parameters: nobody knows whether another model has the same."""
        return tuple(
            "; ".join(
                f"{self.names[at]}({', '.join(self.names[of] for of in self.inputs[at])})"
                f" {self.parameters[at]}"
                for at in range(first, after)
            )
            if any(self.parameters[first:after])
            else ""
            for first, after, _ in self.segments
        )

    @property
    def borders(self) -> tuple[float, ...]:
        """Where a batch may be cut: after which parts of its time, above 0, rising, below 1."""
        return tuple(np.cumsum([part for *_, part in self.segments])[:-1].tolist())


@dataclass(frozen=True, eq=False)
class Utilisation:
    """What runs of a model use of a `share` of a device, sampled every so many seconds. `series`:
    of `compute` and `bandwidth` (parts of the whole) and `memory_bytes`, those that are known."""

    device: str
    share: float
    every_seconds: float
    series: dict[str, F64]
    source: str = ""


@dataclass(frozen=True, eq=False)
class Model:
    """A model that services run. `accuracy`: nan where not known. `predicted`: the class that it
    gives each input of a data set, whose true classes are `labels`; `scores`: what it gives each
    input for every class; `calibration`: which inputs recipes may know, None: all. `bytes`: 0 where
    not stated. `parameters`: (identity, bytes). `load`: seconds by tier. `onnx`: the file that is
    served, None where none is named."""

    name: str
    family: str = ""
    source: str = ""
    accuracy: float = float("nan")
    predicted: I64 | None = None
    labels: I64 | None = None
    bytes: int = 0
    parameters: tuple[tuple[str, int], ...] = ()
    load: dict[str, float] = field(default_factory=dict)
    latency: tuple[Latency, ...] = ()
    tokens: tuple[Tokens, ...] = ()
    operators: Operators | None = None
    utilisation: tuple[Utilisation, ...] = ()
    onnx: Path | None = None
    scores: F64 | None = None
    calibration: NDArray[np.bool_] | None = None
    parity: Parity | None = None

    @property
    def load_seconds(self) -> float:
        """Of loading it from the nearest tier that is stated; 0 where none is."""
        return next((self.load[tier] for tier in _TIERS if tier in self.load), 0.0)

    def on(self, device: str, share: float = 1.0) -> Latency | None:
        """Its profile on a share of a device (to a thousandth), if it was measured there."""
        near = (
            each
            for each in self.latency
            if each.device == device and abs(each.share - share) < _THOUSANDTH / 2
        )
        return next(near, None)


@dataclass(frozen=True, eq=False)
class Parity:
    """A parity model: `of` which model, for how many inputs (`k`). `layers`: matrices with a row
    for each value that goes in, and a last one that is added; between them what is negative becomes
    0. `inputs`: the data set, a row each."""

    of: str
    k: int
    layers: tuple[F64, ...]
    inputs: F64

    def scores(self, inputs: Sequence[int]) -> list[float]:
        """What it gives for every class of the sum of these inputs; past the last they begin again
        with the first."""
        values = self.inputs[np.asarray(inputs) % len(self.inputs)].sum(0)
        for at, layer in enumerate(self.layers):
            values = (np.maximum(values, 0) if at else values) @ layer[:-1] + layer[-1]
        return cast("list[float]", values.tolist())


@dataclass(frozen=True)
class Pipeline:
    """Stages by name, in an order in which each comes after those that feed it: (name, model), and
    edges (from, to, items for each item)."""

    name: str
    stages: tuple[tuple[str, str], ...]
    edges: tuple[tuple[str, str, float], ...]


@dataclass(frozen=True)
class Models:
    """A models file: models and pipelines by name, and MiB of memory by device (0: not stated).
    `about`: what it holds, and how and when that was found."""

    models: dict[str, Model]
    devices: dict[str, int]
    pipelines: dict[str, Pipeline] = field(default_factory=dict)
    source: str = ""
    about: str = ""
