"""A Python function as the trials of a search: `ganger.tune(train, {"lr": "log:1e-4..1e-1"},
metric="loss")`."""

from __future__ import annotations

import pickle
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ganger.client.answering.families import ChildAnswer, FamilyAnswer
from ganger.client.answers import JobDetail
from ganger.client.call import Outcome, keep
from ganger.client.connection import Refusal
from ganger.client.states import OVER
from ganger.core.errors import BadInput, GangerError
from ganger.core.tuning.space import Parameter, Point, Space
from ganger.integrations.cluster import (
    LOOK_SECONDS,
    cluster,
    looked_at,
    most_at_once,
    request_of,
    resources_of,
    stop,
    submit,
)
from ganger.lab.tuning.own_searcher import Asked, Make
from ganger.workloads.experiment.words import space_of

_PAUSE: Final = threading.Event()


@dataclass(frozen=True)
class Trial:
    """A trial that is over: its job, its parameters, what it reported last of the metric that
    judges (`value`; None if it broke down, or never reported) and of others, after how many steps,
    whether that keeps the constraints, and what it raised."""

    job: int
    params: Point
    state: str
    step: float | None
    value: float | None
    metrics: dict[str, float] = field(default_factory=dict)
    feasible: bool = True
    error: BaseException | None = None


@dataclass(frozen=True)
class Search:
    """A search that is over. `best` is None where no trial reported what keeps the constraints;
    `front`: the trials that no other one beats, where several metrics count."""

    job: int
    state: str
    trials: list[Trial]
    best: Trial | None
    front: list[Trial]
    ended_by: str = ""
    """Which limit ended it, such as `the deadline`."""


def tune(
    function: Callable[[Point], Any],
    space: Mapping[str, str | Sequence[Any] | Parameter],
    *,
    metric: str,
    recipe: str = "",
    searcher: str | Make = "",
    parallel: int = 4,
    gpus: int = 1,
    retries: int = 0,
    checkpoints: str | Path = "",
    **experiment: Any,
) -> Search:
    """Search for the best configuration of a function, each trial a job on the daemon that runs, or
    else on one that lives as long as this call; return when the search is over.

    `function` gets a configuration, a dictionary, and reports by `ganger.sdk.report(step,
    loss=0.1)`; a number that it returns is reported, too. `space`: by name words as those of
    `--space` (`"log:1e-4..1e-1"`, `"1..5"`, `"sgd|adam"`), a list of values, or a `Parameter`.
    `searcher`: a name, or a class of your own, made with the space and a seed, which is asked in
    this process. `parallel` trials run at once, as many as fit at most, each on `gpus` GPUs.
    `checkpoints`: a folder that the trials' own are made in. `experiment`: other fields of an
    experiment file, such as `mode="max"`, `trials=20`, `epochs=9`, `deadline="1h"`, `seed=1`,
    `resources={"cpus": 2}`; with `resources={"share": 0.5}` two run on each GPU.

    What trials raise is in their `error`; if none reports, the first of these is raised. Raises
    BadInput, and GangerError where no daemon starts.
    """
    parameters = {name: _parameter(name, each) for name, each in space.items()}
    each = resources_of(experiment.get("resources", {}) | {"gpus": gpus}, "tune")
    with cluster(each.held(parallel)) as client:
        at_once = most_at_once(client, parallel, each)
        folder = keep(client.places.root, function, (), {})
        try:
            (folder / "space").write_bytes(pickle.dumps((Space(parameters), metric)))
            fields = {
                "name": getattr(function, "__name__", "search"),
                **experiment,
                "metric": metric,
                "space": parameters,
                "parallelism": at_once,
                "resources": each,
                "command": [sys.executable, "-m", "ganger.integrations.trial", str(folder)],
            }
            own = "" if isinstance(searcher, str) else f"{searcher.__module__}:{searcher.__name__}"
            if searcher:
                fields["searcher"] = own or searcher
            request = request_of(fields, recipe, "tune") | {"retries": retries}
            if checkpoints:
                request["checkpoint_dir"] = str(Path(checkpoints).absolute())
            job, over = submit(client, request), False
            try:
                asked = None
                if not isinstance(searcher, str):
                    asked = Asked(client, job, searcher, own)
                while not over:
                    if asked is not None:
                        with suppress(Refusal):  # the search is over
                            asked.look()
                    _PAUSE.wait(LOOK_SECONDS)
                    detail = looked_at(client, job)
                    over = _over(detail)
            finally:
                if not over:
                    stop(client, job)
            return _search(detail, folder, Space(parameters))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _parameter(name: str, given: str | Sequence[Any] | Parameter) -> Parameter:
    if isinstance(given, str):
        return space_of([f"{name}={given}"])[name]
    if isinstance(given, Parameter):
        return given
    wrong = [each for each in given if not isinstance(each, str | int | float | bool)]
    if wrong:
        raise BadInput(
            f"{wrong[0]!r} does not travel", where=f"space: {name}", mend="use texts or numbers"
        )
    return Parameter("choice", values=tuple(given))


def _over(detail: JobDetail) -> bool:
    children = detail.family.children if detail.family is not None else ()
    return detail.state in OVER and all(child.state in OVER for child in children)


def _search(detail: JobDetail, folder: Path, space: Space) -> Search:
    """What came of it. Raises what a trial raised if none reported."""
    family = detail.family or FamilyAnswer(children=[], best=None, metric="")
    trials = {child.job: _trial(child, folder, space) for child in family.children}
    errors = [trial.error for trial in trials.values() if trial.error is not None]
    if errors and all(trial.step is None for trial in trials.values()):
        raise errors[0]
    if not trials:
        raise GangerError(f"search {detail.job} is {detail.state.lower()}, without any trial")
    return Search(
        detail.job,
        detail.state,
        list(trials.values()),
        None if family.best is None else trials.get(family.best),
        [trials[job] for job in family.pareto if job in trials],
        family.ended_by,
    )


def _trial(child: ChildAnswer, folder: Path, space: Space) -> Trial:
    error: BaseException | None = None
    path = folder / f"error-{child.job}"
    if child.state == "FAILED" and path.exists():
        outcome: Outcome = pickle.loads(path.read_bytes())
        error = outcome.error
    params: Point = space.read(child.params) or dict(child.params)
    return Trial(
        child.job,
        params,
        child.state,
        child.step,
        child.value,
        child.metrics,
        child.feasible,
        error,
    )
