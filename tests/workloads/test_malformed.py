"""Malformed files: each is refused with exactly one sentence that names the place."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

import pytest

from ganger.core.errors import BadInput
from ganger.workloads.formats import load_trace
from workloads.samples import PHILLY_LOG, SAMPLES, options_of

NUMBERS = ("", "abc", "nan", "inf", "-inf", "1e400", "0x10", "1_000", "--1", "1 2")
TIMES = (*NUMBERS, "-1", "1e12", "-0.001")
DATES = ("", "yesterday", "2017-13-01 00:00:00", "2017-02-30 00:00:00", "2017-10-09 25:00:00", "5")
GPUS = (*NUMBERS, "0", "-1", "1.5", "1000001", "1e18")
NAMES = ("", "\x07bell")

CELLS: list[tuple[str, int, str, tuple[str, ...]]] = [
    ("own", 0, "job", ("a", "\x1b[31m")),
    ("own", 1, "submitted", (*TIMES, "2024-01-01")),
    ("own", 2, "duration", (*TIMES[1:], "1h30")),
    ("own", 3, "gpus", GPUS),
    ("own", 4, "nodes", ("3", "1.5", "x")),
    ("own", 5, "share", ("0", "-1", "1.1", "nan", "0.5", "half")),
    ("own", 6, "cpus", ("-1", "nan", "1e9")),
    ("own", 7, "memory", ("-1", "1.5", "16G", "1e15")),
    ("own", 8, "gpu_memory", ("-1", "x")),
    ("own", 9, "priority", ("1.5", "high", "1e10", "inf")),
    ("own", 10, "weight", ("0", "-1", "nan", "1e10")),
    ("own", 11, "deadline", ("19", "-1", "soon", "nan", "2024-05-01")),
    ("own", 12, "limit", ("-1", "nan", "long", "1e12")),
    ("own", 13, "estimate", ("-1", "nan", "1x")),
    ("own", 14, "steps", ("-1", "nan", "inf")),
    ("own", 15, "min_gpus", ("-1", "9", "3", "x")),
    ("own", 16, "max_gpus", ("x", "1e9")),
    ("own", 17, "kind", ("batch", "0")),
    ("own", 18, "locality", ("near", "2")),
    ("own", 19, "on_preempt", ("maybe",)),
    ("own", 20, "checkpoint", ("-1", "nan", "fast")),
    ("own", 21, "restore", ("-5", "inf")),
    ("own", 22, "after", ("nobody", "a;nobody")),
    ("philly", 0, "timestamp", DATES),
    ("philly", 1, "duration", TIMES),
    ("philly", 2, "num_gpus", GPUS),
    ("helios", 0, "job_id", ("1", *NAMES)),
    ("helios", 3, "gpu_num", ("", "x", "-1", "nan", "1e7")),
    ("helios", 7, "submit_time", DATES),
    ("helios", 10, "duration", TIMES),
    ("venus", 3, "service_sec", TIMES),
    ("venus", 4, "gpu_count", GPUS),
    ("acme", 7, "submit_time", DATES),
    ("acme", 3, "gpu_num", ("", "x", "-1", "nan")),
    ("pai", 0, "job_name", NAMES),
    ("pai", 2, "arrival_s", TIMES),
    ("pai", 4, "gpu_count", GPUS),
    ("pai_tasks", 2, "inst_num", ("x", "-1", "nan", "1e7", "900000")),
    ("pai_tasks", 4, "start_time", ("x", "-1", "nan", "1e12")),
    ("pai_tasks", 5, "end_time", ("x", "-1", "10")),
    ("pai_tasks", 8, "plan_gpu", ("x", "-1", "nan", "1e10")),
    ("openb", 1, "cpu_milli", ("", "x", "-1", "1.5")),
    ("openb", 3, "num_gpu", ("", "x", "-1", "65")),
    ("openb", 4, "gpu_milli", ("", "x", "-1", "1001")),
    ("openb", 8, "creation_time", TIMES),
    ("openb", 9, "deletion_time", ("x", "-1", "1")),
    ("itp", 0, "job_id", ("x-1", "")),
    ("itp", 2, "num_iteration", ("x", "-1", "nan")),
    ("itp", 4, "deadline", ("x", "-1", "nan")),
    ("itp", 6, "num_gpu", GPUS),
    ("gavel", 0, "job_type", ("", "GPT-9 (batch size 1)")),
    ("gavel", 4, "total_steps", NUMBERS),
    ("gavel", 5, "arrival_time", TIMES),
    ("gavel", 6, "scale_factor", GPUS),
    ("gavel10", 7, "priority_weight", ("", "0", "-1", "x")),
    ("gavel10", 8, "slo", ("", "-2", "x", "nan")),
    ("shockwave", 10, "duration", TIMES),
    ("tiresias", 0, "job_id", ("0", "")),
    ("tiresias", 1, "num_gpu", ("", "x", "-1", "1.5", "1e7")),
    ("tiresias", 2, "submit_time", TIMES),
    ("muri", 8, "iteration_time", ("x", "-1", "nan")),
    ("muri", 10, "resource_time_1", ("x", "-1", "inf")),
    ("muri", 12, "priority", ("x", "0.5")),
    ("chronus", 10, "best_effort", ("", "2", "x")),
    ("pollux", 1, "time", TIMES),
    ("pollux", 2, "application", ("", "gpt9")),
    ("pollux", 3, "num_replicas", GPUS),
    ("swf", 1, "submit", ("-1", "x", "nan", "1e12")),
    ("swf", 3, "run", ("x", "nan", "-2")),
    ("swf", 4, "used", ("x", "1.5", "1000001", "-2")),
    ("sacct", 2, "Submit", DATES),
    ("sacct", 5, "ElapsedRaw", ("", "x", "-1", "nan")),
    ("sacct", 6, "TimelimitRaw", ("x", "-1", "1.5")),
    ("sacct", 8, "ReqTRES", ("gres/gpu=lots", "cpu=8,gres/gpu=-2,node=1", "gres/gpu:a100=2x")),
    ("sacct", 13, "Priority", ("x", "-1", "1.5")),
]
CASES = [
    pytest.param(name, column, field, cell, id=f"{name}-{field}-{cell!r}")
    for name, column, field, cells in CELLS
    for cell in cells
]


def test_there_are_hundreds() -> None:
    assert len(CASES) > 300


@pytest.mark.parametrize(("name", "column", "field", "cell"), CASES)
def test_a_bad_cell_is_named_by_file_line_and_field(
    name: str, column: int, field: str, cell: str, tmp_path: Path
) -> None:
    sample = SAMPLES[name]
    path = sample.write(tmp_path, sample.with_cell(column, cell))
    with pytest.raises(BadInput) as caught:
        load_trace(path, sample.format, **options_of(name))
    said = str(caught.value)
    assert f"{sample.file}: line {sample.header + 2}: {field}" in said
    assert caught.value.mend
    assert "\n" not in said

    trace = load_trace(path, sample.format, skip_bad=True, **options_of(name))
    assert trace.jobs == 1
    assert len(trace.skipped) == 1


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "gavel"])
@pytest.mark.parametrize("change", ["short", "long"])
def test_a_ragged_row_is_named(name: str, change: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    lines = sample.text.splitlines()
    row = lines[-1]
    lines[-1] = (
        row.rpartition(sample.delimiter)[0] if change == "short" else (row + sample.delimiter + "7")
    )
    path = sample.write(tmp_path, "\n".join(lines) + "\n")
    with pytest.raises(BadInput, match=f"line {len(lines)}: .* fields"):
        load_trace(path, sample.format, **options_of(name))


HEADED = [name for name, sample in SAMPLES.items() if sample.header == 1]


@pytest.mark.parametrize("name", HEADED)
def test_a_header_without_rows_or_without_its_columns(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    with pytest.raises(BadInput, match="holds no rows"):
        load_trace(sample.write(tmp_path, sample.text.splitlines()[0] + "\n"), sample.format)
    with pytest.raises(BadInput, match=f"{sample.file}: line 1: .*"):
        load_trace(sample.write(tmp_path, "one,two\n1,2\n"), sample.format)


@pytest.mark.parametrize("name", SAMPLES)
def test_files_that_are_no_text(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    path = sample.write(tmp_path)
    for data, said in (
        (b"", "empty"),
        (b" \n\n", "empty"),
        (sample.text.encode("utf-16"), "not UTF-8"),
        (sample.text.encode() + b"\xff\xfe", "not UTF-8"),
        (gzip.compress(sample.text.encode())[:-9], "cut short or damaged"),
        (gzip.compress(sample.text.encode())[:20], "cut short or damaged"),
        (b"\x1f\x8bnot gzip at all", "cut short or damaged"),
    ):
        path.write_bytes(data)
        for format_ in (sample.format, "auto"):
            with pytest.raises(BadInput, match=said) as caught:
                load_trace(path, format_, **options_of(name))
            assert sample.file in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "hello\nworld\n",
        "a,b,c\n1,2,3\n",
        "<html>\n",
        "[1, 2]\n",
        "%PDF-1.7\n",
        "x\ty\n",
        "x" * 300_000,
    ],
)
def test_unknown_formats_are_said_to_be_unknown(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.dat").write_text(text)
    with pytest.raises(BadInput, match=r"x\.dat: no known format begins with"):
        load_trace(tmp_path / "x.dat")


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("job,submitted,gpus", "line 1: column 'duration' is missing (format ganger needs it)"),
        ("JobIDRaw|Start|State|AllocTRES", "line 1: column 'Submit' is missing (format sacct"),
        ("timestamp,num_gpus,cluster", "line 1: column 'duration' is missing (format philly"),
        ("job_id,num_gpu,submit_time,duration", "line 1: column 'model_name' is missing"),
        (
            "Submitted;Duration;GPUs",
            "line 1: no known format begins with 'Submitted;Duration;GPUs' "
            "(write columns in small letters, with commas between)",
        ),
        ("PK\x03\x04\x00\x00", "it is not text (give text, plain or gzip)"),
    ],
)
def test_what_a_nearly_known_format_lacks_is_named(head: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.dat").write_text(head + "\n1,2,3\n")
    with pytest.raises(BadInput, match=re.escape(f"x.dat: {said}")):
        load_trace(tmp_path / "x.dat")


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_lines_may_end_in_carriage_returns(end: str, tmp_path: Path) -> None:
    rows = "job,submitted,duration,gpus\na,0,60,1\nb,5,60,{}\n"
    (tmp_path / "t.csv").write_bytes(rows.format(2).replace("\n", end).encode())
    assert load_trace(tmp_path / "t.csv").jobs == 2
    (tmp_path / "t.csv").write_bytes(rows.format("x").replace("\n", end).encode())
    with pytest.raises(BadInput, match=r"t\.csv: line 3: gpus: 'x' is not a number"):
        load_trace(tmp_path / "t.csv")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.csv")
    for format_ in ("auto", "ganger", "swf"):
        with pytest.raises(BadInput, match="it is a pipe or a device, not a file"):
            load_trace(tmp_path / "t.csv", format_)


def test_what_is_very_long_is_quoted_in_part(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"submitted":0,"duration":1,"gpus":' + "9" * 400 + "}\n")
    with pytest.raises(BadInput, match="line 1: gpus") as caught:
        load_trace(tmp_path / "t.jsonl")
    assert len(caught.value.what) < 200


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="it is a folder"):
        load_trace(tmp_path)
    with pytest.raises(BadInput, match="cannot be read"):
        load_trace(tmp_path / "none.csv")
    with pytest.raises(BadInput, match="cannot be read"):
        load_trace(tmp_path / "none.csv", "philly")
    with pytest.raises(BadInput, match="no format 'excel'"):
        load_trace(tmp_path / "none.csv", "excel")
    with pytest.raises(BadInput, match="has no option 'unit'"):
        load_trace(SAMPLES["philly"].write(tmp_path), unit=5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('submitted,duration,gpus\n0,1,"1\n', "line 2"),
        ("submitted,duration,gpus,gpus\n0,1,1,1\n", "listed twice"),
        ("submitted,duration\n0,1\n", "'gpus' is missing"),
        ("job,submitted,duration,gpus\na,0,1,1\n,0,1,1\n", "line 3: job"),
        ("job,submitted,duration,gpus\na,0,1,1\nb,0,1,1\na,1,1,1\n", "already in line 2"),
        ("submitted,duration,gpus,x_long\n0,1,1," + "y" * 200_000 + "\n", "line 2"),
        ("submitted,duration,gpus,user\n0,1,1," + "y" * 5000 + "\n", "line 2: user"),
        ("job,submitted,duration,gpus,parent\na,0,1,1,zz\n", "no job 'zz'"),
        ("job,submitted,duration,gpus,after\na,0,1,1,a\n", "wait for each other"),
        ("# only a comment\n", "no header|no known format"),
    ],
)
def test_own_csv_as_a_whole(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(BadInput, match=said) as caught:
        load_trace(tmp_path / "t.csv", "ganger")
    assert "t.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: no valid row"),
        ("[1]", "line 2: no valid row"),
        ('{"submitted": true, "duration": 1, "gpus": 1}', "line 2: no valid row"),
        ('{"submitted": {}, "duration": 1, "gpus": 1}', "line 2: no valid row"),
        ('{"submitted": NaN, "duration": 1, "gpus": 1}', "line 2: no valid row"),
        ('{"submitted": 0, "duration": 1}', "line 2: gpus"),
        ('{"submitted": 0, "duration": -1, "gpus": 1}', "line 2: duration"),
        ('{"submitted": 0, "duration": 1, "gpus": 1, "colour": 2}', "unknown column 'colour'"),
        ('{"submitted": 1e999, "duration": 1, "gpus": 1}', "line 2"),
    ],
)
def test_json_lines(line: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"format": "ganger.trace/1"}\n' + line + "\n")
    with pytest.raises(BadInput, match=said) as caught:
        load_trace(tmp_path / "t.jsonl")
    assert "t.jsonl" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"2017-10-09 07:02:29"', '"someday"', "entry 1: submitted_time"),
        ('"2017-10-09 07:02:40"', '"someday"', "entry 1"),
        ('"2017-10-09 07:03:40"', '"2016-10-09 07:03:40"', "entry 1: duration"),
        ('"jobid": "application_1",', "", "entry 1"),
        ('"attempts": []', '"attempts": 5', "entry 2"),
        ("]}]}\n]", "]}]}\n", "not a JSON list"),
        ('"application_1"', '""', "entry 1: jobid"),
    ],
)
def test_philly_log(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in PHILLY_LOG
    (tmp_path / "log").write_text(PHILLY_LOG.replace(old, new))
    with pytest.raises(BadInput, match=said):
        load_trace(tmp_path / "log", "philly")
