"""What-if inside a decision: start, stop and resize on the real books, then keep it or roll back.

A policy draws its plan here. The kernel keeps what was drawn if the policy returns that plan, and
rolls it back otherwise; either way `decide` changed nothing that lasts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ganger.core.books.ledger import Ledger, rooms
from ganger.core.books.succession import take_over
from ganger.core.errors import InvariantError
from ganger.core.events import ANYTHING
from ganger.core.plan import (
    PAUSED,
    RETIRED,
    AnyAction,
    Placement,
    Plan,
    Reason,
    Resize,
    Resume,
    Retire,
    Start,
    Stop,
    Suspend,
)
from ganger.core.spec import Shape
from ganger.core.state.jobs import Jobs, Phase
from ganger.core.units import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set


_NOTHING: dict[int, Placement] = {}
_RESTORED, _TURNED = "goes on", "suspended or resumed"
"""Why a step of the draft leaves a job where it was."""


_Step: TypeAlias = tuple[int, Placement | None, Placement | None, str, Ledger]
"""One thing drawn: job, placement (None: stop what holds `held`; otherwise run there), held, why,
and the books. A bare tuple, since one is made for every start."""
_RUNNING, _SUSPENDED = int(Phase.RUNNING), int(Phase.SUSPENDED)


class Draft:
    """A plan being drawn. Jobs that it does not touch keep what they have."""

    def __init__(
        self,
        jobs: Jobs,
        ledger: Ledger,
        inner: dict[int, Ledger],
        resumable: Set[int] = frozenset(),
    ) -> None:
        self._ledger, self._inner, self._resumable = ledger, inner, resumable
        self.bind(jobs)
        self.steps: list[_Step] = []
        """What was drawn, in order: as many as `Ledger.trail` holds in all books."""
        self._stops = False
        self._slept: set[int] = set()
        """Jobs that were asleep when this draft first touched them, or fell asleep in it."""
        self._others: list[AnyAction] = []
        self._with: dict[int, list[tuple[int, Placement]]] = {}
        """By parent that was stopped: what each of its children held that went with it."""
        self.made: Plan | None = None
        self.freed = _NOTHING
        """What each job held that `made` stops or resizes."""

    def bind(self, jobs: Jobs) -> None:
        """Take hold of the columns' cells; again whenever the table grew."""
        self._within, self._attempt = jobs.cells("within"), jobs.cells("attempt")
        self._shape, self._shapes = jobs.cells("shape"), jobs.shapes.values
        self._phase = jobs.cells("phase")

    def ledger_of(self, job: int) -> Ledger | None:
        """The books that `job` is placed in: the cluster's, or its running parent's grant."""
        try:
            within = self._within[job]
        except IndexError:
            raise InvariantError(f"there is no job {job}") from None
        return self._ledger if within < 0 else self._inner.get(within)

    def shape(self, job: int) -> Shape:
        """The shape of `job`."""
        return self._shapes[self._shape[job]]

    def holds(self, job: int) -> Placement | None:
        """What `job` holds at this point of the draft."""
        ledger = self.ledger_of(job)
        held = ledger.holds.get(job) if ledger is not None else None
        return held[1] if held is not None else None

    def start(self, job: int, placement: Placement) -> None:
        """Run a pending job, or one stopped earlier in this draft, on `placement`. Of those inside
        the grant of one that was stopped, the ones that `placement` has room for where they were go
        on."""
        self._take(job, placement)
        if self._with and job in self._with:
            before = dict(self._with[job])
            for child in self._that_fit(job, placement, before):
                self.restore(child, before[child])

    def _take(self, job: int, placement: Placement) -> None:
        try:
            top = self._within[job] < 0
        except IndexError:
            raise InvariantError(f"there is no job {job}") from None
        ledger = self._ledger if top else self.ledger_of(job)
        assert ledger is not None, "the parent of this job is not running"
        ledger.take(job, self._shapes[self._shape[job]], placement)
        self.steps.append((job, placement, None, "", ledger))

    def stop(self, job: int, why: str = "preempted") -> Placement:
        """Preempt a job that holds devices, and before it those inside its grant; returns what it
        held."""
        if self._inner and job in self._inner:
            held = dict(self._inner[job].holds)
            self._with[job] = [(child, self.stop(child, "parent")) for child in sorted(held)]
        return self._vacate(job, why)

    def _vacate(self, job: int, why: str) -> Placement:
        ledger = self.ledger_of(job)
        assert ledger is not None, "the parent of this job is not running"
        if job in ledger.asleep:
            self._slept.add(job)
        placement = ledger.give(job, leaving=True)
        self.steps.append((job, None, placement, why, ledger))
        self._stops = True
        return placement

    def restore(self, job: int, placement: Placement) -> None:
        """Let a job that this draft stopped go on where it was, and those in its grant."""
        ledger = self.ledger_of(job)
        assert ledger is not None, "the parent of this job is not running"
        ledger.regain(job, self.shape(job), placement, asleep=self._left_asleep(job, ledger))
        self.steps.append((job, placement, None, _RESTORED, ledger))
        for child, held in self._with.pop(job, ()):
            self.restore(child, held)

    def resize(self, job: int, placement: Placement) -> None:
        """Run a job that holds devices on `placement` from now on. Of those inside its grant the
        ones go that are not inside the new one; the others notice nothing."""
        for child in self._outside(job, placement):
            self.stop(child, "parent")
        self._vacate(job, "preempted")
        self._take(job, placement)

    def _outside(self, parent: int, placement: Placement) -> list[int]:
        """The children that hold something which `placement` does not."""
        if parent not in self._inner:
            return []
        held = {child: place for child, (_, place) in self._inner[parent].holds.items()}
        return sorted(held.keys() - self._that_fit(parent, placement, held))

    def _that_fit(
        self, parent: int, placement: Placement, held: Mapping[int, Placement]
    ) -> list[int]:
        """Of children that hold something, those that a grant of `placement` has room for where
        they are, the first to come first."""
        books = Ledger(self._ledger.nodes, rooms(self.shape(parent), placement))
        known = self._inner.get(parent)
        asleep = {
            job
            for job in held
            if known is not None and (job in known.asleep or self._left_asleep(job, known))
        }
        return take_over(books, {job: (self.shape(job), held[job]) for job in held}, asleep)

    def _left_asleep(self, job: int, ledger: Ledger) -> bool:
        """Whether `job` was asleep when this draft last stopped it."""
        return job in self._slept and ledger.left_asleep(job)

    def suspend(self, job: int) -> None:
        """Freeze a job that runs and says how much memory it keeps: that stays its own, and others
        may compute where it did until it is resumed. Raises InvariantError for any other."""
        ledger = self.ledger_of(job)
        if ledger is None or self._phase[job] != _RUNNING or job in self._inner:
            raise InvariantError(
                f"job {job} cannot be suspended: it does not run, or its trials compute there"
            )
        ledger.doze(job)
        self._slept.add(job)
        placement = ledger.holds[job][1]
        self.steps.append((job, placement, placement, _TURNED, ledger))

    def resume(self, job: int) -> bool:
        """Let a suspended job that is one of `view.resumable` compute again where it is. False,
        and nothing changed, if it is none of them, or if somebody else computes there or has yet
        to let go of it."""
        ledger = self.ledger_of(job)
        if ledger is None or job not in ledger.asleep:
            return False
        if self._phase[job] == _SUSPENDED and job not in self._resumable:
            return False
        shape, placement = ledger.holds[job]
        if any(not ledger.up[slot.node] for slot in placement) or ledger.waits(placement, shape):
            return False
        if not ledger.wake(job):
            return False
        self._slept.add(job)
        self.steps.append((job, placement, placement, _TURNED, ledger))
        return True

    def retire(self, job: int) -> None:
        """The job is wanted no more: it is over as soon as it has let go of what it holds."""
        if self.holds(job) is not None:
            self.stop(job, RETIRED)
        else:
            self._others.append(Retire(job))

    def pause(self, job: int) -> None:
        """Set a job that holds devices aside: it saves, gives them back, and does not wait for
        others until it is started again."""
        self.stop(job, PAUSED)

    def act(self, action: AnyAction) -> None:
        """Add an action that moves no devices: Tune, Provision, Spawn, Route, AskAt, Lend;
        Suspend of a job that keeps its devices, and its Resume."""
        self._others.append(action)

    def add_missing(self, actions: Iterable[AnyAction]) -> None:
        """Add those that move no devices and were written into a plan after it was drawn."""
        drawn = {id(action) for action in self._others}
        for action in actions:
            if not self._moves(action) and id(action) not in drawn:
                self._others.append(action)

    def _moves(self, action: AnyAction) -> bool:
        """Whether an action of a plan made here comes from the steps."""
        if isinstance(action, Suspend | Resume):
            return action.job in self._slept
        return isinstance(action, Start | Stop | Resize)

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self.steps)

    def rollback(self, mark: int = 0) -> None:
        """Undo what was drawn since `mark`."""
        while len(self.steps) > mark:
            ledger = self.steps.pop()[4]
            ledger.rollback(ledger.mark() - 1)

    def plan(
        self, reasons: Sequence[Reason] = (), wake: int = NEVER, until: int = ANYTHING
    ) -> Plan:
        """The plan that makes this draft true."""
        actions = self._actions() if self.steps else []
        if self._others:
            actions += self._others
        self.made = plan = Plan(actions, list(reasons) if reasons else [], wake, until)
        return plan

    def _actions(self) -> list[AnyAction]:
        """The net effect: stops first, then resizes, then starts, each in the order drawn."""
        steps = self.steps
        if not self._stops and not self._slept:
            return list(map(self._start, steps))
        self.freed = {}
        last: dict[int, _Step] = {}
        first: dict[int, _Step] = {}
        for step in steps:
            first.setdefault(step[0], step)
            last[step[0]] = step
        stops: list[AnyAction] = []
        sleeps: list[AnyAction] = []
        resizes: list[AnyAction] = []
        starts: list[AnyAction] = []
        for job, step in last.items():
            attempt = self._attempt[job]
            held = first[job][2]
            _, placement, _, why, ledger = step
            if placement is None:
                if held is not None:
                    self.freed[job] = held
                    stops.append(Stop(job, attempt, why))
                elif why == RETIRED:  # it was only drawn here
                    stops.append(Retire(job))
            elif held is None:
                starts.append(self._start(step))
            elif placement != held or (self._slept and self._is_new(step)):
                if job in ledger.asleep:
                    raise InvariantError(f"job {job} begins anew, and so is not suspended")
                self.freed[job] = held
                waits = self._waits(ledger, job, placement)
                resizes.append(Resize(job, attempt + 1, placement, waits))
            elif self._slept and job in self._slept:
                turned = self._turned(job, ledger)
                if turned is not None:
                    (sleeps if isinstance(turned, Suspend) else starts).append(turned)
        return stops + sleeps + resizes + starts

    def _is_new(self, step: _Step) -> bool:
        """Whether `step`, the last one of a job that keeps its place, begins a new attempt there:
        one that was asleep was stopped, and started again."""
        job, _, _, why, _ = step
        return not why and job in self._slept and self._phase[job] == _SUSPENDED

    def _turned(self, job: int, ledger: Ledger) -> Suspend | Resume | None:
        """What has become of a job that keeps its place and its attempt."""
        if job in ledger.asleep:
            if self._phase[job] == _RUNNING:
                return Suspend(job, self._attempt[job], yields=True)
        elif self._phase[job] == _SUSPENDED:
            return Resume(job, self._attempt[job])
        return None

    def _start(self, step: _Step) -> Start:
        job, placement, _, _, ledger = step
        assert placement is not None
        waits = self._waits(ledger, job, placement) if ledger.leaving else ()
        return Start(job, self._attempt[job] + 1, placement, waits)

    def _waits(self, ledger: Ledger, job: int, placement: Placement) -> tuple[int, ...]:
        """The jobs that have to let go of some of `placement`, and those inside their grants."""
        waits = ledger.waits(placement, ledger.holds[job][0])
        inner = [self._inner[parent] for parent in waits if parent in self._inner]
        if not inner:
            return waits
        return tuple(
            sorted({*waits, *(child for each in inner for child in each.waits(placement))})
        )

    def book(self, plan: Plan) -> dict[int, Placement]:
        """Make `plan` stand in the books, as drawn here or anew; returns what it freed.

        Raises InvariantError if the plan takes what is not free.
        """
        if not plan.actions and not self.steps:
            self._others.clear()
            return _NOTHING
        if self.made is plan:
            freed = self.freed
            if self._stops:
                self._forget_what_was_only_drawn()
        else:
            self.rollback()
            freed = self._book_anew(plan)
        self._ledger.settle()
        if self._inner:
            for ledger in self._inner.values():
                ledger.settle()
        self.clear()
        return freed

    def _book_anew(self, plan: Plan) -> dict[int, Placement]:
        freed: dict[int, Placement] = {}
        left: list[AnyAction] = []
        for action in plan.actions:
            if isinstance(action, Stop):
                freed[action.job] = self.stop(action.job)
                for child, held in self._with.pop(action.job, ()):
                    freed[child] = held
                    left.append(Stop(child, self._attempt[child], "parent"))
            elif isinstance(action, Resize):
                freed[action.job] = self._vacate(action.job, "preempted")
            elif isinstance(action, Suspend) and action.yields:
                self.suspend(action.job)
        for action in plan.actions:
            if isinstance(action, Start | Resize):
                self._take(action.job, action.placement)
            elif isinstance(action, Resume) and not self._resumes(action.job):
                raise InvariantError(f"{action} on a job whose compute is taken")
        plan.actions = left + plan.actions
        return freed

    def _forget_what_was_only_drawn(self) -> None:
        """Nobody has to let go of a place that it had in this draft only, or that it keeps."""
        vacated: dict[int, list[Placement]] = {}
        books: dict[int, Ledger] = {}
        for job, placement, gave, why, ledger in self.steps:
            if placement is None and gave is not None:
                vacated.setdefault(job, []).append(gave)
                books[job] = ledger
            elif placement is not None and why == _RESTORED:
                vacated[job].remove(placement)
        for job, places in vacated.items():
            if job in self.freed:
                places.remove(self.freed[job])
            for place in places:
                books[job].gone(job, place)

    def sleeps(self, job: int) -> bool:
        """Whether the job holds memory only at this point of the draft."""
        ledger = self.ledger_of(job)
        return ledger is not None and job in ledger.asleep

    def _resumes(self, job: int) -> bool:
        """Whether a suspended job can go on; one that kept its devices can."""
        return not self.sleeps(job) or self.resume(job)

    def refuse_other_changes(self) -> None:
        """Undo what changed the books by other ways than this draft, and raise InvariantError."""
        ledgers = [self._ledger, *self._inner.values()]
        if sum(ledger.mark() for ledger in ledgers) != len(self.steps):
            for ledger in ledgers:
                ledger.rollback(0)
            self.clear()
            raise InvariantError("a policy cannot write the books: draw a plan by view.draft")

    def clear(self) -> None:
        """Begin a new draft; what was drawn stands."""
        self.steps.clear()
        self._others.clear()
        if self._with:
            self._with.clear()
        if self._slept:
            self._slept.clear()
        self._stops = False
        self.made = None
        self.freed = _NOTHING
