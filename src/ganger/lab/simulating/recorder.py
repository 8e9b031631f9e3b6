"""Watches a run from the journal's seat and keeps what reports need: which jobs held what, when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ganger.core.books.ledger import members
from ganger.core.events import (
    Batch,
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Refused,
    Released,
    Started,
    Submitted,
)
from ganger.core.plan import Placement, Plan, Resize, Resume, Slot, Start, Stop, Suspend
from ganger.core.state.jobs import Jobs
from ganger.core.units import SECOND, WHOLE
from ganger.lab.result import Segment, Timeline

GANTT_JOBS = 400
"""Runs with more jobs keep no segments."""


class Crowd:
    """How many jobs are on each shared GPU: one that several hold counts once."""

    def __init__(self) -> None:
        self._count: dict[tuple[int, int], int] = {}

    def come(self, placement: Placement) -> int:
        """Somebody begins; returns how many GPUs nobody was on."""
        return sum(self._add(slot.node, device, 1) == 1 for slot, device in _each(placement))

    def go(self, placement: Placement) -> int:
        """Somebody ends; returns how many GPUs nobody is on any more."""
        return sum(self._add(slot.node, device, -1) == 0 for slot, device in _each(placement))

    def _add(self, node: int, device: int, one: int) -> int:
        count = self._count[node, device] = self._count.get((node, device), 0) + one
        return count


def _each(placement: Placement) -> Iterator[tuple[Slot, int]]:
    return ((slot, device) for slot in placement for device in members(slot.devices))


class Recorder:
    """A journal that keeps placements and how many GPUs were held and executing over time."""

    def __init__(self, jobs: Jobs, node_gpus: list[int], *, segments: bool) -> None:
        self._jobs = jobs
        self._node_gpus = node_gpus
        self.last: dict[int, Placement] = {}
        """Where each job last ran."""
        self.segments: list[Segment] | None = [] if segments else None
        self._open: dict[tuple[int, int], tuple[int, Placement]] = {}
        self._times: list[int] = []
        self._held: list[int] = []
        self._executing: list[int] = []
        self._up: list[int] = [0]
        self._up_times: list[int] = [0]
        self._now_held = self._now_executing = 0
        self._running: dict[int, int] = {}
        self._size: dict[tuple[int, int], int] = {}
        self._parts: dict[int, bool] = {}
        """By shape: whether it asks for parts of GPUs."""
        self._shared: dict[tuple[int, int], Placement] = {}
        """By attempt that shares its GPUs: which."""
        self._beside: dict[int, Placement] = {}
        """The same by job that executes."""
        self._holding, self._computing = Crowd(), Crowd()

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Take in one step."""
        before = self._now_held, self._now_executing
        for event in batch.events:
            if type(event) is Submitted:
                continue
            if isinstance(event, Started):
                self._execute(event.job, event.attempt)
            elif isinstance(event, Finished | Failed | Released | Refused):
                self._release(event.job, event.attempt, batch.at)
            elif isinstance(event, NodeDown | NodeUp) and not getattr(event, "by", 0):
                sign = 1 if isinstance(event, NodeUp) else -1
                self._up.append(self._up[-1] + sign * self._node_gpus[event.node])
                self._up_times.append(batch.at)
        if plan is not None:
            for action in plan.actions:
                if isinstance(action, Start | Resize):
                    self._hold(action, batch.at)
                elif isinstance(action, Stop | Suspend):
                    self._halt(action.job)
                    if isinstance(action, Suspend):
                        self._pause(action, batch.at)
                elif isinstance(action, Resume):
                    self._execute(action.job, action.attempt)
                    self._go_on(action, batch.at)
        if (self._now_held, self._now_executing) != before:
            self._times.append(batch.at)
            self._held.append(self._now_held)
            self._executing.append(self._now_executing)

    def _hold(self, action: Start | Resize, now: int) -> None:
        key = action.job, action.attempt
        size = sum(slot.devices.bit_count() for slot in action.placement)
        if isinstance(action, Resize):
            self._halt(action.job)
        if self._jobs.within[action.job] >= 0:
            size = 0  # its parent holds these GPUs
        elif self._shares(action):
            self._shared[key], size = action.placement, 0
            self._now_held += self._holding.come(action.placement)
        self._size[key] = size
        self._now_held += size
        self.last[action.job] = action.placement
        if self.segments is not None:
            self._open[key] = now, action.placement

    def _pause(self, action: Suspend, now: int) -> None:
        """A job that is suspended has no segment: others compute where it stays."""
        since, placement = self._open.pop((action.job, action.attempt), (now, ()))
        if self.segments is not None:
            self.segments += _stays(action.job, since, now, placement)

    def _go_on(self, action: Resume, now: int) -> None:
        if self.segments is not None:
            self._open[action.job, action.attempt] = now, self.last[action.job]

    def _shares(self, action: Start | Resize) -> bool:
        """Whether others may be on its GPUs: by this placement, or as the job asks."""
        if not action.placement or action.placement[0].share:
            return bool(action.placement)
        code = int(self._jobs.shape[action.job])
        if code not in self._parts:
            roles = self._jobs.shapes[code].roles
            self._parts[code] = any(role.needs.share < WHOLE for role in roles)
        return self._parts[code]

    def _execute(self, job: int, attempt: int) -> None:
        size = self._size.get((job, attempt), 0)
        self._running[job] = size
        self._now_executing += size
        if (job, attempt) in self._shared and job not in self._beside:
            self._beside[job] = self._shared[job, attempt]
            self._now_executing += self._computing.come(self._beside[job])

    def _halt(self, job: int) -> None:
        self._now_executing -= self._running.pop(job, 0)
        if job in self._beside:
            self._now_executing -= self._computing.go(self._beside.pop(job))

    def _release(self, job: int, attempt: int, now: int) -> None:
        size = self._size.pop((job, attempt), 0)
        self._now_held -= size
        if (job, attempt) in self._shared:
            self._now_held -= self._holding.go(self._shared.pop((job, attempt)))
        if self._jobs.attempt[job] == attempt:
            self._halt(job)
        if self.segments is not None:
            since, placement = self._open.pop((job, attempt), (now, ()))
            self.segments += _stays(job, since, now, placement)

    def close(self, now: int) -> None:
        """The run is over, at `now`: what is held still has been held until then."""
        if self.segments is not None:
            for (job, _), (since, placement) in self._open.items():
                self.segments += _stays(job, since, now, placement)
            self._open.clear()

    def timeline(self, end: int, gpus: int) -> Timeline:
        """All samples so far, in seconds."""
        times = np.array(self._times, np.int64)
        waits = _waiting(self._jobs, end)
        turns = [[0], times, self._up_times, waits[0], [end]]
        moments = np.unique(np.concatenate(turns).astype(np.int64))
        at = np.searchsorted(times, moments, "right") - 1
        held = np.array([*self._held, 0])[at]
        executing = np.array([*self._executing, 0])[at]
        up_at = np.searchsorted(np.array(self._up_times), moments, "right") - 1
        waiting = np.searchsorted(waits[0], moments, "right")
        counts = np.concatenate([[0], np.cumsum(waits[1])])[waiting]
        wanted = np.concatenate([[0], np.cumsum(waits[2])])[waiting]
        return Timeline(
            moments / SECOND,
            held.astype(float),
            executing.astype(float),
            counts,
            wanted,
            gpus + np.array(self._up)[up_at],
        )


def _stays(job: int, since: int, now: int, placement: Placement) -> list[Segment]:
    return [
        Segment(job, since / SECOND, now / SECOND, slot.node, slot.devices)
        for slot in placement
        if now > since
    ]


def _waiting(jobs: Jobs, end: int) -> tuple[Any, Any, Any]:
    """When the number of jobs that never ran yet changes, by how many jobs and GPUs.

    Later waits of preempted jobs are in `pending_time`, not in this curve of the queue.
    """
    n = jobs.n
    arrived = jobs.phase[:n] != 0
    start = np.where(jobs.first_start[:n] >= 0, jobs.first_start[:n], end)[arrived]
    submitted, gpus = jobs.submitted[:n][arrived], jobs.gpus[:n][arrived].astype(np.int64)
    times = np.concatenate([submitted, start])
    order = np.argsort(times, kind="stable")
    ones = np.ones(len(submitted), np.int64)
    return (
        times[order],
        np.concatenate([ones, -ones])[order],
        np.concatenate([gpus, -gpus])[order],
    )
