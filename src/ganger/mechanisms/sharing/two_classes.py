"""Guaranteed jobs, and opportunistic ones beside them that get what they leave (AntMan, OSDI 2020;
TGS, NSDI 2023)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import Any, ClassVar, Final, NamedTuple

from ganger.core.books.ledger import Cell, Ledger, members
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED
from ganger.core.plan import Placement, Plan, Slot, Start, Tune
from ganger.core.profiles import UNSTATED, Memory
from ganger.core.spec import Locality
from ganger.core.state.jobs import Phase
from ganger.core.units import WHOLE
from ganger.core.view import View
from ganger.mechanisms.common.holdings_delta import HoldingsDelta
from ganger.mechanisms.common.reconcile import with_share
from ganger.mechanisms.ordering.admit import Quotas, Walk
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.placement.place import Place

GUARANTEED: Final = 1.0
OPPORTUNISTIC: Final = 0.0
"""What a job of either class requests of its devices' time."""
_RUNNING, _STARTING = int(Phase.RUNNING), int(Phase.STARTING)

Device = tuple[int, int]
"""Node, and number in it."""


class Load(NamedTuple):
    """What a model is believed to take of each of its GPUs: a part of the time, and memory."""

    compute: float
    memory: Memory


class Loads:
    """By model and number of GPUs: its load; None where its part of the time is not known."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], Load | None] = {}

    def of(self, view: View, job: int) -> Load | None:
        """That of a job that asks for whole GPUs and for nothing else; None for any other."""
        if not view.draft.shape(job).is_plain:
            return None
        key = view.at.model[job], view.at.gpus[job]
        if key not in self.known:
            profile = view.oracle.profile(view.jobs.models[key[0]])
            compute = profile.compute(key[1])
            known = compute == compute  # not a NaN
            self.known[key] = Load(compute, profile.memory or UNSTATED) if known else None
        return self.known[key]


class OnDevice:
    """The jobs on one device: of each whether it is guaranteed, and its load."""

    __slots__ = ("jobs",)

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[bool, Load]] = {}

    @property
    def guaranteed(self) -> bool:
        """Whether a guaranteed job is there."""
        return any(firm for firm, _ in self.jobs.values())

    @property
    def busy(self) -> float:
        """The part of its time that is in use."""
        return min(sum(load.compute for _, load in self.jobs.values()), 1.0)

    def summary(self) -> Use:
        """Its use, worked out once for all that are asked about it."""
        firm = [load.memory.peak for is_firm, load in self.jobs.values() if is_firm]
        loose = [load.memory for is_firm, load in self.jobs.values() if not is_firm]
        return Use(
            self.busy,
            sum(firm) + sum(memory.peak for memory in loose),
            sum(firm),
            all(memory.iteration for memory in loose),
            len(loose),
        )


class Use(NamedTuple):
    """How a device is used: the part of its time; MiB that its jobs need at their peaks, and its
    guaranteed ones; whether the memory of all opportunistic ones can move to the host; and how
    many these are."""

    busy: float
    memory: float
    kept: float
    moves: bool
    loose: int

    def has_memory(self, memory: Memory, size: int, *, firm: bool) -> bool:
        """Whether one more job fits into `size` MiB, or all the opportunistic ones could move to
        the host what does not. What is guaranteed stays."""
        if self.memory + memory.peak <= size:
            return True
        kept = self.kept + (memory.peak if firm else 0.0)
        return kept <= size and self.moves and (firm or memory.iteration > 0.0)


EMPTY: Final = Use(0.0, 0.0, 0.0, True, 0)
"""A device that nobody uses."""


class Classes:
    """Which class each job that holds shares is of, and which jobs each device has: a cache, kept
    level with the books. The class of a job is the request of its last Tune."""

    def __init__(self) -> None:
        self.loads = Loads()
        self.on: dict[Device, OnDevice] = {}
        self.where: dict[int, tuple[bool, tuple[Device, ...]]] = {}
        """By job: whether it is guaranteed, and its devices."""
        self.open: dict[Device, Use] = {}
        """Devices without a guaranteed job."""
        self.joinable: dict[Device, Use] = {}
        """Devices that one more opportunistic job may come to, if it has memory there."""
        self.drawn: dict[int, bool] = {}
        """By job that starts or changes its class in this decision: whether it is guaranteed."""
        self._delta = HoldingsDelta()
        self._seen = (-1, -1)
        self._dirty = set[Device]()
        self._loose = set[int]()
        self._used: dict[int, int] | None = None

    def look(self, view: View) -> None:
        """Catch up with the books."""
        now = view.revision, view.draft.mark()
        if now == self._seen:
            return
        if now[0] != self._seen[0]:
            before, self.drawn = self.drawn, {}
            for job in before:
                if job in self.where:
                    self.turn(view, job, firm=self._is_firm(view, job))
        self._seen = now
        gone, come = self._delta.changes(view.ledger)
        if gone or come:
            self._used = None
        for job in gone:
            self._remove(job)
        for job, placement in come:
            if placement and placement[0].share:
                self._add(view, job, placement, firm=self._is_firm(view, job))

    def _is_firm(self, view: View, job: int) -> bool:
        if job in self.drawn:
            return self.drawn[job]
        return view.knobs.get(job, {}).get("request", GUARANTEED) != OPPORTUNISTIC

    def _add(self, view: View, job: int, placement: Placement, *, firm: bool) -> None:
        load = self.loads.of(view, job) or Load(1.0, UNSTATED)
        devices = tuple((slot.node, each) for slot in placement for each in members(slot.devices))
        self._class(job, firm, devices)
        for device in devices:
            self.on.setdefault(device, OnDevice()).jobs[job] = firm, load
        self._dirty.update(devices)

    def _class(self, job: int, firm: bool, devices: tuple[Device, ...]) -> None:
        self.where[job] = firm, devices
        (self._loose.discard if firm else self._loose.add)(job)

    def _remove(self, job: int) -> None:
        _, devices = self.where.pop(job, (True, ()))
        self._loose.discard(job)
        for device in devices:
            guests = self.on[device].jobs
            del guests[job]
            if not guests:
                del self.on[device]
        self._dirty.update(devices)

    def file(self, joinable: Callable[[Use], bool]) -> None:
        """Put the devices that changed where they belong."""
        for device in self._dirty:
            self.open.pop(device, None)
            self.joinable.pop(device, None)
            guests = self.on.get(device)
            if guests is None:
                continue
            use = guests.summary()
            if not guests.guaranteed:
                self.open[device] = use
            if joinable(use):
                self.joinable[device] = use
        self._dirty.clear()

    def turn(self, view: View, job: int, *, firm: bool) -> None:
        """The job is of this class from now on."""
        _, devices = self.where[job]
        self._class(job, firm, devices)
        for device in devices:
            guests = self.on[device].jobs
            guests[job] = firm, guests[job][1]
        self._dirty.update(devices)
        self._used = None

    @property
    def any_loose(self) -> bool:
        """Whether any job that holds devices is opportunistic."""
        return bool(self._loose)

    def unaccompanied(self) -> list[int]:
        """The opportunistic jobs on whose devices no guaranteed job is, ascending."""
        on = {job for device in self.open for job in self.on[device].jobs}
        return sorted(job for job in on if all(d in self.open for d in self.where[job][1]))

    def used(self, view: View) -> dict[int, int]:
        """GPUs of guaranteed jobs, by tenant code; all that hold devices without shares are."""
        if self._used is not None:
            return self._used
        self._used = used = dict[int, int]()
        at = view.at
        for job, (_, placement) in view.ledger.holds.items():
            if self.where.get(job, (True, ()))[0]:
                gpus = sum(slot.devices.bit_count() for slot in placement)
                used[at.tenant[job]] = used.get(at.tenant[job], 0) + gpus
        return used


@dataclass(frozen=True, kw_only=True)
class GuaranteedFirst(Place):
    """A job within its tenant's quota gets free GPUs, else GPUs where only opportunistic jobs are,
    and is guaranteed there. Any other, and one for which there are no such GPUs, is opportunistic:
    on the GPUs of one node that are used least, each used for less than `busy` of its time, with
    jobs that need less than `bound` MiB there at their peaks (0: no bound), and with fewer than
    `beside` other opportunistic ones.

    Only jobs that ask for whole GPUs and nothing else, and whose models' use of a GPU is known,
    share; each holds an equal share of its GPUs. Any other is guaranteed, on GPUs of its own.
    """

    by_room: ClassVar[bool] = False
    sizes: ClassVar[bool] = True  # no free GPU is needed

    busy: float
    bound: int
    beside: int
    quotas: Quotas = field(default_factory=Quotas)

    @property
    def share(self) -> int:
        """Thousandths that each job holds that shares."""
        return WHOLE // (self.beside + 1)

    def kind(self, view: View, job: int) -> int:
        """By model, since each has another load, and by tenant where there are quotas."""
        tenant = view.at.tenant[job] + 1 if self.quotas.limits(view) else 0
        return int(view.at.model[job]) << 12 | min(tenant, 4095)

    def within_quota(self, view: View, job: int) -> bool:
        """Whether the tenant may have so many guaranteed GPUs more."""
        limit = self.quotas.limits(view).get(view.at.tenant[job])
        if limit is None:
            return True
        used = view.cached(Classes).used(view).get(view.at.tenant[job], 0)
        asked: int = view.at.gpus[job]
        return used + asked <= limit

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """GPUs as guaranteed, else as opportunistic."""
        known = view.cached(Classes)
        known.look(view)
        known.file(self.joinable)
        load = known.loads.of(view, job)
        cells = ledger.cells_for(view.draft.shape(job)) if cells is None else cells
        if self.within_quota(view, job):
            need = gpus or view.at.gpus[job]
            free = sum(cell.free for cell in cells) >= need
            placement = super().find(view, ledger, job, cells, gpus) if free else None
            if placement is not None and load is None:
                return placement
            placement = placement or (
                load and self._over_opportunists(view, ledger, job, cells, load)
            )
            if placement is not None:
                known.drawn[job] = True
                return with_share(placement, self.share)
        placement = load and self._beside(view, ledger, job, cells, load)
        if placement is None:
            return None
        known.drawn[job] = False
        return with_share(placement, self.share)

    def _over_opportunists(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell], load: Load
    ) -> Placement | None:
        """GPUs that are free, or where only opportunistic jobs are: on the node that has fewest,
        if one has enough, else, if the job may span nodes, on those that have most."""
        known, need = view.cached(Classes), view.at.gpus[job]
        shape = view.draft.shape(job)
        for cell in cells:
            size = _memory_of(ledger, cell)
            masks = _free(ledger, cell)
            for (node, device), use in known.open.items():
                if not self._has_room(ledger, cell, node, device):
                    continue
                if use.has_memory(load.memory, size, firm=True):
                    masks[node] = masks.get(node, 0) | 1 << device
            rooms = sorted((mask.bit_count(), node) for node, mask in masks.items() if mask)
            whole = next(((count, node) for count, node in rooms if count >= need), None)
            if whole is not None and shape.locality != Locality.ISLAND:
                return (Slot(whole[1], _lowest(masks[whole[1]], need), need),)
            if shape.locality != Locality.ANY or sum(count for count, _ in rooms) < need:
                continue
            slots, missing = list[Slot](), need
            for count, node in sorted(rooms, key=lambda room: (-room[0], room[1])):
                part = min(count, missing)
                slots.append(Slot(node, _lowest(masks[node], part), part))
                missing -= part
                if not missing:
                    return tuple(slots)
        return None

    def _beside(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell], load: Load
    ) -> Placement | None:
        """The GPUs of one node that are used least, free ones first."""
        known, need = view.cached(Classes), view.at.gpus[job]
        best: tuple[float, int, list[int]] | None = None
        for cell in cells if view.draft.shape(job).locality != Locality.ISLAND else ():
            size = _memory_of(ledger, cell)
            free = _free(ledger, cell) if EMPTY.has_memory(load.memory, size, firm=False) else {}
            able: dict[int, list[tuple[float, int]]] = {
                node: [(0.0, device) for device in members(mask)] for node, mask in free.items()
            }
            for (node, device), use in known.joinable.items():
                if not self._has_room(ledger, cell, node, device):
                    continue
                if use.has_memory(load.memory, size, firm=False):
                    able.setdefault(node, []).append((use.busy, device))
            for node, devices in able.items():
                if len(devices) < need:
                    continue
                chosen = sorted(devices)[:need]
                total = sum(map(itemgetter(0), chosen))
                if best is None or (total, node) < best[:2]:
                    best = total, node, [device for _, device in chosen]
        if best is None:
            return None
        return (Slot(best[1], sum(1 << device for device in best[2]), need),)

    def _has_room(self, ledger: Ledger, cell: Cell, node: int, device: int) -> bool:
        """Whether a shared device of the cell has a share left: under another recipe its jobs may
        have got larger ones."""
        used, _ = ledger.shared[node].get(device, (WHOLE, 0))
        return ledger.cell_of[node] is cell and ledger.up[node] and used + self.share <= WHOLE

    def why_beside(
        self, view: View, memory: Any, job: int, others: Sequence[int]
    ) -> tuple[tuple[str, float], ...]:
        """For an opportunistic job: what others may use of its GPUs, and what they do."""
        known = view.cached(Classes)
        known.look(view)
        firm, devices = known.where.get(job, (True, ()))
        if firm:
            return ()
        on = [known.on[device].jobs for device in devices]
        used = max(sum(jobs[each][1].compute for each in jobs if each != job) for jobs in on)
        return (("use_by_others_below_part", self.busy), ("use_by_others_part", round(used, 6)))

    def joinable(self, use: Use) -> bool:
        """Whether one more opportunistic job may be there, as far as its memory allows."""
        bounded = not self.bound or use.memory < self.bound
        return use.busy < self.busy and bounded and use.loose < self.beside


def _memory_of(ledger: Ledger, cell: Cell) -> int:
    """MiB of each of its devices."""
    nodes = ledger.nodes
    size: int = nodes.type_specs[nodes.gpu_type[cell.nodes[0]]].memory
    return size


def _free(ledger: Ledger, cell: Cell) -> dict[int, int]:
    """By node that is up and has any: its free devices, as a mask."""
    if not cell.free:
        return {}
    free, up = ledger.free_mask, ledger.up
    return {node: free[node] for node in cell.nodes if free[node] and up[node]}


def _lowest(mask: int, count: int) -> int:
    """The first so many devices of a mask."""
    return sum(1 << device for device in islice(members(mask), count))


@dataclass(frozen=True)
class TwoClasses:
    """First come, first served, past those for which there is no place, by
    `place`. With `promotes` an opportunistic job becomes guaranteed where it is as soon as its
    tenant's quota allows that and no guaranteed job is on its GPUs. `control` cuts the rate of
    opportunistic jobs; `settle_s` is what it takes (see `sim.tenancy`)."""

    name: str
    place: GuaranteedFirst
    control: str
    settle_s: float
    promotes: bool

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Which jobs become guaranteed, which start, and on what terms."""
        known = view.cached(Classes)
        known.look(view)
        turned = self._promote(view, known) if self.promotes else []
        plan, _ = self._queue.decide(view, None)
        for job in turned:
            plan.actions.append(self._terms(job, view.at.attempt[job], firm=True))
        started = [a for a in plan.actions if isinstance(a, Start) and a.job in known.drawn]
        plan.actions += [self._terms(a.job, a.attempt, firm=known.drawn[a.job]) for a in started]
        for job in sorted(view.inherited - set(turned)):
            if job in known.where:
                attempt, firm = view.at.attempt[job], known.where[job][0]
                plan.actions.append(self._terms(job, attempt, firm=firm))
        if self.promotes and (known.any_loose or not all(known.drawn.values())):
            plan.until |= CAPACITY_FREED | CAPACITY_LOST | COMMANDED
        return plan, None

    @cached_property
    def _queue(self) -> QueuePolicy:
        return QueuePolicy(self.name, walk=Walk.SKIP, place=self.place)

    def _terms(self, job: int, attempt: int, *, firm: bool) -> Tune:
        knobs: dict[str, Any] = {"request": GUARANTEED if firm else OPPORTUNISTIC}
        return Tune(job, attempt, knobs | {"control": self.control, "settle_s": self.settle_s})

    def _promote(self, view: View, known: Classes) -> list[int]:
        """The opportunistic jobs that become guaranteed now, the first to come first."""
        turned = list[int]()
        at, active = view.at, set(view.active.tolist() if known.any_loose else ())
        known.file(self.place.joinable)
        for job in known.unaccompanied():
            if job not in active or at.phase[job] not in (_RUNNING, _STARTING):
                continue
            if any(known.on[device].guaranteed for device in known.where[job][1]):
                continue  # one that was beside it has become so just now
            if self.place.within_quota(view, job):
                known.turn(view, job, firm=True)
                known.drawn[job] = True
                turned.append(job)
        return turned
