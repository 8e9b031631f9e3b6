"""Why a job is where it is, in sentences, from the plan's reasons and the present state."""

from __future__ import annotations

import numpy as np

from ganger.client.answers import (
    AlternativeAnswer,
    Asked,
    BestNode,
    Explanation,
    ReleaseAnswer,
)
from ganger.core.books.ledger import Ledger
from ganger.core.plan import Reason
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND, WHOLE, format_duration
from ganger.lab.ahead.alternatives import Waits
from ganger.lab.ahead.whatif import Outlook
from ganger.mechanisms.common.waiting import MECHANISMS, changes_in, in_one_node, ranks
from ganger.service.daemon import Daemon
from ganger.service.durable.recovery import guard_of
from ganger.service.jobs.dependencies import Condition, Conditions
from ganger.service.jobs.limits import Group
from ganger.service.reports import rows
from ganger.service.reports.states import state_of

_HOLDERS_MAX = 20
_RANKED_MAX = 5000
"""Of so many waiting jobs the recipe's own order is asked for."""
_UNITS = {"gpus": "GPUs", "jobs": "jobs", "chances": "chances", "part": ""}


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
    lasts = format_duration(daemon.now() - int(jobs.pending_since[row]))
    shape, within = jobs.shapes[jobs.shape[row]], int(jobs.within[row])
    wanted = f"{shape.gpus} GPU{'s' if shape.gpus != 1 else ''}"
    if shape.gpu_types:
        wanted += f" of type {' or '.join(shape.gpu_types)}"
    nodes = [
        node for node in rows.node_answers(daemon)
        if node.gpus and (not shape.gpu_types or node.gpu_type in shape.gpu_types)
    ]  # fmt: skip
    free = sum(node.gpus_free for node in nodes if node.state == "up")
    total = sum(node.gpus for node in nodes)
    of = " such" if shape.gpu_types else ""
    ledger = kernel.view.draft.ledger_of(row)
    if within >= 0:
        free, total = (0, 0) if ledger is None else (ledger.free, ledger.total)
        of = f" that job {rows.label(daemon, within)} holds for its children"
    found.lines.append(f"It has waited {lasts} for {wanted}; {free} of {total}{of} are free.")
    if within >= 0 and kernel.jobs.phase[within] != Phase.RUNNING:
        state = state_of(Phase(kernel.jobs.phase[within]), "")[0].lower()
        parent = rows.label(daemon, within)
        found.lines.append(f"It gets its GPUs from job {parent}, which is {state}.")
    _refused(daemon, row, found)
    holders = _holders(daemon, ledger, shape.gpu_types)
    found.holders = [job + 1 for job in holders[:_HOLDERS_MAX]]
    if holders:
        found.lines.append(f"The GPUs that it could use are held by {_jobs(daemon, holders)}.")
    others = [f"{node.gpus_withheld} on {node.name}" for node in nodes if node.gpus_withheld]
    if others:
        found.lines.append(f"GPUs are used outside Ganger: {', '.join(others)}.")
    down = [node.name + _wrong(daemon, node.name) for node in nodes if node.state != "up"]
    if down:
        found.lines.append(f"Out of use: {', '.join(down)}.")


def _refused(daemon: Daemon, row: int, found: Explanation) -> None:
    """Which mechanism refused it, with what numbers, and what could change that."""
    _rank(daemon, row, found)
    recipe, said = daemon.header.policy, rows.said_of(daemon, row)
    if found.reason == "Priority" and not found.ahead:
        found.lines.append(f"No job comes first: {_decides(daemon)}.")
    elif found.ahead and (found.reason == "Priority" or _is_strict(said)):
        passes = (
            f"{recipe} lets no job pass:" if _is_strict(said) else f"{recipe} puts others first:"
        )
        comes = "s" if found.ahead == 1 else ""
        found.lines.append(
            f"{passes} {found.ahead} job{'s' if found.ahead != 1 else ''} that wait{comes}"
            f" come{comes} before it."
        )
    elif found.reason == "AssocGrpGRES":
        found.lines.append("Its tenant has reached its quota.")
    if said is None:
        return
    found.by, found.evidence, found.until = said.by, said.evidence, changes_in(said.until)
    numbers = _numbers(said.evidence, daemon.now())
    found.lines.append(
        f"Refused by {MECHANISMS.get(said.by, 'the recipe')} ({said.by})"
        f"{f': {numbers}' if numbers else ''}."
    )
    if found.until:
        found.lines.append(f"That can change when {', or when '.join(found.until)}.")


