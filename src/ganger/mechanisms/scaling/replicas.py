"""Services as sets of replicas: a service holds nothing itself, each replica is a child of its own,
so that scaling starts and stops replicas and never restarts a sibling.

A service is started on no devices, and its replicas are asked for with `Spawn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, Protocol

import msgspec
import numpy as np

from ganger.core.events import CAPACITY_FREED, COMMANDED, QUEUED, SERVED
from ganger.core.plan import Plan, Reason, Spawn
from ganger.core.spec import JobSpec, Kind
from ganger.core.state.facts import WINDOWS_MAX, Window
from ganger.core.state.jobs import Phase
from ganger.core.view import View
from ganger.mechanisms.placement.place import PACK, Placer

_PENDING, _STOPPING = int(Phase.PENDING), int(Phase.STOPPING)
CHANGES: Final = CAPACITY_FREED | COMMANDED | QUEUED | SERVED
"""What can alter how many replicas there should be, or where they are."""


class Rule(Protocol):
    """How many replicas a service should have."""

    def wanted(self, have: int, since: int, now: int, windows: Sequence[Window]) -> int:
        """The number, not bounded yet, for one that has had `have` since then (microseconds) and
        did in its last windows as they say, the latest last."""


@dataclass(frozen=True)
class Threshold:
    """One replica more when the last window was busier than `up`, one less when it was less busy
    than `down`, and no change within `cooldown` (microseconds) of the one before."""

    up: float
    down: float
    cooldown: int

    def wanted(self, have: int, since: int, now: int, windows: Sequence[Window]) -> int:
        """By the share of the replicas' time in which they worked. A window that began before the
        last change says nothing of what there is now."""
        if not windows or now - since < self.cooldown or windows[-1].since < since:
            return have
        busy = windows[-1].figures.get("busy")
        if busy is None:
            return have
        return have + (busy > self.up) - (busy < self.down)


@dataclass(frozen=True)
class Fixed:
    """Always `replicas`; 0: the most that the service allows."""

    replicas: int

    def wanted(self, have: int, since: int, now: int, windows: Sequence[Window]) -> int:
        """The number."""
        return self.replicas or int(np.iinfo(np.int32).max)


@dataclass(frozen=True)
class Asked:
    """As many as the service's router says that it wants."""

    def wanted(self, have: int, since: int, now: int, windows: Sequence[Window]) -> int:
        """The number, once there is one."""
        return int(windows[-1].figures.get("wanted", 0)) or have if windows else have


@dataclass(frozen=True)
class Concurrency:
    """As many replicas as give each `target` open requests, on the mean of the last `look_back`.

    A change is made once it was wanted, in the same direction, by every window for `up_delay`, or
    `down_delay`; of the difference the part `up` or `down` is made, and one at least. A delay is
    never longer than the windows that are kept reach back. (Ray Serve 2.60's formula.)
    """

    target: float
    look_back: int
    up_delay: int
    down_delay: int
    up: float
    down: float

    def wanted(self, have: int, since: int, now: int, windows: Sequence[Window]) -> int:
        """By the requests that were open in the windows that ended after the last change."""
        windows = list(windows)
        later = [at for at, window in enumerate(windows) if window.until > since]
        if not later:
            return have
        wanted = self._scaled(self._open(windows), have)
        if wanted == have:
            return have
        first = len(windows) - 1
        for at in reversed(later[:-1]):
            before = self._scaled(self._open(windows[: at + 1]), have)
            if (before > have) != (wanted > have) or before == have:
                break
            first = at
        delay = self.up_delay if wanted > have else self.down_delay
        if len(windows) == WINDOWS_MAX:
            delay = min(delay, windows[-1].until - windows[0].until)
        return wanted if windows[-1].until - windows[first].until >= delay else have

    def _open(self, windows: Sequence[Window]) -> float | None:
        """The mean over the look-back, which ends with the last window; of that one at least."""
        begins = windows[-1].until - self.look_back
        total = span = 0.0
        for window in reversed(windows):
            if window.until <= begins and span:
                break
            some = open_requests(window)
            if some is None:
                continue
            total += some * (window.until - window.since)
            span += window.until - window.since
        return total / span if span else None

    def _scaled(self, open_: float | None, have: int) -> int:
        if open_ is None:
            return have
        desired = open_ / self.target
        if not have:
            return ceil(desired)
        part = self.up if desired > have else self.down
        scaled = ceil(have + part * (desired - have) - 1e-9)
        if ceil(desired) < have and scaled == have:
            scaled -= 1
        return max(scaled, 1 if open_ else 0)


def open_requests(window: Window) -> float | None:
    """How many requests were open on average: as reported, or those that waited in the end and
    those that ran."""
    figures = window.figures
    if figures.get("ongoing") is not None:
        return figures["ongoing"]
    busy, queue, replicas = (figures.get(name) for name in ("busy", "queue", "replicas"))
    if queue is None:
        return None
    return queue + (busy or 0.0) * (replicas or 0.0)


def _has_requests(window: Window) -> bool:
    """Whether requests came in the window, or were open when it ended."""
    return any(window.figures.get(name, 0.0) > 0 for name in ("arrivals", "ongoing", "queue"))


