"""What the tables can hold. An event that does not fit them is refused before anybody keeps it:
once it is in a log, every replay of that log would end there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from ganger.core.errors import BadInput
from ganger.core.events import (
    METRICS_MAX,
    Accepted,
    AnyEvent,
    Batch,
    Command,
    Evaluated,
    Failed,
    Finished,
    Measured,
    NodeCommand,
    NodeDown,
    NodeUp,
    Progressed,
    Refused,
    Released,
    Sampled,
    Served,
    Started,
    Submitted,
    Unable,
    Withheld,
    Woke,
)
from ganger.core.plan import SPAWNED_MAX
from ganger.core.spec import NONE, JobSpec, Role
from ganger.core.state.jobs import refuse_unfit_child
from ganger.core.state.reducer import DECLARES, RESCALES, Reducer
from ganger.core.units import MIB_MAX, NEVER, WHOLE

INT32: Final = (1 << 31) - 1
GPUS_PER_NODE: Final = 64
"""A node's devices are the bits of one mask."""
CORES_MAX: Final = 1e6
FIGURES_MAX: Final = 64
_TIMES: Final = {
    "submitted": 0,
    "deadline": 0,
    "limit": 0,
    "estimate": 0,
    "checkpoint": -1,
    "restore": -1,
}
"""Columns of times, and the least that they may be; none is later than NEVER."""


def refuse_unfit(events: Iterable[AnyEvent], kernel: Reducer, more: int = 0) -> None:
    """Raise BadInput for the first event that `kernel`, once it has accepted `more` jobs, could not
    reduce, or that could not be written. `events` are reduced in this order."""
    jobs, nodes = kernel.jobs.n + more, len(kernel.nodes.names)
    for event in events:
        _CHECKS[type(event)](event, jobs, nodes)
        if isinstance(event, Accepted):
            jobs += 1
            for name in (*event.spec.after, *((event.spec.parent,) if event.spec.parent else ())):
                if kernel.row_named(name) < 0:
                    raise BadInput(f"there is no job {name!r}", where=f"job {event.spec.name!r}")
            if event.spec.parent:
                parent = kernel.jobs.spec(kernel.row_named(event.spec.parent))
                refuse_unfit_child(event.spec, parent)
        try:
            msgspec.msgpack.encode(event)
        except (OverflowError, UnicodeEncodeError) as error:
            raise BadInput(f"it cannot be written: {error}", where=type(event).__name__) from None


def refuse_unfit_spec(spec: JobSpec) -> None:
    """Raise BadInput for the first field of `spec` that the jobs table could not hold."""
    where = f"job {spec.name!r}"
    for field, least in _TIMES.items():
        _between(getattr(spec, field), least, NEVER, where, field)
    _between(spec.priority, -INT32 - 1, INT32, where, "priority")
    _between(spec.steps, 0.0, 1e300, where, "steps")
    _between(spec.weight, 0.0, 1e300, where, "weight")
    for role in spec.shape.roles:
        _refuse_unfit_role(role, where)
    _between(spec.shape.gpus, 0, INT32, where, "gpus")
    _between(spec.shape.most, 0, INT32, where, "gpus")


def _refuse_unfit_role(role: Role, where: str) -> None:
    for field in ("size", "least", "most"):
        _between(getattr(role, field), 0 if field == "size" else NONE, INT32, where, field)
    needs = role.needs
    _between(needs.gpus, 0, INT32, where, "gpus")
    _between(needs.share, 1, WHOLE, where, "share")
    _between(needs.cpus, 0, INT32 * WHOLE, where, "cpus")
    for field in ("memory", "gpu_memory"):
        _between(getattr(needs, field), 0, MIB_MAX, where, field)


def _between(value: float, least: float, most: float, where: str, field: str) -> None:
    if not least <= value <= most:
        raise BadInput(f"{field} {value} is not in {least} .. {most}", where=where)


def _finite(value: float, event: AnyEvent) -> None:
    if not math.isfinite(value):
        raise BadInput(f"{value} is not a finite number", where=type(event).__name__)


def _row(job: int, jobs: int) -> None:
    if not 0 <= job < jobs:
        raise BadInput(f"there is no job {job + 1}")


def _node(node: int, nodes: int) -> None:
    if not 0 <= node < nodes:
        raise BadInput(f"there is no node {node}")


def _accepted(event: Accepted, jobs: int, nodes: int) -> None:
    if event.job != jobs:
        raise BadInput(f"job {event.job + 1} cannot be accepted as job {jobs + 1}")
    refuse_unfit_spec(event.spec)