def _is_strict(said: Reason | None) -> bool:
    """Whether nobody passes the first one of the queue."""
    return said is not None and said.evidence.get("may_pass") == 0.0


def _rank(daemon: Daemon, row: int, found: Explanation) -> None:
    """How many waiting jobs come before it: by the recipe's own order if it has one, else by
    priority and submission."""
    kernel = daemon.kernel
    jobs, within = kernel.jobs, int(kernel.jobs.within[row])
    view = kernel.view if within < 0 else kernel.view.inside(within)
    ranked = ranks(guard_of(kernel).policy, within)
    if ranked is not None and view is not None and len(view.pending) <= _RANKED_MAX:
        found.ahead = len(ranked(view, row))
    else:
        waiting = np.flatnonzero(
            (jobs.phase[: jobs.n] == Phase.PENDING) & (jobs.within[: jobs.n] == within)
        )
        order = waiting[np.lexsort((waiting, -jobs.priority[waiting]))]
        found.ahead = int(np.flatnonzero(order == row)[0])
    found.position = found.ahead + 1


def _numbers(evidence: dict[str, float], now: int) -> str:
    """Evidence in words: `quota 4 GPUs, used 3 GPUs`."""
    said = []
    for key, value in evidence.items():
        name, _, unit = key.rpartition("_")
        if key.endswith("_at_s"):
            left = max(round(value * SECOND) - now, 0)
            said.append(f"{name.removesuffix('_at')} in {format_duration(left)}")
        elif unit == "s":
            said.append(f"{name.replace('_', ' ')} {format_duration(round(value * SECOND))}")
        elif unit in _UNITS:
            thing = _UNITS[unit][: -1 if value == 1 else None]
            said.append(f"{name.replace('_', ' ')} {value:g} {thing}".rstrip())
    return ", ".join(said)


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


def expect(daemon: Daemon, found: Explanation, there: Waits | None, ahead: Outlook | None) -> None:
    """Say what there is for a job that waits, what would help, and when it is expected to start."""
    if there is not None:
        _compare(daemon, found, there)
    if ahead is None:
        found.lines.append("Its start cannot be predicted.")
        return
    rows.foreseen(found, ahead)


def _compare(daemon: Daemon, found: Explanation, there: Waits) -> None:
    """What it asks for, and the best that is there."""
    shape, names = there.shape, daemon.kernel.nodes.names
    needs = shape.roles[0].needs
    found.asks = Asked(
        gpus=shape.gpus, share=needs.share / WHOLE,
        cpus=sum(role.size * role.needs.cpus for role in shape.roles) / WHOLE,
        memory=sum(role.size * role.needs.memory for role in shape.roles),
        gpu_types=list(shape.gpu_types), pool=shape.pool, labels=list(shape.labels),
        close="node" if in_one_node(shape) else shape.locality.name.lower(),
    )  # fmt: skip
    found.free_gpus, room = there.free_gpus, there.room
    found.recipe_waits, found.starts_next = there.fits and not there.starts, there.starts
    if room is not None:
        found.best = BestNode(
            name=names[room.node], gpus_free=room.gpus, cpus_free=room.cpus / WHOLE,
            memory_free=room.memory, lacks=list(room.lacks),
        )  # fmt: skip
    found.releases = [
        ReleaseAnswer(
            job=one.job + 1, label=rows.label(daemon, one.job), gpus=one.gpus,
            nodes=[names[node] for node in one.nodes],
            latest=rows.span(one.latest), expected=rows.span(one.expected),
        )
        for one in there.ends[:_HOLDERS_MAX]
    ]  # fmt: skip
    found.alternatives = [
        AlternativeAnswer(options=one.options, nodes=one.nodes) for one in there.alternatives
    ]


def _holders(daemon: Daemon, ledger: Ledger | None, types: tuple[str, ...]) -> list[int]:
    """Who holds GPUs of a type that would do, where the job would be placed; the longest last."""
    kernel = daemon.kernel
    nodes = kernel.nodes
    fits = {
        node for node in range(nodes.n)
        if not types or nodes.types[nodes.gpu_type[node]] in types
    }  # fmt: skip
    found = [
        row for row, (_, placement) in (ledger.holds.items() if ledger is not None else ())
        if any(slot.node in fits and slot.devices for slot in placement)
    ]  # fmt: skip
    return sorted(found, key=lambda row: -int(kernel.jobs.held_since[row]))


def _jobs(daemon: Daemon, found: list[int]) -> str:
    some = ", ".join(rows.label(daemon, row) for row in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return f"job{'s' if len(found) != 1 else ''} {some}{more}"
