"""FC2 (Cluster Computing 2019): servers by their network, workers as long as throughput scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from ganger.mechanisms.provisioning.rentals import Demand, Free, Rental, rentals, widths
from ganger.mechanisms.provisioning.servers import (
    Serving,
    Sync,
    counts,
    machines_for,
    room,
    speed_of,
)


@dataclass(frozen=True)
class ByMeasurement:
    """Servers on the kind of machine with the widest link of which an hour costs no more than
    `hourly` USD; workers by Scala-Opt: of each kind of machine as many as still add `threshold` of
    what the mean worker does. What a short run would measure is the sum of computing and exchange,
    where an exchange is never faster than a worker's own link; with as many servers as the profile
    has (`stated`), it is what the job's speeds say."""

    threshold: float = 0.5
    sync: Sync = Sync.BSP
    per_core: float = 0.0
    hourly: float = inf
    stated: bool = False

    def __call__(self, free: Sequence[Free], demand: Demand) -> Iterator[Rental]:
        """What it chooses among."""
        steps = demand.profile.steps
        if steps is None or not demand.served:
            by_kind = dict[int, list[Rental]]()
            for each in rentals(free, demand):
                by_kind.setdefault(each.instance.first, []).append(each)
            for sizes in by_kind.values():
                yield from self._scaling(sizes)
            return
        server = self.server_of(free)
        if server is None:
            return
        serving = Serving(steps, self.sync, self.per_core)
        for kind in free:
            for servers in counts(steps, server[1], stated=self.stated) if kind[0].gpus else ():
                yield from self._scaling(list(self._with(serving, demand, kind, server, servers)))

    def server_of(self, free: Sequence[Free], at: int = 0) -> Free | None:
        """The kind of machine for parameters: the widest link within the budget, then the least
        price."""
        fits = [each for each in free if each[1] and each[0].price(at) <= self.hourly]
        return max(fits, key=lambda each: (each[0].link, -each[0].price(at)), default=None)

    def _with(
        self, serving: Serving, demand: Demand, kind: Free, server: Free, servers: int
    ) -> Iterator[Rental]:
        instance = kind[0]
        passes = serving.passes(server[0], servers)
        for workers in widths(
            demand.least, demand.limit, instance.gpus, room(kind, server, servers)
        ):
            step = serving.computing(workers, speed_of(instance, demand)) + serving.exchanging(
                workers, passes, instance.link
            )
            machines = machines_for(workers, instance)
            seconds = (
                demand.takes(instance, workers, machines)
                if self.stated
                else serving.seconds(demand, workers, step)
            )
            yield Rental(instance, machines, workers, seconds, server[0], servers)

    def _scaling(self, sizes: Sequence[Rental]) -> Iterator[Rental]:
        """Those of ascending sizes up to where one more worker adds too little."""
        before: Rental | None = None
        for each in sizes:
            if before is not None and before.seconds < inf:
                gained = before.seconds / each.seconds - 1.0 if each.seconds < inf else 0.0
                if gained < self.threshold * (each.gpus / before.gpus - 1.0):
                    return
            yield each
            before = each
