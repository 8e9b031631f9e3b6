"""The Python door: simulate one or many recipes in a line each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Any, NamedTuple

from ganger.core.errors import BadInput
from ganger.core.protocols import Policy
from ganger.core.spec import ClusterSpec
from ganger.lab.processes import CpuLimit, Late
from ganger.lab.result import Run
from ganger.lab.simulating.setup import Setup
from ganger.lab.simulation import run_one
from ganger.workloads.trace import Trace


class Task(NamedTuple):
    """One run to do: which recipe, on which trace, with what set-up."""

    recipe: str
    trace: Trace
    setup: Setup
    load: float = 1.0
    label: str = ""
    """What it is called among others of the same recipe; "": as the recipe."""


def simulate(
    trace: Trace | str | Path,
    cluster: ClusterSpec | str,
    recipe: str | Policy = "fifo",
    *,
    setup: Setup | None = None,
    seed: int = 0,
    knows: str = "truth",
) -> Run:
    """Replay `trace` on `cluster` under `recipe`; figures, per-job columns and samples come back.

    `trace`: a Trace, or a file in any format that `ganger trace formats` lists. `cluster`: a spec,
    `8x8xV100`, or a file. `recipe`: a name like `tiresias` or `fifo(walk=easy)`, `FILE.py:Class`,
    or a policy object. Raises BadInput for arguments that are not valid.
    """
    setup = setup or Setup(seed=seed, knows=knows)
    return run_one(as_trace(trace), as_cluster(cluster), recipe, setup)


def compare(
    trace: Trace | str | Path,
    cluster: ClusterSpec | str,
    recipes: Sequence[str],
    *,
    seeds: Sequence[int] = (0,),
    setup: Setup | None = None,
    workers: int = 1,
) -> list[Run]:
    """`simulate` for every recipe and seed, in `workers` processes; in the order asked for."""
    loaded, base = as_trace(trace), setup or Setup()
    tasks = [Task(recipe, loaded, replace(base, seed=seed)) for recipe in recipes for seed in seeds]
    return run_all(tasks, as_cluster(cluster), workers=workers)


def as_trace(trace: Trace | str | Path) -> Trace:
    """The trace itself, or the one in that file. Raises BadInput."""
    if isinstance(trace, Trace):
        return trace
    from ganger.workloads.formats import load_trace

    return load_trace(trace)


def as_cluster(cluster: ClusterSpec | str) -> ClusterSpec:
    """The cluster itself, or the one of that file or short form. Raises BadInput."""
    if isinstance(cluster, ClusterSpec):
        return cluster
    from ganger.workloads.clusters import load_cluster

    return load_cluster(cluster)


def run_all(
    tasks: Sequence[Task],
    cluster: ClusterSpec,
    *,
    workers: int = 1,
    record: bool = True,
    progress: Callable[[int, float], None] | None = None,
) -> list[Run]:
    """Do every task; `progress(task, share)` tells how far each is."""
    done = _do_all(_Job(list(tasks), cluster, record), workers, progress)
    return [run for run in done if isinstance(run, Run)]


def try_all(
    tasks: Sequence[Task],
    cluster: ClusterSpec,
    *,
    limit_seconds: float,
    workers: int = 1,
    progress: Callable[[int, float], None] | None = None,
) -> list[Run | str]:
    """Do every task without samples over time; a task that takes more than `limit_seconds` of CPU
    time, or that its recipe refuses, gives the reason instead of a run."""
    return _do_all(_Job(list(tasks), cluster, False, limit_seconds), workers, progress)


class _Job(NamedTuple):
    """What the workers share."""

    tasks: list[Task]
    cluster: ClusterSpec
    record: bool
    limit_seconds: float | None = None


def _do_all(
    job: _Job, workers: int, progress: Callable[[int, float], None] | None
) -> list[Run | str]:
    tell = progress or (lambda task, share: None)
    count = len(job.tasks)
    if workers <= 1 or count <= 1:
        found: list[Run | str] = []
        for number in range(count):
            found.append(_do(job, number, lambda share, number=number: tell(number, share)))  # type: ignore[misc]
            tell(number, 1.0)
        return found
    done: dict[int, Run | str] = {}
    context = get_context(_start_method())
    shares = context.RawArray("d", count)
    with ProcessPoolExecutor(min(workers, count), context, _adopt, (job, shares)) as pool:
        futures = {pool.submit(_do_shared, number): number for number in range(count)}
        waiting = set(futures)
        while waiting:
            over, waiting = wait(waiting, LOOK_SECONDS, FIRST_COMPLETED)
            for future in over:
                number = futures[future]
                done[number] = future.result()
                tell(number, 1.0)
            for number in (futures[future] for future in waiting):
                if shares[number]:
                    tell(number, shares[number])
    return [done[number] for number in range(count)]


LOOK_SECONDS = 0.2
"""How often it is looked how far the workers are."""
_shared = _Job([], ClusterSpec(nodes=()), True)
_shares: Any = []
"""How far each task is, in memory that all workers share."""


def _start_method() -> str:
    """Forked workers share the traces' memory; elsewhere each gets a copy."""
    methods = get_all_start_methods()
    return "fork" if "fork" in methods else methods[0]


def _adopt(job: _Job, shares: Any) -> None:
    global _shared, _shares
    _shared, _shares = job, shares


def _do_shared(number: int) -> Run | str:
    return _do(_shared, number, lambda share: _shares.__setitem__(number, share))


def _do(job: _Job, number: int, progress: Callable[[float], None] | None) -> Run | str:
    task, limit = job.tasks[number], job.limit_seconds
    guard = None if limit is None else (lambda kernel: CpuLimit(limit))
    try:
        run = run_one(
            task.trace,
            job.cluster,
            task.recipe,
            task.setup,
            progress=progress,
            record=job.record,
            journal=guard,
        )
    except Late:
        return f"takes more than {limit:g} s of CPU time"
    except BadInput as error:
        if limit is None:
            raise
        return str(error)
    run.load, run.recipe = task.load, task.label or run.recipe
    return run
