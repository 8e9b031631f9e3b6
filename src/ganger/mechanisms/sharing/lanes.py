"""Lanes: jobs on the same GPUs that run iterations in turn, because all that persists of their
memory fits, and within an iteration one at a time (Salus, MLSys 2020)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED
from ganger.core.plan import Plan, Start, Tune
from ganger.core.protocols import Policy
from ganger.core.view import View
from ganger.mechanisms.ordering.order import FIRST_COME, Order
from ganger.mechanisms.sharing.packing import Packed, Score, Where

WAIT: Final = "wait"


class Turns(Enum):
    """Whose iteration is next in a lane."""

    TIME = "time"
    """That of the job that has had the least of the GPU's time."""
    ITERATION = "iteration"
    """Each job's, one after the other."""
    FIRST = "first"
    """Always that of the job that goes first; the others wait."""


class Seating(Score, Protocol):
    """A score that knows which jobs are in one lane."""

    def seats(self, view: View, models: Sequence[str], size: int) -> Sequence[Sequence[int]] | None:
        """The jobs of each lane, by their number in `models`, on GPUs of `size` MiB; None where
        their memory does not fit."""


@dataclass(frozen=True, kw_only=True)
class ByLanes(Packed):
    """As `Packed`, with what fits into lanes; only jobs that ask for GPUs and nothing else."""

    score: Seating

    def takes_part(self, view: View, job: int) -> bool:
        """Whether the job may share its GPUs."""
        return super().takes_part(view, job) and bool(view.draft.shape(job).is_plain)


class Seat(NamedTuple):
    """Where a job runs iterations in turn: its lane, how long its turn is, and the fraction of the
    layers through which it back-propagates but for one worker, and where that is (see
    `sim.tenancy`)."""

    lane: int
    turn: str
    backward: float = 1.0
    full: int = 0

    def knobs(self, *, partly: bool) -> dict[str, float | bool | str]:
        """As the knobs of a Tune."""
        knobs: dict[str, float | bool | str]
        knobs = {"request": 0.0, "lane": self.lane, "turn": self.turn}
        return knobs | {"backward": self.backward, "full": self.full} if partly else knobs


@dataclass(frozen=True)
class LanePolicy:
    """Another policy, which places jobs by `place`; those on the same GPUs get lanes there, and
    turns in their lane.

    `first`: which job of a lane goes first where the others wait. `backward`: the fraction of the
    layers through which jobs that are not alone back-propagate, but for one worker of each.
    """

    orders: ClassVar[tuple[type, ...]] = (Tune,)
    inner: Policy
    place: ByLanes
    turns: Turns
    first: Order = FIRST_COME
    backward: float = 1.0

    @property
    def name(self) -> str:
        """The inner policy's."""
        return self.inner.name

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """The inner plan, and the lanes of GPUs on which others compute from now on."""
        plan, memory = self.inner.decide(view, memory)
        crowds = self.place.crowds(view)
        begins = {a.job: a.attempt for a in plan.actions if isinstance(a, Start)}
        for where in crowds.take_changed():
            jobs = crowds.jobs.get(where, [])
            for job, seat in self._seats(view, where, jobs, begins):
                attempt = begins[job] if job in begins else view.at.attempt[job]
                knobs = seat.knobs(partly=self.backward < 1.0)
                plan.actions.append(Tune(job, attempt, knobs))
        if crowds.any_shared:
            plan.until |= CAPACITY_FREED | CAPACITY_LOST | COMMANDED
        return plan, memory

    def _seats(
        self, view: View, where: Where, jobs: Sequence[int], begins: Mapping[int, int]
    ) -> Iterator[tuple[int, Seat]]:
        """Those of the jobs on these devices whose seat is another from now on."""
        models = [view.jobs.models[view.at.model[job]] for job in jobs]
        size = view.ledger.device_memory(where[0][0])
        everybody = tuple(range(len(jobs)))
        for number, lane in enumerate(
            self.place.score.seats(view, models, size) or (everybody,), 1
        ):
            members = [jobs[at] for at in lane]
            standing = {job: _seat(view, job) for job in members if job not in begins}
            computes = self._first(view, members, standing)
            backward = self.backward if len(jobs) > 1 else 1.0
            for at, job in enumerate(members):
                turn = self._turn if job in computes else WAIT
                full = at if backward < 1.0 else 0
                seat = Seat(number, turn, backward, full)
                if standing.get(job) != seat:
                    yield job, seat

    @property
    def _turn(self) -> str:
        return str((Turns.TIME if self.turns is Turns.FIRST else self.turns).value)

    def _first(
        self, view: View, jobs: Sequence[int], standing: Mapping[int, Seat | None]
    ) -> Sequence[int]:
        """Those of a lane that compute. A job that goes first does so until it ends or another
        comes, whatever is believed of it meanwhile."""
        if self.turns is not Turns.FIRST or not jobs:
            return jobs
        before = [job for job in jobs if (seat := standing.get(job)) and seat.turn != WAIT]
        if len(before) == 1 and all(standing.get(job) for job in jobs):
            return before
        return [min(jobs, key=lambda job: (*self.first.key(view, job), job))]


def _seat(view: View, job: int) -> Seat | None:
    """The one that the job was given last; None if it was given none."""
    knobs = view.knobs.get(job, {})
    if "lane" not in knobs:
        return None
    backward, full = float(knobs.get("backward", 1.0)), int(knobs.get("full", 0))
    return Seat(int(knobs["lane"]), str(knobs["turn"]), backward, full)
