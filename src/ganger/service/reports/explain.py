"""Why a job is where it is, in sentences, from the plan's reasons and the present state."""

from __future__ import annotations

import numpy as np

from ganger.client.answers import Explanation
from ganger.client.states import state_of
from ganger.core.state.jobs import Phase
from ganger.core.units import WHOLE, format_duration
from ganger.lab.ahead.alternatives import Waits
from ganger.lab.ahead.company import explain_company
from ganger.lab.ahead.explaining import (
    HOLDERS_MAX,
    compare,
    explain_suspended,
    explain_waiting,
    jobs_named,
)
from ganger.lab.ahead.links import explain_links
from ganger.lab.ahead.whatif import Outlook
from ganger.service.daemon import Daemon
from ganger.service.jobs.dependencies import Condition, Dependencies
from ganger.service.jobs.limits import Group
from ganger.service.reports import families, rows


def explain(daemon: Daemon, row: int) -> Explanation:
    """Wants the daemon's lock."""
    kernel = daemon.kernel
    phase = Phase(kernel.jobs.phase[row])
    reason = rows.reason_of(daemon, row)
    found = Explanation(
        job=row + 1,
        label=rows.label(daemon, row),
        state=state_of(phase, daemon.ends.get(row, ""))[0],
        reason=reason,
        lines=[],
    )
    if phase == Phase.BLOCKED:
        _blocked(daemon, row, found)
    elif phase == Phase.PENDING:
        explain_waiting(rows.scene_of(daemon), row, found)
    elif phase >= Phase.FINISHED:
        found.lines.append(f"It is over: {found.state.lower()}{f' ({reason})' if reason else ''}.")
        if reason == "DependencyNeverSatisfied":
            _never(daemon, row, found)
    else:
        held = kernel.placements().get(row, ())
        has = rows.devices(daemon, row, int(kernel.jobs.attempt[row]), held)
        lasts = format_duration(daemon.now() - int(kernel.jobs.held_since[row]))
        what = f"has held {', '.join(has)}" if has else "has run and held nothing itself"
        if not explain_suspended(rows.scene_of(daemon), row, has, found):
            found.lines.append(f"It {what} for {lasts}.")
            explain_company(rows.scene_of(daemon), row, found)
            explain_links(rows.scene_of(daemon), row, found)
    found.lines += families.sentences(daemon, row)
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
        found.lines.append(
            f"{tenant} may have {_room(daemon, ('tenant', tenant))} GPUs at once: it enters the"
            f" queue when jobs of {tenant} end, or when `ganger quota` allows more."
        )
    elif found.reason == "JobArrayTaskLimit":
        room = _room(daemon, ("array", str(facts.array)))
        found.lines.append(
            f"Its array may have {room} tasks in the queue at once: it enters the queue when one of"
            f" them ends, or when `ganger update {facts.array + 1} --throttle` allows more."
        )
    elif found.reason == "Paused":
        found.lines.append("The recipe for trials has set it aside with its work.")
    elif found.reason == "Priority":
        found.lines.append("It is about to enter the queue.")
    else:
        found.lines.append(f"It is held; `ganger release {found.label}` lets it go.")


def _dependent(daemon: Daemon, row: int, waits_for: Dependencies, found: Explanation) -> None:
    jobs = daemon.kernel.jobs
    before = tuple(jobs.after.get(row, ()))
    every = (*((Condition("ok", before),) if before else ()), *waits_for.every)
    waits = [one for one in every if not _holds(one, daemon)]
    either = () if any(_holds(one, daemon) for one in waits_for.either) else waits_for.either
    rows_ = dict.fromkeys(
        job for one in (*waits, *either) for job in one.rows if not one.settled(job, jobs)
    )
    found.holders = [job + 1 for job in list(rows_)[:HOLDERS_MAX]]
    found.lines += [f"It waits for {_said(daemon, one)}." for one in waits]
    if either:
        some = ", or ".join(_said(daemon, one) for one in either)
        found.lines.append(f"It waits for one of these: {some}.")


def _never(daemon: Daemon, row: int, found: Explanation) -> None:
    """Which of those that it waited for had ended as it could not use."""
    jobs = daemon.kernel.jobs
    before = (*jobs.after.get(row, ()), *daemon.reader.facts(row).waits_for.rows)
    for other in list(dict.fromkeys(before))[:HOLDERS_MAX]:
        phase = Phase(jobs.phase[other])
        if phase >= Phase.FINISHED:
            state = state_of(phase, daemon.ends.get(other, ""))[0].lower()
            found.lines.append(f"It waited for job {rows.label(daemon, other)}, which is {state}.")


def _holds(one: Condition, daemon: Daemon) -> bool:
    at = one.opens(daemon.kernel.jobs)
    return at is not None and at <= daemon.now()


def _said(daemon: Daemon, one: Condition) -> str:
    jobs = daemon.kernel.jobs
    left = [row for row in one.rows if not one.settled(row, jobs)] or list(one.rows)
    return one.said(jobs_named(lambda row: rows.label(daemon, row), left))


def _room(daemon: Daemon, group: Group) -> str:
    ceilings = daemon.gates.ceilings
    unit = WHOLE if group[0] == "tenant" else 1
    return f"{ceilings.most.get(group, 0) / unit:g} (now {ceilings.taken(group) / unit:g})"


def spokesman(daemon: Daemon, rows_: list[int]) -> int:
    """Of an array the first task that waits, else the first that is not over, else the first; of
    what is not an array itself."""
    phases = daemon.kernel.jobs.phase[rows_]
    for true in (phases <= Phase.PENDING, phases < Phase.FINISHED):
        if true.any():
            return rows_[int(np.argmax(true))]
    return rows_[0]


def expect(daemon: Daemon, found: Explanation, there: Waits | None, ahead: Outlook | None) -> None:
    """Say what there is for a job that waits, what would help, and when it is expected to start."""
    if there is not None:
        compare(rows.scene_of(daemon), found, there)
    if ahead is None:
        found.lines.append("Its start cannot be predicted.")
        return
    rows.foreseen(found, ahead)
