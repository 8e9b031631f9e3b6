"""Durations from history: what like jobs took, and gradient boosting over that.

Follows Helios' QSSF predictor (Hu et al., SC 2021): `blend` x boosted trees + the rest x a rolling
mean over the most alike jobs seen. Reconstructed: users, groups and models stand where the paper
has job names, and the trees see the means of those alike instead of encoded names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.books.ledger import members
from ganger.core.events import Failed, Finished, Sampled
from ganger.core.profiles import PLAIN_PROFILE, Profile
from ganger.core.protocols import Ignorant, Knows
from ganger.core.state.jobs import Phase
from ganger.core.units import DAY, HOUR, NEVER
from ganger.core.view import View
from ganger.solve.boost import Trees, boost

WINDOW = 4000
"""How many of the last jobs the trees are fitted to."""
SAMPLES = 20
"""A sample of use counts as much as each of the last so many."""
CHANGE = 0.1
LEAST_USE = 0.01
"""Of a GPU: what use must change by to be told, and what a model is taken to use at least."""


class Use(msgspec.Struct):
    """What jobs of a model use of a GPU alone: the share of its time, over so many `samples`, and
    the share that policies know."""

    gpu: float = 0.0
    samples: int = 0
    known: float = 0.0


class Past(msgspec.Struct):
    """All that the oracle has learnt; plain data. Durations in microseconds."""

    count: dict[str, int] = {}
    total: dict[str, float] = {}
    pinned: dict[int, float] = {}
    """Predictions given, by job. They stand until the job is over."""
    seen: dict[int, list[float]] = {}
    """The features each was predicted from."""
    learnt: int = 0
    rows: list[list[float]] = []
    """Features and the log duration of the jobs learnt from, the latest WINDOW or some more."""
    trees: Trees | None = None
    fitted: int = 0
    """How much was learnt when the trees were fitted."""
    shortest: float = 0.0
    longest: float = 0.0
    uses: dict[str, Use] = {}
    """By model."""


def like_helios(view: View, job: int) -> list[str]:
    """Same user's jobs of the same model and size, then of the same size, then all of the user's;
    then the group's."""
    jobs = view.jobs
    user, group = jobs.users[int(jobs.user[job])], jobs.groups[int(jobs.group[job])]
    model = jobs.models[int(jobs.model[job])]
    gpus = int(jobs.gpus[job])
    return [f"u/{user}/{model}/{gpus}", f"u/{user}/{gpus}", f"u/{user}", f"g/{group}", "all"]


def like_pai(view: View, job: int) -> list[str]:
    """Same group tag and GPUs, then the same group, then the same user (Weng et al., NSDI 2022)."""
    jobs = view.jobs
    user, group = jobs.users[int(jobs.user[job])], jobs.groups[int(jobs.group[job])]
    return [f"g/{group}/{int(jobs.gpus[job])}", f"g/{group}", f"u/{user}", "all"]


