"""CPU seconds of every real trace under many recipes: `python benchmarks/traces.py TRACES`.

TRACES is the folder of real traces. Each trace gets as many nodes of 8 GPUs as make its offered
load about `--load`, at least enough for its widest job. Each run is a process of its own with a
limit; what takes longer is said to. Writes benchmarks/traces.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path

from ganger.workloads.formats import load_trace
from ganger.workloads.transform import offered_load

TRACES = {
    "Philly": "philly/philly_2017-09_2017-10.csv.gz",
    "Helios Venus": "helios-venus/venus_gpu_jobs_2020-03_2020-08.csv.gz",
    "PAI sample": "pai-2020-sample/pai_gpu_tasks_sample_a.csv.gz",
    "ITP cluster 05": "itp-2021/elasticflow_cluster05.csv.gz",
    "ITP cluster 08": "itp-2021/elasticflow_cluster08.csv.gz",
    "Chronus": "chronus/trace_job_Philly_MIX1.csv.gz",
    "Muri trace 1": "muri/trace1.csv.gz",
    "Tiresias 60": "tiresias/60_job.csv",
}
RECIPES = (
    "fifo", "backfill", "sjf", "srtf", "srsf", "las", "tiresias", "gittins", "helios", "yarn-cs",
    "drf", "max-min",
)  # fmt: skip


def cluster_for(path: Path, load: float) -> tuple[int, int]:
    """Jobs of the trace, and nodes of 8 GPUs that make its offered load about `load`."""
    trace = load_trace(path)
    busy = offered_load(trace, 1)
    widest = int(trace.declared.gpus[: trace.jobs].max())
    return trace.jobs, max(ceil(busy / load / 8), ceil(widest / 8))


def cell(path: Path, nodes: int, recipe: str, limit: int) -> str:
    """CPU seconds of one run, as text."""
    words = [sys.executable, "-m", "ganger.cli", "simulate", str(path), "--cluster",
             f"{nodes}x8xV100", "-r", recipe, "--json", "--workers", "1"]  # fmt: skip
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, check=True)
    except subprocess.TimeoutExpired:
        return f"> {limit}"
    except subprocess.CalledProcessError as error:
        return f"failed: {error.stderr.strip()[:60]}"
    return f"{json.loads(done.stdout)['runs'][0]['simulation']['cpu_seconds']:.1f}"


def rows(folder: Path, load: float, limit: int) -> Iterator[str]:
    """The table, a line at a time."""
    yield "| trace | jobs | GPUs | " + " | ".join(RECIPES) + " |"
    yield "|:--|--:|--:|" + "--:|" * len(RECIPES)
    with ThreadPoolExecutor(2) as pool:
        for name, file in TRACES.items():
            path = folder / file
            jobs, nodes = cluster_for(path, load)
            cells = pool.map(lambda recipe, p=path, n=nodes: cell(p, n, recipe, limit), RECIPES)  # type: ignore[misc]
            yield f"| {name} | {jobs:,} | {nodes * 8:,} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--limit", type=int, default=60, help="seconds for one run")
    parser.add_argument("--date", default="undated")
    options = parser.parse_args()
    lines = []
    for line in rows(options.folder, options.load, options.limit):
        print(line, flush=True)
        lines.append(line)
    target = Path(__file__).with_suffix(".md")
    target.write_text(
        "# Real traces: CPU seconds of the simulation\n\n"
        f"`python benchmarks/traces.py TRACES --load {options.load:g} --limit {options.limit}`, "
        f"{options.date}, Python {platform.python_version()}, two runs at a time on 2 cores.\n\n"
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    main()
