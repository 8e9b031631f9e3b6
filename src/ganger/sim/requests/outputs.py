"""What models say of inputs: the classes that were recorded, and the scores behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ganger.core.serving.verbs import Part
from ganger.core.serving.world import World


class Outputs:
    """`predicted`: by model, the class that it gives each input; None where nobody recorded it.
    Inputs past the last begin again with the first. `scores`: by model and input, what it gives
    for every class; `sums`: by parity model, what it gives of inputs that are added up."""

    def __init__(
        self,
        predicted: Sequence[Sequence[int] | None],
        scores: Sequence[Sequence[Sequence[float]] | None] = (),
        sums: Mapping[int, Callable[[Sequence[int]], Sequence[float]]] = {},
    ) -> None:
        self._predicted = predicted
        self._scores = scores or [None] * len(predicted)
        self._sums = sums

    def of(self, world: World, part: Part) -> list[int]:
        """The class of each task; -1 where model or input is not known, or the request is
        forgotten already."""
        classes = self._predicted[part.model]
        if classes is None:
            return [-1] * len(part.tasks)
        count = len(classes)
        return [classes[at % count] if at >= 0 else -1 for at in self._inputs(world, part)]

    def scores_of(self, world: World, part: Part) -> list[Sequence[float]]:
        """What each task is given for every class; nothing where that is not known."""
        asked = self._sums.get(part.model)
        if asked is not None:
            sums = [world.tasks[each].inputs if each < 0 else () for each in part.tasks]
            return [asked(inputs) if inputs else () for inputs in sums]
        table = self._scores[part.model]
        if table is None:
            return [()] * len(part.tasks)
        count = len(table)
        return [table[at % count] if at >= 0 else () for at in self._inputs(world, part)]

    def _inputs(self, world: World, part: Part) -> list[int]:
        """The input of each task, -1 where it is not known."""
        requests, tasks, found = world.requests, world.tasks, list[int]()
        for number in part.tasks:
            at = (number if number >= 0 else tasks[number].request) - requests.base
            found.append(requests.input[at] if at >= 0 else -1)
        return found
