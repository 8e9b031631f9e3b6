"""Machines that can be rented: which kinds there are, how many of each, and what they cost when."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ganger.core.spec import GpuType, NodeSpec, Offer
from ganger.core.state.cluster import Nodes
from ganger.core.units import HOUR, NEVER, WHOLE
from ganger.mechanisms.provisioning.price_series import PriceSeries, billed_until

ON_DEMAND = Offer()
UNPRICED = 1.0
"""USD for an hour of a GPU of which the cluster file states no price."""


@dataclass(frozen=True)
class Instance:
    """A kind of machine in one zone and one market: `count` nodes of the cluster file from row
    `first` on. `speed`: of its GPUs, relative to the reference. `link`: GB/s each way between a
    machine and the others (0: not stated). `hourly`: USD of a machine for an hour where that does
    not change with time."""

    name: str
    gpu_type: str
    gpus: int
    speed: float
    cpus: float
    link: float
    offer: Offer
    hourly: float
    first: int
    count: int
    series: PriceSeries | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        zone = f" in {self.offer.zone}" if self.offer.zone else ""
        return f"{self.name}{zone}{' (spot)' * (self.offer.market == 'spot')}"

    @property
    def rows(self) -> range:
        """Its nodes."""
        return range(self.first, self.first + self.count)

    def price(self, at: int) -> float:
        """USD for an hour of one machine at a moment (microseconds)."""
        return self.hourly if self.series is None else self.series.at(at)

    def bill(self, since: int, until: int) -> float:
        """USD for one machine that was had from `since` to `until`, in whole multiples of what it
        is billed by."""
        end = billed_until(since, until, self.offer.per)
        if self.series is None:
            return self.hourly * (end - since) / HOUR
        return self.series.paid(since, end)

    def to_be_had(self, at: int) -> int:
        """How many machines there are at a moment: all of them, or of the spot market as many as
        are offered, and none while the price is above the bid."""
        offer = self.offer
        if offer.market != "spot":
            return self.count
        if offer.prices and self.price(at) > offer.bid >= 0:
            return 0
        return min(_step(offer.available, at), self.count) if offer.available else self.count

    def changes_after(self, at: int) -> int:
        """When the price or the number of machines next changes; NEVER if they stay."""
        return min(_next(self.offer.prices, at), _next(self.offer.available, at))


def _step(series: tuple[tuple[int, int], ...], at: int) -> int:
    return series[max(bisect_right(series, at, key=_moment) - 1, 0)][1]


def _next(series: tuple[tuple[int, Any], ...], at: int) -> int:
    """The first pair holds before its moment, so nothing changes there."""
    place = max(bisect_right(series, at, key=_moment), 1)
    return series[place][0] if place < len(series) else NEVER


def _moment(pair: tuple[int, Any]) -> int:
    return pair[0]


class Catalogue:
    """The kinds of machines of a cluster, in the order of its file: those that `takes` says, by
    default those for rent."""

    def __init__(self, nodes: Nodes, takes: Callable[[NodeSpec], bool] | None = None) -> None:
        self.instances = list(_instances(nodes, takes or _for_rent))


def _for_rent(group: NodeSpec) -> bool:
    return group.offer is not None and group.offer.rentable


def _instances(nodes: Nodes, takes: Callable[[NodeSpec], bool]) -> Iterator[Instance]:
    types = {each.name: each for each in nodes.type_specs}
    network = nodes.spec.network
    first = 0
    for group in nodes.spec.nodes:
        offer = group.offer or ON_DEMAND
        kind = types.get(group.gpu_type, GpuType(group.gpu_type))
        link = group.uplink if group.uplink >= 0 else (network.node if network else 0.0)
        if takes(group):
            yield Instance(
                offer.instance or group.name or _called(group),
                group.gpu_type,
                group.gpus,
                kind.speed,
                group.cpus / WHOLE,
                link,
                offer,
                offer.price if offer.price >= 0 else group.gpus * (kind.price or UNPRICED),
                first,
                group.count,
                PriceSeries(offer.prices) if offer.prices else None,
            )
        first += group.count


def _called(group: NodeSpec) -> str:
    return f"{group.gpus}x{group.gpu_type}" if group.gpus else f"{group.cpus / WHOLE:g} CPUs"
