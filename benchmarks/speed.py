"""How fast simulated schedulers are: a large trace on 6,500 GPUs, each recipe in a fresh process.

    python benchmarks/speed.py
    python benchmarks/speed.py --jobs 100000 --load 3 --recipes 'fifo;srtf' --no-write

The trace is synthetic and seeded: gangs of 1 to 32 GPUs, log-normal run times (median 12 min, a
heavy tail cut at 60 days), uniform arrivals. `--load` is GPU time asked for over GPU time there is
while jobs arrive; because of the tail the queue becomes long only well above 1. `bare` is the
limit that the others are compared with: first come, first served as a hand-written loop over a
heap, without placement, events, state or a policy.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import subprocess
import sys
import time
import timeit
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
from provenance import machine, made, write

from ganger.core.spec import ClusterSpec, NodeSpec, Role, Shape
from ganger.core.state.jobs import Declared
from ganger.core.units import DAY, NEVER, SECOND
from ganger.lab.simulation import run_one
from ganger.workloads.trace import Trace

GPUS = 6500
CLUSTER = ClusterSpec(
    (NodeSpec(count=812, gpus=8, gpu_type="V100"), NodeSpec(gpus=4, gpu_type="V100"))
)
SIZES = np.array([1, 2, 4, 8, 16, 32])
SHARES = [0.70, 0.10, 0.08, 0.09, 0.02, 0.01]
RECIPES = "fifo;sjf;srtf;tiresias;las"
ARGUMENTS = {
    ("fifo", 1.05): """\
Flat: no function stands out, and each does something that the loop of `bare` leaves out: an event a
fact (submitted, started, finished), each in its batch through `Kernel.step`, which reduces it into
the tables; a decision over a view of them; placement by a ledger of 813 nodes with undo; the plan's
actions applied to books and engine, each checked. Fewer steps would need another protocol (a start
that is no event), or policy and books in a compiled language: the core compiled by mypyc as it is
gained a quarter, and a user's machine would need a compiler.""",
    ("srtf", 2.2): """\
A load at which so few jobs preempt about as often as a million do at 1.05. A job starts, and its
attempts begin and end, two and a half times, so that at fifo's price for a start (`us/start`) a
million jobs would take two and a half times what they take under fifo. Beyond that about one head a
decision asks in vain whether those behind it hold enough: that is the queue, its index and what is
blocked. Decisions that change nothing, which follow half of the starts, cost next to nothing: with
a fourth of all decisions left out the time was the same.""",
}


def make_trace(jobs: int, load: float, seed: int = 0) -> Trace:
    """The workload, built as columns."""
    rng = np.random.default_rng(seed)
    declared = Declared(jobs)
    codes = np.array([declared.shapes.code(Shape((Role(size=int(size)),))) for size in SIZES])
    pick = rng.choice(len(SIZES), jobs, p=SHARES)
    seconds = np.minimum(np.exp(rng.normal(6.6, 2.0, jobs)), 60 * DAY / SECOND)
    span = (seconds * SIZES[pick]).sum() / GPUS / load
    declared.extend(
        jobs,
        submitted=np.sort(rng.uniform(0, span, jobs)).astype(np.int64) * SECOND,
        shape=codes[pick],
        gpus=SIZES[pick],
        weight=1,
        deadline=NEVER,
        limit=NEVER,
        estimate=NEVER,
        parent=-1,
        checkpoint=-1,
        restore=-1,
    )
    return Trace(declared, (seconds * SECOND).astype(np.int64) + 1, name="synthetic")


def bare_loop(trace: Trace) -> list[int]:
    """First come, first served with nothing around it: the start of every job."""
    n = trace.jobs
    submitted, gpus = trace.declared.submitted[:n].tolist(), trace.declared.gpus[:n].tolist()
    duration, starts = trace.duration.tolist(), [0] * n
    free, heap, head, arrived = GPUS, list[tuple[int, int]](), 0, 0
    while arrived < n or heap:
        if heap and (arrived >= n or heap[0][0] <= submitted[arrived]):
            now, back = heappop(heap)
            free += back
        else:
            now = submitted[arrived]
            arrived += 1
        while head < arrived and gpus[head] <= free:
            free -= gpus[head]
            starts[head] = now
            heappush(heap, (now + duration[head], gpus[head]))
            head += 1
    return starts


