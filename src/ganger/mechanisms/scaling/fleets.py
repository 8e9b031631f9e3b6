"""Services whose replicas are of chosen types of device: a planner says how many of each, by what
came, what the types cost, and what was measured on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import msgspec

from ganger.core.plan import Plan, Spawn
from ganger.core.serving.answering import Answering, BatchTimes
from ganger.core.spec import JobSpec, Needs
from ganger.core.state.facts import Window
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND, WHOLE
from ganger.core.view import View
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.mechanisms.scaling.replicas import (
    CHANGES,
    newest,
    replica_of,
    replicas_of,
    start_waiting,
)
from ganger.mechanisms.scaling.traffic import mean_rate, peak_rate, tightest

_PENDING, _RUNNING = int(Phase.PENDING), int(Phase.RUNNING)
_KEPT: Final = 4096
"""Intervals that are kept of a service."""


class Instance(NamedTuple):
    """A type of device on which a replica can run: `price` of a replica for an hour (1 a GPU where
    the cluster file states none at all), what batches take there, and for how many replicas there
    are places."""

    gpu_type: str
    price: float
    times: BatchTimes
    places: int


class Course(msgspec.Struct):
    """What is kept of one service. `wanted`: replicas by type; `seen`: until when its windows were
    counted; `until`: when the running interval ends; `now`: rates in it, by window; `rates`: by
    interval that is over; `guesses`: what had been forecast for those to come and the last ones;
    `plans`: what planners wanted before; `changed`: when `wanted` last did."""

    wanted: dict[str, int]
    seen: int = 0
    until: int = 0
    now: list[float] = []
    rates: list[float] = []
    guesses: list[float] = []
    plans: list[dict[str, int]] = []
    changed: int = 0


class Outlook(NamedTuple):
    """What a planner sees of a service at the end of an interval: requests a second by interval,
    the tightest SLO, what replicas can run on, seconds until a new one answers, and the windows
    that are kept."""

    now: int
    rates: Sequence[float]
    slo: float
    instances: Sequence[Instance]
    load: float
    windows: Sequence[Window]


class Planner(Protocol):
    """How many replicas of each type. `interval`: microseconds between plans, 0 for one a window.
    `piece`: an interval's rate is that of the fullest piece of so many seconds; 0: its mean."""

    @property
    def interval(self) -> int:
        """See the class."""

    @property
    def piece(self) -> float:
        """See the class."""

    def plan(self, outlook: Outlook, course: Course) -> Mapping[str, int]:
        """Replicas by type, not bounded yet. May note in `course` what it needs later."""


class FleetMemory(msgspec.Struct):
    """By service, what is kept of it."""

    courses: dict[int, Course]


@dataclass(frozen=True)
class Fleets:
    """Gives every service the replicas that `planner` wants, within the sizes that its first role
    allows. It begins with as many as its role says, of the type that is quickest. Replicas that are
    too many go once all others of the service answer, the newest first. Where nobody measured the
    service's model, or its requests have no deadline, it keeps what it has."""

    name: str
    planner: Planner
    place: Placer = PACK
    orders = (Spawn,)

    def decide(self, view: View, memory: FleetMemory | None) -> tuple[Plan, FleetMemory]:
        """Replicas asked for, retired, and started where there is room."""
        after = FleetMemory({})
        replicas, gone = replicas_of(view), set[int]()
        for service, have in sorted(replicas.items()):
            if view.at.phase[service] == _PENDING:
                view.draft.start(service, ())
            instances, answering = _instances(view, service)
            before = None if memory is None else memory.courses.get(service)
            course = msgspec.structs.replace(before or _begun(view, service, instances))
            after.courses[service] = course
            if answering is not None and instances:
                self._follow(view, service, course, instances, answering.load)
            load = 0.0 if answering is None else answering.load
            gone |= _reconcile(view, service, have, course, load)
        pending = view.pending.tolist()
        waiting = [job for job in pending if view.at.parent[job] in replicas and job not in gone]
        reasons = start_waiting(view, waiting, self.place, "Fleets")
        return view.draft.plan(reasons, until=CHANGES), after

    def _follow(
        self, view: View, service: int, course: Course, instances: Sequence[Instance], load: float
    ) -> None:
        """Count the windows that are new; plan at the end of an interval."""
        windows = view.services.get(service, ())
        over = False
        for window in windows:
            if window.until <= course.seen:
                continue
            if not course.until:
                course.until = window.since + self.planner.interval
            piece = self.planner.piece
            rate = peak_rate(window, piece) if piece else mean_rate(window)
            course.seen = window.until
            course.now = course.now if rate is None else [*course.now, rate]
            if window.until >= course.until and course.now:
                whole = max(course.now) if piece else sum(course.now) / len(course.now)
                course.rates = [*course.rates[-_KEPT + 1 :], whole]
                course.now, course.until = [], window.until + self.planner.interval
                over = True
        slo = tightest(windows)
        if not over or slo is None:
            return
        outlook = Outlook(view.now, course.rates, slo, instances, load, windows)
        wanted = _bounded(view, service, self.planner.plan(outlook, course), instances)
        if wanted != course.wanted:
            course.wanted, course.changed = wanted, view.now


