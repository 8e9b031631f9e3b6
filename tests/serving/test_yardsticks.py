"""What is shown beside runs over requests, and how: yardsticks, classes, labels and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ganger.cli.lab.recommend import recommend
from ganger.cli.progress import Bar
from ganger.lab.serving.yardsticks import least
from serving.test_command import MODELS, ROWS, call, wrong

EXAMPLES = Path(__file__).parents[2] / "examples/serving"
LOG = "arrival,model\n" + "".join(f"{at / 400},small\n" for at in range(1200))
"""Each costs 1.5 ms at least: 0.6 of a T4."""


def test_a_recommendation_stands_beside_what_nobody_can_do_with_less(tmp_path: Path) -> None:
    """Batches of 8 take 12 ms, but within 8 ms batches of 4 are the largest: 400 a second are 0.8
    of one T4, with luck."""
    (tmp_path / "m.toml").write_text(MODELS.replace("800MiB", "8GiB"))
    (tmp_path / "r.csv").write_text(LOG)
    paths = [str(tmp_path / "r.csv"), "--models", str(tmp_path / "m.toml")]
    words = [*paths, "--slo", "8ms", "--fleets", "T4:1-6", "--recipes", "serve.triton", "--quiet"]
    answer = json.loads(CliRunner().invoke(recommend, [*words, "--json"]).stdout)
    found = answer["yardsticks"]
    assert found["least"] == [{"range": "T4:1-6", "fleet": "T4:1", "short": None}]
    assert found["fleet"] == answer["pick"]["fleet"] != "T4:1"
    assert found["clairvoyant"]["needs"] == "future"
    assert found["clairvoyant"]["fleet"] == found["fleet"]
    (row,) = answer["found"]
    assert row["best"]["attainment"] <= found["clairvoyant"]["attainment"]
    assert found["clairvoyant"]["attainment"] <= found["attainment_bound"] + 0.01


def test_the_bar_of_a_recommendation_ends_with_the_yardsticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never goes back, and the bounds and the clairvoyant row are made before it is full."""
    heard: list[float | str] = []
    monkeypatch.setattr(Bar, "show", lambda self, done, total: heard.append(done / total))
    for name in ("widest_bound", "compare_tasks"):
        whole = getattr(least, name)

        def noted(*given: Any, name: str = name, whole: Any = whole, **more: Any) -> Any:
            made = whole(*given, **more)
            heard.append(name)
            return made

        monkeypatch.setattr(least, name, noted)
    (tmp_path / "m.toml").write_text(MODELS.replace("800MiB", "8GiB"))
    (tmp_path / "r.csv").write_text(LOG)
    words = [str(tmp_path / "r.csv"), "--models", str(tmp_path / "m.toml"), "--slo", "8ms"]
    words += ["--fleets", "T4:1-6,T4:2-4", "--recipes", "serve.triton,serve.no-batch", "--json"]
    result = CliRunner().invoke(recommend, words)
    assert result.exit_code == 0, result.output
    shares = [each for each in heard if not isinstance(each, str)]
    assert shares == sorted(shares)
    assert heard[-1] == 1.0
    bounds, row = heard.index("widest_bound"), heard.index("compare_tasks")
    assert max(each for each in heard[:bounds] if isinstance(each, float)) == pytest.approx(2 / 3)
    assert heard[row - 1] == heard[row + 1] == 1.0
    assert len({each for each in heard[bounds:row] if isinstance(each, float)}) > 3


@pytest.mark.parametrize(("fleets", "least", "short"), [("T4:1-6", 3, 2), ("T4:1-2", 0, 2)])
def test_the_least_fleet_is_the_first_on_which_the_bound_allows_it(
    tmp_path: Path, fleets: str, least: int, short: int
) -> None:
    """1,500 a second are 2.25 of a T4."""
    (tmp_path / "m.toml").write_text(MODELS.replace("800MiB", "8GiB"))
    rows = "".join(f"{at / 1500},small\n" for at in range(3000))
    (tmp_path / "r.csv").write_text(f"arrival,model\n{rows}")
    words = [str(tmp_path / "r.csv"), "--models", str(tmp_path / "m.toml"), "--slo", "50ms"]
    words += ["--fleets", fleets, "--recipes", "serve.triton", "--quiet"]
    result = CliRunner().invoke(recommend, [*words, "--json"])
    (row,) = json.loads(result.stdout)["yardsticks"]["least"]
    assert row["fleet"] == (f"T4:{least}" if least else None)
    assert row["short"]["fleet"] == f"T4:{short}"
    assert row["short"]["attainment_bound"] == pytest.approx(2 / 2.25, abs=0.03)
    shown = " ".join(CliRunner().invoke(recommend, words, env={"COLUMNS": "80"}).output.split())
    said = f"less than T4:{least}: on T4:2 none" if least else "any fleet of T4:1-2: on T4:2 none"
    assert said in shown
    assert "which knows all requests before they come" in shown


