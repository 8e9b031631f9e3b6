"""Experiments of several tenants beside training in one run: the scenario file, and figures."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ganger.cli.main import cli
from ganger.core.errors import BadInput

EXAMPLES = Path(__file__).parents[3] / "examples" / "tuning"
SCENARIO = """format = "ganger.scenario/1"
cluster = "1x8xT4"
[[experiments]]
file = "e.toml"
curves = "c.csv"
tenant = "vision"
[training]
recipes = ["fifo"]
"""
EXPERIMENT = """format = "ganger.experiment/1"
name = "lr"
metric = "loss"
recipe = "tune.asha"
parallelism = 3
deadline = "1h"
[budget]
gpu_hours = 2
"""
ROWS = [
    f"c{at},{0.1 * (at + 1):g},{epoch},{epoch * (at + 1)},{1 + at / 10 - epoch / 100:g}"
    for at in range(9)
    for epoch in range(1, 10)
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    (tmp_path / "c.csv").write_text(
        "\n".join(["configuration,lr,epoch,seconds,loss", *ROWS]) + "\n"
    )
    (tmp_path / "jobs.csv").write_text("job,submitted,duration,gpus\na,0,100,8\nb,0,50,4\n")
    (tmp_path / "s.toml").write_text(SCENARIO)
    return tmp_path


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["simulate", *map(str, words), "--quiet"])


def figures(folder: Path, *words: object) -> dict[str, Any]:
    done = run(folder / "s.toml", "--json", "--validate", *words)
    assert done.exit_code == 0, (done.output, done.exception)
    (only,) = json.loads(done.output)["runs"]
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize("recipe", ["tune.asha", "tune.sha", "tune.pbt(trials=4)", "rubberband"])
def test_alone_on_a_cluster_a_search_does_what_it_does_by_itself(folder: Path, recipe: str) -> None:
    words = (folder / "e.toml", "--curves", folder / "c.csv", "-r", recipe, "--json")
    (alone,) = json.loads(run(*words, "--cluster", "1x8xT4").output)["runs"]
    (folder / "s.toml").write_text(
        SCENARIO.replace("[training]", f'recipe = "{recipe}"\n[training]')
    )
    (beside,) = figures(folder)["experiments"]
    assert (beside["experiment"], beside["tenant"], beside["recipe"]) == ("lr", "vision", recipe)
    same = {name: value for name, value in alone["metrics"].items() if name != "simulation"}
    assert {name: beside["metrics"][name] for name in same} == same
    assert same["trials"] > 3
    assert same["deadline_kept"]
    assert same["budget_kept"]


def test_it_waits_behind_training_and_is_no_job_of_the_figures(folder: Path) -> None:
    """Job a holds all eight GPUs for 100 s, then b four of them for 50 s: the search begins with
    b. Times count from its submission."""
    (folder / "s.toml").write_text(SCENARIO + 'trace = "jobs.csv"\n')
    only = figures(folder)
    (search,) = only["experiments"]
    assert search["metrics"]["waited_seconds"] == 100
    assert search["metrics"]["best_at_seconds"] > 100
    assert only["metrics"]["jobs_submitted"] == 2
    assert only["metrics"]["jct_mean_seconds"] == (100 + 150) / 2
    assert only["metrics"]["services"] == 0


def test_two_searches_of_two_tenants_and_each_trial_in_a_file(folder: Path) -> None:
    second = (
        '[[experiments]]\nfile = "e.toml"\ncurves = "parametric:epochs=9"\nname = "other"\n'
        'tenant = "speech"\nrecipe = "tune.random(trials=4)"\nat = "30s"\n[training]'
    )
    (folder / "e.toml").write_text(EXPERIMENT + "[space.lr]\nlow = 0.1\nhigh = 1.0\n")
    (folder / "s.toml").write_text(SCENARIO.replace("[training]", second))
    only = figures(folder, "--per-trial", folder / "t.csv")
    first, other = only["experiments"]
    assert [each["tenant"] for each in (first, other)] == ["vision", "speech"]
    assert (first["metrics"]["trials"], other["metrics"]["trials"]) == (9, 4)
    assert other["metrics"]["reports"] == 36
    rows = list(csv.DictReader(io.StringIO((folder / "t.csv").read_text())))
    by_search = [row["experiment"] for row in rows]
    assert (by_search.count("lr"), by_search.count("other")) == (9, 4)
    best = min(float(row["best"]) for row in rows if row["experiment"] == "other" and row["best"])
    assert best == pytest.approx(other["metrics"]["best"])
    assert {row["cluster_recipe"] for row in rows} == {"fifo"}
    hours = sum(float(row["gpu_hours"]) for row in rows if row["experiment"] == "lr")
    assert hours == pytest.approx(first["metrics"]["trial_gpu_hours"])
    assert first["metrics"]["trial_gpu_hours"] <= first["metrics"]["gpu_hours"]


def test_scaling_maps_count_beside_others_too(folder: Path) -> None:
    """On two GPUs a trial is 1.5 times as fast as on one, where the file says so, and the one that
    is left near the deadline grows."""
    more = EXPERIMENT.replace('recipe = "tune.asha"', 'recipe = "hypersched"')
    more = more.replace('"1h"', '"25s"') + "[resources]\nmost_gpus = 3\nscaling = [1, 1.5, 1.8]\n"
    (folder / "e.toml").write_text(more)
    words = (folder / "e.toml", "--curves", folder / "c.csv", "--json", "--cluster", "1x8xT4")
    (alone,) = json.loads(run(*words).output)["runs"]
    (beside,) = figures(folder)["experiments"]
    for name in ("trials", "reports", "best", "best_at_seconds", "gpu_hours"):
        assert beside["metrics"][name] == pytest.approx(alone["metrics"][name]), name
    (folder / "e.toml").write_text(more.replace("[1, 1.5, 1.8]", "[1, 1, 1]"))
    (slow,) = figures(folder)["experiments"]
    assert slow["metrics"]["reports"] < beside["metrics"]["reports"]


def test_money_is_paid_at_the_prices_of_the_scenario(folder: Path) -> None:
    (folder / "s.toml").write_text("prices = { T4 = 36.0 }\n" + SCENARIO)
    only = figures(folder)
    (search,) = only["experiments"]
    assert search["metrics"]["cost"] == pytest.approx(36 * search["metrics"]["gpu_hours"])


def test_a_run_with_searches_is_decided_again_from_its_log(folder: Path) -> None:
    (folder / "s.toml").write_text(SCENARIO + 'trace = "jobs.csv"\n')
    log = folder / "run.log"
    assert run(folder / "s.toml", "--log", log).exit_code == 0
    again = CliRunner().invoke(cli, ["replay", str(log), "--check"])
    assert again.output.endswith("steps replayed, every plan is the same\n")


def test_the_example_says_what_became_of_each() -> None:
    done = run(EXAMPLES / "beside.toml")
    assert done.exit_code == 0, done.output
    said = done.output
    assert "experiments" in said
    assert "digits" in said
    assert "tune.sha" in said
    assert "0.246" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SCENARIO.replace("[training]\n", "").replace('recipes = ["fifo"]\n', ""), "which recipe"),
        (SCENARIO.split("[[exp")[0] + '[training]\nrecipes = ["fifo"]\n', "it asks for nothing"),
        (SCENARIO.replace("c.csv", "parametric"), "parametric curves need a space"),
        (SCENARIO.replace('"e.toml"', '"no.toml"'), "no.toml"),
        (SCENARIO.replace("[training]", 'at = "soon"\n[training]'), "'soon' is not a valid"),
        (SCENARIO.replace("[training]", 'recipe = "fifo"\n[training]'), "does not decide over the"),
        (SCENARIO.replace("1x8xT4", "1x2xT4"), "need 3 GPUs, and the cluster has 2"),
        (SCENARIO.replace("[training]", '[[experiments]]\nfile = "e.toml"\ncurves = "c.csv"\n'
                          "[training]"), "'lr'"),
        (SCENARIO.replace("[training]", 'name = "a"\n[training]') + 'trace = "jobs.csv"\n',
         "two jobs are named 'a'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_error(folder: Path, text: str, message: str) -> None:
    (folder / "s.toml").write_text(text)
    failed = run(folder / "s.toml")
    assert isinstance(failed.exception, BadInput), (failed.output, failed.exception)
    assert message in str(failed.exception)


def test_the_report_of_jobs_has_a_table_of_experiments(folder: Path) -> None:
    """By recipe for the jobs, as means over seeds; without experiments there is none."""
    seeds = SCENARIO.replace("[[", 'seeds = "0,1"\n[[')
    (folder / "s.toml").write_text(seeds + 'trace = "jobs.csv"\n')
    assert run(folder / "s.toml", "--report", folder / "r.html").exit_code == 0
    found = json.loads(run(folder / "s.toml", "--json").output)["runs"]
    (recipe,) = {seed["experiments"][0]["recipe"] for seed in found}
    searches = [seed["experiments"][0]["metrics"] for seed in found]
    page = (folder / "r.html").read_text()
    assert re.search(r">2<[^>]*>\s*<[^>]*>jobs<", page), "searches and trials are none"
    section = page[page.index('<section id="experiments"') :].partition("</section>")[0]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", section)
    assert cells[:2] == ["lr", recipe]
    assert cells[2] == f"{sum(each['trials'] for each in searches) / 2:,.0f}"
    assert cells[3] == f"{sum(each['best'] for each in searches) / 2:.4g}"
    assert cells[6] == f"{sum(each['gpu_hours'] for each in searches) / 2:,.2f}"
    assert cells[-1] == "yes"
    done = run(folder / "jobs.csv", "--cluster", "1x8xT4", "--report", folder / "plain.html")
    assert done.exit_code == 0
    assert '<section id="experiments"' not in (folder / "plain.html").read_text()
