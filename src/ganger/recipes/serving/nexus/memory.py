"""What Nexus remembers: streams of requests, sessions, their lines at lanes, and rates."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ganger.core.serving.world import Lane, World
from ganger.mechanisms.serving.pipeline import Staged
from ganger.mechanisms.serving.queues import Fifo


class Stream(Struct):
    """Requests that ask for the same within the same time. `sessions`: of its stages, one where it
    asks for a model; `parts`: of its time, in which each stage should be over; `count`: requests
    since the rate was measured last; `rate`: a second, -1 before."""

    code: int
    slo: int
    sessions: list[int]
    parts: Sequence[float] = ()
    count: int = 0
    rate: float = -1.0


class Flow(Struct):
    """A session: `order` are the lines in which its requests wait, one after the other, as often
    as the rate there says; `rate`: for which it was planned, 0 if it was not. Models that begin
    with the same layers are one: `model` is the first of them, `mix` the rates of those that are
    asked for."""

    model: int
    slo: int
    mix: dict[int, float] = {}
    order: list[int] = []
    turn: int = 0
    rate: float = 0.0


class Line(Struct):
    """Requests of a session at a lane: at most `batch` inputs run together; `latency`: by inputs,
    as it is planned with; `tables`: the same by model where its models begin with the same
    layers."""

    lane: int
    queue: Fifo
    batch: int
    latency: Sequence[int]
    tables: dict[int, list[int]] | None = None


class Pool(Struct):
    """Lanes that are alike, those that are down included; `latency`: by model that they run, as it
    is planned with; `mixed`: by session of the plan, the same where several models begin with the
    same layers."""

    lanes: list[int]
    latency: dict[int, list[int]]
    mixed: dict[int, list[int]] = {}


class Memory(Struct):
    """All of it. Of lanes: the lines in their cycle (`cycle`), at which of them it is (`turn`; past
    the last: it is over), microseconds from the begin of one cycle to that of the next (`pace`),
    when the next may begin (`start`), and the last such moment that is in `timers` (`timed`)."""

    pools: list[Pool]
    cycle: list[list[int]]
    turn: list[int]
    pace: list[int]
    start: list[int]
    timed: list[int]
    staged: Staged | None
    alike: list[list[int]]
    """By model, those that begin with the same layers, itself included."""
    streams: dict[tuple[int, int], Stream] = {}
    slos: dict[int, list[int]] = {}
    """By what is asked for, rising."""
    flows: list[Flow] = []
    index: dict[tuple[int, int], int] = {}
    """By model and SLO, the session."""
    lines: list[Line] = []
    stranded: list[int] = []
    """Requests and tasks for which no lane is up."""
    awake: set[int] = set()
    """Lanes that may have something to do."""
    timers: list[tuple[int, int]] = []
    """A heap of (start, lane)."""
    busy: list[list[tuple[int, float]]] = []
    """By planned lane: sessions, and the part of its time for all that was planned of each."""
    beacon: int = -1
    """When rates are measured next."""
    lasts: int = 0
    """Microseconds until then from the measurement before."""
    planned: int = 0
    """When the last plan was made of rates that were measured."""
    new: bool = False
    """Whether a session came since."""


def alike(world: World, profile: float) -> list[Pool]:
    """The lanes by what they are and run. Plans count on `profile` times what was measured."""
    found: dict[tuple[str, float], Pool] = {}
    for lane in world.lanes:
        key = (lane.type, lane.share)
        if key not in found:
            found[key] = Pool([], _latency(world, lane, profile))
        found[key].lanes.append(lane.number)
    return list(found.values())


def _latency(world: World, lane: Lane, profile: float) -> dict[int, list[int]]:
    found = {}
    for model in range(len(world.models)):
        known = world.latencies(model, lane)
        if known is not None:
            found[model] = [round(profile * each) for each in known.mean]
    return found


def spread(weights: Sequence[tuple[int, float]]) -> list[int]:
    """Each of some as often as its weight says, as evenly as can be; each at least once."""
    if len(weights) == 1:
        return [weights[0][0]]
    total, least = sum(weight for _, weight in weights), min(weight for _, weight in weights)
    count = min(max(round(total / least), 4 * len(weights)), 16 * len(weights))
    marks = []
    for at, weight in weights:
        times = max(round(weight / total * count), 1)
        marks += [((each + 0.5) / times, at) for each in range(times)]
    return [at for _, at in sorted(marks)]
