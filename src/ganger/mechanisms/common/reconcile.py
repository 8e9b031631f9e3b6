"""From what is wanted to what is done: compare with what runs, and draw only the difference.

`towards` is the one place where hysteresis-free targets become starts, stops and resizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.books.ledger import Cell, Ledger, members
from ganger.core.plan import Placement
from ganger.core.spec import OnPreempt
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.mechanisms.placement.place import PACK, Placer, counted, on_nodes

_MOVABLE = (int(Phase.STARTING), int(Phase.RUNNING))
STAYS = (int(OnPreempt.NEVER), int(OnPreempt.KILL))


class Want(NamedTuple):
    """A job that should run on `gpus` GPUs of `gpu_type` ("" for any); `least` if it must be.

    `nodes`: (node, GPUs), ascending, where the place is decided too; only for plain shapes.
    `share`: thousandths that it holds of each GPU, 0 for what it asks for; `beside`: the jobs that
    should be on the same GPUs, if any.
    """

    job: int
    gpus: int
    gpu_type: str = ""
    least: int = 0
    nodes: tuple[tuple[int, int], ...] = ()
    share: int = 0
    beside: tuple[int, ...] = ()


class Sizes(NamedTuple):
    """What jobs should run on, in order of precedence: `gpus[i]` GPUs of any type for `ids[i]`."""

    ids: Ids
    gpus: Ids


def towards(
    view: View, wanted: Sequence[Want], place: Placer = PACK, stays: Iterable[int] = ()
) -> None:
    """Draw the way from what runs to exactly `wanted`, given in order of precedence, while those of
    `stays` run as they do.

    Jobs that run as wanted are not touched; those not wanted stop, unless they must not be
    preempted or would lose all their work, for such jobs might never end; the others are placed
    in order, smaller (down to `least`) where there is not room, and where they were if that makes
    no difference in size: a move for nothing would be undone by the next decision, and so on.
    """
    phase, on_preempt, holds = view.at.phase, view.at.on_preempt, view.ledger.holds
    kept = {
        job
        for job in view.active.tolist()
        if phase[job] not in _MOVABLE or on_preempt[job] in STAYS
    }
    suits = [
        want
        for want in wanted
        if want.job in holds and want.job not in kept and _runs_so(view, want)
    ]
    if any(want.share for want in wanted):
        suits = _with_room(view, suits, kept)
    kept.update(want.job for want in suits)
    kept.update(stays)
    stops = [job for job in view.active.tolist() if job not in kept]
    _go(view, stops, (want for want in wanted if want.job not in kept), place)


def towards_sizes(view: View, wanted: Sizes, place: Placer = PACK) -> None:
    """`towards` for sizes alone, while jobs that compute over the memory of sleeping ones run as
    they do. A job that runs as wanted costs no time of its own."""
    jobs, active = view.jobs, view.active
    suits, new = np.zeros(len(active), np.bool_), np.ones(len(wanted.ids), np.bool_)
    if len(new):
        order = np.argsort(wanted.ids, kind="stable")
        at = order[np.minimum(np.searchsorted(wanted.ids, active, sorter=order), len(order) - 1)]
        there = wanted.ids[at] == active
        suits = there & ((wanted.gpus[at] == jobs.size[active]) | (jobs.gpus[active] == 0))
    stays = suits | staying(view, active) | ~_movable(view, active)
    above = above_sleepers(view)
    if above:  # as in `resizable`
        stays |= np.isin(active, list(above))
    if len(new):
        new[at[there & stays]] = False
    rows = zip(wanted.ids[new].tolist(), wanted.gpus[new].tolist(), strict=True)
    wants = (Want(job, gpus, "", least_of(view, job, gpus)) for job, gpus in rows)
    for want in _go(view, active[~stays].tolist(), wants, place):
        _make_way(view, want, active[stays].tolist(), place)


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
        if placed(view, want, place) is not None:
            return
    draft.rollback(before)


def least_of(view: View, job: int, gpus: int) -> int:
    """The least that will do where `gpus` are not to be had: less only if the first role alone
    has GPUs, since all elasticity is that role's."""
    shape = view.draft.shape(job)
    return gpus if any(role.needs.gpus for role in shape.roles[1:]) else shape.least


def _go(view: View, stops: Iterable[int], wanted: Iterable[Want], place: Placer) -> list[Want]:
    """Stop those of `stops`, and place those who are `wanted`; for whom there was no room."""
    draft = view.draft
    stopped = {job: draft.stop(job) for job in stops}
    return [want for want in wanted if placed(view, want, place, stopped.get(want.job)) is None]


