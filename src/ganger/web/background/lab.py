"""A trace under several recipes, with what its charts show and why plans were made."""

from __future__ import annotations

import math
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ganger.core.errors import BadInput
from ganger.core.kernel import Kernel
from ganger.core.spec import ClusterSpec
from ganger.core.units import SECOND
from ganger.lab.report import series
from ganger.lab.result import Run
from ganger.lab.simulating.decided import DecisionRecorder
from ganger.lab.simulation import run_one
from ganger.recipes.registry import parse
from ganger.web.background.playing import Asked, Played, Replay
from ganger.workloads.clusters import is_short, load_cluster
from ganger.workloads.formats import load_trace
from ganger.workloads.synthetic import demo, synthesize
from ganger.workloads.trace import Trace
from ganger.workloads.transform import at_most, window

JOBS_MAX: Final = 200
GPUS_MAX: Final = 128
_SUFFIXES: Final = (".csv", ".jsonl", ".ndjson", ".swf", ".json", ".txt", ".tsv")
FIGURES: Final = (
    "jobs_finished", "jct_mean_seconds", "jct_p99_seconds", "queueing_delay_mean_seconds",
    "makespan_seconds", "gpu_allocated_ratio", "finish_time_fairness_max", "preemptions",
)  # fmt: skip


def play(asked: Asked, tell: Callable[..., None]) -> Played:
    """Replay the trace under each recipe, as `ganger simulate` does. Raises BadInput."""
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
    trace, named, without = _trace(asked, gpus)
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
        trace=named,
        without=without,
    )


def _trace(asked: Asked, gpus: int) -> tuple[Trace, str, int]:
    """The trace, its words on the command line, and how many of its jobs are left out."""
    if asked.kind not in ("demo", "file"):
        words = f"{asked.kind}:{asked.jobs}:{asked.seed}:{gpus}"
        return synthesize(asked.kind, asked.jobs, asked.seed, gpus=gpus), words, 0
    trace, words = (demo(), "demo") if asked.kind == "demo" else _read(asked)
    every = trace.jobs
    if every > asked.jobs:
        stop = int(trace.declared.submitted[asked.jobs])
        if not stop:
            raise BadInput(f"more than {asked.jobs} jobs come at once", mend="take more of them")
        trace = window(trace, 0, stop)
        words += f" --to {stop / SECOND!r}"
    if trace.declared.gpus[: trace.jobs].max() > gpus:
        trace = at_most(trace, gpus)
        words += f" --max-gpus {gpus}"
    return trace, words, every - trace.jobs


def _read(asked: Asked) -> tuple[Trace, str]:
    """The trace in a text of the user's, and its file on the command line."""
    with tempfile.TemporaryDirectory() as folder:
        suffix = Path(asked.name).suffix.lower()
        path = Path(folder, "trace" + (suffix if suffix in _SUFFIXES else ""))
        path.write_text(asked.text, encoding="utf-8")
        try:
            trace = load_trace(path)
        except BadInput as error:
            where = error.where.replace(str(path), asked.name)
            raise BadInput(f"{where}: {error.what}", mend=error.mend) from None
    return trace, shlex.quote(f"./{asked.name}")


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
