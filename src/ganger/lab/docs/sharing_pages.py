"""Pages of rules for sharing: services and jobs on one small cluster, drawn."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from ganger.core.profiles import Load
from ganger.core.spec import ClusterSpec, JobSpec, Kind, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import MINUTE, SECOND
from ganger.lab.result import Run
from ganger.lab.simulating.setup import Setup
from ganger.lab.simulation import run_one
from ganger.lab.tables import duration
from ganger.recipes.registry import Recipe
from ganger.sim.physics import Costs
from ganger.workloads.trace import Trace

MINUTES: Final = 120
"""How long requests come."""
ON: Final = ClusterSpec(
    (
        NodeSpec(gpus=4, gpu_type="V100"),
        NodeSpec(count=3, gpus=2, gpu_type="V100", pool="serving"),
    ),
    name="a node of 4 V100 for training and three of 2 for services",
)
RATES: Final = ((0, 4.0), (30, 12.0), (40, 46.0), (70, 15.0), (80, 4.0), (MINUTES, 0.0))
"""Minutes, and requests a second from then on; a replica answers ten."""
JOBS: Final = (  # submitted (min), takes (min), GPUs
    (0, 80, 2), (5, 30, 2), (8, 20, 2), (12, 40, 1), (15, 25, 2), (32, 45, 4), (50, 30, 2),
    (75, 30, 4),
)  # fmt: skip


def _trace() -> Trace:
    web = JobSpec(name="web", kind=Kind.SERVE, shape=Shape((Role(size=1, least=1, most=6),)))
    jobs = [
        JobSpec(name=f"job-{number}", submitted=at * MINUTE, shape=Shape((Role(size=gpus),)))
        for number, (at, _, gpus) in enumerate(JOBS)
    ]
    lasts = np.array([MINUTES, *(takes for _, takes, _ in JOBS)], np.int64) * MINUTE
    return Trace(declare([web, *jobs]), lasts, name="the example")


@cache
def beside(name: str) -> Run:
    """What the rule does with the example, under fifo and a threshold for replicas."""
    times, rates = zip(*RATES, strict=True)
    load = Load(tuple(60.0 * time for time in times), rates, 10.0)
    setup = Setup(
        serving="scale.threshold(up=0.8,down=0.4,cooldown=30s)",
        sharing=name,
        loads={"web": load},
        window=30 * SECOND,
        costs=Costs(checkpoint=30 * SECOND, restore=30 * SECOND),
    )
    return run_one(_trace(), ON, "fifo", setup)


def sharing_example(recipe: Recipe) -> str:
    """The example, in words."""
    run = beside(recipe.name)
    loans = run.loans
    lent = (
        ""
        if loans is None
        else f" {loans.lent_gpu_hours:.1f} GPU-hours are on loan, and jobs use"
        f" {loans.used_gpu_hours:.1f} of them; the longest that a node takes to be back is"
        f" {duration(loans.longest_return_seconds)}."
    )
    return (
        f"## On a small example\n\n![Which job held which GPU when]({recipe.name}.svg)\n\n"
        f"A service, whose load has a peak from minute 40 to minute 70, and {len(JOBS)} jobs on"
        f" {ON.name}. Jobs run first come, first served, services by"
        " `scale.threshold`; to save and to go on takes a job 30 s each. A job is done after"
        f" {duration(run.metrics['jct_mean_seconds'])} on average, of which it waits"
        f" {duration(run.metrics['queueing_delay_mean_seconds'])} before it first runs; jobs are"
        f" preempted {int(run.metrics['preemptions'])} times.{lent}"
    )
