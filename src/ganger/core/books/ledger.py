"""Who holds what: the books over what is free.

Every change can be undone: `mark()`, then `rollback(mark)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ganger.core.books.bits import lowest, members, pick_devices
from ganger.core.books.fit import Capacity, Cell, Fit
from ganger.core.books.stock import Columns, Room, rooms, share_of
from ganger.core.errors import InvariantError
from ganger.core.plan import Placement, Slot
from ganger.core.spec import Needs, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.units import WHOLE

__all__ = ["Cell", "Fit", "Ledger", "Room", "lowest", "members", "pick_devices", "rooms"]


class Ledger(Capacity):
    """What every job holds on a set of nodes, and what is free there."""

    deciding = False
    """Whether a policy decides now: it draws what it wants, and only facts write the books."""

    def __init__(self, nodes: Nodes, within: Mapping[int, Room] | None = None) -> None:
        super().__init__(nodes, within)
        self.holds: dict[int, tuple[Shape, Placement]] = {}
        self.leaving: dict[int, list[tuple[int, int, int, int]]] = {}
        """Per node: (job, devices, CPUs, host memory) that are promised free but not given back
        yet."""
        self.trail: list[tuple[int, tuple[Shape, Placement] | None, bool]] = []
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
        self.trail.append((job, None, False))

    def give(self, job: int, *, leaving: bool = False) -> Placement:
        """Take back what `job` holds; `leaving`: free to plan with, but not given back yet.

        Raises InvariantError if it holds nothing.
        """
        held = self.holds.pop(job, None)
        if held is None:
            raise InvariantError(f"job {job} holds no devices")
        self._vacate(*held)
        if leaving:
            self._leave(job, *held)
        self.trail.append((job, held, leaving))
        return held[1]

    def regain(self, job: int, shape: Shape, placement: Placement) -> None:
        """`job`, which was leaving `placement`, keeps it after all."""
        before = self._free_around(placement)
        self.take(job, shape, placement)
        self._never_returned(before)
        self._has_left(job, placement)
        self.trail[-1] = (job, None, True)

    def free_up(self, job: int) -> None:
        """`job` is gone and so is what it held: a fact, which is not undone."""
        if self.deciding:
            self._refuse_policies()
        shape, placement = self.holds.pop(job)
        self._vacate(shape, placement)

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self.trail)

    def rollback(self, mark: int) -> None:
        """Undo every take, give and regain since `mark`."""
        while len(self.trail) > mark:
            job, gave, left = self.trail.pop()
            if gave is None:  # a take, or a regain if `left`
                shape, placement = self.holds.pop(job)
                self._vacate(shape, placement)
                if left:
                    self._leave(job, shape, placement)
            else:
                if left:
                    self._has_left(job, gave[1])
                before = self._free_around(gave[1])
                self._occupy(*gave)
                self._never_returned(before)
                self.holds[job] = gave

    def settle(self) -> None:
        """Forget how to undo: all that was done stands."""
        if self.deciding:
            self._refuse_policies()
        self.trail.clear()

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
        mark, cells = self.mark(), {self.cell_of[slot.node] for slot in placement}
        returned = [(cell, cell.returned) for cell in cells]
        try:
            self.take(-1, shape, placement)
        except InvariantError:
            return False
        finally:
            self.rollback(mark)
            for cell, before in returned:
                cell.returned = before
        return True

    def switch(self, node: int, *, up: bool) -> None:
        """A node comes or goes. What is held there stays held until its jobs are released."""
        self._refuse_policies()
        if self.up[node] != up:
            self._switch(node, up)

    @contextmanager
    def hidden(self, nodes: list[int]) -> Iterator[None]:
        """Search as if `nodes` were down. Only searching is allowed meanwhile."""
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

    def _occupy(self, shape: Shape, placement: Placement) -> None:
        """Book all of `placement`, or nothing and raise InvariantError."""
        known = self._known.get(id(shape)) or self._learn(shape)
        if known.plain and not (placement and placement[0].share):
            for slot in placement:
                if not self._take_devices(slot.node, slot.devices):
                    self._vacate(shape, placement[: placement.index(slot)])
                    raise InvariantError(f"{slot} is not free: {self.free_mask[slot.node]:#b}")
            return
        for done, slot in enumerate(placement):
            if not self._book_slot(shape.roles[slot.role].needs, slot):
                self._vacate(shape, placement[:done])
                raise InvariantError(f"{slot} is not free: {self.free_mask[slot.node]:#b}")

    def _free_around(self, placement: Placement) -> dict[Cell, int]:
        """How many GPUs are free in the cells of `placement`."""
        return {cell: cell.free for cell in [self.cell_of[slot.node] for slot in placement]}

    @staticmethod
    def _never_returned(before: dict[Cell, int]) -> None:
        """What was taken since `before` was given back just then: as though it never had been."""
        for cell, free in before.items():
            cell.returned -= free - cell.free

    def _vacate(self, shape: Shape, placement: Placement) -> None:
        known = self._known.get(id(shape)) or self._learn(shape)
        if known.plain and not (placement and placement[0].share):
            for slot in placement:
                self._return_devices(slot.node, slot.devices)
            return
        for slot in placement:
            needs, cell = shape.roles[slot.role].needs, self.cell_of[slot.node]
            devices = slot.devices
            self.free_cpus[slot.node] += needs.cpus * slot.workers
            self.free_memory[slot.node] += needs.memory * slot.workers
            cell.stale |= self.bit[slot.node]
            if not devices:
                cell.returned += 1
            elif share_of(needs, slot) < WHOLE:
                devices = self._share(needs, slot, take=False)
                # Its neighbours on the device can now be evicted for a whole GPU.
                cell.returned += (slot.devices & ~devices).bit_count()
            if devices:
                self._return_devices(slot.node, devices)

    def _book_slot(self, needs: Needs, slot: Slot) -> bool:
        """Book one slot of a job that needs more than whole GPUs; False, and nothing booked, if
        it is not free."""
        node, devices = slot.node, slot.devices
        cpus, memory = needs.cpus * slot.workers, needs.memory * slot.workers
        if self.free_cpus[node] < cpus or self.free_memory[node] < memory:
            return False
        share = share_of(needs, slot)
        if share < WHOLE:
            size = self.nodes.type_specs[self.nodes.gpu_type[node]].memory
            for device in members(devices):
                used, filled = self.shared[node].get(device, (0, 0))
                if used + share > WHOLE or filled + needs.gpu_memory > size:
                    return False
            devices = self._share(needs, slot, take=True)
        if devices and not self._take_devices(node, devices):
            if share < WHOLE:
                self._share(needs, slot, take=False)
            return False
        self.free_cpus[node] -= cpus
        self.free_memory[node] -= memory
        self.cell_of[node].stale |= self.bit[node]
        return True

    def _take_devices(self, node: int, devices: int) -> bool:
        free = self.free_mask[node]
        if devices & ~free:
            return False
        count = devices.bit_count()
        self.free_mask[node] = free ^ devices
        room = self.free_count[node]
        self.free_count[node] = room - count
        cell, bit = self.cell_of[node], self.bit[node]
        cell.stale |= bit
        if self.up[node]:
            by_free = cell.by_free
            by_free[room] ^= bit
            by_free[room - count] ^= bit
            cell.free -= count
        return True

    def _return_devices(self, node: int, devices: int) -> None:
        free = self.free_mask[node]
        if devices & free:
            raise InvariantError(f"devices {devices:#b} of node {node} were free: {free:#b}")
        self.free_mask[node] = free | devices
        count = devices.bit_count()
        room = self.free_count[node]
        self.free_count[node] = room + count
        cell, bit = self.cell_of[node], self.bit[node]
        cell.stale |= bit
        if self.up[node]:
            by_free = cell.by_free
            by_free[room] ^= bit
            by_free[room + count] ^= bit
            cell.free += count
            cell.returned += count

    def _share(self, needs: Needs, slot: Slot, *, take: bool) -> int:
        """Book or return shares; the mask of devices that turned from whole to shared or back."""
        shared, turned, share = self.shared[slot.node], 0, share_of(needs, slot)
        for device in members(slot.devices):
            used, memory = shared.get(device, (0, 0))
            sign = 1 if take else -1
            used, memory = used + sign * share, memory + sign * needs.gpu_memory
            if (device not in shared) if take else not used:
                turned |= 1 << device
            if used:
                shared[device] = (used, memory)
            else:
                del shared[device]
        self.cell_of[slot.node].stale |= self.bit[slot.node]
        return turned

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
                if share == WHOLE:
                    if held[slot.node] & slot.devices:
                        raise InvariantError(f"job {job} shares whole devices of node {slot.node}")
                    held[slot.node] |= slot.devices
                else:
                    for device in members(slot.devices):
                        key = slot.node, device
                        shares[key] = shares.get(key, 0) + share
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
        for shape, placement in self.holds.values():
            for slot in placement:
                needs = shape.roles[slot.role].needs
                cpus[slot.node] += needs.cpus * slot.workers
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
        if cell.columns is not None:
            self._check_columns(cell)

    def _check_columns(self, cell: Cell) -> None:
        """Columns that were kept up to date say what columns made anew would."""
        kept = self.columns(cell)
        for local in range(len(cell.nodes)):
            fresh = Columns(kept.rack)
            self._refresh(cell, fresh, local)
            for name in ("gpus", "cpus", "memory", "share", "empty"):
                if getattr(kept, name)[local] != getattr(fresh, name)[local]:
                    raise InvariantError(f"node {cell.nodes[local]}: column {name} is out of date")
