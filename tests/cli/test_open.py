"""`ganger open`: the link, the process behind it, and its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ganger.web.links import asked_at
from web.rig import Standin


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standin]:
    made = Standin(tmp_path_factory.mktemp("open") / "home")
    yield made
    if pages := asked_at(made.home):
        os.kill(pages.pid, signal.SIGTERM)
    made.end()


def ganger(
    home: Path, *words: str, browser: str = "", command: str = "open"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ganger.cli", command, *words],
        env={**os.environ, "GANGER_HOME": str(home), "BROWSER": browser},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_without_a_daemon_it_says_so(tmp_path: Path) -> None:
    done = ganger(tmp_path / "home", "--no-browser")
    assert done.returncode == 2
    assert "no daemon runs" in done.stderr
    assert ganger(tmp_path / "home", "--end").stdout == "no pages are served here\n"


def test_the_lab_needs_no_daemon(tmp_path: Path) -> None:
    home = tmp_path / "home"
    try:
        link = ganger(home, "--no-browser", command="lab").stdout
        assert "/enter#token=" in link
        told = asked_at(home / "lab")
        assert told is not None
        assert told.settings.lab
        assert link.startswith(told.url)
    finally:
        ended = ganger(home, "--end", command="lab").stdout
    assert ended == "ended\n"
    assert ganger(home, "--end", command="lab").stdout == "the lab is not open\n"


def test_each_link_is_another_one_to_the_same_pages(daemon: Standin) -> None:
    one = json.loads(ganger(daemon.home, "--no-browser", "--json").stdout)
    two = json.loads(ganger(daemon.home, "--no-browser", "--json").stdout)
    assert one["pid"] == two["pid"]
    assert one["url"] == two["url"]
    assert one["link"] != two["link"]
    assert one["link"].startswith(f"{one['url']}/enter#token=")
    other = ganger(daemon.home, "--no-browser", "--web-prefix", "/x")
    assert other.returncode == 2
    assert "served already" in other.stderr
    assert ganger(daemon.home, "--end").stdout == "ended\n"


def test_no_user_of_the_machine_sees_the_link_in_the_words_of_the_browser(
    daemon: Standin, tmp_path: Path
) -> None:
    browser, words = tmp_path / "browser", tmp_path / "words"
    browser.write_text(f'#!/bin/sh\necho "$@" >{words}.part; mv {words}.part {words}\n')
    browser.chmod(0o755)
    done = ganger(daemon.home, browser=str(browser))
    link = done.stdout.splitlines()[0]
    told = words.read_text().strip()
    assert link.partition("#token=")[2] not in told
    leading = Path(urlsplit(told).path)
    assert link in leading.read_text()
    assert stat.S_IMODE(leading.stat().st_mode) == 0o600
    assert stat.S_IMODE(leading.parent.stat().st_mode) == 0o700
    assert ganger(daemon.home, "--end").stdout == "ended\n"


def test_a_prefix_and_a_name_stand_in_the_link(daemon: Standin) -> None:
    words = ("--no-browser", "--web-host", "https://gpu.example.org", "--web-prefix", "/ganger/")
    done = ganger(daemon.home, *words)
    assert done.stdout.startswith("https://gpu.example.org/ganger/enter#token="), done.stderr
    assert ganger(daemon.home, "--end").stdout == "ended\n"
    wrong = ganger(daemon.home, "--no-browser", "--web-prefix", "x y")
    assert wrong.returncode == 2
    assert wrong.stderr == "ganger: --web-prefix: 'x y' is not a path (/ganger)\n"


def test_pages_that_came_with_the_daemon_end_with_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = ("--gpus", "2", "--web", "--json")
    try:
        done = ganger(home, *words, command="up")
        link = json.loads(done.stdout)["link"]
        told = asked_at(home)
        assert told is not None
        assert link.startswith(f"{told.url}/enter#token=")
        port = urlsplit(told.url).port
        with socket.create_connection(("127.0.0.1", port or 0), timeout=10):
            pass
        assert json.loads(ganger(home, "--json").stdout)["pid"] == told.pid
    finally:
        down = ganger(home, command="down")
    assert down.stdout == "down\n", down.stderr
    assert asked_at(home) is None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port or 0), timeout=10)


def test_pages_opened_by_themselves_outlive_the_daemon(tmp_path: Path) -> None:
    """They show the next one; `up --web` gives a link to them."""
    home = tmp_path / "home"
    try:
        ganger(home, "--gpus", "2", command="up")
        pid = json.loads(ganger(home, "--no-browser", "--json").stdout)["pid"]
        ganger(home, command="down")
        lines = ganger(home, "--web", command="up").stdout.splitlines()
        told = asked_at(home)
        assert told is not None
        assert told.pid == pid
        assert lines[-1].startswith(f"pages:   {told.url}/enter#token=")
    finally:
        ganger(home, command="down")
        ended = ganger(home, "--end").stdout
    assert ended == "ended\n"


def test_a_daemon_in_the_foreground_prints_no_link(tmp_path: Path) -> None:
    done = ganger(tmp_path / "home", "--web", "--foreground", command="up")
    assert done.returncode == 2
    assert "ganger open" in done.stderr
