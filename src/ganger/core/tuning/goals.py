"""What trials are good at beside the metric that they are judged by: other metrics, each with a
direction, and constraints. A trial that breaks a constraint is never the best."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ganger.core.errors import BadInput

DIRECTIONS: Final = ("min", "max")
GOALS_MAX: Final = 16
"""The most constraints of a search, and the most metrics beside the one that judges: as many as a
report has."""
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_CONSTRAINT: Final = re.compile(
    r"\s*([^\s<>=;,]{1,128})\s*(<=|>=)\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*(us|ms|s|m|h)?\s*"
)


class Constraint(msgspec.Struct, frozen=True):
    """A metric that must be at most, or at least (`least`), a bound."""

    metric: str
    bound: float
    least: bool = False

    def kept(self, values: Mapping[str, float]) -> bool:
        """Whether these metrics keep it. One that is missing, or NaN, does not."""
        value = values.get(self.metric, math.nan)
        return value >= self.bound if self.least else value <= self.bound

    def __str__(self) -> str:
        """As it is written: `latency<=0.05`."""
        return f"{self.metric}{'>=' if self.least else '<='}{self.bound:.12g}"


def read_constraint(text: str, where: str) -> Constraint:
    """The constraint that `latency <= 50ms` or `acc >= 0.9` says; times are in seconds then. Raises
    BadInput."""
    match = _CONSTRAINT.fullmatch(text)
    try:
        bound = float(match[3]) * _SECONDS[match[4] or "s"] if match else math.nan
    except ValueError:
        bound = math.nan
    if match is None or not math.isfinite(bound):
        raise BadInput(
            f"{text[:80]!r} is not a valid constraint",
            where=where,
            mend="write like latency <= 50ms, params <= 1e6 or recall >= 0.9",
        )
    return Constraint(match[1], bound, match[2] == ">=")


def feasible(constraints: Iterable[Constraint], values: Mapping[str, float] | None) -> bool:
    """Whether metrics keep all constraints."""
    return all(each.kept(values or {}) for each in constraints)


def front(points: Sequence[Sequence[float]], directions: Sequence[str]) -> list[int]:
    """The places of the points that no other one dominates: is as good in all directions (`min`,
    `max`) and better in one. Equal points stay all; one with a NaN does not."""
    signs = [1.0 if direction == "min" else -1.0 for direction in directions]
    bad = [tuple(s * v for s, v in zip(signs, point, strict=True)) for point in points]
    good: list[int] = []
    for at in sorted(
        (at for at in range(len(bad)) if not any(map(math.isnan, bad[at]))), key=lambda at: bad[at]
    ):
        own = bad[at]
        if all(
            bad[other] == own or any(a > b for a, b in zip(bad[other], own, strict=True))
            for other in good
        ):
            good.append(at)
    return sorted(good)
