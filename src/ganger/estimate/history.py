"""Durations from history: what the same user's like jobs took, and a small regression.

Follows Helios' QSSF predictor (Hu et al., SC 2021): `blend` x regression + the rest x a rolling
mean over the most alike jobs seen. Reconstructed: a ridge regression on logarithms stands where
the paper has gradient boosting, and users, groups and models where it has job names.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.events import Failed, Finished
from ganger.core.jobs import Phase
from ganger.core.protocols import Ignorant, Knows
from ganger.core.units import HOUR, NEVER
from ganger.core.view import View

FEATURES = 5
_RIDGE = 1.0


class Past(msgspec.Struct):
    """All that the oracle has learnt; plain data. Durations in microseconds."""

    count: dict[str, int] = {}
    total: dict[str, float] = {}
    pinned: dict[int, float] = {}
    """Predictions given, by job. They stand until the job is over."""
    seen: dict[int, list[float]] = {}
    """The features each was predicted from."""
    learnt: int = 0
    products: list[list[float]] = []
    """Sums of feature x feature over the jobs learnt from."""
    moments: list[float] = []
    """Sums of feature x log duration."""
    shortest: float = 0.0
    longest: float = 0.0


class History(Ignorant):
    """Predicts a job's run time once, when it is first asked (at its submission, for queues that
    order by it), and keeps to that; learns from every job that finishes.

    `blend`: weight of the regression (0: the rolling mean alone), used once `enough` jobs have
    finished. Before the first one finishes, the user's estimate counts, then the time limit,
    then one hour. Of speeds and models it knows nothing.
    """

    knows = Knows.HISTORY
    learns = True
    learnt: Past

    def __init__(self, blend: float = 0.9, enough: int = 30) -> None:
        self.blend, self.enough = blend, enough
        self.learnt = Past()
        self._weights: tuple[int, NDArray[np.float64]] = (-1, np.zeros(FEATURES))

    def duration(self, view: View, ids: Any) -> NDArray[np.float64]:
        """The pinned predictions, microseconds at the size asked for."""
        pinned = self.learnt.pinned
        if np.ndim(ids) == 0:
            return np.float64(self._of(view, int(ids)))  # type: ignore[return-value]
        return np.array(
            [pinned.get(job) or self._of(view, job) for job in ids.tolist()], np.float64
        )

    def observe(self, view: View) -> None:
        """Learn from the jobs that finished in this step."""
        for event in view.events:
            if isinstance(event, Finished | Failed):
                job, phase = event.job, view.jobs.phase[event.job]
                if phase == Phase.FINISHED and view.jobs.finished[job] == view.now:
                    self._learn(view, job)
                if phase >= Phase.FINISHED:
                    self.learnt.pinned.pop(job, None)
                    self.learnt.seen.pop(job, None)

    # ------------------------------------------------------------------ predicting

    def _of(self, view: View, job: int) -> float:
        pinned = self.learnt.pinned
        if job not in pinned:
            pinned[job] = self._predict(view, job)
        return pinned[job]

    def _predict(self, view: View, job: int) -> float:
        past = self.learnt
        if not past.count:
            return _prior(view, job)
        rolling = self._means(view, job)
        features = _features(int(view.jobs.gpus[job]), rolling)
        past.seen[job] = features
        if not self.blend or past.learnt < self.enough:
            return rolling[0]
        told = float(np.exp(np.clip(np.dot(self._fit(), features), -700.0, 700.0)))
        told = min(max(told, past.shortest), past.longest)
        return self.blend * told + (1 - self.blend) * rolling[0]

    def _means(self, view: View, job: int) -> list[float]:
        """Means of the jobs alike, from the most alike that were seen to all of them."""
        past, found = self.learnt, list[float]()
        for key in reversed(_keys(view, job)):
            known = past.count.get(key, 0)
            found.append(past.total[key] / known if known else found[-1])
        return found[::-1]

    def _fit(self) -> NDArray[np.float64]:
        """The regression's weights, solved for anew when something was learnt."""
        past = self.learnt
        if self._weights[0] != past.learnt:
            matrix = np.array(past.products) + _RIDGE * np.eye(FEATURES)
            self._weights = (past.learnt, np.linalg.solve(matrix, np.array(past.moments)))
        return self._weights[1]

    # ------------------------------------------------------------------ learning

    def _learn(self, view: View, job: int) -> None:
        past, took = self.learnt, float(view.work(job))
        if took <= 0:
            return
        for key in _keys(view, job):
            past.count[key] = past.count.get(key, 0) + 1
            past.total[key] = past.total.get(key, 0.0) + took
        past.shortest = min(past.shortest or took, took)
        past.longest = max(past.longest, took)
        features = past.seen.get(job)
        if features is None:
            return
        x = np.array(features)
        before = np.array(past.products) if past.products else np.zeros((FEATURES, FEATURES))
        past.products = (before + np.outer(x, x)).tolist()
        moments = np.array(past.moments) if past.moments else np.zeros(FEATURES)
        past.moments = (moments + x * np.log(took)).tolist()
        past.learnt += 1


def _keys(view: View, job: int) -> list[str]:
    """Those alike, the most alike first; the last one is everybody."""
    jobs = view.jobs
    user, group = jobs.users[int(jobs.user[job])], jobs.groups[int(jobs.group[job])]
    model = jobs.models[int(jobs.model[job])]
    gpus = int(jobs.gpus[job])
    return [f"u/{user}/{model}/{gpus}", f"u/{user}/{gpus}", f"u/{user}", f"g/{group}", "all"]


def _features(gpus: int, means: list[float]) -> list[float]:
    """1, log GPUs, and the logs of three of the means: most alike, user's, everybody's."""
    logs = np.log(np.maximum([means[0], means[2], means[4]], 1.0)).tolist()
    return [1.0, float(np.log(max(gpus, 1))), *logs]


def _prior(view: View, job: int) -> float:
    own, limit = int(view.jobs.estimate[job]), int(view.jobs.limit[job])
    return float(own if own < NEVER else limit if limit < NEVER else HOUR)
