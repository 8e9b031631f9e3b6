"""Why jobs waited in a run, added up by the reasons that plans gave for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ganger.core.events import Batch
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan, Reason
from ganger.core.state.jobs import Phase
from ganger.core.units import HOUR
from ganger.lab.result import Waited
from ganger.mechanisms.common.waiting import MECHANISMS

Why: TypeAlias = tuple[str, str]
"""The code of a reason, and the class that refused."""
UNKNOWN: Final[Why] = ("", "")
NOT_REACHED: Final[Why] = ("Priority", "")
"""Of jobs that a plan does not mention, while it says why others wait: as `ganger explain` has it.
"""
NO_GRANT: Final[Why] = ("Grant", "")
"""Of children whose parent does not run: there is nothing to be had from it."""
WORDS: Final = {
    "Resources": "nothing free fits it",
    "Priority": "other jobs come first",
    "AssocGrpGRES": "its tenant's quota is used up",
    "AssocGrpBilling": "its tenant's budget is spent",
    "Grant": "its parent does not run",
    "": "unknown: the recipe gave no reason",
}


def in_words(code: str, by: str) -> str:
    """A reason for people: its meaning, and which mechanism refused."""
    said = WORDS.get(code, code)
    return f"{said} ({MECHANISMS.get(by, by)})" if by else said


class Shares(NamedTuple):
    """Means over runs: of a reason the jobs that it held up, their job-hours and GPU-hours (a job
    counts with the GPUs that it asks for), and its part of all GPU-hours waited (of job-hours where
    no job asks for GPUs)."""

    reason: str
    jobs: float
    job_hours: float
    gpu_hours: float
    share: float


def hours(value: float) -> str:
    """Hours with one decimal, or with two digits where that would be nothing."""
    return f"{value:,.1f}" if value >= 1 or not value else f"{value:.2g}"


def shares(runs: Sequence[Sequence[Waited]]) -> list[Shares]:
    """What runs of one recipe waited for, the most first."""
    sums: dict[Why, list[float]] = {}
    for run in runs:
        for one in run:
            into = sums.setdefault((one.code, one.by), [0.0, 0.0, 0.0])
            for at, value in enumerate((one.jobs, one.job_hours, one.gpu_hours)):
                into[at] += value / len(runs)
    weigh = 2 if any(each[2] for each in sums.values()) else 1
    total = sum(each[weigh] for each in sums.values())
    found = [
        Shares(in_words(*why), each[0], each[1], each[2], each[weigh] / total if total else 0.0)
        for why, each in sums.items()
    ]
    return sorted(found, key=lambda one: (-one.share, one.reason))


class WaitRecorder:
    """A journal that adds up for how long jobs waited for what."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._whys: dict[Why, int] = {UNKNOWN: 0}
        self._of_class: dict[tuple[int, int, int], int] = {}
        """Shape, tenant and grant of jobs that are refused alike, numbered."""
        self._class = np.empty(0, np.int64)
        """By job: its number there."""
        self._told = np.empty(0, np.int64)
        """By that number: the reason; -1: the plan was not asked yet."""
        self._reasons: dict[tuple[int, int, int], Why] = {}
        self._scopes: set[int] = set()
        self._at = 0
        self._ids = np.empty(0, np.int64)
        self._why = np.empty(0, np.int64)
        self._time = np.zeros(64)
        self._gpu_time = np.zeros(64)
        self._held_up = np.zeros(0, np.uint64)
        """By job: the reasons that ever held it up, as bits."""

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Take in one step. Where nothing changed, the time is added up later."""
        jobs, view = self._kernel.jobs, self._kernel.view
        families, pending = view.has_families, view.pending
        if plan is None and pending is self._ids and not families:
            return  # the view makes another array when the pending jobs change
        self._elapse(batch.at)
        if plan is not None:
            self._read(plan.reasons)
        if families:  # also those whose parent does not run; parents come and go without a plan
            pending = np.flatnonzero(jobs.phase[: jobs.n] == Phase.PENDING)
            self._told[:] = -1
        self._ids = pending
        if not len(pending):
            return
        if jobs.n > len(self._class):
            self._classify()
        classes = self._class[pending]
        self._why = self._told[classes]
        if self._why.min() < 0:
            for each in np.unique(classes[self._why < 0]).tolist():
                self._told[each] = self._number(each)
            self._why = self._told[classes]

    def _elapse(self, now: int) -> None:
        """What waited has waited until now."""
        lasts, self._at = now - self._at, now
        if lasts <= 0 or not len(self._ids):
            return
        size = len(self._time)
        self._time += np.bincount(self._why, minlength=size) * float(lasts)
        asked = self._kernel.jobs.gpus[self._ids]
        self._gpu_time += np.bincount(self._why, asked, size) * float(lasts)
        self._held_up[self._ids] |= np.left_shift(np.uint64(1), self._why.astype(np.uint64))

    def _read(self, reasons: Sequence[Reason]) -> None:
        """Index what a plan says: the first of like reasons counts, as `reason_for` has it."""
        self._reasons, self._scopes = {}, set()
        for one in reasons:
            self._reasons.setdefault((one.shape, one.tenant, one.within), (one.code, one.by))
            self._scopes.add(one.within)
        self._told[:] = -1

    def _number(self, which: int) -> int:
        """The reason that is said of a class of jobs, numbered."""
        shape, tenant, within = self._keys[which]
        if within >= 0 and self._kernel.jobs.phase[within] != Phase.RUNNING:
            return self._whys.setdefault(NO_GRANT, len(self._whys))
        why = next(
            (
                self._reasons[key]
                for key in (
                    (shape, tenant, within),
                    (shape, -1, within),
                    (-1, tenant, within),
                    (-1, -1, within),
                )
                if key in self._reasons
            ),
            NOT_REACHED if within in self._scopes else UNKNOWN,
        )
        if why not in self._whys and len(self._whys) == len(self._time):
            why = UNKNOWN
        return self._whys.setdefault(why, len(self._whys))

    def _classify(self) -> None:
        """Number the classes of jobs that came."""
        jobs, known = self._kernel.jobs, len(self._class)
        columns = (jobs.shape, jobs.tenant, jobs.within)
        rows = np.stack([column[known : jobs.n] for column in columns], axis=1)
        kinds, of = np.unique(rows, axis=0, return_inverse=True)
        numbers = [
            self._of_class.setdefault((a, b, c), len(self._of_class)) for a, b, c in kinds.tolist()
        ]
        new = np.array(numbers, np.int64)[of.reshape(-1)]
        self._class = np.concatenate([self._class, new])
        self._keys = list(self._of_class)
        more = len(self._keys) - len(self._told)
        self._told = np.concatenate([self._told, np.full(more, -1)])
        self._held_up = np.concatenate([self._held_up, np.zeros(len(new), np.uint64)])

    def close(self, now: int) -> list[Waited]:
        """The run is over, at `now`: what it waited for, the most first."""
        self._elapse(now)
        found = [
            Waited(
                *why,
                int(np.count_nonzero(self._held_up >> np.uint64(at) & np.uint64(1))),
                self._time[at] / HOUR,
                self._gpu_time[at] / HOUR,
            )
            for why, at in self._whys.items()
            if self._time[at]
        ]
        return sorted(found, key=lambda one: (-one.job_hours, one.code, one.by))
