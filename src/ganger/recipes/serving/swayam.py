"""Swayam's frontends: each works out alone how many backends all of them need.

Gujarati et al.: Swayam: Distributed Autoscaling to Meet SLAs of Machine Learning Inference Services
with Resource Efficiency, Middleware 2017. No frontend knows what the others do: they see equal
parts of the requests, and use the first backends of one list.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct, field

from ganger.core.serving.router import RETIRES, Abilities
from ganger.core.serving.verbs import OK, Batch, Do, Ended, News, Part, Retire, Wait
from ganger.core.serving.world import Lane, World
from ganger.core.units import NEVER, SECOND
from ganger.estimate.forecast import trend
from ganger.estimate.waiting import Requests, Service

_FRONTEND, _BACKEND = 2, 3
"""Salts of what is drawn for a request."""
_MANY = 1 << 40


class Seen(Struct):
    """The requests of a model in one window: how many, and the seconds they may take, added up."""

    count: int = 0
    slack: float = 0.0


class Frontend(Struct):
    """One frontend: requests that wait at it, and those that came to it, by window and model."""

    waiting: deque[int] = field(default_factory=deque)
    window: int = 0
    """The one that has not ended."""
    seen: deque[dict[int, Seen]] = field(default_factory=lambda: deque([{}]))
    """The last one has not ended."""
    needs: int = 0
    """How many backends, by what it saw before `window`; 0: it has seen nothing yet."""


class Memory(Struct):
    """What the frontends know, and the backends."""

    frontends: list[Frontend]
    cold: set[int]
    """Lanes that went away by themselves."""
    ready: dict[int, int]
    """By lane that is set up: when it will be warm."""
    used: list[int]
    """By lane: when it last ended something, or became warm."""


@dataclass(frozen=True)
class Swayam:
    """See the module. Times in microseconds: `window` over which requests are counted, of which the
    last `windows` make the trend; how far the trend is followed; how long a backend is idle before
    it goes. `part`: of the requests that shall be in time; `prunes`: whether those are dropped that
    cannot be."""

    frontends: int
    window: int
    windows: int
    horizon: int
    idle: int
    part: float
    prunes: bool
    name: str = "swayam"
    can: Abilities = RETIRES

    def begin(self, world: World) -> Memory:
        """All backends are warm."""
        return Memory(
            [Frontend() for _ in range(self.frontends)], set(), {}, [0] * len(world.lanes)
        )

    def arrive(self, world: World, rows: range) -> None:
        """Each request comes to a frontend that is drawn for it."""
        memory: Memory = world.memory
        requests = world.requests
        for row in rows:
            at = row - requests.base
            frontend = memory.frontends[int(world.draw(row, _FRONTEND) * self.frontends)]
            arrival = requests.arrival[at]
            self._pass_time(world, frontend, arrival)
            seen = frontend.seen[-1].setdefault(requests.model[at], Seen())
            seen.count += 1
            seen.slack += min(requests.deadline[at] - arrival, NEVER) / SECOND
            frontend.waiting.append(row)

    def _pass_time(self, world: World, frontend: Frontend, now: int) -> None:
        """Windows have ended: what is needed now."""
        ended = now // self.window - frontend.window
        if ended <= 0:
            return
        frontend.window += ended
        for _ in range(min(ended, self.windows + 1)):
            frontend.seen.append({})
        while len(frontend.seen) > self.windows + 1:
            frontend.seen.popleft()
        if frontend.needs or any(frontend.seen):
            frontend.needs = self._needs(world, frontend)

    def _needs(self, world: World, frontend: Frontend) -> int:
        """The backends for all requests, if every frontend has as many as this one."""
        windows = list(frontend.seen)[:-1]
        whole: dict[int, Seen] = {}
        for window in windows:
            for model, seen in window.items():
                all_ = whole.setdefault(model, Seen())
                all_.count += seen.count
                all_.slack += seen.slack
        kinds = []
        for model, seen in whole.items():
            known = next(iter(world.models[model].latencies.values()), None)
            if known is not None:
                mean, p99 = known.mean[1] / SECOND, known.p99[1] / SECOND
                kinds.append(Requests(seen.count, mean, p99, seen.slack / seen.count))
        if not kinds:
            return 1
        counts = [sum(seen.count for seen in window.values()) for window in windows]
        ahead = max(max(self.horizon, _setup(world)) / self.window, 1.0)
        rate = trend(counts, ahead) / (self.window / SECOND) * self.frontends
        most = sum(not lane.copies for lane in world.lanes)
        return Service(kinds).servers(rate, self.part, most)

    # ------------------------------------------------------------------ backends

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        """Requests go to warm backends at the front of the list; those behind it go away."""
        memory: Memory = world.memory
        for frontend in memory.frontends:
            self._pass_time(world, frontend, world.now)
        up = [lane for lane in world.lanes if not lane.down and not lane.copies]
        world.wanted = max(frontend.needs for frontend in memory.frontends)
        front = up[: world.wanted or len(up)]
        orders: list[Do] = []
        setup = _setup(world)
        for lane in front:
            if lane.number in memory.cold:
                memory.cold.discard(lane.number)
                memory.ready[lane.number] = world.now + setup
        for number in [each for each, at in memory.ready.items() if at <= world.now]:
            memory.used[number] = memory.ready.pop(number)
        warm = [
            lane
            for lane in idle
            if not lane.copies
            and lane.number not in memory.cold
            and lane.number not in memory.ready
        ]
        taken = self._send(world, memory, up, warm, orders)
        ends = [*memory.ready.values()]
        for lane in warm:
            if lane in front or lane.number in taken:
                continue
            until = memory.used[lane.number] + self.idle
            if until <= world.now:
                memory.cold.add(lane.number)
                orders.append(Retire(lane.number))
            else:
                ends.append(until)
        if len(memory.cold) < len(up) - 1 or any(each.waiting for each in memory.frontends):
            ends.append((world.now // self.window + 1) * self.window)
        if ends:
            free = any(lane in front and lane.number not in taken for lane in warm)
            orders.append(Wait(min(ends), 1 if free else _MANY))
        return orders

    def _send(
        self, world: World, memory: Memory, up: list[Lane], warm: list[Lane], orders: list[Do]
    ) -> set[int]:
        """A request for each backend that is not busy, of the frontends whose head came first."""
        taken: set[int] = set()
        if self.prunes:
            for frontend in memory.frontends:
                self._prune(world, frontend)
        left = [frontend for frontend in memory.frontends if frontend.waiting]
        while left and len(taken) < len(warm):
            frontend = min(left, key=lambda each: each.waiting[0])
            row = frontend.waiting[0]
            model = world.requests.model[row - world.requests.base]
            able = [lane for lane in up if world.latencies(model, lane) is not None]
            able = [
                lane
                for lane in able[: frontend.needs or len(able)]
                if lane in warm and lane.number not in taken
            ]
            if not able:
                left.remove(frontend)
                continue
            lane = able[int(world.draw(row, _BACKEND) * len(able))]
            taken.add(lane.number)
            frontend.waiting.popleft()
            items = world.count_items((row,))
            orders.append(Batch(lane.number, (Part(model, [row], items),), "it was not busy"))
            if not frontend.waiting:
                left.remove(frontend)
        return taken

    def _prune(self, world: World, frontend: Frontend) -> None:
        """Drop the first requests that would be late if they were sent now."""
        while frontend.waiting:
            row = frontend.waiting[0]
            model = world.requests.model[row - world.requests.base]
            known = next(iter(world.models[model].latencies.values()), None)
            took = known.mean[1] if known is not None else 0
            if world.now + took <= world.deadline_of(row):
                break
            world.refuse((frontend.waiting.popleft(),), "it could not be answered in time")

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        """Answer; what failed goes to the front of its frontend's queue."""
        memory: Memory = world.memory
        order = done.order
        assert isinstance(order, Batch), "it loads nothing"
        memory.used[order.lane] = world.now
        (part,) = order.parts
        if done.outcome == OK:
            world.answer(part.tasks, part.model)
        else:
            row = part.tasks[0]
            frontend = memory.frontends[int(world.draw(row, _FRONTEND) * self.frontends)]
            frontend.waiting = deque(sorted([row, *frontend.waiting]))
        return ()

    def told(self, world: World, news: News) -> Sequence[Do]:
        """A backend that comes is warm."""
        memory: Memory = world.memory
        for number in (*news.up, *news.down):
            memory.cold.discard(number)
            memory.ready.pop(number, None)
            memory.used[number] = world.now
        return ()


def _setup(world: World) -> int:
    """Microseconds until a backend that went away is warm again."""
    return max(known.load for known in world.models)
