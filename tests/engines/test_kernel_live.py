"""The kernel and published policies over real processes: the same objects that are simulated."""

from __future__ import annotations

from typing import Any

import pytest

from engines.rig import PYTHON, LocalBench
from engines.weather import STEPS
from ganger.core.cluster import Nodes
from ganger.core.events import QUEUED, STARTED, Released, Submitted, Woke
from ganger.core.jobs import Phase, declare
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan, Resize, Slot, Start, Stop
from ganger.core.protocols import Policy
from ganger.core.spec import JobSpec, Role, Shape
from ganger.core.units import SECOND
from ganger.core.view import View
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
    kernel = Kernel(
        Nodes(cluster(2, 4)), declare(specs), policy, journal=diary, validate=True
    )  # fmt: skip
    bench.post(*(Submitted(job) for job in range(len(specs))))
    until = bench.now() + 40 * SECOND
    while not all(kernel.jobs.phase[job] >= Phase.FINISHED for job in range(len(specs))):
        assert bench.now() < until, kernel.jobs.phase[: len(specs)]
        batch = bench.engine.poll(min(kernel.wake, until))
        assert batch is not None
        plan = kernel.step(batch)
        if plan is not None:
            bench.engine.apply(plan, batch.at)
    return kernel, diary


@pytest.mark.parametrize("recipe", ["fifo", "las(quantum=2s)", "tiresias(thresholds=200ms)"])
def test_a_published_policy_runs_real_jobs(bench: LocalBench, recipe: str) -> None:
    shapes = [gpus(size) for size in (2, 4, 1, 4, 2, 1, 4, 2)]
    kernel, diary = play(bench, registry.make(recipe), shapes, 40)
    jobs = kernel.jobs
    assert (jobs.phase[:8] == Phase.FINISHED).all()
    assert (jobs.work[:8] >= 0.99 * 40 * 10_000).all()
    stops = [a for _, plan in diary.steps if plan for a in plan.actions if isinstance(a, Stop)]
    assert bool(stops) == (recipe != "fifo")


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
