"""What trials will report, from what they have reported."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.estimate.learning_curves import extrapolate
from ganger.workloads.curves.reading import read_curves
from ganger.workloads.curves.table import CurveTable

EPOCHS = np.arange(1.0, 61.0)


@pytest.mark.parametrize(
    "curve",
    [
        0.2 + 0.8 * EPOCHS**-0.5,
        0.2 + 0.8 * EPOCHS**-1.5,
        0.9 - 0.6 * np.exp(-EPOCHS / 10),
        0.7 - 0.5 / (1 + (EPOCHS / 10) ** 2),
        np.full(60, 0.5),
    ],
)
def test_a_curve_of_a_known_shape_is_continued(curve: np.ndarray) -> None:
    told = extrapolate(EPOCHS[:20], curve[:20])
    assert told.quantile(0.5, 60.0) == pytest.approx(curve[-1], abs=0.02)
    assert told.quantile(0.1, 60.0) <= curve[-1] + 1e-6
    assert told.quantile(0.9, 60.0) >= curve[-1] - 1e-6


def test_quantiles_are_those_of_the_probabilities() -> None:
    rng = np.random.default_rng(0)
    told = extrapolate(EPOCHS[:12], 0.3 + EPOCHS[:12] ** -0.7 + 0.02 * rng.normal(size=12))
    parts = (0.05, 0.1, 0.5, 0.9, 0.95)
    values = [told.quantile(part, 50.0) for part in parts]
    assert values == sorted(values)
    assert [told.below(value, 50.0) for value in values] == pytest.approx(parts, abs=1e-6)


def test_the_farther_ahead_and_the_less_is_known_the_wider() -> None:
    rng = np.random.default_rng(1)
    curve = 0.3 + EPOCHS**-0.7 + 0.01 * rng.normal(size=60)

    def width(count: int, epoch: float) -> float:
        told = extrapolate(EPOCHS[:count], curve[:count])
        return told.quantile(0.9, epoch) - told.quantile(0.1, epoch)

    assert width(10, 60.0) > width(10, 20.0) > 0
    assert width(6, 60.0) > width(40, 60.0)


def test_fewer_than_four_reports_are_too_few() -> None:
    with pytest.raises(BadInput, match="3 reports"):
        extrapolate([1.0, 2.0, 3.0], [1.0, 0.9, 0.8])


def covered(table: CurveTable, metric: str) -> list[bool]:
    """Of thirty curves, after 5, 10, 20 and 35 reports: if the last is in the 80 % interval."""
    found, rng = list[bool](), np.random.default_rng(0)
    for row in rng.permutation(len(table)).tolist():
        curve = table.curve(row)
        values = np.array(curve.values[metric])
        if len(values) < 50 or not np.isfinite(values).all():
            continue
        for count in (5, 10, 20, 35):
            told = extrapolate(curve.epochs[:count], values[:count])
            found.append(0.1 <= told.below(float(values[-1]), curve.epochs[-1]) <= 0.9)
        if len(found) == 120:
            break
    return found


@pytest.mark.skipif("GANGER_TRACES" not in os.environ, reason="GANGER_TRACES is not set")
@pytest.mark.parametrize(
    ("files", "tasks", "metric"),
    [
        ("lcbench-surrogate/*.csv.gz", ("7593", "126025", "146212", "167149"), "val_accuracy"),
        ("taskset-curves/*avg*.csv.gz", ("",), "valid_loss"),
    ],
)
def test_intervals_hold_for_curves_that_were_not_looked_at(
    files: str, tasks: tuple[str, ...], metric: str
) -> None:
    """80 % intervals: 70 to 90 % of what is reported last lies inside. The rest:
    benchmarks/extrapolation.py."""
    found = [
        each
        for path in sorted(Path(os.environ["GANGER_TRACES"]).glob(files))
        for task in tasks
        for each in covered(read_curves(path, task), metric)
    ]
    assert 0.7 <= np.mean(found) <= 0.9
