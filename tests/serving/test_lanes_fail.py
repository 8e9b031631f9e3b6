"""Lanes that go and come back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.serving.world import World
from ganger.core.units import NEVER
from ganger.lab.serving.yardsticks.future import Future
from ganger.recipes.registry import make_router, recipes
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from serving.rig import CODES, MS, Asked, Seen, affine, columns, lanes, model
from soaking import examples

MODELS = [model("a", affine(5, 1, 8)), model("b", affine(9, 2, 8))]


def played(recipe: str, turns: list[tuple[int, int, bool]], asked: list[Asked], count: int) -> Seen:
    """Turn lanes off and on (millisecond, lane, up); all come back in the end."""
    world = World(MODELS, lanes(count))
    seen, router, rows = Seen(world), make_router(recipe), columns(asked)
    if router.can.foresees:
        world.future = Future.of(iter([rows]))
    plane = Plane(world, router, Physics(MODELS, noise=0), iter([rows]), [seen])
    for at, lane, up in turns:
        plane.advance(at * MS)
        plane.turn(lane, at * MS, up=up)
    plane.advance(1000 * MS)
    for lane in range(count):
        plane.turn(lane, 1000 * MS, up=True)
    plane.advance(NEVER - 1)
    plane.finish()
    return seen


TURNS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 2), st.booleans()), max_size=12)


@pytest.mark.parametrize("recipe", [*recipes("requests"), "serve.least-loaded(size=4)"])
@examples(10)
@given(
    turns=TURNS,
    asked=st.lists(
        st.builds(
            Asked,
            st.integers(0, 60),
            st.integers(0, 1),
            st.sampled_from([20.0, 5000.0]),
            st.just(1),
            **CODES,
        ),
        min_size=1,
        max_size=30,
    ),
)
def test_every_request_ends_though_lanes_come_and_go(
    recipe: str, turns: list[tuple[int, int, bool]], asked: list[Asked]
) -> None:
    seen = played(recipe, sorted(turns), asked, 3)
    assert len(seen.outcomes) == len(asked)
    assert not any(each.startswith("no lane") for each in seen.outcomes)


def test_what_a_lane_lost_is_done_by_another() -> None:
    seen = played("serve.round-robin", [(3, 0, False)], [Asked(0), Asked(1), Asked(2)], 2)
    assert [(each.lane, each.tasks, each.outcome) for each in seen.batches] == [
        (0, (0,), "failed"),
        (1, (1,), "ok"),
        (1, (0,), "ok"),
        (1, (2,), "ok"),
    ]


def test_requests_wait_for_a_lane_while_all_are_down() -> None:
    seen = played("serve.triton", [(0, 0, False), (40, 0, True)], [Asked(10), Asked(20)], 1)
    assert [each.began for each in seen.batches] == [40]
    assert seen.ended == [47, 47]
