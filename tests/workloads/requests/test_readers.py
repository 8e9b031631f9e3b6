"""Public layouts of request logs and counts, on rows written by hand, and on the real files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.units import MINUTE, SECOND
from ganger.workloads.requests import stream
from ganger.workloads.requests.columns import Requests, joined
from ganger.workloads.requests.formats import FORMATS, detect, load_requests

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:04.0781490,110,27
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1200, "output_length": 6, "hash_ids": [0, 1, 2]}
{"timestamp": 40, "input_length": 900, "output_length": 3, "hash_ids": [0, 7]}
{"timestamp": 3000, "input_length": 1210, "output_length": 12, "hash_ids": [0, 1, 2]}
"""
GENAI = """gmt_create,predict_type,predict_status,exec_time_seconds,groupId,prompt_length,\
negative_prompt_length,num_images_per_prompt,num_inference_steps,checkpoint_model_version_id,num_lora
2024-11-15 16:57:50,TXT_2_IMG,SUCCEED,32.0,G0000,63.0,26.0,1.0,30.0,M0000,0
2024-11-15 16:57:55,TXT_2_IMG,FAILED,43.0,G0001,93.0,,4.0,40.0,M0001,0
2024-11-15 16:57:59,TXT_2_IMG,PENDING,,G0001,,,,,,0
2024-11-15 16:58:50,TXT_2_IMG,SUCCEED,36.0,G0000,93.0,,8.0,40.0,M0001,1
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,API log
118,GPT-4,417,276,693,Conversation log
"""
BURST_SESSIONS = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,\
Total tokens,Log Type
3.5,12,4.1,GPT-4,417,276,693,Conversation log
"""
BURST_MINUTES = "t,tps,norm\n0,12231.7,1.0\n3,1223.2,0.1\n4,0,0.0\n"
FUNCTIONS = """HashOwner,HashApp,HashFunction,Trigger,1,2,3
ann,app1,resize,http,2,0,1
bob,app2,score,queue,0,0,40
ann,app1,resize,timer,1,0,0
"""
INVITRO = """HashFunction,HashOwner,HashApp,1_minute,2_minute,3_minute
resize,ann,app1,3,0,1
score,bob,app2,0,0,40
"""
TWITTER = "second,requests\n0,52\n1,0\n3,48\n"
SERVEGEN = """client,window_s,rate,cv,pattern,p1,p2
0,600,0.5,1.2,Gamma,0.7,0.04
7,0,2.0,1.0,Gamma,1.0,0.5
0,0,0.1,3.0,Weibull,0.42,0.009
"""
TOKENS = """{"client": 7, "dataset": {"0": {"input_tokens": "{13: 0.5, 14: 0.5}",\
 "output_tokens": "{1: 1.0}"}, "600": {"input_tokens": "{}", "output_tokens": "{}"}}}
