"""When running jobs evaluate their model, and what they then tell."""

from __future__ import annotations

from math import ceil, floor
from typing import Protocol

import numpy as np

from ganger.core.events import Evaluated
from ganger.core.profiles import Convergence, Profiles
from ganger.core.state.jobs import Declared
from ganger.core.units import NEVER

_NEAR = 1e-6
"""Evaluations: an instant is a whole number of microseconds, so they come by so much late."""


class Evaluates(Protocol):
    """When jobs evaluate their model, and what they then report."""

    at: dict[int, int]
    """By job the time of its next evaluation."""

    def __bool__(self) -> bool:
        """Whether anybody evaluates."""

    def look(self, declared: Declared) -> None:
        """Look at these columns from now on, which have grown."""

    def file(self, job: int, share: float, total: int, did: float, rate: float, began: int) -> int:
        """When a job evaluates next that has done `share` of its work, and had done `did` of
        `total` when it began to compute at this `rate`; NEVER if it is done before."""

    def tell(self, job: int, attempt: int, share: float) -> Evaluated:
        """What a job finds that has done `share` of its work."""


class Evaluations:
    """The evaluations of jobs whose profile says how their training goes; empty if none does.

    A job's whole work is the epochs to its end, whatever its run time: after half of it half of
    them are done. After the last epoch it is finished and tells nothing.
    """

    def __init__(self, declared: Declared, profiles: Profiles) -> None:
        self._profiles = profiles
        self._of_model: dict[int, tuple[Convergence, int]] = {}
        self._known = 0
        self.at: dict[int, int] = {}
        """By job the time of its next evaluation."""
        self.look(declared)

    def look(self, declared: Declared) -> None:
        """Look at these columns from now on, and at models that were not there before."""
        self._model = declared.model
        for code in range(self._known, len(declared.models)):
            curve = self._profiles.of(declared.models[code]).convergence
            if curve is not None:
                self._of_model[code] = curve, curve.length()
        self._known = len(declared.models)

    def __bool__(self) -> bool:
        """Whether anybody evaluates."""
        return bool(self._of_model)

    def _of(self, job: int) -> tuple[Convergence, int] | None:
        return self._of_model.get(int(self._model[job]))

    def next(self, job: int, share: float) -> float | None:
        """The share of its work at which a job that has done `share` evaluates next; None if it
        is done before."""
        told = self._of(job)
        if told is None:
            return None
        curve, length = told
        epoch = (floor(share * length / curve.every + _NEAR) + 1) * curve.every
        return epoch / length if epoch < length else None

    def file(self, job: int, share: float, total: int, did: float, rate: float, began: int) -> int:
        """When a job evaluates next that has done `share` of its work, and had done `did` of
        `total` when it began to compute at this `rate`; NEVER if it is done before."""
        ahead = self.next(job, share)
        if ahead is None or rate <= 0.0:
            self.at.pop(job, None)
            return NEVER
        at = self.at[job] = instant(ahead * total, did, rate, began)
        return at

    def tell(self, job: int, attempt: int, share: float) -> Evaluated:
        """What a job finds that has done `share` of its work."""
        told = self._of(job)
        assert told is not None, f"job {job} evaluates nothing"
        curve, length = told
        number = max(floor(share * length / curve.every + _NEAR), 1)
        epoch = number * curve.every
        value = float(curve.at(epoch))
        if curve.noise:
            off = float(np.random.default_rng([job, number]).normal(0.0, curve.noise))
            value = _off(curve, value, off)
        return Evaluated(job, attempt, epoch, value)


def _off(curve: Convergence, value: float, off: float) -> float:
    """The value as it is told: the loss, or the error rate, times e to the `off`."""
    wrong = float(curve.falling(value)) * float(np.exp(off))
    return wrong if curve.metric == "loss" else 1.0 - min(wrong, 1.0)


def instant(work: float, did: float, rate: float, began: int) -> int:
    """When a job that had done `did` at `began` has done `work`."""
    return began + max(ceil((work - did) / rate), 0)
