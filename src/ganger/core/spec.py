"""What a user declares: jobs and the cluster. Rows for people and files; columns live in `jobs`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from ganger.core.errors import BadInput
from ganger.core.units import NEVER, WHOLE


class Kind(IntEnum):
    """What sort of work a job is."""

    TRAIN = 0
    SERVE = 1
    """Open-ended: a replica set that runs until stopped and has no JCT."""
    TUNE = 2
    """A parent whose grant is divided among its trials by an inner policy."""
    TASK = 3


class OnPreempt(IntEnum):
    """What taking the GPUs away does to a job."""

    CHECKPOINT = 0
    """It saves, stops and resumes where it was."""
    KILL = 1
    """It loses all work since its start."""
    SUSPEND = 2
    """It keeps its memory and goes on where it was, on the same devices."""
    NEVER = 3
    """It must not be preempted."""


class Locality(IntEnum):
    """How close together the GPUs of a gang must be; also the tier that a placement has."""

    ISLAND = 0
    NODE = 1
    RACK = 2
    ANY = 3


class Needs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one worker of a role occupies.

    `gpus` whole GPUs, or one GPU's share when `share` < 1000 (thousandths of its compute, with
    `gpu_memory` MiB of its memory); `cpus` in thousandths of a core, `memory` in MiB of the host.
    """

    gpus: int = 1
    share: int = WHOLE
    gpu_memory: int = 0
    cpus: int = 0
    memory: int = 0


PLAIN = Needs()
"""One whole GPU and nothing else."""


NONE = -1
"""As the least or the most of a role: a service may have no replica, or is to have none. (0: that
is not stated.)"""


