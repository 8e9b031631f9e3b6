"""Real training: stopped, resumed, grown and shrunk, with the loss curve unbroken.

Needs a Python with torch: this one, or the one that GANGER_TORCH_PYTHON names.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import ganger
from engines.conformance import Play
from engines.rig import Agents, LocalBench
from ganger.core.events import Finished, Measured, Progressed, Released, Started, Submitted
from ganger.core.kernel import Kernel
from ganger.core.plan import Placement, Resize, Slot, Start, Stop
from ganger.core.spec import JobSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase, declare
from ganger.core.units import SECOND
from ganger.estimate.measured import MeasuredSpeeds
from ganger.recipes import registry
from worlds import Diary, cluster, gpus

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


def training(play: Play, record: Path, pause: float) -> int:
    """A training job that records what it sees."""
    record.mkdir()
    job = play.number()
    assert isinstance(play.bench, LocalBench)
    trains(
        play.bench,
        job,
        "--samples",
        str(SAMPLES),
        "--epochs",
        str(EPOCHS),
        "--pause",
        str(pause),
        "--record",
        str(record),
    )
    return job


def trains(bench: LocalBench, job: int, *words: str, **more: Any) -> None:
    """The job trains."""
    bench.launch(
        job,
        PYTHON,
        str(TRAIN),
        *words,
        counted=False,
        step_micros=0.0,
        warm=("torch", "torch.distributed", "torch._dynamo"),
        **more,
    )


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
    whole = training(play, tmp_path / "whole", 0.0)
    play.apply(Start(whole, 1, TWO))
    play.until(Finished, whole)

    cut = training(play, tmp_path / "cut", 0.03)
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
    job = training(play, record, 0.05)
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


EXACT = """
import runpy, sys, torch
train = runpy.run_path(sys.argv[1])
torch.manual_seed(0)
from torch import nn
samples, labels = train["make_data"](int(sys.argv[2]))
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
each = []
for x, y in zip(samples, labels):
    model.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    each.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
each = torch.stack(each)
print(float(each.var(0).sum() / each.mean(0).pow(2).sum()))
"""
"""The noise scale of the untrained model's gradients, from the gradient of every example."""


def drive(bench: LocalBench, kernel: Kernel, until: Callable[[], bool]) -> None:
    """Go on until it holds."""
    late = time.monotonic() + 100
    while not until():
        assert time.monotonic() < late, kernel.jobs.phase[: kernel.jobs.n]
        batch = bench.engine.poll(min(kernel.wake, bench.now() + SECOND // 10))
        assert batch is not None
        plan = kernel.step(batch)
        if plan is not None:
            bench.engine.apply(plan, batch.at)


def test_policies_decide_on_what_real_training_measured(alone: LocalBench) -> None:
    """Jobs of one model train on one GPU and on two: their step times, and the noise of their
    gradients, are learnt, and optimus gives a third one as many GPUs as that curve says."""
    elastic = Shape((Role(size=1, least=1, most=4),))
    specs = [
        JobSpec(name=f"j{job}", shape=shape, model="net")
        for job, shape in enumerate((gpus(1), gpus(2), elastic))
    ]
    # A learning rate of 0: every step sees the model that the exact figure is of.
    for job, epochs in enumerate(("40", "40", "1000")):
        trains(alone, job, "--samples", "320", "--epochs", epochs, "--pause", "0.005", "--lr", "0")
    diary, oracle = Diary(), MeasuredSpeeds()

    def begun(journal: Diary | None, oracle: MeasuredSpeeds) -> Kernel:
        policy = registry.make("optimus(interval=1s)")
        return Kernel(Nodes(cluster(2, 4)), declare(specs), policy, oracle=oracle, journal=journal)

    kernel = begun(diary, oracle)
    phases = kernel.jobs.phase
    for job in range(2):
        alone.post(Submitted(job))
        drive(alone, kernel, lambda job=job: phases[job] == Phase.FINISHED)  # type: ignore[misc]
    told = [e for batch, _ in diary.steps for e in batch.events if isinstance(e, Measured)]
    assert {event.batch for event in told} == {32.0}
    assert all(event.step > 5000 for event in told), "the pause alone takes 5 ms"
    assert {event.noise > 0 for event in told if event.job == 0} == {False}, "one cannot know"
    exact = subprocess.run(
        [PYTHON, "-c", EXACT, str(TRAIN), "320"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(ganger.__file__).parents[1])},
    )
    curve = oracle.learnt.curves["model net"]
    print(f"noise scale {curve.noise:.1f} examples, exactly {float(exact.stdout):.1f}")
    assert curve.noise == pytest.approx(float(exact.stdout), rel=0.5)

    ids, sizes = np.array([2, 2, 2, 2]), np.array([1, 2, 3, 4])
    speeds = oracle.throughput(kernel.view, ids, "V100", sizes, np.ones(4, np.int64))
    steps = {point.replicas: point.step for point in curve.points}
    print(f"step {steps[1]:.4f} s on one, {steps[2]:.4f} s on two; speeds {speeds}")
    # What else this machine did while one worker trained is no gain of two: at most twice as fast.
    assert speeds[1] / speeds[0] == pytest.approx(min(steps[1] / steps[2], 2), rel=0.2)
    alone.post(Submitted(2))
    drive(alone, kernel, lambda: phases[2] == Phase.RUNNING and diary.steps[-1][0].at > 0)
    more = kernel.jobs.size[2]
    if abs(speeds[1] - 1) > 0.05:  # on most machines two workers of so small a model are slower
        assert (more > 1) == (speeds[1] > 1), more
    again = begun(None, MeasuredSpeeds())
    for batch, plan in diary.steps:  # the log alone gives the same plans
        made = again.step(batch)
        assert (made.actions if made else None) == (plan.actions if plan else None)
