"""How many servers answer in time, and where a trend goes."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from ganger.estimate.forecast import trend
from ganger.estimate.waiting import Requests, Service
from ganger.recipes.registry import make_router
from serving.rig import Asked, lanes, model, play, table


def test_a_trend_goes_on_and_does_not_fall_below_nothing() -> None:
    assert trend([100, 110, 120, 130]) == 140
    assert trend([100, 110, 120, 130], 2.5) == 155
    assert trend([7]) == trend([7, 7, 7], 9) == 7
    assert trend([30, 20, 10], 4) == 0
    assert trend([0, 3, 0, 3]) == pytest.approx(3.0)  # the mean, 1.5, and 0.6 a place for 2.5


def test_one_server_is_erlangs_and_the_spread_of_service_stretches_the_wait() -> None:
    """M/D/1 by Lee and Longton: at a load of a half, half wait, and half as long as in M/M/1."""
    steady = Service([Requests(1, 0.01, 0.01, 0.03)])
    assert steady.stretch == pytest.approx(0.5)
    assert steady.in_time(50, 1) == pytest.approx(1 - 0.5 * exp(-2 * 50 * 0.02))
    assert steady.in_time(100, 1) == steady.in_time(500, 4) == 0.0
    assert Service([Requests(1, 0.01, 0.025)]).stretch > 0.55


def test_requests_of_two_kinds_are_weighted() -> None:
    both = Service([Requests(3, 0.01, 0.01, 0.02), Requests(1, 0.03, 0.03, 0.02)])
    assert both.mean == pytest.approx(0.015)
    assert both.in_time(1, 100) == pytest.approx(0.75)  # one kind never is in time
    assert both.servers(1, 0.99, 100) == 1  # of what can be in time, 99 %
    assert both.servers(100, 0.99, 100) > 2


@pytest.mark.parametrize(
    ("rate", "slack", "mean", "p99"),
    [(100, 40, 10, 1.3), (300, 25, 10, 1.3), (400, 60, 20, 2.5), (50, 200, 50, 1.0)],
)
def test_it_says_how_many_servers_are_enough_within_one(
    rate: float, slack: float, mean: float, p99: float
) -> None:
    """Beside the fewest lanes with which 99 % are in time when the requests are played."""
    gaps = np.random.default_rng(1).exponential(1000 / rate, 8000).cumsum().tolist()
    asked = [Asked(at, 0, slack) for at in gaps]
    models = [model("m", table(mean, p99=p99))]
    said = Service([Requests(1, mean / 1000, mean * p99 / 1000, slack / 1000)]).servers(
        rate, 0.99, 100
    )

    def enough(count: int) -> bool:
        seen = play(make_router("serve.no-batch"), models, lanes(count), asked, noise=1.0)
        late = sum(end - one.at > slack for end, one in zip(seen.ended, asked, strict=True))
        return late <= len(asked) / 100

    assert enough(said + 1)
    assert said < 3 or not enough(said - 2)
