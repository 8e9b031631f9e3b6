"""Placement and sharing safety."""

from __future__ import annotations

from typing import Any

import numpy as np

from effects.common import (
    PUBLISHED,
    Effect,
    cluster,
    effect,
    jct,
    mean,
    modelled,
    play,
    with_quotas,
    workload,
)
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.lab.result import Run
from ganger.workloads.transform import _select


@effect
def topology_aware() -> Effect:
    """Away from those who disturb, against best fit."""
    names = ("net", "loud")
    loud = Profiles({"net": Profile(disturbed={"loud": 1.3}), "loud": Profile()})

    def measure(seed: int) -> dict[str, float]:
        trace = workload(load=0.7, seed=seed, largest=2)
        codes = [trace.declared.models.code(name) for name in names]
        trace.declared.model[: trace.jobs] = np.random.default_rng(seed).choice(codes, trace.jobs)
        net = trace.declared.model[: trace.jobs] == codes[0]
        ran = {name: float(play(trace, cluster(16, 4, island=2), name, profiles=loud)
                           .jobs.ran[net].mean())
               for name in ("topology-aware", "fifo", "placement(fit=worst)")}  # fmt: skip
        base = ran["topology-aware"]
        return {"best fit": ran["fifo"] / base, "spreading": ran["placement(fit=worst)"] / base}

    ours = mean(measure)
    return Effect(
        "topology-aware", "philly-like gangs of up to 2, 16 nodes of 2+2 GPUs, load 0.7, each"
        " neighbour of one kind slows the other kind 1.3x; run time of the disturbed over this",
        "up to 1.3x faster", ours, min(ours.values()) > 1.05,
        "sockets: our fit rules never split a pair that fits in one",
    )  # fmt: skip


def took(run: Run) -> Any:
    """Completion time of every job, seconds."""
    return run.jobs.finish - run.jobs.arrival


@effect
def hived() -> Effect:
    """Nobody waits longer than with a private cluster."""

    def measure(seed: int) -> dict[str, float]:
        trace = workload(jobs=1500, load=1.3, seed=seed, largest=4)
        spec = with_quotas(cluster(16, 4), trace)
        shared = {label: play(trace, spec, recipe) for label, recipe in (
            ("hived", "hived"), ("soft quotas, nobody evicted", "philly(full=2)"),
        )}  # fmt: skip
        worse = dict.fromkeys(shared, 0.0)
        for tenant in spec.tenants:
            code = trace.declared.tenants.find(tenant.name)
            rows = np.flatnonzero(trace.declared.tenant[: trace.jobs] == code)
            rows = rows[trace.declared.gpus[rows] <= tenant.quota]
            if not len(rows):
                continue
            nodes = [NodeSpec(count=tenant.quota // 4, gpus=4, gpu_type="V100")]
            nodes += [NodeSpec(gpus=size, gpu_type="V100") for size in (2, 1)
                      if tenant.quota % 4 & size]  # fmt: skip
            private = ClusterSpec(tuple(node for node in nodes if node.count), tenants=(tenant,))
            alone = took(play(_select(trace, rows, tenant.name), private, "hived"))
            for name, run in shared.items():
                worse[name] = max(worse[name], float((took(run)[rows] - alone).max()))
        return {name: delay / 60 for name, delay in worse.items()}

    ours = mean(measure)
    return Effect(
        "hived", "philly-like, 1500 jobs of up to 4 GPUs, 16x4, load 1.3, quotas by use; minutes"
        " that a job takes longer, at worst, than on a private cluster of its tenant",
        "excess queueing delay eliminated", ours, ours["hived"] <= 0.01 < max(ours.values()),
    )  # fmt: skip


@effect
def spin() -> Effect:
    """Planned waiting against never and always waiting, with wrong durations."""

    def measure(seed: int) -> dict[str, float]:
        trace = modelled(workload(jobs=1500, load=1.0, seed=seed, largest=4), seed)
        spec = cluster(16, 4)
        named = {"oblivious": "fifo(walk=skip)", "spin": "spin",
                 "always waits": "delay-scheduling(node_wait=1000h)"}  # fmt: skip
        found = {label: jct(play(trace, spec, recipe, knows="noisy", noise=0.5,
                                 profiles=PUBLISHED, seed=seed))
                 for label, recipe in named.items()}  # fmt: skip
        return {f"{label} / spin": found[label] / found["spin"]
                for label in ("oblivious", "always waits")}  # fmt: skip

    ours = mean(measure)
    return Effect(
        "spin", "philly-like, 1500 jobs of up to 4 GPUs, 16x4, load 1.0, four models, durations"
        " off by e^0.5",
        "better than locality-oblivious and than always waiting", ours,
        min(ours.values()) > 1.02, "few jobs are split at all on this workload",
    )  # fmt: skip


@effect
def delay_scheduling() -> Effect:
    """A little patience against none."""

    def measure(seed: int) -> dict[str, float]:
        trace = modelled(workload(jobs=2000, load=1.0, seed=seed, largest=4), seed)
        spec = cluster(16, 4, nodes_per_rack=4)
        times = {wait: jct(play(trace, spec, f"delay-scheduling(node_wait={wait},rack_wait=0s)",
                                profiles=PUBLISHED))
                 for wait in ("0s", "10m", "1000h")}  # fmt: skip
        return {"none / 10 min": times["0s"] / times["10m"],
                "for ever / 10 min": times["1000h"] / times["10m"]}  # fmt: skip

    ours = mean(measure)
    return Effect(
        "delay-scheduling", "philly-like, 2000 jobs of up to 4 GPUs, 16x4, load 1.0, four models",
        "a short wait gains locality at little cost", ours, min(ours.values()) > 1.01,
        "few jobs are split at all on this workload",
    )  # fmt: skip
