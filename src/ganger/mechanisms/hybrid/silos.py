"""Services on nodes of their own, all other jobs on the others, and on those that are on loan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.plan import Lend, Placement, Plan
from ganger.core.protocols import Policy
from ganger.core.spec import OnPreempt, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.units import DAY, NEVER, WHOLE
from ganger.core.view import View
from ganger.mechanisms.common.planes import OTHERS, SERVICES, ask, joined, orders_of
from ganger.mechanisms.common.reconcile import STAYS
from ganger.mechanisms.hybrid.reclaim import Tenancy
from ganger.mechanisms.scaling.replicas import replicas_of

TRAINING: Final = "training"
"""To whom nodes are lent."""
_KEPT: Final = 4096
"""Counts that are kept of one GPU type."""
_MOVABLE = (int(Phase.STARTING), int(Phase.RUNNING))
_NEVER = int(OnPreempt.NEVER)


class Ahead(Protocol):
    """A forecast: the next `steps` values of a series that has one at least."""

    def ahead(self, series: Sequence[float], steps: int) -> NDArray[np.float64]:
        """The values, in order of time."""


Reclaim = Callable[[Tenancy, Mapping[int, int], int], list[int]]
"""Which nodes go back: who is on them, their GPUs, how many GPUs are wanted."""


@dataclass(frozen=True)
class Lending:
    """How many nodes services lend: what the `forecast` says that they hold within the time that a
    node takes to come back, and `headroom` times that more, stays theirs. Counted every `every`
    microseconds; a node that is asked back is free within `notice`."""

    every: int
    notice: int
    headroom: float
    forecast: Ahead
    reclaim: Reclaim

    def needed(self, series: Sequence[int]) -> int:
        """GPUs of one type that services are to have until the next count has had its effect. It is
        not fewer than now and as many more as have ever been added in that time."""
        steps = 1 + ceil(self.notice / self.every)
        foreseen = float(self.forecast.ahead(series, steps).max())
        rises = [after - before for before, after in zip(series, series[steps:], strict=False)]
        rising = series[-1] + max([0, *rises])
        return ceil(max(foreseen, float(rising), float(series[-1])) * (1 + self.headroom) - 1e-9)


class SilosMemory(msgspec.Struct):
    """What the two recipes keep, and what is known of the services."""

    serving: Any
    training: Any
    counted: int = -1
    """When the GPUs of services were last counted."""
    held: dict[str, list[int]] = {}
    """By GPU type, how many services held or waited for, each time."""
    asked: list[int] = []
    """The nodes that were on loan when training was last asked."""
    skipped: bool = False
    """Whether something changed at a time at which training was not asked."""


@dataclass(frozen=True)
class Silos:
    """`serving` decides over services, on the nodes whose pool or one of whose labels is
    `services`; `training` over all other jobs, on the other nodes and on those that are on loan by
    `lending` (None: none are). Services are asked first. At an instant at which nodes go back
    training is not asked, but right after it. Raises BadInput for a cluster without nodes for
    either side."""

    serving: Policy
    training: Policy
    services: str
    lending: Lending | None = None

    @property
    def name(self) -> str:
        """That of the policy for training."""
        return self.training.name

    @property
    def orders(self) -> tuple[type, ...]:
        """The actions beside starts and stops that are used."""
        own = () if self.lending is None else (Lend,)
        return tuple(dict.fromkeys((*orders_of(self.serving), *orders_of(self.training), *own)))

    def decide(self, view: View, memory: SilosMemory | None) -> tuple[Plan, SilosMemory]:
        """The plan of both, and of the loans."""
        memory = memory or SilosMemory(None, None)
        theirs = view.cached(Named).among(view, self.services)
        lent = [node for node in theirs if node in view.lent]
        own = [node for node in theirs if node not in view.lent]
        others = sorted(set(range(view.nodes.n)).difference(theirs))
        services, training = view.part(SERVICES), view.part(OTHERS)
        with view.ledger.hidden(others + lent):
            first, serving = ask(services, self.serving, memory.serving)
        after = msgspec.structs.replace(memory, serving=serving)
        wake, busy = NEVER, bool(len(training.pending) or len(training.active))
        if self.lending is not None and (busy or lent):
            wake = self._count(view, services, after)
            back = self._asked_back(view, services, own, lent, after) if busy else lent
            if back:
                _leave(view, training, back)
                view.draft.act(Lend(tuple(back)))
                after.skipped = True
                return view.draft.plan(first.reasons, view.now + 1), after
            more = self._offered(view, own, after) if after.counted == view.now else []
            if more:
                view.draft.act(Lend(tuple(more), TRAINING))
                wake = view.now + 1
        if lent != memory.asked or memory.skipped:
            training.forget()
        with view.ledger.hidden(own):
            second, after.training = ask(training, self.training, memory.training)
        after.asked, after.skipped = lent, False
        return joined(view, first, second, wake), after

    def _count(self, view: View, services: View, memory: SilosMemory) -> int:
        """Count what services hold and wait for, if it is time; when that will be next."""
        assert self.lending is not None
        every = self.lending.every
        if memory.counted >= 0 and view.now < memory.counted + every:
            return memory.counted + every
        now = held_by_type(view, services)
        missed = 0 if memory.counted < 0 else (view.now - memory.counted) // every - 1
        kept = min(max(DAY // every, 1) + 16, _KEPT)
        held = dict[str, list[int]]()
        for kind in sorted(now.keys() | memory.held.keys()):
            before = memory.held.get(kind, [])
            filled = [*before, *(before[-1:] * min(missed, kept)), now.get(kind, 0)]
            held[kind] = filled[-kept:]
        memory.held, memory.counted = held, view.now
        return view.now + every

    def _asked_back(
        self,
        view: View,
        services: View,
        own: Sequence[int],
        lent: Sequence[int],
        memory: SilosMemory,
    ) -> list[int]:
        """The nodes that services must have again: for what waits and has no room, and, when they
        are counted, for what is to come."""
        assert self.lending is not None
        if not lent:
            return []
        lacks = waiting_gpus(view, services)
        if memory.counted == view.now:
            has = gpus_by_type(view, own)
            for kind, series in memory.held.items():
                lack = self.lending.needed(series) - has.get(kind, 0)
                lacks[kind] = max(lacks.get(kind, 0), lack)
        back = list[int]()
        for kind, lack in sorted(lacks.items()):
            alike = [node for node in lent if view.ledger.cell_of[node].gpu_type == kind]
            if lack > 0 and alike:
                tenancy = tenancy_of(view, alike)
                gpus = {node: int(view.nodes.gpus[node]) for node in tenancy.here}
                back += self.lending.reclaim(tenancy, gpus, lack)
        return sorted(back)

    def _offered(self, view: View, own: Sequence[int], memory: SilosMemory) -> list[int]:
        """Nodes that nobody is on and that services can do without, the last ones first."""
        assert self.lending is not None
        has, offered = gpus_by_type(view, own), list[int]()
        needed = {kind: self.lending.needed(memory.held.get(kind) or [0]) for kind in has}
        ledger, taken = view.ledger, occupied(view)
        for node in reversed(own):
            kind, gpus = ledger.cell_of[node].gpu_type, int(view.nodes.gpus[node])
            free = gpus and ledger.up[node] and node not in taken
            if free and has[kind] - gpus >= needed[kind]:
                has[kind] -= gpus
                offered.append(node)
        return sorted(offered)


class Named:
    """Which nodes are named for services: a cache, for as many nodes as there were."""

    def __init__(self) -> None:
        self._known: tuple[int, str] = (-1, "")
        self._nodes: list[int] = []

    def among(self, view: View, name: str) -> list[int]:
        """As `nodes_of`."""
        if self._known != (view.nodes.n, name):
            self._nodes, self._known = nodes_of(view.nodes, name), (view.nodes.n, name)
        return self._nodes


def named(nodes: Nodes, name: str) -> list[int]:
    """The nodes whose pool, or one of whose labels, is `name`, ascending."""
    sets = [name in labels for labels in nodes.label_sets]
    pools = [name == nodes.pools[code] for code in range(len(nodes.pools.values))]
    return [
        node
        for node in range(nodes.n)
        if pools[int(nodes.pool[node])] or sets[int(nodes.labels[node])]
    ]


def nodes_of(nodes: Nodes, name: str) -> list[int]:
    """As `named`. Raises BadInput where that is none of them, or all."""
    theirs = named(nodes, name)
    if not theirs or len(theirs) == nodes.n:
        what = "every node is" if theirs else "no node is"
        raise BadInput(
            f"{what} named {name!r}, so that one side has none",
            where="sharing",
            mend=f"name nodes for services by their pool or a label, like 2x8xV100@{name}+6x8xV100",
        )
    return theirs


def gpus_by_type(view: View, nodes: Collection[int]) -> dict[str, int]:
    """How many GPUs of each type these nodes have, of those that are up."""
    ledger, by_type = view.ledger, dict[str, int]()
    for node in nodes:
        kind = ledger.cell_of[node].gpu_type
        by_type[kind] = by_type.get(kind, 0) + int(view.nodes.gpus[node]) * ledger.up[node]
    return by_type


def held_by_type(view: View, services: View) -> dict[str, int]:
    """GPUs that services hold at this point of the draft, wait for or have asked for, by type; a
    GPU of which they hold parts counts once. A service without replicas is one at its beginning."""
    devices: dict[int, int] = {}
    for job in (*services.active.tolist(), *services.pending.tolist()):
        for slot in view.draft.holds(job) or ():
            devices[slot.node] = devices.get(slot.node, 0) | slot.devices
    by_type = waiting_gpus(view, services)
    for node, mask in devices.items():
        kind = view.ledger.cell_of[node].gpu_type
        by_type[kind] = by_type.get(kind, 0) + mask.bit_count()
    for service, replicas in replicas_of(services).items():
        shape = view.draft.shape(service)
        cells = view.ledger.cells_for(shape)
        if cells and view.draft.holds(service) == ():
            coming = view.spawning.get(service, 0) or (0 if replicas else shape.roles[0].size)
            kind, gpus = cells[0].gpu_type, coming * shape.roles[0].needs.gpus
            by_type[kind] = by_type.get(kind, 0) + gpus
    return by_type


def waiting_gpus(view: View, services: View) -> dict[str, int]:
    """GPUs that services wait for and have no room for, by the type that each prefers."""
    by_type: dict[str, int] = {}
    for job in services.pending.tolist():
        shape = view.draft.shape(job)
        cells = view.ledger.cells_for(shape)
        if shape.gpus and cells and view.draft.holds(job) is None:
            kind = cells[0].gpu_type
            by_type[kind] = by_type.get(kind, 0) + shape.gpus
    return by_type


def occupied(view: View) -> set[int]:
    """The nodes on which somebody holds something, or has yet to let go of it."""
    ledger = view.ledger
    held = {slot.node for _, placement in ledger.holds.values() for slot in placement}
    return held | ledger.leaving.keys()


def tenancy_of(view: View, nodes: Collection[int]) -> Tenancy:
    """Which jobs are on these nodes, without nodes that have one which must not be preempted."""
    here: dict[int, dict[int, int]] = {node: {} for node in nodes}
    spare: dict[int, int] = {}
    for job, (shape, placement) in sorted(view.ledger.holds.items()):
        gpus = {slot.node: 0 for slot in placement}
        for slot in placement:
            gpus[slot.node] += slot.devices.bit_count()
        if not gpus.keys() & here.keys():
            continue
        if view.at.on_preempt[job] == _NEVER:
            for node in gpus:
                here.pop(node, None)
            continue
        for node in gpus.keys() & here.keys():
            here[node][job] = gpus[node]
        if _shrinks(view, job, shape):
            spare[job] = max(sum(gpus.values()) - shape.least, 0)
    return Tenancy(here, spare)


def _shrinks(view: View, job: int, shape: Shape) -> bool:
    """Whether it may go on with fewer workers: it has one role, of whole GPUs."""
    if view.at.phase[job] not in _MOVABLE or view.at.on_preempt[job] in STAYS:
        return False
    return len(shape.roles) == 1 and shape.roles[0].needs.share == WHOLE


def without(placement: Placement, nodes: Collection[int]) -> Placement:
    """What is on other nodes than these."""
    return tuple(slot for slot in placement if slot.node not in nodes)


def _leave(view: View, training: View, back: Collection[int]) -> None:
    """Shrink who can do without what it has on these nodes, and stop the others there."""
    nodes = set(back)
    for job in training.active.tolist():
        held = view.draft.holds(job)
        if held is None or nodes.isdisjoint(slot.node for slot in held):
            continue
        rest, shape = without(held, nodes), view.draft.shape(job)
        gpus = sum(slot.devices.bit_count() for slot in rest)
        if rest and gpus >= shape.least and _shrinks(view, job, shape):
            view.draft.resize(job, rest)
        else:
            view.draft.stop(job)