def _command(event: Command, jobs: int, nodes: int) -> None:
    _row(event.job, jobs)
    value, where = event.value, f"job {event.job + 1}"
    if event.verb == "priority":
        _between(value, -INT32 - 1, INT32, where, event.verb)
    elif event.verb == "weight":
        _between(value, 0.0, 1e300, where, event.verb)
    elif event.verb in DECLARES:
        _between(value, 0, NEVER, where, event.verb)
    elif event.verb in RESCALES:
        _between(value, 1 if event.verb == "size" else NONE, INT32, where, event.verb)


def _of_node(event: NodeCommand | NodeUp, jobs: int, nodes: int) -> None:
    _node(event.node, nodes)


def _down(event: NodeDown, jobs: int, nodes: int) -> None:
    _node(event.node, nodes)
    _between(event.by, 0, NEVER, f"node {event.node}", "by")


def _withheld(event: Withheld, jobs: int, nodes: int) -> None:
    _node(event.node, nodes)
    _between(event.gpus, 0, GPUS_PER_NODE, f"node {event.node}", "gpus")


def _numbers(*fields: str) -> Callable[[Any, int, int], None]:
    """A check of an engine's report: of a job that is there, in finite numbers."""

    def check(event: Any, jobs: int, nodes: int) -> None:
        _row(event.job, jobs)
        for field in fields:
            _finite(getattr(event, field), event)

    return check


def _sampled(event: Sampled, jobs: int, nodes: int) -> None:
    _row(event.job, jobs)
    _between(event.gpu, -1, 1, f"job {event.job + 1}", "use of a GPU")
    _between(event.cores, 0, CORES_MAX, f"job {event.job + 1}", "cores in use")


def _evaluated(event: Evaluated, jobs: int, nodes: int) -> None:
    _row(event.job, jobs)
    metrics = event.metrics or {}
    _between(len(metrics), 0, METRICS_MAX, f"job {event.job + 1}", "number of metrics")
    for value in (event.epoch, 0.0 if event.value is None else event.value, *metrics.values()):
        _finite(value, event)


def _served(event: Served, jobs: int, nodes: int) -> None:
    _between(event.since, 0, NEVER, "Served", "since")
    _between(len(event.figures), 0, FIGURES_MAX, "Served", "number of figures")
    for service in event.services:
        _row(service, jobs)
    for name, column in event.figures.items():
        if len(column) != len(event.services):
            raise BadInput(
                f"{name} has {len(column)} entries",
                where="Served",
                mend=f"give one for each of {len(event.services)} services",
            )
        for value in column:
            _finite(0.0 if value is None else value, event)


def _unable(event: Unable, jobs: int, nodes: int) -> None:
    _row(event.job, jobs)
    _between(event.n, 1, SPAWNED_MAX, f"job {event.job + 1}", "n")


_CHECKS: Final[dict[type, Callable[[Any, int, int], None]]] = {
    Accepted: _accepted,
    Command: _command,
    NodeCommand: _of_node,
    NodeDown: _down,
    NodeUp: _of_node,
    Withheld: _withheld,
    Started: _numbers("rate"),
    Failed: _numbers("kept"),
    Released: _numbers("kept"),
    Progressed: _numbers("work", "rate"),
    Measured: _numbers("step", "computing", "batch", "most", "noise"),
    Sampled: _sampled,
    Evaluated: _evaluated,
    Served: _served,
    Finished: _numbers(),
    Refused: _numbers(),
    Submitted: _numbers(),
    Unable: _unable,
    Woke: lambda event, jobs, nodes: None,
}


def without_unfit(batch: Batch, bad: Iterable[AnyEvent], jobs: int) -> Batch:
    """The batch without some of its events, for a kernel with `jobs` rows. A job whose acceptance
    is left out is accepted as one that asks for nothing and is cancelled at once: later jobs keep
    their numbers."""
    left_out = {id(event) for event in bad}
    found: list[AnyEvent] = []
    for event in batch.events:
        if id(event) not in left_out:
            found.append(event)
            jobs += isinstance(event, Accepted)
        elif isinstance(event, Accepted) and event.spec != _empty(event, event.job, batch.at):
            for row in range(jobs, event.job + 1):
                found += [Accepted(row, _empty(event, row, batch.at)), Command(row, "cancel")]
            jobs = max(jobs, event.job + 1)
    return Batch(batch.at, sorted(found, key=lambda event: event.rank))


def _empty(event: Accepted, row: int, now: int) -> JobSpec:
    """What stands for a job that cannot be accepted."""
    spec = event.spec
    return JobSpec(name=str(row + 1), submitted=now, user=spec.user, tenant=spec.tenant)
