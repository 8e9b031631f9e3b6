"""Is this commit slower than another one? Both in turn, in one run.

    GANGER_TRACES=FOLDER python benchmarks/versus.py 501489e
    python benchmarks/versus.py 501489e --runs 3 --rows 'fifo;live' --no-write

A row is what one of the benchmarks beside this file plays, shortened to some seconds: `speed.py`,
ten recipes of `scale.py`, `gavel.py` (needs its traces) and the daemon of `live.py`, whose figure
is the CPU time that 3,000 jobs cost it, submitted one by one and in an array. The other commit is
checked out into a temporary folder and runs with the packages of this environment. Each figure is
that of a process of its own, this commit's and the other's in turn. The ratio is the median of the
pairs; its interval is Student's, of the logarithms. Slower is what lies above 1.05 with its whole
interval. Two figures a job are exact, however busy the machine is: calls of Python functions, and
bytecodes that Python executes, start-up left out of both. Where the numbers of decisions differ,
the recipe decides otherwise today, and the row compares nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from provenance import machine, made, write
from scipy.stats import t

ROOT: Final = Path(__file__).resolve().parents[1]
JOBS: Final = 60_000
"""Of rows of speed.py."""
FEW: Final = 4_000
"""Of rows of scale.py."""
SPEED: Final = ("fifo", "sjf", "srtf", "tiresias")
SCALE: Final = (
    "philly", "yarn-cs", "helios", "themis", "drf", "synergy", "optimus", "afs", "elan", "smd",
)  # fmt: skip
PROBE: Final = """
import json, sys, tempfile
from pathlib import Path
kind, name, jobs, counts = sys.argv[1:5]
jobs, calls, bytecodes, decisions = int(jobs), 0, 0, 0
def count(frame, event, argument):
    global bytecodes
    bytecodes += event == "opcode"
    return count
def called(frame, event, argument):
    global calls
    calls += 1
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    return count
if kind == "live":
    import live
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    daemon = live.Daemon(Path(folder.name))
    try:
        daemon.client.call("POST", "/v1/jobs", body={"command": ["sleep", "3600"], "gpus": 8})
        before = daemon.cpu_seconds()
        for _ in range(500):
            daemon.client.call("POST", "/v1/jobs", body={"command": ["true"], "gpus": 1})
        body = {"command": ["true"], "gpus": 2, "array": "0-2499", "estimate": 600}
        daemon.client.call("POST", "/v1/jobs", body=body)
        for _ in range(20):
            daemon.client.call("GET", "/v1/jobs")
            daemon.client.call("POST", "/v1/jobs", body={"command": ["true"], "gpus": 1})
        cpu = daemon.cpu_seconds() - before
        live.quiet(daemon)
    finally:
        daemon.end()
        folder.cleanup()
else:
    from ganger.lab.simulation import Setup, run_one
    if kind == "speed":
        import speed
        trace, spec, setup = speed.make_trace(jobs, 0.7), speed.CLUSTER, Setup()
    elif kind == "scale":
        import scale
        from ganger.core.units import SECOND
        from ganger.sim.physics import Costs
        trace, spec = scale.make(jobs, 0.65)
        setup = Setup(profiles=scale.PUBLISHED, costs=Costs(15 * SECOND, 15 * SECOND))
    else:
        import gavel
        trace, spec = gavel.generated(jobs, 1, jobs / 4.8), gavel.load_cluster(gavel.LARGE)
        setup = Setup()
        run_one(gavel.generated(20, 1, 4.0), spec, name, setup, record=False)
    if counts == "yes":
        run_one(trace, spec, name, setup, record=False)  # imports what it needs
        sys.settrace(called)
    run = run_one(trace, spec, name, setup, record=False)
    sys.settrace(None)
    cpu, decisions = run.simulation["cpu_seconds"], int(run.simulation["decisions"])
