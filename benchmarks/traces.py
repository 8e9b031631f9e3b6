"""CPU seconds of every real trace under every baseline: `python benchmarks/traces.py TRACES`.

TRACES is the folder of real traces. Each trace gets as many nodes of 8 GPUs as make its offered
load about `--load`, at least enough for its widest job (openb: its own nodes). Each run is a
process of its own with a limit on its CPU time; what takes longer is said to. Writes
benchmarks/traces.md.

    python benchmarks/traces.py TRACES --only 'Philly;Chronus' --recipes 'fifo;srtf' --limit 60
    python benchmarks/traces.py TRACES --keep results.json      # goes on where it was stopped
    python benchmarks/traces.py TRACES --keep results.json --table      # what is known so far
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from math import ceil
from pathlib import Path

from provenance import made, write

from ganger.workloads.clusters import load_cluster
from ganger.workloads.formats import load_trace
from ganger.workloads.transform import offered_load

TRACES = {
    "Philly": "philly/philly_2017-09_2017-10.csv.gz",
    "Helios Venus": "helios-venus/venus_gpu_jobs_2020-03_2020-08.csv.gz",
    "PAI sample": "pai-2020-sample/pai_gpu_tasks_sample_a.csv.gz",
    "openb": "alibaba-openb-2023/openb_pod_list_default.csv.gz",
    "ITP 05": "itp-2021/elasticflow_cluster05.csv.gz",
    "ITP 08": "itp-2021/elasticflow_cluster08.csv.gz",
    "Chronus": "chronus/trace_job_Philly_MIX1.csv.gz",
    "Muri 1": "muri/trace1.csv.gz",
    "Shockwave": "shockwave/220_0.2_5_100_25_4_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace.gz",  # noqa: E501
    "Tiresias": "tiresias/60_job.csv",
}  # fmt: skip
CLUSTERS = {"openb": "alibaba-openb-2023/openb_node_list_gpu_node.csv.gz"}
"""Those of which jobs ask for CPUs and memory, too: the cluster that they ran on."""
RECIPES = (
    "fifo", "fifo(walk=skip)", "sjf", "srtf", "srsf", "priority", "las", "mlfq", "gittins", "drf",
    "max-min", "ftf", "hierarchical", "yarn-cs", "delay-scheduling", "backfill",
    "backfill(walk=conservative)", "placement", "heterogeneity-agnostic", "space-sharing", "spot",
    "cpu-disaggregation", "tiresias", "gavel", "optimus", "afs", "helios", "pollux",
)  # fmt: skip


@cache
def cluster_for(folder: Path, name: str, load: float) -> tuple[int, int, str]:
    """Jobs of the trace, GPUs, and the cluster: nodes of 8 GPUs that make its offered load about
    `load`, or its own."""
    trace = load_trace(folder / TRACES[name])
    if name in CLUSTERS:
        own = folder / CLUSTERS[name]
        return trace.jobs, load_cluster(own).gpus, str(own)
    busy = offered_load(trace, 1)
    widest = int(trace.declared.gpus[: trace.jobs].max())
    nodes = max(ceil(busy / load / 8), ceil(widest / 8))
    return trace.jobs, nodes * 8, f"{nodes}x8xV100"


def cell(path: Path, cluster: str, recipe: str, limit: int) -> str:
    """CPU seconds of one run, as text."""
    words = [
        sys.executable,
        "-m",
        "ganger.cli",
        "simulate",
        str(path),
        "--cluster",
        cluster,
        "-r",
        recipe,
        "--json",
        "--workers",
        "1",
    ]
    most = partial(resource.setrlimit, resource.RLIMIT_CPU, (limit, limit))
    done = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=most)
    if done.returncode < 0:
        return f"> {limit}"
    if done.returncode:
        return f"failed: {done.stderr.strip()[:60]}"
    return f"{json.loads(done.stdout)['runs'][0]['simulation']['cpu_seconds']:.1f}"


def main() -> None:
    """Run what is not known yet, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--limit", type=int, default=1200, help="CPU seconds for one run")
    parser.add_argument("--only", default=";".join(TRACES), help="names of traces, apart by ;")
    parser.add_argument("--recipes", default=";".join(RECIPES), help="apart by ;")
    parser.add_argument("--at-once", type=int, default=2, help="runs at a time")
    parser.add_argument("--keep", type=Path, help="JSON file of results, read and written")
    parser.add_argument("--table", action="store_true", help="only write what is known")
    options = parser.parse_args()
    traces, recipes = options.only.split(";"), options.recipes.split(";")
    known: dict[str, str] = {}
    if options.keep and options.keep.exists():
        known = json.loads(options.keep.read_text())

    def run(name: str, recipe: str) -> None:
        if f"{name} {recipe}" in known:
            return
        path = options.folder / TRACES[name]
        cluster = cluster_for(options.folder, name, options.load)[2]
        said = cell(path, cluster, recipe, options.limit)
        known[f"{name} {recipe}"] = said
        print(f"{name}, {recipe}: {said}", file=sys.stderr, flush=True)
        if options.keep:
            options.keep.write_text(json.dumps(known, indent=1))

    pairs = [] if options.table else [(n, r) for r in recipes for n in traces]
    with ThreadPoolExecutor(options.at_once) as pool:
        list(pool.map(lambda pair: run(*pair), pairs))
    sizes = [cluster_for(options.folder, name, options.load) for name in traces]
    lines = [
        "| recipe | " + " | ".join(traces) + " |",
        "|:--|" + "--:|" * len(traces),
        "| *jobs* | " + " | ".join(f"{jobs:,}" for jobs, _, _ in sizes) + " |",
        "| *GPUs* | " + " | ".join(f"{gpus:,}" for _, gpus, _ in sizes) + " |",
        *(
            f"| {recipe} | "
            + " | ".join(known.get(f"{name} {recipe}", "-") for name in traces)
            + " |"
            for recipe in recipes
        ),
    ]
    write(
        Path(__file__).with_suffix(".md"),
        "# Real traces: CPU seconds of the simulation\n\n"
        f"Made by {made()}, Python {platform.python_version()}, {options.at_once} at a time, "
        "beside other work. `> x`: stopped after so many CPU seconds; `-`: not run.\n\n"
        + "\n".join(lines)
        + "\n",
    )


if __name__ == "__main__":
    main()
