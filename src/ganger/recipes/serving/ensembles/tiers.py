"""Tiers of service: how much more often than the best version a request's answer may be wrong, and
whether it is to be quick or cheap.

A rule says which versions are asked: one; a quick one and, where that is not sure, a slow one after
it; or both at once, of which the slow one is given up where the quick one is sure. Rules are tried
on a labelled data set, and on many samples drawn from it. A tier takes the best rule of those whose
errors keep its tolerance in nearly all samples. (Halpern et al.: One Size Does Not Fit All, ISPASS
2019.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, cast

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.serving.verbs import Truth
from ganger.core.serving.world import Recorded, World
from ganger.mechanisms.serving.pipeline import quickest

F64 = NDArray[np.float64]
_DRAWN: Final = 1 << 23
"""So many numbers are drawn at once."""
_STEPS: Final = 20
"""Thresholds that are tried for each quick version: so many parts of its answers, alike."""


class Aim(Enum):
    """What a tier wants less of."""

    LATENCY = "latency"
    COST = "cost"


class Tier(NamedTuple):
    """`tolerance`: how much more often than the best version an answer may be wrong."""

    tolerance: float
    aim: Aim


class Rule(Struct, frozen=True):
    """`first` answers; where there is a `second` (-1: none), only if it is sure by `threshold` or
    more. `both`: the second is asked at once."""

    first: int
    second: int = -1
    threshold: float = 0.0
    both: bool = False


class Tried(NamedTuple):
    """A rule on the data set: by input whether it errs, and the mean microseconds until it answers
    and of devices, alone."""

    rule: Rule
    wrong: NDArray[np.bool_]
    latency: float
    cost: float


def sureness(scores: Sequence[float], said: int) -> float:
    """How far the score of the class that was given is above the best other one; -inf where scores
    are not known."""
    if not 0 <= said < len(scores) or len(scores) < 2:
        return -np.inf
    return scores[said] - max(score for at, score in enumerate(scores) if at != said)


def _sure(of: Recorded) -> F64 | None:
    """The same for all inputs; None where nothing is known."""
    if of.scores is None:
        return None
    rows = np.arange(len(of.gave))
    others = of.scores.copy()
    others[rows, of.gave] = -np.inf
    return cast("F64", of.scores[rows, of.gave] - others.max(1))


def tried(recorded: Mapping[int, Recorded], times: Mapping[int, int]) -> Iterator[Tried]:
    """Every rule over these versions. `times`: microseconds of each alone."""
    for model, of in recorded.items():
        yield Tried(Rule(model), of.gave != of.labels, times[model], times[model])
    for first, of in recorded.items():
        sure = _sure(of)
        if sure is None:
            continue
        levels = np.quantile(sure, np.arange(1, _STEPS) / _STEPS, method="higher")
        for second, other in recorded.items():
            quick, slow = times[first], times[second]
            if quick >= slow:
                continue
            for threshold in np.unique(levels).tolist():
                asks = sure < threshold
                wrong = np.where(asks, other.gave != other.labels, of.gave != of.labels)
                part = float(asks.mean())
                took = quick + part * slow
                yield Tried(Rule(first, second, threshold), wrong, took, took)
                latency = (1 - part) * quick + part * slow
                cost = 2 * quick * (1 - part) + (quick + slow) * part
                yield Tried(Rule(first, second, threshold, True), wrong, latency, cost)


def worsened(rules: Sequence[Tried], samples: int, confidence: float) -> F64:
    """By rule, how much more often than the best version it errs, which in `confidence` of so many
    samples is not exceeded. A sample is as large as the data set, drawn from it with repetition.

    One input is added to the data set, on which the best version is right and all other rules err:
    what was not seen may still come, and samples of nothing but equal answers would promise that it
    does not."""
    singles = [each for each in rules if each.rule.second < 0]
    best = min(singles, key=lambda each: (each.wrong.sum(), each.latency))
    more = np.array([each.wrong for each in rules], np.float32) - best.wrong
    added = [[each.rule != best.rule] for each in rules]
    more = np.concatenate((more, np.array(added, np.float32)), axis=1)
    count = more.shape[1]
    dice, each, parts = np.random.default_rng(0), np.full(count, 1 / count), list[Any]()
    at_once = max(_DRAWN // count, 1)
    for first in range(0, samples, at_once):
        drawn = dice.multinomial(count, each, min(at_once, samples - first))
        parts.append(drawn.astype(np.float32) @ more.T / count)
    bounds = np.quantile(np.concatenate(parts), confidence, axis=0, method="higher")
    return np.asarray(bounds, np.float64)


def ruled(
    recorded: Mapping[int, Recorded],
    times: Mapping[int, int],
    tiers: Sequence[Tier],
    samples: int,
    confidence: float,
) -> list[Rule]:
    """The rule of each tier. The best version alone keeps every tolerance, and nothing else one of
    0."""
    rules = list(tried(recorded, times))
    bounds = worsened(rules, samples, confidence)
    chosen = []
    for tier in tiers:
        kept = [
            each
            for each, bound in zip(rules, bounds, strict=True)
            if bound <= tier.tolerance + _NOTHING
        ]
        best = min(
            kept,
            key=lambda each: (
                (each.latency, each.cost) if tier.aim is Aim.LATENCY else (each.cost, each.latency)
            ),
        )
        chosen.append(best.rule)
    return chosen


_NOTHING: Final = 1e-9


class Chosen(Struct):
    """By family and tier: its rule."""

    rules: dict[tuple[int, int], Rule] = {}


@dataclass(frozen=True)
class Tiers:
    """The rule of the tier that a request's tenant has; of those that have none, the first tier.
    `of`: by tenant, the number of its tier."""

    tiers: tuple[Tier, ...]
    of: tuple[tuple[str, int], ...]
    samples: int
    confidence: float

    def begin(self, world: World) -> Chosen:
        """Nobody has asked."""
        return Chosen()

    def choose(
        self, world: World, memory: Chosen, row: int, variants: Sequence[int]
    ) -> Sequence[int]:
        """The first version, or both. Raises BadInput where a version's answers were not
        recorded."""
        rule = self._rule(world, memory, row, variants)
        return (rule.first, rule.second) if rule.both else (rule.first,)

    def _rule(self, world: World, memory: Chosen, row: int, variants: Sequence[int]) -> Rule:
        requests = world.requests
        at = row - requests.base
        family, tenant = requests.model[at], world.tenants[requests.tenant[at]]
        tier = dict(self.of).get(tenant, 0)
        if (family, tier) not in memory.rules:
            recorded = {model: _recorded(world, family, model) for model in variants}
            times = {model: quickest(world, model) for model in variants}
            rules = ruled(recorded, times, self.tiers, self.samples, self.confidence)
            for number, rule in enumerate(rules):
                memory.rules[family, number] = rule
        return memory.rules[family, tier]

    def after(
        self,
        world: World,
        memory: Chosen,
        row: int,
        said: Mapping[int, int],
        scores: Mapping[int, Sequence[float]],
    ) -> Sequence[int] | None:
        """The slow version, where the quick one was not sure."""
        rule = self._rule(world, memory, row, ())
        if rule.second < 0 or rule.second in said:
            return None
        if sureness(scores.get(rule.first, ()), said[rule.first]) >= rule.threshold:
            return None
        return () if rule.both else (rule.second,)

    def learn(self, world: World, memory: Chosen, truth: Truth) -> None:
        """Nothing: rules are found before."""

    def combine(
        self, world: World, memory: Chosen, row: int, outputs: Mapping[int, int]
    ) -> tuple[int, int]:
        """The answer of the slow version, where there is one; else that of the quick one."""
        rule = self._rule(world, memory, row, ())
        by = rule.second if rule.second in outputs else next(iter(outputs))
        return by, outputs[by]


def _recorded(world: World, family: int, model: int) -> Recorded:
    """What is known of the answers of a version. Raises BadInput where nothing is."""
    known = world.models[model]
    if known.recorded is None:
        raise BadInput(
            f"no answers of model {known.name!r} were recorded",
            where=world.asked(family),
            mend="name its predictions in the models file",
        )
    return known.recorded
