"""From a submission to the job's first line: the Slurm engine beside pilots on the same controller.

    python benchmarks/pilots.py

Both daemons run at once (as root, Slurm on this machine's loopback) and are asked in turn, one job
at a time on idle nodes; the job writes the time as its first act. Clocks are this machine's.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from provenance import made

from engines.site import missing, standing
from ganger.client.connection import Client
from service.machines import Machine, wait_for

NODES = {f"n{i}": ("v100", 8) for i in range(4)}


def first_line(client: Client, path: Path) -> float:
    """Seconds from the submission of a job to what it does first."""
    command = ["sh", "-c", 'date +%s.%N > "$0"', str(path)]
    began = time.time()
    number = client.call("POST", "/v1/jobs", body={"command": command, "gpus": 1})["job"]
    wait_for(client, [number], 120)
    return float(path.read_text()) - began


def until_up(client: Client, nodes: int) -> None:
    """Wait until so many nodes can be used."""
    late = time.monotonic() + 60
    while sum(one["state"] == "up" for one in client.call("GET", "/v1/nodes")) < nodes:
        assert time.monotonic() < late
        time.sleep(0.1)


def row(name: str, took: list[float]) -> str:
    """A line of the table."""
    ordered = sorted(took)
    high = ordered[math.ceil(0.95 * len(ordered)) - 1]
    middle = ordered[len(ordered) // 2]
    return f"| {name} | {middle:.3f} | {high:.3f} | {ordered[-1]:.3f} |"


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=30)
    given = parser.parse_args()
    if missing():
        sys.exit(missing())
    folder = Path(tempfile.mkdtemp(prefix="pilots-"))
    with standing(NODES):
        slurm = Machine(folder / "slurm", gpus="", engine="slurm", partition="main")
        pilots = Machine(
            folder / "pilots", gpus="", engine="slurm", partition="main", pilot="2..2"
        )  # fmt: skip
        took: dict[Machine, list[float]] = {slurm: [], pilots: []}
        try:
            until_up(pilots.up(), 2)
            until_up(slurm.up(), 4)
            time.sleep(10)  # until the one knows what the other holds
            for turn in range(given.turns):
                for machine, seconds in took.items():
                    name = folder / f"{machine.root.name}-{turn}"
                    seconds.append(first_line(machine.client, name))
        finally:
            pilots.end()
            slurm.end()
    shutil.rmtree(folder, ignore_errors=True)
    print(f"Made by {made()}\n")
    print(
        "| seconds from submission to first line | median | 95 % | longest |\n|---|---:|---:|---:|"
    )
    print(row("a Slurm job per attempt", took[slurm]))
    print(row("on a pilot", took[pilots]))


if __name__ == "__main__":
    main()
