"""Delay scheduling counts patience in one way, whatever the count is of."""

from __future__ import annotations

import pytest

from ganger.core.books.fit import Fit
from ganger.core.spec import Locality
from ganger.core.units import NEVER, SECOND
from ganger.mechanisms.fairness.fair import FairPolicy, Owner, gpu_demands
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.placement.delay_scheduling import Patience, Relaxing
from ganger.sim.rows import Outage
from worlds import cluster, job, play

NODE, RACK, ANY = Locality.NODE, Locality.RACK, Locality.ANY


@pytest.mark.parametrize(
    ("patience", "waited", "tier", "end"),
    [
        (Patience(3, 2), 0, NODE, 3),
        (Patience(3, 2), 2, NODE, 3),
        (Patience(3, 2), 3, RACK, 5),
        (Patience(3, 2), 4, RACK, 5),
        (Patience(3, 2), 5, ANY, NEVER),
        (Patience(0, 2), 0, RACK, 2),
        (Patience(3, 0), 3, ANY, NEVER),
        (Patience(0, 0), 0, ANY, NEVER),
    ],
)
def test_a_job_insists_on_a_node_then_a_rack_then_on_nothing(
    patience: Patience, waited: int, tier: Locality, end: int
) -> None:
    assert patience.tier(waited) is tier
    assert patience.ends(waited) == end


def test_a_fair_queue_tries_who_is_patient_no_more_behind_one_of_its_like_that_still_is() -> None:
    """Either of `early` and `late` would fit on two nodes; `early` lost its node at 5 s, so that it
    still insists on one when the patience of `late` is over, at 11 s."""
    place = Relaxing(Fit.WORST, node_wait=10 * SECOND, rack_wait=0)
    policy = FairPolicy("fair", Owner.USER, gpu_demands, Walk.SKIP, place=place)
    works = [
        job("x", 0, 100), job("y", 0, 100), job("early", 0.5, 9, size=2),
        job("late", 1, 9, size=2), job("knocks", 12, 9, size=2),
    ]  # fmt: skip
    outages = (Outage(2, 5 * SECOND, 10_000 * SECOND),)
    run = play(policy, works, cluster(3, 2), outages=outages, until=90 * SECOND, validate=False)
    assert (run.started("early"), run.started("late")) == (0.5, 12)
