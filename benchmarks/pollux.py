"""Pollux's own workloads on 16 nodes of 4 T4, goodput from its measured profiles.

    python benchmarks/pollux.py TRACES [--workload 1] [--recipe pollux] [--rigid] [--fixed]
    python benchmarks/pollux.py TRACES --rows [--workload 1] [--recipe pollux] [--write]

TRACES is the folder that holds `pollux-sia`. Prints average JCT and makespan beside the figures
of the authors' public simulator; `--rows`: rows of pollux.md, and `--write` makes that page. Every
job may run on 1 to 64 GPUs (`--rigid`: on as many as its row says) and always at the batch size of
the largest goodput (`--fixed`: at that of its row); it is done after all epochs.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from provenance import made

from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, JobSpec, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import SECOND, micros
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.sim.physics import Costs
from ganger.workloads.measured.profiles import load_profiles, with_goodput
from ganger.workloads.trace import Trace

PUBLISHED = {
    "pollux": {1: 2088.8, 2: 3322.9, 3: 2188.5, 4: 2721.0},
    "tiresias": {1: 2473.7, 2: 5145.0, 3: 3876.3, 4: 3280.3},
    "optimus": {1: 4087.1, 2: 6913.9, 3: 3944.0, 4: 5967.8},
}
"""Average JCT, seconds. Tiresias and Optimus keep the batch sizes of the rows (`--fixed`)."""
COMPARED: dict[str, dict[str, bool]] = {
    "pollux": {},
    "optimus(interval=60s)": {"fixed": True},
    "tiresias(thresholds=16h,consolidate=no,fit=worst,index=arrival,interval=60s)": {
        "fixed": True,
        "rigid": True,
    },
}
"""The columns of pollux.md."""
HEAD = """# Pollux, Optimus and Tiresias on Pollux's workloads

Made by {made}.

16 nodes of 4 T4, 160 jobs, seed 0, 30 s for every start; JCT in seconds: its mean, how far that is
from what the authors' public simulator prints, its median and 99th percentile; makespan.

