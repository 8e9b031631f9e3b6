"""Where gangs go: the primitive rules of placement, under a plain queue."""

from __future__ import annotations

from ganger.core.ledger import Fit
from ganger.core.protocols import Policy
from ganger.core.spec import Locality
from ganger.core.units import SECOND
from ganger.mechanisms.admit import Walk
from ganger.mechanisms.order import FIRST_COME
from ganger.mechanisms.place import AnyType, Place, Relaxing
from ganger.mechanisms.queue import QueuePolicy
from ganger.recipes.registry import Duration, Paper, recipe
from ganger.recipes.training.baselines import LECTURE
from ganger.recipes.training.fairness import GAVEL

DELAY = Paper("Delay Scheduling", "Zaharia et al.", "EuroSys", 2010, "locality, fairness")


@recipe(LECTURE)
def placement(
    fit: Fit = Fit.BEST, within: Locality = Locality.ANY, walk: Walk = Walk.STRICT
) -> Policy:
    """First come, first served, with the placement rule as a parameter.

    `fit`: best packs, worst spreads, first and random look at nothing. `within`: the widest
    spread of a gang (island, node, rack, any): `node` consolidates, and waits for it.
    """
    return QueuePolicy("placement", FIRST_COME, walk, place=Place(fit, within))


@recipe(DELAY, reconstructed="patience in time (W), not in skipped opportunities (D)")
def delay_scheduling(
    node_wait: Duration = 60 * SECOND, rack_wait: Duration = 60 * SECOND, walk: Walk = Walk.SKIP
) -> Policy:
    """Wait a little for a good place, then take a worse one.

    A job insists on one node for `node_wait` (W1), on one rack for `rack_wait` (W2) more, then
    takes any GPUs; meanwhile others pass it.
    """
    place = Relaxing(node_wait=node_wait, rack_wait=rack_wait)
    return QueuePolicy("delay-scheduling", FIRST_COME, walk, place=place)


@recipe(GAVEL)
def heterogeneity_agnostic(chance: bool = False, walk: Walk = Walk.STRICT) -> Policy:
    """First come, first served, blind to GPU types: they are taken in turn, or by chance.

    The baseline that heterogeneity-aware schedulers are measured against: job i looks first at
    type i mod n, or at one drawn at random, and takes the next type where that is full.
    """
    return QueuePolicy("heterogeneity-agnostic", FIRST_COME, walk, place=AnyType(chance=chance))
