"""The game of sizes: which elastic job gets one step more, again and again (DL2, section 4)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from ganger.core.events import CAPACITY_FREED, CAPACITY_LOST, COMMANDED, QUEUED, WOKE
from ganger.core.plan import Reason
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.common.reasons import decides_at
from ganger.mechanisms.common.reconcile import Sizes, competitors, towards_sizes
from ganger.mechanisms.learning.features import squeezed
from ganger.mechanisms.learning.stepwise import Choice, Floats, Play, Windowed, check_whole
from ganger.mechanisms.sizing.elastic import Market, market, pools
from ganger.mechanisms.sizing.marginal_gain import Ints, first_fit
from ganger.mechanisms.sizing.resizing import left_over

_CHANGES = CAPACITY_FREED | CAPACITY_LOST | COMMANDED | QUEUED | WOKE
COLUMNS = (
    "is a job", "can grow", "part of GPUs", "part of its most", "gain of the next step",
    "speed for each GPU", "remaining", "remaining at this size", "in the system", "free part",
    "jobs",
)  # fmt: skip
"""About each job; the row of the action that ends has 0 in all but the last two."""


@dataclass(frozen=True)
class Growing(Windowed):
    """At multiples of `every` microseconds, and whenever nothing runs: every job gets its least,
    first come, first served, where there is room. Then action i gives the i-th of `window` jobs one
    step more, and the last action ends that. More jobs than that have their turn window by
    window, as they came."""

    window: int = 20
    every: int = 1200 * SECOND

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.every, SECOND, NEVER, "every")

    @property
    def features(self) -> int:
        """The columns."""
        return len(COLUMNS)

    def play(self, view: View) -> Play:
        """Divide the GPUs anew, if it is time to."""
        jobs = competitors(view)
        wake = (view.now // self.every + 1) * self.every if len(jobs) else NEVER
        if len(jobs) and (view.now % self.every == 0 or not len(view.active)):
            without = jobs[view.jobs.gpus[jobs] == 0]
            ids, gpus = [without], [np.zeros_like(without)]
            for pool in pools(view, jobs):
                shop = market(view, pool)
                sizes = yield from self._sizes(view, shop)
                gets = (sizes > 0) & (view.jobs.gpus[shop.ids] > 0)
                ids.append(shop.ids[gets])
                gpus.append((sizes * shop.units)[gets])
            every, wanted = np.concatenate(ids), np.concatenate(gpus)
            order = np.argsort(every, kind="stable")
            towards_sizes(view, Sizes(every[order], wanted[order]))
        evidence = {"competing_jobs": float(len(jobs))} | decides_at(wake)
        reasons = [Reason("Resources", "Growing", evidence=evidence, until=_CHANGES)]
        return view.draft.plan(reasons if len(view.pending) else [], wake, _CHANGES)

    def _sizes(self, view: View, shop: Market) -> Generator[Choice, int, Ints]:
        """Steps for each job of a pool."""
        gets = first_fit(shop.least * shop.units, shop.capacity)
        sizes = np.where(gets, shop.least, 0)
        rest = squeezed(shop.work / SECOND)
        for begin in range(0, len(sizes), self.window):
            among = np.arange(begin, min(begin + self.window, len(sizes)))
            while True:
                spare = left_over(shop, sizes)
                can = (sizes > 0) & (sizes < shop.most) & (shop.units <= spare)
                mask = np.zeros(self.actions, np.bool_)
                mask[: len(among)] = can[among]
                if not mask.any():
                    break
                mask[-1] = True
                action = yield Choice(self._rows(view, shop, sizes, among, rest), mask)
                if action >= self.window:
                    break
                sizes[among[action]] += 1
        return sizes

    def _rows(self, view: View, shop: Market, sizes: Ints, among: Ints, rest: Floats) -> Floats:
        n, curves = len(among), shop.curves
        now = np.maximum(sizes[among], 1)
        after = np.minimum(now + 1, np.maximum(shop.most[among], 1))
        speed, faster = curves.speed[among, now - 1], curves.speed[among, after - 1]
        units = shop.units[among]
        rows = np.zeros((self.actions, len(COLUMNS)))
        rows[:n, 0] = 1.0
        rows[:n, 1] = (sizes[among] > 0) & (sizes[among] < shop.most[among])
        rows[:n, 2] = sizes[among] * units / max(shop.capacity, 1)
        rows[:n, 3] = sizes[among] / np.maximum(shop.most[among], 1)
        rows[:n, 4] = faster / np.maximum(speed, 1e-9) - 1.0
        rows[:n, 5] = np.tanh(speed / (now * units))
        rows[:n, 6] = rest[among]
        rows[:n, 7] = squeezed(shop.work[among] / SECOND / np.maximum(speed, 1e-9))
        rows[:n, 8] = squeezed((view.now - view.jobs.submitted[shop.ids[among]]) / SECOND)
        rows[:, 9] = left_over(shop, sizes) / max(shop.capacity, 1)
        rows[:, 10] = np.tanh(len(sizes) / self.window)
        return rows
