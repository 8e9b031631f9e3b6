"""Jobs that grow and shrink."""

from __future__ import annotations

from effects.common import (
    PUBLISHED,
    Effect,
    cluster,
    effect,
    elastic,
    jct,
    mean,
    modelled,
    play,
    workload,
)
from ganger.core.spec import Role, Shape
from ganger.core.units import SECOND
from ganger.lab.result import Run
from ganger.sim.physics import Costs
from ganger.workloads.trace import Trace
from ganger.workloads.transform import scale_load

STOP = Costs(checkpoint=15 * SECOND, restore=15 * SECOND)


def jobs(seed: int, load: float = 0.9) -> Trace:
    """Elastic jobs of four models."""
    return elastic(modelled(workload("poisson", 600, load, 32, seed), seed))


def run(seed: int, recipe: str, costs: Costs = STOP, load: float = 0.9) -> Run:
    """One recipe on 4 nodes of 8."""
    return play(jobs(seed, load), cluster(4, 8), recipe, profiles=PUBLISHED, costs=costs, seed=seed)


def over(recipe: str, others: tuple[str, ...], costs: Costs = STOP) -> dict[str, float]:
    """JCT of the others over that of the recipe."""

    def measure(seed: int) -> dict[str, float]:
        base = jct(run(seed, recipe, costs))
        return {other: jct(run(seed, other)) / base for other in others}

    return mean(measure)


SETUP = "Poisson, 600 elastic jobs of four models, 4x8 V100, load 0.9; JCT of others over its own"


@effect
def afs() -> Effect:
    """Apathetic Future Share against fixed sizes."""
    ours = over("afs", ("themis", "srtf", "tiresias"), Costs(rescale="stop-free"))
    return Effect("afs", SETUP, "up to 2.2, 2.7, 3.1 over Themis, SRTF, Tiresias-L", ours,
                  min(ours.values()) > 1.1)  # fmt: skip


@effect
def elastic_scaling() -> Effect:
    """The exact programme against first come, first served."""
    ours = over("elastic-scaling", ("fifo", "backfill"))
    return Effect("elastic-scaling", SETUP, "up to 10x faster than fixed batches", ours,
                  min(ours.values()) > 1.2)  # fmt: skip


@effect
def marble() -> Effect:
    """At the knee, against whole nodes and Optimus."""

    def measure(seed: int) -> dict[str, float]:
        trace = modelled(workload("poisson", 600, 0.9, 32, seed), seed)
        declared, n = trace.declared, trace.jobs
        declared.gpus[:n] = 8
        declared.shape[:n] = declared.shapes.code(Shape((Role(size=8, least=1, most=8),)))
        trace = scale_load(trace, 0.9, 32)
        base = jct(play(trace, cluster(4, 8), "marble", profiles=PUBLISHED))
        return {name: jct(play(trace, cluster(4, 8), name, profiles=PUBLISHED)) / base
                for name in ("fifo", "optimus")}  # fmt: skip

    ours = mean(measure)
    return Effect(
        "marble", "Poisson, 600 jobs of four models that ask for a node, 4x8 V100, load 0.9",
        "48.3 % better than LSF, JCT 47 % below Optimus", ours, min(ours.values()) > 1.1,
        "Optimus knows the true remaining times here",
    )  # fmt: skip


@effect
def non_intrusive() -> Effect:
    """Side-car rescaling against first come, first served."""
    ours = over("non-intrusive", ("fifo", "optimus"), Costs(rescale="side-car"))
    return Effect("non-intrusive", SETUP, "JCT up to 63 % below the Kubernetes default", ours,
                  ours["fifo"] > 1.5)  # fmt: skip


@effect
def dragon() -> Effect:
    """Scaling down for the head, up into idle GPUs."""
    ours = over("dragon", ("fifo", "fifo(walk=skip)"))
    return Effect("dragon", SETUP, "higher utilisation and shorter JCT than the default", ours,
                  min(ours.values()) > 1.0)  # fmt: skip


@effect
def elan() -> Effect:
    """Elastic against static jobs, both first come, first served with passing."""

    def measure(seed: int) -> dict[str, float]:
        own = run(seed, "elan", Costs(rescale="io-free"))
        static = run(seed, "fifo(walk=skip)")
        pending = [float((each.jobs.first_start - each.jobs.arrival).mean())
                   for each in (own, static)]  # fmt: skip
        return {"JCT %": 100 * (jct(own) / jct(static) - 1),
                "first wait %": 100 * (pending[0] / pending[1] - 1)}  # fmt: skip

    ours = mean(measure)
    return Effect("elan", SETUP.replace("others over its own", "elan against static jobs"),
                  "time to solution -20 %, pending time -43 %", ours,
                  ours["JCT %"] < -10 and ours["first wait %"] < -30)  # fmt: skip


@effect
def edl() -> Effect:
    """Elastic-Tiresias against Tiresias, and stop-free against stop and restart."""

    def measure(seed: int) -> dict[str, float]:
        free = jct(run(seed, "edl", Costs(rescale="stop-free")))
        return {"tiresias": jct(run(seed, "tiresias")) / free,
                "edl with stop and restart": jct(run(seed, "edl")) / free}  # fmt: skip

    ours = mean(measure)
    return Effect("edl", SETUP, "better than Tiresias; stop-free better than stop and resume", ours,
                  min(ours.values()) > 1.0)  # fmt: skip


@effect
def smd() -> Effect:
    """The knapsack against Optimus and fixed sizes."""
    ours = over("smd", ("optimus", "fifo"), Costs(rescale="io-free"))
    return Effect("smd", SETUP, "better than Optimus-like and equal-share schedulers", ours,
                  min(ours.values()) > 1.0, "its sizes ignore how many wait")  # fmt: skip


@effect
def ones() -> Effect:
    """Evolution against Tiresias and Optimus."""
    ours = over("ones", ("tiresias", "optimus"), Costs(rescale="io-free"))
    return Effect("ones", SETUP, "JCT 45.6 % below Tiresias, 41.7 % below Optimus", ours,
                  min(ours.values()) > 1.2, "Optimus knows true remaining times here")  # fmt: skip
