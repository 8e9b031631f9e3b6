"""How fast a model runs on what: the table type shared by the simulator's truth and the oracles.

A profile gives speeds relative to the reference: 1 is the speed at the size the job asks for, on
the reference GPU type, all GPUs in one node.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.spec import Locality

NO_SLOWDOWN = (1.0, 1.0, 1.0, 1.0)


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model. `by_type`: speed factor by GPU type (missing: the type's own `speed`).
    `locality`: time factors for GPUs in one island, node, rack, or anywhere (1 = no slow-down).
    `scaling`: throughput at 1, 2, 3, ... GPUs relative to one GPU; past its end it stays level;
    empty: linear. `skewed`: the largest tensor holds so much of the model that spreading hurts.
    """

    by_type: dict[str, float] = {}
    locality: tuple[float, float, float, float] = NO_SLOWDOWN
    scaling: tuple[float, ...] = ()
    skewed: bool = False

    def speedup(self, gpus: int, asked: int) -> float:
        """Throughput on `gpus` GPUs over that on the `asked` ones."""
        if gpus == asked:
            return 1.0
        return self._at(gpus) / self._at(asked)

    def _at(self, gpus: int) -> float:
        if gpus <= 0:
            return 0.0
        if not self.scaling:
            return float(gpus)
        return self.scaling[min(gpus, len(self.scaling)) - 1]

    def rate(self, gpu_type: str, speed: float, gpus: int, asked: int, tier: Locality) -> float:
        """Work per unit of time on `gpus` GPUs of `gpu_type` (whose own speed is `speed`)."""
        typed = self.by_type.get(gpu_type, speed)
        return typed * self.speedup(gpus, asked) / self.locality[tier]

    def rates(
        self, gpu_type: str, speed: float, gpus: NDArray[Any], asked: int, tiers: NDArray[Any]
    ) -> NDArray[np.float64]:
        """`rate` for many sizes and tiers at once; arrays of one shape."""
        typed = self.by_type.get(gpu_type, speed)
        if not self.scaling:
            many = gpus / asked if asked else np.ones(gpus.shape)
        else:
            curve = np.array((0.0, *self.scaling))
            many = curve[np.clip(gpus, 0, len(self.scaling))] / self._at(asked)
        speeds: NDArray[np.float64] = typed * many / np.array(self.locality)[tiers]
        return speeds


PLAIN_PROFILE = Profile()


class Profiles(msgspec.Struct, frozen=True):
    """Profiles by model name; `default` for models that have none."""

    models: dict[str, Profile] = {}
    default: Profile = PLAIN_PROFILE

    def of(self, model: str) -> Profile:
        """The profile of `model`."""
        return self.models.get(model, self.default)
