"""An owner that has missed something asks again, over real processes: what truly runs is told, what
was never ordered is done, and under chaos every job ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.conformance import Does, Play, on
from engines.rig import PYTHON, Agents, LaunchingBench, LocalBench
from ganger.core.cluster import Nodes
from ganger.core.events import Failed, Finished, Released, Started, Submitted
from ganger.core.jobs import OVER, Phase, declare
from ganger.core.kernel import Kernel
from ganger.core.plan import Stop
from ganger.core.spec import ClusterSpec, JobSpec
from ganger.core.units import SECOND
from ganger.engines.chaos import Chaos, Faults
from ganger.engines.gang import Hold
from ganger.engines.standing import Believed, believed
from ganger.recipes import registry
from worlds import cluster, gpus

STEPS = """
import sys, time
from ganger import sdk
last = int(sys.argv[1]); saved = sdk.checkpoint_dir / str(sdk.rank)
step = int(saved.read_text()) if saved.exists() else 0
while step < last:
    time.sleep(.02); step += 1
    sdk.progress(step, last)
    if sdk.should_checkpoint() and step < last:
        saved.write_text(str(step)); sdk.leave(step)
"""
LIVE = Faults(late=2 * SECOND, away=4 * SECOND, leave=0.05)
RECIPES = ("fifo", "tiresias(thresholds=1s;3s)", "las(quantum=1s)", "afs")


def believes(job: int, attempt: int, phase: Phase, node: int = 0, device: int = 0) -> Believed:
    """An owner that knows of one attempt."""
    return Believed([Hold(job, attempt, phase, (on(node, device),))])


def test_an_end_that_was_not_heard_is_told_again(play: Play, bench: LocalBench) -> None:
    job = play.running(Does.FINISHES)
    play.until(Finished, job)
    play.quiet(0.1)  # the agent was told to forget it
    play.events.clear()
    assert not bench.engine.reconcile(believes(job, 1, Phase.RUNNING))
    play.until(Finished, job)
    assert bench.engine.reconcile(Believed([])), "the owner knows now"
    play.quiet(0.1)
    assert len(play.find(Finished, job)) == 1


def test_a_start_that_was_not_heard_is_told_again(play: Play, bench: LocalBench) -> None:
    job = play.running(Does.SAVES)
    play.events.clear()
    assert not bench.engine.reconcile(believes(job, 1, Phase.STARTING))
    play.until(Started, job)
    assert bench.engine.reconcile(believes(job, 1, Phase.RUNNING))
    play.apply(Stop(job, 1))
    play.until(Released, job)


def test_orders_that_did_not_come_are_carried_out_once(play: Play, bench: LocalBench) -> None:
    job = play.job(Does.SAVES)
    bench.engine.reconcile(believes(job, 1, Phase.STARTING))
    bench.engine.reconcile(believes(job, 1, Phase.STARTING))
    play.until(Started, job)
    play.started_times(job, 1)
    bench.engine.reconcile(believes(job, 1, Phase.STOPPING))
    play.until(Released, job)
    stray = play.running(Does.RUNS, on(1, 1))
    bench.engine.reconcile(Believed([]))
    play.until(Released, stray)
    assert bench.alive(stray) == 0


def test_what_the_engine_knows_nothing_of_has_failed(play: Play, bench: LocalBench) -> None:
    job = play.job(Does.FINISHES)
    bench.engine.reconcile(believes(job, 3, Phase.RUNNING))
    assert play.until(Failed, job, 3).why.startswith("NodeFail")
    other = play.job(Does.FINISHES)
    bench.engine.reconcile(believes(other, 3, Phase.STOPPING))
    play.until(Released, other, 3)


# ---------------------------------------------------------------------- chaos over real processes


def weather(bench: LaunchingBench, spec: ClusterSpec, recipe: str, seed: int, jobs: int) -> Chaos:
    """Jobs of 1 to 6 GPUs under `recipe` over a bad engine, until all have ended."""
    specs = [JobSpec(name=f"j{i}", shape=gpus(1 + (5 * i + seed) % 6)) for i in range(jobs)]
    for job in range(jobs):
        bench.launch(job, *PYTHON, STEPS, str(20 + 10 * (job % 5)), step_micros=20_000.0, retries=9)
    kernel = Kernel(
        Nodes(spec), declare(specs), registry.make(recipe), seed=seed, validate=True
    )  # fmt: skip
    engine = Chaos(bench.engine, seed, LIVE)
    bench.post(*(Submitted(job) for job in range(jobs)))
    late, look = bench.now() + 200 * SECOND, 0
    while bench.now() < late:
        batch = engine.poll(min(kernel.wake, bench.now() + SECOND // 2))
        assert batch is not None
        plan = kernel.step(batch)
        if plan is not None and plan.actions:
            engine.apply(plan, batch.at)
        if batch.at >= look:
            look = batch.at + SECOND
            same = engine.reconcile(believed(kernel))
            if same and all(phase in OVER for phase in kernel.jobs.phase[:jobs].tolist()):
                break
    assert [Phase(phase).name for phase in kernel.jobs.phase[:jobs]] == ["FINISHED"] * jobs
    assert not kernel.letting_go
    for job in range(jobs):
        assert bench.alive(job) == 0
        for file in bench.start_files(job):
            assert file.read_text().count("started\n") == 1, f"{file} was started twice"
    return engine


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[LocalBench]:
    """An engine on agents of its own: the numbers of a kernel's jobs start at 0."""
    agents = Agents(tmp_path, ["a", "b"])
    bench = LocalBench(agents)
    bench.settle()
    yield bench
    bench.engine.close()
    agents.close()


@pytest.mark.parametrize("seed", [1])
def test_a_bad_engine_of_real_processes_loses_no_job(alone: LocalBench, seed: int) -> None:
    done = weather(alone, cluster(2, 4), RECIPES[seed % len(RECIPES)], seed, 12).done
    assert {"lose", "repeat", "delay"} <= done.keys()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_a_bad_engine_of_real_processes_loses_no_job_for_long(alone: LocalBench, seed: int) -> None:
    weather(alone, cluster(2, 4), RECIPES[seed % len(RECIPES)], seed, 16)
