"""Irina: batching, stacking and preemption, by what lets all requests end soonest."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from ganger.core.serving.verbs import INTERRUPTED, OK
from ganger.core.serving.world import Known, Lane
from ganger.recipes.registry import make_router
from serving.rig import Asked, Seen, model, play, table

FINE = tuple(at / 100 for at in range(1, 100))
"""Borders after each hundredth of a model's time."""
LONG = model("long", table(100, 120, 140), borders=FINE)
SHORT = model("short", table(10, 11, 12))


def needs(known: Known, peak: float) -> Known:
    """The model, which uses that much of a device at most."""
    return replace(known, peaks={("gpu", 1.0): peak})


def served(recipe: str, models: Sequence[Known], *asked: Asked, devices: int = 1) -> Seen:
    router = make_router(recipe)
    streams = router.can.streams
    lanes = [Lane(at, "gpu", device=at // streams) for at in range(devices * streams)]
    return play(router, models, lanes, asked)


def mean(seen: Seen, *came: float) -> float:
    return sum(end - at for end, at in zip(seen.ended, came, strict=True)) / len(came)


def test_a_short_task_stops_a_long_one_while_that_ends_both_sooner() -> None:
    """100 ms at 0 and 10 ms at 10: one after the other 100 ms on average, with a stop 60."""
    tasks = Asked(0, 0), Asked(10, 1)
    in_order = served("irina(preempts=no)", [LONG, SHORT], *tasks)
    assert mean(in_order, 0, 10) == 100
    stopped = served("irina", [LONG, SHORT], *tasks)
    assert mean(stopped, 0, 10) == 60
    assert [(each.model, each.began, each.ended, each.outcome) for each in stopped.batches] == [
        (0, 0, 10, INTERRUPTED),
        (1, 10, 20, OK),
        (0, 20, 110, OK),
    ]


@pytest.mark.parametrize(("suspend", "stops"), [(0, True), (39, True), (41, False), (90, False)])
def test_a_stop_that_costs_both_sides_c_gives_60_and_c_and_is_worth_it_below_40(
    suspend: int, stops: bool
) -> None:
    seen = served(f"irina(suspend={suspend}ms)", [LONG, SHORT], Asked(0, 0), Asked(10, 1))
    assert any(each.outcome == INTERRUPTED for each in seen.batches) == stops


def test_a_batch_that_has_no_border_before_its_end_is_not_stopped() -> None:
    whole = replace(LONG, borders=())
    assert served("irina", [whole, SHORT], Asked(0, 0), Asked(10, 1)).ended == [100, 110]
    late = replace(LONG, borders=(0.95,))  # then 95 and 10 ms cost more than to wait for 100
    assert served("irina", [late, SHORT], Asked(0, 0), Asked(10, 1)).ended == [100, 110]
    early = replace(LONG, borders=(0.3,))
    assert served("irina", [early, SHORT], Asked(0, 0), Asked(10, 1)).ended == [110, 40]


@pytest.mark.parametrize(("peak", "together"), [(0.5, False), (0.4, True)])
def test_tasks_are_stacked_if_their_peaks_fit(peak: float, together: bool) -> None:
    """0.6 and 0.5 are more than a device; 0.6 and 0.4 are not."""
    models = [needs(LONG, 0.6), needs(SHORT, peak)]
    seen = served("irina(preempts=no)", models, Asked(0, 0), Asked(10, 1))
    assert seen.ended == [100, 20 if together else 110]
    apart = served("irina(preempts=no,stacks=no)", models, Asked(0, 0), Asked(10, 1))
    assert apart.ended == [100, 110]


def test_a_stop_makes_room_beside_what_goes_on() -> None:
    """Of two that run the one is stopped without which the third fits."""
    models = [needs(LONG, 0.3), needs(replace(LONG, name="large"), 0.7), needs(SHORT, 0.6)]
    seen = served("irina", models, Asked(0, 0), Asked(0, 1), Asked(10, 2))
    assert seen.ended == [100, 110, 20]
    assert [each.model for each in seen.batches if each.outcome == INTERRUPTED] == [1]


def test_what_waits_is_joined_where_that_costs_less_than_going_apart() -> None:
    """Three short tasks behind a long one: 12 ms together, not 30."""
    tasks = [Asked(0, 0), *[Asked(10, 1)] * 3]
    seen = served("irina(preempts=no)", [LONG, SHORT], *tasks)
    assert seen.ended == [100, 112, 112, 112]
    single = served("irina(preempts=no,batches=no)", [LONG, SHORT], *tasks)
    assert single.ended == [100, 110, 120, 130]


def test_a_short_task_goes_before_a_long_one_that_waits() -> None:
    tasks = Asked(0, 0), Asked(1, 2), Asked(2, 1)
    models = [LONG, SHORT, model("other", table(100))]
    seen = served("irina(preempts=no)", models, *tasks)
    assert seen.ended == [100, 210, 110]


def test_a_task_goes_to_the_device_where_it_ends_soonest() -> None:
    tasks = Asked(0, 0), Asked(1, 1), Asked(2, 1)
    seen = served("irina(preempts=no,stacks=no,batches=no)", [LONG, SHORT], *tasks, devices=2)
    assert [each.lane for each in seen.batches] == [0, 1, 1]
    assert seen.ended == [100, 11, 21]


def test_it_expects_no_slow_down_where_there_is_one() -> None:
    """What the paper assumes costs where models do disturb each other: 3 times as long beside."""
    slow = needs(replace(SHORT, beside={("gpu", 1.0): (3.0,)}), 0.4)
    seen = served("irina(preempts=no)", [needs(LONG, 0.6), slow], Asked(0, 0), Asked(10, 1))
    assert seen.ended == [100, 40]
