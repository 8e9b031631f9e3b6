"""`ganger requests` from the outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ganger.cli.lab.serving.requests import requests
from ganger.cli.main import cli
from ganger.core.errors import BadInput
from ganger.workloads.requests.formats import FORMATS, load_requests
from workloads.requests.test_readers import GENAI, TWITTER


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(requests, [str(word) for word in words], env={"COLUMNS": "80"})


def good(*words: str | Path) -> Result:
    result = call(*words)
    assert result.exception is None, result.output
    return result


KINDS = {
    "poisson": ("--rate", "100"), "gamma": ("--rate", "100", "--cv", "3"),
    "mmpp": ("--rates", "20,400", "--stays", "5s,1s"),
    "diurnal": ("--rate", "100", "--swing", "1", "--peak", "10s", "--period", "1m"),
    "step": ("--rate", "100", "--to", "50", "--at", "20s"),
    "spike": ("--rate", "50", "--to", "1000", "--at", "20s", "--width", "3s", "--cv", "2"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_made_and_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    words = (
        "synth",
        kind,
        *KINDS[kind],
        "--duration",
        "1m",
        "--models",
        "5",
        "--zipf",
        "1",
        "--tenants",
        "2",
        "--slo",
        "50ms",
        "--items",
        "2",
        "--prompt-tokens",
        "90",
        "--output-tokens",
        "9",
        "--inputs",
        "40",
        "--seed",
        "7",
    )
    said = good(*words, "-o", path).stderr
    rows = load_requests(path).gather()
    assert said == f"{len(rows):,} requests written to {path}\n"
    assert 1000 < len(rows) < 20_000
    assert set(rows.columns) == {
        "arrival",
        "model",
        "deadline",
        "tenant",
        "items",
        "prompt_tokens",
        "output_tokens",
        "input",
    }
    assert good(*words, "-o", "-").stdout_bytes == path.read_bytes()
    facts = json.loads(good("stats", path, "--json").stdout)
    assert facts["requests"] == len(rows)
    assert (facts["model_count"], facts["tenant_count"]) == (5, 2)
    assert facts["slo_seconds"]["p50"] == pytest.approx(0.05)


def test_stats_are_printed_in_80_columns(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text(GENAI)
    done = good("stats", tmp_path / "g.csv")
    for word in ("requests", "load over time", "CV of the gaps", "tenants", "M0001", "items", "█"):
        assert word in done.stdout
    assert max(map(len, done.stdout.replace(str(tmp_path), "").splitlines())) <= 80
    assert "note: 1 rows left out: they name no model" in done.stderr
    assert "note: 1 requests did not succeed" in done.stderr


def test_convert_reads_what_others_write(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TWITTER)
    done = good(
        "convert",
        tmp_path / "t.csv",
        tmp_path / "o.csv.gz",
        "--option",
        "seed=3",
        "--option",
        "arrivals=even",
        "--from",
        "2",
        "--to",
        "3500ms",
    )
    rows = load_requests(tmp_path / "o.csv.gz").gather()
    assert f"{len(rows)} requests written" in done.stderr
    assert len(rows) == 24
    assert rows.arrival.min() >= 1_000_000
    assert rows.arrival.max() < 1_500_000


def test_convert_sorts_and_skips_where_asked_to(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("arrival,model\n2,a\n1,b\nx,c\n")
    done = good("convert", tmp_path / "r.csv", "-", "--sort", "--skip-bad")
    assert done.stdout == "# format: ganger.requests/1\narrival,model\n1,b\n2,a\n"
    assert "note: 1 rows left out: they are malformed" in done.stderr
    assert "line 4: arrival: 'x' is not a number" in done.stderr


def test_a_file_is_not_written_over_itself(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("arrival\n1\n")
    assert isinstance(call("convert", tmp_path / "r.csv", tmp_path / "r.csv").exception, BadInput)
    assert (tmp_path / "r.csv").read_text() == "arrival\n1\n"


def test_what_is_wrong_leaves_no_file_behind(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("arrival\nx\n")
    assert isinstance(call("convert", tmp_path / "r.csv", tmp_path / "o.csv").exception, BadInput)
    assert not (tmp_path / "o.csv").exists()
    (tmp_path / "r.csv").write_text("arrival\n" + "1\n" * 900_000 + "x\n")
    (tmp_path / "o.csv").write_text("older")
    assert isinstance(call("convert", tmp_path / "r.csv", tmp_path / "o.csv").exception, BadInput)
    assert (tmp_path / "o.csv").read_text() == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.csv", "r.csv"]


def test_formats_lists_them_all() -> None:
    text = good("formats").stdout
    assert all(name in text for name in FORMATS)


def test_help_has_examples_and_fits() -> None:
    for words in (("synth",), ("stats",), ("convert",), ("formats",)):
        done = CliRunner().invoke(cli, ["requests", *words, "--help"], env={"COLUMNS": "80"})
        assert "Example" in done.stdout
        assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


BAD: list[tuple[tuple[str, ...], str]] = [
    (("synth", "chaos", "--rate", "1", "-o", "x"), "synth: no kind 'chaos'"),
    (("synth", "poisson", "-o", "x"), "--rate: it is needed"),
    (("synth", "poisson", "--rate", "1", "-o", "x"), "it has no end"),
    (("synth", "poisson", "--rate", "-1", "--requests", "9", "-o", "x"), "-1 requests per second"),
    (("synth", "poisson", "--rate", "1", "--requests", "0", "-o", "x"), "requests: 0 requests"),
    (("synth", "poisson", "--rate", "1", "--duration", "soon", "-o", "x"), "--duration: 'soon'"),
    (("synth", "poisson", "--rate", "1", "--duration", "99999d", "-o", "x"), "up to ten years"),
    (("synth", "poisson", "--rate", "1", "--cv", "2", "-o", "x"), "--cv: it means nothing for poi"),
    (("synth", "gamma", "--rate", "1", "--requests", "9", "-o", "x"), "--cv: how bursty?"),
    (("synth", "gamma", "--rate", "1", "--cv", "-1", "--requests", "9", "-o", "x"), "cv: -1"),
    (("synth", "gamma", "--rate", "1", "--cv", "100.1", "--requests", "9", "-o", "x"), "0 to 100"),
    (("synth", "gamma", "--rate", "1", "--cv", "nan", "--requests", "9", "-o", "x"), "cv: nan"),
    (("synth", "step", "--rate", "1", "--to", "2", "-o", "x"), "--at: it is needed"),
    (("synth", "mmpp", "--rates", "1,x", "--stays", "1s,1s", "-o", "x"), "--rates: 'x' is not"),
    (("synth", "mmpp", "--rate", "1", "-o", "x"), "--rate: it means nothing for mmpp"),
    (("synth", "diurnal", "--rate", "1", "--swing", "2", "-o", "x"), "swing: 2"),
    (("synth", "poisson", "--rate", "1", "--requests", "9", "--models", "0", "-o", "x"), "models"),
    (("synth", "poisson", "--rate", "1", "--requests", "9", "--slo", "0", "-o", "x"), "SLO of 0 s"),
    (("synth", "poisson", "--rate", "1", "--requests", "9", "-o", "no/x.csv"), "cannot be written"),
    (("stats", "none.csv"), "none.csv: cannot be read"),
    (("stats", "."), "it is a folder"),
    (("stats", "r.csv", "--format", "xml"), "no format 'xml'"),
    (("stats", "r.csv", "--option", "seed=1"), "format ganger has no option 'seed'"),
    (("stats", "r.csv", "--option", "seed"), "'seed' has no value"),
    (("stats", "r.csv", "--from", "5", "--to", "5"), "no time is left"),
    (("stats", "r.csv", "--from", "x"), "--from: 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), BAD)
def test_bad_words_are_one_sentence(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text("arrival\n1\n")
    error = call(*words).exception
    assert isinstance(error, BadInput)
    assert said in str(error)
    assert error.mend
    assert not (tmp_path / "x").exists()
