"""Strategies: any cluster, any trace that it can run, any costs, outages and profiles."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from ganger.core.books.ledger import Ledger
from ganger.core.profiles import Measured, Memory, Passes, Profile, Profiles, Sensitivity, Stages
from ganger.core.spec import (
    ClusterSpec,
    GpuType,
    JobSpec,
    Locality,
    Needs,
    NodeSpec,
    OnPreempt,
    Role,
    Shape,
)
from ganger.core.state.cluster import Nodes
from ganger.core.units import SECOND
from ganger.lab.simulation import Setup
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from ganger.workloads.trace import Trace
from worlds import Work, gpus, trace_of

HORIZON = 200 * SECOND
"""Where runs end in which jobs lose their work when preempted: they may take turns for ever."""
LONG = 7200 * SECOND
some_seconds = st.integers(0, 30).map(lambda n: n * SECOND)
some_types = ["A", "B"]


class World(NamedTuple):
    """A cluster, what is to be done there, and how it behaves."""

    cluster: ClusterSpec
    works: list[Work]
    setup: Setup

    @property
    def trace(self) -> Trace:
        """The jobs as a fresh trace."""
        return trace_of(self.works)

    @property
    def uniform(self) -> bool:
        """Whether every job runs at speed 1 everywhere."""
        plain = self.setup.profiles == Profiles() and not self.cluster.gpu_types
        return plain and self.setup.costs.rescale != "device-proxy"


groups = st.builds(
    NodeSpec,
    count=st.integers(1, 3),
    gpus=st.sampled_from([1, 2, 3, 4, 8]),
    gpu_type=st.sampled_from(some_types),
    cpus=st.sampled_from([0, 8000]),
    memory=st.sampled_from([0, 65536]),
    pool=st.sampled_from(["", "", "p"]),
    nodes_per_rack=st.integers(0, 2),
    island=st.sampled_from([0, 0, 1, 2]),
    labels=st.sampled_from([(), ("fast",)]),
)
cpu_groups = st.builds(NodeSpec, count=st.just(1), cpus=st.just(16000), memory=st.just(65536))
speeds = st.sampled_from([(), (GpuType("A"), GpuType("B", speed=2.5)), (GpuType("A", 8192),)])
clusters = st.builds(
    lambda groups, extra, types: ClusterSpec((*groups, *extra), types),
    st.lists(groups, min_size=1, max_size=3),
    st.lists(cpu_groups, max_size=1),
    speeds,
)

needs = st.one_of(
    st.just(Needs()),
    st.builds(Needs, cpus=st.sampled_from([0, 1000, 3000]), memory=st.sampled_from([0, 20000])),
    st.builds(
        Needs,
        share=st.sampled_from([250, 300, 500, 900]),
        gpu_memory=st.sampled_from([0, 3000, 9000]),
    ),
    st.builds(Needs, gpus=st.just(2), cpus=st.just(2000)),
    st.just(Needs(gpus=0, cpus=1000)),
)
roles = st.builds(
    lambda needs, size, less, more: Role(
        size=size, least=max(size - less, 1), most=size + more, needs=needs
    ),
    needs,
    st.integers(1, 4),
    st.integers(0, 1),
    st.integers(0, 2),
)
constraints = st.fixed_dictionaries(
    {},
    optional={
        "gpu_types": st.sampled_from([("A",), ("B",), ("B", "A")]),
        "pool": st.just("p"),
        "locality": st.sampled_from(list(Locality)),
        "labels": st.just(("fast",)),
    },
)
shapes = st.one_of(
    st.builds(gpus, st.integers(1, 8)),
    st.builds(lambda size, more: gpus(size, **more), st.integers(1, 6), constraints),
    st.builds(lambda role, more: Shape((role,), **more), roles, constraints),
    st.builds(
        lambda role, count: Shape((Role("ps", count, needs=Needs(gpus=0, cpus=1000)), role)),
        roles,
        st.integers(1, 2),
    ),
)
declared = st.fixed_dictionaries(
    {"submitted": some_seconds, "priority": st.integers(0, 3)},
    optional={
        "deadline": st.integers(10, 100).map(lambda n: n * SECOND),
        "limit": st.integers(1, 20).map(lambda n: n * SECOND),
        "estimate": some_seconds,
        "on_preempt": st.sampled_from([OnPreempt.NEVER, OnPreempt.KILL, OnPreempt.SUSPEND]),
        "checkpoint": st.sampled_from([0, SECOND, 3 * SECOND]),
        "restore": st.sampled_from([0, SECOND, 2 * SECOND]),
        "tenant": st.sampled_from(["ann", "bob"]),
        "model": st.sampled_from(["vgg", "bert"]),
    },
)
costs = st.builds(
    Costs,
    start=st.sampled_from([0, 0, SECOND]),
    checkpoint=st.sampled_from([0, 0, 2 * SECOND]),
    restore=st.sampled_from([0, 0, 3 * SECOND]),
    checkpoint_every=st.sampled_from([0, 4 * SECOND]),
    rescale=st.sampled_from(["", "", "side-car", "stop-free", "device-proxy"]),
)
SIZES = range(1, 25)


def table(a: float, b: float, beside: dict[str, float], busy: float = 0.5) -> Profile:
    """Steps per second of a model in proportion to its GPUs on either type, and what is left of
    them beside others. `busy`: the share of its stages that is of its first resource."""
    steps = {kind: {n: each * n for n in SIZES} for kind, each in (("A", a), ("B", b))}
    return Profile(
        measured=Measured(
            steps,
            "A",
            {},
            {
                other: {
                    kind: {n: part * speed for n, speed in by_size.items()}
                    for kind, by_size in steps.items()
                }
                for other, part in beside.items()
            },
        ),
        stages=(Stages((busy, 1 - busy)),),
    )


paired = Profiles(
    {
        "vgg": table(2.0, 3.0, {"vgg": 0.6, "bert": 0.9}),
        "bert": table(5.0, 1.0, {"vgg": 0.3, "bert": 0.45}),
    }
)
staged = Profiles(
    {"vgg": Profile(stages=(Stages((3.0, 1.0, 0.0), 3.5), Stages((3.0, 1.0, 1.0), gpus=2)))},
    Profile(stages=(Stages((0.0, 2.0, 1.0), overhead=(1.0, 1.1, 1.3)),), utilisation={"gpu": 0.4}),
)
"""Models whose jobs may interleave their stages, in groups of any size."""
fitting = Profiles(
    {
        "vgg": Profile(
            utilisation={"gpu": 0.7}, memory=Memory(3000, 4000, 0.5), passes=Passes(1.0, 2.0, 0.1)
        )
    },
    Profile(utilisation={"gpu": 0.3}, memory=Memory(500, 2500, 0.25), passes=Passes(1.0, 1.0)),
)
"""Models whose memory is known, so that their jobs may run iterations in turn."""
profiles = st.sampled_from(
    [
        Profiles(),
        Profiles(),
        Profiles(
            {
                "vgg": Profile({"B": 0.5}, locality=(1.0, 1.1, 1.5, 2.0), skewed=True),
                "bert": Profile(scaling=(1.0, 1.8, 2.4, 3.0)),
            }
        ),
        Profiles(
            {
                "vgg": Profile(
                    sensitivity=Sensitivity(
                        (1000, 2000, 4000, 8000),
                        (0, 16384),
                        ((0.2, 0.4), (0.3, 0.8), (0.5, 1.5), (0.5, 2.0)),
                    )
                ),
                "bert": Profile(sensitivity=Sensitivity((500,), (0,), ((1.0,),))),
            }
        ),
        paired,
        staged,
        fitting,
    ]
)


@st.composite
def worlds(draw: st.DrawFn, jobs: int = 14) -> World:
    """Any world whose jobs could all run on its cluster."""
    cluster = draw(clusters)
    ledger = Ledger(Nodes(cluster))
    forms = [
        form
        for form in draw(st.lists(shapes, min_size=1, max_size=4))
        if ledger.find(form) is not None
    ]
    rows: list[dict[str, Any]] = draw(st.lists(declared, min_size=1, max_size=jobs))
    works: list[Work] = []
    for i, row in enumerate(sorted(rows, key=lambda row: row["submitted"])):
        after: tuple[str, ...] = ()
        if i and draw(st.integers(0, 4)) == 0:
            after = (f"job {draw(st.integers(0, i - 1))}",)
        form = draw(st.sampled_from(forms)) if forms else gpus(1)
        spec = JobSpec(name=f"job {i}", shape=form, after=after, **row)
        works.append(Work(spec, draw(some_seconds)))
    down = draw(st.lists(st.tuples(st.integers(0, 9), some_seconds, some_seconds), max_size=2))
    nodes = sum(group.count for group in cluster.nodes)
    outages = {node % nodes: Outage(node % nodes, at, at + more + 1) for node, at, more in down}
    kinds = {work.spec.on_preempt for work in works}
    setup = Setup(
        seed=draw(st.integers(0, 3)),
        costs=draw(costs),
        profiles=draw(profiles),
        outages=tuple(outages.values()),
        until=HORIZON if OnPreempt.KILL in kinds else LONG,
    )
    return World(cluster, works, setup)
