"""Settings of other servers: what is read of them, what is ignored and why, and what is refused."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ganger.cli.lab.serving.requests import simulate
from ganger.core.errors import BadInput
from ganger.recipes.registry import make, make_router
from ganger.workloads.present.settings import UNKNOWN, read_present

HERE = Path(__file__).parent
EXAMPLES = Path(__file__).parents[3] / "examples" / "serving"
GOLDEN = json.loads((HERE / "golden.json").read_text())
FILES = ("config.pbtxt", "ray.yaml", "kserve.yaml")


@pytest.mark.parametrize("name", FILES)
def test_what_is_read_and_what_is_ignored_is_on_record(name: str) -> None:
    """Every field that the file states is one of the two; both recipes can be made."""
    present = read_present(HERE / name)
    found = {**present._asdict(), "source": name}
    assert found == GOLDEN[name]
    make_router(present.recipe)
    if present.scaling:
        make(present.scaling)


def present(folder: Path, text: str, name: str = "config.pbtxt") -> Any:
    (folder / name).write_text(text)
    return read_present(folder / name)


@pytest.mark.parametrize(
    ("text", "recipe"),
    [
        ("max_batch_size: 8", "serve.no-batch"),
        ("max_batch_size: 8 dynamic_batching { }", "serve.triton(size=8)"),
        ("max_batch_size: 1 dynamic_batching { }", "serve.no-batch"),
        ("dynamic_batching { }", "serve.no-batch"),
        (
            "max_batch_size: 8 dynamic_batching { preferred_batch_size: 4"
            " preferred_batch_size: 4 }",
            "serve.triton(size=8,preferred=4)",
        ),
        (
            "max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 100 }",
            "serve.triton(size=4,delay=100us)",
        ),
    ],
)
def test_triton_batches_only_where_it_is_told_to(text: str, recipe: str, tmp_path: Path) -> None:
    assert present(tmp_path, text).recipe == recipe


def kserve(**predictor: Any) -> str:
    return yaml.safe_dump({"kind": "InferenceService", "spec": {"predictor": predictor}})


@pytest.mark.parametrize(
    ("predictor", "recipe", "target"),
    [
        ({"minReplicas": 1}, "serve.power-of-two", "70"),
        ({"containerConcurrency": 2}, "serve.least-loaded", "1.4"),
        ({"containerConcurrency": 20}, "serve.round-robin", "14"),
        ({"scaleTarget": 5, "containerConcurrency": 20}, "serve.round-robin", "3.5"),
        ({"batcher": {"maxBatchSize": 4}}, "serve.fixed-batch(size=4,timeout=5000ms)", "70"),
        ({"scaleMetric": "cpu", "scaleTarget": 80}, "serve.power-of-two", ""),
    ],
)
def test_knative_routes_by_how_many_a_replica_takes_at_once(
    predictor: dict[str, Any], recipe: str, target: str, tmp_path: Path
) -> None:
    found = present(tmp_path, kserve(**predictor), "k.yaml")
    assert found.recipe == recipe
    assert found.scaling.startswith(f"scale.reactive(target={target}," if target else "")
    assert bool(found.scaling) == bool(target)


@pytest.mark.parametrize(
    ("deployment", "scaling"),
    [
        ({}, ""),
        ({"num_replicas": 3}, "scale.static-peak(replicas=3)"),
        ({"num_replicas": "auto"}, "scale.reactive"),
        ({"autoscaling_config": {"max_replicas": 3}}, "scale.reactive"),
    ],
)
def test_ray_serve_has_a_number_of_replicas_or_a_rule(
    deployment: dict[str, Any], scaling: str, tmp_path: Path
) -> None:
    document = {"applications": [{"deployments": [{"name": "a", **deployment}]}]}
    found = present(tmp_path, yaml.safe_dump(document), "r.yaml")
    assert (found.recipe, found.scaling) == ("serve.power-of-two", scaling)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("config.pbtxt", "max_batch_size: -1", "max_batch_size: '-1' is not a number from 0"),
        ("config.pbtxt", "max_batch_size: 1.5 dynamic_batching { }", "is not a whole number"),
        ("config.pbtxt", "max_batch_size {", "line 1"),
        (
            "config.pbtxt",
            "max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }",
            "preferred_batch_size: '8' is not a number from 1 to 4",
        ),
        ("k.yaml", kserve(containerConcurrency="many"), "'many' is not a number"),
        ("k.yaml", kserve(scaleTarget=True), "'True' is not a number"),
        ("k.yaml", "kind: InferenceService\n", "it has no predictor"),
        ("k.yaml", kserve(scaleTarget=10**400), "is not a number from"),
        ("config.pbtxt", "max_batch_size: 1" + "0" * 400, "is not a number from"),
        ("r.yaml", "applications: [{deployments: 3}]\n", "it has no deployment"),
        (
            "r.yaml",
            "applications: [{deployments: [{num_replicas: 2.5}]}]\n",
            "num_replicas: '2.5' is not a whole number",
        ),
        ("r.yaml", "applications: []\n", "it has no deployment"),
        ("r.yaml", "applications: 3\n", "it has no deployment"),
        ("r.yaml", "a: 1\n", "it is neither Ray Serve's nor KServe's"),
        ("r.yaml", "- 1\n", "it has no fields"),
        ("r.yaml", "a: [", "it cannot be parsed"),
        ("r.txt", "a", "it is not the settings of a server"),
        ("r.yaml", "", "the file is empty"),
    ],
)
def test_what_is_wrong_is_one_sentence(name: str, text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        present(tmp_path, text, name)
    assert says in str(error.value)
    assert name in error.value.where


def test_a_field_sends_a_terminal_nothing(tmp_path: Path) -> None:
    """Fields are printed, and a file may be anybody's."""
    text = 'applications: [{deployments: [{"\\e[2Jname": 1}]}]\n"\\e]0;x": 1\n'
    found = present(tmp_path, text, "r.yaml")
    assert len(found.ignored) == 2
    assert all(key.isprintable() for key in found.ignored)


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(name: str, data: st.DataObject) -> None:
    """A word of it becomes another."""
    text = (HERE / name).read_text()
    words = text.split()
    old = data.draw(st.sampled_from(words))
    new = data.draw(st.sampled_from([*words, "{", "[", "-1", "1e400", "nan", '"', "~", "9" * 30]))
    changed = text.replace(old, new, 1)
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary) / name
        target.write_text(changed)
        try:
            found = read_present(target)
        except BadInput:
            return
        make_router(found.recipe)
        if found.scaling:
            make(found.scaling)