def test_classes_stand_below_the_name_of_their_run_each_with_its_bound(tmp_path: Path) -> None:
    """At 1 ms from each other; alone each class has time, and together they have not."""
    rows = "arrival,model,slo,tenant\n" + "".join(
        f"{at / 900},small,{(0.008, 0.05)[at % 2]},{'ab'[at % 2]}\n" for at in range(900)
    )
    models = MODELS.replace("800MiB", "8GiB")
    words = ("--fleet", "T4:1", "-r", "serve.triton,serve.fixed-batch(size=3,timeout=2ms)")
    found = json.loads(call(tmp_path, *words, "--json", rows=rows, models=models).stdout)
    (bound,) = found["bounds"]
    for run in (*found["runs"], *found["clairvoyant"]):
        assert [row["attainment_bound"] for row in run["classes"]] == pytest.approx(
            [1, 1], abs=0.01
        )
        assert all(row["attainment"] <= row["attainment_bound"] for row in run["classes"])
    assert bound["attainment"] < 0.8
    shown = call(tmp_path, *words, "--by-class", "--quiet", rows=rows, models=models).stdout
    lines = [line.rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= 80
    for name in ("serve.triton", "serve.fixed-batch(size=3,timeout=2ms)", "clairvoyant"):
        at = lines.index(name)
        assert lines[at + 1].split()[:2] == ["tenant", "SLO"]
        assert "at most" in lines[at + 1]
        assert [line.split()[0] for line in lines[at + 3 : at + 5]] == ["a", "b"]
    assert [line.split()[0] for line in lines[3:6]] == [
        "serve.fixed-",
        "batch(size=3,",
        "timeout=2ms)",
    ]
    assert "even if there were no others" in shown


def test_token_models_that_nobody_asks_cost_no_yardstick(tmp_path: Path) -> None:
    """A pipeline, and a request that is cut: 20 inputs in batches of 7 and 6, after each other."""
    tiny = """
[[models]]
name = "tiny"
latency = [{ device = "A100", base = 0.004, each = 0.001, largest = 8 }]
[[pipelines]]
name = "both"
stages = [{ name = "one", model = "tiny" }, { name = "two", model = "tiny" }]
edges = [{ from = "one", to = "two" }]
"""
    models = (EXAMPLES / "tokens.toml").read_text() + tiny
    head = "arrival,model,slo,items\n"
    for row, recipe, p99 in (
        ("0,both,1,1", "serve.triton", 0.01),
        ("0,tiny,1,20", "dybatch", 0.032),
    ):
        words = ("--fleet", "A100:1", "-r", recipe, "--latency-noise", "0", "--json")
        answer = json.loads(call(tmp_path, *words, rows=f"{head}{row}\n", models=models).stdout)
        assert answer["missing"] == []
        (clairvoyant,) = answer["clairvoyant"]
        assert clairvoyant["metrics"]["latency_p99_seconds"] == pytest.approx(p99, rel=0.01)


def test_what_the_screen_has_no_room_for_is_left_out(tmp_path: Path) -> None:
    words = ("--fleet", "T4:1,T4:2", "-r", "serve.fixed-batch(size=3,timeout=2ms),clockwork")
    models = MODELS.replace("800MiB", "8GiB")
    sweep = ("--faster", "1,2", "--slo", "50ms,90ms", "--quiet")
    shown = call(tmp_path, *words, *sweep, models=models).stdout
    head, *_ = lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert "busy" not in head
    assert "in time" in head
    assert "busy" in call(tmp_path, *words, "--quiet", models=models).stdout


def test_an_slo_that_no_request_needs_is_no_label(tmp_path: Path) -> None:
    models = MODELS.replace("800MiB", "8GiB")
    words = ("--fleet", "T4:1", "-r", "serve.triton", "--slo", "5ms")
    result = call(tmp_path, *words, "--quiet", models=models)
    assert "SLO of each request" in result.stdout
    assert "the SLO of 5 ms that was given counts for none" in " ".join(result.output.split())
    one = ROWS.replace("0.002,large,0.2,1", "0.002,large,,1")
    result = call(tmp_path, *words[:-1], "50ms", "--quiet", rows=one, models=models)
    assert "SLO 50 ms" in result.stdout
    assert "counts for none" not in result.output


def test_what_is_wrong_with_a_request_names_its_file_and_row(tmp_path: Path) -> None:
    words = ("--fleet", "T4:1", "-r", "dybatch")
    for bad, said in (
        ("huge", "there is no model 'huge'"),
        ("both", "'both' is a pipeline"),
        ("faces", "'faces' is a family"),
    ):
        rows, models = ROWS.replace("large", bad), MODELS.replace("800MiB", "8GiB")
        assert f"r.csv: request 3: {said}" in wrong(tmp_path, *words, rows=rows, models=models)
