"""`ganger load`: an open loop against servers, ours and stand-ins that stall, lie or vanish."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ganger.cli.lab.serving.live import load
from ganger.core.errors import BadInput
from serving.live.nets import copies, models_file, sums, times
from serving.live.server import serving

METADATA = {
    "name": "m",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}],
}


class StandIn(BaseHTTPRequestHandler):
    """A server of one model. The first inference takes `stall` seconds, others none."""

    protocol_version = "HTTP/1.1"
    stall = 0.0
    metadata: Any = METADATA
    status, reply = 200, b"{}"
    asked: list[dict[str, Any]]

    def do_GET(self) -> None:
        found = self.path == "/v2/models/m"
        self.answer(200 if found else 404, json.dumps(self.metadata).encode() if found else b"{}")

    def do_POST(self) -> None:
        size = int(self.headers["inference-header-content-length"])
        body = self.rfile.read(int(self.headers["content-length"]))
        self.asked.append({**json.loads(body[:size]), "bytes": len(body) - size})
        if len(self.asked) == 1:
            time.sleep(self.stall)
        self.answer(self.status, self.reply)

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def standing_in(**fields: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    asked: list[dict[str, Any]] = []
    handler = type("Handler", (StandIn,), {"asked": asked, **fields})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def log(path: Path, *rows: str, header: str = "arrival,model") -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def loaded(*words: str | Path) -> Any:
    done = CliRunner().invoke(load, [*map(str, words), "--json"])
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


def test_a_server_that_stalls_is_not_asked_less(tmp_path: Path) -> None:
    """All of twenty requests that come within 0.1 s of a stall of 0.4 s have waited for 0.3 s: not
    the first alone, as a client would find that asks again after each answer."""
    rows = log(tmp_path / "r.csv", *(f"{at * 0.005:.3f},m" for at in range(20)))
    with standing_in(stall=0.4) as (url, asked):
        found = loaded(rows, "--url", url, "--connections", "1")
    assert len(asked) == 20
    assert found["metrics"]["answered"] == 20
    assert found["metrics"]["latency_p50_seconds"] > 0.29
    assert found["metrics"]["latency_p99_seconds"] < 2


def test_requests_go_out_at_their_times_with_what_is_left_of_their_deadline(
    tmp_path: Path,
) -> None:
    rows = log(tmp_path / "r.csv", "0,m,,1", "0.3,m,50ms,3", header="arrival,model,slo,items")
    with standing_in() as (url, asked):
        begin = time.monotonic()
        found = loaded(rows, "--url", url)
        assert time.monotonic() - begin > 0.3
        again = loaded(rows, "--url", url, "--faster", "100", "--slo", "1s")
    assert found["metrics"]["span_seconds"] >= 0.3
    assert again["metrics"]["span_seconds"] < found["metrics"]["span_seconds"]
    first, second, *later = asked
    assert first["parameters"] == {}
    assert 1 <= second["parameters"]["timeout"] <= 50_000
    assert second["inputs"][0]["shape"] == [3, 4]
    assert (first["bytes"], second["bytes"]) == (16, 48)
    times_left = sorted(each["parameters"]["timeout"] for each in later)
    assert 50_000 < times_left[1] <= 1_000_000  # of that which states none


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": 503, "reply": b'{"error": "the queue was full"}'}, "the queue was full"),
        ({"status": 400, "reply": b'{"error": "no"}'}, "400 no"),
        ({"status": 502, "reply": b"<html>"}, "502"),
    ],
)
def test_what_is_not_answered_is_dropped_for_a_reason(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    rows = log(tmp_path / "r.csv", "0,m", "0,m")
    with standing_in(**fields) as (url, _):
        found = loaded(rows, "--url", url, "--connections", "1")  # the second waits for the first
    assert found["dropped_by_reason"] == {reason: 2}
    assert found["metrics"]["attainment"] == 0
    assert found["models"] == [{"model": "m", "requests": 2, "attainment": 0.0, "dropped": 2}]


def test_our_own_server_under_load(tmp_path: Path) -> None:
    times(tmp_path / "double.onnx", 2)
    sums(tmp_path / "sums.onnx")
    copies(tmp_path / "words.onnx", 8)
    file = models_file(tmp_path, ["double", "sums", "words"])
    names = ("double", "sums", "words")
    rows = log(tmp_path / "r.csv", *(f"{at * 0.002:.3f},{names[at % 3]}" for at in range(300)))
    with serving(file) as server:
        words = [str(rows), "--url", f"http://{server.url}", "--slo", "5s"]
        found = loaded(*words)
        text = CliRunner().invoke(load, words).stdout
    assert found["metrics"]["attainment"] == 1
    assert 1 <= found["metrics"]["batches"] <= 300
    assert found["metrics"]["batch_mean"] == 300 / found["metrics"]["batches"]
    assert found["metrics"]["sent_late_p99_seconds"] < 5
    assert "100.0%" in text
    assert "300 requests. In time" in text
    assert "The client itself lagged by" in text


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://10.1.2.3:8000", "10.1.2.3 is another machine"),
        ("http://example.com", "example.com is another machine"),
        ("http://127.0.0.1.example.com", "is another machine"),
        ("https://127.0.0.1", "is not a valid URL"),
        ("http://127.0.0.1:port", "is not a valid URL"),
        ("http://127.0.0.1/v2", "is not a valid URL"),
        ("http://127.0.0.1:1", "nothing answers there (start it: ganger serve FILE)"),
    ],
)
def test_where_load_does_not_go(tmp_path: Path, url: str, why: str) -> None:
    with pytest.raises(BadInput) as refusal:
        loaded(log(tmp_path / "r.csv", "0,m"), "--url", url)
    assert why in str(refusal.value)


def test_what_a_server_does_not_have_or_does_not_say(tmp_path: Path) -> None:
    rows = log(tmp_path / "r.csv", "0,m")
    other = log(tmp_path / "o.csv", "0,n")
    with standing_in() as (url, _), pytest.raises(BadInput, match="it serves no model 'n'"):
        loaded(other, "--url", url)
    open_ = {**METADATA, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}]}
    with standing_in(metadata=open_) as (url, asked):
        with pytest.raises(BadInput, match="say with --length"):
            loaded(rows, "--url", url)
        loaded(rows, "--url", url, "--length", "7")
        assert asked[0]["inputs"][0]["shape"] == [1, 7]
    with (
        standing_in(metadata={"inputs": 3}) as (url, _),
        pytest.raises(BadInput, match="what it says of model 'm' is not valid"),
    ):
        loaded(rows, "--url", url)
