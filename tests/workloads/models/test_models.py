"""A models file is read as it says, and what is wrong with it is one sentence."""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from ganger.cli.lab.serving.models import models as command
from ganger.core.errors import BadInput
from ganger.lab.serving.run import recorded_of
from ganger.workloads.models.document import Device, Document, Model, schema
from ganger.workloads.models.profiles import Models
from ganger.workloads.models.reading import read_models
from ganger.workloads.models.writing import as_toml, write_models

GOOD = """format = "ganger.models/1"

[[devices]]
name = "T4"
memory = "15GiB"
[[devices]]
name = "A100"

[[models]]
name = "resnet50"
family = "resnet"
accuracy = 0.761
bytes = 102_000_000
parameters = [{id = "backbone", bytes = 94_000_000}, {id = "head", bytes = 8_000_000}]
load = {remote = 11.0, disk = 0.9, host = 0.06}
[[models.latency]]
device = "T4"
batch = [1, 2, 4, 8]
mean = [0.003, 0.004, 0.006, 0.010]
p99 = [0.0031, 0.0044, 0.0066, 0.011]
memory_bytes = [400_000_000, 410_000_000, 430_000_000, 470_000_000]
[[models.latency]]
device = "T4"
share = 0.5
batch = [1, 4]
mean = [0.005, 0.011]
[[models.latency]]
device = "A100"
base = 0.001
each = 0.00025
largest = 64
p99_over_mean = 1.2

[[models]]
name = "opt-13b"
source = "DistServe, profiler-a100-80g"
[[models.tokens]]
device = "A100"
devices = 2
cache_bytes_per_token = 819_200
prefill = {base = 0.0147, token = 6.8e-5, token_squared = 2.4e-9}
[[models.tokens.decode.parts]]
largest = 95
base = 0.0133
request = 6.3e-5
context_token = 3.4e-7
[[models.tokens.decode.parts]]
base = 0.0106
request = 8.6e-5
context_token = 3.1e-7

[[models]]
name = "llama2-70b"
[[models.tokens]]
device = "A100"
prefill = {tokens = [128, 512, 2048], seconds = [0.1, 0.2, 0.8]}
decode = {batch = [1, 8, 32], seconds = [0.05, 0.055, 0.07]}

[[pipelines]]
name = "street"
stages = [{name = "read", model = "opt-13b"}, {name = "find", model = "resnet50"}]
edges = [{from = "find", to = "read", items = 2.5}]
"""


def read(folder: Path, text: str, name: str = "m.toml") -> Models:
    (folder / name).write_text(text)
    return read_models(folder / name)


def test_a_table_is_linear_between_its_batches_and_ends_with_the_last(tmp_path: Path) -> None:
    model = read(tmp_path, GOOD).models["resnet50"]
    assert (model.family, model.accuracy, model.bytes) == ("resnet", 0.761, 102_000_000)
    assert model.parameters == (("backbone", 94_000_000), ("head", 8_000_000))
    assert model.load == {"remote": 11.0, "disk": 0.9, "host": 0.06}
    full = model.on("T4")
    assert full is not None
    assert full.mean_seconds([1, 2, 3, 6]) == pytest.approx([0.003, 0.004, 0.005, 0.008])
    assert full.p99_seconds(3) == pytest.approx(0.0055)
    assert math.isnan(float(full.mean_seconds(9)))
    assert full.largest == 8
    batch, rate = full.best
    assert batch == 8
    assert rate == pytest.approx(800.0)
    assert full.memory_bytes is not None
    assert full.memory_bytes.tolist() == [400_000_000, 410_000_000, 430_000_000, 470_000_000]
    half = model.on("T4", 0.5)
    assert half is not None
    assert float(half.mean_seconds(1)) == 0.005
    assert half.p99.tolist() == half.mean.tolist()
    assert model.on("A100", 0.5) is None


def test_a_level_profile_is_no_error(tmp_path: Path) -> None:
    level = "mean = [0.005, 0.005]\np99 = [0.005, 0.006]"
    text = GOOD.replace("mean = [0.005, 0.011]", level)
    half = read(tmp_path, text).models["resnet50"].on("T4", 0.5)
    assert half is not None
    assert half.best == (4, 800.0)


