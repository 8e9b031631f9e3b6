"""`ganger requests simulate`: what people see, and what they get wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ganger.cli.lab.recommend import recommend
from ganger.cli.lab.serving.requests import requests
from ganger.core.errors import BadInput
from ganger.lab.serving.fleet import Fleet, read_fleet
from ganger.lab.serving.run import Setup, serve
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.formats import load_requests

MODELS = """format = "ganger.models/1"
devices = [{ name = "T4", memory = "800MiB" }, { name = "L4" }]
[[models]]
name = "small"
family = "faces"
bytes = 600_000_000
accuracy = 0.5
load = { host = 0.01 }
latency = [{ device = "T4", base = 0.004, each = 0.001, largest = 8 }]
[[models]]
name = "large"
family = "faces"
bytes = 300_000_000
latency = [{ device = "T4", batch = [1, 4], mean = [0.01, 0.02], p99 = [0.012, 0.03] }]
[[pipelines]]
name = "both"
stages = [{ name = "one", model = "small" }, { name = "two", model = "large" }]
edges = [{ from = "one", to = "two" }]
"""
ROWS = "arrival,model,deadline,items\n0,small,0.1,1\n0.001,small,0.1,2\n0.002,large,0.2,1\n"


def call(folder: Path, *words: str, rows: str = ROWS, models: str = MODELS) -> Result:
    """Run it in a folder with both files."""
    (folder / "r.csv").write_text(rows)
    (folder / "m.toml").write_text(models)
    paths = [str(folder / "r.csv"), "--models", str(folder / "m.toml")]
    return CliRunner().invoke(requests, ["simulate", *paths, *words], env={"COLUMNS": "80"})


def good(folder: Path, *words: str, **files: str) -> Any:
    result = call(folder, *words, "--json", **files)
    assert result.exception is None, result.output
    return json.loads(result.stdout)["runs"]


def wrong(folder: Path, *words: str, **files: str) -> str:
    result = call(folder, *words, **files)
    assert isinstance(result.exception, BadInput), result.output
    return str(result.exception)


def test_figures_of_three_requests_by_hand(tmp_path: Path) -> None:
    """5 ms; then two inputs, 6 ms; the large model on the other device, 10 ms."""
    (run,) = good(
        tmp_path,
        "--fleet",
        "T4:2",
        "--latency-noise",
        "0",
        "-r",
        "serve.no-batch",
        models=MODELS.replace("bytes = 600_000_000\n", ""),
    )
    found = run["metrics"]
    assert found["requests"] == found["answered"] == 3
    assert found["late"] == found["dropped"] == 0
    assert found["attainment"] == 1
    assert found["latency_mean_seconds"] == pytest.approx((0.005 + 0.006 + 0.013) / 3)
    assert found["latency_p50_seconds"] == pytest.approx(0.006)
    assert found["latency_p99_seconds"] == pytest.approx(0.013)
    assert found["span_seconds"] == pytest.approx(0.015)
    assert found["utilisation"] == pytest.approx((0.005 + 0.006 + 0.010) / 0.030)
    assert found["goodput_per_second"] == pytest.approx(3 / 0.015)
    assert found["batch_mean"] == 1
    assert found["effective_accuracy"] is None  # nobody says how good the large model is
    assert run["models"] == [
        {"model": "small", "requests": 2, "attainment": 1.0, "dropped": 0},
        {"model": "large", "requests": 1, "attainment": 1.0, "dropped": 0},
    ]


def test_late_and_dropped_requests_are_not_in_time(tmp_path: Path) -> None:
    rows = "arrival,model\n" + "0,small\n" * 4
    words = ("--fleet", "T4:1", "--latency-noise", "0", "--slo", "11ms")
    plain = MODELS.replace("bytes = 600_000_000\n", "")
    late, dropped = good(
        tmp_path,
        *words,
        "-r",
        "serve.no-batch,clockwork(margin=0,largest=1)",
        rows=rows,
        models=plain,
    )
    assert (late["metrics"]["answered"], late["metrics"]["late"]) == (4, 2)
    assert (dropped["metrics"]["answered"], dropped["metrics"]["late"]) == (2, 0)
    bounds = json.loads(
        call(tmp_path, *words, "-r", "clockwork", "--json", rows=rows, models=plain).stdout
    )["bounds"]
    assert bounds == [
        {
            "fleet": "T4:1",
            "faster": 1,
            "slo_seconds": 0.011,
            "attainment": 1.0,
            "goodput_per_second": None,
        }
    ]
    assert dropped["dropped_by_reason"] == {"it could not be answered in time": 2}
    for run in (late, dropped):
        assert run["metrics"]["attainment"] == 0.5
        assert run["metrics"]["effective_accuracy"] == 0.25


def test_drops_below_the_table_are_means_over_seeds_as_those_in_it(tmp_path: Path) -> None:
    rows = "arrival,model\n" + "".join(f"{at / 400},large\n" for at in range(200))
    words = ("--fleet", "T4:1", "--slo", "60ms", "-r", "clockwork", "--seed", "0-2")
    counts = [run["metrics"]["dropped"] for run in good(tmp_path, *words, rows=rows)]
    assert f"{counts[0]}" != f"{sum(counts) / 3:.0f}", counts
    shown = call(tmp_path, *words, "--by-class", "--quiet", rows=rows).stdout
    assert f"clockwork: {sum(counts) / 3:,.0f} dropped: it could not be answered in" in shown
    assert "Classes are of seed 0 alone." in shown
    one = call(tmp_path, *words[:-1], "0", "--by-class", "--quiet", rows=rows).stdout
    assert "alone" not in one


def test_recipes_fleets_loads_and_seeds_are_compared_in_eighty_columns(tmp_path: Path) -> None:
    shown = call(
        tmp_path,
        "--fleet",
        "T4:1,T4:2",
        "-r",
        "clockwork,clockwork(largest=1)",
        "--faster",
        "1,100",
        "--seed",
        "0-1",
        "--quiet",
    ).stdout
    assert max(map(len, shown.splitlines())) <= 80
    for words in ("T4:1", "T4:2", "clockwork", "100", "in time", "p99", "means over 2 seeds"):
        assert words in shown
    rows = [line for line in shown.splitlines() if "%" in line and "bound" not in line]
    assert len(rows) == 8 + 4
    assert sum(row.startswith("clairvoyant") for row in rows) == 4
    runs = good(
        tmp_path,
        "--fleet",
        "T4:1,T4:2",
        "-r",
        "clockwork",
        "--faster",
        "1,100",
        rows="arrival,model\n0,small\n50,large\n",
    )
    assert [(run["fleet"], run["faster"]) for run in runs] == [
        ("T4:1", 1),
        ("T4:2", 1),
        ("T4:1", 100),
        ("T4:2", 100),
    ]
    assert 50 < runs[0]["metrics"]["span_seconds"] < 51
    assert 0.5 < runs[2]["metrics"]["span_seconds"] < 0.6


def test_the_most_that_any_recipe_could_have_in_time_is_said(tmp_path: Path) -> None:
    """Twenty at once, 1.5 ms each in a batch of eight: ten of them in 15 ms."""
    rows = "arrival,model\n" + "0,small\n" * 20 + "1,small\n" * 20
    plain = MODELS.replace("bytes = 600_000_000\n", "")
    words = ("--fleet", "T4:1,T4:9", "--slo", "15ms", "-r", "clockwork", "--quiet")
    shown = call(tmp_path, *words, rows=rows, models=plain).stdout
    assert "T4:1: no recipe can have more than 50.0% in time, without luck" in shown
    assert "T4:9: no" not in shown
    text = call(tmp_path, *words, "--json", rows=rows, models=plain).stdout
    (one, nine) = json.loads(text)["bounds"]
    assert one["attainment"] == pytest.approx(0.5)
    assert one["goodput_per_second"] == pytest.approx(20)
    assert nine["attainment"] == 1


def test_beside_the_recipes_stands_one_that_knows_the_future(tmp_path: Path) -> None:
    plain = MODELS.replace("bytes = 600_000_000\n", "")
    words = ("--fleet", "T4:1", "-r", "serve.triton,clockwork", "--slo", "50ms,1s", "--quiet")
    found = json.loads(call(tmp_path, *words, "--json", models=plain).stdout)
    assert [run["recipe"] for run in found["runs"]] == ["serve.triton", "clockwork"] * 2
    assert [run["slo_seconds"] for run in found["runs"]] == [0.05, 0.05, 1, 1]
    told = [(run["recipe"], run["needs"], run["slo_seconds"]) for run in found["clairvoyant"]]
    assert told == [("serve.clairvoyant", "future", 0.05), ("serve.clairvoyant", "future", 1)]
    shown = call(tmp_path, *words, models=plain).stdout
    assert "knows all requests before they come (needs: future)" in " ".join(shown.split())
    assert sum(line.startswith("clairvoyant  ") for line in shown.splitlines()) == 2
    out = tmp_path / "r.html"
    call(tmp_path, *words, "--report", str(out), models=plain)
    assert "serve.clairvoyant" in out.read_text()
    alone = json.loads(call(tmp_path, *words[:2], "--json", models=plain).stdout)
    assert [run["recipe"] for run in alone["clairvoyant"]] == ["serve.clairvoyant"]
    short = (*words[:2], "--no-yardsticks")
    without = json.loads(call(tmp_path, *short, "--json", models=plain).stdout)
    assert (without["clairvoyant"], without["bounds"]) == ([], [])
    why = "The yardsticks were left out, as was asked for."
    assert without["missing"] == [why]
    assert why in call(tmp_path, *short, models=plain).stdout
    call(tmp_path, *short, "--report", str(out), models=plain)
    assert why in out.read_text()


def test_every_figure_has_its_name(tmp_path: Path) -> None:
    (run,) = good(tmp_path, "--fleet", "T4:1", "-r", "clockwork")
    assert set(run["metrics"]) >= {
        "requests",
        "answered",
        "late",
        "dropped",
        "attainment",
        "goodput_per_second",
        "latency_mean_seconds",
        "latency_p50_seconds",
        "latency_p95_seconds",
        "latency_p99_seconds",
        "latency_p999_seconds",
        "batch_mean",
        "utilisation",
        "effective_accuracy",
    }
    assert set(run["simulation"]) == {"cpu_seconds", "requests_per_cpu_second"}
    assert run["simulation"]["cpu_seconds"] > 0


def test_without_a_deadline_nothing_is_late_and_no_fleet_is_recommended(tmp_path: Path) -> None:
    rows = ROWS.replace(",deadline", "").replace(",0.1,", ",").replace(",0.2,", ",")
    note = "no request has a deadline: every answer counts as in time (give --slo)"
    words = ("--fleet", "T4:2", "-r", "serve.no-batch")
    whole = MODELS.replace("bytes = 600_000_000\n", "")
    said = call(tmp_path, *words, rows=rows, models=whole)
    assert note in " ".join(said.output.split())
    said = call(tmp_path, *words, "--slo", "1s", rows=rows, models=whole)
    assert "no request has a deadline" not in said.output
    assert "no request has a deadline" not in call(tmp_path, *words, models=whole).output
    paths = [str(tmp_path / "r.csv"), "--models", str(tmp_path / "m.toml"), "--fleets", "T4:1-2"]
    (tmp_path / "r.csv").write_text(rows)
    refused = CliRunner().invoke(recommend, paths)
    assert "no request has a deadline, so any fleet keeps them all" in str(refused.exception)
    sized = CliRunner().invoke(recommend, [*paths, "--slo", "1s"])
    assert "The nearest is clipper on T4:2: 100.0% (0.0% to 100.0%)." in sized.output


def test_a_report_is_a_page_with_batches_and_the_bound(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    done = call(tmp_path, "--fleet", "T4:1", "-r", "clockwork", "--report", str(out), "--quiet")
    assert f"report: {out}" in done.stderr
    page = out.read_text()
    assert "no recipe can have more than" in page
    assert '"reasons":["load",' in page
    assert "m.toml (SHA-256 " in page
    assert "no folder" in wrong(tmp_path, "--fleet", "T4:1", "--report", "/nowhere/r.html")


def test_a_file_says_what_became_of_each_request(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    good(tmp_path, "--fleet", "T4:1", "-r", "clockwork", "--per-request", str(out))
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == ["small", "small", "large"]
    assert {row["ttft_seconds"] for row in rows} == {""}
    assert [row["outcome"] for row in rows] == ["answered"] * 3
    assert [row["answered_by"] for row in rows] == ["small", "small", "large"]
    assert float(rows[0]["latency_seconds"]) >= 0.015  # it was loaded first


@pytest.mark.parametrize(
    ("words", "files", "said"),
    [
        (("--fleet", "T4"), {}, "'T4' is not a part of a fleet"),
        (("--fleet", "T4:1+T4:2"), {}, "T4 is named twice"),
        (("--fleet", "T4:0"), {}, "0 devices"),
        (("--fleet", "T4:99999999"), {}, "99999999 devices"),
        (("--fleet", "L4:1"), {}, "model 'small' was not measured on L4:1"),
        (("--fleet", "T4:1"), {}, "the models need 0.84 GiB, T4 has 0.78"),
        (("--fleet", "T4:1", "-r", "fifo"), {}, "fifo decides over jobs, not over requests"),
        (("--fleet", "T4:1", "-r", "clockwerk"), {}, "did you mean clockwork or"),
        (("--fleet", "T4:1", "-r", "clockwork(largest=0)"), {}, "clockwork(largest): it is out of"),
        (("--fleet", "T4:1", "-r", " "), {}, "--recipe: it names none"),
        (("--fleet", "T4:1", "--faster", "0"), {}, "'0' is not a valid factor"),
        (("--fleet", "T4:1", "--faster", "x"), {}, "'x' is not a valid factor"),
        (("--fleet", "T4:1", "--slo", "0s"), {}, "nothing is answered in no time"),
        (("--fleet", "T4:1", "--slo", "soon"), {}, "--slo: 'soon' is not a valid duration"),
        (("--fleet", "T4:1", "--latency-noise", "nan"), {}, "--latency-noise: nan is not a number"),
        (("--fleet", "T4:1", "--seed", "4-1"), {}, "'4-1' runs backwards"),
        (("--fleet", "T4:1,T4:2", "--per-request", "x.csv"), {}, "one file holds one run, not 2"),
        (("--fleet", "T4:1", "--per-request", "no/where/x.csv"), {}, "no folder 'no/where'"),
        (
            ("--fleet", "T4:1", "-r", "clockwork"),
            {"rows": ROWS.replace("large", "huge")},
            "there is no model 'huge'",
        ),
        (
            ("--fleet", "T4:1", "-r", "clockwork"),
            {"rows": ROWS.replace("large", "faces")},
            "'faces' is a family of models",
        ),
        (
            ("--fleet", "T4:1", "-r", "clockwork"),
            {"rows": ROWS.replace("large", "both")},
            "'both' is a pipeline",
        ),
        (
            ("--fleet", "T4:1", "-r", "clockwork"),
            {"rows": ROWS.replace("0.1,2", "0.1,9")},
            "request 2: it brings 9 inputs",
        ),
        (
            ("--fleet", "T4:1", "-r", "clockwork"),
            {"rows": ROWS.replace("0.2,1", "0.003,1")},
            "no variant answers in less",
        ),
        (("--fleet", "T4:1", "-r", "clockwork"), {"rows": "arrival,model\n"}, "no rows"),
        (
            ("--fleet", "T4:1", "-r", "serve.dedicated"),
            {"models": MODELS.replace("bytes = 600_000_000\n", "")},
            "2 models and 1 lanes",
        ),
    ],
)
def test_what_is_wrong_is_one_clear_error(
    tmp_path: Path, words: tuple[str, ...], files: dict[str, str], said: str
) -> None:
    assert said in wrong(tmp_path, *words, **files)


def test_a_recipe_that_cuts_requests_takes_large_ones(tmp_path: Path) -> None:
    rows, models = ROWS.replace("0.1,2", "0.1,90"), MODELS.replace("bytes = 600_000_000\n", "")
    (run,) = good(tmp_path, "--fleet", "T4:1", "-r", "dybatch", rows=rows, models=models)
    assert run["metrics"]["answered"] == 3
    assert run["metrics"]["batches"] == 1 + 12 + 1


DIGITS = "arrival,model,input\n" + "".join(f"{at / 100},digits,{at % 899}\n" for at in range(1500))


def test_a_family_answers_better_by_vote_than_by_its_worst_and_by_lot(tmp_path: Path) -> None:
    """Real classifiers of digits: labels are those of their file, and a vote is judged by what was
    voted, not by any one of them."""

    def right(recipe: str, rows: str = DIGITS) -> float:
        (run,) = good(
            tmp_path,
            "--models",
            "measured",
            "--fleet",
            "cpu-1:4",
            "--recipe",
            recipe,
            "--slo",
            "50ms",
            "--no-yardsticks",
            rows=rows,
        )
        assert run["metrics"]["attainment"] == 1
        assert [each["requests"] for each in run["models"]] == [1500]
        return float(run["metrics"]["effective_accuracy"])

    voted, drawn = right("clipper(selection=exp4)"), right("clipper")
    best = right("serve.triton", DIGITS.replace("digits", "digits-rbf-svm"))
    worst = right("serve.triton", DIGITS.replace("digits", "digits-bayes"))
    assert worst < drawn < best
    assert best - 0.01 < voted
    blind = right("clipper(selection=exp4)", DIGITS.replace("input", "x_input"))
    assert worst < blind < best


def test_requests_are_served_by_the_gpus_of_a_cluster(tmp_path: Path) -> None:
    """`ganger simulate` with a file of requests is `ganger requests simulate`."""
    from ganger.cli.lab.simulate import simulate

    models = MODELS.replace("bytes = 600_000_000\n", "")
    (want,) = good(tmp_path, "--fleet", "T4:8", "--recipe", "clipper", models=models)
    paths = [str(tmp_path / "r.csv"), "--models", str(tmp_path / "m.toml")]

    def run(*words: str) -> Result:
        return CliRunner().invoke(simulate, [*paths, *words], env={"COLUMNS": "80"})

    (found,) = json.loads(run("--cluster", "2x4xT4", "-r", "clipper", "--json").stdout)["runs"]
    assert found["metrics"] == want["metrics"]
    out = str(tmp_path / "r.html")
    (usual,) = json.loads(run("--cluster", "2x4xT4", "--json", "--report", out).stdout)["runs"]
    assert usual["recipe"] == "serve.triton"
    assert "T4:8" in Path(out).read_text()
    for option in (["--why"], ["--serving", "scale.threshold"], ["--knows", "truth"]):
        error = run("--cluster", "2x4xT4", *option).exception
        assert isinstance(error, BadInput)
        assert f"{option[0]}: it is about jobs" in str(error)
    assert "the trace does not state a cluster" in str(run("-r", "clipper").exception)


PLAIN = MODELS.replace("bytes = 600_000_000\n", "")


def test_requests_name_a_pipeline(tmp_path: Path) -> None:
    """5 ms and then 10 ms alone; in a batch of two 6 ms, and 13.3 ms."""
    rows = "arrival,model,slo\n0,both,0.5\n1,both,0.5\n1,both,0.5\n2,small,0.5\n"
    out = tmp_path / "out.csv"
    (run,) = good(
        tmp_path,
        "--fleet",
        "T4:1",
        "--latency-noise",
        "0",
        "-r",
        "serve.triton",
        "--per-request",
        str(out),
        rows=rows,
        models=PLAIN,
    )
    assert run["models"] == [
        {"model": "small", "requests": 1, "attainment": 1.0, "dropped": 0},
        {"model": "both", "requests": 3, "attainment": 1.0, "dropped": 0},
    ]
    assert run["metrics"]["batches"] == 5
    assert run["metrics"]["effective_accuracy"] is None  # the right end of a pipeline is not known
    with out.open() as file:
        found = [
            (row["model"], row["latency_seconds"], row["answered_by"])
            for row in csv.DictReader(file)
        ]
    assert found == [
        ("both", "0.015000", ""),
        *[("both", "0.019333", "")] * 2,
        ("small", "0.005000", "small"),
    ]
    shown = call(
        tmp_path,
        "--fleet",
        "T4:1",
        "-r",
        "serve.triton",
        "--quiet",
        rows="arrival,model,slo\n" + "0,both,0.1\n" * 99,
        models=PLAIN,
    ).stdout
    assert "No recipe can have more than 15.5% in time" in shown  # 1.5 and 5 ms of 100 each


@pytest.mark.parametrize(
    ("recipe", "models", "rows", "said"),
    [
        (
            "clockwork",
            PLAIN,
            "0,both,1",
            "'both' is a pipeline, and clockwork does not run pipelines",
        ),
        (
            "serve.triton",
            PLAIN.replace('"two", model = "large"', '"two", model = "other"')
            + '[[models]]\nname = "other"\n'
            'latency = [{ device = "L4", base = 1, each = 1, largest = 1 }]',
            "0,both,1",
            "pipeline 'both': model 'other' of stage 'two' was not measured on T4:1",
        ),
        (
            "serve.triton",
            PLAIN.replace('to = "two"', 'to = "two", items = 2e4'),
            "0,both,1",
            "pipeline 'both': an item of a request is more than 10,000 items of its stages",
        ),
        (
            "serve.triton",
            PLAIN,
            "0,both,5001",
            "request 1: it brings 5001 inputs, and the stages of",
        ),
    ],
)
def test_what_is_wrong_with_a_pipeline(
    tmp_path: Path, recipe: str, models: str, rows: str, said: str
) -> None:
    error = wrong(
        tmp_path,
        "--fleet",
        "T4:1",
        "-r",
        recipe,
        models=models,
        rows=f"arrival,model,items\n{rows}\n",
    )
    assert said in error


def test_a_fleet_is_written_as_it_is_read() -> None:
    assert str(read_fleet(" T4:3 + L4:1")) == "T4:3+L4:1"
    assert read_fleet("T4:0+L4:1") == Fleet((("L4", 1),))
    assert read_fleet("T4:3+L4:1").size == 4


def test_progress_and_the_reports_of_a_stream(tmp_path: Path) -> None:
    call(tmp_path, "--fleet", "T4:1", "-r", "clockwork")
    heard: list[int] = []
    run = serve(
        load_requests(tmp_path / "r.csv"),
        read_models(tmp_path / "m.toml"),
        read_fleet("T4:1"),
        "clockwork",
        Setup(),
        progress=heard.append,
    )
    assert heard == [3]
    assert run.metrics["loads"] == 2
    assert run.to_json()["simulation"]["requests_per_cpu_second"] > 0


def test_a_run_that_fails_leaves_the_file_of_the_one_before(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("before")
    wrong(
        tmp_path,
        "--fleet",
        "T4:1",
        "-r",
        "clockwork",
        "--per-request",
        str(out),
        rows=ROWS.replace("large", "huge"),
    )
    assert out.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.toml", "out.csv", "r.csv"]


@pytest.mark.parametrize("words", [(), ("--windows", "1s")])
def test_an_slo_that_nothing_can_keep_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    """That of the option counts where requests state none; a microsecond more will do."""
    (tmp_path / "m.toml").write_text(MODELS.replace("800MiB", "8GiB"))
    (tmp_path / "r.csv").write_text("arrival,model\n0,small\n1,small\n")
    paths = ["simulate", str(tmp_path / "r.csv"), "--models", str(tmp_path / "m.toml")]
    asked = [*paths, "--fleet", "T4:1", "--recipe", "serve.triton", *words]
    error = CliRunner().invoke(requests, [*asked, "--slo", "4999us"]).exception
    assert isinstance(error, BadInput)
    assert "to answer, and no variant answers in less than 5 ms" in str(error)
    assert CliRunner().invoke(requests, [*asked, "--slo", "5ms"]).exit_code == 0
