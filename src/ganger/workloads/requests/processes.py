"""When requests come: random gaps in a time that runs as fast as the load is high.

Every process here is one construction. Gaps of mean 1 (exponential, Gamma, Weibull) are added up;
the sum is how much load has passed when a request comes, and the curve of the load says at what
time that is (time change: Cinlar, Introduction to Stochastic Processes, 1975, section 4.7). With
exponential gaps that is a Poisson process, homogeneous or not; with a curve that jumps at random,
a Markov-modulated one.

Draws are made in blocks of one length, so that neither the length of chunks nor of the run changes
an arrival: a longer run begins with the shorter one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.units import SECOND

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
BLOCK: Final = 1 << 14
"""So many draws at a time."""
_SEGMENTS = 1 << 10
_EVER = 1e12
"""Seconds after every end."""
_MOST_RATE = 1e9
_MOST_CV = 100.0
_LEAST_CV = 1e-9


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Random numbers for one purpose: no other purpose changes them."""
    return np.random.default_rng([seed, *purpose.encode()])


class Curve(Protocol):
    """A load over time, piecewise constant."""

    def pieces(self, rng: np.random.Generator) -> Iterator[tuple[F64, F64]]:
        """Lengths in seconds and rates in requests per second, piece after piece, without end."""

    @property
    def mean(self) -> float:
        """Requests per second in the long run."""


@dataclass(frozen=True)
class Constant:
    """One rate for ever."""

    rate: float

    def pieces(self, rng: np.random.Generator) -> Iterator[tuple[F64, F64]]:
        """One piece after the other, all alike."""
        return repeat((np.array([_EVER]), np.array([self.rate])))

    @property
    def mean(self) -> float:
        """The rate."""
        return self.rate


@dataclass(frozen=True)
class Steps:
    """`rates` from the `starts` on, the first of them 0; the last rate stays. A step is two rates,
    a spike three."""

    starts: tuple[float, ...]
    rates: tuple[float, ...]

    def pieces(self, rng: np.random.Generator) -> Iterator[tuple[F64, F64]]:
        """The steps, and the last rate for ever."""
        lengths = np.diff(self.starts)
        last = (np.array([_EVER]), np.array([self.rates[-1]]))
        first = [(lengths, np.array(self.rates[:-1]))] if len(lengths) else []
        return chain(first, repeat(last))

    @property
    def mean(self) -> float:
        """The last rate."""
        return self.rates[-1]


@dataclass(frozen=True)
class Diurnal:
    """A day's rhythm: `mean` x (1 + swing x cos(2 pi (t - peak) / period)), constant in each of
    1,440 parts of the period, over which it is averaged exactly. Times in seconds."""

    mean_rate: float
    swing: float = 0.8
    peak: float = 14 * 3600.0
    period: float = 86400.0

    def pieces(self, rng: np.random.Generator) -> Iterator[tuple[F64, F64]]:
        """The same day again and again."""
        turn = 2 * math.pi / self.period
        edges = np.linspace(0.0, self.period, 1441)
        integral = edges + self.swing / turn * np.sin(turn * (edges - self.peak))
        lengths = np.diff(edges)
        return repeat((lengths, self.mean_rate * np.maximum(np.diff(integral) / lengths, 0.0)))

    @property
    def mean(self) -> float:
        """The mean over a period."""
        return self.mean_rate


@dataclass(frozen=True)
class Modulated:
    """A rate that jumps between states: it stays in each for a random time, exponential of mean
    `stays` seconds, and goes on to the next in turn (a Markov-modulated Poisson process: Fischer
    and Meier-Hellstern, Performance Evaluation 18, 1993). It begins in a state drawn as the long
    run has it."""

    rates: tuple[float, ...]
    stays: tuple[float, ...]

    def pieces(self, rng: np.random.Generator) -> Iterator[tuple[F64, F64]]:
        """Stays in the states in turn."""
        rates, stays = np.array(self.rates), np.array(self.stays)
        state = int(rng.choice(len(stays), p=stays / stays.sum()))
        while True:
            states = (state + np.arange(_SEGMENTS)) % len(stays)
            yield rng.exponential(1.0, _SEGMENTS) * stays[states], rates[states]
            state = (state + _SEGMENTS) % len(stays)

    @property
    def mean(self) -> float:
        """The mean of the rates, weighted by the stays."""
        return float(np.average(self.rates, weights=self.stays))


Gaps = Callable[[np.random.Generator, int], F64]
"""So many gaps of mean 1."""


