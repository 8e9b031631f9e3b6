"""Divisions of time from inside: equal jobs get equal parts, and the path is that of the rows."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from ganger.solve.division.interior_shares import feasible, highest
from ganger.solve.division.programme import Floats, Shares, shares
from ganger.solve.interior import interior
from solve.instances import violation


def crowd(seed: int, jobs: int = 24) -> tuple[Shares, Floats]:
    """Jobs of which many are equal, on three types, and what counts as 1 for each."""
    rng = np.random.default_rng(seed)
    kinds = rng.uniform(0.1, 9, (5, 3))
    pick, weight = rng.integers(0, 5, jobs), rng.choice([1.0, 5.0], jobs)
    rate, scale = kinds[pick], rng.choice([1.0, 1.0, 2.0], jobs)
    return shares(rate, scale, np.array([4.0, 5.0, 3.0])), weight * rate.mean(axis=1) / scale


def asked(posed: Shares, floor: Floats) -> tuple[sparse.csr_array, Floats]:
    """x >= 0, the kinds, everybody's time and throughput, a row for each."""
    n, k = posed.rate.shape
    own, kinds, time = (
        -np.eye(n * k),
        np.kron(posed.scale, np.eye(k)),
        np.kron(np.eye(n), np.ones(k)),
    )
    speed = -time * posed.rate.ravel()
    most = np.concatenate([np.zeros(n * k), posed.capacity, posed.limit, -floor])
    return sparse.csr_array(np.vstack([own, kinds, time, speed])), most


@pytest.mark.parametrize("seed", range(6))
def test_equal_jobs_get_equal_parts_to_the_last_bit(seed: int) -> None:
    posed, unit = crowd(seed)
    x = highest(posed, unit)
    alike = np.column_stack([posed.rate, posed.scale, unit])
    for job in range(len(x)):
        same = (alike == alike[job]).all(axis=1)
        assert (x[same] == x[job]).all()
    assert violation(posed, x) < 1e-7


@pytest.mark.parametrize("seed", range(6))
def test_blocks_end_where_all_rows_together_do(seed: int) -> None:
    posed, unit = crowd(seed)
    n, k = posed.rate.shape
    even = posed._replace(rate=posed.rate / unit[:, None])
    rows, most = asked(even, np.zeros(n))
    rise = np.concatenate([np.zeros(len(most) - n), np.ones(n)])[:, None]
    cost = np.append(np.zeros(n * k), -1.0)
    whole = interior(cost, sparse.hstack([rows, sparse.csr_array(rise)]), most)
    assert highest(posed, unit) == pytest.approx(whole[:-1].reshape(n, k), abs=1e-4)
    floor = 0.5 * whole[-1] * unit
    rows, most = asked(posed, floor)
    whole = interior(np.zeros(n * k), rows, most)
    assert feasible(posed, floor) == pytest.approx(whole.reshape(n, k), abs=1e-4)


ONE = """
import sys; sys.path.insert(0, sys.argv[1])
from solve.test_interior_shares import crowd
from ganger.solve.division.interior_shares import feasible, highest
posed, unit = crowd(3)
print(highest(posed, unit).tobytes().hex(), feasible(posed, unit / 99).tobytes().hex())
"""


def test_the_answer_does_not_depend_on_the_type_of_the_processor() -> None:
    def answer(core: str) -> str:
        tests = os.path.dirname(os.path.dirname(__file__))
        told = subprocess.run(
            [sys.executable, "-c", ONE, tests],
            text=True,
            check=True,
            capture_output=True,
            env={**os.environ, "OPENBLAS_CORETYPE": core},
        )
        return told.stdout

    assert answer("Haswell") == answer("Nehalem")
