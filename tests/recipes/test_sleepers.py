"""Days on which people suspend and resume jobs that say how much GPU memory they keep.

Every decision is made twice, with caches and without, and every twenty minutes the kernel is
restored from a snapshot. In the end people lift what they ordered, and all jobs end.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from ganger.core.events import AnyEvent, Command, NodeCommand, Withheld
from ganger.core.kernel import Kernel
from ganger.core.spec import ClusterSpec, GpuType, Needs, NodeSpec, OnPreempt, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.state.snapshot import Snapshot, capture, forget, restore
from ganger.core.units import MINUTE, SECOND, WHOLE
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulation import Setup
from ganger.recipes import registry
from ganger.recipes.registry import PLANES
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from recipes.test_orders import Ordered
from soaking import first, rarely
from worlds import Work, job, trace_of

pytestmark = pytest.mark.long

JOBS = 24
NODES = NodeSpec(count=3, gpus=2, gpu_type="A", cpus=16_000, memory=64_000)
CLUSTER = ClusterSpec((NODES,), (GpuType("A", memory=16_000),))
VERBS = ("suspend",) * 6 + ("resume",) * 6 + ("requeue",) * 2 + ("cancel", "hold", "release")


def works(dice: random.Random, *, elastic: bool = False) -> list[Work]:
    """Some that do not say what memory they need, some that need CPUs, some that take a part. If
    `elastic`, those that take whole GPUs may have more or fewer."""
    found: list[Work] = []
    for number in range(JOBS):
        kind = dice.random()
        if kind < 0.15:
            needs = Needs()
        elif kind < 0.5:
            memory, cpus = dice.choice([3000, 6000, 8000, 16_000]), dice.choice([0, 2000, 8000])
            needs = Needs(gpu_memory=memory, cpus=cpus, memory=dice.choice([0, 9000]))
        elif kind < 0.6:
            share = dice.choice([250, 500])
            needs = Needs(share=share, gpu_memory=dice.choice([1000, 5000]))
        else:
            needs = Needs(gpu_memory=dice.choice([2000, 4000]))
        size = dice.choice([1, 1, 2, 3])
        role = Role(size=size, needs=needs)
        if elastic and needs.share == WHOLE:
            role = Role(
                size=size,
                least=dice.choice([0, 1]),
                most=size + dice.choice([0, 2, 4]),
                needs=needs,
            )
        shape = Shape((role,))
        begins, lasts = dice.randint(0, 3000), dice.randint(300, 4000)
        found.append(job(f"j{number}", begins, lasts, shape=shape))
    return found


def orders(dice: random.Random) -> list[tuple[int, AnyEvent]]:
    """One every half minute; in the end all are lifted."""
    told: list[tuple[int, AnyEvent]] = []
    for at in range(MINUTE, 200 * MINUTE, MINUTE // 2):
        event: AnyEvent = Command(dice.randrange(JOBS), dice.choice(VERBS), 0.0)
        other = dice.random()
        if other < 0.05:
            event = NodeCommand(dice.randrange(3), dice.choice(["drain", "resume", "resume"]))
        elif other < 0.1:
            event = Withheld(dice.randrange(3), dice.choice([0, 0, 1, 2]))
        told.append((at, event))
    last = 200 * MINUTE
    lifted: list[AnyEvent] = [NodeCommand(node, "resume") for node in range(3)]
    lifted += [Withheld(node, 0) for node in range(3)]
    lifted += [Command(row, verb, 0.0) for verb in ("release", "resume") for row in range(JOBS)]
    return told + [(last + at, event) for at, event in enumerate(lifted)]


def lived(recipe: str, seed: int, *, elastic: bool = False) -> None:
    """Let `recipe` live through the days of `seed`, on which somebody sleeps; in the end all jobs
    are over."""
    dice = random.Random(seed)
    trace, nodes = trace_of(works(dice, elastic=elastic)), Nodes(CLUSTER)
    simulator = Simulator(trace.declared, trace.duration, Physics(nodes), ())
    engine: Any = Ordered(simulator, orders(dice))
    kernel = Kernel(nodes, trace.declared, registry.make(recipe), seed=1, validate=True)
    slept = 0
    for turn in range(1, 60):
        kernel.run(engine, turn * 20 * MINUTE)
        slept += len(kernel.ledger.asleep)
        kept = msgspec.msgpack.encode(capture(kernel))
        snapshot = msgspec.msgpack.decode(kept, type=Snapshot)
        kernel = restore(snapshot, Nodes(CLUSTER), registry.make(recipe), validate=True)
        assert msgspec.msgpack.encode(capture(kernel)) == kept
    assert slept
    assert set(kernel.jobs.phase[:JOBS].tolist()) <= {Phase.FINISHED, Phase.CANCELLED}
    assert kernel.ledger.free == kernel.ledger.total == 6


@pytest.mark.parametrize("seed", first(1, range(3)))
@pytest.mark.parametrize(
    "recipe",
    ["fifo", "srtf", "las(quantum=5m)", "priority", "synergy", "gandiva(quantum=5m)",
     "gavel(every=4m,whole_steps=yes,barrier=yes)"],
)  # fmt: skip
def test_whoever_sleeps_wakes_and_all_jobs_end(recipe: str, seed: int) -> None:
    lived(recipe, seed)


@pytest.mark.parametrize(
    ("recipe", "seed"),
    [
        ("ali-mlaas", 10),
        ("space-sharing", 10),
        ("afs", 1),
        ("sia", 1),
        rarely(("pollux", 5)),
        rarely(("ones", 1)),
    ],
)
def test_elastic_jobs_and_parts_of_gpus_beside_sleepers(recipe: str, seed: int) -> None:
    lived(recipe, seed, elastic=True)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20, 24))
@pytest.mark.parametrize("recipe", PLANES["training"])
def test_sleepers_under_every_recipe(recipe: str, seed: int) -> None:
    lived(recipe, seed, elastic=True)


def one(name: str, at: int, lasts: int, kind: str, *, memory: int = 0, **more: Any) -> Work:
    """A job on GPUs of one type."""
    role = Role(size=more.pop("size", 1), needs=Needs(gpu_memory=memory))
    return job(name, at, lasts, shape=Shape((role,), gpu_types=(kind,)), **more)


SIZING = [
    "afs",
    "ones",
    "smd",
    "elan",
    "edl",
    "dragon",
    "dynamoml",
    "dorm",
    "sia",
    "pollux",
    "optimus",
]


@pytest.mark.parametrize("recipe", SIZING)
def test_a_job_over_a_sleeper_makes_way_for_nobody_who_could_not_be_there(recipe: str) -> None:
    """On the only GPU of type A a job sleeps and another computes. A shorter one, which does not
    say what memory it takes, could not have that GPU if the other stopped, and neither could a
    pair on the GPUs of type B."""
    nodes = NodeSpec(count=1, gpus=1, gpu_type="A"), NodeSpec(count=1, gpus=2, gpu_type="B")
    spec = ClusterSpec(nodes, (GpuType("A", memory=16_000), GpuType("B", memory=16_000)))
    trace = trace_of(
        [
            one("fixed", 0, 3000, "B", on_preempt=OnPreempt.NEVER),
            one("sleeper", 1, 500, "A", memory=8000),
            one("above", 100, 900, "A", memory=4000),
            one("pair", 200, 50, "B", size=2),
            one("short", 200, 400, "A"),
        ]
    )
    physics = Physics(Nodes(spec))
    told = [(60 * SECOND, Command(1, "suspend", 0.0)), (3000 * SECOND, Command(1, "resume", 0.0))]
    engine: Any = Ordered(Simulator(trace.declared, trace.duration, physics, ()), list(told))
    oracle = make_oracle(trace, physics, Setup(seed=1))
    first = Kernel(Nodes(spec), trace.declared, registry.make("fifo"), oracle=oracle, validate=True)
    first.run(engine, 150 * SECOND)
    kept = forget(capture(first))
    assert [first.jobs.phase[job] for job in (1, 2)] == [Phase.SUSPENDED, Phase.RUNNING]
    kernel = restore(kept, Nodes(spec), registry.make(recipe), oracle=oracle, validate=True)
    kernel.run(engine, 6000 * SECOND)
    assert kernel.jobs.preemptions[2] == 0
    assert kernel.jobs.since[2] == 1000 * SECOND
    assert set(kernel.jobs.phase[:5].tolist()) == {Phase.FINISHED}
