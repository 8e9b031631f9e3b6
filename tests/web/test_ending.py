"""How the pages end."""

from __future__ import annotations

import http.client
import signal
import time
from pathlib import Path

import pytest

from web.rig import Pages, Standin


def test_pages_that_end_while_somebody_looks_end_the_stream_and_log_nothing(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with said.open("wb") as log:
        pages = Pages(tmp_path / "home", log, lab=True)
        stream = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=10)
        stream.request("GET", "/events", headers={"Host": pages.host, **pages.cookie()})
        answer = stream.getresponse()
        assert answer.readline() == b"retry: 2000\n"
        pages.end()
    assert answer.read().endswith(b"\n\n")
    stream.close()
    assert said.read_text() == ""


@pytest.mark.parametrize("path", ["/jobs/1/log/file", "/queue"])
def test_pages_end_though_the_daemon_does_not_answer(tmp_path: Path, path: str) -> None:
    """Their threads would wait for a text for 70 s, and for an answer for 15."""
    daemon, said = Standin(tmp_path / "home", jobs=1), tmp_path / "said"
    try:
        with said.open("wb") as log:
            pages = Pages(daemon.home, log)
            sent = {"Host": pages.host, **pages.cookie()}
            daemon.process.send_signal(signal.SIGSTOP)
            asking = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=60)
            asking.request("GET", path, headers=sent)
            time.sleep(1)  # it is asked
            pages.end(12)
            asking.close()
    finally:
        daemon.process.send_signal(signal.SIGCONT)
        daemon.end()
    assert said.read_text() == ""
