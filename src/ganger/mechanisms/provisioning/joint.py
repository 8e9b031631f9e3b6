"""Machines rented for several jobs together: which jobs share which, decided at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import NamedTuple, Protocol

import numpy as np

from ganger.core.books.bits import pick_devices
from ganger.core.plan import Placement, Slot
from ganger.core.spec import OnPreempt
from ganger.core.state.jobs import OVER, Phase
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_length, believed_speed
from ganger.mechanisms.provisioning.rentals import Demand, Free, Rental, rentals, widths
from ganger.mechanisms.provisioning.renting import (
    ENDLESS,
    Lease,
    Market,
    RentingPolicy,
    RentMemory,
    Whole,
    range_of,
    seconds_left,
)
from ganger.mechanisms.provisioning.together import Chosen, Cost, Guest, Machine, Tenant

_RUNNING = int(Phase.RUNNING)
OPEN = 16
"""So many machines of a kind that are on and have room are looked at, the fullest first."""


class Planner(Protocol):
    """Says which of some jobs share which machines. `window`: of how many jobs at once; `every`:
    microseconds from one look to the next (0: at every event)."""

    @property
    def window(self) -> int:
        """See the class."""

    @property
    def every(self) -> int:
        """See the class."""

    def cost(self, view: View) -> Cost:
        """What machines cost with jobs on them, from now on."""

    def choose(
        self, view: View, cost: Cost, tenants: Sequence[Tenant], machines: Sequence[Machine]
    ) -> Chosen:
        """Where each job goes."""


@dataclass(frozen=True)
class Ranked:
    """For jobs that share no machine: the kinds by what all of the job costs there, those first
    that are in time."""

    planner: Planner
    every: int = 0

    def ranked(
        self, view: View, job: int, free: Sequence[Free], demand: Demand
    ) -> Iterator[Rental]:
        """See `Tenancy`."""
        cost, due = self.planner.cost(view), due_of(view, job)
        profile = demand.profile
        tenant = Tenant(job, view.jobs.models[int(view.at.model[job])], profile, due, {})

        def key(each: Rental) -> tuple[bool, float, float]:
            guest = Guest(tenant, each.gpus, each.seconds)
            machine = Machine(-1, each.instance, each.instance.gpus, on=False)
            return each.seconds > due, each.machines * cost(machine, [guest]), each.seconds

        yield from sorted((each for each in rentals(free, demand) if each.seconds < inf), key=key)

    def better(
        self, view: View, jobs: Sequence[int], market: Market
    ) -> Iterable[tuple[int, Rental]]:
        """None: they stay where they began."""
        return ()


@dataclass(frozen=True)
class JointRenting(RentingPolicy):
    """Jobs of whole GPUs that fit on one machine share machines as `planner` says: those that wait,
    by pressure, and those that run, that can save, on machines that have room. All others have
    machines of their own, as under `RentingPolicy`."""

    planner: Planner

    def _rent(self, view: View, memory: RentMemory, market: Market) -> bool:
        """Choose for `window` jobs at a time, until nothing more is placed; then start."""
        waiting, planner = self._waiting(view), self.planner
        known = view.cached(_Known)
        fresh = [job for job in known.sharing(view, market, waiting) if job not in memory.leases]
        if not fresh and (planner.every or not _ended(view)):
            memory.due = 0
            return self._start(view, memory, market, waiting)
        if planner.every and self._later(view, memory):
            return self._start(view, memory, market, _without(waiting, fresh)) or True
        fresh = [job for job in fresh if known.kind(view, market, job).ways]
        fresh.sort(key=partial(known.pressure, view, market), reverse=True)
        books = _Books(view, memory, market, known)
        cost = planner.cost(view)
        for first in range(0, max(len(fresh), 1), planner.window):
            some = [books.tenant(job) for job in fresh[first : first + planner.window]]
            movers = books.movers(planner.window - len(some)) if not first else []
            if not some and not movers:
                break
            machines = books.machines(some + movers)
            chosen = planner.choose(view, cost, some + movers, machines)
            books.draw(some + movers, machines, chosen)
            if not any(each.job in chosen for each in some):
                break
        blocked = {job for job in known.sharing(view, market, waiting) if job not in memory.leases}
        return self._start(view, memory, market, _without(waiting, blocked)) or bool(blocked)

    def _later(self, view: View, memory: RentMemory) -> bool:
        """Whether those who need machines are looked at later: at the next multiple of `every`."""
        if not memory.due:
            memory.due = -(-view.now // self.planner.every) * self.planner.every
        if view.now < memory.due:
            return True
        memory.due = 0
        return False

    def _wake(self, view: View, memory: RentMemory) -> int:
        return memory.due or NEVER


def _ended(view: View) -> bool:
    """Whether some job is over since the last decision, so that others may have its room."""
    return any(view.at.phase[job] in OVER for job in view.changed)


def _without(jobs: Sequence[int], some: Iterable[int]) -> list[int]:
    less = set(some)
    return [job for job in jobs if job not in less]


class _Kind(NamedTuple):
    """What jobs of one shape and model have in common: whether they may share a machine, with whole
    GPUs that are all on one machine of some kind; and by kind of machine (its first row) the
    numbers of GPUs on which they can run there, with the speed on them."""

    shares: bool
    ways: dict[int, tuple[tuple[int, float], ...]]

    @property
    def fastest(self) -> float:
        """The highest speed; 0 where they run nowhere."""
        return max((speed for ways in self.ways.values() for _, speed in ways), default=0.0)


class _Known:
    """Kinds of jobs. Kept where speeds never change. A cache."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[int, int, int], tuple[_Kind, float]] = {}
        self._shares: dict[int, bool] = {}
        """By number of a shape."""

    def sharing(self, view: View, market: Market, jobs: Iterable[int]) -> list[int]:
        """Those of some jobs that may share a machine."""
        shape, shares = view.at.shape, self._shares
        listed = list[int]()
        for job in jobs:
            own = shares.get(shape[job])
            if own is None:
                own = shares[shape[job]] = self.kind(view, market, job).shares
            if own:
                listed.append(job)
        return listed

    def kind(self, view: View, market: Market, job: int) -> _Kind:
        """That of a job."""
        return self._of(view, market, job)[0]

    def _of(self, view: View, market: Market, job: int) -> tuple[_Kind, float]:
        at = view.at
        key = int(at.shape[job]), int(at.model[job]), int(at.on_preempt[job])
        known = self._kinds.get(key) if view.oracle.steady else None
        if known is None:
            kind = _kind(view, market, job)
            known = self._kinds[key] = kind, kind.fastest
        return known

    def pressure(self, view: View, market: Market, job: int) -> float:
        """How late a job is at least, as `together.pressure`."""
        fastest = self._of(view, market, job)[1]
        return seconds_left(view, job) / fastest - due_of(view, job) if fastest else inf


