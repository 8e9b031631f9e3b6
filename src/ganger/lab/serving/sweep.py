"""Many runs over the same requests, in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from ganger.core.errors import BadInput
from ganger.lab.processes import in_processes
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.hosting import ORACLE
from ganger.lab.serving.run import Place, ServingRun, Setup, bound_of, serve
from ganger.lab.serving.yardsticks.bound import Bound
from ganger.lab.serving.yardsticks.classes import ClassKey, keys_of
from ganger.recipes.registry import make_router
from ganger.workloads.models.profiles import Models
from ganger.workloads.requests.columns import Requests


class Task(NamedTuple):
    """One run."""

    recipe: str
    fleet: Fleet
    setup: Setup


class Comparison(NamedTuple):
    """Runs, and the yardsticks beside them: what a router that knows the future does, the most that
    anything can have in time, and sentences that say why one of them is missing."""

    runs: list[ServingRun]
    oracle: list[ServingRun]
    bounds: dict[Place, Bound]
    missing: list[str]

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
            "missing": self.missing,
        }


SPEAKING: Final = (
    ORACLE, f"{ORACLE}(order=deadline)", f"{ORACLE}(size=32)", f"{ORACLE}(order=deadline,size=32)",
)  # fmt: skip
"""What it tries of token models, to take what turns out best."""
STAGED: Final = (ORACLE, f"{ORACLE}(full=100)")
"""The same of pipelines: that, and the earliest deadline first throughout."""
FORESEEN: Final = 1_000_000
"""Beside runs by windows it is run by windows too where there are more requests."""


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
    yardsticks: bool = True,
) -> Comparison:
    """Do every task, and at every place the `yardsticks` that nobody can deploy: a router that
    knows the future, unless it is among the recipes, and the bound. Raises BadInput."""
    known = any(task.recipe.partition("(")[0] == ORACLE for task in tasks)
    places = list(dict.fromkeys((task.fleet, task.setup) for task in tasks))
    more = 0 if known or not yardsticks else len(places)
    bounding = len(places) if yardsticks else 0
    every = len(tasks) + more + bounding
    part, last = len(tasks) / every, 1 - bounding / every
    runs = run_tasks(
        load,
        models,
        tasks,
        workers=workers,
        per_request=per_request,
        progress=lambda share: progress(part * share),
    )
    if not yardsticks:
        return Comparison(runs, [], {}, ["The yardsticks were left out, as was asked for."])
    count = int(runs[0].metrics["requests"] or 0)
    oracle: list[ServingRun] = []
    missing: list[str] = []
    if more:
        plans = [
            Task(recipe, fleet, _foreseen(setup, count))
            for fleet, setup in places
            for recipe in _plans(runs, models)
        ]
        found = try_tasks(
            load,
            models,
            plans,
            workers=workers,
            progress=lambda share: progress(part + (last - part) * share),
        )
        oracle, missing = _best(found, len(plans) // len(places))
        oracle = [_not_below(best, runs) for best in oracle]
    can = [make_router(task.recipe).can for task in tasks]
    streams, divides = max(each.streams for each in can), any(each.divides for each in can)
    bounds: dict[Place, Bound] = {}
    bounded = list(dict.fromkeys((fleet, replace(setup, seed=0)) for fleet, setup in places))
    for done, (fleet, setup) in enumerate(bounded, 1):
        place = Place(str(fleet), setup.faster, setup.slo)
        here = [run.classes for run in (*runs, *oracle) if run.place == place]
        classes = {key for rows in here for key in keys_of(rows)}
        bounds[place], alone = widest_bound(
            load,
            models,
            fleet,
            setup,
            streams,
            count,
            divides=divides,
            classes=classes if len(classes) > 1 else (),
            seeds=_lots(runs, models),
        )
        for rows in here:
            for key, row in zip(keys_of(rows), rows, strict=True):
                row["attainment_bound"] = alone.get(key, bounds[place]).attainment
        progress(last + (1 - last) * done / len(bounded))
    return Comparison(runs, oracle, bounds, missing)


def _lots(runs: Sequence[ServingRun], models: Models) -> list[int]:
    """The seeds on which it depends what can be in time."""
    staged = any(row["model"] in models.pipelines for row in runs[0].models)
    return [run.setup.seed for run in runs] if staged else [0]


def widest_bound(
    load: Callable[[], Requests],
    models: Models,
    fleet: Fleet,
    setup: Setup,
    streams: int,
    count: int,
    *,
    divides: bool,
    seeds: Sequence[int],
    classes: Collection[ClassKey] = (),
) -> tuple[Bound, dict[ClassKey, Bound]]:
    """As `bound_of`, the largest of these seeds: on them it depends how many items the stages of
    pipelines have."""
    bounds = [
        bound_of(
            load(),
            models,
            fleet,
            replace(setup, seed=seed),
            streams,
            count,
            divides=divides,
            classes=classes,
        )
        for seed in dict.fromkeys(seeds)
    ]
    whole = max((bound for bound, _ in bounds), key=lambda bound: bound.in_time)
    alone = {
        key: max((each[key] for _, each in bounds), key=lambda bound: bound.in_time)
        for key in classes
    }
    return whole, alone


def _plans(runs: Sequence[ServingRun], models: Models) -> Sequence[str]:
    """What a router that knows the future tries of these requests."""
    plans = STAGED if any(row["model"] in models.pipelines for row in runs[0].models) else (ORACLE,)
    if any(run.metrics["output_tokens"] is not None for run in runs):
        return (*SPEAKING, *plans[1:])
    if not any(model.tokens for model in models.models.values()):
        return plans
    # nobody asks the token models of the file
    return [f"{each[:-1]},steps=no)" if "(" in each else f"{each}(steps=no)" for each in plans]


def _foreseen(setup: Setup, count: int) -> Setup:
    """How the router that knows the future is run: by windows only where there is so much to run,
    and its table is not kept."""
    return replace(setup, windows=setup.windows if count > FORESEEN else 0, table="")


def _best(
    results: Sequence[ServingRun | BadInput], plans: int
) -> tuple[list[ServingRun], list[str]]:
    """Of the plans at each place the one with most in time; and why there is none."""
    best: list[ServingRun] = []
    missing: dict[str, None] = {}
    for at in range(0, len(results), plans):
        runs = [each for each in results[at : at + plans] if isinstance(each, ServingRun)]
        if runs:
            first = max(runs, key=lambda run: run.metrics["attainment"] or 0.0)
            best.append(replace(first, recipe=ORACLE))
        for each in results[at : at + plans]:
            if isinstance(each, BadInput) and not runs:
                missing[f"There is no clairvoyant row: {each.what}."] = None
    return best, list(missing)


def _not_below(best: ServingRun, runs: Sequence[ServingRun]) -> ServingRun:
    """The best of the plans that know the future, or what a recipe did that had more in time there:
    whoever knows the future can do that, too."""
    beside = [run for run in runs if (run.place, run.setup.seed) == (best.place, best.setup.seed)]
    first = max([best, *beside], key=lambda run: run.metrics["attainment"] or 0.0)
    return replace(first, recipe=best.recipe)


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

    def run(number: int) -> ServingRun | BadInput:
        return _one(load(), models, tasks[number], per_request if alone else None)

    alone = workers <= 1 or len(tasks) <= 1
    return in_processes(run, len(tasks), workers=workers, progress=progress)


def _one(
    requests: Requests, models: Models, task: Task, per_request: Path | None
) -> ServingRun | BadInput:
    try:
        return serve(requests, models, task.fleet, task.recipe, task.setup, per_request=per_request)
    except BadInput as error:
        return error
