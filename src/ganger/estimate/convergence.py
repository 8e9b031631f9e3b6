"""Run times from what training tells of its model: a curve fitted to the losses so far, up to
where its owner calls it done (Optimus, EuroSys 2018, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.events import Evaluated, Failed, Finished
from ganger.core.profiles import Convergence, Profile
from ganger.core.protocols import Oracle
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.estimate.fits import LossCurve, fit_loss
from ganger.estimate.history import History, Past

POINTS_LEAST: Final = 3
"""A curve has three coefficients."""
POINTS_MAX: Final = 64
"""So many evaluations are kept of a job; of more, every other one goes."""
EPOCHS_MAX: Final = 100_000
"""What a fit that promises nothing earlier is cut at."""


class Told(Past):
    """What `History` has learnt, and of jobs that are not over: the epochs and the losses (or error
    rates) reported, the work of one epoch in microseconds, and the run time fitted where it was
    asked.
    """

    losses: dict[int, list[tuple[float, float]]] = msgspec.field(default_factory=dict)
    each: dict[int, float] = msgspec.field(default_factory=dict)
    expected: dict[int, float] = msgspec.field(default_factory=dict)


class FromLosses(History):
    """Of a job that evaluated its model three times: the epochs until the curve fitted to what it
    reported meets its owner's rule, times the work of an epoch so far. For others what `History`
    believes.

    `rules`: by model what its owner calls done (`target`, or `change` over `window`), of which the
    losses to come are not looked at. `speeds`: the oracle of speeds and profiles.
    """

    learnt: Told

    def __init__(self, rules: Mapping[str, Convergence], speeds: Oracle) -> None:
        super().__init__()
        self.learnt = Told()
        self.steady = speeds.steady
        self._speeds = speeds
        self._rules = rules

    def duration(self, view: View, ids: Any) -> NDArray[np.float64]:
        """The fitted run times, microseconds at the size asked for, or those of the past."""
        told = super().duration(view, ids)
        if np.ndim(ids) == 0:
            return np.float64(self._fitted(view, int(ids)) or told)  # type: ignore[return-value]
        for at, job in enumerate(ids.tolist() if self.learnt.losses else ()):
            told[at] = self._fitted(view, job) or told[at]
        return told

    def _fitted(self, view: View, job: int) -> float:
        """The run time by the job's own losses; 0 where they are too few."""
        learnt = self.learnt
        points = learnt.losses.get(job, ())
        if len(points) < POINTS_LEAST:
            return 0.0
        if job not in learnt.expected:
            jobs = view.jobs
            rule = self._rules[jobs.models[int(jobs.model[job])]]
            learnt.expected[job] = learnt.each[job] * epochs_until_done(points, rule)
        return learnt.expected[job]

    def throughput(
        self, view: View, ids: Ids, gpu_type: str, gpus: NDArray[Any], nodes: NDArray[Any]
    ) -> NDArray[np.float64]:
        """What `speeds` answers."""
        return self._speeds.throughput(view, ids, gpu_type, gpus, nodes)

    def profile(self, model: str) -> Profile:
        """What `speeds` answers."""
        return self._speeds.profile(model)

    def interference(self, models: Sequence[str], gpu_type: str, gpus: int) -> NDArray[np.float64]:
        """What `speeds` answers."""
        return self._speeds.interference(models, gpu_type, gpus)

    def observe(self, view: View) -> None:
        """Learn from jobs that finished and jobs that evaluated."""
        super().observe(view)
        learnt = self.learnt
        for event in view.events:
            if isinstance(event, Evaluated):
                self._evaluated(view, event)
            elif (
                isinstance(event, Finished | Failed)
                and view.jobs.phase[event.job] >= Phase.FINISHED
            ):
                for book in (learnt.losses, learnt.each, learnt.expected):
                    book.pop(event.job, None)

    def _evaluated(self, view: View, event: Evaluated) -> None:
        job, jobs, learnt = event.job, view.jobs, self.learnt
        if jobs.phase[job] != Phase.RUNNING or jobs.attempt[job] != event.attempt:
            return
        rule = self._rules.get(jobs.models[int(jobs.model[job])])
        if rule is None or event.epoch <= 0 or event.value is None:
            return
        # After a failure epochs come again: what was told of them before is void.
        points = [one for one in learnt.losses.get(job, []) if one[0] < event.epoch]
        points.append((event.epoch, float(rule.falling(event.value))))
        if len(points) > POINTS_MAX:
            points = points[::2] if len(points) % 2 else points[1::2]
        learnt.losses[job] = points
        learnt.each[job] = float(view.work(job)) / event.epoch
        learnt.expected.pop(job, None)


def epochs_until_done(points: Sequence[tuple[float, float]], rule: Convergence) -> float:
    """Epochs in all until the curve fitted to `points` (epoch, loss) meets the rule; at least one
    more than were reported, and `EPOCHS_MAX` where it never does."""
    epochs, losses = np.array(points).T
    curve = fit_loss(epochs, losses)
    if rule.target:
        end = _reaches(curve, float(rule.falling(rule.target)))
    else:
        end = float(curve.steps_until(rule.change, rule.window))
    return float(min(max(end, epochs[-1] + 1.0), EPOCHS_MAX))


def _reaches(curve: LossCurve, loss: float) -> float:
    """The epoch after which the curve is at `loss` or below."""
    if curve.at(1) <= loss:
        return 1.0
    if loss <= curve.b2 or not curve.b0:
        return inf
    return float(ceil((1.0 / (loss - curve.b2) - curve.b1) / curve.b0))
