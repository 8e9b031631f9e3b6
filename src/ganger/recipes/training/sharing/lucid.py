"""What belongs to Lucid alone: the profiling partition, sharing scores, and packing only while the
forecast load is high (Hu et al., ASPLOS 2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from ganger.core.books.ledger import Cell, Ledger, pick_devices
from ganger.core.events import STARTED
from ganger.core.plan import Placement, Plan, Slot, Start
from ganger.core.profiles import Profile
from ganger.core.protocols import revived
from ganger.core.spec import Kind
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.units import MINUTE
from ganger.core.view import View
from ganger.estimate.forecast import forecast
from ganger.mechanisms.common.reconcile import STAYS
from ganger.mechanisms.ordering.order import By, service
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.sharing.packing import Packed
from ganger.recipes.training.sharing.scores import ByGraph

GPUS_MAX: Final = 8
"""Jobs of more GPUs are neither profiled nor packed."""
TINY, MEDIUM, JUMBO = range(3)
LEAST_TINY: Final = 0.95
LEAST_MEDIUM: Final = 0.85
"""Mean speeds in pairs, from which on a model is tiny, or medium."""
TIMES_MAX: Final = 2
"""A job that waits goes beside one that runs if its estimated service is at most so many times the
other's."""
BIN: Final = 10 * MINUTE
AHEAD: Final = 6
SEASON: Final = 144
"""The load is taken at the end of each bin, its next `AHEAD` bins are forecast, and a day has so
many bins."""
_TRAIN: Final = int(Kind.TRAIN)


class SharingScore(ByGraph):
    """Tiny 0, medium 1, jumbo 2, by the mean speed that the jobs of a pair keep, over the pairs of
    a model with all models that were named so far and fit beside it; of several jobs the sum."""

    def knows(self, view: View, profile: Profile, gpus: int) -> bool:
        """Whether its speed beside some other is known."""
        return profile.shares

    def of(self, view: View, models: Sequence[str], gpu_type: str, gpus: int) -> float:
        """The sum; NaN where a model was measured beside nobody."""
        return math.fsum(self.of_model(view, model, gpu_type, gpus) for model in models)

    def of_model(self, view: View, model: str, gpu_type: str, gpus: int) -> float:
        """One model's."""
        pairs = [
            view.oracle.interference((model, other), gpu_type, gpus)
            for other in view.jobs.models.values
        ]
        known = [
            float(parts.mean()) for parts in pairs if parts.all() and not np.isnan(parts).any()
        ]
        if not known:
            return math.nan
        mean = math.fsum(known) / len(known)
        return TINY if mean >= LEAST_TINY else MEDIUM if mean >= LEAST_MEDIUM else JUMBO


class Load:
    """Whether the load is forecast to be high, and the revision in which a job could not start that
    needs the partition's GPUs, too: both as of this decision."""

    __slots__ = ("claimed", "high")

    def __init__(self) -> None:
        self.high = False
        self.claimed = -1


class _Fits:
    """By shape: whether its jobs fit into a node of the partition, and whether they fit beside the
    partition, if nothing ran. `nodes`: the partition."""

    def __init__(self, nodes: Nodes, partition: float) -> None:
        many = math.ceil(nodes.n * partition - 1e-9)
        self.nodes = list(range(many)) if nodes.n > many else []
        self._empty = Ledger(nodes)
        self._others = list(range(len(self.nodes), nodes.n))
        self._inside: dict[int, bool] = {}
        self._beside: dict[int, bool] = {}

    def inside(self, view: View, shape: int) -> bool:
        """On one node of the partition."""
        if shape not in self._inside:
            asked = view.jobs.shapes[shape]
            plain = len(asked.roles) == 1 and not asked.gpus % asked.roles[0].size
            with self._empty.hidden(self._others):
                placement = self._empty.find(asked) if self.nodes and plain else None
            self._inside[shape] = (
                placement is not None and len({slot.node for slot in placement}) == 1
            )
        return self._inside[shape]

    def beside(self, view: View, shape: int) -> bool:
        """On the other nodes."""
        if shape not in self._beside:
            with self._empty.hidden(self.nodes):
                self._beside[shape] = self._empty.find(view.jobs.shapes[shape]) is not None
        return self._beside[shape]


