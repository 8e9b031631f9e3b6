"""Why a job is where it is, in sentences, from the plan's reasons and the present state."""

from __future__ import annotations

import numpy as np

from ganger.client.answers import Explanation
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, WHOLE, format_duration
from ganger.lab.ahead.whatif import Outlook
from ganger.service.daemon import Daemon
from ganger.service.jobs.dependencies import Condition, Conditions
from ganger.service.jobs.limits import Group
from ganger.service.reports import rows
from ganger.service.reports.states import state_of

_HOLDERS_MAX = 20


def explain(daemon: Daemon, row: int) -> Explanation:
    """Wants the daemon's lock."""
    kernel = daemon.kernel
    phase = Phase(kernel.jobs.phase[row])
    reason = rows.reason_of(daemon, row)
    found = Explanation(
        job=row + 1, label=rows.label(daemon, row),
        state=state_of(phase, daemon.ends.get(row, ""))[0], reason=reason, lines=[],
    )  # fmt: skip
    if phase == Phase.BLOCKED:
        _blocked(daemon, row, found)
    elif phase == Phase.PENDING:
        _pending(daemon, row, found)
    elif phase >= Phase.FINISHED:
        found.lines.append(f"It is over: {found.state.lower()}{f' ({reason})' if reason else ''}.")
        if reason == "DependencyNeverSatisfied":
            _never(daemon, row, found)
    else:
        held = kernel.placements().get(row, ())
        has = rows.devices(daemon, row, int(kernel.jobs.attempt[row]), held)
        lasts = format_duration(daemon.now() - int(kernel.jobs.held_since[row]))
        found.lines.append(f"It has held {', '.join(has)} for {lasts}.")
    preemptions = int(kernel.jobs.preemptions[row])
    if preemptions:
        last = daemon.ends.get(row, "")
        times = "once" if preemptions == 1 else f"{preemptions} times"
        found.lines.append(f"It was preempted {times}{f'; last: {last}' if last else ''}.")
    for one in daemon.reader.attempts(row):
        if one.note:
            found.lines.append(f"Attempt {one.attempt}: {one.note}.")
    return found


def _blocked(daemon: Daemon, row: int, found: Explanation) -> None:
    facts, kernel = daemon.reader.facts(row), daemon.kernel
    if found.reason == "Dependency":
        _dependent(daemon, row, facts.waits_for, found)
    elif found.reason == "BeginTime":
        left = format_duration(facts.begin - daemon.now())
        found.lines.append(f"It may start in {left}.")
    elif found.reason == "AssocGrpGRES":
        tenant = kernel.jobs.tenants[kernel.jobs.tenant[row]]
        found.lines.append(f"{tenant} may have {_room(daemon, ('tenant', tenant))} GPUs at once.")
    elif found.reason == "JobArrayTaskLimit":
        room = _room(daemon, ("array", str(facts.array)))
        found.lines.append(f"Its array may have {room} tasks in the queue at once.")
    elif found.reason == "Priority":
        found.lines.append("It is about to enter the queue.")
    else:
        found.lines.append(f"It is held; `ganger release {found.label}` lets it go.")


def _dependent(daemon: Daemon, row: int, waits_for: Conditions, found: Explanation) -> None:
    jobs = daemon.kernel.jobs
    before = tuple(jobs.after.get(row, ()))
    every = (*((Condition("ok", before),) if before else ()), *waits_for.every)
    waits = [one for one in every if not _holds(one, daemon)]
    either = () if any(_holds(one, daemon) for one in waits_for.either) else waits_for.either
    rows_ = dict.fromkeys(
        job for one in (*waits, *either) for job in one.rows if not one.settled(job, jobs)
    )
    found.holders = [job + 1 for job in list(rows_)[:_HOLDERS_MAX]]
    found.lines += [f"It waits for {_said(daemon, one)}." for one in waits]
    if either:
        some = ", or ".join(_said(daemon, one) for one in either)
        found.lines.append(f"It waits for one of these: {some}.")


def _never(daemon: Daemon, row: int, found: Explanation) -> None:
    """Which of those that it waited for had ended as it could not use."""
    jobs = daemon.kernel.jobs
    before = (*jobs.after.get(row, ()), *daemon.reader.facts(row).waits_for.rows)
    for other in list(dict.fromkeys(before))[:_HOLDERS_MAX]:
        phase = Phase(jobs.phase[other])
        if phase >= Phase.FINISHED:
            state = state_of(phase, daemon.ends.get(other, ""))[0].lower()
            found.lines.append(f"It waited for job {rows.label(daemon, other)}, which is {state}.")


def _holds(one: Condition, daemon: Daemon) -> bool:
    at = one.opens(daemon.kernel.jobs)
    return at is not None and at <= daemon.now()


