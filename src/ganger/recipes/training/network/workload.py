"""What belongs to Ada-SRSF alone (Wang et al., arXiv 2002.10105): placement by least workload, and
which transfers wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ganger.core.books.ledger import Ledger
from ganger.core.view import View
from ganger.mechanisms.network.terms import Knobs, Rule
from ganger.mechanisms.ordering.order import remaining_service
from ganger.recipes.training.network.by_node import ByNode, Choose


def shortest_first(beside: str) -> Rule:
    """Transfers begin as the rule `beside` lets them; of those that wait first the ones of the job
    with the shortest remaining service."""

    def rule(view: View, jobs: Sequence[int]) -> list[Knobs]:
        order = sorted(jobs, key=lambda job: (-float(remaining_service(view, job)), -job))
        rank = {job: at for at, job in enumerate(order)}
        return [{"link_rule": beside, "link_priority": rank[job]} for job in jobs]

    return rule


@dataclass(frozen=True, kw_only=True)
class LeastWorkload(ByNode):
    """LWF-kappa: a job of up to `kappa` GPUs takes free GPUs of the nodes with the least remaining
    workload, wherever they are; a larger one goes to as few nodes as can hold it, among these to
    those with the least. The workload of a node is the remaining service of the jobs on it, each by
    its part there. Shapes of other needs than whole GPUs go by best fit."""

    kappa: int = 1

    def chooser(self, view: View, ledger: Ledger) -> Choose:
        """By the workload of nodes."""
        load = self._workload(view, ledger)

        def choose(free: dict[int, int], need: int) -> tuple[tuple[int, int], ...] | None:
            nodes = [node for node in free if free[node]]
            nodes.sort(key=lambda node: (load.get(node, 0.0), node))
            if need > self.kappa:
                alone = [node for node in nodes if free[node] >= need]
                nodes = alone[:1] or sorted(nodes, key=lambda node: -free[node])
            counts, missing = list[tuple[int, int]](), need
            for node in nodes:
                if missing:
                    counts.append((node, min(free[node], missing)))
                    missing -= counts[-1][1]
            return None if missing else tuple(sorted(counts))

        return choose

    def _workload(self, view: View, ledger: Ledger) -> dict[int, float]:
        load = dict[int, float]()
        for job, (_, placement) in ledger.holds.items():
            held = sum(slot.devices.bit_count() for slot in placement)
            service = float(remaining_service(view, job)) if held else 0.0
            for slot in placement:
                part = slot.devices.bit_count() / max(held, 1)
                load[slot.node] = load.get(slot.node, 0.0) + service * part
        return load
