"""Services whose replicas are of chosen types of device: a planner says how many of each, by what
came, what the types cost, and what was measured on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import msgspec

from ganger.core.plan import Plan, Spawn
from ganger.core.serving.answering import Answering, BatchTimes, Step
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
    are places. `model`: of the stages of a pipeline; empty: that of the service. `share`: the part
    of the device, in thousandths, where replicas of one service may have several; 0: as the service
    says."""

    gpu_type: str
    price: float
    times: BatchTimes
    places: int
    model: str = ""
    share: int = 0

    @property
    def key(self) -> str:
        """What its replicas are counted under."""
        return key_of(self.model, self.gpu_type, self.share)


def key_of(model: str, gpu_type: str, share: int = 0) -> str:
    """See `Instance.key`."""
    where = f"{gpu_type}/{share}" if share else gpu_type
    return f"{model}@{where}" if model else where


class Course(msgspec.Struct):
    """What is kept of one service. `wanted`: replicas by `Instance.key`; `seen`: until when its
    windows were counted; `until`: when the running interval ends; `now`: rates in it, by window;
    `rates`: by interval that is over; `guesses`: what had been forecast for the last ones and the
    one to come; `plans`: what planners wanted before; `notes`: other numbers of a planner;
    `changed`: when `wanted` last did."""

    wanted: dict[str, int]
    seen: int = 0
    until: int = 0
    now: list[float] = []
    rates: list[float] = []
    guesses: list[float] = []
    plans: list[dict[str, int]] = []
    notes: dict[str, float] = {}
    changed: int = 0


class Outlook(NamedTuple):
    """What a planner sees of a service at the end of an interval: requests a second by interval,
    the tightest SLO, what replicas can run on, seconds until a new one answers, the windows that
    are kept, and the stages of a pipeline."""

    now: int
    rates: Sequence[float]
    slo: float
    instances: Sequence[Instance]
    load: float
    windows: Sequence[Window]
    stages: Sequence[Step] = ()


class Planner(Protocol):
    """How many replicas of each type. `interval`: microseconds between plans, 0 for one a window.
    `piece`: an interval's rate is that of the fullest piece of so many seconds; 0: its mean.
    `staged`: whether it plans the stages of pipelines; otherwise a replica runs all of them."""

    @property
    def interval(self) -> int:
        """See the class."""

    @property
    def piece(self) -> float:
        """See the class."""

    @property
    def staged(self) -> bool:
        """See the class."""

    def plan(self, outlook: Outlook, course: Course) -> Mapping[str, int]:
        """Replicas by `Instance.key`, not bounded yet. May note in `course` what it needs later."""


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
        market = Market(view, staged=self.planner.staged)
        for service, have in sorted(replicas.items()):
            if view.at.phase[service] == _PENDING:
                view.draft.start(service, ())
            instances, load = market.instances(service)
            before = None if memory is None else memory.courses.get(service)
            course = msgspec.structs.replace(before or _begun(view, service, instances))
            after.courses[service] = course
            if instances:
                self._follow(view, service, course, instances, load)
            gone |= reconcile(view, service, have, course, load)
        pending = view.pending.tolist()
        waiting = [job for job in pending if view.at.parent[job] in replicas and job not in gone]
        reasons = start_waiting(view, waiting, self.place, "Fleets")
        return view.draft.plan(reasons, until=CHANGES), after

    def _follow(
        self, view: View, service: int, course: Course, instances: Sequence[Instance], load: float
    ) -> None:
        """Count the windows that are new; plan at the end of an interval."""
        windows = list(view.services.get(service, ()))
        new, over, piece = len(windows), False, self.planner.piece
        while new and windows[new - 1].until > course.seen:
            new -= 1
        for window in windows[new:]:
            if not course.until:
                course.until = window.since + self.planner.interval
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
        stages = _answering(view, service).stages
        outlook = Outlook(view.now, course.rates, slo, instances, load, windows, stages)
        wanted = _bounded(view, service, self.planner.plan(outlook, course), instances)
        if wanted != course.wanted:
            course.wanted, course.changed = wanted, view.now


def _begun(view: View, service: int, instances: Sequence[Instance]) -> Course:
    """As many replicas as the role says, of the quickest type that has places for them; of a
    pipeline, so many of each stage."""
    shape = view.draft.shape(service)
    lacking = dict.fromkeys((each.model for each in instances), shape.roles[0].size)
    wanted: dict[str, int] = {}
    for each in sorted(instances, key=lambda each: (each.times.mean[0], each.key)):
        count = min(lacking[each.model], each.places)
        lacking[each.model] -= count
        if count:
            wanted[each.key] = count
    return Course(wanted or {(shape.gpu_types or ("",))[0]: shape.roles[0].size})


def _bounded(
    view: View, service: int, plan: Mapping[str, int], instances: Sequence[Instance]
) -> dict[str, int]:
    """The plan within the places of each type and the sizes of the service: of what there are most
    of, replicas are left out first; those of the cheapest are added."""
    least, limit = view.draft.shape(service).roles[0].range
    places = {each.key: each.places for each in instances}
    wanted = {key: min(plan.get(key, 0), type_places) for key, type_places in places.items()}
    for _ in range(sum(wanted.values()) - limit):
        wanted[max(wanted, key=lambda key: (wanted[key], key))] -= 1
    lack = least - sum(wanted.values())
    if lack > 0:
        for _, key in sorted((each.price, each.key) for each in instances):
            more = min(lack, places[key] - wanted[key])
            wanted[key] += more
            lack -= more
    return {key: count for key, count in wanted.items() if count}


