"""Which job goes first: formulas on columns, and what may be assumed about how they change.

A formula takes a view and one job or an array of them, and gives a number each: smaller goes
first. Ties end in the job's number, which is the order of submission.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ganger.core.state.jobs import Phase
from ganger.core.units import HOUR, MINUTE, NEVER, SECOND
from ganger.core.view import View
from ganger.solve.gittins import gittins_index

LOOKAHEAD = 1000
"""How many quanta of service a Gittins order looks ahead at once for a job to be passed."""

Formula: TypeAlias = Callable[[View, Any], Any]


class Moves(Enum):
    """How a job's key may change, so that a queue need not ask again at every event."""

    STATIC = "static"
    """Never, once submitted."""
    IMPROVES = "improves"
    """Constant while it waits; only gets better while it runs."""
    STEPS = "steps"
    """Constant, but for jumps whose time `until` tells."""


class Order(Protocol):
    """A queue discipline."""

    @property
    def moves(self) -> Moves:
        """How its keys change."""
        ...

    @property
    def arrival(self) -> bool:
        """Whether a job that arrives later always goes behind."""
        ...

    def key(self, view: View, job: int) -> tuple[float, ...]:
        """The job's key now."""
        ...

    def until(self, view: View, job: int) -> int:
        """When the job's key jumps if the job goes on as it does; NEVER if it does not."""
        ...

    def passes(self, view: View, job: int, level: float) -> int:
        """The first jump after which the first part of a running job's key may be `level` or
        more; `until` is always an answer, and the only one if that part is so already."""
        ...


@dataclass(frozen=True, slots=True)
class By:
    """Order by formulas, the first one first. No formula at all is first come, first served."""

    formulas: tuple[Formula, ...] = ()
    moves: Moves = Moves.STATIC

    @property
    def arrival(self) -> bool:
        """First come, first served."""
        return not self.formulas

    def key(self, view: View, job: int) -> tuple[float, ...]:
        """One number per formula; infinite for what is not known, so that such jobs come last, and
        first come, first served among themselves."""
        formulas = self.formulas
        if len(formulas) == 1:  # nearly always: spares building a list
            told = float(formulas[0](view, job))
            return (told if told == told else inf,)
        if not formulas:
            return ()
        many = [float(formula(view, job)) for formula in formulas]
        return tuple([told if told == told else inf for told in many])

    def until(self, view: View, job: int) -> int:
        """Such keys do not jump."""
        return NEVER

    def passes(self, view: View, job: int, level: float) -> int:
        """Such keys do not jump."""
        return NEVER


# ---------------------------------------------------------------------- formulas


def _gpus(view: View, ids: Any) -> Any:
    """GPUs asked for; a native number for one job, since queues ask for one at a time."""
    return view.at.gpus[ids] if type(ids) is int else view.jobs.gpus[ids]


def duration(view: View, ids: Any) -> Any:
    """Expected total run time."""
    return view.oracle.duration(view, ids)


def remaining_service(view: View, ids: Any) -> Any:
    """Expected time left x GPUs (SRSF)."""
    return view.remaining(ids) * _gpus(view, ids)


def service(view: View, ids: Any) -> Any:
    """Expected total run time x GPUs (Helios' QSSF)."""
    return view.oracle.duration(view, ids) * _gpus(view, ids)


attained_time: Formula = View.ran
"""Executed time (1-D LAS)."""
attained_service: Formula = View.attained
"""Executed time x GPUs (2-D LAS)."""


def deadline(view: View, ids: Any) -> Any:
    """The time by which the job should be done (EDF)."""
    return view.jobs.deadline[ids]


def allowance(view: View, ids: Any) -> Any:
    """How long the start may be put off, up to a constant: deadline less expected run time
    (GENIE). Unknown run times count as nothing."""
    told = view.oracle.duration(view, ids)
    return view.jobs.deadline[ids] - (0.0 if told != told else told)


def priority_smallest(view: View, ids: Any) -> Any:
    """Priority, 1 before 2."""
    return view.jobs.priority[ids]


def priority_largest(view: View, ids: Any) -> Any:
    """Priority, 2 before 1."""
    return -view.jobs.priority[ids]


