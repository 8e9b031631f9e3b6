"""Which models of a family answer a request: one that was drawn or expected to be best, or all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, isnan
from typing import Any, Protocol

from msgspec import Struct

from ganger.core.errors import BadInput
from ganger.core.serving.verbs import Truth
from ganger.core.serving.world import Lane, World
from ganger.core.units import SECOND
from ganger.mechanisms.serving.on_time import OnTime
from ganger.mechanisms.serving.pipeline import quickest


class Choice(Protocol):
    """Chooses, and learns from labels. What it learns is in the memory that `begin` makes."""

    def begin(self, world: World) -> Any:
        """The memory to begin with."""

    def choose(self, world: World, memory: Any, row: int, variants: Sequence[int]) -> Sequence[int]:
        """The models that are asked, one or several. Decided of the request's own arrival. Raises
        BadInput for models of which too little is known."""

    def learn(self, world: World, memory: Any, truth: Truth) -> None:
        """What the models that were asked in time answered, and what is right."""

    def combine(
        self, world: World, memory: Any, row: int, outputs: Mapping[int, int]
    ) -> tuple[int, int]:
        """Of several: the model that the answer is of, and the class that is answered."""


class Weights(Struct):
    """By (family, tenant or -1): what each variant's weight is; the greatest is 1."""

    of: dict[tuple[int, int], dict[int, float]] = {}


@dataclass(frozen=True)
class _Weighing:
    """Weights of the variants of a family. `rate`: eta, how fast they change; `by_tenant`: every
    tenant has weights of its own."""

    rate: float
    by_tenant: bool = False

    def begin(self, world: World) -> Weights:
        """All alike."""
        return Weights()

    def _weights(self, world: World, memory: Weights, row: int) -> dict[int, float]:
        requests = world.requests
        at = row - requests.base
        return self._of(world, memory, requests.model[at], requests.tenant[at])

    def _of(self, world: World, memory: Weights, asked: int, tenant: int) -> dict[int, float]:
        key = asked, tenant if self.by_tenant else -1
        weights = memory.of.get(key)
        if weights is None:
            weights = memory.of[key] = dict.fromkeys(world.variants[asked], 1.0)
        return weights

    def _lose(self, weights: dict[int, float], losses: Mapping[int, float]) -> None:
        """Each loses by its loss. They are then scaled so that the greatest is 1: nothing that is
        drawn or voted changes by this, and none ever vanishes for all."""
        if not losses:
            return
        for model, loss in losses.items():
            weights[model] *= exp(-self.rate * loss)
        most = max(weights.values())
        for model in weights:
            weights[model] = max(weights[model] / most, _LEAST)


_LEAST = 1e-12


def _wrong(truth: Truth) -> list[int]:
    """The models that erred; none where the truth is not known."""
    right = truth.label
    return [model for model, said in truth.said.items() if right >= 0 and said not in (-1, right)]


@dataclass(frozen=True)
class Exp3(_Weighing):
    """One model, drawn by weights; the weight of a model that errs shrinks by exp(-rate / p), where
    p is the chance that it had been drawn.

    (Auer et al.: The nonstochastic multiarmed bandit problem, SIAM J. Comput. 2002; Clipper, NSDI
    2017, section 5.1.)
    """

    def choose(
        self, world: World, memory: Weights, row: int, variants: Sequence[int]
    ) -> Sequence[int]:
        """By lot."""
        weights = self._weights(world, memory, row)
        all_ = len(variants) == len(weights)
        total = sum(weights.values() if all_ else [weights[each] for each in variants])
        left = world.draw(row, 2) * total
        for model in variants:
            left -= weights[model]
            if left < 0:
                return (model,)
        return variants[-1:]

    def learn(self, world: World, memory: Weights, truth: Truth) -> None:
        """It lost if it erred."""
        wrong = _wrong(truth)
        if wrong:
            weights = self._of(world, memory, truth.asked, truth.tenant)
            total = sum(weights.values())
            self._lose(weights, {model: total / weights[model] for model in wrong})

    def combine(
        self, world: World, memory: Weights, row: int, outputs: Mapping[int, int]
    ) -> tuple[int, int]:
        """There is one."""
        return next(iter(outputs.items()))


