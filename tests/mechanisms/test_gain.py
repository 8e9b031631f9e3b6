"""The marginal-gain rules against hand calculations, brute force, and each other."""

from __future__ import annotations

from functools import reduce
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.mechanisms.gain import Curve, _weighed, afs, exact, greedy

OPTIMUS = [np.array([1, 1.8, 2.4, 2.4]), np.array([1, 1.5, 1.7, 1.7])]
WORK = [100.0, 60.0]
LINEAR = [np.array([1.0, 2, 3, 4]), np.array([1, 1.1, 1.15, 1.2])]


def test_optimus_card() -> None:
    assert greedy(OPTIMUS, WORK, 4, [1, 1]) == [2, 2]


def test_afs_on_the_optimus_card() -> None:
    assert afs(OPTIMUS, WORK, 4, [1, 1]) == [2, 2]


def mean_jct(sizes: list[int]) -> float:
    """Of two jobs on `LINEAR`; the survivor grows to all four GPUs."""
    left, now, finish = list(WORK), 0.0, dict[int, float]()
    while len(finish) < 2:
        alive = [i for i in (0, 1) if i not in finish]
        size = sizes if len(alive) == 2 else [4, 4]
        rate = [LINEAR[i][size[i] - 1] if size[i] else 0.0 for i in alive]
        took = min(left[i] / r for i, r in zip(alive, rate, strict=True) if r)
        now += took
        for i, r in zip(alive, rate, strict=True):
            left[i] -= took * r
            if left[i] < 1e-9:
                finish[i] = now
    return sum(finish.values()) / 2


def test_afs_gives_the_efficient_job_more_and_that_is_better() -> None:
    assert afs(LINEAR, WORK, 4, [1, 1]) == [3, 1]
    assert mean_jct([3, 1]) == pytest.approx(44.44, abs=0.01)
    assert mean_jct([2, 2]) == pytest.approx(52.08, abs=0.01)
    assert mean_jct([0, 4]) == pytest.approx(62.5)


def afs_in_words(curves: list[Curve], work: list[float], gpus: int, slip: bool) -> list[int]:
    """The rule as published, job by job; with the public slip that takes the first job's worker
    count for the second job's length."""
    sizes = [0] * len(curves)

    def speed(job: int, size: int) -> float:
        return float(curves[job][size - 1]) if size else 0.0

    def length(job: int, size: int) -> float:
        return work[job] / speed(job, size) if size else float("inf")

    def winner(i: int, j: int) -> int:
        if sizes[i] == sizes[j] == 0:
            return i if length(i, 1) <= length(j, 1) else j
        swapped = length(i, sizes[i]) > length(j, sizes[i] if slip else sizes[j])
        a, b = (j, i) if swapped else (i, j)
        gain_a = speed(a, sizes[a] + 1) - speed(a, sizes[a])
        gain_b = speed(b, sizes[b] + 1) - speed(b, sizes[b])
        base = speed(a, sizes[a])
        return b if base and gain_b / speed(b, sizes[b] + 1) > gain_a / base else a

    for _ in range(gpus):
        able = [i for i, curve in enumerate(curves) if sizes[i] < len(curve)]
        if not able:
            break
        sizes[reduce(winner, able)] += 1
    return sizes


def test_afs_reads_each_jobs_own_size() -> None:
    curves = [np.array([1.0, 1.4, 2.0, 2.6]), np.array([1.0, 1.9, 2.7, 3.4])]
    assert afs(curves, [40.0, 70.0], 4, [1, 1]) == [1, 3]
    assert afs_in_words(curves, [40.0, 70.0], 4, slip=True) == [2, 2]


@given(st.data(), st.integers(0, 9))
def test_afs_is_the_rule_in_words(data: st.DataObject, gpus: int) -> None:
    gains = st.lists(st.floats(0.1, 3.0), min_size=4, max_size=4)
    curves = [np.cumsum(data.draw(gains)) for _ in range(data.draw(st.integers(1, 4)))]
    work = [data.draw(st.floats(1, 100)) for _ in curves]
    ours = afs(curves, work, gpus, [1] * len(curves))
    assert ours == afs_in_words(curves, work, gpus, slip=False)


def test_exact_card() -> None:
    sizes, value = exact(OPTIMUS, 4, [1, 1])
    assert sizes == [3, 1]
    assert value == pytest.approx(3.4)


