"""What jobs that run iterations in turn do to each other: Salus' lanes, and JigSaw's steps in which
workers back-propagate in part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ganger.core.profiles import UNSTATED, Memory, Profile
from ganger.core.view import View
from ganger.estimate.sharing.lanes import IterationLane, Seats, seated, speeds
from ganger.estimate.sharing.partial_backprop import together


class _Memories:
    """By model: its memory, and by model and GPUs the part of a GPU's time that it uses alone."""

    __slots__ = ("demands", "memories")

    def __init__(self) -> None:
        self.memories: dict[str, Memory] = {}
        self.demands: dict[tuple[str, int], float] = {}

    def memory(self, view: View, model: str) -> Memory:
        """What the model is believed to need of each GPU."""
        if model not in self.memories:
            self.memories[model] = view.oracle.profile(model).memory or UNSTATED
        return self.memories[model]

    def demand(self, view: View, model: str, gpus: int) -> float:
        """What it is believed to use."""
        key = model, gpus
        if key not in self.demands:
            self.demands[key] = view.oracle.profile(model).compute(gpus)
        return self.demands[key]


@dataclass(frozen=True)
class InLanes:
    """How many times as long the steps of jobs in lanes take on average, in turns of equal time;
    infinite where their memory does not fit. At most `lanes` of a GPU compute side by side.
    `timed`: only models whose iteration is known take part."""

    lanes: int
    timed: bool = False

    def knows(self, view: View, profile: Profile, gpus: int) -> bool:
        """Whether its memory and its use of a GPU are stated."""
        memory = profile.memory
        if memory is None or math.isnan(profile.compute(gpus)):
            return False
        return memory.iteration > 0.0 or not self.timed

    def memory(self, profile: Profile) -> int:
        """None that adds up: `of` counts it."""
        return 0

    def seats(self, view: View, models: Sequence[str], size: int) -> Seats | None:
        """The jobs of each lane, by their number in `models`, on GPUs of `size` MiB."""
        known = view.cached(_Memories)
        return seated([known.memory(view, model) for model in models], size, self.lanes)

    def of(self, view: View, models: Sequence[str], gpu_type: str, gpus: int) -> float:
        """Jobs over the sum of their speeds."""
        sizes = {kind.name: kind.memory for kind in view.nodes.type_specs}
        seats = self.seats(view, models, sizes[gpu_type])
        if seats is None:
            return math.inf
        known = view.cached(_Memories)
        used = [known.demand(view, model, gpus) for model in models]
        lanes = [
            IterationLane(tuple(used[at] for at in lane), (1.0,) * len(lane)) for lane in seats
        ]
        return len(models) / sum(map(sum, speeds(lanes)[0]))


@dataclass(frozen=True)
class InPart(InLanes):
    """The time in which jobs do in one lane what they would do one after the other, over that; 1
    where they gain nothing. All workers but one of each back-propagate through a `fraction` of the
    layers; their full workers are on different GPUs as far as there are enough."""

    fraction: float = 1.0

    def knows(self, view: View, profile: Profile, gpus: int) -> bool:
        """Whether it is stated how long passes and iterations take, too."""
        return super().knows(view, profile, gpus) and profile.passes is not None

    def of(self, view: View, models: Sequence[str], gpu_type: str, gpus: int) -> float:
        """By what each does in a round of turns."""
        if math.isinf(super().of(view, models, gpu_type, gpus)):
            return math.inf
        profiles = [view.oracle.profile(model) for model in models]
        passes = [each.passes for each in profiles if each.passes is not None]
        iterations = [each.memory.iteration for each in profiles if each.memory is not None]
        return 1.0 / together(iterations, passes, self.fraction, gpus)
