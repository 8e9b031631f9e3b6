"""What a blocked class waits for: not tried a decision too early, and never one too late."""

from __future__ import annotations

import pytest

from ganger.core.books.ledger import Cell
from ganger.core.plan import Reason
from ganger.mechanisms.ordering.blocked_classes import ANY_RETURN, Blocked

SHAPE = 7
WHY = Reason("Resources", "queue", SHAPE)
HEAD = (5.0, 3)


def cell(index: int = 0, returned: int = 10) -> Cell:
    """A cell that was given back so many GPUs since the beginning."""
    made = Cell(index, "A", "")
    made.returned = returned
    return made


def filed(lacks: dict[Cell, int]) -> Blocked:
    """Class 1 is blocked, its head is job 3."""
    blocked = Blocked()
    blocked.file(1, HEAD, WHY, lacks)
    return blocked


def needed(blocked: Blocked, where: Cell) -> int:
    """How many GPUs have to come back to the cell until the class is tried; they come one by one,
    and until then the class is kept blocked for whoever comes behind."""
    for count in range(100):
        kept = blocked.keeps(1, HEAD, SHAPE)
        crossed = blocked.crossed()
        assert crossed == ([] if kept else [1])
        assert blocked.crossed() == [], "it is said once"
        if crossed:
            return count
        where.returned += 1
    return 100


@pytest.mark.parametrize(("lacks", "returns"), [(4, 4), (1, 1), (0, 1), (-3, 1), (ANY_RETURN, 1)])
def test_as_many_have_to_come_back_as_it_lacks_and_one_at_least(lacks: int, returns: int) -> None:
    one, other = cell(), cell(1, 0)
    blocked = filed({one: lacks, other: 90})
    assert needed(blocked, one) == returns


@pytest.mark.parametrize(
    ("entry", "more"), [((4.0, 9), 2), (HEAD, 2), ((5.0, 4), 0), ((6.0, 1), 0)]
)
def test_what_those_before_it_took_has_to_come_back_besides(
    entry: tuple[float, int], more: int
) -> None:
    one, other = cell(), cell(1)
    blocked = filed({one: 3, other: 90})
    blocked.took(entry, other, 50)
    blocked.took(entry, one, 2)
    assert needed(blocked, one) == 3 + more


@pytest.mark.parametrize(("entry", "more"), [((6.0, 1), 2), (HEAD, 0), ((4.0, 9), 0)])
def test_what_those_behind_it_gave_back_was_within_reach_before(
    entry: tuple[float, int], more: int
) -> None:
    one, other = cell(), cell(1)
    blocked = filed({one: 3, other: 90})
    blocked.left(entry, other, 50)
    blocked.left(entry, one, 2)
    assert needed(blocked, one) == 3 + more


@pytest.mark.parametrize(
    ("lacks", "entry", "gpus", "returns"),
    [
        (3, (6.0, 1), 2, 1),
        (3, (6.0, 1), 3, 0),
        (3, HEAD, 3, 3),
        (3, (4.0, 9), 3, 3),
        (0, (6.0, 1), 0, 0),
        (3, (6.0, 1), 0, 3),
    ],
)
def test_a_job_that_comes_to_stand_behind_it_can_be_evicted_for_it(
    lacks: int, entry: tuple[float, int], gpus: int, returns: int
) -> None:
    one = cell()
    blocked = filed({one: lacks})
    blocked.moved(entry, gpus)
    assert needed(blocked, one) == returns


def test_who_comes_behind_the_head_is_as_blocked_and_becomes_the_head() -> None:
    blocked = filed({cell(): 3})
    assert blocked.keeps(1, (6.0, 8), SHAPE)
    blocked.went(3)
    assert blocked.due() == [], "job 3 is the head no longer"
    blocked.went(8)
    assert blocked.due() == [1]


@pytest.mark.parametrize(
    ("kind", "entry", "shape"), [(1, (4.0, 9), SHAPE), (1, HEAD, SHAPE + 1), (2, HEAD, SHAPE)]
)
def test_of_others_nothing_is_known(kind: int, entry: tuple[float, int], shape: int) -> None:
    """Whoever comes before the head, has another shape, or is of another class."""
    assert not filed({cell(): 3}).keeps(kind, entry, shape)


@pytest.mark.parametrize(("entry", "due"), [((4.0, 9), [1]), (HEAD, []), ((6.0, 8), [])])
def test_who_arrives_has_the_class_tried_only_as_its_new_head(
    entry: tuple[float, int], due: list[int]
) -> None:
    blocked = filed({cell(): 3})
    blocked.came(1, entry)
    assert blocked.due() == due
    assert blocked.due() == []


def test_a_class_of_which_nothing_is_known_is_tried() -> None:
    blocked = Blocked()
    blocked.came(2, HEAD)
    blocked.always(4)
    assert sorted(blocked.due()) == [2, 4]
    assert blocked.reasons == []


def test_a_class_that_is_tried_already_is_not_named_twice() -> None:
    one = cell()
    blocked = filed({one: 3})
    one.returned += 3
    blocked.went(3)
    assert blocked.due() == [1]
    assert blocked.crossed() == []
    assert not blocked.keeps(1, HEAD, SHAPE)
    one.returned -= 3
    assert blocked.keeps(1, HEAD, SHAPE)
    one.returned += 3
    assert blocked.crossed() == [1], "what is kept can be tried again"


def test_what_is_forgotten_is_neither_due_nor_a_reason() -> None:
    one = cell()
    blocked = filed({one: 1})
    assert blocked.reasons == [WHY]
    blocked.forget(1)
    one.returned += 1
    blocked.went(3)
    assert (blocked.due(), blocked.crossed(), blocked.reasons) == ([], [], [])


def test_reasons_stand_by_shape_and_are_those_of_now() -> None:
    blocked = filed({cell(): 1})
    early = Reason("Resources", "queue", 2)
    blocked.file(2, (1.0, 6), early, {})
    assert blocked.reasons == [early, WHY]
    late = Reason("Resources", "queue", 9)
    blocked.file(2, (1.0, 6), late, {})
    assert blocked.reasons == [WHY, late]


def test_a_job_that_is_the_head_of_two_records_belongs_to_the_later() -> None:
    """Its class changed: it stands in the old one's record until that is tried."""
    blocked = filed({cell(): 3})
    blocked.file(2, HEAD, WHY, {cell(): 3})
    blocked.forget(1)
    blocked.went(3)
    assert blocked.due() == [2]
