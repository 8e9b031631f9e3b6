"""A Slurm site's own jobs as a kernel: what a recipe would do with them, while nothing is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from ganger.core.events import AnyEvent, Batch, Command, Started, Submitted, Withheld, Woke
from ganger.core.kernel import Kernel
from ganger.core.plan import AnyAction, Placement, Plan, Resize, Slot, Start, Stop, Suspend
from ganger.core.spec import ClusterSpec, JobSpec, Needs, NodeSpec, OnPreempt, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase, declare
from ganger.core.state.snapshot import Snapshot, capture, forget, restore
from ganger.core.units import format_duration
from ganger.core.view import View
from ganger.engines.slurm.calls.answers import Node
from ganger.engines.slurm.machines import spec_of
from ganger.engines.slurm.site import Listed
from ganger.engines.slurm.where import Where
from ganger.lab.simulating.oracles import oracle_of_past
from ganger.lab.simulating.policies import load_policy
from ganger.workloads.clusters import describe


class _Told:
    """A policy that plans what it is told."""

    name = "told"

    def __init__(self) -> None:
        self.next: list[AnyAction] = []

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        actions, self.next = self.next, []
        return Plan(actions), None


class SlurmMirror(NamedTuple):
    """`copy` makes kernels in which the site's jobs are as they are now, under the recipe; row r
    of it is job `jobs[r]`. `left_out` says what is not in it."""

    copy: Callable[[], Kernel]
    jobs: Sequence[Listed]
    left_out: Sequence[str]


def mirror(
    nodes: Sequence[Node],
    listed: Sequence[Listed],
    partition: str,
    now: int,
    recipe: str,
    knows: str = "history",
) -> SlurmMirror:
    """The GPU jobs of `partition` (empty: of all) on `nodes` at `now` (microseconds). GPUs that
    other jobs hold are withheld; jobs that Slurm keeps from starting are on hold. Raises BadInput.
    """
    live = [one for one in listed if one.job.is_pending or one.job.holds]
    rules = _rules(live)
    specs = [
        msgspec.structs.replace(spec, labels=_labels(node, rules))
        for node in nodes
        if not node.is_closed and (spec := spec_of(node)) is not None
    ]
    cluster = describe(ClusterSpec(tuple(specs), name="Slurm")).check("Slurm")
    numbers = {spec.name: i for i, spec in enumerate(specs)}
    jobs = [one for one in live if one.gpus and _is_ours(one, partition, numbers)]
    jobs.sort(key=lambda one: (one.submitted, one.job.number))
    # A job whose nodes are all closed would hold up all that come after it, as in no Slurm.
    open_to = {label for spec in specs for label in spec.labels}
    barred = {
        row
        for row, one in enumerate(jobs)
        if (rule := (one.where, one.nodes)) in rules and rules[rule][0] not in open_to
    }
    policy = _Told()
    table = declare([_spec(one, specs, rules) for one in jobs])
    kernel = Kernel(Nodes(cluster), table, policy)
    times: dict[int, list[tuple[int, bool]]] = {0: []}
    for row, one in enumerate(jobs):
        times.setdefault(min(one.submitted, now), []).append((row, False))
        if one.job.holds:
            times.setdefault(min(max(one.started, one.submitted), now), []).append((row, True))
    for at in sorted(times):
        _play(kernel, policy, at, times[at], jobs, numbers, barred)
    others = sorted(_held_by_others(live, jobs, numbers).items())
    kernel.step(Batch(now, [Withheld(node, gpus) for node, gpus in others]))
    data = msgspec.msgpack.encode(forget(capture(kernel)))
    load_policy(recipe)

    def copy() -> Kernel:
        again = restore(
            msgspec.msgpack.decode(data, type=Snapshot),
            kernel.nodes,
            load_policy(recipe),
            oracle=oracle_of_past(knows),
        )
        again.now = now
        return again

    without = sum(not one.gpus for one in live)
    left_out = [
        f"{count} {what}"
        for count, what in (
            (without, "jobs without GPUs"),
            (len(live) - without - len(jobs), "jobs of other partitions or nodes"),
            (len(barred), "jobs held back, since all nodes that they may have are closed"),
            (_ignored(live), "jobs whose constraint or node list is ignored: it is not understood"),
            (len(nodes) - len(specs), "nodes that are closed, or have GPUs of two types"),
        )
        if count
    ]
    return SlurmMirror(copy, jobs, left_out)


def _is_ours(one: Listed, partition: str, numbers: dict[str, int]) -> bool:
    if partition and partition not in one.partition.split(","):
        return False
    return one.job.is_pending or (
        bool(one.job.gpus) and all(name in numbers for name in one.job.gpus)
    )


_Rule: TypeAlias = tuple[Where, int]
"""On which nodes jobs of so many nodes may run."""


def _rules(live: Sequence[Listed]) -> dict[_Rule, tuple[str, list[str]]]:
    """Of each rule that jobs follow: the label that stands for it on the nodes that it allows, and
    the nodes on which such jobs run already."""
    found: dict[_Rule, tuple[str, list[str]]] = {}
    for one in live:
        if not one.where.is_open(one.nodes):
            rule = one.where, one.nodes
            _, there = found.setdefault(rule, (f"slurm-{len(found)}", []))
            there += one.job.nodes
    return found


def _labels(node: Node, rules: Mapping[_Rule, tuple[str, list[str]]]) -> tuple[str, ...]:
    return tuple(
        label
        for (where, count), (label, there) in rules.items()
        if where.allows(node, count) or node.name in there
    )


def _ignored(live: Sequence[Listed]) -> int:
    """Of how many jobs a rule about nodes is not understood."""
    return sum(bool(one.gpus and one.where.not_understood(one.nodes)) for one in live)


def _spec(
    one: Listed, specs: Sequence[NodeSpec], rules: Mapping[_Rule, tuple[str, list[str]]]
) -> JobSpec:
    """The job as its user declares it: a worker per node where the nodes share its GPUs evenly,
    else one per GPU."""
    counts = (
        {len(held) for held in one.job.gpus.values()}
        if one.job.holds
        else {one.gpus // one.nodes if one.gpus % one.nodes == 0 else 1}
    )
    each = counts.pop() if len(counts) == 1 else 1
    rule = one.where, one.nodes
    types = {spec.gpu_type.lower(): spec.gpu_type for spec in specs}
    kind = one.gpu_type and types.get(one.gpu_type.lower(), one.gpu_type)
    return JobSpec(
        name=one.label,
        submitted=one.submitted,
        tenant=one.account,
        user=one.user,
        group=one.job.name,
        limit=one.limit,
        estimate=one.limit,
        on_preempt=OnPreempt.KILL,
        shape=Shape(
            (Role(size=one.gpus // each, needs=Needs(gpus=each)),),
            gpu_types=(kind,) if kind else (),
            labels=(rules[rule][0],) if rule in rules else (),
        ),
    )


def _placement(one: Listed, shape: Shape, numbers: dict[str, int]) -> Placement:
    each = shape.roles[0].needs.gpus
    return tuple(
        Slot(numbers[name], sum(1 << device for device in held), len(held) // each)
        for name, held in one.job.gpus.items()
        if held
    )


def _held_by_others(
    live: Sequence[Listed], jobs: Sequence[Listed], numbers: dict[str, int]
) -> dict[int, int]:
    ours = {one.job.number for one in jobs}
    found: dict[int, int] = {}
    for one in live:
        if one.job.number not in ours and one.job.holds:
            for name, held in one.job.gpus.items():
                if name in numbers and held:
                    found[numbers[name]] = found.get(numbers[name], 0) + len(held)
    return found


def _play(
    kernel: Kernel,
    policy: _Told,
    at: int,
    happens: Sequence[tuple[int, bool]],
    jobs: Sequence[Listed],
    numbers: dict[str, int],
    barred: set[int],
) -> None:
    """Submissions and starts of one instant."""
    events: list[AnyEvent] = []
    started: list[AnyEvent] = []
    for row, starts in happens:
        if starts:
            shape = kernel.jobs.shapes[kernel.jobs.shape[row]]
            policy.next.append(Start(row, 1, _placement(jobs[row], shape, numbers)))
            started.append(Started(row, 1))
        else:
            events.append(Submitted(row))
            if jobs[row].job.is_pending and (jobs[row].is_held or row in barred):
                events.append(Command(row, "hold"))
    kernel.step(Batch(at, [*events, Woke()]))
    if started:
        kernel.step(Batch(at, started))


def advice(made: SlurmMirror) -> list[str]:
    """What the recipe would do now, a line per job, or that it would do nothing."""
    kernel = made.copy()
    plan = kernel.step(Batch(kernel.now, [Woke()]))
    lines = []
    names = kernel.nodes.names
    for action in plan.actions if plan is not None else ():
        if isinstance(action, Start | Resize):
            where = ", ".join(
                f"{names[slot.node]} ({slot.devices.bit_count()})" for slot in action.placement
            )
            verb = "start" if isinstance(action, Start) else "resize"
            lines.append(f"{verb} {_name(made, action.job)} on {where}")
        elif isinstance(action, Stop | Suspend):
            ran = format_duration(kernel.now - made.jobs[action.job].started)
            lines.append(f"stop {_name(made, action.job)}, which ran for {ran}")
    return lines


def _name(made: SlurmMirror, row: int) -> str:
    one = made.jobs[row]
    gpus = f"{one.gpus} GPU{'s' if one.gpus != 1 else ''}"
    return f"{one.label} ({one.user}, {gpus}, {one.job.name})"


def counts(made: SlurmMirror) -> tuple[int, int]:
    """How many of the jobs run, and how many wait."""
    kernel = made.copy()
    phase = kernel.jobs.phase[: kernel.jobs.n]
    return int((phase == Phase.RUNNING).sum()), int((phase == Phase.PENDING).sum())
