"""Whole decisions as one programme."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from gavel import spread
from scipy.sparse import coo_array

from effects.common import (
    ALL_STOP,
    DIRECTION,
    PUBLISHED,
    STOP,
    Effect,
    cluster,
    effect,
    elastic,
    jct,
    makespan,
    mean,
    modelled,
    play,
    shape,
    verdict,
    workload,
)
from ganger.core.profiles import Profile, Profiles, Sensitivity
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec
from ganger.core.units import MINUTE, NEVER, SECOND
from ganger.solve.division.programme import Answer, Floats, Ints, Shares, proportional, shares
from ganger.solve.division.shares import max_min
from ganger.solve.highs import maximise, model
from ganger.solve.pop import Deal, partitioned
from ganger.workloads.clusters import load_cluster
from ganger.workloads.measured.published import MEASURED
from ganger.workloads.measured.throughputs import load_throughputs, steps_per_second
from ganger.workloads.synthetic import synthesize
from ganger.workloads.trace import Trace

TYPES = ClusterSpec(
    tuple(NodeSpec(count=4, gpus=4, gpu_type=kind) for kind in ("V100", "P100", "K80")),
    (GpuType("V100", speed=1.0), GpuType("P100", speed=0.6), GpuType("K80", speed=0.2)),
)


def by_simplex(posed: Shares) -> float:
    """CPU seconds of a general solver (HiGHS) for max-min as one programme: the largest t with
    rate_i . x_i >= pace_i t for every job i, in machines x time shares."""
    n, kinds = posed.rate.shape
    pace = proportional(posed) / posed.scale
    job, kind = np.repeat(np.arange(n), kinds), np.tile(np.arange(kinds), n)
    cells = np.arange(n * kinds)
    rows = coo_array(
        (
            np.concatenate([-posed.rate.ravel(), pace, np.ones(n * kinds), posed.scale[job]]),
            (
                np.concatenate([job, np.arange(n), n + job, 2 * n + kind]),
                np.concatenate([cells, np.full(n, n * kinds), cells, cells]),
            ),
        ),
        shape=(2 * n + kinds, n * kinds + 1),
    ).tocsr()
    gain = np.zeros(n * kinds + 1)
    gain[-1] = 1.0
    bounds = np.concatenate([np.zeros(n), posed.limit, posed.capacity])
    asked = model(gain, rows, bounds, upper=np.full(n * kinds + 1, np.inf))
    started = time.process_time()
    maximise(asked)
    return time.process_time() - started


@effect
def pop() -> Effect:
    """Max-min of 4000 jobs in 8 parts against the whole programme."""

    def measure(seed: int) -> dict[str, float]:
        rng = np.random.default_rng(seed)
        speed = np.array([(1.0, each.p100, each.k80) for each in MEASURED.values()])
        rate = speed[rng.integers(len(speed), size=4000)] * rng.uniform(0.7, 1.4, (4000, 3))
        gpus = rng.choice([1.0, 2.0, 4.0, 8.0], 4000, p=(0.7, 0.1, 0.15, 0.05))
        posed = shares(rate, gpus, np.array([1024.0, 1024.0, 1024.0]))
        took = {"simplex": [0.0], "prices": [0.0]}

        def part(some: Shares, rows: Ints, fraction: Floats) -> Answer:
            took["simplex"].append(by_simplex(some))
            started = time.process_time()
            found = max_min(some, proportional(some) / some.scale)
            took["prices"].append(time.process_time() - started)
            return found

        whole = part(posed, np.arange(len(gpus)), np.ones(len(gpus)))
        x = partitioned(posed, 8, part, Deal.RANDOM, seed)
        worst = float((posed.effective(x) / (proportional(posed) / posed.scale)).min())
        ratios = {
            f"{name}: whole / {words}": each[1] / what(each[2:])
            for name, each in took.items()
            for words, what in (("all parts", sum), ("the slowest", max))
        }
        return {"objective / optimum": worst / whole.value, **ratios}

    ours = mean(measure)
    return Effect(
        "pop",
        "max-min of 4000 jobs of four models on 1024 each of V100, P100, K80, 8 random"
        " parts; CPU time of a general solver, as the paper uses one, and of ours",
        "within 1.5 % of the optimum, orders of magnitude faster",
        ours,
        shape(ours["objective / optimum"] >= 0.985)
        if min(ours["simplex: whole / the slowest"], ours["prices: whole / all parts"]) > 10
        else DIRECTION,
        "holds with a general solver (simplex; the paper solves the parts side by side), not with"
        f" our own: its time hardly grows faster than the number of jobs, and all parts take"
        f" {1 / ours['prices: whole / all parts']:.1f} times as long as the whole",
    )


@effect
def allox() -> Effect:
    """Matching against orders that take the first free GPU."""

    def measure(seed: int) -> dict[str, float]:
        trace = modelled(workload("poisson", 1000, 0.7, 48, seed, largest=1), seed)
        runs = {
            name: play(trace, TYPES, name, profiles=PUBLISHED, seed=seed)
            for name in ("allox", "allox(alpha=0.3)", "fifo", "drf", "sjf")
        }
        base = jct(runs.pop("allox"))
        return {name: jct(run) / base for name, run in runs.items()}

    ours = mean(measure)
    return Effect(
        "allox",
        "Poisson, 1000 one-GPU jobs of four models, 16 each of V100, P100, K80, load 0.7;"
        " JCT of others over its own",
        "average JCT up to -95 % at high load",
        ours,
        verdict(*((ours[name], 20) for name in ("fifo", "drf"))),
    )


@effect
def gavel() -> Effect | None:
    """Who is fast on what, against the same objectives blind to it, on Gavel's own models."""
    if "GANGER_TRACES" not in os.environ:
        return None
    table = Path(os.environ["GANGER_TRACES"]) / "gavel/simulation_throughputs.json.gz"
    models = load_throughputs(table)
    spec = load_cluster("36x1xV100+36x1xP100+36x1xK80")

    def measure(seed: int) -> dict[str, float]:
        pace = steps_per_second(models)
        trace = synthesize("gavel", 3000, seed, gpus=36, throughput=pace)
        trace = replace(trace, profiles=models)
        some = replace(synthesize("gavel", 300, seed, gpus=36, throughput=pace), profiles=models)

        def blindly(jobs: Trace, objective: str, middle: slice | None = None) -> float:
            told = []
            for agnostic in ("yes", "no"):
                run = play(jobs, spec, f"gavel(objective={objective},agnostic={agnostic})")
                took = run.jobs.finish - run.jobs.arrival
                told.append(makespan(run) if middle is None else float(took[middle].mean()))
            return told[0] / told[1]

        steady = slice(1000, 2000)
        jcts = {
            f"JCT, {hourly:g} jobs an hour": blindly(
                spread(trace, trace.jobs / hourly), "max-min", steady
            )
            for hourly in (3.0, 5.0)
        }
        return {**jcts, "makespan": blindly(spread(some, 0.0), "makespan")}

    ours = mean(measure)
    return Effect(
        "gavel",
        "Gavel's generator and throughputs, 3000 jobs, 36 each of V100, P100, K80, JCT of"
        " the middle third; makespan: 300 at once; heterogeneity-agnostic over its own",
        "JCT up to 3.5, makespan up to 1.4",
        ours,
        verdict(
            (max(each for name, each in ours.items() if "JCT" in name), 3.5),
            (ours["makespan"], 1.4),
        ),
        "its figures to the digit: docs/gavel.md. With the four packaged models, which rank the"
        " types alike, JCT was 1.16 to 1.28 at first",
    )


