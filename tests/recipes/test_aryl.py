"""Hand checks of Aryl's two phases, and where it differs from its neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from ganger.core.plan import Resize, Start
from ganger.core.spec import Needs, Role, Shape
from ganger.mechanisms.sizing.marginal_gain import Curves, exact
from worlds import Played, cluster, job, play

FLEXIBLE = {"a": Shape((Role(size=2, most=4),)), "b": Shape((Role(size=1, most=3),))}
CARD = [
    job("a", 0, 20 * 3600, shape=FLEXIBLE["a"]),
    job("b", 0, 12 * 3600, shape=FLEXIBLE["b"]),
]


def sizes(played: Played, at: float = 0) -> dict[str, int]:
    """The GPUs of every job that was started or resized by then (seconds)."""
    found: dict[str, int] = {}
    for batch, plan in played.diary.steps:
        for action in plan.actions if plan is not None and batch.at <= at * 1e6 else ():
            if isinstance(action, Start | Resize):
                gpus = sum(slot.devices.bit_count() for slot in action.placement)
                found[played.jobs.name(action.job)] = gpus
    return found


def test_the_knapsack_of_the_card_saves_sixteen_hours() -> None:
    """Three GPUs to spare: a (20 h on 2) gets two more, b (12 h on 1) one more: 10 h and 6 h."""
    played = play("aryl", CARD, cluster(1, 6))
    assert sizes(played) == {"a": 4, "b": 2}
    assert [played.ended(name) for name in "ab"] == [10 * 3600, 6 * 3600]
    hours = np.array([[0.0, 20.0, 40 / 3, 10.0], [12.0, 6.0, 4.0, 4.0]])
    saved = Curves(
        hours[[0, 1], [1, 0]][:, None] - hours,
        np.array([2, 1]),
        np.array([4, 3]),
        np.array([1, 1]),
    )
    assert exact(saved, 6)[0].tolist() == [4, 2]
    assert exact(saved, 6)[1] == pytest.approx(16)


def test_what_a_job_needs_comes_first_and_the_shortest_of_those_that_wait() -> None:
    """Others begin with the first to come; and nobody is stopped for a shorter job."""
    works = [
        job("runs", 0, 100, size=2),
        job("long", 1, 90, size=2),
        job("short", 2, 10, size=2),
        job("wide", 3, 5, size=3),
    ]
    played = play("aryl", works, cluster(1, 3))
    assert [played.started(name) for name in ("runs", "short", "long", "wide")] == [
        0,
        105,
        115,
        100,
    ]
    assert play("optimus(interval=1s)", works, cluster(1, 3)).started("long") == 100


def test_a_need_goes_before_what_others_could_use() -> None:
    """One who runs on all GPUs shrinks to what it needs when another comes."""
    wide = job("wide", 0, 400, shape=Shape((Role(size=1, most=4),)))
    played = play("aryl", [wide, job("late", 10, 20, size=3)], cluster(1, 4))
    assert sizes(played, 5) == {"wide": 4}
    assert sizes(played, 10) == {"wide": 1, "late": 3}
    assert sizes(played, 30)["wide"] == 4


def test_the_knapsack_sees_what_the_best_next_gpu_does_not() -> None:
    """Two GPUs to spare: one saves b 40 s, the second 13 s; both together save a 60 s."""
    pairs = Shape((Role(size=1, most=2, needs=Needs(gpus=2)),))
    works = [
        job("a", 0, 120, shape=pairs),
        job("b", 0, 80, shape=Shape((Role(size=1, most=3),))),
    ]
    assert sizes(play("aryl", works, cluster(1, 5))) == {"a": 4, "b": 1}
    assert sizes(play("optimus", works, cluster(1, 5))) == {"a": 2, "b": 3}


def test_the_largest_job_is_placed_first() -> None:
    """So that it finds a whole node, where the first to come would have split it."""
    works = [job("first", 0, 50, size=1), job("second", 0, 50, size=1), job("whole", 0, 60, size=3)]
    played = play("aryl", works, cluster(2, 3))
    assert "start whole on 0:0,1,2" in played.text()
