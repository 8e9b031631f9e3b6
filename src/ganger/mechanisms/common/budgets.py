"""Budgets of tenants: what their jobs hold costs money, and what follows when that is spent."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import msgspec

from ganger.core.books.ledger import Ledger
from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Placement, Plan, Reason
from ganger.core.protocols import Policy, revived
from ganger.core.spec import OnPreempt, Shape, TenantSpec
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.units import HOUR, NEVER, WHOLE
from ganger.core.view import View
from ganger.mechanisms.common.holdings_delta import HoldingsDelta
from ganger.mechanisms.common.reasons import changed_by
from ganger.mechanisms.common.two_level import draw

_MICRO = 1e6
_STOPPABLE = (int(Phase.STARTING), int(Phase.RUNNING))
_SPENT = "AssocGrpBilling"
"""Slurm's word."""


def price_by_node(nodes: Nodes) -> list[int]:
    """Millionths of a USD that a GPU of each node costs for an hour (of one without GPUs: all of
    it); 0 where nobody says it."""
    result = []
    for node, offer in enumerate(nodes.offers):
        gpus = int(nodes.gpus[node])
        price = nodes.type_specs[nodes.gpu_type[node]].price if gpus else 0.0
        if offer is not None and offer.price >= 0:
            price = offer.price / max(gpus, 1)
        result.append(round(price * _MICRO))
    return result


class Tally:
    """What all that tenants hold costs an hour, in millionths of a USD by tenant: a cache that
    follows the books."""

    def __init__(self, nodes: Nodes) -> None:
        self._price = price_by_node(nodes)
        self._cpus = nodes.cpus[: nodes.n].tolist()
        self._delta = HoldingsDelta()
        self._each: dict[int, tuple[int, int]] = {}
        self.hourly: dict[int, int] = {}

    def look(self, view: View, ledger: Ledger) -> None:
        """Catch up with the books."""
        gone, come = self._delta.changes(ledger)
        for job in gone:
            tenant, price = self._each.pop(job)
            self.hourly[tenant] -= price
        for job, placement in come:
            tenant = view.at.tenant[job]
            price = self._price_of(view.draft.shape(job), placement)
            self._each[job] = tenant, price
            self.hourly[tenant] = self.hourly.get(tenant, 0) + price

    def _price_of(self, shape: Shape, placement: Placement) -> int:
        """Of a part of a GPU its part; of cores of a node without GPUs theirs."""
        price = 0
        for slot in placement:
            needs, each = shape.roles[slot.role].needs, self._price[slot.node]
            if slot.devices:
                share = slot.share or needs.share
                price += each * slot.devices.bit_count() * share // WHOLE
            elif self._cpus[slot.node] and needs.cpus:
                price += each * slot.workers * needs.cpus // self._cpus[slot.node]
        return price


class BudgetMemory(msgspec.Struct):
    """What the inner policy keeps; by tenant the USD that were spent until `at`, and what is spent
    an hour from then on, in millionths; the tenants that may start nothing."""

    inner: Any
    spent: dict[str, float] = {}
    hourly: dict[str, int] = {}
    at: int = 0
    closed: list[str] = []


@dataclass(frozen=True)
class Budgets:
    """Another policy, which does not see the jobs of tenants that have spent their budget; where
    the cluster says `stop`, those are stopped. `ask` and `stop` hold until somebody gives more.
    """

    inner: Policy

    @property
    def name(self) -> str:
        """The inner policy's."""
        return self.inner.name

    @property
    def orders(self) -> tuple[type, ...]:
        """The actions beside starts and stops that the inner policy uses."""
        kinds: tuple[type, ...] = getattr(self.inner, "orders", ())
        return kinds

    def decide(self, view: View, memory: BudgetMemory | None) -> tuple[Plan, BudgetMemory]:
        """The inner plan for the tenants with money left, again when the next budget is spent."""
        memory = memory or BudgetMemory(None, at=view.now)
        spent = spent_by(memory, view.now)
        tree = _Tree(view)
        closed = {name: how for name, how in tree.over(spent).items() if how != "warn"}
        if sorted(closed) != memory.closed:
            view.forget()
        inner = revived(memory.inner, self.inner.decide)
        if closed:
            plan, inner = self._without(view, tree, closed, spent, inner)
        else:
            plan, inner = self.inner.decide(view, inner)
        tally = view.cached(Tally, view.nodes)
        tally.look(view, view.ledger)
        hourly = {view.jobs.tenants[code]: each for code, each in tally.hourly.items() if each}
        plan.wake = min(plan.wake, tree.runs_out(spent, hourly, view.now))
        plan.until |= CAPACITY_FREED | CAPACITY_LOST | COMMANDED | WOKE
        return plan, BudgetMemory(inner, spent, hourly, view.now, sorted(closed))

    def _without(
        self,
        view: View,
        tree: _Tree,
        closed: dict[str, str],
        spent: dict[str, float],
        inner: Any,
    ) -> tuple[Plan, Any]:
        """The plan for all tenants but these, and stops of those that must not go on."""
        names = view.jobs.tenants
        for job in view.active.tolist():
            how = closed.get(names[view.at.tenant[job]])
            stays = view.at.on_preempt[job] == OnPreempt.NEVER
            if how == "stop" and not stays and view.at.phase[job] in _STOPPABLE:
                view.draft.stop(job, "budget")
        part = view.of_tenants(code for code, name in enumerate(names) if name not in closed)
        plan, inner = self.inner.decide(part, inner)
        draw(part, plan)
        reasons = changed_by(plan.reasons, QUEUED)
        waiting = {view.at.tenant[job] for job in view.pending.tolist()}
        for code in sorted(waiting):
            if names[code] in closed:
                numbers = tree.numbers(names[code], spent)
                reasons.append(Reason(_SPENT, "Budgets", -1, code, numbers, COMMANDED))
        return view.draft.plan(reasons, plan.wake, plan.until), inner


