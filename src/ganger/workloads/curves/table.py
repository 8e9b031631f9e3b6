"""Curves of many configurations, as flat columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ganger.core.tuning.space import Parameter, Point, Space, Value

LOG_FROM: Final = 100
"""Numbers above 0 that differ by this factor, or a larger one, are spread by their logarithm."""


class Curve(NamedTuple):
    """What a trial of one configuration reports, in order: after how many `epochs` of training, at
    which time since its start (microseconds), and by metric which value; NaN: it broke down."""

    epochs: list[float]
    ends: list[int]
    values: dict[str, list[float]]

    def after(self, epoch: float) -> Curve:
        """What follows that epoch, with times since then."""
        begin = bisect_right(self.epochs, epoch)
        passed = self.ends[begin - 1] if begin else 0
        values = {name: column[begin:] for name, column in self.values.items()}
        return Curve(self.epochs[begin:], [end - passed for end in self.ends[begin:]], values)


class Curves(Protocol):
    """Configurations by row, each with its curve."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of what trials report."""

    def __len__(self) -> int:
        """How many configurations there are by now."""

    def label(self, row: int) -> str:
        """What the configuration is called, like no other."""

    def point(self, row: int) -> Point:
        """The configuration."""

    def curve(self, row: int) -> Curve:
        """Its curve."""

    def first(self, row: int) -> tuple[float, int]:
        """After how many epochs, and microseconds, a trial of it first reports."""


@dataclass(frozen=True)
class CurveTable:
    """A table of `labels`, each a configuration: the `parameters` by name, one value a row, and the
    curve, which are the entries `starts[row]` to `starts[row + 1]` of the flat columns."""

    where: str
    labels: Sequence[str]
    parameters: Mapping[str, Sequence[Value]]
    starts: NDArray[np.int64]
    epochs: NDArray[np.float64]
    ends: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.values)

    def __len__(self) -> int:
        return len(self.labels)

    def label(self, row: int) -> str:
        """What the configuration is called."""
        return self.labels[row]

    def point(self, row: int) -> Point:
        """The configuration."""
        return {name: column[row] for name, column in self.parameters.items()}

    def curve(self, row: int) -> Curve:
        """What a trial of it reports."""
        part = slice(int(self.starts[row]), int(self.starts[row + 1]))
        numbers = np.arange(1, part.stop - part.start + 1)
        ends = np.maximum.accumulate(np.maximum(self.ends[part] - numbers, 0)) + numbers
        return Curve(
            self.epochs[part].tolist(),
            ends.tolist(),  # two reports are never at one time
            {name: column[part].tolist() for name, column in self.values.items()},
        )

    def first(self, row: int) -> tuple[float, int]:
        """After how many epochs, and microseconds, a trial of it first reports."""
        at = int(self.starts[row])
        return float(self.epochs[at]), int(self.ends[at])

    def space(self) -> Space:
        """The smallest space that holds all configurations. Numbers that are above 0 and differ by
        a factor of 100 or more are spread by their logarithm."""
        return Space({name: _range(column) for name, column in self.parameters.items()}, self.where)


def rectangular(
    where: str,
    labels: Sequence[str],
    parameters: Mapping[str, Sequence[Value]],
    epochs: NDArray[np.float64],
    ends: NDArray[np.int64],
    values: Mapping[str, NDArray[np.float64]],
) -> CurveTable:
    """The table of configurations that all report after the same `epochs`; the others are arrays of
    configurations x epochs."""
    count, length = len(labels), len(epochs)
    return CurveTable(
        where,
        labels,
        parameters,
        np.arange(count + 1) * length,
        np.tile(epochs, count),
        np.ascontiguousarray(ends).reshape(-1),
        {name: np.ascontiguousarray(column).reshape(-1) for name, column in values.items()},
    )


def _range(column: Sequence[Value]) -> Parameter:
    distinct = set(column)
    if len(distinct) < 2 or any(isinstance(value, str | bool) for value in distinct):
        return Parameter(type="choice", values=tuple(sorted(distinct, key=str)))
    low, high = min(map(float, distinct)), max(map(float, distinct))
    whole = all(float(value).is_integer() for value in distinct)
    log = low > 0 and high >= LOG_FROM * low
    return Parameter(type="integer" if whole else "real", low=low, high=high, log=log)
