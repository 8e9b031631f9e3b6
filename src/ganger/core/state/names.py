"""Strings and shapes become small integers once, so that columns can hold them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Names(Generic[T]):
    """An append-only list of distinct values: value to code and back."""

    __slots__ = ("_codes", "values")

    def __init__(self, values: Iterable[T] = ()) -> None:
        self.values: list[T] = []
        self._codes: dict[T, int] = {}
        for value in values:
            self.code(value)

    def code(self, value: T) -> int:
        """The code of `value`, a new one if it was never seen."""
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = len(self.values)
            self.values.append(value)
        return code

    def copy(self) -> Names[T]:
        """The same values under the same codes, in a list of its own."""
        twin: Names[T] = Names()
        twin.values, twin._codes = self.values.copy(), self._codes.copy()
        return twin

    def find(self, value: T) -> int:
        """The code of `value`, or -1."""
        return self._codes.get(value, -1)

    def __getitem__(self, code: int) -> T:
        return self.values[code]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[T]:
        return iter(self.values)
