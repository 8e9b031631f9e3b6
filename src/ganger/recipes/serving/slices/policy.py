"""The services of a cluster on slices of its devices: when slices are divided anew, and one step
after another towards them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from ganger.core.books.ledger import members
from ganger.core.books.mig import KNOB, MIG_SLICES, Device, mig_slice, written
from ganger.core.books.share import Part, Sharing
from ganger.core.plan import Plan, Reason, Slot, Spawn, Tune
from ganger.core.spec import Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND, WHOLE
from ganger.core.view import View
from ganger.mechanisms.scaling.fleets import (
    Course,
    Instance,
    Market,
    answers,
    key_of,
    reconcile,
    typed,
)
from ganger.mechanisms.scaling.replicas import CHANGES, replica_of, replicas_of, start_waiting
from ganger.mechanisms.scaling.shares import lately, on_one_type, rate_within
from ganger.mechanisms.sharing.slices import Layouts, Slices
from ganger.recipes.serving.slices.packing import Config, Problem, greedy, layouts
from ganger.recipes.serving.slices.search import Search, fewest
from ganger.recipes.serving.slices.transition import Goal, Lying, goals

_PENDING = int(Phase.PENDING)
_RATE: Final = "requests a second to provide for"
_SLO: Final = "SLO"
_ANY: Final = 1e-6
"""Requests a second of a service of which nothing is known: one slice is enough."""


class SlicesMemory(msgspec.Struct):
    """By service, what is kept of it; by kind of device, the slices that are wanted on each, whose
    services are given by job."""

    courses: dict[int, Course]
    configs: dict[str, list[list[tuple[int, int]]]]


class Tenant(NamedTuple):
    """A service: by kind of slice the share of a device and the requests a second that it answers
    there, and the seconds for which a replica loads."""

    slices: Mapping[int, tuple[int, float]]
    load: float


@dataclass(frozen=True)
class MigServing:
    """See the module. A service is given slices for the most that came in any of its last `calm`
    windows, and `spare` more. Slices are divided anew when some service has too few, or when fewer
    devices would do."""

    search: Search
    spare: float
    calm: int
    name: str = "mig-serving"
    orders = (Spawn, Tune)

    def decide(self, view: View, memory: SlicesMemory | None) -> tuple[Plan, SlicesMemory]:
        """Slices are divided, and what can be done now is done."""
        before = memory or SlicesMemory({}, {})
        replicas, market = replicas_of(view), Market(view, staged=False, shared=True)
        after = SlicesMemory({}, {})
        groups, others = defaultdict[str, dict[int, Tenant]](dict), list[int]()
        for service in sorted(replicas):
            if view.at.phase[service] == _PENDING:
                view.draft.start(service, ())
            course = replace(before.courses.get(service) or Course({}))
            after.courses[service] = course
            every, load = market.instances(service)
            instances = on_one_type(every)
            tenant = self._tenant(view, service, course, instances, load)
            if tenant is None:
                others.append(service)
            else:
                shape = view.draft.shape(service)
                where = "|".join((instances[0].gpu_type, shape.pool, *sorted(shape.labels)))
                groups[where][service] = tenant
        waiting = {job for job in view.pending.tolist() if view.at.parent[job] in replicas}
        wake, reasons = NEVER, list[Reason]()
        taken = set[Device]()
        for where, tenants in groups.items():
            step = _Step(view, where.split("|")[0], tenants, replicas, after.courses, taken)
            configs = [tuple(each) for each in before.configs.get(where, ())]
            wanted = self._divided(step.problem(), step, configs)
            after.configs[where] = [list(config) for config in wanted]
            reasons += step.towards(wanted)
            taken |= set(step.aimed)
            wake = min(wake, step.wake)
            waiting -= step.own
        for service in others:
            course, load = after.courses[service], market.instances(service)[1]
            role, types = view.draft.shape(service).roles[0], view.draft.shape(service).gpu_types
            course.wanted = {key_of("", (types or ("",))[0], role.needs.share): role.size}
            waiting -= reconcile(view, service, replicas[service], course, load, shared=True)
        reasons += start_waiting(view, sorted(waiting), _SLICES, "MigServing")
        return view.draft.plan(reasons, wake, CHANGES), after

    def _tenant(
        self,
        view: View,
        service: int,
        course: Course,
        instances: Sequence[Instance],
        load: float,
    ) -> Tenant | None:
        """A service as it did in its last windows; None where no slice of a device was measured,
        or its replicas need several devices."""
        shape = view.draft.shape(service)
        if not instances or shape.roles[0].needs.gpus > 1:
            return None
        did = lately(view, service, course, load, self.calm)
        if did is not None:
            course.notes = {_RATE: (1 + self.spare) * did.rate, _SLO: did.slo}
        slo = course.notes.get(_SLO, inf)
        slices = slices_of(view, shape, instances, slo) or slices_of(view, shape, instances, inf)
        return Tenant(slices, load) if slices else None

    def _divided(self, problem: Problem, step: _Step, before: list[Config]) -> list[Config]:
        """The slices of each device by the services' jobs: as before, unless some service has too
        few now, or fewer devices would do."""
        jobs, numbers = step.jobs, {job: at for at, job in enumerate(step.jobs)}
        kept = [
            tuple(
                (kind, numbers[job])
                for kind, job in config
                if job in numbers and problem.rates[numbers[job], kind] > 0
            )
            for config in before
        ]
        kept = step.within(problem, [config for config in kept if config])
        done = _done(problem, kept) if len(kept) <= step.devices else -1.0
        if done == len(jobs) and len(kept) <= ceil(fewest(problem) - _NEARLY):
            return step.named(kept)
        configs = step.within(problem, greedy(problem, problem.loads, step.devices))
        enough = problem.covers(configs)
        gained = _done(problem, configs) * _BETTER > done or (enough and not problem.covers(kept))
        if not gained and len(kept) <= len(configs):
            return step.named(kept)
        if enough:
            fewer = self.search.improved(problem, configs, step.view.rng(self.name))
            configs = step.within(problem, fewer)
        return step.named(configs)


_BETTER: Final = 0.99
"""What loads are answered has to grow by more than a hundredth for slices to be divided anew where
there are too few devices."""
_NEARLY: Final = 1e-6


def _done(problem: Problem, configs: Sequence[Config]) -> float:
    """The parts of all loads that are answered."""
    return float(np.minimum(problem.provided(configs) / problem.loads, 1.0).sum())


_SLICES: Final = Slices(mode=Sharing.MIG)


def slices_of(
    view: View, shape: Shape, instances: Sequence[Instance], slo: float
) -> dict[int, tuple[int, float]]:
    """By kind of slice on which an SLO (seconds) can be kept, a row of `MIG_SLICES`: the share of
    the device that was measured, and the requests a second."""
    gpu_type = instances[0].gpu_type
    slices, code = MIG_SLICES.get(gpu_type, ()), view.nodes.types.find(gpu_type)
    memory_mib = view.nodes.type_specs[code].memory
    chosen = dict[int, tuple[int, float]]()
    for each in instances:
        part = Part(each.share, shape.roles[0].needs.gpu_memory)
        slice_, rate = mig_slice(part, gpu_type, memory_mib), rate_within(each.times, slo)
        if slice_ is None or not rate:
            continue
        kind = slices.index(slice_)
        if rate > chosen.get(kind, (0, 0.0))[1]:
            chosen[kind] = each.share, rate
    return chosen


class _Step:
    """One decision for the services of one type of device, pool and labels, without the devices
    that are `taken` for others. `aimed`: those on which its slices are to be."""

    def __init__(
        self,
        view: View,
        gpu_type: str,
        tenants: Mapping[int, Tenant],
        replicas: Mapping[int, Sequence[int]],
        courses: Mapping[int, Course],
        taken: set[Device],
    ) -> None:
        self.view, self._type, self._tenants, self._courses = view, gpu_type, tenants, courses
        self.jobs = sorted(tenants)
        self._have = {service: replicas[service] for service in self.jobs}
        self.own = {job for have in self._have.values() for job in have}
        """Their replicas."""
        self.wake = NEVER
        self._state = self._lying(taken)
        self.devices = len(self._state)
        self.aimed: Collection[Device] = ()

    def _lying(self, taken: set[Device]) -> dict[Device, list[Lying]]:
        """By device that is free, or that these services' replicas have alone, what lies there."""
        view, ledger = self.view, self.view.ledger
        layouts, state = view.cached(Layouts), dict[Device, list[Lying]]()
        layouts.look(view, ledger)
        whole = dict[Device, int]()
        for job in self.own:
            for slot in view.draft.holds(job) or ():
                for device in members(slot.devices):
                    whole[slot.node, device] = job
        last = len(MIG_SLICES[self._type]) - 1
        for node in self._nodes():
            for device in range(int(view.nodes.gpus[node])):
                key = node, device
                lying = layouts.lie(view, key)
                if key in taken or not lying.keys() <= self.own:
                    continue
                if ledger.free_mask[node] >> device & 1:
                    state[key] = []
                elif lying:
                    state[key] = [self._on(job, at) for job, (at, _) in lying.items()]
                elif key in whole:
                    job = whole[key]
                    state[key] = [Lying(job, int(view.at.parent[job]), last, 0)]
        return state

    def _on(self, job: int, start: int) -> Lying:
        """A replica on a slice."""
        service = int(self.view.at.parent[job])
        return Lying(job, service, self._kind(job), start)

    def _kind(self, job: int) -> int:
        """The kind of slice that a replica has, or waits for."""
        view, kinds = self.view, MIG_SLICES[self._type]
        needs = view.jobs.shapes[view.at.shape[job]].roles[0].needs
        memory = view.nodes.type_specs[view.nodes.types.find(self._type)].memory
        slice_ = mig_slice(Part(needs.share, needs.gpu_memory), self._type, memory)
        return kinds.index(slice_) if slice_ is not None else len(kinds) - 1

    def _nodes(self) -> Iterator[int]:
        """Those that are up and that the services may have."""
        view, ledger = self.view, self.view.ledger
        shape = view.draft.shape(self.jobs[0])
        for cell in ledger.cells_for(replace(shape, gpu_types=(self._type,))):
            for node in cell.nodes:
                if ledger.up[node] and set(shape.labels) <= set(
                    view.nodes.label_sets[view.nodes.labels[node]]
                ):
                    yield node

    def problem(self) -> Problem:
        """What has to be packed, services by their place in `jobs`."""
        rates = np.zeros((len(self.jobs), len(MIG_SLICES[self._type])))
        for at, service in enumerate(self.jobs):
            for kind, (_, rate) in self._tenants[service].slices.items():
                rates[at, kind] = rate
        useful = frozenset(np.flatnonzero(rates.any(axis=0)).tolist())
        loads = [self._courses[job].notes.get(_RATE, 0.0) for job in self.jobs]
        loads = [max(load, _ANY) for load in loads]
        return Problem(rates, np.array(loads), layouts(self._type, useful), self._type)

    def within(self, problem: Problem, configs: Sequence[Config]) -> list[Config]:
        """The deployment with as many replicas of each service as it may have: the smallest of
        those that are too many are left out, and the smallest added to those that are too few."""
        changed = [list(config) for config in configs]
        count = Counter(who for config in configs for _, who in config)
        for at, service in enumerate(self.jobs):
            role = self.view.draft.shape(service).roles[0]
            least, limit = role.range
            least = max(least, 1) if self._courses[service].notes else role.size
            for _ in range(count[at] - limit):
                kind, where = min(
                    (kind, n) for n, each in enumerate(changed) for kind, who in each if who == at
                )
                changed[where].remove((kind, at))
            smallest = min(self._tenants[service].slices)
            for _ in range(least - count[at]):
                room = (each for each in changed if self._fits(problem, each, smallest))
                config = next(room, None)
                if config is not None:
                    config.append((smallest, at))
                elif len(changed) < self.devices:
                    changed.append([(smallest, at)])
        return [tuple(each) for each in changed if each]

    def named(self, configs: Sequence[Config]) -> list[Config]:
        """By the services' jobs."""
        return [tuple((kind, self.jobs[at]) for kind, at in config) for config in configs]

    def _fits(self, problem: Problem, config: Sequence[tuple[int, int]], kind: int) -> bool:
        """Whether a device can have one more slice of that kind."""
        wanted = Counter([kind, *(each for each, _ in config)])
        return any(wanted <= Counter(layout) for layout in problem.layouts)

    def towards(self, configs: Sequence[Config]) -> list[Reason]:
        """Ask for replicas, start those that have room where they are wanted, and retire those
        without which their services have enough. Why the others wait."""
        goal = goals(self._type, configs, self._state)
        self.aimed = [device for device, each in goal.items() if each.kept or each.missing]
        kept = {job for each in goal.values() for job in each.kept}
        missing = defaultdict[tuple[int, int], list[tuple[Device, int]]](list)
        for device, each in goal.items():
            for kind, service, start in each.missing:
                missing[service, kind].append((device, start))
        self._want(configs)
        pending, spare = defaultdict[tuple[int, int], list[int]](list), list[int]()
        for service, have in self._have.items():
            for job in have:
                if self.view.at.phase[job] == _PENDING:
                    pending[service, self._kind(job)].append(job)
                elif job not in kept:
                    spare.append(job)
        gone = self._retired(configs, spare)
        started, waiting = 0, list[int]()
        for (service, kind), jobs in pending.items():
            for job in jobs[len(missing[service, kind]) :]:
                self.view.draft.retire(job)
            for job in jobs[: len(missing[service, kind])]:
                if self._started(job, kind, missing[service, kind], gone):
                    started += 1
                else:
                    waiting.append(job)
        self._ask(missing, pending)
        if waiting and not (started or gone or self._busy()):
            self._give_way(goal, spare)
        return self._reasons(waiting)

    def _want(self, configs: Sequence[Config]) -> None:
        """Note replicas by share, as others have them."""
        for service in self.jobs:
            counts = Counter(kind for config in configs for kind, who in config if who == service)
            wanted = {
                key_of("", self._type, self._share(service, kind)): count
                for kind, count in counts.items()
            }
            course = self._courses[service]
            if wanted != course.wanted:
                course.wanted, course.changed = wanted, self.view.now

    def _share(self, service: int, kind: int) -> int:
        """The share that was measured on such a slice."""
        return self._tenants[service].slices.get(kind, (WHOLE, 0.0))[0]

    def _rate(self, service: int, kind: int) -> float:
        return self._tenants[service].slices.get(kind, (WHOLE, 0.0))[1]

    def _retired(self, configs: Sequence[Config], spare: Sequence[int]) -> set[int]:
        """Those that go: without them what answers is still as much as the load, or as what is
        wanted answers."""
        wanted = dict.fromkeys(self.jobs, 0.0)
        for config in configs:
            for kind, service in config:
                wanted[service] += self._rate(service, kind)
        gone = set[int]()
        provided = {service: self._provided(service) for service in self.jobs}
        for job in spare:
            service = int(self.view.at.parent[job])
            rate = self._rate(service, self._kind(job)) if self._answers(service, job) else 0.0
            load = max(self._courses[service].notes.get(_RATE, 0.0), _ANY)
            if provided[service] - rate >= min(load, wanted[service]) or not wanted[service]:
                provided[service] -= rate
                self.view.draft.retire(job)
                gone.add(job)
        return gone

    def _provided(self, service: int) -> float:
        """What the replicas that have loaded answer in a second."""
        ready = [job for job in self._have[service] if self._answers(service, job)]
        return sum(self._rate(service, self._kind(job)) for job in ready)

    def _answers(self, service: int, job: int) -> bool:
        """Whether a replica has loaded; if it only runs, the policy is asked again once it has."""
        view, load = self.view, self._tenants[service].load
        ready = answers(view, job, load)
        if not ready and view.at.first_start[job] >= 0 and view.at.phase[job] != _PENDING:
            until = int(view.at.first_start[job]) + round(load * SECOND) + 1
            self.wake = min(self.wake, until) if until > view.now else self.wake
        return ready

    def _started(
        self, job: int, kind: int, places: list[tuple[Device, int]], gone: set[int]
    ) -> bool:
        """Start a replica on one of the places whose slots are free, and say where it lies."""
        view, ledger, slices = self.view, self.view.ledger, MIG_SLICES[self._type]
        needs = view.jobs.shapes[view.at.shape[job]].roles[0].needs
        for at, ((node, device), start) in enumerate(places):
            taken = set[int]()
            for each in self._state[node, device]:
                if each.job not in gone:
                    taken |= set(range(each.start, each.start + slices[each.kind].memory))
            if taken & set(range(start, start + slices[kind].memory)):
                continue
            if needs.cpus > ledger.free_cpus[node] or needs.memory > ledger.free_memory[node]:
                continue
            del places[at]
            view.draft.start(job, (Slot(node, 1 << device, 1),))
            if needs.share < WHOLE:
                lying = {(node, device): (start, slices[kind].memory)}
                attempt = int(view.at.attempt[job]) + 1
                view.draft.act(Tune(job, attempt, {KNOB: written(lying)}))
            self._state[node, device].append(Lying(job, int(view.at.parent[job]), kind, start))
            return True
        return False

    def _ask(
        self,
        missing: Mapping[tuple[int, int], Sequence[tuple[Device, int]]],
        pending: Mapping[tuple[int, int], Sequence[int]],
    ) -> None:
        """For the replicas that lack."""
        for (service, kind), places in missing.items():
            waiting = sum(
                self.view.at.phase[job] == _PENDING and self.view.draft.holds(job) is None
                for job in pending.get((service, kind), ())
            )
            lack = len(places) - waiting
            if lack > 0 and not self.view.spawning.get(service):
                spec = replica_of(self.view.jobs.spec(service))
                key = key_of("", self._type, self._share(service, kind))
                self.view.draft.act(Spawn(service, typed(spec, key), lack))

    def _busy(self) -> bool:
        """Whether replicas come, load or end, so that there will be room without more."""
        return any(
            self.view.spawning.get(service)
            or any(
                self.view.at.phase[job] != _PENDING and not self._answers(service, job)
                for job in have
            )
            for service, have in self._have.items()
        )

    def _give_way(self, goal: Mapping[Device, Goal], spare: Sequence[int]) -> None:
        """No device is free to make new slices before old ones go: of those in the way that one
        goes whose service has most to spare."""
        wanted = {device for device, each in goal.items() if each.missing}
        way = {each.job for device in wanted for each in self._state[device]}

        def plenty(job: int) -> tuple[float, int]:
            service = int(self.view.at.parent[job])
            rate = self._provided(service) - self._rate(service, self._kind(job))
            return rate / max(self._courses[service].notes.get(_RATE, 0.0), _ANY), -job

        job = max((job for job in spare if job in way), key=plenty, default=-1)
        if job >= 0:
            self.view.draft.retire(job)

    def _reasons(self, waiting: Sequence[int]) -> list[Reason]:
        """One for each shape."""
        view = self.view
        shapes = {int(view.at.shape[job]): float(view.at.gpus[job]) for job in waiting}
        return [
            Reason("Resources", "MigServing", shape, -1, {"asked_gpus": gpus}, CHANGES)
            for shape, gpus in sorted(shapes.items())
        ]