@effect
def sia() -> Effect:
    """Sizes and types at once against one of the two, or neither."""

    def measure(seed: int) -> dict[str, float]:
        trace = elastic(modelled(workload("poisson", 400, 0.6, 48, seed), seed))
        spec = TYPES
        names = ("sia", "gavel", "pollux(population=30,generations=30)", "tiresias")
        runs = {
            name: play(trace, spec, name, profiles=PUBLISHED, costs=STOP, seed=seed)
            for name in names
        }
        base = runs.pop("sia")
        found = {name.partition("(")[0]: jct(run) / jct(base) for name, run in runs.items()}
        return {**found, "makespan, gavel": makespan(runs["gavel"]) / makespan(base)}

    ours = mean(measure)
    return Effect(
        "sia",
        "Poisson, 400 elastic jobs of four models, 16 each of V100, P100, K80, load 0.6; JCT"
        " of others over its own",
        "JCT 27 to 80 % lower (others 1.4 to 5)",
        ours,
        verdict((ours["gavel"], 1.4), (ours["pollux"], 1.4)),
        "on its own workload and three measured types, 1.8 over Gavel: benchmarks/sia.md",
        ALL_STOP,
    )


@effect
def dorm() -> Effect:
    """Elastic containers against fixed ones."""

    def measure(seed: int) -> dict[str, float]:
        trace = elastic(modelled(workload("poisson", 600, 0.9, 32, seed), seed))
        runs = {
            name: play(trace, cluster(4, 8), name, profiles=PUBLISHED, costs=STOP, seed=seed)
            for name in ("dorm", "fifo", "drf")
        }
        used = {
            name: float(run.jobs.active_gpu_seconds.sum()) / makespan(run) / 32
            for name, run in runs.items()
        }
        base = jct(runs["dorm"])
        return {
            "use, dorm / fifo": used["dorm"] / used["fifo"],
            "JCT, fifo": jct(runs["fifo"]) / base,
            "JCT, drf": jct(runs["drf"]) / base,
        }

    ours = mean(measure)
    return Effect(
        "dorm",
        "Poisson, 600 elastic jobs of four models, 4x8 V100, load 0.9; JCT of others over its own",
        "utilization up to 2.32x, speed-up up to 2.72x",
        ours,
        verdict((ours["use, dorm / fifo"], 2.32), (ours["JCT, fifo"], 2.72)),
        costs=ALL_STOP,
    )


