"""A bad engine over real processes, driven by a kernel until every job has ended."""

from __future__ import annotations

from engines.rig import PYTHON, LaunchingBench
from ganger.core.events import Submitted
from ganger.core.kernel import Kernel
from ganger.core.spec import ClusterSpec, JobSpec
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import OVER, Phase, declare
from ganger.core.units import SECOND
from ganger.engines.reconciliation import believed
from ganger.engines.testing.chaos import Chaos, Faults
from ganger.recipes import registry
from worlds import gpus

SCALES = """
import os, sys, time
from ganger import sdk
last, serial, shared = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
saved = sdk.checkpoint_dir / str(sdk.rank)
step = int(saved.read_text()) if saved.exists() else 0
sdk.should_checkpoint()
while step < last:
    time.sleep(serial + shared / int(os.environ["GANGER_WORKERS"])); step += 1
    sdk.progress(step, last, batch_size=64)
    if sdk.should_checkpoint() and step < last:
        new = saved.with_suffix(".new"); new.write_text(str(step)); new.replace(saved)
        sdk.leave(step)
"""
"""A step takes as long as is said, and what the workers share."""
STEPS = """
import sys, time
from ganger import sdk
last = int(sys.argv[1]); saved = sdk.checkpoint_dir / str(sdk.rank)
step = int(saved.read_text()) if saved.exists() else 0
while step < last:
    time.sleep(.01); step += 1
    sdk.progress(step, last)
    if sdk.should_checkpoint() and step < last:
        new = saved.with_suffix(".new"); new.write_text(str(step)); new.replace(saved)
        sdk.leave(step)
"""
LIVE = Faults(late=2 * SECOND, away=4 * SECOND, leave=0.05)
RECIPES = ("fifo", "tiresias(thresholds=1s;3s)", "las(quantum=1s)", "afs")


def turn(kernel: Kernel, engine: Chaos, until: int) -> int:
    """One step of the loop, and the time that it was made at."""
    batch = engine.poll(min(kernel.wake, until))
    assert batch is not None
    plan = kernel.step(batch)
    if plan is not None and plan.actions:
        engine.apply(plan, batch.at)
    return batch.at


def weather(bench: LaunchingBench, spec: ClusterSpec, recipe: str, seed: int, jobs: int) -> Chaos:
    """Jobs of 1 to 6 GPUs under `recipe` over a bad engine, until all have ended."""
    specs = [JobSpec(name=f"j{i}", shape=gpus(1 + (5 * i + seed) % 6)) for i in range(jobs)]
    for job in range(jobs):
        bench.launch(job, *PYTHON, STEPS, str(40 + 20 * (job % 5)), step_micros=10_000.0, retries=9)
    kernel = Kernel(Nodes(spec), declare(specs), registry.make(recipe), seed=seed, validate=True)
    engine = Chaos(bench.engine, seed, LIVE)
    bench.post(*(Submitted(job) for job in range(jobs)))
    late, look = bench.now() + 200 * SECOND, 0
    while bench.now() < late:
        if (at := turn(kernel, engine, bench.now() + SECOND // 2)) >= look:
            look = at + SECOND
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
