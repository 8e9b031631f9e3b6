"""Max-min fair rates of flows that share links: progressive filling, in whole arrays.

A flow crosses links, and takes `part` of its rate from each. Filling raises all rates in proportion
to weights until a link is full or a flow has all that it asks for; what is stopped so keeps its
rate, and the rest goes on (Bertsekas and Gallager, Data Networks, section 6.5.2). Here every link
that fills first among all that share flows with it is stopped at once, so the rounds are as many as
links depend on each other in a row, not as many as there are links.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Path = Sequence[tuple[int, float]]
"""The links of a flow, each with the part of its rate that passes it."""

SLACK = 1e-12
"""Levels that differ by less, as a part of them, are one: last digits decide nothing."""


class Crossings:
    """Which flows cross which links: `flow`, `link` and `part` by crossing, in order of flows.

    `flow` numbers them from 0 without gaps, so that every flow has a crossing. `part`: how much of
    the flow's rate passes the link.
    """

    def __init__(self, flow: Ints, link: Ints, part: Floats, links: int) -> None:
        self.flow, self.link, self.part, self.links = flow, link, part, links
        self.flows = int(flow[-1]) + 1 if len(flow) else 0

    @classmethod
    def of(cls, paths: Iterable[Path], links: int) -> Crossings:
        """From each flow's links with the part of its rate that passes them."""
        rows = [(i, link, part) for i, path in enumerate(paths) for link, part in path]
        if not rows:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), links)
        flow, link, part = zip(*rows, strict=True)
        return cls(np.array(flow), np.array(link), np.array(part, np.float64), links)

    def load(self, rates: Floats) -> Floats:
        """What passes each link."""
        used = np.bincount(self.link, self.part * rates[self.flow], self.links)
        return used.astype(np.float64)


def max_min(
    crossings: Crossings, capacity: Floats, weights: Floats, caps: Floats
) -> tuple[Floats, Ints]:
    """The rate of each flow: no link carries more than `capacity`, no flow more than its entry of
    `caps`, and none could have more unless another one gave some up that has no more per weight.
    And by flow the link that stops it; -1: its cap.

    Shapes: `capacity` by link, `weights` (above 0) and `caps` by flow; one unit for all. A link of
    infinite capacity never fills.
    """
    flow, link, part = crossings.flow, crossings.link, crossings.part
    rates, stopper = np.zeros(crossings.flows), np.full(crossings.flows, -1)
    room, own = capacity.astype(np.float64, copy=True), np.arange(crossings.flows)
    ceiling, wanted = caps / weights, part * weights[flow]
    while len(flow):
        starts = np.flatnonzero(np.r_[True, flow[1:] != flow[:-1]])
        demand: Floats = np.bincount(link, wanted, len(room)).astype(np.float64)
        level_of = np.full(len(room), np.inf)
        np.divide(room, demand, out=level_of, where=demand > 0)
        at = level_of[link]
        level = np.minimum(np.minimum.reduceat(at, starts), ceiling)
        short = level[flow] < at * (1.0 - SLACK)  # what is stopped elsewhere before this link
        loose = np.zeros(len(room), bool)
        loose[link[short]] = True
        firm = ~loose[link]
        by_link = np.maximum.reduceat(firm, starts)
        stops = by_link | (level >= ceiling)
        rates[own[stops]] = level[stops] * weights[own[stops]]
        hold = firm & by_link[flow]
        stopper[own[flow[hold]]] = link[hold]
        stopped = stops[flow]
        if stopped.all():
            break
        used = part[stopped] * rates[own[flow[stopped]]]
        room -= np.bincount(link[stopped], used, len(room))
        np.maximum(room, 0.0, out=room)
        rising, stays = ~stops, ~stopped
        flow, link, part = (np.cumsum(rising) - 1)[flow[stays]], link[stays], part[stays]
        own, ceiling, wanted = own[rising], ceiling[rising], wanted[stays]
    return rates, stopper
