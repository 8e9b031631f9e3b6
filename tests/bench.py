"""A kernel on the bench: events go in by hand, plans come out to be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ganger.core.events import AnyEvent, Batch, Started, Submitted
from ganger.core.kernel import Kernel
from ganger.core.plan import AnyAction, Placement, Plan, Slot, Start
from ganger.core.spec import ClusterSpec
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.core.view import View
from worlds import Work, cluster, job, trace_of


class Scripted:
    """A policy that returns the plans it is handed."""

    name = "scripted"

    def __init__(self) -> None:
        self.next = Plan()
        self.asked = 0

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """The next plan, once."""
        self.asked += 1
        return self.next, None


class Bench:
    """A kernel on the bench: feed it events by hand, look at what it says."""

    def __init__(self, *works: Work, on: ClusterSpec | None = None, policy: Any = None) -> None:
        self.trace = trace_of(works)
        self.policy = policy or Scripted()
        nodes = Nodes(on or cluster(1, 4))
        self.kernel = Kernel(nodes, self.trace.declared, self.policy, validate=True)
        self.jobs = self.kernel.jobs

    def feed(self, at: float, *events: AnyEvent, then: Sequence[AnyAction] = ()) -> Plan | None:
        """One batch at `at` seconds; a scripted policy answers with `then`."""
        if isinstance(self.policy, Scripted):
            self.policy.next = Plan(list(then))
        return self.kernel.step(Batch(round(at * SECOND), list(events)))

    def phase(self, row: int = 0) -> Phase:
        """Where a job is."""
        return Phase(self.jobs.phase[row])


def on(mask: int, node: int = 0) -> Placement:
    """Whole GPUs of one node."""
    return (Slot(node, mask, mask.bit_count()),)


def running(*works: Work) -> Bench:
    """A bench on which the first job runs on GPUs 0 and 1 since 0 s."""
    bench = Bench(*(works or (job("a", size=2), job("b", size=2))))
    bench.feed(0, *(Submitted(row) for row in range(bench.jobs.n)), then=[Start(0, 1, on(0b0011))])
    assert bench.phase() == Phase.STARTING
    bench.feed(0, Started(0, 1))
    assert bench.phase() == Phase.RUNNING
    return bench
