"""Orders by how far a job has come: epochs done, out of those that it was declared to take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, isnan
from typing import TypeAlias

from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.ordering.order import Moves

Index: TypeAlias = Callable[[float, float], float]
"""A priority from attained service and progress (0 to 1); smaller goes first."""

_RUNNING = int(Phase.RUNNING)


def remaining_estimate(attained: float, progress: float) -> float:
    """Service still to come if it goes on as it went, A (1 - r) / r; 0 for a fresh job."""
    return attained * (1.0 - progress) / progress if progress else 0.0


def discounted(attained: float, progress: float) -> float:
    """Attained service, less the nearer the end is: A (1 - r)."""
    return attained * (1.0 - progress)


@dataclass(frozen=True)
class ByProgress:
    """The smallest `index` of attained service and progress first, as of the last whole epoch.

    Progress is reported when an epoch ends: `epochs` times over the oracle's duration, so that keys
    are constant in between. A job of unknown length counts as fresh.
    """

    index: Index
    epochs: int
    arrival: bool = False

    @property
    def moves(self) -> Moves:
        """At the ends of epochs."""
        return Moves.STEPS

    def key(self, view: View, job: int) -> tuple[float, ...]:
        """The index in whole microseconds x GPUs."""
        epoch, at = self._last(view, job)
        service = view.at.served[job]
        if view.at.phase[job] == _RUNNING:
            service += (at - view.at.since[job]) * view.at.size[job]
        return (float(round(self.index(service, epoch / self.epochs))),)

    def until(self, view: View, job: int) -> int:
        """The end of the present epoch, if the job runs and has any."""
        epoch, _ = self._last(view, job)
        if not view.at.rate[job] or epoch >= self.epochs or not self._total(view, job) > 0:
            return NEVER
        return max(self._reached(view, job, epoch + 1), view.now + 1)

    def passes(self, view: View, job: int, level: float) -> int:
        """Any epoch's end may move the job any way."""
        return self.until(view, job)

    def _last(self, view: View, job: int) -> tuple[int, int]:
        """The last whole epoch, and when it ended: no earlier than the job's present start."""
        at = view.at
        total = self._total(view, job)
        if isnan(total) or total <= 0:
            return 0, at.since[job]
        epoch = min(int(view.work(job) / total * self.epochs), self.epochs)
        while epoch < self.epochs and self._reached(view, job, epoch + 1) <= view.now:
            epoch += 1
        while epoch and self._reached(view, job, epoch) > view.now:
            epoch -= 1
        return epoch, self._reached(view, job, epoch) if epoch else at.since[job]

    def _reached(self, view: View, job: int, epoch: int) -> int:
        """When `epoch` ends or ended, at the present speed; `since` if before that."""
        at = view.at
        missing = self._total(view, job) * epoch / self.epochs - at.work[job]
        began: int = at.since[job]
        if missing <= 0:
            return began
        rate = at.rate[job]
        return began + ceil(missing / rate) if rate else NEVER

    def _total(self, view: View, job: int) -> float:
        return float(view.oracle.duration(view, job))  # type: ignore[arg-type]
