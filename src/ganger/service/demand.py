"""Which nodes that are not there waiting jobs would run on: what pilots are asked for."""

from __future__ import annotations

import numpy as np

from ganger.core.jobs import Phase
from ganger.core.ledger import Ledger
from ganger.core.plan import Placement
from ganger.core.reducer import Reducer

_JOBS_MAX = 200
"""So many waiting jobs are looked at, the oldest."""


def wished(kernel: Reducer, most: int) -> list[str]:
    """The names of up to `most` nodes that are down, on which jobs that wait would fit, and that
    fit on no node that is up."""
    nodes, jobs = kernel.nodes, kernel.jobs
    ledger = Ledger(nodes)
    for job, (shape, placement) in kernel.ledger.holds.items():
        ledger.take(job, shape, placement)
    down = {node for node in range(nodes.n) if kernel.barred(node) == "down"}
    for node in range(nodes.n):
        ledger.switch(node, up=not kernel.barred(node))
    found: list[int] = []
    waiting = np.flatnonzero(jobs.phase[: jobs.n] == Phase.PENDING)
    waiting = waiting[jobs.parent[waiting] < 0]
    for job in waiting[:_JOBS_MAX].tolist():
        if len(found) >= most or not down:
            break
        shape = jobs.shapes[jobs.shape[job]]
        place: Placement | None = ledger.find(shape)
        if place is None:
            for node in down:
                ledger.switch(node, up=True)
            least = tuple(role.range[0] for role in shape.roles)
            place = ledger.find(shape) or ledger.find(shape, least)
            used = {slot.node for slot in place or ()} & down
            found += sorted(used)
            down -= used
            for node in down:
                ledger.switch(node, up=False)
        if place is not None:
            ledger.take(job, shape, place)
    return [nodes.names[node] for node in found[:most]]
