"""Which job holds which GPU, as one answer. Wants the daemon's lock."""

from __future__ import annotations

from ganger.client.answering.gpu_map import HeldAnswer, HolderAnswer, MapAnswer, NodeMap
from ganger.client.states import state_of
from ganger.core.books.bits import members
from ganger.core.state.jobs import Phase
from ganger.core.units import WHOLE
from ganger.service.daemon import Daemon
from ganger.service.reports.rows import label


def gpu_map(daemon: Daemon) -> MapAnswer:
    """All nodes with the jobs that hold GPUs there, the numbers of the GPUs as the plan has
    them."""
    kernel = daemon.kernel
    nodes, jobs = kernel.nodes, kernel.jobs
    held: list[list[HeldAnswer]] = [[] for _ in range(nodes.n)]
    for row, (_, placement) in kernel.ledger.holds.items():
        part = jobs.shapes[jobs.shape[row]].roles[0].needs.share
        for slot in placement:
            if slot.devices:
                share = (slot.share or part) / WHOLE
                held[slot.node].append(
                    HeldAnswer(job=row + 1, gpus=list(members(slot.devices)), share=share)
                )
    return MapAnswer(
        revision=kernel.revision,
        nodes=[
            NodeMap(
                name=nodes.names[node],
                state=kernel.barred(node) or "up",
                gpu_type=nodes.types[nodes.gpu_type[node]],
                gpus=int(nodes.gpus[node]),
                withheld=list(members(kernel.ledger.withheld(node))),
                held=held[node],
            )
            for node in range(nodes.n)
        ],
        jobs=[
            HolderAnswer(
                job=row + 1,
                label=label(daemon, row),
                name=daemon.names[row],
                user=jobs.users[jobs.user[row]],
                tenant=jobs.tenants[jobs.tenant[row]],
                state=state_of(Phase(jobs.phase[row]), "")[0],
                gpus=int(jobs.size[row]),
            )
            for row in kernel.ledger.holds
        ],
    )