def gaps(cv: float = 1.0) -> Gaps:
    """Gamma gaps by their coefficient of variation, 1 for exponential ones and 0 for a clock's."""
    if not 0 <= cv <= _MOST_CV:
        raise BadInput(f"{cv:g}", where="cv", mend=f"give 0 to {_MOST_CV:g}")
    if cv < _LEAST_CV:  # no gap differs from the mean by a microsecond
        return lambda rng, n: np.ones(n)
    if cv == 1:
        return lambda rng, n: rng.exponential(1.0, n)
    return lambda rng, n: rng.gamma(cv**-2, cv**2, n)


def arrivals(curve: Curve, spread: Gaps, seed: int, until: float) -> Iterator[I64]:
    """Arrivals in microseconds before `until` (seconds), in order, block by block."""
    draws, path = stream(seed, "gaps"), stream(seed, "rates")
    clock = _Clock(curve.pieces(path))
    passed = 0.0
    while True:
        load = passed + np.cumsum(spread(draws, BLOCK))
        passed = float(load[-1])
        times = clock.times(load, until)
        found = np.floor(times * SECOND).astype(np.int64)
        if len(found):
            yield found
        if len(found) < BLOCK:
            return


class _Clock:
    """From how much load has passed to the time: the curve's integral, inverted piece by piece."""

    def __init__(self, pieces: Iterator[tuple[F64, F64]]) -> None:
        self.pieces = pieces
        self.at, self.load = np.zeros(1), np.zeros(1)

    def times(self, load: F64, until: float) -> F64:
        """The times in seconds at which so much load has passed (rising), as far as they are before
        `until`."""
        begin = max(int(np.searchsorted(self.load, load[0], side="right")) - 1, 0)
        ats, loads = [self.at[begin:]], [self.load[begin:]]
        at, reached = float(self.at[-1]), float(self.load[-1])
        while reached <= load[-1] and at < until:
            lengths, rates = next(self.pieces)
            ats.append(at + np.cumsum(lengths))
            loads.append(reached + np.cumsum(lengths * rates))
            at, reached = float(ats[-1][-1]), float(loads[-1][-1])
        self.at, self.load = np.concatenate(ats), np.concatenate(loads)
        times = np.interp(load, self.load, self.at, right=math.inf)
        return times[: int(np.searchsorted(times, until))]


def diurnal(rate: float, swing: float, peak: float, period: float) -> Diurnal:
    """A day's rhythm. Raises BadInput."""
    if not 0 <= swing <= 1:
        raise BadInput(f"{swing:g}", where="swing", mend="give 0 to 1")
    if not 60 <= period <= 1e9:
        raise BadInput(f"{period:g} s", where="period", mend="give a minute to 1e9 s")
    return Diurnal(_rate(rate, "rate"), swing, peak, period)


def constant(rate: float) -> Constant:
    """One rate. Raises BadInput."""
    return Constant(_rate(rate, "rate"))


def step(rate: float, to: float, at: float) -> Steps:
    """`rate` until `at` seconds, then `to`. Raises BadInput."""
    if not at > 0:
        raise BadInput(f"{at:g} s", where="at", mend="give a time after the start")
    return Steps((0.0, at), (_rate(rate, "rate", 0.0), _rate(to, "to", 0.0)))


def spike(rate: float, to: float, at: float, width: float) -> Steps:
    """`rate`, but `to` for `width` seconds from `at` on. Raises BadInput."""
    if not at > 0 or not width > 0:
        raise BadInput(f"{width:g} s at {at:g} s", where="spike", mend="give times above 0")
    low = _rate(rate, "rate", 0.0)
    return Steps((0.0, at, at + width), (low, _rate(to, "to", 0.0), low))


def modulated(rates: Sequence[float], stays: Sequence[float]) -> Modulated:
    """Rates by state, and the mean stay in each, in seconds. Raises BadInput."""
    if not 2 <= len(rates) == len(stays):
        raise BadInput(
            f"{len(rates)} rates and {len(stays)} stays",
            where="mmpp",
            mend="give a stay for each of at least two rates",
        )
    for stay in stays:
        if not 1e-3 <= stay <= 1e9:
            raise BadInput(f"a stay of {stay:g} s", where="mmpp", mend="give 0.001 to 1e9")
    found = Modulated(tuple(_rate(rate, "rates", 0.0) for rate in rates), tuple(stays))
    if not any(rates):
        raise BadInput("all rates are 0", where="mmpp", mend="give a rate above 0")
    if not found.mean * sum(stays) / len(stays) >= 0.01:
        raise BadInput(
            "the state changes more than 100 times a request",
            where="mmpp",
            mend="give higher rates or longer stays",
        )
    return found


def _rate(rate: float, where: str, least: float = 1e-9) -> float:
    if not least <= rate <= _MOST_RATE:
        raise BadInput(
            f"{rate:g} requests per second", where=where, mend=f"give {least:g} to {_MOST_RATE:g}"
        )
    return float(rate)
