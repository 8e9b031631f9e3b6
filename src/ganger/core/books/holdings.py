"""What each job holds, as a table that remembers whose row changed."""

from __future__ import annotations

from typing import Final, TypeAlias

from ganger.core.plan import Placement
from ganger.core.spec import Shape

Held: TypeAlias = tuple[Shape, Placement]
KEPT: Final = 4096
"""So many changes at least are remembered, if there were so many."""


class Holdings(dict[int, Held]):
    """By job, what it holds. Rows are written by assignment and taken out by `pop` alone."""

    __slots__ = ("_changed", "_forgotten")

    def __init__(self) -> None:
        super().__init__()
        self._changed: list[int] = []
        self._forgotten = 0

    def __setitem__(self, job: int, held: Held) -> None:
        super().__setitem__(job, held)
        self._note(job)

    def pop(self, job: int, *default: None) -> Held:  # type: ignore[override]
        """Take out the row of a job; with a default, that if it has none. Raises KeyError."""
        held = super().pop(job, *default)
        if held is not None:
            self._note(job)
        return held

    def _note(self, job: int) -> None:
        self._changed.append(job)
        if len(self._changed) > 2 * KEPT:
            del self._changed[:KEPT]
            self._forgotten += KEPT

    @property
    def changes(self) -> int:
        """How many changes there were so far."""
        return self._forgotten + len(self._changed)

    def changed_since(self, changes: int) -> list[int] | None:
        """The jobs whose rows changed after so many changes, in order of the last change of each;
        None if that is too long ago to be remembered."""
        if changes < self._forgotten:
            return None
        last = dict.fromkeys(reversed(self._changed[changes - self._forgotten :]))
        return list(reversed(last))
