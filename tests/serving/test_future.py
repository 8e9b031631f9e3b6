"""What a router that nobody can deploy is told: all requests, before they come."""

from __future__ import annotations

from ganger.core.units import NEVER
from ganger.lab.serving.yardsticks.future import Future
from serving.rig import MS, Asked, columns


def test_it_knows_when_each_model_is_asked_for_in_whatever_chunks_requests_come() -> None:
    asked = [Asked(1, 0, 9), Asked(3, 1), Asked(3, 0, 5, items=2), Asked(8, 0)]
    whole = Future.of(iter([columns(asked)]))
    parts = Future.of(iter([columns(asked[:2]), columns(asked[2:])]))
    for future in (whole, parts):
        coming = future.coming(0)
        assert list(coming.rows) == [0, 2, 3]
        assert list(coming.arrival) == [1 * MS, 3 * MS, 8 * MS]
        assert list(coming.items) == [1, 2, 1]
        assert coming.deadline[0] == 10 * MS
        assert future.after(0, 1 * MS) == 3 * MS
        assert future.after(0, 8 * MS) == NEVER
        assert future.after(2, 0) == NEVER
        assert future.count(0, 1 * MS, 8 * MS) == 2
