"""Many runs over the same requests, in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import NamedTuple

from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.run import ServingRun, Setup, serve
from ganger.workloads.models.profiles import Models
from ganger.workloads.requests.columns import Requests


class Task(NamedTuple):
    """One run."""

    recipe: str
    fleet: Fleet
    setup: Setup


class _Job(NamedTuple):
    load: Callable[[], Requests]
    models: Models
    tasks: Sequence[Task]


_shared: list[_Job] = []


def run_tasks(
    load: Callable[[], Requests], models: Models, tasks: Sequence[Task], *, workers: int = 1,
    per_request: Path | None = None, progress: Callable[[float], None] = lambda share: None,
) -> list[ServingRun]:  # fmt: skip
    """Do every task; `load` begins the stream of requests anew for each. Raises BadInput."""
    count = len(tasks)
    if workers <= 1 or count <= 1 or "fork" not in get_all_start_methods():
        found = []
        for number, task in enumerate(tasks):
            found.append(serve(load(), models, task.fleet, task.recipe, task.setup,
                               per_request=per_request))  # fmt: skip
            progress((number + 1) / count)
        return found
    _shared.append(_Job(load, models, tasks))  # forked workers have it, and need no copy
    try:
        done: dict[int, ServingRun] = {}
        with ProcessPoolExecutor(min(workers, count), get_context("fork")) as pool:
            futures = {pool.submit(_do, number): number for number in range(count)}
            for future in as_completed(futures):
                done[futures[future]] = future.result()
                progress(len(done) / count)
    finally:
        _shared.pop()
    return [done[number] for number in range(count)]


def _do(number: int) -> ServingRun:
    job = _shared[-1]
    task = job.tasks[number]
    return serve(job.load(), job.models, task.fleet, task.recipe, task.setup)
