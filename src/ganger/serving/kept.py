"""Answers that are kept for clients that ask again, by tenant, model and id: bounded by time, by
number and by bytes, and each tenant within a part of its own, so that none sees or drives out what
is kept for another."""

from __future__ import annotations

from asyncio import TimerHandle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from ganger.serving.runtime import Array
from ganger.serving.tickets import Ticket

Key = tuple[int, int, str]
"""The code of a tenant, the code of a model, the id of a request."""
SECONDS: Final = 60.0
"""How long an answer is kept."""
_EACH: Final = 512
"""Bytes of an answer besides its tensors."""


class Waiting(Struct, eq=False):
    """A client that waits for an outcome, and the timer of its deadline."""

    over: Callable[[Any], None]
    timer: TimerHandle | None = None


class Case(Struct, eq=False):
    """A request of one client, or of several that ask the same again. `ticket`: while it is under
    way; `outcome`: once it was answered; `at`: when that was."""

    ticket: Ticket | None = None
    waiting: list[Waiting] = []
    outcome: Any = None
    digest: bytes = b""
    at: float = 0.0
    size: int = 0


class _Shelf(Struct):
    """Of one tenant: cases under way, and those that were answered, the oldest first."""

    under_way: dict[Key, Case] = {}
    answered: OrderedDict[Key, Case] = field(default_factory=OrderedDict)
    size: int = 0


class Kept:
    """`size`: bytes for all tenants, each of which gets the same part; 0: nothing is kept."""

    def __init__(self, size: int, clock: Callable[[], float]) -> None:
        self._size, self._clock = size, clock
        self._shelves: dict[int, _Shelf] = {}

    @property
    def size(self) -> int:
        """Bytes that are kept now."""
        return sum(shelf.size for shelf in self._shelves.values())

    def of(self, key: Key, digest: bytes) -> Case | None:
        """The case of a request that was sent before, byte for byte."""
        shelf = self._shelves.get(key[0])
        if shelf is None:
            return None
        case = shelf.under_way.get(key) or shelf.answered.get(key)
        return case if case is not None and case.digest == digest else None

    def begin(self, key: Key, digest: bytes, case: Case) -> None:
        """A request is under way; another one of the same key is no longer found."""
        shelf = self._shelves.get(key[0])
        if shelf is None:
            shelf = self._shelves[key[0]] = _Shelf()
        case.digest = digest
        shelf.under_way[key] = case

    def end(self, key: Key, case: Case) -> None:
        """A request is no longer under way; an answer is kept, if it is not larger than all that
        its tenant may keep."""
        shelf = self._shelves[key[0]]
        if shelf.under_way.get(key) is not case:
            return
        del shelf.under_way[key]
        if case.outcome is None:
            return
        part = self._size // len(self._shelves)
        case.size, case.at = _EACH + 2 * len(key[2]), self._clock()
        case.size += sum(map(_size, case.outcome.outputs))
        if case.size > part:
            return
        self._remove(shelf, key)
        case.outcome = replace(case.outcome, outputs=[_own(each) for each in case.outcome.outputs])
        shelf.answered[key] = case
        shelf.size += case.size
        while shelf.size > part:
            self._remove(shelf, next(iter(shelf.answered)))

    def _remove(self, shelf: _Shelf, key: Key) -> None:
        case = shelf.answered.pop(key, None)
        if case is not None:
            shelf.size -= case.size

    def sweep(self) -> None:
        """Forget what is old, and what tenants have beyond their part since there are more."""
        old = self._clock() - SECONDS
        part = self._size // max(len(self._shelves), 1)
        for code, shelf in [*self._shelves.items()]:
            while shelf.answered:
                key, case = next(iter(shelf.answered.items()))
                if case.at > old and shelf.size <= part:
                    break
                self._remove(shelf, key)
            if not shelf.answered and not shelf.under_way:
                del self._shelves[code]


def _own(array: Array) -> Array:
    """A tensor that does not hold the batch of which it was a part."""
    return array if array.base is None else array.copy()


def _size(array: Array) -> int:
    """Bytes of a tensor; of words, with what Python takes for each."""
    if array.dtype.kind != "O":
        return int(array.nbytes)
    return sum(64 + 4 * len(str(each)) for each in array.ravel())