class ScaledMemory(msgspec.Struct):
    """By service, what is kept of it."""

    wanted: dict[int, int]
    """How many replicas it should have."""
    since: dict[int, int]
    """When that last changed."""
    size: dict[int, int] = {}
    """With how many it was to begin, as was known then: people may change it."""


@dataclass(frozen=True)
class Scaling:
    """Gives every service as many replicas as `rule` wants, within the sizes that its first role
    allows: its size is where it begins, and where it goes when people change it. One that may have
    none keeps one while requests come, and is given one as soon as a request waits. A replica is
    one worker of that role. The newest ones go
    first, and before them those that wait. With `grants`, those go that the service's router gives
    back, and no others."""

    name: str
    rule: Rule
    place: Placer = PACK
    grants: bool = False
    orders = (Spawn,)

    def decide(self, view: View, memory: ScaledMemory | None) -> tuple[Plan, ScaledMemory]:
        """Replicas asked for, retired, and started where there is room."""
        at, after = view.at, ScaledMemory({}, {})
        replicas = replicas_of(view)
        waiting = view.pending.tolist()
        gone = set[int]()
        for service, have in sorted(replicas.items()):
            if at.phase[service] == _PENDING:
                view.draft.start(service, ())
            wanted, since = self._wanted(view, service, memory)
            if self.grants:
                spare = max(len(have) - wanted, 0)
                for job in _given_back(view, service, have)[:spare]:
                    view.draft.retire(job)
                    have.remove(job)
                wanted = max(wanted, len(have) + view.spawning.get(service, 0))
            after.wanted[service], after.since[service] = wanted, since
            after.size[service] = view.draft.shape(service).roles[0].size
            lack = wanted - len(have) - view.spawning.get(service, 0)
            if lack > 0:
                view.draft.act(Spawn(service, replica_of(view.jobs.spec(service)), lack))
            for job in newest(view, have)[: max(-lack, 0)]:
                view.draft.retire(job)
                gone.add(job)
        queued = [job for job in waiting if at.parent[job] in replicas and job not in gone]
        reasons = start_waiting(view, queued, self.place, "Scaling")
        return view.draft.plan(reasons, until=CHANGES), after

    def _wanted(self, view: View, service: int, memory: ScaledMemory | None) -> tuple[int, int]:
        """How many it should have, and since when."""
        role = view.draft.shape(service).roles[0]
        least, most = role.replicas
        if memory is None or memory.size.get(service, role.size) != role.size:
            return int(np.clip(role.size, least, most)), view.now
        if service not in memory.wanted:
            return role.size, view.now
        have, since = memory.wanted[service], memory.since[service]
        windows = view.services.get(service, ())
        if not least and windows and _has_requests(windows[-1]):
            least = min(1, most)
        wanted = int(np.clip(self.rule.wanted(have, since, view.now, windows), least, most))
        return wanted, since if wanted == have else view.now


def replicas_of(view: View) -> dict[int, list[int]]:
    """The replicas of every service, in the order of their numbers within those that run and those
    that wait; without those that stop."""
    at, replicas = view.at, dict[int, list[int]]()
    for job in [*view.active.tolist(), *view.pending.tolist()]:
        if at.kind[job] != Kind.SERVE:
            continue
        if at.parent[job] < 0:
            replicas.setdefault(job, [])
        elif at.phase[job] != _STOPPING:
            replicas.setdefault(at.parent[job], []).append(job)
    return replicas


def start_waiting(view: View, waiting: Sequence[int], place: Placer, by: str) -> list[Reason]:
    """Start what fits, first come first served; why the others wait."""
    full = dict[int, Reason]()
    for job in waiting:
        shape = view.at.shape[job]
        placement = None if shape in full else place.find(view, view.ledger, job)
        if placement is not None:
            view.draft.start(job, placement)
        elif shape not in full:
            asked = {"asked_gpus": float(view.at.gpus[job])}
            full[shape] = Reason("Resources", by, shape, -1, asked, CHANGES)
    return list(full.values())


def _given_back(view: View, service: int, replicas: Sequence[int]) -> list[int]:
    """Those that the service's router did without when it last reported, the latest first."""
    last = view.services[service][-1].until if view.services.get(service) else -1
    reports = ((job, view.services.get(job)) for job in reversed(replicas))
    return [
        job
        for job, windows in reports
        if windows and windows[-1].until == last and windows[-1].figures.get("given_back")
    ]


def newest(view: View, replicas: list[int]) -> list[int]:
    """Those that wait, then those that run, the latest first."""
    phase = view.at.phase
    return sorted(replicas, key=lambda job: (phase[job] != _PENDING, -job))


def replica_of(service: JobSpec) -> JobSpec:
    """One replica: a worker of the service's first role, that runs until it is stopped."""
    first, *others = service.shape.roles
    one = msgspec.structs.replace(first, size=1, least=0, most=0)
    shape = msgspec.structs.replace(service.shape, roles=(one, *others))
    return JobSpec(
        name=f"{service.name}-replica",
        parent=service.name,
        kind=service.kind,
        shape=shape,
        tenant=service.tenant,
        user=service.user,
        group=service.group,
        model=service.model,
        priority=service.priority,
        weight=service.weight,
        on_preempt=service.on_preempt,
        checkpoint=service.checkpoint,
        restore=service.restore,
    )
