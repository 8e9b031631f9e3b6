"""GSLICE: models share devices in space, each on the part beyond which more of it gains little.

Dhakal, Kulkarni, Ramakrishnan: GSLICE: Controlled Spatial Sharing of GPUs for a Scalable Inference
Platform, SoCC 2020.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import ceil, inf
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from ganger.core.plan import Plan, Spawn
from ganger.core.spec import PLAIN
from ganger.core.state.jobs import Phase
from ganger.core.units import WHOLE
from ganger.core.view import View
from ganger.mechanisms.placement.place import PACK, Placer
from ganger.mechanisms.scaling.fleets import (
    Course,
    FleetMemory,
    Instance,
    Market,
    key_of,
    places_on,
    reconcile,
)
from ganger.mechanisms.scaling.replicas import CHANGES, replicas_of, start_waiting
from ganger.mechanisms.scaling.shares import lately, on_one_type, rate_within

_PENDING: Final = int(Phase.PENDING)


class Step(NamedTuple):
    """A share of a device in thousandths, and the inputs a second that a model answers there."""

    share: int
    rate: float


class Tenant(NamedTuple):
    """A service. `steps`: by share, ascending, of rates that grow; `load`: requests a second to
    provide for; `late`: whether it lately missed its SLO; it has `least` to `most` replicas, now of
    these `shares`."""

    steps: Sequence[Step]
    load: float
    late: bool
    least: int
    most: int
    shares: Sequence[int] = ()

    def needs(self, at: int) -> int:
        """How many replicas on one of its steps its load needs."""
        count = ceil(self.load / self.steps[at].rate - _NOTHING)
        return min(max(count, self.least), self.most)

    def rate(self, shares: Sequence[int]) -> float:
        """What replicas of these shares answer in a second."""
        rates = {step.share: step.rate for step in self.steps}
        return sum(rates.get(share, 0.0) for share in shares)


_NOTHING: Final = 1e-9
_Options: TypeAlias = tuple[Sequence[Instance], float]
"""What replicas of a service can run on, and the seconds for which they load."""


def knee(steps: Sequence[Step], gain: float) -> int:
    """The step after which the next one adds less than that part of the rate."""
    for at, (here, more) in enumerate(pairwise(steps)):
        if more.rate < (1 + gain) * here.rate:
            return at
    return len(steps) - 1


def fits(shares: Sequence[int], devices: int) -> bool:
    """Whether replicas of these shares have room on so many devices: first fit, the largest
    first."""
    room = [WHOLE] * devices
    for share in sorted(shares, reverse=True):
        at = next((at for at, free in enumerate(room) if free >= share), -1)
        if at < 0:
            return False
        room[at] -= share
    return True


def divided(
    tenants: Sequence[Tenant], devices: int, gain: float, taken: Sequence[int] = ()
) -> list[list[int]]:
    """By tenant, the shares of its replicas, beside others that are `taken`. Each has as many on
    its knee as its load needs. Where they have no room together, those that have most to spare
    shrink; what is left over goes to those that miss their SLO. Where all do with what they have,
    and hold no replica too many, nothing changes."""
    knees = [knee(each.steps, gain) for each in tenants]
    both = list(zip(tenants, knees, strict=True))
    now = [each.shares for each in tenants]
    if all(_does(each, at) for each, at in both) and fits([*taken, *chain(*now)], devices):
        return [sorted(shares, reverse=True) for shares in now]
    held = [[at] * each.needs(at) for each, at in both]

    def shares(number: int) -> list[int]:
        return sorted((tenants[number].steps[at].share for at in held[number]), reverse=True)

    def room() -> bool:
        return fits([*taken, *chain(*map(shares, range(len(held))))], devices)

    def plenty(number: int) -> tuple[float, int]:
        """How many times its load a tenant can answer; of equals, the one that came first."""
        each = tenants[number]
        return each.rate(shares(number)) / max(each.load, _NOTHING), number

    while not room():
        able = [n for n, own in enumerate(held) if any(own) or len(own) > tenants[n].least]
        if not able:
            break  # they wait
        own = held[max(able, key=plenty)]
        largest = max(own)
        if largest:
            own[own.index(largest)] -= 1
        else:
            own.pop()
    full = set[int]()

    def lacking() -> list[int]:
        every = range(len(tenants))
        return [n for n in every if n not in full and (tenants[n].late or plenty(n)[0] < 1)]

    while some := lacking():
        number = min(some, key=plenty)
        own, last = held[number], len(tenants[number].steps) - 1
        at = own.index(min(own))
        own[at] += 1
        if own[at] > last or not room():
            own[at] -= 1
            full.add(number)
    return [shares(number) for number in range(len(held))]


def _does(tenant: Tenant, at: int) -> bool:
    """Whether a tenant with that knee does with what it has, and has not too much."""
    enough = tenant.rate(tenant.shares) >= tenant.load and not tenant.late
    return enough and tenant.least <= len(tenant.shares) <= tenant.needs(at)


@dataclass(frozen=True)
class GSlice:
    """See the module. A load is that of the fullest of the last `calm` windows, with `spare` more
    of it. Without `standby` a replica ends before another of the new share has loaded."""

    gain: float
    spare: float
    calm: int
    standby: bool
    place: Placer = PACK
    name: str = "gslice"
    orders = (Spawn,)

    def decide(self, view: View, memory: FleetMemory | None) -> tuple[Plan, FleetMemory]:
        """Shares of devices are divided anew when services come, or report."""
        before = {} if memory is None else memory.courses
        replicas, market = replicas_of(view), Market(view, staged=False, shared=True)
        services = sorted(replicas)
        for service in services:
            if view.at.phase[service] == _PENDING:
                view.draft.start(service, ())
        after = FleetMemory({each: replace(before.get(each) or Course({})) for each in services})
        self._divide(view, {each: market.instances(each) for each in services}, after)
        pending = [job for job in view.pending.tolist() if view.at.parent[job] in replicas]
        crowded = {
            int(view.at.parent[job])
            for job in pending
            if self.place.find(view, view.ledger, job) is None
        }
        gone = set[int]()
        for service, have in sorted(replicas.items()):
            course, load = after.courses[service], market.instances(service)[1]
            standby = self.standby and service not in crowded
            gone |= reconcile(view, service, have, course, load, shared=True, standby=standby)
        waiting = [job for job in pending if job not in gone]
        reasons = start_waiting(view, waiting, self.place, "GSlice")
        return view.draft.plan(reasons, until=CHANGES), after

    def _divide(self, view: View, options: Mapping[int, _Options], memory: FleetMemory) -> None:
        """By type of device, among the services that are new or reported; others keep what they
        have."""
        by_type = dict[str, list[int]]()
        here = {service: on_one_type(instances) for service, (instances, _) in options.items()}
        for service, instances in here.items():
            if instances:
                by_type.setdefault(instances[0].gpu_type, []).append(service)
            elif not memory.courses[service].wanted:
                shape = view.draft.shape(service)
                key = key_of("", (shape.gpu_types or ("",))[0], shape.roles[0].needs.share)
                memory.courses[service].wanted = {key: shape.roles[0].size}
        for gpu_type, services in by_type.items():
            tenants, taken = dict[int, Tenant](), list[int]()
            for service in services:
                course = memory.courses[service]
                tenant = self._tenant(view, service, (here[service], options[service][1]), course)
                if tenant is None:
                    taken += _shares(course)
                else:
                    tenants[service] = tenant
            devices = places_on(view, gpu_type, PLAIN)
            parts = divided(list(tenants.values()), devices, self.gain, taken)
            for service, own in zip(tenants, parts, strict=True):
                wanted = {
                    key_of("", gpu_type, share): count for share, count in Counter(own).items()
                }
                course = memory.courses[service]
                if wanted != course.wanted:
                    course.wanted, course.changed = wanted, view.now

    def _tenant(self, view: View, service: int, options: _Options, course: Course) -> Tenant | None:
        """A service as it did in its last windows; None where it did not report since it was last
        asked, or its replicas have not loaded for as long as a window is, or nothing has a deadline
        or can be in time. Of one that is new no load is known."""
        (instances, load), role = options, view.draft.shape(service).roles[0]
        if not course.wanted:
            return Tenant(steps_of(instances, inf), 0.0, False, role.size, role.range[1])
        did = lately(view, service, course, load, self.calm)
        steps = [] if did is None else steps_of(instances, did.slo)
        if did is None or not steps:
            return None
        least, most = role.range
        to_come = (1 + self.spare) * did.rate
        return Tenant(steps, to_come, did.missed > _MISSED, max(least, 1), most, _shares(course))


_MISSED: Final = 0.01
"""The part of requests that may be late or dropped."""


def steps_of(instances: Sequence[Instance], slo: float) -> list[Step]:
    """The shares on which an SLO (seconds) can be kept, without those that gain nothing."""
    steps = list[Step]()
    for each in sorted(instances, key=lambda each: each.share):
        rate = rate_within(each.times, slo)
        if rate > (steps[-1].rate if steps else 0.0):
            steps.append(Step(each.share, rate))
    return steps


def _shares(course: Course) -> list[int]:
    """Of its replicas; of those that have whole devices, all of one."""
    return [
        int(key.rpartition("/")[2]) if "/" in key else WHOLE
        for key, count in course.wanted.items()
        for _ in range(count)
    ]
