"""Budget and deadline of a search, whatever its recipe: when one is reached, the search ends."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Any, Final

import msgspec

from ganger.core.plan import AskAt, Plan, Spawn, Start
from ganger.core.protocols import revived
from ganger.core.tuning.goals import Constraint, feasible
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.common.two_level import Search, wanted_by
from ganger.mechanisms.tuning.billing import Held, Rate, affordable, changed, rates_of
from ganger.mechanisms.tuning.trials import NEXT_REPORT, Mode, badness

HOUR: Final = 3600 * SECOND


@dataclass(frozen=True)
class Limits:
    """The most that a search may take. `deadline`: microseconds since it was submitted. `epochs`:
    of all its trials together. `gpu_hours`: what it holds, whether its trials use that or not.
    `money`: for these, at `prices` by GPU type, in money per GPU-hour; without any, at those of the
    cluster. `target`: a value of its metric with which it ends, if a trial reports it that keeps
    the `constraints`."""

    deadline: int = NEVER
    epochs: float = float(NEVER)
    gpu_hours: float = float(NEVER)
    money: float = float(NEVER)
    prices: tuple[tuple[str, float], ...] = ()
    target: float | None = None
    constraints: tuple[Constraint, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any."""
        budget = min(self.epochs, self.gpu_hours, self.money)
        return self.deadline < NEVER or budget < float(NEVER) or self.target is not None

    def hit(self, value: float, mode: Mode) -> bool:
        """Whether a trial that reports this has come to the target."""
        return self.target is not None and badness(value, mode) <= badness(self.target, mode)


def reached(
    limits: Limits,
    seconds: float,
    epochs: float,
    gpu_hours: float,
    cost: float | None,
    *,
    hit: bool,
) -> str:
    """Which limit a search that is over has come to, after so long since it was submitted: `the
    target` (`hit`), `the deadline`, `the budget of NAME`, or ""."""
    if hit:
        return "the target"
    if limits.deadline < NEVER and seconds >= limits.deadline / SECOND:
        return "the deadline"
    for name, used, limit in (
        ("epochs", epochs, limits.epochs),
        ("GPU-hours", gpu_hours, limits.gpu_hours),
        ("money", cost or 0.0, limits.money),
    ):
        if limit < float(NEVER) and used >= limit * (1 - 1e-9):
            return f"the budget of {name}"
    return ""


def _held(view: View, search: int) -> int:
    """The GPU-microseconds that a search has held, also while it was about to begin."""
    jobs = view.jobs
    since: int = view.now - int(jobs.held_since[search])
    return int(jobs.held[search]) + since * int(jobs.size[search])


class LimitedMemory(msgspec.Struct, frozen=True):
    """What the recipe keeps, what each trial has trained (only if epochs are limited), what had
    been paid by `at`, and whether a limit was reached."""

    inner: Any = None
    trained: dict[int, float] = {}
    paid: float = 0.0
    at: int = 0
    rate: float = 0.0
    """Money per microsecond since `at`."""
    held: tuple[Held, ...] = ()
    """Where GPUs are billed by more than the moment: since when which are held; `paid` is for those
    that were given back."""
    over: bool = False


def _masks(view: View) -> dict[int, int]:
    """Which GPUs of each node the search has."""
    masks = dict[int, int]()
    for slot in view.draft.holds(view.within) or ():
        masks[slot.node] = masks.get(slot.node, 0) | slot.devices
    return masks


