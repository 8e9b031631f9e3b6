"""What a test run starts in the background ends with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

import engines.site
from engines.lifeline import OWNER, clear_leftovers, identity
from engines.rig import processes_with
from engines.site import Site

RUNNER = """
import os, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from engines import lifeline
lifeline.tie(sys.argv[2], Path(sys.argv[3]))
name, _, value = sys.argv[2].partition("=")
subprocess.Popen(["setsid", "sleep", "300"], env={**os.environ, name: value})
time.sleep(300)
"""


def wait(true: Callable[[], object]) -> None:
    """Until it is."""
    late = time.monotonic() + 10
    while not true():
        assert time.monotonic() < late
        time.sleep(0.02)


def test_what_a_killed_run_started_ends_with_it(tmp_path: Path) -> None:
    setting, folder = f"SUITE_SITE={uuid.uuid4().hex}", tmp_path / "site"
    folder.mkdir()
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(Path(__file__).parents[1]), setting, str(folder)]
    )
    wait(lambda: processes_with(setting))
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    wait(lambda: not processes_with(setting) and not folder.exists())


def test_leftovers_of_a_dead_run_are_cleared_and_a_living_ones_are_not() -> None:
    dead = subprocess.Popen(["true"])
    gone = identity(dead.pid) or f"{dead.pid}.1"
    dead.wait()
    left = subprocess.Popen(["sleep", "300"], env={OWNER: gone})
    ours = subprocess.Popen(["sleep", "300"], env={OWNER: identity(os.getpid())})
    try:
        wait(lambda: processes_with(f"{OWNER}={gone}"))
        assert clear_leftovers() >= 1
        assert left.wait(5) == -signal.SIGKILL
        assert ours.poll() is None
    finally:
        for one in (left, ours):
            one.kill()
            one.wait()


def test_a_slurm_that_ends_leaves_the_cgroups_of_another_s_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freezer = tmp_path / "freezer"
    monkeypatch.setattr(engines.site, "FREEZER", str(freezer))
    site = Site(tmp_path / "root", {"v0": ("v100", 1)})
    ours, others = (
        freezer / "slurm_v0" / "uid_0" / f"job_{number}" / "step_0"
        for number in (site.first_job + 7, site.first_job - 7)
    )
    for step in (ours, others):
        step.mkdir(parents=True)
    site.stop()
    assert not ours.parent.exists()
    assert others.exists()
