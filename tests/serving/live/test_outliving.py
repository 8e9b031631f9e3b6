"""`ganger serve --outlive`: a server that is killed is followed at once, at the same port."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from serving.live.nets import models_file, times
from serving.live.room import ASK
from serving.live.server import Server, request, serving


def of(folder: Path, pattern: str) -> list[str]:
    """What standard error has that is like this."""
    return re.findall(pattern, (folder / "stderr").read_text())


def until(condition: object, folder: Path) -> None:
    for _ in range(3000):
        if condition():  # type: ignore[operator]
            return
        time.sleep(0.02)
    pytest.fail((folder / "stderr").read_text())


def serving_now(folder: Path, count: int) -> int:
    """The process of the server that is the so-manieth to serve."""
    until(lambda: len(of(folder, r"server (\d+) serves")) >= count, folder)
    return int(of(folder, r"server (\d+) serves")[count - 1])


def children(server: Server) -> list[int]:
    pid = server.process.pid
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Client(threading.Thread):
    """Asks one request after the other, each again under its id until it is answered."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.server, self.ends = server, threading.Event()
        self.answers: dict[str, bytes] = {}
        self.lost = 0
        self.longest = 0.0

    def run(self) -> None:
        while not self.ends.is_set():
            id_ = f"{len(self.answers)}"
            body = json.dumps({**ASK, "id": id_}).encode()
            began = time.monotonic()
            while id_ not in self.answers:
                try:
                    answer = self.server.send(request("POST", "/v2/models/double/infer", body))
                except (OSError, AssertionError):  # the connection was reset
                    self.lost += 1
                    time.sleep(0.01)
                    continue
                if answer.status == 200:
                    self.answers[id_] = answer.body
            self.longest = max(self.longest, time.monotonic() - began)


def test_a_server_that_is_killed_is_followed_and_clients_that_retry_are_answered_once(
    tmp_path: Path,
) -> None:
    times(tmp_path / "double.onnx", 2)
    with serving(models_file(tmp_path, ["double"]), "--outlive") as server:
        client = Client(server)
        client.start()
        killed = []
        for kill in (1, 2):
            pid = serving_now(tmp_path, kill)
            until(lambda: len(children(server)) == 2, tmp_path)
            count = len(client.answers)
            until(lambda: len(client.answers) > count, tmp_path)  # noqa: B023 - it is called here
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        last = serving_now(tmp_path, 3)
        count = len(client.answers)
        until(lambda: len(client.answers) > count, tmp_path)
        client.ends.set()
        client.join()
        assert [int(each) for each in of(tmp_path, r"server (\d+) ended by signal 9")] == killed
        assert last not in killed
        assert sorted(map(int, client.answers)) == list(range(len(client.answers)))
        for id_, body in client.answers.items():
            assert json.loads(body)["id"] == id_
        assert client.lost <= 2 * len(killed)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        for child in (*killed, last):
            assert not Path(f"/proc/{child}").exists()


def test_where_the_parent_is_killed_nothing_is_left_behind(tmp_path: Path) -> None:
    times(tmp_path / "double.onnx", 2)
    with serving(models_file(tmp_path, ["double"]), "--outlive", status=-9) as server:
        until(lambda: len(children(server)) == 2, tmp_path)
        both = children(server)
        server.process.kill()
        server.process.wait()
        until(lambda: not any(Path(f"/proc/{each}/exe").exists() for each in both), tmp_path)
        with pytest.raises(ConnectionRefusedError):
            server.connect()


def test_what_cannot_be_served_ends_the_parent_with_the_same_error(tmp_path: Path) -> None:
    (tmp_path / "double.onnx").write_bytes(b"nothing")
    with (
        pytest.raises(AssertionError, match="onnxruntime does not load it"),
        serving(models_file(tmp_path, ["double"]), "--outlive"),
    ):
        pytest.fail("it serves")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = str(sock.getsockname()[1])
        with (
            pytest.raises(AssertionError, match="Address already in use"),
            serving(models_file(tmp_path, ["double"]), "--outlive", "--port", port),
        ):
            pytest.fail("it serves")
