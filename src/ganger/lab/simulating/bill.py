"""What a run costs: a flat price for each hour that a GPU of a type is held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganger.core.events import Batch, Failed, Finished, Refused, Released
from ganger.core.plan import Placement, Plan, Resize, Start
from ganger.core.spec import Kind
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Jobs
from ganger.core.units import HOUR, WHOLE
from ganger.lab.serving.fleet import price_of


class Bill:
    """A journal that adds up what jobs, and services with their replicas, hold. `prices`: of a GPU
    for an hour, by type. A part of a GPU costs that part; who holds nothing of the cluster's, such
    as a trial in a grant, costs nothing. Raises BadInput where a type has no price."""

    def __init__(self, jobs: Jobs, nodes: Nodes, prices: Mapping[str, float]) -> None:
        self._jobs = jobs
        self._price = [
            price_of(nodes.types[code], prices) for code in nodes.gpu_type[: nodes.n].tolist()
        ]
        self._open: dict[tuple[int, int], tuple[int, float]] = {}
        """By attempt: since when, and the price of an hour of what it holds."""
        self.total = {"jobs": 0.0, "services": 0.0}

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Take in one step."""
        for event in batch.events:
            if isinstance(event, Finished | Failed | Released | Refused):
                self._pay((event.job, event.attempt), batch.at)
        for action in plan.actions if plan is not None else ():
            if isinstance(action, Start | Resize):
                key = action.job, action.attempt
                self._pay(key, batch.at)
                if self._jobs.within[action.job] < 0:
                    self._open[key] = batch.at, self._hourly(action.job, action.placement)

    def _hourly(self, job: int, placement: Placement) -> float:
        roles = self._jobs.shapes[int(self._jobs.shape[job])].roles
        hourly = 0.0
        for slot in placement:
            gpus, needs = float(slot.devices.bit_count()), roles[slot.role].needs.share
            if slot.share:
                gpus *= slot.share / WHOLE
            elif needs < WHOLE:
                gpus = slot.workers * needs / WHOLE
            hourly += self._price[slot.node] * gpus
        return hourly

    def _pay(self, key: tuple[int, int], now: int) -> None:
        since, hourly = self._open.pop(key, (now, 0.0))
        who = "services" if self._jobs.kind[key[0]] == Kind.SERVE else "jobs"
        self.total[who] += hourly * (now - since) / HOUR

    def close(self, now: int) -> dict[str, float]:
        """What was held until `now` is paid until then; the whole bill."""
        for key in list(self._open):
            self._pay(key, now)
        return self.total
