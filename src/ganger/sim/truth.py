"""The oracle that knows how long every job takes, and a wrapper that makes any oracle wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ganger.core.profiles import Profile
from ganger.core.protocols import Knows, Oracle
from ganger.core.spec import Locality
from ganger.core.table import Ids, cells
from ganger.core.view import View
from ganger.sim.physics import Physics


class Truth:
    """Knows the durations and speeds that the simulator itself uses."""

    knows = Knows.TRUTH
    learns = False

    def __init__(self, duration: NDArray[np.int64], physics: Physics) -> None:
        self._duration = duration.astype(np.float64)
        self._one = cells(self._duration)
        self._physics = physics

    def duration(self, view: View, ids: Any) -> Any:
        """The true run time at the size asked for, on the reference type, microseconds."""
        return self._one[ids] if type(ids) is int else self._duration[ids]

    def throughput(
        self, view: View, ids: Ids, gpu_type: str, gpus: NDArray[Any], nodes: NDArray[Any]
    ) -> NDArray[np.float64]:
        """The true speed, relative to the reference; rows of `gpus` and `nodes` broadcast."""
        profiles, jobs = self._physics.profiles, view.jobs
        kinds = {kind.name: kind.speed for kind in view.nodes.type_specs}
        shape = np.broadcast_shapes(ids.shape, np.shape(gpus), np.shape(nodes))
        many = np.broadcast_to(gpus, shape)
        spread = np.broadcast_to(nodes, shape)
        out = np.empty(shape)
        rows = np.broadcast_to(ids, shape)
        for at in np.ndindex(shape):
            job = rows[at]
            profile = profiles.of(jobs.models[int(jobs.model[job])])
            tier = Locality.ISLAND if spread[at] <= 1 else Locality.ANY
            out[at] = profile.rate(
                gpu_type, kinds.get(gpu_type, 1.0), int(many[at]), int(jobs.gpus[job]), tier
            )
        return out

    def profile(self, model: str) -> Profile:
        """The profile that the simulator uses."""
        return self._physics.profiles.of(model)

    def observe(self, view: View) -> None:
        """It knows all there is."""


class Noisy:
    """Another oracle, wrong by a factor drawn once per job: lognormal with spread `sigma`.

    The factor depends on the seed and the job alone, so the same job is misjudged the same way
    however often one asks.
    """

    knows = Knows.NOISY

    def __init__(self, inner: Oracle, sigma: float, seed: int, jobs: int) -> None:
        self._inner = inner
        self.learns = inner.learns
        self._factor = np.exp(np.random.default_rng([seed, 0x6E]).normal(0.0, sigma, jobs))

    def duration(self, view: View, ids: Ids) -> NDArray[np.float64]:
        """The inner answer times the job's factor."""
        return self._inner.duration(view, ids) * self._factor[ids]

    def throughput(
        self, view: View, ids: Ids, gpu_type: str, gpus: NDArray[Any], nodes: NDArray[Any]
    ) -> NDArray[np.float64]:
        """The inner answer: only durations are misjudged."""
        return self._inner.throughput(view, ids, gpu_type, gpus, nodes)

    def profile(self, model: str) -> Profile:
        """The inner answer."""
        return self._inner.profile(model)

    def observe(self, view: View) -> None:
        """Pass on."""
        self._inner.observe(view)
