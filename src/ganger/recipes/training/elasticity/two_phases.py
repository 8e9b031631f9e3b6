"""Aryl's allocation in two phases, and where flexible workers go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ganger.core.books.ledger import Cell, Ledger
from ganger.core.plan import Placement
from ganger.core.spec import Locality, OnPreempt
from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.mechanisms.common.reconcile import Sizes
from ganger.mechanisms.placement.place import Place
from ganger.mechanisms.sizing.elastic import Elastic, Market
from ganger.mechanisms.sizing.marginal_gain import Curves, Ints, exact, first_fit

_NEVER = int(OnPreempt.NEVER)


def two_phases(view: View, market: Market) -> Ints:
    """First the least that each job needs: those that run keep it, then those that wait, the
    shortest first; one that does not fit is passed. Then what is left: to each of these jobs as
    many steps more as take most off their completion times together, by a multiple-choice knapsack,
    exactly."""
    curves, base = market.curves, market.least
    alone = market.work / curves.at(base)
    waits = view.jobs.size[market.ids] == 0
    order = np.lexsort((market.ids, alone, waits))
    sizes = np.zeros(len(base), np.int64)
    fits = first_fit((base * market.units)[order], market.capacity)
    sizes[order[fits]] = base[order[fits]]
    elastic = np.flatnonzero((sizes > 0) & (market.most > base))
    spare = market.capacity - int(sizes @ market.units)
    if not len(elastic) or spare <= 0:
        return sizes
    times = market.work[elastic, None] / curves.speed[elastic]
    saved = Curves(
        times[np.arange(len(elastic)), base[elastic] - 1][:, None] - times,
        base[elastic],
        market.most[elastic],
        market.units[elastic],
    )
    room = spare + int((base * market.units)[elastic].sum())
    sizes[elastic] = exact(saved, room)[0]
    return sizes


@dataclass(frozen=True)
class Decreasing:
    """The sizes of another allocator, the largest first: best fit decreasing."""

    inner: Elastic

    def sizes(self, view: View, ids: Ids) -> Sizes:
        """Its sizes, in that order; of equals the first to come."""
        sizes = self.inner.sizes(view, ids)
        order = np.lexsort((sizes.ids, -sizes.gpus))
        return Sizes(sizes.ids[order], sizes.gpus[order])


@dataclass(frozen=True, slots=True)
class BesideLoans(Place):
    """By best fit, what a job needs at least on nodes that are not on loan, and what it has beyond
    that on those that are; anywhere, where there is no such room. A job that must not be preempted
    is never on loan."""

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """The place, at `gpus` GPUs or at those asked for."""
        lent = [node for node in view.lent if ledger.up[node]]
        if not lent:
            return Place.find(self, view, ledger, job, cells, gpus)
        shape = view.draft.shape(job)
        wanted = gpus or shape.gpus
        least = min(shape.least, wanted)
        pinned = view.at.on_preempt[job] == _NEVER
        with ledger.hidden(lent):
            own = Place.find(self, view, ledger, job, cells, wanted if pinned else least)
        if pinned or (own is not None and wanted == least):
            return own
        if own is not None and len(shape.roles) == 1 and shape.locality is Locality.ANY:
            more = self._on_loan(view, ledger, job, cells, own, wanted - least)
            if more is not None:
                return own + more
        return Place.find(self, view, ledger, job, cells, gpus)

    def _on_loan(
        self,
        view: View,
        ledger: Ledger,
        job: int,
        cells: list[Cell] | None,
        own: Placement,
        gpus: int,
    ) -> Placement | None:
        """Where `gpus` GPUs are on loan, of the type that the job has as its `own`."""
        kind = ledger.cell_of[own[0].node].gpu_type
        allowed = ledger.cells_for(view.draft.shape(job)) if cells is None else cells
        allowed = [cell for cell in allowed if cell.gpu_type == kind]
        others = [node for node in range(view.nodes.n) if node not in view.lent]
        with ledger.hidden(others):
            return Place.find(self, view, ledger, job, allowed, gpus)
