"""CPUs and host memory go where they make GPUs faster, and nobody gets less than its GPUs' part
(Synergy, OSDI 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import ceil
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from ganger.core.books.ledger import Cell, Ledger, members
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST
from ganger.core.plan import Placement, Plan, Tune
from ganger.core.profiles import Sensitivity
from ganger.core.protocols import Policy, revived
from ganger.core.spec import Locality
from ganger.core.view import View
from ganger.mechanisms.common.holdings_delta import HoldingsDelta
from ganger.mechanisms.host_resources.remote_input import attempts_after
from ganger.mechanisms.placement.place import Place, counted, on_nodes
from ganger.solve.choice import choose

NODES = 200


class Division(Enum):
    """Says which jobs get what the least shares leave of a node."""

    TUNE = "tune"
    """First come, first served: all of what one wants, or no more than its least share."""
    OPT = "opt"
    """Whatever gives the largest sum of speeds."""


class User(NamedTuple):
    """A job that runs: (node, GPUs) where, how its speed depends on supply, and the least CPUs and
    memory per GPU that it wants."""

    job: int
    places: tuple[tuple[int, int], ...]
    sensitivity: Sensitivity
    want: tuple[float, float]


class Stock(NamedTuple):
    """What a node has to give out, CPUs (thousandths of a core) and memory (MiB) each: in all, and
    to every GPU at the least. Infinite where a node does not say."""

    room: tuple[float, float]
    share: tuple[float, float]


Given = dict[int, tuple[float, float]]
"""By job: CPUs and memory per GPU."""


def divide(users: list[User], stocks: dict[int, Stock], how: Division) -> Given:
    """What each of `users` gets per GPU on every node it is on, at least the smaller of what it
    wants and its GPUs' part, within what the nodes have."""
    given: Given = {}
    left = {node: list(stock.room) for node, stock in stocks.items()}
    for user in users:
        cpus, memory = user.want
        for node, _ in user.places:
            share = stocks[node].share
            cpus, memory = min(cpus, share[0]), min(memory, share[1])
        given[user.job] = cpus, memory
        _take(user, left, cpus, memory)
    if how is Division.OPT:
        return _largest_sum(users, given, left)
    for user in users:
        least = given[user.job]
        cpus, memory = user.want[0] - least[0], user.want[1] - least[1]
        if (cpus > 0 or memory > 0) and all(
            gpus * cpus <= left[node][0] + 1e-6 and gpus * memory <= left[node][1] + 1e-6
            for node, gpus in user.places
        ):
            _take(user, left, cpus, memory)
            given[user.job] = user.want
    return given


def _take(user: User, left: dict[int, list[float]], cpus: float, memory: float) -> None:
    """Take so much per GPU from what is `left` of the user's nodes."""
    for node, gpus in user.places:
        there = left[node]
        there[0] -= gpus * cpus
        there[1] -= gpus * memory


def _largest_sum(users: list[User], given: Given, left: dict[int, list[float]]) -> Given:
    """The points of the users' tables that add most speed, over what they are `given`."""
    row, gain = list[int](), list[float]()
    points: list[tuple[float, float]] = []
    take: list[Any] = []
    nodes = {node: at for at, node in enumerate(left)}
    for at, user in enumerate(users):
        base, want = given[user.job], user.want
        before = user.sensitivity.at(*base)
        for cpus in _above(user.sensitivity.cpus, base[0], want[0]):
            for memory in _above(user.sensitivity.memory, base[1], want[1]):
                more = user.sensitivity.at(cpus, memory) - before
                if more > 1e-9:
                    used = np.zeros((len(nodes), 2))
                    for node, gpus in user.places:
                        used[nodes[node]] = gpus * (cpus - base[0]), gpus * (memory - base[1])
                    row.append(at)
                    gain.append(more)
                    points.append((cpus, memory))
                    take.append(used.ravel())
    if not row:
        return given
    room = np.minimum(np.array([left[node] for node in nodes]).ravel(), 1e15)
    found = choose(
        np.array(gain), np.array(row), np.array(take), np.maximum(room, 0.0), nodes=NODES
    )
    best = {users[row[at]].job: points[at] for at in np.flatnonzero(found.taken).tolist()}
    return {**given, **best}