def spent_by(memory: BudgetMemory, now: int) -> dict[str, float]:
    """USD by tenant until `now`, without those of tenants below it."""
    hours = (now - memory.at) / HOUR
    names = sorted({*memory.spent, *memory.hourly})
    return {
        name: memory.spent.get(name, 0.0) + memory.hourly.get(name, 0) / _MICRO * hours
        for name in names
    }


def budgets_spent(view: View, memory: Any, now: int) -> dict[str, float]:
    """By tenant with a budget, the USD that it and all below it have spent until `now`: `memory` is
    that of a policy; nothing where that keeps no budgets."""
    if not isinstance(memory, BudgetMemory):
        return {}
    tree, spent = _Tree(view), spent_by(memory, now)
    return {spec.name: tree.of(spec, spent) for spec in tree.limited}


def carried(memory: Any, *, limited: bool, keeps: bool, now: int) -> Any:
    """What is kept where another policy, or others budgets, follow: what was spent, and where it
    `keeps` that, the memory of the policy. `limited`: whether budgets are stated from now on."""
    own = memory if isinstance(memory, BudgetMemory) else None
    inner = (own.inner if own is not None else memory) if keeps else None
    if not limited:
        return inner
    spent = own if own is not None else BudgetMemory(None, at=now)
    return msgspec.structs.replace(spent, inner=inner)


class _Tree:
    """The tenants with a budget, and whom each is above."""

    def __init__(self, view: View) -> None:
        specs = view.nodes.spec.tenants
        self._above = {spec.name: spec.parent for spec in specs}
        self.limited: list[TenantSpec] = [spec for spec in specs if spec.budget >= 0]
        self._names = list(view.jobs.tenants)

    def _chain(self, name: str) -> list[str]:
        """The tenant and those above it."""
        result = [name]
        while above := self._above.get(result[-1], ""):
            result.append(above)
        return result

    def of(self, spec: TenantSpec, amounts: dict[str, Any]) -> Any:
        """The sum over the tenant and all below it."""
        return sum(each for name, each in amounts.items() if spec.name in self._chain(name))

    def over(self, spent: dict[str, float]) -> dict[str, str]:
        """By tenant whose budget is spent, or that of one above it: the hardest that follows."""
        gone = {
            spec.name: spec.beyond
            for spec in self.limited
            if self.of(spec, spent) >= spec.budget - 1e-9
        }
        result = {}
        for name in {*self._names, *self._above} if gone else ():
            hows = [gone[each] for each in self._chain(name) if each in gone]
            if hows:
                result[name] = max(hows, key=("warn", "ask", "stop").index)
        return result

    def numbers(self, name: str, spent: dict[str, float]) -> dict[str, float]:
        """What is spent of which budget, of the first that is."""
        for each in self._chain(name):
            for spec in self.limited:
                if spec.name == each and self.of(spec, spent) >= spec.budget - 1e-9:
                    return {"spent_usd": round(self.of(spec, spent), 6), "budget_usd": spec.budget}
        return {}

    def runs_out(self, spent: dict[str, float], hourly: dict[str, int], now: int) -> int:
        """When the next budget is spent at the present rates; NEVER if none is."""
        soonest = NEVER
        for spec in self.limited:
            remains, rate = spec.budget - self.of(spec, spent), self.of(spec, hourly)
            if remains > 1e-9 and rate:
                soonest = min(soonest, now + max(ceil(remains * _MICRO / rate * HOUR), 1))
        return soonest
