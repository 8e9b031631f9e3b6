"""What belongs to Liquid alone (TPDS 2021): the network cost of a placement, places by it, and a
genetic search over the jobs that start together.

A gene is a node with the workers that are there. Crossover takes whole genes from one parent;
mutation empties nodes of the jobs that have workers there. Workers that lost their place are put
back where that costs least, those of a job on one node if they fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Final, NamedTuple, TypeAlias

import numpy as np

from ganger.core.books.bits import members, pick_devices
from ganger.core.books.ledger import Cell, Ledger
from ganger.core.plan import Placement, Plan, Slot, Start
from ganger.core.spec import Locality, Needs, Shape
from ganger.core.units import WHOLE
from ganger.core.view import View
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.sharing.packing import Packed

SAME_RACK: Final = 1.0
SAME_DOMAIN: Final = 4.0
APART: Final = 40.0
"""What a unit of bandwidth between two workers costs; within a node it costs nothing."""
WORKERS_MAX: Final = 64
NODES_MAX: Final = 32
"""So many workers, and nodes, are searched over at a time."""
Distance: TypeAlias = Callable[[int, int], float]


class Talk(NamedTuple):
    """Workers of a job by node: its parameter servers, and the others; and GB/s between two that
    talk to each other."""

    servers: Mapping[int, int]
    workers: Mapping[int, int]
    bandwidth: float

    def cost(self, distance: Distance) -> float:
        """Over all pairs of a server and a worker, or where there are no servers of two workers."""
        if self.servers:
            pairs = sum(
                many * others * distance(node, other)
                for node, many in self.servers.items()
                for other, others in self.workers.items()
            )
        else:
            pairs = sum(
                self.workers[node] * self.workers[other] * distance(node, other)
                for node, other in combinations(self.workers, 2)
            )
        return self.bandwidth * pairs


class _Bandwidths:
    """GB/s by model and number of GPUs. A cache."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], float] = {}

    def of(self, view: View, job: int) -> float:
        """The gradients of a step over how long one takes within a node; 1 where that is not
        known."""
        key = view.at.model[job], view.at.gpus[job]
        if key not in self.known:
            steps = view.oracle.profile(view.jobs.models[key[0]]).steps
            seconds = float(steps.seconds(key[1], Locality.NODE)) if steps is not None else 0.0
            self.known[key] = steps.gradients / seconds if steps is not None and seconds else 1.0
        return self.known[key]


def talk(view: View, job: int, workers: Iterable[tuple[int, int, int]]) -> Talk:
    """What a job says between its `workers`: (role, node, how many)."""
    roles, by_kind = view.draft.shape(job).roles, (dict[int, int](), dict[int, int]())
    for role, node, many in workers:
        on_node = by_kind[bool(roles[role].needs.gpus)]
        on_node[node] = on_node.get(node, 0) + many
    return Talk(*by_kind, view.cached(_Bandwidths).of(view, job))


