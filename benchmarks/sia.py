"""Sia's heterogeneous case: Philly workloads of its artifact on 64 GPUs of three types.

    python benchmarks/sia.py TRACES [--workload N] [--recipe NAME] [--write]

TRACES is the folder that holds `pollux-sia`. The cluster is that of the authors' simulator: 6 nodes
of 4 T4, 3 of 8 RTX 2080 Ti and 2 of 8 A100, each with the goodput that was measured on it. Prints
a row of sia.md for each recipe and workload; `--write` makes the page. Under Sia jobs choose a
batch size up to that of their row and may run on 1 to 64 GPUs; under Gavel they run at the batch
size and on the GPUs of their rows.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from pollux import load
from provenance import made

from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.core.units import SECOND
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.sim.physics import Costs
from ganger.workloads.measured.profiles import load_profiles, with_goodput

CLUSTER = ClusterSpec(
    (
        NodeSpec(count=6, gpus=4, gpu_type="T4"),
        NodeSpec(count=3, gpus=8, gpu_type="RTX2080Ti"),
        NodeSpec(count=2, gpus=8, gpu_type="A100"),
    ),
    name="6x4xT4+3x8xRTX2080Ti+2x8xA100",
)
RESTORE = {"bert": 120, "cifar10": 50, "deepspeech2": 25, "imagenet": 250, "ncf": 15, "yolov3": 80}
"""Seconds of a restart, by application, in the authors' simulator."""
SLOWER = {
    "bert": 1.2,
    "cifar10": 1.8,
    "deepspeech2": 1.2,
    "imagenet": 1.2,
    "ncf": 1.5,
    "yolov3": 1.2,
}
"""Times as long as by its measured step times, by application: that simulator's calibration to runs
on real machines."""
START = 50 * SECOND
"""Of a first start, for all: that of the application that most jobs are of."""
LARGEST = ("deepspeech2", "RTX2080Ti", 57.0)
"""Where that simulator allows fewer examples at a time than were measured."""
PUBLISHED = {"sia(restart=50s)": 1605.6, "gavel(objective=max-sum,fill=no)": 2969.1}
"""Average JCT in the authors' simulator, 80 jobs of workload 1, seconds."""
COMPARED: dict[str, bool] = {
    "sia(restart=50s)": False,
    "gavel(objective=max-sum,fill=no)": True,
    "gavel(objective=max-sum)": True,
}
"""The recipes of sia.md, and whether jobs keep the batch size and the GPUs of their rows."""
WORKLOADS = {1: 80, 3: 160, 5: 160, 7: 160}
"""The Philly workloads of sia.md, and how many of their jobs are run."""
COLUMNS = (
    "workload",
    "jobs",
    "recipe",
    "average JCT, s",
    "authors",
    "p50",
    "p99",
    "makespan, s",
    "restarts",
)
PAGE = """# Sia's heterogeneous case

Made by {made}.

Philly workloads of Sia's artifact on the cluster of its simulator: 6 nodes of 4 T4, 3 of 8 RTX 2080
Ti and 2 of 8 A100, step times as measured on each; restarts cost what they cost there, 15 to 250 s
by application, and every application is slower than measured by that simulator's calibration.
*authors*: what that simulator prints (average JCT). JCT in seconds.

{table}

Sia's average JCT is 1.8 times shorter than Gavel's on workload 1, as in that simulator; its paper
claims 27 to 80 % less than others. Gavel's rounds last 360 s there, which is `fill=no`; where jobs
fill free GPUs between rounds it is a fifth faster. Where there are more large jobs (5 and 7) a
largest sum of throughputs starves those that are slow everywhere.

Pollux is not in the table: on several GPU types a job stays on the first one that can hold it, so
that all of these would share 24 T4.
"""


def as_there(profiles: Profiles) -> Profiles:
    """`profiles` with what that simulator sets beside them."""
    name, kind, most = LARGEST
    goodput = profiles.of(name).goodput
    assert goodput is not None, "a profile of goodput"
    told = goodput.by_type[kind]
    told = replace(told, local=(told.local[0], min(told.local[1], most)))
    goodput = replace(goodput, by_type={**goodput.by_type, kind: told})
    return Profiles({**profiles.models, name: Profile(goodput=goodput)})


def with_batches(profiles: Profiles, names: Iterable[str], fixed: bool) -> Profiles:
    """`profiles` and those of `names`, such as `bert@96`: the application with that batch size as
    its largest, or (`fixed`) its only one."""
    known = dict(profiles.models)
    for name in names:
        application, _, batch = name.partition("@")
        goodput = profiles.of(application).goodput
        if goodput is None:
            continue
        size = float(batch)
        known[name] = Profile(goodput=replace(goodput, most=size, only=size if fixed else 0.0))
    return Profiles(known)


def simulate(traces: Path, workload: int, recipe: str, jobs: int) -> Run:
    """The first `jobs` of a Philly workload under one recipe."""
    folder, fixed = traces / "pollux-sia", COMPARED[recipe]
    profiles = as_there(load_profiles(folder / "profiles"))
    loaded = load(folder / f"workloads/philly/workload-{workload}.csv.gz", jobs, fixed=True)
    profiles = with_batches(profiles, loaded.declared.models.values, fixed)
    trace = with_goodput(loaded, profiles, elastic=0 if fixed else 64)
    declared, duration = trace.declared, trace.duration.copy()
    for job in range(declared.n):
        application = declared.models[int(declared.model[job])].partition("@")[0]
        declared.restore[job] = RESTORE[application] * SECOND
        duration[job] = round(duration[job] * SLOWER[application])
    trace = dataclasses.replace(trace, duration=duration)
    return run_one(trace, CLUSTER, recipe, Setup(profiles=profiles, costs=Costs(start=START)))


def row(traces: Path, workload: int, recipe: str) -> str:
    """A line of the table."""
    jobs = WORKLOADS[workload]
    run = simulate(traces, workload, recipe, jobs)
    jct = run.jobs.finish - run.jobs.arrival
    p50, p99 = np.percentile(jct, [50, 99])
    published = PUBLISHED.get(recipe) if workload == 1 else None
    beside = f"{published} ({jct.mean() / published - 1:+.0%})" if published else ""
    span = run.jobs.finish.max() - run.jobs.arrival.min()
    cells = (
        workload,
        jobs,
        f"`{recipe}`",
        f"{jct.mean():.0f}",
        beside,
        f"{p50:.0f}",
        f"{p99:.0f}",
        f"{span:.0f}",
        run.jobs.restarts.sum(),
    )
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the rows that are wanted, and write the page if told to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", type=Path)
    parser.add_argument("--workload", type=int, choices=list(WORKLOADS))
    parser.add_argument("--recipe", choices=list(COMPARED))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    rows = []
    for workload in [args.workload] if args.workload else WORKLOADS:
        for recipe in [args.recipe] if args.recipe else COMPARED:
            rows.append(row(args.traces, workload, recipe))
            print(rows[-1], flush=True)
    if args.write:
        bars = ["---:", "---:", ":---", *["---:"] * 6]
        table = "\n".join([f"| {' | '.join(COLUMNS)} |", f"| {' | '.join(bars)} |", *rows])
        page = PAGE.format(made=made(), table=table)
        Path(__file__).with_suffix(".md").write_text(page)


if __name__ == "__main__":
    main()