"""
ACCESS = """1.2.3.4 - - [24/Nov/2026:07:00:00 +0000] "POST /v1/models/a/infer HTTP/1.1" 200 51
::1 - ann [24/Nov/2026:07:00:00 +0000] "POST /v2/models/b:predict HTTP/1.1" 200 9 "-" "x \\" y"
1.2.3.4 - - [24/Nov/2026:08:00:01 +0100] "GET /health HTTP/1.1" 200 2 "-" "probe"
1.2.3.4 - - [24/Nov/2026:08:00:02 +0100] "POST /v1/models/a?x=1 HTTP/1.1" 500 0
"""
SAMPLES: dict[str, tuple[str, str, int]] = {
    "azure": ("azure-llm", AZURE, 3), "azure-2024": ("azure-llm", AZURE_2024, 2),
    "mooncake": ("mooncake", MOONCAKE, 3), "genai": ("alibaba-genai", GENAI, 3),
    "burst": ("burstgpt", BURST, 3), "burst-sessions": ("burstgpt", BURST_SESSIONS, 1),
    "functions": ("azure-functions", FUNCTIONS, 44), "invitro": ("azure-functions", INVITRO, 44),
    "twitter": ("counts", TWITTER, 100), "servegen": ("servegen", SERVEGEN, 1560),
    "access": ("access-log", ACCESS, 3),
}  # fmt: skip
"""By name: the format, rows of it, and how many requests they are."""


def sample(tmp_path: Path, text: str, **options: Any) -> Requests:
    path = tmp_path / "log.csv"
    path.write_text(text)
    return load_requests(path, **options)


def models(requests: Requests) -> list[str]:
    return [requests.models[code] for code in requests.gather().model.tolist()]


def tenants(requests: Requests) -> list[str]:
    codes = requests.gather().tenant
    assert codes is not None
    return [requests.tenants[code] for code in codes.tolist()]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_layout_is_known_by_its_first_line(name: str, tmp_path: Path) -> None:
    format_, text, count = SAMPLES[name]
    (tmp_path / "log.csv").write_text(text)
    assert detect(tmp_path / "log.csv").name == format_
    found = load_requests(tmp_path / "log.csv")
    assert len(found.gather()) == count
    for rows in (1, 7):
        again = joined(list(found.chunks(rows)))
        for column, values in found.gather().columns.items():
            assert (again.columns[column] == values).all()


def test_every_format_has_a_sample() -> None:
    formats = {format_ for format_, _, _ in SAMPLES.values()}
    assert formats | {"ganger", "burstgpt-minutes"} == set(FORMATS)


def test_azures_dates_count_from_the_first_request(tmp_path: Path) -> None:
    found = sample(tmp_path, AZURE, model="codegen")
    rows = found.gather()
    assert rows.arrival.tolist() == [0, 52_000, 98_189]
    assert rows.columns["prompt_tokens"].tolist() == [4808, 3180, 110]
    assert rows.columns["output_tokens"].tolist() == [10, 8, 27]
    assert set(models(found)) == {"codegen"}
    assert set(models(sample(tmp_path, AZURE, model=70.0))) == {"70"}
    assert sample(tmp_path, AZURE_2024).gather().arrival.tolist() == [0, 7_405]


def test_mooncakes_equal_prompts_have_equal_inputs(tmp_path: Path) -> None:
    found = sample(tmp_path, MOONCAKE)
    rows = found.gather()
    blank = sample(tmp_path, MOONCAKE.replace("\n", "\n\n")).gather()
    assert blank.arrival.tolist() == rows.arrival.tolist()
    assert rows.arrival.tolist() == [0, 40_000, 3_000_000]
    assert rows.columns["prompt_tokens"].tolist() == [1200, 900, 1210]
    assert rows.columns["output_tokens"].tolist() == [6, 3, 12]
    first, second, third = rows.columns["input"].tolist()
    assert first == third != second
    assert 0 <= first < 1 << 52
    assert "shared beginnings are not kept" in found.remarks.notes[0]
    plain = sample(tmp_path, '{"timestamp": 0, "input_length": 1, "output_length": 1}\n')
    assert plain.gather().columns["input"].tolist() == [-1]
    assert plain.remarks.notes == []


def test_images_are_items_and_failed_requests_came_too(tmp_path: Path) -> None:
    found = sample(tmp_path, GENAI)
    rows = found.gather()
    assert rows.arrival.tolist() == [0, 5 * SECOND, 60 * SECOND]
    assert rows.columns["items"].tolist() == [1, 4, 8]
    assert models(found) == ["M0000", "M0001", "M0001"]
    assert tenants(found) == ["G0000", "G0001", "G0000"]
    assert found.remarks.left_out == {"they name no model": 1}
    assert found.remarks.notes == ["1 requests did not succeed; they are kept"]
    assert tenants(sample(tmp_path, GENAI.replace("G0000", ""))) == ["", "G0001", ""]


def test_burstgpts_kinds_of_log_are_tenants(tmp_path: Path) -> None:
    found = sample(tmp_path, BURST)
    assert found.gather().arrival.tolist() == [5 * SECOND, 45 * SECOND, 118 * SECOND]
    assert models(found) == ["ChatGPT", "ChatGPT", "GPT-4"]
    assert tenants(found) == ["Conversation log", "API log", "Conversation log"]
    assert found.gather().columns["output_tokens"].tolist() == [18, 0, 276]
    assert "1 requests have no response tokens" in found.remarks.notes[0]
    assert sample(tmp_path, BURST_SESSIONS).gather().arrival.tolist() == [3_500_000]


def test_a_rate_of_tokens_becomes_requests(tmp_path: Path) -> None:
    found = sample(tmp_path, BURST_MINUTES, tokens_per_request=100)
    minute = np.bincount(found.gather().arrival // MINUTE, minlength=5)
    mean = 12231.7 * 60 / 100
    assert abs(minute[0] - mean) < 4 * mean**0.5
    assert abs(minute[3] - mean / 10) < 4 * (mean / 10) ** 0.5
    assert minute[[1, 2, 4]].tolist() == [0, 0, 0]
    assert "tokens per second" in found.remarks.notes[0]
    fewer = sample(tmp_path, BURST_MINUTES, tokens_per_request=1000)
    assert 0.08 < len(fewer.gather()) / len(found.gather()) < 0.12


@pytest.mark.parametrize("text", [FUNCTIONS, INVITRO])
def test_functions_are_models_and_owners_tenants(text: str, tmp_path: Path) -> None:
    found = sample(tmp_path, text)
    rows = found.gather()
    minute = rows.arrival // MINUTE
    assert np.bincount(minute).tolist() == [3, 0, 41]
    named = list(zip(models(found), tenants(found), minute.tolist(), strict=True))
    assert named.count(("resize", "ann", 0)) == 3
    assert named.count(("resize", "ann", 2)) == 1
    assert named.count(("score", "bob", 2)) == 40


def test_counts_are_kept_and_spread_as_asked_for(tmp_path: Path) -> None:
    rows = sample(tmp_path, TWITTER).gather()
    assert np.bincount(rows.arrival // SECOND).tolist() == [52, 0, 0, 48]
    again, other = sample(tmp_path, TWITTER), sample(tmp_path, TWITTER, seed=1)
    assert (again.gather().arrival == rows.arrival).all()
    assert (other.gather().arrival != rows.arrival).any()
    even = sample(tmp_path, TWITTER, arrivals="even").gather().arrival
    assert set(np.diff(even[:52]).tolist()) <= {19_230, 19_231}
    both = sample(tmp_path, "second,model,requests\n0,a,10\n0,b,4\n7,a,5\n", arrivals="even")
    rows, named = both.gather(), np.array(models(both))
    for model, second, gap in (("a", 0, 100_000), ("b", 0, 250_000), ("a", 7, 200_000)):
        count = SECOND // gap
        at = rows.arrival[(named == model) & (rows.arrival // SECOND == second)]
        assert len(at) == count
        assert set(np.diff(at).tolist()) <= {gap - 1, gap, gap + 1}
    hours = sample(tmp_path, "hour,model,requests\n0,a,3\n0,b,2\n1,b,4\n")
    assert np.bincount(hours.gather().arrival // (60 * MINUTE)).tolist() == [5, 4]
    assert sorted(models(hours)) == ["a"] * 3 + ["b"] * 6


def test_uniform_arrivals_of_counts_are_uniform(tmp_path: Path) -> None:
    inside = sample(tmp_path, "minute,requests\n2,100000\n").gather().arrival - 2 * MINUTE
    found = np.bincount(inside // SECOND, minlength=60)
    assert ((found - 1e5 / 60) ** 2 / (1e5 / 60)).sum() < 104  # chi-square, 59 d.f., 1 in 4,000


def test_counts_are_scaled_without_bias(tmp_path: Path) -> None:
    text = "second,requests\n" + "".join(f"{second},3\n" for second in range(20_000))
    found = len(sample(tmp_path, text, scale=0.25).gather())
    # 3 / 4 rounded up with probability 3 / 4
    assert abs(found - 15_000) < 4 * (20_000 * 0.75 * 0.25) ** 0.5
    assert len(sample(tmp_path, text, scale=2).gather()) == 120_000


def test_parts_of_a_file_change_nothing(tmp_path: Path) -> None:
    """A file of several parts gives the requests of the rows in one part."""
    text = "second,requests\n" + "".join(f"{second},2\n" for second in range(150_000))
    assert len(text) > 1 << 20
    rows = sample(tmp_path, text).gather()
    assert (np.bincount(rows.arrival // SECOND) == 2).all()
    assert (np.diff(rows.arrival) >= 0).all()


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("step", [1, 7, 60])
def test_a_file_that_comes_in_small_parts_is_the_same_file(
    name: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SAMPLES[name][1].removesuffix("\n")
    whole = sample(tmp_path, text).gather()
    monkeypatch.setattr(stream, "_STEP", step)
    for spelt in (text, text + "\n", text + "\n\n\n"):
        parts = sample(tmp_path, spelt).gather()
        for column, values in whole.columns.items():
            assert (parts.columns[column] == values).all(), column


def test_disorder_is_seen_across_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_STEP", 20)
    times = [0, 1, 2, 3, 5, 4, 6, 7]
    for text, said in (
        (
            "arrival,model\n" + "".join(f"{at},abcdefghijkl\n" for at in times),
            "line 7: arrival: it",
        ),
        ("second,requests\n" + "".join(f"{at},1000000\n" for at in times), "line 7: second"),
        ("t,tps,norm\n" + "".join(f"{at},1,0.0000000000\n" for at in times), "line 7: t: "),
    ):
        with pytest.raises(BadInput, match=said):
            sample(tmp_path, text).gather()


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_STEP", 64)
    monkeypatch.setattr(stream, "_LONGEST_LINE", 1 << 10)
    with pytest.raises(BadInput, match="line 2: a line is longer than"):
        sample(tmp_path, "arrival,model\n1," + "a" * 2000 + "\n").gather()


def test_servegens_clients_have_their_rates_and_shapes(tmp_path: Path) -> None:
    found = sample(tmp_path, SERVEGEN)
    rows = found.gather()
    window = rows.arrival // (600 * SECOND)
    named = list(zip(tenants(found), window.tolist(), strict=True))
    assert named.count(("7", 0)) == 1200
    assert named.count(("0", 0)) == 60
    assert named.count(("0", 1)) == 300
    assert len(found.gather()) == len(sample(tmp_path, SERVEGEN, seed=4).gather())
    assert len(sample(tmp_path, SERVEGEN, scale=2).gather()) == 2 * len(rows)


def test_each_of_servegens_clients_fills_the_window(tmp_path: Path) -> None:
    """n + 1 equal gaps (a Gamma of huge shape) put the k-th of n requests at k / (n + 1)."""
    text = "client,window_s,rate,cv,pattern,p1,p2\n" + "".join(
        f"{client},600,{(client + 1) / 60},1,Gamma,1e6,1\n" for client in range(4)
    )
    found = sample(tmp_path, text)
    rows, who = found.gather(), np.array(tenants(found))
    for client in range(4):
        n = 10 * (client + 1)
        inside = rows.arrival[who == str(client)] / SECOND - 600
        assert inside == pytest.approx(600 * np.arange(1, n + 1) / (n + 1), abs=3)


@pytest.mark.parametrize(
    ("pattern", "shape", "cv"),
    [("Gamma", 0.25, 2.0), ("Gamma", 4.0, 0.5), ("Weibull", 0.5, 5**0.5), ("Weibull", 1.0, 1.0)],
)
def test_servegens_gaps_vary_as_their_shape_says(
    pattern: str, shape: float, cv: float, tmp_path: Path
) -> None:
    """Of a Gamma variate CV^2 = 1 / shape; of a Weibull one of shape 1/2 it is 5."""
    text = "client,window_s,rate,cv,pattern,p1,p2\n" + "".join(
        f"0,{600 * i},40,1,{pattern},{shape},1\n" for i in range(20)
    )
    gap = np.diff(sample(tmp_path, text).gather().arrival)
    assert gap.mean() == pytest.approx(SECOND / 40, rel=1e-3)
    assert gap.std() / gap.mean() == pytest.approx(cv, rel=0.03)


def test_servegens_lengths_are_drawn_from_their_distributions(tmp_path: Path) -> None:
    (tmp_path / "tokens.jsonl").write_text(TOKENS)
    found = sample(tmp_path, SERVEGEN, tokens=str(tmp_path / "tokens.jsonl"))
    rows = found.gather()
    prompts = rows.columns["prompt_tokens"]
    assert set(prompts.tolist()) == {13, 14}
    assert abs(float((prompts == 13).mean()) - 0.5) < 4 * 0.5 / len(prompts) ** 0.5
    assert set(rows.columns["output_tokens"].tolist()) == {1}
    assert found.remarks.notes == [
        "1 clients have no token lengths of their own; they take those of the 1 that have"
    ]
    assert (rows.arrival == sample(tmp_path, SERVEGEN).gather().arrival).all()
    assert (found.gather().columns["prompt_tokens"] == prompts).all()
    other = sample(tmp_path, SERVEGEN, tokens=str(tmp_path / "tokens.jsonl"), seed=1).gather()
    assert (other.columns["prompt_tokens"] != prompts).any()


BAD: list[tuple[str, dict[str, Any], str]] = [
    (AZURE.replace("4808", "x"), {}, "line 2: ContextTokens: 'x' is not a number"),
    (AZURE.replace("4808", "-1"), {}, "line 2: ContextTokens: '-1' is out of range"),
    (AZURE.replace("2023-11-16 18:17:04.0319600", "yesterday"), {}, "line 3: TIMESTAMP"),
    (AZURE.replace("18:17:04.0319600", "10:17:04.0319600"), {}, "line 3: TIMESTAMP: it arrives"),
    (AZURE, {"seed": 1}, "format azure-llm has no option 'seed'"),
    (MOONCAKE.replace("900", '"900"'), {}, "line 2: no valid row: Expected `int`"),
    (MOONCAKE.replace("40,", "40"), {}, "line 2: no valid row"),
    (MOONCAKE.replace(": 40", ": -40"), {}, "line 2: timestamp: -40"),
    (MOONCAKE.replace("900", "-900"), {}, "line 2: input_length: -900 is out of range"),
    (MOONCAKE.replace(": 3000", ": 3"), {}, "line 3: timestamp: it arrives before"),
    (GENAI.replace("4.0", "4.5"), {}, "line 3: num_images_per_prompt: '4.5' is not a whole number"),
    (BURST.replace("\n45", "\n4"), {}, "line 3: Timestamp: it arrives before"),
    (BURST.replace("GPT-4", ""), {}, "line 4: Model: it is empty"),
    (BURST_MINUTES.replace("\n3,", "\n0,").replace("\n0,1223.", "\n-1,1223."), {}, "line 3: t"),
    (BURST_MINUTES, {"tokens_per_request": 0}, "option tokens_per_request: 0"),
    (FUNCTIONS.replace("40", "-40"), {}, "line 3: 3: '-40' is out of range"),
    (FUNCTIONS.replace(",1,2,3\n", ",1,2,1\n"), {}, "line 1: column '1' is listed twice"),
    (FUNCTIONS.replace("40", "40,1"), {}, "line 3: 8 fields where the header has 7"),
    (TWITTER.replace("48", "1e9"), {}, "line 4: requests: '1e9' is out of range"),
    (TWITTER.replace("3,48", "0,48"), {}, "line 4: second: it is before the window above"),
    (TWITTER, {"seed": -1}, "option seed: -1"), (TWITTER, {"seed": 0.5}, "option seed: 0.5"),
    (TWITTER, {"arrivals": "odd"}, "option arrivals: 'odd'"),
    (TWITTER, {"scale": 0}, "option scale: 0"), (TWITTER, {"scale": "x"}, "option scale: 'x'"),
    (SERVEGEN.replace("Weibull", "Pareto"), {}, "line 4: pattern: 'Pareto' is not known"),
    (SERVEGEN.replace("Weibull", ""), {}, "line 4: pattern: it is empty"),
    (SERVEGEN.replace("0.42", "0"), {}, "line 4: p1: '0' is out of range"),
    (SERVEGEN.replace("0.5,1.2", "-1,1.2"), {}, "line 2: rate: '-1' is out of range"),
    (SERVEGEN, {"scale": -1}, "option scale: -1"),
    (SERVEGEN, {"tokens": "none.jsonl"}, "none.jsonl: cannot be read"),
    ("[]\n", {}, "no known format begins with '[]'"),
    ("id,when\n1,2\n", {}, "no known format begins with 'id,when'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "options", "said"), BAD)
def test_a_bad_log_is_one_sentence(
    text: str, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as error:
        sample(tmp_path, text, **options).gather()
    assert said in str(error.value)
    assert error.value.mend


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("{13: 0.5, 14: 0.5}", "{13: x}"), "line 1: no token lengths"),
        (lambda text: text.replace("{13: 0.5, 14: 0.5}", "{13: -1}"), "is not a distribution"),
        (lambda text: text.replace("{13: 0.5, 14: 0.5}", "{-13: 1}"), "is not a distribution"),
        (lambda text: text.replace("{13: 0.5, 14: 0.5}", "{13: 0}"), "is not a distribution"),
        (lambda text: text.replace("input_tokens", "words"), "input_tokens is missing"),
        (lambda text: text.replace('"client": 7', '"client": "x"'), "Expected `int`"),
        (lambda text: text.replace("{13: 0.5, 14: 0.5}", "{}"), "no client has token lengths"),
    ],
)
def test_bad_lengths_are_one_sentence(
    change: Callable[[str], str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "tokens.jsonl").write_text(change(TOKENS))
    with pytest.raises(BadInput, match=said):
        sample(tmp_path, SERVEGEN, tokens=str(tmp_path / "tokens.jsonl"))


def test_bad_rows_of_a_log_are_counted_where_they_are_to_be_skipped(tmp_path: Path) -> None:
    for text, wrong in ((AZURE, "3180"), (BURST, "1087"), (MOONCAKE, "900"), (FUNCTIONS, "40")):
        found = sample(tmp_path, text.replace(wrong, "[x", 1), skip_bad=True)
        rows = found.gather()
        assert 0 < len(rows) < 44
        assert found.remarks.left_out == {"they are malformed": 1}


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    assert sample(tmp_path, AZURE.replace("110,27", "x,y")).name == "log"


ROOT = os.environ.get("GANGER_TRACES", "")
REAL: list[tuple[str, str, int, int, float]] = [
    ("azure-llm-2023/AzureLLMInferenceTrace_code.csv.gz", "azure-llm", 8_819, 0, 13.15),
    ("mooncake-2025/synthetic_trace.jsonl.gz", "mooncake", 3_993, 0, 1.01),
    ("alibaba-genai-2026/lora_request_trace_a.csv.gz", "alibaba-genai", 17_865, 17, 11.96),
    ("azure-functions-2019-sample/invocations_per_minute.csv.gz", "azure-functions", 505_550, 0,
     1.04),
    ("servegen-2025/mm-image_client_rates.csv.gz", "servegen", 818_610, 0, 1.33),
]  # fmt: skip


@pytest.mark.traces
@pytest.mark.skipif(not ROOT, reason="GANGER_TRACES does not name a folder of traces")
@pytest.mark.parametrize(("path", "format_", "count", "left_out", "cv"), REAL)
def test_a_published_log_is_read_whole(
    path: str, format_: str, count: int, left_out: int, cv: float
) -> None:
    """Counts as its publisher states them; the CV of Azure's gaps is 13.2."""
    file = Path(ROOT) / path
    assert detect(file).name == format_
    found = load_requests(file)
    rows = found.gather()
    assert len(rows) == count
    assert sum(found.remarks.left_out.values()) == left_out
    gap = np.diff(rows.arrival)
    assert gap.std() / gap.mean() == pytest.approx(cv, abs=0.01)


