"""The report of searches: what it shows of simulated and live ones, and that it draws it."""

from __future__ import annotations

import math
import os
import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.client.answering.families import ReportAnswer
from ganger.client.answers import JobDetail
from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec
from ganger.core.tuning.space import Point
from ganger.lab.report.searches.build import render, write_report
from ganger.lab.report.searches.charts import ladder
from ganger.lab.report.searches.importance import importance
from ganger.lab.tuning.detail import Paid, Reported
from ganger.lab.tuning.live_runs import run_of
from ganger.lab.tuning.result import TuningRun
from ganger.lab.tuning.run import Place, run_experiment
from ganger.mechanisms.tuning.trials import Mode
from ganger.workloads.curves.parametric import read_formula
from ganger.workloads.experiment.reading import read_experiment
from lab.test_report import EVIL, Page
from lab.tuning.searches import experiment, table

DIGITS = Path(__file__).parents[2] / "examples" / "tuning" / "digits.toml"
PRICED = ClusterSpec(
    (NodeSpec(count=1, gpus=2, gpu_type="T4"),), gpu_types=(GpuType("T4", price=3.0),)
)


@cache
def simulated(seeds: int = 1) -> tuple[TuningRun, ...]:
    """Two recipes on curves made up."""
    found = read_experiment(DIGITS)
    source = read_formula("parametric:epochs=27,noise=0.02,diverge=0.05")
    return tuple(
        run_experiment(found, source, recipe, seed, watch=True)
        for recipe in ("tune.random(trials=12)", "tune.asha(trials=30)")
        for seed in range(seeds)
    )


def by_hand() -> TuningRun:
    """Three trials of three epochs of a second on two priced GPUs: c0 and c1 at 0 s, c2 at 3 s."""
    source = table([9, 8, 7], [6, 5, 4], [3, math.nan, math.nan])
    return run_experiment(
        experiment(2, trials=3), source, "tune.random", 0, Place(PRICED), watch=True
    )


def test_every_section_is_there_in_words() -> None:
    page = Page(render(simulated(2), "Title of mine"))
    sections = "summary comparison best trials curves ladder parameters gantt reading provenance"
    assert [name for name in page.ids if name in sections.split()] == sections.split()
    assert len(page.ids) == len(set(page.ids))
    assert "Title of mine" in page.words
    assert "This is the run of seed 0 alone" in page.words
    assert "tune.random(trials=12)" in page.words
    assert "epsilon squared" in page.words  # the method stands beside the figure


