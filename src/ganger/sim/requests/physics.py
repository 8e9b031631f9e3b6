"""How long batches and loads really take: what was measured, times noise, times what runs beside
them."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Final

import numpy as np
from msgspec import Struct

from ganger.core.errors import InvariantError
from ganger.core.serving.answering import sigma_of
from ganger.core.serving.verbs import Batch, Part
from ganger.core.serving.world import Known, Lane

_BLOCK: Final = 1 << 14


class _Drawn(Struct):
    """Of a model on what a lane is: what was measured, and of those inputs that were ever drawn
    for, sigma of the lognormal; None where there is no spread."""

    mean: Sequence[int]
    p99: Sequence[int]
    sigma: dict[int, float] | None


class Physics:
    """Draws what batches take: lognormal, with the mean and the 99th percentile that were measured.

    `noise`: how much of the measured spread there is; 0 for none. The draws of batches follow each
    other, so what comes later changes none before. A batch that begins beside others takes so many
    times longer as was measured; where nobody measured it, alone or not is the same. A batch that
    begins on a device with a `pace` takes that many times as long.
    """

    def __init__(self, models: Sequence[Known], *, noise: float = 1.0, seed: int = 0) -> None:
        self._models, self._noise = models, noise
        self._rng = np.random.default_rng([seed, 0x5E])
        self._normals: list[float] = []
        self.pace: dict[int, float] = {}
        self._drawn: dict[tuple[str, float], dict[int, _Drawn]] = {}
        """By what a lane is, and by model."""
        self._drawn_of: dict[int, dict[int, _Drawn]] = {}
        """The same by lane."""

    def micros(self, batch: Batch, lane: Lane, beside: int = 0) -> int:
        """Of a batch that begins now. Raises InvariantError where nobody measured it."""
        if len(batch.parts) == 1 and not beside and not self.pace:
            return round(self._part(batch.parts[0], lane)) or 1
        total = 0.0
        for part in batch.parts:
            took = self._part(part, lane)
            if beside:
                took *= self._longer(part.model, lane, beside)
            total += took
        if self.pace:
            total *= self.pace.get(lane.device, 1.0)
        return max(round(total), 1)

    def _longer(self, model: int, lane: Lane, beside: int) -> float:
        factors = self._models[model].beside.get((lane.type, lane.share))
        return factors[min(beside, len(factors)) - 1] if factors else 1.0

    def _part(self, part: Part, lane: Lane) -> float:
        drawn = self._drawn_of.get(lane.number)
        if drawn is None:
            drawn = self._drawn.setdefault((lane.type, lane.share), {})
            self._drawn_of[lane.number] = drawn
        found = drawn.get(part.model)
        if found is None:
            found = drawn[part.model] = self._table(part.model, lane)
        items = part.items
        try:
            took: float = found.mean[items]
        except IndexError:
            name = self._models[part.model].name
            raise InvariantError(
                f"a batch of {items} of {name}, measured to {len(found.mean) - 1}"
            ) from None
        if part.first or part.last:
            took *= self._models[part.model].part(part.first, part.last)
        if found.sigma is not None:
            sigma = found.sigma.get(items)
            if sigma is None:
                mean = found.mean[items]
                sigma = self._noise * sigma_of(found.p99[items] / mean) if mean else 0.0
                found.sigma[items] = sigma
            if not self._normals:
                self._normals = self._rng.standard_normal(_BLOCK).tolist()
            took *= exp(sigma * self._normals.pop() - sigma * sigma / 2)
        return took

    def _table(self, model: int, lane: Lane) -> _Drawn:
        known = self._models[model].latencies.get((lane.type, lane.share))
        if known is None:
            raise InvariantError(f"{self._models[model].name} was not measured on {lane.type}")
        if not self._noise or all(a == b for a, b in zip(known.mean, known.p99, strict=True)):
            return _Drawn(known.mean, known.p99, None)
        return _Drawn(known.mean, known.p99, {})

    def next_border(self, batch: Batch, began: int, ends: int, now: int) -> tuple[int, int]:
        """When the running batch can be interrupted first, and the operator that it stops before;
        its end where there is no border before."""
        part = batch.parts[0]
        borders = (0.0, *self._models[part.model].borders, 1.0)
        first, last = part.first, part.last or len(borders) - 1
        whole = borders[last] - borders[first]
        for operator in range(first + 1, last):
            at = began + round((ends - began) * (borders[operator] - borders[first]) / whole)
            if at >= now:
                return at, operator
        return ends, 0

    def load_micros(self, model: int) -> int:
        """Of copying a model to where it runs."""
        return max(self._models[model].load, 1)
