"""A router that knows all requests before they come: what that is good for, and that it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganger.core.serving.world import World
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.run import Setup, bound_of, serve
from ganger.lab.serving.yardsticks.future import Future
from ganger.recipes.registry import find, make_router
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.columns import Requests
from ganger.workloads.requests.processes import constant
from ganger.workloads.requests.synthetic import Mix, generated
from serving.rig import MS, Asked, Seen, columns, lanes, model, table

MODELS = Path(__file__).parents[2] / "examples" / "serving" / "models.toml"
KNOWN = [model("m", table(10, 11, 12, 13))]


def foreseen(recipe: str, asked: list[Asked]) -> Seen:
    """One lane, and a router that is told what comes."""
    world = World(KNOWN, lanes(1))
    world.future = Future.of(iter([columns(asked)]))
    seen = Seen(world)
    plane = Plane(
        world, make_router(recipe), Physics(KNOWN, noise=0), iter([columns(asked)]), [seen]
    )
    plane.advance()
    plane.finish()
    return seen


def test_from_a_load_on_it_waits_for_what_is_about_to_come() -> None:
    asked = [Asked(0, 0, 30), Asked(1, 0, 30), Asked(2, 0, 30)]
    (batch,) = foreseen("serve.clairvoyant(full=0.1)", asked).batches
    assert (batch.began, batch.tasks) == (2, (0, 1, 2))
    first, _ = foreseen("serve.clairvoyant(full=9)", asked).batches
    assert (first.began, first.tasks) == (0, (0,))


def test_from_a_load_on_it_gives_up_what_would_keep_a_batch_small() -> None:
    asked = [Asked(0, 0, 11), *[Asked(0, 0, 16)] * 4]
    gives = foreseen("serve.clairvoyant(full=0.1)", asked)
    assert gives.outcomes == ["it could not be answered in time", *["answered"] * 4]
    keeps = foreseen("serve.clairvoyant(full=9)", asked)
    assert keeps.outcomes == [*["answered"] * 2, *["it could not be answered in time"] * 3]


@pytest.mark.parametrize("rate", [500, 800])
def test_it_lies_between_what_can_be_deployed_and_the_bound(rate: float) -> None:
    models, fleet = read_models(MODELS), Fleet((("T4", 2),))
    mix = Mix(names=("resnet50", "bert"), models=2, zipf=1.0, slo=100 * MS)

    def requests() -> Requests:
        return generated(constant(rate), seed=0, duration=4.0, cv=1.0, mix=mix, name="r")

    def in_time(recipe: str) -> float:
        return serve(requests(), models, fleet, recipe, Setup()).metrics["attainment"] or 0.0

    found = in_time("serve.clairvoyant")
    bound = bound_of(requests(), models, fleet, Setup())
    assert bound is not None
    assert found <= bound.attainment
    assert found >= max(map(in_time, ("serve.triton", "clipper", "nanily", "clockwork")))
    assert find("serve.clairvoyant").needs == "future"