def _kind(view: View, market: Market, job: int) -> _Kind:
    shape, ids = view.draft.shape(job), np.array([job])
    least, limit = range_of(shape)
    whole = view.cached(Whole, view)
    if not shape.is_plain or least <= 0 or all(kind.gpus < least for kind in whole.instances):
        return _Kind(shares=False, ways={})
    ways = dict[int, tuple[tuple[int, float], ...]]()
    known = dict[tuple[str, int], tuple[tuple[int, float], ...]]()
    for kind in market.kinds(job):
        key = kind.gpu_type, kind.gpus
        if key not in known:
            sizes = widths(least, limit, kind.gpus, 1)
            grid = np.array(sizes), np.array([1])
            speeds = believed_speed(view, ids, kind.gpu_type, *grid).tolist() if sizes else ()
            pairs = zip(sizes, speeds, strict=True)
            known[key] = tuple((size, speed) for size, speed in pairs if speed > 0)
        if known[key]:
            ways[kind.first] = known[key]
    return _Kind(shares=True, ways=ways)


def due_of(view: View, job: int) -> float:
    """In how many seconds a job is due: at its deadline; one without any as if it had begun when it
    was submitted, on what it asks for."""
    deadline = int(view.at.deadline[job])
    if deadline >= NEVER:
        length = believed_length(view, job)
        if length >= NEVER:
            return ENDLESS
        deadline = int(view.at.submitted[job]) + int(length)
    return (deadline - view.now) / SECOND


