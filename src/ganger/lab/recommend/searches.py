"""Which recipe brings a search to its target soonest, or at the least cost.

Every recipe runs with every seed, on the same curves, cluster and costs; with one seed all get the
same configurations. What a recipe takes is all that its runs took, divided by the number of runs
that reached the target: the mean of a search that is begun anew, with other configurations, as long
as it misses (the "expected running time" of Hansen et al., COCO, 2021). Intervals are of 95 %, from
the bootstrap over seeds, in which both recipes of a comparison have the same seeds; its percentiles
are widened for few seeds (Hesterberg, The American Statistician 69(4), 2015, section 5). They do
not correct for having chosen the best of many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.lab.processes import CpuLimit, Late, in_processes
from ganger.lab.tuning.result import TuningRun
from ganger.lab.tuning.run import Place, own_cluster, run_experiment
from ganger.recipes.registry import find, recipes
from ganger.workloads.curves.parametric import Formula
from ganger.workloads.curves.table import CurveTable
from ganger.workloads.experiment.reading import Experiment

OBJECTIVES: Final = ("soonest", "cheapest")
SEEDS_MAX: Final = 1000
_RESAMPLES: Final = 4000
_ALSO: Final = ("tune.asha(variant=promote)",)
"""Tried beside every recipe as it is by default."""
Floats = NDArray[np.float64]


class Tried(NamedTuple):
    """One run: whether it reached the target; how long it took (seconds) and what it cost until it
    did, or else until it ended; the best that a trial reported, NaN if none did."""

    reached: bool
    seconds: float
    cost: float
    best: float


class Span(NamedTuple):
    """A figure and the ends of its interval, NaN where one seed was run."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Entrant:
    """A recipe, and what its run of each seed did."""

    recipe: str
    runs: list[Tried]

    @property
    def reached(self) -> int:
        """How many of its runs reached the target."""
        return sum(run.reached for run in self.runs)


