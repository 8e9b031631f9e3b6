"""The report: one file, well formed, asking nobody, and safe against the names in a trace."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.lab import words
from ganger.lab.figures import completion_times
from ganger.lab.metrics import Estimate, Group, aggregate, confidence
from ganger.lab.origin import Origin, origin_of
from ganger.lab.report import page as page_parts
from ganger.lab.report import render, series, write_report
from ganger.lab.result import Run, Segment

from .builders import NAN, RECIPES, by_hand, nothing, run_of, simulated, table

VOID = {"meta", "link", "br", "img", "input", "hr"}
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


class Page(HTMLParser):
    """Fails on a tag closed out of order; keeps ids, tags and the embedded data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.data = ""
        self.words = ""
        self.in_data = False
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.in_data = ("id", "data") in attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.in_data = False

    def handle_data(self, data: str) -> None:
        if self.in_data:
            self.data += data
        elif self.open and self.open[-1] not in ("script", "style"):
            self.words += data

    @property
    def charts(self) -> dict[str, Any]:
        """What the script draws from."""
        found: dict[str, Any] = json.loads(self.data)
        return found


def several() -> list[Run]:
    """Three recipes, two seeds, two loads."""
    return [
        simulated(recipe, seed, jobs=60, nodes=4, load=load)
        for load in (0.8, 1.6)
        for recipe in ("fifo", "srtf", "las")
        for seed in (0, 1)
    ]


def test_every_section_is_there() -> None:
    page = Page(render(several(), title="Title of mine"))
    sections = [
        "summary",
        "comparison",
        "jct",
        "distributions",
        "time",
        "tenants",
        "load-sweep",
        "gantt",
        "reading",
        "provenance",
    ]
    assert [name for name in page.ids if name in sections] == sections
    assert len(page.ids) == len(set(page.ids))
    assert "Title of mine" in page.words
    assert [p["load"] for p in page.charts["panels"]] == [0.8, 1.6]


def test_sections_that_would_be_empty_are_left_out() -> None:
    page = Page(render([simulated("fifo", jobs=70)]))
    assert "load-sweep" not in page.ids
    assert "gantt" not in page.ids


def test_nothing_is_fetched() -> None:
    text = render(several())
    assert not re.search(
        r"https?:|//[a-z]+\.[a-z]|@import|url\(|\bfetch\(|XMLHttp|<link|src=", text
    )
    assert "default-src 'none'" in text
    assert "innerHTML" not in text


def test_names_are_text() -> None:
    run = by_hand()
    run.recipe = run.trace = run.cluster = EVIL
    run.jobs.name = [EVIL] * 4
    run.jobs.tenant = [EVIL] * 4
    text = render([run], title=EVIL)
    page = Page(text)
    assert "<script>alert" not in text
    assert "<img" not in text
    assert page.tags.count("script") == 5
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.charts["labels"] == [EVIL]
    assert EVIL in page.words


def test_same_runs_same_page(tmp_path: Path) -> None:
    write_report(several(), tmp_path / "a.html", "t")
    write_report(several(), str(tmp_path / "b.html"), "t")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_size_does_not_grow_with_jobs() -> None:
    n = 200_000
    rng = np.random.default_rng(1)
    arrival = np.sort(rng.uniform(0, 1e7, n))
    wait, takes = rng.exponential(300, n), rng.exponential(3000, n)
    jobs = table([], [], [], [])
    jobs = table(arrival.tolist(), [0.0] * n, [1.0] * n, takes.tolist())
    jobs.first_start, jobs.finish = arrival + wait, arrival + wait + takes
    jobs.tenant = [f"user-{i % 5000}" for i in range(n)]
    jobs.gpus = rng.integers(1, 100, n)
    run = run_of(table([0.0], [0.0], [1.0], [1.0]), 512)
    run.jobs = jobs
    line = run.timeline
    line.seconds = np.linspace(0, 1e7, n)
    line.gpus_held = line.gpus_running = rng.uniform(0, 512, n)
    line.jobs_pending = line.gpus_pending = rng.integers(0, 50, n)
    line.gpus_up = np.full(n, 512)
    text = render([run])
    assert len(text) < 150_000
    found = Page(text).charts["panels"][0]["groups"][0]
    assert max(len(found["jct"]["x"]), len(found["time"]["held"])) <= 600


def test_edge_runs_have_a_page() -> None:
    waiting = run_of(table([0.0], [NAN], [NAN], [5.0], state=["pending"]))
    for runs in ([nothing()], [waiting], [nothing(), waiting, by_hand()]):
        Page(render(runs))
    assert (
        "1 job was not over at the end and is not in the JCT figures."
        in Page(render([waiting])).words
    )
    with pytest.raises(BadInput, match="at least one run"):
        render([])


