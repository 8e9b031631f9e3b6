"""Experiment files: read strictly, one error for each fault."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from ganger.cli.lab.simulate import simulate
from ganger.core.errors import BadInput
from ganger.core.units import NEVER, SECOND
from ganger.workloads.experiment.document import Document, schema
from ganger.workloads.experiment.reading import is_experiment, read_experiment

GOOD = """format = "ganger.experiment/1"
name = "digits"
metric = "acc"
mode = "max"
searcher = "quasi-random"
recipe = "tune.asha(eta=4)"
parallelism = 8
trials = 100
epochs = 27
deadline = "90m"
seed = 3
tenant = "vision"
points = [{ lr = 0.01, optimizer = "adam" }]
[budget]
epochs = 1000
gpu_hours = 10
money = 20.5
[resources]
gpus = 2
gpu_types = ["V100"]
[space.lr]
low = 1e-4
high = 1e-1
log = true
[space.optimizer]
type = "choice"
values = ["sgd", "adam"]
[space.momentum]
high = 0.99
when = { optimizer = ["sgd"] }
"""


def written(folder: Path, text: str, name: str = "e.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_an_experiment_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    assert is_experiment(path)
    found = read_experiment(path)
    assert found.deadline == 5400 * SECOND
    assert found.space is not None
    assert found.space.names == ("lr", "optimizer", "momentum")
    assert found.points == [{"lr": 0.01, "optimizer": "adam"}]
    assert found.document.resources.gpus == 2
    assert found.document.budget.money == 20.5


def test_json_and_yaml_say_the_same(tmp_path: Path) -> None:
    import tomllib

    import yaml

    raw = tomllib.loads(GOOD)
    found = read_experiment(written(tmp_path, GOOD)).document
    assert read_experiment(written(tmp_path, json.dumps(raw), "e.json")).document == found
    assert (
        read_experiment(written(tmp_path, yaml.dump(raw, sort_keys=False), "e.yaml")).document
        == found
    )


def test_what_is_left_out_has_a_default(tmp_path: Path) -> None:
    path = written(tmp_path, 'format = "ganger.experiment/1"\nmetric = "loss"\n')
    found = read_experiment(path)
    assert (found.space, found.points, found.deadline) == (None, [], NEVER)
    assert (found.document.mode, found.document.recipe) == ("min", "tune.asha")
    assert not is_experiment(written(tmp_path, 'format = "ganger.scenario/1"', "s.toml"))
    assert not is_experiment(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("ganger.experiment/1", "ganger.experiment/2", "is newer than this Ganger reads"),
        ('metric = "acc"\n', "", "missing required field `metric`"),
        ('mode = "max"', 'mode = "best"', "mode: Invalid enum value 'best'"),
        ("parallelism = 8", "parallelism = 0", "parallelism: it is less than 1"),
        ("parallelism = 8", "parallel = 8", "unknown field `parallel`"),
        ("trials = 100", "trials = 1.5", "trials: Expected `int | null`, got `float`"),
        ('deadline = "90m"', 'deadline = "0s"', "deadline: nothing is trained in no time"),
        ('deadline = "90m"', 'deadline = "soon"', "deadline: 'soon'"),
        ("gpu_hours = 10", "gpu_hours = -1", "budget.gpu_hours: it is not above 0"),
        ("gpu_hours = 10", "hours = 10", "budget: Object contains unknown field `hours`"),
        ("log = true", "log = 1", "space[...].log: Expected `bool`, got `int`"),
        ("low = 1e-4", "low = 0", "space: lr: low: low is 0 on a logarithmic scale"),
        ('["sgd"]', '["lamb"]', "space: momentum: when: optimizer never has 'lamb'"),
        ("lr = 0.01", "lr = 0.2", "points[0]: lr: 0.2 is not in the space"),
        ("lr = 0.01", "rate = 0.01", "points[0]: rate: there is no such parameter"),
        ("gpus = 2", "gpus = 0", "resources.gpus: it is less than 1"),
    ],
)
def test_each_fault_is_one_error_that_names_the_field(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    assert before in GOOD
    with pytest.raises(BadInput) as refused:
        read_experiment(written(tmp_path, GOOD.replace(before, after, 1)))
    assert message in str(refused.value)
    assert str(refused.value).count("\n") == 0


def test_points_need_points(tmp_path: Path) -> None:
    text = 'format = "ganger.experiment/1"\nmetric = "loss"\nsearcher = "points"\n'
    with pytest.raises(BadInput, match="points: the searcher proposes the points given"):
        read_experiment(written(tmp_path, text))


def test_the_schema_is_that_of_the_document() -> None:
    printed = CliRunner().invoke(simulate, ["--schema", "experiment"])
    assert json.loads(printed.output) == json.loads(json.dumps(schema()))
    fields = schema()["$defs"]["Document"]["properties"]
    assert set(fields) == {each.name for each in msgspec.structs.fields(Document)}
    assert fields["format"] == {"const": "ganger.experiment/1"}
    assert (
        json.loads(CliRunner().invoke(simulate, ["--schema"]).output)["title"] != schema()["title"]
    )
