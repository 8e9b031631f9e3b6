"""Pollux' cluster decision (OSDI 2021, section 4.2): a genetic search over how many GPUs of which
node every job gets, for the fairest and largest goodput. The oracle tells goodput by (nodes, GPUs).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.events import ANYTHING, CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Placement, Plan, Reason
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.units import NEVER
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_speed
from ganger.mechanisms.common.reasons import decides_at
from ganger.mechanisms.common.reconcile import Want, above_sleepers, competitors, towards
from ganger.mechanisms.common.speed_cache import SpeedCache, Width, answers
from ganger.mechanisms.placement.place import PACK, Placer, counted
from ganger.mechanisms.sizing.elastic import resizable
from ganger.recipes.training.goodput.genetic import (
    Counts,
    Genetic,
    People,
    Population,
    Scores,
    Space,
)

Counted = tuple[tuple[int, int], ...]
"""(node, GPUs) of a placement."""
FLOOR = 1e-2
"""The least speedup that counts: of a job without GPUs the power mean would be nothing."""


class GoodputMemory(msgspec.Struct, frozen=True):
    """What Pollux remembers: when the next decision is due, the last population, and the most GPUs
    on which each job has run."""

    due: int
    population: Population = Population()
    largest: dict[int, int] = {}
    resting: bool = False
    """Whether it decides before `wake` only if something happens."""
    wake: int = NEVER
    quiet: int = 0
    """The time of the first search on the inputs that `inputs` is a checksum of."""
    inputs: int = 0


class Wishes(NamedTuple):
    """By job: the GPUs that it would like best; its speedup with them, and what it is worth as it
    is; whether it may as well stay."""

    asks: Ids
    best: Scores
    have: Scores
    stays: NDArray[np.bool_]


class Offer(NamedTuple):
    """What a search decides on. `now`: jobs x nodes as held; `speed[c, k, n]`: of a job of class c
    on n GPUs over k nodes; `of[j]`: the class of job j, `fair[j]` its speed with its fair share;
    `again[j]`: the factor on its speedup if it is moved."""

    ids: Ids
    space: Space
    now: Counts
    speed: Scores
    of: Ids
    fair: Scores
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
        values = self.speed[np.tile(self.of, size), nodes, gpus].reshape(size, jobs) / self.fair
        values = np.where(moved.reshape(size, jobs), values * self.again, values)
        return np.maximum(values, FLOOR)

    def rests(self, people: Counts) -> bool:
        """Whether `people` is what runs, and nobody could be faster even if moving cost nothing."""
        if (people[0] != self.now).any():
            return False
        fastest = self.best(self.allowed())
        return bool((self.values(People.of(people))[0] >= fastest - 1e-9).all())

    def checksum(self) -> int:
        """Of all that a search depends on but speeds, the jobs' age and chance."""
        parts = (self.ids, self.now, *self.space)
        return zlib.crc32(b"".join(np.ascontiguousarray(part).tobytes() for part in parts))

    def allowed(self) -> NDArray[np.bool_]:
        """jobs x numbers of GPUs: whether the job may have so many."""
        gpus, space = np.arange(self.speed.shape[2]), self.space
        most = np.maximum(space.most, space.least)
        return np.asarray((gpus >= space.least[:, None]) & (gpus <= most[:, None]))

    def best(self, allowed: NDArray[np.bool_]) -> Scores:
        """The highest speedup of each job, wherever it is."""
        fastest = self.speed.max(axis=1)[self.of]
        return np.asarray(np.where(allowed, fastest, 0.0).max(axis=1, initial=0.0) / self.fair)

    def wishes(self) -> Wishes:
        """The best that each job could have at all, packed on as few nodes as it takes."""
        allowed = self.allowed()
        best = self.best(allowed)
        spread = self._spread(np.arange(self.speed.shape[2]))
        packed = self.speed[:, spread, np.arange(len(spread))][self.of] / self.fair[:, None]
        asks = (np.where(allowed, packed, 0.0) >= best[:, None]).argmax(axis=1)
        have = self.values(People.of(self.now[None]))[0]
        return Wishes(asks, best, have, (have >= best * self.again) & self.now.any(axis=1))

    def sated(self, wishes: Wishes) -> Counts | None:
        """An individual in which every job has the best that it could have at all, if one is found
        by letting jobs that have it stay and placing the others, the largest first, on the fullest
        nodes with room: then there is nothing to search for. (1, jobs, nodes)."""
        asks, best, have, stays = wishes
        people = np.where(stays[:, None], self.now, 0).astype(np.int16)
        room = self.space.room - people.sum(axis=0)
        moves = np.flatnonzero(~stays)
        if asks[moves].sum() > room[self.space.may[moves].any(axis=0)].sum():
            return None
        for job in moves[np.argsort(-asks[moves], kind="stable")].tolist():
            if not self._put(people, room, job, int(asks[job])):
                return None
        spans = (people > 0).sum(axis=1) > 1
        shared = (people[spans] > 0).sum(axis=0).max(initial=0) > 1
        if (room < 0).any() or (self.space.apart and shared):
            return None
        reached = self.values(People.of(people[None]))[0]
        return (
            people[None] if (reached >= np.maximum(best * self.again, have) - 1e-9).all() else None
        )

    def filled(self, wishes: Wishes) -> Counts:
        """An individual to begin with: what runs, waiting jobs beside it, the smallest first, and
        then jobs that find room for the best that they could have, those that gain most first."""
        asks, best, have, stays = wishes
        people = self.now.copy()
        room = self.space.room - people.sum(axis=0)
        waits = ~people.any(axis=1)
        some = np.flatnonzero(waits)
        for job in some[np.argsort(asks[some], kind="stable")].tolist():
            self._put(people, room, job, int(asks[job]))
        some = np.flatnonzero(~stays & ~waits)
        for job in some[np.argsort(have[some] / best[some], kind="stable")].tolist():
            held = people[job].copy()
            people[job] = 0
            room += held
            if not self._put(people, room, job, int(asks[job])):
                people[job] = held
                room -= held
        return people[None]

    def _spread(self, gpus: Ids) -> Ids:
        """The fewest nodes that so many GPUs take."""
        packed = -(-gpus // max(int(self.space.room.max(initial=1)), 1))
        return np.asarray(np.minimum(packed, self.speed.shape[1] - 1))

    def _put(self, people: Counts, room: Counts, job: int, many: int) -> bool:
        """Place a job on the fullest nodes with room; whether there were any."""
        spread = int(self._spread(np.array(many)))
        nodes = np.flatnonzero(self.space.may[job] & (room >= -(-many // (spread or 1))))
        if not many or len(nodes) < spread:
            return False
        for node in nodes[np.argsort(room[nodes], kind="stable")][:spread].tolist():
            taken = min(many, int(room[node]))
            people[job, node] = taken
            room[node] -= taken
            many -= taken
        return True


@dataclass(frozen=True)
class GoodputPolicy:
    """Re-decides every `every` microseconds, and at once where nothing runs.

    `power`: p of the mean; `restart`: what a re-allocation costs, microseconds; `growth`: how many
    times the most GPUs that it ever ran on a job may get; `rows`: how many jobs one search is
    about: of more, waiting jobs, the first come first, for up to half of them, and a draw of
    running ones.

    `rests`: it waits for something to happen where each decision until then would be the same.
    Where a search about all jobs left everything as it is and speeds do not change with time, only
    the jobs' age changes what a search can find, and the next one comes when the time for which the
    inputs have been the same has doubled: until then no job's age has more than doubled.

    Only plain shapes take part; others get what they ask for where there is room. On several GPU
    types a job stays on the first one that can hold it.
    """

    name: str
    search: Genetic
    every: int
    power: float
    restart: int
    rests: bool
    rows: int
    growth: int = 2
    place: Placer = PACK

    def decide(self, view: View, memory: GoodputMemory | None) -> tuple[Plan, GoodputMemory]:
        """Search if it is time."""
        memory = memory or GoodputMemory(view.now)
        jobs = competitors(view)
        if memory.resting:
            missed = max(-((memory.due - view.now) // self.every), 0)
            due = min(memory.due + missed * self.every, memory.wake)
            memory = msgspec.structs.replace(memory, due=due, resting=False, wake=NEVER)
        if len(jobs) and (view.now >= memory.due or not len(view.active)):
            memory = self._search(view, memory, jobs)
        wake = memory.wake if memory.resting else memory.due
        wake = wake if len(jobs) else NEVER
        until = CAPACITY_FREED | CAPACITY_LOST | QUEUED | COMMANDED | WOKE
        if memory.resting:
            until = ANYTHING
        reasons = [Reason("Resources", "GoodputPolicy", evidence=decides_at(wake), until=until)]
        reasons = reasons if len(view.pending) else []
        return view.draft.plan(reasons, wake, until), memory

    def _search(self, view: View, memory: GoodputMemory, jobs: Ids) -> GoodputMemory:
        largest = _largest(view, memory, jobs)
        movable = resizable(view, jobs)
        shapes, shape = _shapes(view, movable)
        plain = np.array([each.plain for each in shapes], np.bool_)[shape]
        every = movable[plain]
        some = self._some(view, every)
        others = np.setdiff1d(every, some) if len(some) < len(every) else some[:0]
        offer = self._offer(view, some, others, largest)
        ids, nodes = offer.ids.tolist(), view.nodes.n
        wishes = offer.wishes()
        sated = offer.sated(wishes)
        if sated is not None:
            people = People.of(sated)
        else:
            seeds = People.of(np.concatenate([offer.now[None], offer.filled(wishes)]))
            if not len(others):  # a population of other jobs is no use
                seeds = seeds.join(memory.population.rows(ids, nodes))
            people, _ = self.search.run(
                seeds, lambda each: offer.fitness(each, self.power), offer.space, view.rng("evolve")
            )
        stays, wants = _wants(view, offer, people.head(1))
        wants += [
            Want(job, int(view.jobs.size[job] or view.jobs.gpus[job]))
            for job in movable[~plain].tolist()
        ]
        stays += others[view.jobs.phase[others] != Phase.PENDING].tolist()
        stays += above_sleepers(view)
        towards(view, wants, self.place, stays)
        kept = Population() if len(others) else Population.of(ids, people)
        due = view.now + self.every
        inputs = offer.checksum()
        quiet = memory.quiet if inputs == memory.inputs else view.now
        wake = due
        if self.rests and plain.all() and not len(others):
            if sated is not None and offer.rests(sated) and _all_run(view, jobs):
                wake = NEVER
            elif view.oracle.steady and (people.head(1).dense()[0] == offer.now).all():
                wake += max(view.now - quiet - self.every, 0)
        return GoodputMemory(due, kept, largest, wake > due, wake, quiet, inputs)

    def _some(self, view: View, ids: Ids) -> Ids:
        """Those of `ids` that a search is about."""
        if len(ids) <= self.rows:
            return ids
        waits = view.jobs.phase[ids] == Phase.PENDING
        first, runs = ids[waits][: max(self.rows // 2, 1)], ids[~waits]
        if len(runs) > self.rows - len(first):
            runs = view.rng("rows").choice(runs, self.rows - len(first), replace=False)
        return np.sort(np.concatenate([first, runs]))

    def _offer(self, view: View, ids: Ids, others: Ids, largest: dict[int, int]) -> Offer:
        now = _held(view, ids)
        up = np.array(view.ledger.up)
        room = np.where(up, np.array(view.ledger.free_count) + now.sum(axis=0), 0)
        shapes, shape = _shapes(view, ids)
        least = np.array([max(each.least, 1) for each in shapes], np.int64)[shape]
        may = np.array([each.may for each in shapes], np.bool_).reshape(len(shapes), len(room))
        most = np.array([each.most for each in shapes], np.int64)
        most = np.minimum(most, np.minimum((may * room).sum(axis=1), 32767))[shape]
        each = (room.sum() + view.jobs.size[others].sum()) // max(len(ids) + len(others), 1)
        fair = np.clip(each, least, np.maximum(most, least))
        grown = [self.growth * largest.get(job, 0) for job in ids.tolist()]
        most = np.maximum(np.minimum(most, np.array(grown, np.int64)), least)
        kinds = [shapes[code].kind for code in shape.tolist()]
        holds = now.sum(axis=1)  # more than its most, where a node that it is on takes no others
        width = int(max(most.max(initial=1), fair.max(initial=1), holds.max(initial=0)))
        speed, of = speeds(view, ids, kinds, width)
        widest = max(int(room.max(initial=1)), 1)
        alone = speed[of, np.minimum(-(-fair // widest), speed.shape[1] - 1), fair]
        again = np.where(now.any(axis=1), after_restart(view, ids, self.restart), 1.0)
        small = np.int16
        space = Space(room.astype(small), least.astype(small), most.astype(small), may[shape])
        return Offer(ids, space, now, speed, of, alone, again)


def after_restart(view: View, ids: Ids, restart: int) -> Scores:
    """What a change now leaves of a job's speed: (age - restarts x cost) / (age + cost), the cost
    `restart` in microseconds (Pollux, section 4.2.1; Sia, section 3.3)."""
    age = view.now - view.jobs.submitted[ids]
    restarts = view.jobs.restarts[ids].astype(np.int64)  # times microseconds they outgrow 32 bits
    kept = np.maximum(age - restart * restarts, 0)
    return np.asarray(kept / np.maximum(age + restart, 1))


def _all_run(view: View, jobs: Ids) -> bool:
    return bool((view.jobs.phase[jobs] == Phase.RUNNING).all())


def _largest(view: View, memory: GoodputMemory, jobs: Ids) -> dict[int, int]:
    """The most GPUs on which each of `jobs` has run so far."""
    sizes = np.where(view.jobs.phase[jobs] == Phase.RUNNING, view.jobs.size[jobs], 0)
    return {
        job: max(size, memory.largest.get(job, 0))
        for job, size in zip(jobs.tolist(), sizes.tolist(), strict=True)
        if size or job in memory.largest
    }


class _CountedHoldings:
    """By job: a placement, and its GPUs by node."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[int, tuple[Placement, Counted]] = {}


def _held(view: View, ids: Ids) -> Counts:
    """GPUs by job and node that the jobs of `ids` hold now."""
    now = np.zeros((len(ids), view.nodes.n), np.int16)
    known = view.cached(_CountedHoldings).found
    if len(known) > 2 * len(ids) + 64:
        known.clear()
    rows: list[int] = []
    cells: list[tuple[int, int]] = []
    for row, job in enumerate(ids.tolist()):
        held = view.draft.holds(job)
        if held is None:
            continue
        told = known.get(job)
        if told is None or told[0] is not held:
            told = known[job] = held, counted(held)
        cells += told[1]
        rows += [row] * len(told[1])
    if rows:
        nodes, gpus = np.array(cells, np.int64).T
        now[rows, nodes] = gpus
    return now


class _Shape(NamedTuple):
    """What jobs of one shape may have. `kind`: the GPU type of the nodes that they `may` use, the
    first preferred one that can hold them."""

    plain: bool
    least: int
    most: int
    kind: str
    may: NDArray[np.bool_]


class _KnownShapes:
    """By code: what jobs of a shape may have, on the nodes and cells that were `there`."""

    __slots__ = ("found", "there")

    def __init__(self) -> None:
        self.there: tuple[int, tuple[int, ...]] | None = None
        self.found: dict[int, _Shape] = {}


def _shapes(view: View, ids: Ids) -> tuple[list[_Shape], Ids]:
    """The shapes of `ids`, and by job which of these is its own."""
    there = view.nodes.n, tuple(cell.total for cell in view.ledger.cells)
    known = view.cached(_KnownShapes)
    if known.there != there:
        known.there, known.found = there, {}
    codes, shape = np.unique(view.jobs.shape[ids], return_inverse=True)
    found = []
    for code in codes.tolist():
        if code not in known.found:
            known.found[code] = _shape(view, code)
        found.append(known.found[code])
    return found, shape


def _shape(view: View, code: int) -> _Shape:
    shape = view.jobs.shapes[code]
    cells = view.ledger.cells_for(shape)
    room = dict[str, int]()
    for cell in cells:
        room[cell.gpu_type] = room.get(cell.gpu_type, 0) + cell.total
    able = [kind for kind, gpus in room.items() if gpus >= shape.least]
    kind = next(iter([*able, *room]), "")
    may = np.zeros(view.nodes.n, np.bool_)
    for cell in cells:
        if cell.gpu_type == kind:
            may[cell.nodes] = True
    return _Shape(shape.is_plain, shape.least, shape.most, kind, may)


class _Goodput(SpeedCache):
    """Goodput by nodes and GPUs, on the type that each prefers."""


def speeds(view: View, ids: Ids, kinds: list[str], most: int) -> tuple[Scores, Ids]:
    """Throughput (goodput) by class, nodes and GPUs up to `most` or more, of the jobs of `ids`
    (ascending) on the GPU type of each; 0 where nodes exceed GPUs; and the class of each job. Jobs
    of a class have equal speeds throughout."""

    def ask(some: Ids, width: Width) -> Scores:
        of = np.searchsorted(ids, some).tolist()
        return _speeds(view, some, [kinds[row] for row in of], width[0] - 1, width[1] - 1)

    there = view.nodes.n, tuple(cell.total for cell in view.ledger.cells)
    return answers(view, _Goodput, ids, there, (min(view.nodes.n, most) + 1, most + 1), ask)


def _speeds(view: View, ids: Ids, kinds: list[str], spread: int, most: int) -> Scores:
    """Throughput of each job over up to `spread` nodes, on up to `most` GPUs."""
    out = np.zeros((len(ids), spread + 1, most + 1))
    nodes, gpus = np.arange(1, spread + 1)[:, None], np.arange(1, most + 1)
    for kind in sorted(set(kinds)):
        rows = np.flatnonzero([each == kind for each in kinds])
        speed = believed_speed(view, ids[rows][:, None, None], kind, gpus, nodes)
        out[rows, 1:, 1:] = np.where(nodes <= gpus, np.maximum(speed, 1e-12), 0.0)
    return out


def _wants(view: View, offer: Offer, one: People) -> tuple[list[int], list[Want]]:
    """Who stays as it runs in an individual, and what it gives to others."""
    ids, jobs = offer.ids, view.jobs
    gpus = np.bincount(one.row, one.gpus, one.jobs).astype(np.int64)
    same = (gpus > 0) & (one.dense()[0] == offer.now).all(axis=1) & (jobs.size[ids] == gpus)
    others = ~same[one.row]
    where: dict[int, list[tuple[int, int]]] = {}
    cells = zip(*(column[others].tolist() for column in one[3:]), strict=True)
    for row, node, count in cells:
        where.setdefault(row, []).append((node, count))
    names = ids.tolist()
    return ids[same].tolist(), [
        Want(names[row], sum(gpus for _, gpus in there), "", 0, tuple(there))
        for row, there in where.items()
    ]
