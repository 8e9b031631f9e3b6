"""Spaces of hyper-parameters: what values each may have, and points of the unit cube for them.

A point of a space is a dictionary from names to values. A parameter that others make pointless
(`when`) is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from ganger.core.errors import BadInput

if TYPE_CHECKING:  # the client reads spaces: it does without numpy
    import numpy as np

Value: TypeAlias = float | int | str | bool
Point: TypeAlias = dict[str, Value]
_ANEW, _UP, _DOWN = 0.25, 1.2, 0.8
_DIGITS: Final = 1e-5
"""What `spelled` may round a number up or down by, as a part of it."""
GRID_MAX: Final = 100_000
"""The most points of a grid."""
GRID_VALUES_MAX: Final = 1_000_000
"""The most values in all points of a grid together."""
PARAMETERS_MAX: Final = 1_000


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What values one hyper-parameter may have.

    `real` and `integer`: from `low` to `high`, both included; `log`: spread evenly by their
    logarithm. `choice`: one of `values`. `grid`: how many values a grid takes of a range (0: five).
    `when`: it matters only if each parameter named has one of the values given.
    """

    type: Literal["real", "integer", "choice"] = "real"
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    values: tuple[Value, ...] = ()
    grid: int = 0
    when: dict[str, tuple[Value, ...]] = {}

    def check(self, where: str) -> None:
        """Raise BadInput for a parameter that has no values."""
        if self.type == "choice":
            if not self.values or len(set(map(repr, self.values))) < len(self.values):
                raise BadInput(
                    "its values are missing or listed twice",
                    where=f"{where}: values",
                    mend="list each value once",
                )
            if self.log:
                raise BadInput("a choice has no scale", where=f"{where}: log", mend="leave it out")
            return
        if self.values:
            raise BadInput(
                f"values of a parameter of type {self.type!r}",
                where=f"{where}: values",
                mend='write type = "choice", or low and high',
            )
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise BadInput(
                f"from {self.low:g} to {self.high:g}", where=where, mend="let low be below high"
            )
        if self.log and self.low <= 0:
            raise BadInput(
                f"low is {self.low:g} on a logarithmic scale",
                where=f"{where}: low",
                mend="use a low above 0",
            )
        if not self._apart():
            raise BadInput(
                f"its scale from {self.low:g} to {self.high:g} is beyond what numbers can tell",
                where=where,
                mend="use ends that are less, or more, apart",
            )
        if self.type == "integer" and (self.low % 1 or self.high % 1):
            raise BadInput("an end is not an integer", where=where, mend="round low and high")
        if not 0 <= self.grid <= GRID_MAX:
            raise BadInput("it is out of range", where=f"{where}: grid", mend="use 2 to 100")

    def _apart(self) -> bool:
        """Whether the ends are so far apart, and no farther, that values between them differ."""
        if self.log:
            ratio = self.high / self.low
            return math.isfinite(ratio) and math.log(self.low) < math.log(self.high)
        return math.isfinite(self.high - self.low)

    def value(self, unit: float) -> Value:
        """The value at `unit`, which is from 0 up to but not including 1."""
        if self.type == "choice":
            return self.values[min(int(unit * len(self.values)), len(self.values) - 1)]
        low, high = self.low, self.high
        if self.type == "integer":  # each integer has the same part of the scale
            low, high = (low - 0.5, high + 0.5) if not self.log else (low, high + 1.0)
        if self.log:
            value = math.exp(math.log(low) + unit * (math.log(high) - math.log(low)))
        else:
            value = low + unit * (high - low)
        if self.type == "integer":
            whole = math.floor(value) if self.log else math.floor(value + 0.5)
            return int(min(max(whole, self.low), self.high))
        return min(max(value, self.low), self.high)

    def unit(self, value: Value) -> float:
        """Where a value lies on the scale from 0 to 1; a choice by its place."""
        if self.type == "choice":
            return (self.values.index(value) + 0.5) / len(self.values)
        number = float(value)
        if self.log:
            return (math.log(number) - math.log(self.low)) / (
                math.log(self.high) - math.log(self.low)
            )
        return (number - self.low) / (self.high - self.low)

    def beside(self, value: Value, up: bool) -> Value:
        """A value close to another one, above or below it."""
        if self.type == "choice":
            at = self.values.index(value) + (1 if up else -1)
            return self.values[min(max(at, 0), len(self.values) - 1)]
        scaled = min(max(float(value) * (_UP if up else _DOWN), self.low), self.high)
        return round(scaled) if self.type == "integer" else scaled

    def holds(self, value: Value) -> bool:
        """Whether it may have this value."""
        if self.type == "choice":
            return value in self.values
        if isinstance(value, str | bool):
            return False
        whole = self.type != "integer" or float(value).is_integer()
        return whole and self.low <= value <= self.high

    def read(self, word: str) -> Value | None:
        """The value that is `spelled` so, at an end of a range where it was rounded beyond that;
        None if it has no such value."""
        if self.type == "choice":
            return next((value for value in self.values if spelled(value) == word), None)
        try:
            number = float(word)
        except ValueError:
            return None
        if not self.low - abs(self.low) * _DIGITS <= number <= self.high + abs(self.high) * _DIGITS:
            return None
        number = min(max(number, self.low), self.high)
        return number if self.type == "real" else int(number) if number.is_integer() else None

    def steps(self) -> list[Value]:
        """Its values in a grid."""
        if self.type == "choice":
            return list(self.values)
        count = self.grid or 5
        if count == 1:
            return [self.value(0.5)]
        ends = [at / (count - 1) for at in range(count)]
        if self.type == "integer":
            span = int(self.high - self.low)
            if span < count:
                return [int(self.low) + at for at in range(span + 1)]
        ratio = self.high / self.low if self.log else 0.0
        values = [
            self.low * ratio**end if self.log else self.low + end * (self.high - self.low)
            for end in ends
        ]
        if self.type == "integer":
            return list(dict.fromkeys(round(value) for value in values))
        return list(values)


