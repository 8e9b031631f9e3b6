"""How the pages end."""

from __future__ import annotations

import http.client
from pathlib import Path

from web.rig import Pages


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