class Role(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A set of like workers in a gang: `size` asked for, elastic between `least` and `most`
    (`NONE`: of services)."""

    name: str = "worker"
    size: int = 1
    least: int = 0
    most: int = 0
    needs: Needs = PLAIN

    @property
    def range(self) -> tuple[int, int]:
        """The sizes at which the role may run, both ends included."""
        least, most = self.least or self.size, self.most or self.size
        return 1 if least == NONE else least, 1 if most == NONE else most

    @property
    def replicas(self) -> tuple[int, int]:
        """How few and how many replicas of it a service may have: as `range`, or none."""
        least, most = self.range
        return 0 if self.least == NONE else least, 0 if self.most == NONE else most


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that decides *where* a job can run: jobs of equal shape are interchangeable to placing.

    `gpu_types`: allowed types, the preferred first, empty for any; `pool`: the pool or virtual
    cluster that it is bound to, empty for any; `locality`: the widest spread it accepts;
    `labels`: node labels that must all be there.
    """

    roles: tuple[Role, ...] = (Role(),)
    gpu_types: tuple[str, ...] = ()
    pool: str = ""
    locality: Locality = Locality.ANY
    labels: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs asked for, shares counted as whole devices."""
        return sum(role.size * role.needs.gpus for role in self.roles)

    @property
    def least(self) -> int:
        """The fewest GPUs it may run on."""
        return sum(role.range[0] * role.needs.gpus for role in self.roles)

    @property
    def most(self) -> int:
        """The most GPUs it can use."""
        return sum(role.range[1] * role.needs.gpus for role in self.roles)

    def sizes(self, gpus: int) -> tuple[int, ...]:
        """Workers per role at `gpus` GPUs: all elasticity is the first role's."""
        if gpus == self.gpus:
            return tuple(role.size for role in self.roles)
        first, others = self.roles[0], self.roles[1:]
        fixed = sum(role.size * role.needs.gpus for role in others)
        workers = (gpus - fixed) // max(first.needs.gpus, 1)
        return (workers, *(role.size for role in others))

    def __str__(self) -> str:
        """What its first role asks for, as people say it."""
        role = self.roles[0]
        parts = [f"{role.size} x {role.needs.gpus} GPUs"]
        if role.needs.cpus:
            parts.append(f"{role.needs.cpus / 1000:g} CPUs")
        if role.needs.memory:
            parts.append(f"{role.needs.memory} MiB")
        return " with ".join(parts[:2]) + (f" and {parts[2]}" if len(parts) > 2 else "")

    @property
    def is_plain(self) -> bool:
        """One role of whole GPUs and nothing else: the common case, placed by the short path."""
        only = self.roles[0]
        return len(self.roles) == 1 and only.needs == PLAIN and not self.labels


def rescaled(shape: Shape, ends: Mapping[str, int]) -> Shape:
    """The shape with another `size`, `least` or `most` of its first role."""
    first, *others = shape.roles
    return msgspec.structs.replace(shape, roles=(msgspec.structs.replace(first, **ends), *others))


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as its user declares it; never what it truly takes. Times in microseconds.

    `estimate` is the user's own guess of the run time and `limit` the time after which the job is
    stopped (NEVER for none); `after` names jobs that must finish first; `model` refers to a
    throughput profile; `checkpoint` and `restore` are what a preemption and a resumption cost.
    `inner`: of a search, the recipe over its trials; empty: the one that the cluster has for all.
    """

    name: str
    submitted: int = 0
    shape: Shape = Shape()
    kind: Kind = Kind.TRAIN
    tenant: str = ""
    user: str = ""
    group: str = ""
    priority: int = 0
    weight: float = 1.0
    deadline: int = NEVER
    limit: int = NEVER
    estimate: int = NEVER
    steps: float = 0.0
    model: str = ""
    after: tuple[str, ...] = ()
    array: str = ""
    parent: str = ""
    on_preempt: OnPreempt = OnPreempt.CHECKPOINT
    checkpoint: int = -1
    restore: int = -1
    inner: str = ""


class GpuType(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model of GPU: memory in MiB, watts at full load (0: not stated), price in USD an hour,
    relative speed, watts when nothing computes on it (-1: not stated).

    `watts_from`: where the watts come from: `card` (the board's maker), `measured`, `assumed`, or
    `stated`. A search pays for a GPU in whole multiples of `per` microseconds, and for `least`.
    `clocks` and `memory_clocks`: MHz at which its multiprocessors and its memory can run,
    ascending, the last one as a rule; empty: they cannot be set.
    """

    name: str
    memory: int = 16384
    watts: float = 0.0
    price: float = 0.0
    speed: float = 1.0
    idle_watts: float = -1.0
    watts_from: str = "stated"
    per: int = 1
    least: int = 0
    clocks: tuple[float, ...] = ()
    memory_clocks: tuple[float, ...] = ()


class Offer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """On what terms a group of nodes can be had.

    `market`: on_demand, spot (a node goes away while its price is above `bid`, or while fewer of
    the group are `available` than its place in it, after a `notice` in microseconds) or reserved
    (paid for all the time). `price`: of a node for an hour (-1: as its GPU type says), or from each
    time on as `prices` say. `per`: a node is paid for in whole multiples of so many microseconds.
    `rentable`: it is off until a policy switches it on. `instance`: what the type of machine is
    called. Series are (microseconds, value) pairs in order of time; the first holds before it, each
    until the next.
    """

    market: str = "on_demand"
    zone: str = ""
    price: float = -1.0
    prices: tuple[tuple[int, float], ...] = ()
    bid: float = -1.0
    available: tuple[tuple[int, int], ...] = ()
    notice: int = 0
    per: int = 1
    rentable: bool = False
    instance: str = ""


class Switch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A switch above those of racks, or, by the name of a rack, that rack's: the switch `above` it
    ("": the top) and the GB/s each way between them (0: as much as comes)."""

    name: str
    above: str = ""
    bandwidth: float = 0.0


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tree of links between nodes, in GB/s each way; a tier of switches that share their load
    evenly counts as one. `node`: of a node to the switch of its rack, or to the top; `rack`: of a
    rack's switch to the top (0: as much as comes); `switches`: where that differs, or more layers
    lie between. `contention`: k transfers on a link have k / (k + (k - 1) contention) of it."""

    node: float
    rack: float = 0.0
    switches: tuple[Switch, ...] = ()
    contention: float = 0.0

    def check(self, where: str) -> None:
        """Raises BadInput for the first thing that no network can have."""
        for name in ("node", "rack", "contention"):
            value = getattr(self, name)
            if not 0 <= value < 1e9 or (name == "node" and not value):
                raise BadInput(f"{name} = {value:g}", where=where, mend="give GB/s above 0")
        above = {switch.name: switch.above for switch in self.switches}
        if len(above) < len(self.switches) or "" in above:
            what = "a switch has no name, or one of another"
            raise BadInput(what, where=where, mend="give each switch a name of its own")
        for switch in self.switches:
            place = f"{where}: switch {switch.name}"
            if not 0 <= switch.bandwidth < 1e9:
                raise BadInput(f"bandwidth = {switch.bandwidth:g}", where=place, mend="give GB/s")
            seen, at = {switch.name}, switch.above
            while at:
                if at not in above:
                    raise BadInput(f"no switch {at!r}", where=place, mend="list it, too")
                if at in seen:
                    mend = 'the highest has above = ""'
                    raise BadInput("it is above itself", where=place, mend=mend)
                seen.add(at)
                at = above[at]


class NodeSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`count` like nodes: GPUs of one type, in islands of `island` (0: all in one). `watts`: what a
    node draws beside its GPUs while it is on (-1: not stated). `offer`: on what terms they are had;
    None: they are there. `bandwidth`: GB/s of a node's memory (0: not stated, and then enough).
    `uplink`: GB/s of a node's own link (-1: as the network says)."""

    count: int = 1
    gpus: int = 0
    gpu_type: str = ""
    cpus: int = 0
    memory: int = 0
    pool: str = ""
    rack: str = ""
    nodes_per_rack: int = 0
    island: int = 0
    labels: tuple[str, ...] = ()
    name: str = ""
    watts: float = -1.0
    offer: Offer | None = None
    bandwidth: float = 0.0
    uplink: float = -1.0


BEYOND = ("warn", "ask", "stop")
"""What follows when a tenant's budget is spent: nothing but that it is told; none of its jobs
starts until somebody gives more; those that run are stopped, too."""


class TenantSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tenant in the tree: `quota` in GPUs (-1: none), `weight` in its parent's fair share.
    `budget`: USD that what its jobs hold may cost, and that of tenants below it (-1: no limit);
    `beyond`: one of `BEYOND`."""

    name: str
    quota: int = -1
    weight: float = 1.0
    parent: str = ""
    budget: float = -1.0
    beyond: str = "warn"


class ClusterSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster: groups of like nodes, the GPU types they hold, and how much each tenant may use.
    `carbon`: grams of CO2 equivalent for each kWh that it draws (-1: not stated). `network`: the
    links that jobs share between nodes; None: they share none."""

    nodes: tuple[NodeSpec, ...]
    gpu_types: tuple[GpuType, ...] = ()
    tenants: tuple[TenantSpec, ...] = ()
    name: str = "cluster"
    carbon: float = -1.0
    network: Network | None = None

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return sum(node.count * node.gpus for node in self.nodes)

    def check(self, where: str = "cluster") -> ClusterSpec:
        """This, or BadInput naming the first thing that no cluster can have."""
        if not any(node.count > 0 for node in self.nodes):
            raise BadInput("it has no node", where=where, mend="write like 8x8xV100")
        for i, node in enumerate(self.nodes):
            place = f"{where}: nodes[{i}]"
            for field in ("count", "gpus", "cpus", "memory", "nodes_per_rack", "island"):
                if getattr(node, field) < 0:
                    raise BadInput(f"{field} is negative", where=place, mend="use 0 or more")
            if node.gpus > 64:
                raise BadInput(f"{node.gpus} GPUs in one node", where=place, mend="at most 64")
            if node.count > 1_000_000:
                raise BadInput(f"{node.count} nodes", where=place, mend="at most 1,000,000")
            if node.gpus and not node.gpu_type:
                raise BadInput("gpu_type is missing", where=place, mend="name it, like V100")
        if self.network is not None:
            self.network.check(f"{where}: network")
        seen = {""}
        for i, tenant in enumerate(self.tenants):
            if tenant.parent not in seen:
                raise BadInput(
                    f"parent {tenant.parent!r} is not a tenant listed before",
                    where=f"{where}: tenants[{i}]",
                    mend="list parents first",
                )
            seen.add(tenant.name)
            self._check_budget(tenant, f"{where}: tenants[{i}]")
        return self

    def _check_budget(self, tenant: TenantSpec, where: str) -> None:
        if tenant.beyond not in BEYOND:
            mend = f"write one of {', '.join(BEYOND)}"
            raise BadInput(f"beyond = {tenant.beyond!r}", where=where, mend=mend)
        if not (tenant.budget == -1.0 or 0.0 <= tenant.budget <= 1e9):
            mend = "give USD, 0 to 1e9, or leave it out"
            raise BadInput(f"budget = {tenant.budget:g}", where=where, mend=mend)
        if tenant.budget < 0.0:
            return
        if any(node.offer is not None and node.offer.prices for node in self.nodes):
            mend = "give nodes one `price` each, or leave budgets out"
            raise BadInput("a budget beside prices that change", where=where, mend=mend)
        if not any(gpu.price > 0 for gpu in self.gpu_types) and not any(
            node.offer is not None and node.offer.price > 0 for node in self.nodes
        ):
            raise BadInput(
                "a budget, and nothing has a price",
                where=where,
                mend="give gpu_types or nodes a `price`",
            )
