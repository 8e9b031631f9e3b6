"""Machines rented for several jobs together: which jobs share which, decided at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ganger.core.books.bits import pick_devices
from ganger.core.plan import Placement, Slot
from ganger.core.spec import OnPreempt, Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_duration, believed_speed
from ganger.mechanisms.provisioning.rentals import Demand, Free, Rental, rentals, widths
from ganger.mechanisms.provisioning.renting import (
    ENDLESS,
    Lease,
    Market,
    RentingPolicy,
    RentMemory,
    Whole,
    range_of,
)
from ganger.mechanisms.provisioning.together import Chosen, Cost, Guest, Machine, Tenant, pressure

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
        tenant = Tenant(job, "", profile, due, {})

        def key(each: Rental) -> tuple[bool, float, float]:
            guest = Guest(tenant, each.gpus, each.seconds)
            machine = Machine(-1, each.instance, each.instance.gpus, on=False)
            return each.seconds > due, each.machines * cost(machine, [guest]), each.seconds

        yield from sorted(
            (each for each in rentals(free, demand) if each.seconds < ENDLESS), key=key
        )

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
        fresh = [job for job in waiting if job not in memory.leases and self._shares(view, job)]
        if planner.every and self._later(view, memory, fresh):
            return self._start(view, memory, market, _without(waiting, fresh)) or True
        books = _Books(view, memory, market)
        tenants = sorted((books.tenant(job) for job in fresh), key=lambda each: -pressure(each))
        cost = planner.cost(view)
        looks = len(tenants) if planner.every else max(len(tenants), 1)  # at an end, for who runs
        for first in range(0, looks, planner.window):
            some = tenants[first : first + planner.window]
            movers = books.movers(planner.window - len(some)) if not first else []
            machines = books.machines(some + movers)
            chosen = planner.choose(view, cost, some + movers, machines)
            books.draw(some + movers, machines, chosen)
            if not any(each.job in chosen for each in some):
                break
        blocked = any(job not in memory.leases for job in fresh)
        rest = _without(waiting, [job for job in fresh if job not in memory.leases])
        return self._start(view, memory, market, rest) or blocked

    def _later(self, view: View, memory: RentMemory, fresh: Sequence[int]) -> bool:
        """Whether those who need machines are looked at later: at the next multiple of `every`."""
        if fresh and not memory.due:
            memory.due = -(-view.now // self.planner.every) * self.planner.every
        if fresh and view.now < memory.due:
            return True
        memory.due = 0
        return False

    def _wake(self, view: View, memory: RentMemory) -> int:
        return memory.due or NEVER

    def _shares(self, view: View, job: int) -> bool:
        """Whether it may share a machine: whole GPUs, all of them on one machine of some kind."""
        whole = view.cached(Whole, view)
        shape = view.draft.shape(job)
        return shape.is_plain and _fits(whole, shape)


def _without(jobs: Sequence[int], some: Sequence[int]) -> list[int]:
    less = set(some)
    return [job for job in jobs if job not in less]


def _fits(whole: Whole, shape: Shape) -> bool:
    least = range_of(shape)[0]
    return least > 0 and any(kind.gpus >= least for kind in whole.instances)


def due_of(view: View, job: int) -> float:
    """In how many seconds a job is due: at its deadline; one without any as if it had begun when it
    was submitted, on what it asks for."""
    deadline = int(view.at.deadline[job])
    if deadline >= NEVER:
        length = float(believed_duration(view, np.array([job]))[0])
        if length >= NEVER:
            return ENDLESS
        deadline = int(view.at.submitted[job]) + int(length)
    return (deadline - view.now) / SECOND


class _Books:
    """Who is on which machine while a choice is drawn."""

    def __init__(self, view: View, memory: RentMemory, market: Market) -> None:
        self.view, self.memory, self.market = view, memory, market
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
        view, ids = self.view, np.array([job])
        jobs = view.jobs
        model = jobs.models[int(view.at.model[job])]
        rest = float(believed_duration(view, ids)[0]) - view.work(job)
        seconds = max(rest, 1.0) / SECOND if rest < NEVER else ENDLESS
        least, limit = range_of(view.draft.shape(job))
        ways = dict[int, tuple[tuple[int, float], ...]]()
        known = dict[tuple[str, int], tuple[tuple[int, float], ...]]()
        for kind in self.market.kinds(job):
            key = kind.gpu_type, kind.gpus
            if key not in known:
                sizes = widths(least, limit, kind.gpus, 1)
                speeds = (
                    believed_speed(view, ids, kind.gpu_type, np.array(sizes), np.array([1]))
                    if sizes
                    else ()
                )
                known[key] = tuple(
                    (size, seconds / float(speed))
                    for size, speed in zip(sizes, speeds, strict=True)
                    if speed > 0
                )
            if known[key]:
                ways[kind.first] = known[key]
        at = view.at
        move = (max(at.checkpoint[job], 0) + max(at.restore[job], 0)) / SECOND
        profile = view.oracle.profile(model)
        return Tenant(job, model, profile, due_of(view, job), ways, home, has, move)

    def movers(self, limit: int) -> list[Tenant]:
        """Jobs that run, that can save, and whose machine has room or that will be late; the
        most pressing first."""
        view, listed = self.view, list[Tenant]()
        going = view.ledger.going
        for row, jobs in self.on_row.items() if limit > 0 else ():
            if not self._room(row) or row in going:
                continue
            for job in jobs:
                held = view.draft.holds(job)
                runs = view.at.phase[job] == _RUNNING and held is not None and len(held) == 1
                if (
                    runs
                    and view.at.on_preempt[job] == OnPreempt.CHECKPOINT
                    and job not in self.memory.moves
                    and view.draft.shape(job).is_plain
                ):
                    assert held is not None
                    listed.append(self.tenant(job, row, held[0].devices.bit_count()))
        listed.sort(key=lambda each: (-pressure(each), each.job))
        return listed[:limit] if limit > 0 else []

    def _room(self, row: int) -> int:
        gpus = self.market.whole.kind_of[row].gpus
        return gpus - self.used.get(row, 0).bit_count()

    def machines(self, tenants: Sequence[Tenant]) -> list[Machine]:
        """Machines that are on and have room, once those of `tenants` that run have left; and of
        each kind as many that nobody has as there are jobs."""
        view, ledger = self.view, self.view.ledger
        moving = {each.job: each.has for each in tenants if each.home >= 0}
        kinds = {first for each in tenants for first in each.ways}
        homes = {each.home for each in tenants}
        listed = dict[int, list[Machine]]()
        for row, jobs in sorted(self.on_row.items()):
            kind = self.market.whole.kind_of[row]
            room = self._room(row) + sum(moving.get(job, 0) for job in jobs)
            lost = row in ledger.going or not (ledger.up[row] or row in self.memory.coming)
            shared = all(len(self.memory.leases[job].nodes) == 1 for job in jobs)
            if not jobs or not room or lost or not shared or kind.first not in kinds:
                continue
            if not self.market.whole.to_be_had(row, view.now):
                continue
            machine = Machine(row, kind, room, on=True, up=bool(ledger.up[row]))
            machine.stay = [self._stays(job) for job in jobs if job not in moving]
            listed.setdefault(kind.first, []).append(machine)
        every = list[Machine]()
        for first, rows in self.market.by_kind.items():
            if first not in kinds:
                continue
            kind = self.market.whole.kind_of[first]
            open_ = sorted(listed.get(first, []), key=lambda each: (each.free, each.row))
            every += [each for each in open_ if each.row in homes]
            every += [each for each in open_ if each.row not in homes][:OPEN]
            every += [
                Machine(row, kind, kind.gpus, on=False, up=bool(ledger.up[row]))
                for row in rows[: len(tenants)]
            ]
        return every

    def _stays(self, job: int) -> Guest:
        """Who is on a machine and stays: what is left of it, where it is."""
        held = self.memory.leases[job].placement[0]
        kind = self.market.whole.kind_of[held.node]
        gpus = held.devices.bit_count()
        tenant = self.tenant(job, held.node, gpus)
        took = dict(tenant.ways.get(kind.first, ())).get(gpus, 0.0)
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
