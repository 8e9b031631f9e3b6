"""A hundred things that people get wrong in the commands that serve requests: each is one clear
error, and nothing is lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from ganger.cli.lab.recommend import recommend
from ganger.cli.lab.serving.requests import requests
from ganger.cli.lab.simulate import simulate
from ganger.core.errors import BadInput

MODELS = """format = "ganger.models/1"
devices = [{ name = "T4", memory = "15GiB" }, { name = "L4" }]
[[models]]
name = "small"
family = "faces"
bytes = 600_000_000
latency = [{ device = "T4", base = 0.004, each = 0.001, largest = 8 }]
[[models]]
name = "large"
bytes = 300_000_000
latency = [{ device = "T4", batch = [1, 4], mean = [0.01, 0.02], p99 = [0.012, 0.03] }]
[[pipelines]]
name = "both"
stages = [{ name = "one", model = "small" }, { name = "two", model = "large" }]
edges = [{ from = "one", to = "two" }]
"""
ROWS = "arrival,model,deadline,items\n0,small,0.1,1\n0.001,small,0.1,2\n0.002,large,0.2,1\n"
COMMANDS = {
    "requests": (requests, ["simulate", "r.csv", "--models", "m.toml", "--fleet", "T4:2"]),
    "simulate": (simulate, ["r.csv", "--models", "m.toml", "--cluster", "1x2xT4"]),
    "recommend": (recommend, ["r.csv", "--models", "m.toml", "--fleets", "T4:1-2", "--slo", "1s"]),
}


class Wrong(NamedTuple):
    """What is put in place of what, in one of the two files; the whole file, if of nothing."""

    file: str
    old: str
    new: str


FILES = [
    # requests
    Wrong("r.csv", "", ""),
    Wrong("r.csv", "", "\n\n\n"),
    Wrong("r.csv", "", "arrival,model\n"),
    Wrong("r.csv", "", "\x00\x01\x02\x03"),
    Wrong("r.csv", "", "no header at all\n1\n2\n"),
    Wrong("r.csv", "", '{"arrival": 0}\n'),
    Wrong("r.csv", "arrival,", ""),
    Wrong("r.csv", "model,", "arrival,"),
    Wrong("r.csv", "0.001,small", "-1,small"),
    Wrong("r.csv", "0.001,small", "soon,small"),
    Wrong("r.csv", "0.001,small", "nan,small"),
    Wrong("r.csv", "0.001,small", "inf,small"),
    Wrong("r.csv", "0.001,small", "1e300,small"),
    Wrong("r.csv", "0.001,small", ",small"),
    Wrong("r.csv", "0.002,large", "0.0005,large"),
    Wrong("r.csv", "0.002,large", "0.002,neither"),
    Wrong("r.csv", "0.002,large", "0.002,huge"),
    Wrong("r.csv", "0.002,large", "0.002,"),
    Wrong("r.csv", "0.002,large", "0.002,large,1"),
    Wrong("r.csv", "0.002,large,0.2,1", "0.002,large"),
    Wrong("r.csv", "0.1,2", "0.1,0"),
    Wrong("r.csv", "0.1,2", "0.1,-2"),
    Wrong("r.csv", "0.1,2", "0.1,2.5"),
    Wrong("r.csv", "0.1,2", "0.1,9"),
    Wrong("r.csv", "0.1,2", "0.0005,2"),
    Wrong("r.csv", "0.2,1", "0.003,1"),
    Wrong("r.csv", "0.2,1", "late,1"),
    Wrong("r.csv", "0.2,1", '"0.2,1'),
    # models
    Wrong("m.toml", "", ""),
    Wrong("m.toml", "", "\x00\x01"),
    Wrong("m.toml", "", "arrival,model\n0,small\n"),
    Wrong("m.toml", 'format = "ganger.models/1"', ""),
    Wrong("m.toml", "ganger.models/1", "ganger.models/9"),
    Wrong("m.toml", "base = 0.004, each = 0.001", "base = 0.0, each = 0.0"),
    Wrong("m.toml", "base = 0.004", "base = -0.004"),
    Wrong("m.toml", "base = 0.004", "base = nan"),
    Wrong("m.toml", "base = 0.004", "base = 'fast'"),
    Wrong("m.toml", "base = 0.004", "bass = 0.004"),
    Wrong("m.toml", "each = 0.001", "each = -0.001"),
    Wrong("m.toml", "largest = 8", "largest = 0"),
    Wrong("m.toml", "largest = 8", "largest = 1e9"),
    Wrong("m.toml", "mean = [0.01, 0.02]", "mean = [0.02, 0.01]"),
    Wrong("m.toml", "mean = [0.01, 0.02]", "mean = [0.0, 0.02]"),
    Wrong("m.toml", "mean = [0.01, 0.02]", "mean = [0.01]"),
    Wrong("m.toml", "mean = [0.01, 0.02]", "mean = []"),
    Wrong("m.toml", "p99 = [0.012, 0.03]", "p99 = [0.002, 0.03]"),
    Wrong("m.toml", "batch = [1, 4]", "batch = [4, 1]"),
    Wrong("m.toml", "batch = [1, 4]", "batch = [4, 4]"),
    Wrong("m.toml", "batch = [1, 4]", "batch = [0, 4]"),
    Wrong("m.toml", 'name = "large"', 'name = "small"'),
    Wrong("m.toml", 'name = "large"', ""),
    Wrong("m.toml", "bytes = 600_000_000", "bytes = -1"),
    Wrong("m.toml", "bytes = 600_000_000", "bytes = 90_000_000_000"),
    Wrong("m.toml", "bytes = 300_000_000", "bytes = 90_000_000_000"),
    Wrong("m.toml", "bytes = 300_000_000", "bytes = 9e99"),
    Wrong("m.toml", 'device = "T4", base', 'device = "V9", base'),
    Wrong("m.toml", 'memory = "15GiB"', 'memory = "much"'),
    Wrong("m.toml", 'memory = "15GiB"', 'memory = "0GiB"'),
    Wrong("m.toml", 'model = "large"', 'model = "vast"'),
    Wrong("m.toml", "[[models]]", "[[models]"),
]
"""Each is tried in one of the commands, in turn."""
OPTIONS = [
    ("requests", "--fleet", "T4"),
    ("requests", "--fleet", ""),
    ("requests", "--fleet", "T4:0"),
    ("requests", "--fleet", "T4:-1"),
    ("requests", "--fleet", "T4:1.5"),
    ("requests", "--fleet", "T4:99999999"),
    ("requests", "--fleet", "T4:1+T4:2"),
    ("requests", "--fleet", "L4:1"),
    ("requests", "--fleet", "V100:1"),
    ("requests", "--fleet", "T4:1,,T4:2"),
    ("requests", "--models", "nowhere.toml"),
    ("requests", "--models", "r.csv"),
    ("requests", "--recipe", "fifo"),
    ("requests", "--recipe", "scale.reactive"),
    ("requests", "--recipe", "clockwerk"),
    ("requests", "--recipe", "clockwork(largest=0)"),
    ("requests", "--recipe", "clockwork(longest=never)"),
    ("requests", "--recipe", "serve.triton(size=4"),
    ("requests", "--recipe", ""),
    ("requests", "--slo", "0s"),
    ("requests", "--slo", "-5ms"),
    ("requests", "--slo", "soon"),
    ("requests", "--faster", "0"),
    ("requests", "--faster", "-1"),
    ("requests", "--faster", "nan"),
    ("requests", "--latency-noise", "-1"),
    ("requests", "--latency-noise", "inf"),
    ("requests", "--seed", "-1"),
    ("requests", "--seed", "9-1"),
    ("requests", "--format", "tarot"),
    ("requests", "--per-request", "no/where/out.csv"),
    ("requests", "--workers", "0"),
    ("simulate", "--cluster", "0x2xT4"),
    ("simulate", "--cluster", "1x2xL4"),
    ("simulate", "--cluster", "many"),
    ("simulate", "--cluster", "m.toml"),
    ("simulate", "--recipe", "fifo"),
    ("simulate", "--models", "nowhere.toml"),
    ("simulate", "--serving", "scale.reactive"),
    ("simulate", "--requests", "r.csv"),
    ("simulate", "--knows", "truth"),
    ("simulate", "--slo", "0s"),
    ("recommend", "--fleets", "T4"),
    ("recommend", "--fleets", "T4:2-1"),
    ("recommend", "--fleets", "T4:0-0"),
    ("recommend", "--fleets", "L4:1-2"),
    ("recommend", "--fleets", "T4:1-99999999"),
    ("recommend", "--attainment", "0"),
    ("recommend", "--attainment", "1.5"),
    ("recommend", "--price", "T4"),
    ("recommend", "--price", "T4=free"),
    ("recommend", "--price", "T4=-1"),
    ("recommend", "--price", "V9=2"),
    ("recommend", "--recipes", "fifo"),
    ("recommend", "--slo", "0s"),
]


def called(folder: Path, command: str, *words: str, **files: str) -> str:
    """The one error of a command in a folder with both files and what was made before, of which
    nothing is lost."""
    texts = {"r.csv": ROWS, "m.toml": MODELS, "out.csv": "of the run before", **files}
    for name, text in texts.items():
        (folder / name).write_text(text)
    function, given = COMMANDS[command]
    if command == "requests":
        given = [*given, "--per-request", "out.csv"]
    result = CliRunner().invoke(function, [*given, *words], env={"COLUMNS": "80"})
    assert {path.name: path.read_text() for path in folder.iterdir()} == texts
    assert result.stdout == ""
    if isinstance(result.exception, BadInput):
        assert result.exception.mend
        return str(result.exception)
    assert result.exit_code == 2, result.output
    return result.output.strip().splitlines()[-1].removeprefix("Error: ")


@pytest.mark.parametrize("at", range(len(FILES)))
def test_a_damaged_file_is_one_error(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = FILES[at]
    whole = {"r.csv": ROWS, "m.toml": MODELS}[wrong.file]
    assert wrong.old in whole
    text = whole.replace(wrong.old, wrong.new, 1) if wrong.old else wrong.new
    command = list(COMMANDS)[at % len(COMMANDS)]
    name = {"r.csv": "r", "m.toml": "m.toml"}[wrong.file]
    said = called(tmp_path, command, **{wrong.file: text})
    assert "\n" not in said
    assert said.startswith((name, "clockwork", "serve.triton")), said


@pytest.mark.parametrize(("command", "option", "value"), OPTIONS)
def test_a_wrong_option_is_one_error(
    command: str, option: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = called(tmp_path, command, option, value)
    assert "\n" not in said
    parts = [option.strip("-"), *(part for part in re.split("[:x(]", value) if len(part) > 1)]
    assert any(part in said for part in parts), said


def test_there_are_a_hundred() -> None:
    assert len(FILES) + len(OPTIONS) >= 100


def test_a_model_that_no_device_can_hold_is_said_also_of_a_recipe_that_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    huge = MODELS.replace("bytes = 300_000_000", "bytes = 90_000_000_000")
    said = called(tmp_path, "requests", "--recipe", "clockwork", **{"m.toml": huge})
    assert "'large' needs 83.82 GiB, and no device of T4:2 has so much" in said
