"""The plans of every recipe, as digests: what a change of the core must leave as it is.

    python benchmarks/plans.py --write               # record them: three minutes
    python benchmarks/plans.py                       # compare; exits with 1 where one differs
    python benchmarks/plans.py --recipes las,gavel --worlds 0,3
    python benchmarks/plans.py --steps las 3 > before.txt    # the plans themselves, to `diff`

Every recipe decides over 2,000 jobs and over ten small worlds with outages, elastic gangs, shares,
GPU types, time limits, priorities, tenants, CPUs, speeds and costs. A digest is of all steps: time,
events, actions with their placements, and when to be asked again. Reasons, `until` and the header
are no part of it, nor are fields that have their default, so that a new field changes nothing where
it is not used. Programmes are solved in floating point: other processors or versions of numpy and
scipy may give another digest of the recipes that solve one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from provenance import made

from ganger.core.errors import BadInput
from ganger.core.events import Batch
from ganger.core.plan import Plan
from ganger.core.profiles import Measured, Profile, Profiles, Sensitivity
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
    TenantSpec,
)
from ganger.core.state.jobs import declare
from ganger.core.units import HOUR, NEVER, SECOND
from ganger.lab.simulation import Setup, run_one
from ganger.recipes.registry import CATALOGUE
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from ganger.workloads.synthetic import synthesize
from ganger.workloads.trace import Trace

RECORD = Path(__file__).with_suffix(".json")
WORLDS: Final = 10
JOBS: Final = 100
LONG: Final = "2000"
"""The name of the run over 2,000 jobs, or as many as the recipe decides over in a minute."""
SMALLER: Final = {"pollux": "pollux(population=8,generations=4)"}
FEWER: Final = {"pollux": 200}
UNTIL: Final = 48 * HOUR
"""Where a small world ends: jobs that lose their work when preempted may take turns for ever."""


class World(NamedTuple):
    """A cluster, what is to be done there, and how it behaves."""

    cluster: ClusterSpec
    trace: Trace
    setup: Setup


def world(number: int) -> World:
    """The small world of this number."""
    rng = random.Random(f"world {number}")
    cluster = _cluster(rng)
    jobs = sorted((_job(rng, i, cluster) for i in range(JOBS)), key=lambda pair: pair[0].submitted)
    lasts = np.array([lasts for _, lasts in jobs], np.int64)
    return World(cluster, Trace(declare([spec for spec, _ in jobs]), lasts), _setup(rng, cluster))


def _cluster(rng: random.Random) -> ClusterSpec:
    groups = tuple(
        NodeSpec(
            count=rng.randint(1, 3),
            gpus=rng.choice([4, 8]),
            gpu_type=kind,
            cpus=32000,
            memory=262144,
            nodes_per_rack=rng.choice([0, 2]),
            island=rng.choice([0, 2]),
            labels=rng.choice([(), ("fast",)]),
        )
        for kind in ("V100", "K80")
    )
    types = rng.choice([(), (GpuType("V100", 32768, 300.0, 3.0, 2.5), GpuType("K80", 12288))])
    tenants = (TenantSpec("ann", 8), TenantSpec("bob", weight=2.0))
    return ClusterSpec(groups, types, rng.choice([(), tenants]))


def _job(rng: random.Random, number: int, cluster: ClusterSpec) -> tuple[JobSpec, int]:
    size = rng.choice([1, 1, 1, 2, 2, 4])
    needs = rng.choice(
        [
            Needs(),
            Needs(),
            Needs(cpus=1000 * rng.randint(1, 6), memory=8192),
            Needs(share=rng.choice([250, 500]), gpu_memory=3000) if size == 1 else Needs(),
        ]
    )
    elastic = rng.random() < 0.3 and needs == Needs()
    role = Role(size=size, least=1 if elastic else 0, most=2 * size if elastic else 0, needs=needs)
    shape = Shape(
        (role,),
        gpu_types=rng.choice([(), (), (), ("V100",)]),
        locality=rng.choice([Locality.ANY, Locality.ANY, Locality.NODE]),
    )
    lasts = round(60 * 10 ** rng.uniform(0, 2)) * SECOND
    more: dict[str, Any] = {}
    if rng.random() < 0.2:
        more["limit"] = round(lasts * rng.choice([0.5, 1.5, 3.0]))
    if rng.random() < 0.3:
        more["estimate"] = round(lasts * rng.uniform(0.5, 2.0))
    if rng.random() < 0.2:
        more["deadline"] = round(lasts * rng.uniform(1.0, 6.0)) + 2 * HOUR
    if rng.random() < 0.2:
        more["on_preempt"] = rng.choice([OnPreempt.NEVER, OnPreempt.SUSPEND])
    spec = JobSpec(
        name=f"j{number}",
        submitted=round(rng.uniform(0, 2 * 3600)) * SECOND,
        shape=shape,
        tenant=rng.choice(["ann", "bob"]),
        user=f"u{rng.randint(0, 4)}",
        priority=rng.randint(0, 3),
        model=rng.choice(["vgg", "bert"]),
        steps=lasts / SECOND,
        **more,
    )
    return spec, lasts


def _measured(v100: float, k80: float) -> Measured:
    steps = {
        kind: {n: each * n**0.9 for n in range(1, 17)}
        for kind, each in (("V100", v100), ("K80", k80))
    }
    return Measured(
        steps,
        "V100",
        {},
        {
            other: {
                kind: {n: part * speed for n, speed in by_size.items()}
                for kind, by_size in steps.items()
            }
            for other, part in {"vgg": 0.45, "bert": 0.8}.items()
        },
    )


def _setup(rng: random.Random, cluster: ClusterSpec) -> Setup:
    sensitive = Sensitivity((1000, 4000), (0, 16384), ((0.3, 0.6), (0.5, 1.5)))
    profiles = rng.choice(
        [
            Profiles(),
            Profiles(
                {
                    "vgg": Profile(measured=_measured(2.0, 0.5)),
                    "bert": Profile(measured=_measured(5.0, 2.0)),
                }
            ),
            Profiles(
                {
                    "vgg": Profile({"K80": 0.4}, locality=(1.0, 1.1, 1.5, 2.0)),
                    "bert": Profile(scaling=(1.0, 1.8, 2.4, 3.0)),
                }
            ),
            Profiles({"vgg": Profile(sensitivity=sensitive)}),
        ]
    )
    costs = rng.choice(
        [
            Costs(),
            Costs(start=10 * SECOND, checkpoint=20 * SECOND, restore=30 * SECOND),
            Costs(checkpoint=5 * SECOND, checkpoint_every=600 * SECOND, rescale="side-car"),
        ]
    )
    nodes = sum(group.count for group in cluster.nodes)
    down = [round(rng.uniform(0, 6 * 3600)) * SECOND for _ in range(rng.randint(0, 2))]
    outages = tuple(
        Outage(node, at, at + round(rng.uniform(60, 3600)) * SECOND)
        for node, at in zip(rng.sample(range(nodes), len(down)), down, strict=True)
    )
    knows = rng.choice(["truth", "truth", "noisy", "history"])
    return Setup(
        seed=rng.randint(0, 99),
        knows=knows,
        costs=costs,
        profiles=profiles,
        outages=outages,
        until=UNTIL,
    )


def long(recipe: str) -> World:
    """2,000 jobs like Philly's on 64 GPUs of two types, or fewer for a recipe that searches."""
    groups = tuple(
        NodeSpec(count=4, gpus=8, gpu_type=kind, cpus=64000, memory=524288)
        for kind in ("V100", "K80")
    )
    profiles = Profiles(default=Profile({"K80": 0.5}))
    trace = synthesize("philly", FEWER.get(recipe, 2000), seed=1, gpus=64, load=0.9)
    return World(ClusterSpec(groups), trace, Setup(profiles=profiles))


