"""Choices, leases and matchings: by hand, by enumeration, and when the budget is nothing."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ganger.solve.integral import multiple_choice, pack_leases
from ganger.solve.matching import assign


def test_sias_table_1_is_5_6() -> None:
    """J1 on 4 B, J2 on 2 A; the configurations are 1A, 2A, 1B, 2B, 4B."""
    gain = np.array([1, 1.5, 1.5, 2.5, 3.5, 1.2, 2.1, 1, 1.9, 3.6])
    take = np.array([[1.0, 0], [2, 0], [0, 1], [0, 2], [0, 4]] * 2)
    found = multiple_choice(gain, np.arange(10) // 5, take, np.array([2.0, 4.0]))
    assert np.flatnonzero(found.taken).tolist() == [4, 6]
    assert found.value == pytest.approx(5.6)
    assert found.bound == pytest.approx(5.6)


def test_choices_agree_with_enumeration_and_greedy_is_never_better() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        groups, options = int(rng.integers(1, 5)), 3
        gain = rng.integers(-1, 9, groups * options).astype(float)
        take = rng.integers(0, 4, (groups * options, 2)).astype(float)
        capacity = rng.integers(0, 7, 2).astype(float)
        group = np.repeat(np.arange(groups), options)
        best = 0.0
        for picks in product(range(options + 1), repeat=groups):
            rows = [g * options + pick - 1 for g, pick in enumerate(picks) if pick]
            if (take[rows].sum(axis=0) <= capacity).all():
                best = max(best, float(gain[rows].sum()))
        found = multiple_choice(gain, group, take, capacity)
        assert found.value == pytest.approx(best), seed
        assert (take[found.taken].sum(axis=0) <= capacity).all()
        assert np.bincount(group[found.taken], minlength=groups).max() <= 1
        few = multiple_choice(gain, group, take, capacity, nodes=0)
        assert few.value <= best + 1e-9 <= few.bound + 2e-9
        assert (take[few.taken].sum(axis=0) <= capacity).all()


def test_chronus_runs_b_first_and_refuses_a_further_job() -> None:
    """4 GPUs; A (4 GPUs, 2 leases, due 4), B (2, 2, due 2): B in 0-1, A in 2-3."""
    gpus, leases, due = np.array([4, 2]), np.array([2, 2]), np.array([4, 2])
    found = pack_leases(gpus, leases, due, np.ones(2), np.full(4, 4))
    assert found.runs.tolist() == [[False, False, True, True], [True, True, False, False]]
    more = pack_leases(
        np.array([4, 2, 2, 1]),
        np.array([2, 2, 2, 1]),
        np.array([4, 2, 2, 4]),
        np.array([4.0, 4, 4, 1]),
        np.full(4, 4),
    )
    assert more.runs.any(axis=1).tolist() == [True, True, True, False]


def test_leases_agree_with_enumeration() -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n, t = int(rng.integers(1, 4)), 3
        gpus, need = rng.integers(1, 4, n), rng.integers(1, 3, n)
        due, free = rng.integers(1, 4, n), rng.integers(1, 5, t)
        plans = [
            [None]
            + [p for p in product((0, 1), repeat=t) if sum(p) == need[i] and not any(p[due[i] :])]
            for i in range(n)
        ]
        best = max(
            sum(p is not None for p in picks)
            for picks in product(*plans)
            if (
                sum(
                    (gpus[i] * np.array(p) for i, p in enumerate(picks) if p is not None),
                    np.zeros(t),
                )
                <= free
            ).all()
        )
        found = pack_leases(gpus, need, due, np.ones(n), free)
        assert found.value == pytest.approx(best), seed
        assert (gpus @ found.runs <= free).all()


def test_alloxs_two_jobs() -> None:
    """J1 (CPU 10, GPU 1), J2 (CPU 2.5, GPU 2): J1 on the GPU, J2 on the CPU, sum 3.5."""
    found = assign(np.array([[10.0, 1.0], [2.5, 2.0]]), np.array([1, 1]))
    assert found.group.tolist() == [1, 0]
    assert found.cost == 3.5
    assert assign(np.array([[np.inf, 1.0], [np.inf, 2.0]]), np.array([1, 1])).cost == 4.0


def completion(processing: np.ndarray, machines: list[int], who: tuple[int, ...]) -> float:
    """The least sum of completion times of a division: shortest first on every machine."""
    total = 0.0
    for machine, group in enumerate(machines):
        times = np.sort([processing[i, group] for i in range(len(who)) if who[i] == machine])
        total += float(np.cumsum(times).sum())
    return total


def test_matchings_agree_with_enumeration() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, groups = int(rng.integers(1, 6)), int(rng.integers(1, 3))
        processing = rng.integers(1, 20, (n, groups)).astype(float)
        count = rng.integers(1, 3, groups)
        machines = [g for g in range(groups) for _ in range(count[g])]
        best = min(
            completion(processing, machines, who) for who in product(range(len(machines)), repeat=n)
        )
        found = assign(processing, count)
        assert found.cost == pytest.approx(best), seed
        places = {
            (g, m, k) for g, m, k in zip(found.group, found.machine, found.place, strict=True)
        }
        assert len(places) == n


def test_machines_that_are_busy_are_waited_for() -> None:
    """Two jobs of 1: one waits 0.5 for the other machine rather than 1 for the first."""
    found = assign(np.ones((2, 2)), np.array([1, 1]), np.array([0.0, 0.5]))
    assert sorted(found.group.tolist()) == [0, 1]
    assert found.cost == 2.5


def test_a_job_that_runs_nowhere_is_an_error() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        assign(np.full((1, 1), np.inf), np.array([1]))
