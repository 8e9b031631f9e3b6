"""From inside: as good as a vertex method, and in the middle where many answers are as good."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from ganger.solve.interior import interior


@pytest.mark.parametrize("seed", range(12))
def test_it_is_as_good_as_a_vertex(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(4, 30)), int(rng.integers(2, 15))
    rows = np.vstack([rng.uniform(0.1, 5.0, (m, n)), -np.eye(n)])
    most = np.concatenate([rng.uniform(1.0, 10.0, m), np.zeros(n)])
    cost = -rng.uniform(0.1, 3.0, n)
    x = interior(cost, sparse.csr_array(rows), most)
    best = linprog(cost, rows, most, bounds=(None, None), method="highs")
    assert cost @ x == pytest.approx(best.fun, rel=1e-6)
    assert (rows @ x <= most + 1e-6).all()


def test_of_many_it_takes_the_middle() -> None:
    # Any x with x0 + x1 = 1 is best.
    rows = sparse.csr_array(np.array([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]))
    x = interior(np.array([-1.0, -1.0]), rows, np.array([1.0, 0.0, 0.0]))
    assert x == pytest.approx([0.5, 0.5], abs=1e-6)


@pytest.mark.parametrize("left", [0.5, 3.0, 40.0])
def test_a_cone_bounds_an_inverse(left: float) -> None:
    # The least y + left x for which y >= 1 / x: x = 1 / sqrt(left), and the value 2 sqrt(left).
    rows = sparse.csr_array(np.array([[-1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]]))
    x = interior(np.array([left, 1.0]), rows, np.array([0.0, 0.0, 2.0]), cones=1)
    assert x == pytest.approx([left**-0.5, left**0.5], rel=1e-4)
    assert left * x[0] + x[1] == pytest.approx(2 * left**0.5, rel=1e-7)


def test_what_cannot_be_ends_in_an_error() -> None:
    rows = sparse.csr_array(np.array([[1.0], [-1.0]]))
    with pytest.raises(ArithmeticError):
        interior(np.array([1.0]), rows, np.array([-1.0, -1.0]))
