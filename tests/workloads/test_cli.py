"""`ganger trace` from the outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ganger.cli.lab.trace import bars, trace
from ganger.cli.options import load_with_options
from ganger.core.errors import BadInput
from ganger.workloads.formats import FORMATS, load_trace
from workloads.samples import SAMPLES, THROUGHPUTS


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(trace, [str(word) for word in words])


def good(*words: str | Path) -> Result:
    result = call(*words)
    assert result.exception is None, result.output
    return result


def test_info_prints_sizes_times_and_arrivals() -> None:
    text = good("info", "demo").stdout
    for word in ("400", "GPU-hours", "median", "run times", "arrivals by hour", "█"):
        assert word in text


def test_info_as_data(tmp_path: Path) -> None:
    facts = json.loads(good("info", SAMPLES["own"].write(tmp_path), "--json").stdout)
    assert facts["jobs"] == 2
    assert facts["gpu_hours"] == pytest.approx((60 * 4 + 30 * 8) / 3600)


def test_slurms_accounting_is_imported(tmp_path: Path) -> None:
    source = SAMPLES["sacct"].write(tmp_path)
    good("import-slurm", source, "-o", tmp_path / "jobs.csv")
    assert load_trace(tmp_path / "jobs.csv").jobs == load_trace(source).jobs
    result = call("import-slurm", SAMPLES["own"].write(tmp_path), "-o", tmp_path / "no.csv")
    assert isinstance(result.exception, BadInput)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in ("gavel", "gavel10")])
def test_info_reads_every_format(name: str, tmp_path: Path) -> None:
    assert "jobs" in good("info", SAMPLES[name].write(tmp_path)).stdout


def test_info_of_services_only(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("submitted,duration,gpus,kind\n0,,1,serve\n")
    assert "all at once" in good("info", path).stdout


@pytest.mark.parametrize("file", ["o.csv", "o.csv.gz", "o.jsonl", "o.parquet", "o.swf"])
def test_convert_and_synth_write_every_dress(file: str, tmp_path: Path) -> None:
    first = tmp_path / f"first-{file}"
    assert "200 jobs written" in good("synth", "philly", "--jobs", "200", "-o", first).stderr
    good("convert", first, tmp_path / file)
    assert load_trace(tmp_path / file).jobs == 200


def test_convert_takes_format_options_and_says_what_it_left_out(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(THROUGHPUTS))
    path = SAMPLES["gavel"].write(tmp_path, SAMPLES["gavel"].with_cell(6, "zero"))
    result = good(
        "convert",
        path,
        tmp_path / "o.csv",
        "--skip-bad",
        "--option",
        f"throughputs={tmp_path / 't.json'}",
    )
    assert "note: " in result.stderr
    assert "line 2: scale_factor" in result.stderr
    assert "1 jobs written" in result.stderr


def test_formats_lists_them_all() -> None:
    text = good("formats").stdout
    assert all(name in text for name in FORMATS)


def test_help_has_examples() -> None:
    for command in ("info", "convert", "synth", "formats"):
        assert "Example" in good(command, "--help").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("info", "none.csv"), "none.csv"),
        (("info", "moon:100"), "no kind 'moon'"),
        (("info", "demo", "--load", "0.5"), "--load: on how many GPUs?"),
        (("info", "demo", "--load", "x", "--gpus", "8"), "--load"),
        (("info", "demo", "--from", "later"), "--from"),
        (("info", "demo", "--from", "900d"), "no job is left"),
        (("info", "demo", "--sample", "2"), "sample"),
        (("info", "demo", "--repeat", "0"), "repeat"),
        (("synth", "philly", "--jobs", "0", "-o", "x.csv"), "0 jobs"),
        (("convert", "demo", "x.csv", "--to-format", "word"), "no format 'word'"),
    ],
)
def test_errors_are_for_the_caller_to_print(words: tuple[str, ...], said: str) -> None:
    result = call(*words)
    assert isinstance(result.exception, BadInput)
    assert said in str(result.exception)


def test_options_cut_in_a_fixed_order() -> None:
    chosen = {"start": "1h", "stop": "20h", "repeat": 2, "load": "0.5", "sample": 0.9}
    loaded = load_with_options("demo", chosen, gpus=64)
    notes = loaded.source.split("; ")
    assert [note.split()[0] for note in notes[1:]] == ["window", "a", "2", "load"]
    unscaled = load_with_options("demo", chosen)
    assert "load" not in unscaled.source.replace("workload", "")


def test_generated_workloads_need_no_file() -> None:
    assert load_with_options("helios:300:7", {}).jobs == 300
    with pytest.raises(BadInput, match="--option"):
        load_with_options("x.csv", {"options": ("throughputs",)})


def test_bars() -> None:
    assert bars([0, 1, 8]) == " ▁█"
    assert bars([]) == ""
