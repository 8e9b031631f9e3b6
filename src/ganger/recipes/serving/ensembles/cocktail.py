"""Ensembles that shrink while they are right often enough, and vote by class.

An ensemble begins with all models that can answer within the time of a request. Every interval it
loses the model that is right least often, if it was right as often as wanted and more of its models
agreed than have to; it gains the best of the others if it was not. A vote for a class counts by how
often its model was right when it gave that class. (Gunasekaran et al.: Cocktail, NSDI 2022,
section 4.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import comb, isnan

from msgspec import Struct

from ganger.core.errors import BadInput
from ganger.core.serving.verbs import Truth
from ganger.core.serving.world import World
from ganger.mechanisms.serving.pipeline import quickest


class Start(Enum):
    """With which models an ensemble begins."""

    ALL = "all"
    FORMULA = "formula"


def voted_accuracy(count: int, accuracy: float) -> float:
    """How often most of so many voters are right that err independently of each other. Models do
    not: what they get wrong together no vote mends, so it promises too much."""
    return sum(
        comb(count, right) * accuracy**right * (1 - accuracy) ** (count - right)
        for right in range(count // 2 + 1, count + 1)
    )


class Group(Struct):
    """The ensemble of the requests of a family that leave time for the same models (`able`, the
    quickest first). Of the interval that began at `since`: how many answers were `judged`, how many
    of them were `right`, and how many members agreed with the vote in all of them."""

    able: list[int]
    members: list[int]
    since: int
    judged: int = 0
    right: int = 0
    agreed: int = 0


class Groups(Struct):
    """What is known of ensembles: by family and number of models that are able, and by model and
    class that it gave how often that was right, and how often it was judged."""

    of: dict[tuple[int, int], Group] = {}
    counts: dict[tuple[int, int], list[int]] = {}


@dataclass(frozen=True)
class Cocktail:
    """`accuracy`: how often an answer is to be right; `every`: microseconds of an interval;
    `least`: judged answers of an interval without which nothing is changed."""

    accuracy: float
    every: int
    least: int
    start: Start

    def begin(self, world: World) -> Groups:
        """Nobody has asked."""
        return Groups()

    def choose(
        self, world: World, memory: Groups, row: int, variants: Sequence[int]
    ) -> Sequence[int]:
        """The members of the request's ensemble, which may change with the first request of an
        interval. Raises BadInput where it begins by formula and an accuracy is not known."""
        requests = world.requests
        at = row - requests.base
        family, now = requests.model[at], requests.arrival[at]
        slack = requests.deadline[at] - now
        order = sorted(variants, key=lambda model: (quickest(world, model), model))
        able = [model for model in order if quickest(world, model) <= slack] or order[:1]
        key = family, len(able)
        group = memory.of.get(key)
        if group is None or group.able != able:
            group = memory.of[key] = Group(able, self._first(world, family, able), now)
        if now >= group.since + self.every:
            if group.judged >= self.least:
                self._change(world, memory, group)
            group.since, group.judged, group.right, group.agreed = now, 0, 0, 0
        return tuple(group.members)

    def _first(self, world: World, family: int, able: Sequence[int]) -> list[int]:
        """The members to begin with: all, or the fewest of the best, an odd number, that are right
        as often as wanted by the formula, if each is as often as they are on average."""
        if self.start is Start.ALL:
            return list(able)
        accuracies = {model: world.models[model].accuracy for model in able}
        for model, accuracy in accuracies.items():
            if isnan(accuracy):
                raise BadInput(
                    f"the accuracy of model {world.models[model].name!r} is not known",
                    where=world.asked(family),
                    mend="state it in the models file",
                )
        best = sorted(able, key=lambda model: (-accuracies[model], model))
        for count in range(1, len(best) + 1, 2):
            average = sum(accuracies[model] for model in best[:count]) / count
            if voted_accuracy(count, average) >= self.accuracy:
                return best[:count]
        return best

    def _change(self, world: World, memory: Groups, group: Group) -> None:
        """A member less, or one more."""
        members = group.members
        if group.right < self.accuracy * group.judged:
            others = [model for model in group.able if model not in members]
            if others:
                members.append(max(others, key=lambda model: self._worth(world, memory, model)))
        elif group.agreed > (len(members) // 2 + 1) * group.judged:
            members.remove(min(members, key=lambda model: self._worth(world, memory, model)))

    def _worth(self, world: World, memory: Groups, model: int) -> tuple[float, int]:
        """How often a model was right, and then the quicker one."""
        counts = [count for (of, _), count in memory.counts.items() if of == model]
        right, judged = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        return (right + 1) / (judged + 2), -quickest(world, model)

    def weight(self, memory: Groups, model: int, given: int) -> float:
        """How often a model was right when it gave that class; a half before it ever did."""
        right, judged = memory.counts.get((model, given), (0, 0))
        return (right + 1) / (judged + 2)

    def combine(
        self, world: World, memory: Groups, row: int, outputs: Mapping[int, int]
    ) -> tuple[int, int]:
        """The class with the greatest weight behind it, and of the models that gave it the one with
        the greatest. At equal weights the lower number wins."""
        return self._vote(memory, outputs)

    def _vote(self, memory: Groups, outputs: Mapping[int, int]) -> tuple[int, int]:
        votes: dict[int, float] = {}
        for model, given in outputs.items():
            votes[given] = votes.get(given, 0.0) + self.weight(memory, model, given)
        won = min(votes, key=lambda given: (-votes[given], given))
        by = min(
            (model for model, given in outputs.items() if given == won),
            key=lambda model: (-self.weight(memory, model, won), model),
        )
        return by, won

    def learn(self, world: World, memory: Groups, truth: Truth) -> None:
        """Judge the vote of an ensemble that had all its answers, and then each member."""
        outputs = truth.said
        if truth.label < 0 or not outputs or min(outputs.values()) < 0:
            return
        _, won = self._vote(memory, outputs)
        agreed = sum(given == won for given in outputs.values())
        for (family, _), group in memory.of.items():
            if family == truth.asked and outputs.keys() == set(group.members):
                group.judged += 1
                group.right += won == truth.label
                group.agreed += agreed
        for model, given in outputs.items():
            count = memory.counts.setdefault((model, given), [0, 0])
            count[0] += given == truth.label
            count[1] += 1
