"""What elastic rules keep about a cluster holds for that cluster only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ganger.core.books.ledger import Ledger, Room
from ganger.core.plan import Plan
from ganger.core.spec import ClusterSpec, Kind, Needs, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.mechanisms.sizing.elastic import pools
from ganger.recipes import registry
from ganger.sim.rows import Outage
from worlds import cluster, job, play


class Nested:
    """First come, first served, and AFS inside every grant."""

    name = "nested"

    def __init__(self) -> None:
        self._inner, self._outer = registry.make("afs"), registry.make("fifo")

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """The grants, then the cluster."""
        for parent in view.parents:
            inside = view.inside(parent)
            if inside is not None:
                self._inner.decide(inside, None)
        plan = self._outer.decide(view, None)[0]
        plan.until = 127
        return plan, None


def test_a_grant_that_moved_is_another_cluster() -> None:
    """While none of its trials is there, the parent loses its node and gets as many GPUs of
    another one."""
    shape = Shape((Role(least=1, most=4),))
    trials = [
        job(f"trial {i}", at, lasts, shape=shape, parent="sweep")
        for i, (at, lasts) in enumerate(((0, 10), (90, 100), (110, 100)))
    ]
    works = [job("sweep", 0, None, size=4, kind=Kind.TUNE), *trials]
    outages = (Outage(0, 50 * SECOND, 400 * SECOND),)
    kept, anew = (
        play(Nested(), works, cluster(2, 4), outages=outages, validate=validate)
        for validate in (False, True)  # every decision with nothing kept
    )
    assert [kept.phase(f"trial {i}") for i in range(3)] == ["finished"] * 3
    assert "90: start trial 1 on 1:0,1,2,3" in kept.text().splitlines()
    assert kept.text() == anew.text()


def test_pools_are_those_of_the_grant_of_now() -> None:
    """Who wants cores finds them beside GPUs of both types in one grant, of one in the next."""
    kinds = "ab"
    nodes = Nodes(ClusterSpec(tuple(NodeSpec(gpus=2, gpu_type=kind, cpus=8000) for kind in kinds)))
    plain, hungry = Role(least=1, most=2), Role(least=1, most=2, needs=Needs(gpus=1, cpus=1000))
    shapes = [Shape((plain,), gpu_types=("a",)), Shape((hungry,))]

    class Desk(SimpleNamespace):
        cached = View.cached

    view: Any = Desk(
        ledger=Ledger(nodes, {0: Room(0b11, 8000), 1: Room(0b11, 8000)}),
        scratch={},
        jobs=SimpleNamespace(shape=np.arange(2), shapes=shapes),
    )
    assert [pool.tolist() for pool in pools(view, np.arange(2))] == [[0, 1]]
    view.ledger = Ledger(nodes, {1: Room(0b11, 8000)})
    assert [pool.tolist() for pool in pools(view, np.arange(2))] == [[0], [1]]