def test_the_command_compares_and_says_what_it_read(tmp_path: Path) -> None:
    """More comes than batches of eight can do: a recipe that takes larger ones has more in time."""
    rows = "".join(f"{at / 750},resnet50\n" for at in range(1500))
    (tmp_path / "r.csv").write_text("arrival,model\n" + rows)
    words = [
        str(tmp_path / "r.csv"), "--models", str(EXAMPLES / "models.toml"), "--fleet", "T4:1",
        "--present", str(EXAMPLES / "config.pbtxt"), "-r", "clockwork,serve.no-batch",
        "--slo", "80ms", "--quiet", "--no-yardsticks",
    ]  # fmt: skip
    shown = CliRunner().invoke(simulate, words, env={"COLUMNS": "80"})
    assert shown.exit_code == 0, shown.output
    recipe = "serve.triton(size=8,delay=5000us,preferred=4;8,longest=64)"
    assert f"{recipe} is how {EXAMPLES / 'config.pbtxt'} serves." in shown.output
    assert "Ignored: instance_group.count, instance_group.kind: the lanes are those of --fleet" in (
        shown.output
    )
    found = json.loads(CliRunner().invoke(simulate, [*words, "--json"]).stdout)
    assert [run["recipe"] for run in found["runs"]] == [recipe, "clockwork", "serve.no-batch"]
    in_time = [run["metrics"]["attainment"] for run in found["runs"]]
    assert in_time[1] > in_time[0] > in_time[2]
    assert f"In time now: {in_time[0]:.1%}, and {in_time[1]:.1%} under clockwork." in shown.output
    assert found["present"]["recipe"] == recipe
    assert UNKNOWN not in found["present"]["ignored"].values()
