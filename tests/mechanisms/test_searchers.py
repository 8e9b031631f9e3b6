"""Searchers: what they propose, and what they learn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.tuning.space import Parameter, Point, Space
from ganger.mechanisms.tuning.searching.kde import Densities
from ganger.mechanisms.tuning.searching.named import SEARCHERS, count_of, searcher_of

SPACE = Space(
    {"x": Parameter(), "y": Parameter(), "o": Parameter(type="choice", values=("a", "b"))}
)
POINTS: list[Point] = [{"x": 0.5, "y": 0.5, "o": "b"}]


def runs(name: str) -> bool:
    """Whether what a searcher needs is installed."""
    try:
        searcher_of(name, SPACE, POINTS, 1)
    except BadInput:
        return False
    return True


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.skipif(not runs(name), reason="its package is missing")
        )
        for name in SEARCHERS
    ],
)
def test_the_points_given_come_first_and_the_seed_decides_the_rest(name: str) -> None:
    searcher = searcher_of(name, SPACE, POINTS, 1)
    assert searcher.ask() == POINTS[0]
    if name == "points":
        with pytest.raises(BadInput, match="it has only 1 points"):
            searcher.ask()
        return
    first = [searcher.ask() for _ in range(9)]
    assert all(SPACE.holds(point) for point in first)
    again, other = (searcher_of(name, SPACE, POINTS, seed) for seed in (1, 2))
    assert [again.ask() for _ in range(10)][1:] == first
    assert ([other.ask() for _ in range(10)][1:] == first) is (name == "grid")


def test_a_grid_has_an_end() -> None:
    assert count_of("grid", SPACE, POINTS) == 50, "the point given is in it"
    assert count_of("grid", SPACE, [{"x": 0.1, "y": 0.1, "o": "a"}]) == 51
    assert count_of("points", SPACE, POINTS) == 1
    assert count_of("random", SPACE, POINTS) is None
    searcher = searcher_of("grid", SPACE, (), 0)
    assert len({tuple(searcher.ask().values()) for _ in range(50)}) == 50


def test_quasi_random_points_fill_the_space_more_evenly_than_random_ones() -> None:
    """Of 64 points each of 8 x 8 cells of the unit square has one in the best case."""
    square = Space({"x": Parameter(), "y": Parameter()})

    def cells(name: str, seed: int) -> int:
        searcher = searcher_of(name, square, (), seed)
        points = [searcher.ask() for _ in range(64)]
        return len({(int(float(p["x"]) * 8), int(float(p["y"]) * 8)) for p in points})

    even = [cells("quasi-random", seed) for seed in range(8)]
    random = [cells("random", seed) for seed in range(8)]
    assert min(even) > max(random)


def test_an_unknown_searcher_is_refused() -> None:
    with pytest.raises(BadInput, match="there is no searcher 'grid search'"):
        searcher_of("grid search", SPACE, (), 0)


def badness(point: Point) -> float:
    """Best at (0.3, 0.7), and with the choice b."""
    x, y = float(str(point["x"])), float(str(point["y"]))
    return (x - 0.3) ** 2 + (y - 0.7) ** 2 + (0.5 if point["o"] == "a" else 0.0)


def test_two_densities_find_what_is_good() -> None:
    """After 60 points two of three proposals lie near the best, with the better choice; a third
    is random still. The searcher that does not listen stays where it was."""

    def after(name: str) -> list[float]:
        searcher = searcher_of(name, SPACE, (), 3)
        for _ in range(60):
            point = searcher.ask()
            searcher.tell(point, 1.0, badness(point))
        return [badness(searcher.ask()) for _ in range(60)]

    learnt, deaf = np.array(after("kde")), np.array(after("random"))
    assert np.median(learnt) < 0.2 * np.median(deaf)
    assert 0.15 < (learnt > 0.1).mean() < 0.5, "a third is random"


def test_two_densities_look_at_the_highest_epoch_that_enough_have_reached() -> None:
    """At epoch 1 the right looks good, at 9 the left; six points are needed for three dimensions,
    and one that broke down is bad."""
    few, enough = (searcher_of("kde", SPACE, (), 0) for _ in range(2))
    rng = np.random.default_rng(0)
    for number in range(30):
        x = float(rng.random())
        point: Point = {"x": x, "y": 0.5, "o": "a"}
        for searcher, late in ((few, 5), (enough, 30)):
            searcher.tell(point, 1.0, -x)
            if number < late:
                searcher.tell(point, 9.0, x if x > 0.1 else math.nan)
    right, left = (
        np.median([float(str(searcher.ask()["x"])) for _ in range(60)])
        for searcher in (few, enough)
    )
    assert right > 0.7
    assert left < 0.4


def test_where_a_choice_is_between_two_a_point_is_unlike_the_other_one_and_like_itself() -> None:
    """Two good points say b. The kernel of a choice gives b all but its width, a the width."""
    two = Space({"o": Parameter(type="choice", values=("a", "b"))})
    density = Densities(two, 0)
    good = np.array([[0.6], [0.9]])
    width = 1.06 * 0.15 * 2 ** (-1 / 5)
    found = np.exp(density._log_density(np.array([[0.1], [0.7]]), good))
    assert found == pytest.approx([2 * width, 2 * (1 - width)])
