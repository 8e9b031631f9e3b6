"""What models say of inputs: the classes that were recorded."""

from __future__ import annotations

from collections.abc import Sequence

from ganger.core.serving.verbs import Part
from ganger.core.serving.world import World


class Outputs:
    """`predicted`: by model, the class that it gives each input; None where nobody recorded it.
    Inputs past the last begin again with the first."""

    def __init__(self, predicted: Sequence[Sequence[int] | None]) -> None:
        self._predicted = predicted

    def of(self, world: World, part: Part) -> list[int]:
        """The class of each task; -1 where model or input is not known, or the request is
        forgotten already."""
        classes = self._predicted[part.model]
        if classes is None:
            return [-1] * len(part.tasks)
        requests, tasks, count = world.requests, world.tasks, len(classes)
        found = []
        for number in part.tasks:
            at = (number if number >= 0 else tasks[number].request) - requests.base
            given = requests.input[at] if at >= 0 else -1
            found.append(classes[given % count] if given >= 0 else -1)
        return found
