"""One kind of machines: the closed forms say what HiGHS and the definitions say."""

from __future__ import annotations

import numpy as np
import pytest

from ganger.solve.division.hierarchy import Tree
from ganger.solve.division.lexicographic import _full, _Path, water_filling
from ganger.solve.division.programme import Floats, Shares, isolated, shares
from ganger.solve.division.search import largest
from ganger.solve.division.shares import SharesPool, max_min, max_sum
from ganger.solve.division.sole import Sole
from ganger.solve.highs import Infeasible
from solve.instances import NEED, instance, largest_level, rows_of, solve, violation, water_levels

SOAK = pytest.param(range(1000, 3000), marks=[pytest.mark.soak, pytest.mark.timeout(3000)])


def one_kind(seed: int, most: int = 120) -> tuple[Shares, Floats]:
    """Some with half their time or without a way to run, gangs wider than the cluster."""
    posed, weight = instance(seed, most)
    rate = posed.rate[:, :1].copy()
    if seed % 5:
        rate[rate == 0] = 1.0
    rng = np.random.default_rng(seed)
    limit = rng.choice([1.0, 0.5], len(rate)) if seed % 4 else 1.0
    return shares(rate, posed.scale, posed.capacity[:1], limit), weight


def pace_of(posed: Shares, weight: Floats) -> Floats:
    """Weighted fair units, 0 for some."""
    pace = np.where(posed.rate[:, 0] > 0, weight * posed.rate[:, 0] / posed.scale, 0.0)
    if not pace.any():
        pace[0] = 1.0
    return pace


@pytest.mark.parametrize("seeds", [range(150), SOAK])
def test_the_largest_level_is_that_of_highs(seeds: range) -> None:
    for seed in seeds:
        posed, weight = one_kind(seed)
        pace = pace_of(posed, weight)
        answer = max_min(posed, pace)
        known = largest_level(*rows_of(posed), pace, np.zeros(len(pace)))
        assert answer.value == pytest.approx(known, rel=NEED), seed
        assert answer.gap <= 1e-9, seed
        assert violation(posed, answer.x) <= 1e-12, seed
        floor = pace * answer.value * np.random.default_rng(seed).uniform(0, 1, len(pace))
        held = max_min(posed, pace, floor)
        eff = posed.effective(held.x)
        assert (eff >= (floor + pace * held.value) * (1 - 1e-9)).all(), seed
        assert held.gap <= 1e-9, seed


@pytest.mark.parametrize("seeds", [range(150), SOAK])
def test_the_largest_sum_is_that_of_highs_and_floors_are_held(seeds: range) -> None:
    for seed in seeds:
        posed, weight = one_kind(seed)
        rng, (rows, limits, _) = np.random.default_rng(seed), rows_of(posed)
        gain = posed.rate * rng.choice([-1.0, 0.5, 1.0, 2.0], posed.rate.shape)
        unit = np.abs(gain).max() or 1.0
        answer = max_sum(posed, gain)
        known = solve(gain.ravel() / unit, rows, limits) * unit
        assert answer.value == pytest.approx(known, rel=NEED, abs=NEED * unit), seed
        pace = pace_of(posed, weight)
        level = max_min(posed, pace).value
        floor = pace * level * rng.uniform(0.2, 0.999) * (rng.random(len(pace)) < 0.5)
        held = max_sum(posed, gain, floor)
        assert (posed.effective(held.x) >= floor * (1 - NEED)).all(), seed
        assert violation(posed, held.x) <= 1e-12, seed
        assert held.bound - held.value <= 1e-9 * max(abs(held.value), unit), seed


@pytest.mark.parametrize("seeds", [range(40), SOAK])
def test_water_filling_is_its_definition(seeds: range) -> None:
    for seed in seeds:
        posed, weight = one_kind(seed, 9)
        posed = posed._replace(rate=np.maximum(posed.rate, 1e-2))
        unit = pace_of(posed, np.clip(weight, 0.1, 10))
        filled = water_filling(SharesPool(posed), posed.capacity, unit)
        known = water_levels(*rows_of(posed), unit, lambda free: np.ones(len(free)))
        assert filled.level / unit == pytest.approx(known / unit, rel=2e-5), seed
        assert posed.effective(filled.answer.x) == pytest.approx(filled.level, rel=1e-9), seed
        least = float((filled.level / unit).min())
        assert filled.even.value == pytest.approx(least, rel=1e-9), seed


