"""Who gets how much of a GPU's time: requests, limits, TGS' controller, against closed forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.estimate.sharing.rates import (
    HOST_MIB_PER_SECOND,
    Tenant,
    divide,
    settling,
)

HUNDREDTHS = st.integers(0, 100).map(lambda n: n / 100)
TENANTS = st.lists(st.builds(Tenant, HUNDREDTHS, HUNDREDTHS, HUNDREDTHS), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("tenants", "parts"),
    [
        pytest.param([(1, 0.4), (1, 0.4)], [0.5, 0.5], id="kubeshare: both busy"),
        pytest.param([(1, 0.4), (0, 0.4)], [1, 0], id="kubeshare: one idle"),
        pytest.param([(0.6, 1), (0.7, 0)], [0.6, 0.4], id="antman: the rest"),
        pytest.param([(1, 1), (0.7, 0)], [1, 0], id="nothing is left"),
        pytest.param([(1, 0.5), (1, 0.3), (0.1, 0.2)], [0.5, 0.4, 0.1], id="the least gets more"),
        pytest.param([(1, 0.2), (1, 0.2), (1, 0.5)], [0.25, 0.25, 0.5], id="two rise together"),
        pytest.param([(1, 0.2, 0.3), (1, 0.2, 0.4)], [0.3, 0.4], id="limits"),
        pytest.param([(1, 0.2, 0.3), (1, 0.2, 1)], [0.3, 0.7], id="one limit"),
        pytest.param([(1, 0.8), (1, 0.8)], [0.5, 0.5], id="more is requested than there is"),
        pytest.param([(1, 0.9), (1, 0.3)], [0.75, 0.25], id="in proportion"),
        pytest.param([(0.5, 0), (0.5, 0)], [0.5, 0.5], id="all just fits"),
        pytest.param([(1, 0.1, 0.1), (0.9, 0, 0.95), (0.9, 0)], [0.1, 0.45, 0.45], id="a floor"),
    ],
)
def test_what_jobs_with_requests_and_limits_get(
    tenants: list[tuple[float, ...]], parts: list[float]
) -> None:
    assert list(divide([Tenant(*each) for each in tenants])) == pytest.approx(parts)


@given(TENANTS)
def test_time_is_neither_lost_nor_made_and_no_request_is_broken(tenants: list[Tenant]) -> None:
    found = divide(tenants)
    most, floors = [each.cap for each in tenants], [min(t.request, t.cap) for t in tenants]
    assert sum(found) == pytest.approx(min(sum(most), 1.0))
    assert all(0.0 <= part <= top + 1e-12 for part, top in zip(found, most, strict=True))
    if sum(floors) <= 1.0:
        assert all(part >= floor - 1e-12 for part, floor in zip(found, floors, strict=True))
        level = max((p for p, f in zip(found, floors, strict=True) if p > f + 1e-9), default=0.0)
        short = [p for p, top in zip(found, most, strict=True) if p < top - 1e-9]
        assert all(part >= level - 1e-9 for part in short), "who has more than it requests is level"


def test_a_slow_start_grows_by_half_until_the_job_has_all_it_asks_for() -> None:
    """0.01 x 1.5^7 = 0.17, and then 0.2."""
    rates = [0.01 * 1.5**k for k in range(8)]
    found = settling(0.7, 0.2, 0.01)
    assert (found.periods, found.after) == (8, (0.7, 0.2))
    assert found.before == pytest.approx((0.7, sum(rates) / 8))


def test_when_the_production_job_ends_the_other_grows_until_the_device_is_full() -> None:
    """The card's check: 0.31, 0.465, 0.6975, 1."""
    found = settling(0.0, 1.0, 0.31)
    assert (found.periods, found.after) == (3, (0.0, 1.0))
    assert found.before[1] == pytest.approx((0.31 + 0.465 + 0.6975) / 3)


def test_beside_a_production_job_of_70_percent_the_other_settles_near_30() -> None:
    """The card's check. The rate goes from 0.92 x 0.3309 up to 0.3309 by steps of 0.00025, where
    the two ask for 1 / 0.97 of the device; the production job is within 3 % all the time."""
    found = settling(0.7, 1.0, 0.01)
    assert found.after[1] == pytest.approx(0.3122, abs=2e-4)
    assert 0.97 * 0.7 < found.after[0] < 0.7
    assert found.after[0] + found.after[1] == pytest.approx(1.0, abs=1e-3)


def by_hand(production: float, begin: float, periods: int) -> list[float]:
    """The rate in each period, as the card says it."""
    rates, slow = [begin], True
    for _ in range(periods - 1):
        rate = rates[-1]
        deviation = 1.0 - 1.0 / max(production + rate, 1.0)
        if deviation <= 0.03:
            rate = min(rate * 1.5, 1.0) if slow else min(rate + 0.00025, 1.0)
        elif deviation >= 0.09:
            rate, slow = rate / 10, True
        else:
            rate, slow = (rate / 1.5 if slow else rate * 0.92), False
        rates.append(rate)
    return rates


@pytest.mark.parametrize(
    ("production", "begin"), [(0.7, 0.01), (0.7, 1.0), (0.97, 0.5), (1.0, 0.01)]
)
def test_the_averages_are_those_of_the_rates_period_by_period(
    production: float, begin: float
) -> None:
    found, rates = settling(production, 1.0, begin), by_hand(production, begin, 20_000)
    served = [rate / max(production + rate, 1.0) for rate in rates]
    kept = [production / max(production + rate, 1.0) for rate in rates]
    first = found.periods
    assert found.before == pytest.approx((sum(kept[:first]) / first, sum(served[:first]) / first))
    late = served[first:]
    assert found.after[1] == pytest.approx(sum(late) / len(late), rel=5e-3)
    assert found.after[0] == pytest.approx(sum(kept[first:]) / len(late), rel=5e-3)
    assert rates[first] < 0.93 * rates[first - 1], "a cut ends the first part"
    assert rates[first - 1] > rates[first - 2], "after the rate had grown"


def test_a_rate_that_starts_slowly_for_ever_has_its_average_at_once() -> None:
    """At 1.0 beside 0.1 the production job loses 1 - 1 / 1.1 = 9.1 %: the rate is divided by 10."""
    found = settling(0.1, 1.0, 0.01)
    served = [rate / max(0.1 + rate, 1.0) for rate in by_hand(0.1, 0.01, 10_000)]
    assert found.periods == 0
    assert found.before == found.after
    assert found.after[1] == pytest.approx(sum(served) / 10_000)


@given(HUNDREDTHS, st.integers(1, 100).map(lambda n: n / 100), st.integers(1, 100))
def test_two_jobs_never_have_more_than_the_device(
    production: float, demand: float, begin: int
) -> None:
    found = settling(production, demand, begin / 100)
    for first, second in (found.before, found.after):
        assert first + second <= 1.0 + 1e-9
        assert 0.0 < second <= demand + 1e-9
        assert first <= production + 1e-9
    assert found.after[0] >= 0.94 * production


def test_the_way_to_the_host_is_pcie_3_with_16_lanes() -> None:
    assert HOST_MIB_PER_SECOND * 2**20 == 15.75e9
