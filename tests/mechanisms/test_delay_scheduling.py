"""Delay scheduling counts patience in one way, whatever the count is of."""

from __future__ import annotations

import pytest

from ganger.core.spec import Locality
from ganger.core.units import NEVER
from ganger.mechanisms.placement.delay_scheduling import Patience

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
