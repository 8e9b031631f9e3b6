"""What jobs held in other books, given to them in new ones."""

from __future__ import annotations

from collections.abc import Mapping, Set

from ganger.core.books.holdings import Held
from ganger.core.books.ledger import Ledger
from ganger.core.errors import InvariantError


def take_over(books: Ledger, held: Mapping[int, Held], asleep: Set[int]) -> list[int]:
    """Give these jobs what they hold, to those in `asleep` the memory of it; the jobs that got it,
    ascending. Sleeping jobs come first: others may be placed over their memory, but not they under
    others. Then come the first to arrive."""
    given = list[int]()
    for job in sorted(held, key=lambda job: (job not in asleep, job)):
        try:
            books.take(job, *held[job])
        except InvariantError:
            continue
        if job in asleep:
            books.doze(job)
        given.append(job)
    return sorted(given)
