"""InferLine: a planner that finds the cheapest replicas of a pipeline's stages for a sample of its
load, and a tuner that follows what comes between plans.

Crankshaw et al.: InferLine: Latency-Aware Provisioning and Scaling for Prediction Serving
Pipelines, SoCC 2020.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod
from typing import Final, NamedTuple

import numpy as np

from ganger.core.serving.answering import Step
from ganger.core.serving.world import Pipeline, Stage
from ganger.core.state.facts import Window
from ganger.mechanisms.scaling.fleets import Course, Instance, Outlook
from ganger.mechanisms.scaling.traffic import envelope, peak_rate
from ganger.mechanisms.serving.on_time import ends_of
from ganger.mechanisms.serving.pipeline import expected

_PART: Final = 0.99
"""Of the requests of the sample, those that have to be in time."""
_SAMPLE: Final = 1500
"""Requests of the sample."""
_COMBINATIONS: Final = 16
"""Of instances, from each of which the planner begins."""
_ANY: Final = 1 << 30
_NOTHING: Final = 1e-9


class Chosen(NamedTuple):
    """What a stage runs on: replicas of an instance, and the largest batch of each."""

    instance: Instance
    batch: int
    replicas: int

    @property
    def cost(self) -> float:
        """Of all of them for an hour."""
        return self.replicas * self.instance.price

    @property
    def rate(self) -> float:
        """Items a second of one replica with full batches."""
        return self.instance.times.rates[self.batch - 1]


def shares(stages: Sequence[Step]) -> list[float]:
    """By stage, the items that it works on for each request, on average."""
    fed = [to for step in stages for to, _ in step.feeds]
    parts = tuple(
        Stage(step.model, at, step.feeds, fed.count(at)) for at, step in enumerate(stages)
    )
    return expected(Pipeline("", parts))


def response_times(
    stages: Sequence[Step], plan: Sequence[Chosen], arrivals: Sequence[float], lots: int = 0
) -> list[float]:
    """Seconds until each request of a sample is answered, if a free replica takes all that waits up
    to its largest batch: one stage after another, since none feeds one before it."""
    rng = np.random.default_rng(lots)
    count = len(arrivals)
    ready = [np.array(arrivals) for _ in stages]
    items = [np.zeros(count, np.int64) for _ in stages]
    fed = {to for step in stages for to, _ in step.feeds}
    for at in range(len(stages)):
        if at not in fed:
            items[at][:] = 1
    over = np.array(arrivals)
    for at, (step, chosen) in enumerate(zip(stages, plan, strict=True)):
        tasks = np.repeat(np.arange(count), items[at])
        order = np.argsort(ready[at][tasks], kind="stable")
        tasks = tasks[order]
        lane = (0.0, *chosen.instance.times.mean[: chosen.batch])
        ends = np.array(ends_of([lane] * chosen.replicas, ready[at][tasks].tolist()))
        done = ready[at].copy()
        np.maximum.at(done, tasks, ends)
        over = np.maximum(over, done)
        for to, mean in step.feeds:
            handed = (items[at] * mean + rng.random(count)).astype(np.int64)
            items[to] = np.maximum(items[to], handed)
            ready[to] = np.maximum(ready[to], done)
    return list((over - np.array(arrivals)).tolist())


class Estimate:
    """Whether plans keep the SLO (seconds) on a sample of arrivals; each is tried once."""

    def __init__(self, stages: Sequence[Step], arrivals: Sequence[float], slo: float) -> None:
        self._stages, self._arrivals, self._slo = stages, arrivals, slo
        self._known: dict[tuple[tuple[str, int, int], ...], bool] = {}
        self.rate = len(arrivals) / max(arrivals[-1] - arrivals[0], _NOTHING)

    def keeps(self, plan: Sequence[Chosen]) -> bool:
        """Whether 99 in 100 requests are in time, with replicas that are not overloaded."""
        key = tuple((each.instance.key, each.batch, each.replicas) for each in plan)
        if key not in self._known:
            self._known[key] = self._tried(plan)
        return self._known[key]

    def _tried(self, plan: Sequence[Chosen]) -> bool:
        if any(load > 1 for load in self.loads(plan)):
            return False
        times = response_times(self._stages, plan, self._arrivals)
        return float(np.quantile(times, _PART)) <= self._slo

    def loads(self, plan: Sequence[Chosen]) -> list[float]:
        """By stage, the part of what its replicas can do that comes."""
        pairs = zip(shares(self._stages), plan, strict=True)
        return [self.rate * share / (chosen.rate * chosen.replicas) for share, chosen in pairs]


def planned(
    stages: Sequence[Step],
    options: Mapping[str, Sequence[Instance]],
    estimate: Estimate,
    largest: int = _ANY,
) -> list[Chosen] | None:
    """The cheapest plan that the greedy search finds: from one that is quick enough, one request at
    a time, always on to the change of one stage (fewer replicas, larger batches, another instance)
    that saves most and keeps the SLO. It begins on the fastest instances; where stages can run on
    few combinations of instances, on each of them. `options`: by model; `largest`: of batches.
    None where none is quick enough."""
    ways = [
        sorted(options[step.model], key=lambda each: (each.times.mean[0], each.price, each.key))
        for step in stages
    ]
    few = prod(map(len, ways)) <= _COMBINATIONS
    starts = product(*ways) if few else (tuple(each[0] for each in ways),)
    plans = [
        _greedy(stages, options, estimate, _first(start, estimate), largest) for start in starts
    ]
    reached = [plan for plan in plans if plan is not None]
    return min(reached, key=lambda plan: sum(each.cost for each in plan), default=None)


def _greedy(
    stages: Sequence[Step],
    options: Mapping[str, Sequence[Instance]],
    estimate: Estimate,
    plan: list[Chosen] | None,
    largest: int,
) -> list[Chosen] | None:
    """On from a plan as long as a change saves anything."""
    while plan is not None:
        changes = _cheaper(stages, options, estimate, plan, largest)
        for _, at, chosen in sorted(changes, key=lambda each: (-each[0], each[1], each[2].batch)):
            changed = [*plan[:at], chosen, *plan[at + 1 :]]
            if estimate.keeps(changed):
                plan = changed
                break
        else:
            return plan
    return None


def _first(start: Sequence[Instance], estimate: Estimate) -> list[Chosen] | None:
    """Replicas are added where they are loaded most until the SLO is kept; None where it is not
    with all for which there are places."""
    if not estimate.keeps([Chosen(each, 1, each.places) for each in start]):
        return None
    plan = [Chosen(each, 1, 1) for each in start]
    while not estimate.keeps(plan):
        loads = estimate.loads(plan)
        room = [at for at, each in enumerate(plan) if each.replicas < each.instance.places]
        at = max(room, key=lambda at: (loads[at], -at))
        plan[at] = plan[at]._replace(replicas=plan[at].replicas + 1)
    return plan


def _cheaper(
    stages: Sequence[Step],
    options: Mapping[str, Sequence[Instance]],
    estimate: Estimate,
    plan: Sequence[Chosen],
    largest: int,
) -> Iterator[tuple[float, int, Chosen]]:
    """What one stage could run on instead for less: what that saves, the stage, the choice."""
    needs = [estimate.rate * share for share in shares(stages)]
    for at, now in enumerate(plan):
        for instance in options[stages[at].model]:
            batch = 1
            while batch <= min(len(instance.times.mean), largest):
                count = max(ceil(needs[at] / instance.times.rates[batch - 1] - _NOTHING), 1)
                while count <= instance.places and count * instance.price < now.cost - _NOTHING:
                    yield now.cost - count * instance.price, at, Chosen(instance, batch, count)
                    count += 1
                batch *= 2


def wanted_replicas(rate: float, share: float, each: float, load: float) -> int:
    """Of a stage that works on `share` items a request, for so many requests a second: replicas of
    which one does `each` items a second and shall be loaded as much as was planned."""
    return max(ceil(rate * share / (each * load) - _NOTHING), 1)


@dataclass(frozen=True)
class InferLine:
    """See the module. A plan is made after `sample` windows, from as many requests as came in the
    busiest of them, and again after each `every` microseconds. Between plans replicas are added as
    soon as more comes in pieces of any length than in the sample, by the largest rate in such
    pieces, and given up once there was no change for `calm` microseconds, by the largest rate in
    pieces of up to `piece` seconds within `back` microseconds. `largest`: of the router's batches,
    0 for no limit but what was measured."""

    sample: int
    every: int
    calm: int
    back: int
    largest: int = 0
    piece: float = 5.0
    interval: int = 0
    staged: bool = True

    def plan(self, outlook: Outlook, course: Course) -> Mapping[str, int]:
        """Replicas of every stage."""
        notes = course.notes
        stale = outlook.now - notes.get(_AT, 0.0) >= self.every
        if len(outlook.rates) >= self.sample and (_AT not in notes or stale):
            self._plan(outlook, course)
        if not course.plans:
            return course.wanted
        return self._tuned(outlook, course)

    def _plan(self, outlook: Outlook, course: Course) -> None:
        """Note a new plan, if there is one."""
        stages = outlook.stages or (Step(""),)
        options: dict[str, list[Instance]] = {}
        for instance in outlook.instances:
            options.setdefault(instance.model, []).append(instance)
        rate = max(outlook.rates[-self.sample :])
        course.notes = {**course.notes, _AT: float(outlook.now)}
        if not rate:
            return
        arrivals = np.random.default_rng(0).exponential(1 / rate, _SAMPLE).cumsum()
        estimate = Estimate(stages, arrivals.tolist(), outlook.slo)
        plan = planned(stages, options, estimate, self.largest or _ANY)
        if plan is None:
            return
        notes = {_AT: float(outlook.now), _CHANGED: float(outlook.now)}
        notes[_SHORTEST] = sum(each.instance.times.mean[0] for each in plan)
        for seconds, count in envelope(outlook.windows[-self.sample :]).items():
            ends = np.searchsorted(arrivals, arrivals + seconds)
            notes[f"{_PIECE}{seconds}"] = max(count, float((ends - np.arange(_SAMPLE)).max()))
        replicas: dict[str, int] = {}
        share: dict[str, float] = {}
        for each, part in zip(plan, shares(stages), strict=True):
            key = each.instance.key
            replicas[key] = replicas.get(key, 0) + each.replicas
            share[key] = share.get(key, 0.0) + part
            notes[f"{_RATE}{key}"] = each.rate
        for key, count in replicas.items():
            notes[f"{_SHARE}{key}"] = share[key]
            notes[f"{_LOAD}{key}"] = rate * share[key] / (notes[f"{_RATE}{key}"] * count)
        course.notes, course.plans = notes, [replicas, replicas]

    def _tuned(self, outlook: Outlook, course: Course) -> Mapping[str, int]:
        """The plan as last tuned, with more or fewer replicas."""
        notes, (base, now) = course.notes, course.plans
        rate = exceeded(notes, envelope(outlook.windows[-1:]))
        after = now
        if rate:
            after = {key: max(now[key], self._needs(notes, key, rate)) for key in base}
        elif outlook.now - notes[_CHANGED] >= self.calm:
            rate = max(self._lately(outlook.windows, outlook.now), default=0.0)
            after = {key: min(now[key], self._needs(notes, key, rate)) for key in base}
        if rate and after != now:
            course.notes = {**notes, _CHANGED: float(outlook.now)}
        course.plans = [base, after]
        return after

    def _needs(self, notes: Mapping[str, float], key: str, rate: float) -> int:
        each, share, load = (notes[f"{name}{key}"] for name in (_RATE, _SHARE, _LOAD))
        return wanted_replicas(rate, share, each, load)

    def _lately(self, windows: Sequence[Window], now: int) -> Iterator[float]:
        """The largest rates of the windows that ended lately."""
        for window in windows:
            rate = peak_rate(window, self.piece)
            if rate is not None and window.until > now - self.back:
                yield rate


_AT: Final = "planned at"
_CHANGED: Final = "tuned at"
_SHORTEST: Final = "alone"
_PIECE: Final = "in "
_RATE: Final = "rate of "
_SHARE: Final = "items of "
_LOAD: Final = "load of "


def exceeded(notes: Mapping[str, float], live: Mapping[float, float]) -> float:
    """The largest rate, requests a second, in pieces in which more came than when it was planned
    and that last at least as long as a request alone; 0.0 where more came in none."""
    rates = [
        count / seconds
        for seconds, count in live.items()
        if seconds >= notes[_SHORTEST] and count > notes.get(f"{_PIECE}{seconds}", count)
    ]
    return max(rates, default=0.0)
