"""The models files that come with Ganger: found by name, whole, and with a source for every row."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ganger.cli.lab.serving.models import models as command
from ganger.core.errors import BadInput
from ganger.workloads.models.reading import read_models
from ganger.workloads.models.shipped import SHIPPED, resolved, shipped

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def script(name: str) -> ModuleType:
    """A script of the benchmarks, as a module."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(*words: str | Path) -> Any:
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.mark.parametrize("name", SHIPPED)
def test_every_row_that_is_shipped_has_a_source(name: str) -> None:
    found = read_models(name)
    assert found.about
    for model in found.models.values():
        assert model.latency
        for row in model.latency:
            assert row.source or model.source, model.name


def test_a_name_stands_for_a_shipped_file_unless_there_is_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolved("papers") == shipped("papers")
    assert resolved("papers.toml") == Path("papers.toml")
    (tmp_path / "papers").write_text("mine")
    assert resolved("papers") == Path("papers")


def test_a_name_that_is_not_shipped_is_one_sentence() -> None:
    with pytest.raises(BadInput, match="none of that name is shipped") as error:
        read_models("papes")
    assert all(name in error.value.mend for name in SHIPPED)


def test_what_was_published_is_what_is_shipped(tmp_path: Path) -> None:
    script("papers").main(tmp_path / "papers.toml")
    assert (tmp_path / "papers.toml").read_text() == shipped("papers").read_text()


def test_published_figures_are_taken_as_printed_and_changes_are_said() -> None:
    models = read_models("papers").models
    plain = models["resnet50"].on("T4")
    assert plain is not None
    assert plain.mean.tolist()[:4] == [0.00734, 0.00929, 0.01383, 0.02341]
    assert plain.p99.tolist()[:4] == [0.00754, 0.00959, 0.0144, 0.02411]
    assert ";" not in plain.source, "nothing was changed"
    fell = models["resnet50-fp16"].on("V100")
    assert fell is not None
    assert fell.mean[1] == fell.mean[2] == pytest.approx((4.32e-3 + 4.26e-3) / 2)
    assert "means that fell" in fell.source
    crossed = models["se-resnext101"].on("T4")
    assert crossed is not None
    assert crossed.p99[-1] == crossed.mean[-1] == pytest.approx(1.64196, rel=1e-4)
    assert "raised to it" in crossed.source
    rate = models["bert-base-128"].on("A100")
    assert rate is not None
    assert rate.mean[3] == pytest.approx(8 / 539.94, rel=1e-4)
    assert rate.p99[3] == 0.01579
    assert "reconstructed" in rate.source


def test_dense_nets_gain_from_batches_and_convolutions_do_not() -> None:
    models = read_models("measured").models
    dense = [each for each in models.values() if each.family == "dense"]
    assert len(dense) == 4
    for model in [*dense, models["resnet50"], models["vgg19"]]:
        row = model.on("cpu-1")
        assert row is not None
        gain = float(row.best[1] * row.mean[0])
        assert gain > 3 if model.family == "dense" else gain < 2, model.name
        assert row.memory_bytes is not None
        assert model.bytes > 0
        assert model.load
    assert len(models) == 4 + 9 + 10


def test_convolutions_can_be_cut_into_segments() -> None:
    vgg = read_models("measured").models["vgg19"].operators
    assert vgg is not None
    assert len(vgg.segments) > 5
    assert vgg.time.sum() == pytest.approx(1)


def test_classifiers_that_are_shipped_err_on_the_same_inputs() -> None:
    """A vote of three is not as good as if their errors were independent."""
    models = read_models("measured").models
    digits = [each for each in models.values() if each.family == "digits"]
    assert len(digits) == 10
    assert len({each.accuracy for each in digits}) > 5
    right = []
    for each in digits:
        assert each.predicted is not None
        assert each.labels is not None
        assert len(each.labels) == 899
        assert 0.75 < each.accuracy < 1
        right.append(each.predicted == each.labels)
    best = np.array(sorted(right, key=np.sum)[-3:])
    alone = best.mean(axis=1)
    independent = sum(
        float(np.prod(np.where(held, alone, 1 - alone)))
        for held in np.ndindex(2, 2, 2)
        if sum(held) >= 2
    )
    assert (best.sum(axis=0) >= 2).mean() < independent - 0.002


def test_the_command_lists_what_is_shipped() -> None:
    done = call("list")
    assert done.exit_code == 0, done.output
    assert "papers: " in done.stdout
    plain = json.loads(call("list", "--json").stdout)
    assert [each["name"] for each in plain] == list(SHIPPED)
    assert "resnet50" in next(each for each in plain if each["name"] == "papers")["models"]


def test_the_command_shows_a_file_and_a_model_by_batch(tmp_path: Path) -> None:
    whole = call("show", "papers")
    assert whole.exit_code == 0, whole.output
    assert "resnet152" in whole.stdout
    one = call("show", "papers", "resnet50")
    for word in ("accuracy 77.0%", "loads in 8.52 ms", "T4: NVIDIA", "23.4 ms", "342"):
        assert word in one.stdout, word
    assert "resnet152" not in one.stdout
    plain = json.loads(call("show", "papers", "resnet50", "--json").stdout)
    (model,) = plain["models"]
    assert model["latency"][0]["batch"] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert model["latency"][0]["p99_seconds"][0] == 0.00754
    assert "did you mean 'resnet50'" in str(call("show", "papers", "resnet5").exception)
    own = tmp_path / "m.toml"
    own.write_text(shipped("papers").read_text())
    assert call("show", own, "vgg16").exit_code == 0