def spelled(value: Value) -> str:
    """A value as commands and journals have it. Real numbers have six digits: people read them, and
    no training tells more apart."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class Space:
    """Parameters by name, in the order of their file, a parameter after those that it needs."""

    def __init__(self, parameters: Mapping[str, Parameter], where: str = "space") -> None:
        """Raises BadInput, with the first thing wrong."""
        self.parameters = dict(parameters)
        if not self.parameters:
            raise BadInput("it has no parameter", where=where, mend="add one, such as [space.lr]")
        if len(self.parameters) > PARAMETERS_MAX:
            raise BadInput(
                f"{len(self.parameters):,} parameters",
                where=where,
                mend=f"use at most {PARAMETERS_MAX:,}",
            )
        before: dict[str, Parameter] = {}
        for name, parameter in self.parameters.items():
            parameter.check(f"{where}: {name}")
            for other, values in parameter.when.items():
                if other not in before:
                    raise BadInput(
                        f"{other!r} is not a parameter listed before",
                        where=f"{where}: {name}: when",
                        mend="list it before, or mend the name",
                    )
                wrong = [value for value in values if not before[other].holds(value)]
                if wrong or not values:
                    raise BadInput(
                        f"{other} never has {wrong[0]!r}" if wrong else "it names no value",
                        where=f"{where}: {name}: when",
                        mend=f"use values of {other}",
                    )
            before[name] = parameter

    @property
    def names(self) -> tuple[str, ...]:
        """Of all parameters."""
        return tuple(self.parameters)

    def matters(self, name: str, point: Mapping[str, Value]) -> bool:
        """Whether the parameter is part of a point that has these values so far."""
        when = self.parameters[name].when
        return all(other in point and point[other] in values for other, values in when.items())

    def point(self, units: Sequence[float]) -> Point:
        """The point at these places, one for each parameter."""
        point: Point = {}
        for (name, parameter), unit in zip(self.parameters.items(), units, strict=True):
            if self.matters(name, point):
                point[name] = parameter.value(unit)
        return point

    def near(self, point: Mapping[str, Value], rng: np.random.Generator) -> Point:
        """Another point close by, as in population based training: each number is multiplied by 0.8
        or 1.2, each choice is one that stands beside it, and one parameter in four is drawn
        anew."""
        near: Point = {}
        for name, parameter in self.parameters.items():
            anew, unit, up = rng.random(), float(rng.random()), bool(rng.random() < 0.5)
            if self.matters(name, near):
                drawn = anew < _ANEW or name not in point
                near[name] = parameter.value(unit) if drawn else parameter.beside(point[name], up)
        return near

    def units(self, point: Mapping[str, Value]) -> list[float]:
        """Where a point lies in the unit cube; 0.5 for what does not matter in it."""
        return [
            parameter.unit(point[name]) if name in point else 0.5
            for name, parameter in self.parameters.items()
        ]

    def holds(self, point: Mapping[str, Value]) -> bool:
        """Whether all parameters that matter in the point are there, with values they may have."""
        seen: Point = {}
        for name, parameter in self.parameters.items():
            if self.matters(name, seen):
                if name not in point or not parameter.holds(point[name]):
                    return False
                seen[name] = point[name]
        return True

    def check(self, point: Mapping[str, Value], where: str) -> Point:
        """The point with what matters in it. Raises BadInput, with the parameter."""
        for name in point:
            if name not in self.parameters:
                raise BadInput(
                    "there is no such parameter", where=f"{where}: {name}", mend="see `space`"
                )
        seen: Point = {}
        for name, parameter in self.parameters.items():
            if not self.matters(name, seen):
                continue
            if name not in point:
                raise BadInput(f"{name} is missing", where=where, mend="give all that matter")
            if not parameter.holds(point[name]):
                raise BadInput(
                    f"{point[name]!r} is not in the space", where=f"{where}: {name}", mend="mend it"
                )
            seen[name] = point[name]
        return seen

    def read(self, words: Mapping[str, str]) -> Point | None:
        """The point whose values are `spelled` so; None where no point of the space is."""
        point: Point = {}
        for name, parameter in self.parameters.items():
            if self.matters(name, point):
                value = parameter.read(words.get(name, ""))
                if value is None:
                    return None
                point[name] = value
        return point

    def grid(self) -> list[Point]:
        """Every combination of `steps` once, the last parameter fastest. Raises BadInput for too
        many."""
        steps, count = dict[str, list[Value]](), 1
        for name, parameter in self.parameters.items():
            steps[name] = parameter.steps()
            count *= len(steps[name])
            if count >= 10**15:
                break  # it is too large whatever the others are, whose values would fill the memory
        if count > min(GRID_MAX, GRID_VALUES_MAX // len(steps)):
            size = f"{count:,}" if count < 10**15 else "more than 10^15"
            raise BadInput(
                f"a grid of {size} points", where="space", mend="set `grid` of some parameters"
            )
        points: dict[tuple[tuple[str, Value], ...], Point] = {}
        for values in product(*steps.values()):
            point = self._kept(zip(steps, values, strict=True))
            points.setdefault(tuple(point.items()), point)
        return list(points.values())

    def _kept(self, values: Iterator[tuple[str, Value]]) -> Point:
        point: Point = {}
        for name, value in values:
            if self.matters(name, point):
                point[name] = value
        return point
