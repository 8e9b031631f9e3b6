"""Resources beside the GPU: here, workers on other machines that prepare a job's input."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

import msgspec

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST
from ganger.core.plan import Plan, Resize, Start, Tune
from ganger.core.protocols import Policy, revived
from ganger.core.view import View


def remote_workers(rate: float, local: float, worker: float) -> int:
    """Workers of `worker` samples/s that make up for what `local` CPUs lack of `rate`."""
    return max(ceil((rate - local) / worker), 0)


def input_bound(rate: float, local: float, workers: int, worker: float) -> float:
    """Samples/s of a job whose GPUs could do `rate`: the smaller of that and what is supplied."""
    return min(rate, local + workers * worker)


def attempts_after(view: View, plan: Plan) -> dict[int, int]:
    """By job that holds devices once `plan` is drawn: its attempt then."""
    attempts = {job: int(view.jobs.attempt[job]) for job in view.ledger.holds}
    for action in plan.actions:
        if isinstance(action, Start | Resize) and action.job in attempts:
            attempts[action.job] = action.attempt
    return attempts


class InputMemory(msgspec.Struct):
    """What the inner policy keeps, and the remote workers that each job has."""

    inner: Any
    granted: dict[int, int]


@dataclass(frozen=True)
class RemoteInput:
    """Another policy, and beside it remote input workers for whom it runs.

    A GPU consumes `rate` samples/s, its own host's CPUs supply `local`, a remote worker `worker`;
    `pool` workers are there, and go to running jobs first come, first served.
    """

    orders: ClassVar[tuple[type, ...]] = (Tune,)
    inner: Policy
    rate: float
    local: float
    worker: float
    pool: int

    @property
    def name(self) -> str:
        """The inner policy's."""
        return self.inner.name

    def decide(self, view: View, memory: InputMemory | None) -> tuple[Plan, InputMemory]:
        """The inner plan, and a Tune for every job whose workers change."""
        memory = memory or InputMemory(None, {})
        plan, inner = self.inner.decide(view, revived(memory.inner, self.inner.decide))
        attempts = attempts_after(view, plan)
        sizes = {
            job: sum(slot.devices.bit_count() for slot in view.ledger.holds[job][1])
            for job in attempts
        }
        granted, left = dict[int, int](), self.pool
        for job in sorted(attempts):
            want = remote_workers(self.rate * sizes[job], self.local * sizes[job], self.worker)
            granted[job] = min(want, left)
            left -= granted[job]
            if granted[job] != memory.granted.get(job, 0):
                knobs = {"remote_workers": float(granted[job])}
                plan.actions.append(Tune(job, attempts[job], knobs))
        plan.until |= CAPACITY_FREED | CAPACITY_LOST
        return plan, InputMemory(inner, granted)