def test_a_line_is_its_formula(tmp_path: Path) -> None:
    latency = read(tmp_path, GOOD).models["resnet50"].on("A100")
    assert latency is not None
    batch = np.arange(1, 65)
    assert latency.mean_seconds(batch) == pytest.approx(0.001 + 0.00025 * batch)
    assert latency.p99_seconds(batch) == pytest.approx(1.2 * (0.001 + 0.00025 * batch))
    assert math.isnan(float(latency.mean_seconds(65)))


def test_a_language_model_reads_prompts_and_takes_steps(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD)
    line = found.models["opt-13b"].tokens[0]
    assert (line.device, line.devices, line.cache_bytes_per_token) == ("A100", 2, 819_200)
    prompts = np.array([100, 300])
    squares = (prompts**2).sum()
    assert float(line.prefill_seconds(400, squares)) == pytest.approx(
        0.0147 + 400 * 6.8e-5 + 100_000 * 2.4e-9
    )
    steps = line.decode_seconds(np.array([1, 95, 96]), np.array([10, 2000, 2000]))
    assert steps == pytest.approx(
        [0.0133 + 6.3e-5 + 3.4e-6, 0.0133 + 95 * 6.3e-5 + 6.8e-4, 0.0106 + 96 * 8.6e-5 + 6.2e-4]
    )
    table = found.models["llama2-70b"].tokens[0]
    assert table.prefill_seconds([64, 320, 2048, 4096]) == pytest.approx([0.1, 0.15, 0.8, 1.6])
    base = GOOD.replace("base = 0.0147, token = 6.8e-5, token_squared = 2.4e-9", "base = 0.0147")
    only = read(tmp_path, base.replace("largest = 95", "largest = 1")).models["opt-13b"].tokens[0]
    assert float(only.prefill_seconds(900)) == 0.0147
    assert only.decode_seconds([1, 2]) == pytest.approx([0.0133 + 6.3e-5, 0.0106 + 17.2e-5])
    assert table.decode_seconds([1, 20, 56]) == pytest.approx([0.05, 0.0625, 0.085])


def test_stages_come_in_the_order_in_which_they_run(tmp_path: Path) -> None:
    pipeline = read(tmp_path, GOOD).pipelines["street"]
    assert pipeline.stages == (("find", "resnet50"), ("read", "opt-13b"))
    assert pipeline.edges == (("find", "read", 2.5),)


def test_devices_have_their_memory(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD).devices == {"T4": 15 * 1024, "A100": 0}


@pytest.mark.parametrize("name", ["m.toml", "m.json", "m.yaml"])
def test_every_dress_says_the_same(name: str, tmp_path: Path) -> None:
    import tomllib

    plain = tomllib.loads(GOOD)
    text = {"m.toml": GOOD, "m.json": json.dumps(plain), "m.yaml": yaml.safe_dump(plain)}[name]
    found = read(tmp_path, text, name)
    assert list(found.models) == ["resnet50", "opt-13b", "llama2-70b"]
    latency = found.models["resnet50"].on("T4")
    assert latency is not None
    assert latency.mean.tolist() == [0.003, 0.004, 0.006, 0.010]


LABELS = np.array([0, 1, 2, 2])
OTHER = "accuracy = 0.761", 'predictions = "p.npz"'


