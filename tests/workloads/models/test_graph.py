"""Operators of a model, where a batch can be cut, and what runs use of a device."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ganger.cli.lab.serving.models import models as command
from ganger.core.errors import BadInput
from ganger.lab.serving.fleet import read_fleet
from ganger.lab.serving.run import known_of
from ganger.workloads.models.document import Document
from ganger.workloads.models.profiles import Model, Operators
from ganger.workloads.models.reading import read_models
from ganger.workloads.models.writing import as_toml

GOOD = """format = "ganger.models/1"
devices = [{name = "T4"}]
[[models]]
name = "net"
bytes = 100
parameters = [{id = "trunk", bytes = 60}]
operators = [
  {name = "stem", time = 0.25, output_bytes = 800},
  {name = "left", time = 0.25, border = false, parameters = "trunk"},
  {name = "right", time = 0.125, inputs = ["stem"], border = false},
  {name = "join", time = 0.125, inputs = ["left", "right"]},
  {name = "head", time = 0.25},
]
[[models.latency]]
device = "T4"
batch = [1, 2]
mean = [0.004, 0.008]
[[models.utilisation]]
device = "T4"
every = 0.001
compute = [0.5, 1.0, 0.3]
memory_bytes = [1048576, 2097152, 2097152]
source = "a profiler"
"""


def read(folder: Path, text: str) -> Model:
    (folder / "m.toml").write_text(text)
    return read_models(folder / "m.toml").models["net"]


def test_a_batch_can_be_cut_between_segments(tmp_path: Path) -> None:
    graph = read(tmp_path, GOOD).operators
    assert graph is not None
    assert graph.inputs == ((), (0,), (0,), (1, 2), (3,))
    assert graph.segments == [(0, 1, 0.25), (1, 4, 0.5), (4, 5, 0.25)]
    assert graph.borders == (0.25, 0.75)
    assert graph.parameters == ("", "trunk", "", "", "")
    assert graph.output_bytes.tolist() == [800, 0, 0, 0, 0]


def test_operators_without_time_are_no_segments(tmp_path: Path) -> None:
    first = GOOD.replace('"stem", time = 0.25', '"stem", time = 0.0').replace(
        '"left", time = 0.25', '"left", time = 0.5'
    )
    graph = read(tmp_path, first).operators
    assert graph is not None
    assert graph.segments == [(0, 4, 0.75), (4, 5, 0.25)]
    last = GOOD.replace('"head", time = 0.25', '"head", time = 0.0').replace(
        '"left", time = 0.25', '"left", time = 0.5'
    )
    graph = read(tmp_path, last).operators
    assert graph is not None
    assert graph.segments == [(0, 1, 0.25), (1, 5, 0.75)]
    assert graph.borders == (0.25,)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30))
def test_segments_cover_all_operators_and_borders_rise(drawn: list[tuple[float, bool]]) -> None:
    time = np.array([each for each, _ in drawn]) + np.array([1e-6] + [0] * (len(drawn) - 1))
    graph = Operators(
        tuple(map(str, range(len(drawn)))),
        time / time.sum(),
        ((),) * len(drawn),
        np.zeros(len(drawn), np.int64),
        ("",) * len(drawn),
        np.array([cut for _, cut in drawn]),
    )
    ends = [0, *(last for _, last, _ in graph.segments)]
    assert [first for first, *_ in graph.segments] == ends[:-1]
    assert ends[-1] == len(drawn)
    assert sum(part for *_, part in graph.segments) == pytest.approx(1)
    around = (0.0, *graph.borders, 1.0)
    assert all(before < after for before, after in pairwise(around))
    assert len(around) == len(graph.segments) + 1


def test_routers_know_the_borders(tmp_path: Path) -> None:
    fleet = read_fleet("T4:1")
    assert known_of(read(tmp_path, GOOD), fleet).borders == (0.25, 0.75)
    without = GOOD[: GOOD.index("operators")] + GOOD[GOOD.index("[[models.latency]]") :]
    assert known_of(read(tmp_path, without), fleet).borders == ()


def test_times_that_were_rounded_are_whole_again(tmp_path: Path) -> None:
    graph = read(tmp_path, GOOD.replace('"head", time = 0.25', '"head", time = 0.2499')).operators
    assert graph is not None
    assert graph.time.sum() == pytest.approx(1, abs=1e-12)


def test_what_runs_use_is_kept_by_device(tmp_path: Path) -> None:
    (series,) = read(tmp_path, GOOD).utilisation
    assert (series.device, series.share, series.every_seconds) == ("T4", 1.0, 0.001)
    assert series.series["compute"].tolist() == [0.5, 1.0, 0.3]
    assert set(series.series) == {"compute", "memory_bytes"}
    assert series.source == "a profiler"


BAD = [
    ('"head", time = 0.25', '"head", time = 0.35', "operators: together they take 1.1 of the time"),
    ('"head", time = 0.25', '"head", time = -0.1', "operators[4].time: it is less than 0"),
    ('"head", time = 0.25', '"head"', "operators[4]: Object missing required field `time`"),
    ('"head"', '"stem"', "operators: 'stem' is there twice"),
    ('["left", "right"]', '["left", "rigth"]',
     "operator 'join': its input 'rigth' is not there (did you mean 'right'?)"),
    ('["stem"]', '["head"]', "operator 'right': its input 'head' comes after it"),
    ('["stem"]', '["right"]', "operator 'right': its input 'right' is the operator itself"),
    ('"trunk"}', '"trunc"}',
     "operator 'left': there are no parameters 'trunc' (did you mean 'trunk'?)"),
    ("output_bytes = 800", "output_bytes = 0", "output_bytes: it is less than 1, got 0"),
    ("border = false,", "border = 3,", "border: Expected `bool`, got `int`"),
    ("compute = [0.5, 1.0, 0.3]", "compute = [0.5, 1.5, 0.3]",
     "compute[1]: it is more than 1, got 1.5"),
    ("compute = [0.5, 1.0, 0.3]", "compute = [0.5]",
     "utilisation on 'T4': 1 values of compute and 3 of memory_bytes"),
    ("compute = [0.5, 1.0, 0.3]\nmemory_bytes = [1048576, 2097152, 2097152]", "",
     "utilisation on 'T4': it has no series"),
    ("every = 0.001", "every = 0", "utilisation[0].every: it is not above 0"),
    ('[[models.utilisation]]\ndevice = "T4"', '[[models.utilisation]]\ndevice = "T5"',
     "utilisation on 'T5': the device is not known (add it to [[devices]])"),
    ('source = "a profiler"',
     '[[models.utilisation]]\ndevice = "T4"\nevery = 1.0\ncompute = [0.1]',
     "utilisation: 'T4 at share 1' is there twice"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), BAD)
def test_a_bad_graph_is_one_sentence(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in GOOD
    with pytest.raises(BadInput) as error:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert said in str(error.value)
    assert str(error.value).startswith(str(tmp_path))
    assert error.value.mend
    assert "\n" not in str(error.value)


def call(*words: str | Path) -> Any:
    return CliRunner().invoke(command, [str(word) for word in words])


def test_the_command_shows_segments_and_use(tmp_path: Path) -> None:
    read(tmp_path, GOOD)
    said = " ".join(call("show", tmp_path / "m.toml", "net").stdout.split())
    assert "5 operators; a batch can be cut into 3 segments of 25.0%, 50.0%, 25.0%" in said
    assert "T4 uses compute: mean 60%, peak 100%" in said
    assert "T4 uses memory bytes: mean 1.7 MiB, peak 2.0 MiB" in said
    (model,) = json.loads(call("show", tmp_path / "m.toml", "net", "--json").stdout)["models"]
    assert model["segments"][1] == {"first": "left", "last": "join", "time": 0.5}
    assert model["utilisation"][0]["compute"] == [0.5, 1.0, 0.3]


def test_a_graph_that_is_written_says_what_was_read() -> None:
    import tomllib

    document = msgspec.convert(tomllib.loads(GOOD), Document)
    assert msgspec.convert(tomllib.loads(as_toml(document)), Document) == document
