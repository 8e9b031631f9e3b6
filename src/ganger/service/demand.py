"""Which nodes waiting jobs would run on if all were there: what pilots are asked for."""

from __future__ import annotations

import numpy as np

from ganger.core.books.ledger import Ledger
from ganger.core.plan import Placement
from ganger.core.state.jobs import Phase
from ganger.core.state.reducer import Reducer

_JOBS_MAX = 200
"""So many waiting jobs are looked at, the oldest."""


def wished(kernel: Reducer, most: int) -> list[str]:
    """The names of the nodes on which jobs that wait would fit, that fit nowhere as it is: nodes
    that are up, and up to `most` that are down."""
    nodes, jobs = kernel.nodes, kernel.jobs
    ledger = Ledger(nodes)
    for job, (shape, placement) in kernel.ledger.holds.items():
        ledger.take(job, shape, placement)
    down = {node for node in range(nodes.n) if kernel.barred(node) == "down"}
    for node in range(nodes.n):
        ledger.switch(node, up=not kernel.barred(node))
    found: set[int] = set()
    missing = 0
    waiting = np.flatnonzero(jobs.phase[: jobs.n] == Phase.PENDING)
    waiting = waiting[jobs.within[waiting] < 0]
    for job in waiting[:_JOBS_MAX].tolist():
        if missing >= most or not down:
            break
        shape = jobs.shapes[jobs.shape[job]]
        place: Placement | None = ledger.find(shape)
        if place is None:
            for node in down:
                ledger.switch(node, up=True)
            least = tuple(role.range[0] for role in shape.roles)
            place = ledger.find(shape) or ledger.find(shape, least)
            used = {slot.node for slot in place or ()}
            missing += len(used & down)
            found |= used
            down -= used
            for node in down:
                ledger.switch(node, up=False)
        if place is not None:
            ledger.take(job, shape, place)
    return [nodes.names[node] for node in sorted(found)]
