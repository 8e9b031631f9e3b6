"""A user's shell on one daemon, for all tests of a module."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cli.rig import Shell
from ganger.service import agents


@pytest.fixture(scope="module")
def shell(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Shell]:
    made = Shell(tmp_path_factory.mktemp("live"))
    gpus = getattr(request.module, "GPUS", "4xV100+2xK80")
    text = made.said("up", "--gpus", gpus, "--name", "box")
    assert "cluster: 2 nodes, 6 of 6 GPUs free" in text
    yield made
    try:
        made.ganger("cancel", "--me", "--state", "active")  # what has ended by itself is no error
        until = time.monotonic() + 30
        while made.json("queue")["jobs"]:
            assert time.monotonic() < until, "a job that was cancelled does not end"
            time.sleep(0.05)
        assert made.said("down") == "down\n"
        assert agents.running(made.home / "agent") == 0, "nothing ran, so nothing stays"
    finally:
        agents.stop(made.home / "agent")
