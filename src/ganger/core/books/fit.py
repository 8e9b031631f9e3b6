"""Where a shape fits in what is free.

Best fit, worst fit and first fit of whole GPUs each take a handful of operations on a cell's bit
sets however many nodes there are, and the lowest node always wins a tie. Shapes that need more
than whole GPUs (shares of a GPU, CPUs, host memory, labels, several roles) are searched for in
`core/books/roles.py`, by the same rules: where only GPUs are scarce, both find the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ganger.core.books.bits import lowest, members, pick_devices
from ganger.core.books.roles import RoleSearch
from ganger.core.books.stock import Cell, Fit
from ganger.core.plan import Placement, Slot
from ganger.core.spec import Locality, Shape

__all__ = ["Capacity", "Cell", "Fit"]

# Looking an enum's member up costs more than finding a node.
_BEST, _WORST, _RANDOM = Fit.BEST, Fit.WORST, Fit.RANDOM
_ISLAND, _NODE, _RACK = Locality.ISLAND, Locality.NODE, Locality.RACK


class Capacity(RoleSearch):
    """What is free on a set of nodes. Only its ledger changes it.

    `within` limits it to the room of a grant (by node): so a parent's grant becomes a cluster of
    its own for its children.
    """

    # ------------------------------------------------------------------ where a shape fits

    def find(
        self,
        shape: Shape,
        sizes: tuple[int, ...] = (),
        fit: Fit = Fit.BEST,
        locality: Locality | None = None,
        draw: Callable[[int], int] | None = None,
        cells: list[Cell] | None = None,
    ) -> Placement | None:
        """Where `shape` fits now (its roles at `sizes`, or as asked), or None.

        `locality` narrows what the shape itself accepts; `draw(n)` gives a number below n for
        Fit.RANDOM; `cells` limits and orders the cells tried. Nothing changes.
        """
        known = self._known.get(id(shape)) or self._learn(shape)
        within, need = known.locality, known.whole
        if locality is not None and locality < within:
            within = locality
        if known.plain:
            if sizes:
                need = sizes[0]
            for cell in known.cells if cells is None else cells:
                if need <= cell.free:
                    placement = self._find_plain(cell, need, fit, within, draw)
                    if placement is not None:
                        return placement
            return None
        if sizes and need:
            need = sum(n * role.needs.gpus for n, role in zip(sizes, shape.roles, strict=True))
        for cell in known.cells if cells is None else cells:
            if need <= cell.free + (cell.dozing if known.beside else 0):
                placement = self._find_roles(cell, known, sizes or known.sizes, fit, within, draw)
                if placement is not None:
                    return placement
        return None

    def _find_plain(
        self, cell: Cell, need: int, fit: Fit, within: Locality, draw: Callable[[int], int] | None
    ) -> Placement | None:
        if need <= cell.widest:
            node = -1
            if fit is _BEST and within is not _ISLAND:
                for bits in cell.by_free[need:]:
                    if bits:
                        node = cell.nodes[(bits & -bits).bit_length() - 1]
                        break
            else:
                node = self._one_node(cell, need, fit, within, draw)
            if node >= 0:
                mask = self.free_mask[node]
                if need != self.free_count[node]:
                    mask = pick_devices(mask, need, self.island[node])
                return (Slot(node, mask, need),)
        if within is _ISLAND or within is _NODE:
            return None
        if within is _RACK:
            rack = self._fullest_rack_with(cell, need)
            return None if rack is None else self._gather(cell, need, fit, cell.racks[rack], draw)
        return self._gather(cell, need, fit, -1, draw)

    def fullest(self, cell: Cell, need: int, among: int) -> int:
        """The node of `cell` with the least whole GPUs free that has `need` of them, the lowest of
        equals, of those whose bits are in `among`; -1 if there is none."""
        for k in range(need, cell.widest + 1):
            bits = cell.by_free[k] & among
            if bits:
                return cell.nodes[lowest(bits)]
        return -1

    @staticmethod
    def free_among(cell: Cell, among: int) -> int:
        """Whole GPUs free on the nodes of `cell` whose bits are in `among`."""
        widths = range(1, cell.widest + 1)
        return sum(k * (cell.by_free[k] & among).bit_count() for k in widths)

    def _one_node(
        self, cell: Cell, need: int, fit: Fit, within: Locality, draw: Callable[[int], int] | None
    ) -> int:
        """The node of `cell` that takes `need` whole GPUs, or -1; best fit has its short path."""
        by_free = cell.by_free
        if within is _ISLAND:
            for k in range(need, cell.widest + 1):
                for local in members(by_free[k]):
                    node = cell.nodes[local]
                    if self._in_one_island(node, need):
                        return node
            return -1
        if fit is _WORST:
            for k in range(cell.widest, need - 1, -1):
                if by_free[k]:
                    return cell.nodes[lowest(by_free[k])]
            return -1
        able = 0
        for k in range(need, cell.widest + 1):
            able |= by_free[k]
        if not able:
            return -1
        if fit is _RANDOM and draw is not None:
            choices = list(members(able))
            return cell.nodes[choices[draw(len(choices))]]
        return cell.nodes[lowest(able)]

    def _fullest_rack_with(self, cell: Cell, need: int) -> int | None:
        """The rack with the least free GPUs that still has `need`, or None."""
        best, best_free = None, 1 << 60
        for rack, bits in cell.racks.items():
            free = self.free_among(cell, bits)
            if need <= free < best_free:
                best, best_free = rack, free
        return best

    def _gather(
        self, cell: Cell, need: int, fit: Fit, among: int, draw: Callable[[int], int] | None
    ) -> Placement | None:
        """`need` GPUs over several nodes: the fewest nodes, or under FIRST and RANDOM any."""
        slots: list[Slot] = []
        if fit is not _BEST and fit is not _WORST:
            able = 0
            for k in range(1, cell.widest + 1):
                able |= cell.by_free[k]
            order: Iterable[int] = members(able & among)
            if fit is _RANDOM and draw is not None:
                order = list(order)
                for i in range(len(order) - 1, 0, -1):
                    j = draw(i + 1)
                    order[i], order[j] = order[j], order[i]
        else:
            order = self._fewest_nodes(cell, need, among)
        for local in order:
            node = cell.nodes[local]
            take = min(need, self.free_count[node])
            slots.append(
                Slot(node, pick_devices(self.free_mask[node], take, self.island[node]), take)
            )
            need -= take
            if not need:
                return tuple(slots)
        return None

    def _fewest_nodes(self, cell: Cell, need: int, among: int) -> list[int]:
        """Locals in the order that uses the emptiest nodes first, and best fit for the rest."""
        order: list[int] = []
        for k in range(cell.widest, 0, -1):
            bits = cell.by_free[k] & among
            while bits and need >= k:
                low = bits & -bits
                order.append(low.bit_length() - 1)
                bits ^= low
                need -= k
            if bits and 0 < need < k:
                for j in range(need, k + 1):
                    fitting = bits if j == k else cell.by_free[j] & among
                    if fitting:
                        order.append(lowest(fitting))
                        return order
        return order
