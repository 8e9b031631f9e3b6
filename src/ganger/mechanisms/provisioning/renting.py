"""Machines rented for jobs, one job on each, and given back when it is done with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Protocol

import msgspec
import numpy as np

from ganger.core.books.empty import EmptyCluster
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, STARTED, WOKE
from ganger.core.plan import Placement, Plan, Provision, Reason
from ganger.core.spec import Locality, NodeSpec, OnPreempt, Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_length, believed_speed
from ganger.mechanisms.placement.place import on_nodes
from ganger.mechanisms.provisioning.instances import Catalogue, Instance
from ganger.mechanisms.provisioning.rentals import Demand, Free, Rental

_RUNNING = int(Phase.RUNNING)
ENDLESS = 1e12
"""Seconds that a job is taken to be left of which nobody knows how long it is."""


SETTLES = 5 * SECOND
"""After so long it is looked whether a job that moved has let go of its machines: nobody is asked
when it does."""
KEPT = 4096
"""So many answers on what fits where are kept."""


class Lease(msgspec.Struct, frozen=True):
    """The machines that are rented for a job: where it runs on them, all of them (with those of
    its servers), and the first row of their kind."""

    placement: Placement
    nodes: tuple[int, ...]
    kind: int


class RentMemory(msgspec.Struct):
    """By job what is rented for it, and where it moves to as soon as that is there; nodes that were
    switched on and not off again, and those of them that have not come up yet; by the first row of
    a kind of which a machine is going away, until when; when jobs are looked at next; whether no
    node is on that nobody rents."""

    leases: dict[int, Lease] = {}
    moves: dict[int, Lease] = {}
    on: set[int] = set()
    coming: set[int] = set()
    going: dict[int, int] = {}
    due: int = 0
    settled: bool = False

    def rented(self) -> set[int]:
        """The nodes of all leases."""
        leases = [*self.leases.values(), *self.moves.values()]
        return set(chain.from_iterable([lease.nodes for lease in leases]))

    def copy(self) -> RentMemory:
        """Another one that says the same."""
        parts = {**self.leases}, {**self.moves}, {*self.on}, {*self.coming}, {**self.going}
        return RentMemory(*parts, self.due, self.settled)


class Tenancy(Protocol):
    """Which machines a job should have. `every`: microseconds after which jobs that run are looked
    at again; 0: never."""

    @property
    def every(self) -> int:
        """See the class."""

    def ranked(
        self, view: View, job: int, free: Sequence[Free], demand: Demand
    ) -> Iterable[Rental]:
        """For a job that waits, the best of what can be rented first."""

    def better(
        self, view: View, jobs: Sequence[int], market: Market
    ) -> Iterable[tuple[int, Rental]]:
        """Of jobs that run, those that should move, and where to."""


class Whole(Catalogue):
    """All kinds of machines of a cluster, those that are there anyway as well."""

    def __init__(self, view: View) -> None:
        super().__init__(view.nodes, takes=_any)
        self.kind_of = {row: each for each in self.instances for row in each.rows}
        self.rentable = frozenset(view.nodes.rentable)
        self.sets = {each.first: frozenset(each.rows) for each in self.instances}
        self._fits: dict[object, bool] = {}

    def fits(self, view: View, kind: Instance, shape: Shape, sizes: tuple[int, ...] = ()) -> bool:
        """Whether the machines of a kind could hold `shape`, were they all empty."""
        key = kind.first, shape, sizes
        known = self._fits.get(key)
        if known is None:
            if len(self._fits) > KEPT:
                self._fits.clear()
            books = view.cached(EmptyCluster, view.nodes)
            cell = books.ledger.cell_of[kind.first]
            with books.ledger.hidden([row for row in cell.nodes if row not in kind.rows]):
                known = books.ledger.find(shape, sizes, cells=[cell]) is not None
            self._fits[key] = known
        return known

    def to_be_had(self, row: int, now: int) -> bool:
        """Whether a machine can be had, as far as its price and the number on offer say."""
        kind = self.kind_of[row]
        return row - kind.first < kind.to_be_had(now)


def _any(group: NodeSpec) -> bool:
    return True


class Market:
    """What can be rented at one instant, while leases are drawn."""

    def __init__(self, view: View, memory: RentMemory, whole: Whole) -> None:
        self.view, self.whole, self.memory = view, whole, memory
        self._free: dict[int, list[int]] | None = None

    @property
    def by_kind(self) -> dict[int, list[int]]:
        """Rows that nobody has and that can be had now, by the first row of their kind: those that
        are up first."""
        if self._free is None:
            taken = self.memory.rented() | self.view.ledger.leaving.keys()
            self._free = {each.first: self._rows(each, taken) for each in self.whole.instances}
        return self._free

    def _rows(self, kind: Instance, taken: set[int]) -> list[int]:
        """A kind of which some machine is going away is on its way out, as far as one can see. A
        node that was switched on and went down again is broken."""
        if kind.first in self.memory.going:
            return []
        every, up = kind.to_be_had(self.view.now), self.view.ledger.up
        rows = self.whole.sets[kind.first] if every == kind.count else set(kind.rows[:every])
        free = rows - taken
        if not kind.offer.rentable:
            return [row for row in sorted(free) if up[row]]
        on = free & self.memory.on
        return [row for row in sorted(on) if up[row]] + sorted(free - on | on & self.memory.coming)

    @property
    def open(self) -> bool:
        """Whether there is any machine that nobody has."""
        return any(self.by_kind.values())

    def free(self, job: int) -> list[Free]:
        """How many machines of each kind that may run the job nobody has."""
        return [
            (kind, len(self.by_kind[kind.first]))
            for kind in self.kinds(job)
            if self.by_kind[kind.first]
        ]

    def kinds(self, job: int) -> list[Instance]:
        """The kinds of machines that the job may run on. Of the spot market only jobs that
        checkpoint have machines, unless others cannot run them at all."""
        cells = {cell.index for cell in self.view.ledger.cells_for(self.view.draft.shape(job))}
        kinds = [kind for kind in self.whole.instances if self.cell_of(kind) in cells]
        lasting = [kind for kind in kinds if kind.offer.market != "spot"]
        saves = self.view.jobs.on_preempt[job] == OnPreempt.CHECKPOINT
        return kinds if saves or not lasting else lasting

    def cell_of(self, kind: Instance) -> int:
        """The number of the cell of a kind's nodes."""
        return self.view.ledger.cell_of[kind.first].index

    def lease(self, job: int, rental: Rental) -> Lease | None:
        """Machines for a rental, taken off the market; None where the job does not fit on them."""
        rows, view = self.by_kind[rental.instance.first], self.view
        shape = view.draft.shape(job)
        sizes = shape.sizes(rental.gpus) if rental.gpus else ()
        used = sum(n * role.needs.gpus for n, role in zip(sizes, shape.roles, strict=False))
        if sizes and used != rental.gpus:
            return None  # a worker has several GPUs, and this is no multiple of them
        if len(rows) < rental.machines or not self.whole.fits(view, rental.instance, shape, sizes):
            return None
        place = self._plain(rental, rows) if shape.is_plain else None
        if place is None or shape.locality < Locality.ANY:
            place = self._found(job, sizes, rental, rows)
        if place is None:
            return None
        nodes = {slot.node for slot in place}
        if rental.server is not None:
            theirs = [row for row in self.by_kind[rental.server.first] if row not in nodes]
            if len(theirs) < rental.servers:
                return None
            nodes.update(theirs[: rental.servers])
        return self._take(Lease(place, tuple(sorted(nodes)), rental.instance.first))

    def _plain(self, rental: Rental, rows: Sequence[int]) -> Placement | None:
        """Whole GPUs of the first machines, each full but the last."""
        each, rest = rental.instance.gpus, rental.gpus
        counts = list[tuple[int, int]]()
        for row in rows[: rental.machines]:
            counts.append((row, min(each, rest)))
            rest -= counts[-1][1]
        books = self.view.cached(EmptyCluster, self.view.nodes)
        return None if rest or not rental.gpus else on_nodes(books.ledger, tuple(sorted(counts)))

    def _found(
        self, job: int, sizes: tuple[int, ...], rental: Rental, rows: Sequence[int]
    ) -> Placement | None:
        """Where the shape fits on the first machines, else on any that are free."""
        shape = self.view.draft.shape(job)
        books = self.view.cached(EmptyCluster, self.view.nodes)
        cell = books.ledger.cell_of[rental.instance.first]
        for some in ({*rows[: rental.machines]}, {*rows}):
            with books.ledger.hidden([node for node in cell.nodes if node not in some]):
                place = books.ledger.find(shape, sizes, cells=[cell])
            if place is not None:
                return place
        return None

    def anywhere(self, job: int) -> Lease | None:
        """Machines of any kinds for a job that fits on no machines of one kind alone."""
        view = self.view
        books, shape = view.cached(EmptyCluster, view.nodes), view.draft.shape(job)
        free = {row for rows in self.by_kind.values() for row in rows}
        with books.ledger.hidden([row for row in range(view.nodes.n) if row not in free]):
            place = books.ledger.find(shape, ())
        if place is None:
            return None
        nodes = tuple(sorted({slot.node for slot in place}))
        return self._take(Lease(place, nodes, -1))

    def _take(self, lease: Lease) -> Lease:
        for row in lease.nodes:
            self.by_kind[self.whole.kind_of[row].first].remove(row)
        return lease


