"""A search for scikit-learn's estimators: `GangerSearchCV` where `RandomizedSearchCV` or
`HalvingRandomSearchCV` is (extra `sklearn`).

Which configurations are tried, and which are trained on more, is decided by a recipe and a searcher
of Ganger, in this process: no daemon is needed. What is decided does not depend on how fast fits
are: a fit counts as much time as it has resource. With `cluster` each fit is a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Final

import joblib
import msgspec
import numpy as np
from joblib.parallel import ParallelBackendBase, register_parallel_backend
from numpy.typing import NDArray
from scipy.stats import rv_discrete
from sklearn.base import is_classifier
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_random_state

from ganger.client.futures import Client, JobFuture
from ganger.core.errors import BadInput
from ganger.core.tuning.searcher import Searcher
from ganger.core.tuning.space import Parameter, Point, Space, Value
from ganger.core.units import SECOND
from ganger.integrations.cluster import cluster as the_cluster
from ganger.lab.tuning.measured import AsMeasured, race
from ganger.lab.tuning.recipes import Chosen, chosen
from ganger.mechanisms.tuning.racing import ToTheEnd
from ganger.mechanisms.tuning.searching.named import count_of, searcher_of
from ganger.recipes import registry
from ganger.sim.reports import CurveReports
from ganger.workloads.experiment.document import FORMAT, Document
from ganger.workloads.experiment.reading import Experiment, checked
from ganger.workloads.experiment.words import space_of

_LEAST: Final = 1e-12
"""The part of a distribution that is left out at each end, where it may be infinite."""
SAMPLES: Final = "n_samples"
_BACKEND: Final = "ganger"


class GangerSearchCV(BaseSearchCV):  # type: ignore[misc]
    """Search over the parameters of an estimator by cross-validation, as scikit-learn's own do.

    `space`: by parameter a list of values, a distribution of scipy, words as `ganger tune` has them
    (`"log:1e-4..1e-1"`, `"1..5"`, `"sgd|adam"`), or a `Parameter`. `n_iter`: how many
    configurations are tried, unless the `recipe` says how many. `resource`: what trials are given
    more of: `n_samples`, or a parameter of the estimator such as `n_estimators`, from
    `min_resources` by `factor` up to `max_resources`; without one every configuration is fitted
    once, on all samples.
    `recipe`: by which trials go on; by default `tune.asha` with a resource, `tune.random` without.
    `searcher`: `random`, `quasi-random`, `grid`, `kde`, `tpe`, `gp` or `cma-es`. `parallel`: trials
    at once, as the recipe sees it. `cluster`: True for a job for each fit, on the daemon that runs
    or on one that lives as long as `fit`; or fields of such jobs, like `{"gpus": 1}`.

    Others are those of `RandomizedSearchCV`. `cv_results_` has a row for each candidate at each
    resource, with `n_resources` and `trial`; the best is the best of those with the most. Where
    there are several scores, `refit` names the one that trials are judged by.

    Raises BadInput, a ValueError, for a space, recipe or resource that cannot be.
    """

    def __init__(
        self,
        estimator: Any,
        space: Mapping[str, Any],
        *,
        n_iter: int = 10,
        recipe: str | None = None,
        searcher: str = "random",
        resource: str | None = None,
        min_resources: int | None = None,
        max_resources: int | None = None,
        factor: int = 3,
        parallel: int = 8,
        cluster: bool | dict[str, Any] = False,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: Any = "2*n_jobs",
        random_state: Any = None,
        error_score: Any = np.nan,
        return_train_score: bool = False,
    ) -> None:
        super().__init__(
            estimator=estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.space = space
        self.n_iter = n_iter
        self.recipe = recipe
        self.searcher = searcher
        self.resource = resource
        self.min_resources = min_resources
        self.max_resources = max_resources
        self.factor = factor
        self.parallel = parallel
        self.cluster = cluster
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """As those of the estimator, but that arrays are numpy's."""
        tags = super().__sklearn_tags__()
        tags.array_api_support = False
        return tags

    def fit(self, X: Any, y: Any = None, **params: Any) -> GangerSearchCV:
        """Search, and fit the best on all of X and y unless `refit` is False."""
        if not self.cluster:
            super().fit(X, y, **params)
            return self
        request = {} if self.cluster is True else dict(self.cluster)
        with the_cluster(joblib.cpu_count()) as client:
            backend = {"client": client, "request": {"gpus": 0, "cpus": 1.0, **request}}
            with joblib.parallel_config(_BACKEND, n_jobs=-1, **backend):
                super().fit(X, y, **params)
        return self

    def _check_input_parameters(self, X: Any, y: Any, split_params: Any) -> None:
        """Find how much of the resource trials get. Raises BadInput."""
        known = self.estimator.get_params()
        if self.resource not in (None, SAMPLES) and self.resource not in known:
            raise BadInput(
                f"{type(self.estimator).__name__} has no parameter {self.resource!r}",
                where="resource",
                mend=f"use {SAMPLES}, or a parameter of it that is a number",
            )
        if self.resource in self.space:
            raise BadInput("it is in the space", where="resource", mend="take it out of there")
        ceiling, least = self.max_resources, self.min_resources
        if self.resource is None:
            ceiling = least = 1
        elif self.resource == SAMPLES:
            count = len(X) if hasattr(X, "__len__") else X.shape[0]
            ceiling = min(ceiling or count, count)
            classes = len(np.unique(y)) if is_classifier(self.estimator) else 1
            splits = self._checked_cv_orig.get_n_splits(X, y, **split_params)
            least = min(least or 2 * splits * classes, ceiling)
            self._samples = count
        elif ceiling is None:
            raise BadInput(
                f"up to how much {self.resource}?", where="max_resources", mend="state it"
            )
        least = least or 1
        if not 0 < least <= ceiling:
            raise BadInput(f"from {least} to {ceiling}", where="min_resources", mend="lower it")
        if self.factor < 2:
            raise BadInput(f"{self.factor} is below 2", where="factor")
        self.min_resources_, self.max_resources_ = least, ceiling
        self.n_resources_ = _ladder(least, ceiling, self.factor)

    def _run_search(self, evaluate_candidates: Any) -> None:
        """Let the recipe run trials, whose reports are mean scores."""
        metric = "score"
        if not (self.scoring is None or callable(self.scoring) or isinstance(self.scoring, str)):
            if not isinstance(self.refit, str):
                raise BadInput("which score are trials judged by?", where="refit", mend="name one")
            metric = self.refit
        tried = Tried(self.space)
        seed = check_random_state(self.random_state).randint(1 << 31)
        experiment = self._experiment(metric, tried.space, int(seed))
        choice = self._chosen(experiment)
        self.recipe_ = choice.recipe
        searcher = searcher_of(choice.searcher, tried.space, (), int(seed))
        judge = getattr(choice.policy, "judge", None)
        steps = [self.max_resources_] if isinstance(judge, ToTheEnd) else self.n_resources_
        trials = _Trials(tried, searcher, steps, metric, self._evaluated(evaluate_candidates))
        reports = CurveReports(metric, (metric,))
        reports.heard = trials.heard
        race(experiment, choice, trials, reports, trials.begin)

    def _experiment(self, metric: str, space: Space, seed: int) -> Experiment:
        """What recipes are made by. Raises BadInput."""
        fields = {
            "format": FORMAT, "metric": metric, "mode": "max", "searcher": self.searcher,
            "parallelism": self.parallel, "trials": self.n_iter, "seed": seed,
            "epochs": float(self.max_resources_), "space": space.parameters,
        }  # fmt: skip
        try:
            document = msgspec.convert(fields, Document)
        except msgspec.ValidationError as error:
            raise BadInput(str(error), where="GangerSearchCV") from None
        return checked(document, "GangerSearchCV")

    def _chosen(self, experiment: Experiment) -> Chosen:
        """The recipe, with its rungs where the resources are. Raises BadInput."""
        recipe = self.recipe or ("tune.asha" if self.resource else "tune.random")
        choice = chosen(recipe, experiment)
        if choice.recipe == "tune.pbt":
            raise _no_copies()
        if choice.own is None:
            known, arguments = registry.find(choice.recipe).parameters, dict(choice.arguments)
            for name, value in (("first", float(self.min_resources_)), ("eta", self.factor)):
                if name in known:
                    arguments.setdefault(name, value)
            choice = replace(choice, arguments=arguments)
        assert experiment.space is not None
        count = count_of(choice.searcher, experiment.space, ())
        return choice.settled(count, float(self.max_resources_), SECOND, experiment)

    def _evaluated(self, evaluate: Any) -> Evaluate:
        """Scores of configurations at a resource each, with the number of their trial."""

        def scores(wanted: list[tuple[int, dict[str, Any], int]], metric: str) -> list[float]:
            means = list[float]()
            for resource, group in groupby(wanted, lambda each: each[2]):
                trials, candidates = [], []
                for number, candidate, _ in group:
                    trials.append(number)
                    candidates.append(candidate)
                cv = self._checked_cv_orig
                if self.resource == SAMPLES:
                    cv = Part(cv, resource / self._samples, self.random_state)
                elif self.resource is not None:
                    candidates = [each | {self.resource: resource} for each in candidates]
                more = {"n_resources": [resource] * len(trials), "trial": trials}
                results = evaluate(candidates, cv, more_results=more)
                means += results[f"mean_test_{metric}"][-len(trials) :].tolist()
            return means

        return scores

    @staticmethod
    def _select_best_index(refit: Any, refit_metric: str, results: Mapping[str, Any]) -> int:
        """The best of those that had the most of the resource."""
        if callable(refit):
            return int(BaseSearchCV._select_best_index(refit, refit_metric, results))
        resources = np.asarray(results["n_resources"])
        scores: NDArray[np.float64] = np.array(results[f"mean_test_{refit_metric}"], float)
        scores = np.where(np.isnan(scores), -np.inf, scores)
        return int(np.lexsort((-np.arange(len(scores)), scores, resources))[-1])


