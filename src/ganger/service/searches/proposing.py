"""Configurations that a searcher proposes by what trials reported, beside the daemon's loop.

A model of what is good may take a second, and the loop may not wait. So a `Bear` that lacks
configurations is handed over here, with the revision up to which the searcher hears of reports, and
comes back with them. What each trial tries, and what its searcher had heard, stands in the journal:
from that a searcher is made again, and comes to the same proposals.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ganger.core.errors import BadInput
from ganger.core.tuning.goals import feasible
from ganger.core.tuning.searcher import Searcher
from ganger.core.tuning.space import Point, Space, spelled
from ganger.lab.tuning.own_searcher import OUTSIDE
from ganger.mechanisms.tuning.searching.named import searcher_of
from ganger.mechanisms.tuning.trials import badness
from ganger.service.durable.journal import Journal
from ganger.service.durable.reported import reports_between
from ganger.service.jobs.job_facts import Proposals

if TYPE_CHECKING:
    from ganger.service.searches.births import Bear


log = logging.getLogger("ganger.service")
KEPT: Final = 64
"""Searchers that are kept; others are made again from the journal."""
AT_ONCE: Final = 2
"""Searchers that look for something at the same time, whosever searches they are."""


class NotProposed(BadInput):
    """The configurations are being looked for."""


@dataclass(frozen=True)
class _Wanted:
    bear: Bear
    proposals: Proposals
    rows: Sequence[int]
    revision: int
    count: int


@dataclass
class Learnt:
    """A searcher of one search, and what it has heard: up to which revision, and which trials."""

    proposals: Proposals
    space: Space
    searcher: Searcher
    revision: int = -1
    points: dict[int, Point | None] = field(default_factory=dict)
    """By row; None for values that are not of the space."""

    @classmethod
    def of(cls, proposals: Proposals) -> Learnt:
        """One that has heard of nothing. Raises BadInput."""
        space = Space(proposals.space)
        searcher = searcher_of(proposals.searcher, space, (), proposals.seed)
        for earlier in proposals.earlier:
            point = space.read(earlier.params)
            if point is not None:
                value = float("nan") if earlier.value is None else earlier.value
                searcher.tell(point, earlier.step, badness(value, proposals.mode))
        return cls(proposals, space, searcher)

    def ask(self) -> dict[str, str]:
        """The next configuration."""
        words = {name: spelled(value) for name, value in self.searcher.ask().items()}
        self._took(words)
        return words

    def replay(self, journal: Journal, rows: Sequence[int]) -> None:
        """Come to where the trials of these rows, ascending, leave it."""
        for row in rows:
            facts = journal.facts(row)
            self.points[row] = self.space.read(facts.params)
            if facts.heard >= 0:
                self.hear(journal, facts.heard)
                self.searcher.ask()
                self._took(facts.params)

    def hear(self, journal: Journal, until: int) -> None:
        """Of the reports up to that revision."""
        for report in reports_between(journal, list(self.points), self.revision, until):
            point = self.points[report.job]
            if point is not None:
                kept = feasible(self.proposals.constraints, report.metrics)
                value = report.value if kept and report.value is not None else float("nan")
                self.searcher.tell(point, report.epoch, badness(value, self.proposals.mode))
        self.revision = max(self.revision, until)

    def know(self, journal: Journal, rows: Sequence[int]) -> None:
        """Of trials that came since, its own among them."""
        for row in rows:
            if row not in self.points:
                self.points[row] = self.space.read(journal.facts(row).params)

    def _took(self, words: dict[str, str]) -> None:
        point = self.space.read(words)
        if point is not None:
            self.searcher.took(point)


class Proposing:
    """The searchers of all searches that learn. `post` gets each Bear back, in another thread: each
    search has one while it looks for something, and `AT_ONCE` of them do at a time."""

    def __init__(self, path: Path, post: Callable[[Bear], None]) -> None:
        self._path, self._post = path, post
        self._lock = threading.Lock()
        self._queues: dict[int, deque[_Wanted]] = {}
        self._threads: dict[int, threading.Thread] = {}
        self._learnt: dict[int, Learnt] = {}
        self._forgotten = set[int]()
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._outside: dict[int, deque[_Wanted]] = {}
        """By search what its own program has not proposed yet."""
        self._given: dict[int, list[dict[str, str]]] = {}

    def want(
        self, bear: Bear, proposals: Proposals, rows: Sequence[int], revision: int, count: int
    ) -> None:
        """Look for `count` configurations; the trials so far are those `rows`."""
        parent = bear.parent
        with self._lock:
            if proposals.searcher == OUTSIDE:
                self._outside.setdefault(parent, deque()).append(
                    _Wanted(bear, proposals, rows, revision, count)
                )
                return
            self._queues.setdefault(parent, deque()).append(
                _Wanted(bear, proposals, rows, revision, count)
            )
            if parent not in self._threads:
                self._threads[parent] = threading.Thread(
                    target=self._run, args=(parent,), name=f"proposing {parent + 1}", daemon=True
                )
                self._threads[parent].start()

    def wanted(self, parent: int) -> int:
        """How many configurations a search waits for that its own program is to propose."""
        with self._lock:
            return self._lacks(parent)

    def _lacks(self, parent: int) -> int:
        wanted = sum(each.count for each in self._outside.get(parent, ()))
        return wanted - len(self._given.get(parent, ()))

    def give(self, parent: int, configurations: Sequence[dict[str, str]]) -> int:
        """Take what the program proposes; how many are wanted still. Raises BadInput for more."""
        with self._lock:
            if len(configurations) > self._lacks(parent):
                raise BadInput(
                    f"{len(configurations)} are proposed, and {self._lacks(parent)} wanted",
                    where="configurations",
                    mend="ask how many are, and propose no more",
                )
            given = self._given.setdefault(parent, [])
            given += configurations
            ready: list[Bear] = []
            queue = self._outside[parent]
            while queue and queue[0].count <= len(given):
                wanted = queue.popleft()
                ready.append(wanted.bear.proposed(given[: wanted.count], -1))
                del given[: wanted.count]
            lacking = self._lacks(parent)
        for bear in ready:
            self._post(bear)
        return lacking

    def forget_over(self, is_over: Callable[[int], bool]) -> None:
        """Nothing is wanted any more for searches that are over, where many are waited for."""
        with self._lock:
            for parent in list(self._outside) if len(self._outside) > KEPT else ():
                if is_over(parent):
                    self._outside.pop(parent, None)
                    self._given.pop(parent, None)

    def forget(self, parent: int) -> None:
        """A proposal of this search became no trial: make its searcher again."""
        with self._lock:
            self._forgotten.add(parent)

    def settle(self) -> None:
        """Return when nothing is looked for."""
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join()

    def _run(self, parent: int) -> None:
        while True:
            with self._lock:
                if not self._queues[parent]:
                    del self._queues[parent], self._threads[parent]
                    return
                wanted = self._queues[parent].popleft()
            with self._turns:
                answer = self._answered(wanted)
            self._post(answer)

    def _answered(self, wanted: _Wanted) -> Bear:
        try:
            return wanted.bear.proposed(self._configurations(wanted), wanted.revision)
        except Exception as error:  # a searcher is other people's code
            log.exception("the searcher of search %d failed", wanted.bear.parent + 1)
            self.forget(wanted.bear.parent)
            return wanted.bear.hopeless(f"its searcher failed: {type(error).__name__}: {error}")

    def _configurations(self, wanted: _Wanted) -> list[dict[str, str]]:
        known = self._known(wanted.bear.parent)
        journal = Journal(self._path, readonly=True)
        try:
            if known is None:
                known = Learnt.of(wanted.proposals)
                known.replay(journal, wanted.rows)
            known.know(journal, wanted.rows)
            known.hear(journal, wanted.revision)
        finally:
            journal.close()
        configurations = [known.ask() for _ in range(wanted.count)]
        with self._lock:
            self._learnt[wanted.bear.parent] = known
            while len(self._learnt) > KEPT:
                del self._learnt[next(iter(self._learnt))]
        return configurations

    def _known(self, parent: int) -> Learnt | None:
        """The searcher as it was left, unless it is to be made again."""
        with self._lock:
            known = self._learnt.pop(parent, None)
            if parent in self._forgotten:
                self._forgotten.discard(parent)
                return None
            return known
