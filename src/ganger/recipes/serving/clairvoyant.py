"""A router that knows all requests before they come: nobody can deploy it, and it shows how much
there is to gain. It is a good plan, not the best: that is between it and the bound."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from ganger.core.serving.router import Abilities, Router
from ganger.core.serving.verbs import OK, Batch, Do, Ended, Interrupt, News, Part, Wait
from ganger.core.serving.world import Lane, Task, World
from ganger.core.units import NEVER, SECOND
from ganger.mechanisms.serving.continuous import Memory as Lines
from ganger.mechanisms.serving.pipeline import LATE, Staged, Staging, expected
from ganger.recipes.serving.foreseen_steps import ForeseenSteps

_HORIZON: Final = SECOND
"""How far it looks where requests have no deadline."""
_SKIPS: Final = (0, 1, 2, 4, 8, 16, 32, 64, 128)
_FAR: Final = 10 * SECOND
"""It is told at least what comes until then."""
FORESEES: Final = Abilities(
    foresees=True, ahead=_FAR, chooses=True, loads=True, pipelines=True, divides=True
)
_STAGING: Final = Staging(drops=True)


class Memory(Struct):
    """What waits: by what is asked for, (deadline, row or task) in order, and how many requests of
    it have come; the pipelines under way; by request that was cut, its parts that are open."""

    waiting: list[list[tuple[int, int]]]
    came: list[int]
    staged: Staged
    cut: dict[int, int] = {}


class Spoken(Lines, kw_only=True):
    """The same where token models are asked as well, whose requests are in steps. `stepped`: the
    lanes of which the last batch was a step."""

    plans: Memory
    stepped: set[int] = field(default_factory=set)


class Plan(NamedTuple):
    """A batch that could be run `by` a model, of what waits for `model`: `size` of `able`, what is
    there by `begins`, after `skips` that are given up; `ends`: by what is predicted."""

    worth: tuple[float, ...]
    model: int
    by: int
    able: Sequence[tuple[int, int]]
    skips: int
    size: int
    begins: int
    ends: int


@dataclass(frozen=True)
class Clairvoyant:
    """See the module. `full`: from which load on (of what lanes can do with the best batches, until
    the deadlines of what waits) the batch is run that serves most requests per time, in any order,
    and for which more may be waited; below it, the earliest deadline first, at once.
    `steps`: what runs token models that requests name (None: whole requests, as of others), in turn
    with the rest; `loading`: where not all models fit. Of a family, the model that is quickest on
    the lane answers."""

    full: float
    steps: ForeseenSteps | None
    loading: Router
    name: str = "serve.clairvoyant"

    @property
    def can(self) -> Abilities:
        """It foresees."""
        return FORESEES

    def begin(self, world: World) -> Any:
        """Nothing waits."""
        if world.stores:
            return self.loading.begin(world)
        count = len(world.variants)
        plans = Memory([[] for _ in range(count)], [0] * count, _STAGING.begin(world))
        if self.steps is None or not any(known.tokens for known in world.models):
            return plans
        lines = self.steps.begin(world)
        return Spoken(lines.engines, lines.open, lines.drops, lines.turns, plans=plans)

    def arrive(self, world: World, rows: range) -> None:
        """Each waits by its deadline; one that is larger than any batch in parts."""
        if world.stores:
            self.loading.arrive(world, rows)
            return
        memory = _plans_of(world)
        requests = world.requests
        for row in rows:
            at = row - requests.base
            asked = requests.model[at]
            memory.came[asked] += 1
            if _speaks(world, asked):
                assert self.steps is not None, "without steps nothing is run in them"
                self.steps.arrive(world, range(row, row + 1))
                continue
            if asked >= world.first_pipeline:
                _wait(world, memory, _STAGING.arrive(world, memory.staged, row))
                continue
            sizes = [1]
            if not requests.each_one_item:
                sizes = _cut(
                    world, asked, requests.items[at], requests.deadline[at] - requests.arrival[at]
                )
            if len(sizes) == 1:
                insort(memory.waiting[asked], (requests.deadline[at], row))
                continue
            memory.cut[row] = len(sizes)
            arrival, due = requests.arrival[at], requests.deadline[at]
            _wait(
                world,
                memory,
                [
                    world.add_task(Task(row, asked, size, arrival=arrival, deadline=due))
                    for size in sizes
                ],
            )
        for lane in _in_the_way(world):
            world.interrupt(lane)

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """The best plan for each lane; one that begins later is waited for. Plans and steps take
        turns."""
        if world.stores:
            return self.loading.next(world, idle)
        memory = _plans_of(world)
        spoken = world.memory if isinstance(world.memory, Spoken) else None
        orders: list[Do] = []
        wake = NEVER
        _drop(world, memory)
        for lane in idle:
            plan = self._best(world, memory, lane)
            later = plan is None or plan.begins > world.now
            if spoken is not None:
                turn = later or lane.number not in spoken.stepped
                step = self._step(world, lane, alone=plan is None) if turn else None
                if step is not None:
                    spoken.stepped.add(lane.number)
                    orders.append(step)
                    continue
                spoken.stepped.discard(lane.number)
            if plan is None:
                continue
            if later:
                wake = min(wake, plan.begins)
                continue
            some = plan.able[plan.skips : plan.skips + plan.size]
            for entry in some:
                del memory.waiting[plan.model][bisect_left(memory.waiting[plan.model], entry)]
            rows = [row for _, row in some]
            part = Part(plan.by, rows, world.count_items(rows))
            orders.append(Batch(lane.number, (part,), "the best that is to come"))
        if wake < NEVER:
            orders.append(Wait(wake, 1 << 30 if spoken is None else 1))
        return orders

    def _step(self, world: World, lane: Lane, *, alone: bool) -> Batch | None:
        """A step of a token model; where nothing else waits (`alone`) for as long as it goes on
        alike."""
        assert self.steps is not None, "without steps nothing is run in them"
        for order in self.steps.next(world, (lane,)):
            assert isinstance(order, Batch), "it only runs"
            return order if alone else replace(order, steps=1)
        return None

    def _best(self, world: World, memory: Memory, lane: Lane) -> Plan | None:
        here = [
            model
            for model, waiting in enumerate(memory.waiting)
            if waiting and world.quickest(model, lane) is not None
        ]
        if not here:
            return None
        dues = [memory.waiting[model][0][0] for model in here]
        horizon = min(min(dues) - world.now, _HORIZON)
        full = self._load(world, memory, lane, max(horizon, 1)) >= self.full
        plans = [plan for model in here for plan in self._plans(world, memory, lane, model, full)]
        return max(plans, key=lambda plan: plan.worth, default=None)

    def _load(self, world: World, memory: Memory, lane: Lane, horizon: int) -> float:
        """The work that waits and comes until then, with the best batches, of what lanes can do."""
        work = 0.0
        least = [0.0] * len(world.variants)
        for model, waiting in enumerate(memory.waiting):
            quick = world.quickest(model, lane)
            if quick is None:
                continue
            least[model] = quick.each
            coming = world.future.count(model, world.now + 1, world.now + horizon)
            work += least[model] * (len(waiting) + coming)
        for model, pipeline in enumerate(world.pipelines, world.first_pipeline):
            coming = world.future.count(model, world.now + 1, world.now + horizon)
            both = zip(pipeline.stages, expected(pipeline), strict=True)
            work += coming * sum(least[stage.model] * count for stage, count in both)
        up = sum(not each.down and not each.copies for each in world.lanes)
        return work / (horizon * up)

    def _plans(
        self, world: World, memory: Memory, lane: Lane, model: int, full: bool
    ) -> list[Plan]:
        """What could be run of a model."""
        quick = world.quickest(model, lane)
        assert quick is not None, "a lane that serves a model has its latencies"
        by, known, _ = quick
        largest, mean, p99 = known.largest, known.mean, known.p99
        waiting, now = memory.waiting[model], world.now
        if not world.requests.each_one_item:
            waiting = [each for each in waiting if world.count_items(each[1:]) <= largest]
        there = [now] * len(waiting)
        later = self._coming(world, memory, model, largest) if full else []
        sizes = self._items(world, waiting, later)
        found, tasks = list[Plan](), bool(world.tasks)
        for skips in _SKIPS if full else (0,):
            if skips >= len(waiting):
                break
            due, items, begins, value = waiting[skips][0], 0, now, 0.0
            limit = NEVER if tasks else due
            best, size, starts, over = tuple[float, ...](), 0, now, now
            ready = [*there[skips : skips + largest + 1], *later]  # more is in no batch
            for count, (at, each) in enumerate(zip(ready, sizes[skips:], strict=False), 1):
                items, begins = items + each, max(begins, at)
                if tasks and skips + count <= len(waiting):
                    number = waiting[skips + count - 1][1]
                    limit = min(limit, _latest(world, memory, number))
                    value += _worth(world, memory, number)
                else:
                    value += 1
                if items > largest or begins + p99[items] > limit:
                    break
                ends = begins + mean[items]
                worth = (value / (ends - now),) if full else (-due + mean[1], count)
                if worth >= best:
                    best, size, starts, over = worth, count, begins, ends
            if not size and not skips:  # alone, it may still be in time
                first = _worth(world, memory, waiting[0][1])
                best = (first / mean[sizes[0]],) if full else (-due + mean[1], 1)
                size, starts, over = 1, now, now + mean[sizes[0]]
            if size:
                found.append(Plan(best, model, by, waiting, skips, size, starts, over))
        return found

    def _coming(self, world: World, memory: Memory, model: int, most: int) -> list[int]:
        """When the next requests for a model arrive."""
        came = memory.came[model]
        return [max(at, world.now) for at in world.future.next_of(model, came, most)]

    def _items(
        self, world: World, waiting: Sequence[tuple[int, int]], later: Sequence[int]
    ) -> list[int]:
        """The inputs of what waits; of what comes, one each."""
        if world.requests.each_one_item:
            return [1] * (len(waiting) + len(later))
        return [*(world.count_items((number,)) for _, number in waiting), *([1] * len(later))]

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """Answer, and begin what can begin by that; what failed waits again."""
        if world.stores:
            return self.loading.ended(world, done)
        order = done.order
        assert isinstance(order, Batch), "it loads nothing"
        part = order.parts[0]
        if part.tokens:
            assert self.steps is not None, "without steps nothing is run in them"
            return self.steps.ended(world, done)
        memory = _plans_of(world)
        if done.outcome != OK:
            _wait(world, memory, part.tasks)
        else:
            world.answer([number for number in part.tasks if number >= 0], part.model)
            for number in part.tasks:
                if number < 0:
                    _over(world, memory, number, part.model)
        return [Interrupt(lane) for lane in _in_the_way(world)]

    def told(self, world: World, news: News) -> Sequence[Do]:
        """Lanes come and go; it is asked again."""
        if world.stores:
            return self.loading.told(world, news)
        return self.steps.told(world, news) if self.steps and _is_spoken(world) else ()


# ---------------------------------------------------------------------- beside token models


def _is_spoken(world: World) -> bool:
    return isinstance(world.memory, Spoken)


def _plans_of(world: World) -> Memory:
    memory: Memory | Spoken = world.memory
    return memory.plans if isinstance(memory, Spoken) else memory


def _speaks(world: World, asked: int) -> bool:
    """Whether a request is for a token model that is run in steps."""
    memory: Memory | Spoken = world.memory
    return isinstance(memory, Spoken) and any(
        asked in those and those[asked].tokens for those in memory.engines
    )


def _in_the_way(world: World) -> list[int]:
    """The lanes that go on with steps while something waits that they could run in between."""
    if not _is_spoken(world):
        return []
    waits = [model for model, waiting in enumerate(_plans_of(world).waiting) if waiting]
    return [
        lane.number
        for lane in world.lanes
        if isinstance(lane.running, Batch)
        and lane.running.steps > 1
        and any(world.quickest(model, lane) is not None for model in waits)
    ]


# ---------------------------------------------------------------------- parts and stages


def _wait(world: World, memory: Memory, numbers: Sequence[int]) -> None:
    """Requests and tasks wait by their deadlines."""
    for number in numbers:
        if number < 0:
            asked = world.tasks[number].model
        else:
            asked = world.requests.model[number - world.requests.base]
        insort(memory.waiting[asked], (world.deadline_of(number), number))


def _cut(world: World, asked: int, items: int, slack: int) -> list[int]:
    """The inputs of the parts of a request, where it is larger than any batch: the fewest equal
    ones with which it could be in time alone."""
    tables = [
        quick.table
        for lane in world.lanes
        if not lane.copies and (quick := world.quickest(asked, lane)) is not None
    ]
    if items <= max((each.largest for each in tables), default=items):
        return [items]
    fewest = -(-items // min(each.largest for each in tables))
    parts = fewest
    for count in range(fewest, min(fewest + len(tables), items) + 1):
        longest = max(each.mean[-(-items // count)] for each in tables)
        if -(-count // len(tables)) * longest <= slack:
            parts = count
            break
    least, more = divmod(items, parts)
    return [least + 1] * more + [least] * (parts - more)


def _latest(world: World, memory: Memory, number: int) -> int:
    """When a request or a task must be over at the latest."""
    if number >= 0 or not world.tasks[number].step:
        return world.deadline_of(number)
    task = world.tasks[number]
    running = memory.staged.open[task.request]
    due = world.deadline_of(task.request)
    return due - _behind(world, memory, running.pipeline, task.step - 1)


def _behind(world: World, memory: Memory, pipeline: int, stage: int) -> int:
    """Microseconds from the end of a stage to the end of all, alone."""
    rests = memory.staged.rests[pipeline]
    return max((rests[to] for to, _ in world.pipelines[pipeline].stages[stage].feeds), default=0)


def _worth(world: World, memory: Memory, number: int) -> float:
    """The part that it is of what is left of its request."""
    if number >= 0:
        return 1.0
    task = world.tasks[number]
    if not task.step:
        return 1 / memory.cut[task.request]
    running = memory.staged.open[task.request]
    rest = memory.staged.rests[running.pipeline][task.step - 1]
    behind = _behind(world, memory, running.pipeline, task.step - 1)
    return (rest - behind) / rest / running.left


def _drop(world: World, memory: Memory) -> None:
    """Give up what could not be in time even alone, on any lane that is up."""
    for model, waiting in enumerate(memory.waiting):
        alone = [
            quick.table.mean
            for each in world.lanes
            if waiting and not each.down and (quick := world.quickest(model, each)) is not None
        ]
        if not alone:
            continue
        least = min(mean[1] for mean in alone)
        late = waiting[: bisect_left(waiting, (world.now + least,))]
        world.refuse([number for _, number in late if number >= 0], LATE)
        waiting[: len(late)] = [each for each in late if each[1] < 0]
        parts = [number for _, number in waiting if number < 0 and not world.tasks[number].step]
        count = Counter(world.tasks[number].request for number in parts)
        for number in parts:
            task = world.tasks[number]
            longest = min(mean[min(task.items, len(mean) - 1)] for mean in alone)
            turns = -(-count[task.request] // len(alone))
            if world.now + turns * longest > task.deadline and memory.cut.pop(task.request, 0):
                world.refuse((task.request,), LATE)
    if not world.tasks:
        return
    for waiting in memory.waiting:
        for _, number in waiting:
            if number < 0 and world.tasks[number].step:
                _STAGING.gone(world, memory.staged, number)
    for waiting in memory.waiting:
        over = [each for each in waiting if each[1] < 0 and _is_over(world, memory, each[1])]
        for entry in over:
            waiting.remove(entry)
            del world.tasks[entry[1]]


def _is_over(world: World, memory: Memory, number: int) -> bool:
    """Whether a task need not be run, because its request is over."""
    task = world.tasks[number]
    return task.request not in (memory.staged.open if task.step else memory.cut)


def _over(world: World, memory: Memory, number: int, by: int) -> None:
    """A task was executed: a request is answered with its last part."""
    if world.tasks[number].step:
        _wait(world, memory, _STAGING.over(world, memory.staged, number))
        return
    row = world.tasks.pop(number).request
    if row not in memory.cut:
        return  # it was given up meanwhile
    memory.cut[row] -= 1
    if not memory.cut[row]:
        del memory.cut[row]
        world.answer((row,), by)
