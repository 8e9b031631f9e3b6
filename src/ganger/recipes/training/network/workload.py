"""Ada-SRSF's placement: least workload first (Wang et al., arXiv 2002.10105)."""

from __future__ import annotations

from dataclasses import dataclass

from ganger.core.books.ledger import Cell, Ledger
from ganger.core.plan import Placement
from ganger.core.view import View
from ganger.mechanisms.ordering.order import remaining_service
from ganger.mechanisms.placement.place import Place, on_nodes


@dataclass(frozen=True, kw_only=True)
class LeastWorkload(Place):
    """LWF-kappa: a job of up to `kappa` GPUs takes free GPUs of the nodes with the least remaining
    workload, wherever they are; a larger one goes to as few nodes as can hold it, among these to
    those with the least. The workload of a node is the remaining service of the jobs on it, each by
    its part there. Shapes of other needs than whole GPUs go by best fit."""

    kappa: int = 1

    def find(
        self, view: View, ledger: Ledger, job: int, cells: list[Cell] | None = None, gpus: int = 0
    ) -> Placement | None:
        """By the workload of nodes."""
        shape = view.draft.shape(job)
        need = gpus or shape.gpus
        if not shape.is_plain or not need:
            return super().find(view, ledger, job, cells, gpus)
        load = self._workload(view, ledger)
        for cell in cells or ledger.cells_for(shape):
            free = {node: ledger.free_count[node] for node in cell.nodes if ledger.up[node]}
            nodes = [node for node in free if free[node]]
            nodes.sort(key=lambda node: (load.get(node, 0.0), node))
            if need > self.kappa:
                alone = [node for node in nodes if free[node] >= need]
                widest = sorted(nodes, key=lambda node: -free[node])
                nodes = alone[:1] or widest
            counts, missing = list[tuple[int, int]](), need
            for node in nodes:
                if missing:
                    taken = min(free[node], missing)
                    counts.append((node, taken))
                    missing -= taken
            if not missing:
                placement = on_nodes(ledger, tuple(sorted(counts)))
                if placement is not None:
                    return placement
        return None

    def _workload(self, view: View, ledger: Ledger) -> dict[int, float]:
        load = dict[int, float]()
        for job, (_, placement) in ledger.holds.items():
            held = sum(slot.devices.bit_count() for slot in placement)
            service = float(remaining_service(view, job)) if held else 0.0
            for slot in placement:
                part = slot.devices.bit_count() / max(held, 1)
                load[slot.node] = load.get(slot.node, 0.0) + service * part
        return load
