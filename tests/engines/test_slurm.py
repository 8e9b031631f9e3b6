"""The engine over a real Slurm: a controller and four node daemons of two GPU types."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.conformance import Bench, Conformance, Does, Play
from engines.rig import COMMANDS, QUICK, mark, processes_of
from engines.site import Site, missing
from ganger.core.events import AnyEvent
from ganger.core.jobs import Phase
from ganger.core.plan import Placement
from ganger.core.units import SECOND
from ganger.engines.gang import Hold
from ganger.engines.launch import Launch
from ganger.engines.slurm.client import Client
from ganger.engines.slurm.engine import SlurmEngine

NODES = {"v0": ("v100", 4), "v1": ("v100", 4), "k0": ("k80", 4), "k1": ("k80", 2)}
NAMES = list(NODES)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A Slurm that lives as long as the module's tests."""
    root = Path(tempfile.mkdtemp(prefix="slurm-"))
    site = Site(root, NODES)
    site.start()
    before = os.environ.copy()
    os.environ.update(SLURM_CONF=site.env["SLURM_CONF"], PATH=site.env["PATH"])
    yield site
    os.environ.clear()
    os.environ.update(before)
    site.stop()
    shutil.rmtree(root, ignore_errors=True)


class SlurmBench(Bench):
    """An engine on the site."""

    lacks = frozenset({"suspend", "agents", "refusal"})
    engine: SlurmEngine

    def __init__(self, site: Site, home: Path) -> None:
        self.site, self.home = site, home
        self.launches: dict[int, Launch] = {}
        self._starts = home / "starts"
        self._starts.mkdir(parents=True, exist_ok=True)
        self.engine = self._connect()

    def _connect(self, holds: Iterable[Hold] = ()) -> SlurmEngine:
        engine = SlurmEngine(
            Client("main"), self.home, self.launches.__getitem__,
            lambda hello: [NAMES.index(hello.name)], cluster="test", patience=8 * SECOND,
            progress_every=SECOND // 10,
        )  # fmt: skip
        engine.adopt(holds)
        return engine

    def settle(self) -> None:
        """Wait until all nodes are there."""
        late = time.monotonic() + 20
        while not all(box.up for box in self.engine.boxes.values()):
            assert time.monotonic() < late, "the nodes do not come"
            self.engine.poll(self.now() + SECOND // 10)

    def declare(self, job: int, does: Does) -> None:
        command, retries = COMMANDS[does], 5 if does is Does.STUMBLES else 0
        if does is not Does.ABSENT:
            count = 'echo started >> "$0.$RANK.$GANGER_ATTEMPT"; exec "$@"'
            command = ("sh", "-c", count, str(self._starts / str(job)), *command)
        self.launch(job, *command, retries=retries)

    def launch(self, job: int, *command: str, **more: Any) -> None:
        """Declare a job that runs `command`."""
        env = {"SUITE_JOB": mark(job), **more.pop("env", {})}
        self.launches[job] = Launch(command=command, env=env, **{**QUICK, **more})

    def reconnect(self, holds: Iterable[tuple[int, int, str, Placement]]) -> None:
        self.engine.close()
        self.engine = self._connect(
            Hold(job, attempt, Phase[phase], placement) for job, attempt, phase, placement in holds
        )

    def alive(self, job: int) -> int:
        return len(processes_of(job))

    def kill_agent(self, node: int) -> None:
        raise NotImplementedError

    def refuse(self, job: int) -> None:
        raise NotImplementedError

    def starts(self, job: int) -> int:
        files = self._starts.glob(f"{job}.*")
        return sum(path.read_text().count("started\n") for path in files)

    def post(self, *events: AnyEvent) -> None:
        self.engine.post(*events)

    def now(self) -> int:
        return self.engine.clock.now()

    def output(self, job: int, attempt: int = 1) -> str:
        """What the first node's part of a job wrote."""
        return (self.home / "logs" / f"{job}.{attempt}.log").read_text()


@pytest.fixture
def bench(site: Site, tmp_path: Path) -> Iterator[SlurmBench]:
    """A new engine on the site."""
    bench = SlurmBench(site, tmp_path)
    bench.settle()
    yield bench
    bench.engine.close()
    site.clear()
    site.wait_idle()


@pytest.fixture
def play(bench: SlurmBench) -> Play:
    """A play on the engine's bench."""
    return Play(bench)


class TestSlurm(Conformance):
    """The suite."""
