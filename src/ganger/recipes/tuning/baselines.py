"""How the trials of a search share what it holds: baselines."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, TypeAlias

from ganger.core.errors import BadInput
from ganger.core.protocols import Policy
from ganger.core.units import WHOLE
from ganger.mechanisms.tuning.asynchronous import Promote, StopBelow
from ganger.mechanisms.tuning.brackets import Hyperband
from ganger.mechanisms.tuning.halving import ENDLESS, SuccessiveHalving
from ganger.mechanisms.tuning.racing import Racing, Rungs, ToTheEnd
from ganger.mechanisms.tuning.trials import Mode, Portion
from ganger.recipes.parameters import Within
from ganger.recipes.registry import Count, Paper, Positive, recipe

Eta: TypeAlias = Annotated[int, Within(2, 100)]
"""One in so many goes on."""
Epochs: TypeAlias = Positive | None
"""The most that a trial trains; None: to its own end."""
Share: TypeAlias = Annotated[float, Within(0.001, 1)]
"""The part of its GPU that a trial holds."""

RANDOM = Paper(
    "Random Search for Hyper-Parameter Optimization",
    "Bergstra and Bengio",
    "JMLR",
    2012,
    "best metric",
)
HALVING = Paper(
    "Non-stochastic Best Arm Identification and Hyperparameter Optimization",
    "Jamieson and Talwalkar",
    "AISTATS",
    2016,
    "best metric",
)
HYPERBAND = Paper(
    "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization",
    "Li et al.",
    "JMLR",
    2018,
    "best metric",
)
ASHA = Paper(
    "A System for Massively Parallel Hyperparameter Tuning",
    "Li et al.",
    "MLSys",
    2020,
    "best metric",
)


BOHB = Paper(
    "BOHB: Robust and Efficient Hyperparameter Optimization at Scale",
    "Falkner et al.",
    "ICML",
    2018,
    "best metric",
)


class Variant(Enum):
    """What asynchronous halving does with a trial at a rung."""

    STOP = "stop"
    PROMOTE = "promote"


def portion(gpus: int, share: float) -> Portion:
    """What each trial holds. Raises BadInput for parts of several GPUs."""
    if gpus > 1 and share < 1.0:
        raise BadInput("a share is of one GPU", where="share", mend="leave gpus out, or share")
    return Portion(gpus, round(share * WHOLE))


def _to_the_end(
    name: str, trials: int, epochs: float | None, mode: Mode, each: Portion, searcher: str
) -> Policy:
    return Racing(name, ToTheEnd(epochs or ENDLESS), trials, mode, each, searcher)


@recipe(RANDOM, name="tune.random")
def random(
    trials: Count = 27,
    epochs: Epochs = None,
    mode: Mode = Mode.MIN,
    gpus: Count = 1,
    share: Share = 1.0,
) -> Policy:
    """Every trial trains to its end, or for `epochs`, and none is stopped before. The searcher is
    random unless another is named.

    As many run as the search has room for, each on `gpus` GPUs, or on the part `share` of one,
    until there were `trials`.
    """
    return _to_the_end("tune.random", trials, epochs, mode, portion(gpus, share), "")


@recipe(RANDOM, name="tune.grid")
def grid(
    trials: Count = 27,
    epochs: Epochs = None,
    mode: Mode = Mode.MIN,
    gpus: Count = 1,
    share: Share = 1.0,
) -> Policy:
    """As `tune.random`, over a grid: every combination of the values of each parameter once, the
    last parameter fastest. `trials` is the most that are tried.
    """
    return _to_the_end("tune.grid", trials, epochs, mode, portion(gpus, share), "grid")


@recipe(HALVING, name="tune.sha")
def sha(
    trials: Count = 27,
    eta: Eta = 3,
    first: Positive = 1.0,
    epochs: Epochs = None,
    mode: Mode = Mode.MIN,
    gpus: Count = 1,
    share: Share = 1.0,
) -> Policy:
    """Successive halving: all trials train for `first` epochs, the best one in `eta` goes on to
    `eta` times as many, and so on; the last one trains to its end. None trains for more than
    `epochs`.

    Trials that the trace states count among `trials`. The search starts the others, each on `gpus`
    GPUs. `mode` is `min` for a loss, which should be small, and `max` for an accuracy.
    """
    return SuccessiveHalving(
        "tune.sha", trials, eta, first, mode, portion(gpus, share), epochs or ENDLESS
    )


@recipe(HYPERBAND, name="tune.hyperband")
def hyperband(
    epochs: Positive = 81.0,
    eta: Eta = 3,
    first: Positive = 1.0,
    rounds: Count = 1,
    mode: Mode = Mode.MIN,
    gpus: Count = 1,
    share: Share = 1.0,
) -> Policy:
    """Successive halving in brackets, one after the other: the first starts the most trials with
    the fewest epochs, the last few trials with all `epochs`, and all cost about the same.

    With R = `epochs` / `first`, s falls from the logarithm of R to the base `eta`, rounded down, to
    0. Bracket s starts ceil((s_max + 1) / (s + 1) x `eta`^s) trials, which are judged first after
    `epochs` / `eta`^s. All brackets are run `rounds` times.
    """
    return Hyperband("tune.hyperband", epochs, eta, first, rounds, mode, portion(gpus, share))


@recipe(ASHA, name="tune.asha")
def asha(
    trials: Count = 27,
    eta: Eta = 3,
    first: Positive = 1.0,
    epochs: Positive = 81.0,
    variant: Variant = Variant.STOP,
    beyond: bool = False,
    mode: Mode = Mode.MIN,
    gpus: Count = 1,
    share: Share = 1.0,
) -> Policy:
    """Successive halving without waiting. Trials are judged after `first`, `eta` x `first`, ...
    epochs against those that came as far before them, and end after `epochs` epochs.

    `stop`: a trial goes on at once if it is among the best one in `eta` (rounded up) so far, and
    ends otherwise. `promote`: it is set aside; where there is room, the best trial of the highest
    rung goes on, if it is among the best one in `eta` (rounded down) and no more than these have
    gone on; else a new trial starts. With `beyond`, as in algorithm 2 of the paper, a good trial
    that comes late goes on even if as many worse ones have gone on before.
    """
    rungs = Rungs(first, eta, epochs)
    judge = Promote(rungs, beyond) if variant is Variant.PROMOTE else StopBelow(rungs)
    return Racing("tune.asha", judge, trials, mode, portion(gpus, share))


@recipe(BOHB, name="tune.bohb")
def bohb(
    epochs: Positive = 81.0,
    eta: Eta = 3,
    first: Positive = 1.0,
    rounds: Count = 1,
    mode: Mode = Mode.MIN,
    gpus: Count = 1,
    share: Share = 1.0,
) -> Policy:
    """The brackets of `tune.hyperband`, with the searcher `kde` instead of random trials. It
    proposes configurations that resemble the good ones so far more than the bad ones.

    Each trial is asked for when there is room for it, so that the searcher has heard of those
    before it.
    """
    return Hyperband("tune.bohb", epochs, eta, first, rounds, mode, portion(gpus, share), "kde")
