"""From a submission to the job's first line: the Slurm engine beside pilots on the same controller.

    python benchmarks/pilots.py

Both daemons run at once (as root, Slurm on this machine's loopback) and are asked in turn, one job
at a time on idle nodes; the job writes the time as its first act. Clocks are this machine's.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from provenance import machine, made, write

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
    """Measure, print, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    if missing():
        sys.exit(missing())
    folder = Path(tempfile.mkdtemp(prefix="pilots-"))
    with standing(NODES):
        settings = {"gpus": "", "engine": "slurm", "partition": "main"}
        slurm = Machine(folder / "slurm", fresh=True, **settings)
        pilots = Machine(folder / "pilots", fresh=True, pilot="2..2", **settings)
        took: dict[Machine, list[float]] = {slurm: [], pilots: []}
        try:
            until_up(pilots.up(), 2)
            until_up(slurm.up(), 4)
            time.sleep(10)  # until the one knows what the other holds
            for turn in range(given.turns):
                for daemon, seconds in took.items():
                    name = folder / f"{daemon.root.name}-{turn}"
                    seconds.append(first_line(daemon.client, name))
        finally:
            pilots.end()
            slurm.end()
    shutil.rmtree(folder, ignore_errors=True)
    text = f"""# Starts on pilots beside Slurm jobs

Made by {made()}; {machine()}; load average {os.getloadavg()[2]:.1f} in the end. Slurm, one
controller and four node daemons of 8 GPUs on this machine. Two daemons on the same controller,
asked in turn, {given.turns} turns: seconds from `POST /v1/jobs` to the first thing that the job
does.

| | median | 95 % | longest | wanted |
|:---|---:|---:|---:|---:|
{row("a Slurm job per attempt", took[slurm])} |
{row("on a pilot that is there", took[pilots])} 0.2 |
"""
    print(text)
    if not given.no_write:
        write(Path(__file__).with_suffix(".md"), text)


if __name__ == "__main__":
    main()
