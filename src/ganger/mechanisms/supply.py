"""CPUs and host memory go where they make GPUs faster, and nobody gets less than its GPUs' part
(Synergy, OSDI 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST
from ganger.core.ledger import Cell, Ledger
from ganger.core.plan import Placement, Plan, Tune
from ganger.core.profiles import Sensitivity
from ganger.core.protocols import Policy, revived
from ganger.core.spec import Locality
from ganger.core.view import View
from ganger.mechanisms.auxiliary import attempts_after
from ganger.mechanisms.place import Place, counted, on_nodes
from ganger.solve.choice import choose

NODES = 200


class Division(Enum):
    """Who gets what the least shares leave of a node."""

    TUNE = "tune"
    """First come, first served: all of what one wants, or no more than its least share."""
    OPT = "opt"
    """Whatever gives the largest sum of speeds."""


class User(NamedTuple):
    """A job that runs: (node, GPUs) where, and how its speed depends on supply."""

    job: int
    places: tuple[tuple[int, int], ...]
    sensitivity: Sensitivity


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
    wants = {user.job: user.sensitivity.demand() for user in users}
    given: Given = {}
    for user in users:
        parts = [stocks[node].share for node, _ in user.places]
        want = wants[user.job]
        given[user.job] = (
            min(want[0], *(part[0] for part in parts)), min(want[1], *(part[1] for part in parts)),
        )  # fmt: skip
    left = {node: np.array(stock.room) for node, stock in stocks.items()}
    for user in users:
        for node, gpus in user.places:
            left[node] -= gpus * np.array(given[user.job])
    if how is Division.OPT:
        return _largest_sum(users, given, left)
    for user in users:
        more = np.maximum(np.array(wants[user.job]) - np.array(given[user.job]), 0.0)
        if all((gpus * more <= left[node] + 1e-6).all() for node, gpus in user.places):
            for node, gpus in user.places:
                left[node] -= gpus * more
            least = given[user.job]
            given[user.job] = (least[0] + float(more[0]), least[1] + float(more[1]))
    return given


def _largest_sum(users: list[User], given: Given, left: dict[int, Any]) -> Given:
    """The points of the users' tables that add most speed, over what they are `given`."""
    row, gain = list[int](), list[float]()
    points: list[tuple[float, float]] = []
    take: list[Any] = []
    nodes = {node: at for at, node in enumerate(left)}
    for at, user in enumerate(users):
        base, want = given[user.job], user.sensitivity.demand()
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
    found = choose(np.array(gain), np.array(row), np.array(take), np.maximum(room, 0.0),
                   nodes=NODES)  # fmt: skip
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


def user_of(view: View, job: int, placement: Placement) -> User | None:
    """The job as one whose supply is divided: it runs on whole GPUs, asks for nothing beside them,
    and its model's sensitivity is known."""
    jobs = view.jobs
    if not view.draft.shape(job).is_plain:
        return None
    sensitivity = view.oracle.profile(jobs.models[jobs.model[job]]).sensitivity
    return None if sensitivity is None else User(job, counted(placement), sensitivity)


def users_of(view: View, ledger: Ledger) -> list[User]:
    """Those among whom supply is divided now, ascending."""
    found = (user_of(view, job, held[1]) for job, held in sorted(ledger.holds.items()))
    return [user for user in found if user is not None]


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
        if mine is None or len(mine.places) > 1 or shape.locality == Locality.ISLAND:
            return likely
        wanted: dict[int, Any] = {}
        for user in users_of(view, ledger):
            for node, many in user.places:
                demand = many * np.array(user.sensitivity.demand())
                wanted[node] = wanted.get(node, 0.0) + demand
        more = need * np.array(mine.sensitivity.demand())
        assert likely is not None, "a user has a place"
        cell = ledger.cell_of[likely[0].node]
        for room in range(need, cell.widest + 1):
            for node in cell.nodes:
                if ledger.up[node] and ledger.free_count[node] == room:
                    there = np.array(stock(view, node, need).room)
                    if (wanted.get(node, 0.0) + more <= there).all():
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

    inner: Policy
    how: Division = Division.TUNE

    @property
    def name(self) -> str:
        """The inner policy's."""
        return self.inner.name

    def decide(self, view: View, memory: SupplyMemory | None) -> tuple[Plan, SupplyMemory]:
        """The inner plan, and a Tune for every job whose supply changes."""
        memory = memory or SupplyMemory(None, {})
        plan, inner = self.inner.decide(view, revived(memory.inner, self.inner.decide))
        users = users_of(view, view.ledger)
        there: dict[int, int] = {}
        for user in users:
            for node, gpus in user.places:
                there[node] = there.get(node, 0) + gpus
        stocks = {node: stock(view, node, gpus) for node, gpus in there.items()}
        attempts, kept = attempts_after(view, plan), dict[int, tuple[int, float, float]]()
        for job, (cpus, host) in sorted(divide(users, stocks, self.how).items()):
            kept[job] = attempts[job], cpus, host
            if kept[job] != memory.given.get(job):
                knobs = {"cpus_per_gpu": cpus, "memory_per_gpu": host}
                plan.actions.append(Tune(job, attempts[job], knobs))
        plan.until |= CAPACITY_FREED | CAPACITY_LOST
        return plan, SupplyMemory(inner, kept)
