"""Days of services beside jobs on nodes of both, and what must hold at every step of them."""

from __future__ import annotations

import random
from typing import Any

from ganger.core.events import Batch, Served
from ganger.core.kernel import Kernel
from ganger.core.plan import Lend, Plan
from ganger.core.profiles import Load
from ganger.core.spec import ClusterSpec, Kind, NodeSpec, Role, Shape
from ganger.core.units import MINUTE, SECOND
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.sim.physics import Costs
from ganger.workloads.trace import Trace
from worlds import Work, job, trace_of

SCALING = "scale.threshold(up=0.7,down=0.3,cooldown=20s)"
POOLS = ClusterSpec(
    (
        NodeSpec(count=2, gpus=4, gpu_type="V100"),
        NodeSpec(count=3, gpus=4, gpu_type="V100", pool="serving"),
    )
)


def web(most: int = 12) -> Work:
    """A service of one to `most` replicas with a GPU each, that ends when no more requests come."""
    shape = Shape((Role(size=1, least=1, most=most),))
    return job("web", 0, 9600, kind=Kind.SERVE, shape=shape)


def day(seed: int) -> tuple[Trace, dict[str, Load]]:
    """Some hours of a service with a peak, and thirty jobs, half of which can change size."""
    rng = random.Random(seed)
    works, at = [web()], 0.0
    for number in range(30):
        at += rng.expovariate(1 / 150)
        size = rng.choice([1, 1, 2, 4])
        shape = Shape((Role(size=size, least=max(size // 2, 1), most=min(2 * size, 8)),))
        more: dict[str, Any] = {"shape": shape} if rng.random() < 0.5 else {}
        works.append(job(f"j{number}", at, rng.uniform(300, 4000), size=size, **more))
    times = [0.0, *sorted(rng.uniform(300, 9000) for _ in range(5)), 9600.0]
    rates = [*(rng.choice([0.0, 4.0, 15.0, 40.0, 90.0]) for _ in range(6)), 0.0]
    return trace_of(works), {"web": Load(tuple(times), tuple(rates), 10.0)}


class Watch:
    """A journal that asserts at every step who is where, and keeps what was decided and told."""

    def __init__(self, kernel: Kernel, named: frozenset[int]) -> None:
        self._kernel, self._named = kernel, named
        self.plans: list[tuple[int, list[Any]]] = []
        self.told: list[Served] = []
        self.lends: list[tuple[int, Lend]] = []

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Look at one step."""
        kernel = self._kernel
        self.told += [event for event in batch.events if isinstance(event, Served)]
        actions = plan.actions if plan is not None else []
        self.plans.append((batch.at, actions))
        self.lends += [(batch.at, action) for action in actions if isinstance(action, Lend)]
        lent = set(kernel.settings.lent)
        assert lent <= self._named, "only services' nodes are on loan"
        for holder, (_, placement) in kernel.ledger.holds.items():
            nodes = {slot.node for slot in placement}
            if kernel.jobs.kind[holder] == Kind.SERVE:
                assert nodes <= self._named - lent, "a replica is where it must not be"
            else:
                assert not nodes & (self._named - lent), "a job is on a node that is not on loan"


def shared(
    sharing: str,
    training: str,
    seed: int = 0,
    *,
    saves: int = 0,
    validate: bool = True,
    on: ClusterSpec = POOLS,
) -> tuple[Run, Watch]:
    """One day under a rule for sharing; a job saves for `saves` seconds."""
    trace, loads = day(seed)
    setup = Setup(
        serving=SCALING,
        sharing=sharing,
        loads=loads,
        window=MINUTE,
        validate=validate,
        costs=Costs(checkpoint=saves * SECOND, restore=saves * SECOND),
    )
    named, first = list[int](), 0
    for group in on.nodes:
        named += range(first, first + group.count) if group.pool == "serving" else ()
        first += group.count
    watches: list[Watch] = []

    def watch(kernel: Kernel) -> Watch:
        watches.append(Watch(kernel, frozenset(named)))
        return watches[0]

    run = run_one(trace, on, training, setup, journal=watch)
    return run, watches[0]
