"""Irina: a request joins a batch that waits, runs beside what runs, or runs before it, whichever
lets all requests end soonest.

When a request comes, each way that there is on each device has a cost: the time until the request
ends there, and how much later all that wait or run there end. The least sum wins. A batch that
gives way stops at the next border between segments of its model, and goes on later. Models are
taken to slow each other not at all as long as their peaks fit on a device together. (Wu et al.:
Irina, APNet 2020.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec import Struct

from ganger.core.serving.router import Abilities
from ganger.core.serving.verbs import INTERRUPTED, OK, Batch, Do, Ended, News, Part
from ganger.core.serving.world import Lane, World

_WHOLE: Final = 1.0 + 1e-9
"""Peaks that fit on a device together."""
_NO_LANE: Final = "no lane runs its model"


class Group(Struct):
    """Requests that run as a batch: `items` are their inputs together. `first`: the segment with
    which it begins; `lane`: where it still runs, though it is to stop (-1: nowhere); `way`: how it
    came to be."""

    model: int
    rows: list[int]
    items: int
    first: int = 0
    lane: int = -1
    way: str = "in order of what is left"


class Memory(Struct):
    """By device: its lanes, and the groups that wait there, the next one first. `stranded`:
    requests for which no lane is up."""

    lanes: dict[int, list[int]]
    waits: dict[int, list[Group]]
    stranded: list[int] = []


class Way(NamedTuple):
    """What a request could do on a device: the microseconds of all requests that it costs, those
    until it ends itself, the device, and where: the group that it `joins`, or the place in the
    queue that it takes, and the lane that it stops, -1 each for none."""

    cost: float
    ends: float
    device: int
    place: int
    joins: int = -1
    stops: int = -1
    beside: bool = False


@dataclass(frozen=True)
class Irina:
    """See the module. `streams`: batches that run on a device at once; `suspend`: microseconds that
    a stop is believed to cost the batch that stops and the one that comes; `batches`, `stacks` and
    `preempts`: which ways there are."""

    streams: int
    suspend: int
    batches: bool
    stacks: bool
    preempts: bool
    name: str = "irina"

    @property
    def can(self) -> Abilities:
        """A device has several lanes, and what runs may stop when a request comes."""
        return Abilities(streams=self.streams if self.stacks else 1, cuts=self.preempts)

    def begin(self, world: World) -> Memory:
        """Nothing waits."""
        lanes: dict[int, list[int]] = {}
        for lane in world.lanes:
            lanes.setdefault(lane.device, []).append(lane.number)
        return Memory(lanes, {device: [] for device in lanes})

    # ------------------------------------------------------------------ what comes

    def arrive(self, world: World, rows: range) -> None:
        """Each takes the way that costs least."""
        memory: Memory = world.memory
        requests = world.requests
        for row in rows:
            at = row - requests.base
            self._place(world, memory, row, requests.arrival[at])

    def _place(self, world: World, memory: Memory, row: int, now: int) -> None:
        requests = world.requests
        model, items = requests.model[row - requests.base], requests.items[row - requests.base]
        ways = [
            way
            for device in memory.lanes
            for way in self._ways(world, memory, device, model, items, now)
        ]
        if not ways:
            if any(world.latencies(model, lane) is not None for lane in world.lanes):
                memory.stranded.append(row)
            else:
                world.refuse((row,), _NO_LANE, at=requests.arrival[row - requests.base])
            return
        way = min(ways, key=lambda way: (round(way.cost), -way.ends, way.device, way.place))
        queue = memory.waits[way.device]
        if way.joins >= 0:
            queue[way.joins].rows.append(row)
            queue[way.joins].items += items
            queue[way.joins].way = "together with what waits"
            return
        group = Group(model, [row], items)
        queue.insert(way.place, group)
        if way.beside:
            group.way = "beside what runs"
        if way.stops >= 0:
            group.way = "before what ran"
            queue.insert(way.place + 1, self._held(world, way.stops))
            world.interrupt(way.stops)

    def _held(self, world: World, number: int) -> Group:
        """What runs on a lane and is to stop."""
        running = world.lanes[number].running
        assert isinstance(running, Batch), "only a batch is stopped"
        part = running.parts[0]
        return Group(part.model, list(part.tasks), part.items, part.first, number, "goes on")

    # ------------------------------------------------------------------ what it would cost

    def _ways(
        self, world: World, memory: Memory, device: int, model: int, items: int, now: int
    ) -> Iterator[Way]:
        """All ways on a device; none where it cannot run the model now."""
        lanes = [
            lane
            for number in memory.lanes[device]
            if not (lane := world.lanes[number]).down and world.latencies(model, lane) is not None
        ]
        if not lanes:
            return
        lane, queue = lanes[0], memory.waits[device]
        alone = self._took(world, lane, model, items)
        busy = [each for each in lanes if isinstance(each.running, Batch)]
        stopped = {group.lane for group in queue}
        free = max([now, *(self._free(world, each, now, stopped) for each in busy)])
        starts, behind = float(free), sum(len(group.rows) for group in queue)
        for place in range(len(queue) + 1):
            ends = starts + alone - now
            if not place or queue[place - 1].lane < 0:  # nothing comes between the two of a stop
                yield Way(ends + alone * behind, ends, device, place)
            if place == len(queue):
                break
            group = queue[place]
            took = self._remaining(world, lane, group)
            more = self._joined(world, lane, group, model, items)
            if more is not None:
                ends = starts + more - now
                yield Way(ends + (more - took) * behind, ends, device, place, joins=place)
            starts, behind = starts + took, behind - len(group.rows)
        peak = _peak(world, lane, model)
        used = sum(_peak(world, each, _running(each)) for each in busy)
        if len(busy) < len(lanes) and busy and used + peak <= _WHOLE:
            yield Way(alone, alone, device, 0, beside=True)
        if not self.preempts:
            return
        waits = sum(len(group.rows) for group in queue)
        for each in busy:
            border = self._border(world, each, now)
            fits = used - _peak(world, each, _running(each)) + peak <= _WHOLE
            if each.number in stopped or border is None or not fits:
                continue
            ends = border - now + self.suspend + alone
            assert isinstance(each.running, Batch)
            later = len(each.running.parts[0].tasks) + waits
            yield Way(ends + (alone + self.suspend) * later, ends, device, 0, stops=each.number)

    def _took(self, world: World, lane: Lane, model: int, items: int) -> float:
        known = world.latencies(model, lane)
        assert known is not None, "a lane that is asked runs the model"
        return known.mean[items] if items < len(known.mean) else known.mean[-1]

    def _free(self, world: World, lane: Lane, now: int, stopped: set[int]) -> float:
        """When a lane that runs will be free: at a border, if it is to stop."""
        border = self._border(world, lane, now) if lane.number in stopped else None
        return self._due(world, lane) if border is None else border

    def _due(self, world: World, lane: Lane) -> float:
        """When what runs on a lane should end, by what is predicted of its last segments."""
        assert isinstance(lane.running, Batch)
        part = lane.running.parts[0]
        whole = self._took(world, lane, part.model, part.items)
        return lane.since + whole * world.models[part.model].part(part.first, 0)

    def _remaining(self, world: World, lane: Lane, group: Group) -> float:
        """What a group that waits still takes."""
        if group.lane >= 0:
            runs = world.lanes[group.lane]
            return self._due(world, runs) - self._free(world, runs, world.now, {group.lane})
        whole = self._took(world, lane, group.model, group.items)
        return whole * world.models[group.model].part(group.first, 0)

    def _joined(
        self, world: World, lane: Lane, group: Group, model: int, items: int
    ) -> float | None:
        """What the group takes with more inputs; None where it cannot have them."""
        known = world.latencies(model, lane)
        together = group.items + items
        if not self.batches or group.model != model or group.first or group.lane >= 0:
            return None
        if known is None or together > known.largest:
            return None
        return known.mean[together]

    def _border(self, world: World, lane: Lane, now: int) -> float | None:
        """When what runs could stop first, by what is predicted; None: not before its end."""
        assert isinstance(lane.running, Batch)
        part = lane.running.parts[0]
        known = world.models[part.model]
        borders, whole = known.borders, self._took(world, lane, part.model, part.items)
        for operator in range(part.first + 1, len(borders) + 1):
            at = lane.since + whole * known.part(part.first, operator)
            if at >= now:
                return at
        return None

    # ------------------------------------------------------------------ what runs

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """On each idle lane the next group of its device; one behind it, if that alone fits beside
        what runs."""
        memory: Memory = world.memory
        orders: list[Do] = []
        used: dict[int, float] = {}
        for lane in idle:
            queue = memory.waits[lane.device]
            if lane.running is not None or not queue:
                continue
            if lane.device not in used:
                used[lane.device] = sum(
                    _peak(world, world.lanes[number], _running(world.lanes[number]))
                    for number in memory.lanes[lane.device]
                )
            for group in queue:
                peak = _peak(world, lane, group.model)
                fits = not used[lane.device] or used[lane.device] + peak <= _WHOLE
                if group.lane < 0 and fits and world.latencies(group.model, lane) is not None:
                    queue.remove(group)
                    used[lane.device] += peak
                    part = Part(group.model, group.rows, group.items, group.first)
                    orders.append(Batch(lane.number, (part,), group.way))
                    break
        return orders

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """Answer; what was stopped waits where it was put; what failed begins anew."""
        memory: Memory = world.memory
        assert isinstance(done.order, Batch), "it loads nothing"
        part = done.order.parts[0]
        queue = memory.waits[world.lanes[done.order.lane].device]
        held = next((group for group in queue if group.lane == done.order.lane), None)
        gone = self._gone(world, memory, world.lanes[done.order.lane].device)
        if done.outcome == INTERRUPTED and held is not None and not gone:
            held.first, held.lane = done.operator, -1
            return ()
        if held is not None:
            queue.remove(held)
        if done.outcome == OK:
            world.answer(part.tasks, part.model)
        else:
            for row in part.tasks:
                self._place(world, memory, row, world.now)
        return ()

    def told(self, world: World, news: News) -> Sequence[Do]:
        """What waits at a device that is gone is placed anew, and what waited for one."""
        memory: Memory = world.memory
        again, memory.stranded = memory.stranded, []
        for device, queue in memory.waits.items():
            if self._gone(world, memory, device):
                again += [row for group in queue if group.lane < 0 for row in group.rows]
                memory.waits[device] = [group for group in queue if group.lane >= 0]
        for row in sorted(again):
            self._place(world, memory, row, world.now)
        return ()

    def _gone(self, world: World, memory: Memory, device: int) -> bool:
        """Whether no lane of a device is up."""
        return all(world.lanes[number].down for number in memory.lanes[device])


def _running(lane: Lane) -> int:
    """The model that runs on a lane, -1 for none."""
    return lane.running.parts[0].model if isinstance(lane.running, Batch) else -1


def _peak(world: World, lane: Lane, model: int) -> float:
    """The part of the device that a model needs at most: all of it, where that is not known."""
    if model < 0:
        return 0.0
    return world.models[model].peaks.get((lane.type, lane.share), 1.0)
