"""Queues, prediction, deadlines."""

from __future__ import annotations

from functools import cache

import numpy as np

from effects.common import (
    ALL_STOP,
    DIRECTION,
    NO,
    PUBLISHED,
    STOP,
    Effect,
    cluster,
    effect,
    elastic,
    jct,
    mean,
    modelled,
    play,
    shape,
    verdict,
    waits,
    with_quotas,
    workload,
)
from ganger.core.events import NodeDown, NodeUp
from ganger.core.units import SECOND
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.sim.physics import Costs


@cache
def heavy(seed: int) -> dict[str, float]:
    """Average JCT of the queues that know nothing, over Tiresias'."""
    trace, spec = workload(jobs=4000, load=1.2, seed=seed), cluster()
    base = jct(play(trace, spec, "tiresias"))
    return {
        "yarn-cs / tiresias": jct(play(trace, spec, "yarn-cs")) / base,
        "tiresias / e-las": base / jct(play(trace, spec, "e-las")),
        "yarn-cs / e-las": jct(play(trace, spec, "yarn-cs")) / jct(play(trace, spec, "e-las")),
    }


@effect
def tiresias() -> Effect:
    """Tiresias-L against the production scheduler."""
    ours = mean(heavy)
    return Effect(
        "tiresias",
        "philly-like, 4000 jobs, 64 GPUs, load 1.2; JCT of yarn-cs over tiresias",
        "up to 5.5",
        {"ratio": ours["yarn-cs / tiresias"]},
        verdict((ours["yarn-cs / tiresias"], 5.5)),
    )


@effect
def e_las() -> Effect:
    """E-LAS against Tiresias and YARN."""
    ours = mean(heavy)
    return Effect(
        "e-las",
        "that of tiresias",
        "about 1.5 over Tiresias, 10 over YARN",
        {"over tiresias": ours["tiresias / e-las"], "over yarn-cs": ours["yarn-cs / e-las"]},
        verdict((ours["tiresias / e-las"], 1.5), (ours["yarn-cs / e-las"], 10)),
        "how far YARN falls behind depends on how full the cluster is",
    )


@effect
def philly() -> Effect:
    """Relaxing locality cuts queueing and slows jobs; large gangs wait longer."""

    def measure(seed: int) -> dict[str, float]:
        trace = modelled(workload(jobs=2000, load=1.0, seed=seed, largest=4), seed)
        spec = with_quotas(cluster(16, 4, nodes_per_rack=4), trace)
        hasty = play(trace, spec, "philly(node_wait=0s,rack_wait=0s)", profiles=PUBLISHED)
        patient = play(trace, spec, "philly(node_wait=4h,rack_wait=4h)", profiles=PUBLISHED)
        usual = play(trace, spec, "philly", profiles=PUBLISHED)
        small = usual.jobs.gpus < 4
        ran = [float(run.jobs.ran[run.jobs.gpus > 1].mean()) for run in (hasty, patient)]
        return {
            "wait, relaxed / strict": float(waits(hasty).mean() / waits(patient).mean()),
            "gangs' run time, relaxed / strict": ran[0] / ran[1],
            "wait of 4 GPUs / fewer": float(
                waits(usual)[~small].mean() / max(waits(usual)[small].mean(), 1.0)
            ),
        }

    ours = mean(measure)
    first, second, third = ours.values()
    return Effect(
        "philly",
        "philly-like, 2000 jobs of up to 4 GPUs, 16x4 in 4 racks, load 1, quotas by use",
        "queueing grows with GPUs; relaxing locality cuts it and lowers utilisation",
        ours,
        shape(first < 1 < second and third > 1),
    )


@effect
def ffdl() -> Effect:
    """Packing leaves room for gangs."""

    def measure(seed: int) -> dict[str, float]:
        trace, spec = workload(load=0.8, seed=seed, largest=4), cluster(16, 4)
        runs = {
            "packed": play(trace, spec, "ffdl", seed=seed),
            "spread": play(trace, spec, "placement(fit=worst,within=node)"),
        }
        return {name: 100 * float((waits(run) > 0).mean()) for name, run in runs.items()}

    ours = mean(measure)
    return Effect(
        "ffdl",
        "philly-like gangs of up to 4, 16x4 GPUs, load 0.8; % of jobs that queue",
        "packing queues fewer jobs than spreading",
        ours,
        shape(ours["packed"] < ours["spread"]),
    )