def _above(grid: tuple[float, ...], base: float, want: float) -> list[float]:
    """`base`, and the points of the grid between it and what is wanted."""
    return [base, *(point for point in grid if base < point <= want)]


def stock(view: View, node: int, users: int) -> Stock:
    """What a node has for the `users` GPUs of jobs whose supply is divided; jobs that ask for CPUs
    or memory have theirs already."""
    ledger, nodes = view.ledger, view.nodes
    gpus = max(int(nodes.gpus[node]), 1)
    room, share = list[float](), list[float]()
    for free, total in (
        (ledger.free_cpus[node], int(nodes.cpus[node])),
        (ledger.free_memory[node], int(nodes.memory[node])),
    ):
        room.append(float(free) if total else np.inf)
        share.append(float(min(total // gpus, free // max(users, 1))) if total else np.inf)
    return Stock((room[0], room[1]), (share[0], share[1]))


class Census:
    """Which job holds what, as at the last look, so that a decision touches what changed: a
    cache."""

    def __init__(self) -> None:
        self._seen = HoldingsDelta()
        self.known: dict[int, tuple[tuple[tuple[int, int], ...], User | None]] = {}
        self.on_node: dict[int, set[int]] = {}
        self.wanted: dict[int, tuple[float, float]] = {}
        """By node: CPUs and memory that all of its users want, whole numbers."""
        self.touched: tuple[int, set[int]] = -1, set()
        """A revision, and the nodes that were found changed when deciding on it, however often."""

    def look(self, view: View) -> None:
        """Catch up with the books."""
        if self.touched[0] != view.revision:
            self.touched = view.revision, set()
        touched = self.touched[1]
        gone, come = self._seen.changes(view.ledger)
        for job in gone:
            places, user = self.known.pop(job)
            for node, _ in places:
                touched.add(node)
                self.on_node[node].discard(job)
            self._want(user, -1)
        for job, placement in come:
            places, user = self.known[job] = counted(placement), user_of(view, job, placement)
            for node, _ in places:
                touched.add(node)
                self.on_node.setdefault(node, set()).add(job)
            self._want(user, 1)

    def _want(self, user: User | None, sign: int) -> None:
        if user is not None:
            cpus, memory = user.want
            for node, gpus in user.places:
                had = self.wanted.get(node, (0.0, 0.0))
                self.wanted[node] = had[0] + sign * gpus * cpus, had[1] + sign * gpus * memory

    def together(self, node: int) -> tuple[list[int], list[User]]:
        """The nodes whose division hangs together with that of `node`, and their users; both
        ascending."""
        nodes, jobs, ahead = {node}, set[int](), [node]
        while ahead:
            for job in self.on_node.get(ahead.pop(), set()) - jobs:
                jobs.add(job)
                places, user = self.known[job]
                if user is not None:
                    more = {other for other, _ in places} - nodes
                    nodes |= more
                    ahead += more
        users = [user for job in sorted(jobs) if (user := self.known[job][1]) is not None]
        return sorted(nodes), users


def census(view: View) -> Census:
    """The cluster's, as a cache."""
    return view.cached(Census)


def user_of(view: View, job: int, placement: Placement) -> User | None:
    """The job as one whose supply is divided: it runs on whole GPUs, asks for nothing beside them,
    and its model's sensitivity is known."""
    jobs = view.jobs
    if not view.draft.shape(job).is_plain:
        return None
    sensitivity = view.oracle.profile(jobs.models[jobs.model[job]]).sensitivity
    if sensitivity is None:
        return None
    cpus, memory = sensitivity.demand()
    return User(job, counted(placement), sensitivity, (ceil(cpus), ceil(memory)))


class _Sensitive:
    """Whether any of the first so many `models` is known to be sensitive."""

    __slots__ = ("anybody", "models")

    def __init__(self) -> None:
        self.models, self.anybody = -1, False


def _anybody_sensitive(view: View) -> bool:
    """Whether any model's sensitivity is known, or may come to be."""
    models = view.jobs.models
    if view.oracle.learns:
        return True
    known = view.cached(_Sensitive)
    if known.models != len(models):
        told = (view.oracle.profile(model).sensitivity is not None for model in models)
        known.models, known.anybody = len(models), any(told)
    return known.anybody


@dataclass(frozen=True)
class BySupply(Place):
    """A gang that fits one node goes to the fullest where all that it wants of CPUs and memory is
    left beside what the others there want; else by the fit rule."""

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """A node that feeds it, or any place."""
        shape, need = view.draft.shape(job), gpus or view.at.gpus[job]
        likely = super().find(view, ledger, job, cells, gpus)
        mine = None if likely is None else user_of(view, job, likely)
        alone = ledger is view.ledger and shape.locality != Locality.ISLAND
        if likely is None or mine is None or len(mine.places) > 1 or not alone:
            return likely
        cpus, memory = mine.want
        known = census(view)
        known.look(view)
        cell = ledger.cell_of[likely[0].node]
        for room in range(need, cell.widest + 1):
            for local in members(cell.by_free[room]):
                node = cell.nodes[local]
                wanted, there = known.wanted.get(node, (0, 0)), stock(view, node, need).room
                if wanted[0] + need * cpus <= there[0] and wanted[1] + need * memory <= there[1]:
                    return on_nodes(ledger, ((node, need),))
        return likely


class SupplyMemory(msgspec.Struct):
    """What the inner policy keeps, and by job the attempt and what it was given per GPU."""

    inner: Any
    given: dict[int, tuple[int, float, float]]


@dataclass(frozen=True)
class SupplyPolicy:
    """Another policy, and beside it the division of every node's CPUs and host memory among the
    jobs that it runs there."""

    orders: ClassVar[tuple[type, ...]] = (Tune,)
    inner: Policy
    how: Division

    @property
    def name(self) -> str:
        """The inner policy's."""
        return self.inner.name

    def decide(self, view: View, memory: SupplyMemory | None) -> tuple[Plan, SupplyMemory]:
        """The inner plan, and a Tune for every job whose supply changes."""
        memory = memory or SupplyMemory(None, {})
        plan, inner = self.inner.decide(view, revived(memory.inner, self.inner.decide))
        known, kept = self._divide(view), dict(memory.given)
        for job in [job for job in kept if job not in view.ledger.holds]:
            del kept[job]
        attempts = attempts_after(view, plan) if known else {}
        for job, (cpus, host) in sorted(known.items()):
            kept[job] = attempts[job], cpus, host
            if kept[job] != memory.given.get(job):
                knobs = {"cpus_per_gpu": cpus, "memory_per_gpu": host}
                plan.actions.append(Tune(job, attempts[job], knobs))
        plan.until |= CAPACITY_FREED | CAPACITY_LOST
        return plan, SupplyMemory(inner, kept)

    def _divide(self, view: View) -> Given:
        """What those get whose nodes changed since the last decision; all, if that is not known."""
        if not _anybody_sensitive(view):
            return {}
        known = census(view)
        known.look(view)
        given: Given = {}
        touched = set(known.touched[1])
        while touched:
            nodes, users = known.together(touched.pop())
            touched.difference_update(nodes)
            there = dict.fromkeys(nodes, 0)
            for user in users:
                for node, gpus in user.places:
                    there[node] += gpus
            stocks = {node: stock(view, node, gpus) for node, gpus in there.items()}
            given.update(divide(users, stocks, self.how))
        return given
