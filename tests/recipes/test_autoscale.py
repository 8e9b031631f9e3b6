"""Pollux on a cluster that grows and shrinks with the goodput of its GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from anything import World, worlds
from audit import Audit
from ganger.core.events import NodeDown, NodeUp
from ganger.core.spec import JobSpec, Role, Shape
from ganger.core.units import SECOND
from ganger.sim.physics import Costs
from worlds import Played, Work, cluster, play

from .elastic_jobs import profiles

FLAT = profiles(flat=(1.0, 1.1, 1.15, 1.2), steep=tuple(float(n) for n in range(1, 17)))
SEARCH = "population=20,generations=20"


def elastic(name: str, at: float, lasts: float, model: str, most: int = 16) -> Work:
    shape = Shape((Role(size=1, least=1, most=most),))
    spec = JobSpec(name=name, submitted=round(at * SECOND), shape=shape, model=model)
    return Work(spec, round(lasts * SECOND))


def nodes_on(run: Played, total: int) -> list[tuple[float, int]]:
    """(seconds, nodes on) at every change."""
    found, on = [(0.0, total)], total
    for batch, _ in run.diary.steps:
        change = sum(
            isinstance(event, NodeUp) - isinstance(event, NodeDown) for event in batch.events
        )
        if change:
            on += change
            found.append((batch.at / SECOND, on))
    return found


def test_a_job_that_gains_nothing_keeps_one_node_and_one_that_scales_keeps_all() -> None:
    on = cluster(4, 4)
    for model, nodes in (("flat", 1), ("steep", 4)):
        run = play(
            f"pollux({SEARCH},autoscale=yes)",
            [elastic("a", 0, 4000, model)],
            on,
            profiles=FLAT,
            until=900 * SECOND,
        )
        assert nodes_on(run, 4)[-1][1] == nodes, model


def test_nodes_come_back_for_those_who_come_later() -> None:
    works = [
        elastic("a", 0, 2000, "flat"),
        *(elastic(f"b{i}", 1000, 3000, "steep", 4) for i in range(3)),
    ]
    run = play(
        f"pollux({SEARCH},autoscale=yes)",
        works,
        cluster(4, 4),
        profiles=FLAT,
        costs=Costs(boot=120 * SECOND),
    )
    counts = [count for _, count in nodes_on(run, 4)]
    assert min(counts) == 1
    assert max(counts[counts.index(1) :]) > 1
    assert [run.phase(work.spec.name) for work in works] == ["finished"] * 4


def test_without_autoscaling_all_nodes_stay_on() -> None:
    run = play(f"pollux({SEARCH})", [elastic("a", 0, 900, "flat")], cluster(4, 4), profiles=FLAT)
    assert nodes_on(run, 4) == [(0.0, 4)]


@pytest.mark.parametrize("recipe", ["pollux(population=8,generations=4,autoscale=yes)"])
@settings(max_examples=12)
@given(world=worlds())
def test_nothing_is_torn_or_oversubscribed_while_nodes_come_and_go(
    recipe: str, world: World
) -> None:
    played: Any = play(recipe, world.trace, world.cluster, world.setup)
    Audit(played).walk()
