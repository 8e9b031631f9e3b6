"""The meter of a run: what each job drew and cost, and what nobody used."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.clocks import CORE_MHZ, MEMORY_MHZ
from ganger.core.events import (
    Batch,
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Refused,
    Released,
    Started,
    Submitted,
)
from ganger.core.plan import Plan, Provision, Resize, Resume, Start, Stop, Suspend, Tune
from ganger.core.spec import Kind
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Jobs, Phase
from ganger.core.units import HOUR, NEVER, WHOLE
from ganger.lab.billing.account import Account
from ganger.lab.billing.power import FULL, Grid, Knobs, Power
from ganger.lab.billing.reserve import Reserve
from ganger.lab.billing.tariff import Tariff

_ENDS: Final = (Finished, Failed, Released, Refused)
_BEGINS: Final = (Start, Resize)
_BEGUN, _COMPUTES, _PAUSED, _ASLEEP, _LEAVES, _OVER, _CLOCKED = range(7)
"""What becomes of an attempt: it has devices; computes; holds them suspended; yields them; is told
to go; has let go; is given other clocks. Beside the first stands its number, beside the last that
of the clocks, times `_CODES`."""
_CODES: Final = 8
_KWH: Final = 1e3 * HOUR
"""Watt-microseconds in a kWh."""
MANY: Final = 1 << 18
"""Numbers that are noted before they are added up."""
_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]
_Bools = NDArray[np.bool_]


class _Spans(NamedTuple):
    """What attempts did from one mark to the next, one an entry; those of an attempt stand together
    in order of time."""

    attempt: _Ints
    """Its position among the attempts."""
    since: _Ints
    until: _Ints
    held: _Bools
    computed: _Bools
    clocks: _Ints
    """The number of its clocks; 0: full."""


class Meter:
    """A journal that adds up what jobs hold and compute. Energy and money of what nobody holds are
    nobody's. A child in a grant holds nothing of the cluster's; its parent does, and computes.

    An attempt that is to have devices of which others have not let go yet holds none before; a job
    that yields its compute holds nothing while it is suspended. `boot`: microseconds from switching
    a node on until it can be used, in which it draws power and costs money already. `reserved`:
    nodes for services, which these pay for, less the part `rate` of what others hold there.

    A step only takes notes, which are added up many at a time.
    """

    def __init__(
        self,
        jobs: Jobs,
        nodes: Nodes,
        power: Power,
        tariff: Tariff | None,
        boot: int = 0,
        reserved: Collection[int] = (),
        rate: float = 1.0,
    ) -> None:
        self._jobs, self._nodes, self._power, self._tariff = jobs, nodes, power, tariff
        self._boot = boot
        self._reserved, self._rate = np.zeros(nodes.n, np.bool_), rate
        self._reserved[list(reserved)] = True
        self._marks: list[int] = []
        """What became of attempts, one after the other: when, job, attempt, and what."""
        self._slots: list[int] = []
        """Of their placements: number of the attempt, node, GPUs, thousandths of each (0: what the
        role needs), role, workers."""
        self._has: dict[int, int] = {}
        """By number of an attempt: since when it has all of its devices."""
        self._count = 0
        self._clocks: list[Knobs] = [FULL]
        self._numbers: dict[tuple[float, float], int] = {}
        """The clocks that were set, and the number of each."""
        self._behind: dict[int, list[int]] = {}
        """By job that is to let go: the numbers of attempts that get what it has."""
        self._sums = np.zeros((0, 4))
        """By job: watt-microseconds of the base and beyond it, money, and what of that is for nodes
        that are reserved for services."""
        self._on: list[int] = [0] * nodes.n
        """By node: since when it is on; -1: it is off."""
        self._were_on: list[tuple[int, int, int]] = []
        """Node, since, until."""
        self._downs: dict[int, list[int]] = {}
        """By node: when it went off."""
        self._booting: dict[int, int] = {}
        self._last = 0
        """When somebody let go last."""

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Take in one step."""
        at, note = batch.at, self._marks.extend
        for event in batch.events:
            if type(event) is Submitted:
                continue
            if type(event) is Started:
                note((at, event.job, event.attempt, _COMPUTES))
            elif isinstance(event, _ENDS):
                note((at, event.job, event.attempt, _OVER))
                if event.job in self._behind:
                    self._has.update(dict.fromkeys(self._behind.pop(event.job), at))
            elif type(event) is NodeDown:
                if not event.by:
                    self._node_off(event.node, at)
            elif type(event) is NodeUp:
                self._node_on(event.node, at)
        for action in plan.actions if plan is not None else ():
            if isinstance(action, _BEGINS):
                self._begin(action, at)
            elif type(action) is Stop:
                note((at, action.job, action.attempt, _LEAVES))
            elif type(action) is Suspend:
                note((at, action.job, action.attempt, _ASLEEP if action.yields else _PAUSED))
            elif type(action) is Resume:
                note((at, action.job, action.attempt, _COMPUTES))
            elif type(action) is Tune and (CORE_MHZ in action.knobs or MEMORY_MHZ in action.knobs):
                what = _CLOCKED + _CODES * self._number(action.knobs)
                note((at, action.job, action.attempt, what))
            elif type(action) is Provision and action.verb == "on":
                self._booting.setdefault(action.node, at)
        if len(self._marks) > MANY:
            self._add_up(at)

    def _number(self, knobs: Knobs) -> int:
        clocks = float(knobs.get(CORE_MHZ, 0.0)), float(knobs.get(MEMORY_MHZ, 0.0))
        if clocks not in self._numbers:
            self._numbers[clocks] = len(self._clocks)
            self._clocks.append({CORE_MHZ: clocks[0], MEMORY_MHZ: clocks[1]})
        return self._numbers[clocks]

    def _begin(self, action: Start | Resize, at: int) -> None:
        job, attempt, number = action.job, action.attempt, self._count
        if type(action) is Resize:
            self._marks.extend((at, job, attempt - 1, _LEAVES))
        self._marks.extend((at, job, attempt, _BEGUN + _CODES * number))
        note = self._slots.extend
        for slot in action.placement:
            note((number, slot.node, slot.devices.bit_count(), slot.share, slot.role, slot.workers))
        self._has[number] = at
        self._count += 1
        for other in action.waits:
            self._behind.setdefault(other, []).append(number)

    # ------------------------------------------------------------------ nodes

    def _node_off(self, node: int, at: int) -> None:
        self._booting.pop(node, None)
        if self._on[node] >= 0:
            self._were_on.append((node, self._on[node], at))
            self._downs.setdefault(node, []).append(at)
            self._on[node] = -1

    def _node_on(self, node: int, at: int) -> None:
        if self._on[node] < 0:
            asked = self._booting.pop(node, at)
            self._on[node] = max(asked, at - self._boot)

    # ------------------------------------------------------------------ adding up

    def _add_up(self, now: int, *, close: bool = False) -> bool:
        """Add up the attempts that are over and forget the notes of them; to `close`, add up the
        others until now. Whether there are others."""
        if not self._marks:
            return False
        marks = np.array(self._marks, np.int64).reshape(-1, 4)
        slots = np.array(self._slots, np.int64).reshape(-1, 6)
        order = np.lexsort((marks[:, 2], marks[:, 1]))  # stable: by time within an attempt
        job, attempt, what = (marks[order, column] for column in (1, 2, 3))
        new = np.ones(len(order), np.bool_)
        new[1:] = (job[1:] != job[:-1]) | (attempt[1:] != attempt[:-1])
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(order)) - 1
        over = what[last] == _OVER
        if over.any():
            self._last = max(self._last, int(marks[order[last[over]], 0].max()))
        counts = (over | close) & (self._jobs.within[job[first]] < 0)
        numbers = what[first] // _CODES
        waiting = {number for heirs in self._behind.values() for number in heirs}
        has = [NEVER if n in waiting else self._has[n] for n in numbers.tolist()]
        spans = _spans(marks[order], first, np.array(has, np.int64), now)
        own = np.full(self._count, -1)
        own[numbers[counts]] = np.flatnonzero(counts)
        self._charge(spans, job[first], slots[own[slots[:, 0]] >= 0], own)
        rest = ~(over | close)
        self._has = {number: self._has[number] for number in numbers[rest].tolist()}
        keep = np.zeros(len(order), np.bool_)
        keep[order] = np.repeat(rest, last - first + 1)
        self._marks = marks[keep].ravel().tolist()
        open_ = np.zeros(self._count, np.bool_)
        open_[numbers[rest]] = True
        self._slots = slots[open_[slots[:, 0]]].ravel().tolist()
        return not bool(over.all())

    def _charge(self, spans: _Spans, job: _Ints, slots: _Ints, own: _Ints) -> None:
        """Add what slots drew and cost to the sums of their jobs. `job`: by attempt; `own`: by its
        number, which of the attempts that is."""
        self._grow()
        if not len(slots):
            return
        attempt, node = own[slots[:, 0]], slots[:, 1]
        lasted = (spans.until - spans.since).astype(np.float64)
        held = np.bincount(spans.attempt, lasted * spans.held, len(job))[attempt].astype(np.float64)
        gone = self._gone(spans, attempt, node)
        held -= gone
        whose = job[attempt]
        parts = self._parts(whose, slots)
        base = parts * held * np.array(self._power.each)[node]
        load = np.zeros(len(parts))
        for clocks in np.unique(spans.clocks[spans.computed]).tolist():
            here = lasted * (spans.computed & (spans.clocks == clocks))
            computed = np.bincount(spans.attempt, here, len(job))[attempt]
            load += parts * computed * self._above_idle(whose, node, clocks) * (slots[:, 2] > 0)
        for column, values in enumerate((base, load)):
            self._sums[:, column] += np.bincount(whose, values, len(self._sums))
        if self._tariff is not None:
            part = parts / np.maximum(self._nodes.gpus[node], 1)
            money = part * held * np.array(self._tariff.hourly)[node] / HOUR
            for varying in self._tariff.varying.intersection(node.tolist()):
                here = node == varying
                money[here] = part[here] * self._paid(spans, attempt[here], gone[here], varying)
            for column, counted in ((2, money), (3, money * self._reserved[node])):
                self._sums[:, column] += np.bincount(whose, counted, len(self._sums))

    def _grow(self) -> None:
        """Have sums of all jobs that there are."""
        more = np.zeros((self._jobs.n - len(self._sums), 4))
        self._sums = np.concatenate([self._sums, more])

    def _paid(self, spans: _Spans, attempt: _Ints, gone: _Floats, node: int) -> _Floats:
        """What all of a node whose price changes costs while each attempt held something there; not
        in the last microseconds, in which it was `gone`."""
        assert self._tariff is not None
        first = np.searchsorted(spans.attempt, attempt)
        count = np.searchsorted(spans.attempt, attempt, "right") - first
        owner = np.repeat(np.arange(len(attempt)), count)
        at = np.arange(len(owner)) + np.repeat(first - (np.cumsum(count) - count), count)
        ends = np.zeros(len(attempt), np.int64)
        np.maximum.at(ends, owner, np.where(spans.held, spans.until, 0)[at])
        end = (ends - gone.astype(np.int64))[owner]
        until = self._tariff.until
        since, last = (np.minimum(times[at], end) for times in (spans.since, spans.until))
        paid = (until(node, last) - until(node, since)) * spans.held[at]
        return np.bincount(owner, paid, len(attempt)).astype(np.float64)

    def _parts(self, job: _Ints, slots: _Ints) -> _Floats:
        """How many GPUs each slot is; of a node without any, the part of its CPUs."""
        _, node, gpus, share, role, workers = slots.T
        shape = self._jobs.shape[job]
        needed, cpus = np.ones(len(job)), np.zeros(len(job))
        for code in np.unique(shape).tolist():
            roles = self._jobs.shapes[code].roles
            mine = shape == code
            needs = [each.needs for each in roles]
            needed[mine] = np.array([each.share / WHOLE for each in needs])[role[mine]]
            cpus[mine] = np.array([each.cpus for each in needs])[role[mine]]
        parts = np.where(needed < 1, workers * needed, gpus)
        parts = np.where(share > 0, gpus * share / WHOLE, parts)
        cores = self._nodes.cpus[node]
        on_host = (self._nodes.gpus[node] == 0) & (cores > 0)
        host = np.where(on_host, workers * cpus / np.maximum(cores, 1), 0.0)
        return np.where(gpus > 0, parts, host)

    def _above_idle(self, job: _Ints, node: _Ints, clocks: int) -> _Floats:
        """Watts beyond idle of a GPU of each node that computes the model of each job at these
        clocks."""
        kinds, models = len(self._nodes.types), self._jobs.models
        codes = self._jobs.model[job] * np.int64(kinds) + self._nodes.gpu_type[node]
        pairs, which = np.unique(codes, return_inverse=True)
        above, knobs = self._power.above_idle, self._clocks[clocks]
        watts = [above(models[pair // kinds], pair % kinds, knobs) for pair in pairs.tolist()]
        return np.array(watts)[which]

    def _gone(self, spans: _Spans, attempt: _Ints, node: _Ints) -> _Floats:
        """How long of what slots were held their node was gone: what runs on a node that goes has
        failed by then, and who is saving there has let go later."""
        gone = np.zeros(len(node))
        if not self._downs:
            return gone
        began, ended = (np.zeros(int(spans.attempt.max()) + 1, np.int64) for _ in range(2))
        held = spans.held & (spans.until > spans.since)
        began[spans.attempt[held][::-1]] = spans.since[held][::-1]
        ended[spans.attempt[held]] = spans.until[held]
        for at in np.flatnonzero(np.isin(node, list(self._downs))).tolist():
            since, until = int(began[attempt[at]]), int(ended[attempt[at]])
            for down in self._downs[int(node[at])]:
                if since < down < until:
                    gone[at] = until - down
                    break
        return gone

    # ------------------------------------------------------------------ the end

    def close(self, now: int, grid: Grid) -> Account:
        """The account of the run up to when the last job let go, or `now` if some have not."""
        end = now if self._add_up(now, close=True) else self._last
        self._grow()
        jobs, priced = self._jobs, self._tariff is not None
        rows = np.flatnonzero(jobs.phase[: jobs.n] != Phase.DECLARED)
        sums = self._sums[rows]
        base, money = self._all(end)
        service, cost, reserve = jobs.kind[rows] == Kind.SERVE, sums[:, 2], None
        if priced and self._reserved.any():
            reserve = Reserve(float(money[self._reserved].sum()), sums[:, 3], self._rate)
            cost = reserve.charged(cost, service)
        return Account(
            tenants=[jobs.tenants[code] for code in jobs.tenant[rows].tolist()],
            service=service,
            energy_kwh=(sums[:, 0] + sums[:, 1]) / _KWH,
            idle_energy_kwh=_rest(base, sums[:, 0]) / _KWH,
            cost=cost if priced else None,
            idle_cost=_rest(float(money.sum()), cost) if priced else None,
            reserve=reserve,
            grid=grid,
            watts=self._power.sources(),
        )

    def _all(self, end: int) -> tuple[float, _Floats]:
        """Watt-microseconds of all nodes while they were on and nothing computed, and by node
        money."""
        still = [(node, since, end) for node, since in enumerate(self._on) if 0 <= since < end]
        base, money = 0.0, np.zeros(self._nodes.n)
        for node, since, until in (*self._were_on, *still):
            if since < end:
                base += self._power.base[node] * (min(until, end) - since)
                if self._tariff is not None and not self._tariff.always(node):
                    money[node] += self._tariff.cost(node, since, min(until, end))
        if self._tariff is not None:
            for node in filter(self._tariff.always, range(self._nodes.n)):
                money[node] += self._tariff.cost(node, 0, end)
        return base, money


def _spans(marks: _Ints, first: _Ints, has: _Ints, now: int) -> _Spans:
    """From each mark to the next of its attempt, or to now, but nothing before the attempt `has`
    its devices. `marks` by attempt and time; `first`: where each attempt's begin."""
    at, what = marks[:, 0], marks[:, 3] % _CODES
    what, clocks = _carried(what, marks[:, 3] // _CODES, first)
    length = np.diff(np.append(first, len(marks)))
    attempt = np.repeat(np.arange(len(first)), length)
    until = np.append(at[1:], now)
    ends = np.cumsum(length) - 1
    until[ends] = np.where(what[ends] == _OVER, at[ends], now)
    asleep = what == _ASLEEP
    asleep[1:] |= (what[1:] == _LEAVES) & asleep[:-1]
    return _Spans(
        attempt,
        np.maximum(at, has[attempt]),
        np.maximum(until, has[attempt]),
        ~asleep & (what != _OVER),
        what == _COMPUTES,
        clocks,
    )


def _carried(what: _Ints, number: _Ints, first: _Ints) -> tuple[_Ints, _Ints]:
    """What became of attempts, and at which clocks: a mark of clocks changes nothing else, and
    these stay until others are set."""
    set_ = what == _CLOCKED
    if not set_.any():
        return what, np.zeros(len(what), np.int64)
    at = np.arange(len(what))
    last = np.maximum.accumulate(np.where(set_, -1, at))
    began = np.zeros(len(what), np.int64)
    began[first] = first
    began = np.maximum.accumulate(began)
    clocked = np.maximum.accumulate(np.where(set_, at, -1))
    return what[last], np.where(clocked >= began, number[clocked], 0)


def _rest(whole: float, parts: _Floats) -> float:
    """What is left of a whole; 0 where rounding errors alone are left."""
    rest = whole - float(parts.sum())
    return rest if abs(rest) > 1e-9 * whole else 0.0
