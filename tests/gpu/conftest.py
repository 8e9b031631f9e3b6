"""A user's shell on a machine with a GPU. `pytest -m gpu` runs these tests; elsewhere they are
skipped, and say why."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cli.rig import Shell
from engines.rig import processes_with
from ganger.core.events import Sampled
from ganger.service import agents
from ganger.service.durable.journal import Journal

PYTHON = os.environ.get("GANGER_TORCH_PYTHON", "") or sys.executable
"""What jobs run."""
TRAIN = Path(__file__).with_name("train.py")
PATIENCE_SECONDS = 60.0
_ASKED_SECONDS = 60.0


@cache
def why_not() -> str:
    """What is missing; empty if all is there."""
    if importlib.util.find_spec("pynvml") is None:
        return "no NVML: nvidia-ml-py is not installed"
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return f"no NVIDIA GPU: {error}"
    if count != 1:
        return f"NVML finds {count} GPUs: these tests need a machine with one"
    asked = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    done = subprocess.run([PYTHON, "-c", asked], timeout=_ASKED_SECONDS, capture_output=True)
    return "" if done.returncode == 0 else f"{PYTHON} has no torch for the GPU; GANGER_TORCH_PYTHON"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say of each why it is skipped. A GPU is not shared with other tests unasked."""
    ours = [item for item in items if item.get_closest_marker("gpu")]
    if not ours:
        return
    asked = "gpu" in config.getoption("markexpr")
    why = why_not() if asked else "needs a GPU for itself: run `pytest -m gpu`"
    for item in ours if why else ():
        item.add_marker(pytest.mark.skip(reason=why))


class Desk(Shell):
    """A shell, and what its jobs have recorded."""

    def begin(self, recipe: str) -> None:
        """Have a daemon and an agent on this machine's GPUs."""
        self.said("up", "--recipe", recipe, "--name", "box")
        self.until(lambda: self.json("nodes")[0]["sharing"], "the agent")

    def train(self, name: str, *words: str, width: int = 8192, pause: float = 0.006) -> int:
        """A job that trains until it is told to end."""
        command = [PYTHON, str(TRAIN), str(self.cwd / name), str(width), str(pause)]
        words = ("--name", name, "--model", "net", *words)
        return self.submit(*words, "--", *command)

    def steps(self, name: str) -> list[float]:
        """When each step of a job ended, Unix seconds."""
        record = self.cwd / name
        lines = record.read_text().splitlines() if record.exists() else []
        return [float(line.split()[0]) for line in lines if " step " in line and line[-1] != " "]

    def processors(self, name: str) -> int:
        """How many multiprocessors the GPU has, as the job sees it."""
        return int((self.cwd / name).read_text().split()[2])

    def pace(self, name: str, since: float, until: float) -> float:
        """Steps a second of a job in a span of time, which is over when this returns."""
        time.sleep(max(until - time.time(), 0.0))
        return sum(since <= at < until for at in self.steps(name)) / (until - since)

    def pace_now(self, name: str, seconds: float = 4.0) -> float:
        """Steps a second from now on."""
        now = time.time()
        return self.pace(name, now, now + seconds)

    def until(self, happened: Callable[[], Any], what: str) -> float:
        """Wait until something is so; the time, Unix seconds."""
        late = time.monotonic() + PATIENCE_SECONDS
        while not happened():
            assert time.monotonic() < late, f"{what} does not come\n{self.told()}"
            time.sleep(0.1)
        return time.time()

    def under_way(self, name: str) -> float:
        """Wait until a job has done some steps; the time, Unix seconds."""
        return self.until(lambda: len(self.steps(name)) > 20, f"the 20th step of {name}")

    def finish(self, name: str) -> float:
        """Have a job end by itself; the time, Unix seconds."""
        (self.cwd / f"{name}.done").touch()
        return self.until(lambda: name not in self.running(), f"the end of {name}")

    def running(self) -> dict[str, Any]:
        """The jobs that run, by name."""
        return {job["name"]: job for job in self.json("queue")["jobs"] if job["state"] == "RUNNING"}

    def samples(self, job: int) -> list[Sampled]:
        """What the journal has of how busy a job's GPU was."""
        journal = Journal(self.home / "journal.db", readonly=True)
        try:
            events = [event for _, batch, _ in journal.steps(0) for event in batch.events]
        finally:
            journal.close()
        return [one for one in events if isinstance(one, Sampled) and one.job == job - 1]

    def told(self) -> str:
        """What jobs, agent and daemon have said, for a test that fails."""
        files = [*self.home.glob("agent/logs/*"), self.home / "agent" / "agent.log"]
        files += [*self.home.glob("agent/mps/*.log"), *self.home.glob("*.log")]
        files += self.cwd.glob("*.out")
        some = (f"--- {path}\n{path.read_text()[-1500:]}" for path in files if path.is_file())
        why = (self.said("explain", job["label"]) for job in self.running().values())
        done = (f"{name}: {len(self.steps(name))} steps" for name in self.running())
        return "\n".join([self.said("queue", "--all"), *why, *done, *some])


@contextmanager
def a_desk() -> Iterator[Desk]:
    """In a folder whose path is short enough for the sockets of MPS."""
    root = Path(tempfile.mkdtemp(prefix="gg-"))
    made = Desk(root)
    try:
        yield made
        running = [job["label"] for job in made.json("queue")["jobs"]]
        if running:
            made.ganger("cancel", *running)
            made.ganger("wait", *running, code=130)
        made.said("down")
    finally:
        agents.stop(made.home / "agent")
        assert processes_with(f"CUDA_MPS_PIPE_DIRECTORY={made.home}/agent/mps") == []
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A home of its own."""
    with a_desk() as made:
        yield made
