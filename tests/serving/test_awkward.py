"""Small routers for what is awkward in published systems: the verbs are enough for each.

They are driven by the watch of all others (`rig.Seen`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ganger.core.serving.router import PLAIN, Abilities
from ganger.core.serving.verbs import (
    CANCELLED,
    INTERRUPTED,
    OK,
    Batch,
    Cancel,
    Do,
    Ended,
    Evict,
    Interrupt,
    Load,
    News,
    Part,
    Wait,
)
from ganger.core.serving.world import Lane, Store, Task, World
from serving.rig import MS, Asked, affine, lanes, model, placed, play, table


class Mini:
    """Remembers in a dictionary; answers what is over."""

    name, can = "mini", PLAIN

    def begin(self, world: World) -> Any:
        return {"waiting": [], "open": {}}

    def arrive(self, world: World, rows: range) -> None:
        world.memory["waiting"] += rows

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        waiting = world.memory["waiting"]
        return [self.batch(world, lane, [waiting.pop(0)]) for lane in idle[: len(waiting)]]

    def batch(self, world: World, lane: Lane, tasks: list[int]) -> Batch:
        first = tasks[0]
        which = world.tasks[first].model if first < 0 else self.model_of(world, first)
        return Batch(lane.number, (Part(which, tasks, len(tasks)),), "next")

    def model_of(self, world: World, row: int) -> int:
        return world.requests.model[row - world.requests.base]

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        assert isinstance(done.order, Batch)
        for part in done.order.parts:
            world.answer(part.tasks, part.model)
        return ()

    def told(self, world: World, news: News) -> Sequence[Do]:
        return ()


class Ensemble(Mini):
    """Every request is asked of all models; at its deadline what has come must do."""

    def arrive(self, world: World, rows: range) -> None:
        for row in rows:
            members = [world.add_task(Task(row, which)) for which in range(len(world.models))]
            world.memory["open"][row] = len(members)
            world.memory["waiting"] += members

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        base, deadlines = world.requests.base, world.requests.deadline
        orders: list[Do] = []
        for row in [row for row in world.memory["open"] if deadlines[row - base] <= world.now]:
            world.answer((row,))
            del world.memory["open"][row]
            orders += [
                Cancel(lane.number)
                for lane in world.lanes
                if isinstance(lane.running, Batch)
                and world.tasks[lane.running.parts[0].tasks[0]].request == row
            ]
        gone = world.memory["open"]
        world.memory["waiting"] = [
            each for each in world.memory["waiting"] if world.tasks[each].request in gone
        ]
        orders += super().next(world, idle)
        due = [deadlines[row - base] for row in world.memory["open"]]
        return [*orders, Wait(min(due))] if due else orders

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        assert isinstance(done.order, Batch)
        row = world.tasks.pop(done.order.parts[0].tasks[0]).request
        if done.outcome == OK and row in world.memory["open"]:
            world.memory["open"][row] -= 1
            if not world.memory["open"][row]:
                del world.memory["open"][row]
                world.answer((row,))
        due = [world.requests.deadline[row - world.requests.base] for row in world.memory["open"]]
        return [Wait(min(due))] if due else []


def test_an_ensemble_answers_at_the_deadline_with_what_has_come() -> None:
    models = [model("fast", table(3)), model("slow", table(50))]
    seen = play(Ensemble(), models, lanes(2), [Asked(0, 0, 20), Asked(30, 0, 60)])
    assert seen.ended == [20, 80]  # the slow one was given up at 20, and waited for until 80
    slow = [batch for batch in seen.batches if batch.model == 1]
    assert [(each.ended, each.outcome) for each in slow] == [(20, CANCELLED), (80, OK)]


class Hedge(Mini):
    """A copy on another lane where an answer takes longer than 12 ms; the first counts."""

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        orders = list(super().next(world, idle))
        free = [
            lane
            for lane in idle
            if all(each.lane != lane.number for each in orders if isinstance(each, Batch))
        ]
        late = [
            lane
            for lane in world.lanes
            if lane.running is not None and world.now - lane.since >= 12 * MS
        ]
        for lane, other in zip(late, free, strict=False):
            assert isinstance(lane.running, Batch)
            row = lane.running.parts[0].tasks[0]
            if row not in world.memory["open"]:
                world.memory["open"][row] = lane.number, other.number
                orders.append(self.batch(world, other, [row]))
        running = [lane.since + 12 * MS for lane in world.lanes if lane.running is not None]
        ahead = [at for at in (*running, world.now + 12 * MS) if at > world.now]
        return [*orders, Wait(min(ahead))] if orders or running else orders

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        assert isinstance(done.order, Batch)
        row = done.order.parts[0].tasks[0]
        if done.outcome == OK:
            world.answer((row,), done.order.parts[0].model)
            both = world.memory["open"].pop(row, ())
            return [Cancel(lane) for lane in both if lane != done.order.lane]
        return ()


def test_a_hedge_is_cancelled_when_the_other_copy_answers() -> None:
    spread = model("m", table(10, p99=8.0))
    asked = [Asked(40.0 * at) for at in range(60)]
    seen = play(Hedge(), [spread], lanes(2), asked, noise=1.0)
    copies = [batch for batch in seen.batches if batch.outcome == CANCELLED]
    assert copies
    for cancelled in copies:
        other = next(
            each for each in seen.batches if each.tasks == cancelled.tasks and each.outcome == OK
        )
        assert other.ended == cancelled.ended
        assert abs(other.began - cancelled.began) == 12


class Pipeline(Mini):
    """Model 0, then model 1 on what it gave; the last stage answers."""

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        assert isinstance(done.order, Batch)
        for task in done.order.parts[0].tasks:
            if task >= 0:
                world.memory["waiting"].append(world.add_task(Task(task, 1, step=1)))
            else:
                world.answer((world.tasks.pop(task).request,), 1)
        return ()


def test_two_stages_follow_each_other() -> None:
    models = [model("find", table(10)), model("name", table(5))]
    seen = play(Pipeline(), models, lanes(1), [Asked(0), Asked(1)])
    assert [(each.model, each.began) for each in seen.batches] == [
        (0, 0),
        (0, 10),
        (1, 20),
        (1, 25),
    ]
    assert seen.ended == [25, 30]


class Cascade(Mini):
    """The small model answers; where it is not sure, the large one does."""

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        assert isinstance(done.order, Batch)
        part = done.order.parts[0]
        for task in part.tasks:
            row = task if task >= 0 else world.tasks.pop(task).request
            if task < 0 or world.draw(row) < 0.7:
                world.answer((row,), part.model)
            else:
                world.memory["waiting"].append(world.add_task(Task(row, 1)))
        return ()


def test_a_cascade_asks_the_large_model_only_where_the_small_one_is_not_sure() -> None:
    models = [model("small", table(1)), model("large", table(10))]
    seen = play(Cascade(), models, lanes(3), [Asked(at) for at in range(100)])
    assert 15 < seen.by.count(1) < 45
    assert seen.by.count(0) + seen.by.count(1) == 100


class Fused(Mini):
    """One batch of a request of each model, if there are two."""

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        waiting = world.memory["waiting"]
        if not idle or not waiting:
            return ()
        which = {self.model_of(world, row): row for row in reversed(waiting)}
        for row in which.values():
            waiting.remove(row)
        parts = tuple(Part(of, [row], 1) for of, row in sorted(which.items()))
        return [Batch(idle[0].number, parts, "one of each")]


def test_a_batch_may_hold_two_models() -> None:
    models = [model("a", table(10)), model("b", table(5))]
    seen = play(Fused(), models, lanes(1), [Asked(0), Asked(0, 1), Asked(0, 1)])
    assert [(each.model, each.began, each.ended) for each in seen.batches] == [
        (0, 0, 15),
        (1, 0, 15),
        (1, 15, 20),
    ]


class Urgent(Mini):
    """Model 1 interrupts model 0 at the next border between its segments, which goes on later."""

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        waiting = world.memory["waiting"]
        waiting.sort(key=lambda row: -self.model_of(world, row))
        if not idle or not waiting:
            return ()
        row = waiting.pop(0)
        first = world.memory["open"].pop(row, 0)
        part = Part(self.model_of(world, row), [row], 1, first)
        return [Batch(idle[0].number, (part,), "the most urgent"), Wait(world.now + MS)]

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        if done.outcome == OK:
            return super().ended(world, done)
        assert isinstance(done.order, Batch)
        row = done.order.parts[0].tasks[0]
        world.memory["open"][row] = done.operator
        world.memory["waiting"].append(row)
        return ()


class Interrupting(Urgent):
    """Looks every millisecond whether somebody urgent waits."""

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        if idle:
            return super().next(world, idle)
        urgent = any(self.model_of(world, row) == 1 for row in world.memory["waiting"])
        again = Wait(world.now + MS)
        return [Interrupt(0), again] if urgent else [again]


def test_a_batch_is_interrupted_at_a_border_and_goes_on_from_there() -> None:
    models = [model("long", table(100), borders=(0.25, 0.5, 0.75)), model("urgent", table(4))]
    seen = play(Interrupting(), models, lanes(1), [Asked(0), Asked(30, 1)])
    assert [(each.model, each.began, each.ended, each.outcome) for each in seen.batches] == [
        (0, 0, 50, INTERRUPTED),
        (1, 50, 54, OK),
        (0, 54, 104, OK),
    ]
    assert seen.ended == [104, 54]


class Functions(Mini):
    """A pool of functions: a warm one if there is one, else a cold one that loads first."""

    can = Abilities(loads=True)

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        orders: list[Do] = []
        waiting = world.memory["waiting"]
        runs = [lane for lane in idle if not lane.copies]
        warm = [lane for lane in runs if world.stores[lane.store].resident]
        orders += [self.batch(world, lane, [waiting.pop(0)]) for lane in warm[: len(waiting)]]
        starting = sum(bool(store.loading) for store in world.stores)
        cold = [lane for lane in idle if lane.copies and not world.stores[lane.store].used]
        wanted = max(len(waiting) - starting, 0)
        return [*orders, *(Load(lane.number, 0) for lane in cold[:wanted])]

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        return () if isinstance(done.order, Load) else super().ended(world, done)


def test_a_function_starts_cold_once_and_is_warm_after_that() -> None:
    both = placed(2)
    stores = [Store(at, 10) for at in range(2)]
    models = [model("f", table(5), bytes_=10, load=30)]
    asked = [Asked(0), Asked(1), Asked(100), Asked(100)]
    seen = play(Functions(), models, both, asked, stores=stores)
    assert [load[1:] for load in seen.loads] == [(0, 30), (1, 31)]
    assert seen.ended == [35, 36, 105, 105]


class Frontends(Mini):
    """Two routers over the same lanes: each has every other request, and sees those lanes that the
    other has left."""

    def begin(self, world: World) -> Any:
        return {"waiting": [], "open": {}, "theirs": [[], []]}

    def arrive(self, world: World, rows: range) -> None:
        for row in rows:
            world.memory["theirs"][row % 2].append(row)

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        orders: list[Do] = []
        left = list(idle)
        for mine in world.memory["theirs"]:
            count = min(len(mine), len(left))
            orders += [self.batch(world, lane, [mine.pop(0)]) for lane in left[:count]]
            del left[:count]
        return orders


def test_two_routers_share_lanes() -> None:
    seen = play(Frontends(), [model("m", table(10))], lanes(2), [Asked(0)] * 5)
    assert [each.tasks for each in seen.batches] == [(0,), (2,), (4,), (1,), (3,)]


class Evicting(Functions):
    """Swaps a model while another lane runs: loads and batches go on beside each other."""

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        orders: list[Do] = []
        waiting = world.memory["waiting"]
        for lane in idle:
            store = world.stores[lane.store]
            if not lane.copies:
                ready = [row for row in waiting if self.model_of(world, row) in store.resident]
                if ready:
                    waiting.remove(ready[0])
                    orders.append(self.batch(world, lane, [ready[0]]))
            elif waiting and not store.loading:
                missing = self.model_of(world, waiting[0])
                if missing in store.resident:
                    continue
                old = [each for each in store.resident if world.lanes[0].running is None]
                orders += [Evict(store.number, each) for each in old]
                if store.used - 10 * len(old) + 10 <= store.capacity:
                    orders.append(Load(lane.number, missing))
        return orders


def test_a_load_runs_beside_a_batch() -> None:
    both = placed(1)
    models = [model("a", table(50), bytes_=10, load=5), model("b", table(5), bytes_=10, load=20)]
    seen = play(Evicting(), models, both, [Asked(0), Asked(10, 1)], stores=[Store(0, 20)])
    assert seen.loads == [(0, 0, 5), (1, 10, 30)]
    assert [(each.model, each.began, each.ended) for each in seen.batches] == [
        (0, 5, 55),
        (1, 55, 60),
    ]


def test_what_runs_beside_costs_what_the_table_says() -> None:
    """Two lanes of one device: whoever begins second takes half as long again."""
    two = lanes(2)
    two[1].device = 0
    seen = play(Mini(), [model("m", affine(9, 1), beside=[1.5])], two, [Asked(0), Asked(0)])
    assert seen.ended == [10, 15]


MINIS: dict[str, tuple[Callable[[], Mini], bool]] = {
    "next": (Mini, False),
    "ensemble with a deadline": (Ensemble, False),
    "hedge": (Hedge, False),
    "pipeline": (Pipeline, False),
    "cascade": (Cascade, False),
    "fused batch": (Fused, False),
    "interrupt at a border": (Interrupting, False),
    "functions": (Functions, True),
    "routers that share lanes": (Frontends, False),
}
"""By what is awkward; whether it loads models."""
