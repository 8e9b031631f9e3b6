"""Placement by utility: close together, away from jobs that disturb, and without leaving crumbs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

from ganger.core.books.empty import EmptyCluster
from ganger.core.books.ledger import Cell, Ledger, members, pick_devices
from ganger.core.plan import Placement, Slot
from ganger.core.spec import Locality
from ganger.core.view import View
from ganger.mechanisms.placement.disturbance import anybody_disturbs
from ganger.mechanisms.placement.place import Place

_HIGHEST = 3.0
"""The sum of the three costs where all are at their best."""


@dataclass(frozen=True, kw_only=True)
class ByUtility(Place):
    """The place of the highest utility (Amaral et al., SC 2017).

    Utility = 3 / (communication + interference + fragmentation), in (0, 1]. Communication: the mean
    distance between pairs of GPUs over the least that the empty cluster offers; `distances` in one
    island, across a node, a rack, the cluster. Interference: the mean of the factors by which
    neighbours on the node slow the job and it slows them.
    Fragmentation: one more than the mean share of GPUs left free in the islands that it touches. A
    job waits while its best utility is below `threshold`. Jobs that ask for more than whole GPUs
    are placed by best fit.
    """

    by_room: ClassVar[bool] = False

    threshold: float
    distances: ClassVar[tuple[float, float, float, float]] = (1.0, 20.0, 40.0, 80.0)

    def kind(self, view: View, job: int) -> int:
        """Models are disturbed differently."""
        return view.at.model[job] & 31 if self.threshold else 0

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """The best of the candidates, if it is good enough."""
        shape = view.draft.shape(job)
        if not shape.is_plain or not shape.gpus:
            return super().find(view, ledger, job, cells, gpus)
        need = gpus or shape.gpus
        cells = ledger.cells_for(shape) if cells is None else cells
        least = self._least(view, job, need)
        best, found = self.threshold, None
        for placement in self._candidates(view, ledger, job, cells, need):
            utility = self.utility(view, ledger, job, placement, least)
            if utility > best + 1e-9 or (found is None and utility >= best):
                best, found = utility, placement
        return found

    def utility(
        self, view: View, ledger: Ledger, job: int, placement: Placement, least: float
    ) -> float:
        """Of `placement`, which is free, where no place has GPUs closer together than `least`."""
        costs = (
            max(self._distance(ledger, placement), 1e-9) / max(least, 1e-9),
            _interference(view, ledger, job, placement),
            1.0 + _left_free(ledger, placement),
        )
        return _HIGHEST / sum(costs)

    def _candidates(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell], need: int
    ) -> Iterator[Placement]:
        """Per cell: on every kind of node that has room, then over the fewest nodes of a rack, and
        of the cell."""
        shape = view.draft.shape(job)
        for cell in cells:
            seen: set[tuple[int, int, tuple[int, ...]]] = set()
            for node in cell.nodes if need <= cell.widest else ():
                free, island = ledger.free_mask[node], ledger.island[node]
                if ledger.up[node] and free.bit_count() >= need:
                    kind = free, island, _neighbours(view, ledger, node)
                    if kind not in seen:
                        seen.add(kind)
                        devices = _closest(free, ledger.full[node], need, island)
                        if shape.locality > Locality.ISLAND or _islands(devices, island) == 1:
                            yield (Slot(node, devices, need),)
            if need <= cell.free:
                for within in (Locality.RACK, Locality.ANY):
                    if shape.locality < within:
                        break
                    found = ledger.find(shape, shape.sizes(need), self.fit, within, cells=[cell])
                    if found is not None and len(found) > 1:
                        yield found

    def _distance(self, ledger: Ledger, placement: Placement) -> float:
        """The mean distance between two GPUs of `placement`; that within an island for one."""
        places = [
            (ledger.rack[slot.node], slot.node, device // (ledger.island[slot.node] or 64))
            for slot in placement
            for device in members(slot.devices)
        ]
        near, node, rack, far = self.distances
        apart = [
            near if one == two else node if one[1] == two[1] else rack if one[0] == two[0] else far
            for one, two in combinations(places, 2)
        ]
        return sum(apart) / len(apart) if apart else near

    def _least(self, view: View, job: int, need: int) -> float:
        """The least mean distance that the empty cluster offers."""
        known, key = view.cached(_LeastDistances).found, (view.at.shape[job], need)
        if key not in known:
            empty = view.cached(EmptyCluster, view.nodes).ledger
            cells = empty.cells_for(view.draft.shape(job))
            found = self._candidates(view, empty, job, cells, need)
            known[key] = min((self._distance(empty, each) for each in found), default=1.0)
        return known[key]


class _LeastDistances:
    """By shape and GPUs: the least mean distance that the empty cluster offers."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[tuple[int, int], float] = {}


def _closest(free: int, full: int, need: int, island: int) -> int:
    """`need` of the devices `free`: in one island if one has room, the fullest such; else as many
    islands as it takes, the emptiest first."""
    devices = pick_devices(free, need, island)
    if not island or _islands(devices, island) == 1:
        return devices
    window, chosen = (1 << island) - 1, 0
    parts = [free & (window << shift) for shift in range(0, full.bit_length(), island)]
    for part in sorted(parts, key=lambda part: (-part.bit_count(), part)):
        taken = pick_devices(part, min(need, part.bit_count()), 0)
        chosen |= taken
        need -= taken.bit_count()
    return chosen


def _islands(devices: int, island: int) -> int:
    return len({device // (island or 64) for device in members(devices)})


def _neighbours(view: View, ledger: Ledger, node: int) -> tuple[int, ...]:
    """The models that run on `node`, where any model is known to disturb another."""
    if not anybody_disturbs(view):
        return ()
    return tuple(sorted(view.at.model[job] for job in _on(ledger, node)))


def _on(ledger: Ledger, node: int) -> list[int]:
    holds = sorted(ledger.holds.items())  # factors are multiplied in one order whatever came first
    return [job for job, (_, held) in holds if any(slot.node == node for slot in held)]


def _interference(view: View, ledger: Ledger, job: int, placement: Placement) -> float:
    """The mean of the factors on the job and on every neighbour, 1 where there is none."""
    models, own = view.jobs.models, view.jobs.models[view.at.model[job]]
    mine, factors = 1.0, list[float]()
    if not anybody_disturbs(view):
        return 1.0
    for node in sorted({slot.node for slot in placement}):
        for other in _on(ledger, node):
            theirs = models[view.at.model[other]]
            mine *= view.oracle.profile(own).disturbed.get(theirs, 1.0)
            factors.append(view.oracle.profile(theirs).disturbed.get(own, 1.0))
    return (mine + sum(factors)) / (1 + len(factors))


def _left_free(ledger: Ledger, placement: Placement) -> float:
    """The mean share of free GPUs that would stay in the islands touched."""
    shares: list[float] = []
    for slot in placement:
        island = ledger.island[slot.node] or ledger.full[slot.node].bit_length()
        window = (1 << island) - 1
        for shift in range(0, ledger.full[slot.node].bit_length(), island):
            here = ledger.full[slot.node] & (window << shift)
            if slot.devices & here:
                left = ledger.free_mask[slot.node] & here & ~slot.devices
                shares.append(left.bit_count() / here.bit_count())
    return sum(shares) / len(shares)