def test_accuracy_comes_from_recorded_predictions(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", labels=LABELS, resnet50=np.array([0, 1, 2, 1], np.uint8))
    model = read(tmp_path, GOOD.replace(*OTHER)).models["resnet50"]
    assert model.accuracy == 0.75
    assert model.predicted is not None
    assert model.labels is not None
    assert model.predicted.tolist() == [0, 1, 2, 1]
    assert model.labels.tolist() == [0, 1, 2, 2]


def test_scores_and_what_recipes_may_know_come_from_the_same_file(tmp_path: Path) -> None:
    scores = np.arange(12.0).reshape(4, 3)
    more: dict[str, Any] = {"resnet50.scores": scores.astype(np.float16)}
    calibration = np.array([1, 0, 0, 1])
    np.savez(tmp_path / "p.npz", labels=LABELS, resnet50=LABELS, calibration=calibration, **more)
    model = read(tmp_path, GOOD.replace(*OTHER)).models["resnet50"]
    known = recorded_of(model)
    assert known is not None
    assert known.scores is not None
    assert known.labels.tolist() == known.gave.tolist() == [0, 2]
    assert known.scores.tolist() == [[0, 1, 2], [9, 10, 11]]
    assert model.scores is not None
    assert model.scores.tolist() == scores.tolist()  # the simulator answers with all of them


SCORES = np.zeros((4, 3))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"resnet50.scores": SCORES[:3]}, "p.npz: resnet50.scores: 3 inputs where labels have 4"),
        ({"resnet50.scores": SCORES[0]}, "p.npz: resnet50.scores: it is 1-dimensional, of float64"),
        ({"resnet50.scores": SCORES > 1}, "p.npz: resnet50.scores: it is 2-dimensional, of bool"),
        ({"resnet50.scores": SCORES[:, :1]}, "p.npz: resnet50.scores: it is 2-dimensional"),
        ({"resnet50.scores": SCORES + np.nan}, "resnet50.scores: not all are numbers within 1e100"),
        ({"resnet50.scores": SCORES[:, :2]}, "resnet50.scores has 2 classes, and it gives 2"),
        ({"calibration": LABELS * 0}, "p.npz: calibration: it says of no input"),
        ({"calibration": LABELS[:2]}, "p.npz: calibration: 2 inputs where labels have 4"),
        ({"inputs": SCORES[:3]}, "p.npz: inputs: it has the shape (3, 3), and there are 4 labels"),
        ({"inputs": SCORES.astype(str)}, "p.npz: inputs: not all are numbers within 1e100"),
        ({"inputs": SCORES + np.inf}, "p.npz: inputs: not all are numbers within 1e100"),
        ({"resnet50": LABELS - 1}, "p.npz: resnet50: it holds values beyond 0 .. 65,536"),
        ({"labels": np.array(1), "inputs": SCORES}, "p.npz: labels: it is 0-dimensional"),
    ],
)
def test_bad_scores_are_one_sentence(arrays: dict[str, Any], said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", **{"labels": LABELS, "resnet50": LABELS, **arrays})
    with pytest.raises(BadInput) as error:
        read(tmp_path, GOOD.replace(*OTHER))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"resnet50": LABELS}, "p.npz: the array 'labels' is missing"),
        ({"labels": LABELS}, "p.npz has no array 'resnet50' (it has labels)"),
        ({"labels": LABELS, "resnet50": LABELS[:3]}, "p.npz: resnet50: 3 inputs where labels"),
        ({"labels": LABELS, "resnet50": LABELS / 2}, "p.npz: resnet50: it is 1-dimensional, of f"),
        ({"labels": LABELS, "resnet50": LABELS[None]}, "p.npz: resnet50: it is 2-dimensional"),
        ({"labels": LABELS[:0], "resnet50": LABELS[:0]}, "p.npz: labels: it is 1-dimensional"),
        ({"labels": LABELS, "resnet50": np.array([{}, 1, 2, 3])}, "not an npz file of plain"),
        (b"PK\x03\x04 cut", "p.npz: it is not an npz file"),
        (b"text", "p.npz: it is not an npz file"),
        (b"", "p.npz: it is not an npz file"),
        (None, "p.npz: cannot be read: No such file"),
    ],
)
def test_bad_predictions_are_one_sentence(
    arrays: dict[str, Any] | bytes | None, said: str, tmp_path: Path
) -> None:
    if isinstance(arrays, dict):
        np.savez(tmp_path / "p.npz", **arrays)
    elif arrays is not None:
        (tmp_path / "p.npz").write_bytes(arrays)
    with pytest.raises(BadInput) as error:
        read(tmp_path, GOOD.replace(*OTHER))
    assert said in str(error.value)
    assert error.value.mend


