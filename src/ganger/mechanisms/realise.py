"""From what is wanted to what is done: compare with what runs, and draw only the difference.

`towards` is the one place where hysteresis-free targets become starts, stops and resizes;
`RoundPolicy` gives fractional allocations their share of time in rounds (Gavel, OSDI 2020,
section 5), `TargetPolicy` makes jobs the size that an elastic allocator wants.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeGuard

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.allocation import Allocation, Share
from ganger.core.events import (
    CAPACITY_FREED,
    CAPACITY_LOST,
    COMMANDED,
    QUEUED,
    WOKE,
    NodeDown,
    NodeUp,
    Withheld,
)
from ganger.core.jobs import Phase
from ganger.core.ledger import Cell, Ledger, members
from ganger.core.plan import Placement, Plan, Reason
from ganger.core.spec import OnPreempt
from ganger.core.table import Ids
from ganger.core.units import NEVER, WHOLE
from ganger.core.view import View
from ganger.mechanisms.fair import Notes
from ganger.mechanisms.place import PACK, Placer, counted, on_nodes
from ganger.mechanisms.turn import rows_of, served

_MOVABLE = (int(Phase.STARTING), int(Phase.RUNNING))
_STAYS = (int(OnPreempt.NEVER), int(OnPreempt.KILL))


HALF = WHOLE // 2
"""What a job holds of each of its GPUs that lets one more in: with nobody there it has them all."""
_STOPPING = int(Phase.STOPPING)
_ALL = 0.999
"""A part of the time that is as good as all of it."""


class Want(NamedTuple):
    """A job that should run on `gpus` GPUs of `gpu_type` ("" for any); `least` if it must be.

    `nodes`: (node, GPUs), ascending, where the place is decided too; only for plain shapes.
    `share`: thousandths that it holds of each GPU, 0 for what it asks for; `beside`: the job that
    should be on the same GPUs, if any.
    """

    job: int
    gpus: int
    gpu_type: str = ""
    least: int = 0
    nodes: tuple[tuple[int, int], ...] = ()
    share: int = 0
    beside: int = -1


class Sizes(NamedTuple):
    """What jobs should run on, in order of precedence: `gpus[i]` GPUs of any type for `ids[i]`."""

    ids: Ids
    gpus: Ids


class Allocator(Protocol):
    """Divides the cluster among jobs."""

    def allocate(self, view: View, ids: Ids) -> Allocation:
        """The allocation for the jobs of `ids` (ascending), all of which compete."""
        ...


class Remembering(Protocol):
    """An allocator whose answer depends on more of the past than the tables keep. `notes` are
    three numbers by job, part of the policy's memory; `remember` is called at every decision."""

    def remember(self, view: View, ids: Ids, notes: Notes) -> Notes:
        """The notes brought up to now; `notes` itself is left alone."""
        ...

    def allocate_from(self, view: View, ids: Ids, notes: Notes) -> Allocation:
        """The allocation for the jobs of `ids` (ascending), all of which compete."""
        ...


def remembers(allocator: Any) -> TypeGuard[Remembering]:
    """Whether it is one."""
    return hasattr(allocator, "remember")


def towards(view: View, wanted: Sequence[Want], place: Placer = PACK) -> None:
    """Draw the way from what runs to exactly `wanted`, given in order of precedence.

    Jobs that run as wanted are not touched; those not wanted stop, unless they must not be
    preempted or would lose all their work, for such jobs might never end; the others are placed
    in order, smaller (down to `least`) where there is not room, and where they were if that makes
    no difference in size: a move for nothing would be undone by the next decision, and so on.
    """
    by_job = {want.job: want for want in wanted}
    kept = {job for job in view.active.tolist() if _fixed(view, job)}
    suits = [want.job for want in wanted if want.job in view.ledger.holds
             and want.job not in kept and _runs_so(view, want)]  # fmt: skip
    if any(want.share for want in wanted):
        suits = _with_room(view, [by_job[job] for job in suits], kept)
    kept.update(suits)
    _go(view, kept, (want for want in wanted if want.job not in kept), place)


