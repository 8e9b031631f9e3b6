"""The samplers of Optuna as searchers: TPE, Gaussian processes and CMA-ES (extra `optuna`)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ganger.core.errors import BadInput
from ganger.core.tuning.space import Parameter, Point, Space, Value

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import Trial

_T = TypeVar("_T")

WORST: Final = 1e30
"""The value of a trial that broke down."""
BEHIND: Final = 10
"""A trial that came less far than others counts as pruned after so many proposals more."""
_NEEDS: Final = {"tpe": ("optuna",), "gp": ("optuna", "torch"), "cma-es": ("optuna", "cmaes")}
SAMPLERS: Final = tuple(_NEEDS)
"""The names that `Sampled` knows."""


def refuse_missing(name: str) -> None:
    """Raise BadInput where something that the sampler needs is not installed."""
    missing = [each for each in _NEEDS[name] if find_spec(each) is None]
    if missing:
        raise BadInput(
            f"the searcher {name!r} needs {' and '.join(missing)}",
            where="searcher",
            mend="install ganger[optuna]" + (" and ganger[torch]" if name == "gp" else ""),
        )


class Sampled:
    """Asks a sampler of Optuna, which learns from what trials reported.

    A trial that reported at the highest epoch that any has reached counts as complete. One that is
    left behind (it was stopped, or is slower) counts as pruned once `BEHIND` more were proposed,
    and one that broke down as the worst at once. What a trial reports after that is not heard. The
    same asks and tells, in the same order and with the same seed, give the same proposals.
    """

    def __init__(self, name: str, space: Space, seed: int) -> None:
        """Raises BadInput where something that the sampler needs is not installed."""
        refuse_missing(name)
        self._space = space
        self._study = _quietly(partial(_study, name, seed))
        self._distributions = {
            each: _distribution(parameter) for each, parameter in space.parameters.items()
        }
        self._open: dict[int, _Open] = {}
        """By number, proposals of which Optuna has not heard; below 0 points that others chose."""
        self._proposed: dict[tuple[float, ...], _Open] = {}
        """By the place of a trial in the unit cube, the proposal that it is of."""
        self._asked = 0
        self._highest = 0.0

    def ask(self) -> Point:
        """The next point."""
        self._settle()
        trial = _quietly(self._study.ask)
        point: Point = {}
        for name, parameter in self._space.parameters.items():
            if self._space.matters(name, point):
                point[name] = _quietly(partial(_suggested, trial, name, parameter))
        self._open[self._asked] = _Open(trial, point)
        self._asked += 1
        self.took(point)
        return point

    def took(self, point: Point) -> None:
        """Reports of this point are those of the last proposal."""
        self._proposed[tuple(self._space.units(point))] = self._open[self._asked - 1]

    def tell(self, point: Point, epoch: float, badness: float) -> None:
        """A trial reported. Optuna hears of it before the next proposal."""
        place = tuple(self._space.units(point))
        if place not in self._proposed:
            self._proposed[place] = each = _Open(None, point)
            self._open[-len(self._proposed)] = each
        each = self._proposed[place]
        each.epoch, each.badness = epoch, math.inf if math.isnan(badness) else badness
        self._highest = max(self._highest, epoch)

    def _settle(self) -> None:
        """Tell Optuna of the trials that have come as far as any, and of those left behind."""
        for number, each in list(self._open.items()):
            there = each.epoch >= self._highest or math.isinf(each.badness)
            if each.epoch >= 0 and (there or self._asked - number > BEHIND):
                self._study_hears(each, there)
                del self._open[number]

    def _study_hears(self, each: _Open, whole: bool) -> None:
        """Tell Optuna of a trial, which is complete or pruned."""
        from optuna.trial import TrialState, create_trial

        value = min(max(each.badness, -WORST), WORST)
        if each.trial is None:
            among = {name: self._distributions[name] for name in each.point}
            state = TrialState.COMPLETE if whole else TrialState.PRUNED
            known = create_trial(
                state=state,
                value=value if whole else None,
                params=dict(each.point),
                distributions=among,
                intermediate_values={} if whole else {int(each.epoch): value},
            )
            self._study.add_trial(known)
        elif whole:
            self._study.tell(each.trial, value)
        else:
            each.trial.report(value, int(each.epoch))
            self._study.tell(each.trial, state=TrialState.PRUNED)


@dataclass
class _Open:
    """A proposal (None: a point that others chose), and what its trial reported last: after how
    many epochs (-1: nothing yet), and how bad it was."""

    trial: Trial | None
    point: Point
    epoch: float = -1.0
    badness: float = 0.0


def _distribution(parameter: Parameter) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if parameter.type == "choice":
        return CategoricalDistribution(parameter.values)
    if parameter.type == "integer":
        return IntDistribution(int(parameter.low), int(parameter.high), parameter.log)
    return FloatDistribution(parameter.low, parameter.high, parameter.log)


def _suggested(trial: Trial, name: str, parameter: Parameter) -> Value:
    if parameter.type == "choice":
        return cast("Value", trial.suggest_categorical(name, parameter.values))
    low, high, log = parameter.low, parameter.high, parameter.log
    if parameter.type == "integer":
        return trial.suggest_int(name, int(low), int(high), log=log)
    return trial.suggest_float(name, low, high, log=log)


def _study(name: str, seed: int) -> Study:
    import optuna
    from optuna import samplers

    sampler: samplers.BaseSampler
    if name == "tpe":
        sampler = samplers.TPESampler(seed=seed, constant_liar=True)
    elif name == "gp":
        sampler = samplers.GPSampler(seed=seed, warn_independent_sampling=False)
    else:
        sampler = samplers.CmaEsSampler(
            seed=seed, consider_pruned_trials=True, warn_independent_sampling=False
        )
    return optuna.create_study(sampler=sampler)


def _quietly(make: Callable[[], _T]) -> _T:
    """What `make` returns, without Optuna's words about what is experimental."""
    from optuna import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make()
    finally:
        logging.set_verbosity(before)
