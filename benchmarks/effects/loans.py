"""Services and jobs on one cluster."""

from __future__ import annotations

from functools import cache

import numpy as np

from effects.common import Effect, cluster, effect, mean, verdict, waits, workload
from ganger.core.profiles import Load
from ganger.core.spec import ClusterSpec, JobSpec, Kind, NodeSpec, Role, Shape
from ganger.core.units import MINUTE, SECOND
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.sim.physics import Costs
from ganger.workloads.trace import Trace
from ganger.workloads.transform import with_jobs

HOURS = 96
"""Hours of load: until the last job is done."""
ON = ClusterSpec((*cluster(4, 8).nodes, NodeSpec(count=4, gpus=8, gpu_type="V100", pool="serving")))
SHARE = 0.25
"""Of the jobs so many may grow to twice what they ask for, and shrink to half of it."""
COSTS = Costs(checkpoint=30 * SECOND, restore=30 * SECOND)


def rates(seed: int, peak: float) -> Load:
    """Four days by quarters of an hour: a day's rhythm with some noise, a replica answers ten."""
    rng = np.random.default_rng(seed)
    hours = np.arange(0, HOURS, 0.25)
    rhythm = 0.35 + 0.65 * np.clip(np.sin((hours - 8) / 24 * 2 * np.pi), -0.45, 1)
    level = peak * np.clip(rhythm + rng.normal(0, 0.03, len(hours)), 0.05, 1)
    return Load((*(hours * 3600), HOURS * 3600.0), (*level, 0.0), 10.0)


def day(seed: int) -> tuple[Trace, dict[str, Load]]:
    """Jobs of a day and a half, load 1.2 for the GPUs of training, and four services."""
    trace = workload("poisson", 900, 1.2, 32, seed)
    declared, n = trace.declared, trace.jobs
    grows = np.random.default_rng(seed).random(n) < SHARE
    for gpus in np.unique(declared.gpus[:n]).tolist():
        shape = Shape((Role(size=gpus, least=max(gpus // 2, 1), most=2 * gpus),))
        declared.shape[:n][(declared.gpus[:n] == gpus) & grows] = declared.shapes.code(shape)
    services = [
        JobSpec(name=f"web-{i}", kind=Kind.SERVE, shape=Shape((Role(size=2, least=1, most=7),)))
        for i in range(4)
    ]
    loads = {f"web-{i}": rates(10 * seed + i, 48.0) for i in range(4)}
    return with_jobs(trace, services), loads


@cache
def run(seed: int, training: str, sharing: str) -> Run:
    """One day; what services do is the same under every rule."""
    trace, loads = day(seed)
    setup = Setup(
        serving="scale.threshold(up=0.75,down=0.4,cooldown=2m)",
        sharing=sharing,
        loads=loads,
        window=MINUTE,
        costs=COSTS,
        seed=seed,
    )
    return run_one(trace, ON, training, setup)


def used(run: Run) -> float:
    """The part of all GPU-time up to the last submission that some job or replica held."""
    line, end = run.timeline, float(run.jobs.arrival[~run.jobs.open_ended].max())
    spans = np.diff(np.minimum(line.seconds, end), append=end)
    return float((line.gpus_held * np.maximum(spans, 0)).sum() / (end * ON.gpus))


def training_only(run: Run) -> list[bool]:
    """Which rows are jobs."""
    return (~run.jobs.open_ended).tolist()


@effect
def aryl() -> Effect:
    """Loans and two phases against two silos, first come first served."""

    def measure(seed: int) -> dict[str, float]:
        apart = run(seed, "fifo(walk=skip)", "separate")
        both = run(seed, "aryl", "aryl")
        loans = run(seed, "fifo(walk=skip)", "aryl")
        alone = run(seed, "aryl", "separate")
        jobs = training_only(apart)

        def over(other: Run) -> tuple[float, float, float]:
            rows = training_only(other)
            return (
                float(np.nanmean(waits(apart)[jobs]) / np.nanmean(waits(other)[rows])),
                float(apart.metrics["jct_mean_seconds"] / other.metrics["jct_mean_seconds"]),
                used(other) / used(apart),
            )

        found = {}
        named = ("", both), (", loans alone", loans), (", two phases alone", alone)
        for words, other in named:
            queueing, done, usage = over(other)
            found |= {f"queueing{words}": queueing, f"JCT{words}": done, f"usage{words}": usage}
        assert both.loans is not None
        found["longest return, s"] = both.loans.longest_return_seconds
        return found

    ours = mean(measure)
    each = [("queueing", 1.53), ("JCT", 1.50), ("usage", 1.269)]
    told = "; ".join(f"{name} {verdict((ours[name], figure))}" for name, figure in each)
    return Effect(
        "aryl",
        "a day and a half, Poisson, 900 jobs of up to 8 GPUs, a quarter elastic, load 1.2 on"
        " 4x8 V100, beside four services with a day's rhythm on "
        "4x8; `--sharing aryl --training aryl` beside"
        " `separate` and `fifo(walk=skip)`",
        "queueing 1.53 and JCT 1.50 times lower, usage up to 26.9 % higher",
        ours,
        verdict(*((ours[name], figure) for name, figure in each)),
        told,
        "30 s to save, 30 s to go on, of both",
    )