@dataclass(frozen=True)
class Limited:
    """`inner`, until a limit is reached: then all trials end, and the search with them.

    Time and money are reached to the microsecond; where GPUs are billed by whole minutes or hours,
    the search ends before one begins that is too much. Epochs count once they are reported: the
    search ends with the report that reaches the limit, and what others have trained since their
    last one is not counted.
    """

    inner: Search
    limits: Limits

    @property
    def name(self) -> str:
        """The recipe's."""
        return self.inner.name

    @property
    def orders(self) -> tuple[type, ...]:
        """The actions beside starts and stops that it uses."""
        return (Spawn,)

    def decide(self, view: View, memory: LimitedMemory | None) -> tuple[Plan, LimitedMemory]:
        """The plan of `inner`, or the end of all trials."""
        before = memory or LimitedMemory()
        inner = revived(before.inner, self.inner.decide)
        paid = before.paid + before.rate * (view.now - before.at)
        trained = self._trained(view, before.trained)
        unused = self.limits.epochs - sum(trained.values())
        wake, rate = self._end(view, paid)
        held = before.held
        if rates := self._coarse(view):
            held, gone = changed(held, _masks(view), rates, view.now)
            paid, rate = before.paid + gone, 0.0
            wake = min(wake, affordable(held, rates, self.limits.money - paid, view.now))
        if wake <= view.now or unused <= 0 or self._hits(view):
            self._stop(view)
            now = view.now
            return view.draft.plan(), LimitedMemory(
                inner, trained, paid, now, rate, held, over=True
            )
        plan, inner = self.inner.decide(view, inner)
        if self._counts:
            self._ask(view, trained, unused)
        plan = view.draft.plan(plan.reasons, min(plan.wake, wake), plan.until)
        return plan, LimitedMemory(inner, trained, paid, view.now, rate, held)

    def over(self, view: View, memory: LimitedMemory) -> bool:
        """Whether a limit was reached, or the recipe has come to its end."""
        return memory.over or self.inner.over(view, memory.inner)

    def wants(self, view: View, memory: LimitedMemory) -> int | None:
        """As many GPUs as the recipe wants."""
        return wanted_by(self.inner, view, memory.inner)

    def _end(self, view: View, paid: float) -> tuple[int, float]:
        """When time, GPU-hours or money will be used up at the present rate, and what a microsecond
        costs."""
        limits, search, end = self.limits, view.within, NEVER
        if limits.deadline < NEVER:
            end = int(view.jobs.submitted[search]) + limits.deadline
        gpus = int(view.at.size[search])
        if limits.gpu_hours < NEVER:
            unused = limits.gpu_hours * HOUR - _held(view, search)
            end = min(end, view.now + max(int(unused / gpus), 0))
        rate = 0.0
        if limits.money < NEVER and not self._coarse(view):
            rate = self._rate(view, search)
            if rate > 0.0:
                end = min(end, view.now + max(int((limits.money - paid) / rate), 0))
        return end, rate

    def _rate(self, view: View, search: int) -> float:
        """Money per microsecond for what the search holds."""
        nodes = view.nodes
        prices = dict(self.limits.prices) or {kind.name: kind.price for kind in nodes.type_specs}
        placement = view.draft.holds(search) or ()
        return sum(
            slot.devices.bit_count() * prices.get(nodes.types[nodes.gpu_type[slot.node]], 0.0)
            for slot in placement
        ) / float(HOUR)

    def _coarse(self, view: View) -> list[Rate]:
        """What a GPU of each node costs, where money is limited and some are billed by more than
        the moment; else none."""
        if self.limits.money >= NEVER:
            return []
        nodes = view.nodes
        rates = rates_of(nodes.type_specs, dict(self.limits.prices))
        if not any(rate.coarse for rate in rates):
            return []
        return [rates[code] for code in nodes.gpu_type[: nodes.n].tolist()]

    @property
    def _counts(self) -> bool:
        """Whether it matters what trials report between the epochs at which the recipe asks."""
        return self.limits.epochs < NEVER or self.limits.target is not None

    def _hits(self, view: View) -> bool:
        """Whether a trial has reported the target since the last decision."""
        if self.limits.target is None:
            return False
        mode: Mode = getattr(self.inner, "mode", Mode.MIN)
        curves = (view.trials.get(job) for job in {*view.active.tolist(), *view.changed})
        constraints = self.limits.constraints
        return any(
            self.limits.hit(curve.values[-1], mode)
            and (not constraints or feasible(constraints, curve.last_metrics()))
            for curve in curves
            if curve and curve.values
        )

    def _trained(self, view: View, before: dict[int, float]) -> dict[int, float]:
        """By trial the most epochs that it has reported."""
        if not self._counts:
            return before
        trained = dict(before)
        for job in {*view.active.tolist(), *view.changed}:  # not every report is a change
            curve = view.trials.get(job)
            if curve is not None and curve.last > trained.get(job, 0.0):
                trained[job] = curve.last
        return trained

    def _ask(self, view: View, trained: dict[int, float], unused: float) -> None:
        """Be asked before the trials that run, or are about to, may have trained for what is
        left."""
        within, asks = view.at.within, view.at.asks_at
        drawn: dict[int, float] = {}
        for action in view.draft.plan().actions:
            if isinstance(action, Start | AskAt) and within[action.job] == view.within:
                drawn.setdefault(action.job, asks[action.job])
                if isinstance(action, AskAt):
                    drawn[action.job] = action.epoch
        jobs = {*view.active.tolist(), *drawn}
        each = unused / max(len(jobs) + view.spawning.get(view.within, 0), 1)
        if self.limits.target is not None:
            each = 0.0  # every report may be the one
        for job in sorted(jobs):
            past = trained.get(job, 0.0)
            latest = past + max(each, NEXT_REPORT)
            if drawn.get(job, asks[job]) > latest:
                view.draft.act(AskAt(job, floor(latest) if floor(latest) > past else latest))

    def _stop(self, view: View) -> None:
        """End all trials that run and are not about to end. The others go with the search."""
        for job in view.active.tolist():
            if view.draft.holds(job) is not None:
                view.draft.retire(job)
