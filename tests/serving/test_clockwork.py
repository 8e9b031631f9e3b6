"""Clockwork on lanes that are not alike: what is late on one may be in time on another; ties."""

from __future__ import annotations

from collections.abc import Sequence

from ganger.core.serving.world import Known, Lane, Latencies, Store, World
from ganger.recipes.registry import make_router
from ganger.recipes.serving.clockwork import Clockwork
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from ganger.sim.requests.trouble import Change, drive
from serving.rig import MS, Asked, Seen, columns, lanes, model, placed, play, table

LATE = "it could not be answered in time"


def of_two_speeds(slow: Latencies, fast: Latencies, asked: Sequence[Asked]) -> Seen:
    """Requests to one model, on a slow lane and on a fast one."""
    known = Known("m", {("slow", 1.0): slow, ("fast", 1.0): fast})
    both = [Lane(0, "slow", device=0), Lane(1, "fast", device=1)]
    return play(make_router("clockwork(margin=0)"), [known], both, asked)


def test_clockwork_leaves_to_a_fast_lane_what_would_be_late_on_a_slow_one() -> None:
    """Two are left to it, and it has time for one. The last waits for nobody: it has time for the
    slow one."""
    asked = [Asked(0, 0, 6), Asked(1, 0, 12), Asked(2, 0, 15), Asked(3, 0, 20)]
    seen = of_two_speeds(table(20), table(6), asked)
    assert [(each.lane, each.tasks, each.began) for each in seen.batches] == [
        (1, (0,), 0),
        (0, (3,), 3),
        (1, (1,), 6),
    ]
    assert (seen.outcomes[2], seen.ended[2]) == (LATE, 12)


def test_clockwork_knows_that_a_lane_which_was_free_long_ago_is_free_now() -> None:
    """The slow one was never busy, and so was free before the fast one was."""
    asked = [Asked(30, 0, 6), Asked(101, 0, 6), Asked(201, 0, 5)]
    seen = of_two_speeds(table(20), table(6), asked)
    assert seen.outcomes == ["answered", "answered", LATE]
    assert seen.ended == [36, 107, 201]


def test_clockwork_refuses_what_waits_for_the_fast_lane_when_that_fails() -> None:
    known = Known("m", {("slow", 1.0): table(20), ("fast", 1.0): table(6)})
    world = World([known], [Lane(0, "slow", device=0), Lane(1, "fast", device=1)])
    seen, asked = Seen(world), [Asked(0, 0, 6), Asked(1, 0, 12)]
    plane = Plane(
        world, Clockwork((1,), 25 * MS, 0), Physics([known]), iter([columns(asked)]), [seen]
    )
    drive(plane, [Change(4 * MS, 1, up=False)])
    plane.finish()
    assert seen.outcomes == ["its lane failed", LATE]
    assert seen.ended == [4, 4]


def test_clockwork_looks_at_all_lanes_when_one_of_another_type_is_free() -> None:
    """The second request waits for the fast lane, which should be free at 10 ms, and is not at 30:
    then nobody can answer it by 25. That is known as soon as the third lane is free."""
    both = Known("both", {("slow", 1.0): table(100), ("fast", 1.0): table(10)})
    other = Known("other", {("third", 1.0): table(28)})
    three = [Lane(at, kind, device=at) for at, kind in enumerate(("slow", "fast", "third"))]
    asked = [Asked(0, 0, 30), Asked(1, 0, 29), Asked(2, 1, 100)]
    seen = play(make_router("clockwork(margin=0)"), [both, other], three, asked, takes=[50, 28])
    assert seen.outcomes == ["answered", LATE, "answered"]
    assert seen.ended == [50, 30, 30]


def test_clockwork_starts_what_is_in_time_behind_requests_that_it_leaves_to_another_lane() -> None:
    """The second brings two inputs and the third brings three, of which the slow lane has no
    measurement; the last brings one, and is in time there."""
    asked = [Asked(0, 0, 6), Asked(1, 0, 19, 2), Asked(1, 0, 30, 3), Asked(2, 0, 15)]
    seen = of_two_speeds(table(10, 40), table(6, 8, 9), asked)
    assert [(each.lane, each.tasks, each.began) for each in seen.batches] == [
        (1, (0,), 0),
        (0, (3,), 2),
        (1, (1,), 6),
        (1, (2,), 14),
    ]


def test_clockwork_leaves_to_an_idle_lane_what_is_late_on_one_that_asks_ahead() -> None:
    """The first lane is busy until 10, and asks at 8."""
    two = lanes(2)
    two[0].ahead = 2 * MS
    asked = [Asked(0, 0, 10), Asked(9, 1, 5.5)]
    models = [model("long", table(10)), model("short", table(5))]
    seen = play(make_router("clockwork(margin=0)"), models, two, asked)
    assert [(each.lane, each.began) for each in seen.batches] == [(0, 0), (1, 9)]


def test_clockwork_loads_a_model_where_it_runs() -> None:
    """The first device is of a type of which there is no measurement."""
    both = placed(2)
    both[0].type = both[2].type = "old"
    seen = play(
        make_router("clockwork(margin=0)"),
        [model("m", table(5), bytes_=10, load=3)],
        both,
        [Asked(0, 0, 100)],
        stores=[Store(0, 20), Store(1, 20)],
    )
    assert [(each.lane, each.began) for each in seen.batches] == [(1, 3)]


def test_of_models_that_are_as_urgent_clockwork_runs_the_first() -> None:
    models = [model(name, table(5)) for name in "ab"]
    seen = play(make_router("clockwork"), models, lanes(1), [Asked(0, 1, 30), Asked(0, 0, 30)])
    assert [each.model for each in seen.batches] == [0, 1]


def test_of_idle_lanes_clockwork_asks_those_of_one_type_after_each_other() -> None:
    """Lanes 0 and 2 take 5 ms, and lane 1 between them takes 20."""
    both = Known("m", {("a", 1.0): table(5), ("b", 1.0): table(20)}, 0, 0, 1.0)
    three = [Lane(number, kind, device=number) for number, kind in enumerate("aba")]
    seen = play(make_router("clockwork"), [both], three, [Asked(0), Asked(0)])
    assert [batch.lane for batch in seen.batches] == [0, 2]
