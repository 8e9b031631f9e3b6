"""Requests that name nothing known, or that nothing can answer in time, are found when read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ganger.cli.lab.serving.models import models as command
from ganger.core.errors import BadInput
from ganger.core.state.names import Names
from ganger.workloads.models.matching import Fastest, matched
from ganger.workloads.models.profiles import Models
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.columns import Chunk, Requests
from ganger.workloads.requests.formats import load_requests

MODELS = """format = "ganger.models/1"
devices = [{name = "T4"}, {name = "A100"}]
[[models]]
name = "small"
family = "digits"
latency = [{device = "T4", batch = [1, 2], mean = [0.004, 0.005]},
           {device = "A100", base = 0.001, each = 0.001, largest = 8}]
[[models]]
name = "large"
family = "digits"
latency = [{device = "T4", batch = [1], mean = [0.020]}]
[[models]]
name = "alone"
latency = [{device = "T4", batch = [4, 8], mean = [0.007, 0.009]}]
[[models]]
name = "speaker"
tokens = [{device = "A100", prefill = {base = 0.03, token = 0.001}, decode = {batch = [1], \
seconds = [0.02]}}]
[[pipelines]]
name = "read"
stages = [{name = "a", model = "small"}, {name = "b", model = "alone"},
          {name = "c", model = "speaker"}]
edges = [{from = "a", to = "b"}, {from = "a", to = "c"}]
"""


@pytest.fixture
def models(tmp_path: Path) -> Models:
    (tmp_path / "m.toml").write_text(MODELS)
    return read_models(tmp_path / "m.toml")


def read(models: Models, folder: Path, rows: str) -> Chunk:
    (folder / "r.csv").write_text("arrival,model,slo\n" + rows)
    return matched(load_requests(folder / "r.csv"), models).gather()


def test_the_fastest_answer_is_that_of_the_fastest_variant(models: Models) -> None:
    times = {
        "small": 0.002,
        "large": 0.002,
        "digits": 0.002,
        "alone": 0.007,
        "speaker": 0.031,
        "read": 0.033,
    }
    for name, seconds in times.items():
        assert Fastest(models).seconds(name, "") == pytest.approx(seconds), name


def test_a_stage_that_may_be_handed_nothing_takes_no_time_for_sure(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(MODELS.replace('to = "c"', 'to = "c", items = 0.9'))
    assert Fastest(read_models(tmp_path / "m.toml")).seconds("read", "") == pytest.approx(0.009)


def test_requests_that_can_be_answered_pass(models: Models, tmp_path: Path) -> None:
    rows = read(models, tmp_path, "0,small,2ms\n1,digits,\n2,read,33ms\n3,alone,7ms\n4,large,1h\n")
    assert len(rows) == 5
    assert rows.arrival.tolist() == [0, 1_000_000, 2_000_000, 3_000_000, 4_000_000]
    checked = matched(load_requests(tmp_path / "r.csv", skip_bad=True), models)
    (tmp_path / "r.csv").write_text("arrival,model\nx,small\n1,alone\n")
    assert len(checked.gather()) == 1
    assert checked.remarks.left_out == {"they are malformed": 1}


def test_names_that_no_request_uses_need_not_be_there(models: Models) -> None:
    rows = Chunk(np.array([0, 1]), np.array([1, 1], np.int32))
    assert len(matched(Requests.of(rows, Names(["ghost", "small"])), models).gather()) == 2


def test_names_may_come_late(models: Models, tmp_path: Path) -> None:
    rows = "".join(f"1,{name},1s\n" * 100_000 for name in ("small", "large", "alone"))
    assert len(read(models, tmp_path, rows)) == 300_000
    with pytest.raises(BadInput, match="there is no model 'no'"):
        read(models, tmp_path, rows + "1,no,\n")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1,smal,", "r.csv: request 2: there is no model 'smal' (did you mean 'small'?)"),
        ("1,unheard,", "r.csv: request 2: there is no model 'unheard' (add it to the models file)"),
        (
            "1,large,1ms",
            "r.csv: request 2: model 'large' has 1 ms to answer, and no variant answers in"
            " less than 2 ms even alone (give a longer SLO)",
        ),
        ("1,alone,6999us", "request 2: model 'alone' has 7 ms"),
        (
            "1,read,32ms",
            "request 2: pipeline 'read' has 32 ms to answer, and its stages take 33 ms"
            " even alone (give a longer SLO)",
        ),
    ],
)
def test_a_request_that_nothing_can_answer_is_one_sentence(
    row: str, said: str, models: Models, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as error:
        read(models, tmp_path, f"0,small,1s\n{row}\n")
    assert said in str(error.value)


def test_a_late_request_keeps_its_number(models: Models, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="request 150001: model 'small' has 1 ms"):
        read(models, tmp_path, "1,small,1s\n" * 150_000 + "2,small,1ms\n")


def test_the_command_checks_requests_as_well(models: Models, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("arrival,model,slo\n0,small,1s\n")
    words = ["check", str(tmp_path / "m.toml"), "--requests", str(tmp_path / "r.csv")]
    done = CliRunner().invoke(command, words)
    assert done.exception is None, done.output
    assert "1 requests: all can be answered in time, each alone" in done.stderr
    (tmp_path / "r.csv").write_text("arrival,model,slo\n0,small,1ms\n")
    assert "no variant answers" in str(CliRunner().invoke(command, words).exception)
    nothing = CliRunner().invoke(command, ["check", "--schema", "--requests", "r.csv"])
    assert isinstance(nothing.exception, BadInput)
