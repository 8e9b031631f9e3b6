"""Prices of GPUs by slot of time, and admission by payoff."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from effects.common import Effect, cluster, effect, elastic, mean, modelled, play, shape, workload
from effects.programmes import TYPES
from ganger.core.units import HOUR, MINUTE, SECOND
from ganger.lab.result import Run
from ganger.workloads.measured.published import profiles
from ganger.workloads.trace import Trace

HALF_SECONDS = 8 * HOUR / SECOND
"""After so many seconds a job's utility is half of its weight: the default of oasis."""

FINE = "aonline(slot=2m,horizon=300)"


def weighted(trace: Trace, seed: int) -> Trace:
    """The trace with weights of 1 to 10 by chance."""
    n = trace.jobs
    trace.declared.weight[:n] = np.random.default_rng(seed).integers(1, 11, n)
    return trace


def due(trace: Trace, seed: int) -> Trace:
    """The trace with all jobs due at ten minutes and 1.2 to 4 times their run time."""
    declared, n = trace.declared, trace.jobs
    spread = np.random.default_rng(seed).uniform(1.2, 4.0, n)
    allowed = 10 * MINUTE + trace.duration * spread
    declared.deadline[:n] = declared.submitted[:n] + allowed.astype(np.int64)
    return trace


def utility(trace: Trace, run: Run) -> float:
    """The sum over jobs of their weight, fading with completion time as oasis takes it."""
    done: NDArray[Any] = run.jobs.finish - run.jobs.arrival
    faded = 1.0 / (1.0 + np.exp(np.clip(4.0 * (done / HALF_SECONDS - 1.0), -50, 50)))
    return float((trace.declared.weight[: trace.jobs] * faded).sum())


def in_time(trace: Trace, run: Run) -> float:
    """The sum of the weights of jobs that were done by their deadline."""
    declared, n = trace.declared, trace.jobs
    met = run.jobs.finish <= declared.deadline[:n] / SECOND
    return float(declared.weight[:n][met].sum())


@effect
def oasis() -> Effect:
    """Total utility of completion times against queues and shares."""

    def measure(seed: int) -> dict[str, float]:
        trace = weighted(elastic(modelled(workload(jobs=300, load=2.0, seed=seed), seed)), seed)
        sums = {
            name: utility(trace, play(trace, cluster(), name, profiles=profiles(), seed=seed))
            for name in ("oasis", "fifo", "drf", "srtf")
        }
        own = sums.pop("oasis")
        return {name: own / value for name, value in sums.items()}

    ours = mean(measure)
    return Effect(
        "oasis",
        "philly-like, 300 jobs of four models, elastic from 1 to 8 GPUs, 64 V100, load 2, weights"
        " of 1 to 10, half of them after 8 h in a sigmoid; sum of utilities over that of others",
        "higher total utility than FIFO and DRF",
        ours,
        shape(min(ours["fifo"], ours["drf"]) > 1.0),
        "beside its baselines stands srtf, which knows durations too",
    )


@effect
def aonline() -> Effect:
    """Total weight of jobs done in time against queues, on three GPU types."""

    def measure(seed: int) -> dict[str, float]:
        trace = workload(jobs=300, load=2.0, gpus=48, seed=seed)
        trace = due(weighted(elastic(modelled(trace, seed)), seed), seed)
        sums = {
            name: in_time(trace, play(trace, TYPES, name, profiles=profiles(), seed=seed))
            for name in (FINE, "fifo", "srtf", "edf", "aonline")
        }
        own = sums.pop(FINE)
        return {
            **{name: own / sums[name] for name in ("fifo", "srtf", "edf")},
            "srtf, slots of ten minutes": sums["aonline"] / sums["srtf"],
        }

    ours = mean(measure)
    return Effect(
        "aonline",
        "philly-like, 300 jobs of four models, elastic from 1 to 8 GPUs, 16 each of V100, P100,"
        " K80, load 2, weights of 1 to 10, all due at ten minutes and 1.2 to 4 times their run"
        " time; slots of two minutes; weight of jobs done in time over that of others",
        "larger total weight than FIFO and SRTF-like baselines",
        ours,
        shape(min(ours["fifo"], ours["srtf"]) > 1.0),
        "in slots of ten minutes, its default, it has less: many jobs run for less than a slot",
    )
