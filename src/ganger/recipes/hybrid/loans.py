"""Nodes that services lend to training, and get back."""

from __future__ import annotations

from enum import Enum

from ganger.core.units import DAY, MINUTE
from ganger.estimate.forecast import Seasonal
from ganger.mechanisms.hybrid import reclaim
from ganger.mechanisms.hybrid.sharing import Sharing
from ganger.mechanisms.hybrid.silos import Lending, Silos
from ganger.recipes.registry import Amount, Duration, Name, Period, recipe
from ganger.recipes.training.elasticity.aryl import ARYL


class Choice(Enum):
    """How nodes are chosen that go back."""

    GREEDY = "greedy"
    EXACT = "exact"


@recipe(
    ARYL,
    name="hybrid.aryl",
    reconstructed="the forecast: what services held a day ago, moved by where they stand now, and"
    " at least as steep a rise as there has been",
)
def loans(
    services: Name = "serving",
    every: Period = 5 * MINUTE,
    notice: Duration = 2 * MINUTE,
    headroom: Amount = 0.25,
    reclaim: Choice = Choice.GREEDY,
) -> Sharing:
    """Services lend whole nodes that they will not need, and get them back; training under any
    recipe runs on its own nodes and on those.

    `services`: the pool, or a label, of the nodes for services. Every `every` it is counted how
    many GPUs they hold; what is foreseen for the time until a node is back, and `headroom` times
    that, stays theirs. Nodes go back that take the fewest jobs with them (`reclaim`: greedy, or
    exact on up to 12 nodes); jobs that can do without what they have there shrink instead. Also
    between two counts, when a replica has no room. Jobs save and leave within `notice`.
    """
    choose = _CHOICES[reclaim]
    lending = Lending(every, notice, headroom, Seasonal(max(DAY // every, 1)), choose)
    return Sharing(
        "hybrid.aryl",
        lambda serving, training: Silos(serving, training, services, lending),
        services,
        notice,
    )


_CHOICES = {Choice.GREEDY: reclaim.greedy, Choice.EXACT: reclaim.exact}
