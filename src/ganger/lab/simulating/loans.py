"""What was on loan in a run, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ganger.core.events import Batch
from ganger.core.kernel import Kernel
from ganger.core.plan import Lend, Placement, Plan, Resize, Stop
from ganger.core.spec import Kind
from ganger.core.units import HOUR, SECOND
from ganger.lab.result import Loans

_SERVE = int(Kind.SERVE)


class LoanRecorder:
    """A journal that follows which nodes are on loan, and what other jobs than services hold
    there."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._where: dict[int, Placement] = {}
        self._held: dict[int, int] = {}
        """By node: GPUs that others than services hold."""
        self._lent: dict[int, int] = {}
        """By node on loan: since when."""
        self._coming: dict[int, int] = {}
        """By node that goes back and is not free yet: since when."""
        self._moments: list[tuple[int, int, int]] = []
        self._used = self._gpu_time = self._since = 0
        self._loans = self._returns = self._stopped = self._shrunk = self._longest = 0

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Take in one step."""
        now, actions = batch.at, plan.actions if plan is not None else []
        self._pass(now)
        steps: Iterable[Any] = (*batch.events, *actions)
        for job in {job for step in steps if (job := getattr(step, "job", -1)) >= 0}:
            self._follow(job)
        lends = [action for action in actions if isinstance(action, Lend)]
        for lend in lends:
            self._turn(lend, now)
        if any(not lend.pool for lend in lends):
            self._stopped += sum(isinstance(action, Stop) for action in actions)
            self._shrunk += sum(isinstance(action, Resize) for action in actions)
        if self._coming:
            self._see_who_left(now)
        gpus = self._kernel.nodes.gpus
        lent = sum(int(gpus[node]) for node in self._lent)
        self._used = sum(self._held.get(node, 0) for node in self._lent)
        if self._moments[-1:] and self._moments[-1][1:] == (lent, self._used):
            return
        if lent or self._moments:
            self._moments.append((now, lent, self._used))

    def _pass(self, now: int) -> None:
        self._gpu_time += self._used * (now - self._since)
        self._since = now

    def _follow(self, job: int) -> None:
        """What the job holds, if it is not a service's."""
        kernel = self._kernel
        held = kernel.ledger.holds.get(job)
        top = kernel.jobs.kind[job] != _SERVE and kernel.jobs.within[job] < 0
        after = held[1] if held is not None and top else ()
        for sign, placement in ((-1, self._where.pop(job, ())), (1, after)):
            for slot in placement:
                gpus = sign * slot.devices.bit_count()
                self._held[slot.node] = self._held.get(slot.node, 0) + gpus
        if after:
            self._where[job] = after

    def _turn(self, lend: Lend, now: int) -> None:
        for node in lend.nodes:
            if lend.pool:
                self._lent.setdefault(node, now)
                self._loans += 1
            elif self._lent.pop(node, None) is not None:
                self._coming[node] = now
                self._returns += 1

    def _see_who_left(self, now: int) -> None:
        kinds, leaving = self._kernel.jobs.kind, self._kernel.ledger.leaving
        for node, since in list(self._coming.items()):
            if all(kinds[each[0]] == _SERVE for each in leaving.get(node, ())):
                self._longest = max(self._longest, now - since)
                del self._coming[node]

    def close(self, now: int) -> Loans | None:
        """The run is over, at `now`; None where nothing was ever on loan."""
        if not self._moments:
            return None
        self._pass(now)
        for node in self._coming:
            self._longest = max(self._longest, now - self._coming[node])
        times, lent, used = zip(*self._moments, strict=True)
        spans = zip(lent, times, (*times[1:], now), strict=True)
        return Loans(
            [at / SECOND for at in times],
            list(lent),
            list(used),
            sum(gpus * (until - since) for gpus, since, until in spans) / HOUR,
            self._gpu_time / HOUR,
            self._loans,
            self._returns,
            self._stopped,
            self._shrunk,
            self._longest / SECOND,
        )