@dataclass(frozen=True)
class Exp4(_Weighing):
    """All models answer, and vote by weights; the weight of each that errs shrinks by exp(-rate).

    `agree`: the part of all weights that has to be for the class that wins; below it the class
    `otherwise` is answered. (Clipper, NSDI 2017, section 5.2.)
    """

    agree: float = 0.0
    otherwise: int = 0

    def choose(
        self, world: World, memory: Weights, row: int, variants: Sequence[int]
    ) -> Sequence[int]:
        """All."""
        return variants

    def learn(self, world: World, memory: Weights, truth: Truth) -> None:
        """Those that erred lost."""
        weights = self._of(world, memory, truth.asked, truth.tenant)
        self._lose(weights, dict.fromkeys(_wrong(truth), 1.0))

    def combine(
        self, world: World, memory: Weights, row: int, outputs: Mapping[int, int]
    ) -> tuple[int, int]:
        """The class with the greatest weight behind it; of those that answered it, the model with
        the greatest weight is named. At equal weights the lower number wins."""
        weights = self._weights(world, memory, row)
        votes: dict[int, float] = {}
        for model, said in outputs.items():
            votes[said] = votes.get(said, 0.0) + weights[model]
        won = min(votes, key=lambda said: (-votes[said], said))
        by = min(
            (each for each, said in outputs.items() if said == won),
            key=lambda each: (-weights[each], each),
        )
        if votes[won] < self.agree * sum(weights.values()):
            return by, self.otherwise
        return by, won


class Switches(Struct):
    """By family: the second that is counted, the requests in it so far and in the one before, and
    the variant in use."""

    second: dict[int, int] = {}
    count: dict[int, int] = {}
    rate: dict[int, float] = {}
    used: dict[int, int] = {}
    tables: dict[tuple[int, int], OnTime] = {}


@dataclass(frozen=True)
class Switching:
    """One model: of which accuracy x P(in time | load) is greatest, chosen every `every`
    microseconds by the requests that came in the time before.

    P is found before for each model, by a queue with these lanes and latencies. A change wants a
    value that is greater by `better` of it. (Zhang et al.: Model-Switching, HotCloud 2020.)
    """

    every: int = SECOND
    better: float = 0.0

    def begin(self, world: World) -> Switches:
        """Nothing has come."""
        return Switches()

    def choose(
        self, world: World, memory: Switches, row: int, variants: Sequence[int]
    ) -> Sequence[int]:
        """The one in use, which may change with the first request of a second. Raises BadInput
        where the accuracy of a variant is not known."""
        requests = world.requests
        at = row - requests.base
        family, second = requests.model[at], requests.arrival[at] // self.every
        before = memory.second.get(family)
        if before != second:
            counted = memory.count.get(family, 0) if before == second - 1 else 0
            memory.rate[family] = counted * SECOND / self.every
            memory.second[family], memory.count[family] = second, 0
            slack = requests.deadline[at] - requests.arrival[at]
            memory.used[family] = self._best(world, memory, family, variants, slack)
        memory.count[family] += 1
        return (memory.used[family],)

    def _best(
        self, world: World, memory: Switches, family: int, variants: Sequence[int], slack: int
    ) -> int:
        """The variant to use from now on."""
        for model in variants:
            if isnan(world.models[model].accuracy):
                raise BadInput(
                    f"the accuracy of model {world.models[model].name!r} is not known",
                    where=world.asked(family),
                    mend="state it in the models file",
                )
        values = {
            model: world.models[model].accuracy
            * self._table(world, memory, model, slack).at(memory.rate[family])
            for model in variants
        }
        best = min(values, key=lambda model: (-values[model], model))
        used = memory.used.get(family)
        if used in values and values[best] <= values[used] * (1 + self.better):
            return used
        return best

    def _table(self, world: World, memory: Switches, model: int, slack: int) -> OnTime:
        found = memory.tables.get((model, slack))
        if found is None:
            if len(memory.tables) >= _TABLES:
                memory.tables.clear()
            lanes = [lane for lane in world.lanes if not lane.copies]
            found = memory.tables[model, slack] = OnTime.of(_latencies(world, model, lanes), slack)
        return found

    def learn(self, world: World, memory: Switches, truth: Truth) -> None:
        """Nothing."""

    def combine(
        self, world: World, memory: Switches, row: int, outputs: Mapping[int, int]
    ) -> tuple[int, int]:
        """There is one."""
        return next(iter(outputs.items()))


_TABLES = 1024
"""SLOs of models for which tables are kept."""


def _latencies(world: World, model: int, lanes: Sequence[Lane]) -> list[Sequence[int]]:
    """The mean latencies of a model, by lane that runs it."""
    found = [world.latencies(model, lane) for lane in lanes]
    return [each.mean for each in found if each is not None]


@dataclass(frozen=True)
class Quickest:
    """Of what is in some memory already, else of all, the model that takes least alone."""

    def begin(self, world: World) -> None:
        """Nothing is learned."""

    def choose(self, world: World, memory: Any, row: int, variants: Sequence[int]) -> Sequence[int]:
        """One model."""
        here = {model for store in world.stores for model in (*store.resident, *store.loading)}
        return (min(variants, key=lambda model: (model not in here, quickest(world, model))),)

    def learn(self, world: World, memory: Any, truth: Truth) -> None:
        """Nothing."""

    def combine(
        self, world: World, memory: Any, row: int, outputs: Mapping[int, int]
    ) -> tuple[int, int]:
        """The answer of the model that was asked."""
        ((model, said),) = outputs.items()
        return model, said
