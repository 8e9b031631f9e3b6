"""What belongs to KubeShare alone (HPDC 2020): where parts of GPUs go, and the tokens that let a
job use more than it requested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ganger.core.books.ledger import Cell, Ledger
from ganger.core.books.share import Part
from ganger.core.plan import Plan, Start, Tune
from ganger.core.protocols import Policy
from ganger.core.units import WHOLE
from ganger.core.view import View
from ganger.mechanisms.sharing.share import OnDevices, Parts, devices_of


def submitted(view: View, job: Any) -> Any:
    """When a job was submitted."""
    return view.jobs.submitted[job]


def largest_request(view: View, job: int) -> float:
    """The part of a GPU that a job requests, the largest first."""
    return -float(max(role.needs.share for role in view.draft.shape(job).roles))


@dataclass(frozen=True, kw_only=True)
class ByScore(Parts):
    """A guaranteed job (of a priority above 0) goes to the GPU that is requested least; any other
    to the one that is requested most, and where it has to be a free one, to the node that has
    fewest of these, so that free GPUs stay together."""

    def kind(self, view: View, job: int) -> int:
        """The guaranteed, and the others."""
        return int(view.jobs.priority[job] > 0)

    def ranked(
        self, view: View, ledger: Ledger, job: int, cell: Cell, in_use: OnDevices
    ) -> list[tuple[tuple[int, int], list[Part]]]:
        """By the score of the job's class."""
        shared, free = devices_of(ledger, cell, view.draft.shape(job), in_use)
        used = {key: sum(part.compute for part in in_use[key]) for key in shared}
        if self.kind(view, job):
            order = free + sorted(shared, key=lambda key: (used[key], key))
        else:
            order = sorted(shared, key=lambda key: (-used[key], key))
            order += sorted(free, key=lambda key: (ledger.free_count[key[0]], key))
        return [(key, in_use.get(key, [])) for key in order]


@dataclass(frozen=True)
class Tokens:
    """Another policy; jobs that it starts on parts of GPUs have what they request and, while others
    leave it, up to `limit` of the device's time."""

    inner: Policy
    limit: float

    @property
    def name(self) -> str:
        """The inner policy's."""
        return self.inner.name

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """The inner plan, and the terms of the jobs that start, and of those that had others."""
        plan, memory = self.inner.decide(view, memory)
        begin = {each.job: each.attempt for each in plan.actions if isinstance(each, Start)}
        others = sorted(view.inherited - begin.keys())
        for job, attempt in [*begin.items(), *((job, view.at.attempt[job]) for job in others)]:
            request = -largest_request(view, job) / WHOLE
            if request < 1.0:
                knobs = {"request": request, "limit": max(self.limit, request)}
                plan.actions.append(Tune(job, attempt, knobs))
        return plan, memory
