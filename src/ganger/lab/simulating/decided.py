"""What each plan of a run decided, on which news, and why the others went on waiting: in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ganger.core.events import Batch, Failed, Finished, NodeDown, NodeUp, Submitted, Woke
from ganger.core.kernel import Kernel
from ganger.core.plan import Placement, Plan, Resize, Resume, Start, Stop, Suspend
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.lab.ahead.explaining import in_numbers
from ganger.lab.simulating.waited import UNKNOWN, in_words
from ganger.mechanisms.common.waiting import reason_behind, reason_for

DECISIONS_MAX: Final = 1000
"""So many are kept of a run, the first ones."""
NAMED_MAX: Final = 8
_NEWS: Final = {Submitted: "comes", Finished: "finished", Failed: "failed"}


class Decision(NamedTuple):
    """A plan that acted, `at` seconds: on what `news`, what it `did`, and why which jobs `wait`."""

    at: float
    news: str
    did: list[str]
    wait: list[str]


class DecisionRecorder:
    """A journal of decisions. `skipped`: how many more there were than it keeps."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.decisions: list[Decision] = []
        self.skipped = 0

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Take in one step."""
        if plan is None or not plan.actions:
            return
        if len(self.decisions) == DECISIONS_MAX:
            self.skipped += 1
            return
        did = [text for action in plan.actions if (text := _words(action))]
        self.decisions.append(
            Decision(batch.at / SECOND, self._news(batch), did, self._waits(plan, batch.at))
        )

    def _news(self, batch: Batch) -> str:
        jobs: dict[str, list[int]] = {}
        other = []
        for event in batch.events:
            if isinstance(event, Submitted | Finished | Failed):
                jobs.setdefault(_NEWS[type(event)], []).append(event.job)
            elif isinstance(event, NodeDown | NodeUp):
                state = "down" if isinstance(event, NodeDown) else "up"
                other.append(f"node {event.node} is {state}")
            elif isinstance(event, Woke):
                other.append("the recipe's own time came")
        news = [f"{named(rows)} {word}" for word, rows in jobs.items()]
        return "; ".join(news + other) or "the recipe decides again"

    def _waits(self, plan: Plan, now: int) -> list[str]:
        """Each reason that the plan gives, with the jobs that it holds up."""
        table, groups = self._kernel.jobs, dict[str, list[int]]()
        for row in np.flatnonzero(table.phase[: table.n] == Phase.PENDING).tolist():
            within = int(table.within[row])
            reason = reason_for(
                plan.reasons, int(table.shape[row]), int(table.tenant[row]), within
            ) or reason_behind(plan.reasons, within)
            if reason is None:
                text = in_words(*UNKNOWN)
            else:
                numbers = in_numbers(reason.evidence, now)
                text = in_words(reason.code, reason.by) + (f": {numbers}" if numbers else "")
            groups.setdefault(text, []).append(row)
        return [f"{named(rows)}: {text}" for text, rows in groups.items()]


def named(rows: Sequence[int]) -> str:
    """`job 3`, `jobs 3, 4 and 5`, at most eight of them by number."""
    if len(rows) == 1:
        return f"job {rows[0]}"
    shown = [str(row) for row in rows[:NAMED_MAX]]
    if len(rows) > NAMED_MAX:
        return f"jobs {', '.join(shown)} and {len(rows) - NAMED_MAX} more"
    return f"jobs {', '.join(shown[:-1])} and {shown[-1]}"


def _words(action: Any) -> str:
    match action:
        case Start(job=job, placement=placement):
            return f"job {job} starts on {_where(placement)}"
        case Resize(job=job, placement=placement):
            return f"job {job} goes on with {_where(placement)}"
        case Stop(job=job, why=why):
            return f"job {job} is stopped ({why})"
        case Suspend(job=job):
            return f"job {job} is suspended"
        case Resume(job=job):
            return f"job {job} is resumed"
    return ""


def _where(placement: Placement) -> str:
    parts = []
    for slot in placement:
        gpus = slot.devices.bit_count()
        parts.append(f"{gpus} GPU{'s' * (gpus != 1)} of node {slot.node}")
    return " and ".join(parts)