def reconcile(
    view: View,
    service: int,
    have: Sequence[int],
    course: Course,
    load: float,
    *,
    shared: bool = False,
    standby: bool = True,
) -> set[int]:
    """Ask for what lacks, and retire what is too many once all others answer, or at once without
    `standby`. Those that go. `shared`: whether replicas differ by their share of a device."""
    own, gone = view.at.model[service], set[int]()
    by_key: dict[str, list[int]] = {}
    for job in have:
        shape = view.jobs.shapes[view.at.shape[job]]
        types, model = shape.gpu_types, view.at.model[job]
        share = shape.roles[0].needs.share if shared else 0
        named = "" if model == own else view.jobs.models[model]
        key = key_of(named, types[0] if types else "", share)
        by_key.setdefault(key, []).append(job)
    lacking = {
        key: count - len(by_key.get(key, ()))
        for key, count in course.wanted.items()
        if count > len(by_key.get(key, ()))
    }
    if lacking and not view.spawning.get(service):
        spec = view.jobs.spec(service)
        for key, lack in lacking.items():
            view.draft.act(Spawn(service, typed(replica_of(spec), key), lack))
    spare = {key: len(jobs) - course.wanted.get(key, 0) for key, jobs in by_key.items()}
    if max(spare.values(), default=0) <= 0:
        return gone
    coming = standby and (bool(lacking) or not all(answers(view, job, load) for job in have))
    for key, jobs in by_key.items():
        for job in newest(view, jobs)[: max(spare[key], 0)]:
            if not coming or not answers(view, job, load):
                view.draft.retire(job)
                gone.add(job)
    return gone


def answers(view: View, job: int, load: float) -> bool:
    """Whether a replica has loaded."""
    began: int = view.at.first_start[job]
    return view.at.phase[job] == _RUNNING and view.now - began >= load * SECOND


def typed(replica: JobSpec, key: str) -> JobSpec:
    """The replica as `Instance.key` says: on devices of one type only, or any where that has no
    name, of one stage's model, and on a share of a device."""
    model, _, where = key.rpartition("@")
    gpu_type, _, share = where.partition("/")
    types = (gpu_type,) if gpu_type else replica.shape.gpu_types
    roles = replica.shape.roles
    if share:
        needs = msgspec.structs.replace(roles[0].needs, share=int(share))
        roles = (msgspec.structs.replace(roles[0], needs=needs), *roles[1:])
    shape = msgspec.structs.replace(replica.shape, gpu_types=types, roles=roles)
    return msgspec.structs.replace(replica, shape=shape, model=model or replica.model)


def _answering(view: View, service: int) -> Answering:
    """What is known of the service's model or pipeline."""
    model = view.jobs.models[view.at.model[service]]
    return view.oracle.profile(model).answering or Answering()


class Market:
    """What there is to run replicas on at one instant; nothing for pipelines unless `staged`.
    `shared`: on every share of a device on which a model was measured."""

    def __init__(self, view: View, *, staged: bool, shared: bool = False) -> None:
        self._view, self._staged, self._shared = view, staged, shared
        self._prices = prices_of(view)
        self._known: dict[tuple[int, int], tuple[list[Instance], float]] = {}
        """By shape and model of a service."""

    def instances(self, service: int) -> tuple[list[Instance], float]:
        """What replicas of a service can run on, by model and type, and seconds until they
        answer."""
        key = self._view.at.shape[service], self._view.at.model[service]
        if key not in self._known:
            self._known[key] = self._instances(service)
        return self._known[key]

    def _instances(self, service: int) -> tuple[list[Instance], float]:
        view, answering = self._view, _answering(self._view, service)
        shape, known = view.draft.shape(service), {"": answering}
        if answering.stages:
            steps = answering.stages if self._staged else ()
            models = dict.fromkeys(step.model for step in steps)
            known = {model: view.oracle.profile(model).answering or Answering() for model in models}
        needs, instances = shape.roles[0].needs, list[Instance]()
        for model, each in known.items():
            for gpu_type in dict.fromkeys(shape.gpu_types or view.nodes.types):
                for times, part in self._measured(each, gpu_type, needs):
                    places = places_on(view, gpu_type, part)
                    if places and gpu_type in self._prices:
                        price = self._prices[gpu_type] * max(part.gpus, 1) * part.share / WHOLE
                        share = part.share if self._shared else 0
                        instances.append(Instance(gpu_type, price, times, places, model, share))
        if {each.model for each in instances} != known.keys():
            return [], 0.0  # of a stage nothing is known
        return instances, max((each.load for each in known.values()), default=0.0)

    def _measured(
        self, model: Answering, gpu_type: str, needs: Needs
    ) -> Iterator[tuple[BatchTimes, Needs]]:
        """What batches take, and what such a replica needs."""
        if not self._shared:
            times = model.on(gpu_type, needs.share / WHOLE)
            if times is not None:
                yield times, needs
            return
        for times in model.times.get(gpu_type, ()):
            yield times, msgspec.structs.replace(needs, share=round(times.share * WHOLE))


def places_on(view: View, gpu_type: str, needs: Needs) -> int:
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
