"""What belongs to Singularity alone: tiers that are promised a part of their GPUs, and which jobs
are spliced onto fewer of them for which others (Shukla et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ganger.core.books.ledger import Fit
from ganger.core.plan import Plan
from ganger.core.protocols import Policy, revived
from ganger.core.spec import Locality, OnPreempt
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.estimate.sharing.splicing import even_sizes
from ganger.mechanisms.common.holdings_delta import HoldingsDelta
from ganger.mechanisms.placement.place import sensitive_model
from ganger.mechanisms.sizing.elastic import Elastic, Market, Rule
from ganger.mechanisms.sizing.marginal_gain import Floats, Ints
from ganger.mechanisms.sizing.resizing import asked, held, left_over

_RUNNING = int(Phase.RUNNING)


def by_promise(premium: float, standard: float, level: int) -> Rule:
    """Sizes at which all GPUs of a job have as many of its workers. In this order:

    1. Jobs that lack more than a `level` (microseconds of all their GPUs) of what they were
       promised get all they ask for, or as many as fit.
    2. Jobs that were promised something and have no slack get their least, then all others that
       run, and then both grow up to what they ask for. So those with slack are spliced first.
    3. Those that wait get what is left, first come, first served, and small ones pass.

    Jobs of a higher tier go first each time, of these those that lack most, in whole levels.
    """

    def rule(view: View, market: Market) -> Ints:
        wants = asked(view, market)
        if market.has_room(wants):
            return wants
        tier = np.sign(view.jobs.priority[market.ids].astype(np.int64))
        promised = np.array([standard, premium, 0.0])[tier]
        lacks = slack(view, market.ids, promised)
        levels, promised_any = np.floor(lacks / level), tier >= 0
        urgent, claims = promised_any & (levels < -1), promised_any & (lacks <= 0)
        kept = claims | (held(view, market) > 0)
        order = np.lexsort((market.ids, levels, -tier))
        sizes, floors = np.zeros_like(wants), _floors(wants, market.least)
        _pour(sizes, order[urgent[order]], (floors, wants), market)
        keep = [order[claims[order]], order[(kept & ~claims)[order]]]
        for some in keep:
            _pour(sizes, some, (floors, floors), market)
        for some in keep:
            _pour(sizes, some[sizes[some] > 0], (floors, wants), market)
        waits = np.lexsort((market.ids, -tier))
        _pour(sizes, waits[~kept[waits]], (floors, wants), market)
        return sizes

    return rule


def slack(view: View, ids: Ids, promised: Floats) -> Floats:
    """Microseconds for which each has had all the GPUs that it asked for, beyond the `promised`
    part of the time since it was submitted; below 0: it lacks so much."""
    jobs = view.jobs
    had = view.attained(ids) / np.maximum(jobs.gpus[ids], 1)
    beyond: Floats = had - promised * (view.now - jobs.submitted[ids])
    return beyond


@dataclass(frozen=True)
class Spliced(Elastic):
    """An elastic allocator whose rule gives all that is asked for where there is room."""

    def lasts(self, view: View, ids: Ids) -> int:
        """For ever, if all of these have what they ask for."""
        jobs = view.jobs
        whole = (jobs.size[ids] == jobs.gpus[ids]).all()
        return NEVER if whole else view.now


@lru_cache(maxsize=65536)
def _even(wants: int, least: int) -> tuple[int, ...]:
    return even_sizes(wants, least)


def _floors(wants: Ints, least: Ints) -> Ints:
    """The fewest steps of each at which all its GPUs have as many workers."""
    pairs, same = np.unique(np.stack([wants, least]), axis=1, return_inverse=True)
    least_even = [_even(want, low)[0] if want else 0 for want, low in pairs.T.tolist()]
    return np.array(least_even, wants.dtype)[same.ravel()]


def _pour(sizes: Ints, order: Ints, between: tuple[Ints, Ints], market: Market) -> None:
    """Bring those of `order`, one after another, to the most that is left for them, at or above the
    first of `between` and up to the second; a job that would stay below it stays as it is."""
    floors, wants = between
    units, spare = market.units, left_over(market, sizes)
    while spare > 0 and len(order):
        least = np.maximum(floors[order] - sizes[order], 0) * units[order]
        order = order[(least <= spare) & (sizes[order] < wants[order])]
        more = ((wants[order] - sizes[order]) * units[order]).cumsum()
        whole = int(more.searchsorted(spare, side="right"))
        sizes[order[:whole]] = wants[order[:whole]]
        spare -= int(more[whole - 1]) if whole else 0
        for job in order[whole : whole + 1].tolist():
            room = int(sizes[job]) + spare // int(units[job])
            fit = [size for size in _even(int(wants[job]), int(floors[job])) if size <= room]
            if fit and fit[-1] > sizes[job]:
                spare -= (fit[-1] - int(sizes[job])) * int(units[job])
                sizes[job] = fit[-1]
        order = order[whole + 1 :]


class _Spread:
    """The jobs whose GPUs are on more than one node: a cache."""

    def __init__(self) -> None:
        self.jobs = set[int]()
        self._delta = HoldingsDelta()

    def look(self, view: View) -> list[int]:
        """Catch up with the books; the jobs, ascending."""
        gone, come = self._delta.changes(view.ledger)
        self.jobs.difference_update(gone)
        self.jobs |= {job for job, placement in come if len({slot.node for slot in placement}) > 1}
        return sorted(self.jobs)


@dataclass(frozen=True)
class Gathering:
    """Another policy, and where that changes nothing: running jobs that are slower for being on
    several nodes each move to one that has room."""

    inner: Policy

    @property
    def name(self) -> str:
        """The inner policy's."""
        return self.inner.name

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """The inner plan, or a move."""
        plan, memory = self.inner.decide(view, revived(memory, self.inner.decide))
        if not plan.actions and self._gather(view):
            plan = view.draft.plan(plan.reasons, plan.wake, plan.until)
        return plan, memory

    def _gather(self, view: View) -> bool:
        """Draw the moves, the first job first; whether there are any."""
        at, ledger, mark = view.at, view.ledger, view.draft.mark()
        for job in view.cached(_Spread).look(view):
            runs = at.phase[job] == _RUNNING and at.on_preempt[job] == OnPreempt.CHECKPOINT
            if not runs or not sensitive_model(view, job):
                continue
            shape = view.draft.shape(job)
            place = ledger.find(shape, shape.sizes(int(at.size[job])), Fit.BEST, Locality.NODE)
            if place is not None:
                view.draft.resize(job, place)
        return view.draft.mark() > mark