def towards_sizes(view: View, wanted: Sizes, place: Placer = PACK) -> None:
    """`towards` for sizes alone: whoever runs as wanted costs no time of its own."""
    jobs, active = view.jobs, view.active
    order = np.argsort(wanted.ids)
    at = np.minimum(np.searchsorted(wanted.ids[order], active), len(order) - 1)
    stays = np.zeros(len(active), np.bool_)
    if len(order):
        at = order[at]
        stays = wanted.ids[at] == active
        stays &= (wanted.gpus[at] == jobs.size[active]) | (jobs.gpus[active] == 0)
    phase, on_preempt = jobs.phase[active], jobs.on_preempt[active]
    stays |= (phase != _MOVABLE[0]) & (phase != _MOVABLE[1])
    stays |= (on_preempt == _STAYS[0]) | (on_preempt == _STAYS[1])
    kept = active[stays]
    new = ~among(wanted.ids, kept)
    rows = zip(wanted.ids[new].tolist(), wanted.gpus[new].tolist(), strict=True)
    wants = (Want(job, gpus, "", least_of(view, job, gpus)) for job, gpus in rows)
    for want in _go(view, set(kept.tolist()), wants, place):
        _make_way(view, want, kept.tolist(), place)


def _make_way(view: View, want: Want, running: Sequence[int], place: Placer) -> None:
    """Where there is no room for one, let those move who may as well be where it may not."""
    draft, ledger = view.draft, view.ledger
    its = {cell.index for cell in cells_of(ledger, view, want.job, "")}
    if not any(cell.free for cell in ledger.cells if cell.index not in its):
        return
    before = draft.mark()
    for job in running:
        held = draft.holds(job)
        if held is None or _fixed(view, job) or ledger.cell_of[held[0].node].index not in its:
            continue
        gpus = sum(slot.devices.bit_count() for slot in held)
        cells = [cell for cell in cells_of(ledger, view, job, "") if cell.index not in its]
        cells = [cell for cell in cells if cell.free >= gpus]
        if not cells or not gpus:
            continue
        here = draft.mark()
        draft.stop(job)
        placement = place.find(view, ledger, job, cells, gpus)
        if placement is None:
            draft.rollback(here)
            continue
        draft.start(job, placement)
        if _place(view, want, place) is not None:
            return
    draft.rollback(before)


def least_of(view: View, job: int, gpus: int) -> int:
    """The least that will do where `gpus` are not to be had: less only if the first role alone
    has GPUs, since all elasticity is that role's."""
    shape = view.draft.shape(job)
    return gpus if any(role.needs.gpus for role in shape.roles[1:]) else shape.least


def _go(view: View, kept: set[int], wanted: Iterable[Want], place: Placer) -> list[Want]:
    """Stop all but those who are `kept`, and place those who are `wanted`; for whom there was no
    room."""
    draft = view.draft
    stopped = {job: draft.stop(job) for job in view.active.tolist() if job not in kept}
    return [want for want in wanted if _place(view, want, place, stopped.get(want.job)) is None]


def _fixed(view: View, job: int) -> bool:
    return view.at.phase[job] not in _MOVABLE or view.at.on_preempt[job] in _STAYS


def _with_room(view: View, wants: Sequence[Want], fixed: set[int]) -> list[int]:
    """The jobs of `wants` that can stay where they are without another being there who is not
    wanted beside them: the earlier go first, the `fixed` before all."""
    owner: dict[tuple[int, int], int] = {}
    where: dict[int, Placement] = {}
    stay: list[int] = []
    order = [Want(job, 0) for job in sorted(fixed) if job in view.ledger.holds]
    for want in [*order, *wants]:
        held = view.ledger.holds[want.job][1]
        unit = max(want.job, want.beside)
        devices = [(slot.node, device) for slot in held for device in members(slot.devices)]
        alone = all(owner.get(device, unit) == unit for device in devices)
        if want.job in fixed or (alone and where.get(unit, held) == held):
            owner |= dict.fromkeys(devices, unit)
            where[unit] = held
            stay.append(want.job)
    return stay


