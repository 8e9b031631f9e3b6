"""Jobs that are submitted once more: the same command, script, environment and needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from ganger.core.errors import BadInput
from ganger.core.units import NEVER
from ganger.service.jobs.dependencies import Dependencies
from ganger.service.jobs.job_facts import Prepared

if TYPE_CHECKING:
    from ganger.service.daemon import Daemon

TASKS_MAX: Final = 1000
"""So many tasks of an array at once: their facts are read between two steps."""


def again(daemon: Daemon, rows: Sequence[int]) -> list[Prepared]:
    """One job, or the tasks of one array, to be submitted once more. They wait for no other job and
    for no time, a deadline is as far away as it was, and they begin with no other job's
    checkpoints. Raises BadInput. Wants the daemon's lock."""
    if len({daemon.array_of(row) for row in rows}) > 1 or (
        len(rows) > 1 and daemon.array_of(rows[0]) < 0
    ):
        raise BadInput("these are jobs of their own", where="jobs", mend="name one job or array")
    if len(rows) > TASKS_MAX:
        raise BadInput(
            f"{len(rows):,} tasks", where="jobs", mend=f"name at most {TASKS_MAX:,}, or submit anew"
        )
    return [_again(daemon, row) for row in rows]


def _again(daemon: Daemon, row: int) -> Prepared:
    jobs, facts = daemon.kernel.jobs, daemon.reader.facts(row)
    if jobs.parent[row] >= 0:
        parent = int(jobs.parent[row]) + 1
        raise BadInput(f"job {row + 1} belongs to job {parent}", mend=f"submit job {parent} again")
    spec = jobs.spec(row)
    later = spec.deadline - spec.submitted if spec.deadline < NEVER else 0
    return Prepared(
        msgspec.structs.replace(
            spec,
            after=(),
            array="",
            deadline=daemon.now() + later if spec.deadline < NEVER else NEVER,
        ),
        msgspec.structs.replace(
            facts,
            launch=msgspec.structs.replace(facts.launch, copies=""),
            begin=0,
            after_any=(),
            after_not_ok=(),
            conditions=Dependencies(),
            hold=False,
            array=-1,
        ),
    )
