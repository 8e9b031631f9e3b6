"""`ganger profile` on a small net that is encoded here, byte by byte; without onnxruntime, what is
said then."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ganger.cli.lab.profile import profile
from ganger.core.errors import BadInput
from ganger.lab.profiling import Effort
from ganger.workloads.models.reading import read_models
from waiting import until

FLOAT, STRING = 1, 8


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number: int, value: int | bytes | str) -> bytes:
    """One field of a protocol buffer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def value_info(name: str, kind: int, shape: tuple[int | str, ...]) -> bytes:
    dims = b"".join(field(1, field(1 if isinstance(dim, int) else 2, dim)) for dim in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def net(
    path: Path, shape: tuple[int | str, ...] = ("n", 64), wide: int = 1024, kind: int = FLOAT
) -> Path:
    """x (of that shape) times a matrix of 64 x `wide`, as an ONNX file."""
    weights = np.ones((64, wide), np.float32)
    node = field(1, "x") + field(1, "w") + field(2, "y") + field(4, "MatMul")
    tensor = field(1, 64) + field(1, wide) + field(2, FLOAT) + field(8, "w")
    graph = field(1, node) + field(2, "net") + field(5, tensor + field(9, weights.tobytes()))
    graph += field(11, value_info("x", kind, shape))
    graph += field(12, value_info("y", kind, (*shape[:-1], wide)))
    path.write_bytes(field(1, 8) + field(8, field(1, "") + field(2, 17)) + field(7, graph))
    return path


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(profile, [str(word) for word in words])


QUICK = ("--runs", "20", "--most", "1s")


def test_without_onnxruntime_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    error = call(net(tmp_path / "a.onnx")).exception
    assert str(error) == "profiling needs onnxruntime (pip install 'ganger[serving]')"


def test_a_model_is_measured_into_a_models_file(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    small, large = net(tmp_path / "small.onnx"), net(tmp_path / "large.onnx", wide=16_384)
    done = call(
        small,
        large,
        "--batches",
        "1,8,64",
        "--family",
        "nets",
        "--device",
        "box",
        *QUICK,
        "-o",
        tmp_path / "m.toml",
    )
    assert done.exception is None, done.output
    assert "2 models written to" in done.stderr
    found = read_models(tmp_path / "m.toml")
    assert list(found.models) == ["small", "large"]
    assert found.devices["box"] > 0
    for name, path in (("small", small), ("large", large)):
        model = found.models[name]
        assert (model.family, model.bytes) == ("nets", path.stat().st_size)
        assert "onnxruntime" in model.source
        assert 0 < model.load["host"] <= model.load.get("disk", 1e6)
        (latency,) = model.latency
        assert latency.batch.tolist() == [1, 8, 64]
        assert 0 < latency.share <= 1
        assert latency.memory_bytes is not None
        assert latency.memory_bytes[0] >= path.stat().st_size


def test_a_larger_model_takes_longer(tmp_path: Path) -> None:
    """Measured again where the processor was elsewhere meanwhile."""
    pytest.importorskip("onnxruntime")
    nets = [net(tmp_path / f"{wide}.onnx", wide=wide) for wide in (64, 8192)]

    def ordered() -> bool:
        done = call(*nets, "--batches", "64", *QUICK, "-o", tmp_path / "m.toml")
        assert done.exception is None, done.output
        models = read_models(tmp_path / "m.toml").models
        (small, large) = (models[name].latency[0].mean[-1] for name in ("64", "8192"))
        return bool(small < large)

    until(ordered, seconds=20.0)


def test_a_model_with_a_fixed_batch_is_measured_at_that(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "other").mkdir()
    done = call(net(tmp_path / "fixed.onnx", (4, 64)), *QUICK, "-o", tmp_path / "other" / "m.toml")
    assert done.exception is None, done.output
    assert "its batch is fixed, so only batch 4 is measured" in done.stderr
    assert "note: fixed.onnx is not below the folder of " in done.stderr
    assert "1 model written to" in done.stderr
    assert read_models(tmp_path / "other" / "m.toml").models["fixed"].latency[0].batch.tolist() == [
        4
    ]


def test_open_dimensions_have_to_be_named(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = net(tmp_path / "open.onnx", ("n", "words", 64))
    error = call(path, *QUICK).exception
    assert isinstance(error, BadInput)
    assert "input 'x': dimension words is open (add --size words=N)" in str(error)
    assert call(path, "--size", "words=3", *QUICK, "-o", tmp_path / "m.toml").exception is None


def test_models_that_cannot_be_measured_are_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "junk.onnx").write_text("junk")
    for path, said in (
        (tmp_path / "junk.onnx", "onnxruntime does not load it"),
        (tmp_path / "none.onnx", "there is no such file"),
        (net(tmp_path / "wrong.onnx", ("n", 63)), "onnxruntime does not load it"),
    ):
        error = call(path, *QUICK, "-o", tmp_path / "m.toml").exception
        assert isinstance(error, BadInput)
        assert f"{path}: " in str(error)
        assert said in str(error)
        assert not (tmp_path / "m.toml").exists()


BAD: list[tuple[tuple[str, ...], str]] = [
    (("--batches", "1,x"), "--batches: '1,x' is not a list"),
    (("--batches", "4,2"), "batches: batches do not rise"),
    (("--batches", "0,2"), "batches: batch 2"),
    (("--threads", "0"), "0 threads"),
    (("--threads", "100000"), "threads: 100000 threads (this machine has"),
    (("--size", "n"), "--size: 'n' is not a size"),
    (("--size", "n=0"), "--size: 'n=0' is not a size"),
    (("--runs", "3"), "runs: 3 runs"),
    (("--warm-up", "-1"), "after -1"),
    (("--most", "0"), "seconds: 0 s"),
    (("--most", "soon"), "--most: 'soon'"),
]


@pytest.mark.parametrize(("words", "said"), BAD)
def test_bad_words_are_one_sentence(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", object())
    error = call(net(tmp_path / "a.onnx"), *words).exception
    assert isinstance(error, BadInput)
    assert said in str(error)
    assert error.mend


def test_two_models_of_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", object())
    (tmp_path / "b").mkdir()
    words: list[Any] = [net(tmp_path / "a.onnx"), net(tmp_path / "b" / "a.onnx")]
    assert "two models are called 'a'" in str(call(*words).exception)


def test_little_effort_is_refused() -> None:
    with pytest.raises(BadInput, match="batches do not rise"):
        Effort(())
