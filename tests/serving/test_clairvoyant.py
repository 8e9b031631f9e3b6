"""A router that knows all requests before they come: what that is good for, and that it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.serving.world import Known, Lane, Store, World
from ganger.lab.serving.fleet import Fleet, read_fleet
from ganger.lab.serving.run import Setup, bound_of, serve
from ganger.lab.serving.sweep import Task, compare_tasks
from ganger.lab.serving.yardsticks.bound import bounded
from ganger.lab.serving.yardsticks.future import Ahead, Future
from ganger.lab.serving.yardsticks.rates import Rates, Talking
from ganger.recipes.registry import find, make_router
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from ganger.sim.requests.trouble import Change, drive
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.columns import Requests
from ganger.workloads.requests.processes import constant
from ganger.workloads.requests.synthetic import Mix, generated
from serving.rig import (
    MS,
    Asked,
    Seen,
    columns,
    lanes,
    model,
    pipeline,
    placed,
    play,
    speaker,
    table,
)

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
    bound, _ = bound_of(requests(), models, fleet, Setup())
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
        sum(
            ended <= one.at + one.within and outcome == "answered"
            for ended, one, outcome in zip(each.ended, asked, each.outcomes, strict=True)
        )
        for each in (seen, spoken("serve.continuous-batching", asked))
    ]
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
        (1, 0, 1),
        (0, 2, 3),
    ]


def test_the_load_of_a_lane_counts_models_that_come_after_one_that_it_cannot_run() -> None:
    asked = [Asked(0, 1, 30), Asked(1, 1, 30), Asked(2, 1, 30)]
    seen = play(make_router("serve.clairvoyant(full=0.1)"), TWO_TYPES, typed(), asked)
    assert [(each.lane, each.began, each.tasks) for each in seen.batches] == [(1, 2, (0, 1, 2))]


def test_what_is_too_late_is_given_up_though_nobody_asks_for_an_earlier_model() -> None:
    seen = play(make_router("serve.clairvoyant"), TWO_TYPES, typed(), [Asked(3, 1, 5)])
    assert (seen.outcomes, seen.ended) == (["it could not be answered in time"], [3])


# ---------------------------------------------------------------------- stages and parts

LATE = "it could not be answered in time"


def test_a_stage_may_take_all_the_time_that_those_behind_it_do_not_need() -> None:
    """Two together take 7 ms and then 1.1; the first stage alone has 6.9 of the 8.2 as its part."""
    two = pipeline("two", [0, 1], (0, 1, 1))
    models = [model("a", table(5, 7)), model("b", table(1, 1.1))]
    asked = [Asked(0, 2, 8.2), Asked(0, 2, 8.2)]
    seen = play(make_router("serve.clairvoyant"), models, lanes(1), asked, pipelines=[two])
    assert [(each.model, each.began, len(each.tasks)) for each in seen.batches] == [
        (0, 0, 2),
        (1, 7, 2),
    ]


def test_stages_of_a_request_that_cannot_be_in_time_are_not_run() -> None:
    """Three items behind the first stage; once one is over, 20 ms are too few for the others."""
    three = pipeline("three", [0, 1], (0, 1, 3))
    models = [model("a", table(5)), model("b", table(10)), model("c", table(30))]
    asked = [Asked(0, 3, 24), Asked(1, 2, 62)]
    router = make_router("serve.clairvoyant(full=99)")
    seen = play(router, models, lanes(1), asked, pipelines=[three])
    assert seen.outcomes == [LATE, "answered"]
    assert seen.ended[0] == 15
    assert [each.model for each in seen.batches] == [0, 1, 2]


def test_from_a_load_on_what_ends_a_request_goes_first() -> None:
    """A last stage of 6 ms gives a request; a first one of 5 is 5 parts of 11 of it."""
    two = pipeline("two", [0, 1], (0, 1, 1))
    models = [model("a", table(5)), model("b", table(6))]
    asked = [Asked(0, 2, 100), Asked(1, 2, 100), Asked(2, 2, 100)]
    for full, order in (("0.01", [0, 1, 0, 1, 0, 1]), ("99", [0, 0, 0, 1, 1, 1])):
        router = make_router(f"serve.clairvoyant(full={full})")
        seen = play(router, models, lanes(1), asked, pipelines=[two])
        assert [each.model for each in seen.batches] == order, full


def test_what_is_larger_than_any_batch_is_cut_so_that_it_can_be_in_time() -> None:
    """10 to 13 ms for 1 to 4 inputs."""
    router = make_router("serve.clairvoyant")
    for items, count, within, ends in (
        (6, 2, 12.5, [12, 12]),
        (8, 3, 12.5, [11, 12, 12]),
        (8, 3, 13, [13, 13]),
        (6, 1, 24, [12, 24]),
        (4, 2, 11, []),  # a batch could hold it
    ):
        seen = play(router, KNOWN, lanes(count), [Asked(0, 0, within, items=items)])
        assert sorted(each.ended for each in seen.batches) == (ends or [13])
        assert seen.ended == [max(ends, default=13)]


def test_it_gives_up_a_request_of_which_the_rest_cannot_be_done_in_time() -> None:
    asked = [Asked(0, 0, 26, items=8), Asked(0, 0, 30, items=8)]
    seen = play(make_router("serve.clairvoyant"), KNOWN, lanes(1), asked)
    assert seen.outcomes == ["answered", LATE]
    assert len(seen.batches) == 2


def test_what_only_a_larger_device_holds_waits_for_it_and_nobody_behind_does() -> None:
    known = [Known("m", {("small", 1.0): table(9, 10), ("large", 1.0): table(5, 6, 7, 8)})]
    both = [Lane(0, "small"), Lane(1, "large", device=1)]
    asked = [Asked(0, 0, 50, items=4), Asked(1, 0, 50, items=3), Asked(1, 0, 90)]
    seen = play(make_router("serve.clairvoyant"), known, both, asked)
    assert [(each.lane, each.tasks, each.ended) for each in seen.batches] == [
        (1, (0,), 8),
        (0, (2,), 10),
        (1, (1,), 15),
    ]


def test_a_part_on_a_device_that_fails_is_run_again() -> None:
    world = World(KNOWN, lanes(2))
    rows = columns([Asked(0, 0, 100, items=6)])
    world.future = Future.of(iter([rows]))
    seen = Seen(world)
    plane = Plane(world, make_router("serve.clairvoyant"), Physics(KNOWN), iter([rows]), [seen])
    drive(plane, [Change(5 * MS, 0, False)])
    plane.finish()
    assert (seen.outcomes, seen.ended) == (["answered"], [24])
    assert not world.tasks


def test_beside_token_models_stages_and_parts_take_turns_with_steps() -> None:
    """6 ms a step. What comes at 21 ends the steps after the third, and goes on in between."""
    two = pipeline("two", [1, 1], (0, 1, 1))
    talks = Asked(0, 0, 900, prompt=1, output=9)
    for one, ends in (
        (Asked(21, 2, 900), [(23, 33), (39, 49)]),
        (Asked(21, 1, 900, items=8), [(23, 36), (42, 55)]),
    ):
        models = [speaker("talks"), *KNOWN]
        router = make_router("serve.clairvoyant")
        seen = play(router, models, lanes(1, cache=100), [talks, one], pipelines=[two])
        assert seen.outcomes == ["answered"] * 2
        assert [(each.began, each.ended) for each in seen.batches if each.model] == ends
        steps = [each for each in seen.batches if not each.model]
        assert [each.steps for each in steps] == [3, 1, 5]
        assert seen.ended == [11 + 8 * 6 + sum(end - begin for begin, end in ends), ends[1][1]]


MIXED = [speaker("talks", largest=2), model("a", table(5, 6, 8)), model("b", table(3, 5))]


@given(
    drawn=st.lists(
        st.builds(
            Asked, st.integers(0, 60), st.integers(0, 4), st.integers(10, 300), st.integers(1, 5),
            prompt=st.integers(1, 9), output=st.integers(1, 6), input=st.just(-1),
            label=st.just(-1), tenant=st.just(0),
        ),
        min_size=1,
        max_size=9,
    ),
    count=st.integers(1, 2),
)  # fmt: skip
def test_beside_token_models_it_never_exceeds_the_bound(drawn: list[Asked], count: int) -> None:
    """A token model, two others, a family of these and a pipeline of them."""
    two = pipeline("two", [1, 2], (0, 1, 1.5))
    asked = [one if one.model else one._replace(items=1) for one in drawn]
    seen = play(
        make_router("serve.clairvoyant"),
        MIXED,
        lanes(count, cache=60),
        asked,
        families=[("ab", (1, 2))],
        pipelines=[two],
    )
    rows = sorted(asked, key=lambda one: one.at)
    in_time = sum(
        outcome == "answered" and ended <= one.at + one.within
        for one, outcome, ended in zip(rows, seen.outcomes, seen.ended, strict=True)
    )
    variants = [(0,), (1,), (2,), (1, 2), ()]
    rates = Rates(MIXED, [("gpu", count)], variants, pipelines=[two], talking=Talking({"gpu": 60}))
    assert in_time <= bounded(iter([columns(rows)]), rates).in_time + 1e-6


def test_where_not_all_fit_it_cuts_requests_and_takes_what_is_there_of_a_family() -> None:
    """6 and 4 ms for the first and 5 ms to load; a memory for one of the two."""
    known = [model(name, table(4, 5, 6), bytes_=60, load=5) for name in "ab"]
    asked = [Asked(0, 1, 500, items=9), Asked(1, 2, 500), Asked(40, 0, 500), Asked(60, 2, 500)]
    seen = play(
        make_router("serve.clairvoyant"),
        known,
        placed(1),
        asked,
        stores=[Store(0, 100)],
        families=[("either", (0, 1))],
    )
    assert seen.outcomes == ["answered"] * 4
    assert seen.by == [1, 1, 0, 0]
    assert [len(each.tasks) for each in seen.batches] == [3, 3, 3, 1, 1, 1]
    assert seen.loads == [(1, 0, 5), (0, 40, 45)]


@pytest.mark.parametrize(
    ("name", "items", "fleet", "recipes"),
    [
        ("page", 1, "T4:2", ("serve.triton", "nanily", "nexus")),
        ("resnet50", 90, "T4:2", ("dybatch", "dybatch(slice=32)")),
        ("resnet50", 90, "T4:1+L4:1", ("dybatch",)),
    ],
)
@pytest.mark.parametrize("rate", [20, 60])
def test_its_row_lies_between_the_recipes_and_the_bound(
    name: str, items: int, fleet: str, recipes: tuple[str, ...], rate: float
) -> None:
    """Alone, and so in the comparison, where it is no copy of another row."""
    rate = rate * 10 if items == 1 else rate / 2
    mix = Mix(names=(name,), items=items, slo=(100 if items == 1 else 400) * MS)

    def load() -> Requests:
        return generated(constant(rate), seed=0, duration=4.0, cv=1.0, mix=mix, name="r")

    models, where = read_models(MODELS), read_fleet(fleet)
    tasks = [Task(recipe, where, Setup(noise=0.0)) for recipe in recipes]
    found = compare_tasks(load, models, tasks)
    assert found.missing == []
    (bound,) = found.bounds.values()
    best = max(run.metrics["attainment"] or 0 for run in found.runs)
    alone = serve(load(), models, where, "serve.clairvoyant", Setup(noise=0.0))
    mine = alone.metrics["attainment"] or 0
    row = found.oracle[0].metrics["attainment"] or 0
    assert best <= mine <= row <= bound.attainment + 1e-9
