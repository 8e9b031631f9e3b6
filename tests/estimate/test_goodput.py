"""Pollux's goodput model: hand checks, the best batch, and the fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.profiles import Goodput, StepModel
from ganger.estimate.goodput import (
    batches,
    best,
    computing_time,
    efficiency,
    fit,
    step_time,
    throughput,
)

MODEL = StepModel(0.02, 0.001, 0.3, 0.01, 0.05, 0.005, 2.0)
JOB = Goodput(batch=100, most=3200, local=(10, 200), examples=1e6, noise=((900.0,),), model=MODEL)


def test_efficiency_of_the_card() -> None:
    """phi = 9 M0, M = 4 M0: 10/13."""
    assert efficiency(900.0, 100.0, 400.0) == pytest.approx(10 / 13)
    assert efficiency(900.0, 100.0, 100.0) == 1.0


def test_step_time_by_hand() -> None:
    """Computing 0.02 + 0.001 x 50 = 0.07; four replicas: inside a node 0.05 + 2 x 0.005 = 0.06,
    across 0.3 + 2 x 0.01 = 0.32; gamma 2 adds squares."""
    assert step_time(MODEL, 1, 1, 50) == pytest.approx(0.07)
    assert step_time(MODEL, 1, 4, 50) == pytest.approx(np.hypot(0.07, 0.06))
    assert step_time(MODEL, 2, 4, 50) == pytest.approx(np.hypot(0.07, 0.32))


def test_gamma_one_adds_and_a_large_gamma_overlaps() -> None:
    for gamma, expected in ((1.0, 0.39), (10.0, 0.32)):
        model = StepModel(0.02, 0.001, 0.3, 0.01, gamma=gamma)
        assert step_time(model, 2, 4, 50) == pytest.approx(expected, rel=1e-3)


@given(st.integers(1, 64))
def test_batches_keep_the_limits(replicas: int) -> None:
    ways = batches(JOB, replicas)
    assert (ways.total >= JOB.batch).all()
    assert (ways.total <= JOB.most).all()
    assert (ways.local <= JOB.local[1] + 1e-9).all()
    assert ways.total == pytest.approx(replicas * ways.local * (ways.extra + 1))


@given(st.integers(1, 16), st.floats(10, 1e6))
def test_the_best_batch_is_the_best(replicas: int, noise: float) -> None:
    nodes = -(-replicas // 4)
    found = best(JOB, noise, nodes, replicas)
    ways = batches(JOB, replicas)
    value = throughput(MODEL, nodes, replicas, ways) * efficiency(noise, JOB.batch, ways.total)
    assert found.goodput == pytest.approx(value.max())
    assert JOB.batch <= found.batch <= JOB.most


def test_noise_makes_large_batches_good() -> None:
    low, high = (best(JOB, noise, 4, 16) for noise in (50.0, 50000.0))
    assert low.batch < high.batch
    assert low.goodput < high.goodput


def test_many_configurations_at_once() -> None:
    nodes, replicas = np.array([1, 1, 2]), np.array([1, 4, 8])
    many = best(JOB, 900.0, nodes, replicas).goodput
    one = [float(best(JOB, 900.0, k, n).goodput) for k, n in zip(nodes, replicas, strict=True)]
    assert many.tolist() == pytest.approx(one)


def seen() -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
    points = [
        (k, n, b)
        for k, n in ((1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (4, 16))
        for b in (20, 50, 100, 200)
    ]
    nodes, replicas, local = (np.array(x, np.float64) for x in zip(*points, strict=True))
    return nodes, replicas, local


def test_the_fit_recovers_a_known_model() -> None:
    nodes, replicas, local = seen()
    step = step_time(MODEL, nodes, replicas, local)
    found = fit(nodes, replicas, local, step, computing_time(MODEL, local))
    told = step_time(found, nodes, replicas, local)
    assert told == pytest.approx(step, rel=0.02)
    assert float(step_time(found, 4, 12, 80)) == pytest.approx(
        float(step_time(MODEL, 4, 12, 80)), rel=0.05
    )


def test_what_was_never_seen_is_taken_as_free() -> None:
    """Prior: a job that ran on one GPU only believes that more scale perfectly."""
    local = np.array([20.0, 50, 100, 200])
    alone = computing_time(MODEL, local)
    found = fit(np.ones(4), np.ones(4), local, alone, alone)
    assert float(step_time(found, 4, 16, 100)) == pytest.approx(float(alone[2]), rel=0.02)


def test_the_fit_is_deterministic_and_wants_points() -> None:
    nodes, replicas, local = seen()
    step = step_time(MODEL, nodes, replicas, local)
    args = nodes, replicas, local, step, computing_time(MODEL, local)
    assert fit(*args) == fit(*args)
    with pytest.raises(BadInput, match="no step times"):
        fit([], [], [], [], [])
