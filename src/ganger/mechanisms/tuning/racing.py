"""Trials that are judged one by one, as each comes to where it is judged: none waits for another.

What is kept between decisions is copied where it changes, so that a decision can be made again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

import msgspec

from ganger.core.plan import AskAt, Placement, Plan, Spawn
from ganger.core.spec import JobSpec
from ganger.core.state.facts import Curve
from ganger.core.state.jobs import Phase
from ganger.core.view import View
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.mechanisms.tuning.timing import Timing
from ganger.mechanisms.tuning.trials import (
    CHANGES,
    Line,
    Mode,
    Portion,
    badness,
    broke,
    may_start,
    resize,
    search_of,
    trial_of,
    why_waiting,
)

_PENDING, _RUNNING, _FINISHED = int(Phase.PENDING), int(Phase.RUNNING), int(Phase.FINISHED)


class Leaves(Enum):
    """How a trial leaves the race where it is judged."""

    ASIDE = "aside"
    """It keeps its work, and may go on later."""
    OVER = "over"


Verdict: TypeAlias = float | Leaves
"""The epoch at which a trial that goes on is judged next, or how it leaves."""


class Divided(msgspec.Struct, frozen=True):
    """How GPUs were divided last: `among` which trials, by the epoch at which each is judged next,
    how many GPUs, and how many each has."""

    among: dict[int, float] = {}
    gpus: int = 0
    widths: dict[int, float] = {}


class RacingMemory(msgspec.Struct, frozen=True):
    """How far a search is. `rungs`: at each place where trials are judged, how bad each was that
    came there; `gone`: which of them have gone on after they were set aside."""

    asked: int = 0
    """Trials that were asked for, or were there before any was."""
    goals: dict[int, float] = {}
    """By trial that is in the race: the epoch at which it is judged next."""
    rungs: tuple[dict[int, float], ...] = ()
    gone: tuple[frozenset[int], ...] = ()
    asking: int = 0
    """Trials that were asked for just now."""
    scores: dict[int, float] = {}
    """By trial what its judge thought of it last; those set aside in the order in which they
    were."""
    timing: Timing = Timing()
    """If sizes change: when trials began, and how long that takes."""
    closed: bool = False
    """Whether no trial begins any more, and none goes on that was set aside."""
    divided: Divided = Divided()


class _Order:
    """The trials of a rung, the best first, and those of them that have not gone on."""

    def __init__(self, rung: dict[int, float], gone: frozenset[int]) -> None:
        self.rung, self.gone = rung, gone
        self.all = sorted((bad, job) for job, bad in rung.items())
        self.still = [each for each in self.all if each[1] not in gone]


class Known:
    """What can be worked out again from the memory. A cache."""

    def __init__(self) -> None:
        self.new = True
        self.line = Line()
        self.trial: JobSpec | None = None
        """What is asked for."""
        self._orders: list[_Order] = []

    def to_look_at(self, view: View, race: Iterable[int]) -> Sequence[int]:
        """The trials of which something may have changed; `race`: those in the race, of which some
        may have ended."""
        if not self.new:
            return sorted(set(view.changed))
        self.new = False
        every = (view.pending, view.paused, view.active)
        return sorted({*race, *(job for ids in every for job in ids.tolist())})

    def order(self, race: Race, rung: int) -> _Order:
        """The trials of that rung in their order."""
        orders = self._orders
        while len(orders) <= rung:
            orders.append(_Order({}, frozenset()))
        known = orders[rung]
        if known.rung is not race.rungs[rung] or known.gone is not race.gone[rung]:
            known = orders[rung] = _Order(race.rungs[rung], race.gone[rung])
        return known


class Race:
    """A search while it is decided over: a copy of what was remembered, and what changes in it."""

    def __init__(self, view: View, memory: RacingMemory, mode: Mode, known: Known) -> None:
        self.view, self.mode, self._known = view, mode, known
        self.asked = memory.asked
        self.goals = dict(memory.goals)
        self.rungs, self.gone = list(memory.rungs), list(memory.gone)
        self.aside: dict[int, Placement | None] = {}
        """What trials held that are set aside now."""
        self.copies: list[tuple[int, float]] = []
        """The trials, and after how many epochs, of which copies take the place of others."""
        self.asking = 0
        self.scores, self.timing = dict(memory.scores), memory.timing
        self.closed = memory.closed
        self.divided = memory.divided

    def remembered(self) -> RacingMemory:
        """What is to be remembered."""
        return RacingMemory(
            self.asked,
            self.goals,
            tuple(self.rungs),
            tuple(self.gone),
            self.asking,
            self.scores,
            self.timing,
            self.closed,
            self.divided,
        )

    def seen(self, job: int) -> bool:
        """Whether the trial has been judged."""
        return job in self.scores or bool(self.rungs and job in self.rungs[0])

    def runs(self) -> list[int]:
        """The trials in the race that compute, and go on doing so, ascending."""
        phase, holds = self.view.at.phase, self.view.draft.holds
        return [job for job in sorted(self.goals) if phase[job] == _RUNNING and holds(job)]

    def end(self) -> None:
        """The search has found what it looked for: all trials end, and none begins."""
        for job in self.view.active.tolist():
            if self.view.at.within[job] == self.view.within and self.view.draft.holds(job):
                self.view.draft.retire(job)
        self.goals.clear()
        self.closed = True

    def is_over(self, job: int) -> bool:
        """Whether the trial has ended."""
        return bool(self.view.at.phase[job] >= _FINISHED)

    def badness(self, curve: Curve, epoch: float) -> float:
        """What a trial reported when it came to `epoch`; the less the better."""
        return badness(curve.reached(epoch), self.mode)

    def came(self, job: int, rung: int, bad: float) -> tuple[int, int]:
        """The trial has come to that rung and is so bad; its rank there, from 0, and how many have
        come by now. Of equal ones the earlier is better."""
        while len(self.rungs) <= rung:
            self.rungs.append({})
            self.gone.append(frozenset())
        order = self._known.order(self, rung)
        order.rung = self.rungs[rung] = {**self.rungs[rung], job: bad}
        insort(order.all, (bad, job))
        insort(order.still, (bad, job))
        return bisect_left(order.all, (bad, job)), len(order.all)

    def ranked(self, rung: int) -> list[float]:
        """How bad those are that have come to that rung, the best first."""
        if rung >= len(self.rungs):
            return []
        return [bad for bad, _ in self._known.order(self, rung).all]

    def count(self, rung: int) -> int:
        """How many have come to that rung."""
        return len(self.rungs[rung]) if rung < len(self.rungs) else 0

    def best(self, rung: int, number: int) -> list[int]:
        """The best of those that have come to that rung, and did not break down."""
        if rung >= len(self.rungs):
            return []
        return [job for bad, job in self._known.order(self, rung).all[:number] if bad < math.inf]

    def best_still(self, rung: int) -> tuple[int, int, int] | None:
        """The best of a rung that has not gone on, its rank among all, and how many these are."""
        order = self._known.order(self, rung)
        if not order.still:
            return None
        best = order.still[0]
        return best[1], bisect_left(order.all, best), len(order.all)

    def goes_on(self, job: int, rung: int) -> None:
        """The best of a rung that has not gone on does so."""
        order = self._known.order(self, rung)
        order.gone = self.gone[rung] = self.gone[rung] | {job}
        del order.still[0]


class Judge(Protocol):
    """Says of each trial whether it goes on."""

    @property
    def begins(self) -> float:
        """The epoch at which a trial is first judged."""

    def judge(self, race: Race, job: int, goal: float, curve: Curve) -> Verdict:
        """What becomes of a trial that has trained for `goal` epochs, has reported last, or has
        broken down."""

    def resumes(self, race: Race) -> tuple[int, float] | None:
        """A trial that was set aside and goes on now, and the epoch at which it is judged next;
        None: rather a new trial."""


class Dealer(Protocol):
    """Says how many GPUs each trial has, where trials may have more than they ask for."""

    @property
    def most_gpus(self) -> int:
        """The most GPUs that a trial has."""

    def closes(self, race: Race) -> bool:
        """Whether from now on no trial begins, and none that was set aside goes on."""

    def widths(self, race: Race, free: int) -> list[tuple[int, int]]:
        """Trials that get more of the `free` GPUs, and how many they have then."""


class Divider(Protocol):
    """Divides all GPUs of the search between its trials, which may also share some."""

    @property
    def most_gpus(self) -> int:
        """The most GPUs that a trial has."""

    def slots(self, gpus: int) -> int:
        """How many trials run at once on so many GPUs."""

    def divide(self, race: Race) -> bool:
        """Draw what each trial of the race has; whether all run."""


@dataclass(frozen=True)
class Racing:
    """As many trials run as the grant has room for, `each` on its portion. Where there is room for
    one more, one that was set aside goes on if `judge` says so; else a new one is asked for, until
    there have been `trials`. What is left then goes to those that `dealer` says, if there is
    one. Where there is a `divider`, that says instead how many run, and on what."""

    name: str
    judge: Judge
    trials: int
    mode: Mode
    each: Portion
    searcher: str = ""
    """The searcher that belongs to the recipe, if one does."""
    place: Placer = PACK
    dealer: Dealer | None = None
    divider: Divider | None = None
    orders = (Spawn,)

    def decide(self, view: View, memory: RacingMemory | None) -> tuple[Plan, RacingMemory]:
        """What runs inside the grant of one search. Raises InvariantError outside of any."""
        search = search_of(view, self.name)
        known = view.cached(Known)
        race = Race(view, memory or RacingMemory(), self.mode, known)
        for job in known.to_look_at(view, race.goals):
            self._look_at(race, job, known)
        if memory is None:
            race.asked = len(race.goals)
        self._fill(race, search, known)
        if self.divider is not None:
            all_run = self.divider.divide(race)
        else:
            all_run = known.line.start(view, self.place, race.goals.__contains__, self.each)
        if self.dealer is not None:
            self._deal(race, self.dealer, self._free(race, search))
        raced = len(race.goals)
        reasons = [] if all_run else [why_waiting("Racing", self.each.part, raced_trials=raced)]
        return view.draft.plan(reasons, until=CHANGES), race.remembered()

    def over(self, view: View, memory: RacingMemory) -> bool:
        """Whether no trial is in the race, and none will be."""
        waits = memory.asking or view.spawning.get(view.within, 0)
        return not (memory.goals or waits) and memory.asked >= self.trials

    def _look_at(self, race: Race, job: int, known: Known) -> None:
        """What is new about a trial."""
        view, goals = race.view, race.goals
        phase = view.at.phase[job]
        if phase >= _FINISHED:
            goals.pop(job, None)
            return
        goal = goals.get(job)
        if goal is None:
            if phase != _PENDING or race.seen(job) or race.closed:
                return
            goal = goals[job] = self.judge.begins
            view.draft.act(AskAt(job, goal))
        if phase == _RUNNING:
            curve = view.trials.get(job)
            if curve is not None:
                self._judge(race, job, goal, curve)
        elif may_start(view, job):
            known.line.add(job)

    def _judge(self, race: Race, job: int, goal: float, curve: Curve) -> None:
        """Judge a trial wherever it has come to. One that broke down, or has reported last, ends
        whatever is said of it."""
        draft, before = race.view.draft, goal
        verdict: Verdict = goal
        while curve.last >= goal or broke(curve):
            verdict = self.judge.judge(race, job, goal, curve)
            if isinstance(verdict, Leaves) or broke(curve):
                break
            goal = verdict
        ends = curve.final or broke(curve)
        if verdict is Leaves.OVER or ends:
            if race.goals.pop(job, None) is not None:
                draft.retire(job)
        elif verdict is Leaves.ASIDE:
            del race.goals[job]
            race.aside[job] = draft.holds(job)
            draft.pause(job)
        elif goal != before:
            race.goals[job] = goal
            draft.act(AskAt(job, goal))

    def _fill(self, race: Race, search: int, known: Known) -> None:
        """Use the room that is not used."""
        view = race.view
        for copied in race.copies:
            view.draft.act(Spawn(search, self._trial(view, search, known), 1, copied))
        room = self._room(race, search)
        free = room - view.spawning.get(search, 0) - len(race.copies)
        if race.closed or (self.dealer is not None and self.dealer.closes(race)):
            race.closed, race.asked, free = True, self.trials, 0
        free -= self._resume(race, free, known)
        new = max(min(free, self.trials - race.asked), 0)
        race.asking = new + len(race.copies)
        if new:
            race.asked += new
            view.draft.act(Spawn(search, self._trial(view, search, known), new))
            if new < free:  # what goes on rather than wait for a new one that does not come
                self._resume(race, free - new, known)

    def _resume(self, race: Race, free: int, known: Known) -> int:
        """Let trials go on that were set aside, while `free` are left; how many do."""
        view, resumed = race.view, 0
        while resumed < free:
            chosen = self.judge.resumes(race)
            if chosen is None:
                break
            job, goal = chosen
            race.goals[job] = goal
            view.draft.act(AskAt(job, goal))
            held = race.aside.get(job)
            if held is not None:  # set aside just now
                view.draft.restore(job, held)
            elif may_start(view, job):
                known.line.add(job)
            resumed += 1
        return resumed

    def _room(self, race: Race, search: int) -> int:
        """How many more trials may be in the race."""
        if self.dealer is not None:
            return self._free(race, search) // self.each.gpus
        gpus: int = race.view.at.size[search]
        slots = self.each.fit(gpus) if self.divider is None else self.divider.slots(gpus)
        return slots - len(race.goals)

    def _free(self, race: Race, search: int) -> int:
        """The GPUs of the grant that no trial in the race has, or will start on."""
        at, draft = race.view.at, race.view.draft
        free: int = at.size[search]
        for job in race.goals:
            held = draft.holds(job)
            free -= self.each.gpus if held is None else sum(s.devices.bit_count() for s in held)
        return free

    def _deal(self, race: Race, dealer: Dealer, free: int) -> None:
        """Hand out what is left, and remember who begins now."""
        view = race.view
        begin = [
            job
            for job in race.goals
            if view.at.phase[job] != _RUNNING and view.draft.holds(job) is not None
        ]
        race.timing = race.timing.among(race.goals).ordered(begin, view.now)
        free -= self.each.gpus * (view.spawning.get(view.within, 0) + race.asking)
        if free > 0:
            grown = [each for each in dealer.widths(race, free) if resize(view, *each, self.place)]
            race.timing = race.timing.ordered([job for job, _ in grown], view.now, anew=True)

    def _trial(self, view: View, search: int, known: Known) -> JobSpec:
        """What is asked for."""
        if known.trial is None:
            sizes = self.dealer or self.divider
            widest = sizes.most_gpus if sizes is not None else 0
            known.trial = trial_of(view, search, self.each, widest)
        return known.trial


@dataclass(frozen=True)
class ToTheEnd:
    """Every trial trains for `longest` epochs, or to its own end."""

    longest: float

    @property
    def begins(self) -> float:
        """The last epoch."""
        return self.longest

    def judge(self, race: Race, job: int, goal: float, curve: Curve) -> Verdict:
        """It has done all that it should."""
        return Leaves.OVER

    def resumes(self, race: Race) -> None:
        """None is ever set aside."""


@dataclass(frozen=True)
class Rungs:
    """Where trials are judged: after `first` x `eta`^k epochs, and at last after `longest`."""

    first: float
    eta: int
    longest: float

    def epoch(self, rung: int) -> float:
        """The epoch of a rung."""
        return min(self.first * float(self.eta**rung), self.longest)

    def at(self, epoch: float) -> int:
        """The rung at that epoch, which one has."""
        if epoch >= self.longest:
            below = (
                math.log(self.longest / self.first, self.eta) if self.longest > self.first else 0.0
            )
            return max(math.ceil(below - 1e-9), 0)
        return round(math.log(epoch / self.first, self.eta))
