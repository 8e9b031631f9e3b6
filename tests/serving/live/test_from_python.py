"""Models that are served from a Python program, and asked by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import ganger
from ganger.core.errors import BadInput, GangerError
from ganger.integrations.serving import NoAnswer
from serving.live.nets import copies, models_file, times


@pytest.fixture
def file(tmp_path: Path) -> Path:
    times(tmp_path / "double.onnx", 2.0)
    copies(tmp_path / "echo.onnx", TensorProto.STRING)
    return models_file(tmp_path, ["double", "echo"])


def test_three_lines_serve_and_ask(file: Path) -> None:
    with ganger.serve(file) as server:
        ones = np.ones((3, 4), np.float32)
        assert (server.infer("double", {"x": ones})["y"] == 2 * ones).all()
        assert server.models() == ["double", "echo"]
        assert server.ready()
        words = [["a", "ä"], ["", "b c"]]
        assert server.infer("echo", {"x": words})["y"].tolist() == words
        first = server.infer("double", {"x": ones}, request_id="7", seconds=5.0)
        assert (
            server.infer("double", {"x": ones}, request_id="7", seconds=5.0)["y"] == first["y"]
        ).all()
        with ganger.Endpoint(server.url) as other:
            assert other.describe("double")["inputs"][0]["shape"] == [-1, 4]
        with pytest.raises(NoAnswer, match="its shape is") as found:
            server.infer("double", {"x": np.ones((3, 5), np.float32)})
        assert found.value.status == 400
        with pytest.raises(NoAnswer, match="nothing"):
            server.infer("nothing", {"x": ones})
        with pytest.raises(BadInput, match="its type is complex64"):
            server.infer("double", {"x": ones.astype(np.complex64)})
    assert not server.ready()


def test_what_is_wrong_is_said(tmp_path: Path, file: Path) -> None:
    with pytest.raises(GangerError, match="No such file"):
        ganger.serve(tmp_path / "none.toml")
    with pytest.raises(GangerError, match="no recipe"):
        ganger.serve(file, "serve.nothing")
    with pytest.raises(BadInput, match="is not a valid address"):
        ganger.Endpoint("ftp://x")
    with pytest.raises(NoAnswer):
        ganger.Endpoint("http://127.0.0.1:9").models()
