"""What each job holds: the books over what is free. A policy may only read them (`view.ledger`).

Every change can be undone: `mark()`, then `rollback(mark)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum

from ganger.core.books.bits import lowest, members, pick_devices
from ganger.core.books.fit import Capacity, Cell, Fit
from ganger.core.books.holdings import KEPT, Holdings
from ganger.core.books.occupancy import Occupancy, may_doze
from ganger.core.books.stock import Columns, Room, rooms, share_of
from ganger.core.errors import InvariantError
from ganger.core.plan import Placement, Slot
from ganger.core.spec import Needs, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.units import WHOLE

__all__ = ["Cell", "Fit", "Ledger", "Room", "lowest", "members", "pick_devices", "rooms"]


class Did(Enum):
    """What a step of the trail did, which undoing it has to know."""

    TOOK = "took"
    REGAINED = "regained"
    GAVE = "gave"
    LEFT = "gave, and is to be waited for"
    LEFT_ASLEEP = "left, which was asleep"
    REGAINED_ASLEEP = "regained, and sleeps on"
    DOZED = "fell asleep"
    WOKE = "woke"


# Looking an enum's member up costs more than what is done with it.
_TOOK, _REGAINED, _GAVE, _LEFT, _LEFT_ASLEEP, _REGAINED_ASLEEP, _DOZED, _WOKE = Did


class Ledger(Occupancy):
    """What every job holds on a set of nodes, and what is free there."""

    deciding = False
    """Whether a policy decides now: it draws what it wants, and only facts write the books."""

    def __init__(self, nodes: Nodes, within: Mapping[int, Room] | None = None) -> None:
        super().__init__(nodes, within)
        self.holds = Holdings()
        self.leaving: dict[int, list[tuple[int, int, int, int]]] = {}
        """Per node: (job, devices, CPUs, host memory) that are promised free but not given back
        yet."""
        self.asleep: set[int] = set()
        """Those of `holds` that hold memory only: the compute of their devices is not theirs."""
        self.going: dict[int, int] = {}
        """Nodes that are down by notice only, and when they will be gone."""
        self.trail: list[tuple[int, tuple[Shape, Placement] | None, Did]] = []
        """What can be undone, oldest first."""

    # ------------------------------------------------------------------ take and give

    def take(self, job: int, shape: Shape, placement: Placement) -> None:
        """Give `placement` to `job`. Raises InvariantError if any of it is not free."""
        if job in self.holds:
            raise InvariantError(f"job {job} holds devices already")
        for slot in placement:
            if not self.up[slot.node]:
                raise InvariantError(f"node {slot.node} is down")
        self._occupy(shape, placement)
        self.holds[job] = (shape, placement)
        self.holds.note(job)
        self.trail.append((job, None, _TOOK))

    def give(self, job: int, *, leaving: bool = False) -> Placement:
        """Take back what `job` holds; `leaving`: free to plan with, but not given back yet, as a
        sleeping job always is.

        Raises InvariantError if it holds nothing.
        """
        held = self.holds.pop(job, None)
        if held is None:
            raise InvariantError(f"job {job} holds no devices")
        self.holds.note(job)
        if job in self.asleep:
            self._forget_asleep(job, *held)
            self._leave(job, *held)
            self.trail.append((job, held, _LEFT_ASLEEP))
            return held[1]
        self._vacate(*held)
        if leaving:
            self._leave(job, *held)
        self.trail.append((job, held, _LEFT if leaving else _GAVE))
        return held[1]

    def regain(self, job: int, shape: Shape, placement: Placement, *, asleep: bool = False) -> None:
        """`job`, which was leaving `placement`, keeps it after all, asleep if it was."""
        if asleep:
            self.lay_down(job, shape, placement)
            self._has_left(job, placement)
            self.trail.append((job, None, _REGAINED_ASLEEP))
            return
        before = self._free_around(placement)
        self.take(job, shape, placement)
        self._never_returned(before)
        self._has_left(job, placement)
        self.trail[-1] = (job, None, _REGAINED)

    def free_up(self, job: int) -> None:
        """`job` is gone and so is what it held: a fact, which is not undone."""
        if self.deciding:
            self._refuse_policies()
        shape, placement = self.holds.pop(job)
        self.holds.note(job)
        if job in self.asleep:
            self._forget_asleep(job, shape, placement)
        else:
            self._vacate(shape, placement)

    def doze(self, job: int) -> None:
        """`job` keeps its memory, of devices and host; others may compute where it did. Raises
        InvariantError if it holds nothing that it could yield."""
        shape, placement = self.holds.get(job, (None, ()))
        if shape is None or job in self.asleep or not may_doze(shape):
            raise InvariantError(
                f"job {job} yields no compute: it holds none, or states no gpu_memory that it keeps"
            )
        self._vacate(shape, placement)
        self._hold_memory(shape, placement, hold=True)
        self.asleep.add(job)
        self.trail.append((job, None, _DOZED))

    def wake(self, job: int) -> bool:
        """`job`, which is asleep, has its compute again, also on a node that takes no others.
        Whether it was free; otherwise nothing changes."""
        shape, placement = self.holds[job]
        returned = self._returned(placement)
        self._hold_memory(shape, placement, hold=False)
        try:
            self._occupy(shape, placement)
        except InvariantError:
            self._hold_memory(shape, placement, hold=True)
            return False
        finally:  # nothing was given back to others
            self._set_returned(returned)
        self.asleep.remove(job)
        self.trail.append((job, None, _WOKE))
        return True

    def left_asleep(self, job: int) -> bool:
        """Whether `job` was asleep when it was last stopped, which can still be undone."""
        last = next((did for who, _, did in reversed(self.trail) if who == job), None)
        return last is _LEFT_ASLEEP

    def lay_down(self, job: int, shape: Shape, placement: Placement) -> None:
        """`job`, which was asleep on `placement`, sleeps there again. Raises InvariantError if a
        job computes there that does not say how much memory it takes."""
        for slot in placement:
            self._count_memory_above(slot)
        self.holds[job] = (shape, placement)
        self.holds.note(job)
        self._hold_memory(shape, placement, hold=True)
        self.asleep.add(job)

    def _count_memory_above(self, slot: Slot) -> None:
        """Somebody who has a GPU of `slot` whole, with nobody asleep there, gets its memory
        counted, so that another sleeps below it."""
        node = slot.node
        whole = slot.devices & ~self.free_mask[node] & ~self._among_shared(node, slot.devices)
        for device in members(whole):
            memory = next(
                (
                    shape.roles[each.role].needs.gpu_memory
                    for job, (shape, placement) in self.holds.items()
                    if job not in self.asleep
                    for each in placement
                    if each.node == node and each.devices >> device & 1
                ),
                0,
            )
            if not memory:
                raise InvariantError(f"device {device} of node {node} is taken")
            self._share(node, 1 << device, WHOLE, memory, take=True)

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self.trail)

    def rollback(self, mark: int) -> None:
        """Undo every step since `mark`."""
        while len(self.trail) > mark:
            job, gave, did = self.trail.pop()
            if did is _DOZED or did is _WOKE:
                self._turn_back(job, did)
                continue
            if gave is None:  # a take, or a regain
                shape, placement = self.holds.pop(job)
                self.holds.note(job)
                if did is _REGAINED_ASLEEP:
                    self._forget_asleep(job, shape, placement)
                else:
                    self._vacate(shape, placement)
                if did is not _TOOK:
                    self._leave(job, shape, placement)
                continue
            shape, placement = gave
            if did is not _GAVE:
                self._has_left(job, placement)
            if did is _LEFT_ASLEEP:
                self.lay_down(job, shape, placement)
                continue
            before = self._free_around(placement)
            self._occupy(shape, placement)
            self._never_returned(before)
            self.holds[job] = gave
            self.holds.note(job)

    def _turn_back(self, job: int, did: Did) -> None:
        """Undo that `job` fell asleep, or that it woke."""
        shape, placement = self.holds[job]
        if did is _DOZED:
            self._forget_asleep(job, shape, placement)
            self._occupy(shape, placement)
        else:
            self._vacate(shape, placement)
            self.lay_down(job, shape, placement)

    def _returned(self, placement: Placement) -> list[tuple[Cell, int]]:
        """What has been given back in the cells of `placement`."""
        return [(cell, cell.returned) for cell in [self.cell_of[slot.node] for slot in placement]]

    @staticmethod
    def _set_returned(before: list[tuple[Cell, int]]) -> None:
        """What was given back since `before` does not count."""
        for cell, returned in before:
            cell.returned = returned

    def settle(self) -> None:
        """Forget how to undo: all that was done stands."""
        if self.deciding:
            self._refuse_policies()
        self.trail.clear()
        if len(self.holds.noted) > 2 * KEPT:
            self.holds.forget()

    def gone(self, job: int, placement: Placement) -> None:
        """`job` has let go of `placement`, which it was leaving."""
        if self.deciding:
            self._refuse_policies()
        self._has_left(job, placement)

    def _has_left(self, job: int, placement: Placement) -> None:
        for slot in placement:
            there = self.leaving.get(slot.node, ())
            for at, (other, devices, _, _) in enumerate(there):
                if other == job and devices == slot.devices:
                    del self.leaving[slot.node][at]
                    if not there:
                        del self.leaving[slot.node]
                    break

    def waits(self, placement: Placement, shape: Shape | None = None) -> tuple[int, ...]:
        """The jobs that still have to let go of some of `placement`, ascending: of its devices, or
        of CPUs and host memory that a job of `shape`, which holds it, cannot have beside them."""
        if not self.leaving:
            return ()
        found = set[int]()
        for slot in placement:
            there = self.leaving.get(slot.node)
            if not there:
                continue
            short = shape is not None and self._short(shape.roles[slot.role].needs, slot.node)
            for job, devices, cpus, memory in there:
                if devices & slot.devices or not slot.devices or (short and (cpus or memory)):
                    found.add(job)
        return tuple(sorted(found)) if len(found) > 1 else tuple(found)

    def _short(self, needs: Needs, node: int) -> bool:
        """Whether those who hold and those who leave CPUs or host memory of the node, whichever is
        needed, have more of it together than there is."""
        there = self.leaving[node]
        return bool(
            (needs.cpus and self.free_cpus[node] < sum(each[2] for each in there))
            or (needs.memory and self.free_memory[node] < sum(each[3] for each in there))
        )

    def is_free(self, shape: Shape, placement: Placement) -> bool:
        """Whether exactly `placement` could be taken now."""
        known = self._known.get(id(shape)) or self._learn(shape)
        if known.plain and not (placement and placement[0].share):
            for slot in placement:
                if slot.devices & ~self.free_mask[slot.node] or not self.up[slot.node]:
                    return False
            return True
        mark, returned = self.mark(), self._returned(placement)
        try:
            self.take(-1, shape, placement)
        except InvariantError:
            return False
        finally:
            self.rollback(mark)
            self._set_returned(returned)
        return True

    def switch(self, node: int, *, up: bool) -> None:
        """A node comes or goes. What is held there stays held until its jobs are released."""
        self._refuse_policies()
        if self.up[node] != up:
            self._switch(node, up)

    @contextmanager
    def hidden(self, nodes: list[int]) -> Iterator[None]:
        """Search and draw as if `nodes` were down. Nothing else is allowed meanwhile."""
        up = [node for node in nodes if self.up[node]]
        for node in up:
            self._switch(node, False)
        try:
            yield
        finally:
            for node in up:
                self._switch(node, True)

    @contextmanager
    def without(self, devices: Mapping[int, int]) -> Iterator[None]:
        """Search as if `devices` (node to mask) were not there. Only searching is allowed
        meanwhile."""
        out = {node: mask & self.free_mask[node] for node, mask in devices.items()}
        returned = {self.cell_of[node]: self.cell_of[node].returned for node in out}
        for node, mask in out.items():
            self._count_out(node, mask)
        try:
            yield
        finally:
            for node, mask in out.items():
                self._count_in(node, mask)
            for cell, before in returned.items():
                cell.returned = before

    def _refuse_policies(self) -> None:
        if self.deciding:  # those that are called for every job ask before they call this
            raise InvariantError("a policy cannot write the books: draw a plan by view.draft")

    def _switch(self, node: int, up: bool) -> None:
        cell, room = self.cell_of[node], self.free_count[node]
        sign = 1 if up else -1
        cell.by_free[room] ^= self.bit[node]
        cell.free += sign * room
        cell.total += sign * self.full[node].bit_count()
        cell.stale |= self.bit[node]
        self.up[node] = up

    def withhold(self, node: int, gpus: int) -> int:
        """Take GPUs of a node out of the books, or put them back, until `gpus` are out; how many
        that leaves out too few because they are held. Those that somebody is leaving, last."""
        out = self.withheld(node)
        if out.bit_count() > gpus:
            self.count_in(node, pick_devices(out, out.bit_count() - gpus, 0))
            return 0
        free, wanted = self.free_mask[node], gpus - out.bit_count()
        leaving = 0
        for _, devices, _, _ in self.leaving.get(node, ()):
            leaving |= devices
        taken = self._highest(free & ~leaving, wanted)
        taken |= self._highest(free & leaving, wanted - taken.bit_count())
        self.count_out(node, taken)
        return wanted - taken.bit_count()

    def withheld(self, node: int) -> int:
        """The devices of a node that are out of the books, as a mask."""
        return ((1 << int(self.nodes.gpus[node])) - 1) & ~self.full[node]

    @staticmethod
    def _highest(mask: int, count: int) -> int:
        chosen = 0
        while count > chosen.bit_count() and mask & ~chosen:
            chosen |= 1 << (mask & ~chosen).bit_length() - 1
        return chosen

    def count_out(self, node: int, devices: int) -> None:
        """Take free devices of a node out of the books."""
        self._refuse_policies()
        self._count_out(node, devices)

    def _count_out(self, node: int, devices: int) -> None:
        self._take_devices(node, devices)
        self.full[node] &= ~devices
        if self.up[node]:
            self.cell_of[node].total -= devices.bit_count()

    def count_in(self, node: int, devices: int) -> None:
        """Put devices of a node that were out of the books back, free."""
        self._refuse_policies()
        self._count_in(node, devices)

    def _count_in(self, node: int, devices: int) -> None:
        self.full[node] |= devices
        self._return_devices(node, devices)
        if self.up[node]:
            self.cell_of[node].total += devices.bit_count()

    def leave(self, job: int, shape: Shape, placement: Placement) -> None:
        """`job` is leaving `placement`, which others may plan with."""
        self._refuse_policies()
        self._leave(job, shape, placement)

    def _leave(self, job: int, shape: Shape, placement: Placement) -> None:
        for slot in placement:
            needs = shape.roles[slot.role].needs
            has = job, slot.devices, needs.cpus * slot.workers, needs.memory * slot.workers
            self.leaving.setdefault(slot.node, []).append(has)

    def _forget_asleep(self, job: int, shape: Shape, placement: Placement) -> None:
        self.asleep.remove(job)
        self._hold_memory(shape, placement, hold=False)

    # ------------------------------------------------------------------ checks

    def check(self) -> None:
        """Raise InvariantError unless the books agree with what every job holds."""
        held = [0] * self.nodes.n
        shares = {
            (node, device): WHOLE - share
            for node, room in (self.within or {}).items()
            for device, (share, _) in room.parts.items()
        }
        owned = list(self.full)
        for node, device in shares:
            owned[node] |= 1 << device
        for job, (shape, placement) in self.holds.items():
            for slot in placement:
                share = share_of(shape.roles[slot.role].needs, slot)
                if job in self.asleep:
                    share = 0
                for device in members(slot.devices):
                    key = slot.node, device
                    if share < WHOLE or device in self.shared[slot.node]:
                        shares[key] = shares.get(key, 0) + share
                    elif held[slot.node] >> device & 1:
                        raise InvariantError(f"job {job} shares whole devices of node {slot.node}")
                    else:
                        held[slot.node] |= 1 << device
        for (node, device), used in shares.items():
            if used > WHOLE or held[node] >> device & 1:
                raise InvariantError(f"device {device} of node {node} is over its capacity")
            held[node] |= 1 << device
        for node, mask in enumerate(held):
            if self.free_mask[node] != self.full[node] & ~mask or mask & ~owned[node]:
                raise InvariantError(f"node {node}: free {self.free_mask[node]:#b}, held {mask:#b}")
        self._check_host()
        for cell in self.cells:
            self._check_cell(cell)

    def _check_host(self) -> None:
        """CPUs and host memory: what is free and what is held are all that there is."""
        cpus, memory = self.free_cpus.copy(), self.free_memory.copy()
        for job, (shape, placement) in self.holds.items():
            for slot in placement:
                needs = shape.roles[slot.role].needs
                cpus[slot.node] += 0 if job in self.asleep else needs.cpus * slot.workers
                memory[slot.node] += needs.memory * slot.workers
        fresh = Capacity(self.nodes, self.within)
        if (cpus, memory) != (fresh.free_cpus, fresh.free_memory):
            raise InvariantError("CPUs or host memory are not what is held and what is free")
        if min(self.free_cpus + self.free_memory, default=0) < 0:
            raise InvariantError("more CPUs or host memory are held than there are")

    def _check_cell(self, cell: Cell) -> None:
        free = 0
        for local, node in enumerate(cell.nodes):
            here = [k for k, bits in enumerate(cell.by_free) if bits >> local & 1]
            expected = [self.free_mask[node].bit_count()] if self.up[node] else []
            if here != expected:
                raise InvariantError(f"node {node} is filed under {here}, not {expected}")
            free += sum(expected)
        if free != cell.free:
            raise InvariantError(f"cell {cell.index} counts {cell.free} free GPUs, has {free}")
        dozing = [used for node in cell.nodes for used, _ in self.shared[node].values()].count(0)
        if dozing != cell.dozing:
            raise InvariantError(f"cell {cell.index} counts {cell.dozing} idle GPUs, has {dozing}")
        if cell.columns is not None:
            self._check_columns(cell)

    def _check_columns(self, cell: Cell) -> None:
        """Columns that were kept up to date say what columns made anew would."""
        kept = self.columns(cell)
        for local in range(len(cell.nodes)):
            fresh = Columns(kept.rack)
            self._refresh(cell, fresh, local)
            for name in ("gpus", "cpus", "memory", "share", "dozing", "empty"):
                if getattr(kept, name)[local] != getattr(fresh, name)[local]:
                    raise InvariantError(f"node {cell.nodes[local]}: column {name} is out of date")
