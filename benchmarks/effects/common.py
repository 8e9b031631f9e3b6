"""What the effects share: workloads, runs, and the row of the table."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Any, NamedTuple

import numpy as np

from ganger.core.profiles import Profiles
from ganger.core.spec import ClusterSpec, NodeSpec, Role, Shape, TenantSpec
from ganger.core.units import SECOND
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.sim.physics import Costs
from ganger.workloads.measured.published import MEASURED, profiles
from ganger.workloads.synthetic import synthesize
from ganger.workloads.trace import Trace
from ganger.workloads.transform import at_most, scale_load

SEEDS = (0, 1, 2)


YES, DIRECTION, NO = "yes", "direction only", "**no**"


STOP = Costs(checkpoint=15 * SECOND, restore=15 * SECOND)
ALL_STOP = "30 s to stop and start again"
"""What `STOP` costs, in words."""


class Effect(NamedTuple):
    """One row: which recipe, what it is compared with on what, the published figure, ours (numbers
    by name, means over seeds), the verdict, and what there is to say about it. `costs`: what a
    start after a stop and a change of size cost each side; `equal`: ours where they cost both sides
    the same, if they do not."""

    recipe: str
    setup: str
    published: str
    ours: dict[str, float]
    holds: str
    remark: str = ""
    costs: str = "none"
    equal: dict[str, float] | None = None


def shape(holds: bool) -> str:
    """The verdict on a claim without a figure."""
    return YES if holds else NO


def verdict(*pairs: tuple[float, float]) -> str:
    """The verdict on ratios (above 1: better), each with the published one: YES where each is in
    the direction of the claim and at least half as large, in logarithms; DIRECTION where each is
    better by 2 % or more; else NO."""
    if all(ours > 0 and log(ours) >= log(published) / 2 for ours, published in pairs):
        return YES
    return DIRECTION if min(ours for ours, _ in pairs) >= 1.02 else NO


EFFECTS: list[Callable[[], Effect | None]] = []


def effect(measure: Callable[[], Effect | None]) -> Callable[[], Effect | None]:
    """Put `measure` into the table; None: it lacks what it needs here."""
    EFFECTS.append(measure)
    return measure


def cluster(nodes: int = 8, each: int = 8, **more: Any) -> ClusterSpec:
    """`nodes` nodes of `each` V100."""
    return ClusterSpec((NodeSpec(count=nodes, gpus=each, gpu_type="V100", **more),))


def with_quotas(
    spec: ClusterSpec, trace: Trace, total: int | None = None, least: int = 4
) -> ClusterSpec:
    """The cluster with a quota for every tenant that has jobs in `trace`: `least` GPUs, and by its
    GPU-time a part of what is left of `total`."""
    declared, n = trace.declared, trace.jobs
    work = np.bincount(declared.tenant[:n], trace.duration * declared.gpus[:n] / SECOND)
    names = [(code, declared.tenants[code]) for code in np.flatnonzero(work).tolist()]
    share = work[work > 0]
    rest = (total or spec.gpus) - least * len(names)
    quota = least + (share / share.sum() * rest).astype(int)
    tenants = tuple(
        TenantSpec(name, quota=int(each)) for (_, name), each in zip(names, quota, strict=True)
    )
    return ClusterSpec(spec.nodes, spec.gpu_types, tenants, spec.name)


def workload(
    kind: str = "philly",
    jobs: int = 600,
    load: float = 1.0,
    gpus: int = 64,
    seed: int = 0,
    largest: int = 8,
) -> Trace:
    """A synthetic workload of gangs up to `largest`, at a load for `gpus` GPUs."""
    return scale_load(at_most(synthesize(kind, jobs, seed=seed), largest), load, gpus)


def modelled(trace: Trace, seed: int = 0) -> Trace:
    """The trace with one of the packaged models for every job, by chance."""
    declared, n = trace.declared, trace.jobs
    codes = np.array([declared.models.code(name) for name in MEASURED])
    declared.model[:n] = np.random.default_rng(seed).choice(codes, n)
    return trace


def elastic(trace: Trace, most: int = 8) -> Trace:
    """The trace with jobs that could run on 1 to `most` GPUs, if they ask for no more than that."""
    declared, n = trace.declared, trace.jobs
    for gpus in np.unique(declared.gpus[:n]).tolist():
        shape = Shape((Role(size=gpus, least=1, most=max(gpus, most)),))
        declared.shape[:n][declared.gpus[:n] == gpus] = declared.shapes.code(shape)
    return trace


def play(trace: Trace, spec: ClusterSpec, recipe: str, **setup: Any) -> Run:
    """Run it; every job must come to its end."""
    run = run_one(trace, spec, recipe, Setup(**setup), record=False)
    assert all(state == "finished" for state in run.jobs.state), recipe
    return run


def jct(run: Run) -> float:
    """Mean job completion time, seconds."""
    return float((run.jobs.finish - run.jobs.arrival).mean())


def makespan(run: Run) -> float:
    """Last finish less first arrival, seconds."""
    return float(run.jobs.finish.max() - run.jobs.arrival.min())


def waits(run: Run) -> Any:
    """Queueing delay of every job, seconds."""
    return run.jobs.first_start - run.jobs.arrival


def mean(measure: Callable[[int], dict[str, float]]) -> dict[str, float]:
    """Means by name over the seeds."""
    rows = [measure(seed) for seed in SEEDS]
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


PUBLISHED: Profiles = profiles()
