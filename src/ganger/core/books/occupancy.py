"""Booking and returning what a placement says: devices, parts of them, CPUs and memory."""

from __future__ import annotations

from ganger.core.books.bits import members
from ganger.core.books.fit import Capacity, Cell
from ganger.core.books.stock import share_of
from ganger.core.errors import InvariantError
from ganger.core.plan import Placement, Slot
from ganger.core.spec import Needs, Shape
from ganger.core.units import WHOLE


def may_doze(shape: Shape) -> bool:
    """Whether a job of `shape` says how much memory it keeps on each of its GPUs."""
    with_gpus = [role.needs for role in shape.roles if role.needs.gpus]
    return bool(with_gpus) and all(needs.gpu_memory for needs in with_gpus)


class Occupancy(Capacity):
    """What is free, and how it is taken and returned. It does not know the jobs."""

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
            else:
                share, shared = share_of(needs, slot), devices
                if share == WHOLE:  # over the memory of somebody who is asleep, if it is shared
                    shared = self._among_shared(slot.node, devices)
                if shared:
                    left = self._share(slot.node, shared, share, needs.gpu_memory, take=False)
                    # Its neighbours on the device can now be evicted for a whole GPU.
                    cell.returned += (shared & ~left).bit_count()
                    devices = devices & ~shared | left
            if devices:
                self._return_devices(slot.node, devices)

    def _book_slot(self, needs: Needs, slot: Slot) -> bool:
        """Book one slot of a job that needs more than whole GPUs; False, and nothing booked, if
        it is not free."""
        node, devices = slot.node, slot.devices
        cpus, memory = needs.cpus * slot.workers, needs.memory * slot.workers
        if self.free_cpus[node] < cpus or self.free_memory[node] < memory:
            return False
        if needs.gpu_memory > self.gpu_memory_limit:
            return False
        share, shared = share_of(needs, slot), devices
        if share == WHOLE:  # what is not free may be had over the memory of somebody who is asleep
            shared = devices & ~self.free_mask[node] if needs.gpu_memory else 0
        turned = 0
        if shared:
            size = self.device_memory(node)
            for device in members(shared):
                used, filled = self.shared[node].get(device, (WHOLE if share == WHOLE else 0, 0))
                if used + share > WHOLE or filled + needs.gpu_memory > size:
                    return False
            turned = self._share(node, shared, share, needs.gpu_memory, take=True)
        whole = devices & ~shared | turned
        if whole and not self._take_devices(node, whole):
            if shared:
                self._share(node, shared, share, needs.gpu_memory, take=False)
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
        self.free_count[node] = room_after = room - count
        cell, bit = self.cell_of[node], self.bit[node]
        if cell.columns is not None:
            cell.stale |= bit
        if self.up[node]:
            by_free = cell.by_free
            by_free[room] ^= bit
            by_free[room_after] ^= bit
            cell.free -= count
        return True

    def _return_devices(self, node: int, devices: int) -> None:
        free = self.free_mask[node]
        if devices & free:
            raise InvariantError(f"devices {devices:#b} of node {node} were free: {free:#b}")
        self.free_mask[node] = free | devices
        count = devices.bit_count()
        room = self.free_count[node]
        self.free_count[node] = room_after = room + count
        cell, bit = self.cell_of[node], self.bit[node]
        if cell.columns is not None:
            cell.stale |= bit
        if self.up[node]:
            by_free = cell.by_free
            by_free[room] ^= bit
            by_free[room_after] ^= bit
            cell.free += count
            cell.returned += count

    def _share(self, node: int, devices: int, share: int, memory: int, *, take: bool) -> int:
        """Book or return shares (thousandths, MiB of each); the mask of devices that turned from
        whole to shared or back."""
        shared, turned, sign = self.shared[node], 0, 1 if take else -1
        cell = self.cell_of[node]
        for device in members(devices):
            before = shared.get(device)
            used, filled = before or (0, 0)
            used, filled = used + sign * share, filled + sign * memory
            if used or filled:
                shared[device] = (used, filled)
            else:
                del shared[device]
            if before is None or not (used or filled):
                turned |= 1 << device
            cell.dozing += (not used and filled > 0) - (before is not None and not before[0])
        cell.stale |= self.bit[node]
        return turned

    def _among_shared(self, node: int, devices: int) -> int:
        """Those of `devices` that are held in shares."""
        mask = 0
        for device in self.shared[node]:
            mask |= 1 << device
        return devices & mask

    def _hold_memory(self, shape: Shape, placement: Placement, *, hold: bool) -> None:
        """Book the memory of who is asleep, and nothing else of its own, or return that."""
        sign = 1 if hold else -1
        for slot in placement:
            needs, node = shape.roles[slot.role].needs, slot.node
            self.free_memory[node] -= sign * needs.memory * slot.workers
            turned = self._share(node, slot.devices, 0, needs.gpu_memory, take=hold)
            if turned and hold:
                self._take_devices(node, turned)
                continue
            if turned:
                self._return_devices(node, turned)
            if not hold:  # memory is free beside those who compute there, or who sleep there too
                self.cell_of[node].returned += max((slot.devices & ~turned).bit_count(), 1)
