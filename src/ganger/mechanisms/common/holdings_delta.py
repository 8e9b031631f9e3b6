"""Which job holds what, as at the last look: for sums over all jobs that hold devices, of which a
decision changes a few. A cache."""

from __future__ import annotations

from itertools import compress
from operator import is_not

from ganger.core.books.holdings import Holdings
from ganger.core.books.ledger import Ledger
from ganger.core.plan import Placement
from ganger.core.spec import Shape


class HoldingsDelta:
    """What each job held."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Shape, Placement]] = {}
        self._of: Holdings | None = None
        self._changes = 0

    def changes(self, ledger: Ledger) -> tuple[list[int], list[tuple[int, Placement]]]:
        """Jobs whose placement was lost, and jobs whose placement is new (with it), since the last
        call. A moved job is in both."""
        holds = ledger.holds
        changed = holds.changed_since(self._changes) if holds is self._of else None
        self._of, self._changes = holds, holds.changes
        if changed is None:
            return self._all_changes(holds)
        held = self._held
        come, lost = list[tuple[int, Placement]](), list[int]()
        for job in changed:
            now = holds.get(job)
            if now is None:
                lost += [job] if job in held else []
            elif now is not held.get(job):
                come.append((job, now[1]))
        gone = [*(job for job, _ in come if job in held), *lost]
        for job in lost:
            del held[job]
        for job, _ in come:
            held[job] = holds[job]
        return gone, come

    def _all_changes(self, holds: Holdings) -> tuple[list[int], list[tuple[int, Placement]]]:
        """The same where it is not known whose rows changed."""
        held = self._held
        new = compress(holds.items(), map(is_not, map(held.get, holds), holds.values()))
        come = [(job, placement) for job, (_, placement) in new]
        gone = [job for job, _ in come if job in held]
        if len(held) + len(come) - len(gone) != len(holds):
            gone += [job for job in held if job not in holds]
        if gone or come:
            self._held = dict(holds)
        return gone, come
