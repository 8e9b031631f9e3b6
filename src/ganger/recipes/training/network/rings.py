"""What belongs to GADGET alone (INFOCOM 2022): which ring gains most, and where it is embedded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ganger.core.books.ledger import Ledger
from ganger.core.books.links import Links
from ganger.core.units import HOUR
from ganger.core.view import View
from ganger.mechanisms.placement.place import counted
from ganger.mechanisms.sizing.elastic import Market
from ganger.mechanisms.sizing.marginal_gain import first_fit, grow
from ganger.recipes.training.network.by_node import ByNode, Choose


def by_utility(view: View, market: Market) -> NDArray[np.int64]:
    """GPUs go one by one to the job whose utility grows most for it: its speed grows by the GPU,
    times the slope of its utility at the work that it has done. The utility of work w is
    log(1 + w / an hour), times the weight of the job."""
    ids, curves = market.ids, market.curves
    slope = view.jobs.weight[ids] / (HOUR + np.maximum(view.work(ids), 0.0))
    first = curves.at(curves.least) * slope / (curves.least * curves.units)
    order = np.argsort(-first, kind="stable")
    gets = np.zeros(len(ids), np.bool_)
    gets[order] = first_fit((curves.least * curves.units)[order], market.capacity)
    sizes = np.where(gets, curves.least, 0)
    gains = np.diff(curves.speed, axis=1) * slope[:, None] / curves.units[:, None]
    return grow(curves, sizes, gains, market.capacity - curves.cost(sizes))


@dataclass(frozen=True, kw_only=True)
class EmbeddedRing(ByNode):
    """G-VNE: the fewest nodes that hold the ring, so that its edges stay inside nodes; of node sets
    of that number one on whose links the bandwidth that it reserves is free, the fullest nodes
    first. `reserve`: GB/s each way of each link that a ring crosses. Where the cluster states no
    links, bandwidth is taken to be free everywhere."""

    by_room: ClassVar[bool] = False
    reserve: float = 0.1

    def chooser(self, view: View, ledger: Ledger) -> Choose:
        """One node, else several whose links have room."""
        network = view.nodes.spec.network
        links = view.cached(Links, view.nodes, network) if network is not None else None
        free_bandwidth = self._free_bandwidth(links, ledger) if links is not None else {}
        return lambda free, need: (
            self._one_node(free, need) or self._several(ledger, free, need, links, free_bandwidth)
        )

    def _one_node(self, free: dict[int, int], need: int) -> tuple[tuple[int, int], ...] | None:
        fits = [(count, node) for node, count in free.items() if count >= need]
        return ((min(fits)[1], need),) if fits else None

    def _several(
        self,
        ledger: Ledger,
        free: dict[int, int],
        need: int,
        links: Links | None,
        free_bandwidth: dict[int, float],
    ) -> tuple[tuple[int, int], ...] | None:
        """Within a rack first, then anywhere: the widest nodes whose own links have room."""
        groups = dict[int, list[int]]()
        for node in free:
            groups.setdefault(ledger.rack[node], []).append(node)
        everywhere = [list(free)] if len(groups) > 1 else []
        for nodes in [*groups.values(), *everywhere]:
            counts, missing = list[tuple[int, int]](), need
            for node in sorted(nodes, key=lambda each: (-free[each], each)):
                own = links is None or self._room(links, free_bandwidth, (2 * node, 2 * node + 1))
                if missing and free[node] and own:
                    counts.append((node, min(free[node], missing)))
                    missing -= counts[-1][1]
            if missing:
                continue
            node_counts = tuple(sorted(counts))
            if links is None:
                return node_counts
            if self._room(
                links, free_bandwidth, [link for link, _ in links.ring(dict(node_counts))]
            ):
                return node_counts
        return None

    def _room(
        self, links: Links, free_bandwidth: dict[int, float], path: list[int] | tuple[int, ...]
    ) -> bool:
        return all(free_bandwidth.get(link, links.capacity[link]) >= self.reserve for link in path)

    def _free_bandwidth(self, links: Links, ledger: Ledger) -> dict[int, float]:
        """By link that rings cross: what they leave of it."""
        free_bandwidth = dict[int, float]()
        for _, placement in ledger.holds.values():
            counts = dict(counted(placement))
            for link, _ in links.ring(counts) if len(counts) > 1 else ():
                free_bandwidth[link] = free_bandwidth.get(link, links.capacity[link]) - self.reserve
        return free_bandwidth
