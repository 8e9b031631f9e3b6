"""Placement of whole GPUs by node, where jobs that need more than whole GPUs go by best fit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from ganger.core.books.ledger import Cell, Ledger
from ganger.core.plan import Placement
from ganger.core.view import View
from ganger.mechanisms.placement.place import Place, on_nodes

Choose = Callable[[dict[int, int], int], tuple[tuple[int, int], ...] | None]
"""From the free GPUs of each node and the GPUs wanted: how many of which node, sorted by node."""


@dataclass(frozen=True, kw_only=True)
class ByNode(Place):
    """The nodes are chosen by `chooser` in the first cell in which it finds some."""

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """The first nodes that are chosen; None where no cell has any."""
        shape = view.draft.shape(job)
        need = gpus or shape.gpus
        if not shape.is_plain or not need:
            return super().find(view, ledger, job, cells, gpus)
        choose = self.chooser(view, ledger)
        for cell in cells or ledger.cells_for(shape):
            free = {node: ledger.free_count[node] for node in cell.nodes if ledger.up[node]}
            counts = choose(free, need)
            placement = on_nodes(ledger, counts) if counts is not None else None
            if placement is not None:
                return placement
        return None

    @abstractmethod
    def chooser(self, view: View, ledger: Ledger) -> Choose:
        """How nodes are chosen now."""
