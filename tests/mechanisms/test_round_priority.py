"""Whose turn it is: the arrays say what the rule says, row by row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from bench import running
from ganger.core.allocation import Allocation, Share
from ganger.core.view import View
from ganger.mechanisms.rounds.round_priority import _types_held, _TypesHeld, rows_of

ROW = st.tuples(
    st.integers(0, 12), st.sampled_from(["V100", "K80"]), st.sampled_from([0.1, 0.25, 1 / 3, 1.0])
)


class Desk:
    """All of a view that the rows need: a place for caches."""

    cached = View.cached

    def __init__(self) -> None:
        self.scratch: dict[Any, Any] = {}
        self.nodes = SimpleNamespace(types=["V100", "K80"])


@given(
    st.lists(ROW, unique_by=lambda row: row[:2], max_size=12),
    st.lists(st.integers(0, 100), min_size=12, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
@example([(0, "V100", 1.0), (1, "V100", 0.1)], [1, *[0] * 11], [True] * 12)
def test_rows_go_by_what_is_owed_then_amount_then_job(
    drawn: list[tuple[int, str, float]], had: list[int], keep: list[bool]
) -> None:
    rows = [Share((job,), kind, 1, amount) for job, kind, amount in drawn]
    received = dict(zip(rows, had, strict=False))

    def rank(row: Share) -> tuple[float, float, tuple[int, ...]]:
        part = received[row] / 120
        due = row.amount / part if part > 0 else row.amount * 1e9
        return -round(due, 9), -row.amount, row.jobs

    known = rows_of(Desk(), Allocation(rows))  # type: ignore[arg-type]
    kept = np.array(keep[: len(rows)], bool)
    for mask in (None, kept):
        some = [row for i, row in enumerate(rows) if mask is None or mask[i]]
        assert [
            rows[i] for i in known.ranked(np.array(had[: len(rows)], np.int64), 120, mask)
        ] == sorted(some, key=rank)


def test_a_cache_that_was_made_for_fewer_jobs_is_made_anew() -> None:
    view = running().kernel.view
    assert len(view.cached(_TypesHeld, 1).kind) == 1
    assert _types_held(view, np.array([0, 1])).tolist() == [0, -1]