def test_headline_is_the_factor_of_the_means() -> None:
    fast, slow = by_hand(), by_hand()
    fast.recipe, fast.jobs.finish = "srtf", fast.jobs.finish - 5
    slow.jobs.finish = slow.jobs.finish + 25
    groups = aggregate([slow, fast])
    assert words.headline(groups) == "srtf finishes jobs 2.0× sooner on average than fifo."
    assert words.headline(groups[:1]) == "Under fifo a job takes 1m 00s on average."
    assert words.headline(aggregate([nothing()])) == "No job finished."
    assert "One seed only" in " ".join(words.remarks(groups))


def test_headline_does_not_claim_what_seeds_do_not_show() -> None:
    runs = []
    for seed, shift in enumerate((-8.0, 20.0)):
        base, other = by_hand(), by_hand()
        other.recipe, other.jobs.finish = "las", other.jobs.finish - shift
        base.seed = other.seed = seed
        runs += [base, other]
    assert "to be sure" in words.headline(aggregate(runs))


def led(*ran: tuple[str, str, float]) -> list[Group]:
    """Groups of one seed: (recipe, what it knows, how much later each job finishes)."""
    runs = []
    for recipe, knows, later in ran:
        run = by_hand()
        run.recipe, run.knows, run.jobs.finish = recipe, knows, run.jobs.finish + later
        runs.append(run)
    return aggregate(runs)


def test_the_headline_leads_with_what_can_be_deployed_and_an_oracle_is_the_bound() -> None:
    groups = led(
        ("fifo", "nothing", 65),
        ("srtf", "truth", -10),
        ("las", "nothing", 15),
        ("sjf", "history", 20),
    )
    assert words.headline(groups) == "las finishes jobs 2.0× sooner on average than fifo."
    said = " ".join(words.remarks(groups))
    assert "srtf knows how long jobs truly take, which no deployed policy can know" in said
    assert "4.0× sooner than fifo is the bound" in said


def test_where_only_oracles_ran_the_headline_says_what_they_were_told() -> None:
    groups = led(("fifo", "nothing", 65), ("srtf", "truth", 15))
    assert words.headline(groups) == (
        "srtf, which knows how long jobs truly take, finishes jobs 2.0× sooner on average "
        "than fifo."
    )
    assert "bound" not in " ".join(words.remarks(groups))


def test_of_recipes_that_know_speeds_only_nobody_says_that_they_know_durations() -> None:
    groups = led(("fifo", "nothing", 65), ("antman", "speeds", 15))
    assert words.headline(groups) == (
        "antman, which knows how fast jobs truly run, finishes jobs 2.0× sooner on average "
        "than fifo."
    )
    groups = led(("fifo", "nothing", 65), ("antman", "noisy speeds", -10), ("las", "nothing", 15))
    assert (
        "antman knows roughly how fast jobs run, which a deployed policy knows only of models that"
        " were measured: 4.0× sooner than fifo is the bound"
    ) in " ".join(words.remarks(groups))


def test_where_no_deployable_recipe_beats_fifo_the_headline_says_so() -> None:
    groups = led(("fifo", "nothing", 0), ("srtf", "truth", -10), ("las", "nothing", 15))
    assert words.headline(groups).startswith("No recipe that can be deployed finishes jobs sooner")


def test_recipes_within_noise_of_the_best_are_named() -> None:
    said = words.remarks(
        led(("fifo", "nothing", 65), ("las", "nothing", 15), ("tiresias", "nothing", 15.001))
    )
    assert "Within noise of las: tiresias." in said


def test_seeds_that_change_nothing_are_no_confidence_interval() -> None:
    runs = []
    for seed in range(5):
        for recipe, later in (("fifo", 35.0), ("las", 0.0)):
            run = by_hand()
            run.recipe, run.seed, run.jobs.finish = recipe, seed, run.jobs.finish + later
            runs.append(run)
    said = " ".join(words.remarks(aggregate(runs)))
    assert "All 5 seeds gave the same figures" in said
    assert "confidence" not in said
    page = Page(render(runs)).words
    assert "\u00b1 0" not in page


