"""Columns declared once, as annotated attributes of a class, so that they type-check.

    class Jobs(Table):
        submitted: I64
        gpus: I32

`jobs.submitted[ids]` is a numpy gather, `jobs.cells("submitted")[i]` reads and writes one native
number twice as fast as numpy does. Rows are appended and never removed: a row's number is its id.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from typing import Annotated, Any, Self, TypeAlias, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

I8: TypeAlias = Annotated[NDArray[np.int8], np.int8]
I32: TypeAlias = Annotated[NDArray[np.int32], np.int32]
I64: TypeAlias = Annotated[NDArray[np.int64], np.int64]
F64: TypeAlias = Annotated[NDArray[np.float64], np.float64]
Ids: TypeAlias = NDArray[np.int64]
"""Row numbers of one table."""


Cells: TypeAlias = MutableSequence[Any]


def cells(column: NDArray[Any]) -> Cells:
    """A column for reading and writing single native numbers, twice as fast as numpy does."""
    return memoryview(column)  # type: ignore[arg-type,return-value]


class Table:
    """A growing set of equally long columns; new cells are zero."""

    _columns: dict[str, type[np.generic]] = {}  # noqa: RUF012 - replaced whole in each subclass

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True)
        cls._columns = {
            name: get_args(hint)[1]
            for name, hint in hints.items()
            if getattr(hint, "__metadata__", None) and issubclass(get_args(hint)[1], np.generic)
        }

    def __init__(self, capacity: int = 0) -> None:
        self.n = 0
        self.capacity = 0
        for name, dtype in self._columns.items():
            setattr(self, name, np.zeros(0, dtype))
        if capacity:
            self.reserve(capacity)

    @classmethod
    def columns(cls) -> Mapping[str, type[np.generic]]:
        """The columns and what their cells are, in the order of declaration."""
        return cls._columns

    def reserve(self, rows: int) -> bool:
        """Make room for `rows` rows in all; True if the columns moved (old cells are stale)."""
        if rows <= self.capacity:
            return False
        capacity = max(rows, 2 * self.capacity, 16)
        for name, dtype in self._columns.items():
            bigger = np.zeros(capacity, dtype)
            bigger[: self.n] = getattr(self, name)[: self.n]
            setattr(self, name, bigger)
        self.capacity = capacity
        return True

    def extend(self, rows: int, **columns: Any) -> None:
        """Append `rows` rows, filled from `columns` (arrays or single values)."""
        where = slice(self.n, self.n + rows)
        self.reserve(self.n + rows)
        for name, values in columns.items():
            getattr(self, name)[where] = values
        self.n += rows

    def cells(self, name: str) -> Cells:
        """The cells of one column. Stale after `reserve` moved it."""
        return cells(getattr(self, name))

    def frozen(self) -> Self:
        """A twin that shares this table's memory and refuses to be written through its columns."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        for name in self._columns:
            column = getattr(self, name).view()
            column.flags.writeable = False
            setattr(twin, name, column)
        return twin

    def take(self, rows: NDArray[Any] | slice) -> Self:
        """A copy that holds only `rows`."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        for name in self._columns:
            setattr(other, name, getattr(self, name)[: self.n][rows].copy())
            other.n = other.capacity = len(getattr(other, name))
        return other
