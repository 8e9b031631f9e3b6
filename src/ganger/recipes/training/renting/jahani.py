"""Jahani et al. (ICCCS 2019): a mixed-integer programme says at each event which job runs on how
many GPUs of which rented machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from ganger.core.view import View
from ganger.mechanisms.provisioning.together import (
    Chosen,
    Cost,
    Guest,
    Machine,
    Postponed,
    Tenant,
    greedy,
)
from ganger.solve.highs import Model, maximise_whole


class Option(NamedTuple):
    """A job (by its place) on so many GPUs of a machine (by its place), for so many seconds."""

    tenant: int
    machine: int
    gpus: int
    seconds: float


@dataclass(frozen=True)
class ByProgramme:
    """`penalty`: USD for each hour that a job is late. The programme is solved within `nodes` nodes
    of its search or to a `gap`, from what a greedy rule says, and is never worse than that."""

    penalty: float
    nodes: int
    gap: float
    window: int
    every: int = 0

    def cost(self, view: View) -> Cost:
        """A machine costs its price until the first of its jobs is over, when the programme is
        solved again; where others stay on it, for as long as a job lasts longer than these."""
        late, now = self.penalty / 3600, view.now

        def cost(machine: Machine, guests: Sequence[Guest]) -> float:
            if not guests:
                return 0.0
            hourly = machine.kind.price(now)
            if machine.stay:
                lasts = max(each.seconds for each in machine.stay)
                paid = sum(max(each.seconds - lasts, 0.0) for each in guests)
            else:
                paid = min(each.seconds for each in guests)
            tardy = sum(max(each.seconds - each.tenant.due, 0.0) for each in guests)
            return hourly * paid / 3600 + late * tardy

        return cost

    def choose(
        self, view: View, cost: Cost, tenants: Sequence[Tenant], machines: Sequence[Machine]
    ) -> Chosen:
        """By the programme."""
        start, _ = greedy(tenants, machines, cost, self.penalty / 3600, 1, 0)
        return Programme(self, view.now, cost, tenants, machines).best(start)


class Programme:
    """Columns: x, a job in one way on one machine; first, whether that is the job of the machine
    that ends first (of machines on which nobody stays); used, whether somebody is on a machine.
    A job without x waits. Minimised: the price of each machine until its first job ends, lateness,
    and what jobs that wait cost."""

    def __init__(
        self,
        terms: ByProgramme,
        now: int,
        cost: Cost,
        tenants: Sequence[Tenant],
        machines: Sequence[Machine],
    ) -> None:
        self._terms, self._now, self._cost = terms, now, cost
        self._tenants, self._machines = tenants, machines
        self._options = [
            Option(at, place, gpus, took)
            for at, tenant in enumerate(tenants)
            for place, machine in enumerate(machines)
            for gpus, took in machine.ways(tenant)
        ]

    def best(self, start: Chosen) -> Chosen:
        """The best choice that was answer; `start` where none is better."""
        options = self._options
        if not options:
            return {}
        n = len(options)
        answer = maximise_whole(
            self._model(), self._known(start), nodes=self._terms.nodes, gap=self._terms.gap
        )
        taken = [each for each, x in zip(options, answer.x[:n], strict=True) if x > 0.5]
        return {self._tenants[each.tenant].job: (each.machine, each.gpus) for each in taken}

    def _model(self) -> Model:
        tenants, machines, options = self._tenants, self._machines, self._options
        n, m = len(options), len(machines)
        late = self._terms.penalty / 3600
        waits = Postponed(late, self._cost)
        spared = np.array([waits.of(each, machines) for each in tenants])
        who = np.array([each.tenant for each in options])
        where = np.array([each.machine for each in options])
        took = np.array([each.seconds for each in options])
        gpus = np.array([float(each.gpus) for each in options])
        due = np.array([each.due for each in tenants])[who]
        hourly = np.array([each.kind.price(self._now) for each in machines])[where] / 3600
        stays = np.array([max((g.seconds for g in each.stay), default=-1.0) for each in machines])
        shared = stays[where] >= 0
        paid = np.where(shared, hourly * np.maximum(took - stays[where], 0.0), 0.0)
        gain = spared[who] - late * np.maximum(took - due, 0.0) - paid
        # Of two plans that cost the same, the one in which more jobs run.
        gain = gain + 1e-6 * (1.0 + np.abs(spared[who]))
        first = np.where(shared, 0.0, -hourly * took)
        columns = np.arange(n)
        free = np.array([float(each.free) for each in machines])
        ones, none = np.ones(n), sparse.csr_array((m, n))
        by_job = sparse.csr_array((ones, (who, columns)), shape=(len(tenants), n))
        room = sparse.csr_array((gpus, (where, columns)), shape=(m, n))
        one_first = sparse.csr_array((ones, (where, columns)), shape=(m, n))
        eye = sparse.eye_array(n)
        empty = sparse.diags_array((stays < 0).astype(np.float64))
        alike = self._alike()
        rows = sparse.vstack(
            [
                sparse.hstack([by_job, sparse.csr_array((len(tenants), n + m))]),
                sparse.hstack([room, none, -sparse.diags_array(free)]),
                sparse.hstack([none, one_first, -empty]),
                sparse.hstack([-eye, eye, sparse.csr_array((n, m))]),
                sparse.hstack([sparse.csr_array((len(alike), 2 * n)), _order(alike, m)]),
            ]
        )
        top = [np.ones(len(tenants)), np.zeros(m), np.zeros(m), np.zeros(n), np.zeros(len(alike))]
        limits = np.concatenate(top)
        least = np.full(len(limits), -np.inf)
        least[len(tenants) + m : len(tenants) + 2 * m] = 0.0  # somebody is the first
        integer = np.concatenate(
            [np.ones(n, np.bool_), np.zeros(n, np.bool_), np.ones(m, np.bool_)]
        )
        upper = np.concatenate([np.ones(n), np.where(shared, 0.0, 1.0), np.ones(m)])
        return Model(
            np.concatenate([gain, first, np.zeros(m)]),
            sparse.csr_array(rows),
            least,
            limits,
            np.zeros(2 * n + m),
            upper,
            integer,
        )

    def _alike(self) -> list[tuple[int, int]]:
        """Of machines of a kind on which nobody is, each and the next: the first are used first."""
        pairs, last = list[tuple[int, int]](), dict[tuple[int, bool], int]()
        homes = {each.home for each in self._tenants}
        for place, machine in enumerate(self._machines):
            if machine.on or machine.stay or machine.row in homes:
                continue
            key = machine.kind.first, machine.up
            if key in last:
                pairs.append((last[key], place))
            last[key] = place
        return pairs

    def _known(self, start: Chosen) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """A choice as columns; who is first on an empty machine is the one that ends first."""
        n, m = len(self._options), len(self._machines)
        x = np.zeros(2 * n + m)
        first = dict[int, tuple[float, int]]()
        for at, each in enumerate(self._options):
            if start.get(self._tenants[each.tenant].job) == (each.machine, each.gpus):
                x[at] = x[2 * n + each.machine] = 1.0
                if not self._machines[each.machine].stay:
                    own = each.seconds, at
                    first[each.machine] = min(first.get(each.machine, own), own)
        for _, at in first.values():
            x[n + at] = 1.0
        return x


def _order(pairs: Sequence[tuple[int, int]], machines: int) -> sparse.csr_array:
    """Rows that say that of each pair the second is used only with the first."""
    rows = sparse.lil_array((len(pairs), machines))
    for at, (before, after) in enumerate(pairs):
        rows[at, after], rows[at, before] = 1.0, -1.0
    return sparse.csr_array(rows)