def last_come(view: View, ids: Any) -> Any:
    """Time of submission, the latest first (LIFO)."""
    return -view.jobs.submitted[ids]


def longest(view: View, ids: Any) -> Any:
    """Expected total run time, the longest first."""
    return -view.oracle.duration(view, ids)


def first_start(view: View, ids: Any) -> Any:
    """When the job first ran; jobs that never did come last."""
    if type(ids) is int:
        began = view.at.first_start[ids]
        return NEVER if began < 0 else began
    started = view.jobs.first_start[ids]
    return np.where(started < 0, NEVER, started)


class Promotions:
    """What `tiresias.Promoting` lets the order know. `forgiven`: by job, executed time and service
    (microseconds, x GPUs) that no longer count; `looked`: when the queue was last walked,
    microseconds; `fallen`: running jobs that this walk was the first to see in a lower level."""

    __slots__ = ("fallen", "forgiven", "looked")

    def __init__(self) -> None:
        self.forgiven: dict[int, tuple[int, int]] = {}
        self.looked = -1
        self.fallen: list[int] = []


def forgiven(view: View, job: int) -> tuple[int, int]:
    """Executed time and service that `tiresias.Promoting` no longer counts."""
    return view.cached(Promotions).forgiven.get(job, (0, 0))


def reaches(view: View, job: int, attained: Formula, have: int, target: int) -> int:
    """When a running job's attained quantity, `have` now, will be `target`; NEVER for service
    without GPUs."""
    pace = view.at.size[job] if attained is attained_service else 1
    if not pace:
        return NEVER
    ahead: int = -((have - target) // pace)
    return view.now + ahead


# ---------------------------------------------------------------------- orders

FIRST_COME = By()
SHORTEST = By((duration,))
SHORTEST_REMAINING = By((View.remaining,), Moves.IMPROVES)
SMALLEST_REMAINING_SERVICE = By((remaining_service,), Moves.IMPROVES)
SHORTEST_SERVICE = By((service,))
EARLIEST_DEADLINE = By((deadline,))
LEAST_ALLOWANCE = By((allowance,))


@dataclass(frozen=True)
class Levels:
    """A multi-level feedback queue over an attained quantity.

    A job sits in level i once the quantity reaches `thresholds[i - 1]` (microseconds, or
    microseconds x GPUs); lower levels go first; inside a level `within` decides. `starvation`
    (Tiresias' PROMOTEKNOB): a job that has waited that many times its executed time since it last
    ran goes back to the top; None for never.
    """

    thresholds: tuple[int, ...]
    attained: Formula = attained_service
    within: tuple[Formula, ...] = ()
    starvation: float | None = None
    moves: Moves = Moves.STEPS
    arrival: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", tuple(sorted(self.thresholds)))

    def level(self, view: View, job: int) -> int:
        """The level `job` is in now."""
        return self._level_of(view, job, self._counted(view, job))

    def _level_of(self, view: View, job: int, have: int) -> int:
        """The level of a job that counts so much as attained."""
        if self.starvation is not None and self.starved_at(view, job) <= view.now:
            return 0
        return bisect_right(self.thresholds, have)

    def key(self, view: View, job: int) -> tuple[float, ...]:
        """The level, then `within`."""
        level, within = float(self.level(view, job)), self.within
        if len(within) == 1:  # nearly always: spares building a list
            return (level, float(within[0](view, job)))
        return (level, *[float(formula(view, job)) for formula in within])

    def until(self, view: View, job: int) -> int:
        """When the job reaches the next threshold, or has starved long enough."""
        if view.at.rate[job]:
            return self._climbs(view, job, 0)
        if self.starvation is None:
            return NEVER
        at = self.starved_at(view, job)
        return at if at > view.now else NEVER

    def passes(self, view: View, job: int, level: float) -> int:
        """When the job reaches that level, or leaves it."""
        return self._climbs(view, job, int(level))

    def _climbs(self, view: View, job: int, level: int) -> int:
        """When a running job reaches `level` or, from there on, the next."""
        have, ladder = self._counted(view, job), self.thresholds
        above = bisect_right(ladder, have)
        if above < level - 1:
            above = level - 1
        if above >= len(ladder):
            return NEVER
        return reaches(view, job, self.attained, have, ladder[above])

    def _counted(self, view: View, job: int) -> int:
        """What the job has attained and has not been forgiven."""
        have: int = self.attained(view, job)
        if self.starvation is None:
            return have
        return have - forgiven(view, job)[self.attained is attained_service]

    def starved_at(self, view: View, job: int) -> int:
        """When waiting promotes `job`; NEVER if it runs or never ran."""
        at = view.at
        if self.starvation is None or at.rate[job]:
            return NEVER
        ran = at.ran[job] - forgiven(view, job)[0]
        if not ran:
            return NEVER
        starved: int = at.pending_since[job] + round(self.starvation * ran)
        return starved


BEHIND = 2 * NEVER
"""Added to a place (a time), puts it behind all that are not so shifted; subtracted, before."""
SETTLED = MINUTE
"""A waiting job that ran for less than this since it fell into its level was evicted as it fell: a
live engine acts a little late."""
_RUNNING = int(Phase.RUNNING)


@dataclass(frozen=True)
class Lines(Levels):
    """`Levels` in which every level is a line, as in Tiresias' public simulator (NSDI 2019).

    Running jobs stand before waiting ones, in the order in which they started or, running, fell
    into the level: no job is evicted for another of its level. Only at the first look after it fell
    a running job stands behind all others of its new level. A job evicted for a higher level waits
    before all that waited there already; a job that arrives, or was evicted as it fell, waits at
    the end. `tiresias.Promoting` says when the last look was. The formulas of `within` are not
    used.
    """

    def key(self, view: View, job: int) -> tuple[float, ...]:
        """The level; the place in its line, a time in microseconds with a shift; a tie."""
        at, have = view.at, self._counted(view, job)
        level = self._level_of(view, job, have)
        if at.phase[job] == _RUNNING:
            began: int = at.began[job]
            if not level:
                return 0, began - BEHIND, 0
            fell = view.now - self._lasted(have, level, at.size[job])
            known = view.cached(Promotions)
            if fell <= began or fell <= known.looked:
                return level, max(began, fell) - BEHIND, 0
            known.fallen.append(job)
            return level, fell + BEHIND, 0
        waits: int = at.pending_since[job]
        if not have:
            return level, waits, 0
        if not level:
            return 0, -waits, at.since[job]
        lasted = self._lasted(have, level, at.gpus[job])
        if lasted < SETTLED:
            return level, waits, 0
        return level, -waits, max(at.since[job], waits - lasted)

    def _lasted(self, have: int, level: int, gpus: int) -> int:
        """For how long a job that counts `have` has run in `level` (not the top one),
        microseconds."""
        past = have - self.thresholds[level - 1]
        return past // max(gpus, 1) if self.attained is attained_service else past


@dataclass(frozen=True)
class Quanta:
    """Least attained service first, in steps of `quantum`: an endless ladder of levels."""

    quantum: int
    attained: Formula
    moves: Moves = Moves.STEPS
    arrival: bool = False

    def key(self, view: View, job: int) -> tuple[float, ...]:
        """Whole quanta attained."""
        return (float(int(self.attained(view, job)) // self.quantum),)

    def until(self, view: View, job: int) -> int:
        """When the next quantum is full; NEVER unless it runs."""
        return self._fills(view, job, 0)

    def passes(self, view: View, job: int, level: float) -> int:
        """When the job has so many quanta, or one more."""
        return self._fills(view, job, int(level))

    def _fills(self, view: View, job: int, quanta: int) -> int:
        """When a running job has `quanta` or, from there on, the next."""
        if not view.at.rate[job]:
            return NEVER
        have = int(self.attained(view, job))
        full = max(have // self.quantum + 1, quanta) * self.quantum
        return reaches(view, job, self.attained, have, full)


@dataclass(frozen=True)
class Then:
    """First by one order, equals by another, equals again by formulas that never change."""

    first: Order
    second: Order
    last: tuple[Formula, ...] = ()
    moves: Moves = Moves.STEPS
    arrival: bool = False

    def key(self, view: View, job: int) -> tuple[float, ...]:
        """All keys in a row."""
        tail = [float(formula(view, job)) for formula in self.last]
        return (*self.first.key(view, job), *self.second.key(view, job), *tail)

    def until(self, view: View, job: int) -> int:
        """When the first of them jumps."""
        return min(self.first.until(view, job), self.second.until(view, job))

    def passes(self, view: View, job: int, level: float) -> int:
        """The second order counts among equals of the first."""
        if self.first.key(view, job)[0] < level:
            return self.first.passes(view, job, level)
        return self.until(view, job)


class _Indices:
    """Gittins indices by age in quanta, and the distribution (total service, ascending) that they
    come from, that of an `epoch`; None: of none yet."""

    __slots__ = ("by_age", "epoch", "sizes")

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.by_age: dict[int, float] = {}
        self.sizes: NDArray[np.float64] = np.zeros(0)


@dataclass(frozen=True)
class Gittins:
    """The highest Gittins index of what a job has attained goes first.

    `sizes`: the distribution of total service, microseconds (x GPUs); empty: that of the jobs
    that have finished so far, taken anew every `refresh` and thinned to `points`. `step`: one
    fixed D instead of the supremum. Attained service counts in whole `quantum`s.
    """

    sizes: tuple[int, ...] = ()
    step: int | None = None
    quantum: int = 10 * MINUTE
    refresh: int = HOUR
    points: int = 1000
    attained: Formula = attained_service
    moves: Moves = Moves.STEPS
    arrival: bool = False

    def key(self, view: View, job: int) -> tuple[float, ...]:
        """Minus the index per second; 0 while nothing is known."""
        return (self._value(view, int(self.attained(view, job)) // self.quantum),)

    def _value(self, view: View, age: int) -> float:
        """The key of a job that has attained so many quanta."""
        known: dict[int, float] = self._cache(view)
        if age not in known:
            index = gittins_index(self._sizes(view), float(age * self.quantum), self.step)
            known[age] = -round(index * SECOND, 12)
        return known[age]

    def until(self, view: View, job: int) -> int:
        """When the next quantum is full, or the distribution is taken anew."""
        return self._ages(view, job, -inf)

    def passes(self, view: View, job: int, level: float) -> int:
        """When its index is as small as that, as far as is looked ahead."""
        return self._ages(view, job, level)

    def _ages(self, view: View, job: int, key: float) -> int:
        """When a job next has a key of `key` or more, or the distribution is taken anew."""
        fresh = NEVER if self.sizes else (view.now // self.refresh + 1) * self.refresh
        if not view.at.rate[job]:
            return fresh
        have = int(self.attained(view, job))
        age = have // self.quantum
        for ahead in range(age + 1, age + LOOKAHEAD):
            full = reaches(view, job, self.attained, have, ahead * self.quantum)
            if full >= fresh or self._value(view, ahead) >= key:
                break
        return min(fresh, full)

    def _cache(self, view: View) -> dict[int, float]:
        """Indices by age, for as long as the distribution stands."""
        epoch = 0 if self.sizes else view.now // self.refresh
        known = view.cached(_Indices)
        if known.epoch != epoch:
            known.epoch, known.by_age = epoch, {}
            known.sizes = self._distribution(view, epoch)
        return known.by_age

    def _sizes(self, view: View) -> NDArray[np.float64]:
        return view.cached(_Indices).sizes

    def _distribution(self, view: View, epoch: int) -> NDArray[np.float64]:
        """Total service of the jobs that finished before this epoch, ascending."""
        if self.sizes:
            return np.sort(np.array(self.sizes, np.float64))
        jobs, n = view.jobs, view.jobs.n
        finished = jobs.finished[:n]
        over = np.flatnonzero(
            (jobs.phase[:n] == Phase.FINISHED) & (finished < max(epoch * self.refresh, 0))
        )
        sizes = np.sort(self.attained(view, over).astype(np.float64))
        if len(sizes) <= self.points:
            return sizes
        at = ((np.arange(self.points) + 0.5) * len(sizes) / self.points).astype(np.int64)
        return sizes[at]
