"""The links between nodes as a tree, and which of them a job's transfers cross.

The vertices of the tree are the nodes, by their numbers, then the switches. Between a vertex v and
the one above it lie two links: 2 v goes up, 2 v + 1 down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from ganger.core.plan import Placement
from ganger.core.profiles import Steps
from ganger.core.spec import Locality, Network
from ganger.core.state.cluster import Nodes

Path = tuple[tuple[int, float], ...]
"""Links, each with the part of a transfer's rate that passes it."""


class Transfer(NamedTuple):
    """What one step of a job moves between nodes. Each of `phases` moves `size` GB at up to `cap`
    GB/s over its links; `path` is their mean, for `size` times as many GB as there are phases.
    `stated`: seconds of a step as the profile has it. `compute`: those of them in which no link
    between nodes is used."""

    stated: float
    compute: float
    size: float
    cap: float
    phases: tuple[Path, ...]
    path: Path

    def part(self, rate: float) -> float:
        """What is left of the stated speed where it moves `rate` GB/s while it moves any."""
        return self.stated / (self.compute + len(self.phases) * self.size / rate)


def sent_between_nodes(steps: Steps, gpus: int) -> float:
    """GB a step that pass the busiest link between nodes: that of the ring, or of a server."""
    if steps.servers:
        return 2 * gpus / steps.servers * steps.gradients
    members = math.ceil(gpus / steps.per_node) if steps.per_node else gpus
    return 2 * (members - 1) / members * steps.gradients


class Links:
    """The tree of one cluster. `capacity`: GB/s by link, infinite where it is not limited; `above`:
    by vertex the one above it, -1 at the top."""

    def __init__(self, nodes: Nodes, network: Network) -> None:
        self._nodes, n = nodes, nodes.n
        stated = {switch.name: switch for switch in network.switches}
        racks = sorted({nodes.racks[code] for code in nodes.rack[:n].tolist()} - {""})
        self._switches = list(dict.fromkeys([*racks, *stated]))
        at = {name: n + i for i, name in enumerate(self._switches)}
        widths = [
            group.uplink if group.uplink >= 0 else network.node
            for group in nodes.spec.nodes
            for _ in range(group.count)
        ]
        self.above = [at.get(nodes.racks[code], -1) for code in nodes.rack[:n].tolist()]
        for name in self._switches:
            switch = stated.get(name)
            widths.append(switch.bandwidth if switch is not None else network.rack)
            self.above.append(at.get(switch.above, -1) if switch is not None else -1)
        both = [width or math.inf for width in widths for _ in range(2)]
        self.capacity: list[float] = both
        self.contention = network.contention

    def name(self, link: int) -> str:
        """What people call a link."""
        vertex, down = divmod(link, 2)
        n = self._nodes.n
        name = self._nodes.names[vertex] if vertex < n else self._switches[vertex - n]
        return f"from above to {name}" if down else f"from {name} up"

    def below(self, counts: Mapping[int, int]) -> dict[int, int]:
        """By vertex below which are some but not all of what `counts` counts by node: how many."""
        total = sum(counts.values())
        return {at: count for at, count in self._all_below(counts).items() if count < total}

    def ring(self, counts: Mapping[int, int]) -> Path:
        """The links of a ring through these nodes that enters and leaves every switch once."""
        return tuple((2 * at + down, 1.0) for at in self.below(counts) for down in (0, 1))

    def servers(self, workers: Mapping[int, int], servers: Mapping[int, int]) -> tuple[Path, Path]:
        """The links of pushing gradients from workers to parameter servers, and of pulling them,
        both counted by node; the parts are of what a server that has no worker beside it hears."""
        total, shards = sum(workers.values()), sum(servers.values())
        own = dict.fromkeys((*workers, *servers), 0)
        theirs, held = self._all_below({**own, **workers}), self._all_below({**own, **servers})
        push: list[tuple[int, float]] = []
        pull: list[tuple[int, float]] = []
        for at in theirs:
            up = theirs[at] * (shards - held[at]) / total
            down = held[at] * (total - theirs[at]) / total
            for path, parts in ((push, (up, down)), (pull, (down, up))):
                path += [(2 * at + i, part) for i, part in enumerate(parts) if part > 0]
        return tuple(push), tuple(pull)

    def _all_below(self, counts: Mapping[int, int]) -> dict[int, int]:
        totals = dict[int, int]()
        for node, count in sorted(counts.items()):
            at = node
            while at >= 0:
                totals[at] = totals.get(at, 0) + count
                at = self.above[at]
        return totals

    def transfer(
        self, steps: Steps, placement: Placement, tier: Locality, speed: float
    ) -> Transfer | None:
        """What a job moves in each step on `placement`, at that spread and speed of GPUs; None
        where it moves nothing between nodes. Servers are the workers without GPUs, or, where there
        are none, on the job's own nodes in turn."""
        workers, shards = dict[int, int](), dict[int, int]()
        for slot in placement:
            count = slot.devices.bit_count()
            if count:
                workers[slot.node] = workers.get(slot.node, 0) + count
            elif steps.servers:
                shards[slot.node] = shards.get(slot.node, 0) + slot.workers
        if steps.servers and not shards:
            own = sorted(workers)
            for shard in range(steps.servers):
                node = own[shard % len(own)]
                shards[node] = shards.get(node, 0) + 1
        if len(workers.keys() | shards.keys()) < 2 or not steps.gradients:
            return None
        gpus, cap = sum(workers.values()), steps.bandwidth[tier]
        sent = sent_between_nodes(steps, gpus)
        if not sent:
            return None
        if steps.servers:
            phases: tuple[Path, ...] = self.servers(workers, shards)
        else:
            phases = (self.ring(workers),)
        stated = float(steps.seconds(gpus, tier, speed))
        mean = dict[int, float]()
        for path in phases:
            for link, part in path:
                mean[link] = mean.get(link, 0.0) + part / len(phases)
        narrow = min(self.capacity[link] / part for path in phases for link, part in path)
        compute, size = max(stated - sent / cap, 0.0), sent / len(phases)
        return Transfer(stated, compute, size, min(cap, narrow), phases, tuple(mean.items()))
