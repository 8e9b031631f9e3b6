"""The report of requests: what it shows, in constant memory, and how it words who leads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.serving.router import Router
from ganger.core.state.names import Names
from ganger.lab.origin import Origin
from ganger.lab.report.serving import render, write_report
from ganger.lab.serving import watching
from ganger.lab.serving.fleet import read_fleet
from ganger.lab.serving.groups import best_of, grouped, headline, leading, remarks
from ganger.lab.serving.run import Place, ServingRun, Setup, bound_of, serve
from ganger.lab.serving.watching import Watched, Watching
from ganger.lab.serving.yardsticks.bound import Bound
from ganger.recipes.registry import make_router
from ganger.workloads.models.profiles import Models
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.columns import Requests
from ganger.workloads.requests.processes import constant
from ganger.workloads.requests.synthetic import Mix, generated
from lab.test_report import EVIL, Page
from serving.rig import MS, Asked, affine, columns, lanes, model, table

MODELS = Path(__file__).parents[2] / "examples" / "serving" / "models.toml"


@cache
def models() -> Models:
    return read_models(MODELS)


def requests(rate: float = 600, names: Sequence[str] = ("resnet50", "bert")) -> Requests:
    mix = Mix(names=tuple(names), models=len(names), zipf=1.0, slo=100 * MS)
    return generated(constant(rate), seed=0, duration=4.0, cv=1.0, mix=mix, name="r")


@cache
def runs(
    recipes: tuple[str, ...] = ("serve.no-batch", "clockwork"),
    fleets: str = "T4:2,T4:3",
    loads: tuple[float, ...] = (0.5, 1.5),
    seeds: tuple[int, ...] = (0, 1),
) -> list[ServingRun]:
    return [
        serve(
            requests(),
            models(),
            read_fleet(fleet),
            recipe,
            Setup(seed=seed, faster=load, watch=True),
        )
        for fleet in fleets.split(",")
        for load in loads
        for recipe in recipes
        for seed in seeds
    ]


def bounds() -> dict[Place, Bound]:
    return {
        Place(fleet, load): bound_of(requests(), models(), read_fleet(fleet), Setup(faster=load))[0]
        for fleet in ("T4:2", "T4:3")
        for load in (0.5, 1.5)
    }


def test_every_section_is_there_and_the_bound_beneath_the_recipes() -> None:
    found = bounds()
    text = render(runs(), "Title of mine", bounds=found)
    page = Page(text)
    sections = [
        "summary",
        "comparison",
        "attainment",
        "drops",
        "models",
        "time",
        "load-sweep",
        "fleets",
        "lanes",
        "reading",
        "provenance",
    ]
    assert [name for name in page.ids if name in sections] == sections
    assert len(page.ids) == len(set(page.ids))
    panels = page.charts["panels"]
    assert [Place(p["fleet"], p["load"]) for p in panels] == list(found)
    for panel, bound in zip(panels, found.values(), strict=True):
        assert panel["bound"] == pytest.approx(bound.attainment, rel=1e-5)
        best = max(group["metrics"]["attainment"][0] for group in panel["groups"])
        assert best <= bound.attainment + 0.02
    assert page.words.count("no recipe can have more than") == 4
    assert "Title of mine" in page.words
    assert "± " in page.words, "two seeds have an interval"
    assert "This is the run of seed 0 alone; the tables above are means over 2 seeds." in page.words


def test_sections_that_would_be_empty_are_left_out() -> None:
    one = serve(requests(50, ["resnet50"]), models(), read_fleet("T4:2"), "serve.triton", Setup())
    page = Page(render([one]))
    for name in ("drops", "models", "time", "load-sweep", "fleets", "lanes"):
        assert name not in page.ids
    with pytest.raises(BadInput, match="at least one run"):
        render([])


def test_where_one_place_alone_drops_the_others_say_that_none_was() -> None:
    some = [replace(run, dropped={"late": 3} if run.fleet == "T4:2" else {}) for run in runs()]
    words = Page(render(some)).words
    assert words.count("None was dropped here.") == 2
    assert "None was dropped" not in Page(render(runs()[:1])).words


def test_nothing_is_fetched_and_names_are_text() -> None:
    run = replace(runs()[0], recipe=EVIL, remarks=[EVIL], dropped={EVIL: 3})
    run.models = [{**row, "model": EVIL} for row in run.models]
    text = render([run], title=EVIL)
    page = Page(text)
    fetches = r"https?:|//[a-z]+\.[a-z]|@import|url\(|\bfetch\(|<link|src="
    assert not re.search(fetches, render(runs(), bounds=bounds()))
    assert "<script>alert" not in text
    assert "<img" not in text
    assert page.tags.count("script") == 5
    assert page.charts["labels"] == [EVIL]


def test_same_runs_same_page_which_says_what_it_was_made_of(tmp_path: Path) -> None:
    origin = Origin("ganger requests simulate r.csv", (("r.csv", "ab12"),), "2026-11-22 23:00 UTC")
    write_report(runs(), tmp_path / "a.html", origin=origin)
    assert (tmp_path / "a.html").read_text() == render(runs(), origin=origin)
    words = Page(render(runs(), origin=origin)).words
    assert "Commandganger requests simulate r.csv" in words
    assert "r.csv (SHA-256 ab12)" in words
    assert "Seeds0, 1" in words
    assert "requests a CPU second" in words


def watched(asked: list[Asked], router: Router | None = None, chunk: int = 64) -> Watched:
    """What is seen of one lane that takes 4 + n ms for a batch of n."""
    from ganger.core.serving.world import World
    from ganger.lab.serving.tally import Tally
    from ganger.sim.requests.physics import Physics
    from ganger.sim.requests.plane import Plane

    known = [model("m", affine(4, 1, 16)), model("n", table(3))]
    world = World(known, lanes(1))
    tally, seen = Tally(world, [None, None]), Watching(world)
    rows = sorted(asked, key=lambda one: one.at)
    chunks = (columns(rows[at : at + chunk]) for at in range(0, len(rows), chunk))
    plane = Plane(
        world,
        router or make_router("serve.triton"),
        Physics(known),
        chunks,
        [tally, seen],
        keep=chunk,
    )
    plane.advance()
    plane.finish()
    return seen.found(tally.latencies, tally.requests)


def test_windows_add_up_to_what_happened() -> None:
    found = watched([Asked(0, within=4), Asked(0, within=9), Asked(20, 1, within=9)])
    assert found.width == 0.001
    assert found.windows["arrivals"][0] == 2
    assert sum(found.windows["arrivals"]) == 3
    assert sum(found.windows["in_time"]) == 2
    assert [round(each, 6) for each in found.windows["busy"][:7]] == [1] * 6 + [0]
    assert found.windows["open"][:7] == pytest.approx([2] * 6 + [0])
    assert found.windows["batches"][0] == 1
    assert found.windows["executed"][0] == 2
    (boxes,) = found.stretches.values()
    assert [(box.began, box.ended, box.model, box.size) for box in boxes] == [
        (0, 6 * MS, 0, 2),
        (20 * MS, 23 * MS, 1, 1),
    ]
    assert all(box.reason for box in boxes)
    assert found.by_model["n"]["latency_p50_seconds"] == 0.003
    assert found.within[0] == np.repeat([0.003, 0.006], (67, 133)).tolist()
    assert found.within[1] == np.linspace(0, 1, 200).tolist()


def test_what_was_not_answered_keeps_the_curve_below_one() -> None:
    found = watched([Asked(0, within=9), Asked(0, within=1)], make_router("nanily"))
    assert found.within[1][-1] == 0.5


def test_a_long_run_has_as_many_windows_and_boxes_as_a_short_one() -> None:
    asked = [Asked(at * 10) for at in range(6000)] + [Asked(30_000 + at / 10) for at in range(900)]
    found = watched(asked)
    assert watching.WINDOWS / 2 <= len(found.windows["arrivals"]) <= watching.WINDOWS
    assert sum(found.windows["arrivals"]) == len(asked)
    assert sum(found.windows["executed"]) == len(asked)
    mean = sum(found.windows["busy"]) * found.width
    assert mean == pytest.approx(sum(found.windows["batches"]) * 0.004 + len(asked) * 0.001)
    assert list(found.stretches) == ["the beginning", "the busiest stretch"]
    assert all(len(boxes) <= watching.BATCHES for boxes in found.stretches.values())
    busiest = found.stretches["the busiest stretch"]
    assert busiest[0].began <= 30_000 * MS + 100 * MS <= busiest[-1].ended


def of(recipe: str, *attainment: float, p99: float = 0.05) -> list[ServingRun]:
    """A run for each seed, with these figures."""
    base = {"requests": 100, "latency_p99_seconds": p99}
    return [
        ServingRun(recipe, "T4:1", Setup(seed=seed), {**base, "attainment": value}, {}, [])
        for seed, value in enumerate(attainment)
    ]


def test_the_headline_says_who_has_most_in_time() -> None:
    two = grouped([*of("clockwork", 0.9), *of("serve.no-batch", 0.5), *of("nanily", 0.8)])
    assert headline(two) == (
        "clockwork answers 90.0% of the requests in time, serve.no-batch 50.0%."
    )
    assert headline(two[:1]) == "Under clockwork 90.0% of the requests are answered in time."
    said = " ".join(remarks(two, Bound(1000, 940, 10)))
    assert "One seed only" in said
    assert "No recipe can have more than 94.0% in time" in said
    assert [group.recipe for group in leading(two, "attainment", "high")] == ["clockwork"]


def test_where_all_are_in_time_the_shortest_p99_leads() -> None:
    all_ = grouped([*of("clockwork", 1.0), *of("serve.triton", 1.0, p99=0.02)])
    said = "Every recipe answers all in time; serve.triton is quickest, with a p99 of 20.0 ms."
    assert headline(all_) == said
    assert "No recipe can" not in " ".join(remarks(all_, Bound(10, 10, 1)))


def test_recipes_within_noise_are_named_together() -> None:
    found = grouped(
        [*of("clockwork", 0.90, 0.92), *of("nanily", 0.91, 0.91), *of("serve.triton", 0.4, 0.41)]
    )
    assert headline(found).startswith("clockwork and nanily answer 91.0% of the requests in time")
    assert "Within noise of clockwork: nanily." in remarks(found, None)
    assert headline(found[:2]) == "Every recipe answers about 91.0% of the requests in time."
    clear = grouped([*of("clockwork", 0.90, 0.92), *of("nanily", 0.80, 0.81)])
    assert "points more in time than nanily (95% confidence)." in " ".join(remarks(clear, None))
    assert [group.recipe for group in best_of(clear)[0]] == ["clockwork"]


def test_each_class_of_a_model_has_a_row_as_on_the_terminal() -> None:
    """Every second request for the same model is in five times as much of a hurry."""
    rows = requests(names=("resnet50",)).gather()
    slo = np.where(np.arange(len(rows)) % 2, 40 * MS, 200 * MS)
    both = Requests.of(
        replace(rows, deadline=rows.arrival + slo), Names(["resnet50"]), name="classes"
    )
    found = [
        serve(both, models(), read_fleet("T4:1"), recipe, Setup(watch=True))
        for recipe in ("serve.triton", "nanily")
    ]
    page = Page(render(found))
    assert "classes" in page.ids
    section = page.words[page.words.index("By class") :]
    for run in found:
        hurried, patient = run.classes
        assert hurried["slo_seconds"] == 0.04
        assert hurried["attainment"] < patient["attainment"]
        for row in run.classes:
            assert f"{row['attainment']:.1%}" in section
            assert f"{1000 * row['latency_p99_seconds']:.1f} ms" in section
    assert "40.0 ms" in section
    assert "Tenant" not in section[: section.index("How to read")]
    assert "classes" not in Page(render(runs())).ids
