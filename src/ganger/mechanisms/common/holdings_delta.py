"""Who holds what, as at the last look: for sums over all who hold devices, of which a decision
changes a few. A cache."""

from __future__ import annotations

from itertools import compress
from operator import is_not

from ganger.core.books.ledger import Ledger
from ganger.core.plan import Placement
from ganger.core.spec import Shape


class HoldingsDelta:
    """What each job held."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Shape, Placement]] = {}

    def changes(self, ledger: Ledger) -> tuple[list[int], list[tuple[int, Placement]]]:
        """Who no longer holds what it held when this was last asked, and who holds what it did not,
        with that; one that was moved is in both."""
        held, holds = self._held, ledger.holds
        new = compress(holds.items(), map(is_not, map(held.get, holds), holds.values()))
        come = [(job, placement) for job, (_, placement) in new]
        gone = [job for job, _ in come if job in held]
        if len(held) + len(come) - len(gone) != len(holds):
            gone += [job for job in held if job not in holds]
        if gone or come:
            self._held = dict(holds)
        return gone, come
