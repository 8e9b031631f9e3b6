"""Jobs are let in by payoff, have what they bought slot by slot, and what is left over goes to the
others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.books.ledger import Cell
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Plan, Reason
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_speed
from ganger.mechanisms.common.reconcile import Want, competitors, least_of, towards
from ganger.mechanisms.market.prices import Choice, Offer, Prices, competitive

Floats = NDArray[np.float64]
Utility = Callable[[View, int, Floats], Floats]
"""Of a job that is done so many microseconds after its submission."""
UNITS = 48
"""Into so many units a job's work is cut at least."""
SIZES = 6
"""So many sizes of a job are looked at: from its least to its most, in equal ratios."""
SPREAD = math.e
"""The most that a GPU in a slot is worth is at least so many times the least."""


class Bought(msgspec.Struct, frozen=True):
    """What a job has bought: in which slots how many GPUs of which type."""

    slots: list[tuple[int, str, int]]

    @property
    def last(self) -> int:
        """Its last slot."""
        return self.slots[-1][0]


class Books(msgspec.Struct):
    """What the market remembers: what jobs bought that are not over; those that asked; the least
    and the most utility of a GPU in a slot that was seen."""

    bought: dict[int, Bought] = {}
    asked: set[int] = set()
    low: float = 0.0
    high: float = 0.0

    def range(self) -> tuple[float, float]:
        """The least and the most that a GPU in a slot is taken to be worth."""
        return self.low, max(self.high, SPREAD * self.low)


