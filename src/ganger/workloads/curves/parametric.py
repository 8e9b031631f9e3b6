"""Curves that are made up: a formula per configuration, with noise, and trials that diverge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.tuning.space import Point, Space
from ganger.core.units import SECOND
from ganger.workloads.curves.table import Curve

EPOCHS_MAX = 10_000


@dataclass(frozen=True)
class Formula:
    """How curves are made. A trial reports after each of `epochs` epochs, which take `seconds` each
    on average over configurations (`spread`: of the lognormal factor of a configuration). Every
    report is off by a lognormal factor of spread `noise`. Of all configurations the part `diverge`
    breaks down somewhere on its way."""

    epochs: int = 81
    seconds: float = 60.0
    spread: float = 0.3
    noise: float = 0.02
    diverge: float = 0.05

    def check(self, where: str) -> Formula:
        """This. Raises BadInput for what cannot be."""
        bounds = {
            "epochs": (1, EPOCHS_MAX),
            "seconds": (1e-3, 1e6),
            "spread": (0, 3),
            "noise": (0, 3),
            "diverge": (0, 1),
        }
        for name, (least, highest) in bounds.items():
            if not least <= getattr(self, name) <= highest:
                raise BadInput(
                    f"{getattr(self, name):g} is out of range",
                    where=f"{where}: {name}",
                    mend=f"use {least:g} to {highest:g}",
                )
        return self


def read_formula(text: str, where: str = "--curves") -> Formula:
    """`parametric`, or `parametric:epochs=27,noise=0.1`. Raises BadInput."""
    words = text.partition(":")[2]
    given: dict[str, float] = {}
    known = [each.name for each in fields(Formula)]
    for word in filter(None, words.split(",")):
        name, _, value = word.partition("=")
        try:
            if name.strip() not in known:
                raise ValueError
            given[name.strip()] = float(value)
        except ValueError:
            raise BadInput(
                f"{word!r} is not a setting of parametric curves",
                where=where,
                mend=f"write like parametric:epochs=27,noise=0.1; it has {', '.join(known)}",
            ) from None
    if not given.get("epochs", 1.0).is_integer():
        raise BadInput("it is not a whole number", where=f"{where}: epochs", mend="round it")
    epochs = int(given.pop("epochs", Formula.epochs))
    return Formula(epochs=epochs, **given).check(where)


class Parametric:
    """Configurations that are added as they are proposed. Loss falls as a power of the epochs, from
    1 to what the configuration can reach, and `accuracy` is 1 - loss. One point of the space, drawn
    by the seed, is the best; the farther from it, the worse, and the slower. The same point under
    the same seed has the same curve, whenever it is added."""

    metrics: tuple[str, ...] = ("loss", "accuracy")

    def __init__(self, formula: Formula, space: Space, seed: int) -> None:
        self._formula, self._space, self._seed = formula, space, seed
        width = len(space.parameters)
        rng = np.random.default_rng([seed, 0xBE57])
        self._best = rng.uniform(0.15, 0.85, width)
        weight = rng.exponential(1.0, width)
        self._weight = weight / weight.sum()
        self._points: list[Point] = []

    def __len__(self) -> int:
        return len(self._points)

    def add(self, point: Point) -> int:
        """The row of a new configuration."""
        self._points.append(point)
        return len(self._points) - 1

    def label(self, row: int) -> str:
        """What the configuration is called: its number."""
        return f"c{row}"

    def point(self, row: int) -> Point:
        """The configuration."""
        return self._points[row]

    def curve(self, row: int) -> Curve:
        """What a trial of it reports."""
        return self.curve_at(self._space.units(self._points[row]))

    def first(self, row: int) -> tuple[float, int]:
        """After how many epochs, and microseconds, a trial of it first reports."""
        return 1.0, self.curve(row).ends[0]

    def curve_at(self, units: Sequence[float]) -> Curve:
        """The curve of a point of the unit cube."""
        how, place = self._formula, np.asarray(units)
        rng = np.random.default_rng([self._seed, *(int(unit * 2**32) for unit in units)])
        distance = float(self._weight @ np.abs(place - self._best) ** 1.5)
        floor = 0.05 + 0.9 * (1.0 - math.exp(-2.5 * distance)) + 0.01 * float(rng.random())
        rate = (0.5 + 0.5 * float(rng.random())) * math.exp(-distance)
        epochs = np.arange(1.0, how.epochs + 1.0)
        loss = floor + (1.0 - floor) * (1.0 + epochs) ** -rate
        loss *= np.exp(rng.normal(0.0, 1.0, how.epochs) * how.noise)
        seconds = how.seconds * math.exp(float(rng.normal()) * how.spread - how.spread**2 / 2)
        if float(rng.random()) < how.diverge:
            loss[int(rng.integers(how.epochs)) :] = np.nan
        ends = np.maximum(np.rint(epochs * seconds * SECOND), 1).astype(np.int64)
        values = {"loss": loss.tolist(), "accuracy": (1.0 - loss).tolist()}
        return Curve(epochs.tolist(), ends.tolist(), values)
