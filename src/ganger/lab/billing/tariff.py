"""What nodes cost: the price of a node for an hour, by the type of its GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from ganger.core.errors import BadInput
from ganger.core.state.cluster import Nodes
from ganger.core.units import HOUR
from ganger.lab.serving.fleet import price_of


class Tariff:
    """`hourly`: by node, what an hour of all of it costs."""

    def __init__(self, nodes: Nodes, prices: Mapping[str, float]) -> None:
        """`prices`: of a GPU for an hour, by type. Raises BadInput where a type has none."""
        each = [price_of(name, prices) if name else 0.0 for name in nodes.types]
        codes, gpus = nodes.gpu_type[: nodes.n].tolist(), nodes.gpus[: nodes.n].tolist()
        self.hourly: list[float] = [n * each[code] for code, n in zip(codes, gpus, strict=True)]

    def cost(self, node: int, since: int, until: int) -> float:
        """Of all of a node from `since` to `until` (microseconds)."""
        return self.hourly[node] * (until - since) / HOUR


def tariff_of(nodes: Nodes, prices: Mapping[str, float]) -> Tariff | None:
    """At these prices, else at those of the cluster file, where each type of GPU has one; None
    where nothing has a price. Raises BadInput for a type without one among `prices`."""
    if prices:
        return Tariff(nodes, prices)
    stated = {gpu.name: gpu.price for gpu in nodes.type_specs if gpu.price > 0}
    try:
        return Tariff(nodes, stated) if stated else None
    except BadInput:
        return None
