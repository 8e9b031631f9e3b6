"""Fits recover the curves that made the points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.estimate.fits import LossCurve, fit_loss


@given(st.floats(0.01, 2), st.floats(0.1, 2), st.floats(0.0, 3))
def test_a_loss_curve_is_recovered(b0: float, b1: float, b2: float) -> None:
    steps = np.arange(1.0, 60.0)
    made = LossCurve(b0, b1, b2)
    found = fit_loss(steps, made.at(steps))
    assert found.at(np.arange(1, 200)) == pytest.approx(made.at(np.arange(1, 200)), rel=1e-3)
    assert min(found.b0, found.b1, found.b2) >= 0


def test_a_noisy_loss_curve_is_recovered_about() -> None:
    steps = np.arange(1.0, 200.0)
    made = LossCurve(0.2, 0.5, 0.3)
    noise = np.random.default_rng(1).normal(1, 0.02, len(steps))
    found = fit_loss(steps, made.at(steps) * noise)
    assert found.at(400) == pytest.approx(float(made.at(400)), rel=0.05)


def test_convergence_is_the_first_step_of_small_falls() -> None:
    curve = LossCurve(1.0, 0.0, 0.0)  # loss 1/k; 1/k - 1/(k+10) < 0.05 from k = 11 on
    assert curve.steps_until(0.05, 10) == 11
    assert LossCurve(0.0, 1.0, 0.0).steps_until(0.05) == 0


def test_too_few_points_are_refused() -> None:
    with pytest.raises(BadInput, match="three points"):
        fit_loss(np.array([1.0, 2]), np.array([3.0, 2]))
