"""A made-up trace under several recipes, with what its charts show and why plans were made."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from ganger.core.errors import BadInput
from ganger.core.kernel import Kernel
from ganger.core.spec import ClusterSpec
from ganger.lab.report import series
from ganger.lab.result import Run
from ganger.lab.simulating.decided import DecisionRecorder
from ganger.lab.simulation import run_one
from ganger.recipes.registry import parse
from ganger.web.background.playing import Asked, Played, Replay
from ganger.workloads.clusters import is_short, load_cluster
from ganger.workloads.synthetic import synthesize
from ganger.workloads.trace import Trace

JOBS_MAX: Final = 200
GPUS_MAX: Final = 128
FIGURES: Final = (
    "jobs_finished", "jct_mean_seconds", "jct_p99_seconds", "queueing_delay_mean_seconds",
    "makespan_seconds", "gpu_allocated_ratio", "finish_time_fairness_max", "preemptions",
)  # fmt: skip


def play(asked: Asked, tell: Callable[..., None]) -> Played:
    """Replay the trace under each recipe, as `ganger simulate KIND:JOBS:SEED:GPUS` does. Raises
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
    runs, recorders = list[Run](), list[DecisionRecorder]()
    for at, recipe in enumerate(asked.recipes):
        tell(done=at, total=len(asked.recipes))
        run, recorder = _recorded(trace, cluster, recipe)
        runs.append(run)
        recorders.append(recorder)
    end = max(series.last_moment(run) for run in runs)
    return Played(
        nodes=list(runs[0].node_gpus),
        arrivals=[float(at) for at in runs[0].jobs.arrival],
        end=end,
        runs=[_replay(run, end, recorder) for run, recorder in zip(runs, recorders, strict=True)],
    )


def _recorded(trace: Trace, cluster: ClusterSpec, recipe: str) -> tuple[Run, DecisionRecorder]:
    made: list[DecisionRecorder] = []

    def journal(kernel: Kernel) -> DecisionRecorder:
        made.append(DecisionRecorder(kernel))
        return made[0]

    return run_one(trace, cluster, recipe, journal=journal), made[0]


def _replay(run: Run, end: float, recorder: DecisionRecorder) -> Replay:
    slices = series.over_time(run, end)
    line = run.timeline
    return Replay(
        recipe=run.recipe,
        drawn=series.gantt(run),
        undrawn=series.no_gantt(run),
        slices={name: slices[name] for name in ("held", "jobs_waiting")},
        moments=line.seconds.tolist(),
        held=line.gpus_held.tolist(),
        waiting=line.jobs_pending.tolist(),
        ends=[None if math.isnan(at) else float(at) for at in run.jobs.finish],
        figures={name: _known(run.metrics[name]) for name in FIGURES},
        decisions=[(each.at, each.news, each.did, each.wait) for each in recorder.decisions],
        skipped=recorder.skipped,
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
