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
        self._above: dict[tuple[str, str], float] = {}
        self.idle = dict[int, float]()
        first = 0
        for group in view.nodes.spec.nodes:
            self.idle[first] = self._idle(group)
            first += group.count

    def _idle(self, group: NodeSpec) -> float:
        kind = self._types.get(group.gpu_type)
        return idle_watts(group, kind) if kind is not None else max(group.watts, 0.0)

    def above(self, tenant: Tenant, gpu_type: str) -> float:
        """Of one GPU that computes a job's model; as measured where it was, else at full load."""
        key = tenant.model, gpu_type
        known = self._above.get(key)
        if known is None:
            kind = self._types[gpu_type]
            watts = tenant.profile.watts.get(gpu_type, kind.load)
            known = self._above[key] = max(watts - kind.idle, 0.0)
        return known


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
            every, gpu_type = [*machine.stay, *guests], machine.kind.gpu_type
            spent = last = 0.0
            for guest in every:
                tenant, took = guest.tenant, guest.seconds
                if tenant.profile.disturbed:
                    took *= tenant.slowed(every)
                if took > last:
                    last = took
                spent += price * guest.gpus * drawn.above(tenant, gpu_type) * took
                if took > tenant.due:
                    spent += late * (took - tenant.due)
            return spent + price * drawn.idle[machine.kind.first] * last

        return cost

    def choose(
        self, view: View, cost: Cost, tenants: Sequence[Tenant], machines: Sequence[Machine]
    ) -> Chosen:
        """By the randomised greedy rule."""
        seed = self.seed * 1_000_003 + view.now // SECOND
        return greedy(tenants, machines, cost, self.penalty / 3600, self.tries, seed)[0]
