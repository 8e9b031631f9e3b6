"""A router that knows all requests before they come: nobody can deploy it, and it shows how much
there is to gain. It is a good plan, not the best: that is between it and the bound."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from msgspec import Struct

from ganger.core.serving.router import Abilities, Router
from ganger.core.serving.verbs import OK, Batch, Do, Ended, News, Part, Wait
from ganger.core.serving.world import Lane, Latencies, World
from ganger.core.units import NEVER, SECOND
from ganger.mechanisms.serving.continuous import Memory as Lines
from ganger.recipes.serving.foreseen_steps import ForeseenSteps

_HORIZON: Final = SECOND
"""How far it looks where requests have no deadline."""
_SKIPS: Final = (0, 1, 2, 4, 8, 16, 32, 64, 128)
_FAR: Final = 10 * SECOND
"""It is told at least what comes until then."""
FORESEES: Final = Abilities(foresees=True, ahead=_FAR, chooses=True, loads=True)
_LATE: Final = "it could not be answered in time"


class Memory(Struct):
    """What waits: by model, (deadline, row) in order; and how many requests of it have come."""

    waiting: list[list[tuple[int, int]]]
    came: list[int]


class Plan(NamedTuple):
    """A batch that could be run `by` a model, of requests for `model`: `size` of what is there by
    `begins`, after `skips` that are given up; `ends`: by what is predicted."""

    worth: tuple[float, ...]
    model: int
    by: int
    skips: int
    size: int
    begins: int
    ends: int


def quickest(world: World, asked: int, lane: Lane) -> tuple[int, Latencies] | None:
    """Of the models that can answer, the one that takes least for a single input on a lane, and
    what it takes; None where none runs there."""
    tables = [
        (table.mean[1], model, table)
        for model in world.variants[asked]
        if (table := world.latencies(model, lane)) is not None
    ]
    if not tables:
        return None
    _, model, table = min(tables, key=lambda each: each[:2])
    return model, table


@dataclass(frozen=True)
class Clairvoyant:
    """See the module. `full`: from which load on (of what lanes can do with the best batches, until
    the deadlines of what waits) the batch is run that serves most requests per time, in any order,
    and for which more may be waited; below it, the earliest deadline first, at once.
    `steps`: what runs where there are token models; `loading`: where not all models fit. Of a
    family, the model that is quickest on the lane answers."""

    full: float
    steps: ForeseenSteps
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
        if any(known.tokens for known in world.models):
            return self.steps.begin(world)
        return Memory([[] for _ in world.variants], [0] * len(world.variants))

    def _other(self, world: World) -> Router | None:
        """What decides instead of this."""
        if world.stores:
            return self.loading
        return self.steps if isinstance(world.memory, Lines) else None

    def arrive(self, world: World, rows: range) -> None:
        """Each waits by its deadline."""
        other = self._other(world)
        if other is not None:
            other.arrive(world, rows)
            return
        memory: Memory = world.memory
        requests = world.requests
        for row in rows:
            model = requests.model[row - requests.base]
            insort(memory.waiting[model], (requests.deadline[row - requests.base], row))
            memory.came[model] += 1

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """The best plan for each lane; one that begins later is waited for."""
        other = self._other(world)
        if other is not None:
            return other.next(world, idle)
        memory: Memory = world.memory
        orders: list[Do] = []
        wake = NEVER
        for lane in idle:
            self._drop(world, memory, lane)
            plan = self._best(world, memory, lane)
            if plan is None:
                continue
            if plan.begins > world.now:
                wake = min(wake, plan.begins)
                continue
            these = slice(plan.skips, plan.skips + plan.size)
            some = memory.waiting[plan.model][these]
            del memory.waiting[plan.model][these]
            rows = [row for _, row in some]
            part = Part(plan.by, rows, world.count_items(rows))
            orders.append(Batch(lane.number, (part,), "the best that is to come"))
        if wake < NEVER:
            orders.append(Wait(wake, 1 << 30))
        return orders

    def _drop(self, world: World, memory: Memory, lane: Lane) -> None:
        """Give up what could not be in time even alone, on any lane that is up."""
        for model, waiting in enumerate(memory.waiting):
            if not waiting or quickest(world, model, lane) is None:
                continue
            alone = [
                quick[1].mean[1]
                for each in world.lanes
                if not each.down and (quick := quickest(world, model, each)) is not None
            ]
            late = bisect_left(waiting, (world.now + min(alone), -1))
            world.refuse([row for _, row in waiting[:late]], _LATE)
            del waiting[:late]

    def _best(self, world: World, memory: Memory, lane: Lane) -> Plan | None:
        here = [
            model
            for model, waiting in enumerate(memory.waiting)
            if waiting and quickest(world, model, lane) is not None
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
        for model, waiting in enumerate(memory.waiting):
            quick = quickest(world, model, lane)
            if quick is None:
                continue
            mean = quick[1].mean
            least = min(mean[n] / n for n in range(1, len(mean)))
            coming = world.future.count(model, world.now + 1, world.now + horizon)
            work += least * (len(waiting) + coming)
        up = sum(not each.down and not each.copies for each in world.lanes)
        return work / (horizon * up)

    def _plans(
        self, world: World, memory: Memory, lane: Lane, model: int, full: bool
    ) -> list[Plan]:
        """What could be run of a model."""
        quick = quickest(world, model, lane)
        assert quick is not None, "a lane that serves a model has its latencies"
        by, known = quick
        waiting, now = memory.waiting[model], world.now
        there = [now] * len(waiting)
        later = self._coming(world, memory, model, known.largest) if full else []
        sizes = self._items(world, waiting, later)
        found = []
        for skips in _SKIPS if full else (0,):
            if skips >= len(waiting):
                break
            due, items, begins = waiting[skips][0], 0, now
            best: Plan | None = None
            for count, (at, each) in enumerate(
                zip([*there[skips:], *later], sizes[skips:], strict=False), 1
            ):
                items, begins = items + each, max(begins, at)
                if items > known.largest or begins + known.p99[items] > due:
                    break
                ends = begins + known.mean[items]
                worth = (count / (ends - now),) if full else (-due + known.mean[1], count)
                plan = Plan(worth, model, by, skips, count, begins, ends)
                best = plan if best is None or plan.worth >= best.worth else best
            if best is None and not skips:  # alone, it may still be in time
                worth = (1 / known.mean[sizes[0]],) if full else (-due + known.mean[1], 1)
                best = Plan(worth, model, by, 0, 1, now, now + known.mean[sizes[0]])
            if best is not None:
                found.append(best)
        return found

    def _coming(self, world: World, memory: Memory, model: int, most: int) -> list[int]:
        """When the next requests for a model arrive."""
        came = memory.came[model]
        return [max(at, world.now) for at in world.future.next_of(model, came, most)]

    def _items(
        self, world: World, waiting: Sequence[tuple[int, int]], later: Sequence[int]
    ) -> list[int]:
        """The inputs of what waits; of what comes, one each."""
        requests = world.requests
        if requests.each_one_item:
            return [1] * (len(waiting) + len(later))
        return [*(requests.items[row - requests.base] for _, row in waiting), *([1] * len(later))]

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """Answer; what failed waits again."""
        other = self._other(world)
        if other is not None:
            return other.ended(world, done)
        order = done.order
        assert isinstance(order, Batch), "it loads nothing"
        memory: Memory = world.memory
        part = order.parts[0]
        if done.outcome == OK:
            world.answer(part.tasks, part.model)
            return ()
        for row in part.tasks:
            asked = world.requests.model[row - world.requests.base]
            insort(memory.waiting[asked], (world.deadline_of(row), row))
        return ()

    def told(self, world: World, news: News) -> Sequence[Do]:
        """Lanes come and go; it is asked again."""
        other = self._other(world)
        return () if other is None else other.told(world, news)