def _ladder(least: int, ceiling: int, factor: int) -> list[int]:
    """How much trials get, step by step."""
    steps = [least]
    while steps[-1] < ceiling:
        steps.append(min(steps[-1] * factor, ceiling))
    return steps


Evaluate = Callable[[list[tuple[int, dict[str, Any], int]], str], list[float]]


class Tried:
    """A space for searchers, and what its points mean to an estimator. A point has the place on
    the scale of a distribution, and the place in a list. Raises BadInput."""

    def __init__(self, space: Any) -> None:
        if not isinstance(space, Mapping) or not space:
            raise BadInput("it names no parameter", where="space", mend='write {"C": "log:0.1..9"}')
        self._said: dict[str, Callable[[Value], Any]] = {}
        self.space = Space({name: self._parameter(name, each) for name, each in space.items()})

    def candidate(self, point: Point) -> dict[str, Any]:
        """The parameters of an estimator."""
        return {name: self._said[name](value) for name, value in point.items()}

    def _parameter(self, name: str, given: Any) -> Parameter:
        self._said[name] = lambda value: value
        if isinstance(given, str):
            return space_of([f"x={given}"])["x"]
        if isinstance(given, Parameter):
            return given
        if hasattr(given, "ppf"):
            whole = isinstance(getattr(given, "dist", None), rv_discrete)
            kind = int if whole else float
            self._said[name] = lambda value: kind(given.ppf(max(float(value), _LEAST)))
            return Parameter(high=1.0 - _LEAST)
        if not isinstance(given, Sequence | np.ndarray) or not len(given):
            raise BadInput(
                f"{type(given).__name__} is neither a list of values nor a distribution",
                where=f"space: {name}",
                mend='use a list, a distribution of scipy, or words like "log:1e-4..1e-1"',
            )
        self._said[name] = lambda value: given[int(value)]
        return Parameter("choice", values=tuple(range(len(given))))


