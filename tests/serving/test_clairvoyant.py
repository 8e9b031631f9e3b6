"""A router that knows all requests before they come: what that is good for, and that it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganger.core.serving.world import Lane, World
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.run import Setup, bound_of, serve
from ganger.lab.serving.yardsticks.future import Ahead, Future
from ganger.recipes.registry import find, make_router
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.columns import Requests
from ganger.workloads.requests.processes import constant
from ganger.workloads.requests.synthetic import Mix, generated
from serving.rig import MS, Asked, Seen, columns, lanes, model, play, speaker, table

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


TALKS = [Asked(at * 40, 0, 600, prompt=20, output=4 + at % 9) for at in range(120)]


def spoken(recipe: str, asked: list[Asked]) -> Seen:
    """One lane of a token model: a batch of two takes 12 ms a step."""
    known = [speaker("m", prefill=(10, 1, 0), decode=((1e9, 10, 1, 0),))]
    return play(make_router(recipe), known, lanes(1, cache=100), asked)


def test_of_token_models_it_gives_up_what_can_never_be_in_time() -> None:
    """A token model that is asked for three times what it can do."""
    asked = [one._replace(at=one.at / 3) for one in TALKS]
    seen = spoken("serve.clairvoyant", asked)
    assert "it could not be answered in time" in seen.outcomes
    good = [
        sum(ended <= one.at + one.within and outcome == "answered"
            for ended, one, outcome in zip(each.ended, asked, each.outcomes, strict=True))
        for each in (seen, spoken("serve.continuous-batching", asked))
    ]  # fmt: skip
    assert good[0] > good[1]
    assert spoken("serve.clairvoyant", TALKS[:3]).outcomes == ["answered"] * 3


def test_where_steps_compete_the_shortest_or_the_most_urgent_goes_first() -> None:
    asked = [Asked(0, 0, 5e3, prompt=9, output=9), Asked(1, 0, 5e3, prompt=9, output=9),
             Asked(2, 0, 4e3, prompt=9, output=2)]  # fmt: skip
    late = [asked[0], asked[1]._replace(within=900), asked[2]]
    for order, rows, first in (("least", asked, 2), ("deadline", late, 1)):
        ended = spoken(f"serve.clairvoyant(order={order},size=1)", rows).ended
        assert ended[first] < ended[3 - first], order


def test_ahead_of_what_comes_it_sees_as_far_as_it_looks() -> None:
    world = World(KNOWN, lanes(1))
    chunks = [columns([Asked(at)]) for at in range(10)]
    ahead = Ahead(iter(chunks), 3 * MS, world)
    for at, chunk in enumerate(ahead.handed()):
        assert list(chunk["arrival"]) == [at * MS]
        seen = ahead.count(0, at * MS, 100 * MS)
        assert seen >= min(4, 10 - at)
        assert seen < 10 or at == 0
        assert list(ahead.next_of(0, at, 1)) == [at * MS]


TWO_TYPES = [model("a", table(10, 11, 12)), model("b", table(10, 11, 12), type_="tpu")]


def typed() -> list[Lane]:
    """A lane for each of the two models."""
    return [Lane(0, "gpu", device=0), Lane(1, "tpu", device=1)]


def test_a_lane_with_nothing_to_do_keeps_no_other_one_idle() -> None:
    """The first has no model that is waited for; then it waits for what is to come."""
    seen = play(make_router("serve.clairvoyant"), TWO_TYPES, typed(), [Asked(0, 1, 30)])
    assert [(each.lane, each.began) for each in seen.batches] == [(1, 0)]
    asked = [Asked(0, 0, 30), Asked(0, 1, 10.5), Asked(1, 0, 30), Asked(2, 0, 30)]
    seen = play(make_router("serve.clairvoyant(full=0.1)"), TWO_TYPES, typed(), asked)
    assert [(each.lane, each.began, len(each.tasks)) for each in seen.batches] == [
        (1, 0, 1), (0, 2, 3)
    ]  # fmt: skip


def test_the_load_of_a_lane_counts_models_that_come_after_one_that_it_cannot_run() -> None:
    asked = [Asked(0, 1, 30), Asked(1, 1, 30), Asked(2, 1, 30)]
    seen = play(make_router("serve.clairvoyant(full=0.1)"), TWO_TYPES, typed(), asked)
    assert [(each.lane, each.began, each.tasks) for each in seen.batches] == [(1, 2, (0, 1, 2))]


def test_what_is_too_late_is_given_up_though_nobody_asks_for_an_earlier_model() -> None:
    seen = play(make_router("serve.clairvoyant"), TWO_TYPES, typed(), [Asked(3, 1, 5)])
    assert (seen.outcomes, seen.ended) == (["it could not be answered in time"], [3])
