"""A recipe that lets a job start nowhere, not even on the idle cluster, says so."""

from __future__ import annotations

import pytest

from ganger.core.errors import BadInput
from ganger.core.units import SECOND
from ganger.lab.simulation import Setup, run_one
from worlds import cluster, job, trace_of

GANG = [job("small", 0, 5), job("gang", 1, 5, size=6), job("other", 2, 5, size=8)]


@pytest.mark.parametrize("recipe", ["placement(within=node)", "placement(within=node,walk=skip)"])
def test_a_gang_that_must_not_leave_a_node_and_fits_none_is_named(recipe: str) -> None:
    with pytest.raises(BadInput, match=r"'gang' never starts under placement.*6 x 1 GPUs; 1 more"):
        run_one(trace_of(GANG), cluster(2, 4), recipe)


def test_what_waits_when_the_run_is_cut_short_or_fits_is_no_error() -> None:
    run_one(trace_of(GANG), cluster(2, 4), "placement(within=node)", Setup(until=3 * SECOND))
    assert run_one(trace_of(GANG), cluster(1, 8), "placement(within=node)").metrics is not None