def test_the_report_says_what_it_was_made_of() -> None:
    origin = Origin("ganger simulate jobs.csv", (("jobs.csv", "ab12"),), "2026-11-22 23:00 UTC")
    page = Page(render([by_hand()], origin=origin)).words
    assert "Commandganger simulate jobs.csv" in page
    assert "jobs.csv (SHA-256 ab12)" in page
    assert "Made2026-11-22 23:00 UTC" in page
    assert "Seeds0" in page
    assert "Loads" not in page, "nobody asked for one"
    heavy = by_hand()
    heavy.load = 1.5
    assert "Loads1.5" in Page(render([heavy])).words


def test_an_origin_has_the_digest_of_each_file(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("abc")
    found = origin_of("x", [tmp_path / "jobs.csv", "8x8xV100", tmp_path])
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert found.inputs == ((str(tmp_path / "jobs.csv"), digest),)
    assert found.made.endswith(" UTC")


def test_charts_of_one_seed_say_so_where_tables_are_means() -> None:
    page = Page(render(several())).words
    said = "This is the run of seed 0 alone; the tables above are means over 2 seeds."
    assert page.count(said) == 2
    assert "means over" not in Page(render([by_hand()])).words


def test_recipes_without_a_gantt_chart_are_named() -> None:
    large = by_hand()
    large.recipe = "las"
    large.segments = [Segment(0, float(i), i + 1.0, 0, 1) for i in range(series.MOST_SEGMENTS + 1)]
    page = Page(render([by_hand(), large])).words
    assert "Not drawn: las: 4,001 stays on a node are too many to draw (at most 4,000)." in page


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (1.0, 6.89e-17, "1"),
        (1.0, 0.0, "1"),
        (12345.678, 123.4, "12,346 \u00b1 123"),
        (0.12345, 0.0123, "0.123 \u00b1 0.012"),
        (123456.7, NAN, "123,457"),
        (0.5, NAN, "0.5"),
        (0.0, NAN, "0"),
        (35.25, 1.5, "35.2 \u00b1 1.5"),
    ],
)
def test_figures_have_the_digits_that_mean_something(mean: float, half: float, text: str) -> None:
    seeds = confidence([mean, mean + 2.3e-16]) if half == 6.89e-17 else Estimate(mean, half)
    assert page_parts.estimate(seeds) == text


def test_slices_keep_the_integral() -> None:
    line = by_hand().timeline
    edges = np.linspace(0, 70, 14)
    found = series.averages(line.seconds, line.gpus_held, edges)
    assert (found * np.diff(edges)).sum() == pytest.approx(105)


def test_distribution_stays_below_one_for_jobs_that_never_got_there() -> None:
    run = by_hand()
    run.jobs.finish[3], run.jobs.state[3] = NAN, "running"
    found = series.distribution(aggregate([run])[0], completion_times)
    assert found == {"x": [10.0, 30.0, 34.0], "y": [0.25, 0.5, 0.75]}


def test_gang_classes() -> None:
    few = aggregate([by_hand()])
    assert series.gang_labels(few) == ["1"]
    sizes = [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 64]
    n = len(sizes)
    many = aggregate([run_of(table([0.0] * n, [0.0] * n, [1.0] * n, [1.0] * n, gpus=sizes), 200)])
    assert series.gang_edges(many) == [1, 2, 4, 8, 16, 64]
    assert series.gang_labels(many) == ["1", "2", "3\u20134", "5\u20138", "9\u201316", "64"]
    assert series.by_gang(many[0], series.gang_edges(many))["jobs"] == [1, 1, 1, 4, 4, 1]


def test_small_tenants_are_one_row() -> None:
    run = simulated("fifo", jobs=60)
    run.jobs.tenant = [f"t{i % 20:02}" for i in range(60)]
    rows = series.tenants(aggregate([run]))
    assert len(rows) == series.MOST_TENANTS + 1
    assert rows[-1]["tenant"] == "8 others"
    assert sum(row["cells"][0]["share"] for row in rows) == pytest.approx(1)


def test_gantt_blocks() -> None:
    assert series.blocks(Segment(0, 0, 1, 0, 0b1011001)) == [(0, 1), (3, 2), (6, 1)]
    found = series.gantt(by_hand())
    assert found is not None
    assert found["bars"][0] == [0, 0.0, 30.0, 0, 1]
    run = by_hand()
    run.node_gpus = [series.MOST_GANTT_GPUS + 1]
    assert series.gantt(run) is None


def test_colours_follow_the_recipe_over_all_loads() -> None:
    panels = Page(render(several())).charts["panels"]
    assert [[g["series"] for g in p["groups"]] for p in panels] == [[0, 1, 2], [0, 1, 2]]
    assert len(RECIPES) <= 12
