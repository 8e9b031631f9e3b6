"""How fast workers train whose parameters lie on rented servers: the parts of a step, and how they
add up (Cynthia, ICPP 2019; FC2, Cluster Computing 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil, inf, sqrt

from ganger.core.profiles import Steps
from ganger.core.spec import Locality
from ganger.mechanisms.provisioning.instances import Instance
from ganger.mechanisms.provisioning.rentals import Demand, Free

SERVERS_MAX = 8
"""So many servers of one job are looked at."""


class Sync(Enum):
    """Whether workers wait for each other after each step (bulk synchronous), or not."""

    BSP = "bsp"
    ASP = "asp"


@dataclass(frozen=True)
class Serving:
    """How a job trains with servers. `per_core`: GB/s of gradients that a core of a server adds up
    (0: as much as comes)."""

    steps: Steps
    sync: Sync = Sync.BSP
    per_core: float = 0.0

    def passes(self, server: Instance, servers: int) -> float:
        """GB/s that pass all servers each way, by their links and by their cores; where a link is
        not stated, as the profile says of GPUs that are anywhere."""
        link = server.link or self.steps.bandwidth[Locality.ANY]
        if self.per_core and server.cpus:
            link = min(link, server.cpus * self.per_core)
        return servers * link

    def computing(self, workers: int, speed: float) -> float:
        """Seconds that a worker computes between two exchanges with the servers."""
        split = self.steps.split and self.sync is Sync.BSP
        return self.steps.compute / speed / (workers if split else 1)

    def batches(self, workers: int) -> int:
        """Batches (as `Steps.throughput` counts them) that the workers do between two exchanges."""
        return 1 if self.steps.split and self.sync is Sync.BSP else workers

    def exchanging(self, workers: int, passes: float, link: float = 0.0) -> float:
        """Seconds in which all workers push their gradients and pull the sum: 2 n g / B; never less
        than a worker's own `link` takes (0: as much as comes)."""
        shared = 2.0 * workers * self.steps.gradients / passes
        return max(shared, 2.0 * self.steps.gradients / link) if link else shared

    def seconds(self, demand: Demand, workers: int, step: float) -> float:
        """All of the job, at so many seconds between two exchanges. Without waiting for each other
        workers need sqrt(n) times the batches for the same loss (Cynthia)."""
        if not step:
            return inf
        batches = demand.seconds * float(self.steps.throughput(demand.asked, Locality.ISLAND))
        more = sqrt(workers) if self.sync is Sync.ASP else 1.0
        return batches * more * step / self.batches(workers)


def server_kinds(free: Sequence[Free], beside: Instance) -> Iterator[Free]:
    """On which machines parameters may lie beside workers on `beside`: those without GPUs, or where
    there are none, on others of the same kind."""
    plain = [each for each in free if not each[0].gpus]
    yield from plain or [each for each in free if each[0] is beside]


def counts(steps: Steps, machines: int, *, stated: bool) -> Sequence[int]:
    """How many servers are looked at: as many as the profile states, or up to `SERVERS_MAX`."""
    if stated:
        return [steps.servers] if steps.servers <= machines else []
    return range(1, min(SERVERS_MAX, machines) + 1)


def room(free: Free, server: Free, servers: int) -> int:
    """How many machines are left for workers."""
    taken = servers if server[0] is free[0] else 0
    return free[1] - taken


def machines_for(workers: int, instance: Instance) -> int:
    """As many as have so many GPUs."""
    return ceil(workers / instance.gpus)


def speed_of(instance: Instance, demand: Demand) -> float:
    """The speed of one GPU of a kind of machine, relative to the reference type."""
    return demand.profile.by_type.get(instance.gpu_type, instance.speed)
