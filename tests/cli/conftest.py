"""A user's shell on one daemon, for all tests of a module."""

from __future__ import annotations

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
        running = [job["label"] for job in made.json("queue")["jobs"]]
        if running:
            made.ganger("cancel", *running)
            made.ganger("wait", *running, code=130)
        assert made.said("down") == "down\n"
        assert agents.running(made.home / "agent") == 0, "nothing ran, so nothing stays"
    finally:
        agents.stop(made.home / "agent")
