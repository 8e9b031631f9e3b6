"""A made-up trace under several recipes, with every segment that a Gantt chart shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from ganger.core.errors import BadInput
from ganger.lab.simulation import run_one
from ganger.recipes.registry import parse
from ganger.web.background.playing import Asked, Played, Replay
from ganger.workloads.clusters import is_short, load_cluster
from ganger.workloads.synthetic import synthesize

JOBS_MAX: Final = 200
GPUS_MAX: Final = 128
FIGURES: Final = (
    "jct_mean_seconds", "queueing_delay_mean_seconds", "makespan_seconds", "gpu_allocated_ratio",
    "preemptions",
)  # fmt: skip


def play(asked: Asked, tell: Callable[..., None]) -> Played:
    """Replay the trace under each recipe, as `ganger simulate KIND:JOBS:SEED` does. Raises
    BadInput."""
    if not is_short(asked.cluster):
        raise BadInput(f"{asked.cluster[:40]!r} is not a cluster", mend="write like 2x4xV100")
    cluster = load_cluster(asked.cluster)
    gpus = sum(node.gpus * node.count for node in cluster.nodes)
    if not 1 <= gpus <= GPUS_MAX or not 1 <= asked.jobs <= JOBS_MAX:
        raise BadInput(
            f"{asked.jobs} jobs on {gpus} GPUs", mend=f"at most {JOBS_MAX} on {GPUS_MAX}"
        )
    for recipe in asked.recipes:
        parse(recipe)  # a registered recipe: no file is read
    trace = synthesize(asked.kind, asked.jobs, asked.seed, gpus=gpus)
    runs = []
    for at, recipe in enumerate(asked.recipes):
        tell(done=at, total=len(asked.recipes))
        runs.append(run_one(trace, cluster, recipe))
    segments = [run.segments or [] for run in runs]
    jobs = runs[0].jobs
    return Played(
        nodes=list(runs[0].node_gpus),
        names=[str(name) for name in jobs.name],
        gpus=trace.declared.gpus[: trace.jobs].tolist(),
        arrivals=[float(at) for at in jobs.arrival],
        end=max((segment.end_seconds for each in segments for segment in each), default=0.0),
        runs=[
            Replay(
                run.recipe,
                [
                    (
                        segment.job,
                        segment.start_seconds,
                        segment.end_seconds,
                        segment.node,
                        segment.devices,
                    )
                    for segment in each
                ],
                [None if math.isnan(at) else float(at) for at in run.jobs.finish],
                {name: run.metrics[name] for name in FIGURES},
            )
            for run, each in zip(runs, segments, strict=True)
        ],
    )