def test_what_is_drawn_of_a_search_worked_out_by_hand() -> None:
    run = by_hand()
    assert run.detail is not None
    assert run.detail.curves[1] == Reported([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [6.0, 5.0, 4.0])
    assert [(s.job, round(s.start_seconds), s.devices) for s in run.detail.segments] == [
        (0, 0, 1),
        (1, 0, 2),
        (2, 3, 1),
    ]
    assert run.detail.paid[-1] == pytest.approx(Paid(5.0, 10 / 3600, 30 / 3600), rel=0.01)
    assert run.metrics["gpu_hours"] == pytest.approx(run.detail.paid[-1].gpu_hours)
    assert run.metrics["cost"] == pytest.approx(run.detail.paid[-1].money)
    chart = Page(render([run])).charts["panels"][0]["groups"][0]
    assert chart["best"]["seconds"][:5] == [[1, 6], [2, 6], [2, 5], [3, 5], [3, 4]]
    assert chart["best"]["seconds"][-2:] == [[4, 3], [5, 3]]
    assert chart["best"]["money"][-2:] == [[0.006667, 3], [0.008333, 3]]  # 2 GPUs at 3 an hour
    search = chart["search"]
    assert [row[:3] for row in search["trials"]] == [
        [2, "c2", "diverged"],
        [1, "c1", "complete"],
        [0, "c0", "complete"],
    ]
    assert search["curves"][0] == [[1, 3], [2, None]]
    assert (search["of"], search["gantt"]["nodes"], search["importance"]) == (3, [2], [])


def test_rungs_are_where_trials_were_left_behind() -> None:
    curves = [
        Reported([1.0, 3.0], [1.0, 3.0], [5.0, 4.0]),
        Reported([1.0], [1.0], [6.0]),
        Reported([1.0], [1.0], [math.nan]),
        Reported(),
    ]
    assert ladder(curves, Mode.MIN) == [
        {"epoch": 1, "reached": 3, "on": 1, "best": 5, "middle": 6},
        {"epoch": 3, "reached": 1, "on": 0, "best": 4, "middle": 4},
    ]


def test_importance_by_hand() -> None:
    """Ranks 0 to 9. `a` halves them: between bins 62.5 of 82.5, within 20 on 8 degrees, so
    1 - (20 / 8) / (82.5 / 9). `b` says nothing that chance would not; `c` never differs."""
    points: list[Point] = [{"a": "xy"[at // 5], "b": "uv"[at % 2], "c": 1} for at in range(10)]
    found = importance(points, [float(at) for at in range(10)])
    assert found == {"a": pytest.approx(1 - (20 / 8) / (82.5 / 9)), "b": 0.0}
    assert importance(points[:9], [1.0] * 9) == {}
    assert importance(points, [1.0] * 10) == {}


def test_importance_of_numbers_and_of_what_some_trials_lack() -> None:
    points: list[dict[str, Any]] = [
        {"lr": 10.0**-at, "m": 0.5} if at % 2 else {"lr": 10.0**-at} for at in range(20)
    ]
    found = importance(points, [math.inf if at > 15 else abs(at - 5.0) for at in range(20)])
    assert next(iter(found)) == "lr"
    assert found["lr"] > 0.5 > found["m"]


def test_names_are_text() -> None:
    run = by_hand()
    evil = [
        replace(trial, configuration=EVIL, point={EVIL: EVIL, "y": at})
        for at, trial in enumerate(run.trials)
    ]
    run = replace(run, recipe=EVIL, experiment=EVIL, metric=EVIL, cluster=EVIL, trials=evil)
    text = render([run], EVIL)
    page = Page(text)
    assert "<script>alert" not in text
    assert "<img" not in text
    assert page.tags.count("script") == 4
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert EVIL in page.words
    plain = render([by_hand()])
    assert not re.search(r"https?:|@import|url\(|\bfetch\(|XMLHttp|<link|src=|innerHTML", plain)


def test_a_search_of_which_nothing_came_has_a_page_and_mixed_metrics_have_none() -> None:
    run = by_hand()
    assert run.detail is not None
    none = replace(
        run,
        trials=[],
        best_by_time=[],
        metrics={**run.metrics, "best": None, "best_at_seconds": None},
        detail=replace(run.detail, curves=[], segments=[]),
    )
    assert "No trial reported loss." in Page(render([none])).words
    with pytest.raises(BadInput, match="judged by"):
        render([run, replace(run, metric="acc")])
    with pytest.raises(BadInput, match="at least one search"):
        render([])


def test_many_trials_keep_the_page_small_and_it_says_so() -> None:
    run = simulated()[1]
    assert run.detail is not None
    many = replace(
        run,
        trials=[replace(run.trials[at % 30], number=at) for at in range(3000)],
        detail=replace(run.detail, curves=[run.detail.curves[at % 30] for at in range(3000)]),
    )
    text = render([many])
    assert "Of the 3,000 trials of tune.asha(trials=30), 300 are drawn" in Page(text).words
    assert len(text) < 400_000


# ------------------------------------------------------------------ live


def detail_of(job: int, **more: Any) -> JobDetail:
    """What the daemon answers about a job that says nothing else."""
    fields: dict[str, Any] = {
        "job": job, "label": str(job), "name": "s", "user": "u", "tenant": "u",
        "state": "COMPLETED", "code": "CD", "reason": "", "gpus": 1, "gpu_types": [],
        "priority": 0, "submitted": 90.0,
        "started": 100.0, "finished": 160.0, "ran": 60.0, "time_limit": None, "nodes": [],
        "attempt": 1, "preemptions": 0, "command": [], "script": False, "cwd": "", "output": "",
        "error": "", "cpus": 1.0, "memory": 0, "workers": 1, "least_gpus": 1, "most_gpus": 1,
        "deadline": None, "estimate": None, "begin": None, "after": [], "on_preempt": "requeue",
        "kind": "train", "attained_gpu_seconds": 0.0, "pending": 0.0, "retries": 0, "attempts": [],
        "progress": {},
    }  # fmt: skip
    return msgspec.convert(fields | more, JobDetail)


def attempt(started: float, ended: float | None, *devices: str) -> dict[str, Any]:
    return {"attempt": 1, "started": started, "ended": ended, "outcome": "", "devices": devices}


def live() -> TuningRun:
    """Trial 2 reports twice and trains its second epoch again; trial 3 runs on, on a node that has
    left the cluster."""
    child = {"name": "t", "gpus": 1, "step": None, "value": None}
    family = {
        "best": 2, "metric": "acc", "more_is_better": True, "recipe": "tune.asha",
        "children": [
            {**child, "job": 2, "state": "COMPLETED", "params": {"lr": "0.1"}},
            {**child, "job": 3, "state": "RUNNING", "params": {"lr": "0.01"}},
        ],
    }  # fmt: skip
    search = detail_of(
        1,
        kind="tune",
        family=family,
        finished=None,
        state="RUNNING",
        attempts=[attempt(100, None, "box:0,1")],
    )
    trials = [
        detail_of(2, params={"lr": "0.1"}, attempts=[attempt(100, 130, "box:0")]),
        detail_of(3, params={"lr": "0.01"}, attempts=[attempt(110, None, "gone:5")]),
    ]
    told = ((2, 1, 5, 0.5), (2, 2, 9, 0.6), (2, 2, 20, 0.7), (3, 1, 4, 0.9), (9, 1, 1, 1.0))
    reports = [
        ReportAnswer(id=at, job=job, step=step, seconds=seconds, value=value, metrics={})
        for at, (job, step, seconds, value) in enumerate(told)
    ]
    return run_of(search, trials, reports, {"box": 4}, 148.0)


def test_a_live_search_is_what_the_daemon_answered() -> None:
    run = live()
    assert run.recipe == "tune.asha (1)"
    assert run.detail is not None
    assert run.detail.nodes == {"box": 4, "gone": 6}
    assert run.detail.curves[0] == Reported([1.0, 2.0], [5.0, 20.0], [0.5, 0.7])
    assert run.best_by_time == [(5.0, 0.5), (9.0, 0.6), (14.0, 0.9)]
    assert [each.state for each in run.trials] == ["completed", "running"]
    assert [each.gpu_hours for each in run.trials] == pytest.approx([30 / 3600, 38 / 3600])
    assert run.metrics["gpu_hours"] == pytest.approx(2 * 48 / 3600)
    page = Page(render([run]))
    assert "tune.asha (1) found acc 0.9 after 14.0 s." in page.words
    gantt = page.charts["panels"][0]["groups"][0]["search"]["gantt"]
    assert (gantt["names"], gantt["nodes"]) == (["box", "gone"], [4, 6])


# ------------------------------------------------------------------ drawn


def test_everything_is_drawn_in_a_browser_without_a_complaint(tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if not chromium:
        absent = "NO CHROMIUM HERE: THE REPORT OF SEARCHES IS NOT DRAWN (apt-get install chromium)"
        if os.environ.get("GANGER_REQUIRE_BROWSER"):
            pytest.fail(absent)
        pytest.skip(absent)
    from playwright.sync_api import sync_playwright

    write_report([*simulated(2), replace(by_hand(), recipe="by hand")], tmp_path / "r.html")
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width in (390, 1280):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto((tmp_path / "r.html").as_uri())
            drawn = page.eval_on_selector_all(
                "[data-chart]",
                "all => all.map((b) => [b.dataset.chart, b.querySelectorAll('svg *').length])",
            )
            assert {name for name, many in drawn if many > 3} == {
                "best",
                "curves",
                "ladder",
                "importance",
                "slices",
                "parallel",
                "gantt",
            }
            page.locator("[data-one=curves] label", has_text="by hand").click()
            assert page.locator("[data-chart=curves] path.trial").count() == 3
            assert page.locator("[data-chart=importance]").inner_text().startswith("Too few")
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width  # nothing but tables and wide charts scrolls sideways
        browser.close()
    assert complaints == []