def _fixed(view: View, job: int) -> bool:
    return view.at.phase[job] not in _MOVABLE or view.at.on_preempt[job] in STAYS


def _with_room(view: View, wants: Sequence[Want], fixed: set[int]) -> list[Want]:
    """Those of `wants` whose jobs can stay where they are without another being there who is not
    wanted beside them: the earlier go first, the `fixed` before all."""
    owner: dict[tuple[int, int], int] = {}
    where: dict[int, Placement] = {}
    stay: list[Want] = []
    order = [Want(job, 0) for job in sorted(fixed) if job in view.ledger.holds]
    for want in [*order, *wants]:
        held = view.ledger.holds[want.job][1]
        unit = max((want.job, *want.beside))
        devices = [(slot.node, device) for slot in held for device in members(slot.devices)]
        alone = all(owner.get(device, unit) == unit for device in devices)
        if want.job in fixed or (alone and where.get(unit, held) == held):
            owner |= dict.fromkeys(devices, unit)
            where[unit] = held
            stay.append(want)
    return stay


def _runs_so(view: View, want: Want) -> bool:
    if not view.at.gpus[want.job]:
        return True  # without GPUs there is nothing to resize
    if view.at.size[want.job] != want.gpus:
        return False
    held = view.ledger.holds[want.job][1]
    if want.beside and held[0].share != want.share:
        return False
    if want.nodes:
        return counted(held) == want.nodes
    return not want.gpu_type or view.ledger.cell_of[held[0].node].gpu_type == want.gpu_type


def cells_of(ledger: Ledger, view: View, job: int, gpu_type: str) -> list[Cell]:
    """Where `job` may be placed if it must be on `gpu_type` ("": any)."""
    cells = ledger.cells_for(view.draft.shape(job))
    return [cell for cell in cells if not gpu_type or cell.gpu_type == gpu_type]


def placed(
    view: View, want: Want, place: Placer, held: Placement | None = None
) -> Placement | None:
    """Draw a start of `want`, or let it stay on what it `held`; None if there is no room."""
    ledger = view.ledger
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
    """Beside those wanted there, else where it was if nobody else is there, else anywhere."""
    draft, shape = view.draft, view.draft.shape(want.job)
    beside = next(filter(None, map(draft.holds, want.beside)), None)
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


class _Sharable:
    """By model: whether it is known how fast it runs beside some other."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[int, bool] = {}


def sharable(view: View, job: int) -> bool:
    """Whether the job may have another beside it on its GPUs: it asks for GPUs and nothing else,
    can be preempted, and it is known how fast its model runs beside some other."""
    known = view.cached(_Sharable).found
    model = view.at.model[job]
    if model not in known:
        known[model] = view.oracle.profile(view.jobs.models[model]).shares
    return known[model] and view.at.on_preempt[job] not in STAYS and view.draft.shape(job).is_plain


def competitors(view: View) -> Ids:
    """Jobs that wait or hold devices, ascending."""
    if not len(view.pending):
        return view.active
    return np.sort(np.concatenate([view.pending, view.active]))


def above_sleepers(view: View) -> set[int]:
    """Jobs that compute on GPUs of whose memory sleeping jobs keep some."""
    ledger, below = view.ledger, dict[int, int]()
    for job in ledger.asleep:
        for slot in ledger.holds[job][1]:
            below[slot.node] = below.get(slot.node, 0) | slot.devices
    if not below:
        return set()
    return {
        job
        for job, (_, held) in ledger.holds.items()
        if job not in ledger.asleep and any(below.get(slot.node, 0) & slot.devices for slot in held)
    }


def _movable(view: View, ids: Ids) -> NDArray[np.bool_]:
    """Which of `ids` start or run."""
    phase = view.jobs.phase[ids]
    found: NDArray[np.bool_] = (phase == _MOVABLE[0]) | (phase == _MOVABLE[1])
    return found


def staying(view: View, ids: Ids) -> NDArray[np.bool_]:
    """Which of `ids` must not be preempted, or would lose all their work."""
    on_preempt = view.jobs.on_preempt[ids]
    found: NDArray[np.bool_] = (on_preempt == STAYS[0]) | (on_preempt == STAYS[1])
    return found


def among(these: Ids, those: Ids) -> NDArray[np.bool_]:
    """Which of `these` are in `those` (ascending)."""
    if not len(those):
        return np.zeros(len(these), np.bool_)
    at = np.minimum(np.searchsorted(those, these), len(those) - 1)
    found: NDArray[np.bool_] = those[at] == these
    return found
