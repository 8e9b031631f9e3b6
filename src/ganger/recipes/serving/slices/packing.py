"""Services packed on the slices of devices: the problem, the layouts of a device, and the greedy
answer.

Tan et al.: Serving DNN Models with Multi-Instance GPUs: A Case of the Reconfigurable Machine
Scheduling Problem, arXiv 2109.11067, 2021 (section 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ganger.core.books.mig import MIG_SLICES

Floats: TypeAlias = NDArray[np.float64]
Config: TypeAlias = tuple[tuple[int, int], ...]
"""A device: of each slice its kind, a row of `MIG_SLICES`, and the service that it answers; without
slices that nobody needs."""
Layout: TypeAlias = tuple[int, ...]
"""The kinds of a device's slices, the largest first."""
_NOTHING: Final = 1e-9


@lru_cache(64)
def layouts(gpu_type: str, useful: frozenset[int]) -> tuple[Layout, ...]:
    """The sets of slices of `useful` kinds that a device can have, without those to which another
    such slice could be added. Empty for a type without slices."""
    kinds = MIG_SLICES.get(gpu_type, ())
    legal = set[Layout]()

    def grow(slot: int, chosen: Layout) -> None:
        legal.add(tuple(sorted(chosen, reverse=True)))
        for at in range(slot, kinds[-1].memory):
            for kind in useful:
                if at in kinds[kind].starts:
                    grow(at + kinds[kind].memory, (*chosen, kind))

    if kinds:
        grow(0, ())
    full = [
        each
        for each in legal
        if each and not any(tuple(sorted((*each, k), reverse=True)) in legal for k in useful)
    ]
    return tuple(sorted(full, reverse=True))


class Problem(NamedTuple):
    """`rates`: requests a second, by service and kind of slice, 0 where the SLO cannot be kept;
    `loads`: requests a second of each service; `layouts`: of a device of that type."""

    rates: Floats
    loads: Floats
    layouts: Sequence[Layout]
    gpu_type: str

    def provided(self, configs: Sequence[Config]) -> Floats:
        """What each service can answer in a second."""
        rates = np.zeros(len(self.loads))
        for config in configs:
            for kind, service in config:
                rates[service] += self.rates[service, kind]
        return rates

    def covers(self, configs: Sequence[Config]) -> bool:
        """Whether every load is answered."""
        return not _lacks(self.loads - self.provided(configs)).any()


def _lacks(lacking: Floats) -> NDArray[np.bool_]:
    return lacking > _NOTHING


def incomplete(problem: Problem, lacking: Floats) -> Floats:
    """The paper's worth of one request a second more, by service: a part of its load, times the
    part that lacks."""
    loads = np.maximum(problem.loads, _NOTHING)
    return np.maximum(lacking, 0.0) / loads / loads


def best_configs(
    problem: Problem, lacking: Floats, worth: Floats
) -> Iterator[tuple[float, Config]]:
    """For each layout its score and the slices' services: each slice, the largest first, goes to
    the service to which it is worth most beside those before it."""
    gains = np.minimum(problem.rates, lacking[:, None]) * worth[:, None]
    order = _largest(gains, _SLICES + 1)
    table, ranked = np.take_along_axis(gains, order, axis=0).T.tolist(), order.T.tolist()
    for layout in problem.layouts:
        score, chosen, changed = 0.0, list[tuple[int, int]](), dict[int, float]()
        for kind in layout:
            top, who = 0.0, -1
            for gain, service in zip(table[kind], ranked[kind], strict=True):
                if service not in changed:
                    top, who = (gain, service) if gain > top else (top, who)
                    break
            for service, still in changed.items():
                gain = min(float(problem.rates[service, kind]), still) * float(worth[service])
                if gain > top:
                    top, who = gain, service
            if who < 0:
                continue
            before = changed.get(who, float(lacking[who]))
            changed[who] = max(before - float(problem.rates[who, kind]), 0.0)
            score += top
            chosen.append((kind, who))
        yield score, tuple(chosen)


def _largest(gains: Floats, count: int) -> NDArray[np.int64]:
    """By column, the rows of the largest values, those first; of equals the first row."""
    if len(gains) > count:
        bar = np.partition(gains, len(gains) - count, axis=0)[-count]
        rows = np.flatnonzero((gains >= bar).any(axis=1))
    else:
        rows = np.arange(len(gains))
    return rows[np.argsort(-gains[rows], axis=0, kind="stable")[:count]]


_SLICES: Final = 7
"""The most slices of a device."""
Worth: TypeAlias = Callable[[Problem, Floats], Floats]
"""By service, what a request a second more is worth while so much lacks."""


def greedy(
    problem: Problem, lacking: Floats, limit: int, worth: Worth = incomplete
) -> list[Config]:
    """Devices for what lacks, each with the best of the layouts, at most `limit`."""
    configs, lacking = list[Config](), lacking.copy()
    while _lacks(lacking).any() and len(configs) < limit:
        weights = worth(problem, lacking)
        _, config = max(best_configs(problem, lacking, weights), default=(0.0, ()))
        if not config:
            break
        configs.append(config)
        for kind, service in config:
            lacking[service] -= problem.rates[service, kind]
    return configs