@dataclass(frozen=True, kw_only=True)
class Partitioned(Packed):
    """New jobs go to the first `partition` of all nodes, rounded up, others to the rest, in pairs
    while the load is high. A job that does not fit into the rest may use all nodes, and goes before
    new jobs."""

    partition: float

    def fresh(self, view: View, job: int) -> bool:
        """Whether the job has to be profiled: it has not run, may be stopped, and fits there."""
        at = view.at
        return (
            at.first_start[job] < 0
            and 0 < at.gpus[job] <= GPUS_MAX
            and at.kind[job] == _TRAIN
            and at.on_preempt[job] not in STAYS
            and self._fits(view).inside(view, at.shape[job])
        )

    def is_inside(self, view: View, placement: Placement) -> bool:
        """Whether a placement begins in the partition."""
        return placement[0].node in self._fits(view).nodes

    def _fits(self, view: View) -> _Fits:
        return view.cached(_Fits, view.nodes, self.partition)

    def takes_part(self, view: View, job: int) -> bool:
        """Jobs of a few GPUs."""
        return view.at.gpus[job] <= GPUS_MAX and super().takes_part(view, job)

    def weight(self, view: View, job: int) -> float:
        """The largest estimated service first."""
        value = float(service(view, job))
        return -math.inf if math.isnan(value) else -value

    def company(self, view: View, job: int, others: Sequence[int]) -> bool:
        """While the load is high, beside a job of half its own estimated service or more."""
        if not view.cached(Load).high:
            return False
        mine, theirs = (float(service(view, each)) for each in (job, others[0]))
        return not mine > TIMES_MAX * theirs

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """In the partition, or beside it; a new job, too, while the partition is down."""
        load = view.cached(Load)
        if self.fresh(view, job) and any(map(ledger.up.__getitem__, self._fits(view).nodes)):
            return None if load.claimed == view.revision else self._inside(view, ledger, job)
        placement = super().find(view, ledger, job, cells, gpus)
        if placement is None and not self._fits(view).beside(view, view.at.shape[job]):
            load.claimed = view.revision
        return placement

    def alone(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None, gpus: int
    ) -> Placement | None:
        """On empty GPUs beside the partition."""
        fits = self._fits(view)
        with ledger.hidden(fits.nodes if fits.beside(view, view.at.shape[job]) else []):
            return super().alone(view, ledger, job, cells, gpus)

    def _inside(self, view: View, ledger: Ledger, job: int) -> Placement | None:
        """On the node of the partition with the fewest free GPUs that has room, GPUs of its own."""
        shape, gpus = view.draft.shape(job), view.at.gpus[job]
        for node in sorted(self._fits(view).nodes, key=ledger.free_count.__getitem__):
            if ledger.up[node] and ledger.free_count[node] >= gpus:
                devices = pick_devices(ledger.free_mask[node], gpus, ledger.island[node])
                placement = (Slot(node, devices, shape.roles[0].size),)
                if ledger.cell_of[node] in ledger.cells_for(shape) and ledger.is_free(
                    shape, placement
                ):
                    return placement
        return None


@dataclass(frozen=True, kw_only=True)
class ByLine(By):
    """Jobs that were profiled come first, by the formulas; then new ones, in order of arrival."""

    place: Partitioned

    @property
    def arrival(self) -> bool:
        """Jobs that were profiled go first."""
        return False

    def key(self, view: View, job: int) -> tuple[float, ...]:
        """The line, and the place in it."""
        if self.place.fresh(view, job):
            return (1.0, 0.0)
        return (0.0, *super().key(view, job))


class Watched(msgspec.Struct):
    """What the policy remembers: jobs that are profiled, GPUs asked for bin by bin, the latest
    last, when the next bin ends, microseconds, and whether the load is forecast to be high."""

    profiled: list[int]
    asked: list[float]
    due: int
    high: bool


@dataclass(frozen=True, kw_only=True)
class Lucid(QueuePolicy):
    """Two lines, each in order: that of jobs to be profiled, first come, first served, and that of
    all others. A job is profiled for at most `limit` (microseconds); then it is stopped and stands
    in the other line. The load is high while the GPUs that are forecast to be asked for in the next
    hour are on average `busy` of all, or more."""

    place: Partitioned
    limit: int
    busy: float

    def class_of(self, view: View, job: int) -> int:
        """The line in which the job stands."""
        return int(self.place.fresh(view, job))

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """Stop those whose time in the partition is over, then walk both lines."""
        watched = self._watch(view, revived(memory, self._watch, "before"))
        view.cached(Load).high = watched.high
        at = view.at
        ends = {
            job: at.began[job] + self.limit
            for job in watched.profiled
            if at.phase[job] == Phase.RUNNING
        }
        for job, end in ends.items():
            if end <= view.now:
                view.draft.stop(job)
        plan, _ = super().decide(view, None)
        watched.profiled += [
            action.job
            for action in plan.actions
            if isinstance(action, Start)
            and self.place.fresh(view, action.job)
            and self.place.is_inside(view, action.placement)
        ]
        if watched.profiled:
            plan.until |= STARTED
            coming = [end for end in ends.values() if end > view.now]
            plan.wake = min([plan.wake, *coming])
        if plan.reasons:
            plan.wake = min(plan.wake, watched.due)
        return plan, watched

    def _watch(self, view: View, before: Watched | None) -> Watched:
        """What is known now."""
        if before is None:
            asked = [self._asked(view)]
            return Watched([], asked, view.now + BIN, self._is_high(view, asked))
        live = (Phase.STARTING, Phase.RUNNING)
        held = [job for job in before.profiled if view.at.phase[job] in live]
        if before.due > view.now:
            return Watched(held, before.asked, before.due, before.high)
        bins = (view.now - before.due) // BIN + 1
        asked = [*before.asked, *[self._asked(view)] * min(bins, 2 * SEASON)][-2 * SEASON :]
        return Watched(held, asked, before.due + bins * BIN, self._is_high(view, asked))

    def _asked(self, view: View) -> float:
        """GPUs of those who wait and those who hold some."""
        jobs = view.jobs
        return float(jobs.gpus[view.pending].sum() + jobs.gpus[view.active].sum())

    def _is_high(self, view: View, asked: list[float]) -> bool:
        every = float(view.nodes.gpus[: view.nodes.n].sum())
        return bool(forecast(asked, AHEAD, SEASON).mean() >= self.busy * every)
