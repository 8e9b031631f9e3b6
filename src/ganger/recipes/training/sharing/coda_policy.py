"""CODA around a queue: cores by trial, CPU jobs that make way, and a throttle on their traffic."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar

import msgspec
import numpy as np

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, STARTED, WOKE
from ganger.core.plan import Plan, Resize, Start, Tune
from ganger.core.protocols import revived
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, WHOLE
from ganger.core.view import View
from ganger.estimate.sharing.host_bandwidth import HostUser, stretch
from ganger.mechanisms.common.reconcile import STAYS
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.recipes.training.sharing.arrays import Arrays, Company, adapts
from ganger.recipes.training.sharing.cores import SETTLED, Search, divided, step, throttled

_RUNNING = int(Phase.RUNNING)


class Throttle(Enum):
    """By what CPU jobs are held back."""

    BANDWIDTH = "bandwidth"
    """The hardware limits what they move."""
    CORES = "cores"
    """They compute on fewer cores."""


class CodaMemory(msgspec.Struct):
    """What the inner policy keeps; by job the search for its cores, and of those that have settled
    the attempt and the cores per GPU; by class of jobs the cores that were found; by job the
    attempt and what it was given; nodes on which a job that has to make way has yet to start."""

    inner: Any
    searching: dict[int, Search] = {}
    settled: dict[int, tuple[int, int]] = {}
    learnt: dict[str, int] = {}
    given: dict[int, tuple[int, float]] = {}
    short: list[int] = []


@dataclass(frozen=True)
class CodaPolicy:
    """A queue whose jobs with GPUs begin with `start` cores per GPU. Every `every` microseconds
    they are given one more or one less, by what a change of more than `threshold` of their speed
    says. No job without GPUs may cost one with GPUs `loss` of its speed."""

    orders: ClassVar[tuple[type, ...]] = (Tune,)
    queue: QueuePolicy
    place: Arrays
    start: int
    every: int
    threshold: float
    loss: float
    throttle: Throttle

    @cached_property
    def name(self) -> str:
        """The queue's."""
        return self.queue.name

    def decide(self, view: View, memory: CodaMemory | None) -> tuple[Plan, CodaMemory]:
        """The queue's plan, stops of CPU jobs that have to make way, and a Tune for each job whose
        part of its hosts changes."""
        memory = memory or CodaMemory(None)
        plan, inner = self.queue.decide(view, revived(memory.inner, self.queue.decide))
        return _Step(self, view, memory, inner).run(plan)


