"""Pollux' cluster decision (OSDI 2021, section 4.2): a genetic search over how many GPUs of which
node every job gets, for the fairest and largest goodput. The oracle tells goodput by (nodes, GPUs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.events import ANYTHING, CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.jobs import Phase
from ganger.core.plan import Plan, Reason
from ganger.core.table import Ids
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.elastic import resizable
from ganger.mechanisms.evolve import Counts, Genetic, People, Population, Scores, Space
from ganger.mechanisms.place import PACK, Placer, counted
from ganger.mechanisms.realise import Want, competitors, towards

SEARCH = Genetic()
"""Begun with the last population, it needs less than the paper's 100 individuals and rounds."""
FLOOR = 1e-2
"""The least speedup that counts: of a job without GPUs the power mean would be nothing."""


class GoodputMemory(msgspec.Struct, frozen=True):
    """What Pollux remembers: when the next decision is due, the last population, and the most GPUs
    on which each job has run."""

    due: int
    population: Population = Population()
    largest: dict[int, int] = {}
    resting: bool = False
    """Whether every decision would be this one until something happens."""


class Offer(NamedTuple):
    """What a search decides on. `now`: jobs x nodes as held; `speedup[j, k, n]`: of job j on n
    GPUs over k nodes, over its fair share; `again[j]`: the factor on it if the job is moved."""

    ids: Ids
    space: Space
    now: Counts
    speedup: Scores
    again: Scores

    def fitness(self, people: People, power: float) -> Scores:
        """The power mean of speedups."""
        values = self.values(people)
        if not power:
            return np.asarray(np.exp(np.log(values).mean(axis=1)))
        return np.asarray((values**power).mean(axis=1) ** (1.0 / power))

    def values(self, people: People) -> Scores:
        """The speedup of every job in every individual, or what a move leaves of it."""
        size, jobs, row = people.size, people.jobs, people.row
        nodes = np.bincount(row, minlength=size * jobs)
        gpus = np.bincount(row, people.gpus, size * jobs).astype(np.int64)
        stays = people.gpus == self.now[row % jobs, people.node]
        before = np.tile((self.now > 0).sum(axis=1), size)
        moved = np.bincount(row, stays, size * jobs) < np.maximum(nodes, before)
        values = self.speedup[np.tile(np.arange(jobs), size), nodes, gpus].reshape(size, jobs)
        values = np.where(moved.reshape(size, jobs), values * self.again, values)
        return np.maximum(values, FLOOR)

    def rests(self, people: Counts) -> bool:
        """Whether `people` is what runs, and nobody could be faster even if moving cost nothing."""
        if (people[0] != self.now).any():
            return False
        fastest = self.best(self.allowed())
        return bool((self.values(People.of(people))[0] >= fastest - 1e-9).all())

    def allowed(self) -> NDArray[np.bool_]:
        """jobs x numbers of GPUs: whether the job may have so many."""
        gpus, space = np.arange(self.speedup.shape[2]), self.space
        most = np.maximum(space.most, space.least)
        return np.asarray((gpus >= space.least[:, None]) & (gpus <= most[:, None]))

    def best(self, allowed: NDArray[np.bool_]) -> Scores:
        """The highest speedup of each job, wherever it is."""
        return np.asarray(np.where(allowed[:, None, :], self.speedup, 0.0).max(axis=(1, 2)))

    def sated(self) -> Counts | None:
        """An individual in which every job has the best that it could have at all, if one is found
        by letting those who have that stay and placing the others, the largest first, on the
        fullest nodes with room: then there is nothing to search for. (1, jobs, nodes)."""
        space, jobs = self.space, np.arange(len(self.ids))
        gpus = np.arange(self.speedup.shape[2])
        allowed = self.allowed()
        packed = -(-gpus // max(int(space.room.max(initial=1)), 1))
        packed = np.minimum(packed, self.speedup.shape[1] - 1)
        best = self.best(allowed)
        asks = (np.where(allowed, self.speedup[:, packed, gpus], 0.0) >= best[:, None]).argmax(
            axis=1
        )
        have = self.values(People.of(self.now[None]))[0]
        stays = (have >= best * self.again) & self.now.any(axis=1)
        people = np.where(stays[:, None], self.now, 0).astype(np.int16)
        room = space.room - people.sum(axis=0)
        moves = jobs[~stays]
        for job in moves[np.argsort(-asks[moves], kind="stable")].tolist():
            many = int(asks[job])
            nodes = np.flatnonzero(space.may[job] & (room >= -(-many // int(packed[many] or 1))))
            spread = int(packed[many])
            if not many or len(nodes) < spread:
                return None
            for node in nodes[np.argsort(room[nodes], kind="stable")][:spread].tolist():
                taken = min(many, int(room[node]))
                people[job, node] = taken
                room[node] -= taken
                many -= taken
        spans = (people > 0).sum(axis=1) > 1
        shared = (people[spans] > 0).sum(axis=0).max(initial=0) > 1
        if (room < 0).any() or (space.apart and shared):
            return None
        reached = (
            self.values(People.of(people[None]))[0] >= np.maximum(best * self.again, have) - 1e-9
        )
        return people[None] if reached.all() else None


@dataclass(frozen=True)
class GoodputPolicy:
    """Re-decides every `every` microseconds, and at once where nothing runs.

    `power`: p of the mean; `restart`: what a re-allocation costs, microseconds; `growth`: how many
    times the most GPUs that it ever ran on a job may get; `rests`: it waits for something to happen
    where each decision until then would be the same. Only plain shapes take part; others get
    what they ask for where there is room. On several GPU types a job stays on the first one that
    can hold it.
    """

    name: str
    search: Genetic = SEARCH
    every: int = 60 * SECOND
    power: float = -1.0
    restart: int = 30 * SECOND
    growth: int = 2
    place: Placer = PACK
    rests: bool = True

    def decide(self, view: View, memory: GoodputMemory | None) -> tuple[Plan, GoodputMemory]:
        """Search if it is time."""
        memory = memory or GoodputMemory(view.now)
        jobs = competitors(view)
        if memory.resting:
            missed = max(-((memory.due - view.now) // self.every), 0)
            memory = msgspec.structs.replace(
                memory, due=memory.due + missed * self.every, resting=False
            )
        if len(jobs) and (view.now >= memory.due or not len(view.active)):
            memory = self._search(view, memory, jobs)
        reasons = [Reason("Resources", "goodput")] if len(view.pending) else []
        wake = memory.due if len(jobs) and not memory.resting else NEVER
        until = CAPACITY_FREED | CAPACITY_LOST | QUEUED | COMMANDED | WOKE
        if memory.resting:
            until = ANYTHING
        return view.draft.plan(reasons, wake, until), memory

    def _search(self, view: View, memory: GoodputMemory, jobs: Ids) -> GoodputMemory:
        largest = _largest(view, memory, jobs)
        movable = resizable(view, jobs)
        plain = np.array([view.draft.shape(job).is_plain for job in movable.tolist()], np.bool_)
        offer = self._offer(view, movable[plain], largest)
        ids, nodes = offer.ids.tolist(), view.nodes.n
        sated = offer.sated()
        rests = self.rests and sated is not None and offer.rests(sated)
        rests &= bool(plain.all() and (view.jobs.phase[jobs] == Phase.RUNNING).all())
        if sated is not None:
            people = People.of(sated)
        else:
            seeds = People.of(offer.now[None]).join(memory.population.rows(ids, nodes))
            people, _ = self.search.run(
                seeds, lambda each: offer.fitness(each, self.power), offer.space, view.rng("evolve")
            )
        wants = _wants(ids, people.head(1))
        wants += [
            Want(job, int(view.jobs.size[job] or view.jobs.gpus[job]))
            for job in movable[~plain].tolist()
        ]
        towards(view, wants, self.place)
        kept = Population.of(ids, people)
        return GoodputMemory(view.now + self.every, kept, largest, rests)

    def _offer(self, view: View, ids: Ids, largest: dict[int, int]) -> Offer:
        now = _held(view, ids)
        up = np.array(view.ledger.up)
        room = np.where(up, np.array(view.ledger.free_count) + now.sum(axis=0), 0)
        shapes = [view.draft.shape(job) for job in ids.tolist()]
        least = np.array([max(shape.least, 1) for shape in shapes], np.int64)
        may, kinds = _where(view, ids)
        most = np.array([shape.most for shape in shapes], np.int64)
        most = np.minimum(most, np.minimum((may * room).sum(axis=1), 32767))
        fair = np.clip(room.sum() // max(len(ids), 1), least, np.maximum(most, least))
        grown = [self.growth * largest.get(job, 0) for job in ids.tolist()]
        most = np.maximum(np.minimum(most, np.array(grown, np.int64)), least)
        speed = _speeds(view, ids, kinds, int(max(most.max(initial=1), fair.max(initial=1))))
        widest = max(int(room.max(initial=1)), 1)
        base = speed[np.arange(len(ids)), np.minimum(-(-fair // widest), speed.shape[1] - 1), fair]
        again = np.where(now.any(axis=1), after_restart(view, ids, self.restart), 1.0)
        small = np.int16
        space = Space(room.astype(small), least.astype(small), most.astype(small), may)
        return Offer(ids, space, now, speed / base[:, None, None], again)


def after_restart(view: View, ids: Ids, restart: int) -> Scores:
    """What a change now leaves of a job's speed: (age - restarts x cost) / (age + cost), the cost
    `restart` in microseconds (Pollux, section 4.2.1; Sia, section 3.3)."""
    age = view.now - view.jobs.submitted[ids]
    kept = np.maximum(age - restart * view.jobs.restarts[ids], 0)
    return np.asarray(kept / np.maximum(age + restart, 1))


def _largest(view: View, memory: GoodputMemory, jobs: Ids) -> dict[int, int]:
    """The most GPUs on which each of `jobs` has run so far."""
    sizes = np.where(view.jobs.phase[jobs] == Phase.RUNNING, view.jobs.size[jobs], 0)
    return {
        job: max(size, memory.largest.get(job, 0))
        for job, size in zip(jobs.tolist(), sizes.tolist(), strict=True)
        if size or job in memory.largest
    }


def _held(view: View, ids: Ids) -> Counts:
    """GPUs by job and node that the jobs of `ids` hold now."""
    now = np.zeros((len(ids), view.nodes.n), np.int16)
    for row, job in enumerate(ids.tolist()):
        held = view.draft.holds(job)
        for node, gpus in counted(held) if held is not None else ():
            now[row, node] = gpus
    return now


def _where(view: View, ids: Ids) -> tuple[NDArray[np.bool_], list[str]]:
    """Nodes that each job may use (those of its preferred type that can hold it), and that type."""
    may = np.zeros((len(ids), view.nodes.n), np.bool_)
    kinds = [""] * len(ids)
    codes = view.jobs.shape[ids]
    for code in np.unique(codes).tolist():
        shape, alike = view.jobs.shapes[code], np.flatnonzero(codes == code)
        cells = view.ledger.cells_for(shape)
        room = dict[str, int]()
        for cell in cells:
            room[cell.gpu_type] = room.get(cell.gpu_type, 0) + cell.total
        able = [kind for kind, gpus in room.items() if gpus >= shape.least]
        kind = next(iter([*able, *room]), "")
        for row in alike.tolist():
            kinds[row] = kind
        for cell in cells:
            if cell.gpu_type == kind:
                may[alike[:, None], cell.nodes] = True
    return may, kinds


def _speeds(view: View, ids: Ids, kinds: list[str], most: int) -> Scores:
    """Throughput (goodput) of each job by (nodes, GPUs) up to `most`; 0 where nodes exceed GPUs."""
    spread = min(view.nodes.n, most)
    out = np.zeros((len(ids), spread + 1, most + 1))
    nodes, gpus = np.arange(1, spread + 1)[:, None], np.arange(1, most + 1)
    for kind in sorted(set(kinds)):
        rows = np.flatnonzero([each == kind for each in kinds])
        asked = np.broadcast_to(gpus, (len(rows), spread, most))
        told = view.oracle.throughput(view, ids[rows][:, None, None], kind, gpus, nodes)
        if told.shape != asked.shape or np.isnan(told).any():
            told = asked / np.maximum(view.jobs.gpus[ids[rows]], 1)[:, None, None]
        out[rows, 1:, 1:] = np.where(nodes <= gpus, np.maximum(told, 1e-12), 0.0)
    return out


def _wants(ids: list[int], one: People) -> list[Want]:
    """What an individual gives to whom."""
    where: dict[int, list[tuple[int, int]]] = {}
    cells = zip(one.row.tolist(), one.node.tolist(), one.gpus.tolist(), strict=True)
    for row, node, gpus in cells:
        where.setdefault(row, []).append((node, gpus))
    return [
        Want(ids[row], sum(gpus for _, gpus in there), "", 0, tuple(there))
        for row, there in where.items()
    ]
