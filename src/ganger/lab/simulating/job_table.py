"""What became of the jobs of a run, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ganger.core.kernel import Kernel
from ganger.core.plan import Placement
from ganger.core.spec import Kind
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.lab.result import JobTable
from ganger.lab.simulating.recorder import Recorder
from ganger.sim.physics import Physics
from ganger.workloads.trace import Trace

_LOCALITY = ("island", "node", "rack", "any")


def job_table(
    kernel: Kernel, trace: Trace, recorder: Recorder | None, searches: Sequence[str] = ()
) -> JobTable:
    """The jobs as columns for metrics and reports. `searches`: the names of those that have figures
    of their own, as their trials do."""
    jobs, n = kernel.jobs, kernel.jobs.n
    rows = np.flatnonzero(jobs.phase[:n] != Phase.DECLARED)
    last = recorder.last if recorder is not None else {}
    nodes = kernel.nodes
    physics = Physics(nodes)
    placed = [last.get(job, ()) for job in rows.tolist()] if last else []
    running = jobs.phase[rows] == Phase.RUNNING
    lasting = (kernel.now - jobs.since[rows]) * running
    held = jobs.held[rows] + (kernel.now - jobs.held_since[rows]) * jobs.size[rows]
    waiting = jobs.phase[rows] == Phase.PENDING
    duration = trace.duration[rows].astype(float) / SECOND
    own = [trace.declared.find(name) for name in searches]
    of_search = np.isin(rows, own) | np.isin(jobs.within[rows], own)
    open_ended = (trace.duration[rows] >= NEVER) | of_search
    return JobTable(
        name=[jobs.name(job) for job in rows.tolist()],
        tenant=[jobs.tenants[code] for code in jobs.tenant[rows].tolist()],
        gpus=jobs.gpus[rows].astype(np.int64),
        arrival=jobs.submitted[rows] / SECOND,
        first_start=_moment(jobs.first_start[rows]),
        finish=_moment(jobs.finished[rows]),
        state=[Phase(code).name.lower() for code in jobs.phase[rows].tolist()],
        duration=np.where(open_ended, np.nan, duration),
        ran=(jobs.ran[rows] + lasting) / SECOND,
        pending=(jobs.pended[rows] + (kernel.now - jobs.pending_since[rows]) * waiting) / SECOND,
        held_gpu_seconds=np.where(jobs.within[rows] < 0, held, 0) / SECOND,
        active_gpu_seconds=(jobs.served[rows] + lasting * jobs.size[rows]) / SECOND,
        lost=jobs.lost[rows] / SECOND,
        preemptions=jobs.preemptions[rows].astype(np.int64),
        restarts=jobs.restarts[rows].astype(np.int64),
        gpu_type=[_type_of(nodes, placement) for placement in placed],
        nodes=[_names_of(nodes, placement) for placement in placed],
        locality=[_LOCALITY[physics.tier(p)] if p else "" for p in placed],
        open_ended=open_ended | (jobs.kind[rows] == Kind.SERVE),
        deadline=np.where(jobs.deadline[rows] < NEVER, jobs.deadline[rows] / SECOND, np.nan),
        of_search=of_search if own else None,
    )


def _moment(times: Any) -> Any:
    return np.where(times >= 0, times / SECOND, np.nan)


def _type_of(nodes: Nodes, placement: Placement) -> str:
    return nodes.types[nodes.gpu_type[placement[0].node]] if placement else ""


def _names_of(nodes: Nodes, placement: Placement) -> str:
    return ",".join(nodes.names[slot.node] for slot in placement)
