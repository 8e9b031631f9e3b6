"""Requests on their way through a live plane, and the answers that they come by."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from ganger.serving.runtime import Array, Failure, Feeds, Given

_WORDS_MAX: Final = 10_000
_LETTERS_MAX: Final = 1000
UNKNOWN: Final = -1


class Ticket(Struct, eq=False):
    """A request on its way. `over` is called with it once, by the thread of the plane, when it has
    `outputs`, a `failure` (its model did not run on it) or a `reason` (it was dropped); never for
    one that was given up."""

    model: int
    feeds: Feeds | None
    items: int
    deadline: int
    tenant: int
    over: Callable[[Ticket], None]
    arrival: int = 0
    row: int = -1
    began: int = -1
    """When its (first) batch began; -1: none did."""
    batch: int = 0
    """Requests in that batch."""
    why: str = ""
    """Why that batch was formed."""
    outputs: list[Array] | None = None
    failure: str = ""
    reason: str = ""
    ended: int = -1
    handed: int = 0
    """Items of it that lanes were given, where it is divided."""
    pieces: dict[int, list[Array]] = {}
    """By the first item of each piece, where it is divided: lanes end in any order."""
    variants: dict[int, Given] = {}
    """By model of the family that it asked for: what that gave it."""
    by: int = -1
    """The model that its answer is of."""
    said: dict[int, int] = {}
    """By model: the class that it gave, where the request asked for a family."""
    class_: int = UNKNOWN
    """The class that is answered, where it is not what `by` gave."""

    def settle(self, by: int) -> None:
        """The router says that it is answered, by that model: take what there is."""
        if self.pieces:
            self.outputs = joined([self.pieces[first] for first in sorted(self.pieces)])
        elif self.variants:
            fine = {
                model: given
                for model, given in self.variants.items()
                if not isinstance(given, Failure)
            }
            self.by = by if by in fine else next(iter(fine), by)
            given = self.variants.get(self.by)
            if isinstance(given, Failure):
                self.failure = given.why
            else:
                self.outputs = given


def columns(coming: Sequence[Ticket]) -> dict[str, Sequence[int]]:
    """Requests as the world takes them; columns that all leave blank are left out."""
    table: dict[str, Sequence[int]] = {
        "arrival": array("q", [ticket.arrival for ticket in coming]),
        "deadline": array("q", [ticket.deadline for ticket in coming]),
        "model": array("q", [ticket.model for ticket in coming]),
    }
    if any(ticket.items != 1 for ticket in coming):
        table["items"] = array("q", [ticket.items for ticket in coming])
    if any(ticket.tenant for ticket in coming):
        table["tenant"] = array("q", [ticket.tenant for ticket in coming])
    return table


def joined(pieces: Sequence[list[Array]]) -> list[Array]:
    """The outputs of a request that ran in pieces."""
    if len(pieces) == 1:
        return pieces[0]
    return [np.concatenate(each) for each in zip(*pieces, strict=True)]


class Classes:
    """Which class an answer is of: of a first output of whole numbers or words, the first of them;
    of numbers, the place of the greatest for the first item. Words have codes, of which there are
    so many; those of others are not known."""

    def __init__(self) -> None:
        self._words: dict[str, int] = {}

    def of(self, given: Given) -> int:
        """The class that a model gave; UNKNOWN where there is none."""
        if isinstance(given, Failure) or not given or not given[0].size:
            return UNKNOWN
        first = given[0]
        if first.dtype.kind == "O":
            return self.code(str(first.flat[0]))
        if first.dtype.kind in "iub":
            return max(int(first.flat[0]), UNKNOWN)
        scores = first[0] if first.ndim > 1 else first
        return int(np.argmax(scores)) if scores.size > 1 else UNKNOWN

    def scores(self, given: Given) -> Sequence[float]:
        """What a model gave for every class of the first item; nothing where it gave no numbers."""
        if isinstance(given, Failure) or not given or given[0].dtype.kind != "f":
            return ()
        first = given[0]
        scores = first[0] if first.ndim > 1 else first
        return scores.tolist() if scores.ndim == 1 and scores.size > 1 else ()

    def code(self, word: str) -> int:
        """The code of a word that a model gave."""
        code = self._words.get(word, UNKNOWN)
        if code == UNKNOWN and len(self._words) < _WORDS_MAX and len(word) <= _LETTERS_MAX:
            code = self._words[word] = len(self._words)
        return code

    def label(self, label: int | str) -> int:
        """The code of what is right; of a word that no model gave, one that none has."""
        return label if isinstance(label, int) else self._words.get(label, _WORDS_MAX)
