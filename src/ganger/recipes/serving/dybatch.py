"""DyBatch's scheduler: workloads in slices, and the one next that had the device least so far.

Zhang et al.: DyBatch: Efficient Batching and Fair Scheduling for Deep Learning Inference on
Time-sharing Devices, CCGrid 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from msgspec import Struct

from ganger.core.serving.router import DIVIDES, Abilities
from ganger.core.serving.verbs import OK, Batch, Do, Ended, News, Part
from ganger.core.serving.world import Lane, Task, World


class Workload(Struct):
    """A request that is worked on in slices: the inputs that are left, and the microseconds that it
    had a device so far."""

    model: int
    left: int
    attained: int = 0


class Memory(Struct):
    """The workloads that are open, and a heap of those that wait: (attained, request)."""

    open: dict[int, Workload] = {}
    waiting: list[tuple[int, int]] = []


@dataclass(frozen=True)
class DyBatch:
    """See the module. `most`: inputs of a slice."""

    most: int
    name: str = "dybatch"
    can: Abilities = DIVIDES

    def begin(self, world: World) -> Memory:
        """Nothing waits."""
        return Memory()

    def arrive(self, world: World, rows: range) -> None:
        """Each request is a workload that has had nothing yet."""
        memory: Memory = world.memory
        requests = world.requests
        for row in rows:
            at = row - requests.base
            memory.open[row] = Workload(requests.model[at], requests.items[at])
            heappush(memory.waiting, (0, row))

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """For each lane a slice of the workload that has had least among those that it can run."""
        memory: Memory = world.memory
        orders: list[Do] = []
        for lane in idle:
            passed: list[tuple[int, int]] = []
            while memory.waiting:
                entry = heappop(memory.waiting)
                workload = memory.open[entry[1]]
                known = world.latencies(workload.model, lane)
                if known is None:
                    passed.append(entry)
                    continue
                items = min(workload.left, self.most, known.largest)
                task = world.add_task(Task(entry[1], workload.model, items))
                part = Part(workload.model, [task], items)
                orders.append(Batch(lane.number, (part,), "it had the device least so far"))
                break
            for entry in passed:
                heappush(memory.waiting, entry)
        return orders

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """Count what the workload had; it is answered after its last slice."""
        assert isinstance(done.order, Batch), "it loads nothing"
        memory: Memory = world.memory
        for number in done.order.parts[0].tasks:
            task = world.tasks.pop(number)
            workload = memory.open[task.request]
            workload.attained += done.took
            if done.outcome == OK:
                workload.left -= task.items
            if workload.left:
                heappush(memory.waiting, (workload.attained, task.request))
            else:
                del memory.open[task.request]
                world.answer((task.request,), task.model)
        return ()

    def told(self, world: World, news: News) -> Sequence[Do]:
        """Lanes that come and go change nothing: slices wait for any."""
        return ()
