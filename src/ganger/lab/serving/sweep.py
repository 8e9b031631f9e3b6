"""Many runs over the same requests, in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import NamedTuple

from ganger.core.errors import BadInput
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
    found = try_tasks(load, models, tasks, workers=workers, per_request=per_request,
                      progress=progress)  # fmt: skip
    runs = [each for each in found if isinstance(each, ServingRun)]
    for each in found:
        if isinstance(each, BadInput):
            raise each
    return runs


def try_tasks(
    load: Callable[[], Requests], models: Models, tasks: Sequence[Task], *, workers: int = 1,
    per_request: Path | None = None, progress: Callable[[float], None] = lambda share: None,
) -> list[ServingRun | BadInput]:  # fmt: skip
    """The same; a task that cannot be done gives its error."""
    count = len(tasks)
    if workers <= 1 or count <= 1 or "fork" not in get_all_start_methods():
        found: list[ServingRun | BadInput] = []
        for number, task in enumerate(tasks):
            found.append(_one(load(), models, task, per_request))
            progress((number + 1) / count)
        return found
    _shared.append(_Job(load, models, tasks))  # forked workers have it, and need no copy
    try:
        done: dict[int, ServingRun | BadInput] = {}
        with ProcessPoolExecutor(min(workers, count), get_context("fork")) as pool:
            futures = {pool.submit(_do, number): number for number in range(count)}
            for future in as_completed(futures):
                done[futures[future]] = future.result()
                progress(len(done) / count)
    finally:
        _shared.pop()
    return [done[number] for number in range(count)]


def _do(number: int) -> ServingRun | BadInput:
    job = _shared[-1]
    return _one(job.load(), job.models, job.tasks[number], None)


def _one(
    requests: Requests, models: Models, task: Task, per_request: Path | None
) -> ServingRun | BadInput:
    try:
        return serve(requests, models, task.fleet, task.recipe, task.setup, per_request=per_request)
    except BadInput as error:
        return error