def npz(path: Path, name: str, data: bytes) -> None:
    """A file of one member."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, data)


def test_files_that_say_they_are_larger_than_they_are_take_no_memory(tmp_path: Path) -> None:
    """A head that promises 10^12 numbers, one that promises nothing that can be read, a member that
    is no array, a pipe."""
    whole = io.BytesIO()
    np.save(whole, LABELS)
    head = whole.getvalue().replace(b"(4,), }          ", b"(1000000000000,), }")
    for name, data in {
        "labels.npy": head[: len(whole.getvalue())],
        "labels": b"text",
        "a.npy": b"\x93NUMPY\x01\x00\x10\x00" + b"[" * 16,
    }.items():
        npz(tmp_path / "p.npz", name, data)
        with pytest.raises(BadInput, match="it is not an npz file of plain arrays"):
            read(tmp_path, GOOD.replace(*OTHER))
    (tmp_path / "p.npz").unlink()
    os.mkfifo(tmp_path / "p.npz")
    with pytest.raises(BadInput, match="it is a pipe or a device"):
        read(tmp_path, GOOD.replace(*OTHER))


BAD: list[tuple[str, str, str]] = [
    # what stands in the good file, what is put there, what is said
    (GOOD, "", "m.toml: the file is empty"),
    (GOOD, 'format = "ganger.models/1"', "Object missing required field `devices`"),
    (GOOD, 'format = "ganger.models/1"\ndevices = []\nmodels = []', "m.toml: it has no models"),
    ("ganger.models/1", "ganger.models/2", "format 'ganger.models/2' is newer"),
    ('format = "ganger.models/1"', "", "format is None"),
    ('format = "ganger.models/1"', "format =", "it cannot be parsed"),
    ("mean = [0.003, 0.004, 0.006, 0.010]", "mean = [0.003, 0.004, 0.006, 0.005]",
     "model 'resnet50': latency on 'T4': mean falls from 0.006 at batch 4 to 0.005 at batch 8"),
    ("p99 = [0.0031, 0.0044", "p99 = [0.0061, 0.0044", "p99 falls from 0.0061 at batch 1"),
    ("p99 = [0.0031,", "p99 = [0.0029,", "p99 at batch 1 is below the mean"),
    ("p99 = [0.0031, ", "p99 = [", "4 values of batch and 3 of p99"),
    ("mean = [0.003,", "mean = [0,", "latency[0].mean[0]: it is not above 0, got 0"),
    ("mean = [0.003,", "mean = [-0.003,", "mean[0]: it is not above 0, got -0.003"),
    ("mean = [0.003,", "mean = [nan,", "latency[0].mean[0]: it is "),
    ("mean = [0.003,", "mean = [inf,", "mean[0]: it is more than 1e+06, got inf"),
    ("mean = [0.003,", 'mean = ["fast",', "latency[0].mean[0]: Expected `float`, got `str`"),
    ("batch = [1, 2, 4, 8]", "batch = [1, 2, 2, 8]", "batch 2 comes after 2"),
    ("batch = [1, 2, 4, 8]", "batch = [0, 2, 4, 8]", "batch[0]: it is less than 1, got 0"),
    ("batch = [1, 2, 4, 8]", "batch = []", "0 values of batch and 4 of mean"),
    ("batch = [1, 4]", "batch = [1, 4]\nbase = 1.0", "it has a table and base + each"),
    ("batch = [1, 4]\nmean = [0.005, 0.011]", "", "it has neither batch and mean nor base"),
    ("batch = [1, 4]", "batch = [1, 4]\nlargest = 9", "a table has no largest"),
    ("batch = [1, 4]", "batch = [1, 4]\np99_over_mean = 2.0", "a table has no p99_over_mean"),
    ("share = 0.5", "share = 0.0", "latency[1].share: it is not above 0"),
    ("share = 0.5", "share = 1.5", "latency[1].share: it is more than 1"),
    ("share = 0.5", "share = 1.0", "latency: 'T4 at share 1' is there twice"),
    ("410_000_000, 430", "400_000_000, 390", "memory_bytes falls from"),
    ("15GiB", "200MiB", "400,000,000 bytes do not fit into its 200 MiB"),
    ("15GiB", "lots", "device 'T4': memory: 'lots' is not a valid amount of memory"),
    ("base = 0.001\neach = 0.00025", "base = 0.0\neach = 0.0", "a batch takes no time"),
    ("base = 0.001\n", "base = -0.001\n", "latency[2].base: it is less than 0"),
    ("largest = 64\n", "", "latency on 'A100': largest is missing"),
    ("p99_over_mean = 1.2", "p99_over_mean = 0.9", "p99_over_mean: it is less than 1"),
    ("p99_over_mean = 1.2", "p99 = [1.0]", "p99 needs a table of batches"),
    ('device = "A100"\nbase', 'device = "A10O"\nbase',
     "latency on 'A10O': the device is not known (did you mean 'A100'?)"),
    ('device = "A100"\nbase', 'device = "TPU"\nbase', "not known (add it to [[devices]])"),
    ('device = "A100"\ndevices', 'device = "V100"\ndevices', "tokens on 'V100': the device is not"),
    ('name = "A100"', 'name = "T4"', "devices: 'T4' is there twice"),
    ('name = "opt-13b"', 'name = "resnet50"', "models and pipelines: 'resnet50' is there twice"),
    ('name = "street"', 'name = "opt-13b"', "models and pipelines: 'opt-13b' is there twice"),
    ('name = "opt-13b"', 'name = ""', "name: Expected `str` of length >= 1"),
    ('name = "opt-13b"', 'name = "a\\u0007"', "holds control characters"),
    ("accuracy = 0.761", "accuracy = 76.1", "model 'resnet50': accuracy: it is more than 1"),
    ("accuracy = 0.761", "accuracy = 0.7\npredictions = 'p.npz'", "it has accuracy and pre"),
    ("accuracy", "acuracy", "model 'resnet50': Object contains unknown field `acuracy`"),
    ("bytes = 102_000_000", "bytes = 0", "model 'resnet50': bytes: it is less than 1, got 0"),
    ("bytes = 102_000_000", "bytes = 100_000_000", "they are 102,000,000 bytes, the model"),
    ('id = "head"', 'id = "backbone"', "parameters: 'backbone' is there twice"),
    ('name = "opt-13b"', 'name = "opt-13b"\nparameters = [{id = "head", bytes = 7}]',
     "parameters: 'head' is 7 bytes, in model 'resnet50' 8,000,000"),
    ("disk = 0.9", "disk = 12.0", "load: loading takes longer from disk than from remote"),
    ("disk = 0.9", "tape = 0.9", "load: Object contains unknown field `tape`"),
    ("host = 0.06", "host = 0", "load.host: it is not above 0"),
    ("prefill = {base = 0.0147, token = 6.8e-5, token_squared = 2.4e-9}", "prefill = {}",
     "prefill: it has neither tokens and seconds nor base and token"),
    ("token = 6.8e-5", "token = 6.8e-5, tokens = [1], seconds = [1]", "it has both tokens and s"),
    ("base = 0.0147, token = 6.8e-5", "base = 0.0, token = 0.0", "prefill: it takes no time"),
    ("seconds = [0.1, 0.2, 0.8]", "seconds = [0.1, 0.2, 0.1]", "seconds falls from 0.2 at tokens"),
    ("seconds = [0.05, 0.055, 0.07]", "seconds = [0.05, 0.055, 0.05]", "seconds falls from 0.055"),
    ("decode = {batch = [1, 8, 32], seconds = [0.05, 0.055, 0.07]}", "decode = {}",
     "decode: it has neither batch and seconds nor parts"),
    ("largest = 95\n", "", "decode: part 1 does not have a largest batch"),
    ("base = 0.0106", "largest = 99\nbase = 0.0106", "the last part has a largest batch"),
    ("base = 0.0133\nrequest = 6.3e-5", "base = 0.0\nrequest = 0.0", "part 1 takes no time"),
    ("[[models.tokens.decode.parts]]\nbase", "[[models.tokens.decode.parts]]\nlargest = 95\n"
     "base = 1.0\n[[models.tokens.decode.parts]]\nbase",
     "part 2 ends at batch 95, before the one above"),
    ("[[models.tokens]]\ndevice = \"A100\"\nprefill = {tokens = [128, 512, 2048], seconds = "
     "[0.1, 0.2, 0.8]}\ndecode = {batch = [1, 8, 32], seconds = [0.05, 0.055, 0.07]}", "",
     "model 'llama2-70b': it has neither latency nor tokens"),
    ('model = "resnet50"}]', 'model = "resnet5"}]',
     "pipeline 'street': stage 'find': there is no model 'resnet5' (did you mean 'resnet50'?)"),
    ('stages = [{name = "read", model = "opt-13b"}, {name = "find", model = "resnet50"}]',
     "stages = []", "pipeline 'street': it has no stages"),
    ('name = "find"', 'name = "read"', "stages: 'read' is there twice"),
    ('from = "find"', 'from = "fnd"', "there is no stage 'fnd' (did you mean 'find'?)"),
    ("items = 2.5}]", 'items = 2.5}, {from = "read", to = "find"}]', "in a cycle: "),
    ("items = 2.5}]", 'items = 2.5}, {from = "read", to = "read"}]', "in a cycle: read to read"),
    ("items = 2.5}]", 'items = 2.5}, {from = "find", to = "read"}]',
     "edges: 'find to read' is there twice"),
    ("items = 2.5", "items = 0", "edges[0].items: it is not above 0"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), BAD)
def test_a_bad_file_is_one_sentence(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in GOOD
    with pytest.raises(BadInput) as error:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert said in str(error.value)
    assert str(error.value).startswith(str(tmp_path))
    assert error.value.mend
    assert "\n" not in str(error.value)


def test_the_schema_names_every_field() -> None:
    found = schema()
    assert found["title"] == "ganger.models/1"
    assert found["$ref"] == "#/$defs/Document"
    assert found["$schema"].endswith("2020-12/schema")
    assert found["$defs"]["Document"]["properties"]["format"] == {"const": "ganger.models/1"}
    model = found["$defs"]["Model"]["properties"]
    assert set(model) == {field.encode_name for field in msgspec.structs.fields(Model)}
    assert found["$defs"]["Edge"]["required"] == ["from", "to"]


def call(*words: str | Path) -> Any:
    return CliRunner().invoke(command, [str(word) for word in words])


def test_the_command_checks_and_summarises(tmp_path: Path) -> None:
    read(tmp_path, GOOD)
    done = call("check", tmp_path / "m.toml")
    assert done.exit_code == 0, done.output
    for word in ("resnet50", "76.1%", "97.3 MiB", "0.5 T4", "800/s", "2xA100", "street", "find"):
        assert word in done.stdout
    assert "3 models on 2 devices: no errors" in done.stderr
    facts = json.loads(call("check", tmp_path / "m.toml", "--json").stdout)
    assert facts["models"][0]["latency"][0]["best_items_per_second"] == pytest.approx(800)
    assert facts["models"][1]["accuracy"] is None
    assert json.loads(call("check", "--schema").stdout) == json.loads(json.dumps(schema()))
    assert isinstance(call("check").exception, BadInput)
    (tmp_path / "m.toml").write_text(GOOD.replace("0.003,", "0,"))
    assert "got 0" in str(call("check", tmp_path / "m.toml").exception)


def test_a_file_that_is_written_says_what_was_read(tmp_path: Path) -> None:
    import tomllib

    document = msgspec.convert(tomllib.loads(GOOD), Document)
    write_models(document, tmp_path / "out.toml")
    text = (tmp_path / "out.toml").read_text()
    assert msgspec.convert(tomllib.loads(text), Document) == document
    assert list(read_models(tmp_path / "out.toml").models) == list(read(tmp_path, GOOD).models)
    odd = Document(document.format, [Device('a "b" \\ é\n')], document.models)
    assert tomllib.loads(as_toml(odd))["devices"] == [{"name": 'a "b" \\ é\n'}]


WRONG = [
    "",
    "0",
    "-1",
    "nan",
    "inf",
    "1e400",
    "9" * 400,
    '"',
    "'",
    "[",
    "]",
    "{",
    "}",
    "=",
    "\n",
    "\0",
    "é",
    "true",
    "[[models]]",
    "[[",
    "[1, []]",
    '"x"',
    "0x1",
]


@pytest.mark.parametrize("name", ["m.toml", "m.json", "m.yaml"])
def test_a_damaged_file_is_read_or_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    """A hundred damages to each dress: text is put in somewhere, or a stretch is cut out."""
    import tomllib

    plain = tomllib.loads(GOOD)
    text = {"m.toml": GOOD, "m.json": json.dumps(plain), "m.yaml": yaml.safe_dump(plain)}[name]
    rng = np.random.default_rng(len(text))
    refused: list[BadInput] = []
    for _ in range(100):
        at, cut = int(rng.integers(0, len(text))), int(rng.integers(0, 6))
        try:
            read(tmp_path, text[:at] + str(rng.choice(WRONG)) + text[at + cut :], name)
        except BadInput as error:
            refused.append(error)
    assert len(refused) > 50
    assert all(error.mend and "\n" not in str(error) for error in refused)
