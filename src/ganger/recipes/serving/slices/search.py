"""Fewer devices by search: a genetic algorithm over deployments, whose children lose some devices
and are filled up again by a Monte-Carlo tree search.

Tan et al., arXiv 2109.11067, 2021 (section 5.3). The tree search is UCT: Kocsis, Szepesvari, 2006.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf, log, sqrt
from typing import Final

import numpy as np

from ganger.core.books.mig import MIG_SLICES, Slice
from ganger.recipes.serving.slices.packing import (
    Config,
    Floats,
    Problem,
    best_configs,
    greedy,
)

_BRANCHES: Final = 4
"""Configurations of which a step of the tree search may take any."""
_CURIOUS: Final = 0.5
"""Devices; how much a branch that was seldom tried is preferred."""
_WORK: Final = 20_000
"""Rounds, times services; no search makes more."""
_DROPPED: Final = 10
"""Devices that a child loses, at most."""


def device_parts(problem: Problem) -> Floats:
    """By service, the part of a device that a request a second takes on the kind of slice where it
    takes least: of its compute or its memory, whichever is more."""
    whole = MIG_SLICES[problem.gpu_type][-1]
    return _least(
        problem,
        [(each.compute / whole.compute, each.memory / whole.memory) for each in _all(problem)],
    )


def fewest(problem: Problem) -> float:
    """Devices; no deployment that covers all loads has fewer, for lack of compute."""
    whole = MIG_SLICES[problem.gpu_type][-1]
    parts = _least(problem, [(each.compute / whole.compute,) for each in _all(problem)])
    return float(parts @ problem.loads)


def _all(problem: Problem) -> tuple[Slice, ...]:
    return MIG_SLICES[problem.gpu_type]


def _least(problem: Problem, parts: Sequence[tuple[float, ...]]) -> Floats:
    """Of a device for a request a second, where slices take the largest of these parts."""
    rates = problem.rates / np.array([max(each) for each in parts])
    least: Floats = 1.0 / np.maximum(rates.max(axis=1, initial=0.0), 1e-12)
    return least


@dataclass
class _Node:
    """What lacks, the device that led here, and how many devices deployments through it needed."""

    lacking: Floats
    config: Config
    tries: int = 0
    total: float = 0.0
    best: float = inf
    untried: list[Config] | None = None
    children: list[_Node] = field(default_factory=list)


class _Tree:
    """Fills up what lacks with as few devices as it finds."""

    def __init__(self, problem: Problem, parts: Floats, rng: np.random.Generator) -> None:
        self._problem, self._parts, self._rng = problem, parts, rng

    def filled(self, lacking: Floats, tries: int, limit: int) -> tuple[float, list[Config]]:
        """The fewest devices of so many tries, of at most `limit` each; what they are."""
        root = _Node(lacking, ())
        best, chosen = inf, list[Config]()
        for _ in range(tries):
            path = self._descend(root)
            configs = [node.config for node in path[1:]]
            configs += greedy(self._problem, path[-1].lacking, limit, self._noisy)
            score = self._devices(lacking, configs)
            for node in path:
                node.tries += 1
                node.total += score
            if score < best:
                best, chosen = score, configs
        return best, chosen

    def _descend(self, node: _Node) -> list[_Node]:
        """To a device that was not tried yet, always on to the most promising one."""
        path = [node]
        while (node.lacking > 1e-9).any():
            if node.untried is None:
                node.untried = self._options(node.lacking)
            if node.untried:
                config = node.untried.pop(0)
                node.children.append(_Node(self._after(node.lacking, config), config))
                return [*path, node.children[-1]]
            if not node.children:
                return path
            tries = log(node.tries + 1)
            node = min(
                node.children,
                key=lambda each: each.total / each.tries - _CURIOUS * sqrt(tries / each.tries),
            )
            path.append(node)
        return path

    def _options(self, lacking: Floats) -> list[Config]:
        weights = self._noisy(self._problem, lacking)
        scored = sorted(best_configs(self._problem, lacking, weights), reverse=True)
        return [config for _, config in scored[:_BRANCHES] if config]

    def _after(self, lacking: Floats, config: Config) -> Floats:
        return lacking - self._problem.provided([config])

    def _noisy(self, problem: Problem, lacking: Floats) -> Floats:
        """What a request a second costs, more or less."""
        noise: Floats = self._rng.uniform(0.8, 1.25, len(lacking))
        return self._parts * noise

    def _devices(self, lacking: Floats, configs: list[Config]) -> float:
        """How many devices; of the last one, the part that is needed."""
        if not configs:
            return 0.0
        before = np.maximum(lacking - self._problem.provided(configs[:-1]), 0.0)
        return len(configs) - 1 + min(float(self._parts @ before), 1.0)


@dataclass(frozen=True)
class Search:
    """`rounds`: children; `population`: deployments that are kept; `tries`: of a tree search."""

    rounds: int
    population: int
    tries: int

    def improved(
        self, problem: Problem, configs: list[Config], rng: np.random.Generator
    ) -> list[Config]:
        """A deployment with as many devices or fewer, beginning at one that covers all loads."""
        parts = device_parts(problem)
        tree = _Tree(problem, parts, rng)
        living = [(float(len(configs)), configs)]
        other = greedy(problem, problem.loads, len(configs), lambda problem, lacking: parts)
        if problem.covers(other):
            living.append((float(len(other)), other))
        bound = ceil(fewest(problem) - 1e-6)
        for _ in range(min(self.rounds, _WORK // len(problem.loads))):
            if min(len(each) for _, each in living) <= bound:
                break
            parent = living[int(rng.integers(len(living)))][1]
            order = rng.permutation(len(parent))
            count = min(int(rng.integers(2, _DROPPED + 1)), len(parent))
            worth = [self._work(problem, parts, parent[at]) for at in order]
            lost = set(order[np.argsort(worth, kind="stable")[: count // 2]].tolist())
            lost |= set(order[: count - len(lost)].tolist())
            kept = [config for at, config in enumerate(parent) if at not in lost]
            lacking = problem.loads - problem.provided(kept)
            score, more = tree.filled(lacking, self.tries, len(lost) + 1)
            child = [*kept, *more]
            if problem.covers(child):
                living = sorted([(len(kept) + score, child), *living], key=lambda each: each[0])
                living = living[: self.population]
        return min((each for _, each in living), key=len)

    def _work(self, problem: Problem, parts: Floats, config: Config) -> float:
        return float(parts @ problem.provided([config]))
