"""How good expected starts are: what was foretold at moments of a run, against what came.

    python benchmarks/calibration.py

Workloads of 1000 jobs on 64 GPUs under an oracle that learns from history, as a daemon's does. At
twelve moments of each run every waiting job (at most 60) is foretold a start with an interval that
should hold eight times in ten. With GANGER_TRACES, stretches of real traces as well.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from provenance import made, write

from ganger.core.kernel import Kernel
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.state.snapshot import Snapshot, capture, restore
from ganger.core.units import MINUTE
from ganger.estimate.history import History
from ganger.lab.ahead.whatif import Outlook, expected_starts
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from ganger.workloads import synthetic, transform
from ganger.workloads.formats import load_trace
from ganger.workloads.trace import Trace

CLUSTER = ClusterSpec((NodeSpec(count=8, gpus=8, gpu_type="V100"),))
RECIPES = ("fifo", "backfill", "helios", "priority")
KINDS = ("philly", "helios", "pai")
TRACES = {
    "Philly, real": "philly/philly_2017-09_2017-10.csv.gz",
    "Helios Venus, real": "helios-venus/venus_gpu_jobs_2020-03_2020-08.csv.gz",
}
GPUS = 64
LOAD = 0.95
MOMENTS = 12
JOBS_MAX = 60
NOTES = """
Waits are counted from the prediction. *by moments*: the mean over moments of the share that was
within; jobs that wait at one moment wait for the same others, so that their predictions come true
or fail together, and a line rests on as many moments as it says, not on as many predictions.
*spread*: the interval's end over its beginning, both counted from the prediction (median). Lines
that are missing were not run to their end.

Tuned: the method's one constant (`estimate/lifetimes.py: STRENGTH`) on the synthetic Philly
workload under fifo and priority. The tail was first Pareto, then exponential, which the synthetic
Helios line showed to be wrong (18 %): now it is weighed between both by their likelihood, so that
this line is not a test of it either. The other workloads were not tuned on.
"""


HEAD = (
    "| workload | recipe | predictions | moments | within the interval (goal: 80 %)"
    " | by moments | before it | after it | median wait | median error | spread |"
)


def workload(name: str, seed: int, jobs: int) -> Trace:
    """The synthetic workload of that kind, or a stretch of a real trace."""
    if name in KINDS:
        return transform.scale_load(synthetic.synthesize(name, jobs, seed, gpus=GPUS), LOAD, GPUS)
    whole = transform.at_most(load_trace(Path(os.environ["GANGER_TRACES"]) / TRACES[name]), GPUS)
    first = whole.jobs * (seed + 1) // 12
    start = int(whole.declared.submitted[first])
    return transform.scale_load(transform.head(transform.window(whole, start), jobs), LOAD, GPUS)


def copier(data: Snapshot, recipe: str) -> Callable[[], Kernel]:
    """Makes kernels in the state of `data`."""
    return lambda: restore(data, Nodes(CLUSTER), registry.make(recipe), oracle=History())


def foretold(trace: Trace, recipe: str, seed: int) -> list[tuple[int, Outlook, int]]:
    """For each prediction: when it was made, what it was, and when the job started."""
    jobs = trace.jobs
    nodes = Nodes(CLUSTER)
    kernel = Kernel(nodes, trace.declared, registry.make(recipe), oracle=History())
    engine = Simulator(trace.declared, trace.duration, Physics(nodes))
    last = int(trace.declared.submitted[jobs - 1])
    choose = np.random.default_rng(seed)
    made: list[tuple[int, int, Outlook]] = []
    for moment in range(MOMENTS):
        kernel.run(engine, last * (moment + 3) // (MOMENTS + 3))
        waiting = np.flatnonzero(kernel.jobs.phase[:jobs] == Phase.PENDING)
        waiting = waiting[kernel.jobs.first_start[waiting] < 0]
        if len(waiting) > JOBS_MAX:
            waiting = choose.choice(waiting, JOBS_MAX, replace=False)
        if len(waiting):
            told = expected_starts(copier(capture(kernel), recipe), waiting.tolist(), seed=moment)
            made += [(kernel.now, row, outlook) for row, outlook in told.items()]
    kernel.run(engine)
    return [(now, outlook, int(kernel.jobs.first_start[row])) for now, row, outlook in made]


def line(name: str, recipe: str, seeds: int, jobs: int) -> str:
    """A row of the table."""
    found = [
        (seed, *one)
        for seed in range(seeds)
        for one in foretold(workload(name, seed, jobs), recipe, seed)
    ]
    if not found:
        return f"| {name} | {recipe} | 0 |" + " |" * 8
    now, came = (np.array([one[i] for one in found]) for i in (1, 3))
    low, high, told = (
        np.array([getattr(one[2], name) for one in found]) for name in ("low", "high", "expected")
    )
    held = (low <= came) & (came <= high)
    moments: dict[tuple[int, int], list[bool]] = {}
    for one, within in zip(found, held.tolist(), strict=True):
        moments.setdefault(one[:2], []).append(within)
    by_moment = np.mean([np.mean(one) for one in moments.values()])
    early, late = (came < low).mean(), (came > high).mean()
    error, wait = np.abs(came - told) / MINUTE, (came - now) / MINUTE
    spread = (high - now) / np.maximum(low - now, MINUTE)
    return (
        f"| {name} | {recipe} | {len(found)} | {len(moments)} | {100 * held.mean():.0f} %"
        f" | {100 * by_moment:.0f} % | {100 * early:.0f} % | {100 * late:.0f} %"
        f" | {np.median(wait):.0f} min | {np.median(error):.0f} min | {np.median(spread):.3g} |"
    )


def main() -> None:
    """Measure, print, write `calibration.md`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".md"))
    given = parser.parse_args()
    real = list(TRACES) if os.environ.get("GANGER_TRACES") else []
    lines = [
        "# Expected starts, foretold and come",
        "",
        f"Made by {made()}.",
        NOTES,
        HEAD,
        "|:---|:---|" + "---:|" * 9,
    ]
    for recipe in given.recipes.split(","):
        for name in (*KINDS, *real):
            lines.append(line(name, recipe, given.seeds, given.jobs))
            print(lines[-1], file=sys.stderr, flush=True)
            write(given.output, "\n".join(lines))


if __name__ == "__main__":
    main()
