"""Many runs over the same requests, in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

from ganger.core.errors import BadInput
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.run import Place, ServingRun, Setup, bound_of, serve
from ganger.lab.serving.yardsticks.bound import Bound
from ganger.recipes.registry import make_router
from ganger.workloads.models.profiles import Models
from ganger.workloads.requests.columns import Requests


class Task(NamedTuple):
    """One run."""

    recipe: str
    fleet: Fleet
    setup: Setup


class Comparison(NamedTuple):
    """Runs, and beside them what a router that knows the future does (nothing where it cannot
    serve) and the most that anything can have in time."""

    runs: list[ServingRun]
    oracle: list[ServingRun]
    bounds: dict[Place, Bound]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "runs": [run.to_json() for run in self.runs],
            "clairvoyant": [{**run.to_json(), "needs": "future"} for run in self.oracle],
            "bounds": [
                {
                    "fleet": place.fleet,
                    "faster": place.faster,
                    "slo_seconds": place.slo_seconds,
                    "attainment": bound.attainment,
                    "goodput_per_second": bound.goodput_per_second,
                }
                for place, bound in self.bounds.items()
            ],
        }


class _Job(NamedTuple):
    load: Callable[[], Requests]
    models: Models
    tasks: Sequence[Task]


_shared: list[_Job] = []
ORACLE: Final = "serve.clairvoyant"
"""Knows all requests before they come."""
FORESEEN: Final = 1_000_000
"""Beside more requests it is not run: it holds all of them in memory."""


def run_tasks(
    load: Callable[[], Requests],
    models: Models,
    tasks: Sequence[Task],
    *,
    workers: int = 1,
    per_request: Path | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> list[ServingRun]:
    """Do every task; `load` begins the stream of requests anew for each. Raises BadInput."""
    found = try_tasks(
        load, models, tasks, workers=workers, per_request=per_request, progress=progress
    )
    runs = [each for each in found if isinstance(each, ServingRun)]
    for each in found:
        if isinstance(each, BadInput):
            raise each
    return runs


def compare_tasks(
    load: Callable[[], Requests],
    models: Models,
    tasks: Sequence[Task],
    *,
    workers: int = 1,
    per_request: Path | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Comparison:
    """Do every task, and at every place what nobody can deploy: where several recipes are compared,
    one that knows the future; the bound. Neither beside runs by windows, as both look at every
    request. Raises BadInput."""
    if any(task.setup.windows for task in tasks):
        runs = run_tasks(
            load, models, tasks, workers=workers, per_request=per_request, progress=progress
        )
        return Comparison(runs, [], {})
    places = dict.fromkeys((task.fleet, task.setup) for task in tasks)
    recipes = {task.recipe for task in tasks}
    known = any(recipe.partition("(")[0] == ORACLE for recipe in recipes)
    oracle = [Task(ORACLE, *place) for place in places] if len(recipes) > 1 and not known else []
    part = len(tasks) / (len(tasks) + len(oracle))
    runs = run_tasks(
        load,
        models,
        tasks,
        workers=workers,
        per_request=per_request,
        progress=lambda share: progress(part * share),
    )
    spoke = any(run.metrics["output_tokens"] is not None for run in runs)
    if spoke or (runs[0].metrics["requests"] or 0) > FORESEEN:
        oracle = []  # it batches whole requests: of token models that is no best case
    found = try_tasks(
        load,
        models,
        oracle,
        workers=workers,
        progress=lambda share: progress(part + (1 - part) * share),
    )
    streams = max(make_router(recipe).can.streams for recipe in recipes)
    bounds: dict[Place, Bound] = {}
    for fleet, setup in dict.fromkeys((fleet, replace(setup, seed=0)) for fleet, setup in places):
        bound = bound_of(load(), models, fleet, setup, streams)
        if bound is not None:
            bounds[Place(str(fleet), setup.faster, setup.slo)] = bound
    return Comparison(runs, [each for each in found if isinstance(each, ServingRun)], bounds)


def try_tasks(
    load: Callable[[], Requests],
    models: Models,
    tasks: Sequence[Task],
    *,
    workers: int = 1,
    per_request: Path | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> list[ServingRun | BadInput]:
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
