"""Arrivals have the mean and the variance that their process has in closed form."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.units import SECOND
from ganger.workloads.requests import processes
from ganger.workloads.requests.processes import Curve, arrivals, gaps
from ganger.workloads.requests.synthetic import Mix, generated

I64 = NDArray[np.int64]


def times(curve: Curve, until: float, seed: int = 1, cv: float = 1.0) -> I64:
    """All arrivals, in microseconds."""
    return np.concatenate([np.zeros(0, np.int64), *arrivals(curve, gaps(cv), seed, until)])


def counts(at: I64, window: float, until: float) -> I64:
    """Arrivals a window."""
    return np.histogram(at / SECOND, np.arange(0, until + window / 2, window))[0]


def near(found: float, expected: float, error: float) -> None:
    """Within four standard errors: one run in 16,000 is farther off, and the seeds are fixed."""
    assert abs(found - expected) < 4 * error, (found, expected, error)


def test_a_poisson_process_has_as_much_variance_as_mean() -> None:
    rate, until = 50.0, 4000.0
    at = times(processes.constant(rate), until)
    near(len(at), rate * until, math.sqrt(rate * until))
    by_second = counts(at, 1.0, until)
    # the variance of a sample's variance of Poisson counts: (mu + 2 mu^2) / n
    near(by_second.var(), rate, math.sqrt((rate + 2 * rate**2) / len(by_second)))
    gap = np.diff(at) / SECOND
    near(gap.mean(), 1 / rate, 1 / rate / math.sqrt(len(gap)))
    # P(gap > 2 / rate) = e^-2
    share = float((gap > 2 / rate).mean())
    near(share, math.exp(-2), math.sqrt(math.exp(-2) / len(gap)))


@pytest.mark.parametrize("cv", [0.25, 0.5, 2.0, 4.0])
def test_gamma_gaps_have_the_coefficient_of_variation_asked_for(cv: float) -> None:
    rate, until = 20.0, 20_000.0
    gap = np.diff(times(processes.constant(rate), until, cv=cv)) / SECOND
    n = len(gap)
    near(gap.mean(), 1 / rate, cv / rate / math.sqrt(n))
    # the fourth central moment of a Gamma variate is 3 var^2 (1 + 2 cv^2)
    var = (cv / rate) ** 2
    near(gap.var(), var, var * math.sqrt((2 + 6 * cv**2) / n))


def test_a_clock_ticks() -> None:
    assert np.diff(times(processes.constant(8.0), 10.0, cv=0.0)).tolist() == [125_000] * 78


def test_a_modulated_process_has_the_variance_of_its_states() -> None:
    """Two states, rates a and b, which are left at rates u and v: the mean is
    (v a + u b) / (u + v); the variance of the count in a window t is
    mean t + 2 p q (a - b)^2 (s t - 1 + e^(-s t)) / s^2 with s = u + v
    (Fischer and Meier-Hellstern 1993)."""
    a, b, stay_a, stay_b = 5.0, 60.0, 3.0, 1.0
    curve = processes.modulated([a, b], [stay_a, stay_b])
    until, window = 200_000.0, 10.0
    p = stay_a / (stay_a + stay_b)
    mean = p * a + (1 - p) * b
    assert curve.mean == pytest.approx(mean)
    s = 1 / stay_a + 1 / stay_b
    var = (
        mean * window
        + 2 * p * (1 - p) * (a - b) ** 2 * (s * window - 1 + math.exp(-s * window)) / s**2
    )
    found = counts(times(curve, until), window, until)
    near(found.mean(), mean * window, math.sqrt(var / len(found)) * 1.1)
    assert found.var() == pytest.approx(var, rel=0.05)


def test_the_modulated_process_begins_as_the_long_run_goes() -> None:
    curve = processes.modulated([0.0, 100.0], [3.0, 1.0])
    first = [len(times(curve, 0.01, seed)) for seed in range(1500)]
    near(float(np.mean(first)), 0.25, math.sqrt(0.25 + 0.1875) / math.sqrt(1500))


def test_three_states_come_in_turn_for_thousands_of_stays() -> None:
    """Each state is left for the next: without the second, the third has nothing before it."""
    curve = processes.modulated([1.0, 2.0, 3.0], [10.0, 10.0, 10.0])
    pieces = curve.pieces(np.random.default_rng(0))
    rates = np.concatenate([next(pieces)[1] for _ in range(4)])
    turns = np.diff(rates) % 3
    assert len(rates) > 4000
    assert set(turns.tolist()) == {1.0}


def test_a_day_has_its_mean_and_its_peak_where_it_was_put() -> None:
    day = 86_400.0
    curve = processes.diurnal(10.0, 0.9, 14 * 3600.0, day)
    found = counts(times(curve, 5 * day), 3600.0, 5 * day).reshape(5, 24)
    near(found.sum(), 50 * day, math.sqrt(50 * day))
    for hour in range(24):
        turn = 2 * math.pi / day
        begin, end = hour * 3600.0, (hour + 1) * 3600.0
        swing = 0.9 / turn * (math.sin(turn * (end - 50_400)) - math.sin(turn * (begin - 50_400)))
        expected = 10.0 * (3600.0 + swing) * 5
        near(found[:, hour].sum(), expected, math.sqrt(expected))


def test_steps_and_spikes_stand_where_they_were_put() -> None:
    stepped = times(processes.step(10.0, 100.0, 500.0), 1000.0)
    low, high = counts(stepped, 500.0, 1000.0).tolist()
    near(low, 5000, math.sqrt(5000))
    near(high, 50_000, math.sqrt(50_000))
    before, during, after = (
        int(
            ((at := times(processes.spike(2.0, 400.0, 300.0, 60.0), 600.0) / SECOND) >= begin).sum()
            - (at >= end).sum()
        )
        for begin, end in pairwise((0, 300, 360, 600))
    )
    near(before, 600, math.sqrt(600))
    near(during, 24_000, math.sqrt(24_000))
    near(after, 480, math.sqrt(480))


def test_a_load_may_rest() -> None:
    at = times(processes.spike(0.0, 50.0, 100.0, 10.0), 1e6) / SECOND
    assert 400 < len(at) < 600
    assert at.min() >= 100
    assert at.max() < 110


CURVES: list[Curve] = [
    processes.constant(700.0), processes.modulated([50, 3000], [0.5, 0.1]),
    processes.diurnal(300.0, 1.0, 0.0, 60.0), processes.spike(100.0, 9000.0, 20.0, 5.0),
]  # fmt: skip


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("cv", [1.0, 3.0])
def test_a_longer_run_begins_with_the_shorter_one(curve: Curve, cv: float) -> None:
    mix = Mix(models=9, zipf=1.0, tenants=3, slo=5, prompt_tokens=30, inputs=1000, inputs_zipf=1)
    long = generated(curve, seed=5, duration=120.0, cv=cv, mix=mix).gather()
    short = generated(curve, seed=5, duration=41.5, cv=cv, mix=mix).gather()
    few = generated(curve, seed=5, most=20_011, cv=cv, mix=mix).gather()
    assert 0 < len(short) < len(long)
    assert len(few) == 20_011
    assert (np.diff(long.arrival) >= 0).all()
    for part in (short, few):
        for name, column in part.columns.items():
            assert (column == long.columns[name][: len(part)]).all(), name


def test_another_column_changes_no_arrival_and_another_seed_does() -> None:
    plain = generated(CURVES[0], seed=5, duration=60.0).gather()
    rich = generated(CURVES[0], seed=5, duration=60.0, mix=Mix(models=50, items=3, inputs=9))
    assert (plain.arrival == rich.gather().arrival).all()
    other = generated(CURVES[0], seed=6, duration=60.0).gather()
    assert len(other) != len(plain) or (other.arrival != plain.arrival).any()


def test_nothing_is_said_that_was_not_asked_for() -> None:
    assert set(generated(CURVES[0], most=9).gather().columns) == {"arrival", "model"}
    assert len(generated(CURVES[0], most=processes.BLOCK).gather()) == processes.BLOCK
    assert len(list(generated(CURVES[0], most=processes.BLOCK).chunks())) == 1


def test_models_are_asked_for_as_zipf_says() -> None:
    mix = Mix(models=40, zipf=0.9, tenants=4)
    found = generated(CURVES[0], seed=3, most=200_000, mix=mix).gather()
    weights = np.arange(1, 41) ** -0.9
    expected = 200_000 * weights / weights.sum()
    seen = np.bincount(found.model, minlength=40)
    assert (np.abs(seen - expected) < 5 * np.sqrt(expected)).all()
    assert found.tenant is not None
    tenants = np.bincount(found.tenant)
    assert (np.abs(tenants[1:] - 50_000) < 5 * 50_000**0.5).all()
    assert len(tenants) == 5


def test_token_counts_have_the_mean_and_the_spread_asked_for() -> None:
    mix = Mix(prompt_tokens=800.0, output_tokens=200.0, tokens_cv=0.7)
    found = generated(CURVES[0], seed=3, most=100_000, mix=mix).gather()
    for column, mean in ((found.prompt_tokens, 800.0), (found.output_tokens, 200.0)):
        assert column is not None
        near(float(column.mean()), mean, 0.7 * mean / math.sqrt(100_000))
        assert column.std() / column.mean() == pytest.approx(0.7, rel=0.03)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: processes.constant(0.0), "rate: 0 requests per second"),
        (lambda: processes.constant(math.nan), "rate: nan"),
        (lambda: processes.diurnal(1.0, 1.5, 0.0, 86400.0), "swing: 1.5"),
        (lambda: processes.diurnal(1.0, 0.5, 0.0, 1.0), "period: 1 s"),
        (lambda: processes.step(1.0, 2.0, 0.0), "at: 0 s"),
        (lambda: processes.spike(1.0, 2.0, 5.0, 0.0), "spike: 0 s at 5 s"),
        (lambda: processes.modulated([1.0], [1.0]), "1 rates and 1 stays"),
        (lambda: processes.modulated([1.0, 2.0], [1.0]), "2 rates and 1 stays"),
        (lambda: processes.modulated([0.0, 0.0], [1.0, 1.0]), "all rates are 0"),
        (lambda: processes.modulated([-1.0, 2.0], [1.0, 1.0]), "-1 requests per second"),
        (lambda: processes.modulated([1.0, 2.0], [0.0, 1.0]), "a stay of 0 s"),
        (lambda: processes.modulated([1.0, 2.0], [0.001, 0.001]), "more than 100 times"),
        (lambda: gaps(-1.0), "cv: -1"),
        (lambda: generated(CURVES[0]), "it has no end"),
        (lambda: generated(CURVES[0], duration=0.0), "duration: 0 s"),
        (lambda: generated(CURVES[0], most=0), "requests: 0 requests"),
        (lambda: generated(CURVES[0], most=9, seed=-1), "seed: -1"),
        (lambda: Mix(models=0), "models: 0"),
        (lambda: Mix(tokens_cv=-1), "tokens-cv: -1"),
        (lambda: Mix(slo=0), "an SLO of 0 s"),
    ],
)
def test_bad_loads_are_refused_in_a_sentence(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(BadInput) as error:
        make()
    assert said in str(error.value)
    assert error.value.mend
