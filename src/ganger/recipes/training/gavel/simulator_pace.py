"""How fast jobs step, and how many steps are left, as Gavel's public simulator counts them."""

from __future__ import annotations

from math import ceil

import numpy as np

from ganger.core.state.table import Ids
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_duration, believed_speed
from ganger.mechanisms.rounds.program import FOREVER


class _MeasuredPace:
    """Steps per second (and that they are steps) by model, GPUs, type, and whether steps are
    declared."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[tuple[int, int, str, bool], tuple[float, bool]] = {}


class Pace:
    """How fast jobs step on what, and how many steps they have left.

    Steps are those that the job declares, where their speed was measured; otherwise a step is a
    microsecond of work on the reference.
    """

    def __init__(self, view: View, jobs: Ids) -> None:
        self._view = view
        self._known = view.cached(_MeasuredPace).found
        total, done = believed_duration(view, jobs), view.work(jobs)
        self._total = dict(zip(jobs.tolist(), total.tolist(), strict=True))
        self._done = dict(zip(jobs.tolist(), done.tolist(), strict=True))

    def runs(self, job: int, kind: str) -> bool:
        """Whether the job makes any progress on that type."""
        return self._speed(job, kind)[0] > 0

    def steps(self, job: int, kind: str) -> tuple[float, int]:
        """Steps per second on the type, and steps left, at least one."""
        speed, counted = self._speed(job, kind)
        total, done = self._total[job], self._done[job]
        if not counted:
            return speed, max(ceil(min(total - done, FOREVER)), 1)
        all_steps = self._view.at.steps[job]
        return speed, max(round(all_steps) - round(all_steps * done / total), 1)

    def _speed(self, job: int, kind: str) -> tuple[float, bool]:
        view = self._view
        gpus, steps = int(view.at.gpus[job]), view.at.steps[job]
        known = self._known
        key = (view.at.model[job], gpus, kind, steps > 0)
        if key not in known:
            told = view.oracle.profile(view.jobs.models[view.at.model[job]]).measured
            if told is not None and kind in told.steps and steps > 0:
                known[key] = told.at(kind, gpus), True
            else:  # what may change is not kept
                one, many, nodes = np.array([job]), np.array([gpus]), np.array([1])
                return float(believed_speed(view, one, kind, many, nodes)[0]) * SECOND, False
        return known[key]