def test_three_rules_on_one_instance_are_three_rules() -> None:
    """Survey of the family: neither is a renamed copy of another."""
    assert greedy(OPTIMUS, WORK, 4, [1, 1]) != exact(OPTIMUS, 4, [1, 1])[0]
    assert greedy(LINEAR, [100.0, 2000.0], 4, [1, 1]) != afs(LINEAR, [100.0, 2000.0], 4, [1, 1])
    assert afs(OPTIMUS, WORK, 4, [1, 1]) != exact(OPTIMUS, 4, [1, 1])[0]


def test_attained_service_variant_ignores_remaining_work() -> None:
    curves = [np.array([1.0, 1.6]), np.array([1.0, 1.6]), np.array([1.0, 1.6])]
    assert afs(curves, [5.0, 1.0, 3.0], 2, [1, 1, 1], shrinking=False) == [0, 1, 1]


def test_greedy_gives_nothing_where_nothing_falls() -> None:
    assert greedy([np.array([1.0, 1.0, 3.0])], [10.0], 3, [1]) == [1]


def test_a_step_may_cost_several_gpus() -> None:
    curves = [np.array([1.0, 2.0, 3.0])] * 2
    assert greedy(curves, [10.0, 10.0], 5, [1, 1], [2, 1]) == [1, 3]
    assert afs(curves, [10.0, 10.0], 5, [1, 1], [2, 1])[0] <= 2
    assert exact(curves, 5, [1, 1], [2, 1])[0] == [1, 3]


def instances() -> st.SearchStrategy[tuple[list[Curve], list[float], int, list[int]]]:
    """Up to four jobs with any positive curves, at most eight GPUs."""
    curve = st.lists(st.floats(0.05, 5.0), min_size=1, max_size=4).map(
        lambda gains: np.cumsum(np.array(gains))
    )
    job = st.tuples(curve, st.floats(0.1, 1e6), st.integers(1, 4))
    return st.tuples(st.lists(job, max_size=4), st.integers(0, 8)).map(
        lambda drawn: (
            [c for c, _, _ in drawn[0]],
            [w for _, w, _ in drawn[0]],
            drawn[1],
            [min(n, len(c)) for c, _, n in drawn[0]],
        )
    )


@given(instances())
def test_sizes_hold_capacity_and_limits(
    case: tuple[list[Curve], list[float], int, list[int]],
) -> None:
    curves, work, capacity, least = case
    answers = [
        greedy(curves, work, capacity, least),
        afs(curves, work, capacity, least),
        afs(curves, work, capacity, least, shrinking=False),
        exact(curves, capacity, least)[0],
    ]
    for sizes in answers:
        assert sum(sizes) <= capacity
        for n, low, curve in zip(sizes, least, curves, strict=True):
            assert n == 0 or low <= n <= len(curve)


@given(instances())
def test_exact_is_exact(case: tuple[list[Curve], list[float], int, list[int]]) -> None:
    curves, _, capacity, least = case
    sizes, value = exact(curves, capacity, least)
    kept = int((np.cumsum(least) <= capacity).sum())
    choices = [range(n, len(c) + 1) for n, c in zip(least[:kept], curves, strict=False)]
    best = max(
        sum(float(c[n - 1]) for c, n in zip(curves, picked, strict=False))
        for picked in product(*choices)
        if sum(picked) <= capacity
    )
    assert value == pytest.approx(best)
    total = sum(float(c[n - 1]) for c, n in zip(curves, sizes, strict=True) if n)
    assert value == pytest.approx(total)


@pytest.mark.parametrize("jobs", [300])
def test_hundreds_of_jobs_decide_quickly(jobs: int) -> None:
    """Counts, not seconds: it must simply be feasible in a test."""
    rng = np.random.default_rng(7)
    curves = [np.cumsum(rng.uniform(0.2, 1, 64)) for _ in range(jobs)]
    work = rng.lognormal(8, 1, jobs).tolist()
    for sizes in (
        greedy(curves, work, 512, [1] * jobs),
        afs(curves, work, 512, [1] * jobs),
        exact(curves, 512, [1] * jobs)[0],
    ):
        assert sum(sizes) == 512


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from([1.0, 1.5, 2.0]), min_size=1, max_size=4),
                  st.integers(1, 2)),
        min_size=1, max_size=5,
    ),
    st.integers(1, 40),
)  # fmt: skip
def test_where_there_is_enough_exact_is_what_the_programme_says(
    drawn: list[tuple[list[float], int]], capacity: int
) -> None:
    """Ties included: flat curves, and several units."""
    curves, units = [np.array(curve) for curve, _ in drawn], [unit for _, unit in drawn]
    least = [1] * len(curves)
    kept = int((np.cumsum(units) <= capacity).sum())
    assert exact(curves, capacity, least, units) == _weighed(curves, capacity, least, units, kept)
