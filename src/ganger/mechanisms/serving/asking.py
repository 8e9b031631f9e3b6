"""Which models are asked: one of the request's family or several, or none, where the answer is
known already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Protocol

from msgspec import Struct

from ganger.core.serving.verbs import Batch, Cancel, Do, Ended, Part, Truth
from ganger.core.serving.world import Task, World
from ganger.core.units import NEVER
from ganger.mechanisms.serving.choice import Choice


class Ensemble(Struct):
    """A request that several models answer: how many have not yet, and what the others answered,
    and gave for every class."""

    missing: int
    said: dict[int, int] = {}
    scores: dict[int, Sequence[float]] = {}


class Asked(Struct):
    """What is open and what is kept."""

    chosen: Any = None
    """What the choice has learned."""
    open: dict[int, Ensemble] = {}
    """By request that is asked of several models."""
    due: list[tuple[int, int]] = []
    """A heap of (deadline, request) of those; others are over."""
    kept: dict[tuple[int, int], int] = {}
    """By model and input: what it said (-1: not known); what was used last is at the end."""
    idle: bool = False
    """Whether a request is over for which models may still run."""


class Stepwise(Protocol):
    """A choice that looks at each answer before it asks further models."""

    def after(
        self,
        world: World,
        memory: Any,
        row: int,
        said: Mapping[int, int],
        scores: Mapping[int, Sequence[float]],
    ) -> Sequence[int] | None:
        """The models that are asked next; None: what has come is enough."""


@dataclass(frozen=True)
class Asking:
    """`choice`: among the models of a family; `keeps`: how many answers are kept, by model and
    input, and given to later requests with the same input, the least recently used gone first.
    `stepwise`: the same choice, where it decides after each answer; such keep no answers, and what
    runs for nobody any more is cancelled."""

    choice: Choice | None = None
    keeps: int = 0
    stepwise: Stepwise | None = None

    def begin(self, world: World) -> Asked:
        """Nothing was asked."""
        return Asked(None if self.choice is None else self.choice.begin(world))

    def arrive(
        self, world: World, memory: Asked, row: int, variants: Sequence[int]
    ) -> list[tuple[int, int]]:
        """The (model, number) pairs that have to run for a request that comes: itself, or a task
        for each of several models. None, where all is known."""
        requests = world.requests
        at = row - requests.base
        if not variants:
            return [(world.variants[requests.model[at]][0], row)]
        if len(variants) > 1:
            assert self.choice is not None, "only a router that chooses is asked for a family"
            variants = self.choice.choose(world, memory.chosen, row, variants)
        given = requests.input[at] if self.keeps else -1
        steps = self.stepwise is not None and requests.model[at] >= len(world.models)
        known_alone = len(variants) == 1 and (variants[0], given) in memory.kept
        if len(variants) == 1 and not known_alone and not steps:
            return [(variants[0], row)]
        known = self._known(memory, variants, given)
        missing = [model for model in variants if model not in known]
        memory.open[row] = Ensemble(len(missing), known)
        if not missing:
            self._close(world, memory, row, requests.arrival[at])
            return []
        if requests.deadline[at] < NEVER:
            heappush(memory.due, (requests.deadline[at], row))
        return self._tasks(world, row, missing, requests.arrival[at])

    def _tasks(
        self, world: World, row: int, models: Sequence[int], arrival: int
    ) -> list[tuple[int, int]]:
        """A task for each of these models."""
        requests, at = world.requests, row - world.requests.base
        items, deadline = requests.items[at], requests.deadline[at]
        return [
            (model, world.add_task(Task(row, model, items, arrival=arrival, deadline=deadline)))
            for model in models
        ]

    def _known(self, memory: Asked, models: Sequence[int], given: int) -> dict[int, int]:
        """What was kept of these models for an input; it is now the most recently used."""
        found: dict[int, int] = {}
        if given >= 0:
            kept = memory.kept
            for model in models:
                key = model, given
                if key in kept:
                    kept[key] = found[model] = kept.pop(key)
        return found

    def _keep(self, kept: dict[tuple[int, int], int], key: tuple[int, int], said: int) -> None:
        """An answer is now the most recently used."""
        kept.pop(key, None)
        kept[key] = said
        if len(kept) > self.keeps:
            del kept[next(iter(kept))]

    def gone(self, world: World, memory: Asked, number: int) -> bool:
        """Whether a task need not be run, because its request is over."""
        return world.tasks[number].request not in memory.open

    def ended(
        self,
        world: World,
        memory: Asked,
        part: Part,
        done: Ended,
        places: Sequence[int] | None = None,
    ) -> list[tuple[int, int]]:
        """A batch was executed: answer what is complete, learn, and keep."""
        self.close_due(world, memory)
        model, direct, choice = part.model, list[int](), self.choice
        requests, families = world.requests, len(world.models)
        base, inputs, asked_of = requests.base, requests.input, requests.model
        wanted: list[tuple[int, int]] = []
        for place in range(len(part.tasks)) if places is None else places:
            row = number = part.tasks[place]
            output = done.outputs[0][place] if done.outputs else -1
            if number < 0:
                row = world.tasks.pop(number).request
                if row not in memory.open:
                    continue  # it was answered without this one
            if self.keeps and inputs[row - base] >= 0:
                self._keep(memory.kept, (model, inputs[row - base]), output)
            if number < 0:
                memory.open[row].said[model] = output
                if done.scores:
                    memory.open[row].scores[model] = done.scores[0][place]
                wanted += self._step(world, memory, row)
                continue
            if choice is not None and asked_of[row - base] >= families:
                choice.learn(world, memory.chosen, _truth(world, row, {model: output}))
            direct.append(row)
        if direct:
            world.answer(direct, model)
        return wanted

    def _step(self, world: World, memory: Asked, row: int) -> list[tuple[int, int]]:
        """A model has answered: the (model, number) pairs that have to run because of it."""
        ensemble = memory.open[row]
        if self.stepwise is not None:
            more = self.stepwise.after(world, memory.chosen, row, ensemble.said, ensemble.scores)
            if more is None:
                ensemble.missing -= 1
                self._close(world, memory, row, world.now)
                return []
            ensemble.missing += len(more)
            wanted = self._tasks(world, row, more, world.now)
            self._less(world, memory, row, world.now)
            return wanted
        self._less(world, memory, row, world.now)
        return []

    def useless(self, world: World, memory: Asked) -> list[Do]:
        """Orders to cancel what runs for requests that are over."""
        memory.idle = False
        return [
            Cancel(lane.number)
            for lane in world.lanes
            if isinstance(lane.running, Batch)
            and all(
                number < 0 and self.gone(world, memory, number)
                for part in lane.running.parts
                for number in part.tasks
            )
        ]

    def hear(self, world: World, memory: Asked, truths: Sequence[Truth]) -> None:
        """What is right of requests for families that are over."""
        for truth in truths:
            if self.choice is not None and truth.asked >= len(world.models):
                self.choice.learn(world, memory.chosen, truth)

    def refuse(self, world: World, memory: Asked, number: int, why: str, at: int) -> None:
        """What should have waited does not: a request is dropped, a task is not waited for."""
        if number >= 0:
            world.refuse((number,), why, at=at)
            return
        row = world.tasks.pop(number).request
        if row in memory.open:
            self._less(world, memory, row, at, why)

    def _less(self, world: World, memory: Asked, row: int, at: int, why: str = "") -> None:
        """One model less is waited for."""
        ensemble = memory.open[row]
        ensemble.missing -= 1
        if not ensemble.missing:
            self._close(world, memory, row, at, why)

    def close_due(self, world: World, memory: Asked) -> None:
        """Answer those whose deadline has passed with what had come by then."""
        while memory.due and memory.due[0][0] < world.now:
            deadline, row = heappop(memory.due)
            if row in memory.open:
                self._close(world, memory, row, deadline)

    def _close(self, world: World, memory: Asked, row: int, at: int, why: str = "") -> None:
        ensemble = memory.open.pop(row)
        said = ensemble.said
        if self.stepwise is not None and ensemble.missing:
            memory.idle = True
        if not said:
            world.refuse((row,), why or "no model answered in time", at=at)
            return
        by, class_ = next(iter(said.items()))
        asked = world.requests.model[row - world.requests.base]
        if self.choice is not None and asked >= len(world.models):  # it names a family
            by, class_ = self.choice.combine(world, memory.chosen, row, said)
            self.choice.learn(world, memory.chosen, _truth(world, row, said))
        if class_ != said[by]:
            world.said[row] = class_
        world.answer((row,), by, at=at)


def _truth(world: World, row: int, said: Mapping[int, int]) -> Truth:
    """What is known to be right of a request when it is answered."""
    requests = world.requests
    at = row - requests.base
    return Truth(requests.model[at], requests.tenant[at], said, requests.label[at])
