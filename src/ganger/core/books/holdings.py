"""What each job holds, as a table that remembers whose row changed."""

from __future__ import annotations

from typing import Final, TypeAlias

from ganger.core.plan import Placement
from ganger.core.spec import Shape

Held: TypeAlias = tuple[Shape, Placement]
KEPT: Final = 4096
"""So many changes at least are remembered, if there were so many; until `forget`, all."""


class Holdings(dict[int, Held]):
    """By job, what it holds. Its rows are written by the books, which `note` the job each time."""

    __slots__ = ("_forgotten", "note", "noted")

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[int] = []
        """The jobs whose rows changed, in order."""
        self._forgotten = 0
        self.note: Final = self.noted.append
        """Write down that the row of a job changed."""

    def forget(self) -> None:
        """Remember the last `KEPT` changes only."""
        self._forgotten += len(self.noted) - KEPT
        del self.noted[:-KEPT]

    @property
    def changes(self) -> int:
        """How many changes there were so far."""
        return self._forgotten + len(self.noted)

    def changed_since(self, changes: int) -> list[int] | None:
        """The jobs whose rows changed after so many changes, in order of the last change of each;
        None if that is too long ago to be remembered."""
        if changes < self._forgotten:
            return None
        last = dict.fromkeys(reversed(self.noted[changes - self._forgotten :]))
        return list(reversed(last))
