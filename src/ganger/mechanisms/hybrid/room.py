"""Services before all other jobs on one pool of nodes: a replica that does not fit preempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ganger.core.plan import Plan
from ganger.core.protocols import Policy
from ganger.core.spec import OnPreempt
from ganger.core.units import MINUTE
from ganger.core.view import View
from ganger.mechanisms.common.planes import OTHERS, SERVICES, ask, joined, orders_of
from ganger.mechanisms.placement.place import PACK

AGAIN: Final = MINUTE
"""Room is made for a service at most so often."""


class FirstMemory(msgspec.Struct):
    """What the two recipes keep, for which services room was made, and when."""

    serving: Any
    training: Any
    made: dict[int, int] = {}
    skipped: bool = False
    """Whether something changed at a time at which training was not asked."""


@dataclass(frozen=True)
class ServicesFirst:
    """`serving` decides over services, then `training` over all other jobs with what is left. For a
    replica that has no room jobs of training are stopped, on the node where those are the fewest,
    as long as `guarantee` GPUs are left to training. At that instant training is not asked, but
    right after it."""

    serving: Policy
    training: Policy
    guarantee: int = 0

    @property
    def name(self) -> str:
        """That of the policy for training."""
        return self.training.name

    @property
    def orders(self) -> tuple[type, ...]:
        """The actions beside starts and stops that the two use."""
        return tuple(dict.fromkeys((*orders_of(self.serving), *orders_of(self.training))))

    def decide(self, view: View, memory: FirstMemory | None) -> tuple[Plan, FirstMemory]:
        """The plan of both, and the stops that make room."""
        memory = memory or FirstMemory(None, None)
        services, training = view.part(SERVICES), view.part(OTHERS)
        first, serving = ask(services, self.serving, memory.serving)
        made = {job: at for job, at in memory.made.items() if view.now < at + AGAIN}
        after = FirstMemory(serving, memory.training, made)
        if self._make_room(view, services, training, made):
            after.skipped = True
            return view.draft.plan(first.reasons, view.now + 1), after
        if memory.skipped:
            training.forget()
        second, after.training = ask(training, self.training, memory.training)
        return joined(view, first, second), after

    def _make_room(self, view: View, services: View, training: View, made: dict[int, int]) -> bool:
        """Stop jobs for those services that wait without room, in their order; whether any."""
        any_stops = False
        for job in services.pending.tolist():
            if view.draft.holds(job) is not None or job in made or not view.at.gpus[job]:
                continue
            if PACK.find(view, view.ledger, job) is not None:
                continue  # its recipe has another reason to let it wait
            for victims in self._victims(view, training, job):
                mark = view.draft.mark()
                for other in victims:
                    view.draft.stop(other)
                place = PACK.find(view, view.ledger, job)
                if place is None:
                    view.draft.rollback(mark)
                    continue
                made[job] = view.now
                any_stops = True
                break
        return any_stops

    def _victims(self, view: View, training: View, job: int) -> list[list[int]]:
        """Sets of jobs of training, one a node, whose GPUs there and what is free are enough for
        one who asks for as many as `job`: the fewest jobs first, then the fewest GPUs. Only such as
        may be stopped, and leave training what it is guaranteed."""
        need, ledger, sizes = view.at.gpus[job], view.ledger, dict[int, int]()
        here: dict[int, dict[int, int]] = {}
        for other in training.active.tolist():
            held = view.draft.holds(other)
            if held is None:
                continue
            sizes[other] = sum(slot.devices.bit_count() for slot in held)
            if view.at.on_preempt[other] != OnPreempt.NEVER:
                for slot in held:
                    tenants = here.setdefault(slot.node, {})
                    tenants[other] = tenants.get(other, 0) + slot.devices.bit_count()
        may_go = sum(sizes.values()) - self.guarantee
        cells = {cell.index for cell in ledger.cells_for(view.draft.shape(job))}
        ranked: list[tuple[int, int, int, list[int]]] = []
        for node, jobs in here.items():
            if not ledger.up[node] or ledger.cell_of[node].index not in cells:
                continue
            lack, chosen = need - ledger.free_count[node], list[int]()
            for other in sorted(jobs, key=lambda each: (-jobs[each], sizes[each], -each)):
                if lack > 0:
                    chosen.append(other)
                    lack -= jobs[other]
            gpus = sum(sizes[each] for each in chosen)
            if chosen and lack <= 0 and gpus <= may_go:
                ranked.append((len(chosen), gpus, node, chosen))
        return [chosen for *_, chosen in sorted(ranked)]