@dataclass(frozen=True)
class RentingPolicy:
    """First come, first served: each job is given machines of its own, as `tenancy` ranks what can
    be had. They are switched on, the job starts when all of them are there, and they are given back
    when it is over or has moved. Nodes that are not for rent count as machines that are there."""

    orders: ClassVar[tuple[type, ...]] = (Provision,)
    name: str
    tenancy: Tenancy

    def decide(self, view: View, memory: RentMemory | None) -> tuple[Plan, RentMemory]:
        """Rent, start, move, give back."""
        whole = view.cached(Whole, view)
        before = memory or _adopted(view, whole)
        memory = before.copy()
        self._drop(view, memory, whole)
        market = Market(view, memory, whole)
        blocked = self._rent(view, memory, market)
        self._look(view, memory, market)
        moved = self._move(view, memory)
        same = memory.settled and memory.leases == before.leases and memory.moves == before.moves
        actions = [] if same else self._switch(view, memory, whole, moved)
        numbers = {"with_machines_jobs": float(len(memory.leases))}
        wait = Reason("Resources", "RentingPolicy", evidence=numbers, until=_CHANGES)
        reasons = [wait] if blocked else []
        wake = self._wake(view, memory)
        changes = [kind.changes_after(view.now) for kind in whole.instances] if blocked else []
        changes += memory.going.values() if blocked else ()
        if moved or any(row in memory.on for row in view.ledger.leaving):
            changes.append(view.now + SETTLES)
        until = _CHANGES | (STARTED if self.tenancy.every or moved else 0)
        plan = view.draft.plan(reasons, min([wake, *changes]), until)
        plan.actions += actions
        return plan, memory

    def _wake(self, view: View, memory: RentMemory) -> int:
        """When jobs that run are looked at again."""
        return memory.due if self.tenancy.every and len(view.active) else NEVER

    def _drop(self, view: View, memory: RentMemory, whole: Whole) -> None:
        """Leases of jobs that are over, and those of waiting jobs of which a machine is gone or is
        not to be had."""
        holds, up, going = view.draft.holds, view.ledger.up, view.ledger.going
        pending, active = set(view.pending.tolist()), set(view.active.tolist())
        stopped = {job for job in active if holds(job) is None} if going else set[int]()
        memory.coming = {row for row in memory.coming if not up[row]}
        memory.going |= {whole.kind_of[row].first: until for row, until in going.items()}
        memory.going = {kind: until for kind, until in memory.going.items() if until > view.now}

        def lost(lease: Lease) -> bool:
            return any(
                row in going
                or not (up[row] or row in memory.coming)
                or not whole.to_be_had(row, view.now)
                for row in lease.nodes
            )

        for job in memory.leases.keys() - pending - active:
            del memory.leases[job]
        for job in memory.leases.keys() & (pending | stopped):
            if lost(memory.leases[job]):
                del memory.leases[job]
        for job in [*memory.moves]:
            if job not in active - stopped or lost(memory.moves[job]):
                del memory.moves[job]

    def _rent(self, view: View, memory: RentMemory, market: Market) -> bool:
        """Machines for jobs that have none, and starts where they are there; whether some job has
        to wait for others."""
        return self._start(view, memory, market, self._waiting(view))

    def _start(
        self, view: View, memory: RentMemory, market: Market, waiting: Iterable[int]
    ) -> bool:
        """`_rent` for these jobs, in this order."""
        blocked = set[int]()
        for job in waiting:
            lease = memory.leases.get(job)
            if lease is None:
                shape = view.at.shape[job]
                if shape in blocked or not market.open:
                    blocked.add(shape)
                    continue
                lease = self._leased(view, market, job)
                if lease is None:
                    blocked.add(shape)
                    continue
                memory.leases[job] = lease
            if _there(view, lease):
                view.draft.start(job, lease.placement)
        return bool(blocked)

    def _waiting(self, view: View) -> list[int]:
        """Jobs without devices, also those that are told to leave in this decision."""
        waiting: list[int] = view.pending.tolist()
        if view.ledger.going:
            holds = view.draft.holds
            waiting += [job for job in view.active.tolist() if holds(job) is None]
            waiting.sort()
        return waiting

    def _leased(self, view: View, market: Market, job: int) -> Lease | None:
        free = market.free(job)
        if not free:
            return None
        demand = demand_of(view, job)
        for rental in self.tenancy.ranked(view, job, free, demand):
            lease = market.lease(job, rental)
            if lease is not None:
                return lease
        shape = view.draft.shape(job)
        least = shape.sizes(range_of(shape)[0])
        alone = any(market.whole.fits(view, kind, shape, least) for kind in market.kinds(job))
        return None if alone else market.anywhere(job)

    def _look(self, view: View, memory: RentMemory, market: Market) -> None:
        """At the end of each interval, whether jobs that run should be elsewhere."""
        every = self.tenancy.every
        if not every or view.now < memory.due:
            return
        memory.due = (view.now // every + 1) * every
        jobs = [
            job
            for job in view.active.tolist()
            if view.at.phase[job] == _RUNNING and job in memory.leases and job not in memory.moves
        ]
        for job, rental in self.tenancy.better(view, jobs, market):
            lease = market.lease(job, rental)
            if lease is not None:
                memory.moves[job] = lease

    def _move(self, view: View, memory: RentMemory) -> set[int]:
        """Jobs go to where they are to move as soon as all machines are there; the rows that they
        leave."""
        vacated = set[int]()
        for job, lease in sorted(memory.moves.items()):
            if view.at.phase[job] == _RUNNING and _there(view, lease):
                view.draft.resize(job, lease.placement)
                vacated.update(memory.leases[job].nodes)
                memory.leases[job] = lease
        memory.moves = {
            job: lease for job, lease in memory.moves.items() if memory.leases[job] is not lease
        }
        return vacated

    def _switch(
        self, view: View, memory: RentMemory, whole: Whole, moved: set[int]
    ) -> list[Provision]:
        """Switch on what is rented and not on, and off what is on and nobody's. A broken node stays
        on until it is up again, so that it is known."""
        up, going, actions = view.ledger.up, view.ledger.going, list[Provision]()
        rented, leaving = memory.rented(), view.ledger.leaving
        for row in sorted((rented & whole.rentable) - memory.on):
            actions.append(Provision(row, "on"))
            memory.on.add(row)
            memory.coming.add(row)
        for row in sorted(memory.on - rented - moved - leaving.keys()):
            known = up[row] or row in memory.coming or row in going
            if known or not whole.to_be_had(row, view.now):
                actions.append(Provision(row, "off"))
                memory.on.discard(row)
                memory.coming.discard(row)
        memory.settled = memory.on <= rented
        return actions


def _adopted(view: View, whole: Whole) -> RentMemory:
    """What is known at the first decision: machines that are on, and the jobs that run on them."""
    memory = RentMemory(on={row for row in whole.rentable if view.ledger.up[row]})
    for job, (_, places) in view.ledger.holds.items():
        nodes = tuple(sorted({slot.node for slot in places}))
        kinds = {whole.kind_of[node].first for node in nodes}
        memory.leases[job] = Lease(places, nodes, kinds.pop() if len(kinds) == 1 else -1)
    return memory


_CHANGES = CAPACITY_FREED | CAPACITY_LOST | QUEUED | COMMANDED | WOKE


def _there(view: View, lease: Lease) -> bool:
    """Whether all machines of a lease are up and empty."""
    ledger = view.ledger
    return all(
        ledger.up[row] and row not in ledger.going and row not in ledger.leaving
        for row in lease.nodes
    ) and all(not slot.devices & ~ledger.free_mask[slot.node] for slot in lease.placement)


def demand_of(view: View, job: int) -> Demand:
    """What is believed of a job: its speed where the oracle knows it, else in proportion to GPUs;
    what is left of it by the oracle, else by its user."""
    ids = np.array([job])
    shape = view.draft.shape(job)
    jobs = view.jobs
    profile = view.oracle.profile(jobs.models[int(jobs.model[job])])

    def speed(instance: Instance, gpus: int, machines: int) -> float:
        at = (ids, instance.gpu_type, np.array([gpus]), np.array([machines]))
        return float(believed_speed(view, *at)[0])

    return Demand(shape.gpus, *range_of(shape), seconds_left(view, job), profile, speed)


def seconds_left(view: View, job: int) -> float:
    """How long a job is believed to run still, on what it asks for on the reference; more than 0,
    and ENDLESS where nobody knows."""
    rest = believed_length(view, job) - view.work(job)
    return max(rest, 1.0) / SECOND if rest < NEVER else ENDLESS


def range_of(shape: Shape) -> tuple[int, int]:
    """The fewest and the most GPUs it can use: only its first role grows and shrinks."""
    first = shape.roles[0]
    least, limit = first.range
    fixed = shape.gpus - first.size * first.needs.gpus
    return fixed + least * first.needs.gpus, fixed + limit * first.needs.gpus