| workload | recipe | mean JCT, s | authors | p50 | p99 | makespan, s | restarts |
|---:|:---|---:|---:|---:|---:|---:|---:|
"""
MOST_AT_A_TIME = {"yolov3": 8.0}
"""Examples on one GPU at a time, where that simulator allows fewer than were measured."""


def load(path: Path, jobs: int, fixed: bool) -> Trace:
    """The first `jobs` rows of a workload, with no durations yet; `fixed`: the model's name tells
    the batch size, too."""
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file))[:jobs]
    specs = [
        JobSpec(
            name=row["name"],
            submitted=micros(float(row["time"])),
            model=row["application"] + f"@{row['batch_size']}" * fixed,
            shape=Shape(roles=(Role(size=int(row["num_replicas"])),)),
        )
        for row in rows
    ]
    return Trace(declare(specs), np.ones(len(specs), np.int64), name=path.name)


def as_there(profiles: Profiles) -> Profiles:
    """`profiles` with what that simulator sets beside them."""
    known = dict(profiles.models)
    for name, most in MOST_AT_A_TIME.items():
        goodput = known[name].goodput
        assert goodput is not None, "a profile of goodput"
        known[name] = Profile(goodput=replace(goodput, local=(goodput.local[0], most)))
    return Profiles(known)


def with_fixed(profiles: Profiles, names: Iterable[str]) -> Profiles:
    """`profiles` and those of `names`, such as `bert@96`: the application at one batch size."""
    known = dict(profiles.models)
    for name in names:
        application, _, batch = name.partition("@")
        goodput = profiles.of(application).goodput
        if batch and goodput is not None:
            known[name] = Profile(goodput=replace(goodput, only=float(batch)))
    return Profiles(known)


def simulate(
    traces: Path,
    workload: int,
    recipe: str,
    *,
    jobs: int = 160,
    seed: int = 0,
    fixed: bool = False,
    rigid: bool = False,
) -> Run:
    """One workload under one recipe, on 16 nodes of 4 T4."""
    folder = traces / "pollux-sia"
    profiles = as_there(load_profiles(folder / "profiles"))
    loaded = load(folder / f"workloads/pollux/workload-{workload}.csv.gz", jobs, fixed)
    profiles = with_fixed(profiles, loaded.declared.models.values)
    trace = with_goodput(loaded, profiles, elastic=0 if rigid else 64)
    cluster = ClusterSpec(nodes=(NodeSpec(count=16, gpus=4, gpu_type="T4"),), name="16x4xT4")
    costs = Costs(start=30 * SECOND, restore=30 * SECOND)
    return run_one(trace, cluster, recipe, Setup(seed=seed, profiles=profiles, costs=costs))


def row(traces: Path, workload: int, recipe: str) -> str:
    """A line of the table of pollux.md."""
    how = COMPARED[recipe]
    run = simulate(traces, workload, recipe, **how)
    jct = run.jobs.finish - run.jobs.arrival
    published = PUBLISHED[recipe.partition("(")[0]][workload]
    words = " ".join([f"`{recipe}`", *(f"`--{switch}`" for switch in how)])
    p50, p99 = np.percentile(jct, [50, 99])
    cells = (
        workload,
        words,
        f"{jct.mean():.1f}",
        f"{jct.mean() / published - 1:+.0%}",
        f"{p50:.0f}",
        f"{p99:.0f}",
        f"{run.jobs.finish.max() - run.jobs.arrival.min():.0f}",
        run.jobs.restarts.sum(),
    )
    return f"| {' | '.join(map(str, cells))} |"


def rows(traces: Path, workload: int | None, recipe: str, write: bool) -> None:
    """Print the rows of one workload or of all, and of one recipe or of all, and write the page if
    told to."""
    lines = []
    for number in [workload] if workload else [1, 2, 3, 4]:
        for each in [recipe] if recipe else COMPARED:
            lines.append(row(traces, number, each))
            print(lines[-1], flush=True)
    if write:
        page = Path(__file__).with_suffix(".md")
        text = page.read_text()
        tail = text[text.index("\nAll within 10 %") :]
        begin = HEAD.format(made=made())
        page.write_text(begin + "\n".join(lines) + "\n" + tail)


def main() -> None:
    """Run one workload under one recipe."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", type=Path)
    parser.add_argument("--workload", type=int, choices=[1, 2, 3, 4])
    parser.add_argument("--recipe", default="", help="default: pollux; with --rows: all")
    parser.add_argument("--jobs", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rigid", action="store_true")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.rows:
        rows(args.traces, args.workload, args.recipe, args.write)
    else:
        one(args)


def one(args: argparse.Namespace) -> None:
    """Run one workload under one recipe, and say what came of it."""
    args.workload, args.recipe = args.workload or 1, args.recipe or "pollux"
    run = simulate(
        args.traces,
        args.workload,
        args.recipe,
        jobs=args.jobs,
        seed=args.seed,
        fixed=args.fixed,
        rigid=args.rigid,
    )
    jct = run.jobs.finish - run.jobs.arrival
    makespan = run.jobs.finish.max() - run.jobs.arrival.min()
    published = PUBLISHED.get(args.recipe.partition("(")[0], {}).get(args.workload)
    beside = f" (authors: {published}, {jct.mean() / published - 1:+.0%})" if published else ""
    print(f"workload-{args.workload} {args.recipe}, {len(jct)} jobs, seed {args.seed}")
    print(f"average JCT {jct.mean():.1f} s{beside}; makespan {makespan:.0f} s")
    cpu = run.simulation["cpu_seconds"]
    print(f"{run.jobs.restarts.sum()} restarts; {cpu:.0f} CPU seconds")


if __name__ == "__main__":
    main()