def with_deadlines(trace: Trace, seed: int) -> Trace:
    """The trace with half of its jobs due at 1.2 to 4 times their run time, and an hour."""
    declared, n = trace.declared, trace.jobs
    rng = np.random.default_rng(seed)
    due = declared.submitted[:n] + 60 * MINUTE + trace.duration * rng.uniform(1.2, 4.0, n)
    declared.deadline[:n] = np.where(rng.random(n) < 0.5, due.astype(np.int64), NEVER)
    return trace


@effect
def chronus() -> Effect:
    """Promises against orders that know deadlines, and those that do not."""

    def measure(seed: int) -> dict[str, float]:
        trace = with_deadlines(workload("philly", 1500, 1.3, 64, seed), seed)
        due = trace.declared.deadline[: trace.jobs]
        slo = due < NEVER
        missed, best = {}, {}
        for name in ("chronus", "edf", "srtf", "tiresias", "fifo"):
            run = play(trace, cluster(), name, seed=seed)
            missed[name] = 100 * float((run.jobs.finish[slo] > due[slo] / SECOND).mean())
            best[name] = float((run.jobs.finish - run.jobs.arrival)[~slo].mean())
        return {
            **{f"missed %, {name}": value for name, value in missed.items()},
            "best effort JCT, edf": best["edf"] / best["chronus"],
            "best effort JCT, fifo": best["fifo"] / best["chronus"],
        }

    ours = mean(measure)
    return Effect(
        "chronus",
        "philly-like, 1500 jobs, 64 GPUs, load 1.3, half with deadlines at an hour and"
        " 1.2 to 4 times their run time; best effort over chronus",
        "deadline misses up to 14.7x fewer, best effort up to 19.9x sooner",
        ours,
        verdict(
            (ours["missed %, fifo"] / max(ours["missed %, chronus"], 0.1), 14.7),
            (ours["best effort JCT, fifo"], 19.9),
        ),
    )


CORES = (1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 9000.0, 12000.0)
FED = Profiles(
    {
        name: Profile(sensitivity=Sensitivity(CORES, (0.0,), tuple((each,) for each in speed)))
        for name, speed in {
            "small": (0.3, 0.66, 1.0, 1.25, 1.75, 2.0, 2.9),
            "image": (0.37, 0.72, 1.0, 1.3, 1.75, 2.4, 2.4),
            "speech": (0.3, 0.66, 1.0, 1.2, 2.5, 2.5, 2.5),
            "language": (1.0,) * 7,
        }.items()
    }
)
"""By cores per GPU: three kinds that starve on 3, and language models, which do not notice."""


@effect
def synergy() -> Effect:
    """CPUs by sensitivity against CPUs by GPUs."""

    def measure(seed: int) -> dict[str, float]:
        trace = workload("poisson", 1500, 1.2, 64, seed, largest=4)
        declared, n = trace.declared, trace.jobs
        codes = np.array([declared.models.code(name) for name in FED.models])
        declared.model[:n] = np.random.default_rng(seed).choice(codes, n, p=(0.1, 0.1, 0.1, 0.7))
        spec = cluster(cpus=24000)
        found = {}
        plains = {"fifo": "fifo(walk=skip)", "srtf": "srtf(walk=skip)"}
        for order, plain in plains.items():
            base = jct(play(trace, spec, f"synergy(order={order})", profiles=FED, seed=seed))
            found[order] = jct(play(trace, spec, plain, profiles=FED, seed=seed)) / base
        best = jct(play(trace, spec, "synergy(division=opt)", profiles=FED, seed=seed))
        found["tune / opt"] = jct(play(trace, spec, "synergy", profiles=FED, seed=seed)) / best
        return found

    ours = mean(measure)
    return Effect(
        "synergy",
        "Poisson, 1500 jobs, 70 % language models, 8 nodes of 8 GPUs and 24 cores, load"
        " 1.2; JCT by GPUs' parts over its own, by order",
        "up to 3.4x; TUNE within 10 % of OPT",
        ours,
        verdict((ours["fifo"], 3.4), (ours["srtf"], 3.4), (1.1 / ours["tune / opt"], 1.0)),
    )