def plain(value: Any) -> Any:
    """A struct as its name and the fields that have not their default; all else as it is."""
    if isinstance(value, msgspec.Struct):
        found = [type(value).__name__]
        for field in msgspec.structs.fields(value):
            each = getattr(value, field.name)
            if each != field.default:
                found += [field.name, plain(each)]
        return found
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value


class Digest:
    """A journal that keeps a digest of every step, or prints the steps."""

    def __init__(self, *, shown: bool = False) -> None:
        self.hash, self.steps, self._shown = hashlib.blake2b(digest_size=12), 0, shown

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Take a step in."""
        step = [batch.at, plain(batch.events)]
        if plan is not None:
            step += [plain(plan.actions), plan.wake if plan.wake < NEVER else -1]
        self.hash.update(msgspec.msgpack.encode(step))
        self.steps += 1
        if self._shown:
            print(json.dumps(step, default=str))


def run(recipe: str, name: str, *, shown: bool = False) -> str:
    """The digest of one run, and how many steps it had; or the sentence that refuses it."""
    found = long(recipe) if name == LONG else world(int(name))
    digest = Digest(shown=shown)
    try:
        run_one(
            found.trace,
            found.cluster,
            SMALLER.get(recipe, recipe),
            found.setup,
            journal=lambda kernel: digest,
            record=False,
        )
    except BadInput as error:
        return f"refused: {error}"
    return f"{digest.hash.hexdigest()} {digest.steps}"


def _timed(pair: tuple[str, str]) -> tuple[str, str, str, float]:
    began = time.process_time()
    return (*pair, run(*pair), time.process_time() - began)


def main() -> int:
    """Record, compare, or show; 1 where a digest differs from the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="record the digests")
    parser.add_argument("--recipes", default=",".join(sorted(CATALOGUE)))
    parser.add_argument("--worlds", default=",".join([*map(str, range(WORLDS)), LONG]))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", nargs=2, metavar=("RECIPE", "WORLD"))
    options = parser.parse_args()
    if options.steps:
        print(run(*options.steps, shown=True))
        return 0
    worlds, recipes = options.worlds.split(","), options.recipes.split(",")
    pairs = [(recipe, name) for name in reversed(worlds) for recipe in recipes]
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {"digests": {}}
    digests, differ = known["digests"], 0
    with ProcessPoolExecutor(options.workers) as pool:
        for done, (recipe, name, digest, took) in enumerate(pool.map(_timed, pairs), 1):
            before = digests.get(recipe, {}).get(name, "not recorded")
            same = before == digest
            differ += not same
            if options.write:
                digests.setdefault(recipe, {})[name] = digest
            print(
                f"{done}/{len(pairs)} {'same' if same else 'DIFFERS'} {recipe} {name}:"
                f" {digest}, {took:.1f} s",
                flush=True,
            )
    if options.write:
        known |= {"made": made(), "numpy": np.__version__, "digests": digests}
        RECORD.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        return 0
    print(f"{len(pairs) - differ} of {len(pairs)} are as recorded ({known.get('made', 'nothing')})")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