class _Step:
    """One decision."""

    def __init__(self, policy: CodaPolicy, view: View, memory: CodaMemory, inner: Any) -> None:
        self.policy, self.view, self.place = policy, view, policy.place
        self.memory = CodaMemory(
            inner,
            dict(memory.searching),
            dict(memory.settled),
            dict(memory.learnt),
            dict(memory.given),
        )
        self.short = memory.short
        self.company = view.cached(Company)
        self.attempts: dict[int, int] = {}
        """By job that this plan starts: its attempt then."""
        self._shares: dict[int, dict[int, float]] = {}
        self._parts: dict[int, dict[int, float]] = {}

    def run(self, plan: Plan) -> tuple[Plan, CodaMemory]:
        """The plan, and what is kept."""
        view, company, memory = self.view, self.company, self.memory
        company.look(view)
        if view.oracle.learns or company.anew:
            company.touched |= {node for nodes in company.nodes.values() for node in nodes}
        self._starts(plan)
        self._forget()
        for job in company.come:
            self._begin(job)
        touched = company.touched | set(self.short) | self._measure()
        self._make_way(sorted(touched))
        company.look(view)
        self._forget()
        plan = view.draft.plan(plan.reasons, plan.wake, plan.until)
        plan.actions += self._tunes(touched | company.touched)
        due = (self._due(job, search) for job, search in memory.searching.items())
        plan.wake = min(plan.wake, min(due, default=NEVER))
        plan.until |= CAPACITY_FREED | CAPACITY_LOST | STARTED | WOKE
        return plan, memory

    def _starts(self, plan: Plan) -> None:
        self.attempts = {
            action.job: action.attempt
            for action in plan.actions
            if isinstance(action, Start | Resize)
        }

    def _attempt(self, job: int) -> int:
        return self.attempts.get(job, int(self.view.at.attempt[job]))

    def _forget(self) -> None:
        """Those that hold nothing more."""
        memory, company = self.memory, self.company
        gone: Iterable[int] = company.gone
        if company.anew:
            known = memory.searching.keys() | memory.settled.keys() | memory.given.keys()
            gone = [job for job in known if job not in company.nodes]
        for job in gone:
            for each in (memory.searching, memory.settled, memory.given):
                each.pop(job, None)

    # ------------------------------------------------------------------ cores by trial

    def _class(self, job: int) -> str:
        """Whose cores those of a job are taken for: those of its model, else of its user."""
        jobs, at = self.view.jobs, self.view.at
        return jobs.models[at.model[job]] or f"user {jobs.users[at.user[job]]}"

    def _begin(self, job: int) -> None:
        """A new attempt: with the cores that jobs like it have settled at, else from `start`."""
        memory, limit = self.memory, self._limit(job)
        attempt = self._attempt(job)
        known = memory.searching.get(job)
        kept = known.attempt if known is not None else memory.settled.get(job, (-1,))[0]
        if kept == attempt or not limit:
            return
        result = memory.learnt.get(self._class(job))
        memory.searching.pop(job, None)
        if not adapts(self.view, job):
            memory.settled[job] = attempt, self._reserved(job)
        elif result is not None:
            memory.settled[job] = attempt, min(result, limit)
        else:
            start = min(self.policy.start, limit)
            memory.settled.pop(job, None)
            memory.searching[job] = Search(attempt, start, start, self.view.now)

    def _limit(self, job: int) -> int:
        """The most cores per GPU that its nodes could give a job; 0 where its cores are not
        divided, and where a node does not state any."""
        cpus, company = self.view.nodes.cpus, self.company
        here = [company.trainers.get(node, {}).get(job, 0) for node in company.nodes[job]]
        if not here or not all(here):
            return 0
        nodes = zip(company.nodes[job], here, strict=True)
        return min(int(cpus[node]) // WHOLE // gpus for node, gpus in nodes)

    def _reserved(self, job: int) -> int:
        """The cores per GPU that are reserved for it, one at least."""
        gpus, nodes = self.view.nodes.gpus, self.company.nodes[job]
        return max(
            int(min(self.place.kept(self.view, node) / gpus[node] for node in nodes)) // WHOLE, 1
        )

    def _due(self, job: int, search: Search) -> int:
        """When the speed with the present cores is measured."""
        began = self.view.at.began[job]
        running = self.view.at.phase[job] == _RUNNING
        return max(search.since, began) + self.policy.every if running else NEVER

    def _measure(self) -> set[int]:
        """Go on with every search whose time has come; the nodes on which something changes."""
        view, memory, policy = self.view, self.memory, self.policy
        touched = set[int]()
        for job, search in list(memory.searching.items()):
            if self._due(job, search) > view.now or job in self.attempts:
                continue
            if float(view.knobs.get(job, {}).get("cpus_per_gpu", -1.0)) != search.cores * WHOLE:
                memory.searching[job] = msgspec.structs.replace(search, since=view.now)
                continue
            speed = float(view.at.rate[job]) / self._slowdown(job)
            result = step(search, speed, policy.threshold, self._limit(job), view.now)
            touched |= set(self.company.nodes[job])
            if result.way != SETTLED:
                memory.searching[job] = result
                continue
            del memory.searching[job]
            memory.settled[job] = result.attempt, result.cores
            memory.learnt[self._class(job)] = result.cores
        return touched

    def _wants(self, job: int) -> int:
        """Cores per GPU that the job is to have."""
        search = self.memory.searching.get(job)
        if search is not None:
            return search.cores
        return self.memory.settled.get(job, (0, self.policy.start))[1]

    # ------------------------------------------------------------------ who makes way

    def _make_way(self, nodes: list[int]) -> None:
        """Stop CPU jobs that have borrowed the cores which jobs with GPUs now want."""
        view, ledger = self.view, self.view.ledger
        for node in nodes:
            trainers, others = (
                each.get(node, {}) for each in (self.company.trainers, self.company.others)
            )
            if not trainers or not others:
                continue
            wanted = sum(gpus * self._wants(job) * WHOLE for job, gpus in trainers.items())
            kept = self.place.kept(view, node)
            lacks = min(wanted, kept) - ledger.free_cpus[node]
            borrowed = kept - ledger.free_cpus[node]
            at = view.at
            for job in sorted(others, key=lambda job: (-at.began[job], -job)):
                if lacks <= 0 or borrowed <= 0:
                    break
                if at.on_preempt[job] in STAYS:
                    continue
                if at.phase[job] != _RUNNING or job in self.attempts:
                    self.memory.short.append(node)
                    continue
                cpus = others[job] * view.draft.shape(job).roles[0].needs.cpus
                view.draft.stop(job)
                lacks, borrowed = lacks - cpus, borrowed - cpus

    # ------------------------------------------------------------------ who gets what

    def _share(self, node: int) -> dict[int, float]:
        """Cores per GPU of the jobs with GPUs on the node, thousandths."""
        if node not in self._shares:
            nodes, ledger = self.view.nodes, self.view.ledger
            here = sorted(self.company.trainers.get(node, {}).items())
            wanted = [(gpus, float(self._wants(job) * WHOLE)) for job, gpus in here]
            part = self.place.kept(self.view, node) / max(int(nodes.gpus[node]), 1)
            result = divided(wanted, float(ledger.free_cpus[node]), part)
            self._shares[node] = {job: each for (job, _), each in zip(here, result, strict=True)}
        return self._shares[node]

    def _cores(self, job: int) -> float:
        """What the job gets per GPU: on the node that gives it least."""
        return min(self._share(node)[job] for node in self.company.nodes[job])

    def _tunes(self, touched: set[int]) -> list[Tune]:
        """What changes on these nodes, and on others of jobs whose cores change."""
        nodes, company, tunes = self.view.nodes, self.company, list[Tune]()
        jobs = {job for node in touched for job in company.trainers.get(node, {})}
        moved = set(touched)
        for job in sorted(jobs):
            if self._limit(job):
                value = round(self._cores(job), 3)
                if self._gives(job, value):
                    moved |= set(company.nodes[job])
                    tunes.append(Tune(job, self._attempt(job), {"cpus_per_gpu": value}))
        streaming = [node for node in moved if nodes.bandwidth[node]]
        held = {job for node in streaming for job in company.others.get(node, {})}
        return tunes + [tune for job in sorted(held) for tune in self._throttle(job)]

    def _gives(self, job: int, value: float) -> bool:
        """Whether the job has not been given that already."""
        given = self._attempt(job), value
        if self.memory.given.get(job) == given:
            return False
        self.memory.given[job] = given
        return True

    # ------------------------------------------------------------------ who is held back

    def _throttle(self, job: int) -> list[Tune]:
        """The Tune by which a CPU job may move more or less than before."""
        use = self._use(job)
        if use is None:
            return []
        needs, company = self.view.draft.shape(job).roles[0].needs, self.company
        here = [node for node in company.nodes[job] if self.view.nodes.bandwidth[node]]
        workers = {node: company.others[node][job] for node in here}
        parts = {node: self._part(node).get(job, 1.0) for node in here}
        if self.policy.throttle is Throttle.CORES:
            name, value = "cpus", round(min(parts.values()) * needs.cpus, 3)
        else:
            cores = needs.cpus / WHOLE
            name = "bandwidth_gbps"
            value = min(parts[node] * workers[node] for node in here) * cores * use
            if min(parts.values()) == 1.0:
                value = max(workers.values()) * cores * use
        if job not in self.memory.given and min(parts.values()) == 1.0:
            return []
        return [Tune(job, self._attempt(job), {name: value})] if self._gives(job, value) else []

    def _use(self, job: int) -> float | None:
        """GB/s for each unit of the job that its model is known to move; None if that is not."""
        host = self.view.oracle.profile(self.view.jobs.models[self.view.at.model[job]]).host
        return host.bandwidth if host is not None else None

    def _user(self, job: int, units: float, speed: float = 1.0) -> HostUser | None:
        """The job as one that uses the memory of a node."""
        host = self.view.oracle.profile(self.view.jobs.models[self.view.at.model[job]]).host
        return HostUser(host.bandwidth * units * speed, host.bound) if host is not None else None

    def _training(self, node: int) -> dict[int, HostUser]:
        """The jobs with GPUs that use the memory of the node, as they would if they had all of it
        that they want."""
        result = {}
        for job, gpus in sorted(self.company.trainers.get(node, {}).items()):
            user = self._user(job, gpus, self._alone(job))
            if user is not None and user.demand > 0.0:
                result[job] = user
        return result

    def _alone(self, job: int) -> float:
        """The speed that is believed of a job with its cores, if memory held it up nowhere."""
        view = self.view
        profile = view.oracle.profile(view.jobs.models[view.at.model[job]])
        placement = view.ledger.holds[job][1]
        gpus = sum(slot.devices.bit_count() for slot in placement)
        kind = view.nodes.type_specs[view.nodes.gpu_type[placement[0].node]].name
        speeds = view.oracle.throughput(
            view, np.array([job]), kind, np.array([gpus]), np.array([len(self.company.nodes[job])])
        )
        speed = 1.0 if math.isnan(speeds[0]) else float(speeds[0])
        if profile.sensitivity is not None and job in self.memory.given:
            speed *= profile.sensitivity.at(self.memory.given[job][1], math.inf)
        return speed

    def _moving(self, node: int) -> dict[int, HostUser]:
        """The CPU jobs that use the memory of the node, unthrottled."""
        result = {}
        for job, workers in sorted(self.company.others.get(node, {}).items()):
            cores = workers * self.view.draft.shape(job).roles[0].needs.cpus / WHOLE
            user = self._user(job, cores)
            if user is not None:
                result[job] = user
        return result

    def _part(self, node: int) -> dict[int, float]:
        """Of each CPU job on the node, the part of what it moves alone that it may move."""
        if node not in self._parts:
            moving, training = self._moving(node), self._training(node)
            result = throttled(
                list(training.values()),
                list(moving.values()),
                self.view.nodes.bandwidth[node],
                self.policy.loss,
            )
            self._parts[node] = dict(zip(moving, result, strict=True))
        return self._parts[node]

    def _slowdown(self, job: int) -> float:
        """What traffic is believed to leave of the speed of a job with GPUs, as things stand."""
        result = 1.0
        for node in self.company.nodes[job]:
            capacity = self.view.nodes.bandwidth[node]
            training = self._training(node) if capacity else {}
            if job in training:
                moving = [self._held(other, user) for other, user in self._moving(node).items()]
                slow = stretch((*training.values(), *moving), capacity)
                result = min(result, training[job].speed(slow))
        return result

    def _held(self, job: int, user: HostUser) -> HostUser:
        """A CPU job with the throttle that it has now."""
        if job not in self.memory.given:
            return user
        value = self.memory.given[job][1]
        if self.policy.throttle is Throttle.BANDWIDTH:
            return user._replace(limit=value)
        part = value / self.view.draft.shape(job).roles[0].needs.cpus
        return user._replace(demand=user.demand * part)
