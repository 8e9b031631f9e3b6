"""What changed in the books since the last look is what differs between two copies of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.books import holdings, ledger
from ganger.core.books.holdings import Held, Holdings
from ganger.core.books.ledger import Ledger
from ganger.core.plan import Slot
from ganger.core.spec import ClusterSpec, NodeSpec, Shape
from ganger.core.state.cluster import Nodes
from ganger.mechanisms.common.holdings_delta import HoldingsDelta


def put(holds: Holdings, job: int, held: Held) -> None:
    """As the books give something to a job."""
    holds[job] = held
    holds.note(job)


def take_out(holds: Holdings, job: int) -> None:
    """As the books take back what a job has, if it has anything."""
    if holds.pop(job, None) is not None:
        holds.note(job)


STEP = st.tuples(st.sampled_from(["take", "give", "move", "undo", "look"]), st.integers(0, 5))


@given(st.lists(STEP, max_size=40))
def test_changes_are_the_difference_between_two_looks(steps: list[tuple[str, int]]) -> None:
    seen, holds, before = HoldingsDelta(), Holdings(), dict[int, Held]()
    for at, (verb, job) in enumerate([*steps, ("look", 0)]):
        placement = (Slot(at, 1, 1),)
        if verb == "take":
            if job not in holds:
                put(holds, job, (Shape(), placement))
        elif verb == "give":
            take_out(holds, job)
        elif verb == "move" and job in holds:
            take_out(holds, job)
            put(holds, job, (Shape(), placement))
        elif verb == "undo" and job in holds:
            held = holds[job]
            take_out(holds, job)
            put(holds, job, held)  # given and taken back: the same, at another place
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
        put(holds, job, held)
    assert seen.changes(SimpleNamespace(holds=holds))[1] == [(job, held[1]) for job in range(3)]  # type: ignore[arg-type]
    for job in (3, 4, 5, 6):
        put(holds, job, held)
    assert holds.changed_since(3) == [3, 4, 5, 6]
    holds.forget()
    assert holds.changed_since(4) == [4, 5, 6]
    assert holds.changed_since(3) is None
    take_out(holds, 1)
    assert (holds.changes, holds.changed_since(6)) == (8, [6, 1])
    other = Holdings()
    put(other, 1, held)
    assert seen.changes(SimpleNamespace(holds=other)) == ([0, 2], [])  # type: ignore[arg-type]


def test_books_forget_changes_when_they_settle_and_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "KEPT", 4)
    monkeypatch.setattr(holdings, "KEPT", 4)
    books = Ledger(Nodes(ClusterSpec((NodeSpec(gpus=8, gpu_type="V100"),)).check()))
    seen = HoldingsDelta()
    for job in range(8):
        books.take(job, Shape(), (Slot(0, 1 << job, 1),))
        books.settle()
    assert len(books.holds.noted) == 8
    assert [job for job, _ in seen.changes(books)[1]] == list(range(8))
    books.give(3)
    assert len(books.holds.noted) == 9  # what may be undone is remembered
    books.settle()
    assert (len(books.holds.noted), books.holds.changes) == (4, 9)
    assert seen.changes(books) == ([3], [])
