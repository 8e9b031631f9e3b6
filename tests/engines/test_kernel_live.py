"""The kernel and published policies over real processes: the same objects that are simulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engines.rig import PYTHON, LocalBench
from engines.weather import SCALES, STEPS
from ganger.core.events import QUEUED, STARTED, Released, Submitted, Woke
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan, Resize, Slot, Start, Stop
from ganger.core.protocols import Policy
from ganger.core.spec import JobSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase, declare
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.estimate.history import History
from ganger.estimate.measured import MeasuredSpeeds
from ganger.recipes import registry
from worlds import Diary, cluster, gpus


@pytest.fixture
def bench(alone: LocalBench) -> LocalBench:
    """An engine whose jobs start at 0."""
    return alone


def play(
    bench: LocalBench, policy: Policy, shapes: list[Shape], steps: int
) -> tuple[Kernel, Diary]:
    """Run jobs of these shapes until they have ended."""
    specs = [JobSpec(name=f"j{i}", shape=shape) for i, shape in enumerate(shapes)]
    for job in range(len(specs)):
        bench.launch(job, *PYTHON, STEPS, str(steps), counted=False, step_micros=10_000.0)
    diary = Diary()
    kernel = Kernel(Nodes(cluster(2, 4)), declare(specs), policy, journal=diary, validate=True)
    bench.post(*(Submitted(job) for job in range(len(specs))))
    until = bench.now() + 120 * SECOND
    while not all(kernel.jobs.phase[job] >= Phase.FINISHED for job in range(len(specs))):
        assert bench.now() < until, kernel.jobs.phase[: len(specs)]
        batch = bench.engine.poll(min(kernel.wake, until))
        assert batch is not None
        plan = kernel.step(batch)
        if plan is not None:
            bench.engine.apply(plan, batch.at)
    return kernel, diary


@pytest.mark.parametrize("recipe", ["fifo", "las(quantum=1s)", "tiresias(thresholds=200ms)"])
def test_a_published_policy_runs_real_jobs(bench: LocalBench, recipe: str) -> None:
    shapes = [gpus(size) for size in (2, 4, 1, 4, 2, 1, 4, 2)]
    kernel, diary = play(bench, registry.make(recipe), shapes, 40)
    jobs = kernel.jobs
    assert (jobs.phase[:8] == Phase.FINISHED).all()
    leaving, began = np.zeros(8), dict[int, int]()
    for batch, plan in diary.steps:
        for event in batch.events:
            if isinstance(event, Released):
                leaving[event.job] += batch.at - began[event.job]
        for action in plan.actions if plan else ():
            if isinstance(action, Stop):
                began[action.job] = batch.at
    # what a job does between the order to stop and its end is saved, and counted for nothing
    assert (jobs.work[:8] + leaving >= 0.99 * 40 * 10_000).all()
    stops = [a for _, plan in diary.steps if plan for a in plan.actions if isinstance(a, Stop)]
    assert bool(stops) == (recipe != "fifo")


def test_tenants_take_turns_by_leases(bench: LocalBench) -> None:
    specs = [JobSpec(name=name, tenant=name, shape=gpus(5)) for name in "ab"]
    for job in range(2):
        bench.launch(job, *PYTHON, STEPS, "100000", step_micros=10_000.0)
    kernel = Kernel(Nodes(cluster(2, 4)), declare(specs), registry.make("astraea(lease=2s)"))
    bench.post(Submitted(0), Submitted(1))
    until = bench.now() + 120 * SECOND
    while kernel.jobs.phase[1] != Phase.RUNNING:
        assert bench.now() < until, kernel.jobs.phase[:2]
        batch = bench.engine.poll(min(kernel.wake, until))
        assert batch is not None
        plan = kernel.step(batch)
        if plan is not None:
            bench.engine.apply(plan, batch.at)
    assert kernel.jobs.phase[0] == Phase.PENDING
    assert kernel.jobs.attempt[:2].tolist() == [1, 1]


class Restless:
    """Gives job 0 one GPU and two in turn, four times."""

    name = "restless"

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """Resize it every third of a second while it runs."""
        times, phase, attempt = memory or 0, view.jobs.phase[0], int(view.jobs.attempt[0]) + 1
        plan = Plan(wake=view.now + SECOND // 3, until=STARTED | QUEUED)
        if phase == Phase.PENDING:
            plan.actions = [Start(0, attempt, (Slot(0, 0b1, 1),))]
        elif phase == Phase.RUNNING and times < 4 and any(type(e) is Woke for e in view.events):
            wide = (Slot(0, 0b110, 2),) if times % 2 == 0 else (Slot(1, 0b1, 1),)
            plan.actions = [Resize(0, attempt, wide)]
            times += 1
        return plan, times


def test_resizes_and_moves_lose_no_work(bench: LocalBench) -> None:
    shape = Shape((Role(size=1, least=1, most=2),))
    kernel, diary = play(bench, Restless(), [shape], 120)
    jobs = kernel.jobs
    assert jobs.phase[0] == Phase.FINISHED
    assert jobs.attempt[0] == 5
    assert jobs.work[0] >= 0.99 * 120 * 10_000
    assert [type(e) for batch, _ in diary.steps for e in batch.events].count(Released) == 4


@pytest.mark.parametrize("measures", [True, False])
def test_optimus_decides_on_what_jobs_measured(bench: LocalBench, measures: bool) -> None:
    """Small jobs of two models run first, at two sizes each. Then two elastic jobs of each come:
    the model that scales gets the GPUs, if and only if steps are measured."""
    elastic = Shape((Role(size=2, least=1, most=4),))
    models = {"scales": ("0.002", "0.06"), "flat": ("0.06", "0.002")}
    first = [(model, gpus(size), "60") for model in models for size in (1, 2)]
    then = [(model, elastic, "400") for model in models for _ in range(2)]
    specs = [
        JobSpec(name=f"j{i}", shape=shape, model=model)
        for i, (model, shape, _) in enumerate(first + then)
    ]
    for job, (model, _, steps) in enumerate(first + then):
        bench.launch(job, *PYTHON, SCALES, steps, *models[model], counted=False, step_micros=0.0)
    diary = Diary()

    def begun(journal: Diary | None) -> Kernel:
        oracle = MeasuredSpeeds() if measures else History()
        policy = registry.make("optimus(interval=1s)")
        return Kernel(Nodes(cluster(2, 4)), declare(specs), policy, oracle=oracle, journal=journal)

    kernel = begun(diary)
    small, large = range(4), range(4, 8)
    bench.post(*(Submitted(job) for job in small))
    until, came = bench.now() + 60 * SECOND, False
    sizes: list[tuple[int, ...]] = []
    while bench.now() < until and len(sizes) < 400:
        batch = bench.engine.poll(min(kernel.wake, until, bench.now() + SECOND // 50))
        assert batch is not None
        plan = kernel.step(batch)
        if plan is not None:
            bench.engine.apply(plan, batch.at)
        jobs = kernel.jobs
        if not came and all(jobs.phase[job] == Phase.FINISHED for job in small):
            bench.post(*(Submitted(job) for job in large))
            came = True
        if all(jobs.phase[job] == Phase.RUNNING for job in large):
            sizes.append(tuple(jobs.size[4:8].tolist()))
            if len(sizes) > 100:
                break
    grown = np.mean([(sum(one[:2]), one[2:]) == (6, (1, 1)) for one in sizes])
    assert grown > 0.5 if measures else grown < 0.2, sizes
    again = begun(None)
    for batch, plan in diary.steps:  # the log alone gives the same plans
        made = again.step(batch)
        assert (made.actions if made else None) == (plan.actions if plan else None)
