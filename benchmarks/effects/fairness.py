"""Fairness between jobs, users and tenants."""

from __future__ import annotations

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
    shape,
    verdict,
    with_quotas,
    workload,
)
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec
from ganger.core.units import HOUR
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.workloads.transform import scale_load


def worst_rho(run: Run, gpus: int = 64) -> float:
    """The largest JCT over the time on a 1/N of the cluster, N the mean number of jobs
    there during the job's life."""
    jobs = run.jobs
    events = np.sort(np.concatenate([jobs.arrival, jobs.finish]))
    change = np.zeros(len(events))
    np.add.at(change, np.searchsorted(events, jobs.arrival), 1.0)
    np.add.at(change, np.searchsorted(events, jobs.finish), -1.0)
    present = change.cumsum()
    integral = np.concatenate([[0.0], (present[:-1] * np.diff(events)).cumsum()])
    total = np.interp(jobs.finish, events, integral) - np.interp(jobs.arrival, events, integral)
    took = jobs.finish - jobs.arrival
    share = gpus / np.maximum(total / np.maximum(took, 1e-9), 1.0)
    alone = jobs.duration * np.maximum(jobs.gpus / share, 1.0)
    return float((took / np.maximum(alone, 1e-9)).max())


@effect
def themis() -> Effect:
    """Finish-time fairness against schedulers that do not look at it."""

    def measure(seed: int) -> dict[str, float]:
        trace = workload("poisson", 1000, 1.1, 64, seed)
        trace.duration[:] = np.maximum(trace.duration, HOUR)
        trace = scale_load(trace, 1.1, 64)
        found = {
            name: play(trace, cluster(), name, seed=seed)
            for name in ("themis", "tiresias", "fifo", "drf")
        }
        base = worst_rho(found["themis"])
        return {f"{name}": worst_rho(found[name]) / base for name in ("tiresias", "fifo", "drf")}

    ours = mean(measure)
    return Effect(
        "themis",
        "Poisson, 1000 jobs of an hour or more, 64 GPUs, load 1.1; largest rho",
        "fairness better by more than 2.25",
        ours,
        verdict(*((each, 2.25) for each in ours.values())),
    )


TYPES = ClusterSpec(
    tuple(NodeSpec(count=2, gpus=8, gpu_type=kind) for kind in ("V100", "P100")),
    (GpuType("V100", speed=1.0), GpuType("P100", speed=0.6)),
)


@effect
def gandiva_fair() -> Effect:
    """GPU time by tickets, and what trading adds."""

    def measure(seed: int) -> dict[str, float]:
        trace = modelled(workload("poisson", 200, 0.9, 32, seed), seed)
        declared, n = trace.declared, trace.jobs
        rng = np.random.default_rng(seed)
        users = [declared.users.code(f"user {i}") for i in range(4)]
        # Users differ in what they train, and in how much they submit.
        models = np.unique(declared.model[:n])
        who = rng.choice(4, n, p=(0.4, 0.3, 0.2, 0.1))
        declared.user[:n], declared.model[:n] = np.array(users)[who], models[who]
        declared.submitted[:n] = 0
        shares = {}
        for name in ("gandiva-fair", "gandiva-fair(trading=no)", "fifo(walk=skip)"):
            setup = Setup(profiles=PUBLISHED, until=4 * HOUR, seed=seed)
            run = run_one(trace, TYPES, name, setup, record=False)
            time = np.bincount(who, run.jobs.active_gpu_seconds, minlength=4)
            shares[name] = float(time.max() / max(time.min(), 1.0))
        declared.weight[:n] = np.where(who == 0, 3.0, 1.0)  # three tickets for the largest
        setup = Setup(profiles=PUBLISHED, until=4 * HOUR, seed=seed)
        run = run_one(trace, TYPES, "gandiva-fair(trading=no)", setup, record=False)
        time = np.bincount(who, run.jobs.active_gpu_seconds, minlength=4)
        return {
            "most / least GPU time": shares["gandiva-fair(trading=no)"],
            "with trading": shares["gandiva-fair"],
            "fifo": shares["fifo(walk=skip)"],
            "3 tickets / 1": float(time[0] / time[1:].mean()),
        }

    ours = mean(measure)
    return Effect(
        "gandiva-fair",
        "200 jobs of 4 users, 40 to 10 % each, all at once, 16 V100 and 16 P100;"
        " GPU time of the users after 4 h",
        "GPU time proportional to tickets",
        ours,
        shape(
            ours["most / least GPU time"] < 1.1 < ours["fifo"] and 2.7 < ours["3 tickets / 1"] < 3.3
        ),
        "with trading, users own unequal numbers of unequal GPUs",
    )


@effect
def astraea() -> Effect:
    """Tenants get what they deserve over time, at no loss of JCT."""

    def measure(seed: int) -> dict[str, float]:
        trace = workload("poisson", 1500, 1.0, 64, seed)
        declared, n = trace.declared, trace.jobs
        rng = np.random.default_rng(seed)
        codes = np.array([declared.tenants.code(f"t{i}") for i in range(4)])
        declared.tenant[:n] = codes[rng.choice(4, n, p=(0.55, 0.15, 0.15, 0.15))]
        spec = with_quotas(cluster(), trace)
        spec = ClusterSpec(
            spec.nodes,
            (),
            tuple(type(each)(each.name, quota=16) for each in spec.tenants),
            spec.name,
        )
        found = {
            name: play(trace, spec, name) for name in ("astraea", "fifo(walk=skip)", "tiresias")
        }
        light = ~np.isin(declared.tenant[:n], codes[:1])
        slow = {
            name: float(
                (
                    (run.jobs.finish - run.jobs.arrival)[light]
                    / np.maximum(run.jobs.duration[light], 60.0)
                ).mean()
            )
            for name, run in found.items()
        }
        fifo, own = "fifo(walk=skip)", "astraea"
        return {
            "light tenants' slow-down, fifo / astraea": slow[fifo] / slow[own],
            "JCT, fifo / astraea": jct(found[fifo]) / jct(found[own]),
        }

    ours = mean(measure)
    first, second = ours.values()
    return Effect(
        "astraea",
        "Poisson, 1500 jobs, 64 GPUs, load 1.0, one tenant of four submits 55 %, equal quotas",
        "tenant fairness up to 9.42x better at no loss of JCT",
        ours,
        verdict((first, 9.42), (second, 1.0)),
    )
