"""Jobs on a small tree of links, in both grains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ganger.core.books.links import Transfer
from ganger.core.kernel import Kernel
from ganger.core.profiles import Profile, Profiles, Steps
from ganger.core.protocols import Policy
from ganger.core.spec import ClusterSpec, Network, NodeSpec
from ganger.core.state.cluster import Nodes
from ganger.core.units import SECOND
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.links.fluid import Mover, step_times
from ganger.sim.links.grains import EQUAL, StepGrain
from ganger.sim.physics import Costs, Physics
from ganger.solve.flows.max_min import Floats
from worlds import Work, trace_of

ONE_GB = Steps(1.0, 1 / 1.6, (1e9, 1e9, 1.0, 1.0))
"""A second of computing; on five nodes 1 GB passes each link, at 1 GB/s at most."""
LINK = Network(1.0, 1.0)


def spec_of(network: Network | None, nodes: int = 10, per_rack: int = 4) -> ClusterSpec:
    """Nodes of one GPU. Two jobs on five nodes each share the links of the second rack."""
    return ClusterSpec((NodeSpec(nodes, 1, "V100", nodes_per_rack=per_rack),), network=network)


def ran(
    jobs: Sequence[Work],
    network: Network | None,
    policy: str | Policy = "fifo",
    *,
    by_step: bool = False,
    steps: Steps = ONE_GB,
    spec: ClusterSpec | None = None,
) -> Kernel:
    """The kernel at the end."""
    nodes, trace = Nodes(spec or spec_of(network)), trace_of(jobs)
    physics = Physics(nodes, Profiles({"net": Profile(steps=steps)}), Costs(by_step=by_step))
    made = registry.make(policy) if isinstance(policy, str) else policy
    kernel = Kernel(nodes, trace.declared, made, validate=True)
    kernel.run(Simulator(trace.declared, trace.duration, physics))
    return kernel


def ends(kernel: Kernel) -> list[float]:
    """Seconds at which the jobs finished."""
    return [int(at) / SECOND for at in kernel.jobs.finished[: kernel.jobs.n]]


class Random:
    """Four to thirteen jobs on 16 nodes in racks of four, at 1:1, 2:1 or 4:1."""

    def __init__(self, seed: int) -> None:
        self.random = random = np.random.default_rng(seed)
        over = random.choice([1.0, 2.0, 4.0])
        self.nodes = Nodes(spec_of(Network(1.0, 4.0 / over), nodes=16))
        physics = Physics(self.nodes, Profiles({"net": Profile(steps=ONE_GB)}))
        assert physics.links is not None
        self.links = physics.links
        self.transfers = [self._transfer() for _ in range(random.integers(4, 14))]

    def _transfer(self) -> Transfer:
        random = self.random
        where = np.sort(random.choice(16, random.integers(2, 6), replace=False)).tolist()
        path, most = self.links.ring(dict.fromkeys(where, 1)), float(random.choice([0.25, 0.5, 1]))
        compute = float(random.uniform(0.1, 1))
        size = most * compute * float(random.uniform(0.1, 1))
        return Transfer(compute + size / most, compute, size, most, (path,), path)

    def fluid(self) -> Floats:
        """Seconds of a step of each job by the mean grain."""
        movers = [Mover(transfer) for transfer in self.transfers]
        return step_times(movers, np.array(self.links.capacity))

    def by_step(self, seconds: float) -> Floats:
        """The same by single steps, their mean from a tenth of so many seconds on."""
        grain, clock = StepGrain(self.links), Clock()
        for job, transfer in enumerate(self.transfers):
            late = round(self.random.uniform(0, transfer.stated) * SECOND)
            grain.put(job, transfer, EQUAL, late)
        return clock.run(grain, len(self.transfers), round(seconds * SECOND))


class Clock:
    """Drives a StepGrain alone."""

    def run(self, grain: StepGrain, jobs: int, until: int) -> Floats:
        """Mean seconds of a step of each job."""
        from heapq import heappop, heappush

        heap: list[tuple[int, int, int]] = []
        ended: list[list[int]] = [[] for _ in range(jobs)]
        now = 0
        while now < until:
            grain.settle(now)
            for each in grain.due:
                heappush(heap, each)
            grain.due.clear()
            now, job, version = heappop(heap)
            if grain.reached(now, job, version):
                ended[job].append(now)
        steps = [np.array(each[1::2]) for each in ended]  # a phase that computes, one that moves
        late = [each[each > until // 10] for each in steps]
        return np.array([(each[-1] - each[0]) / (len(each) - 1) / SECOND for each in late])
