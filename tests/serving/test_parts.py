"""The parts that routers are made of, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.core.serving.world import World
from ganger.mechanisms.serving.batching import Aimd, WithinSlack
from ganger.mechanisms.serving.composed import Composed
from ganger.mechanisms.serving.dispatch import LeastLoaded, RoundRobin
from ganger.mechanisms.serving.queues import Earliest, Fifo
from ganger.recipes.registry import find, make_router, recipes
from ganger.recipes.serving.clockwork import Clockwork
from ganger.recipes.serving.clockwork_state import WINDOW, Waiting, served_demand
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from serving.rig import MS, Asked, Seen, affine, columns, lanes, model, placed, play, table


def test_a_request_that_does_not_fit_into_the_batch_is_not_overtaken() -> None:
    """Inputs 2, 2 and 1, at most 3 in a batch."""
    asked = [Asked(0, items=2), Asked(0, items=2), Asked(0, items=1)]
    for recipe in ("serve.triton", "serve.fixed-batch(size=3)", "nanily", "clockwork(margin=0)"):
        seen = play(make_router(recipe), [model("m", table(1, 2, 3))], lanes(1), asked)
        first, second = seen.batches[0].tasks, seen.batches[1].tasks
        assert first == (0,), recipe
        assert second[0] == 1, recipe


def test_one_request_may_fill_the_largest_batch() -> None:
    for recipe in recipes("requests"):
        if recipe == "serve.fixed-batch":
            continue
        seen = play(
            make_router(recipe),
            [model("m", table(1, 2, 3))],
            lanes(1),
            [Asked(0, within=50, items=3)],
        )
        assert seen.outcomes == ["answered"], recipe


@pytest.mark.parametrize("recipe", ["nanily", "clockwork(margin=0)"])
def test_a_request_that_would_end_at_its_deadline_is_in_time(recipe: str) -> None:
    asked = [Asked(0, within=5), Asked(0, within=10), Asked(0, within=14.999)]
    seen = play(make_router(recipe), [model("m", table(5))], lanes(1), asked)
    assert seen.outcomes == ["answered", "answered", "it could not be answered in time"]


def test_the_first_deadline_of_a_batch_judges_it() -> None:
    """Sizes 1 and 2 keep it; the third batch has a request that was given too little."""
    asked = [*[Asked(0, within=100)] * 4, Asked(0, within=12), Asked(0, within=100)]
    asked += [Asked(0, within=100)] * 6
    seen = play(Composed("aimd", Aimd()), [model("m", affine(10, 1))], lanes(1), asked)
    assert [len(batch.tasks) for batch in seen.batches][:5] == [1, 2, 3, 2, 3]


@pytest.mark.parametrize("dispatch", [LeastLoaded(), RoundRobin()])
@pytest.mark.parametrize("queue", [Fifo, Earliest])
def test_what_was_refused_or_answered_is_no_load(dispatch: Any, queue: Any) -> None:
    router = Composed("mix", WithinSlack(), dispatch, queue)
    models = [model("m", affine(4, 1, 8))]
    asked = [Asked(at / 4, 0, 9 + at % 5) for at in range(200)]
    world = World(models, lanes(3))
    seen = Seen(world)
    plane = Plane(world, router, Physics(models, noise=0), iter([columns(asked)]), [seen])
    plane.advance(20 * MS)
    assert sum(world.memory.load) == world.open
    plane.advance()
    plane.finish()
    assert world.memory.load == [0, 0, 0]
    assert 0 < seen.outcomes.count("answered") < 200


def test_two_choices_keep_lanes_level() -> None:
    seen = play(
        make_router("serve.power-of-two"), [model("m", table(10))], lanes(5), [Asked(0)] * 500
    )
    at = [batch.lane for batch in seen.batches]
    counts = [at.count(lane) for lane in range(5)]
    assert max(counts) - min(counts) <= 4  # at random: about 25


def test_what_each_recipe_does_by_default() -> None:
    assert {name: find(name).defaults() for name in recipes("requests")} == {
        "clipper": {
            "sizes": "aimd",
            "step": "1",
            "back": "0.9",
            "selection": "exp3",
            "rate": "0.1",
            "by_tenant": "false",
            "agree": "0.0",
            "otherwise": "0",
            "keeps": "0",
            "cache": "none",
        },
        "clockwork": {"largest": "16", "longest": "25 ms", "margin": "5 ms"},
        "dybatch": {"slice": "8"},
        "ebird": {"sizes": "8;4;2;1", "most": "0", "tick": "1 ms"},
        "model-switching": {"every": "1.0 s", "better": "0.0", "size": "64"},
        "nanily": {"cache": "none"},
        "nexus": {
            "epoch": "30.0 s",
            "soonest": "10.0 s",
            "overload": "1.05",
            "profile": "1.15",
            "weight": "0.2",
            "cycle": "duty",
            "fill": "true",
            "segments": "50",
        },
        "serve.continuous-batching": {
            "max_num_batched_tokens": "2048",
            "max_num_seqs": "128",
            "first": "",
        },
        "serve.dedicated": {"size": "64", "cache": "none"},
        "serve.fair": {
            "max_num_batched_tokens": "2048",
            "max_num_seqs": "128",
            "read": "1.0",
            "write": "2.0",
            "weights": "",
        },
        "serve.fixed-batch": {"size": "8", "timeout": "10 ms", "cache": "none"},
        "serve.least-loaded": {"size": "1", "cache": "none"},
        "serve.no-batch": {"cache": "none"},
        "serve.power-of-two": {"size": "1", "cache": "none"},
        "serve.round-robin": {"size": "1", "cache": "none"},
        "serve.triton": {
            "size": "64",
            "delay": "0 s",
            "preferred": "",
            "longest": "0",
            "cache": "none",
        },
        "serve.composed": {
            "keeps": "1000",
            "select": "exp3",
            "longest": "1000",
            "lanes": "least_loaded",
            "order": "deadline",
            "batch": "slack",
            "size": "64",
            "delay": "10 ms",
            "cache": "none",
        },
        "serve.clairvoyant": {"full": "2.0", "order": "least", "size": "128", "steps": "true"},
        "serve.bentoml": {"size": "100", "latency": "1m 00s", "cache": "none"},
        "gilman": {"ahead": "true"},
        **{f"cache.{name}": {} for name in ("lru", "lfu", "random", "clairvoyant")},
        "irina": {
            "streams": "2",
            "suspend": "0 s",
            "batches": "true",
            "stacks": "true",
            "preempts": "true",
        },
        "parm": {"size": "1"},
        "cocktail": {
            "accuracy": "0.97",
            "every": "10.0 s",
            "least": "30",
            "start": "all",
            "size": "64",
        },
        "tolerance-tiers": {
            "tolerance": "0.01",
            "aim": "latency",
            "tiers": "",
            "confidence": "0.999",
            "samples": "1000",
            "size": "64",
        },
        "swayam": {
            "frontends": "2",
            "window": "5.0 s",
            "windows": "4",
            "horizon": "10.0 s",
            "idle": "20.0 s",
            "part": "0.99",
            "prunes": "true",
        },
    }
    assert [find(name).make().name for name in recipes("requests")] == recipes("requests")
    assert find("clockwork").parameters["margin"] == 5 * MS


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("clipper", "Crankshaw et al., NSDI 2017"),
        ("nanily", "Tang et al., HPCC 2019"),
        ("clockwork", "Gujarati et al., OSDI 2020"),
        ("serve.power-of-two", "Mitzenmacher, TPDS 2001"),
        ("serve.fixed-batch", "NIPS 2017"),
        ("dybatch", "CCGrid 2020"),
    ],
)
def test_papers_are_those_of_the_cards(name: str, where: str) -> None:
    assert where in str(find(name).paper)
    assert find(name).make().name == name


def test_clockwork_prefers_the_size_whose_first_request_has_to_start_soonest() -> None:
    """The head is too tight for a batch of two, and goes alone; the rest goes together."""
    asked = [Asked(0, 0, 6), Asked(0, 0, 30), Asked(0, 0, 30), Asked(0, 0, 30)]
    seen = play(
        make_router("clockwork(margin=0)"), [model("m", table(5, 8, 10, 12))], lanes(1), asked
    )
    assert [batch.tasks for batch in seen.batches] == [(0,), (1, 2), (3,)]
    assert seen.outcomes == ["answered"] * 4


def test_clockwork_drops_each_that_is_late_and_no_other() -> None:
    """While the lane was busy, the first, second and fourth became late. A batch takes those that
    came one after the other, so the fourth parts the third and the fifth."""
    models = [model("long", table(20)), model("m", table(5, 6, 7, 8))]
    asked = [Asked(0, 0, 100), *(Asked(1, 1, within) for within in (30, 31, 60, 32, 61))]
    seen = play(make_router("clockwork(margin=0)"), models, lanes(1), asked, takes=[35, 6, 6])
    late = "it could not be answered in time"
    assert seen.outcomes == ["answered", late, late, "answered", late, "answered"]
    assert [batch.tasks for batch in seen.batches] == [(0,), (3,), (5,)]


def test_a_slice_goes_to_a_lane_that_can_run_it() -> None:
    """The lane of the other type has not been measured for the first workload."""
    models = [model("m", table(1, 2)), model("other", table(3), type_="cpu")]
    two = lanes(2)
    two[0].type = "cpu"
    seen = play(make_router("dybatch"), models, two, [Asked(0), Asked(0, 1), Asked(0)])
    assert {(batch.lane, batch.model) for batch in seen.batches} == {(0, 1), (1, 0)}


def test_clockwork_counts_what_a_lane_has_been_given_ahead() -> None:
    """Asked 4 ms ahead, a lane has its next batch when the first ends."""
    one = lanes(1, ahead=4 * MS)
    asked = [Asked(0, 0, 100), Asked(1, 0, 100), Asked(2, 0, 16), Asked(7, 0, 20)]
    seen = play(make_router("clockwork(margin=0,largest=1)"), [model("m", table(5))], one, asked)
    assert [(batch.tasks, batch.began) for batch in seen.batches] == [
        ((0,), 0),
        ((1,), 5),
        ((2,), 10),
        ((3,), 15),
    ]
    assert seen.outcomes == ["answered"] * 4


def test_demand_is_split_by_what_holders_have_to_do_and_served_as_far_as_they_can() -> None:
    """Model 0 waits for half a window on both devices. Model 1 is on the first alone: with it that
    has more to do than it can. Model 2 is on both, and asks most of the second. Nobody holds 3."""
    world = World([model("m", table(10))] * 4, placed(2), [])
    for lane in world.lanes:
        lane.store = -1
    memory = Clockwork((1,), WINDOW, 0).begin(world)
    memory.lanes_of = [[0], [1]]
    memory.pools_of = [[0, 1], [0], [0, 1], []]
    memory.waiting = [Waiting(demand=part * WINDOW) for part in (0.5, 1.0, 0.6, 2.0)]
    served = served_demand(memory, range(4))
    first, second = 1.25 * WINDOW, 0.25 * WINDOW  # what they have to do before model 2 comes
    more = (
        0.6 * (1 / first) / (1 / first + 1 / second),
        0.6 * (1 / second) / (1 / first + 1 / second),
    )
    able = 1 / (1.25 + more[0])
    assert served[0] == pytest.approx((0.25 * able + 0.25) * WINDOW, rel=1e-4)
    assert served[1] == pytest.approx(able * WINDOW, rel=1e-4)
    assert served[2] == pytest.approx((more[0] * able + more[1]) * WINDOW, rel=1e-4)
    assert served[3] == 0


def test_a_lane_that_comes_back_is_free() -> None:
    """It was lost with a long batch; what comes after can be in time."""
    models = [model("long", table(500)), model("short", table(5))]
    world = World(models, lanes(1))
    seen = Seen(world)
    asked = [Asked(0), Asked(30, 1, 10)]
    plane = Plane(
        world,
        make_router("clockwork(margin=0)"),
        Physics(models, noise=0),
        iter([columns(asked)]),
        [seen],
    )
    plane.advance(10 * MS)
    plane.turn(0, 10 * MS, up=False)
    plane.turn(0, 20 * MS, up=True)
    plane.advance()
    plane.finish()
    assert seen.outcomes == ["its lane failed", "answered"]


def test_a_fitted_line_says_how_many_end_in_time() -> None:
    """10 + 2b ms: after five batches of 1 to 5, 50 ms are enough for 18 (0.92 x 50 = 46)."""
    router = make_router("clipper(sizes=latency_regression)")
    asked = [Asked(0, 0, 1e4)] * 15 + [
        Asked(1000.0 * at, 0, 50) for at in (1, 2) for _ in range(40)
    ]
    seen = play(router, [model("m", affine(10, 2, 64))], lanes(1), asked)
    assert [len(batch.tasks) for batch in seen.batches][:6] == [1, 2, 3, 4, 5, 18]
    noisy = play(router, [model("m", affine(10, 2, 64, p99=1.6))], lanes(1), asked, noise=1.0)
    assert len(noisy.batches[5].tasks) < 18  # three deviations are kept free
