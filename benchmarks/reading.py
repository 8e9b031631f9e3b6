"""CPU time and memory of reading traces.

    python benchmarks/reading.py
    python benchmarks/reading.py --jobs 100000 --no-write

The same generated jobs as our own CSV and in the Standard Workload Format, each read by a process
of its own; the least of `--runs` runs. Peak memory is the process's, with Python and numpy in it.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from provenance import machine, made, write

from ganger.lab.api import as_trace
from ganger.workloads.formats import save_trace
from ganger.workloads.synthetic import synthesize

PAGE = Path(__file__).with_suffix(".md")


def read(path: str) -> None:
    """Read one file and print CPU seconds and peak MiB."""
    before = time.process_time()
    as_trace(path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(time.process_time() - before, peak)


def measure(path: Path, runs: int) -> tuple[float, int]:
    """The least CPU seconds and peak MiB of several processes."""
    found = []
    for _ in range(runs):
        told = subprocess.run(
            [sys.executable, __file__, "--read", str(path)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        found.append((float(told[0]), int(told[1])))
    return min(cpu for cpu, _ in found), min(peak for _, peak in found)


def main() -> None:
    """Measure, print, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("jobs.csv", "jobs.swf"):
            path = Path(folder) / name
            save_trace(synthesize("philly", options.jobs), path)
            cpu, peak = measure(path, options.runs)
            rows.append(f"| {name} | {path.stat().st_size >> 20} MiB | {cpu:.2f} | {peak} MiB |")
            print(rows[-1], flush=True)
    table = "\n".join(rows)
    if not options.no_write:
        write(
            PAGE,
            f"""# Reading {options.jobs:,} jobs

Made by {made()}; {machine()}. The \
same jobs in two formats; the least of {options.runs} runs, a process each.

| file | size | CPU s | peak |
|:---|---:|---:|---:|
{table}
""",
        )


if __name__ == "__main__":
    main()
