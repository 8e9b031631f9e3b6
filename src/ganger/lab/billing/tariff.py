"""What nodes cost: by the hour, at a price that may change, for as long as they are on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.spec import Offer
from ganger.core.state.cluster import Nodes
from ganger.core.units import HOUR
from ganger.lab.serving.fleet import price_of
from ganger.mechanisms.provisioning.price_series import PriceSeries, billed_until

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]
THERE = Offer()
"""The terms of a node whose cluster file states none."""


class Tariff:
    """`hourly`: by node, what an hour of all of it costs; `varying`: the nodes whose price changes,
    for which that counts nothing."""

    def __init__(self, nodes: Nodes, prices: Mapping[str, float]) -> None:
        """`prices`: of a GPU for an hour, by type, for nodes without a price of their own. Raises
        BadInput where a type has none."""
        self._offers = [offer or THERE for offer in nodes.offers]
        self.varying = frozenset(at for at, offer in enumerate(self._offers) if offer.prices)
        codes, gpus = nodes.gpu_type[: nodes.n].tolist(), nodes.gpus[: nodes.n].tolist()
        self.hourly: list[float] = [
            self._flat(nodes.types[code], n, offer, prices)
            for code, n, offer in zip(codes, gpus, self._offers, strict=True)
        ]
        self._known: dict[int, PriceSeries] = {}

    def _flat(self, kind: str, gpus: int, offer: Offer, prices: Mapping[str, float]) -> float:
        if offer.prices:
            return 0.0
        if offer.price >= 0:
            return offer.price
        return gpus * price_of(kind, prices) if gpus else 0.0

    def until(self, node: int, time: _Ints) -> _Floats:
        """What all of a node costs from 0 to each time (microseconds), were it on till then."""
        if node not in self.varying:
            return self.hourly[node] * time / HOUR
        series = self._offers[node].prices
        if id(series) not in self._known:
            self._known[id(series)] = PriceSeries(series)
        return self._known[id(series)].until(time)

    def cost(self, node: int, since: int, until: int) -> float:
        """Of all of a node that was on from `since` to `until`, in whole multiples of what it is
        billed by."""
        end = billed_until(since, until, self._offers[node].per)
        first, last = self.until(node, np.array([since, end], np.int64)).tolist()
        return float(last - first)

    def always(self, node: int) -> bool:
        """Whether it is paid for all the time, on or off."""
        return self._offers[node].market == "reserved"


def tariff_of(nodes: Nodes, prices: Mapping[str, float]) -> Tariff | None:
    """At these prices, else at those of the cluster file, where every node with GPUs has one; None
    where nothing has a price. Raises BadInput for a type without one among `prices`."""
    if prices:
        return Tariff(nodes, prices)
    stated = {gpu.name: gpu.price for gpu in nodes.type_specs if gpu.price > 0}
    if not stated and not any(o and (o.price >= 0 or o.prices) for o in nodes.offers):
        return None
    try:
        return Tariff(nodes, stated)
    except BadInput:
        return None