def _runs_so(view: View, want: Want) -> bool:
    if not view.at.gpus[want.job]:
        return True  # without GPUs there is nothing to resize
    if view.at.size[want.job] != want.gpus:
        return False
    held = view.ledger.holds[want.job][1]
    if want.beside >= 0 and held[0].share != want.share:
        return False
    if want.nodes:
        return counted(held) == want.nodes
    return not want.gpu_type or view.ledger.cell_of[held[0].node].gpu_type == want.gpu_type


def cells_of(ledger: Ledger, view: View, job: int, gpu_type: str) -> list[Cell]:
    """Where `job` may be placed if it must be on `gpu_type` ("": any)."""
    cells = ledger.cells_for(view.draft.shape(job))
    return [cell for cell in cells if not gpu_type or cell.gpu_type == gpu_type]


def _place(
    view: View, want: Want, place: Placer, held: Placement | None = None
) -> Placement | None:
    """Draw a start of `want`, or let it stay on what it `held`; None if there is no room."""
    ledger = view.draft.ledger_of(want.job)
    if ledger is None:
        return None
    if want.nodes:
        placement = on_nodes(ledger, want.nodes)
        if placement is not None:
            view.draft.start(want.job, placement)
        return placement
    cells = cells_of(ledger, view, want.job, want.gpu_type)
    if want.share:
        return _place_shared(view, want, place, held, ledger, cells)
    for gpus in range(want.gpus, max(want.least or want.gpus, min(want.gpus, 1)) - 1, -1):
        if held is not None and gpus == sum(slot.devices.bit_count() for slot in held):
            suits = ledger.cell_of[held[0].node] in cells
            if suits and ledger.is_free(view.draft.shape(want.job), held):
                view.draft.restore(want.job, held)
                return held
        placement = place.find(view, ledger, want.job, cells, gpus)
        if placement is not None:
            view.draft.start(want.job, placement)
            return placement
    return None


def _place_shared(
    view: View, want: Want, place: Placer, held: Placement | None, ledger: Ledger, cells: list[Cell]
) -> Placement | None:
    """Beside the one wanted there, else where it was if nobody else is there, else anywhere."""
    draft, shape = view.draft, view.draft.shape(want.job)
    beside = draft.holds(want.beside) if want.beside >= 0 else None
    for found in (beside, held):
        if found is None or ledger.cell_of[found[0].node] not in cells:
            continue
        free = all(not slot.devices & ~ledger.free_mask[slot.node] for slot in found)
        found = with_share(found, want.share)
        if (free or found == beside) and ledger.is_free(shape, found):
            if found == held:
                draft.restore(want.job, found)
            else:
                draft.start(want.job, found)
            return found
    placement = place.find(view, ledger, want.job, cells, want.gpus)
    if placement is not None:
        placement = with_share(placement, want.share)
        draft.start(want.job, placement)
    return placement


def with_share(placement: Placement, share: int) -> Placement:
    """The same devices, so many thousandths of each."""
    return tuple(msgspec.structs.replace(slot, share=share) for slot in placement)


def sharable(view: View, job: int) -> bool:
    """Whether the job may have another beside it on its GPUs: it asks for GPUs and nothing else,
    can be preempted, and it is known how fast its model runs beside some other."""
    known = view.scratch.setdefault("sharable", {})
    model = view.at.model[job]
    if model not in known:
        told = view.oracle.profile(view.jobs.models[model]).measured
        known[model] = told is not None and bool(told.beside)
    return known[model] and view.at.on_preempt[job] not in _STAYS and view.draft.shape(job).is_plain


def competitors(view: View) -> Ids:
    """Jobs that wait or hold devices, ascending."""
    return np.sort(np.concatenate([view.pending, view.active]))


# ---------------------------------------------------------------------- rounds


class RoundMemory(msgspec.Struct):
    """What the round mechanism remembers. Times in microseconds."""

    allocation: Allocation
    since: int
    """When the allocation was made; fractions received count from there."""
    next_round: int
    received: bytes
    """The time that each row of the allocation has received, little-endian int64; nothing: none
    has."""
    last: int
    """Until when `received` is up to date."""
    jobs: list[int]
    """Who was allocated for."""
    notes: Notes = {}
    """What a `Remembering` allocator keeps."""