@dataclass(frozen=True)
class SearchAdvice:
    """What came of it. `unit`: what is to be small, `seconds`, `GPU-hours` or `money`; `entrants`:
    all that ran, those that take less first; `left_out`: others, and why; `baseline`: the recipe in
    use."""

    unit: str
    metric: str
    target: float
    entrants: list[Entrant]
    left_out: dict[str, str]
    baseline: str
    seeds: int

    @property
    def pick(self) -> Entrant | None:
        """The recipe that takes least; None if none ever reached the target."""
        first = self.entrants[0]
        return first if first.reached else None

    def takes(self, entrant: Entrant) -> Span:
        """Seconds, GPU-hours or money until the target is reached; infinite if it never is."""
        return _span(_resampled(self._spent(entrant), _hits(entrant)), self.seeds)

    def behind(self, entrant: Entrant) -> Span:
        """How many times as much it takes as the pick."""
        if self.pick is None:
            return Span(math.nan, math.nan, math.nan)
        return _span(self._ratios(entrant, self.pick), self.seeds)

    def is_tied(self, entrant: Entrant) -> bool:
        """Whether it is not the pick, and not surely worse than that."""
        if entrant is self.pick or not entrant.reached:
            return False
        return not self.behind(entrant).low > 1.0

    @property
    def over_baseline(self) -> Span | None:
        """How many times as much the recipe in use takes as the pick; None where it is the pick, or
        was left out."""
        used = next((each for each in self.entrants if each.recipe == self.baseline), None)
        return None if used is None or used is self.pick else self.behind(used)

    @property
    def better(self) -> bool:
        """Whether the pick surely takes less than the recipe in use."""
        over = self.over_baseline
        return over is not None and over.low > 1.0

    def _spent(self, entrant: Entrant) -> Floats:
        which = "seconds" if self.unit == "seconds" else "cost"
        return np.array([getattr(run, which) for run in entrant.runs])

    def _ratios(self, worse: Entrant, better: Entrant) -> Floats:
        ours = _resampled(self._spent(better), _hits(better))
        theirs = _resampled(self._spent(worse), _hits(worse))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios: Floats = theirs / ours
        ratios[np.isinf(theirs) & np.isinf(ours)] = 1.0
        ratios[(theirs == 0) & (ours == 0)] = 1.0
        return ratios

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data; what is not known, or infinite, is null."""
        over = self.over_baseline
        return {
            "unit": self.unit,
            "metric": self.metric,
            "target": self.target,
            "seeds": self.seeds,
            "pick": self.pick.recipe if self.pick else None,
            "ties": [each.recipe for each in self.entrants if self.is_tied(each)],
            "baseline": self.baseline,
            "over_baseline": None if over is None else _plain(over),
            "better_than_baseline": self.better,
            "recipes": [
                {
                    "recipe": each.recipe,
                    "reached": each.reached,
                    "runs": len(each.runs),
                    "takes": _plain(self.takes(each)),
                    "times_the_pick": _plain(self.behind(each)),
                    "tied": self.is_tied(each),
                    "best": [_number(run.best) for run in each.runs],
                    "seconds": [run.seconds for run in each.runs],
                    "cost": [run.cost for run in each.runs],
                }
                for each in self.entrants
            ],
            "left_out": self.left_out,
        }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _plain(span: Span) -> dict[str, float | None]:
    return {name: _number(value) for name, value in span._asdict().items()}


def _hits(entrant: Entrant) -> Floats:
    return np.array([float(run.reached) for run in entrant.runs])


def _resampled(spent: Floats, hits: Floats) -> Floats:
    """All that was spent by reached target: of the seeds as they are, then of resamples of them,
    which are the same for every recipe."""
    count = len(spent)
    rng = np.random.default_rng([0x5EED, count])
    rows = np.vstack([np.arange(count), rng.integers(count, size=(_RESAMPLES, count))])
    with np.errstate(divide="ignore"):
        takes: Floats = spent[rows].sum(axis=1) / hits[rows].sum(axis=1)
    return takes


def _span(values: Floats, seeds: int) -> Span:
    """The first value, with the interval of the others, which are resamples."""
    from scipy.special import ndtr, stdtrit  # slow to import

    if seeds < 2:
        return Span(float(values[0]), math.nan, math.nan)
    tail = float(ndtr(-math.sqrt(seeds / (seeds - 1)) * stdtrit(seeds - 1, 0.975)))
    others, last = np.sort(values[1:]), len(values) - 2
    low, high = others[math.floor(tail * last)], others[math.ceil((1 - tail) * last)]
    return Span(float(values[0]), float(low), float(high))


def candidates() -> tuple[list[str], dict[str, str]]:
    """The recipes that are tried where none is named, as they are by default and in variants; and
    those that are not, with the reason."""
    names = recipes("tuning")
    left_out = {
        name: "must know how long trials will take" for name in names if find(name).knowledge
    }
    return [*(name for name in names if name not in left_out), *_ALSO], left_out


def recommend_search(
    experiment: Experiment,
    source: CurveTable | Formula,
    objective: str = "soonest",
    *,
    among: Sequence[str] | None = None,
    current: str | None = None,
    seeds: Sequence[int] = tuple(range(10)),
    place: Place | None = None,
    limit_seconds: float = 120.0,
    workers: int = 1,
    progress: Callable[[float], object] = lambda share: None,
) -> SearchAdvice:
    """Run the recipes `among` (else all that can run this search) and `current` (else the recipe of
    the experiment) with every seed.

    `objective`: `soonest` or `cheapest`, which counts money where all GPUs of the cluster have a
    price, else the GPU-hours that the search holds. A recipe of which a run takes more than
    `limit_seconds` of CPU time is left out. Raises BadInput, also where no recipe can run it.
    """
    target = experiment.document.target
    if objective not in OBJECTIVES:
        raise BadInput(
            f"there is no objective {objective!r} for a search",
            where="--objective",
            mend=f"use {' or '.join(OBJECTIVES)}",
        )
    if target is None:
        raise BadInput(
            f"which {experiment.document.metric} is to be reached?",
            where=f"{experiment.where}: target",
            mend=f"set it, or say --target{_reach(experiment, source)}",
        )
    if not 1 <= len(seeds) <= SEEDS_MAX:
        raise BadInput(f"{len(seeds)} seeds", where="--seeds", mend=f"give 1 to {SEEDS_MAX}")
    place = place or Place(own_cluster(experiment))
    base = current or experiment.document.recipe
    usual, unknowing = ([*among], {}) if among else candidates()
    names = list(dict.fromkeys([base, *usual]))
    race = _Race(experiment, source, place, limit_seconds, workers)
    part = 1 / len(seeds)
    first = race.runs([(name, seeds[0]) for name in names], lambda share: progress(part * share))
    left_out = {name: run for name, run in zip(names, first, strict=True) if isinstance(run, str)}
    if len(left_out) == len(names):  # what is wrong is wrong with the search
        raise BadInput(left_out[base])
    ran = {name: [run] for name, run in zip(names, first, strict=True) if isinstance(run, Tried)}
    rest = [(name, seed) for name in ran for seed in seeds[1:]]
    later = race.runs(rest, lambda share: progress(part + (1 - part) * share))
    for (name, _), run in zip(rest, later, strict=True):
        if isinstance(run, str):
            left_out[name] = run
        else:
            ran[name].append(run)
    entrants = [Entrant(name, runs) for name, runs in ran.items() if name not in left_out]
    if not entrants:
        raise BadInput(left_out[base])
    left_out |= {name: why for name, why in unknowing.items() if name not in names}
    unit = "seconds" if objective == "soonest" else "money" if _priced(place) else "GPU-hours"
    metric = experiment.document.metric
    advice = SearchAdvice(unit, metric, target, entrants, left_out, base, len(seeds))
    best_first = experiment.document.mode == "max"
    entrants.sort(key=lambda each: _rank(advice, each, falling=best_first))
    return advice


def _reach(experiment: Experiment, source: CurveTable | Formula) -> str:
    """What the configurations of a table reach, in words."""
    metric, mode = experiment.document.metric, experiment.document.mode
    if isinstance(source, Formula) or metric not in source.metrics:
        return ""
    sign = -1.0 if mode == "max" else 1.0
    bad = np.nan_to_num(sign * source.values[metric], nan=math.inf, posinf=math.inf)
    best = np.sort(np.minimum.reduceat(bad, source.starts[:-1]))
    some = max(len(best) // 20, 1)
    few = "one" if some == 1 else f"{some}"
    return (
        f"; {few} of the {len(best)} configurations of the table reach {sign * best[some - 1]:.4g}"
    )


def _rank(advice: SearchAdvice, entrant: Entrant, *, falling: bool) -> tuple[float, float]:
    """What it takes; of those that never reach the target those first that come nearest."""
    best = [run.best for run in entrant.runs if not math.isnan(run.best)]
    near = float(np.mean(best)) if best else math.inf
    return advice.takes(entrant).value, -near if falling and best else near


def _priced(place: Place) -> bool:
    """Whether all GPUs of the cluster have a price."""
    prices = {each.name for each in place.cluster.gpu_types if each.price > 0}
    return all(node.gpu_type in prices for node in place.cluster.nodes if node.gpus)


@dataclass(frozen=True)
class _Race:
    """All that is the same for every recipe and seed."""

    experiment: Experiment
    source: CurveTable | Formula
    place: Place
    limit_seconds: float
    workers: int

    def runs(
        self, tasks: Sequence[tuple[str, int]], progress: Callable[[float], object]
    ) -> list[Tried | str]:
        """What each recipe and seed came to, or why it is left out."""
        return in_processes(
            lambda number: self._run(*tasks[number]),
            len(tasks),
            workers=self.workers,
            progress=progress,
        )

    def _run(self, recipe: str, seed: int) -> Tried | str:
        try:
            run = run_experiment(
                self.experiment,
                self.source,
                recipe,
                seed,
                self.place,
                journal=lambda kernel: CpuLimit(self.limit_seconds),
            )
        except Late:
            return f"takes more than {self.limit_seconds:g} s of CPU time"
        except BadInput as error:
            return str(error)
        return self._tried(run)

    def _tried(self, run: TuningRun) -> Tried:
        document = self.experiment.document
        sign = 1.0 if document.mode == "min" else -1.0
        assert document.target is not None, "it was checked that there is one"
        at = next(
            (at for at, best in run.best_by_time if sign * best <= sign * document.target), math.nan
        )
        reached, metrics = not math.isnan(at), run.metrics
        cost = metrics["cost"] if _priced(self.place) else metrics["gpu_hours"]
        best = math.nan if metrics["best"] is None else metrics["best"]
        return Tried(reached, at if reached else metrics["seconds"], cost, best)
