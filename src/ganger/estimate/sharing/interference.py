"""What is left of the speed of jobs that share GPUs, from what their profiles tell.

Of each job the first of these that is known decides:

1. The pair table (`Measured.beside`): the speed measured beside another model; beside several, the
   product of what each of them alone leaves.
2. Stages (Muri, SIGCOMM 2022): up to four jobs interleave what they do on different resources.
   All of them take as long for an iteration as their best arrangement, which is at least as long as
   each takes alone.
3. A regression on utilisation: its steps take 1 + sum over resources r of w_r u_r v_r times as
   long, where the job alone uses u_r of resource r, and the others together v_r. The weights w are
   fitted to the pairs that were measured of models whose utilisation is stated, too. Without such
   pairs they are 1, which for one resource is taking turns.

Models that together need more memory than a GPU has cannot share it: nothing is left of any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.profiles import Profile, Profiles, Stages

INTERLEAVED_MAX: Final = 4
"""So many jobs interleave their stages; all arrangements of more would take long to try."""
RIDGE: Final = 1e-3
"""The squared error by which a weight of 2 or 0 must be better than one of 1."""


def period(stages: Sequence[Sequence[float]]) -> float:
    """Seconds in which several jobs each run all their stages once, in their best arrangement.

    There are as many slots as resources, or as jobs if these are more. A job uses its resources in
    consecutive slots, each job shifted by another number of slots, so that in no slot two use the
    same. A slot lasts as long as the longest stage in it. The best shifts are found by trying all.
    """
    slots = max(len(stages), max(map(len, stages)))
    times = [[*each, *[0.0] * (slots - len(each))] for each in stages]
    return min(
        sum(
            max(own[slot - shift] for own, shift in zip(times, (0, *shifts), strict=True))
            for slot in range(slots)
        )
        for shifts in permutations(range(1, slots), len(stages) - 1)
    )


def interleaved(stages: Sequence[Stages]) -> float:
    """Seconds in which several jobs each do one iteration, overhead included."""
    longest = max(period([each.times for each in stages]), *(each.alone for each in stages))
    many = len(stages)
    return longest * max(each.overhead[min(many, len(each.overhead)) - 1] for each in stages)


class Interference:
    """What sharing leaves, for models with these profiles. `memory`: by GPU type, MiB of a GPU."""

    def __init__(self, profiles: Profiles, memory: Mapping[str, int]) -> None:
        self._profiles, self._memory = profiles, memory
        self._known: dict[tuple[tuple[str, ...], str, int], tuple[float, ...]] = {}
        self._weights: dict[str, float] | None = None

    def parts(self, models: Sequence[str], gpu_type: str, gpus: int) -> tuple[float, ...]:
        """What is left of the speed alone of each of several jobs, one for each of `models`, that
        share all of `gpus` GPUs; NaN for a job of which that is not known, 0 for all if their
        memory does not fit."""
        key = tuple(models), gpu_type, gpus
        if key not in self._known:
            self._known[key] = self._parts(*key)
        return self._known[key]

    def _parts(self, models: tuple[str, ...], gpu_type: str, gpus: int) -> tuple[float, ...]:
        if len(models) == 1:
            return (1.0,)
        profiles = [self._profiles.of(model) for model in models]
        if sum(each.peak for each in profiles) > self._memory.get(gpu_type, math.inf):
            return (0.0,) * len(models)
        stages = [each.stages_on(gpus) for each in profiles]
        many, known = len(models), [each for each in stages if each is not None]
        alike = len({len(each.times) for each in known}) == 1
        lasts = math.nan
        if len(known) == many <= INTERLEAVED_MAX and alike:
            lasts = interleaved(known)
        parts = []
        for at, profile in enumerate(profiles):
            others = [*range(at), *range(at + 1, many)]
            part, own = math.nan, stages[at]
            if profile.measured is not None:
                pairs = [profile.measured.part(models[i], gpu_type, gpus) for i in others]
                part = math.prod(pairs) or math.nan
            if math.isnan(part) and own is not None:
                part = own.alone / lasts
            if math.isnan(part):
                part = self._by_utilisation(profile, [profiles[i] for i in others])
            parts.append(part)
        return tuple(parts)

    def _by_utilisation(self, profile: Profile, others: Sequence[Profile]) -> float:
        if not profile.utilisation or not all(each.utilisation for each in others):
            return math.nan
        if self._weights is None:
            self._weights = fitted(self._profiles)
        longer = sum(
            self._weights[resource]
            * used
            * sum(each.utilisation.get(resource, 0.0) for each in others)
            for resource, used in profile.utilisation.items()
        )
        return 1.0 / (1.0 + longer)


def fitted(profiles: Profiles) -> dict[str, float]:
    """By resource: its weight in the regression, by least squares over the measured pairs of models
    whose utilisation is stated. No weight is below 0, for nobody runs faster for company."""
    stated = {name: each for name, each in profiles.models.items() if each.utilisation}
    every = [*stated.values(), profiles.default]
    names = sorted({resource for each in every for resource in each.utilisation})
    rows: list[list[float]] = []
    longer: list[float] = []
    for profile in stated.values():
        measured = profile.measured
        if measured is None:
            continue
        for other in sorted(stated):
            beside = stated[other].utilisation
            row = [profile.utilisation.get(r, 0.0) * beside.get(r, 0.0) for r in names]
            for gpu_type, by_size in measured.beside.get(other, {}).items():
                parts = [measured.part(other, gpu_type, gpus) for gpus in by_size]
                longer += [1.0 / part - 1.0 for part in parts if part]
                rows += [row for part in parts if part]
    if not rows:
        return dict.fromkeys(names, 1.0)
    used: NDArray[np.float64] = np.array(rows).reshape(-1, len(names))
    beyond = np.array(longer) - used.sum(axis=1)
    more = np.linalg.solve(used.T @ used + RIDGE * np.eye(len(names)), used.T @ beyond)
    return dict(zip(names, np.maximum(1.0 + more, 0.0).tolist(), strict=True))
