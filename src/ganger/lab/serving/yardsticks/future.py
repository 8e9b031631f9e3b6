"""All requests of a run, before they come: for routers that nobody can deploy, which show how much
there is to gain by knowing more."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ganger.core.units import NEVER

Columns = Mapping[str, Sequence[int]]


class Coming(NamedTuple):
    """The requests for one model (or family), in order of arrival. `rows`: their numbers in the
    run; `arrival` and `deadline` in microseconds (NEVER: none)."""

    rows: Sequence[int]
    arrival: Sequence[int]
    deadline: Sequence[int]
    items: Sequence[int]


_NONE = Coming((), (), (), ())


class Future:
    """What will be asked for and when, by the code of the model (or family) that requests name. It
    holds the whole log in memory: four numbers a request."""

    def __init__(self, by_model: Mapping[int, Coming]) -> None:
        self.by_model = by_model

    @classmethod
    def of(cls, chunks: Iterator[Columns]) -> Future:
        """From the columns that a plane takes."""
        found: dict[int, list[tuple[np.ndarray, ...]]] = {}
        before = 0
        for chunk in chunks:
            model = np.array(chunk["model"], np.int64)
            count = len(model)
            columns = (
                np.arange(before, before + count), np.array(chunk["arrival"], np.int64),
                np.array(chunk.get("deadline", [NEVER] * count), np.int64),
                np.array(chunk.get("items", [1] * count), np.int64),
            )  # fmt: skip
            before += count
            for code in np.unique(model).tolist():
                here = model == code
                found.setdefault(code, []).append(tuple(column[here] for column in columns))
        return cls(
            {
                code: Coming(
                    *(np.concatenate(column).tolist() for column in zip(*parts, strict=True))
                )
                for code, parts in found.items()
            }
        )

    def coming(self, model: int) -> Coming:
        """All requests for a model."""
        return self.by_model.get(model, _NONE)

    def after(self, model: int, at: int) -> int:
        """When a model is asked for next, later than `at` microseconds; NEVER if it is not."""
        arrival = self.coming(model).arrival
        found = bisect_right(arrival, at)
        return arrival[found] if found < len(arrival) else NEVER

    def count(self, model: int, begin: int, end: int) -> int:
        """How many requests for a model arrive from `begin` until before `end` (microseconds)."""
        arrival = self.coming(model).arrival
        return bisect_left(arrival, end) - bisect_left(arrival, begin)