@dataclass(frozen=True)
class Fabric:
    """How far nodes are from each other: `racks` that follow each other are a domain."""

    racks: int

    def domain(self, view: View, node: int) -> int:
        """The domain of a node; nodes without a rack are in one."""
        return (int(view.nodes.rack[node]) - 1) // self.racks

    def distance(self, view: View) -> Distance:
        """What a unit of bandwidth between two nodes costs."""
        rack = view.nodes.rack.tolist()
        domain = [(number - 1) // self.racks for number in rack]

        def apart(node: int, other: int) -> float:
            if node == other:
                return 0.0
            if rack[node] == rack[other]:
                return SAME_RACK
            return SAME_DOMAIN if domain[node] == domain[other] else APART

        return apart


@dataclass(frozen=True, kw_only=True)
class Nearest(Packed):
    """As `Packed`; on empty GPUs within a node, else a rack, else a domain, else anywhere, by best
    fit."""

    fabric: Fabric

    def alone(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None, gpus: int
    ) -> Placement | None:
        """On empty GPUs, as near to each other as can be."""
        shape = view.draft.shape(job)
        sizes = shape.sizes(gpus) if gpus else ()
        anywhere = ledger.find(shape, sizes, self.fit, self.within, cells=cells)
        if anywhere is None or len({slot.node for slot in anywhere}) == 1:
            return anywhere
        for tier in (Locality.NODE, Locality.RACK):
            near = ledger.find(shape, sizes, self.fit, tier, cells=cells)
            if near is not None:
                return near
        return self._in_a_domain(view, ledger, shape, sizes, cells) or anywhere

    def _in_a_domain(
        self,
        view: View,
        ledger: Ledger,
        shape: Shape,
        sizes: tuple[int, ...],
        cells: list[Cell] | None,
    ) -> Placement | None:
        """In the first domain that has room, those with fewest free GPUs first."""
        free: dict[int, int] = {}
        domain = [self.fabric.domain(view, node) for node in range(view.nodes.n)]
        for node, number in enumerate(domain):
            free[number] = free.get(number, 0) + ledger.free_count[node]
        for number in sorted(free, key=lambda number: (free[number], number)):
            if free[number] >= shape.least:
                with ledger.hidden([node for node, its in enumerate(domain) if its != number]):
                    place = ledger.find(shape, sizes, self.fit, self.within, cells=cells)
                if place is not None:
                    return place
        return None


class Worker(NamedTuple):
    """One to be placed: its job, its role, and what it needs."""

    job: int
    role: int
    needs: Needs


Room: TypeAlias = dict[int, tuple[int, int, int]]
"""By node: free GPUs, CPUs and host memory."""
Nodes: TypeAlias = tuple[int, ...]
"""The node of each worker."""


class Search:
    """Over the nodes of `workers` that have `room`; `costs` says what nodes cost a job's."""

    def __init__(
        self,
        workers: Sequence[Worker],
        room: Room,
        cost: Callable[[int, Sequence[tuple[int, int, int]]], float],
    ) -> None:
        self._workers, self._room, self._job_cost = workers, room, cost
        self._jobs = dict.fromkeys(worker.job for worker in workers)
        self._known: dict[tuple[int, Nodes], float] = {}
        self._of = {
            job: [at for at, worker in enumerate(workers) if worker.job == job]
            for job in self._jobs
        }

    def cost(self, nodes: Nodes) -> float:
        """What these nodes cost all jobs."""
        return sum(self._cost_of(job, nodes) for job in self._jobs)

    def _cost_of(self, job: int, nodes: Sequence[int]) -> float:
        """What they cost one; of those of its workers that have a node (-1: none)."""
        key = job, tuple([nodes[at] for at in self._of[job]])
        if key not in self._known:
            placed = [
                (self._workers[at].role, nodes[at], 1) for at in self._of[job] if nodes[at] >= 0
            ]
            self._known[key] = self._job_cost(job, placed)
        return self._known[key]

    def best(
        self, start: Nodes, rng: np.random.Generator, population: int, generations: int
    ) -> Nodes:
        """The cheapest nodes of any generation, `start` included."""
        people = {start: self.cost(start)}
        for _ in range(generations):
            ranked = sorted(people, key=lambda nodes: (people[nodes], nodes))[:population]
            people = {nodes: people[nodes] for nodes in ranked}
            if not people[ranked[0]]:
                break
            mother, father = (ranked[int(rng.integers(len(ranked)))] for _ in range(2))
            child = self.crossed(mother, father, rng) if mother != father else mother
            for each in (child, self.mutated(child or mother, rng)):
                if each is not None:
                    people.setdefault(each, self.cost(each))
        return min(people, key=lambda nodes: (people[nodes], nodes))

    def crossed(self, mother: Nodes, father: Nodes, rng: np.random.Generator) -> Nodes | None:
        """The mother's nodes, but for some that have just those workers that the father has
        there."""
        used = sorted(set(father))
        taken = {node for node in used if rng.random() < 0.5}
        child = [
            its if its in taken else (-1 if hers in taken else hers)
            for hers, its in zip(mother, father, strict=True)
        ]
        return self._inserted(child, list(self._jobs))

    def mutated(self, nodes: Nodes, rng: np.random.Generator) -> Nodes | None:
        """One node, or two, emptied of all jobs that have workers there, which are put back in any
        order."""
        used = sorted(set(nodes))
        emptied = {used[int(rng.integers(len(used)))] for _ in range(2)}
        out = [job for job, of in self._of.items() if any(nodes[at] in emptied for at in of)]
        child = list(nodes)
        for job in out:
            for at in self._of[job]:
                child[at] = -1
        order: list[int] = rng.permutation(out).tolist()
        return self._inserted(child, order)

    def _inserted(self, nodes: list[int], jobs: Iterable[int]) -> Nodes | None:
        """Workers of these jobs that have no node, job by job; None where one fits nowhere."""
        room = dict(self._room)
        for worker, node in zip(self._workers, nodes, strict=True):
            if node >= 0:
                room[node] = _less(room[node], worker.needs)
        for job in jobs:
            missing = [at for at in self._of[job] if nodes[at] < 0]
            if not missing or self._put(missing, nodes, room):
                continue
            if not all(self._put([at], nodes, room) for at in missing):
                return None
        return tuple(nodes)

    def _put(self, some: Sequence[int], nodes: list[int], room: Room) -> bool:
        """Workers of one job on one node: where they cost least, where least is then free."""
        best: tuple[float, int, int] | None = None
        job = self._workers[some[0]].job
        for node, free in room.items():
            rest = free
            for at in some:
                rest = _less(rest, self._workers[at].needs)
            if min(rest) < 0:
                continue
            for at in some:
                nodes[at] = node
            able = self._cost_of(job, nodes), rest[0], node
            best = able if best is None else min(best, able)
        for at in some:
            nodes[at] = best[2] if best is not None else -1
            if best is not None:
                room[best[2]] = _less(room[best[2]], self._workers[at].needs)
        return best is not None


def _less(room: tuple[int, int, int], needs: Needs) -> tuple[int, int, int]:
    return room[0] - needs.gpus, room[1] - needs.cpus, room[2] - needs.memory


@dataclass(frozen=True)
class Regrouped:
    """A queue; where it starts several jobs at once, the search looks for nodes that cost all of
    them together less, and never takes any that cost more. Jobs that start beside others, or may
    not go everywhere, stay where the queue has put them."""

    orders: ClassVar[tuple[type, ...]] = ()
    queue: QueuePolicy
    fabric: Fabric
    population: int
    generations: int

    @property
    def name(self) -> str:
        """The queue's."""
        return self.queue.name

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """What the queue starts, in the cheapest places found."""
        mark = view.draft.mark()
        plan, _ = self.queue.decide(view, None)
        places = {a.job: a.placement for a in plan.actions if isinstance(a, Start)}
        if len(places) < 2:
            return plan, None
        distance = self.fabric.distance(view)
        costs = {job: _cost_on(view, job, place, distance) for job, place in places.items()}
        if not any(costs.values()):
            return plan, None
        view.draft.rollback(mark)
        free = self._movable(view, places)
        for job, place in places.items():
            if job not in free:
                view.draft.start(job, place)
        for job, place in self._searched(view, {job: places[job] for job in free}, distance):
            view.draft.start(job, place)
        return view.draft.plan(plan.reasons, plan.wake, plan.until), None

    def _movable(self, view: View, places: Mapping[int, Placement]) -> list[int]:
        """Those of one cell that may go anywhere in it, as many as are searched over; each is alone
        on its GPUs."""
        ledger, many = view.ledger, dict[tuple[int, int], int]()
        for place in places.values():
            for slot in place:
                for device in members(slot.devices):
                    many[slot.node, device] = many.get((slot.node, device), 0) + 1
        movable, cell, workers = list[int](), None, 0
        for job, place in places.items():
            shape = view.draft.shape(job)
            own = all(
                ledger.free_mask[slot.node] >> device & 1 and many[slot.node, device] == 1
                for slot in place
                for device in members(slot.devices)
            )
            fits = workers + sum(slot.workers for slot in place) <= WORKERS_MAX
            anywhere = shape.locality is Locality.ANY and not shape.labels
            whole = all(
                role.needs.share == WHOLE and not role.needs.gpu_memory for role in shape.roles
            )
            here = ledger.cell_of[place[0].node]
            if own and anywhere and whole and fits and cell in (None, here):
                cell, workers = here, workers + sum(slot.workers for slot in place)
                movable.append(job)
        return movable

    def _searched(
        self, view: View, places: Mapping[int, Placement], distance: Distance
    ) -> list[tuple[int, Placement]]:
        """The cheapest places found."""
        if len(places) < 2:
            return list(places.items())
        workers = list[Worker]()
        start = list[int]()
        for job, place in places.items():
            roles = view.draft.shape(job).roles
            for slot in place:
                workers += [Worker(job, slot.role, roles[slot.role].needs)] * slot.workers
                start += [slot.node] * slot.workers
        search = Search(
            workers,
            _room(view.ledger, start),
            lambda job, placed: talk(view, job, placed).cost(distance),
        )
        rng = view.rng(f"liquid {workers[0].job}")
        nodes = search.best(tuple(start), rng, self.population, self.generations)
        if nodes == tuple(start):
            return list(places.items())
        return _placements(view.ledger, places, workers, nodes)


def _cost_on(view: View, job: int, place: Placement, distance: Distance) -> float:
    """What a placement costs a job."""
    return talk(view, job, [(s.role, s.node, s.workers) for s in place]).cost(distance)


def _room(ledger: Ledger, start: Sequence[int]) -> Room:
    """What is free on the nodes of `start`, and on the fullest others that have a free GPU."""
    used = dict.fromkeys(start)
    cell = ledger.cell_of[start[0]]
    others = [node for node in cell.nodes if ledger.up[node] and node not in used]
    others = [node for node in others if ledger.free_count[node]]
    others.sort(key=lambda node: (ledger.free_count[node], node))
    few = [*used, *others[: max(NODES_MAX - len(used), 0)]]
    return {
        node: (ledger.free_count[node], ledger.free_cpus[node], ledger.free_memory[node])
        for node in few
    }


def _placements(
    ledger: Ledger, places: Mapping[int, Placement], workers: Sequence[Worker], nodes: Nodes
) -> list[tuple[int, Placement]]:
    """Devices for workers on these nodes."""
    masks = {node: ledger.free_mask[node] for node in nodes}
    many: dict[int, dict[tuple[int, int], int]] = {job: {} for job in places}
    for worker, node in zip(workers, nodes, strict=True):
        key = worker.role, node
        many[worker.job][key] = many[worker.job].get(key, 0) + 1
    needs = {(worker.job, worker.role): worker.needs for worker in workers}
    moved = list[tuple[int, Placement]]()
    for job, groups in many.items():
        share, slots = places[job][0].share, list[Slot]()
        for (role, node), count in sorted(groups.items()):
            gpus = count * needs[job, role].gpus
            devices = pick_devices(masks[node], gpus, ledger.island[node]) if gpus else 0
            masks[node] &= ~devices
            slots.append(Slot(node, devices, count, role, share if gpus else 0))
        moved.append((job, tuple(slots)))
    return moved
