"""All that a kernel knows at one revision, as plain data: what a restart continues from.

A snapshot is only a cache of the log: a kernel restored from one goes on to the same plans as the
kernel that it was taken of.

It holds what `State.standing` says. A test shows for every recipe that a restored kernel decides
the same.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from ganger.core.errors import BadInput
from ganger.core.events import kinds_of_change
from ganger.core.kernel import Kernel
from ganger.core.plan import WITHDRAWN
from ganger.core.protocols import Journal, Oracle, Policy, memory_type
from ganger.core.spec import Kind, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Declared, Jobs, Phase
from ganger.core.state.names import Names
from ganger.core.state.state import Standing
from ganger.core.units import NEVER

FORMAT = "ganger.snapshot/1"
_TUNE = int(Kind.TUNE)
_NOTHING = msgspec.msgpack.encode(None)
_PLAIN = ("tenants", "users", "groups", "models", "arrays", "inners")


class Snapshot(Standing, forbid_unknown_fields=True, kw_only=True):
    """A kernel as data: what stands, the jobs table and the loop.

    `memory` and `learnt` are MessagePack of the policy's memory and of what the oracle has learnt;
    `columns` are the jobs table, little-endian.
    """

    format: str
    now: int
    revision: int
    moved_on: int
    decisions: int
    events: int
    wake: int
    until: int
    changes: int
    memory: bytes
    learnt: bytes
    jobs: int
    columns: dict[str, bytes]
    names: list[str] | None
    codes: dict[str, list[str]]
    shapes: list[Shape]
    after: dict[int, tuple[int, ...]]


def capture(kernel: Kernel) -> Snapshot:
    """What `kernel` knows now, between two steps."""
    jobs, n = kernel.jobs, kernel.jobs.n
    return Snapshot(
        **_fields(kernel.standing()),
        format=FORMAT,
        now=kernel.now,
        revision=kernel.revision,
        moved_on=kernel.moved_on,
        decisions=kernel.decisions,
        events=kernel.events,
        wake=kernel.wake,
        until=kernel.until,
        changes=kernel.changes,
        memory=msgspec.msgpack.encode(kernel.memory),
        learnt=msgspec.msgpack.encode(kernel.oracle.learnt),
        jobs=n,
        columns={
            name: np.ascontiguousarray(getattr(jobs, name)[:n]).tobytes() for name in jobs.columns()
        },
        names=jobs.names,
        codes={name: list(getattr(jobs, name)) for name in _PLAIN},
        shapes=list(jobs.shapes),
        after=jobs.after,
    )


def _fields(standing: Standing) -> dict[str, Any]:
    return {name: getattr(standing, name) for name in standing.__struct_fields__}


def restore(
    snapshot: Snapshot,
    nodes: Nodes,
    policy: Policy,
    *,
    oracle: Oracle | None = None,
    journal: Journal | None = None,
    seed: int = 0,
    validate: bool = False,
) -> Kernel:
    """A kernel that goes on where `snapshot` was taken.

    `nodes` may have grown at its end. With another policy than that of the snapshot, empty its
    `memory` first (`forget`). Raises BadInput for a snapshot of another format.
    """
    if snapshot.format != FORMAT:
        raise BadInput(
            f"format {snapshot.format!r} is not {FORMAT}",
            where="snapshot",
            mend="it was taken by another version",
        )
    kernel = Kernel(
        nodes,
        _declared(snapshot),
        policy,
        oracle=oracle,
        journal=journal,
        seed=seed,
        validate=validate,
    )
    for name in Jobs.columns():
        _fill(kernel.jobs, name, snapshot)
    kernel.now, kernel.revision, kernel.moved_on = (
        snapshot.now,
        snapshot.revision,
        snapshot.moved_on,
    )
    kernel.decisions, kernel.events = snapshot.decisions, snapshot.events
    kernel.wake, kernel.changes = snapshot.wake, snapshot.changes
    kernel.until = kinds_of_change(snapshot.until)
    kernel.memory = msgspec.msgpack.decode(snapshot.memory, type=memory_type(policy.decide))
    if kernel.oracle.learns and snapshot.learnt != _NOTHING:
        kernel.oracle.learnt = msgspec.msgpack.decode(
            snapshot.learnt, type=type(kernel.oracle.learnt)
        )
    kernel.put_back(snapshot)
    return kernel


def forget(snapshot: Snapshot) -> Snapshot:
    """The same state for another policy: it is asked at once, and remembers nothing. What the one
    before has set aside waits for devices again; what it has suspended goes on as soon as nobody
    computes there. The terms on which jobs share GPUs are withdrawn as soon as the other has been
    asked, unless it gives them anew."""
    knobs = snapshot.settings.knobs
    terms = {
        job: True for job, turned in knobs.items() if turned.get("request", WITHDRAWN) != WITHDRAWN
    }
    columns = dict(snapshot.columns)
    phase = np.frombuffer(columns["phase"], np.int8).copy()
    phase[[job for job in snapshot.paused if job not in snapshot.on_hold]] = Phase.PENDING
    columns["phase"] = phase.tobytes()
    return msgspec.structs.replace(
        snapshot,
        memory=msgspec.msgpack.encode(None),
        wake=NEVER,
        changes=-1,
        columns=columns,
        settings=msgspec.structs.replace(snapshot.settings, inherited=terms),
        paused=[],
        pausing=[],
        resuming=sorted({*snapshot.resuming, *snapshot.resumable}),
    )


def _declared(snapshot: Snapshot) -> Declared:
    table = Declared(snapshot.jobs)
    table.n = snapshot.jobs
    table.names = snapshot.names
    table.shapes = Names(snapshot.shapes)
    for name in _PLAIN:
        setattr(table, name, Names(snapshot.codes.get(name, [""])))
    table.after = dict(snapshot.after)
    for name in Declared.columns():
        _fill(table, name, snapshot)
    return table


def _fill(table: Declared, name: str, snapshot: Snapshot) -> None:
    column, kept = getattr(table, name), snapshot.columns
    if name in ("within", "asks_at", "inner") and name not in kept:
        return  # a snapshot of before: by kind and parent, as it is; at every report; nobody's own
    known = "since" if name == "began" and name not in kept else name  # a snapshot of before
    column[: snapshot.jobs] = np.frombuffer(kept[known], column.dtype)
