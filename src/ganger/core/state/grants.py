"""Which jobs compete for which books: the cluster's, or what one parent holds, its *grant*.

A grant carries devices or parts of them, and as many CPUs and as much memory as the job states. It
may change while children run: a larger one restarts none, a smaller one stops the children that do
not fit. A parent that stops or fails takes all its children along, and jobs that get their GPUs
wait for them. `parent` says whose child a job is, `within` in whose grant it is placed.
"""

from __future__ import annotations

from ganger.core.books.ledger import Ledger, rooms
from ganger.core.books.succession import take_over
from ganger.core.errors import InvariantError
from ganger.core.plan import Placement
from ganger.core.spec import Shape
from ganger.core.state.cluster import Nodes
from ganger.core.view import Scope


class Grants:
    """The scopes by parent (-1: the cluster's), and the books inside each grant that is open."""

    def __init__(self, nodes: Nodes, top: Ledger) -> None:
        self._nodes = nodes
        self.top = Scope(top)
        self.scopes: dict[int, Scope] = {-1: self.top}
        self.inner: dict[int, Ledger] = {}

    def scope(self, within: int) -> Scope:
        """The scope of the jobs inside the grant of `within`; empty books where it has none."""
        scope = self.scopes.get(within)
        if scope is None:
            scope = self.scopes[within] = Scope(Ledger(self._nodes, {}), within)
        return scope

    def open(self, parent: int, shape: Shape, placement: Placement) -> None:
        """`parent`, of `shape`, grants its children `placement` from now on, with the CPUs and the
        host memory that go with it. What they hold of its last grant stays theirs: a plan that
        shrinks a grant stops those first that do not fit."""
        before = self.inner.get(parent)
        books = Ledger(self._nodes, rooms(shape, placement))
        if before is not None:
            if len(take_over(books, before.holds, before.asleep)) < len(before.holds):
                raise InvariantError(f"what children of job {parent} hold is not free in its grant")
            books.leaving = before.leaving
            books.settle()
        self.inner[parent] = books
        self._replace(parent, books)

    def close(self, parent: int) -> None:
        """`parent` holds nothing more, and its children neither. A job that gets devices from
        the cluster that they have not left yet waits for them."""
        books = self.inner.pop(parent)
        self._replace(parent, Ledger(self._nodes, {}))
        for node, leaving in books.leaving.items():
            self.top.ledger.leaving.setdefault(node, []).extend(leaving)

    def are_read(self, deciding: bool) -> None:
        """Whether a policy decides now, which may read the books inside grants only."""
        for books in self.inner.values():
            books.deciding = deciding

    def _replace(self, parent: int, books: Ledger) -> None:
        """Other books: what is cached of the last ones is of no more use."""
        scope = self.scope(parent)
        scope.ledger = books
        scope.drop_caches()
