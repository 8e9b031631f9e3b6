"""Every recipe on small random workloads, every invariant checked, every plan decided twice.

`make test` has one workload and one oracle for each, which move on from recipe to recipe; `make
soak` has the others.
"""

from __future__ import annotations

import numpy as np
import pytest

from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, NodeSpec, OnPreempt, TenantSpec
from ganger.core.units import SECOND
from ganger.lab.simulation import Setup
from ganger.recipes import registry
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from soaking import rarely
from worlds import Work, job, play

pytestmark = pytest.mark.long

VARIANTS = (
    "gittins(sizes=10s;100s, quantum=5s)", "gittins(quantum=5s, refresh=60s)",
    "tiresias(thresholds=50s;200s, index=gittins, step=20s)", "drf(walk=strict)",
    "drf(owner=tenant, resources=gpus)", "max-min(every=7s, heterogeneous=no)",
    "max-min(every=7s)", "ftf(every=7s)", "ftf(every=7s, agnostic=yes, fill=no)",
    "hierarchical(every=7s)", "hierarchical(every=7s, inside=fifo, agnostic=yes)",
    *(f"gavel(every=7s, objective={o})" for o in ("max-min", "fifo", "makespan", "max-sum", "ftf")),
    "gavel(every=7s, agnostic=yes, fill=no)", "heterogeneity-agnostic(chance=yes, walk=skip)",
    "delay-scheduling(node_wait=5s, rack_wait=5s)", "placement(fit=random, walk=skip)",
    "spot", "space-sharing", "cpu-disaggregation(pool=20)", "yarn-cs(within=any)", "helios",
    "pop(every=7s, parts=3)", "pop(every=7s, objective=makespan, deal=replicated)",
    "sia(interval=7s)", "sia(interval=7s, p=0.5)", "allox",
    "allox(alpha=0.3, entrants=jobs)", "dorm", "dorm(theta1=0, theta2=0)", "chronus(lease=10s)",
    "synergy(division=opt, every=5s)", "synergy(order=las, every=5s)",
)  # fmt: skip
CLUSTER = ClusterSpec(
    (
        NodeSpec(count=2, gpus=4, gpu_type="V100", cpus=32000, memory=65536, labels=("spot",)),
        NodeSpec(count=2, gpus=2, gpu_type="K80", cpus=16000, memory=65536),
    ),
    tenants=(TenantSpec("org"), TenantSpec("a", 6, 2.0, "org"), TenantSpec("b", 8, 1.0, "org")),
)
PROFILES = Profiles(
    {
        "vgg": Profile(by_type={"V100": 1.0, "K80": 0.2}, locality=(1, 1, 1.5, 2), skewed=True),
        "lstm": Profile(by_type={"V100": 1.0, "K80": 0.7}),
    }
)


def works(seed: int) -> list[Work]:
    rng = np.random.default_rng(seed)
    return [
        job(
            f"j{i}",
            at=float(rng.integers(0, 120)),
            lasts=float(rng.integers(5, 90)),
            size=int(rng.choice([0, 1, 1, 2, 4])),
            user=f"u{rng.integers(3)}",
            tenant=str(rng.choice(["a", "b", "c"])),
            model=str(rng.choice(["vgg", "lstm", ""])),
            weight=float(rng.integers(1, 4)),
            on_preempt=OnPreempt(int(rng.choice([0, 0, 0, 1, 3]))),
        )
        for i in range(18)
    ]


def setup(seed: int, knows: str) -> Setup:
    return Setup(
        seed=seed,
        knows=knows,
        until=3000 * SECOND,
        profiles=PROFILES,
        costs=Costs(checkpoint=SECOND, restore=2 * SECOND, checkpoint_every=10 * SECOND),
        outages=(Outage(0, 40 * SECOND, 90 * SECOND),),
    )


KNOWS = ("truth", "history", "noisy")
CASES = [
    (recipe, seed, KNOWS[seed]) if seed == at % 3 else rarely((recipe, seed, KNOWS[seed]))
    for at, recipe in enumerate(VARIANTS)
    for seed in range(3)
]


@pytest.mark.parametrize(("recipe", "seed", "knows"), CASES)
def test_every_job_finishes(recipe: str, seed: int, knows: str) -> None:
    run = play(recipe, works(seed), CLUSTER, setup(seed, knows))
    left = [name.spec.name for name in works(seed) if run.phase(name.spec.name) != "finished"]
    assert not left


@pytest.mark.parametrize("recipe", VARIANTS)
def test_the_same_seed_gives_the_same_decisions(recipe: str) -> None:
    once, again = (
        play(recipe, works(3), CLUSTER, setup(3, "history"), validate=False).text()
        for _ in range(2)
    )
    assert once == again


def test_every_name_in_the_catalogue_makes_a_policy_with_defaults() -> None:
    for name in registry.recipes():
        assert registry.make(name).name
        assert registry.find(name).summary