def _no_copies() -> BadInput:
    return BadInput(
        "estimators cannot go on with other parameters", where="recipe", mend="use tune.asha"
    )


class Part:
    """A splitter that trains on a part of what another one trains on. What is tested on is whole,
    so that scores compare."""

    def __init__(self, of: Any, fraction: float, seed: Any) -> None:
        self._of, self._fraction, self._seed = of, fraction, seed

    def split(self, X: Any, y: Any = None, **more: Any) -> Iterator[tuple[Any, Any]]:
        """The splits of the other one, with fewer samples to train on."""
        rng = check_random_state(self._seed if isinstance(self._seed, int) else 0)
        for train, test in self._of.split(X, y, **more):
            count = max(round(len(train) * self._fraction), 1)
            yield np.sort(rng.permutation(train)[:count]), test

    def get_n_splits(self, *of: Any, **more: Any) -> int:
        """As many as the other one."""
        return int(self._of.get_n_splits(*of, **more))


class _Trials:
    """The trials of a search while it runs. What all that run now report next is measured at once,
    so that fits fill the processors."""

    def __init__(
        self, tried: Tried, searcher: Searcher, steps: list[int], metric: str, evaluate: Evaluate
    ) -> None:
        self._tried, self._searcher, self._steps = tried, searcher, steps
        self._metric, self._evaluate = metric, evaluate
        self._points: dict[int, Point] = {}
        self._reported: dict[int, int] = {}
        """By trial how many reports it has made."""
        self._known: dict[tuple[int, int], float] = {}
        self._runs: Callable[[int], bool] = lambda job: False

    def begin(self, runs: Callable[[int], bool]) -> None:
        """The search begins; `runs` says of a trial whether it does now."""
        self._runs = runs

    def draw(self, search: str, job: int) -> tuple[str, AsMeasured] | None:
        """The next trial."""
        point = self._searcher.ask()
        self._points[job], self._reported[job] = point, 0
        return f"trial-{job}", self._curve(job, self._steps)

    def copy(self, job: int, of: int, epoch: float) -> tuple[str, AsMeasured] | None:
        """Population based training changes what has been trained, and fits begin anew."""
        raise _no_copies()

    def heard(self, job: int, epoch: float, value: float) -> None:
        """A trial has reported."""
        self._searcher.tell(self._points[job], epoch, -value)

    def _curve(self, job: int, steps: list[int]) -> AsMeasured:
        return AsMeasured(list(map(float, steps)), self._metric, partial(self._measure, job))

    def _measure(self, job: int, number: int) -> float:
        """What a trial reports at a step."""
        if (job, number) not in self._known:
            now = {job: number}
            for other, count in self._reported.items():
                if other != job and count < len(self._steps) and self._runs(other):
                    now.setdefault(other, count)
            wanted = sorted(
                (step, other) for other, step in now.items() if (other, step) not in self._known
            )
            asked = [
                (other - 1, self._tried.candidate(self._points[other]), self._steps[step])
                for step, other in wanted
            ]
            for (step, other), score in zip(
                wanted, self._evaluate(asked, self._metric), strict=True
            ):
                self._known[other, step] = score
        self._reported[job] = max(self._reported[job], number + 1)
        return self._known[job, number]


class _Jobs(ParallelBackendBase):  # type: ignore[misc]
    """Tasks of joblib as jobs."""

    supports_retrieve_callback = True

    def __init__(self, client: Client, request: dict[str, Any], **more: Any) -> None:
        super().__init__(**more)
        self._client, self._request = client, request
        self._open: list[JobFuture[Any]] = []

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """As many as the cluster runs; tasks wait there, too."""
        return max(joblib.cpu_count(), 1) if n_jobs is None or n_jobs < 0 else n_jobs

    def submit(self, func: Any, callback: Any = None) -> JobFuture[Any]:
        """One job."""
        future = self._client.submit(func, **{"name": "fit", **self._request})
        self._open.append(future)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: JobFuture[Any]) -> Any:
        """What the job returned. Raises what it raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what is not over."""
        for future in self._open:
            future.cancel()
        self._open.clear()


register_parallel_backend(_BACKEND, _Jobs)
