"""Stride scheduling of gangs by tickets, and trading of GPU types between users (Gandiva_fair)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import pairwise

import msgspec
import numpy as np

from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_speed
from ganger.mechanisms.common.holdings_delta import HoldingsDelta
from ganger.mechanisms.common.reconcile import Want
from ganger.mechanisms.common.speed_cache import Floats, SpeedCache, Width, answers
from ganger.mechanisms.fairness.fair import Owner, owners, tenant_weights
from ganger.mechanisms.fairness.lease import Room


def trade(
    old: list[float], new: list[float], speedups: list[float], step: float = 1.0, deals: int = 1000
) -> tuple[list[float], list[float]]:
    """What users own of two GPU types after they traded (Chaudhary et al., EuroSys 2020).

    `speedups`: of each user's jobs on the new type over the old one. In each deal the user with the
    lowest speedup that still owns new GPUs sells `step` of them to the one with the highest that
    can pay; the price, in old GPUs, is the second-highest speedup. It ends where the price is no
    more than the seller's own speedup or no less than the buyer's.
    """
    old, new = list(old), list(new)
    by_speedup = sorted(range(len(speedups)), key=lambda user: (-speedups[user], user))
    buyer = by_speedup[0] if by_speedup else 0
    for seller in reversed(by_speedup[1:]):
        price = speedups[by_speedup[1]]
        while new[seller] > 1e-9:
            amount = min(step, new[seller], old[buyer] / price if price else 0.0)
            if not deals or amount <= 1e-9 or not speedups[seller] < price < speedups[buyer]:
                return old, new
            deals -= 1
            new[seller] -= amount
            new[buyer] += amount
            old[seller] += price * amount
            old[buyer] -= price * amount
    return old, new


class Passes(msgspec.Struct, frozen=True):
    """By `user/type`: pass, GPUs held, and tickets, as of `until`."""

    passes: dict[str, float]
    held: dict[str, float]
    tickets: dict[str, float]
    until: int


@dataclass(frozen=True)
class Stride:
    """The user with the least pass runs its next gang; a user's pass grows with the GPU-time that
    it gets over its tickets, per GPU type.

    A user's tickets are the mean over its live jobs of the job's weight times its tenant's: its
    part of all tickets is its part of each type. With `trading` users exchange the fastest type for
    the next one by what their jobs gain. A gang that does not fit keeps its place, and smaller ones
    fill the slot. A user's own jobs go by what they have attained, and by where they run. Users
    that come (back) begin at the least pass of those that are there. `owner`: tenants may stand in
    the place of users.
    """

    trading: bool
    owner: Owner

    def account(self, view: View, notes: Passes | None) -> Passes:
        """Every pass brought up to now."""
        notes = notes or Passes({}, {}, {}, view.now)
        lasting = view.now - notes.until
        passes = dict(notes.passes)
        for key, gpus in notes.held.items():
            passes[key] = passes.get(key, 0.0) + gpus * lasting / max(
                notes.tickets.get(key, 1.0), 1e-3
            )
        tickets = self._entitled(view)
        come = (
            [] if tickets is notes.tickets else [key for key in tickets if key not in notes.tickets]
        )
        for kind in self._kinds(view) if come else ():
            keys = [key for key in tickets if key.partition("/")[2] == kind]
            floor = min((passes[key] for key in keys if key in passes), default=0.0)
            news = [key for key in keys if key not in notes.tickets]
            passes.update((key, max(passes.get(key, 0.0), floor)) for key in news)
        return Passes(passes, {}, tickets, view.now)

    def settle(self, view: View, notes: Passes) -> Passes:
        """Which job holds what from now on."""
        gpus = view.cached(_Charged).gpus(view, self.owner)
        held = {key: float(gpus[key]) for key in sorted(gpus)}
        return Passes(notes.passes, held, notes.tickets, notes.until)

    def choose(self, view: View, ids: Ids, room: Room, notes: Passes) -> list[Want]:
        """Type by type, the fastest first, the least pass first."""
        wants: list[Want] = []
        taken = np.zeros(len(ids), np.bool_)
        attained, user_of = view.attained(ids), owners(view, self.owner)[ids]
        for kind in self._kinds(view):
            mine = [cell.index for cell in view.ledger.cells if cell.gpu_type == kind]
            # Whoever finds no room at first finds none later.
            most = max((room.free[index] for index in mine), default=0)
            able = ~taken & (view.jobs.gpus[ids] <= most)
            rows = np.flatnonzero(able)
            away = [room.cell_of.get(job, -1) not in mine for job in ids[rows].tolist()]
            order = rows[np.lexsort((rows, attained[rows], np.array(away, np.bool_)))]
            queues: dict[int, list[int]] = {}
            for row in order[::-1].tolist():
                queues.setdefault(int(user_of[row]), []).append(row)
            passes = {user: notes.passes.get(f"{user}/{kind}", 0.0) for user in queues}
            turns = [(round(passed, 3), user) for user, passed in passes.items()]
            heapify(turns)
            while turns and room.total:
                user = turns[0][1]
                row = queues[user].pop()
                job = int(ids[row])
                want = room.take(job, view.at.gpus[job], kind)
                if want is not None:
                    wants.append(want)
                    taken[row] = True
                    tickets = max(notes.tickets.get(f"{user}/{kind}", 1.0), 1e-3)
                    passes[user] += view.at.gpus[job] / tickets
                if queues[user]:
                    heapreplace(turns, (round(passes[user], 3), user))
                else:
                    heappop(turns)
        return wants

    def _kinds(self, view: View) -> list[str]:
        """GPU types in the cluster, the fastest first."""
        specs = sorted(view.nodes.type_specs, key=lambda kind: (-kind.speed, kind.name))
        return [kind.name for kind in specs if kind.name]

    def _entitled(self, view: View) -> dict[str, float]:
        """The tickets of those who have live jobs. They change with who lives and what there is,
        and are kept as long as neither does."""
        live = np.sort(np.concatenate([view.pending, view.active]))
        there = [(cell.gpu_type, cell.total) for cell in view.ledger.cells]
        known, weight = view.cached(_Entitled), view.jobs.weight[live]
        if not known.holds(live, weight, there) or not view.oracle.steady:
            users = np.unique(owners(view, self.owner)[live]).tolist()
            known.tickets = self._tickets(view, users, live)
            known.live, known.weight, known.there = live, weight, there
        return known.tickets

    def _tickets(self, view: View, users: list[int], live: Ids) -> dict[str, float]:
        """GPUs of each type that each user is entitled to."""
        kinds = self._kinds(view)
        total = dict.fromkeys(kinds, 0)
        for cell in view.ledger.cells:
            if cell.gpu_type:
                total[cell.gpu_type] += cell.total
        part = self._parts(view, users, live)
        share = {kind: [total[kind] * own for own in part] for kind in kinds}
        if self.trading and len(kinds) > 1 and len(users) > 1:
            fast, slow = kinds[:2]
            gains = self._speedups(view, users, live, fast, slow)
            share[slow], share[fast] = trade(share[slow], share[fast], gains)
        return {
            f"{user}/{kind}": share[kind][row] for kind in kinds for row, user in enumerate(users)
        }

    def _parts(self, view: View, users: list[int], live: Ids) -> list[float]:
        """Each user's tickets over those of all."""
        weight = (
            view.jobs.weight[live]
            * tenant_weights(view, len(view.jobs.tenants))[view.jobs.tenant[live]]
        )
        rows = np.searchsorted(users, owners(view, self.owner)[live])
        tickets = np.bincount(rows, weight) / np.bincount(rows)
        parts: list[float] = (tickets / tickets.sum()).tolist()
        return parts

    def _speedups(
        self, view: View, users: list[int], live: Ids, fast: str, slow: str
    ) -> list[float]:
        """The mean speedup of each user's live jobs on the fast type over the slow one."""

        def ratio(ids: Ids, _: Width) -> Floats:
            one, gpus = np.ones(len(ids), np.int64), np.maximum(view.jobs.gpus[ids], 1)
            quick = believed_speed(view, ids, fast, gpus, one)
            late = believed_speed(view, ids, slow, gpus, one)
            return np.asarray(quick / np.where(late > 0, late, 1.0))

        values, of = answers(view, _Speedups, live, (fast, slow), (), ratio)
        owner = owners(view, self.owner)[live]
        order = np.argsort(owner, kind="stable")
        gains = values[of[order]]
        ends = np.searchsorted(owner[order], users, "right").tolist()
        return [float(np.add.reduce(gains[a:b])) / (b - a) for a, b in pairwise([0, *ends])]


