"""How much longer the steps of a job take beside another one, by a random forest over what both use
of the GPU when they have it alone (Co-scheML, ACSOS 2020).

Where fewer than `ENOUGH` pairs were measured of models whose use is known, it is trained on pairs
of the synthetic generator `product` too: every use is drawn evenly from 0 to 1, and a step takes
1 + the sum over resources of own use x the other's use times as long. Nothing of that was
measured: the simulator's own regression without weights is the same formula.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from ganger.core.profiles import Profile
from ganger.core.view import View
from ganger.solve.boost import Floats, Trees, forest

ENOUGH: Final = 30
"""So many measured pairs (each counts for both of its jobs) make the generator needless."""
SAMPLES: Final = 1000
"""Pairs that the generator draws."""
SEED: Final = 0
Uses: TypeAlias = tuple[float, ...]
"""What a model uses alone of each of several resources, 0 to 1."""
Row: TypeAlias = tuple[Uses, Uses, float]
"""What a job uses, what the other one uses, and how many times as long a step of the job takes."""


def product(resources: int, samples: int = SAMPLES, seed: int = SEED) -> list[Row]:
    """Pairs by the synthetic generator."""
    own, other = np.random.default_rng(seed).random((2, samples, resources))
    longer = 1.0 + (own * other).sum(axis=1)
    rows = zip(own.tolist(), other.tolist(), longer.tolist(), strict=True)
    return [(tuple(mine), tuple(its), float(times)) for mine, its, times in rows]


def features(own: Uses, other: Uses) -> list[float]:
    """What the forest sees: both uses of every resource, and their products."""
    return [*own, *other, *(mine * its for mine, its in zip(own, other, strict=True))]


@lru_cache(maxsize=64)
def trained(rows: tuple[Row, ...], resources: int) -> Trees:
    """The forest for pairs that use so many resources, from measured `rows`."""
    every = [*rows, *(product(resources) if len(rows) < ENOUGH else ())]
    x: Floats = np.array([features(own, other) for own, other, _ in every])
    return forest(x, np.array([times for *_, times in every]))


class Pair(NamedTuple):
    """A measured pair: how many times as long a step of `model` takes beside `other`."""

    model: str
    other: str
    times: float


def measured_pairs(profiles: Mapping[str, Profile]) -> list[Pair]:
    """Those of the models that state what they use, beside others that do."""
    return [
        Pair(name, other, 1.0 / part)
        for name, each in profiles.items()
        if each.utilisation and each.measured is not None
        for other in sorted(each.measured.beside)
        if other in profiles and profiles[other].utilisation
        for gpu_type, by_size in each.measured.beside[other].items()
        for part in [each.measured.part(other, gpu_type, gpus) for gpus in by_size]
        if part
    ]


def rows_of(
    pairs: Iterable[Pair], known: Mapping[str, Mapping[str, float]], names: Sequence[str]
) -> tuple[Row, ...]:
    """Pairs to train on, of the models whose `known` uses are all among the resources `names`."""
    return tuple(
        (_uses(known[model], names), _uses(known[other], names), times)
        for model, other, times in pairs
        if {*known[model], *known[other]} <= {*names}
    )


def predicted(rows: tuple[Row, ...], own: Uses, other: Uses) -> float:
    """How many times as long a step takes, by the forest that is trained on `rows`."""
    return max(trained(rows, len(own)).at(features(own, other)), 1.0)


def uses(profile: Profile, gpus: int) -> dict[str, float]:
    """What a model uses alone of each resource: as stated, else the shares of an iteration that its
    stages take; empty where neither is known."""
    stages = profile.stages_on(gpus)
    if profile.utilisation or stages is None:
        return profile.utilisation
    return {
        f"stage {at} of {len(stages.times)}": min(time / stages.alone, 1.0)
        for at, time in enumerate(stages.times)
    }


class Slowdowns:
    """Slow-downs of pairs of models, predicted once each, and the measured pairs of the models that
    were seen so far. A cache."""

    __slots__ = ("_known", "_models", "_rows", "_seen")

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str, int], float] = {}
        self._models: dict[str, Mapping[str, float]] = {}
        self._rows: list[Pair] = []
        self._seen = 0

    def of(self, view: View, model: str, other: str, gpu_type: str, gpus: int) -> float:
        """By which factor a step of `model` takes longer beside `other` on all of `gpus` GPUs: as
        measured, else predicted; NaN where nobody knows what they use."""
        self._look(view)
        key = model, other, gpu_type, gpus
        if key not in self._known:
            self._known[key] = self._predict(view, *key)
        return self._known[key]

    def _look(self, view: View) -> None:
        """Take in the models that were named since the last look."""
        names = view.jobs.models
        if len(names.values) == self._seen:
            return
        profiles = {name: view.oracle.profile(name) for name in names.values}
        self._models = {name: each.utilisation for name, each in profiles.items()}
        rows = measured_pairs(profiles)
        if rows != self._rows:
            self._known.clear()
        self._rows, self._seen = rows, len(names.values)

    def _predict(self, view: View, model: str, other: str, gpu_type: str, gpus: int) -> float:
        own = view.oracle.profile(model)
        if own.measured is not None and own.measured.part(other, gpu_type, gpus):
            part = float(view.oracle.interference((model, other), gpu_type, gpus)[0])
            return 1.0 / part if part > 0 else math.inf
        mine, its = uses(own, gpus), uses(view.oracle.profile(other), gpus)
        names = sorted({*mine, *its})
        if not mine or not its or any(name.startswith("stage ") for name in {*mine} ^ {*its}):
            return math.nan
        rows = rows_of(self._rows, self._models, names)
        return predicted(rows, _uses(mine, names), _uses(its, names))


def _uses(known: Mapping[str, float], names: Sequence[str]) -> Uses:
    return tuple([known.get(name, 0.0) for name in names])
