"""What harm jobs are predicted to do to each other on the same GPUs: Co-scheML's slow-downs, and
the sums of use of Yeung, Horus and Liquid."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ganger.core.profiles import Profile
from ganger.core.view import View
from ganger.estimate.sharing.gpu_use import forest_use, gpu_memory, gpu_use
from ganger.estimate.sharing.slowdown import Slowdowns


class ByGraph:
    """A score that knows of memory what profiles and graphs tell."""

    def memory(self, profile: Profile) -> int:
        """As stated, else by its graph."""
        return gpu_memory(profile)


class LongestSlowdown(ByGraph):
    """The largest factor by which a step of any of them takes longer beside the others: beside
    several, the product of what each does."""

    def knows(self, view: View, profile: Profile, gpus: int) -> bool:
        """Whether its use of the GPU, or its speed beside some other, is known."""
        return profile.shares

    def of(self, view: View, models: Sequence[str], gpu_type: str, gpus: int) -> float:
        """By measured pairs and a random forest (`estimate/sharing/slowdown`)."""
        pairs = view.cached(Slowdowns)
        every = [
            math.prod(
                pairs.of(view, model, other, gpu_type, gpus)
                for j, other in enumerate(models)
                if j != i
            )
            for i, model in enumerate(models)
        ]
        return math.nan if any(map(math.isnan, every)) else max(every)


class SumOfUse(ByGraph):
    """The sum of the shares of a GPU's time that they use alone; 1 is all of it."""

    def use(self, profile: Profile, gpus: int) -> float:
        """By the graph, as stated, or by stages (`estimate/sharing/gpu_use`); NaN: unknown."""
        return gpu_use(profile, gpus)

    def knows(self, view: View, profile: Profile, gpus: int) -> bool:
        """Whether the use of the GPU is stated or can be predicted."""
        return not math.isnan(self.use(profile, gpus))

    def of(self, view: View, models: Sequence[str], gpu_type: str, gpus: int) -> float:
        """What they use in all."""
        return math.fsum(self.use(view.oracle.profile(model), gpus) for model in models)


class UseByForest(SumOfUse):
    """The same, predicted from graphs by a random forest."""

    def use(self, profile: Profile, gpus: int) -> float:
        """As `SumOfUse`, by the forest."""
        return gpu_use(profile, gpus, forest_use)
