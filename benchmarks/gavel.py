"""Gavel's published figures, with and without the ways of its public simulator, and its speed.

    GANGER_TRACES=FOLDER python benchmarks/gavel.py [--ways] [--pairs] [--speed]

FOLDER holds `gavel`. Prints the table of docs/gavel.md: average JCT and total duration in seconds
of the public simulator (360 s rounds, one GPU a server, seed 0), of `gavel(compatible=yes)`, and of
`gavel`. `--ways`: what every single switch is worth. `--pairs`: every objective with and without
space sharing. `--speed`: instead, the continuous experiment:
5,036 jobs of Gavel's generator on 36 GPUs of each type, spread over 12,200 h (122,000 rounds).
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.recipes.training.gavel import Objective
from ganger.workloads.clusters import load_cluster
from ganger.workloads.formats import load_trace
from ganger.workloads.synthetic import synthesize
from ganger.workloads.throughputs import load_throughputs, steps_per_second
from ganger.workloads.trace import Trace

FAIR, SPAN = "max_min_fairness", "minimize_makespan"
EVEN = "12x1xV100+12x1xP100+12x1xK80"
FIGURES: list[tuple[str, str, str, float, float]] = [
    (FAIR, "36x1xV100", "objective=fifo", 12722.8, 61512.2),
    (FAIR, "36x1xV100", "objective=max-min,agnostic=yes", 10934.0, 63312.2),
    (FAIR, EVEN, "objective=fifo", 20396.2, 74154.7),
    (FAIR, EVEN, "objective=max-min,agnostic=yes", 19145.2, 73788.4),
    (FAIR, EVEN, "objective=max-min", 14981.3, 63438.6),
    (FAIR, EVEN, "objective=ftf", 15839.9, 64754.7),
    (FAIR, EVEN, "objective=makespan", 27819.7, 61512.5),
    (SPAN, EVEN, "objective=fifo", 42981.9, 98361.5),
    (SPAN, EVEN, "objective=makespan", 71569.9, 72325.1),
]
"""Trace, cluster, recipe's parameters, average JCT and total duration of the public simulator."""
WAYS = (
    "in_order", "centred", "whole_steps", "barrier", "patience", "counters", "by_type",
    "left_over", "held_back", "dropped", "shuffled",
)  # fmt: skip


def play(folder: Path, trace: str, cluster: str, recipe: str) -> Run:
    """One run on a trace of the physical cluster."""
    loaded = load_trace(
        folder / f"physical_cluster/{trace}.trace.gz",
        throughputs=folder / "simulation_throughputs.json.gz",
    )
    return run_one(loaded, load_cluster(cluster), recipe, Setup(), record=False)


def told(run: Run, jct: float | None = None, duration: float | None = None) -> str:
    """Average JCT and total duration, and how far they are from the figures beside them."""
    found = run.metrics["jct_mean_seconds"], run.metrics["makespan_seconds"]
    cells = []
    for value, figure in zip(found, (jct, duration), strict=True):
        beside = f" ({value / figure - 1:+.2%})" if figure else ""
        cells.append(f"{value:.1f}{beside}")
    return " | ".join(cells)


def figures(folder: Path) -> None:
    """The table, a row for each figure."""
    print("| trace | cluster | `gavel(...)` | public: JCT | total | compatible: JCT | total"
          " | gavel: JCT | total |")  # fmt: skip
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for trace, cluster, how, jct, duration in FIGURES:
        same = play(folder, trace, cluster, f"gavel({how},compatible=yes)")
        plain = play(folder, trace, cluster, f"gavel({how})")
        row = f"| {trace} | {cluster} | {how} | {jct} | {duration} | {told(same, jct, duration)}"
        print(f"{row} | {told(plain)} |", flush=True)


def ways(folder: Path) -> None:
    """What one switch alone makes of the heterogeneous rows of the first trace."""
    names = ["objective=fifo", "objective=max-min", "objective=max-min,agnostic=yes"]
    print("| switch | " + " | ".join(f"{name}: JCT | total" for name in names) + " |")
    print("|---|" + "---:|" * 2 * len(names))
    for way in ("", *WAYS):
        switch = f",{way}={'1920s' if way == 'patience' else 'yes'}" if way else ""
        cells = [told(play(folder, FAIR, EVEN, f"gavel({name}{switch})")) for name in names]
        print(f"| {way or 'none'} | {' | '.join(cells)} |", flush=True)


def pairs(folder: Path) -> None:
    """What space sharing is worth, by objective."""
    print("| trace | objective | alone: JCT | total | in pairs: JCT | total |")
    print("|---|---|---:|---:|---:|---:|")
    for trace in (FAIR, SPAN):
        for objective in Objective:
            how = f"gavel(objective={objective.value}"
            alone = play(folder, trace, EVEN, f"{how})")
            both = play(folder, trace, EVEN, f"{how},space_sharing=yes)")
            figures = alone.metrics["jct_mean_seconds"], alone.metrics["makespan_seconds"]
            cells = f"{told(alone)} | {told(both, *figures)}"
            print(f"| {trace} | {objective.value} | {cells} |", flush=True)


def spread(trace: Trace, hours: float) -> Trace:
    """The trace with its arrivals over so many hours; 0: all at once."""
    declared = trace.declared.take(slice(None))
    at = declared.submitted[: trace.jobs]
    declared.submitted[: trace.jobs] = np.rint(at * (hours * 3600e6 / float(at[-1]))).astype(
        np.int64
    )
    return replace(trace, declared=declared)


def speed(folder: Path, jobs: int = 5036, hours: float = 12_200.0) -> None:
    """CPU seconds of the continuous experiment."""
    profiles = load_throughputs(folder / "simulation_throughputs.json.gz")
    trace = synthesize("gavel", jobs, 0, gpus=36, throughput=steps_per_second(profiles))
    trace = replace(spread(trace, hours), profiles=profiles)
    cluster = load_cluster("36x1xV100+36x1xP100+36x1xK80")
    run = run_one(trace, cluster, "gavel(objective=max-min)", Setup(), record=False)
    cpu = run.simulation["cpu_seconds"]
    print(f"{jobs} jobs over {hours:.0f} h: {cpu:.2f} CPU-s (public simulator: 116 to 171);"
          f" average JCT {told(run).split(' | ')[0]} s")  # fmt: skip


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ways", action="store_true")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--speed", action="store_true")
    args = parser.parse_args()
    folder = Path(os.environ["GANGER_TRACES"]) / "gavel"
    if args.speed:
        speed(folder)
    elif args.pairs:
        pairs(folder)
    elif args.ways:
        ways(folder)
    else:
        figures(folder)


if __name__ == "__main__":
    main()
