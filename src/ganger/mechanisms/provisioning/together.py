"""Which jobs should share which machines: jobs, machines, what a choice costs, and the choice by a
randomised greedy rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from ganger.core.profiles import Profile
from ganger.mechanisms.provisioning.instances import Instance


class Tenant(NamedTuple):
    """A job to be put on a machine: in how many seconds it is due, and by kind of machine (its
    first row) the numbers of GPUs on which it can run there, with the seconds that it takes on
    them. `home`: the row where it runs, on so many GPUs (`has`); -1: it waits. `move`: seconds that
    it loses where it has to go on elsewhere, or on other GPUs."""

    job: int
    model: str
    profile: Profile
    due: float
    ways: dict[int, tuple[tuple[int, float], ...]]
    home: int = -1
    has: int = 0
    move: float = 0.0

    def best(self) -> float:
        """The least seconds that it takes."""
        return min((took for ways in self.ways.values() for _, took in ways), default=inf)

    def worst(self) -> float:
        """The most."""
        return max((took for ways in self.ways.values() for _, took in ways), default=0.0)

    def slowed(self, others: Sequence[Guest]) -> float:
        """The factor on its time beside these on one machine."""
        factor = 1.0
        if self.profile.disturbed:
            for other in others:
                if other.tenant.job != self.job:
                    factor *= self.profile.disturbed.get(other.tenant.model, 1.0)
        return factor


class Guest(NamedTuple):
    """A job on so many GPUs of a machine, and the seconds that it takes there alone."""

    tenant: Tenant
    gpus: int
    seconds: float


@dataclass
class Machine:
    """A machine, or one that could be switched on: its free GPUs, whether it is `on`, and the jobs
    that `stay` on it whatever is chosen. `up`: jobs can run there already."""

    row: int
    kind: Instance
    free: int
    on: bool
    stay: list[Guest] = field(default_factory=list)
    up: bool = True

    def ways(self, tenant: Tenant) -> list[tuple[int, float]]:
        """How a job could run on what is free: GPUs, and seconds with what moving there takes. A
        job that runs goes only to machines that are up."""
        if tenant.home >= 0 and not self.up:
            return []
        able = [each for each in tenant.ways.get(self.kind.first, ()) if each[0] <= self.free]
        if tenant.home < 0:
            return able
        here = tenant.home == self.row
        return [
            (gpus, took if here and gpus == tenant.has else took + tenant.move)
            for gpus, took in able
        ]


Cost: TypeAlias = Callable[[Machine, Sequence[Guest]], float]
"""What a machine costs (USD) with these on it, and those who stay, with what is paid for lateness.
"""
Chosen: TypeAlias = dict[int, tuple[int, int]]
"""By job the place of its machine among those given, and GPUs on it; who is not in it waits."""


class Postponed(NamedTuple):
    """What it costs (USD) that a job waits: what it adds to the costs where `greedy` would put it
    if it were alone (on a machine that nobody has; where it fits on none, on one that is on), and
    for each second that it is then late at worst `late`."""

    late: float
    cost: Cost

    def of(self, tenant: Tenant, machines: Sequence[Machine]) -> float:
        """For one job."""
        alone = {each.kind.first: each for each in machines if not each.stay}
        added = self._added(tenant, [*alone.values()])
        if added is None:
            added = self._added(tenant, machines)
        return (added or 0.0) + self.late * max(tenant.worst() - tenant.due, 0.0)

    def _added(self, tenant: Tenant, machines: Sequence[Machine]) -> float | None:
        keys = list[_Key]()
        for machine in machines:
            ways = machine.ways(tenant)
            spent = self.cost(machine, []) if ways else 0.0
            for gpus, took in ways:
                guest = Guest(tenant, gpus, took)
                more = self.cost(machine, [guest]) - spent
                keys.append(_key(machine, guest, [], more, machine.free))
        return min(keys)[2] if keys else None


_Key: TypeAlias = tuple[bool, float, float, bool, int]


def _key(machine: Machine, guest: Guest, guests: Sequence[Guest], more: float, free: int) -> _Key:
    """By what `greedy` chooses; third what it adds to the costs. `free`: GPUs before it came."""
    tenant = guest.tenant
    slow = guest.seconds * tenant.slowed([*machine.stay, *guests])
    late = slow > tenant.due
    return late, slow if late else 0.0, round(more, 9), not machine.on, free - guest.gpus


FAR = 1e9
"""Seconds of pressure that only jobs have of which nobody knows how long they are."""


def pressure(tenant: Tenant) -> float:
    """How late a job is at least (seconds; less than 0: what it has to spare)."""
    return tenant.best() - tenant.due


def total(
    tenants: Sequence[Tenant],
    machines: Sequence[Machine],
    chosen: Chosen,
    cost: Cost,
    waits: Sequence[float],
) -> float:
    """What a choice costs: machines that somebody is on, and jobs that wait (`waits` by tenant)."""
    guests = dict[int, list[Guest]]()
    spent = 0.0
    for at, tenant in enumerate(tenants):
        if tenant.job not in chosen:
            spent += waits[at]
            continue
        place, gpus = chosen[tenant.job]
        seconds = dict(machines[place].ways(tenant))[gpus]
        guests.setdefault(place, []).append(Guest(tenant, gpus, seconds))
    for place, machine in enumerate(machines):
        if place in guests or machine.stay:
            spent += cost(machine, guests.get(place, []))
    return spent


def greedy(
    tenants: Sequence[Tenant],
    machines: Sequence[Machine],
    cost: Cost,
    late: float,
    tries: int,
    seed: int,
) -> tuple[Chosen, float]:
    """The best of so many tries, and what it costs. In each the jobs come by pressure, the highest
    first, later tries in an order with noise in it. Each job takes the place and the size that
    costs least of those with which it is done when due; where there is none, that with which it is
    done first. It waits only if there is no place, or if that costs less (ANDREAS, FiCloud 2021).
    """
    postponed = Postponed(late, cost)
    waits = [postponed.of(tenant, machines) for tenant in tenants]
    alone = [cost(machine, []) for machine in machines]
    pressures = [pressure(each) for each in tenants]
    scale = max((abs(each) for each in pressures if abs(each) < FAR), default=0.0) or 1.0
    ways = [[machine.ways(tenant) for machine in machines] for tenant in tenants]
    noise, best, least = np.random.default_rng(seed), Chosen(), inf
    seen = set[tuple[int, ...]]()
    for attempt in range(tries):
        drawn = noise.normal(0.0, 0.3 * scale if attempt else 0.0, len(tenants)).tolist()
        order = sorted(range(len(tenants)), key=lambda at: (-pressures[at] - drawn[at], at))
        if tuple(order) in seen:
            continue
        seen.add(tuple(order))
        chosen = _one_try(tenants, machines, ways, cost, waits, list(alone), order)
        spent = total(tenants, machines, chosen, cost, waits)
        if spent < least - 1e-9:
            best, least = chosen, spent
    return best, least


def _one_try(
    tenants: Sequence[Tenant],
    machines: Sequence[Machine],
    ways: Sequence[Sequence[Sequence[tuple[int, float]]]],
    cost: Cost,
    waits: Sequence[float],
    spent: list[float],
    order: Sequence[int],
) -> Chosen:
    free = [machine.free for machine in machines]
    guests = [list[Guest]() for _ in machines]
    chosen = Chosen()
    for at in order:
        tenant = tenants[at]
        best: _Key | None = None
        take: tuple[int, Guest] | None = None
        looked = set[int]()
        for place, machine in enumerate(machines):
            if not machine.on and not guests[place]:
                if machine.kind.first in looked:
                    continue  # one empty machine of a kind is as good as another
                looked.add(machine.kind.first)
            for gpus, took in ways[at][place]:
                if gpus > free[place]:
                    continue
                guest = Guest(tenant, gpus, took)
                more = cost(machine, [*guests[place], guest]) - spent[place]
                key = _key(machine, guest, guests[place], more, free[place])
                if best is None or key < best:
                    best, take = key, (place, guest)
        if take is None or best is None:
            continue
        place, guest = take
        if best[2] > waits[at] + 1e-9 and tenant.home < 0:
            continue
        chosen[tenant.job] = place, guest.gpus
        free[place] -= guest.gpus
        guests[place].append(guest)
        spent[place] += best[2]
    return chosen
