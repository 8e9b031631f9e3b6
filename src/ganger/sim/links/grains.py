"""Which jobs move gradients over which links now, and what that leaves of their speed: in the mean
(`MeanGrain`), or step by step (`StepGrain`).

The mean grain answers for months of a trace in the time of its placements. Only the grain of single
steps shows what depends on the instants of transfers: jobs that begin their steps together, and
transfers that wait for others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np

from ganger.core.books.links import Links, Transfer
from ganger.core.units import SECOND
from ganger.sim.links.fluid import SLOWEST, Mover, step_times
from ganger.solve.flows.flow_rates import Flow, FlowRates

DIGITS = 9
"""Parts of speeds are told with so many: last digits differ between processors."""
WAITS = 1e-9
"""What is left of the speed of a job whose transfer waits."""
FULL = 1.0 + 1e-9
DUAL = 2
"""AdaDUAL lets so many transfers pass a link at once."""


class Terms(NamedTuple):
    """On what terms a job's transfers share links. `rule`: beside which others they begin: `alone`,
    `two` (beside one), `dual` (where AdaDUAL lets them), or any. With a rule the priority says
    which of the transfers that wait begins first; those that have begun share alike."""

    weight: float = 1.0
    priority: int = 0
    rule: str = ""

    @property
    def shared_priority(self) -> int:
        """The priority of a transfer that has begun."""
        return 0 if self.rule else self.priority


EQUAL = Terms()
"""The terms of jobs that were given none."""


class Grain(Protocol):
    """What sharing links leaves of the speed of jobs."""

    def put(self, job: int, transfer: Transfer | None, terms: Terms, begins: int) -> None:
        """From `begins` on the job moves this in each step, None: nothing."""

    def settle(self, now: int) -> list[int]:
        """After all that is put at one instant: the jobs whose part of their speed has changed."""

    def part(self, job: int) -> float:
        """The part of its speed that is left to a job that was put."""

    def slowed_by(self, job: int) -> tuple[int, list[int]] | None:
        """The link that slows the job most, and the other jobs on it; None: no link does."""


class MeanGrain:
    """Jobs move at their mean rates, which change when jobs come, go, or have other terms."""

    def __init__(self, links: Links) -> None:
        self._capacity = np.array(links.capacity)
        self._contention = links.contention
        self._movers: dict[int, Mover] = {}
        self._on: dict[int, dict[int, float]] = {}
        """By link, the most GB/s that each job on it can move over it."""
        self._part: dict[int, float] = {}
        self._touched: set[int] = set()

    def put(self, job: int, transfer: Transfer | None, terms: Terms, begins: int) -> None:
        """From `begins` on the job moves this in each step, None: nothing."""
        before = self._movers.pop(job, None)
        for link, _ in before.transfer.path if before is not None else ():
            del self._on[link][job]
            self._touched.add(link)
        if transfer is None:
            self._part.pop(job, None)
            return
        self._movers[job] = Mover(transfer, terms.weight, terms.shared_priority)
        for link, part in transfer.path:
            self._on.setdefault(link, {})[job] = part * transfer.cap
            self._touched.add(link)

    def settle(self, now: int) -> list[int]:
        """After all that is put at one instant: the jobs whose part of their speed has changed."""
        changed, seen = list[int](), set[int]()
        for link in sorted(self._touched):
            for job in sorted(self._on.get(link, ())):
                if job not in seen:
                    group = self._company(job)
                    seen |= group
                    changed += self._solve(sorted(group))
        self._touched.clear()
        return sorted(changed)

    def _contested(self, link: int) -> bool:
        return sum(self._on[link].values()) > float(self._capacity[link]) * FULL

    def _company(self, job: int) -> set[int]:
        """The jobs that it may slow or that may slow it, by way of others, too."""
        company, todo, passed = {job}, [job], set[int]()
        while todo:
            for link, _ in self._movers[todo.pop()].transfer.path:
                if link not in passed and self._contested(link):
                    passed.add(link)
                    todo += [other for other in self._on[link] if other not in company]
                    company |= self._on[link].keys()
        return company

    def _solve(self, group: list[int]) -> list[int]:
        movers = [self._movers[job] for job in group]
        steps = step_times(movers, self._capacity, self._contention)
        changed = []
        for job, mover, step in zip(group, movers, steps.tolist(), strict=True):
            part = round(max(mover.transfer.stated / step, SLOWEST), DIGITS)
            if part != self._part.get(job):
                self._part[job] = part
                changed.append(job)
        return changed

    def part(self, job: int) -> float:
        """The part of its speed that is left to a job that was put."""
        return self._part.get(job, 1.0)

    def slowed_by(self, job: int) -> tuple[int, list[int]] | None:
        """The link that slows the job most, and the other jobs on it; None: no link does."""
        if job not in self._movers or self.part(job) >= 1.0:
            return None
        path = [link for link, _ in self._movers[job].transfer.path]
        asked = {link: sum(self._on[link].values()) / self._capacity[link] for link in path}
        link = max(path, key=lambda each: (asked[each], -each))
        return link, sorted(self._on[link].keys() - {job})


class _Step:
    """Where a job is in its step. `phase`: 0 computes, k makes the k-th transfer; `remaining`: GB
    of it at `since`, at `rate`; `ends`: when the phase ends at that, `version` counts its changes.
    """

    __slots__ = (
        "ends",
        "phase",
        "rate",
        "remaining",
        "since",
        "terms",
        "transfer",
        "version",
        "waits",
    )

    def __init__(self, transfer: Transfer, terms: Terms) -> None:
        self.transfer, self.terms = transfer, terms
        self.phase, self.version, self.ends, self.since = 0, 0, -1, 0
        self.remaining = self.rate = 0.0
        self.waits = False


class StepGrain:
    """Every step's transfers are flows."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._rates = FlowRates(links.capacity)
        self._steps: dict[int, _Step] = {}
        self._part: dict[int, float] = {}
        self._come: dict[int, Flow] = {}
        self._go: set[int] = set()
        self._waiting: list[int] = []
        """Jobs whose transfer may not begin yet, in the order in which they came to it."""
        self._new: list[int] = []
        self._version = 0
        self.due: list[tuple[int, int, int]] = []
        """What phases end when, as (time, job, version); whoever drives this takes them out."""

    def put(self, job: int, transfer: Transfer | None, terms: Terms, begins: int) -> None:
        """From `begins` on the job moves this in each step, None: nothing. With other terms alone
        the step goes on."""
        before = self._steps.get(job)
        if before is not None and transfer == before.transfer:
            before.terms = terms
            if job in self._rates.flows:
                self._go.add(job)
                self._come[job] = self._flow(before)
            return
        if before is not None:
            self._leave(job)
            del self._steps[job], self._part[job]
        if transfer is not None:
            self._steps[job] = step = _Step(transfer, terms)
            self._part[job], step.since = 1.0, begins
            self._new.append(job)

    def _flow(self, step: _Step) -> Flow:
        terms, path = step.terms, step.transfer.phases[step.phase - 1]
        return Flow(path, terms.weight, step.transfer.cap, terms.shared_priority)

    def _leave(self, job: int) -> None:
        """The job's transfer, if it makes one, is over."""
        if job in self._rates.flows:
            self._go.add(job)
        self._come.pop(job, None)
        if job in self._waiting:
            self._waiting.remove(job)

    def reached(self, now: int, job: int, version: int) -> bool:
        """A phase of the job ends, if nothing has changed it since; whether it does."""
        step = self._steps.get(job)
        if step is None or step.version != version:
            return False
        if step.phase:
            self._leave(job)
        step.phase = (step.phase + 1) % (len(step.transfer.phases) + 1)
        if step.phase:
            step.remaining, step.since, step.rate = step.transfer.size, now, 0.0
            step.waits = True
            self._waiting.append(job)
        else:
            step.since = now
            self._new.append(job)
        return True

    def settle(self, now: int) -> list[int]:
        """After all that is put or reached at one instant: the jobs whose speed has changed."""
        for job in self._new:
            step = self._steps.get(job)
            if step is not None and not step.phase:
                begins = max(now, step.since)
                self._file(job, step, begins + math.ceil(step.transfer.compute * SECOND))
        self._new.clear()
        self._admit(now)
        if self._come or self._go:
            self._rates.change(self._come.items(), sorted(self._go), self._widths())
            self._come, self._go = {}, set()
            for job, rate in self._rates.rates.items():
                step = self._steps[job]
                if rate != step.rate:
                    step.remaining = max(
                        step.remaining - step.rate * (now - step.since) / SECOND, 0.0
                    )
                    step.rate, step.since = rate, now
                    takes = step.remaining / rate * SECOND if rate > 0 else math.inf
                    if takes < math.inf:
                        self._file(job, step, now + math.ceil(takes))
                    else:
                        step.version = -1
        changed = []
        for job, step in self._steps.items():
            part = self._speed(step)
            if part != self._part[job]:
                self._part[job] = part
                changed.append(job)
        return sorted(changed)

    def _file(self, job: int, step: _Step, at: int) -> None:
        self._version += 1
        step.version, step.ends = self._version, at
        self.due.append((at, job, self._version))

    def _speed(self, step: _Step) -> float:
        """Work a second of the step that the profile states: its transfers are the rest of it."""
        if not step.phase:
            return 1.0
        transfer = step.transfer
        whole = len(transfer.phases) * transfer.size
        return max(step.rate * (transfer.stated - transfer.compute) / whole, WAITS)

    def _widths(self) -> Iterable[tuple[int, float]]:
        """How wide links are for as many as are on them from now on."""
        loss = self._links.contention
        if not loss:
            return ()
        paths = [self._rates.flows[job].path for job in self._go]
        paths += [flow.path for flow in self._come.values()]
        counts = {link: len(self._rates.on(link)) for path in paths for link, _ in path}
        for job in self._go:
            for link, _ in self._rates.flows[job].path:
                counts[link] -= 1
        for flow in self._come.values():
            for link, _ in flow.path:
                counts[link] += 1
        whole = self._links.capacity
        return [
            (link, whole[link] * k / (k + (k - 1) * loss) if k > 1 else whole[link])
            for link, k in sorted(counts.items())
        ]

    # ------------------------------------------------------------------ who may begin

    def _admit(self, now: int) -> None:
        """Transfers that wait begin where they may, those of higher priority first."""
        self._waiting.sort(key=lambda job: -self._steps[job].terms.priority)
        for job in list(self._waiting):
            step = self._steps[job]
            if step.terms.rule and not self._may_begin(step, now):
                continue
            self._waiting.remove(job)
            step.waits = False
            self._come[job] = self._flow(step)

    def _may_begin(self, step: _Step, now: int) -> bool:
        """By the rule. AdaDUAL (Wang et al., arXiv 2002.10105): beside one transfer that has M1 to
        go, one of M2 begins where M2 / M1 < b / (2 (b + eta)); eta / b is the contention."""
        beside = set[int]()
        for link, part in self._flow(step).path:
            others = {other for other in self._rates.on(link) if other not in self._go}
            others |= {o for o, flow in self._come.items() if any(x == link for x, _ in flow.path)}
            asked = sum((self._most(other, link) for other in others), part * step.transfer.cap)
            if asked > self._links.capacity[link] * FULL:  # else nobody is slowed there
                beside |= others
        limit = {"alone": 0}.get(step.terms.rule, DUAL - 1)
        if len(beside) > limit:
            return False
        if not beside or step.terms.rule == "two":
            return True
        other = self._steps[beside.pop()]
        remaining = max(other.remaining - other.rate * (now - other.since) / SECOND, 0.0)
        return step.transfer.size < remaining / (2.0 * (1.0 + self._links.contention))

    def _most(self, job: int, link: int) -> float:
        """GB/s that the transfer of a job would take of a link if it were alone."""
        path = dict(self._flow(self._steps[job]).path)
        return path.get(link, 0.0) * self._steps[job].transfer.cap

    def part(self, job: int) -> float:
        """The part of its speed that is left to a job that was put."""
        return self._part.get(job, 1.0)

    def slowed_by(self, job: int) -> tuple[int, list[int]] | None:
        """The link that slows the job's transfer now, and the other jobs on it; None: no link."""
        link = self._rates.stopper.get(job, -1)
        others = sorted(set(self._rates.on(link)) - {job}) if link >= 0 else []
        return (link, others) if others else None
