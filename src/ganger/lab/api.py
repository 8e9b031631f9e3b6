"""The Python door: simulate one or many recipes in a line each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import NamedTuple

from ganger.core.protocols import Policy
from ganger.core.spec import ClusterSpec
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.workloads.trace import Trace


class Task(NamedTuple):
    """One run to do: which recipe, on which trace, with what set-up."""

    recipe: str
    trace: Trace
    setup: Setup
    load: float = 1.0


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
    or a policy object. Raises BadInput for anything that can be mended in the arguments.
    """
    setup = setup or Setup(seed=seed, knows=knows)
    return run_one(_trace(trace), _cluster(cluster), recipe, setup)


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
    loaded, base = _trace(trace), setup or Setup()
    tasks = [Task(recipe, loaded, replace(base, seed=seed)) for recipe in recipes for seed in seeds]
    return run_all(tasks, _cluster(cluster), workers=workers)


def _trace(trace: Trace | str | Path) -> Trace:
    if isinstance(trace, Trace):
        return trace
    from ganger.workloads.formats import load_trace

    return load_trace(trace)


def _cluster(cluster: ClusterSpec | str) -> ClusterSpec:
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
    tell = progress or (lambda task, share: None)
    if workers <= 1 or len(tasks) <= 1:
        runs = []
        for number, task in enumerate(tasks):
            run = _do(task, cluster, record, lambda share, number=number: tell(number, share))  # type: ignore[misc]
            tell(number, 1.0)
            runs.append(run)
        return runs
    done: dict[int, Run] = {}
    shared = list(tasks), cluster, record
    with ProcessPoolExecutor(
        min(workers, len(tasks)), get_context(_start_method()), _adopt, (shared,)
    ) as pool:
        futures = {pool.submit(_do_numbered, number): number for number in range(len(tasks))}
        for future in as_completed(futures):
            number = futures[future]
            done[number] = future.result()
            tell(number, 1.0)
    return [done[number] for number in range(len(tasks))]


_shared: tuple[list[Task], ClusterSpec, bool] = ([], ClusterSpec(nodes=()), True)


def _start_method() -> str:
    """Forked workers share the traces' memory; elsewhere each gets a copy."""
    methods = get_all_start_methods()
    return "fork" if "fork" in methods else methods[0]


def _adopt(shared: tuple[list[Task], ClusterSpec, bool]) -> None:
    global _shared
    _shared = shared


def _do_numbered(number: int) -> Run:
    tasks, cluster, record = _shared
    return _do(tasks[number], cluster, record, None)


def _do(
    task: Task, cluster: ClusterSpec, record: bool, progress: Callable[[float], None] | None
) -> Run:
    run = run_one(task.trace, cluster, task.recipe, task.setup, progress=progress, record=record)
    run.load = task.load
    return run
