"""What is done when a node says that it is going away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ganger.core.events import CAPACITY_LOST
from ganger.core.plan import Plan
from ganger.core.protocols import Policy, revived
from ganger.core.spec import OnPreempt
from ganger.core.state.jobs import Phase
from ganger.core.view import View


@dataclass(frozen=True)
class Heeding:
    """Another policy, and before it: jobs that checkpoint leave a node that is going away as soon
    as that is known, so that they lose nothing; the others stay until it is gone."""

    inner: Policy

    @property
    def name(self) -> str:
        """The inner policy's."""
        return self.inner.name

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """The inner plan, and the stops of jobs that leave."""
        going = view.ledger.going
        if going:
            for job in view.active.tolist():
                held = view.draft.holds(job)
                running = view.jobs.phase[job] == Phase.RUNNING
                saves = view.jobs.on_preempt[job] == OnPreempt.CHECKPOINT
                if running and saves and any(slot.node in going for slot in held or ()):
                    view.draft.stop(job, "revoked")
        plan, memory = self.inner.decide(view, revived(memory, self.inner.decide))
        if any(group.offer is not None and group.offer.notice for group in view.nodes.spec.nodes):
            plan.until |= CAPACITY_LOST
        return plan, memory
