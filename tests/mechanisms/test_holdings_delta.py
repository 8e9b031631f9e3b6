"""What changed in the books since the last look is what differs between two copies of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.books import holdings
from ganger.core.books.holdings import Held, Holdings
from ganger.core.plan import Slot
from ganger.core.spec import Shape
from ganger.mechanisms.common.holdings_delta import HoldingsDelta

STEP = st.tuples(st.sampled_from(["take", "give", "move", "undo", "look"]), st.integers(0, 5))


@given(st.lists(STEP, max_size=40))
def test_changes_are_the_difference_between_two_looks(steps: list[tuple[str, int]]) -> None:
    seen, holds, before = HoldingsDelta(), Holdings(), dict[int, Held]()
    for at, (verb, job) in enumerate([*steps, ("look", 0)]):
        placement = (Slot(at, 1, 1),)
        if verb == "take":
            if job not in holds:
                holds[job] = Shape(), placement
        elif verb == "give":
            holds.pop(job, None)
        elif verb == "move" and job in holds:
            holds.pop(job)
            holds[job] = Shape(), placement
        elif verb == "undo" and job in holds:
            holds[job] = holds.pop(job)  # given and taken back: the same, at another place
        elif verb == "look":
            gone, come = seen.changes(SimpleNamespace(holds=holds))  # type: ignore[arg-type]
            where = {job: held for job, (_, held) in holds.items()}
            was = {job: held for job, (_, held) in before.items()}
            assert sorted(gone) == sorted(job for job in was if was[job] != where.get(job))
            assert sorted(come) == sorted(
                (job, held) for job, held in where.items() if held != was.get(job)
            )
            before = dict(holds)


def test_changes_that_are_too_long_ago_are_found_by_comparing_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holdings, "KEPT", 3)
    held = Shape(), (Slot(0, 1, 1),)
    seen, holds = HoldingsDelta(), Holdings()
    for job in range(3):
        holds[job] = held
    assert seen.changes(SimpleNamespace(holds=holds))[1] == [(job, held[1]) for job in range(3)]  # type: ignore[arg-type]
    for job in (3, 4, 5, 6):
        holds[job] = held
    assert holds.changed_since(3) == [3, 4, 5, 6]
    assert holds.changed_since(2) is None
    holds.pop(1)
    holds.pop(9, None)
    assert (holds.changes, holds.changed_since(6)) == (8, [6, 1])
    other = Holdings()
    other[1] = held
    assert seen.changes(SimpleNamespace(holds=other)) == ([0, 2], [])  # type: ignore[arg-type]
