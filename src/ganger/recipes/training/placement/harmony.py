"""Harmony's placement: each job where the predicted sum of the speeds of all jobs falls least
(Bao et al., INFOCOM 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ganger.core.books.ledger import Cell, Ledger
from ganger.core.plan import Placement
from ganger.core.spec import Locality
from ganger.core.view import View
from ganger.mechanisms.common.holdings_delta import HoldingsDelta
from ganger.mechanisms.placement.disturbance import anybody_disturbs
from ganger.mechanisms.placement.place import Place, on_nodes

_EPSILON = 1e-9
Counts = tuple[tuple[int, int], ...]
"""(node, GPUs), ascending."""


class _Harm(NamedTuple):
    """What a job of some model on a node means: the `part` that those there leave of its speed,
    and how much they lose, in jobs' speeds alone (`loss`)."""

    part: float
    loss: float


class Residents:
    """Which jobs are on which node, and how fast beside all neighbours: a cache of sums that
    follows the books, so that a decision touches what changed."""

    def __init__(self) -> None:
        self._delta = HoldingsDelta()
        self._on: dict[int, dict[int, None]] = {}
        self._nodes: dict[int, tuple[int, ...]] = {}
        self._speeds: dict[int, float] = {}
        self._harms: dict[int, dict[int, _Harm]] = {}

    def look(self, ledger: Ledger) -> None:
        """Catch up with the books."""
        gone, come = self._delta.changes(ledger)
        touched = set[int]()
        for job in gone:
            for node in self._nodes.pop(job, ()):
                del self._on[node][job]
                touched.add(node)
        for job, placement in come:
            self._nodes[job] = nodes = tuple(sorted({slot.node for slot in placement}))
            for node in nodes:
                self._on.setdefault(node, {})[job] = None
                touched.add(node)
            self._speeds.pop(job, None)
        for node in touched:
            self._harms.pop(node, None)
            for job in self._on.get(node, ()):
                self._speeds.pop(job, None)
                for other in self._nodes[job]:
                    self._harms.pop(other, None)

    def harm(self, view: View, model: int, node: int) -> _Harm:
        """What a job of this model on this node means."""
        if not self._on.get(node):
            return _Harm(1.0, 0.0)
        known = self._harms.setdefault(node, {})
        if model not in known:
            known[model] = self.harm_on(view, model, (node,))
        return known[model]

    def harm_on(self, view: View, model: int, nodes: Iterable[int]) -> _Harm:
        """The same of several nodes: a job that is on more than one of them counts once."""
        part, loss = 1.0, 0.0
        for other in self._near(nodes):
            theirs = view.at.model[other]
            part /= _slowdown(view, model, theirs)
            loss += self._speed(view, other) * (1.0 - 1.0 / _slowdown(view, theirs, model))
        return _Harm(part, loss)

    def _near(self, nodes: Iterable[int]) -> list[int]:
        """The jobs on these nodes, ascending: sums do not depend on which came first."""
        return sorted({job for node in nodes for job in self._on.get(node, ())})

    def _speed(self, view: View, job: int) -> float:
        """What its neighbours leave of the speed of a job."""
        if job not in self._speeds:
            own, near = view.at.model[job], self._near(self._nodes[job])
            self._speeds[job] = 1.0 / math.prod(
                _slowdown(view, own, view.at.model[other]) for other in near if other != job
            )
        return self._speeds[job]


def _slowdown(view: View, model: int, other: int) -> float:
    """The factor by which a job of model `other` makes steps of one of `model` longer."""
    models = view.jobs.models
    return view.oracle.profile(models[model]).disturbed.get(models[other], 1.0)


@dataclass(frozen=True, kw_only=True)
class ByReward(Place):
    """The place after which the sum over all jobs of speed over speed alone is largest, by what is
    known of how models disturb each other on a node.

    A gang goes whole to the best node with room for it, or is spread over nodes, one after another
    where the sum falls least, if that is better. Among places as good, the fullest node that holds
    the gang. Where nobody disturbs anybody, and for jobs that ask for more than whole GPUs, by best
    fit.
    """

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """The best of the candidates."""
        likely, shape = super().find(view, ledger, job, cells, gpus), view.draft.shape(job)
        simple = shape.is_plain and shape.gpus and shape.locality > Locality.ISLAND
        if likely is None or not simple or not anybody_disturbs(view):
            return likely
        near = view.cached(Residents) if ledger is view.ledger else Residents()
        near.look(ledger)
        need = gpus or shape.gpus
        best, chosen = -math.inf, None
        for cell in ledger.cells_for(shape) if cells is None else cells:
            for counts in self._candidates(view, ledger, near, job, cell, need):
                reward = self._reward(view, ledger, near, job, counts)
                if reward > best + _EPSILON:
                    best, chosen = reward, counts
        return likely if chosen is None else on_nodes(ledger, chosen)

    def _candidates(
        self, view: View, ledger: Ledger, near: Residents, job: int, cell: Cell, need: int
    ) -> Iterator[Counts]:
        """In a cell: the node where a whole gang does best, and over nodes of each rack, or of any,
        one after another."""
        within, model = view.draft.shape(job).locality, view.at.model[job]
        free = ledger.free_count
        open_nodes = [node for node in cell.nodes if ledger.up[node] and free[node]]
        harms = {node: near.harm(view, model, node) for node in open_nodes}
        whole = [node for node in open_nodes if free[node] >= need]
        if whole:
            node = min(
                whole,
                key=lambda each: (
                    round(harms[each].loss - harms[each].part, 9),
                    free[each],
                    each,
                ),
            )
            yield ((node, need),)
        if need < 2 or within <= Locality.NODE:
            return
        groups: dict[int, list[int]] = {}
        for node in open_nodes:
            groups.setdefault(ledger.rack[node] if within == Locality.RACK else 0, []).append(node)
        for nodes in groups.values():
            spread = _one_by_one(nodes, free, harms, need)
            if len(spread) > 1:
                yield spread

    def _reward(
        self, view: View, ledger: Ledger, near: Residents, job: int, counts: Counts
    ) -> float:
        """The speed of the job there over that alone on one node, less what others lose."""
        nodes = [node for node, _ in counts]
        model, gpus = view.at.model[job], sum(each for _, each in counts)
        harm = near.harm_on(view, model, nodes)
        profile = view.oracle.profile(view.jobs.models[model])
        tier = Locality.NODE
        if len(nodes) > 1:
            one_rack = len({ledger.rack[node] for node in nodes}) == 1
            tier = Locality.RACK if one_rack else Locality.ANY
        spread = profile.slowdown(tier, gpus) / profile.slowdown(Locality.NODE, gpus)
        return harm.part / spread - harm.loss


def _one_by_one(nodes: list[int], free: list[int], harms: dict[int, _Harm], need: int) -> Counts:
    """Worker by worker to the node where the sum of speeds falls least, which is the same one until
    it is full; () where all of them have too little room."""
    if sum(free[node] for node in nodes) < need:
        return ()
    part, taken = 1.0, dict[int, int]()
    unused = set(nodes)
    while need:
        node = min(
            unused,
            key=lambda each: (
                round(harms[each].loss - part * harms[each].part, 9),
                -free[each],
                each,
            ),
        )
        unused.remove(node)
        part *= harms[node].part
        taken[node] = min(free[node], need)
        need -= taken[node]
    return tuple(sorted(taken.items()))
