"""What an oracle said is asked for once, as long as it holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.mechanisms.common.speed_cache import Floats, SpeedCache, answers


class Question(SpeedCache):
    """The one that is asked here."""


class Desk(SimpleNamespace):
    """All of a view that is looked at."""

    scratch: dict[Any, Any]
    cached = View.cached


class Asked:
    """An oracle that says of each job its number modulo 3, and a view of `jobs` of them."""

    def __init__(self, jobs: int, *, steady: bool = True) -> None:
        self.asked: list[list[int]] = []
        self.view: Any = Desk(
            oracle=SimpleNamespace(steady=steady),
            scratch={},
            pending=np.arange(jobs),
            active=np.arange(0),
            jobs=SimpleNamespace(capacity=jobs),
        )

    def tell(self, ids: Ids, width: tuple[int, ...]) -> Floats:
        """Rows of so many times the same."""
        self.asked.append(ids.tolist())
        return np.repeat(ids[:, None] % 3, width[0], axis=1).astype(np.float64)

    def answers(self, ids: list[int], there: object = 0, width: int = 2) -> list[list[float]]:
        """What everybody is told."""
        rows, of = answers(self.view, Question, np.array(ids), there, (width,), self.tell)
        told: list[list[float]] = rows[of].tolist()
        return told


def test_each_job_is_asked_for_once_and_equal_answers_are_kept_once() -> None:
    world = Asked(8)
    assert world.answers([0, 1, 3]) == [[0, 0], [1, 1], [0, 0]]
    assert world.answers([1, 3, 4, 5]) == [[1, 1], [0, 0], [1, 1], [2, 2]]
    assert world.asked == [[0, 1, 3], [4, 5]]
    rows, of = answers(world.view, Question, np.arange(6), 0, (2,), world.tell)
    assert len(rows) == 3
    assert of[0] == of[3] != of[1] == of[4]


def test_all_are_asked_again_where_what_the_answers_depend_on_has_changed() -> None:
    world = Asked(8)
    for there in ("4 nodes", "4 nodes", "5 nodes"):
        assert world.answers([0, 1], there) == [[0, 0], [1, 1]]
    assert world.asked == [[0, 1], [0, 1]]


def test_a_longer_answer_is_asked_for_and_then_also_serves_who_wants_a_shorter_one() -> None:
    world = Asked(8)
    assert [len(world.answers([2], width=width)[0]) for width in (2, 4, 3)] == [2, 4, 4]
    assert world.asked == [[2], [2]]


def test_an_oracle_that_learns_is_asked_every_time() -> None:
    world = Asked(8, steady=False)
    assert world.answers([0, 1]) == world.answers([0, 1]) == [[0, 0], [1, 1]]
    assert world.asked == [[0, 1]] * 2
    assert not world.view.scratch


def test_no_more_is_kept_than_twice_what_lives() -> None:
    world = Asked(1000)
    world.view.pending = np.arange(2)

    def itself(ids: Ids, _: tuple[int, ...]) -> Floats:
        return ids[:, None].astype(np.float64)

    every = [
        answers(world.view, Question, np.array([job]), 0, (1,), itself)[0] for job in range(1000)
    ]
    assert max(len(rows) for rows in every) <= 2 * 2 + 64 + 1
    assert every[-1][-1] == 999
