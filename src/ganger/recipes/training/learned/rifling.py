"""Rifling: whether the job at the head of the queue starts where there is room, or waits for GPUs
that are close together, is learned from the rates that jobs ran at."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from ganger.core.books.ledger import Fit
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, STARTED, WOKE
from ganger.core.plan import Placement, Plan, Reason
from ganger.core.spec import Locality
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_speed
from ganger.recipes.training.learned.q_table import QTable, group_of, groups_of

SPLIT, WAIT, CLOSE = 0, 1, 2
"""Start wherever there is room; wait; start on as few nodes as can hold the job."""
COUNTS = 3
"""Of so many jobs of a group or more it is not known how many."""
_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | STARTED | WOKE


class Started(msgspec.Struct, frozen=True):
    """A decision that is not judged yet: where it was taken, what it was, and the part of its nodes
    that the job could do without."""

    state: str
    action: int
    fragments: float = 0.0


class Waited(msgspec.Struct, frozen=True):
    """The job that was made to wait last, in which state, and when."""

    job: int
    state: str
    at: int


class Lessons(msgspec.Struct):
    """What was learned: the table, the centres of groups and when they were found, what was seen of
    each model, and decisions that are not judged yet."""

    table: QTable
    centres: list[float] = []
    grouped: int = -1
    features: dict[str, float] = {}
    started: dict[int, Started] = {}
    waited: Waited | None = None


@dataclass(frozen=True)
class Rifling:
    """First come, first served. `groups` of jobs by how much of their speed they keep when they are
    split over more nodes; found anew at multiples of `regroup`. A wait is worth what follows it,
    less by `discount` for each `patience` microseconds. `epsilon`: the chance of any action at
    first; `rate`: the least step of learning; `fragmentation`: what nodes that could be done
    without cost."""

    name: str
    groups: int
    regroup: int
    discount: float
    patience: int
    epsilon: float
    rate: float
    fragmentation: float

    def decide(self, view: View, memory: Lessons | None) -> tuple[Plan, Lessons]:
        """Judge what was decided before, then decide about the head of the queue."""
        lessons = memory or Lessons(QTable([1.0, self.discount, 1.0]))
        self._judge(view, lessons)
        self._regroup(view, lessons)
        reasons, wake = list[Reason](), NEVER
        for job in view.pending.tolist():
            placement, evidence = self._head(view, lessons, job)
            if placement is None:
                shape = int(view.at.shape[job])
                reasons.append(
                    Reason("Resources", "Rifling", shape, evidence=evidence, until=_CHANGES)
                )
                wake = view.now + self.patience if lessons.waited is not None else NEVER
                break
            view.draft.start(job, placement)
        return view.draft.plan(reasons, wake, _CHANGES), lessons

    def _judge(self, view: View, lessons: Lessons) -> None:
        """Jobs that run by now say what their start was worth: their rate, less fragments."""
        for job, start in list(lessons.started.items()):
            phase = int(view.jobs.phase[job])
            if phase == Phase.STARTING:
                continue
            del lessons.started[job]
            if phase == Phase.RUNNING:
                reward = float(view.jobs.rate[job]) - self.fragmentation * start.fragments
                lessons.table.learn(start.state, start.action, reward, self.rate)

    def _regroup(self, view: View, lessons: Lessons) -> None:
        due = view.now // self.regroup
        for job in view.pending.tolist():
            model = view.jobs.models[int(view.jobs.model[job])]
            if model not in lessons.features and int(view.jobs.gpus[job]) > 1:
                lessons.features[model] = kept(view, job)
                due = max(due, lessons.grouped + 1) if len(lessons.features) <= self.groups else due
        if due > lessons.grouped:
            lessons.grouped = due
            lessons.centres = groups_of(list(lessons.features.values()), self.groups)

    def _head(
        self, view: View, lessons: Lessons, job: int
    ) -> tuple[Placement | None, dict[str, float]]:
        """Where the job starts now, and if nowhere, why."""
        shape, table = view.draft.shape(job), lessons.table
        evidence = {"asked_gpus": float(view.at.gpus[job])}
        if view.ledger.lacks(shape):
            return None, evidence
        wide = view.ledger.find(shape, (), Fit.BEST, Locality.ANY)
        if wide is None:
            return None, evidence
        nodes, fewest = len({slot.node for slot in wide}), fewest_nodes(view, job)
        state = self._state(view, lessons, job)
        actions = [CLOSE] if nodes <= fewest else [SPLIT]
        if actions == [SPLIT] and len(view.ledger.holds):
            actions.append(WAIT)
        before = lessons.waited
        if before is not None and before.job == job and before.at < view.now:
            later = self.discount ** ((view.now - before.at) / self.patience)
            worth = later * table.value(state, table.best(state, actions))
            table.learn(before.state, WAIT, worth, self.rate)
        action = table.choose(state, actions, self.epsilon, view.rng(f"rifling {job}"))
        if action == WAIT:
            lessons.waited = Waited(job, state, view.now)
            return None, evidence | {"patience_s": self.patience / SECOND}
        lessons.waited = None
        lessons.started[job] = Started(state, action, (nodes - min(fewest, nodes)) / nodes)
        return wide, evidence

    def _state(self, view: View, lessons: Lessons, job: int) -> str:
        """The group of the job, how many jobs of each group hold GPUs, and how many are free: the
        power of two that they reach."""
        counts = [0] * max(len(lessons.centres), 1)
        for other in view.ledger.holds:
            counts[self._group(view, lessons, other)] += 1
        ledger = view.ledger
        free = sum(n for n, up in zip(ledger.free_count, ledger.up, strict=True) if up).bit_length()
        return f"{self._group(view, lessons, job)} {[min(n, COUNTS) for n in counts]} {free}"

    def _group(self, view: View, lessons: Lessons, job: int) -> int:
        model = view.jobs.models[int(view.jobs.model[job])]
        return group_of(lessons.features.get(model, 1.0), lessons.centres)


def fewest_nodes(view: View, job: int) -> int:
    """On so many nodes the job could run if they were empty."""
    cells = view.ledger.cells_for(view.draft.shape(job))
    return -(-int(view.at.gpus[job]) // max([1, *(cell.widest for cell in cells)]))


def kept(view: View, job: int) -> float:
    """The part of its speed that a job is believed to keep on twice as many nodes as it needs: near
    1 for jobs that mostly compute, less the more they communicate."""
    gpus, fewest = int(view.at.gpus[job]), fewest_nodes(view, job)
    cells = view.ledger.cells_for(view.draft.shape(job))
    gpu_type = cells[0].gpu_type if cells else ""
    nodes = np.array([fewest, min(2 * fewest, gpus)])
    ids = np.array([job, job])
    close, split = believed_speed(view, ids, gpu_type, np.array([gpus, gpus]), nodes).tolist()
    return split / close if close > 0.0 else 1.0
