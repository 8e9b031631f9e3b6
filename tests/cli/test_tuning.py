"""`ganger simulate EXPERIMENT`: figures, tables, files, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ganger.cli.lab.simulate import simulate
from ganger.core.errors import BadInput

EXPERIMENT = """format = "ganger.experiment/1"
name = "small"
metric = "loss"
recipe = "tune.sha"
parallelism = 3
deadline = "1h"
"""
ROWS = [
    f"c{at},{0.1 * (at + 1):g},{epoch},{epoch * (at + 1)},{1 + at / 10 - epoch / 100:g}"
    for at in range(9)
    for epoch in range(1, 10)
]
CURVES = "\n".join(["configuration,lr,epoch,seconds,loss", *ROWS]) + "\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    (tmp_path / "c.csv").write_text(CURVES)
    return tmp_path / "e.toml", tmp_path / "c.csv"


def run(*words: Any) -> Result:
    return CliRunner().invoke(simulate, [str(word) for word in words])


def test_all_figures_of_every_recipe_and_seed(files: tuple[Path, Path]) -> None:
    path, curves = files
    printed = run(
        path, "--curves", curves, "-r", "tune.asha,tune.random", "--seed", "0-1", "--json"
    )
    assert printed.exit_code == 0, printed.output
    found = json.loads(printed.output)
    assert [(each["recipe"], each["seed"]) for each in found["runs"]] == [
        ("tune.asha", 0),
        ("tune.asha", 1),
        ("tune.random", 0),
        ("tune.random", 1),
    ]
    random = found["runs"][2]
    metrics = random["metrics"]
    assert (random["experiment"], random["metric"], random["cluster"]) == (
        "small",
        "loss",
        "3 GPUs",
    )
    assert (metrics["trials"], metrics["trials_complete"], metrics["reports"]) == (9, 9, 81)
    assert metrics["best"] == 0.91
    assert metrics["best_configuration"] == "c0"
    assert metrics["best_point"] == {"lr": 0.1}
    assert metrics["epochs"] == 81
    assert metrics["trial_gpu_hours"] == pytest.approx(9 * sum(range(1, 10)) / 3600)
    assert metrics["gpu_hours"] == pytest.approx(3 * metrics["seconds"] / 3600)
    assert (metrics["cost"], metrics["deadline_kept"], metrics["budget_kept"]) == (None, True, None)
    simulation = metrics["simulation"]
    assert simulation["reports_per_cpu_second"] == pytest.approx(
        81 / simulation["cpu_seconds"], rel=1e-6
    )
    assert found["runs"][0]["metrics"]["reports"] < 81
    assert found["runs"][0]["metrics"] != found["runs"][1]["metrics"]


def test_the_recipe_and_seed_of_the_file_count_where_none_is_named(
    files: tuple[Path, Path],
) -> None:
    path, curves = files
    path.write_text(EXPERIMENT + "seed = 7\n")
    (only,) = json.loads(run(path, "--curves", curves, "--json").output)["runs"]
    assert (only["recipe"], only["seed"]) == ("tune.sha", 7)


def test_a_table_has_a_row_for_each_recipe(files: tuple[Path, Path]) -> None:
    path, curves = files
    printed = run(path, "--curves", curves, "-r", "tune.sha,tune.random", "--quiet").output
    rows = [line.split() for line in printed.splitlines() if line.strip().startswith("tune.")]
    assert [row[0] for row in rows] == ["tune.sha", "tune.random"]
    assert rows[1][1:4] == ["9", "81", "0.91"]
    assert rows[1][-1] == "kept"
    assert "small on 3 GPUs, min of loss" in printed


def test_names_stay_whole_in_eighty_columns(files: tuple[Path, Path]) -> None:
    """`tune.hyperband` is the longest; a budget takes a column more."""
    path, _ = files
    path.write_text(EXPERIMENT + "[budget]\ngpu_hours = 20\n[space.lr]\nlow = 0.1\nhigh = 1\n")
    words = [str(path), "--curves", "parametric:epochs=81", "-r", "tune.hyperband", "--quiet"]
    lines = CliRunner().invoke(simulate, words, env={"COLUMNS": "80"}).output.splitlines()
    assert any(line.startswith("tune.hyperband ") for line in lines)
    assert max(map(len, lines)) <= 80


def test_every_trial_is_a_row_of_a_file(files: tuple[Path, Path], tmp_path: Path) -> None:
    path, curves = files
    target = tmp_path / "trials.csv"
    words = (path, "--curves", curves, "-r", "tune.sha,tune.random", "--per-trial", target)
    assert run(*words, "--quiet").exit_code == 0
    rows = list(csv.DictReader(io.StringIO(target.read_text())))
    assert len(rows) == 18
    first = next(r for r in rows if r["recipe"] == "tune.random" and r["configuration"] == "c0")
    assert (first["state"], first["epochs"], first["reports"]) == ("complete", "9.0", "9")
    assert (first["best"], first["last"], first["lr"]) == ("0.91", "0.91", "0.1")
    assert float(first["ended_seconds"]) - float(first["started_seconds"]) == pytest.approx(9)
    states = [row["state"] for row in rows if row["recipe"] == "tune.sha"]
    assert (states.count("complete"), states.count("stopped")) == (1, 8)


def test_formulas_stand_for_a_table(files: tuple[Path, Path]) -> None:
    path, _ = files
    path.write_text(EXPERIMENT + "trials = 9\n[space.lr]\nlow = 1e-4\nhigh = 0.1\nlog = true\n")
    words = (path, "--curves", "parametric:epochs=9,noise=0.01", "--json")
    (only,) = json.loads(run(*words).output)["runs"]
    assert only["metrics"]["trials"] == 9
    assert 1e-4 <= only["metrics"]["best_point"]["lr"] <= 0.1


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        ("", (), "--curves: what do its trials report?"),
        ("", ("--curves", "parametric"), "space: parametric curves need a space"),
        ("", ("--curves", "c.csv", "-r", "fifo"), "fifo does not decide over the trials"),
        ("", ("--curves", "c.csv", "-r", "tune.sha(mode=max)"), "tune.sha(mode): the experiment"),
        ("", ("--curves", "c.csv", "-r", "tune.sha(gpus=2)"), "tune.sha(gpus): the experiment"),
        ("", ("--curves", "c.csv", "-r", " "), "--recipe: it names none"),
        ("", ("--curves", "c.csv", "--log", "x"), "--log: it means nothing for an experiment"),
        ("", ("--curves", "c.csv", "--inner", "las"), "--inner: it means nothing"),
        ("", ("--curves", "c.csv", "--task", "1"), "--task: the table has one task"),
        ("", ("--curves", "c.csv", "--per-trial", "no/x.csv"), "--per-trial: no folder 'no'"),
        ("", ("--curves", "c.csv", "--per-trial", "./c.csv"), "it would overwrite c.csv"),
        ("", ("--curves", "none.csv"), "none.csv: cannot be read"),
        ('metric = "acc"', ("--curves", "c.csv"), "metric: the curves have no metric 'acc'"),
        ('searcher = "luck"', ("--curves", "c.csv"), "searcher: there is no searcher 'luck'"),
        (
            'searcher = "random"',
            ("--curves", "c.csv", "-r", "tune.grid"),
            "searcher: tune.grid goes with the searcher 'grid'",
        ),
        (
            "[space.rate]\nlow = 0.1\nhigh = 1",
            ("--curves", "c.csv"),
            "space: the curve table has no parameter 'rate' (it has lr)",
        ),
        (
            "[space.lr]\nlow = 2.0\nhigh = 3.0",
            ("--curves", "c.csv"),
            "space: no configuration of the curve table lies in it",
        ),
        ("points = [{ rate = 1.0 }]", ("--curves", "c.csv"), "points: the curve table has no"),
    ],
)
def test_what_does_not_fit_is_one_error(
    files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    words: tuple[str, ...],
    message: str,
) -> None:
    path, _ = files
    monkeypatch.chdir(path.parent)
    lines = [line for line in EXPERIMENT.splitlines() if line.split(" ")[0] != change.split(" ")[0]]
    path.write_text("\n".join([*lines, change]) + "\n")
    failed = run(path, *words)
    assert isinstance(failed.exception, BadInput), failed.output
    assert message in str(failed.exception)


def test_nothing_that_would_end_it_is_refused(files: tuple[Path, Path]) -> None:
    path, _ = files
    text = EXPERIMENT.replace('deadline = "1h"\n', "") + "[space.lr]\nlow = 0.1\nhigh = 1.0\n"
    path.write_text(text)
    failed = run(path, "--curves", "parametric", "-r", "tune.random")
    assert "trials: nothing would end the search" in str(failed.exception)


def test_what_is_about_trials_needs_an_experiment(tmp_path: Path) -> None:
    failed = run(tmp_path / "jobs.csv", "--curves", "c.csv")
    assert "--curves: it is about the trials of an experiment" in str(failed.exception)


def test_a_recipe_of_ones_own(files: tuple[Path, Path], tmp_path: Path) -> None:
    path, curves = files
    own = tmp_path / "own.py"
    own.write_text(
        "from ganger.recipes.registry import make\n\n\n"
        "class Two:\n"
        "    def __init__(self):\n"
        "        self._inner = make('tune.random(trials=2)')\n"
        "        self.name, self.orders = 'two', self._inner.orders\n"
        "        self.over = self._inner.over\n\n"
        "    def decide(self, view, memory):\n"
        "        return self._inner.decide(view, memory)\n\n\n"
        "class Endless(Two):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        del self.over\n\n\n"
        "class Nothing:\n"
        "    name = 'nothing'\n\n"
        "    def decide(self, view, memory):\n"
        "        raise ValueError\n"
    )
    (only,) = json.loads(run(path, "--curves", curves, "-r", f"{own}:Two", "--json").output)["runs"]
    assert only["metrics"]["trials"] == 2
    failed = run(path, "--curves", curves, "-r", f"{own}:Nothing")
    assert "it asks for no trials" in str(failed.exception)
    failed = run(path, "--curves", curves, "-r", f"{own}:Endless")
    assert "over raised AttributeError" in str(failed.exception)


@pytest.mark.parametrize("asked", ["spec, 1.5", "spec, 'x'", "spec, True", "None, 1",
                                   "spec, 1, 7", "spec, 1, (1,)", "spec, 1, ('x', 1.0)",
                                   "spec, 1, (1, 'x')"])  # fmt: skip
def test_a_recipe_of_ones_own_that_asks_for_what_is_no_trial(
    files: tuple[Path, Path], tmp_path: Path, asked: str
) -> None:
    path, curves = files
    own = tmp_path / "own.py"
    own.write_text(
        "from ganger.core.plan import Plan, Spawn\n"
        "from ganger.core.spec import JobSpec\n\n\n"
        "class Odd:\n"
        "    name, orders = 'odd', (Spawn,)\n\n"
        "    def over(self, view, memory):\n"
        "        return False\n\n"
        "    def decide(self, view, memory):\n"
        "        spec = JobSpec(name='t', parent=view.jobs.name(0))\n"
        f"        return Plan([Spawn(0, {asked})]), memory\n"
    )
    failed = run(path, "--curves", curves, "-r", f"{own}:Odd")
    assert isinstance(failed.exception, BadInput)
    assert "Spawn takes (row, JobSpec, n, copies)" in str(failed.exception)
