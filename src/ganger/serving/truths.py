"""What was answered, for clients that later say what was right: by tenant, model and id, for an
hour, so many of each tenant."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from ganger.serving.kept import Key

SECONDS: Final = 3600.0
ANSWERS_MAX: Final = 100_000


class Answered(Struct, frozen=True):
    """What a request was answered with: the class that each model gave; `class_`: the one that was
    answered; `at`: when, in seconds."""

    said: dict[int, int]
    class_: int
    at: float


class Truths:
    """Answers of which the truth may still come. `limit`: of all tenants, each of which gets the
    same part."""

    def __init__(self, clock: Callable[[], float], limit: int = ANSWERS_MAX) -> None:
        self._clock, self._limit = clock, limit
        self._shelves: dict[int, OrderedDict[Key, Answered]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._shelves.values()))

    def keep(self, key: Key, said: dict[int, int], class_: int) -> None:
        """A request was answered; an earlier one of the same key is forgotten."""
        shelf = self._shelves.setdefault(key[0], OrderedDict())
        shelf.pop(key, None)
        shelf[key] = Answered(said, class_, self._clock())
        while len(shelf) * len(self._shelves) > self._limit:
            shelf.popitem(last=False)

    def take(self, key: Key) -> Answered | None:
        """What was answered, once; None where nothing is known of it."""
        return self._shelves.get(key[0], OrderedDict[Key, Answered]()).pop(key, None)

    def sweep(self) -> None:
        """Forget what is old, and what tenants have beyond their part since there are more."""
        old = self._clock() - SECONDS
        for code, shelf in [*self._shelves.items()]:
            while shelf:
                answered = next(iter(shelf.values()))
                if answered.at > old and len(shelf) * len(self._shelves) <= self._limit:
                    break
                shelf.popitem(last=False)
            if not shelf:
                del self._shelves[code]
