"""Division by prices agrees with HiGHS on everything it is given, and proves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.solve.division import prices
from ganger.solve.division.lexicographic import water_filling
from ganger.solve.division.programme import Floats, Shares, isolated, proportional, shares
from ganger.solve.division.search import largest
from ganger.solve.division.shares import STEPS, SharesPool, Warm, max_min, max_sum
from ganger.solve.highs import Infeasible
from soaking import many
from solve.instances import NEED, instance, largest_level, rows_of, solve, violation, water_levels

SOAK = pytest.param(range(1000, 1000 + many(3000)), marks=pytest.mark.soak)


@contextmanager
def little() -> Iterator[None]:
    """Little is solved directly, so that small instances go the way of large ones."""
    before = prices.DIRECT, prices.FEW
    prices.DIRECT, prices.FEW = 6, 8
    yield
    prices.DIRECT, prices.FEW = before


@pytest.fixture
def small() -> Iterator[None]:
    """`little` for a whole test."""
    with little():
        yield


@pytest.mark.parametrize("seeds", [range(150), SOAK])
@pytest.mark.usefixtures("small")
def test_max_min_agrees_with_highs(seeds: range) -> None:
    for seed in seeds:
        posed, weight = instance(seed)
        pace = weight * proportional(posed) / posed.scale
        answer = max_min(posed, pace)
        rows, limits, eff = rows_of(posed)
        known = largest_level(rows, limits, eff, pace, np.zeros(len(pace)))
        assert answer.value == pytest.approx(known, rel=NEED), seed
        assert (posed.effective(answer.x) >= pace * answer.value * (1 - 1e-12)).all(), seed
        assert answer.value <= answer.bound, seed
        assert answer.gap <= NEED, seed
        assert violation(posed, answer.x) <= NEED, seed


@pytest.mark.parametrize("seeds", [range(100), SOAK])
@pytest.mark.usefixtures("small")
def test_max_sum_agrees_with_highs_with_and_without_floors(seeds: range) -> None:
    for seed in seeds:
        posed, weight = instance(seed)
        pace = weight * proportional(posed) / posed.scale
        rng, (rows, limits, _) = np.random.default_rng(seed), rows_of(posed)
        answer = max_sum(posed, posed.rate)
        unit = posed.rate.max()
        known = solve(posed.rate.ravel() / unit, rows, limits) * unit
        assert answer.value == pytest.approx(known, rel=NEED), seed
        assert answer.gap <= NEED, seed
        level = max_min(posed, pace).value
        floor = pace * level * rng.uniform(0.2, 0.999) * (rng.random(len(pace)) < 0.5)
        held = max_sum(posed, posed.rate, floor)
        assert (posed.effective(held.x) >= floor * (1 - NEED)).all(), seed
        assert violation(posed, held.x) <= NEED, seed
        assert held.gap <= NEED, seed
        assert held.value <= answer.value * (1 + NEED), seed


@st.composite
def nasty(draw: st.DrawFn) -> tuple[Shares, Floats]:
    """Degenerate rows, zeros, one type, gangs wider than a type, spans of twelve decades."""
    m = draw(st.integers(1, 4))
    row = st.lists(st.sampled_from([0.0, 1e-6, 1.0, 1.0, 2.0, 1e6]), min_size=m, max_size=m)
    rows = draw(st.lists(row.filter(any), min_size=1, max_size=24))
    n = len(rows)

    def column(of: list[float], size: int) -> Floats:
        return np.array(draw(st.lists(st.sampled_from(of), min_size=size, max_size=size)))

    posed = shares(np.array(rows), column([1, 2, 64], n), column([1, 3, 500], m))
    return posed, column([1e-3, 1, 1e3], n)


@given(nasty())
def test_nasty_instances_agree_with_highs_too(case: tuple[Shares, Floats]) -> None:
    agrees(*case)


@pytest.mark.soak
@given(nasty())
def test_thousands_of_nasty_instances_agree_with_highs(case: tuple[Shares, Floats]) -> None:
    agrees(*case)


def agrees(posed: Shares, weight: Floats) -> None:
    """Max-min, fully held against HiGHS."""
    pace = weight * proportional(posed) / posed.scale
    with little():
        answer = max_min(posed, pace)
    rows, limits, eff = rows_of(posed)
    level = answer.value  # HiGHS' absolute tolerances want numbers near 1
    known = largest_level(rows, limits, eff, pace * level, np.zeros(len(pace))) * level
    assert answer.value == pytest.approx(known, rel=NEED)
    assert violation(posed, answer.x) <= NEED
    assert answer.gap <= NEED


def test_the_prices_are_what_one_more_machine_is_worth() -> None:
    """Against a difference quotient of a large enough instance."""
    rng = np.random.default_rng(3)
    posed = shares(rng.lognormal(0, 1, (600, 3)), np.ones(600), np.array([40.0, 60.0, 80.0]))
    pace = proportional(posed)
    answer = max_min(posed, pace)
    for kind in range(3):
        more = posed.capacity.copy()
        more[kind] += 0.01
        quotient = (max_min(posed._replace(capacity=more), pace).value - answer.value) / 0.01
        assert answer.prices[kind] == pytest.approx(quotient, rel=0.01)


def test_equal_jobs_get_equal_parts_and_cost_nothing_extra() -> None:
    rate = np.array([[3.0, 1.0], [1.0, 2.0]]).repeat(5000, axis=0)
    posed = shares(rate, np.ones(10_000), np.array([900.0, 1500.0]))
    answer = max_min(posed, proportional(posed))
    few = shares(rate[[0, 5000]], np.array([5000.0, 5000]), posed.capacity)
    assert answer.value == pytest.approx(max_min(few, proportional(few)).value, rel=1e-12)
    assert np.ptp(answer.x[:5000], axis=0).tolist() == [0.0, 0.0]


@pytest.mark.usefixtures("small")
def test_a_warm_start_changes_nothing_but_the_work() -> None:
    for seed in range(30):
        posed, weight = instance(seed)
        pace = weight * proportional(posed) / posed.scale
        cold = max_min(posed, pace)
        for warm in (Warm(cold.prices, cold.value), Warm(cold.prices * 100, cold.value / 3)):
            assert max_min(posed, pace, warm=warm).value == pytest.approx(cold.value, rel=NEED)


@pytest.mark.usefixtures("small")
def test_twice_the_same_is_the_same_to_the_bit() -> None:
    posed, weight = instance(7)
    pace = weight * proportional(posed)
    assert np.array_equal(max_min(posed, pace).x, max_min(posed, pace).x)


def test_stopped_at_once_the_answer_is_feasible_and_its_gap_is_true() -> None:
    rng = np.random.default_rng(0)
    posed = shares(rng.lognormal(0, 1, (3000, 4)), np.ones(3000), np.full(4, 200.0))
    pace, best = proportional(posed), max_min(posed, proportional(posed)).value
    answer = max_min(posed, pace, stop=lambda: True)
    assert violation(posed, answer.x) <= NEED
    assert answer.value <= best * (1 + NEED)
    assert answer.bound >= best * (1 - NEED)
    assert 0 < answer.gap < 0.9


def test_without_steps_highs_gets_it_whole() -> None:
    posed, weight = instance(5, 400)
    pace = weight * proportional(posed)
    few = max_min(posed, pace, steps=0)
    assert few.value == pytest.approx(max_min(posed, pace, steps=STEPS).value, rel=NEED)


def test_floors_out_of_reach_are_infeasible_and_name_who() -> None:
    posed = shares(np.ones((3, 1)), np.ones(3), np.array([10.0]))
    with pytest.raises(Infeasible) as said:
        max_sum(posed, posed.rate, np.array([0.5, 2.0, 1.0]))
    assert said.value.rows.tolist() == [1]
    with pytest.raises(Infeasible):
        max_sum(posed._replace(capacity=np.array([1.0])), posed.rate, np.full(3, 0.5))


# ---------------------------------------------------------------------- over the same oracle


def bisected(posed: Shares, left: Floats, age: Floats, whole: Floats) -> float:
    """The smallest largest rho, by bisection on feasibility."""
    rows, limits, eff = rows_of(posed)
    low, high = float((age / whole).max()), 1e6
    for _ in range(60):
        rho = np.sqrt(max(low, 1e-6) * high)
        time = rho * whole - age
        asked = left / np.maximum(time, 1e-12)
        fits = (time > 0).all() and largest_level(rows, limits, eff, asked, 0 * asked) >= 1
        low, high = (low, rho) if fits else (rho, high)
    return high


@pytest.mark.usefixtures("small")
def test_the_search_finds_what_bisection_finds() -> None:
    for seed in range(10):
        posed, _ = instance(seed, 30)
        rng = np.random.default_rng(seed)
        left = rng.lognormal(5, 1, len(posed.scale))
        age = rng.uniform(0, 2, len(left)) * left / posed.fastest()
        whole = age * rng.uniform(0.1, 1, len(left)) + left / isolated(posed)

        def demand(part: float, left=left, age=age, whole=whole) -> np.ndarray:  # type: ignore[no-untyped-def]
            return np.asarray(left * part / (whole - age * part))

        def reached(eff: np.ndarray, left=left, age=age, whole=whole) -> float:  # type: ignore[no-untyped-def]
            return float((whole / (age + left / eff)).min())

        start, top = reached(isolated(posed)), reached(posed.fastest())
        found = largest(SharesPool(posed), demand, start, top)
        assert found.gap <= NEED
        assert 1 / found.value == pytest.approx(bisected(posed, left, age, whole), rel=1e-5), seed
        assert reached(posed.effective(found.answer.x)) == pytest.approx(found.value, rel=NEED)
        assert found.steps <= 30


@pytest.mark.parametrize("seeds", [range(40), SOAK])
def test_water_filling_agrees_with_its_definition(seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, m = int(rng.integers(2, 9)), int(rng.integers(1, 4))
        rate = rng.integers(0, 5, (n, m)) if seed % 2 else rng.lognormal(0, 1, (n, m))
        rate = np.where(rate.max(axis=1, keepdims=True) > 0, rate, 1.0).astype(np.float64)
        posed = shares(rate, rng.choice([1.0, 2, 4], n), rng.choice([1.0, 2, 3, 6], m))
        unit = rng.choice([1.0, 2, 5], n) * proportional(posed)
        filled = water_filling(SharesPool(posed), posed.capacity, unit)
        known = water_levels(*rows_of(posed), unit, lambda free: np.ones(len(free)))
        assert np.sort(filled.level / unit) == pytest.approx(np.sort(known / unit), rel=2e-5), seed
        assert (posed.effective(filled.answer.x) >= filled.level * (1 - NEED)).all(), seed
        assert violation(posed, filled.answer.x) <= NEED, seed
        assert filled.rounds <= 2 * m + 2, seed
