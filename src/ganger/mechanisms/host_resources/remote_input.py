"""Resources beside the GPU: here, workers on other machines that prepare a job's input."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import Any, ClassVar

import msgspec

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST
from ganger.core.plan import Placement, Plan, Resize, Start, Tune
from ganger.core.protocols import Policy, revived
from ganger.core.view import View


def remote_workers(wanted: float, local: float, worker: float) -> int:
    """Workers that give `worker` each, to make up for what `local` lacks of `wanted`."""
    return max(ceil((wanted - local) / worker - 1e-9), 0)


def local_cpus(view: View, job: int, placement: Placement) -> float:
    """CPUs per GPU, thousandths of a core, on the job's own hosts: those it asks for, else its
    GPUs' part of its poorest node; infinite where that node does not state its CPUs."""
    nodes, roles = view.nodes, view.draft.shape(job).roles
    least = inf
    for slot in placement:
        need, cpus = roles[slot.role].needs, int(nodes.cpus[slot.node])
        if slot.devices and (cpus or need.cpus):
            own = need.cpus / max(need.gpus, 1)
            least = min(least, own or cpus / int(nodes.gpus[slot.node]))
    return least


def attempts_after(view: View, plan: Plan) -> dict[int, int]:
    """By job that holds devices once `plan` is drawn: its attempt then."""
    attempts = {job: int(view.jobs.attempt[job]) for job in view.ledger.holds}
    for action in plan.actions:
        if isinstance(action, Start | Resize) and action.job in attempts:
            attempts[action.job] = action.attempt
    return attempts


class InputMemory(msgspec.Struct):
    """What the inner policy keeps, and the remote workers that each job has, in which attempt."""

    inner: Any
    granted: dict[int, int]
    attempts: dict[int, int] = {}


@dataclass(frozen=True)
class RemoteInput:
    """Another policy, and beside it remote workers that prepare the input of the jobs it runs.

    A job whose speed depends on CPUs (its profile's `sensitivity`) gets as many workers of `worker`
    thousandths of a core as its own hosts lack for 99 % of its best speed; `pool` workers are
    there, and go to running jobs first come, first served.
    """

    orders: ClassVar[tuple[type, ...]] = (Tune,)
    inner: Policy
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
        granted, left = dict[int, int](), self.pool
        for job in sorted(attempts):
            sensitivity = view.oracle.profile(view.jobs.models[view.at.model[job]]).sensitivity
            placement = view.ledger.holds[job][1]
            own = local_cpus(view, job, placement)
            if sensitivity is None or own == inf:
                continue
            gpus = sum(slot.devices.bit_count() for slot in placement)
            wants = remote_workers(sensitivity.demand()[0] * gpus, own * gpus, self.worker)
            granted[job] = min(wants, left)
            left -= granted[job]
            again = attempts[job] == memory.attempts.get(job)
            if granted[job] != (memory.granted[job] if again else 0):
                supply = own + granted[job] * self.worker / gpus
                knobs = {"remote_workers": float(granted[job]), "cpus_per_gpu": supply}
                plan.actions.append(Tune(job, attempts[job], knobs))
        plan.until |= CAPACITY_FREED | CAPACITY_LOST
        return plan, InputMemory(inner, granted, {job: attempts[job] for job in granted})
