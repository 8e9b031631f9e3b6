"""What one job held and what that cost, from its attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ganger.core.state.cluster import Nodes
from ganger.core.units import HOUR, WHOLE
from ganger.service.durable.journal import Attempt

if TYPE_CHECKING:
    from ganger.service.daemon import Daemon


def price_of(nodes: Nodes, node: int, prices: Mapping[str, float]) -> float | None:
    """What a GPU of a node costs for an hour: the node's own price counts first. None where nobody
    says, or where a price changes with time, as nobody says when its time began."""
    offer = nodes.offers[node]
    if offer is not None and (offer.price >= 0 or bool(offer.prices)):
        return offer.price / max(int(nodes.gpus[node]), 1) if offer.price >= 0 else None
    return prices.get(nodes.types[nodes.gpu_type[node]])


def cost_of(
    daemon: Daemon, row: int, attempts: Sequence[Attempt]
) -> tuple[float | None, float | None]:
    """GPU-hours that a job has held, and their cost; None for what its search holds for it, and
    for what has no price."""
    jobs, nodes = daemon.kernel.jobs, daemon.kernel.nodes
    if jobs.within[row] >= 0:
        return None, None
    types = daemon.header.cluster.gpu_types
    prices = {kind.name: kind.price for kind in types if kind.price > 0}
    part = jobs.shapes[jobs.shape[row]].roles[0].needs.share
    hours, cost = 0.0, 0.0
    known, now = True, daemon.now()
    for attempt in attempts:
        if attempt.placement is None or attempt.started < 0:
            continue
        lasted = max((attempt.ended if attempt.ended >= 0 else now) - attempt.started, 0)
        for slot in attempt.placement:
            held = lasted * slot.devices.bit_count() * (slot.share or part) / WHOLE / HOUR
            price = price_of(nodes, slot.node, prices)
            hours += held
            known = known and (price is not None or not held)
            cost += held * (price or 0.0)
    return hours, cost if known else None
