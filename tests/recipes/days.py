"""Days on as many clusters, each with some of everything that jobs can ask for there.

What is drawn comes from `random.Random(seed).random()`, which is the same on every Python.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from anything import table
from ganger.core.profiles import Goodput, Profile, Profiles, Sensitivity, StepModel, Steps
from ganger.core.spec import (
    ClusterSpec,
    GpuType,
    Kind,
    Locality,
    Needs,
    NodeSpec,
    OnPreempt,
    Role,
    Shape,
    TenantSpec,
)
from ganger.core.units import HOUR, MINUTE, SECOND
from ganger.lab.simulation import Setup
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from worlds import Work, gpus, job


class Day(NamedTuple):
    """A cluster, its jobs, and how it behaves."""

    cluster: ClusterSpec
    works: list[Work]
    setup: Setup


class Dice:
    """A stream of draws."""

    def __init__(self, seed: int) -> None:
        self._next = random.Random(seed).random

    def of(self, *choices: Any) -> Any:
        """One of them."""
        return choices[int(self._next() * len(choices))]

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return low + int(self._next() * (high - low + 1))


MIN = 60
CORES = Needs(gpus=0, cpus=1500)
TENANTS = (
    TenantSpec("lab", 12), TenantSpec("ann", 6, 2.0, "lab"), TenantSpec("bob", 6, 1.0, "lab"),
    TenantSpec("cid", 4, 1.0),
)  # fmt: skip


def seconds(dice: Dice) -> int:
    """A run time: most are short, some take hours."""
    return int(dice.of(dice.between(90, 900), dice.between(900, 5000), dice.between(5000, 20000)))


def people(dice: Dice) -> dict[str, Any]:
    """Whose job it is."""
    tenant = dice.of("ann", "bob", "cid")
    return {
        "tenant": tenant,
        "user": dice.of(tenant, f"{tenant}'s guest"),
        "group": dice.of("vision", "language"),
        "priority": dice.between(0, 3),
        "weight": dice.of(1.0, 1.0, 2.0),
    }


def gangs() -> Day:
    """Gangs on one kind of GPUs in racks: deadlines, limits, followers, a node that goes twice."""
    dice, works = Dice(1), []
    for i in range(22):
        lasts, at = seconds(dice), dice.between(0, 90) * 2 * MIN
        more: dict[str, Any] = {"estimate": lasts * dice.of(0.5, 1, 2)}
        if i % 3 == 0:
            more["deadline"] = at + lasts * dice.of(1, 2, 4)
        if i % 7 == 3:
            more["limit"] = lasts * dice.of(0.6, 3)
        if i % 6 == 5:
            more["after"] = (f"j{i - dice.between(1, 4)}",)
        if i % 5 == 4:
            more["on_preempt"] = dice.of(OnPreempt.NEVER, OnPreempt.SUSPEND)
        within = dice.of(Locality.ANY, Locality.ANY, Locality.RACK, Locality.NODE)
        size = dice.of(1, 1, 2, 2, 4, 6, 8)
        within = Locality.RACK if size > 4 and within == Locality.NODE else within
        works.append(
            job(f"j{i}", at, lasts, shape=gpus(size, locality=within), **people(dice), **more)
        )
    nodes = (NodeSpec(count=4, gpus=4, gpu_type="V100", nodes_per_rack=2, island=2),)
    costs = Costs(
        start=20 * SECOND,
        checkpoint=15 * SECOND,
        restore=40 * SECOND,
        load=5 * SECOND,
        finish=2 * SECOND,
        checkpoint_every=10 * MINUTE,
    )
    outages = (Outage(1, HOUR, HOUR + 20 * MINUTE), Outage(1, 3 * HOUR, 4 * HOUR))
    skewed = Profile(locality=(1.0, 1.05, 1.2, 1.6), skewed=True)
    known = Profiles({"wide": skewed}, Profile(locality=(1.0, 1.0, 1.1, 1.3)))
    works = [
        work._replace(spec=_named(work, "wide" if i % 4 == 1 else ""))
        for i, work in enumerate(works)
    ]
    return Day(
        ClusterSpec(nodes, (), TENANTS),
        works,
        Setup(1, costs=costs, profiles=known, outages=outages, until=60 * HOUR),
    )


def _named(work: Work, model: str) -> Any:
    import msgspec

    return msgspec.structs.replace(work.spec, model=model)


def kinds() -> Day:
    """Three kinds of GPUs, in pools, some of them only lent; models that like one or the other."""
    dice, works = Dice(2), []
    for i in range(20):
        lasts, at = seconds(dice), dice.between(0, 60) * 3 * MIN
        size = dice.of(1, 1, 1, 2, 2, 4)
        more: dict[str, Any] = {}
        if i % 4 == 1:
            more["gpu_types"] = dice.of(("K80", "V100"), ("V100",), ("V100", "P100"))
        if i % 9 == 2:
            more["pool"] = "old"
            more["gpu_types"] = ()
        declared: dict[str, Any] = {"model": dice.of("vgg", "bert", "own"), "estimate": lasts}
        if i % 4 == 2:
            declared["deadline"] = at + 3 * lasts
        works.append(
            job(
                f"j{i}",
                at,
                lasts,
                shape=gpus(size, **more),
                steps=float(lasts),
                **people(dice),
                **declared,
            )
        )
    nodes = (
        NodeSpec(count=1, gpus=4, gpu_type="V100"),
        NodeSpec(count=2, gpus=2, gpu_type="P100", labels=("spot",)),
        NodeSpec(count=2, gpus=4, gpu_type="K80", pool="old"),
    )
    types = (
        GpuType("V100", 32768, 300.0, 3.0, 1.0),
        GpuType("P100", 16384, 250.0, 1.5, 0.6),
        GpuType("K80", 12288, 200.0, 0.5, 0.25),
    )
    like = {"V100": 1.0, "P100": 0.5, "K80": 0.3}
    known = Profiles(
        {
            "vgg": Profile(like),
            "bert": Profile({"V100": 1.0, "P100": 0.9}),
            "own": Profile(locality=(1.0, 1.0, 1.2, 1.5)),
        }
    )
    costs = Costs(checkpoint=5 * SECOND, restore=20 * SECOND)
    outages = (Outage(2, 2 * HOUR, 3 * HOUR),)
    return Day(
        ClusterSpec(nodes, types, TENANTS),
        works,
        Setup(
            2,
            knows="noisy",
            costs=costs,
            profiles=known,
            outages=outages,
            until=60 * HOUR,
            speed_noise=0.1,
        ),
    )


def sizes() -> Day:
    """Jobs that can shrink and grow, and choose their batch, or say what a step is made of."""
    dice, works = Dice(3), []
    for i in range(16):
        lasts, at = seconds(dice), dice.between(0, 60) * 2 * MIN
        size = dice.of(1, 2, 2, 4)
        role = Role(size=size, least=dice.of(1, size), most=size * dice.of(1, 2, 4))
        works.append(
            job(
                f"j{i}",
                at,
                lasts,
                shape=Shape((role,)),
                model=dice.of("a", "b", "c"),
                steps=float(lasts),
                **people(dice),
            )
        )
    model = StepModel(0.05, 0.002, 0.1, 0.01, 0.03, 0.005, 1.5)
    noise = ((100.0, 600.0, 3000.0),)
    tuned = Goodput(100, 3200, (10, 200), 4e5, (0.0, 0.3, 0.6), (100.0,), noise, model=model)
    known = Profiles(
        {
            "a": Profile(scaling=(1.0, 1.9, 2.7, 3.4, 4.0, 4.5, 4.9, 5.2)),
            "b": Profile(goodput=tuned, locality=(1.0, 1.0, 1.1, 1.3)),
            "c": Profile(steps=Steps(0.2, 0.4, (50.0, 12.0, 10.0, 5.0), servers=2)),
        }
    )
    costs = Costs(start=10 * SECOND, checkpoint=10 * SECOND, restore=20 * SECOND)
    nodes = (NodeSpec(count=3, gpus=4, gpu_type="V100", cpus=32000, memory=131072),)
    outages = (Outage(0, HOUR, HOUR + 30 * MINUTE),)
    return Day(
        ClusterSpec(nodes, (), TENANTS),
        works,
        Setup(3, costs=costs, profiles=known, outages=outages, until=40 * HOUR),
    )


def parts() -> Day:
    """Parts of GPUs, cores and host memory, servers beside workers, neighbours that disturb."""
    dice, works = Dice(4), []
    for i in range(20):
        lasts, at = seconds(dice), dice.between(0, 60) * 2 * MIN
        needs = dice.of(
            Needs(share=500, gpu_memory=6000),
            Needs(share=250, gpu_memory=2000),
            Needs(cpus=3000, memory=16000),
            Needs(cpus=8000, memory=8000),
            Needs(),
        )
        worker = Role("w", 1 if needs.share < 1000 else dice.of(1, 2, 3), needs=needs)
        server = Role("ps", 1, needs=Needs(gpus=0, cpus=2000, memory=4000))
        roles = (server, worker) if i % 6 == 4 else (worker,)
        works.append(
            job(
                f"j{i}",
                at,
                lasts,
                shape=Shape(roles),
                model=dice.of("vgg", "bert"),
                estimate=2 * lasts,
                **people(dice),
            )
        )
    nodes = (
        NodeSpec(count=2, gpus=3, gpu_type="A", cpus=24000, memory=65536),
        NodeSpec(count=1, gpus=2, gpu_type="B", cpus=32000, memory=131072),
        NodeSpec(count=1, cpus=32000, memory=65536),
    )
    hungry = Sensitivity(
        (1000, 2000, 4000, 8000), (0, 16384), ((0.2, 0.4), (0.3, 0.8), (0.5, 1.5), (0.5, 2.0))
    )
    known = Profiles(
        {
            "vgg": Profile({"B": 1.5}, sensitivity=hungry),
            "bert": Profile({"B": 0.8}, disturbed={"vgg": 1.3}),
        }
    )
    return Day(
        ClusterSpec(nodes, (GpuType("A"), GpuType("B", 32768)), TENANTS),
        works,
        Setup(4, knows="estimate", profiles=known, until=60 * HOUR),
    )


def pairs() -> Day:
    """Jobs that may share a GPU, whose speeds alone and beside each other were measured."""
    dice, works = Dice(5), []
    for i in range(14):
        at = dice.between(0, 60) * 2 * MIN
        works.append(
            job(
                f"j{i}",
                at,
                seconds(dice),
                size=dice.of(1, 1, 2),
                model=dice.of("vgg", "bert"),
                **people(dice),
            )
        )
    nodes = (NodeSpec(count=1, gpus=2, gpu_type="A"), NodeSpec(count=1, gpus=2, gpu_type="B"))
    known = Profiles(
        {
            "vgg": table(2.0, 3.0, {"vgg": 0.6, "bert": 0.9}, 0.8),
            "bert": table(5.0, 1.0, {"vgg": 0.55, "bert": 0.45}, 0.3),
        }
    )
    return Day(ClusterSpec(nodes, (), TENANTS), works, Setup(5, profiles=known, until=60 * HOUR))


def crowd() -> Day:
    """Many short jobs on few GPUs of two kinds: some grow by pairs of GPUs, some want only cores,
    some lose all when they are stopped, and one divides what it gets among its trials."""
    dice, works = Dice(6), []
    pair = Role("w", 1, 1, 3, Needs(gpus=2, cpus=2000))
    sweep = job("sweep", 5 * MIN, 4000, size=4, kind=Kind.TUNE, tenant="ann", user="ann")
    for i in range(30):
        at = dice.between(0, 60) * MIN
        size = dice.of(1, 1, 2, 3)
        role = dice.of(
            Role(size=size),
            Role(size=size, least=1, most=2 * size),
            pair,
            Role(size=1, needs=CORES),
        )
        more: dict[str, Any] = {"gpu_types": ("B", "A")} if i % 5 == 1 and role.needs.gpus else {}
        if i % 8 == 6:
            more["labels"] = ("fast",)
        declared: dict[str, Any] = {"model": dice.of("vgg", "own"), "steps": 100.0}
        if i % 7 == 2:
            declared["on_preempt"] = dice.of(OnPreempt.KILL, OnPreempt.SUSPEND, OnPreempt.NEVER)
        if i % 4 == 3:
            declared.update(deadline=at + dice.between(10, 90) * MIN, checkpoint=30, restore=20)
        if i % 6 == 5:
            role, more, declared["parent"] = Role(size=dice.of(1, 2)), {}, "sweep"
            at = max(at, 5 * MIN)
        works.append(
            job(
                f"j{i}",
                at,
                dice.between(60, 2400),
                shape=Shape((role,), **more),
                **people(dice),
                **declared,
            )
        )
    nodes = (
        NodeSpec(
            count=2, gpus=4, gpu_type="A", cpus=16000, memory=65536, rack="r", labels=("fast",)
        ),
        NodeSpec(1, 2, "A", cpus=3000, memory=16384, rack="s"),
        NodeSpec(1, 4, "B", cpus=32000, memory=65536, rack="s", island=2),
    )
    types = (GpuType("A", 16384, 300.0, 2.0), GpuType("B", 32768, 400.0, 5.0, 2.0))
    known = Profiles({"vgg": Profile({"B": 1.4}, (1.0, 1.0, 1.3, 1.6), (1.0, 1.7, 2.2, 2.6, 2.9))})
    costs = Costs(
        start=5 * SECOND,
        checkpoint=5 * SECOND,
        restore=10 * SECOND,
        boot=MINUTE,
        profiling=30 * SECOND,
        rescale="side-car",
    )
    return Day(
        ClusterSpec(nodes, types, TENANTS),
        [sweep, *works],
        Setup(
            6, costs=costs, profiles=known, outages=(Outage(0, HOUR // 2, HOUR),), until=8 * HOUR
        ),
    )


def storm() -> Day:
    """Nodes that come and go all the time under more jobs than fit: gangs over islands and racks,
    elastic ones, jobs without GPUs that last, some that must not be stopped, deadlines that cannot
    all be met, and a search whose trials come late."""
    dice, works = Dice(7), []
    sweep = job("sweep", 12 * MIN, 9000, size=3, kind=Kind.TUNE, tenant="bob", user="bob")
    for i in range(36):
        at, lasts = dice.between(0, 150) * MIN, int(dice.of(300, 900, 2500, 6000, 9000))
        size = dice.of(1, 1, 2, 2, 3, 4, 6)
        role = dice.of(
            Role(size=size),
            Role(size=size),
            Role(size=size, least=1, most=size + 3),
            Role(size=size, needs=Needs(cpus=1000, memory=4096)),
            Role(size=dice.of(1, 2), needs=Needs(gpus=2)),
            Role(size=1, needs=CORES),
        )
        more: dict[str, Any] = {}
        if role.needs.gpus and i % 4 == 2:
            more["gpu_types"] = dice.of(("B",), ("A", "B"), ("B", "A"))
        if i % 9 == 4 and role.size * role.needs.gpus <= 4:
            more["locality"] = dice.of(Locality.NODE, Locality.ISLAND)
        declared: dict[str, Any] = {"model": dice.of("vgg", "own", ""), "steps": float(lasts)}
        declared["estimate"] = lasts * dice.of(0.5, 1.0, 1.0, 3.0)
        if i % 5 == 1:
            declared["on_preempt"] = dice.of(OnPreempt.KILL, OnPreempt.SUSPEND, OnPreempt.NEVER)
        if i % 3 == 1:
            declared["deadline"] = at + lasts * dice.of(0.9, 1.3, 2, 4)
        if i % 8 == 5:
            declared["limit"] = lasts * dice.of(0.7, 2)
        if i % 11 == 7:
            declared["after"] = (f"j{i - dice.between(1, 5)}",)
        if i % 7 == 6:
            role, more, declared["parent"] = Role(size=dice.of(1, 2)), {}, "sweep"
            at = max(at, 12 * MIN)
        works.append(
            job(f"j{i}", at, lasts, shape=Shape((role,), **more), **people(dice), **declared)
        )
    nodes = (
        NodeSpec(2, 4, "A", cpus=12000, memory=65536, nodes_per_rack=2, island=2),
        NodeSpec(2, 2, "A", cpus=6000, memory=32768, rack="s"),
        NodeSpec(1, 4, "B", cpus=16000, memory=65536, rack="s"),
        NodeSpec(1, 2, "B", cpus=4000, memory=16384, rack="t", island=2),
    )
    types = (GpuType("A", 16384, 300.0, 1.0), GpuType("B", 32768, 400.0, 3.0, 1.5))
    known = Profiles(
        {"vgg": Profile({"B": 1.9}, (1.0, 1.1, 1.3, 1.7), (1.0, 1.8, 2.4, 2.9, 3.2))},
        Profile({"B": 1.1}, (1.0, 1.0, 1.05, 1.2)),
    )
    costs = Costs(
        start=15 * SECOND,
        checkpoint=20 * SECOND,
        restore=35 * SECOND,
        finish=4 * SECOND,
        checkpoint_every=15 * MINUTE,
    )
    outages = tuple(
        Outage(node, begins * MINUTE, ends * MINUTE)
        for node, begins, ends in (
            (0, 25, 40),
            (4, 31, 70),
            (1, 60, 61),
            (2, 75, 110),
            (5, 80, 85),
            (0, 95, 130),
            (4, 120, 121),
            (3, 125, 200),
            (1, 140, 150),
            (5, 190, 260),
            (0, 230, 235),
        )
    )
    return Day(
        ClusterSpec(nodes, types, TENANTS),
        [sweep, *works],
        Setup(7, costs=costs, profiles=known, outages=outages, until=16 * HOUR),
    )


DAYS: dict[str, Callable[[], Day]] = {
    "gangs": gangs,
    "kinds": kinds,
    "sizes": sizes,
    "parts": parts,
    "pairs": pairs,
    "crowd": crowd,
    "storm": storm,
}
