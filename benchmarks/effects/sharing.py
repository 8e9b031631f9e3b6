"""Jobs that share GPUs."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from effects.common import ALL_STOP, STOP, Effect, cluster, effect, jct, makespan, play, verdict
from ganger.lab.result import Run
from ganger.workloads.formats import load_trace

SETUP = (
    "Muri's trace3 (992 jobs of eight measured models), 8x8 V100; average JCT of {other} over its"
    " own, and makespan where all jobs come at once (trace3_pr)"
)
PUBLISHED = "average JCT up to 3.6 times, makespan up to 1.6 times better (testbed)"


@cache
def run(trace: str, recipe: str) -> Run:
    """One of Muri's traces under one recipe."""
    jobs = load_trace(Path(os.environ["GANGER_TRACES"]) / f"muri/{trace}.csv.gz")
    return play(jobs, cluster(), recipe, costs=STOP)


def against(recipe: str, other: str) -> Effect | None:
    """Muri against the queue that knows as much and goes in the same order."""
    if "GANGER_TRACES" not in os.environ:
        return None
    jcts = [jct(run("trace3", each)) for each in (other, recipe)]
    spans = [makespan(run("trace3_pr", each)) for each in (other, recipe)]
    ours = {"JCT": jcts[0] / jcts[1], "makespan": spans[0] / spans[1]}
    return Effect(
        recipe,
        SETUP.format(other=other),
        PUBLISHED,
        ours,
        verdict((ours["JCT"], 3.6), (ours["makespan"], 1.6)),
        "all traces: benchmarks/muri.md",
        ALL_STOP,
    )


@effect
def muri_s() -> Effect | None:
    """Muri-S against the shortest remaining service first."""
    return against("muri-s", "srsf")


@effect
def muri_l() -> Effect | None:
    """Muri-L against Tiresias."""
    return against("muri-l", "tiresias")