@dataclass(frozen=True)
class RoundPolicy:
    """Time-shares an allocation in rounds of `every` microseconds.

    In each round (job, type) pairs run in order of allocation over fraction received (Gavel's
    priority), never a job twice, until no more fit; larger gangs are placed first. A job that
    keeps its place is not interrupted; jobs without GPUs always run. `fill`: between rounds,
    waiting jobs start on GPUs that became free. A change of the job set makes a new allocation,
    at the next round.

    How far off: the rule is Adams' method of apportionment. With jobs of one GPU nobody is ever a
    round ahead of its fraction, so that after R rounds none of n jobs is off by n/R or more.
    With gangs on one type less is sure, for fractions that add up to its G GPUs may fit together
    in no round (two gangs of 2 and a job of 1 on 3 GPUs, 0.6 of the time each): a gang of g with
    fraction x has had at least (R b - s) / (b + G / x - g) of R rounds, where s GPUs are asked for
    by the others, b = G - g + d, and d divides G and all sizes. Who is kept out sees b GPUs taken
    by those before it, and each of these is before it only until it has had its part of what
    x had. Gangs of the whole type so end no more than n - 1 rounds of their own x behind.

    `pairs`: rows of two jobs put both on the same GPUs. Who may have another beside it holds half
    of its GPUs even when it is alone there, so that nobody is interrupted when a partner comes.
    """

    name: str
    allocator: Allocator
    every: int
    place: Placer = PACK
    fill: bool = True
    pairs: bool = False

    def decide(self, view: View, memory: RoundMemory | None) -> tuple[Plan, RoundMemory]:
        """At a round's boundary select anew, in between only fill what is free."""
        memory = self._account(view, memory)
        jobs = competitors(view)
        boundary = view.now >= memory.next_round or not len(view.active)
        if remembers(self.allocator) and _competition_changed(view, memory, jobs):
            memory.notes = self.allocator.remember(view, jobs, memory.notes)
        if boundary:
            if memory.jobs != jobs.tolist() or not len(memory.allocation):
                memory = msgspec.structs.replace(
                    memory, allocation=self._allocate(view, jobs, memory), since=view.now,
                    received=b"", jobs=jobs.tolist(),
                )  # fmt: skip
            memory.next_round = view.now + self.every
            towards(view, self._select(view, memory), self.place)
        elif self.fill:
            self._fill(view, memory)
        settled = not len(view.pending) and rows_of(view, memory.allocation).least > _ALL
        wake = NEVER if settled and memory.jobs == jobs.tolist() else memory.next_round
        reasons = [Reason("Priority", "rounds")] if len(view.pending) else []
        until = CAPACITY_FREED | CAPACITY_LOST | QUEUED | COMMANDED | WOKE
        return view.draft.plan(reasons, wake, until), memory

    def _allocate(self, view: View, jobs: Ids, memory: RoundMemory) -> Allocation:
        if remembers(self.allocator):
            memory.notes = self.allocator.remember(view, jobs, memory.notes)
            return self.allocator.allocate_from(view, jobs, memory.notes)
        return self.allocator.allocate(view, jobs)

    def _account(self, view: View, memory: RoundMemory | None) -> RoundMemory:
        """Book the time that every running job has had on its type since the last call."""
        if memory is None:
            return RoundMemory(Allocation(), view.now, view.now, b"", view.now, [])
        elapsed = view.now - memory.last
        if not elapsed:
            return msgspec.structs.replace(memory)
        rows = rows_of(view, memory.allocation)
        received = _received(memory) + elapsed * served(view, rows, sharing=self.pairs)
        return msgspec.structs.replace(
            memory, received=received.astype("<i8").tobytes(), last=view.now
        )

    def _select(self, view: View, memory: RoundMemory) -> list[Want]:
        """Who runs in the coming round, larger gangs first so that they find whole nodes."""
        free = {cell.index: cell.total for cell in view.ledger.cells}
        chosen: dict[int, Want] = {}
        at, fitting = view.at, dict[tuple[int, str], list[Cell]]()
        for job, (_, placement) in view.ledger.holds.items():
            if at.on_preempt[job] in _STAYS:
                chosen[job] = Want(job, at.size[job])
                free[view.ledger.cell_of[placement[0].node].index] -= at.size[job]
        rows, shares = rows_of(view, memory.allocation), memory.allocation.rows
        gpus, most = rows.gpus.tolist(), max(free.values(), default=0)
        for number in rows.ranked(_received(memory), max(view.now - memory.since, 1)):
            if gpus[number] > most:
                continue
            row = shares[number]
            job = row.jobs[0]
            if job in chosen or at.phase[job] > _STOPPING:
                continue
            if any(each in chosen or at.phase[each] > _STOPPING for each in row.jobs[1:]):
                continue
            kind = at.shape[job], row.gpu_type
            if kind not in fitting:
                fitting[kind] = cells_of(view.ledger, view, job, row.gpu_type)
            for cell in fitting[kind]:
                if free[cell.index] >= row.gpus:
                    free[cell.index] -= row.gpus
                    chosen |= {want.job: want for want in self._wants(view, row)}
                    most = max(free.values())
                    break
        jobs = competitors(view)
        without = [Want(job, 0) for job in jobs[view.jobs.gpus[jobs] == 0].tolist()]
        return [*sorted(chosen.values(), key=lambda want: -want.gpus), *without]

    def _fill(self, view: View, memory: RoundMemory) -> None:
        """Start who waits on what is free. One that finds no place answers for all its like."""
        at, most = view.at, max((cell.free for cell in view.ledger.cells), default=0)
        pending, jobs = view.pending, view.jobs
        able = pending[(jobs.gpus[pending] <= most) | (jobs.parent[pending] >= 0)]
        if not len(able):
            return
        waiting = set(pending.tolist())
        rows, every = rows_of(view, memory.allocation), memory.allocation.rows
        kept = among(rows.first, able)
        if rows.several:
            for number, row in enumerate(every):
                if len(row.jobs) > 1:
                    kept[number] = not waiting.isdisjoint(row.jobs)
        shares = [
            every[number]
            for number in rows.ranked(_received(memory), max(view.now - memory.since, 1), kept)
        ]
        new = able[~among(able, np.array(memory.jobs, np.int64))].tolist()
        shares += [Share((job,), "", at.gpus[job], 1.0) for job in new]
        full = set[tuple[int | str, ...]]()
        for want in (want for row in shares for want in self._wants(view, row)):
            job = want.job
            alike = (at.shape[job], at.parent[job], self.place.kind(view, job), want.gpus,
                     want.gpu_type, want.beside)  # fmt: skip
            if job not in waiting or alike in full:
                continue
            if _place(view, want, self.place):
                waiting.discard(job)
            else:
                full.add(alike)

    def _wants(self, view: View, row: Share) -> list[Want]:
        """What a row asks for, job by job."""
        job = row.jobs[0]
        if not self.pairs or not sharable(view, job):
            return [Want(job, row.gpus, row.gpu_type)]
        others = row.jobs[::-1] if len(row.jobs) > 1 else (-1,)
        return [
            Want(each, row.gpus, row.gpu_type, share=HALF, beside=other)
            for each, other in zip(row.jobs, others, strict=True)
        ]


def _received(memory: RoundMemory) -> Ids:
    """Microseconds by row."""
    if not memory.received:
        return np.zeros(len(memory.allocation), np.int64)
    return np.frombuffer(memory.received, "<i8")


def among(these: Ids, those: Ids) -> NDArray[np.bool_]:
    """Which of `these` are in `those` (ascending)."""
    if not len(those):
        return np.zeros(len(these), np.bool_)
    at = np.minimum(np.searchsorted(those, these), len(those) - 1)
    found: NDArray[np.bool_] = those[at] == these
    return found


def _competition_changed(view: View, memory: RoundMemory, jobs: Ids) -> bool:
    """Whether somebody came or went since the notes were taken, or a node did."""
    return jobs.tolist() != list(memory.notes) or any(
        isinstance(event, NodeDown | NodeUp | Withheld) for event in view.events
    )
