"""`ganger requests simulate` with token models: figures, classes, and what people get wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ganger.cli.lab.recommend import recommend
from ganger.cli.lab.serving.requests import requests
from ganger.core.errors import BadInput
from ganger.core.serving.world import World
from ganger.lab.serving.distribution import Latencies
from ganger.lab.serving.fleet import read_fleet
from ganger.lab.serving.run import all_known
from ganger.lab.serving.speech import Classes
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.formats import load_requests
from ganger.workloads.requests.own import write
from ganger.workloads.requests.processes import constant
from ganger.workloads.requests.synthetic import Mix, generated
from serving.rig import lanes, model, table

MODELS = """format = "ganger.models/1"
devices = [{ name = "A10", memory = "1GiB" }, { name = "L4" }]
[[models]]
name = "chat"
bytes = 1_063_741_824
[[models.tokens]]
device = "A10"
cache_bytes_per_token = 1_000_000
prefill = { base = 0.01, token = 0.001 }
decode = { parts = [{ base = 0.005, request = 0.001 }] }
[[models.tokens]]
device = "A10"
devices = 2
cache_bytes_per_token = 1_000_000
prefill = { base = 0.005, token = 0.001 }
decode = { batch = [1, 8], seconds = [0.003, 0.01] }
[[models]]
name = "faces"
bytes = 1
latency = [{ device = "L4", base = 0.004, each = 0.001, largest = 8 }]
"""
ROWS = """arrival,model,slo,tenant,prompt_tokens,output_tokens
0,chat,50ms,a,4,3
0.001,chat,50ms,b,2,2
"""


def call(folder: Path, *words: str, rows: str = ROWS, models: str = MODELS) -> Result:
    (folder / "r.csv").write_text(rows)
    (folder / "m.toml").write_text(models)
    paths = [str(folder / "r.csv"), "--models", str(folder / "m.toml")]
    return CliRunner().invoke(requests, ["simulate", *paths, *words], env={"COLUMNS": "80"})


def good(folder: Path, *words: str, **files: str) -> Any:
    result = call(folder, *words, "--json", **files)
    assert result.exception is None, result.output
    return json.loads(result.stdout)["runs"]


def test_figures_of_two_requests_by_hand(tmp_path: Path) -> None:
    """The first is read until 14 ms; one pass of 13 ms reads the second and gives the first one
    more; 7 ms give each its last."""
    (run,) = good(tmp_path, "--fleet", "A10:1", "--recipe", "serve.continuous-batching")
    found = run["metrics"]
    assert found["attainment"] == 1
    assert found["ttft_mean_seconds"] == pytest.approx((0.014 + 0.026) / 2)
    assert found["ttft_p50_seconds"] == pytest.approx(0.014)
    assert found["ttft_p99_seconds"] == pytest.approx(0.026)
    assert found["tpot_mean_seconds"] == pytest.approx((0.02 / 2 + 0.007) / 2)
    assert found["tpot_p50_seconds"] == pytest.approx(0.007)
    assert found["tpot_p99_seconds"] == pytest.approx(0.010)
    assert found["output_tokens"] == 5
    assert found["output_tokens_per_second"] == pytest.approx(5 / 0.034)
    assert found["latency_p99_seconds"] == pytest.approx(0.034)
    assert found["preempted"] == 0
    assert found["batches"] == 3
    assert found["batch_mean"] == pytest.approx(5 / 3)
    assert [(row["tenant"], row["requests"], row["attainment"]) for row in run["classes"]] == [
        ("a", 1, 1.0),
        ("b", 1, 1.0),
    ]
    assert [row["ttft_p99_seconds"] for row in run["classes"]] == pytest.approx([0.014, 0.026])


def test_a_lane_of_two_devices_is_one_that_was_measured_so(tmp_path: Path) -> None:
    """9 ms for the first prompt; the second joins: 7 + 3 - 3; then a step of two from the table."""
    (run,) = good(tmp_path, "--fleet", "2xA10:1", "--recipe", "serve.continuous-batching")
    assert run["metrics"]["ttft_p99_seconds"] == pytest.approx(0.009 + 0.007 - 0.001)
    assert run["metrics"]["latency_p99_seconds"] == pytest.approx(0.016 + 0.004)


def test_a_file_has_the_times_of_each_request(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    words = ("--fleet", "A10:1", "-r", "serve.continuous-batching", "--per-request", str(out))
    good(tmp_path, *words)
    first, second = out.read_text().splitlines()[1:]
    assert first.endswith("answered,chat,0.014000,0.010000")
    assert second.endswith("answered,chat,0.026000,0.007000")


def test_two_devices_have_the_memory_of_two(tmp_path: Path) -> None:
    """Of one, ten tokens are left."""
    rows = ROWS.replace("4,3", "500,2")
    (run,) = good(tmp_path, "--fleet", "2xA10:1", "-r", "serve.continuous-batching", rows=rows)
    assert run["metrics"]["answered"] == 2
    assert "room for 10" in str(call(tmp_path, "--fleet", "A10:1", rows=rows).exception)


def test_an_output_of_nothing_takes_a_step_and_has_no_further_token(tmp_path: Path) -> None:
    rows = "arrival,model,prompt_tokens,output_tokens\n0,chat,4,0\n"
    for recipe in ("serve.continuous-batching", "serve.triton"):
        (run,) = good(tmp_path, "--fleet", "A10:1", "-r", recipe, rows=rows)
        assert run["metrics"]["output_tokens"] == 1
        assert run["metrics"]["ttft_p50_seconds"] == pytest.approx(0.014)
        assert run["metrics"]["tpot_p50_seconds"] is None


def test_models_that_run_elsewhere_take_no_memory(tmp_path: Path) -> None:
    models = MODELS.replace("bytes = 1\n", "bytes = 2_000_000_000\n")
    result = call(tmp_path, "--fleet", "A10:1", "--json", models=models)
    assert result.exception is None
    (bound,) = json.loads(result.stdout)["bounds"]
    assert bound["attainment"] == pytest.approx(1)


def test_routers_believe_requests_to_be_as_usual(tmp_path: Path) -> None:
    """Means of 3 and 3 tokens: each grows to 5, of which the cache holds two; 10 + 3 ms, and two
    steps of 6."""
    call(tmp_path, "--fleet", "A10:1", rows=ROWS.replace("2,2", "2,3"))
    requests_, models = load_requests(tmp_path / "r.csv"), read_models(tmp_path / "m.toml")
    known = all_known(requests_, models, read_fleet("A10:1"))[0]
    assert list(known.latencies["A10", 1.0].mean) == [0, 13_000 + 12_000, 16_000 + 14_000]


def test_distributions_and_classes_are_put_together() -> None:
    """Beyond 64 classes those of all SLOs are one, and then those of all tenants."""
    one, other = Latencies(exact=2), Latencies(exact=2)
    one.add(np.array([10, 20, 30]))
    other.add(np.array([40, 50, 60]))
    one.join(other)
    assert one.count == 6
    assert one.mean == 35
    assert one.quantiles([1.0])[0] == pytest.approx(60, rel=0.001)
    found = Classes(World([model("m", table(1))], lanes(1), tenants=[str(at) for at in range(200)]))

    def come(tenants: Sequence[int], slos: Sequence[int]) -> list[dict[str, Any]]:
        columns = [np.array(each, np.int64) for each in ([0] * len(tenants), tenants, slos)]
        yes = np.ones(len(tenants), np.bool_)
        found.add(columns, columns[2], (yes, yes), None)
        return found.rows()

    assert len(come([1, 2, 1], [10, 10, 20])) == 3
    assert [row["requests"] for row in come([1] * 70, list(range(70)))] == [72, 1]
    (row,) = come(list(range(100)), [5] * 100)
    assert (row["tenant"], row["slo_seconds"], row["requests"]) == (None, None, 173)
    assert come([1], [5])[0]["requests"] == 174


def test_an_answer_in_time_keeps_the_slos_on_tokens_too(tmp_path: Path) -> None:
    words = ("--fleet", "A10:1", "--recipe", "serve.continuous-batching")
    for option, share in (
        ("--slo-ttft=26ms", 1),
        ("--slo-ttft=25ms", 0.5),
        ("--slo-ttft=13ms", 0),
        ("--slo-tpot=10ms", 1),
        ("--slo-tpot=9ms", 0.5),
    ):
        (run,) = good(tmp_path, *words, option)
        assert run["metrics"]["attainment"] == share, option


def test_a_full_cache_is_counted(tmp_path: Path) -> None:
    """Room for 10 tokens; both grow to 8."""
    rows = ROWS.replace("4,3", "4,5").replace("2,2", "4,5")
    models = MODELS.replace("1_063_741_824", "1_063_000_000")
    (run,) = good(
        tmp_path,
        "--fleet",
        "A10:1",
        "--recipe",
        "serve.continuous-batching",
        rows=rows,
        models=models,
    )
    assert run["metrics"]["preempted"] == 1
    assert run["metrics"]["answered"] == 2
    (run,) = good(
        tmp_path, "--fleet", "A10:1", "--recipe", "serve.triton", rows=rows, models=models
    )
    assert run["metrics"]["preempted"] == 0


def test_token_models_have_columns_of_their_own_in_eighty(tmp_path: Path) -> None:
    shown = call(
        tmp_path,
        "--fleet",
        "A10:1,2xA10:1",
        "-r",
        "serve.continuous-batching,serve.fair",
        "--faster",
        "1,2",
        "--by-class",
        "--quiet",
    ).stdout
    assert max(map(len, shown.splitlines())) <= 80
    for word in ("ttft", "tpot", "tok/s", "tenant", "99th percentiles"):
        assert word in shown
    assert sum(line.startswith("clairvoyant") for line in shown.splitlines()) >= 4
    plain = call(
        tmp_path, "--fleet", "L4:1", "--by-class", "--quiet", rows="arrival,model\n0,faces\n"
    ).stdout
    assert "tpot" not in plain
    head, _, row = plain[plain.index("requests") :].splitlines()[:3]
    assert head.split()[:5] == ["requests", "in", "time", "at", "most"]
    assert row.split()[1:4] == ["1", "100.0%", "100.0%"]


def test_many_slos_are_not_told_apart(tmp_path: Path) -> None:
    """A hundred different ones of two tenants are two classes; a hundred tenants are one."""
    head = "arrival,model,slo,tenant\n"
    rows = head + "".join(f"{at},faces,{at + 1},{'ab'[at % 2]}\n" for at in range(100))
    (run,) = good(tmp_path, "--fleet", "L4:1", rows=rows)
    assert [(row["tenant"], row["slo_seconds"], row["requests"]) for row in run["classes"]] == [
        ("a", None, 50),
        ("b", None, 50),
    ]
    rows = head + "".join(f"{at},faces,{1 + at % 2},t{at}\n" for at in range(100))
    (run,) = good(tmp_path, "--fleet", "L4:1", rows=rows)
    assert [(row["tenant"], row["requests"]) for row in run["classes"]] == [(None, 100)]
    rows = head + "".join(f"{at},faces,{1 + at % 2},\n" for at in range(100))
    (run,) = good(tmp_path, "--fleet", "L4:1", rows=rows)
    assert [(row["tenant"], row["slo_seconds"], row["requests"]) for row in run["classes"]] == [
        ("", 1, 50),
        ("", 2, 50),
    ]


@pytest.mark.parametrize(
    ("words", "files", "said"),
    [
        (
            ("--fleet", "A10:1"),
            {"rows": ROWS.replace("4,3", "8,4")},
            "request 1: it needs a cache of 11 tokens, and a lane has room for 10",
        ),
        (("--fleet", "A10:1"), {"rows": "arrival,model\n0,chat\n"}, "states no lengths"),
        (
            ("--fleet", "A10:1"),
            {"rows": ROWS.replace("2,2", "0,2")},
            "request 2: it asks a token model and has no prompt",
        ),
        (
            ("--fleet", "A10:1"),
            {"rows": ROWS.replace("tenant", "items").replace(",a,", ",2,").replace(",b,", ",1,")},
            "takes one input a request",
        ),
        (("--fleet", "L4:1"), {}, "use lanes of A10 or 2xA10, as in A10:4"),
        (
            ("--fleet", "A10:1"),
            {"models": MODELS.replace("1_063_741_824", "1_073_741_824")},
            "chat leave no memory of A10 for a cache",
        ),
        (("--fleet", "A10:1", "-r", "ebird"), {}, "cannot share the memory of A10"),
        (
            ("--fleet", "A10:1", "--slo-ttft", "0s"),
            {},
            "--slo-ttft: nothing is answered in no time",
        ),
        (
            ("--fleet", "A10:1", "-r", "serve.fair(weights=a)"),
            {},
            "'a' is not a tenant and a weight",
        ),
        (
            ("--fleet", "A10:1", "-r", "serve.continuous-batching(max_num_seqs=0)"),
            {},
            "out of range",
        ),
    ],
)
def test_what_is_wrong_is_one_clear_error(
    tmp_path: Path, words: tuple[str, ...], files: dict[str, str], said: str
) -> None:
    models = MODELS.replace("1_063_741_824", "1_063_000_000")
    result = call(tmp_path, *words, **{"models": models, **files})
    assert isinstance(result.exception, BadInput), result.output
    assert said in str(result.exception)


def test_a_lane_of_two_devices_costs_two(tmp_path: Path) -> None:
    """One lane of either keeps the SLO; that of one device is the cheaper, unless it is not."""
    head, row = ROWS.splitlines()[:2]
    rows = "\n".join([head, *(row.replace("0,", f"{at / 5},", 1) for at in range(200))])
    call(tmp_path, "--fleet", "A10:1", rows=rows)
    words = [
        str(tmp_path / "r.csv"),
        "--models",
        str(tmp_path / "m.toml"),
        "--json",
        "--fleets",
        "A10:1-2,2xA10:1-2",
    ]

    def found(*more: str) -> Any:
        result = CliRunner().invoke(recommend, [*words, *more])
        assert result.exception is None, result.output
        return json.loads(result.stdout)

    advice = found()
    assert advice["pick"]["fleet"] == "A10:1"
    assert {row["recipe"] for row in advice["found"]} == {
        "serve.triton",
        "serve.continuous-batching",
        "serve.fair",
    }
    costs = {row["best"]["fleet"]: row["cost"] for row in advice["found"]}
    assert costs == {"A10:1": 1, "2xA10:1": 2}
    assert found("--price", "2xA10=0.5")["pick"]["fleet"] == "2xA10:1"
    again = {row["best"]["fleet"]: row["cost"] for row in found("--price", "A10=3")["found"]}
    assert again == {"A10:1": 3, "2xA10:1": 6}


def test_who_knows_the_future_does_no_worse_than_any_recipe(tmp_path: Path) -> None:
    """None of its plans looks at the SLOs on tokens: there a recipe that is compared may do more,
    and whoever knows the future can do the same."""
    mix = Mix(
        models=1,
        names=("chat-13b",),
        slo=20_000_000,
        prompt_tokens=600,
        output_tokens=150,
        tenants=2,
    )
    write(generated(constant(4.0), seed=0, duration=60.0, mix=mix), tmp_path / "talk.csv")
    tokens = str(Path(__file__).parents[2] / "examples" / "serving" / "tokens.toml")
    recipes = "serve.continuous-batching,serve.fair(weights=tenant-0:2)"
    words = ["simulate", str(tmp_path / "talk.csv"), "--models", tokens, "--fleet", "A100:2",
             "--recipe", recipes, "--slo-ttft", "1s", "--slo-tpot", "50ms", "--json"]  # fmt: skip
    answer = json.loads(CliRunner().invoke(requests, words).stdout)
    reached = [run["metrics"]["attainment"] for run in answer["runs"]]
    (clairvoyant,) = answer["clairvoyant"]
    assert clairvoyant["recipe"] == "serve.clairvoyant"
    assert clairvoyant["metrics"]["attainment"] == max(reached) < 1
