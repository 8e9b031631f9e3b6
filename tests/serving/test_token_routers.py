"""What holds for every router over token models, on random requests: as the naive plane has it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ganger.core.serving.verbs import Batch, Do, Wait
from ganger.core.serving.world import Lane, World
from ganger.mechanisms.serving.continuous import Engine, _Step
from ganger.recipes.registry import make_router, recipes
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from serving.reference import Naive
from serving.rig import MS, Asked, OneByOne, Seen, columns, lanes, play, speaker
from soaking import examples

ROUTERS = [
    *(each for each in recipes("requests") if make_router(each).can.streams == 1),
    "serve.continuous-batching(max_num_batched_tokens=3,max_num_seqs=2)",
    "serve.continuous-batching(max_num_batched_tokens=4,first=b;a)",
    "serve.fair(max_num_seqs=3,weights=a:2;b:0.5)",
]
STEPWISE = [each for each in ROUTERS if each.startswith(("serve.cont", "serve.fair"))]
MODELS = [
    speaker("a", prefill=(2.1, 0.3, 0.01), decode=((2, 1.5, 0.2, 0.05), (1e9, 1.1, 0.4, 0.03))),
    speaker("b", prefill=(1.0, 0.5, 0.0), decode=((1e9, 2.5, 0.1, 0.02),), cache_bytes=2),
]
ROOM = 34
"""Bytes of cache: the largest request of the second model fits in alone, with four to spare."""
REQUESTS = st.lists(
    st.builds(
        Asked,
        st.integers(0, 120).map(lambda at: at / 4),
        st.integers(0, 1),
        st.sampled_from([20.0, 90.0, 1e4]),
        st.just(1),
        st.just(-1),
        st.just(-1),
        st.integers(1, 3),
        prompt=st.integers(1, 9),
        output=st.integers(1, 7),
    ),
    min_size=1,
    max_size=25,
)


def rows(asked: Sequence[Asked]) -> list[Asked]:
    return sorted(asked, key=lambda one: one.at)


def shown(seen: Seen) -> object:
    return seen.batches, seen.outcomes, seen.ended, seen.first, seen.made


@pytest.mark.parametrize("room", [-1, ROOM])
@pytest.mark.parametrize("recipe", ROUTERS)
@examples(10)
@given(asked=REQUESTS, count=st.integers(2, 3))
def test_it_keeps_the_rules_and_is_driven_as_by_the_naive_plane(
    recipe: str, room: int, asked: list[Asked], count: int
) -> None:
    """The watch holds the rules: see `Seen`. Answered requests have their whole output, not before
    the fastest way to it; in chunks and row by row it is the same."""
    router = make_router(recipe)
    seen = play(router, MODELS, lanes(count, cache=room), asked)
    for at, one in enumerate(rows(asked)):
        if seen.outcomes[at] == "answered":
            assert seen.made[at] == one.output
            least = MODELS[one.model].tokens["gpu"].whole([one.prompt], one.output) / MS
            assert seen.ended[at] >= one.at + least - 0.001 * one.output
    naive = Naive(make_router(recipe), MODELS, lanes(count, cache=room), asked, (), 0)
    naive.play()
    assert sorted(naive.ran, key=lambda ran: (ran.began, ran.lane)) == seen.batches
    assert [ended / MS for ended in naive.world.requests.ended] == seen.ended
    assert [first / MS for first in naive.world.requests.first] == seen.first
    again = play(OneByOne(router), MODELS, lanes(count, cache=room), asked, chunk=3)
    assert shown(again) == shown(seen)


class StepByStep(OneByOne):
    """Orders every step by itself."""

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        return [
            replace(order, steps=1) if isinstance(order, Batch) else order
            for order in super().next(world, idle)
        ]


@pytest.mark.parametrize("room", [-1, ROOM])
@pytest.mark.parametrize("recipe", STEPWISE)
@examples(10)
@given(asked=REQUESTS, count=st.integers(1, 3))
def test_a_run_of_steps_is_what_its_steps_are(
    recipe: str, room: int, asked: list[Asked], count: int
) -> None:
    seen = play(make_router(recipe), MODELS, lanes(count, cache=room), asked)
    steps = play(StepByStep(make_router(recipe)), MODELS, lanes(count, cache=room), asked)
    assert (seen.ended, seen.first, seen.made) == (steps.ended, steps.first, steps.made)
    assert len(seen.batches) <= len(steps.batches) == sum(each.steps for each in seen.batches)


@pytest.mark.parametrize("recipe", ROUTERS)
@examples(10)
@given(asked=REQUESTS, cut=st.integers(1, 120).map(lambda at: at / 4))
def test_what_comes_later_changes_no_step_before(
    recipe: str, asked: list[Asked], cut: float
) -> None:
    """Of the steps that ended by then all are the same; a run is cut where something came."""
    early = [one for one in asked if one.at < cut]
    if early:
        all_ = play(make_router(recipe), MODELS, lanes(2, cache=ROOM), asked)
        some = play(make_router(recipe), MODELS, lanes(2, cache=ROOM), early)
        assert [
            (ran.lane, ran.tasks, ran.began, ran.tokens) for ran in all_.batches if ran.began < cut
        ] == [
            (ran.lane, ran.tasks, ran.began, ran.tokens) for ran in some.batches if ran.began < cut
        ]
        for at in range(len(early)):
            if all_.first[at] < cut or some.first[at] < cut:
                assert all_.first[at] == some.first[at]


HARD = {
    "of two that wait the order turns while the cache is full": (
        "serve.fair(write=5)", 15, 1, ((0, 1, 4, 2), (2, 3, 8, 4), (2, 3, 6, 6), (4, 2, 1, 1)),
    ),
    "one comes behind another, and is before it once more was put out": (
        "serve.fair", 25, 1, ((4, 2, 8, 12), (6, 2, 7, 11), (8, 2, 6, 12), (14, 3, 1, 5)),
    ),
    "what the other lane has put out so far counts as a lane is asked": (
        "serve.fair(write=5)", 20, 2,
        ((0, 2, 8, 7), (3, 1, 5, 11), (4, 3, 8, 5), (4, 2, 1, 11), (5, 1, 7, 8)),
    ),
    "and as a request comes": (
        "serve.fair(write=5)", 20, 1, ((1, 2, 5, 9), (1, 2, 7, 1), (2, 1, 8, 11), (4, 3, 7, 5)),
    ),
}  # fmt: skip
"""Recipe, room, lanes, and requests: milliseconds, tenant, prompt, output."""


@pytest.mark.parametrize("what", HARD)
def test_a_run_of_steps_is_what_its_steps_are_where_tenants_are_counted(what: str) -> None:
    recipe, room, count, given = HARD[what]
    known = [speaker("m", prefill=(1, 0, 0), decode=((1e9, 1, 0, 0),))]
    asked = [
        Asked(at, tenant=tenant, prompt=prompt, output=output)
        for at, tenant, prompt, output in given
    ]
    seen = play(make_router(recipe), known, lanes(count, cache=room), asked)
    steps = play(StepByStep(make_router(recipe)), known, lanes(count, cache=room), asked)
    assert (seen.ended, seen.first, seen.made) == (steps.ended, steps.first, steps.made)


def test_steps_that_end_as_something_comes_end_before_lanes_are_asked() -> None:
    """Both lanes end a step as three requests come; with tenants counted it matters which lane is
    asked first."""
    known = [speaker("m", prefill=(1, 0, 0), decode=((1e9, 1, 0, 0),))]
    asked = [
        Asked(1, tenant=2, prompt=1, output=2),
        Asked(2, tenant=2, prompt=4, output=2),
        Asked(2, tenant=2, prompt=1, output=5),
        Asked(2, tenant=1, prompt=1, output=2),
    ]
    recipe = "serve.fair(max_num_seqs=2)"
    naive = Naive(make_router(recipe), known, lanes(2), asked, (), 0)
    naive.play()
    seen = play(make_router(recipe), known, lanes(2), asked)
    assert sorted(naive.ran, key=lambda ran: (ran.began, ran.lane)) == seen.batches


class Pauses(OneByOne):
    """Does nothing between 20 and 90 ms."""

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        if 20 * MS <= world.now < 90 * MS:
            return (Wait(90 * MS),)
        return super().next(world, idle)


def test_an_idle_lane_that_goes_loses_its_cache_as_well() -> None:
    known = [speaker("m")]
    world = World(known, lanes(1))
    seen = Seen(world)
    asked = columns([Asked(0, prompt=4, output=9), Asked(21, prompt=1, output=1)])
    plane = Plane(
        world,
        Pauses(make_router("serve.continuous-batching")),
        Physics(known),
        iter([asked]),
        [seen],
    )
    plane.advance(50 * MS)  # the second ended the steps of the first at 26 ms
    assert world.cached[0].tokens == 4 + 2
    plane.turn(0, 50 * MS, up=False)
    assert not world.cached
    assert world.lanes[0].cached == 0
    plane.turn(0, 60 * MS, up=True)
    plane.advance()
    plane.finish()
    assert seen.made == [9, 1]
    assert [ran.tokens for ran in seen.batches] == [(4,), (7, 1), (1,)]


def test_a_sequence_that_gives_up_its_cache_gets_no_token_in_this_step() -> None:
    """The first would have got its next token, of the second a part of the prompt is computed."""
    world = World([speaker("m")], lanes(1, cache=100))
    world.requests.add(columns([Asked(0, prompt=4, output=9), Asked(0, prompt=9, output=9)]))
    step = _Step(world, cast("Engine", SimpleNamespace(model=0)), world.lanes[0], [], 20)
    step.add(0, 4, step.lacks(0))
    step.add(1, 3, step.lacks(1))
    assert (step.rows, step.counts, step.giving, step.budget) == ([0, 1], [4, 3], [0], 13)
    step.preempt(1, 1)
    assert (step.rows, step.counts, step.giving, step.budget) == ([0], [4], [0], 16)
    step.preempt(0, 0)
    assert (step.rows, step.counts, step.giving, step.budget) == ([], [], [], 20)
    assert step.room == 100
