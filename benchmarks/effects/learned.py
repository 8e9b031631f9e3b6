"""Recipes that learn while they schedule."""

from __future__ import annotations

import numpy as np

from effects.common import (
    Effect,
    cluster,
    effect,
    jct,
    makespan,
    mean,
    play,
    verdict,
    workload,
)
from ganger.core.profiles import Profile, Profiles, Steps
from ganger.core.spec import Role, Shape
from ganger.core.units import SECOND
from ganger.lab.result import Run
from ganger.workloads.trace import Trace

APART = Profiles(
    {
        name: Profile(steps=Steps(0.3, size, (100.0, 10.0, 1.0, 1.0)))
        for name, size in {"computes": 0.01, "both": 0.2, "talks": 0.8}.items()
    }
)
"""Three models that lose little, half, and most of their speed over two nodes."""


def batch(seed: int) -> Trace:
    """400 gangs of 1 to 4 GPUs that nearly all come at once."""
    trace, random = workload("poisson", 400, 1.0, 64, seed), np.random.default_rng(seed)
    declared, n = trace.declared, trace.jobs
    codes = [declared.models.code(name) for name in APART.models]
    declared.model[:n] = random.choice(codes, n)
    sizes = random.integers(1, 5, n)
    trace.duration[:n] = trace.duration * declared.gpus[:n] // sizes
    declared.submitted[:n] //= 20
    for gpus in range(1, 5):
        declared.shape[:n][sizes == gpus] = declared.shapes.code(Shape((Role(size=gpus),)))
    declared.gpus[:n] = sizes
    return trace


def rate(trace: Trace, run: Run) -> float:
    """Mean over jobs of what they did over what they would have done alone, while they ran."""
    return float(np.mean(trace.duration / SECOND / (run.jobs.finish - run.jobs.first_start)))


@effect
def rifling() -> Effect:
    """Learned waiting against first come, first served, and against waiting for a while always."""

    def measure(seed: int) -> dict[str, float]:
        trace = batch(seed)
        runs = {
            name: play(trace, cluster(16, 4), name, profiles=APART, seed=seed)
            for name in ("rifling", "fifo", "delay-scheduling")
        }
        own = runs.pop("rifling")
        return {
            f"{what}, {name}": figure
            for name, run in runs.items()
            for what, figure in (
                ("makespan", makespan(run) / makespan(own)),
                ("rate", rate(trace, own) / rate(trace, run)),
                ("JCT", jct(run) / jct(own)),
            )
        }

    ours = mean(measure)
    return Effect(
        "rifling",
        "400 Poisson gangs of 1 to 4 GPUs, nearly all at once, 16 nodes of 4, three models that"
        " lose little, half, and most of their speed over two nodes; makespan and JCT of others"
        " over its own, its mean normalized rate over theirs; nothing is learned beforehand",
        "makespan up to 1.92x (47.8 %) less, mean normalized rate 1.196x",
        ours,
        verdict((ours["makespan, fifo"], 1 / (1 - 0.478)), (ours["rate, fifo"], 1.196)),
    )