counted = {"calls": calls / jobs, "bytecodes": bytecodes / jobs}
print(json.dumps({"cpu": cpu, "decisions": decisions, **counted}))
"""


def rows() -> list[tuple[str, str, int]]:
    """Kind, recipe and number of jobs of each row."""
    speed = [("speed", name, JOBS) for name in SPEED]
    scale = [("scale", name, FEW) for name in SCALE]
    both = [("gavel", name, 400) for name in ("gavel", "gavel(compatible=yes)")]
    return [*speed, *scale, *(both if "GANGER_TRACES" in os.environ else []), ("live", "live", 1)]


def probe(root: Path, row: tuple[str, str, int], *, counts: bool = False) -> dict[str, Any]:
    """One figure of the commit that lies in `root`, from a process of its own."""
    kind, name, jobs = row
    path = os.pathsep.join([str(root / "src"), str(root / "benchmarks")])
    done = subprocess.run(
        [sys.executable, "-c", PROBE, kind, name, str(jobs), "yes" if counts else "no"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"{kind} {name} in {root}: {last}")
    return dict(json.loads(done.stdout))


def interval(ratios: list[float]) -> tuple[float, float]:
    """The 95 % interval of the ratio, from the logarithms of its pairs."""
    logs = [math.log(ratio) for ratio in ratios]
    if len(logs) < 2:
        return 0.0, math.inf
    half = t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(statistics.mean(logs) - half), math.exp(statistics.mean(logs) + half)


def line(row: tuple[str, str, int], other: Path, runs: int) -> str:
    """A row of the table."""
    kind, name, jobs = row
    grown, alike = ["", ""], True
    if kind != "live":
        short = kind, name, jobs // 10
        past, present = (probe(root, short, counts=True) for root in (other, ROOT))
        grown = [f"{present[what] / past[what] - 1:+.1%}" for what in ("calls", "bytecodes")]
        alike = past["decisions"] == present["decisions"]
    pairs = []
    for number in range(runs):
        order = (other, ROOT) if number % 2 else (ROOT, other)
        took = {root: probe(root, row)["cpu"] for root in order}
        pairs.append((took[other], took[ROOT]))
    ratios = [now / before for before, now in pairs]
    low, high = interval(ratios)
    before, now = (statistics.median(pair[at] for pair in pairs) for at in (0, 1))
    verdict = "slower" if low > 1.05 else "faster" if high < 1 else "not slower"
    if not alike:
        verdict = "decides otherwise"
    shown = (
        f"| {kind} | {name} | {before:.2f} | {now:.2f} | {statistics.median(ratios):.3f}"
        f" | {low:.3f} to {high:.3f} | {grown[0]} | {grown[1]} | {verdict} |"
    )
    print(shown, file=sys.stderr, flush=True)
    return shown


def checked_out(commit: str, folder: Path) -> Path:
    """The commit's files, in `folder`."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "checkout", "-q", commit], check=True)
    return folder


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commit")
    parser.add_argument("--runs", type=int, default=7, help="pairs of each row")
    parser.add_argument("--rows", default="", help="recipes, or `live`, apart by ;")
    parser.add_argument("--no-write", action="store_true", help="print only")
    asked = parser.parse_args()
    chosen = asked.rows.split(";") if asked.rows else []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        other = checked_out(asked.commit, Path(folder) / "other")
        lines = [line(row, other, asked.runs) for row in rows() if not chosen or row[1] in chosen]
    head = [
        "| benchmark | recipe | CPU s before | now | ratio | 95 % interval | calls a job"
        " | bytecodes a job | |",
        "|:---|:---|---:|---:|---:|---:|---:|---:|:---|",
    ]
    report = "\n".join([*head, *lines])
    print(report)
    if not asked.no_write:
        minutes = (time.monotonic() - began) / 60
        write(
            Path(__file__).with_suffix(".md"),
            f"# This commit beside {asked.commit}\n\nMade by {made()}, in {minutes:.0f} minutes; "
            f"what it runs stands in the script.\n\n{machine()}.\n\n{report}\n",
        )


if __name__ == "__main__":
    main()
