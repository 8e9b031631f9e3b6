"""What would fit if nothing ran: the cluster with all its nodes up and all its devices free."""

from __future__ import annotations

from ganger.core.books.ledger import Ledger
from ganger.core.spec import Locality, Shape
from ganger.core.state.cluster import Nodes

_KEPT = 10_000
"""So many answers are remembered: those who ask may send any number of shapes."""


class EmptyCluster:
    """Answers whether a shape could ever run on these nodes, and remembers what it answered."""

    __slots__ = ("_known", "_nodes", "ledger")

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.ledger = Ledger(nodes)
        """Its books, for looking only: nothing may be taken from them."""
        self._known: dict[object, bool] = {}

    def fits(
        self,
        shape: Shape,
        sizes: tuple[int, ...] = (),
        within: Locality = Locality.ANY,
        cells: tuple[int, ...] | None = None,
    ) -> bool:
        """Whether `shape` fits, its roles at `sizes` (or as asked), as close together as it asks
        and `within` says, in the cells with these numbers (None: wherever the shape allows)."""
        key = shape, sizes, within, cells
        found = self._known.get(key)
        if found is None:
            there = None if cells is None else [self.ledger.cells[cell] for cell in cells]
            place = self.ledger.find(shape, sizes, locality=within, cells=there)
            if len(self._known) >= _KEPT:
                self._known.clear()
                self.ledger = Ledger(self._nodes)  # which remembers shapes, too
            found = self._known[key] = place is not None
        return found

    def fits_on(self, shape: Shape, gpu_type: str) -> bool:
        """Whether `shape` fits as it asks on the nodes with GPUs of that type alone."""
        there = self.ledger.cells_for(shape)
        return self.fits(
            shape, cells=tuple([cell.index for cell in there if cell.gpu_type == gpu_type])
        )