@pytest.mark.parametrize("seeds", [range(40), SOAK])
def test_so_it_is_where_weights_flow_down_a_tree(seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 9))
        rate, scale = rng.integers(1, 5, (n, 1)), rng.choice([1.0, 2, 4], n)
        posed = shares(rate.astype(float), scale, rng.choice([1.0, 2, 3, 6], 1))
        tree = Tree(
            np.array([0, 0, 0, 1]),
            np.array([1.0, 2.0, 1.0, 3.0]),
            np.array([False, False, bool(seed % 2), False]),
            rng.integers(0, 4, n),
            np.ones(n),
        )
        unit = posed.rate[:, 0] / posed.scale
        filled = water_filling(SharesPool(posed), posed.capacity, unit, tree.parts)
        assert filled.level == pytest.approx(raised(posed, unit, tree), abs=1e-9), seed


def raised(posed: Shares, unit: Floats, tree: Tree) -> Floats:
    """By its definition: on until somebody is at the cap, or the machines are all in use."""
    cap, cost = posed.fastest(), posed.scale / posed.rate[:, 0]
    level, open_ = np.zeros(len(cap)), cap > 0
    while open_.any():
        pace = tree.parts(open_) * unit
        room = np.where(pace > 0, (cap - level) / np.maximum(pace, 1e-300), np.inf)
        left = float((posed.capacity[0] - cost @ level) / (cost @ pace))
        level = level + pace * min(float(room.min()), left)
        if left <= room.min():
            break
        open_ &= room > room.min() * (1 + 1e-12)
    return level


def test_many_who_stop_one_by_one_are_all_passed() -> None:
    """More than one search passes: jobs of a FIFO entity, one behind the other."""
    n = 400
    posed = shares(np.ones((n, 1)), np.ones(n), np.array([300.5]))
    tree = Tree(np.zeros(1, int), np.ones(1), np.ones(1, bool), np.zeros(n, int), np.ones(n))
    level = water_filling(SharesPool(posed), posed.capacity, np.ones(n), tree.parts).level
    assert level.tolist() == [1.0] * 300 + [0.5] + [0.0] * 99


def test_a_search_reaches_what_it_says_and_nothing_more_fits() -> None:
    for seed in range(60):
        posed, _ = one_kind(seed)
        posed = posed._replace(rate=np.maximum(posed.rate, 1e-2))
        rng = np.random.default_rng(seed)
        left = rng.lognormal(5, 1, len(posed.scale))
        age = rng.uniform(0, 2, len(left)) * left / posed.fastest()
        whole = age * rng.uniform(0.1, 1, len(left)) + left / isolated(posed)

        def demand(part: float, left=left, age=age, whole=whole) -> Floats:  # type: ignore[no-untyped-def]
            return np.asarray(left * part / (whole - age * part))

        def reached(eff: Floats, left=left, age=age, whole=whole) -> float:  # type: ignore[no-untyped-def]
            return float((whole / (age + left / eff)).min())

        top = reached(posed.fastest())
        found = largest(SharesPool(posed), demand, reached(isolated(posed)), top)
        assert reached(posed.effective(found.answer.x)) >= found.value * (1 - 1e-9), seed
        more = max_min(posed, demand(found.value * (1 + 1e-6))) if found.value < top else None
        assert more is None or more.value < 1, seed


def test_equal_jobs_get_equal_parts_of_what_is_left() -> None:
    posed = shares(np.ones((6, 1)), np.array([1.0, 1, 1, 4, 4, 4]), np.array([9.0]))
    x = max_sum(posed, posed.rate, np.full(6, 0.1)).x[:, 0]
    assert x == pytest.approx([1.0] * 3 + [0.5] * 3)


def test_the_price_is_what_one_more_machine_is_worth() -> None:
    posed = shares(np.array([[3.0], [2.0], [1.0]]), np.ones(3), np.array([1.5]))
    assert max_sum(posed, posed.rate).prices.tolist() == [2.0]
    assert max_min(posed, np.ones(3)).prices == pytest.approx([1 / (1 / 3 + 1 / 2 + 1)])


def test_floors_beyond_the_machines_name_who_asks() -> None:
    posed = shares(np.ones((3, 1)), np.ones(3), np.array([1.0]))
    with pytest.raises(Infeasible) as said:
        max_min(posed, np.ones(3), np.array([0.8, 0.0, 0.8]))
    assert said.value.rows.tolist() == [0, 2]


def test_nobody_who_can_run_is_no_level() -> None:
    posed = shares(np.array([[0.0], [1.0]]), np.ones(2), np.array([1.0]))
    assert max_min(posed, np.ones(2)).value == 0.0


def test_machines_that_rounding_overfills_lift_nobody() -> None:
    """A round may end with the machines over-full by the last bit; the next begins there."""
    one = Sole(np.ones(2), np.ones(2), 1.0)
    full = np.array([0.5, 0.5 + 2.0**-52])
    path = _Path([0.0, 1.0], [full, np.ones(2)], [1.0 - full, np.zeros(2)], np.ones(2), 1.0)
    time, level = _full(one, path, full, np.ones(2), None)
    assert time == 0.0
    assert level.tolist() == full.tolist()
