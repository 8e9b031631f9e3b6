"""What TensorBoard and MLflow are told of a search, read back by their own readers."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from ganger.core.errors import BadInput
from ganger.lab.tuning.export import Tried
from ganger.lab.tuning.trackers import Search, number_or_word, to_mlflow, to_tensorboard

SEARCH = Search("digits", 12, {"13": 1000.0, "14": 1010.0})


def trials() -> list[Tried]:
    """One that ended, one that broke down, and one that never reported."""
    whole = Tried("13", {"lr": "0.1", "opt": "sgd"}, ended=True)
    whole.hear(1.0, 2.0, {"loss": 0.5, "acc": 0.7})
    whole.hear(2.0, 4.0, {"loss": 0.25, "acc": 0.8})
    broke = Tried("14", {"lr": "9", "opt": "adam"}, ended=False)
    broke.hear(1.0, 3.0, {"loss": None})
    return [whole, broke, Tried("15", {}, ended=False)]


def events(folder: Path) -> list[Any]:
    """The events of the only file there; a record is its length, a check, its bytes, a check."""
    from tensorboardX.proto.event_pb2 import Event

    (file,) = folder.iterdir()
    data, found, at = file.read_bytes(), [], 0
    while at < len(data):
        (length,) = struct.unpack("<Q", data[at : at + 8])
        found.append(Event.FromString(data[at + 12 : at + 12 + length]))
        at += 16 + length
    return found


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip(
        "tensorboardX", reason="NO TENSORBOARDX HERE: ITS WRITER IS NOT TESTED (pip install it)"
    )
    folder = tmp_path / "runs"
    assert to_tensorboard(folder, SEARCH, trials()) == 2
    assert sorted(each.name for each in folder.iterdir()) == ["trial-13", "trial-14"]
    scalars = [
        (each.wall_time, each.step, value.tag, round(value.simple_value, 6))
        for each in events(folder / "trial-13")
        for value in each.summary.value
        if value.WhichOneof("value") == "simple_value"
    ]
    assert scalars == [
        (1002.0, 1, "loss", 0.5),
        (1002.0, 1, "acc", 0.7),
        (1004.0, 2, "loss", 0.25),
        (1004.0, 2, "acc", 0.8),
    ]
    tags = [value.tag for each in events(folder / "trial-14") for value in each.summary.value]
    assert tags == [
        "_hparams_/" + part for part in ("experiment", "session_start_info", "session_end_info")
    ]
    with pytest.raises(BadInput, match="holds something already"):
        to_tensorboard(folder, SEARCH, trials())


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.setenv(name, "true")
    mlflow = pytest.importorskip(
        "mlflow", reason="NO MLFLOW HERE: ITS WRITER IS NOT TESTED (pip install mlflow-skinny)"
    )
    place = tmp_path / "mlruns"
    assert to_mlflow(str(place), SEARCH, trials()) == 2
    client = mlflow.MlflowClient(tracking_uri=place.as_uri())
    experiment = client.get_experiment_by_name("digits")
    runs = {
        run.data.tags["ganger.job"]: run for run in client.search_runs([experiment.experiment_id])
    }
    assert runs["13"].data.params == {"lr": "0.1", "opt": "sgd"}
    assert runs["13"].data.metrics == {"loss": 0.25, "acc": 0.8}
    assert (runs["13"].info.status, runs["14"].info.status) == ("FINISHED", "KILLED")
    assert (runs["13"].info.start_time, runs["13"].info.end_time) == (1_000_000, 1_004_000)
    history = client.get_metric_history(runs["13"].info.run_id, "loss")
    assert [(each.timestamp, each.step, each.value) for each in history] == [
        (1_002_000, 1, 0.5),
        (1_004_000, 2, 0.25),
    ]
    with pytest.raises(BadInput, match="search 12 is there already"):
        to_mlflow(str(place), SEARCH, trials())


def test_what_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for write, module in ((to_tensorboard, "tensorboardX"), (to_mlflow, "mlflow")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(BadInput, match="install ganger"):
            write(tmp_path / "x", SEARCH, trials())  # type: ignore[arg-type]
    assert [number_or_word(word) for word in ("0.1", "sgd", "nan")] == [0.1, "sgd", "nan"]
