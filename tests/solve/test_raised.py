"""Max-min and then the sum, in one small programme: what the two programmes say one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.solve.division.programme import Floats, Shares, proportional, shares
from ganger.solve.division.raised import raised
from ganger.solve.division.shares import efficient, max_min
from solve.instances import violation


def crowd(seed: int) -> tuple[Shares, Floats]:
    """Some jobs, many of them equal, on two or three types, not all of which they run on."""
    rng = np.random.default_rng(seed)
    jobs, kinds = int(rng.integers(2, 40)), int(rng.integers(2, 4))
    models = rng.uniform(0.1, 9, (6, kinds)) * (rng.random((6, kinds)) < 0.85)
    models[:, 0] = np.maximum(models[:, 0], 0.1)
    rate, scale = models[rng.integers(0, 6, jobs)], rng.choice([1.0, 1.0, 2.0, 4.0], jobs)
    posed = shares(rate, scale, rng.integers(4, 12, kinds).astype(float))
    return posed, rng.choice([1.0, 5.0], jobs) * proportional(posed) / scale


@given(st.integers(0, 100_000))
def test_both_answers_are_those_of_the_programmes_one_by_one(seed: int) -> None:
    posed, unit = crowd(seed)
    found, level = raised(posed, unit), max_min(posed, unit).value
    assert found is not None
    assert found.level == pytest.approx(level, rel=1e-6)
    if found.x is None:
        return
    best = efficient(posed, unit * level, posed.rate / unit[:, None])
    eff = posed.effective(found.x)
    assert violation(posed, found.x) < 1e-7
    assert (eff >= unit * level * (1 - 1e-6)).all()
    assert float((eff / unit).sum()) == pytest.approx(best.value, rel=1e-6)
    assert found.x == pytest.approx(best.x, abs=1e-5)


def test_crowds_often_have_one_answer() -> None:
    answers = [raised(*crowd(seed)) for seed in range(100)]
    assert sum(found is not None and found.x is not None for found in answers) >= 10


def test_where_several_are_equally_good_it_names_none() -> None:
    # Two jobs that do as much on either type, one GPU of each: who is where is all the same.
    posed = shares(np.array([[2.0, 2.0], [3.0, 3.0]]), np.ones(2), np.ones(2))
    found = raised(posed, np.array([1.0, 2.0]))
    assert found is not None
    assert found.level == pytest.approx(1.5)
    assert found.x is None


def test_what_it_does_not_answer_is_left_to_the_programmes() -> None:
    posed, unit = crowd(1)
    assert raised(posed._replace(limit=np.full(len(unit), np.inf)), unit) is None
    one = shares(np.ones((3, 1)), np.ones(3), np.ones(1))
    assert raised(one, np.ones(3)) is None
