"""CPU time of placing jobs that state CPUs, host memory or parts of a GPU.

    python benchmarks/placement.py
    python benchmarks/placement.py --jobs 20000 --no-write

Two workloads. **openb** (needs GANGER_TRACES): Alibaba's pods of 2023, the default list, one a
second in list order, none ending, on all of its GPU nodes and on the first 600, which are full
before the list is through; `fifo(walk=skip)`. **philly**: generated jobs, each also stating 4 CPUs
and 16 GiB a GPU, on nodes that have twice that, against the same rows without them. Times are CPU
seconds of the simulation; the ratio of the second workload is of runs in turn.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from provenance import machine, made, write

from ganger.core.spec import ClusterSpec, Needs, NodeSpec, Role, Shape
from ganger.core.units import SECOND
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.workloads.clusters import load_cluster
from ganger.workloads.readers.openb import HEADER, read
from ganger.workloads.synthetic import synthesize
from ganger.workloads.trace import Trace
from ganger.workloads.transform import at_most, scale_load

PAGE = Path(__file__).with_suffix(".md")
RECIPES = "fifo", "sjf", "srtf", "tiresias"


def pods(folder: Path) -> Trace:
    """openb's default list without its times: all pods with GPUs, one a second, none ending."""
    with gzip.open(folder / "openb_pod_list_default.csv.gz", "rt") as file:
        rows = [[row[name] for name in HEADER] for row in csv.DictReader(file)]
    with tempfile.TemporaryDirectory() as made:
        bag = Path(made) / "bag.csv"
        bag.write_text("".join(",".join(row) + "\n" for row in [list(HEADER), *rows]))
        trace = read(bag)
    n = trace.jobs
    trace.declared.submitted[:n] = np.arange(n) * SECOND
    return trace


def stating(trace: Trace) -> Trace:
    """The same jobs, each with 4 CPUs and 16 GiB a GPU."""
    declared, n = trace.declared, trace.jobs
    needs = Needs(cpus=4000, memory=16 * 1024)
    for gpus in np.unique(declared.gpus[:n]).tolist():
        shape = Shape((Role(size=gpus, needs=needs),))
        declared.shape[:n][declared.gpus[:n] == gpus] = declared.shapes.code(shape)
    return trace


def seconds(run: Run) -> float:
    """CPU seconds of a simulation."""
    return float(run.simulation["cpu_seconds"])


def philly(jobs: int, load: float) -> tuple[Callable[[], Trace], ClusterSpec]:
    """How the plain rows are made, and the cluster."""
    spec = ClusterSpec(
        (NodeSpec(count=250, gpus=8, gpu_type="V100", cpus=64_000, memory=256 * 1024),)
    )
    return lambda: scale_load(at_most(synthesize("philly", jobs), 32), load, spec.gpus), spec


def openb_rows(folder: Path) -> list[str]:
    """A row for all nodes, and one for the first 600."""
    spec, found = load_cluster(str(folder / "openb_node_list_gpu_node.csv.gz")), []
    for nodes in (sum(group.count for group in spec.nodes), 600):
        part = msgspec.structs.replace(spec, nodes=first_nodes(spec, nodes))
        run = run_one(pods(folder), part, "fifo(walk=skip)", Setup(), record=False)
        ran = int((run.jobs.first_start >= 0).sum())
        each = seconds(run) / run.jobs.arrival.size * 1e3
        found.append(f"| {nodes:,} | {run.jobs.arrival.size:,} | {ran:,} | {each:.3f} |")
        print(found[-1], flush=True)
    return found


def first_nodes(spec: ClusterSpec, nodes: int) -> tuple[NodeSpec, ...]:
    """The groups of the first so many nodes."""
    chosen: list[NodeSpec] = []
    for group in spec.nodes:
        take = min(group.count, nodes - sum(each.count for each in chosen))
        if take:
            chosen.append(msgspec.structs.replace(group, count=take))
    return tuple(chosen)


def philly_rows(jobs: int, load: float, runs: int) -> list[str]:
    """A row for each recipe: seconds without and with, and the median of the ratios."""
    make, spec = philly(jobs, load)
    found = []
    for recipe in RECIPES:
        pairs = []
        for _ in range(runs):
            plain = run_one(make(), spec, recipe, Setup(), record=False)
            stated = run_one(stating(make()), spec, recipe, Setup(), record=False)
            assert (plain.jobs.finish == stated.jobs.finish).all(), "GPUs alone are scarce"
            pairs.append((seconds(plain), seconds(stated)))
        ratio = statistics.median(stated / plain for plain, stated in pairs)
        least = min(plain for plain, _ in pairs), min(stated for _, stated in pairs)
        found.append(f"| {recipe} | {least[0]:.2f} | {least[1]:.2f} | {ratio:.2f} |")
        print(found[-1], flush=True)
    return found


def main() -> None:
    """Measure, print, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    traces = os.environ.get("GANGER_TRACES")
    openb = openb_rows(Path(traces) / "alibaba-openb-2023") if traces else []
    rows = philly_rows(options.jobs, options.load, options.runs)
    page = f"""# Placing jobs that state CPUs, memory or parts of a GPU

Made by {made()}; {machine()}. {(__doc__ or "").split("Two workloads. ")[1]}
## openb, milliseconds a job

| nodes | pods | started | ms a pod |
|---:|---:|---:|---:|
{chr(10).join(openb) or "| not run: GANGER_TRACES is not set | | | |"}

## philly, CPU seconds (the fastest run; the ratio is the median)

All jobs finish when they finish without CPUs and memory, to the microsecond.

| recipe | GPUs only | with CPUs and memory | ratio |
|---|---:|---:|---:|
{chr(10).join(rows)}
"""
    if not options.no_write:
        write(PAGE, page)


if __name__ == "__main__":
    main()