@pytest.mark.traces
@pytest.mark.skipif(not ROOT, reason="GANGER_TRACES does not name a folder of traces")
def test_a_day_of_tweets_is_as_many_requests_as_were_counted() -> None:
    found = load_requests(Path(ROOT) / "twitter-rps/twitter_rps_day00-13.csv.gz")
    day = found.between(0, 24 * 60 * MINUTE)
    assert sum(map(len, day.chunks())) == 5_531_778


@pytest.mark.traces
@pytest.mark.skipif(not ROOT, reason="GANGER_TRACES does not name a folder of traces")
def test_a_week_of_burstgpts_minutes() -> None:
    folder = Path(ROOT) / "burstgpt-aggregate"
    assert detect(folder / "tokens_per_second_by_minute.csv.gz").name == "burstgpt-minutes"
    found = len(load_requests(folder / "tokens_per_second_by_minute.csv.gz").gather())
    assert abs(found - 23_100) < 4 * 23_100**0.5


def test_an_access_log_names_models_and_is_spread_over_its_seconds(tmp_path: Path) -> None:
    found = sample(tmp_path, ACCESS)
    assert models(found) == ["a", "b", "a"]
    first, second, third = found.gather().arrival.tolist()
    assert (first, third // SECOND in (1, 2)) == (0, True)
    assert 0 < second < SECOND
    assert "1 rows left out: they ask for no model (/models/NAME)" in found.remarks.lines
    assert sample(tmp_path, ACCESS, seed=1).gather().arrival.tolist()[1] != second
    assert not any("--option model=" in line for line in found.remarks.lines)
    unnamed = sample(tmp_path, ACCESS.replace("/models/", "/"))
    assert len(unnamed.gather()) == 0
    assert any("--option model=resnet50" in line for line in unnamed.remarks.lines)
    every = sample(tmp_path, ACCESS, model="m")
    assert models(every) == ["m"] * 4
    for old, new in (("Nov", "Nox"), ("24/Nov", "31/Nov"), ('] "POST', '"POST')):
        with pytest.raises(BadInput, match=r"line 1: no line of an access log|no known format"):
            sample(tmp_path, ACCESS.replace(old, new)).gather()


WRONG = [
    "",
    ",",
    ",,",
    '"',
    "\n",
    "\r",
    "\0",
    "-",
    "e",
    ".",
    "nan",
    "inf",
    "1e400",
    "9" * 30,
    "é",
    "\x1b[31m",
    "{",
    "}",
    "[",
    "null",
    "0x1",
    "1_0",
    " ",
    "\t",
    "#",
    "-1",
    "\ufeff",
]


OWN = "arrival,model,slo,tenant,items,input\n0.5,a,1s,x,1,3\n1,b,,y,2,\n2.25,a,100ms,,1,0\n"


@pytest.mark.parametrize("name", [*SAMPLES, "burst-minutes", "own"])
def test_a_damaged_log_is_read_or_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    """A hundred damages to each layout: text is put in somewhere, or a stretch is cut out."""
    more = {"burst-minutes": ("", BURST_MINUTES, 0), "own": ("", OWN, 0)}
    text = {**SAMPLES, **more}[name][1]
    rng = np.random.default_rng(len(text))
    refused: list[BadInput] = []
    for _ in range(100):
        at = int(rng.integers(0, len(text)))
        cut = int(rng.integers(0, 4))
        damaged = text[:at] + str(rng.choice(WRONG)) + text[at + cut :]
        for skip_bad in (False, True):
            try:
                found = sample(tmp_path, damaged, skip_bad=skip_bad)
                rows = found.gather()
            except BadInput as error:
                refused.append(error)
            else:
                assert (np.diff(rows.arrival) >= 0).all()
                assert rows.model.max(initial=-1) < len(found.models)
    assert len(refused) > 20
    assert all(error.mend and "\n" not in str(error) for error in refused)
