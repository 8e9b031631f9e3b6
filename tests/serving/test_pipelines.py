"""Requests for pipelines: by hand, and what holds for every router that runs them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.serving.world import Task, World
from ganger.lab.serving.yardsticks.bound import Bound, bounded
from ganger.lab.serving.yardsticks.costs import items_of
from ganger.lab.serving.yardsticks.rates import Rates
from ganger.mechanisms.serving.batching import Preferred
from ganger.mechanisms.serving.composed import Composed
from ganger.mechanisms.serving.dispatch import LeastLoaded
from ganger.mechanisms.serving.pipeline import Staging, expected, parts
from ganger.recipes.registry import make_router, recipes
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from serving.reference import Naive
from serving.rig import (
    CODES,
    MS,
    Asked,
    OneByOne,
    Seen,
    affine,
    columns,
    lanes,
    model,
    pipeline,
    play,
    table,
)
from serving.test_every_router import MODELS, shown
from soaking import examples

TREE = pipeline("tree", [0, 1, 2], (0, 1, 1.5), (0, 2, 0.4))
JOIN = pipeline("join", [2, 0, 1, 2], (0, 1, 2.0), (0, 2, 0.5), (1, 3, 1.0), (2, 3, 1.0))
BOTH = [TREE, JOIN]
ROUTERS = [
    *(each for each in recipes("requests") if make_router(each).can.pipelines),
    "serve.triton(size=4,delay=7ms,preferred=2;3)",
    "serve.triton(size=2,longest=3)",
    "serve.least-loaded(size=4)",
    "clipper(selection=exp4,keeps=3)",
]
REQUESTS = st.lists(
    st.builds(
        Asked,
        st.integers(0, 80).map(lambda at: at / 2),
        st.integers(0, 4),
        st.sampled_from([12.0, 40.0, 200.0]),
        st.sampled_from([1, 1, 1, 2]),
        **CODES,
    ),
    min_size=1,
    max_size=18,
)


def least(one: Asked) -> float:
    """Milliseconds that it takes alone at least, whatever the lot says, were there no noise."""
    return {0: 5, 1: 9, 2: 1, 3: 5 + 9, 4: 1 + 5 + 1}[one.model]


@pytest.mark.parametrize("recipe", ROUTERS)
@examples(10)
@given(asked=REQUESTS, count=st.integers(3, 4), seed=st.integers(0, 3))
def test_every_router_ends_every_request_once_and_as_the_naive_plane(
    recipe: str, asked: list[Asked], count: int, seed: int
) -> None:
    """Twice the same, row by row and in chunks; `Seen` holds the rules of lanes."""
    router = make_router(recipe)
    seen = play(router, MODELS, lanes(count), asked, noise=1.0, seed=seed, pipelines=BOTH)
    again = play(
        OneByOne(router), MODELS, lanes(count), asked, noise=1.0, seed=seed, pipelines=BOTH
    )
    assert shown(again) == shown(seen)
    chunks = play(
        router, MODELS, lanes(count), asked, noise=1.0, seed=seed, chunk=3, pipelines=BOTH
    )
    assert shown(chunks) == shown(seen)
    naive = Naive(router, MODELS, lanes(count), asked, (), seed, BOTH)
    naive.play()
    assert sorted(naive.ran, key=lambda ran: (ran.began, ran.lane)) == seen.batches
    assert [ended / MS for ended in naive.world.requests.ended] == seen.ended
    exact = play(router, MODELS, lanes(count), asked, seed=seed, pipelines=BOTH)
    for one, outcome, ended in zip(
        sorted(asked, key=lambda one: one.at), exact.outcomes, exact.ended, strict=True
    ):
        known = one.input >= 0 and one.model < 3 and "keeps" in recipe  # answered before
        assert outcome != "answered" or known or ended >= one.at + least(one)
    assert not naive.world.tasks or any(each != "answered" for each in seen.outcomes)


def test_stages_follow_each_other_and_a_join_waits_for_all_that_feed_it() -> None:
    """5 ms; then two items of 9.5 ms together and half an item or one of 3 ms; then 2 ms."""
    models = [model("find", table(5)), model("read", table(9, 9.5)), model("name", table(3)),
              model("tell", table(1, 2))]  # fmt: skip
    street = pipeline("street", [0, 1, 2, 3], (0, 1, 2), (0, 2, 0.5), (1, 3, 1), (2, 3, 1))
    seen = play(make_router("serve.triton"), models, lanes(4), [Asked(0, 4)], pipelines=[street])
    ran = [(each.model, each.began, each.ended, len(each.tasks)) for each in seen.batches]
    assert ran[:2] == [(0, 0, 5, 1), (1, 5, 14.5, 2)]
    assert ran[2:] in ([(3, 14.5, 16.5, 2)], [(2, 5, 8, 1), (3, 14.5, 16.5, 2)])
    assert seen.ended == [16.5]
    assert seen.by == [-1]  # none of them alone


@pytest.mark.parametrize("mean", [0.3, 1.0, 2.7])
def test_a_stage_hands_on_so_many_items_on_average(mean: float) -> None:
    models = [model("find", table(1)), model("read", table(1))]
    two = pipeline("two", [0, 1], (0, 1, mean))
    seen = play(
        make_router("serve.no-batch"),
        models,
        lanes(4),
        [Asked(10 * at, 2) for at in range(1000)],
        pipelines=[two],
    )
    count = sum(each.model == 1 for each in seen.batches)
    assert count / 1000 == pytest.approx(mean, abs=0.05)
    counts = [seen.ended[at] - 10 * at - 1 for at in range(1000)]
    assert {round(each) for each in counts} == {int(mean > 0.3), 1} - ({0} if mean > 0.3 else set())


def test_a_stage_begins_when_all_items_of_the_one_before_are_over() -> None:
    """Three items in batches of two and one, beside each other: 6 ms and 5."""
    two = pipeline("two", [0, 1], (0, 1, 1))
    models = [model("a", table(5, 6)), model("b", table(1, 2, 3))]
    seen = play(
        make_router("serve.triton"), models, lanes(2), [Asked(0, 2, items=3)], pipelines=[two]
    )
    assert [(each.model, each.began, len(each.tasks)) for each in seen.batches] == [
        (0, 0, 2),
        (0, 0, 1),
        (1, 6, 3),
    ]


def test_a_request_that_brings_several_items_has_as_many_tasks() -> None:
    two = pipeline("two", [0, 0], (0, 1, 1.5))
    seen = play(
        make_router("serve.triton"),
        [model("m", affine(1, 1))],
        lanes(1),
        [Asked(0, 1, items=4)],
        pipelines=[two],
    )
    assert [(len(each.tasks), each.ended) for each in seen.batches] == [(4, 5), (6, 12)]


def test_time_is_split_by_what_stages_take_along_the_longest_way() -> None:
    """10, then 30 and 10 beside each other, then 10."""
    diamond = pipeline("d", [0, 1, 0, 0], (0, 1, 1), (0, 2, 1), (1, 3, 1), (2, 3, 1))
    assert parts(diamond, [10, 30, 10, 10]) == [0.2, 0.8, 20 / 30, 1.0]
    assert expected(JOIN) == [1, 2, 0.5, 2]


def test_stages_are_ordered_and_refused_by_deadlines_of_their_own() -> None:
    """A lane, 10 ms a stage, 40 ms for both: the second stage is due at 40, the first at 20. What
    is left of the third request at 30 takes 20 ms and is due at 45."""
    two = pipeline("two", [0, 1], (0, 1, 1))
    models = [model("a", table(10)), model("b", table(10))]
    asked = [Asked(0, 2, 40), Asked(1, 2, 60), Asked(2, 2, 43)]
    seen = play(make_router("nanily"), models, lanes(1), asked, pipelines=[two])
    assert seen.outcomes == ["answered", "answered", "it could not be answered in time"]
    assert [each.model for each in seen.batches][:2] == [0, 0]
    assert seen.ended[2] <= 45


def test_what_a_full_queue_refuses_ends_the_request_once() -> None:
    """Three items, and room for one beside the one that runs: the request is dropped, and what
    waits of it is not run."""
    three = pipeline("three", [0, 1], (0, 1, 3))
    models = [model("a", table(1)), model("b", table(10))]
    seen = play(
        make_router("serve.triton(size=1,longest=2)"),
        models,
        lanes(1),
        [Asked(0, 2), Asked(100, 1)],
        pipelines=[three],
    )
    assert seen.outcomes == ["the queue was full", "answered"]
    assert [(each.model, each.began) for each in seen.batches] == [(0, 0), (1, 100)]


def test_a_task_of_a_request_that_is_over_is_no_load() -> None:
    router = Composed("mix", Preferred(1, 0), LeastLoaded(), longest=1, staging=Staging())
    three = pipeline("three", [0, 1], (0, 1, 3))
    models = [model("a", table(1)), model("b", table(10))]
    world = World(models, lanes(2), pipelines=[three])
    seen = Seen(world)
    plane = Plane(world, router, Physics(models), iter([columns([Asked(0, 2)] * 9)]), [seen])
    plane.advance()
    plane.finish()
    assert world.memory.load == [0, 0]
    assert not world.tasks


# ---------------------------------------------------------------------- the bound


def bound(asked: list[Asked], count: int, seed: int | None = None) -> Bound:
    rates = Rates(MODELS, [("gpu", count)], [(0,), (1,), (2,), (), ()], 1, BOTH, lots=seed)
    return bounded(iter([columns(asked)]), rates)


@pytest.mark.parametrize(
    "recipe", ["serve.triton", "serve.no-batch", "nanily", "serve.clairvoyant"]
)
@given(asked=REQUESTS, seed=st.integers(0, 3))
def test_no_recipe_exceeds_the_bound(recipe: str, asked: list[Asked], seed: int) -> None:
    seen = play(make_router(recipe), MODELS, lanes(2), asked, seed=seed, pipelines=BOTH)
    rows = sorted(asked, key=lambda one: one.at)
    in_time = sum(
        outcome == "answered" and ended <= one.at + one.within
        for one, outcome, ended in zip(rows, seen.outcomes, seen.ended, strict=True)
    )
    known, certain = (bound(asked, 2, lots).in_time for lots in (seed, None))
    assert in_time <= known + 1e-6
    assert known <= certain + 1e-6


@given(rows=st.integers(1, 40), items=st.integers(1, 3), seed=st.integers(0, 1 << 40))
def test_the_bound_counts_the_items_that_stages_have_in_the_run(
    rows: int, items: int, seed: int
) -> None:
    """Of a stage that two feed, of one that is often handed nothing, and of one behind that."""
    models = [model("m", table(1, 1, 1, 1))]
    fork = pipeline(
        "fork", [0] * 5, (0, 1, 1.5), (0, 2, 0.3), (1, 3, 0.7), (2, 3, 2.2), (3, 4, 0.5)
    )
    world = World(models, lanes(1), pipelines=[fork], seed=seed)
    had = np.zeros((rows, 5), int)
    add = world.add_task

    def noted(task: Task) -> int:
        had[task.request, task.step - 1] += 1
        return add(task)

    world.add_task = noted  # type: ignore[method-assign]
    chunk = columns([Asked(at, 1, items=items) for at in range(rows)])
    plane = Plane(world, make_router("serve.triton"), Physics(models), iter([chunk]))
    plane.advance()
    plane.finish()
    numbers = np.arange(rows)
    found = items_of(fork, np.full(rows, items), numbers, seed)
    assert found.tolist() == had.tolist()
    assert (items_of(fork, np.full(rows, items), numbers, None) <= found).all()


def test_the_bound_of_a_chain_is_what_its_stages_cost() -> None:
    """5 + 2 x 4 ms of each request in batches of ten and of two: 13 ms at most 100 ms long."""
    models = [model("a", affine(40, 1, 10)), model("b", table(5, 8))]
    chain = pipeline("chain", [0, 1], (0, 1, 2.9))
    asked = [Asked(0, 2, 100)] * 30
    rates = Rates(models, [("gpu", 1)], [(0,), (1,), ()], 1, [chain])
    assert bounded(iter([columns(asked)]), rates).in_time == pytest.approx(100 / 13)
    short = [Asked(0, 2, 45.9)] * 30  # alone: 41 + 5
    assert bounded(iter([columns(short)]), rates).in_time == 0


def test_stages_may_be_split_over_types_of_device() -> None:
    """Each type is quick at one of two stages: what both do together is not denied."""
    models = [model("a", table(1)), model("b", table(9))]
    for one, takes in zip(models, (9, 1), strict=True):
        assert isinstance(one.latencies, dict)
        one.latencies["cpu", 1.0] = table(takes)
    chain = pipeline("chain", [0, 1], (0, 1, 1))
    rates = Rates(models, [("gpu", 1), ("cpu", 1)], [(0,), (1,), ()], 1, [chain])
    found = bounded(iter([columns([Asked(0, 2, 20)] * 40)]), rates)
    assert found.in_time >= 20 - 1e-6


def test_a_stage_that_is_handed_nothing_keeps_no_other_from_beginning() -> None:
    """5 ms, then nothing for the second stage and one item of 3 ms for the third."""
    models = [model("find", table(5)), model("read", table(9)), model("name", table(3))]
    fork = pipeline("fork", [0, 1, 2], (0, 1, 0), (0, 2, 1))
    seen = play(make_router("serve.triton"), models, lanes(1), [Asked(0, 3)], pipelines=[fork])
    assert [(each.model, each.began) for each in seen.batches] == [(0, 0), (2, 5)]
    assert seen.ended == [8]
