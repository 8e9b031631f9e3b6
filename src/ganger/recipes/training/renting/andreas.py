"""ANDREAS (FiCloud 2021): what the power of switched-on nodes costs, and lateness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ganger.core.spec import NodeSpec
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.mechanisms.provisioning.power import idle_watts, watts_of
from ganger.mechanisms.provisioning.together import (
    Chosen,
    Cost,
    Guest,
    Machine,
    Tenant,
    greedy,
)

_KWH = 3.6e6
"""Joules in a kWh."""


class Drawn:
    """The watts of the machines of a cluster by the first row of their kind: idle, and of each GPU
    beyond that under load."""

    def __init__(self, view: View) -> None:
        self._types = {each.name: watts_of(each) for each in view.nodes.type_specs}
        self.idle = dict[int, float]()
        first = 0
        for group in view.nodes.spec.nodes:
            self.idle[first] = self._idle(group)
            first += group.count

    def _idle(self, group: NodeSpec) -> float:
        kind = self._types.get(group.gpu_type)
        return idle_watts(group, kind) if kind is not None else max(group.watts, 0.0)

    def above(self, guest: Guest, gpu_type: str) -> float:
        """Of one GPU that computes a job's model; as measured where it was, else at full load."""
        kind = self._types[gpu_type]
        return max(guest.tenant.profile.watts.get(gpu_type, kind.load) - kind.idle, 0.0)


@dataclass(frozen=True)
class ByEnergy:
    """`price`: USD for a kWh. `penalty`: USD for each hour that a job is late. The best of `tries`
    is taken, drawn from `seed` and the moment."""

    price: float
    penalty: float
    tries: int
    window: int
    every: int
    seed: int = 0

    def cost(self, view: View) -> Cost:
        """A machine draws its idle power until its last job is over, and that of the GPUs of each
        job while it computes, all `slowed` by the others on the machine."""
        drawn, price, late = view.cached(Drawn, view), self.price / _KWH, self.penalty / 3600

        def cost(machine: Machine, guests: Sequence[Guest]) -> float:
            every = [*machine.stay, *guests]
            spent = last = 0.0
            for guest in every:
                took = guest.seconds * guest.tenant.slowed(every)
                last = max(last, took)
                spent += price * guest.gpus * drawn.above(guest, machine.kind.gpu_type) * took
                spent += late * max(took - guest.tenant.due, 0.0)
            return spent + price * drawn.idle[machine.kind.first] * last

        return cost

    def choose(
        self, view: View, cost: Cost, tenants: Sequence[Tenant], machines: Sequence[Machine]
    ) -> Chosen:
        """By the randomised greedy rule."""
        seed = self.seed * 1_000_003 + view.now // SECOND
        return greedy(tenants, machines, cost, self.penalty / 3600, self.tries, seed)[0]