def _said(daemon: Daemon, one: Condition) -> str:
    jobs = daemon.kernel.jobs
    return one.said(_jobs(daemon, [row for row in one.rows if not one.settled(row, jobs)]
                          or list(one.rows)))  # fmt: skip


def _room(daemon: Daemon, group: Group) -> str:
    ceilings = daemon.gates.ceilings
    unit = WHOLE if group[0] == "tenant" else 1
    return f"{ceilings.most.get(group, 0) / unit:g} (now {ceilings.taken(group) / unit:g})"


def _pending(daemon: Daemon, row: int, found: Explanation) -> None:
    kernel = daemon.kernel
    jobs = kernel.jobs
    waiting = np.flatnonzero(jobs.phase[: jobs.n] == Phase.PENDING)
    order = waiting[np.lexsort((waiting, -jobs.priority[waiting]))]
    found.position = int(np.flatnonzero(order == row)[0]) + 1
    found.ahead = found.position - 1
    shape = jobs.shapes[jobs.shape[row]]
    lasts = format_duration(daemon.now() - int(jobs.pending_since[row]))
    wanted = f"{shape.gpus} GPU{'s' if shape.gpus != 1 else ''}"
    if shape.gpu_types:
        wanted += f" of type {' or '.join(shape.gpu_types)}"
    nodes = [
        node for node in rows.node_answers(daemon)
        if node.gpus and (not shape.gpu_types or node.gpu_type in shape.gpu_types)
    ]  # fmt: skip
    free = sum(node.gpus_free for node in nodes if node.state == "up")
    found.lines.append(
        f"It has waited {lasts} for {wanted}; {free} of {sum(node.gpus for node in nodes)}"
        f"{' such' if shape.gpu_types else ''} are free."
    )
    if found.reason == "Priority" and not found.ahead:
        found.lines.append(f"No job comes first: {_decides(daemon)}.")
    elif found.reason == "Priority":
        found.lines.append(
            f"{daemon.header.policy} puts other jobs first: of {len(order)} jobs that wait,"
            f" {found.ahead} come{'s' if found.ahead == 1 else ''} before it by priority and"
            " submission."
        )
    elif found.reason == "AssocGrpGRES":
        found.lines.append("Its tenant has reached its quota.")
    else:
        found.lines.append("No free GPUs fit it.")
    holders = _holders(daemon, shape.gpu_types)
    found.holders = [job + 1 for job in holders[:_HOLDERS_MAX]]
    if holders:
        found.lines.append(f"The GPUs that it could use are held by {_jobs(daemon, holders)}.")
    others = [f"{node.gpus_withheld} on {node.name}" for node in nodes if node.gpus_withheld]
    if others:
        found.lines.append(f"GPUs are used outside Ganger: {', '.join(others)}.")
    down = [node.name + _wrong(daemon, node.name) for node in nodes if node.state != "up"]
    if down:
        found.lines.append(f"Out of use: {', '.join(down)}.")


def _decides(daemon: Daemon) -> str:
    recipe, plan = daemon.header.policy, daemon.plan
    if plan is None or plan.wake >= NEVER:
        return f"{recipe} starts it when it decides again"
    left = format_duration(max(plan.wake - daemon.now(), 0))
    return f"{recipe} starts it when it decides again, in {left} or sooner"


def _wrong(daemon: Daemon, node: str) -> str:
    said = "; ".join(daemon.warnings.get(node, ()))
    return f" ({said})" if said else ""


def spokesman(daemon: Daemon, rows_: list[int]) -> int:
    """Of an array the first task that waits, else the first that is not over, else the first; of
    what is no array itself."""
    phases = daemon.kernel.jobs.phase[rows_]
    for true in (phases <= Phase.PENDING, phases < Phase.FINISHED):
        if true.any():
            return rows_[int(np.argmax(true))]
    return rows_[0]


def expect(found: Explanation, ahead: Outlook | None) -> None:
    """Say when the job is expected to start."""
    if ahead is None:
        found.lines.append("Its start cannot be predicted.")
        return
    rows.foreseen(found, ahead)


def _holders(daemon: Daemon, types: tuple[str, ...]) -> list[int]:
    """Top-level jobs on nodes of a type that would do, the longest holding last."""
    kernel = daemon.kernel
    nodes = kernel.nodes
    fits = {
        node for node in range(nodes.n)
        if not types or nodes.types[nodes.gpu_type[node]] in types
    }  # fmt: skip
    found = [
        row for row, (_, placement) in kernel.ledger.holds.items()
        if any(slot.node in fits and slot.devices for slot in placement)
    ]  # fmt: skip
    return sorted(found, key=lambda row: -int(kernel.jobs.held_since[row]))


def _jobs(daemon: Daemon, found: list[int]) -> str:
    some = ", ".join(rows.label(daemon, row) for row in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return f"job{'s' if len(found) != 1 else ''} {some}{more}"
