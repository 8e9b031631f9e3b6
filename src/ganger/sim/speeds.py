"""Speeds that change while jobs run: by rescale protocols, neighbours that slow each other, jobs on
the same GPUs, and CPUs and host memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from heapq import heappush
from typing import Any, NamedTuple

from ganger.core.books.bits import members
from ganger.core.clocks import CORE_MHZ, MEMORY_MHZ
from ganger.core.errors import BadInput
from ganger.core.events import AnyEvent, Progressed, Released, Started
from ganger.core.plan import WITHDRAWN, AnyAction, Placement, Resize, Tune
from ganger.core.spec import Kind, OnPreempt
from ganger.core.units import NEVER, SECOND, WHOLE
from ganger.estimate.sharing.partial_backprop import part_of_step, worth
from ganger.sim import tenancy
from ganger.sim.attempts import FAIL, FINISH, PACE, SUSPENSION, Attempts
from ganger.sim.host_resources import HostResources
from ganger.sim.links.sharing import Sharing
from ganger.sim.tenancy import Guest, Has, Terms

_START = Started.rank
_KILL, _TUNE = int(OnPreempt.KILL), int(Kind.TUNE)
_SETTLED = -1
"""The token of a PACE at which a rate controller has settled. No attempt has it."""
_Device = tuple[int, int]
"""Node, and number in it."""
_OnDevices = tuple[tuple[_Device, tuple[Guest, ...]], ...]
"""The jobs on the devices of a job, itself included; of devices of the same company the lowest."""


class _Divided(NamedTuple):
    """How the time of a device is divided: between the attempts of which jobs, from when on,
    and by job the part of the time and the factor on speed."""

    attempts: tuple[int, ...]
    guests: tuple[Guest, ...]
    begins: int
    by_job: dict[int, tuple[Has, Has]]


class Speeds:
    """What changes the speed of attempts beside their own progress.

    A job's speed is its level (what its placement allows, or what it had before it grew) over the
    slow-down by its neighbours, times the factor of its supply with CPUs and host memory, and times
    its part beside those that share its GPUs. Jobs that choose their batch size know none of them.
    """

    def __init__(self, attempts: Attempts) -> None:
        self._attempts, self._physics = attempts, attempts.physics
        self._level: dict[int, float] = {}
        self._grown: dict[int, float] = {}
        """By job that still computes at its old level: the level that it will have."""
        self._supply: dict[int, float] = {}
        self._hosts = HostResources(attempts)
        self._clocks: dict[int, float] = {}
        """By job whose GPUs run at other clocks: how many times as long its steps take."""
        self.terms: dict[int, Terms] = {}
        """By job that was given any (see `sim.tenancy`)."""
        self._company: dict[int, _OnDevices] = {}
        """By job with terms: with whom it was on its devices when it was last looked at."""
        self._settles: dict[int, list[tuple[int, Has]]] = {}
        """By job with terms, of each of its devices: when its rates have settled, and the factors
        on its speed before and after."""
        self._had: dict[int, float] = {}
        """By job with terms: the part of a device that it has at last."""
        self._divided: dict[_Device, _Divided] = {}
        self._ahead: dict[int, Terms] = {}
        """The terms that a plan gives, by job, from before it is carried out."""
        self._crowded: dict[int, tuple[tuple[int, ...], str]] = {}
        """By job with others on GPUs of that type on which their memory does not fit: these."""
        self.awaited: set[int] = set()
        """Jobs whose Started is filed and has not happened."""
        self.links = Sharing(attempts) if attempts.physics.links is not None else None
        """What sharing links between nodes leaves of speeds."""
        self.mixed = self.links is not None or attempts.physics.mixed
        """Whether jobs that share no GPU may change each other's speeds."""

    # ------------------------------------------------------------------ rescaling

    def hand_over(self, action: Resize) -> float | None:
        """End a running attempt as the rescale protocol does; the level at which it computed. None
        where the job has to be stopped and started again, for which nothing is done here."""
        attempts, protocol, job = self._attempts, self._physics.protocol, action.job
        computes = attempts.alive[job] % SUSPENSION == action.attempt - 1
        computes &= attempts.began[job] <= attempts.now and job not in self.awaited
        if protocol.pause is None or not computes or attempts.declared.on_preempt[job] == _KILL:
            return None
        before = self._level[job]
        attempts.halt(job)
        near = self.leaving(job)
        attempts.alive[job] = 0
        attempts.forget(job)
        attempts.instant.append(Released(job, action.attempt - 1, attempts.done(job)))
        self.refresh(near, attempts.instant)
        return before

    def started(self, job: int, placement: Placement, before: float) -> None:
        """An attempt holds `placement` from now on. `before`: the level at which one computed that
        handed over to it, else 0."""
        attempts, ready = self._attempts, self._physics.protocol.ready
        self._grown.pop(job, None)
        self._forget_terms(job)
        self.awaited.discard(job)
        if attempts.began[job] > attempts.now:
            self.awaited.add(job)
        level = attempts.rate[job]
        if ready and 0 < before < level and job not in attempts.paced:
            self._grown[job] = level
            level = before
        self._level[job] = level
        self._hosts.start(job)
        self._clocks.pop(job, None)
        self._supply[job] = self._hosts.supply(job, placement)
        if self.links is not None:
            self.links.moved.add(job)
        self.refresh([job, *self.neighbours(job)], attempts.instant)
        if job in self._grown:
            until = attempts.began[job] + ready
            heappush(attempts.heap, (until, PACE, job, -attempts.alive[job] % SUSPENSION))

    def adopt(
        self,
        held: Mapping[int, Placement],
        knobs: Mapping[int, Mapping[str, float | bool | str]],
    ) -> None:
        """Attempts hold these since before, so that rate controllers have settled. The speed that
        each has now tells the one alone."""
        for job, placement in held.items():
            self._level[job] = 1.0
            self._hosts.give(job, knobs.get(job, {}))
            self._supply[job] = self._hosts.supply(job, placement)
            if self._physics.clocked:
                self._set_clocks(job, placement, knobs.get(job, {}))
            if "request" in knobs.get(job, {}):
                self.terms[job] = Terms.of(knobs[job])
        for job in held.keys() & self.terms.keys():
            self._by_terms(job)
            self._settles[job] = [(0, has) for _, has in self._settles[job]]
        if self.links is not None:
            self.links.adopt(held, knobs)
        if self._physics.streaming:  # how much each moves is not told by how fast it is
            rates = [
                (job, self._physics.rate(self._attempts.declared, job, held[job])) for job in held
            ]
            self._level |= dict(rates)
            for job, level in rates:
                self._hosts.note(job, self._slowed(job, level))
            return
        for job in held:
            self._level[job] = self._attempts.rate[job] / self._slowed(job, 1.0)

    def grow_up(self, job: int, token: int, events: list[AnyEvent]) -> None:
        """What was filed when an attempt began: its new workers are ready. Or its company's
        rates have settled."""
        if token == _SETTLED:
            self.refresh([job], events)
        if token < _SETTLED and self.links is not None:
            self.links.reached(job, token)
        if token == -self._attempts.alive[job] % SUSPENSION:
            level = self._grown.pop(job, None)
            if level is not None and self._attempts.alive[job]:
                self._level[job] = level
                self.refresh([job], events)

    # ------------------------------------------------------------------ links

    def leaving(self, job: int) -> list[int]:
        """The job computes no more on its GPUs; its neighbours, whose speeds that may change."""
        if self.links is not None:
            self.links.moved.add(job)
        return self.neighbours(job)

    def settle(self, events: list[AnyEvent]) -> None:
        """After all that happened at one instant: the speeds of those that share links."""
        if self.links is not None and (changed := self.links.settle()):
            self.refresh(changed, events)

    # ------------------------------------------------------------------ supply

    def tune(self, action: Tune) -> None:
        """What a running attempt is given of CPUs and host memory, per GPU."""
        attempts, job = self._attempts, action.job
        placement = attempts.where.get(job)
        if placement is not None and attempts.alive[job] % SUSPENSION == action.attempt:
            self._hosts.give(job, action.knobs)
            self._supply[job] = self._hosts.supply(job, placement)
            if self._physics.clocked:
                self._set_clocks(job, placement, action.knobs)
            if "request" in action.knobs:
                self._set_terms(job, action)
            if self.links is not None:
                self.links.tune(job, action.knobs)
            near = self.neighbours(job) if self._hosts.shared else ()
            self.refresh([job, *near], attempts.instant)

    def _set_clocks(self, job: int, placement: Placement, knobs: Mapping[str, Any]) -> None:
        if CORE_MHZ in knobs or MEMORY_MHZ in knobs:
            slowing = self._physics.slowing(self._attempts.declared, job, placement, knobs)
            self._clocks[job] = slowing

    def _set_terms(self, job: int, action: Tune) -> None:
        """Put the job on the terms that it is given, or on none."""
        near = self.neighbours(job)
        if action.knobs["request"] == WITHDRAWN:
            self._forget_terms(job)
        elif Terms.of(action.knobs) == self.terms.get(job):
            return  # it was looked ahead
        else:
            self.terms[job] = Terms.of(action.knobs)
            near = self.neighbours(job)
        self.refresh(near, self._attempts.instant)

    # ------------------------------------------------------------------ neighbours

    def neighbours(self, job: int) -> list[int]:
        """The other jobs that compute, or will, and whose speed may depend on its being there:
        those on its nodes where models disturb each other or take what others need of the host,
        else those that share GPUs with it. A search computes nothing itself."""
        where = self._attempts.where.get(job, ())
        shared = bool(where) and (where[0].share > 0 or job in self.terms)
        by_node = self.mixed and (self._physics.disturbing or self._hosts.shared)
        if not (shared or by_node):
            return []
        on_node = self._attempts.on_node
        if len(where) == 1 and len(on_node[where[0].node]) == 1:
            return []
        near = {other for slot in where for other in on_node[slot.node]} - {job}
        if not by_node:
            held, mine = self._attempts.where, _masks(where)
            near = {
                other
                for other in near
                if any(mine.get(slot.node, 0) & slot.devices for slot in held[other])
            }
        began, kind = self._attempts.began, self._attempts.declared.kind
        return sorted(other for other in near if began[other] < NEVER and kind[other] != _TUNE)

    def _slowdown(self, job: int) -> float:
        """The factor by which those on its nodes make the job's steps longer."""
        declared = self._attempts.declared
        mine = self._physics.profiles.of(declared.models[declared.model[job]]).disturbed
        factor = 1.0
        for other in self.neighbours(job) if mine else ():
            factor *= mine.get(declared.models[declared.model[other]], 1.0)
        return factor

    def _part(self, job: int) -> float:
        """What sharing its GPUs leaves of the job's speed: of a gang, what the most crowded of them
        leaves. Where that is not known, the thousandths that it takes."""
        mine, declared = self._attempts.where[job], self._attempts.declared
        nodes, held, masks = self._physics.nodes, self._attempts.where, _masks(mine)
        crowds = dict[tuple[int, int], list[int]]()
        for other in self.neighbours(job):
            for slot in held[other]:
                for device in members(masks.get(slot.node, 0) & slot.devices):
                    crowds.setdefault((slot.node, device), []).append(other)
        kind = nodes.type_specs[nodes.gpu_type[mine[0].node]].name
        gpus, parts = sum(slot.devices.bit_count() for slot in mine), list[float]()
        for crowd in set(map(tuple, crowds.values())):
            models = [declared.models[declared.model[each]] for each in (job, *crowd)]
            part = self._physics.interference.parts(models, kind, gpus)[0]
            if not part:
                self._crowded[job] = crowd, kind
            parts.append(mine[0].share / WHOLE if math.isnan(part) else part)
        return max(min(parts, default=1.0), tenancy.LEAST)

    def carried_out(self, events: list[AnyEvent]) -> None:
        """After a plan was carried out: the speeds of those that share links. Raises BadInput where
        jobs still share GPUs on which their memory does not fit. While a plan is carried out, some
        are not gone yet."""
        if self.links is not None:
            self.settle(events)
        if self._crowded:
            self._refuse_crowded()

    def _refuse_crowded(self) -> None:
        crowded, self._crowded = self._crowded, {}
        for job in crowded:
            if self._attempts.alive[job]:
                self._part(job)
        for job, (crowd, kind) in self._crowded.items():
            names = ", ".join(map(str, sorted((job, *crowd))))
            raise BadInput(
                f"jobs {names} need more than the memory of the {kind} that they share",
                where="memory of profiles",
                mend="a recipe may not put them together",
            )

    # ------------------------------------------------------------------ terms

    def _forget_terms(self, job: int) -> None:
        """It has none but those that the plan gives which is carried out."""
        if self.terms.pop(job, None) is not None:
            for known in (self._company, self._settles, self._had):
                known.pop(job, None)
        if job in self._ahead:
            self.terms[job] = self._ahead[job]

    def look_ahead(self, actions: Iterable[AnyAction]) -> None:
        """Before a plan is carried out: its terms, so that nobody is looked at without them, or
        with those from before it."""
        ahead = self._ahead = {}
        for action in actions:
            if type(action) is Tune and action.knobs.get("request", WITHDRAWN) != WITHDRAWN:
                ahead[action.job] = Terms.of(action.knobs)

    def _by_terms(self, job: int) -> float:
        """The factor on the speed of a job with terms: what the device leaves it on which it has
        least. It changes once more for each when its rate controllers have settled."""
        attempts, now = self._attempts, self._attempts.now
        company = self._on_devices(job)
        if company != self._company.get(job):
            self._company[job] = company
            divided = [self._division(device, guests) for device, guests in company]
            self._had[job] = min(each.by_job[job][0].then for each in divided)
            factors = [(each.begins, each.by_job[job][1]) for each in divided]
            self._settles[job] = [
                (begins + math.ceil(factor.lasts * SECOND), factor) for begins, factor in factors
            ]
            for at in {at for at, factor in self._settles[job] if factor.now != factor.then}:
                if at > now:
                    heappush(attempts.heap, (at, PACE, job, _SETTLED))
        return min(has.now if now < at else has.then for at, has in self._settles[job])

    def _on_devices(self, job: int) -> _OnDevices:
        """The jobs on the devices of the job. A search is not: its trials compute there."""
        held, kind = self._attempts.where, self._attempts.declared.kind
        near = [each for each in self.neighbours(job) if kind[each] != _TUNE]
        near = sorted([job, *near])
        divided: dict[tuple[Guest, ...], _Device] = {}
        guests = [(self._guest(each), _masks(held[each])) for each in near]
        for node, devices in _masks(held[job]).items():
            for device in members(devices):
                place = node, device
                near_by = tuple(
                    _at_work(each, mask, place)
                    for each, mask in guests
                    if mask.get(node, 0) >> device & 1
                )
                divided[near_by] = min(divided.get(near_by, place), place)
        return tuple((device, company) for company, device in divided.items())

    def _guest(self, job: int) -> Guest:
        """The job as one on a device: not the one on which its full worker is."""
        declared, placement = self._attempts.declared, self._attempts.where[job]
        profile = self._physics.profiles.of(declared.models[declared.model[job]])
        shape = declared.shapes[declared.shape[job]]
        terms = self._ahead.get(job, self.terms.get(job))
        guest = tenancy.guest_of(job, profile, shape, placement, terms)
        if terms is None or terms.backward >= 1.0 or profile.passes is None:
            return guest
        gpus = sum(slot.devices.bit_count() for slot in placement)
        return guest._replace(
            step=part_of_step(profile.passes, terms.backward),
            worth=worth(profile.passes, terms.backward, gpus),
        )

    def _division(self, device: _Device, guests: tuple[Guest, ...]) -> _Divided:
        """How the device's time is divided. Its rate controllers begin when all its jobs compute:
        at one time for all, so that no more is given out than there is."""
        known, now, nodes = self._divided.get(device), self._attempts.now, self._physics.nodes
        alive, began = self._attempts.alive, self._attempts.began
        attempts = tuple([alive[each.job] % SUSPENSION for each in guests])
        if known is None or known[:2] != (attempts, guests):
            size = nodes.type_specs[nodes.gpu_type[device[0]]].memory
            with_parts = [each._replace(had=self._had.get(each.job, 0.0)) for each in guests]
            divided, moved = tenancy.parts(with_parts), tenancy.on_host(guests, size)
            factors = {
                each.job: tenancy.speed(each, divided[each.job], moved.get(each.job, 0.0))
                for each in guests
            }
            by_job = {job: (divided[job], factors[job]) for job in divided}
            coming = [began[each.job] for each in guests if now < began[each.job] < NEVER]
            known = _Divided(attempts, guests, max(coming, default=now), by_job)
            self._divided[device] = known
        return known

    # ------------------------------------------------------------------ what follows

    def refresh(self, jobs: Iterable[int], events: list[AnyEvent]) -> None:
        """Bring the speed of those that hold GPUs up to date."""
        attempts, streaming = self._attempts, self._physics.streaming
        for job in self._also_moved(jobs) if self.mixed and self._hosts.shared else jobs:
            if attempts.alive[job] and job not in attempts.paced:
                rate = self._slowed(job, self._level[job])
                if streaming:
                    rate *= self._hosts.remaining(job)
                if rate != attempts.rate[job]:
                    self._set_rate(job, rate, events)

    def _also_moved(self, jobs: Iterable[int]) -> list[int]:
        """These jobs, once what they have of the host is up to date, and those near one that takes
        more or less of it than before."""
        attempts, hosts, crowded = self._attempts, self._hosts, self._hosts.crowded
        near = dict.fromkeys(jobs)
        for job in list(near):
            if attempts.alive[job] and job not in attempts.paced:
                if crowded:
                    self._supply[job] = hosts.supply(job, attempts.where[job])
                if hosts.note(job, self._slowed(job, self._level[job])):
                    near |= dict.fromkeys(self.neighbours(job))
        return list(near)

    def _slowed(self, job: int, level: float) -> float:
        """What is left of the speed that the job's placement allows."""
        rate = level / self._slowdown(job) * self._supply[job] / self._clocks.get(job, 1.0)
        if self.links is not None:
            rate *= self.links.part(job)
        where = self._attempts.where[job]
        if job in self.terms:
            return rate * self._by_terms(job)
        return rate * self._part(job) if where and where[0].share else rate

    def _set_rate(self, job: int, rate: float, events: list[AnyEvent]) -> None:
        attempts, heap = self._attempts, self._attempts.heap
        attempt, began = attempts.alive[job] % SUSPENSION, attempts.began[job]
        awaited = job in self.awaited
        if not awaited and began < NEVER:
            attempts.halt(job)
            attempts.began[job] = began = max(began, attempts.now)
        attempts.rate[job] = rate
        if began == NEVER:
            return  # suspended: it will go on at this speed
        attempts.alive[job] += SUSPENSION  # what was filed for it is void
        token = attempts.alive[job]
        if awaited:
            heappush(heap, (began, _START, job, token))
        elif not self._corrected(job, attempt, rate):
            speed = rate if self.links is None else self.links.tell(job, rate)
            if speed is not None:
                events.append(Progressed(job, attempt, attempts.done(job), speed))
        if attempts.total[job] < NEVER:
            takes = math.ceil((attempts.total[job] - attempts.did[job]) / rate)
            heappush(heap, (began + takes + attempts.leaving, FINISH, job, token))
            if attempts.evaluates:
                attempts.file_evaluation(job)
        if attempts.limit is not None and attempts.limit[job] < NEVER:
            heappush(heap, (attempts.limit_at(job, began), FAIL, job, token))

    def _corrected(self, job: int, attempt: int, rate: float) -> bool:
        """Whether a Started of this instant could be given the right speed."""
        instant = self._attempts.instant
        for at, event in enumerate(instant):
            if type(event) is Started and event.job == job and event.attempt == attempt:
                instant[at] = Started(job, attempt, rate)
                return True
        return False


def _at_work(guest: Guest, masks: dict[int, int], device: _Device) -> Guest:
    """One on `device`, of those that `masks` say by node: if its full worker is there."""
    if guest.step == 1.0 or guest.terms is None:
        return guest
    every = [(node, each) for node, mask in sorted(masks.items()) for each in members(mask)]
    full = every[guest.terms.full % len(every)] == device
    return guest._replace(step=1.0) if full else guest


def _masks(placement: Placement) -> dict[int, int]:
    """By node, the GPUs that are held there."""
    masks: dict[int, int] = {}
    for slot in placement:
        masks[slot.node] = masks.get(slot.node, 0) | slot.devices
    return masks
