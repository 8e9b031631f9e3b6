"""Checks a diary from outside: what executed where and when, by events and actions alone.

Knows nothing of ledgers and phases, so that it cannot share their mistakes.
"""

from __future__ import annotations

from collections import defaultdict

from ganger.core.events import Failed, Finished, Released, Started
from ganger.core.plan import Placement, Resize, Start
from worlds import Played

Attempt = tuple[int, int]


class Audit:
    """Walks a diary, raising AssertionError at the first thing that must never be."""

    def __init__(self, played: Played) -> None:
        self.played, self.jobs = played, played.jobs
        self.placed: dict[Attempt, Placement] = {}
        self.executing: set[Attempt] = set()
        self.over: set[Attempt] = set()

    def walk(self) -> None:
        """From the first step to the last."""
        now = 0
        for batch, plan in self.played.diary.steps:
            assert batch.at >= now, "time ran backwards"
            now = batch.at
            ranks = [event.rank for event in batch.events]
            assert ranks == sorted(ranks), "a batch is in the order of kinds"
            for event in batch.events:
                if isinstance(event, Started):
                    self._start((event.job, event.attempt))
                elif isinstance(event, Finished | Failed | Released):
                    self._end((event.job, event.attempt))
            self._check_devices()
            for action in plan.actions if plan is not None else []:
                if isinstance(action, Start | Resize):
                    self._place((action.job, action.attempt), action.placement)

    def _place(self, attempt: Attempt, placement: Placement) -> None:
        assert attempt not in self.placed, f"{attempt} was started twice"
        self.placed[attempt] = placement
        shape = self.jobs.shapes[self.jobs.shape[attempt[0]]]
        for number, role in enumerate(shape.roles):
            workers = sum(slot.workers for slot in placement if slot.role == number)
            assert role.range[0] <= workers <= role.range[1], f"{attempt} is not a whole gang"

    def _start(self, attempt: Attempt) -> None:
        assert attempt in self.placed
        assert attempt not in self.over | self.executing
        job = attempt[0]
        assert job not in {other for other, _ in self.executing}, f"job {job} runs twice"
        self.executing.add(attempt)

    def _end(self, attempt: Attempt) -> None:
        assert attempt not in self.over, f"{attempt} ended twice"
        self.over.add(attempt)
        self.executing.discard(attempt)

    def _check_devices(self) -> None:
        nodes = self.played.kernel.nodes
        used: dict[tuple[int, int], int] = defaultdict(int)
        memory: dict[tuple[int, int], int] = defaultdict(int)
        cpus: dict[int, int] = defaultdict(int)
        host: dict[int, int] = defaultdict(int)
        for attempt in self.executing:
            shape = self.jobs.shapes[self.jobs.shape[attempt[0]]]
            for slot in self.placed[attempt]:
                needs = shape.roles[slot.role].needs
                cpus[slot.node] += needs.cpus * slot.workers
                host[slot.node] += needs.memory * slot.workers
                assert slot.devices.bit_count() == needs.gpus * slot.workers
                for device in range(64):
                    if slot.devices >> device & 1:
                        assert device < nodes.gpus[slot.node]
                        used[slot.node, device] += slot.share or needs.share
                        memory[slot.node, device] += needs.gpu_memory
        assert all(share <= 1000 for share in used.values()), "a device over its capacity"
        for (node, _), mib in memory.items():
            assert mib <= nodes.type_specs[nodes.gpu_type[node]].memory
        for node in cpus:
            assert cpus[node] <= nodes.cpus[node]
            assert host[node] <= nodes.memory[node]
