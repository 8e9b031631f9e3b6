"""ParM: a parity model is asked of the sum of some inputs, and stands in for a late answer.

A parity model is one that gives, of the sum of `k` inputs, the sum of what its model gives of each.
So of `k` answers and that of the parity model any one can be missing: it is what the others leave
of the sum. Some lanes run parity models only. (Kosaian et al.: Parity Models, SOSP 2019.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from ganger.core.serving.router import Abilities
from ganger.core.serving.verbs import OK, Batch, Do, Ended, News, Part
from ganger.core.serving.world import Lane, Task, World
from ganger.mechanisms.serving.batching import taken
from ganger.mechanisms.serving.queues import Fifo

_NO_LANE: Final = "no lane runs its model"


class Group(Struct):
    """Requests that are encoded together, with their `inputs`. `batch`: the number of the batch
    with the last of them; `scores`: what was given of each for every class; `parity`: what was
    given of their sum; `unanswered`: how many."""

    model: int
    rows: list[int] = []
    inputs: list[int] = []
    batch: int = 0
    scores: dict[int, Sequence[float]] = {}
    parity: Sequence[float] = ()
    unanswered: int = 0


class Memory(Struct):
    """`queues`: by model, of whole requests and of sums; `coded`: by model, its parity model and
    how many inputs that is asked of, if a lane that is kept for such runs it; `for_parity`: of each
    lane; `able`: by model, whether another lane runs it; `open`: by model, groups that want more
    requests; `group_of`: by request without an answer; `by_task`: by number of a sum; `early`:
    requests that were answered before their batch ended; `batches`: how many were encoded."""

    queues: list[Fifo]
    coded: dict[int, tuple[int, int]]
    for_parity: list[bool]
    able: list[bool]
    open: dict[int, list[Group]] = {}
    group_of: dict[int, Group] = {}
    by_task: dict[int, Group] = {}
    early: set[int] = set()
    batches: int = 0


@dataclass(frozen=True)
class ParM:
    """See the module. `size`: the largest batch."""

    size: int
    name: str = "parm"

    @property
    def can(self) -> Abilities:
        """It reads what models give for every class."""
        return Abilities(weighs=True)

    def begin(self, world: World) -> Memory:
        """Of `k + 1` lanes one is kept for parity models, and of more in the same proportion; none,
        where there is no parity model."""
        codes = {known.name: at for at, known in enumerate(world.models)}
        coded = {
            codes[known.parity_of]: (at, known.parity_k)
            for at, known in enumerate(world.models)
            if known.parity_of in codes
        }
        count, least = len(world.lanes), min((k for _, k in coded.values()), default=0)
        kept = max(count // (least + 1), 1) if coded and count > 1 else 0
        for_parity = [lane.number >= count - kept for lane in world.lanes]

        def runs(model: int, parity: bool) -> bool:
            return any(
                world.latencies(model, lane) is not None
                for lane in world.lanes
                if for_parity[lane.number] == parity
            )

        models = range(len(world.models))
        return Memory(
            [Fifo(model, 0) for model in models],
            {model: pair for model, pair in coded.items() if runs(pair[0], True)},
            for_parity,
            [runs(model, False) for model in models],
        )

    def arrive(self, world: World, rows: range) -> None:
        """Each waits for a lane that runs its model."""
        memory: Memory = world.memory
        requests = world.requests
        for row in rows:
            model = requests.model[row - requests.base]
            if memory.able[model]:
                memory.queues[model].push(world, [row])
            else:
                world.refuse((row,), _NO_LANE, at=requests.arrival[row - requests.base])

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """What waits goes to the first idle lanes, the oldest request first, and is encoded."""
        memory: Memory = world.memory
        orders: list[Do] = []
        for lane in idle:
            if lane.running is not None:
                continue
            parity = memory.for_parity[lane.number]
            waits = [
                queue
                for queue in memory.queues
                if self._head(world, memory, queue)
                and (queue.head < 0) == parity
                and world.latencies(queue.model, lane) is not None
            ]
            if not waits:
                continue
            queue = min(waits, key=lambda queue: queue.key(world))
            count, inputs = taken(world, queue, lane, self.size)
            rows = queue.pop(count)
            early = [row for row in rows if row in memory.early]
            if early:
                memory.early.difference_update(early)
                rows = [row for row in rows if row not in early]
                inputs = world.count_items(rows)
            if not parity:
                self._encode(world, memory, queue.model, rows)
            reason = "sums of inputs" if parity else "whatever waits"
            orders.append(Batch(lane.number, (Part(queue.model, rows, inputs),), reason))
        return orders

    def _head(self, world: World, memory: Memory, queue: Fifo) -> bool:
        """Whether anything waits, once what is answered already is taken off the head."""
        while len(queue):
            head = queue.head
            if head < 0 and memory.by_task[head].unanswered:
                return True
            if head >= 0 and head not in memory.early:
                return True
            queue.pop(1)
            memory.early.discard(head)
            if head < 0:
                del memory.by_task[head], world.tasks[head]
        return False

    def _encode(self, world: World, memory: Memory, model: int, rows: Sequence[int]) -> None:
        """Put requests into groups, those of a batch into different ones; the sum of a group that
        is full waits for a lane of its own."""
        if model not in memory.coded:
            return
        parity, k = memory.coded[model]
        memory.batches += 1
        groups = memory.open.setdefault(model, [])
        requests = world.requests
        for row in rows:
            at = row - requests.base
            if row in memory.group_of or requests.items[at] != 1 or requests.input[at] < 0:
                continue
            group = next((each for each in groups if each.batch < memory.batches), None)
            if group is None:
                group = Group(model)
                groups.append(group)
            group.rows.append(row)
            group.inputs.append(requests.input[at])
            group.batch, group.unanswered = memory.batches, group.unanswered + 1
            memory.group_of[row] = group
            if len(group.rows) == k:
                groups.remove(group)
                task = Task(row, parity, arrival=world.now, inputs=tuple(group.inputs))
                number = world.add_task(task)
                memory.by_task[number] = group
                memory.queues[parity].push(world, [number])

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """Answer, and decode what one answer is missing of; what failed waits again."""
        memory: Memory = world.memory
        assert isinstance(done.order, Batch), "it loads nothing"
        part = done.order.parts[0]
        scores = done.scores[0] if done.scores else [()] * len(part.tasks)
        if done.outcome != OK:
            early = [row for row in part.tasks if row in memory.early]
            memory.early.difference_update(early)
            again = [row for row in part.tasks if row not in early]
            memory.queues[part.model].push(world, again)
            return ()
        touched: list[Group] = []
        for number, given in zip(part.tasks, scores, strict=True):
            if number < 0:
                group = memory.by_task.pop(number)
                group.parity = given
                del world.tasks[number]
                touched.append(group)
                continue
            if number in memory.early:  # it was decoded
                memory.early.discard(number)
                continue
            world.answer((number,), part.model)
            coded = memory.group_of.pop(number, None)
            if coded is not None:
                coded.scores[number] = given
                coded.unanswered -= 1
                touched.append(coded)
        for group in touched:
            self._decode(world, memory, group)
        return ()

    def _decode(self, world: World, memory: Memory, group: Group) -> None:
        """Answer the one request that has no answer yet, if all others and the parity are there."""
        if not group.parity or group.unanswered != 1:
            return
        others = [group.scores.get(row, ()) for row in group.rows if row in group.scores]
        if len(others) != len(group.rows) - 1 or any(
            len(each) != len(group.parity) for each in others
        ):
            return
        row = next(row for row in group.rows if row not in group.scores)
        rest = [total - sum(given) for total, *given in zip(group.parity, *others, strict=True)]
        world.said[row] = max(range(len(rest)), key=lambda at: (rest[at], -at))
        world.answer((row,), group.model)
        del memory.group_of[row]
        memory.early.add(row)
        group.unanswered = 0

    def told(self, world: World, news: News) -> Sequence[Do]:
        """What waits goes on when a lane that can run it is there."""
        return ()
