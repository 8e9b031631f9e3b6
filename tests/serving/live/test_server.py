"""A server from its begin to its end, as its operator sees it."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx.external_data_helper import set_external_data

from ganger.cli.lab.profile import profile
from ganger.cli.lab.serving.live import serve
from ganger.core.errors import BadInput
from ganger.lab.serving.live import Machine, prepared
from ganger.workloads.models.reading import read_models
from serving.live.nets import busy, models_file, times
from serving.live.server import read, request, serving

SLOW = {
    "inputs": [{"name": "x", "shape": [8, 256], "datatype": "FP32", "data": [0.5] * 2048}],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    times(tmp_path / "double.onnx", 2)
    busy(tmp_path / "busy.onnx", 3000)
    return tmp_path


def failing(file: Path, *options: str) -> str:
    error = CliRunner().invoke(serve, [str(file), *options]).exception
    assert isinstance(error, BadInput), error
    return str(error)


def test_at_its_end_it_is_not_ready_takes_nothing_new_and_answers_what_it_has(
    folder: Path,
) -> None:
    file = models_file(folder, ["double", "busy"])
    with serving(file) as server, ExitStack() as stack:
        busy_body = request("POST", "/v2/models/busy/infer", json.dumps(SLOW).encode())
        watcher, worker = stack.enter_context(server.connect()), server.connect()
        stack.enter_context(worker).sendall(busy_body)
        watcher.sendall(request("GET", "/v2/health/ready"))
        assert read(watcher).status == 200
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
        watcher.sendall(request("GET", "/v2/health/ready"))
        assert read(watcher).status == 503
        answer = read(worker)
        assert answer.status == 200
        assert server.process.wait(20) == 0
        with pytest.raises(ConnectionRefusedError):
            server.connect()


def test_what_the_recipe_refuses_is_503_with_its_reason(folder: Path) -> None:
    file = models_file(folder, ["busy"], largest=8)
    with serving(file, "--recipe", "serve.triton(longest=1)") as server:
        answers: list[Any] = []

        def ask() -> None:
            answers.append(server.infer("busy", SLOW))

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refused = [each for each in answers if each.status != 200]
        assert {each.status for each in answers} == {200, 503}
        for each in refused:
            assert each.error == "the queue was full"
            assert each.headers["retry-after"] == "1"
            assert each.headers["ganger-reason"] == "the-queue-was-full"
        stats = server.ask("GET", "/v2/models/busy/stats").json["model_stats"][0]
        assert stats["reasons"]["requests"]["the queue was full"] == len(refused)


def test_what_cannot_be_in_time_is_504_and_an_slo_refuses(folder: Path) -> None:
    """The recipe drops what is too late by its tables: with a deadline of its own that is late."""
    file = models_file(folder, ["double"], base=0.5)
    with serving(file, "--recipe", "clockwork", "--slo", "50ms") as server:
        body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1] * 4}]}
        answer = server.infer("double", body)
        assert (answer.status, "in time" in answer.error) == (503, True)
        late = server.infer("double", {**body, "parameters": {"deadline_ms": 20}})
        assert late.status in (503, 504)


def test_the_access_log_has_a_line_for_each_answer(folder: Path) -> None:
    file = models_file(folder, ["double"])
    with serving(file, "--access-log") as server:
        server.ask("GET", "/v2")
        body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1] * 4}]}
        server.infer("double", body, **{"x-request-id": "mine"})
    lines = [
        json.loads(each)
        for each in (folder / "stderr").read_text().splitlines()
        if each.startswith("{")
    ]
    assert [each["status"] for each in lines] == [200, 200]
    assert lines[1]["id"] == "mine"
    assert lines[1]["note"] == "model='double' batch=1 why='whatever waits'"


def test_what_profile_writes_can_be_served(folder: Path) -> None:
    out = folder / "measured.toml"
    done = CliRunner().invoke(
        profile,
        [str(folder / "double.onnx"), "--batches", "1,4", "--runs", "10", "-o", str(out)],
    )
    assert done.exception is None, done.output
    assert 'onnx = "double.onnx"' in out.read_text()
    served = prepared(read_models(out), "clipper", Machine())
    assert served.models[0].path == folder / "double.onnx"
    assert next(iter(served.world.models[0].latencies.values())).largest == 4


# ---------------------------------------------------------------------- what is refused at once


def test_without_onnxruntime_there_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert failing(models_file(folder, ["double"])) == (
        "serving models needs onnxruntime (pip install 'ganger[serving]')"
    )


@pytest.mark.parametrize("path", ["../double.onnx", "/etc/passwd", "link.onnx"])
def test_no_model_file_is_outside_its_folder(folder: Path, path: str) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (inner / "link.onnx").symlink_to(folder / "double.onnx")
    file = models_file(inner, ["double"])
    file.write_text(file.read_text().replace("double.onnx", path))
    assert "is outside the folder of the models file (move or copy it there)" in failing(file)


def test_no_model_reads_data_outside_its_folder(folder: Path) -> None:
    """Parameters of a model may lie in a file beside it, never in one that is elsewhere."""
    inner = folder / "inner"
    inner.mkdir()
    model = onnx.load(times(inner / "double.onnx", 2))
    constant = model.graph.initializer[0]
    constant.dims[:] = [4]
    file = models_file(inner, ["double"])
    for place, location in ((inner, "beside"), (folder, "../secret")):
        np.array([7] * 4, np.float32).tofile(place / location.removeprefix("../"))
        set_external_data_of(constant, location)
        (inner / "double.onnx").write_bytes(model.SerializeToString())
        if place == inner:
            assert len(prepared(read_models(file), "nexus", Machine()).models) == 1
        else:
            assert "onnxruntime does not load it" in failing(file)


def set_external_data_of(constant: Any, location: str) -> None:
    """Let the numbers of a constant lie in a file."""
    constant.raw_data = b"\0"  # what the helper looks for
    set_external_data(constant, location=location, offset=0, length=16)
    constant.ClearField("raw_data")
    constant.data_location = onnx.TensorProto.EXTERNAL


def test_a_file_that_is_not_onnx_is_not_loaded(folder: Path) -> None:
    (folder / "double.onnx").write_bytes(b"\x80\x04cos\nsystem\n")
    why = failing(models_file(folder, ["double"]))
    assert re.search(r"double\.onnx: onnxruntime does not load it: ", why)


@pytest.mark.parametrize(
    ("before", "after", "options", "why"),
    [
        ('onnx = "double.onnx"', "", (), "it names no file to serve (add onnx ="),
        ("double.onnx", "none.onnx", (), "there is no file none.onnx"),
        ("", "", ("--device", "T4"), "there is no device 'T4'"),
        ("", "", ("--recipe", "serve.clairvoyant"), "it knows requests before they come"),
        ("", "", ("--recipe", "fifo"), "fifo"),
        ("", "", ("--slo", "0s"), "--slo: '0s' is not a valid time"),
        ("", "", ("--memory", "1k"), "--memory: '1k' is less than 1 MiB"),
    ],
)
def test_what_cannot_be_served(
    folder: Path, before: str, after: str, options: tuple[str, ...], why: str
) -> None:
    file = models_file(folder, ["double"])
    file.write_text(file.read_text().replace(before, after) if before else file.read_text())
    assert why in failing(file, *options)


def test_a_port_that_is_taken(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        why = failing(models_file(folder, ["double"]), "--port", str(port))
    assert why == (
        f"--port: 127.0.0.1:{port}: Address already in use (use another port, as in --port 8001; 0"
        " takes any that is free)"
    )
