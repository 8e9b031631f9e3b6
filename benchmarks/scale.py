"""CPU seconds of the training recipes on 100,000 jobs and 2,000 GPUs.

    python benchmarks/scale.py
    python benchmarks/scale.py --jobs 10000 --limit 120 --recipes 'sia;pop' --no-write
    python benchmarks/scale.py --keep rows.json        # goes on where it was stopped

One trace and one cluster for all: jobs like Philly's, of four models, that can run on 1 to 8 GPUs
(those that ask for more, on as many), half of them with deadlines; 150 nodes of 8 V100 and 100 of 8
P100 in racks of ten, and quotas by use. Each run is a process of its own and is ended by
the system after `--limit` seconds of CPU time, all of the process counted; the table has those of
the simulation. The last of its lines has the median, in which what was cut off counts as the limit.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from effects.common import PUBLISHED, elastic, modelled, with_quotas, workload
from effects.programmes import with_deadlines
from provenance import machine, made, write

from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.core.units import SECOND
from ganger.lab.simulation import Setup, run_one
from ganger.sim.physics import Costs
from ganger.workloads.trace import Trace

CLUSTER = ClusterSpec(
    tuple(
        NodeSpec(
            count=count, gpus=8, gpu_type=kind, cpus=64000, memory=512 * 1024, nodes_per_rack=10
        )
        for kind, count in (("V100", 150), ("P100", 100))
    )
)
RECIPES = (
    "tiresias;e-las;philly;yarn-cs;helios;helios-ces;ffdl;genie;ali-mlaas;"
    "topology-aware;hived;spin;delay-scheduling;"
    "themis;gandiva-fair;astraea;dorm;drf;ftf;hierarchical;"
    "gavel;pop;allox;sia;synergy;chronus;"
    "optimus;afs;elastic-scaling;marble;non-intrusive;dragon;elan;edl;ones;pollux;smd"
)


def make(jobs: int, load: float) -> tuple[Trace, ClusterSpec]:
    """The workload, and the cluster with its tenants' quotas."""
    trace = workload("philly", jobs, load, CLUSTER.gpus, largest=32)
    trace = with_deadlines(elastic(modelled(trace)), 0)
    return trace, with_quotas(CLUSTER, trace, least=64)


def measure(recipe: str, jobs: int, load: float, limit: int, told: Path) -> dict[str, Any]:
    """One row, in this process; how far it is stands in `told` meanwhile."""
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    trace, spec = make(jobs, load)
    costs = Costs(checkpoint=15 * SECOND, restore=15 * SECOND)

    def progress(share: float) -> None:
        told.write_text(f"{share:.3f}")

    setup = Setup(profiles=PUBLISHED, costs=costs)
    run = run_one(trace, spec, recipe, setup, progress=progress, record=False)
    return {
        "cpu": run.simulation["cpu_seconds"],
        "decisions": int(run.simulation["decisions"]),
        "events": int(run.simulation["events"]),
        "rss": run.simulation["peak_rss_bytes"],
        "jct": run.metrics["jct_mean_seconds"],
        "finished": run.metrics["jobs_finished"],
    }


def run(recipe: str, jobs: int, load: float, limit: int) -> dict[str, Any]:
    """One row from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "share"
        command = [sys.executable, __file__, "--one", recipe, "--told", str(told)]
        command += ["--jobs", str(jobs), "--load", str(load), "--limit", str(limit)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            row: dict[str, Any] = json.loads(done.stdout)
        elif done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            row = {"cpu": None, "share": float(told.read_text()) if told.exists() else 0.0}
        else:
            row = {"cpu": None, "failed": (done.stderr.strip().splitlines() or ["?"])[-1]}
    print(line(recipe, row, limit), file=sys.stderr, flush=True)
    return row


def line(recipe: str, row: dict[str, Any], limit: int) -> str:
    """A row of the table."""
    if "failed" in row:
        return f"| {recipe} | failed | {row['failed'][:60]} | | | |"
    if row["cpu"] is None:
        return f"| {recipe} | > {limit} | {row['share']:.0%} of the jobs were done | | | |"
    each = 1000 * row["cpu"] / max(row["decisions"], 1)
    return (
        f"| {recipe} | {row['cpu']:.1f} | {row['decisions']:,} | {each:.2f}"
        f" | {row['jct'] / 3600:.2f} h | {row['rss'] / 2**20:,.0f} MiB |"
    )


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--load", type=float, default=0.65)
    parser.add_argument("--limit", type=int, default=1200, help="CPU seconds for one run")
    parser.add_argument("--recipes", default=RECIPES, help="names or specs, apart by ;")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time")
    parser.add_argument("--keep", type=Path, help="JSON file of rows, read and written")
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--told", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.jobs, asked.load, asked.limit, asked.told)))
        return
    names = asked.recipes.split(";")
    known: dict[str, dict[str, Any]] = {}
    if asked.keep and asked.keep.exists():
        known = json.loads(asked.keep.read_text())

    def row_of(name: str) -> dict[str, Any]:
        if name not in known:
            known[name] = run(name, asked.jobs, asked.load, asked.limit)
            if asked.keep:
                asked.keep.write_text(json.dumps(known, indent=1))
        return known[name]

    with ThreadPoolExecutor(asked.workers) as pool:
        rows = list(pool.map(row_of, names))
    cpu = [asked.limit if row["cpu"] is None else row["cpu"] for row in rows]
    report = "\n".join(
        [
            "| recipe | CPU s | decisions | ms each | mean JCT | peak RSS |",
            "|:---|---:|---:|---:|---:|---:|",
            *(line(name, row, asked.limit) for name, row in zip(names, rows, strict=True)),
            f"| median of {len(rows)} | {statistics.median(cpu):.1f} | | | | |",
        ]
    )
    print(report)
    if not asked.no_write:
        write(
            Path(__file__).with_suffix(".md"),
            f"# Every training recipe on {asked.jobs:,} jobs and {CLUSTER.gpus:,} GPUs\n\n"
            f"Made by {made()}, {asked.workers} at a time; what it runs stands in the script.\n\n"
            f"{machine()}.\n\n{report}\n",
        )


if __name__ == "__main__":
    main()
