"""A Triton model repository behind `ganger serve`: measured once, batched as it says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ganger.core.errors import BadInput
from ganger.lab.live.repository import measured
from serving.live.nets import times
from serving.live.server import serving


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, factor in (("double", 2.0), ("triple", 3.0)):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        times(tmp_path / "models" / name / "1" / "model.onnx", factor)
    config = "max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 100 }"
    (tmp_path / "models" / "double" / "config.pbtxt").write_text(config)
    return tmp_path / "models"


def test_a_repository_is_served_as_it_is(folder: Path) -> None:
    with serving(folder) as server:
        for name, factor in (("double", 2.0), ("triple", 3.0)):
            body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32",
                                "data": [1, 2, 3, 4]}]}  # fmt: skip
            found = server.ask("POST", f"/v2/models/{name}/infer", json.dumps(body).encode())
            assert found.json["outputs"][0]["data"] == [factor * each for each in (1, 2, 3, 4)]


def test_what_was_measured_is_kept_until_the_model_changes(folder: Path) -> None:
    said = list[str]()
    first = measured(folder, 1, said.append)
    assert said == ["measuring double", "measuring triple"]
    assert first.recipe == "serve.triton(delay=100us)"
    assert first.models.models["double"].latency[0].largest == 4
    again = measured(folder, 1, said.append)
    assert len(said) == 2
    assert again.models.models.keys() == first.models.models.keys()
    times(folder / "double" / "1" / "model.onnx", 5.0, ("n", 4))
    measured(folder, 1, said.append)
    assert said[2:] == ["measuring double"]


def test_tensors_that_the_model_does_not_have_are_refused(folder: Path) -> None:
    (folder / "double" / "config.pbtxt").write_text('output { name: "z" }')
    with pytest.raises(BadInput, match=r"double/1/model\.onnx: it has no output 'z'"):
        measured(folder, 1)


def test_what_somebody_else_kept_or_of_another_model_is_not_believed(folder: Path) -> None:
    measured(folder, 1)
    kept = sorted((folder.parent / "cache" / "ganger" / "measured").iterdir())
    one, other = (path.read_bytes() for path in kept)
    for path, data in zip(kept, (other, one), strict=True):
        path.write_bytes(data)
    said = list[str]()
    measured(folder, 1, said.append)
    assert said == ["measuring double", "measuring triple"]
    if os.geteuid() == 0:
        os.chown(kept[0], 65534, 65534)
        measured(folder, 1, said.append)
        assert len(said) == 3
    kept[1].unlink()
    os.mkfifo(kept[1])
    measured(folder, 1, said.append)
    assert said[-1].startswith("measuring ")
    assert kept[1].is_file()