class _Speedups(SpeedCache):
    """How much faster the first of two types is than the second."""


class _Entitled:
    """The tickets of those who have live jobs, and what they hang on: these jobs, their weights,
    and the GPUs by cell."""

    __slots__ = ("live", "there", "tickets", "weight")

    def __init__(self) -> None:
        self.live: Ids | None = None
        self.weight: Floats | None = None
        self.there: list[tuple[str, int]] = []
        self.tickets: dict[str, float] = {}

    def holds(self, live: Ids, weight: Floats, there: list[tuple[str, int]]) -> bool:
        """Whether that is still so."""
        if self.live is None or self.weight is None or self.there != there:
            return False
        return np.array_equal(self.live, live) and np.array_equal(self.weight, weight)


class _Charged:
    """GPUs held by `user/type`, kept up with the books."""

    def __init__(self) -> None:
        self._seen = HoldingsDelta()
        self._of: dict[int, tuple[str, int]] = {}
        self._gpus = Counter[str]()

    def gpus(self, view: View, owner: Owner) -> Counter[str]:
        """As of now; nobody is in it with none."""
        user_of = owners(view, owner)
        gone, come = self._seen.changes(view.ledger)
        for job in gone:
            key, gpus = self._of.pop(job)
            self._gpus[key] -= gpus
            if not self._gpus[key]:
                del self._gpus[key]
        for job, placement in come:
            kind = view.ledger.cell_of[placement[0].node].gpu_type if placement else ""
            key = f"{user_of[job]}/{kind}"  # a service holds nothing itself
            gpus = sum(slot.devices.bit_count() for slot in placement)
            self._of[job] = key, gpus
            self._gpus[key] += gpus
        return self._gpus
