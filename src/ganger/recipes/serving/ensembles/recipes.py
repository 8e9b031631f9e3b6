"""Published systems that ask several models, or one model several times, for one answer."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from ganger.core.errors import BadInput
from ganger.core.serving.router import Router
from ganger.core.units import SECOND
from ganger.mechanisms.serving.asking import Asking
from ganger.mechanisms.serving.batching import Preferred
from ganger.mechanisms.serving.composed import Composed
from ganger.recipes.registry import Count, Name, Paper, Part, Period, Within, recipe
from ganger.recipes.serving.ensembles.cocktail import Cocktail, Start
from ganger.recipes.serving.ensembles.parm import ParM
from ganger.recipes.serving.ensembles.tiers import Aim, Tier, Tiers

Sure: TypeAlias = Annotated[float, Within(0.5, 0.9999)]
"""In what part of samples something holds."""
TIERS = Paper(
    "One Size Does Not Fit All: Quantifying and Exposing the Accuracy-Latency Trade-off in Machine"
    " Learning Cloud Service APIs via Tolerance Tiers",
    "Halpern et al.",
    "ISPASS",
    2019,
    "accuracy, latency, cost",
)
COCKTAIL = Paper(
    "Cocktail: A Multidimensional Optimization for Model Serving in Cloud",
    "Gunasekaran et al.",
    "NSDI",
    2022,
    "accuracy, latency, cost",
)
PARM = Paper(
    "Parity Models: Erasure-Coded Resilience for Prediction Serving Systems",
    "Kosaian et al.",
    "SOSP",
    2019,
    "latency",
)


@recipe(
    TIERS,
    needs="latencies",
    reconstructed="a tolerance is a part of all answers, in addition to the errors of the best"
    " version; thresholds are twenty parts of the answers of the quick version; how sure it is, is"
    " how far its best score is above the next; cost is the time of devices;"
    " an input is added on which all rules err but the best version",
)
def tolerance_tiers(
    tolerance: Part = 0.01,
    aim: Aim = Aim.LATENCY,
    tiers: tuple[Name, ...] = (),
    confidence: Sure = 0.999,
    samples: Count = 1000,
    size: Count = 64,
) -> Router:
    """A request says how much more often than by the best version its answer may be wrong, and
    whether it is to be quick or cheap.

    The tier is that of the request's tenant (`tiers=gold:0;batch:0.05:cost`); all others have
    `tolerance` and `aim`. A rule asks one version; a quick one and, where it is not sure, a slow
    one after it; or both at once, of which the slow one is cancelled where the quick one is sure.
    All rules are tried on the recorded answers of a labelled data set. A tier takes the quickest
    (or cheapest) of those that in the part `confidence` of so many `samples` of it err no more than
    the best version and the tolerance; of 0, only the best version is sure to. A lane takes
    whatever waits, up to `size`. A request that no version has answered by its
    deadline is dropped.
    """
    named = [_tier(text, aim) for text in tiers]
    if len(dict(named)) < len(named):
        where = "tolerance-tiers(tiers)"
        raise BadInput("a tenant has two tiers", where=where, mend="state one for each")
    choice = Tiers(
        (Tier(tolerance, aim), *(tier for _, tier in named)),
        tuple((tenant, number) for number, (tenant, _) in enumerate(named, 1)),
        samples,
        confidence,
    )
    return Composed("tolerance-tiers", Preferred(size, 0), asking=Asking(choice, stepwise=choice))


@recipe(
    COCKTAIL,
    needs="latencies",
    reconstructed="a vote counts by how often its model was right when it gave that class; which"
    " model is dropped or taken is decided by how often it was right at all; instances, their"
    " scaling by how often models are members, and spot prices are not part of it",
)
def cocktail(
    accuracy: Part = 0.97,
    every: Period = 10 * SECOND,
    least: Count = 30,
    start: Start = Start.ALL,
    size: Count = 64,
) -> Router:
    """Several models answer and vote; as few as are right often enough.

    Requests of a family that leave time for the same models have an ensemble. It begins with all
    of these (`start=all`), or with the fewest of the best of which the binomial formula promises
    the `accuracy` (`start=formula`), which models that err together do not keep. After each
    interval (`every`) with at least `least` answers of which it is known what was right, the
    ensemble loses the model that is right least often, if it was right as often as `accuracy` wants
    and more than a majority and one agreed on average; it gains the best of the others, if it was
    not. A vote counts by how often its model was right when it gave that class. At its deadline a
    request gets the vote of what has come. A lane takes whatever waits, up to `size`.
    """
    choice = Cocktail(accuracy, every, least, start)
    return Composed("cocktail", Preferred(size, 0), asking=Asking(choice))


@recipe(
    PARM,
    reconstructed="requests of a group are of batches that follow each other; which lanes run"
    " parity models is fixed; inputs are added up, images are not made smaller and joined; a group"
    " has one parity query",
)
def parm(size: Count = 1) -> Router:
    """The sum of some inputs is asked of a parity model, and stands in for the one answer that is
    late.

    Of every `k + 1` lanes one runs parity models only (`parity` in the models file). Requests that
    go to a lane are put into groups of `k`, those of one batch into different groups. The sum of
    the inputs of a group is asked of the parity model, which gives the sum of the answers. When
    all answers but one are there, the missing one is what the others leave of that sum, and the
    request is answered with it. A lane takes whatever waits, up to `size`. Requests to models that
    have no parity model are served as they come; families of models are refused.
    """
    return ParM(size)


def _tier(text: str, aim: Aim) -> tuple[str, Tier]:
    """A tenant and its tier. Raises BadInput."""
    aims = {each.value: each for each in Aim}
    rest, _, last = text.rpartition(":")
    if last.strip().lower() in aims:
        aim, text = aims[last.strip().lower()], rest
    name, _, given = text.rpartition(":")
    try:
        tolerance = float(given)
    except ValueError:
        tolerance = -1.0
    if not name or not 0 <= tolerance <= 1:
        raise BadInput(
            f"{text!r} is not a tenant and a tolerance",
            where="tolerance-tiers(tiers)",
            mend="write like tiers=gold:0;batch:0.05:cost",
        )
    return name, Tier(tolerance, aim)
