"""What a search will come to, before it is submitted: trials, time, GPU-hours and money, by what
is known of its trials.

The search is simulated many times, with other seeds. Its trials report what a curve table says, or
what trials of earlier searches did: each then gets the curve of one of these, drawn with
repetition. A figure is the median of the runs, with the interval in which 80 % of them lie. A trial
that ended early is continued at its own pace with what it reported last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec
from ganger.core.units import NEVER, SECOND
from ganger.lab.processes import in_processes
from ganger.lab.tuning.export import Tried
from ganger.lab.tuning.live import recipe_text, settled
from ganger.lab.tuning.run import Place, own_cluster, run_experiment
from ganger.workloads.curves.parametric import Formula
from ganger.workloads.curves.table import Curve, CurveTable
from ganger.workloads.experiment.reading import Experiment

RUNS: Final = 20
FEW: Final = 5
"""From fewer trials nobody knows how much trials differ."""
_FIGURES: Final = ("trials", "epochs", "seconds", "gpu_hours", "cost", "best")
_DRAW: Final = "draw"
_APART: Final = 1e-9
"""So far apart, in parts of their values, are two trials with one curve: a recipe that ranks trials
would take the later one of equals for the worse."""
_REPORTS_MAX: Final = 10_000
"""A curve has no more."""


class Range(NamedTuple):
    """The median of all runs, and the ends of the interval in which 80 % of them lie."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """What a search will come to. `figures`: trials, epochs, seconds, gpu_hours, cost and best, of
    those that are known; `bounds`: the most that limits
    allow; `ended_by`: of how many runs each limit
    was the end ("": none); `by`: what is known; `unknown`: what is not."""

    recipe: str
    figures: dict[str, Range]
    bounds: dict[str, float]
    ended_by: dict[str, int]
    by: list[str]
    unknown: list[str]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "recipe": self.recipe,
            "figures": {name: span._asdict() for name, span in self.figures.items()},
            "bounds": self.bounds,
            "ended_by": self.ended_by,
            "by": self.by,
            "unknown": self.unknown,
        }


@dataclass(frozen=True)
class Known:
    """What there is to forecast by: curves of trials, in words `by`, and the `cluster` with its
    prices (None: nobody knows prices). `drawn`: whether every trial is to get one of the curves,
    whatever its configuration is."""

    source: CurveTable | Formula | None = None
    by: str = ""
    cluster: ClusterSpec | None = None
    drawn: bool = False
    doubts: list[str] = field(default_factory=list)


def forecast(
    experiment: Experiment,
    known: Known,
    *,
    workers: int = 1,
    progress: Callable[[float], object] = lambda share: None,
) -> Forecast:
    """What the search of an experiment will come to on a cluster. Raises BadInput."""
    choice = settled(experiment, experiment.document.recipe)
    recipe, trials = recipe_text(choice), int(getattr(choice.policy, "trials", 0))
    bounds = _bounds(experiment, trials)
    unknown = ["when it gets its GPUs: times count from then on"]
    if known.source is None:
        unknown.insert(0, "how long trials take, and what they report")
        return Forecast(recipe, {}, bounds, {}, [], unknown)
    budget = experiment.document.budget
    if known.cluster is None:
        unknown.append("prices of GPUs")
        if budget.money is not None:
            unknown.append("when the budget of money is spent")
            budget = msgspec.structs.replace(budget, money=None)
    document = msgspec.structs.replace(experiment.document, budget=budget, command=[])
    experiment = replace(experiment, document=document)
    place = Place(known.cluster or own_cluster(experiment))
    drawn = known.drawn or _short(known.source, experiment, trials)
    doubts = list(known.doubts)
    if not known.drawn:
        doubts.append("how long trials take to start and to save")
    if drawn and not known.drawn:
        doubts.append("what more configurations than the table has come to: some are drawn again")

    def run(seed: int) -> dict[str, Any]:
        wanted, source = experiment, known.source
        assert source is not None, "it returns before where there is none"
        if drawn and isinstance(source, CurveTable):
            wanted, source = (
                _anything(experiment),
                resampled(source, trials or FEW, seed, sample=known.drawn),
            )
        done = run_experiment(wanted, source, recipe, seed, place)
        return {name: done.metrics[name] for name in (*_FIGURES, "ended_by")}

    runs = in_processes(run, RUNS, workers=workers, progress=progress)
    figures = {
        name: _range([each[name] for each in runs])
        for name in _FIGURES
        if all(each[name] is not None for each in runs)
    }
    ended = [each["ended_by"] for each in runs]
    counts = {word: ended.count(word) for word in dict.fromkeys(ended)}
    return Forecast(recipe, figures, bounds, counts, [known.by], [*doubts, *unknown])


def _range(values: Iterable[float]) -> Range:
    low, median, high = np.quantile(list(values), (0.1, 0.5, 0.9), method="weibull").tolist()
    return Range(median, low, high)


def _bounds(experiment: Experiment, trials: int) -> dict[str, float]:
    """What limits hold the figures to, whatever trials do."""
    document, budget = experiment.document, experiment.document.budget
    bounds: dict[str, float] = {"trials": trials} if trials else {}
    gpus = document.resources.held(document.parallelism)
    if experiment.deadline < NEVER:
        bounds["seconds"] = experiment.deadline / SECOND
        bounds["gpu_hours"] = gpus * bounds["seconds"] / 3600
    if budget.gpu_hours is not None:
        bounds["gpu_hours"] = min(budget.gpu_hours, bounds.get("gpu_hours", math.inf))
        bounds["seconds"] = min(budget.gpu_hours / gpus * 3600, bounds.get("seconds", math.inf))
    if budget.epochs is not None:
        bounds["epochs"] = budget.epochs
    if budget.money is not None:
        bounds["cost"] = budget.money
    return bounds


def _short(source: CurveTable | Formula, experiment: Experiment, trials: int) -> bool:
    """Whether a table has fewer configurations in the space than trials are started."""
    if isinstance(source, Formula):
        return False
    space = experiment.space
    if space is None or not set(space.names) <= set(source.parameters):
        return len(source) < trials
    return sum(space.holds(source.point(row)) for row in range(len(source))) < trials


def _anything(experiment: Experiment) -> Experiment:
    """The experiment whose trials get any curve of a table, at random."""
    document = msgspec.structs.replace(experiment.document, space={}, points=[], searcher=None)
    return replace(experiment, document=document, space=None, points=[])


def resampled(table: CurveTable, count: int, seed: int, *, sample: bool) -> CurveTable:
    """So many curves of a table, drawn with repetition; each is a configuration of its own. Where
    the table is itself but a `sample` of the configurations that there are, how often each is drawn
    differs by seed as it could among all (the Bayesian bootstrap: Rubin, Annals of Statistics 9(1),
    1981)."""
    rng = np.random.default_rng([seed, 0xF0CA])
    weights = rng.dirichlet(np.ones(len(table))) if sample else None
    rows = rng.choice(len(table), size=count, p=weights)
    parts = [slice(int(table.starts[row]), int(table.starts[row + 1])) for row in rows]
    lengths = [part.stop - part.start for part in parts]
    apart = np.repeat(1.0 + _APART * rng.random(count), lengths)  # which of two is better: by lot
    return CurveTable(
        table.where,
        [f"{table.label(int(row))}/{at}" for at, row in enumerate(rows)],
        {_DRAW: [str(at) for at in range(count)]},
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([table.epochs[part] for part in parts]),
        np.concatenate([table.ends[part] for part in parts]),
        {
            name: np.concatenate([column[part] for part in parts]) * apart
            for name, column in table.values.items()
        },
    )


def by_trials(trials: Sequence[Tried], experiment: Experiment, by: str) -> Known:
    """What trials that ran tell of those of an experiment. Raises BadInput where none has reported.

    A trial has one pace, the median time of an epoch between its reports: `seconds` of reports
    also count for how long a trial was set aside. One that did not come to its end by itself is
    continued to the last epoch at which another one did, or of the recipe.
    """
    reporting = [trial for trial in trials if trial.reports]
    if not reporting:
        raise BadInput("none of its trials has reported", where=by, mend="name another search")
    document, doubts = experiment.document, list[str]()
    choice = settled(experiment, document.recipe)
    longest = max(max(trial.reports) for trial in reporting)
    ends = [max(trial.reports) for trial in reporting if trial.ended]
    last = max(ends) if ends else float(choice.arguments.get("epochs", longest))
    if last > longest:
        doubts.append(f"how long epochs after {longest:g} take: as long as those before, here")
    if any(not trial.ended for trial in reporting):
        doubts.append("what trials that were ended early had come to: here they keep their value")
    if len(reporting) < FEW:
        doubts.append(f"how much trials differ: {len(reporting)} have reported")
    wanted = [*document.metrics, *(each.metric for each in experiment.constraints)]
    metrics = list(dict.fromkeys([document.metric, *wanted]))
    _refuse_missing(reporting, metrics, by)
    curves = [_continued(trial, metrics, last) for trial in reporting]
    lengths = [len(curve.epochs) for curve in curves]
    table = CurveTable(
        by,
        [trial.label for trial in reporting],
        {_DRAW: [str(at) for at in range(len(curves))]},
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([curve.epochs for curve in curves]),
        np.concatenate([curve.ends for curve in curves]),
        {name: np.concatenate([curve.values[name] for curve in curves]) for name in metrics},
    )
    return Known(table, f"{len(reporting)} trials of {by}", drawn=True, doubts=doubts)


def _refuse_missing(trials: Sequence[Tried], metrics: Sequence[str], by: str) -> None:
    reported = {name for trial in trials for _, values in trial.reports.values() for name in values}
    for name in metrics:
        if name not in reported:
            raise BadInput(
                f"its trials did not report {name}",
                where=by,
                mend=f"they reported {', '.join(sorted(reported))}",
            )


def _continued(trial: Tried, metrics: Sequence[str], last: float) -> Curve:
    """The curve of a trial at one pace, to that epoch unless it came to its end before."""
    epochs = list(trial.reports)
    seconds = [at for at, _ in trial.reports.values()]
    values = {
        name: [
            math.nan if (value := metrics_then.get(name)) is None else value
            for _, metrics_then in trial.reports.values()
        ]
        for name in metrics
    }
    steps = np.diff(epochs)
    first = max(seconds[0], 1e-6)
    pace, step = first / epochs[0] if epochs[0] > 0 else first, max(epochs[0], 1e-6)
    if len(epochs) > 1:
        pace = max(float(np.median(np.diff(seconds) / steps)), 0.0)
        step = float(np.median(steps))
    broke = math.isnan(values[metrics[0]][-1])
    while not (trial.ended or broke) and epochs[-1] + step <= last * (1 + 1e-9):
        epochs.append(epochs[-1] + step)
        for column in values.values():
            column.append(column[-1])
        if len(epochs) >= _REPORTS_MAX:
            break
    ends = [round((first + pace * (epoch - epochs[0])) * SECOND) for epoch in epochs]
    return Curve(epochs, ends, values)
