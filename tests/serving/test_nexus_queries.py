"""Nexus' queries: which are split by what there is to do."""

from __future__ import annotations

import pytest

from ganger.core.serving.world import Pipeline, World
from ganger.recipes.registry import make_router
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from serving.rig import MS, Asked, affine, columns, lanes, model, pipeline

CHAIN = pipeline("chain", [0, 1], (0, 1, 10))
JOIN = pipeline("join", [0, 1, 1, 0], (0, 1, 1), (0, 2, 1), (1, 3, 1), (2, 3, 1))


@pytest.mark.parametrize(
    ("query", "within", "up", "split"),
    [(CHAIN, 100, True, True), (CHAIN, 100, False, False), (CHAIN, 1e18, True, False),
     (JOIN, 100, True, False)],
)  # fmt: skip
def test_a_query_is_split_where_it_has_a_deadline_no_joins_and_a_lane(
    query: Pipeline, within: float, up: bool, split: bool
) -> None:
    """Else by what stages take alone."""
    models = [model("x", affine(5, 2)), model("y", affine(5, 2))]
    world = World(models, lanes(1), pipelines=[query])
    asked = [Asked(5.0 + at, 2, within) for at in range(4)]
    plane = Plane(world, make_router("nexus"), Physics(models), iter([columns(asked)]))
    if not up:
        plane.turn(0, 0, up=False)
    plane.advance(7 * MS)
    (stream,) = world.memory.streams.values()
    assert (stream.parts != world.memory.staged.parts[0]) is split
