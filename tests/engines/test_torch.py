"""Real training: stopped, resumed, grown and shrunk, with the loss curve unbroken.

Needs a Python with torch: this one, or the one that GANGER_TORCH_PYTHON names.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from engines.conformance import Play
from engines.rig import Agents, LocalBench
from ganger.core.events import Finished, Progressed, Released, Started
from ganger.core.plan import Placement, Resize, Slot, Start, Stop

TRAIN = Path(__file__).parents[2] / "examples" / "train.py"
PYTHON = os.environ.get("GANGER_TORCH_PYTHON", "")
if not PYTHON and importlib.util.find_spec("torch") is not None:
    PYTHON = sys.executable
pytestmark = pytest.mark.skipif(not PYTHON, reason="torch is not there; GANGER_TORCH_PYTHON")
ONE: Placement = (Slot(0, 1, 1),)
TWO: Placement = (Slot(0, 3, 2),)
SAMPLES, EPOCHS = 300, 3


class Line(NamedTuple):
    """One step as one worker recorded it."""

    step: int
    epoch: int
    world: int
    loss: str
    samples: list[int]


@pytest.fixture(scope="module")
def torch_play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """A play on an agent that keeps torch warm."""
    agents = Agents(tmp_path_factory.mktemp("torch"), ["a"])
    bench = LocalBench(agents)
    bench.settle()
    yield Play(bench)
    bench.engine.close()
    agents.close()


def declare(play: Play, record: Path, pause: float) -> int:
    """A training job that records what it sees."""
    record.mkdir()
    job = play.number()
    assert isinstance(play.bench, LocalBench)
    play.bench.launch(
        job, PYTHON, str(TRAIN), "--samples", str(SAMPLES), "--epochs", str(EPOCHS),
        "--pause", str(pause), "--record", str(record), counted=False, step_micros=0.0,
        warm=("torch", "torch.distributed", "torch._dynamo"),
    )  # fmt: skip
    return job


def lines_of(record: Path) -> list[Line]:
    """What all workers recorded."""
    found = []
    for path in record.iterdir():
        for text in path.read_text().splitlines():
            step, epoch, world, loss, *samples = text.split()
            found.append(Line(int(step), int(epoch), int(world), loss, list(map(int, samples))))
    return found


def losses(record: Path) -> dict[int, set[str]]:
    """By step: the losses that the workers saw, to the last bit."""
    found: dict[int, set[str]] = {}
    for line in lines_of(record):
        found.setdefault(line.step, set()).add(line.loss)
    return found


def after_steps(play: Play, record: Path, more: int) -> None:
    """Poll until so many more steps were done."""
    before = len(lines_of(record))
    play.wait(lambda: len(lines_of(record)) >= before + more, "steps")


def test_a_run_that_was_stopped_gives_the_same_bits(torch_play: Play, tmp_path: Path) -> None:
    play = torch_play
    whole = declare(play, tmp_path / "whole", 0.0)
    play.apply(Start(whole, 1, TWO))
    play.until(Finished, whole)

    cut = declare(play, tmp_path / "cut", 0.03)
    play.apply(Start(cut, 1, TWO))
    play.until(Progressed, cut)
    play.apply(Stop(cut, 1))
    assert play.until(Released, cut).kept > 0
    at = play.bench.engine.progress[cut].saved  # type: ignore[attr-defined]
    assert 0 < at < EPOCHS * -(-SAMPLES // 32)
    began = time.monotonic()
    play.apply(Start(cut, 2, TWO))
    play.until(Finished, cut, 2)
    print(f"resumed and finished in {time.monotonic() - began:.2f} s")

    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert all(len(seen) == 1 for seen in losses(tmp_path / "whole").values())


def test_every_sample_is_seen_once_an_epoch_while_it_grows_and_shrinks(
    torch_play: Play, tmp_path: Path
) -> None:
    play, record = torch_play, tmp_path / "record"
    job = declare(play, record, 0.05)
    play.apply(Start(job, 1, ONE))
    play.until(Progressed, job)
    play.apply(Resize(job, 2, TWO))
    play.until(Started, job, 2)
    after_steps(play, record, 4)
    play.apply(Resize(job, 3, ONE))
    play.until(Finished, job, 3)
    lines = lines_of(record)
    assert {line.world for line in lines} == {1, 2}
    for epoch in range(EPOCHS):
        seen = Counter(s for line in lines if line.epoch == epoch for s in line.samples)
        assert seen == Counter(range(SAMPLES))
    steps = sorted({line.step for line in lines})
    assert steps == list(range(len(steps)))