class History(Ignorant):
    """Predicts a job's run time once, when it is first asked (at its submission, for queues that
    order by it), and keeps to that; learns from every job that finishes.

    `blend`: weight of the boosted trees (0: the rolling mean alone), which are used once `enough`
    jobs have finished and fitted anew whenever a tenth more has been learnt. `alike` names the jobs
    that count as alike, the most alike first. Before the first one finishes, the user's estimate
    counts, then the time limit, then one hour. Of models it knows what their jobs used of GPUs that
    they had alone, of speeds nothing.
    """

    knows = Knows.HISTORY
    learns = True
    learnt: Past

    def __init__(
        self,
        blend: float = 0.9,
        enough: int = 30,
        alike: Callable[[View, int], list[str]] = like_helios,
    ) -> None:
        self.blend, self.enough, self.alike = blend, enough, alike
        self.learnt = Past()

    def duration(self, view: View, ids: Any) -> NDArray[np.float64]:
        """The pinned predictions, microseconds at the size asked for."""
        pinned = self.learnt.pinned
        if np.ndim(ids) == 0:
            return np.float64(self._of(view, int(ids)))  # type: ignore[return-value]
        return np.array(
            [pinned.get(job) or self._of(view, job) for job in ids.tolist()], np.float64
        )

    def observe(self, view: View) -> None:
        """Learn from the jobs that finished in this step, and from what jobs used."""
        for event in view.events:
            if isinstance(event, Sampled):
                self._sampled(view, event)
            if isinstance(event, Finished | Failed):
                job, phase = event.job, view.jobs.phase[event.job]
                if phase == Phase.FINISHED and view.jobs.finished[job] == view.now:
                    self._learn(view, job)
                if phase >= Phase.FINISHED:
                    self.learnt.pinned.pop(job, None)
                    self.learnt.seen.pop(job, None)

    def profile(self, model: str) -> Profile:
        """What the model's jobs used of a GPU; the plain profile where nothing was sampled."""
        use = self.learnt.uses.get(model)
        return Profile(utilisation={"gpu": use.known}) if use and use.known else PLAIN_PROFILE

    def _sampled(self, view: View, event: Sampled) -> None:
        """A moving mean; policies are told of it when it has moved by a tenth."""
        job, jobs = event.job, view.jobs
        model = jobs.models[int(jobs.model[job])]
        if not model or event.gpu < 0 or not _is_alone(view, job, event.attempt):
            return
        use = self.learnt.uses.setdefault(model, Use())
        use.samples = min(use.samples + 1, SAMPLES)
        use.gpu += (event.gpu - use.gpu) / use.samples
        if abs(use.gpu - use.known) >= CHANGE or not use.known:
            use.known = max(use.gpu, LEAST_USE)
            view.forget()

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
        features = past.seen[job] = _features(view, job, rolling)
        if not self.blend or past.learnt < self.enough:
            return rolling[0]
        told = min(max(float(np.exp(self._fit().at(features))), past.shortest), past.longest)
        return self.blend * told + (1 - self.blend) * rolling[0]

    def _means(self, view: View, job: int) -> list[float]:
        """Means of the jobs alike, from the most alike that were seen to all of them."""
        past, found = self.learnt, list[float]()
        for key in reversed(self.alike(view, job)):
            known = past.count.get(key, 0)
            found.append(past.total[key] / known if known else found[-1])
        return found[::-1]

    def _fit(self) -> Trees:
        """The trees, fitted anew if much was learnt since."""
        past = self.learnt
        if past.trees is None or past.learnt > 1.1 * past.fitted:
            rows = np.array(past.rows)
            past.trees, past.fitted = boost(rows[:, :-1], rows[:, -1]), past.learnt
        return past.trees

    # ------------------------------------------------------------------ learning

    def _learn(self, view: View, job: int) -> None:
        past, took = self.learnt, float(view.work(job))
        if took <= 0:
            return
        for key in self.alike(view, job):
            past.count[key] = past.count.get(key, 0) + 1
            past.total[key] = past.total.get(key, 0.0) + took
        past.shortest = min(past.shortest or took, took)
        past.longest = max(past.longest, took)
        features = past.seen.get(job)
        if features is None:
            return
        past.rows.append([*features, float(np.log(took))])
        if len(past.rows) > 2 * WINDOW:
            del past.rows[:-WINDOW]
        past.learnt += 1


def _is_alone(view: View, job: int, attempt: int) -> bool:
    """Whether no other job computes on the GPUs of this one."""
    held = view.ledger.holds.get(job)
    if held is None or view.jobs.phase[job] != Phase.RUNNING or view.jobs.attempt[job] != attempt:
        return False
    shape, placement = held
    for slot in placement:
        own = slot.share or shape.roles[slot.role].needs.share
        for device in members(slot.devices):
            if view.ledger.shared[slot.node].get(device, (own, 0))[0] != own:
                return False
    return True


def _features(view: View, job: int, means: list[float]) -> list[float]:
    """GPUs, hour of the day, day of the week, and the logs of the means of those alike."""
    at = int(view.jobs.submitted[job])
    logs = np.log(np.maximum(means, 1.0)).tolist()
    # A snapshot makes floats of them, so that they must be floats from the beginning.
    return [float(view.jobs.gpus[job]), float(at // HOUR % 24), float(at // DAY % 7), *logs]


def _prior(view: View, job: int) -> float:
    own, limit = int(view.jobs.estimate[job]), int(view.jobs.limit[job])
    return float(own if own < NEVER else limit if limit < NEVER else HOUR)
