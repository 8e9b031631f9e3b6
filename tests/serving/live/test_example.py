"""docs/serving-live.md: its example and its answers, as they are written there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from docs.commands import ROOT
from serving.live.server import Server, serving

PAGE = (ROOT / "docs/serving-live.md").read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("example")
    for path in (ROOT / "examples/serve").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    with serving(folder / "models.toml") as made:
        yield made


def test_the_example_asks_a_thousand_times(server: Server) -> None:
    done = subprocess.run(
        [sys.executable, "examples/serve/ask.py", f"http://{server.url}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=True,
    )
    assert "1000 answers, the first:" in done.stdout
    assert re.search(r"small: 500 requests in \d+ batches", done.stdout)
    assert "batches: whatever waits" in done.stdout


def test_the_page_shows_what_is_answered(server: Server) -> None:
    body = re.search(r"infer -d '(.*)'", PAGE)
    answer = re.search(r"^answers `(.*?)`:", PAGE, re.MULTILINE)
    assert body is not None
    assert answer is not None
    given = server.infer("small", json.loads(body[1]))
    assert given.body.decode() == answer[1]