def _begun(view: View, service: int, instances: Sequence[Instance]) -> Course:
    """As many replicas as the role says, of the quickest type that has places for them."""
    size = view.draft.shape(service).roles[0].size
    wanted: dict[str, int] = {}
    for each in sorted(instances, key=lambda each: (each.times.mean[0], each.gpu_type)):
        count = min(size - sum(wanted.values()), each.places)
        if count > 0:
            wanted[each.gpu_type] = count
    return Course(wanted or {(view.draft.shape(service).gpu_types or ("",))[0]: size})


def _bounded(
    view: View, service: int, plan: Mapping[str, int], instances: Sequence[Instance]
) -> dict[str, int]:
    """The plan within the places of each type and the sizes of the service: replicas of the slowest
    type are left out first, those of the cheapest added."""
    least, limit = view.draft.shape(service).roles[0].range
    wanted = {each.gpu_type: min(plan.get(each.gpu_type, 0), each.places) for each in instances}
    for each in sorted(instances, key=lambda each: (-each.times.mean[0], each.gpu_type)):
        spare = max(sum(wanted.values()) - limit, 0)
        wanted[each.gpu_type] -= min(spare, wanted[each.gpu_type])
    for each in sorted(instances, key=lambda each: (each.price, each.gpu_type)):
        lack = max(least - sum(wanted.values()), 0)
        wanted[each.gpu_type] += min(lack, each.places - wanted[each.gpu_type])
    return {gpu_type: count for gpu_type, count in wanted.items() if count}


def _reconcile(
    view: View, service: int, have: Sequence[int], course: Course, load: float
) -> set[int]:
    """Ask for what lacks, and retire what is too many. Those that go."""
    spec, gone = view.jobs.spec(service), set[int]()
    by_type: dict[str, list[int]] = {}
    for job in have:
        types = view.jobs.shapes[view.at.shape[job]].gpu_types
        by_type.setdefault(types[0] if types else "", []).append(job)
    lacking = {
        gpu_type: count - len(by_type.get(gpu_type, ()))
        for gpu_type, count in course.wanted.items()
        if count > len(by_type.get(gpu_type, ()))
    }
    if lacking and not view.spawning.get(service):
        for gpu_type, lack in lacking.items():
            view.draft.act(Spawn(service, typed(replica_of(spec), gpu_type), lack))
    coming = bool(lacking) or not all(_answers(view, job, load) for job in have)
    for gpu_type, jobs in by_type.items():
        spare = len(jobs) - course.wanted.get(gpu_type, 0)
        for job in newest(view, jobs)[: max(spare, 0)]:
            if not coming or not _answers(view, job, load):
                view.draft.retire(job)
                gone.add(job)
    return gone


def _answers(view: View, job: int, load: float) -> bool:
    """Whether a replica has loaded."""
    began = int(view.jobs.first_start[job])
    return view.at.phase[job] == _RUNNING and view.now - began >= load * SECOND


def typed(replica: JobSpec, gpu_type: str) -> JobSpec:
    """The replica on devices of that type only; of any, where it has no name."""
    types = (gpu_type,) if gpu_type else replica.shape.gpu_types
    shape = msgspec.structs.replace(replica.shape, gpu_types=types)
    return msgspec.structs.replace(replica, shape=shape)


def _instances(view: View, service: int) -> tuple[list[Instance], Answering | None]:
    """What replicas of a service can run on, by type, and what is known of its model."""
    model = view.jobs.models[view.at.model[service]]
    answering = view.oracle.profile(model).answering
    if answering is None:
        return [], None
    shape = view.draft.shape(service)
    needs, instances = shape.roles[0].needs, list[Instance]()
    prices = prices_of(view)
    for gpu_type in dict.fromkeys(shape.gpu_types or view.nodes.types):
        times = answering.on(gpu_type, needs.share / WHOLE)
        places = _places(view, gpu_type, needs)
        if times is not None and places and gpu_type in prices:
            price = prices[gpu_type] * max(needs.gpus, 1) * needs.share / WHOLE
            instances.append(Instance(gpu_type, price, times, places))
    return instances, answering


def _places(view: View, gpu_type: str, needs: Needs) -> int:
    """For how many replicas nodes of that type have GPUs."""
    nodes, code = view.nodes, view.nodes.types.find(gpu_type)
    gpus = nodes.gpus[: nodes.n][nodes.gpu_type[: nodes.n] == code]
    if needs.share < WHOLE:
        return int(gpus.sum()) * (WHOLE // needs.share)
    return int((gpus // max(needs.gpus, 1)).sum())


def prices_of(view: View) -> dict[str, float]:
    """By type, of a GPU for an hour: as its nodes are offered, else as its type says; without those
    that have no price. 1 for every type where no price is stated at all."""
    nodes = view.nodes
    prices = {kind.name: kind.price for kind in nodes.type_specs}
    for row, offer in enumerate(nodes.offers):
        if offer is not None and offer.price >= 0 and nodes.gpus[row]:
            prices[nodes.types[int(nodes.gpu_type[row])]] = offer.price / int(nodes.gpus[row])
    stated = {name: price for name, price in prices.items() if price > 0}
    return stated or dict.fromkeys(prices, 1.0)