@dataclass(frozen=True)
class MarketPolicy:
    """At whole multiples of `slot` (microseconds) each job that came is offered its best plan
    within `horizon` slots, once; it is let in if that pays. Others have what is left over, first
    come, first served; so have those that need longer than they bought, before them."""

    name: str
    utility: Utility
    slot: int
    horizon: int

    def decide(self, view: View, memory: Books | None) -> tuple[Plan, Books]:
        """Offer, then give everybody what is bought for this slot."""
        books = memory or Books()
        jobs = competitors(view)
        competing = set(jobs.tolist())
        books.bought = {job: purchase for job, purchase in books.bought.items() if job in competing}
        books.asked &= competing
        due = -(-view.now // self.slot)
        if due * self.slot == view.now:
            self._admit(view, books, [job for job in jobs.tolist() if job not in books.asked], due)
        self._give(view, books, view.now // self.slot, jobs.tolist())
        wake = (view.now // self.slot + 1) * self.slot
        until = CAPACITY_FREED | CAPACITY_LOST | QUEUED | COMMANDED | WOKE
        numbers = {"let_in_jobs": float(len(books.bought))}
        if books.low:
            numbers["competitive_bound"] = competitive(*books.range())
        reasons = [Reason("Resources", "MarketPolicy", evidence=numbers, until=until)]
        return view.draft.plan(reasons if len(view.pending) else [], wake, until), books

    # ------------------------------------------------------------------ letting in

    def _admit(self, view: View, books: Books, new: list[int], due: int) -> None:
        if not new:
            return
        cells = [cell for cell in view.ledger.cells if cell.total]
        types = sorted({cell.gpu_type for cell in cells})
        total = dict.fromkeys(types, 0.0)
        for cell in cells:
            total[cell.gpu_type] += cell.total
        used = np.zeros((len(types), self.horizon))
        for purchase in books.bought.values():
            for slot, kind, gpus in purchase.slots:
                if 0 <= slot - due < self.horizon and kind in total:
                    used[types.index(kind), slot - due] += gpus
        capacity = np.array([total[kind] for kind in types])
        for job in new:
            books.asked.add(job)
            choices, work = self._choices(view, job, types)
            if not choices:
                continue
            ends = (due + np.arange(1, self.horizon + 1)) * self.slot
            worth = self.utility(view, job, np.asarray(ends - view.jobs.submitted[job], np.float64))
            self._see(books, choices, work, worth)
            if not books.low:
                continue
            prices = Prices(capacity, used, *books.range())
            offer = prices.offer(choices, work, worth)
            if offer.plan:
                prices.take(offer)
                books.bought[job] = _bought(offer, types, due)

    def _see(self, books: Books, choices: list[Choice], work: int, worth: Floats) -> None:
        """Learn what a GPU in a slot may be worth."""
        each = [math.ceil(work / choice.gain) * choice.gpus for choice in choices]
        best, least = float(worth.max()), float(worth.min())
        if best <= 0.0:
            return
        high, low = best / max(min(each), 1), max(least, 1e-3 * best) / max(*each, 1) / 2.0
        books.high = max(books.high, high)
        books.low = min(books.low or low, low)

    def _choices(self, view: View, job: int, types: list[str]) -> tuple[list[Choice], int]:
        """What the job may hold in a slot, and its work, in units; none where its length is not
        known or beyond the horizon."""
        remaining = float(np.nan_to_num(view.remaining(np.array([job])), nan=np.inf)[0])
        shape = view.draft.shape(job)
        if not shape.gpus or not remaining < np.inf:
            return [], 0
        options = list[tuple[int, int, float]]()
        for cell in _by_type(view.ledger.cells_for(shape)):
            for gpus in sizes(shape.least, min(shape.most, cell.total)):
                nodes = -(-gpus // max(cell.widest, 1))
                at = (np.array([job]), cell.gpu_type, np.array([gpus]), np.array([nodes]))
                speed = float(believed_speed(view, *at)[0])
                if speed > 0.0:
                    options.append((types.index(cell.gpu_type), gpus, speed))
        if not options:
            return [], 0
        remaining = max(remaining, 1.0)
        slowest = min(speed for *_, speed in options) * self.slot
        units = max(UNITS, math.ceil(remaining / slowest))
        if units > UNITS * self.horizon:
            return [], 0
        unit = remaining / units
        gains = [
            (kind, gpus, int(speed * self.slot / unit * (1 + 1e-9)))
            for kind, gpus, speed in options
        ]
        return [Choice(kind, gpus, gain) for kind, gpus, gain in gains if gain], units

    # ------------------------------------------------------------------ giving

    def _give(self, view: View, books: Books, now: int, jobs: list[int]) -> None:
        """Jobs that bought something for this slot have it; then those that should be done and are
        not, then the others in order of arrival."""
        has, late, rest = list[Want](), list[Want](), list[Want]()
        for job in jobs:
            purchase = books.bought.get(job)
            gpus = int(view.jobs.gpus[job])
            if purchase is not None and purchase.last >= now:
                holds = [each for each in purchase.slots if each[0] == now]
                has += [Want(job, many, kind, many) for _, kind, many in holds]
                if not gpus:
                    rest.append(Want(job, 0))
            else:
                own = Want(job, gpus, "", least_of(view, job, gpus) if gpus else 0)
                (late if purchase is not None else rest).append(own)
        free_gpus = view.ledger.total - sum(want.gpus for want in has)
        for want in [*late, *rest]:  # of these only as many as leave room for what was bought
            if want.gpus <= free_gpus:
                free_gpus -= want.gpus
                has.append(want)
        towards(view, has)


def _bought(offer: Offer, types: list[str], due: int) -> Bought:
    return Bought([(due + slot, types[each.kind], each.gpus) for slot, each in offer.plan])


def _by_type(cells: list[Cell]) -> list[Cell]:
    """Of each GPU type the cell with the widest node."""
    best = dict[str, Cell]()
    for cell in cells:
        if cell.total and cell.widest > (
            best[cell.gpu_type].widest if cell.gpu_type in best else 0
        ):
            best[cell.gpu_type] = cell
    return list(best.values())


def sizes(least: int, largest: int) -> list[int]:
    """Some sizes from `least` to `largest`, both included, in equal ratios; none if there are
    none between."""
    if largest < least or least < 1:
        return []
    ratio = (largest / least) ** (1.0 / (SIZES - 1))
    return sorted({min(round(least * ratio**at), largest) for at in range(SIZES)})
