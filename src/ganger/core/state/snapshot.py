"""All that a kernel knows at one revision, as plain data: what a restart continues from.

A snapshot is only a cache of the log: a kernel restored from one goes on to the same plans as the
kernel that it was taken of.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ganger.core.errors import BadInput
from ganger.core.events import kinds_of_change
from ganger.core.kernel import Kernel
from ganger.core.plan import Placement
from ganger.core.protocols import Journal, Oracle, Policy, memory_type
from ganger.core.spec import Kind, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.facts import KeptCurve, Window
from ganger.core.state.jobs import Declared, Jobs, Phase
from ganger.core.state.names import Names
from ganger.core.state.settings import Settings
from ganger.core.units import NEVER

FORMAT = "ganger.snapshot/1"
_TUNE = int(Kind.TUNE)
_NOTHING = msgspec.msgpack.encode(None)
_PLAIN = ("tenants", "users", "groups", "models", "arrays")


class Snapshot(msgspec.Struct, forbid_unknown_fields=True):
    """A kernel as data. `memory` and `learnt` are MessagePack of the policy's memory and of what
    the oracle has learnt; `columns` are the jobs table, little-endian."""

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
    holds: list[tuple[int, Placement]]
    letting_go: list[tuple[int, int, Placement]]
    blockers: dict[int, int]
    on_hold: list[int]
    cancelling: list[int]
    down: list[int]
    drained: list[int]
    changed: dict[int, list[int]]
    withheld: dict[int, tuple[int, int]] = {}
    """Node to (GPUs that are used outside Ganger, the devices that are out of the books)."""
    retiring: list[int] = []
    pausing: list[int] = []
    paused: list[int] = []
    trials: dict[int, KeptCurve] = {}
    services: dict[int, list[Window]] = {}
    settings: Settings = msgspec.field(default_factory=Settings)


def capture(kernel: Kernel) -> Snapshot:
    """What `kernel` knows now, between two steps."""
    jobs, n = kernel.jobs, kernel.jobs.n
    trials, services = kernel.facts.kept()
    holds = [
        (job, placement)
        for scope in kernel._scopes.values()
        for job, (_, placement) in scope.ledger.holds.items()
    ]
    return Snapshot(
        FORMAT, kernel.now, kernel.revision, kernel._moved_on, kernel.decisions, kernel.events,
        kernel.wake, kernel._until, kernel._changes,
        memory=msgspec.msgpack.encode(kernel.memory),
        learnt=msgspec.msgpack.encode(kernel.oracle.learnt),
        jobs=n,
        columns={
            name: np.ascontiguousarray(getattr(jobs, name)[:n]).tobytes() for name in jobs.columns()
        },
        names=jobs.names, codes={name: list(getattr(jobs, name)) for name in _PLAIN},
        shapes=list(jobs.shapes), after=jobs.after, holds=sorted(holds),
        letting_go=[(*key, placement) for key, placement in kernel._letting_go.items()],
        blockers=kernel._blockers, on_hold=sorted(kernel._on_hold),
        cancelling=sorted(kernel._cancelling), down=sorted(kernel.usable.down),
        drained=sorted(kernel.usable.drained),
        changed={parent: list(scope.changed) for parent, scope in kernel._scopes.items()},
        withheld={
            node: (gpus, kernel.ledger.withheld(node))
            for node, gpus in kernel.usable.withheld.items()
        },
        retiring=sorted(kernel._retiring), pausing=sorted(kernel._pausing),
        paused=sorted(kernel._paused), trials=trials, services=services, settings=kernel.settings,
    )  # fmt: skip


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
            f"format {snapshot.format!r} is not {FORMAT}", where="snapshot",
            mend="it was taken by another version",
        )  # fmt: skip
    kernel = Kernel(
        nodes, _declared(snapshot), policy, oracle=oracle, journal=journal, seed=seed,
        validate=validate,
    )  # fmt: skip
    for name in Jobs.columns():
        _fill(kernel.jobs, name, snapshot)
    kernel.now, kernel.revision, kernel._moved_on = (
        snapshot.now, snapshot.revision, snapshot.moved_on,
    )  # fmt: skip
    kernel.decisions, kernel.events = snapshot.decisions, snapshot.events
    kernel.wake, kernel._until, kernel._changes = (
        snapshot.wake, kinds_of_change(snapshot.until), snapshot.changes,
    )  # fmt: skip
    kernel.memory = msgspec.msgpack.decode(snapshot.memory, type=memory_type(policy.decide))
    if kernel._learns and snapshot.learnt != _NOTHING:
        kernel.oracle.learnt = msgspec.msgpack.decode(
            snapshot.learnt, type=type(kernel.oracle.learnt)
        )
    _put_back(kernel, snapshot)
    return kernel


def forget(snapshot: Snapshot) -> Snapshot:
    """The same state for another policy: it is asked at once, and remembers nothing. What the one
    before has set aside waits for devices again."""
    columns = dict(snapshot.columns)
    phase = np.frombuffer(columns["phase"], np.int8).copy()
    phase[[job for job in snapshot.paused if job not in snapshot.on_hold]] = Phase.PENDING
    columns["phase"] = phase.tobytes()
    return msgspec.structs.replace(
        snapshot, memory=msgspec.msgpack.encode(None), wake=NEVER, changes=-1, columns=columns,
        paused=[], pausing=[],
    )  # fmt: skip


def _declared(snapshot: Snapshot) -> Declared:
    table = Declared(snapshot.jobs)
    table.n = snapshot.jobs
    table.names = snapshot.names
    table.shapes = Names(snapshot.shapes)
    for name in _PLAIN:
        setattr(table, name, Names(snapshot.codes[name]))
    table.after = dict(snapshot.after)
    for name in Declared.columns():
        _fill(table, name, snapshot)
    return table


def _fill(table: Declared, name: str, snapshot: Snapshot) -> None:
    column, kept = getattr(table, name), snapshot.columns
    if name in ("within", "asks_at") and name not in kept:
        return  # a snapshot of before: by kind and parent, as it is; and at every report
    known = "since" if name == "began" and name not in kept else name  # a snapshot of before
    column[: snapshot.jobs] = np.frombuffer(kept[known], column.dtype)


def _put_back(kernel: Kernel, snapshot: Snapshot) -> None:
    """Books, sets and grants, from the columns and from what each job holds."""
    jobs = kernel.jobs
    phase = jobs.phase[: jobs.n]
    # Parents stand before their children: a grant must be open before anything is placed in it.
    held = dict(snapshot.holds)
    for job in sorted(held, key=lambda job: (jobs.within[job] >= 0, job)):
        shape = jobs.shapes[jobs.shape[job]]
        kernel._scope_of(job).ledger.take(job, shape, held[job])
        if kernel._kind[job] == _TUNE:
            kernel._grants.open(job, held[job])
    for job, attempt, placement in snapshot.letting_go:
        kernel._letting_go[job, attempt] = placement
        shape = jobs.shapes[jobs.shape[job]]
        # What was inside a grant that is closed is waited for in the cluster.
        kernel._inner.get(int(jobs.within[job]), kernel.ledger)._leave(job, shape, placement)
    for job in np.flatnonzero(phase == Phase.PENDING).tolist():
        kernel._scope_of(job).pending.add(job)
    for job in np.flatnonzero((phase >= Phase.STARTING) & (phase <= Phase.STOPPING)).tolist():
        kernel._scope_of(job).active.add(job)
    kernel._blockers = dict(snapshot.blockers)
    kernel._on_hold, kernel._cancelling = set(snapshot.on_hold), set(snapshot.cancelling)
    kernel.usable.put_back(snapshot.down, snapshot.drained, snapshot.withheld)
    kernel._retiring.update(snapshot.retiring)
    kernel._pausing.update(snapshot.pausing)
    for job in snapshot.paused:
        kernel._paused.add(job)
        if job not in kernel._on_hold:
            kernel._scope_of(job).paused.add(job)
    kernel.facts.put_back(snapshot.trials, snapshot.services)
    for name in kernel.settings.__struct_fields__:
        getattr(kernel.settings, name).update(getattr(snapshot.settings, name))
    for parent, changed in snapshot.changed.items():
        kernel._grants.scope(parent).changed.extend(changed)
    for scope in kernel._scopes.values():
        scope.ledger.settle()
