"""The account of a run: energy, carbon and money, by job, tenant and of nobody.

`energy_kwh` is what all nodes drew while they were on, up to when the last job let go of its GPUs;
of it `energy_of_idle_kwh` for what nobody held. `carbon_kg`: that energy x the grid's intensity.
`cost` is what all nodes cost in that time: `cost_of_jobs` + `cost_of_services` + `cost_of_idle`.
Where nodes are named for services (`ganger.lab.billing.reserve`), these pay for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ganger.lab.billing.power import Grid, sources_in_words
from ganger.lab.billing.reserve import Reserve
from ganger.mechanisms.provisioning.power import Watts

_Floats = NDArray[np.float64]


@dataclass(repr=False, eq=False)
class Account:
    """What a run drew and cost, up to when the last job let go of what it held. The columns have
    one entry a job of the run's table."""

    tenants: list[str]
    service: NDArray[np.bool_]
    """Whether it is a service, or a replica of one."""
    energy_kwh: _Floats
    idle_energy_kwh: float
    """Of nodes that are on, for what nobody holds of them: it is nobody's."""
    cost: _Floats | None
    """What each pays; None: nothing has a price."""
    idle_cost: float | None
    """Of what nobody held, and nobody reserved."""
    reserve: Reserve | None
    """Of nodes that services have for themselves; None without such nodes, or without prices."""
    grid: Grid
    watts: list[Watts]

    def __repr__(self) -> str:
        return f"<Account of {len(self.tenants)} jobs>"

    @property
    def all_energy_kwh(self) -> float:
        """Of jobs, services and nobody."""
        return float(self.energy_kwh.sum()) + self.idle_energy_kwh

    @property
    def _kg(self) -> float:
        """Kilograms of CO2 equivalent for a kWh."""
        return self.grid.grams / 1000

    @property
    def costs(self) -> dict[str, float]:
        """Of jobs, of services with their replicas and what is reserved for them, and of what
        nobody held; {} without prices."""
        if self.cost is None or self.idle_cost is None:
            return {}
        services = float(self.cost[self.service].sum())
        jobs = float(self.cost[~self.service].sum())
        return {"jobs": jobs, "services": services, "idle": self.idle_cost}

    def metrics(self) -> dict[str, float]:
        """The figures of the whole run, by name."""
        return {
            "energy_kwh": self.all_energy_kwh,
            "energy_of_idle_kwh": self.idle_energy_kwh,
            "carbon_kg": self.all_energy_kwh * self._kg,
            **{f"cost_of_{who}": paid for who, paid in self.costs.items()},
            **({"cost": sum(self.costs.values())} if self.costs else {}),
        }

    def columns(self) -> dict[str, _Floats]:
        """By job."""
        columns = {"energy_kwh": self.energy_kwh, "carbon_kg": self.energy_kwh * self._kg}
        return columns if self.cost is None else {**columns, "cost": self.cost}

    def of(self, rows: NDArray[Any]) -> dict[str, float]:
        """Of some jobs together."""
        return {name: float(column[rows].sum()) for name, column in self.columns().items()}

    def by_tenant(self) -> dict[str, dict[str, float]]:
        """By tenant: `energy_kwh`, `carbon_kg`, and `cost` where there are prices."""
        names, codes = np.unique(np.array(self.tenants, dtype=object), return_inverse=True)
        return {str(name): self.of(codes == code) for code, name in enumerate(names.tolist())}

    def said(self) -> list[str]:
        """Where the figures come from, in sentences."""
        lines = [
            *sources_in_words(self.watts, self.grid),
            "Idle is what nobody held of nodes that were on, up to when the last job let go.",
        ]
        if self.reserve is not None:
            lines.append(
                "Services pay for all of the nodes that are named for them, less what others pay"
                f" for what they hold there: {self.reserve.rate:.0%} of its price."
            )
        return lines

    def as_json(self) -> dict[str, Any]:
        """Energy and carbon, and where their figures come from."""
        return {
            "kwh": self.all_energy_kwh,
            "idle_kwh": self.idle_energy_kwh,
            "carbon_kg": self.all_energy_kwh * self._kg,
            "grid": self.grid._asdict(),
            "watts": [each._asdict() for each in self.watts],
            "by_tenant": self.by_tenant(),
            **({} if self.reserve is None else {"reserve": self._reserve(self.reserve)}),
        }

    def _reserve(self, reserve: Reserve) -> dict[str, float]:
        """What nodes for services cost, what of that was on loan, and what was paid for it."""
        lent = reserve.lent(self.service)
        return {
            "cost": reserve.cost, "held": float(reserve.held[self.service].sum()), "lent": lent,
            "rate": reserve.rate, "paid_for_loans": reserve.rate * lent,
        }  # fmt: skip