@effect
def ali_mlaas() -> Effect:
    """Predictions by group are nearly as good as the truth."""

    def measure(seed: int) -> dict[str, float]:
        trace, spec = workload("pai", 4000, 1.05, 64, seed), cluster()
        truth = jct(play(trace, spec, "ali-mlaas"))
        return {
            "group / truth": jct(play(trace, spec, "ali-mlaas", knows="group")) / truth,
            "group / fifo": jct(play(trace, spec, "ali-mlaas", knows="group"))
            / jct(play(trace, spec, "space-sharing(mode=time,walk=strict)")),
        }

    ours = mean(measure)
    return Effect(
        "ali-mlaas",
        "pai-like, 4000 jobs, 64 GPUs, load 1.05",
        "1.003 of the oracle, 0.76 of FIFO",
        ours,
        verdict((1 / ours["group / fifo"], 1 / 0.76), (1.05 / ours["group / truth"], 1.0)),
        "the synthetic groups tell less about durations than PAI's tags",
    )


@effect
def genie() -> Effect:
    """More jobs meet their deadlines: those that can run on few GPUs do where that is in time."""

    def measure(seed: int) -> dict[str, float]:
        trace = elastic(modelled(workload(load=0.9, seed=seed), seed))
        n, rng = trace.jobs, np.random.default_rng(seed)
        slack = 1.0 + rng.exponential(1.0, n)
        trace.declared.deadline[:n] = trace.declared.submitted[:n] + (
            slack * trace.duration[:n] + 600 * SECOND
        ).astype(np.int64)
        due = trace.declared.deadline[:n] / SECOND

        def ran(name: str) -> Run:
            return play(trace, cluster(), name, profiles=PUBLISHED, costs=STOP, seed=seed)

        met = {
            name: 100 * float((ran(name).jobs.finish <= due).mean())
            for name in ("genie", "fifo", "edf(preempt=no)", "optimus")
        }
        return {
            "genie %": met["genie"],
            "fifo %": met["fifo"],
            "edf %": met["edf(preempt=no)"],
            "optimus %": met["optimus"],
        }

    ours = mean(measure)
    return Effect(
        "genie",
        "philly-like, 600 elastic jobs of four models, 64 GPUs, load 0.9; deadlines met",
        "QoS guarantee percentage up by up to 67.4",
        ours,
        DIRECTION if ours["genie %"] > max(ours["fifo %"], ours["edf %"]) + 1 else NO,
        "at most 100 % can be met, so that there is less to be gained than was claimed",
        costs=ALL_STOP,
    )


@effect
def helios() -> Effect:
    """QSSF with its predictor against FIFO."""

    def measure(seed: int) -> dict[str, float]:
        trace, spec = workload("helios", 3000, 1.0, 64, seed), cluster()
        fifo = jct(play(trace, spec, "fifo"))
        return {
            knows: fifo / jct(play(trace, spec, "helios", knows=knows))
            for knows in ("history", "rolling", "truth")
        }

    ours = mean(measure)
    return Effect(
        "helios",
        "helios-like, 3000 jobs, 64 GPUs, load 1; JCT of FIFO over QSSF by what it knows",
        "up to 6.5",
        ours,
        verdict((ours["history"], 6.5)),
    )


class NodeHours:
    """A journal that adds up how long nodes are off."""

    def __init__(self) -> None:
        self.since: dict[int, int] = {}
        self.off = self.end = 0

    def append(self, revision: int, batch: object, plan: object, memory: object) -> None:
        """Look for nodes that come and go."""
        self.end = batch.at  # type: ignore[attr-defined]
        for event in batch.events:  # type: ignore[attr-defined]
            if isinstance(event, NodeDown):
                self.since[event.node] = self.end
            elif isinstance(event, NodeUp):
                self.off += self.end - self.since.pop(event.node, self.end)


@effect
def helios_ces() -> Effect:
    """Node-hours saved, and what it costs the jobs."""

    def measure(seed: int) -> dict[str, float]:
        trace, spec = workload("helios", 6000, 0.5, 256, seed), cluster(32, 8)
        base = jct(play(trace, spec, "helios"))
        hours = NodeHours()
        setup = Setup(costs=Costs(boot=300 * SECOND))
        run = run_one(trace, spec, "helios-ces", setup, journal=lambda kernel: hours, record=False)
        off = hours.off + sum(hours.end - at for at in hours.since.values())
        return {"node-hours off %": 100 * off / (32 * hours.end), "JCT ratio": jct(run) / base}

    ours = mean(measure)
    return Effect(
        "helios-ces",
        "helios-like, 6000 jobs, 32 nodes of 8, load 0.5, nodes boot in 5 min",
        "1.65 million kWh a year over 4 clusters; few jobs are delayed",
        ours,
        shape(ours["node-hours off %"] > 2 and ours["JCT ratio"] < 1.05),
        costs="a boot: 5 min",
    )
