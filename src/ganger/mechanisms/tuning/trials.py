"""The trials of one search: what they are, which of them wait, and what their reports are worth."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from heapq import heappop, heappush
from typing import Final, NamedTuple

from ganger.core.errors import InvariantError
from ganger.core.events import CAPACITY_FREED, COMMANDED, EVALUATED, QUEUED
from ganger.core.plan import Reason
from ganger.core.spec import JobSpec, Kind, Needs, Role, Shape
from ganger.core.state.facts import Curve
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, WHOLE
from ganger.core.view import View
from ganger.mechanisms.common.reconcile import Want, placed, with_share
from ganger.mechanisms.placement.place import Placer

CHANGES: Final = CAPACITY_FREED | COMMANDED | EVALUATED | QUEUED
"""What a recipe for trials looks at."""
NEXT_REPORT: Final = 1e-9
"""Epochs beyond the last report: a trial is judged at its next one."""
_PENDING = int(Phase.PENDING)


class Mode(Enum):
    """Which values are better."""

    MIN = "min"
    MAX = "max"


class Portion(NamedTuple):
    """What each trial holds: whole GPUs, or `share` thousandths of one."""

    gpus: int = 1
    share: int = WHOLE

    @property
    def part(self) -> float:
        """In GPUs."""
        return self.gpus * self.share / WHOLE

    def fit(self, gpus: int) -> int:
        """How many trials have room on so many GPUs at once."""
        return gpus * (WHOLE // self.share) // self.gpus


def portion_of(policy: object) -> Portion:
    """What a policy over trials gives each at first."""
    each = getattr(policy, "each", None)
    return each if isinstance(each, Portion) else Portion(getattr(policy, "gpus", 1))


def badness(value: float, mode: Mode) -> float:
    """The less the better; of a trial that broke down (NaN) the most there is."""
    if math.isnan(value):
        return math.inf
    return value if mode is Mode.MIN else -value


def broke(curve: Curve) -> bool:
    """Whether the trial reported last that it broke down."""
    return bool(curve.values) and math.isnan(curve.values[-1])


def search_of(view: View, name: str) -> int:
    """The search whose grant is divided. Raises InvariantError outside of any."""
    if view.within < 0:
        raise InvariantError(f"{name} divides what a job of kind tune holds, nothing else")
    return view.within


def trial_of(view: View, search: int, each: Portion, widest: int = 0) -> JobSpec:
    """A trial that states nothing but what it may hold: `each`, or up to `widest` GPUs if that is
    more, and its part of what its search has of the host with a GPU."""
    spec, gpus = view.jobs.spec(search), each.gpus
    has = spec.shape.roles[0].needs
    parts = max(has.gpus, 1) * (WHOLE // each.share)
    needs = Needs(share=each.share, cpus=has.cpus // parts, memory=has.memory // parts)
    most = widest if widest > gpus else 0
    role = Role(size=gpus, least=gpus if most else 0, most=most, needs=needs)
    shape = Shape((role,), spec.shape.gpu_types, spec.shape.pool)
    return JobSpec(
        name=f"{spec.name}-trial",
        parent=spec.name,
        kind=Kind.TRAIN,
        shape=shape,
        tenant=spec.tenant,
        user=spec.user,
        group=spec.group,
        priority=spec.priority,
        checkpoint=spec.checkpoint,
        restore=spec.restore,
    )


def may_start(view: View, job: int) -> bool:
    """Whether the trial waits, or was set aside, and nobody holds it."""
    return view.at.phase[job] == _PENDING or view.is_paused(job)


def resize(view: View, job: int, gpus: int, place: Placer) -> bool:
    """Draw a trial that runs on as many of `gpus` GPUs as there is room for; whether that is
    another number than it has."""
    held = view.draft.stop(job)
    placement = placed(view, Want(job, gpus, least=1), place, held)
    return placement != held


class Line:
    """Trials that wait to be started, the earliest row first. A cache: a trial in it may have been
    started since."""

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._waits: set[int] = set()

    def add(self, job: int) -> None:
        """It may start."""
        if job not in self._waits:
            self._waits.add(job)
            heappush(self._heap, job)

    def start(
        self,
        view: View,
        place: Placer,
        wanted: Callable[[int], bool],
        each: Portion,
        gpus: int = 0,
    ) -> bool:
        """Start those that are still `wanted` while there is room for `each`, on `gpus` GPUs if
        that is not what they ask for; whether all were."""
        heap = self._heap
        while heap:
            job = heap[0]
            if wanted(job) and may_start(view, job):
                if gpus:
                    placement = placed(view, Want(job, gpus, least=1), place)
                else:
                    placement = place.find(view, view.ledger, job)
                    if placement is not None:
                        if each.share < WHOLE:  # said, so that its speed is that beside others
                            placement = with_share(placement, each.share)
                        view.draft.start(job, placement)
                if placement is None:
                    return False
            self._waits.discard(heappop(heap))
        return True


def why_waiting(by: str, each: float, **numbers: float) -> Reason:
    """The reason of trials that wait for room in the grant: `each` is to have so many GPUs;
    `numbers` as in `Reason.evidence`. A number of epochs that no trial trains is left out."""
    told = {name: float(number) for name, number in numbers.items() if number < NEVER}
    return Reason("Resources", by, evidence={"each_gpus": float(each)} | told, until=CHANGES)
