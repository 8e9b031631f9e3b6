"""Recipes by which jobs share GPUs or hosts, each beside the same recipe without what is its own.

    python benchmarks/ablations.py [--seeds 10] [--recipes gandiva;coda] [--no-write]

For each pair and seed both run the same jobs. The figure is the mean job completion time of the one
that lacks it over that of the whole recipe: above 1 the whole recipe is faster. The interval is the
95 % one (Student's t) of the mean of its logarithm over the seeds. *Below* are those whose whole
interval lies below 1.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from effects.co_location import ON_HOSTS
from effects.common import STOP, cluster, elastic, jct, play, workload
from provenance import machine, made, write

from ganger.core.profiles import Memory, Passes, Profile, Profiles, Stages
from ganger.core.spec import ClusterSpec, GpuType, Needs, Role, Shape
from ganger.lab.metrics import confidence
from ganger.workloads.trace import Trace

PAGE = Path(__file__).with_suffix(".md")
JOBS = 150
USE = {"a": 0.3, "b": 0.5, "c": 0.7, "d": 0.9}
KNOWN = Profiles(
    {
        name: Profile(
            locality=(1.0, 1.0, 1.3, 1.8),
            utilisation={"gpu": used, "cpu": 1.0 - used},
            stages=(Stages((0.2 * (1.0 - used), 0.2 * used, 0.0)),),
            memory=Memory(1_000, 3_000, 0.2),
            passes=Passes(1.0, 2.0, 0.05),
            disturbed={other: 1.0 + used * USE[other] / 2 for other in USE},
        )
        for name, used in USE.items()
    }
)
"""Four models that use 30 to 90 % of a GPU, and slow each other on a node by what both use."""


class World(NamedTuple):
    """Jobs, a cluster, and what is known of models."""

    trace: Trace
    cluster: ClusterSpec
    profiles: Profiles


def _named(trace: Trace, names: list[str], seed: int) -> Trace:
    declared, n = trace.declared, trace.jobs
    codes = np.array([declared.models.code(name) for name in names])
    declared.model[:n] = np.random.default_rng(seed).choice(codes, n)
    return trace


def gangs(seed: int) -> World:
    """More jobs of up to 4 GPUs than 16 V100 can run at once."""
    trace = _named(workload("philly", JOBS, 2.0, 16, seed, largest=4), list(USE), seed)
    types = (GpuType("V100", memory=16_384),)
    return World(trace, msgspec.structs.replace(cluster(4, 4), gpu_types=types), KNOWN)


def parts(seed: int) -> World:
    """The same, half of those of one GPU ask for 40 % of it, all others are elastic."""
    world = gangs(seed)
    trace = elastic(world.trace, 4)
    declared, n = trace.declared, trace.jobs
    single = np.flatnonzero(declared.gpus[:n] == 1)[::2]
    declared.shape[single] = declared.shapes.code(Shape((Role(needs=Needs(share=400)),)))
    return world


def hosts(seed: int) -> World:
    """Half of the jobs of one GPU become jobs of 8 cores and no GPU, of which half stream."""
    names = [name for name in ON_HOSTS.models if name.startswith("at")]
    trace = _named(workload("philly", JOBS, 1.5, 16, seed, largest=4), names, seed)
    declared, n = trace.declared, trace.jobs
    cpu = np.flatnonzero(declared.gpus[:n] == 1)[::2]
    declared.shape[cpu] = declared.shapes.code(Shape((Role(needs=Needs(gpus=0, cpus=8000)),)))
    declared.gpus[cpu] = 0
    codes = [declared.models.code(name) for name in ("computes", "streams")]
    declared.model[cpu] = np.random.default_rng(seed).choice(codes, len(cpu))
    return World(trace, cluster(4, 4, cpus=28_000, bandwidth=60.0), ON_HOSTS)


Draws = Callable[[int], World]
PAIRS: tuple[tuple[str, str, str, Draws], ...] = (
    ("gandiva", "gandiva(pack=no)", "pairs that pay", gangs),
    ("muri-s", "muri-s(group=1)", "groups", gangs),
    ("muri-l", "muri-l(group=1)", "groups", gangs),
    ("co-scheml", "co-scheml(share=1)", "company", gangs),
    ("horus", "horus(share=1)", "company", gangs),
    ("lucid", "lucid(busy=1)", "pairs below full load", gangs),
    ("liquid", "liquid(share=1)", "company", gangs),
    ("liquid", "liquid(batch=no)", "placing those that start at once together", gangs),
    ("salus", "salus(share=1)", "lanes", gangs),
    ("jigsaw", "jigsaw(share=1)", "steps in turn", gangs),
    ("harmony", "fifo", "placement by the sum of speeds", gangs),
    ("dynamoml", "dynamoml(parts=no)", "parts of GPUs", parts),
    ("dynamoml", "dynamoml(scales=no)", "elastic gangs", parts),
    ("coda", "coda(loss=1)", "the throttle", hosts),
    ("coda", "coda(start=100)", "cores by trial: all that a node could give", hosts),
)
"""Recipe, the same without something, what that is, and on what."""


class Row(NamedTuple):
    """A pair: by seed, how many times as long the mean JCT is without what is the recipe's own."""

    recipe: str
    ablation: str
    what: str
    ratios: list[float]

    @property
    def interval(self) -> tuple[float, float, float]:
        """Mean, and both ends of its 95 % interval."""
        mean, half = confidence(map(math.log, self.ratios))
        return math.exp(mean), math.exp(mean - half), math.exp(mean + half)

    def cells(self) -> tuple[str, ...]:
        """As the table has it."""
        mean, low, high = self.interval
        verdict = "below" if high < 1.0 else "above" if low > 1.0 else "-"
        figures = f"{mean:.3f}", f"{low:.3f} to {high:.3f}", verdict
        return self.recipe, self.ablation, self.what, *figures


def measure(pair: tuple[str, str, str, Draws], seeds: range) -> Row:
    """The pair over these seeds."""
    recipe, ablation, what, draws = pair
    ratios = []
    for seed in seeds:
        more: dict[str, Any] = {"costs": STOP, "seed": seed}
        jcts = []
        for each in (recipe, ablation):
            world = draws(seed)
            run = play(world.trace, world.cluster, each, profiles=world.profiles, **more)
            jcts.append(jct(run))
        ratios.append(jcts[1] / jcts[0])
    return Row(recipe, ablation, what, ratios)


HEAD = ("recipe", "beside", "without", "JCT without / with", "95 %", "")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--recipes", default="", help="names, apart by ;")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    names = options.recipes.split(";") if options.recipes else [pair[0] for pair in PAIRS]
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    for pair in PAIRS:
        if pair[0] in names:
            lines.append("| " + " | ".join(measure(pair, range(options.seeds)).cells()) + " |")
            print(lines[-1], flush=True)
    if not options.no_write and not options.recipes:
        text = ["# Recipes and their own ablations", "", (__doc__ or "").partition("\n")[0], ""]
        text += [(__doc__ or "").partition("write]\n\n")[2].strip(), ""]
        text += [f"{JOBS} jobs a seed, {options.seeds} seeds. Made by {made()} on {machine()}.", ""]
        write(PAGE, "\n".join([*text, *lines]))


if __name__ == "__main__":
    main()
