"""A Triton model repository: what is read of `config.pbtxt`, and what is refused where."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.workloads.models.repository import batching, read_repository
from ganger.workloads.models.text_format import Message, Word, parse_text

CONFIG = """\
# what Triton's examples look like
name: "digits"
platform: 'onnxruntime_onnx'
max_batch_size: 16
input [
  { name: "image" data_type: TYPE_FP32, dims: [ 64 ] },
  { name: "mask"; data_type: TYPE_BOOL dims: -1 }
]
output: { name: "scores" dims: [ 10 ] }
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 500 }
instance_group [ { count: 2 kind: KIND_CPU } ]
model_transaction_policy { decoupled: false }
"""


def stored(base: Path, config: str = "", name: str = "digits", versions: str = "1") -> Path:
    """A repository with this model; the file of each version is there and empty."""
    for version in versions.split():
        (base / name / version).mkdir(parents=True)
        (base / name / version / "model.onnx").touch()
    if config:
        (base / name / "config.pbtxt").write_text(config)
    return base


def refusal(base: Path) -> str:
    with pytest.raises(BadInput) as found:
        read_repository(base)
    return str(found.value).removeprefix(f"{base}/")


def test_a_configuration_is_read(tmp_path: Path) -> None:
    (digits,) = read_repository(stored(tmp_path, CONFIG, versions="1 3 x 02"))
    assert digits.path == tmp_path / "digits" / "3" / "model.onnx"
    assert (digits.name, digits.largest, digits.delay) == ("digits", 16, 500)
    assert digits.preferred == (4, 8)
    assert (digits.inputs, digits.outputs) == (("image", "mask"), ("scores",))
    assert digits.notes == (
        "digits: instance_group is passed over: batches at once are the server's: --lanes",
    )


def test_a_model_without_a_configuration_is_named_by_its_folder(tmp_path: Path) -> None:
    (plain,) = read_repository(stored(tmp_path))
    assert (plain.name, plain.largest, plain.delay) == ("digits", 0, None)


def test_without_an_axis_for_batches_requests_go_one_by_one(tmp_path: Path) -> None:
    assert read_repository(stored(tmp_path, "max_batch_size: 0"))[0].largest == 1


def test_the_recipe_batches_as_the_repository_says(tmp_path: Path) -> None:
    stored(tmp_path, CONFIG)
    assert batching(read_repository(tmp_path)) == (
        "serve.triton(delay=500us, preferred=4;8)",
        [],
    )
    other = "dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 100 }"
    stored(tmp_path, other, "other")
    stored(tmp_path, "", "plain")
    recipe, notes = batching(read_repository(tmp_path))
    assert recipe == "serve.triton(delay=100us, preferred=8)"
    assert len(notes) == 2
    assert batching(read_repository(stored(tmp_path / "none"))) == ("serve.triton", [])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sequence_batching { }", "line 2: sequence_batching: sequences"),
        ("ensemble_scheduling { step [ { } ] }", "line 2: ensemble_scheduling: ensembles"),
        ("model_transaction_policy { decoupled: true }", "line 2: model_transaction_policy: dec"),
        ('backend: "python"', "line 2: backend: backend 'python' is not served"),
        ('platform: "tensorflow_savedmodel"', "line 2: platform: platform 'tensorflow"),
        ('name: "other"', "line 2: name: 'other' is not the name of its folder"),
        ("max_batch_size: 70000", "line 2: max_batch_size: 70000 is not a valid batch"),
        ("max_batch_size: true", "line 2: max_batch_size is not a valid value"),
        ("max_batch_size: 4 max_batch_size: 4", "line 2: max_batch_size is not a valid value"),
        ("dynamic_batching { priority_levels: 2 }", "line 2: dynamic_batching: 'priority_levels'"),
        ("dynamic_batching { preferred_batch_size: [ 0 ] }", "line 2: dynamic_batching: a pref"),
        ("dynamic_batching { max_queue_delay_microseconds: -1 }", "line 2: dynamic_batching: -1"),
        ("input { }", "line 2: input: it has no name"),
        ('input { name: "x" reshape { shape: [ 1 ] } }', "line 2: input: 'reshape'"),
        ("version_policy { all { } }", "line 2: version_policy: 2 versions"),
        ("version_policy { latest { num_versions: 2 } }", "line 2: version_policy: 2 versions"),
        ("version_policy { specific { versions: 7 } }", "it has no such version"),
        ('default_model_filename: "../1/model.onnx"', "it is outside the repository"),
        ('default_model_filename: "model.plan"', "there is no such file"),
        ("wanted: 3", "line 2: 'wanted' is not known"),
        ("name", "line 2: 'the end of the file' is where a value should be"),
        ("name: {", "line 2: 'the end of the file' is not the name of a field"),
        ("a: 'x", 'line 2: "\'" is not expected'),
        ("}", "line 2: '}' is not the name of a field"),
    ],
)
def test_what_is_not_served_is_refused_with_file_and_line(
    tmp_path: Path, line: str, said: str
) -> None:
    found = refusal(stored(tmp_path, f"# one\n{line}", versions="1 2"))
    assert said in found
    assert found.startswith("digits")


def test_specific_versions_are_those_that_are_named(tmp_path: Path) -> None:
    config = "version_policy: { specific: { versions: [ 1 ] } }"
    (digits,) = read_repository(stored(tmp_path, config, versions="1 2"))
    assert digits.path.parent.name == "1"


def test_a_link_out_of_the_repository_is_not_followed(tmp_path: Path) -> None:
    base = stored(tmp_path / "models")
    (tmp_path / "secret.onnx").touch()
    (base / "digits" / "1" / "model.onnx").unlink()
    (base / "digits" / "1" / "model.onnx").symlink_to(tmp_path / "secret.onnx")
    assert "it is outside the repository" in refusal(base)


def test_an_empty_folder_is_no_repository(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no model"):
        read_repository(tmp_path)


def test_text_format_in_its_many_forms() -> None:
    text = """a: 1, b: -2.5e1; c: "x" 'y\\n' d < e: [ON, 0x1F] > f { } g: .5f f: { h: "\\"" }"""
    found = parse_text(text, "file")
    assert [(name, value) for name, value, _ in found.fields if name != "f"] == [
        ("a", 1),
        ("b", -25.0),
        ("c", "xy\n"),
        ("d", Message([("e", Word("ON"), 1), ("e", 31, 1)])),
        ("g", 0.5),
    ]
    assert [value for value, _ in found.all("f")] == [Message(), Message([("h", '"', 1)])]


def complaint(text: str) -> str:
    """What is said of a text; empty where it is read."""
    try:
        parse_text(text, "file")
    except BadInput as fault:
        return str(fault)
    return ""


@given(st.text(alphabet="ab:{}[]<>,; \n\"'\\#-.0x1e", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert complaint(text) == "" or "file: line" in complaint(text)


def test_what_is_nested_without_end_is_refused() -> None:
    with pytest.raises(BadInput, match="nested too deeply"):
        parse_text("a {" * 1000, "file")


def test_a_configuration_that_is_no_file_or_has_no_end_is_refused(tmp_path: Path) -> None:
    repository = stored(tmp_path)
    config = repository / "digits" / "config.pbtxt"
    makes: list[Callable[[], None]] = [
        lambda: os.mkfifo(config),
        lambda: config.symlink_to("/dev/zero"),
        config.mkdir,
    ]
    for make in makes:
        make()
        with pytest.raises(BadInput, match="cannot be read: it is not a file"):
            read_repository(repository)
        config.rmdir() if config.is_dir() else config.unlink()
    with config.open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no room
    with pytest.raises(BadInput, match="longer than"):
        read_repository(repository)