def measure(recipe: str, jobs: int, load: float) -> dict[str, Any]:
    """One row of the table, in this process."""
    trace = make_trace(jobs, load)
    row: dict[str, Any] = {"recipe": recipe, "jobs": jobs, "load": load}
    if recipe == "bare":
        began = time.process_time()
        bare_loop(trace)
        row |= {"cpu": time.process_time() - began, "events": 2 * jobs, "decisions": 0}
        row |= {"wait": None, "preemptions": 0}
    else:
        run = run_one(trace, CLUSTER, recipe, record=False)
        row |= {"cpu": run.simulation["cpu_seconds"], "events": int(run.simulation["events"])}
        row |= {"decisions": int(run.simulation["decisions"])}
        row |= {"wait": float(np.mean(run.jobs.first_start - run.jobs.arrival))}
        row |= {"preemptions": int(run.jobs.preemptions.sum())}
    row["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown; the first one is the bare loop."""
    lines = [
        "| load | recipe | CPU s | us/job | us/start | x bare | events/s | decisions | preemptions"
        " | mean queueing delay | peak RSS |",
        "|---:|:---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    bare = {row["load"]: row["cpu"] / row["jobs"] for row in rows if row["recipe"] == "bare"}
    for row in rows:
        each, starts = row["cpu"] / row["jobs"], row["jobs"] + row["preemptions"]
        wait = "" if row["wait"] is None else f"{row['wait']:,.0f} s"
        lines.append(
            f"| {row['load']:g} | {row['recipe']} | {row['cpu']:.1f} | {each * 1e6:.2f}"
            f" | {row['cpu'] / starts * 1e6:.2f} | {each / bare[row['load']]:.1f}"
            f" | {row['events'] / row['cpu']:,.0f}"
            f" | {row['decisions']:,} | {row['preemptions']:,} | {wait}"
            f" | {row['rss'] / 2**20:,.0f} MiB |"
        )
    return "\n".join(lines)


def breakdown(recipe: str, load: float, jobs: int = 50_000) -> str:
    """Where a recipe spends its calls, by room, beside what a call costs."""
    trace = make_trace(jobs, load)
    profile = cProfile.Profile()
    run = profile.runcall(run_one, trace, CLUSTER, recipe, record=False)
    each = (
        f"{jobs:,} jobs at load {load:g}. A job: {run.simulation['events'] / jobs:.1f} events,"
        f" {run.simulation['decisions'] / jobs:.1f} decisions,"
        f" {run.jobs.preemptions.mean():.2f} preemptions."
    )
    rooms: dict[str, list[float]] = {}
    for (file, _, _), (_, calls, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        parts = Path(file).parts
        room = parts[-2] if "ganger" in parts[-3:] else "C"
        module = f"{room}/{Path(file).stem}" if room in ("core", "mechanisms", "sim") else "other"
        name = "calls into C" if room == "C" else module
        at = rooms.setdefault(name, [0.0, 0.0])
        at[0] += calls / jobs
        at[1] += own
    total = sum(own for _, own in rooms.values())
    rows = [
        f"| {name} | {calls:.1f} | {own / total:.0%} |"
        for name, (calls, own) in sorted(rooms.items(), key=lambda each: -each[1][1])
        if own > 0.01 * total
    ]
    python = sum(calls for name, (calls, _) in rooms.items() if name != "calls into C")
    empty = min(timeit.repeat("f(1)", "def f(x): return x", number=1_000_000, repeat=5))
    return "\n".join(
        [
            each,
            "",
            "| module | calls a job | of the time under the profiler |",
            "|:---|---:|---:|",
            *rows,
            "",
            f"{python:.0f} calls of Python functions a job; an empty one takes {empty:.3f} us here,"
            f" so that calling alone takes {python * empty:.1f} us of a job's time.",
        ]
    )


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--recipes", default=RECIPES, help="names or specs, apart by ;")
    parser.add_argument("--load", default="1.05", help="one or several, apart by ;")
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.one:
        print(json.dumps(measure(told.one, told.jobs, float(told.load))))
        return
    rows = []
    for load in told.load.split(";"):
        for recipe in ["bare", *told.recipes.split(";")]:
            command = [sys.executable, __file__, "--one", recipe]
            command += ["--jobs", str(told.jobs), "--load", load]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows.append(json.loads(done.stdout))
            print(table(rows).splitlines()[-1], file=sys.stderr, flush=True)
    report = table(rows)
    print(report)
    if not told.no_write:
        write(
            Path(__file__).with_suffix(".md"),
            f"# Speed\n\n{told.jobs:,} jobs on {GPUS:,} GPUs, with placement. Made by {made()}.\n\n"
            f"{machine()}.\n\n{report}\n\n"
            + "\n".join(
                f"## Where the time of {recipe} goes\n\n{breakdown(recipe, load)}\n\n{said}\n"
                for (recipe, load), said in ARGUMENTS.items()
            ),
        )


if __name__ == "__main__":
    main()
