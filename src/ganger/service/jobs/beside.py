"""What the daemon knows of jobs beside its kernel: names, arrays, how attempts ended, what is held.

It is read from the journal at a start, and kept level with the kernel after every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ganger.core.events import AnyEvent, Command, Failed, Finished, Refused, Released
from ganger.core.state.jobs import Phase
from ganger.core.state.reducer import RESCALES
from ganger.service.commands import Turn
from ganger.service.durable.record import outcome
from ganger.service.jobs.holds import Holds
from ganger.service.jobs.limits import begins, changed_ceilings, kept_ceilings

if TYPE_CHECKING:
    from ganger.service.daemon import Daemon


def read_beside(daemon: Daemon) -> None:
    """Know it from the journal."""
    journal = daemon.journal
    daemon.names, daemon.tasks, daemon.gates = [], {}, Holds()
    for job, name, array, task, held in journal.names():
        daemon.names.append(name)
        if array >= 0:
            daemon.tasks[job] = array, task
        if held:
            daemon.gates.held.add(job)
    daemon.ends = journal.outcomes()
    daemon.set_aside = journal.set_aside()
    for record in daemon.set_aside:
        if record.job >= 0:
            daemon.ends[record.job] = f"set aside: {record.why}"
    daemon.gates.ceilings.most = kept_ceilings(journal)
    _close_gates(daemon, daemon.kernel.now)


def follow(daemon: Daemon, turn: Turn, happened: Sequence[AnyEvent]) -> set[int]:
    """Bring it up to a step that was made; the jobs that the step touched."""
    gates = daemon.gates
    for row, facts in turn.jobs:
        daemon.names.append(facts.name)
        if facts.task >= 0:
            daemon.tasks[row] = facts.array, facts.task
        if facts.hold:
            gates.held.add(row)
    _follow_ceilings(daemon, turn)
    for row, held in turn.held.items():
        if held:
            gates.held.add(row)
        else:
            gates.let_go(row)
    for event in happened:
        if isinstance(event, Failed | Refused | Released):
            daemon.ends[event.job] = outcome(event)
        elif isinstance(event, Finished):
            daemon.ends.pop(event.job, None)
    for event in turn.events:
        if isinstance(event, Command) and event.verb == "priority":
            gates.rank(event.job, int(event.value))
        elif isinstance(event, Command) and event.verb in RESCALES:
            gates.rescaled(event.job, daemon.array_of(event.job), daemon.kernel)
    touched = {event.job for event in (*happened, *turn.events) if hasattr(event, "job")}
    gates.notice(daemon.kernel, touched)
    return touched


def _follow_ceilings(daemon: Daemon, turn: Turn) -> None:
    """Let jobs in below the ceilings that hold from this step on."""
    gates, jobs = daemon.gates, daemon.kernel.jobs
    new = {group for group in turn.ceilings if group not in gates.ceilings.most}
    gates.ceilings.most = changed_ceilings(gates.ceilings.most, turn.ceilings, jobs)
    first = turn.jobs[0][0] if turn.jobs else jobs.n
    if any(
        most is None or (group in new and not begins(group, first))
        for group, most in turn.ceilings.items()
    ):
        _close_gates(daemon, turn.at)
    else:
        gates.newcomers(turn.jobs, daemon.kernel, turn.at)
        for group, most in turn.ceilings.items():
            if most is not None and group not in new:
                gates.raised(group, most)


def _close_gates(daemon: Daemon, now: int) -> None:
    """Close all gates anew, and count what is let in below which ceiling."""
    kernel, gates = daemon.kernel, daemon.gates
    gates.again()
    phases = kernel.jobs.phase[: kernel.jobs.n]
    for row in np.flatnonzero(phases < Phase.FINISHED).tolist() if gates.ceilings.most else ():
        if phases[row] != Phase.BLOCKED or row not in kernel.on_hold:
            gates.ceilings.take(row, gates.ceilings.needs_of(row, daemon.array_of(row), kernel))
    for row in sorted(kernel.on_hold):
        gates.close(row, daemon.journal.facts(row), kernel, now)