class _Books:
    """Who is on which machine while a choice is drawn."""

    def __init__(self, view: View, memory: RentMemory, market: Market, known: _Known) -> None:
        self.view, self.memory, self.market, self._known = view, memory, market, known
        self.used = dict[int, int]()
        self.on_row = dict[int, list[int]]()
        for job, lease in memory.leases.items():
            self._note(job, lease)

    def _note(self, job: int, lease: Lease) -> None:
        for slot in lease.placement:
            self.used[slot.node] = self.used.get(slot.node, 0) | slot.devices
        for row in lease.nodes:
            self.on_row.setdefault(row, []).append(job)

    def _forget(self, job: int) -> None:
        lease = self.memory.leases.pop(job)
        for slot in lease.placement:
            self.used[slot.node] &= ~slot.devices
        for row in lease.nodes:
            self.on_row[row].remove(job)

    def tenant(self, job: int, home: int = -1, has: int = 0) -> Tenant:
        """A job as one to be put somewhere."""
        view, at = self.view, self.view.at
        seconds = seconds_left(view, job)
        ways = {
            first: tuple((gpus, seconds / speed) for gpus, speed in sizes)
            for first, sizes in self._known.kind(view, self.market, job).ways.items()
        }
        move = (max(at.checkpoint[job], 0) + max(at.restore[job], 0)) / SECOND
        model = view.jobs.models[int(at.model[job])]
        profile = view.oracle.profile(model)
        return Tenant(job, model, profile, due_of(view, job), ways, home, has, move)

    def movers(self, limit: int) -> list[Tenant]:
        """Jobs that run, that can save, and whose machine has room; the most pressing first."""
        if limit <= 0:
            return []
        view, known, market = self.view, self._known, self.market
        listed, going = list[tuple[float, int, int]](), view.ledger.going
        for row, jobs in self.on_row.items():
            if not self._room(row) or row in going:
                continue
            for job in jobs:
                if (
                    view.at.phase[job] == _RUNNING
                    and view.at.on_preempt[job] == OnPreempt.CHECKPOINT
                    and job not in self.memory.moves
                    and view.draft.shape(job).is_plain
                    and len(view.draft.holds(job) or ()) == 1
                ):
                    listed.append((-known.pressure(view, market, job), job, row))
        return [self.tenant(job, row, self._gpus(job)) for _, job, row in sorted(listed)[:limit]]

    def _gpus(self, job: int) -> int:
        return sum(slot.devices.bit_count() for slot in self.memory.leases[job].placement)

    def _room(self, row: int) -> int:
        gpus = self.market.whole.kind_of[row].gpus
        return gpus - self.used.get(row, 0).bit_count()

    def machines(self, tenants: Sequence[Tenant]) -> list[Machine]:
        """Machines that are on and have room, once those of `tenants` that run have left; and of
        each kind as many that nobody has as there are jobs."""
        ledger = self.view.ledger
        moving = {each.job: each.has for each in tenants if each.home >= 0}
        kinds = {first for each in tenants for first in each.ways}
        homes = {each.home for each in tenants}
        listed = dict[int, list[tuple[bool, int, int]]]()
        for row, jobs in self.on_row.items():
            kind = self.market.whole.kind_of[row]
            room = self._room(row)
            if row in homes:
                room += sum(moving.get(job, 0) for job in jobs)
            if not jobs or not room or kind.first not in kinds or self._lost(row):
                continue
            if all(len(self.memory.leases[job].nodes) == 1 for job in jobs):
                listed.setdefault(kind.first, []).append((row not in homes, room, row))
        every = list[Machine]()
        for first, rows in self.market.by_kind.items():
            if first not in kinds:
                continue
            kind = self.market.whole.kind_of[first]
            open_ = sorted(listed.get(first, []))
            for _, room, row in open_[: OPEN + sum(not away for away, _, _ in open_)]:
                stay = [self._stays(job) for job in self.on_row[row] if job not in moving]
                every.append(Machine(row, kind, room, True, stay, bool(ledger.up[row])))
            every += [
                Machine(row, kind, kind.gpus, on=False, up=bool(ledger.up[row]))
                for row in rows[: len(tenants)]
            ]
        return every

    def _lost(self, row: int) -> bool:
        """Whether a machine is going away, or is neither up nor coming, or not to be had."""
        ledger = self.view.ledger
        if row in ledger.going or not (ledger.up[row] or row in self.memory.coming):
            return True
        return not self.market.whole.to_be_had(row, self.view.now)

    def _stays(self, job: int) -> Guest:
        """Who is on a machine and stays: what is left of it, where it is."""
        row, gpus = self.memory.leases[job].nodes[0], self._gpus(job)
        tenant = self.tenant(job, row, gpus)
        took = dict(tenant.ways.get(self.market.whole.kind_of[row].first, ())).get(gpus, 0.0)
        return Guest(tenant, gpus, took)

    def draw(self, tenants: Sequence[Tenant], machines: Sequence[Machine], chosen: Chosen) -> None:
        """Make a choice true: jobs that have to leave first, then places for all."""
        view, leases = self.view, self.memory.leases
        placed = {job: (machines[place], gpus) for job, (place, gpus) in chosen.items()}
        stays = {
            each.job
            for each in tenants
            if each.job in placed
            and (placed[each.job][0].row, placed[each.job][1]) == (each.home, each.has)
        }
        for each in tenants:
            if each.home >= 0 and each.job not in stays:
                self._forget(each.job)
                view.draft.stop(each.job)
        for each in tenants:
            if each.job in stays or each.job not in placed:
                continue
            lease = self._lease(*placed[each.job])
            if lease is None:
                continue
            leases[each.job] = lease
            self._note(each.job, lease)
            if each.home >= 0:
                view.draft.start(each.job, lease.placement)

    def _lease(self, machine: Machine, gpus: int) -> Lease | None:
        row, kind = machine.row, machine.kind
        free = (1 << kind.gpus) - 1 & ~self.used.get(row, 0)
        if free.bit_count() < gpus:
            return None
        island = self.view.ledger.island[row]
        place: Placement = (Slot(row, pick_devices(free, gpus, island), gpus),)
        if row in self.market.by_kind[kind.first]:
            self.market.by_kind[kind.first].remove(row)
        return Lease(place, (row,), kind.first)
