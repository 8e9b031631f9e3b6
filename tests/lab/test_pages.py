"""The map of recipes: its pages are those that the code makes now."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from ganger.core.errors import BadInput
from ganger.lab.docs import scaling_pages, serving_pages, tuning_pages
from ganger.lab.docs.recipe_pages import HORIZON, JOBS, pages, schedule
from ganger.lab.report.drawing import COLOURS, LEFT, RIGHT, WIDTH, draw
from ganger.recipes.registry import find, recipes

from .builders import by_hand

pytestmark = pytest.mark.long

DOCS = Path(__file__).parents[2] / "docs" / "recipes"
AGAIN = "make them again: ganger recipes --pages docs/recipes"


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """All files, made anew."""
    return dict(pages())


def test_the_pages_are_up_to_date(made: dict[str, str]) -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in DOCS.iterdir()}
    assert sorted(kept) == sorted(made), AGAIN
    assert [name for name, text in made.items() if kept[name] != text] == [], AGAIN


def test_a_page_begins_with_what_was_reconstructed(made: dict[str, str]) -> None:
    begun = 0
    for recipe in map(find, recipes()):
        first, second = made[f"{recipe.name}.md"].split("\n\n")[2:4]
        if recipe.reconstructed:
            assert first == f"**Reconstructed:** {recipe.reconstructed}."
            begun += second == recipe.doc.split("\n\n")[0]
        else:
            assert first == recipe.doc.split("\n\n")[0]
    assert begun > 20


def test_every_page_has_its_recipes_words_and_a_picture_of_every_job(made: dict[str, str]) -> None:
    for name in recipes():
        page, recipe = made[f"{name}.md"], find(name)
        assert recipe.doc in page
        assert str(recipe.paper) in page
        assert f"]({name}.svg)" in page
        picture = ElementTree.fromstring(made[f"{name}.svg"])
        titles = {title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")}
        began = {s.job for s in schedule(name).segments or () if s.start_seconds < HORIZON}
        assert titles == {schedule(name).jobs.name[job] for job in began}, name
        assert f"[{name}]({name}.md)" in made["README.md"]


def test_every_page_of_a_recipe_for_trials_says_what_became_of_each_trial(
    made: dict[str, str],
) -> None:
    examples = set()
    for name in recipes("tuning"):
        page, recipe, run = made[f"{name}.md"], find(name), tuning_pages.searched(name)
        assert recipe.doc in page
        assert f"[{name}]({name}.md)" in made["README.md"]
        rows = page.partition("| best loss |")[2].split("[All recipes]")[0].split("\n|")[2:]
        assert len(rows) == run.metrics["trials"], name
        examples.add(page.partition("## On a small example")[2].partition("| trial")[2])
    assert len(examples) == len(recipes("tuning")), "no two do the same"


def test_bars_lie_where_the_jobs_ran() -> None:
    run = schedule("fifo")
    first = min(run.segments or (), key=lambda s: (s.start_seconds, s.job))
    assert (first.job, first.start_seconds, first.devices) == (0, 0.0, 0b1111)
    bars = [
        each.attrib
        for each in ElementTree.fromstring(draw(run, HORIZON))
        if each.tag.endswith("rect") and each.attrib.get("fill") == COLOURS[0]
    ]
    scale = (WIDTH - LEFT - RIGHT) / HORIZON
    assert float(bars[0]["x"]) == LEFT
    assert float(bars[0]["width"]) == pytest.approx(JOBS[0][2] * 60 * scale, abs=0.06)


def test_what_lies_beyond_the_horizon_is_cut() -> None:
    picture = ElementTree.fromstring(draw(schedule("fifo"), 600.0))
    bars = [each.attrib for each in picture if each.tag.endswith("rect")][1:]
    assert bars
    assert all(float(bar["x"]) + float(bar["width"]) <= WIDTH - RIGHT + 0.6 for bar in bars)


def test_a_run_without_segments_cannot_be_drawn() -> None:
    run = by_hand()
    run.segments = None
    with pytest.raises(BadInput, match="no record of which job ran where"):
        draw(run, 60.0)


def test_a_page_of_a_recipe_over_requests_has_a_picture_of_its_batches(
    made: dict[str, str],
) -> None:
    for name in recipes("requests"):
        page, recipe, served = made[f"{name}.md"], find(name), serving_pages.played(name)
        assert recipe.doc in page
        assert f"]({name}.svg)" in page
        assert f"[{name}]({name}.md)" in made["README.md"]
        count = len(served.requests)
        assert f"{served.in_time} of {count} are in time, {served.dropped} dropped" in page
        drawn = [
            title.text
            for rect in ElementTree.fromstring(made[f"{name}.svg"])
            if rect.tag.endswith("rect")
            for title in rect
        ]
        ran = [ran for ran in served.batches if ran.began < serving_pages.HORIZON]
        assert drawn == [f"{'ab'[each.model]}, {each.size}: {each.reason}" for each in ran], name


def test_a_batch_is_drawn_where_it_ran_and_a_request_as_it_ended() -> None:
    first = serving_pages.played("serve.no-batch").batches[0]
    assert (first.lane, first.began, first.ended, first.size) == (0, 0, 4, 1)
    picture = ElementTree.fromstring(serving_pages.drawing(serving_pages.played("serve.no-batch")))
    box = next(each.attrib for each in picture if each.tag.endswith("rect") and len(each))
    scale = (serving_pages.WIDTH - serving_pages.LEFT - serving_pages.RIGHT) / 100
    assert float(box["x"]) == serving_pages.LEFT
    assert float(box["width"]) == pytest.approx(4 * scale - 1, abs=0.06)
    nanily = serving_pages.played("nanily")
    words = [
        title.text
        for mark in ElementTree.fromstring(serving_pages.drawing(nanily))
        if mark.tag.endswith(("path", "circle"))
        for title in mark
    ]
    assert words.count("dropped") == nanily.dropped > 0
    assert words.count("in time") == nanily.in_time


def test_a_page_of_a_recipe_for_services_has_a_picture_of_its_replicas(
    made: dict[str, str],
) -> None:
    for name in recipes("serving"):
        page, run = made[f"{name}.md"], scaling_pages.scaled(name)
        figures, series = run.services["web"], run.service_windows["web"]
        assert find(name).doc in page
        assert f"[{name}]({name}.md)" in made["README.md"]
        assert f"]({name}.svg)" in page
        assert f"{figures['attainment']:.1%} of {figures['requests']:,} requests" in page
        picture = ElementTree.fromstring(made[f"{name}.svg"])
        words = [title.text for each in picture for title in each]
        bad = [a or b for a, b in zip(series["late"], series["dropped"], strict=True)]
        assert words.count("late or dropped") == sum(bool(each) for each in bad), name
        assert words.count("came") == len(series["arrivals"])


def test_replicas_are_drawn_over_the_load_that_they_can_answer() -> None:
    """One replica answers 10 a second, a quarter of the height; the peak has four all the time."""
    height = scaling_pages.BOTTOM - scaling_pages.TOP

    def line(name: str) -> list[float]:
        picture = ElementTree.fromstring(scaling_pages.chart(scaling_pages.scaled(name)))
        (path,) = [each for each in picture if each.tag.endswith("path")]
        return [float(point.split()[1]) for point in path.attrib["d"][1:].split("L")]

    assert set(line("scale.static-peak")[2:]) == {scaling_pages.TOP}
    grown = line("scale.threshold")
    assert grown[2] == scaling_pages.BOTTOM - height / 4
    assert min(grown) == scaling_pages.TOP
    assert grown[-1] == grown[2]
