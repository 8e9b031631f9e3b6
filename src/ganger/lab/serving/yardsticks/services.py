"""The bound of a service: of as many replicas as it may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from ganger.core.serving.world import Known, World
from ganger.lab.serving.yardsticks.bound import Bound, Columns
from ganger.lab.serving.yardsticks.classes import bounded_by_class, keys_of
from ganger.lab.serving.yardsticks.rates import Rates, Talking


@dataclass(frozen=True)
class Bounds:
    """What it is found from, once the classes of requests are known. `known`: its models; `chunks`:
    its requests to the `world`; it `begins` at that moment; `replicas`: so many at a time; `held`:
    by type of device, how many places there are for a `share` of one; `shares`: all that replicas
    may have, of so many `devices`; the rest as of `Rates`."""

    known: Sequence[Known]
    world: World
    chunks: Callable[[], Iterator[Columns]]
    begins: int
    replicas: int
    share: float
    held: Mapping[str, int]
    shares: Sequence[float]
    devices: Mapping[str, int]
    divides: bool
    talking: Talking
    noise: float
    seed: int

    def of(
        self, classes: Sequence[dict[str, Any]], shares: AbstractSet[float], *, coarse: bool
    ) -> Bound:
        """The most that can be in time with as many replicas as there may be from the submission of
        the service on, each once it has loaded, where some had these shares of devices. That of
        each class, if it were alone, is written into its row. `coarse`: with time in coarser
        pieces."""
        shared = not shares <= {self.share}
        places = self.devices if shared else self.held
        counts = [(type_, min(count, self.replicas)) for type_, count in places.items()]
        rates = Rates(
            self.known,
            counts,
            self.world.variants,
            pipelines=self.world.pipelines,
            share=self.share,
            shares=self.shares if shared else (),
            at_once=min(self.replicas, sum(count for _, count in counts)),
            divides=self.divides,
            talking=self.talking,
            noise=self.noise,
            lots=self.seed,
        )
        begins = self.begins + min(known.load for known in self.known)  # of a pipeline, one stage
        keys = keys_of(classes)
        some = keys if len(keys) > 1 else ()
        bound, alone = bounded_by_class(
            self.chunks(), rates, self.world, some, begins=begins, coarse=coarse
        )
        for key, row in zip(keys, classes, strict=True):
            row["attainment_bound"] = alone.get(key, bound).attainment
        return bound
