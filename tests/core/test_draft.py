"""Drafts: the net effect of what was drawn, and nothing of what was taken back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.books.draft import Draft
from ganger.core.books.ledger import Ledger, Room
from ganger.core.plan import Placement, Resize, Slot, Start, Stop
from ganger.core.spec import Kind
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Jobs
from worlds import cluster, job, trace_of


def on(mask: int) -> Placement:
    """GPUs of node 0."""
    return (Slot(0, mask, mask.bit_count()),)


A, B, C = 0, 1, 2


@pytest.fixture
def draft() -> Draft:
    """Four GPUs; A holds 0 and 1 in its first attempt, B and C (2 GPUs each) wait."""
    jobs = Jobs.of(trace_of([job("a", size=2), job("b", size=2), job("c", size=2)]).declared)
    ledger = Ledger(Nodes(cluster(1, 4)))
    drawn = Draft(jobs, ledger, {})
    ledger.take(A, drawn.shape(A), on(0b0011))
    ledger.settle()
    jobs.attempt[A] = 1
    return drawn


def test_an_empty_draft_is_an_empty_plan(draft: Draft) -> None:
    assert draft.plan().actions == []


def test_a_start(draft: Draft) -> None:
    draft.start(B, on(0b1100))
    assert draft.plan().actions == [Start(B, 1, on(0b1100))]


def test_stops_come_before_starts_that_wait_for_them(draft: Draft) -> None:
    draft.start(B, on(0b1100))
    assert draft.stop(A) == on(0b0011)
    draft.start(C, on(0b0011))
    assert draft.plan().actions == [
        Stop(A, 1),
        Start(B, 1, on(0b1100)),
        Start(C, 1, on(0b0011), (A,)),
    ]


def test_a_stop_and_a_start_elsewhere_are_a_resize(draft: Draft) -> None:
    draft.stop(A)
    draft.start(A, on(0b1100))
    assert draft.plan().actions == [Resize(A, 2, on(0b1100))]


def test_a_resize_onto_some_of_its_own_gpus_waits_for_itself(draft: Draft) -> None:
    draft.resize(A, on(0b0110))
    assert draft.plan().actions == [Resize(A, 2, on(0b0110), (A,))]


def test_a_stop_and_a_restore_are_nothing(draft: Draft) -> None:
    draft.restore(A, draft.stop(A))
    assert draft.plan().actions == []
    assert draft.holds(A) == on(0b0011)
    assert draft.ledger_of(A).leaving == {}  # type: ignore[union-attr]


def test_a_start_that_is_stopped_again_is_nothing(draft: Draft) -> None:
    draft.start(B, on(0b1100))
    draft.stop(B)
    assert draft.plan().actions == []


def test_rolling_back_takes_books_and_plan_back(draft: Draft) -> None:
    draft.start(B, on(0b1100))
    mark = draft.mark()
    draft.stop(A)
    draft.start(C, on(0b0011))
    draft.rollback(mark)
    assert draft.plan().actions == [Start(B, 1, on(0b1100))]
    assert draft.holds(A) == on(0b0011)
    assert draft.holds(C) is None
    draft.rollback()
    assert draft.plan().actions == []
    assert draft.holds(B) is None


def test_a_plan_that_was_not_drawn_here_is_booked_anew(draft: Draft) -> None:
    draft.start(B, on(0b1100))
    plan = draft.plan()
    draft.rollback()
    draft.clear()
    plan.actions.insert(0, Stop(A, 1))
    assert draft.book(plan) == {A: on(0b0011)}
    assert draft.holds(A) is None
    assert draft.holds(B) == on(0b1100)


def test_of_a_plan_that_is_booked_the_next_one_frees_nothing(draft: Draft) -> None:
    draft.stop(A)
    assert draft.book(draft.plan()) == {A: on(0b0011)}
    draft.start(B, on(0b0011))
    draft.stop(B)
    draft.start(C, on(0b1100))
    plan = draft.plan()
    assert (plan.actions, draft.book(plan)) == ([Start(C, 1, on(0b1100))], {})


def test_what_went_with_a_parent_is_of_no_more_interest_once_that_is_booked() -> None:
    """B, inside A's grant, goes with A. A runs again, without a grant, and a look at what it would
    give back brings only A back."""
    jobs = Jobs.of(trace_of([job("a", size=2, kind=Kind.TUNE), job("b", parent="a")]).declared)
    nodes = Nodes(cluster(1, 4))
    ledger, grant = Ledger(nodes), Ledger(nodes, {0: Room(0b0011)})
    inner = {A: grant}
    draft = Draft(jobs, ledger, inner)
    ledger.take(A, draft.shape(A), on(0b0011))
    grant.take(B, draft.shape(B), on(0b0001))
    for books in (ledger, grant):
        books.settle()
    assert draft.stop(A) == on(0b0011)
    plan = draft.plan()
    assert plan.actions == [Stop(B, 0, "parent"), Stop(A, 0)]
    assert draft.book(plan) == {A: on(0b0011), B: on(0b0001)}
    del inner[A]
    ledger.take(A, draft.shape(A), on(0b1100))
    ledger.settle()
    draft.restore(A, draft.stop(A))
    assert draft.plan().actions == []
    assert (draft.holds(A), draft.holds(B)) == (on(0b1100), None)


def test_nobody_lets_go_of_a_place_that_was_only_drawn(draft: Draft) -> None:
    draft.stop(A)
    draft.start(A, on(0b0011))  # where it was
    draft.start(B, on(0b1100))
    draft.stop(B)
    draft.start(C, on(0b1100))
    draft.book(draft.plan())
    assert draft.ledger_of(A).leaving == {}  # type: ignore[union-attr]


def test_a_job_that_is_drawn_here_and_there_lets_go_of_what_it_had(draft: Draft) -> None:
    draft.resize(A, on(0b0110))
    draft.resize(A, on(0b1100))
    assert draft.book(draft.plan()) == {A: on(0b0011)}
    assert draft.ledger_of(A).leaving == {0: [(A, 0b0011, 0, 0)]}  # type: ignore[union-attr]


PLACES = on(0b0011), on(0b0110), on(0b1100)


def possible(
    draft: Draft, ledger: Ledger, stopped: dict[int, Placement]
) -> list[Callable[[], object]]:
    """What can be drawn now: starts, stops, what was stopped put back, resizes."""
    able: list[Callable[[], object]] = []

    def stop(job: int) -> None:
        stopped[job] = draft.stop(job)

    def restore(job: int) -> None:
        draft.restore(job, stopped.pop(job))

    for number in (A, B, C):
        shape = draft.shape(number)
        if draft.holds(number) is not None:
            able.append(partial(stop, number))
            continue
        if number in stopped and ledger.is_free(shape, stopped[number]):
            able.append(partial(restore, number))
        free = [place for place in PLACES if ledger.is_free(shape, place)]
        able += [partial(draft.start, number, place) for place in free]
    return able


@given(st.data())
def test_books_are_the_same_as_drawn_and_anew(data: st.DataObject) -> None:
    """Whatever was drawn and taken back, what stands is what the plan says."""
    jobs = Jobs.of(trace_of([job(name, size=2) for name in "abc"]).declared)
    ledgers = [Ledger(Nodes(cluster(1, 4))) for _ in range(2)]
    draft, anew = (Draft(jobs, ledger, {}) for ledger in ledgers)
    for ledger in ledgers:
        ledger.take(A, draft.shape(A), on(0b0011))
        ledger.settle()
    stopped, mark = dict[int, Placement](), 0
    for _ in range(data.draw(st.integers(0, 8))):
        turn = data.draw(st.integers(0, 9))
        if turn == 9:
            draft.rollback(mark)
            stopped.clear()
        elif turn == 8:
            mark = draft.mark()
        else:
            data.draw(st.sampled_from(possible(draft, ledgers[0], stopped)))()
    plan = draft.plan()
    assert draft.book(plan) == anew.book(plan)
    assert ledgers[0].holds == ledgers[1].holds
    assert ledgers[0].free_mask == ledgers[1].free_mask
    assert ledgers[0].leaving == ledgers[1].leaving
