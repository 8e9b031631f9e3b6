"""How good expected starts are: what was foretold at moments of a run, against what came.

    python benchmarks/calibration.py --date 2026-01-31

Synthetic workloads on 64 GPUs under an oracle that learns from history, as a daemon's does. At
twelve moments of each run every waiting job (at most 60) is foretold a start with an interval that
should hold eight times in ten. Jobs that arrive later are not foreseen.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ganger.core.cluster import Nodes
from ganger.core.jobs import Phase
from ganger.core.kernel import Kernel
from ganger.core.snapshot import Snapshot, capture, restore
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.core.units import MINUTE
from ganger.estimate.history import History
from ganger.lab.whatif import Outlook, expected_starts
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from ganger.workloads import synthetic, transform

CLUSTER = ClusterSpec((NodeSpec(count=8, gpus=8, gpu_type="V100"),))
RECIPES = ("fifo", "backfill", "helios", "priority")
MOMENTS = 12
JOBS_MAX = 60


def copier(data: Snapshot, recipe: str) -> Callable[[], Kernel]:
    """Makes kernels in the state of `data`."""
    return lambda: restore(data, Nodes(CLUSTER), registry.make(recipe), oracle=History())


def foretold(recipe: str, seed: int, jobs: int) -> list[tuple[int, Outlook, int]]:
    """For each prediction: when it was made, what it was, and when the job started."""
    trace = transform.scale_load(synthetic.synthesize("philly", jobs, seed, gpus=64), 0.95, 64)
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


def main() -> None:
    """Measure, print, write `calibration.md`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--date", default="undated")
    given = parser.parse_args()
    lines = [
        "# Expected starts, foretold and come", "",
        f"`python benchmarks/calibration.py --jobs {given.jobs} --seeds {given.seeds}`,"
        f" {given.date}."
        " Waits are counted from the prediction.", "",
        "| recipe | predictions | within the interval (goal: 80 %) | before it | after it"
        " | median wait | median error |", "|:---|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for recipe in RECIPES:
        found = [one for seed in range(given.seeds) for one in foretold(recipe, seed, given.jobs)]
        now, came = (np.array([one[i] for one in found]) for i in (0, 2))
        low, high, told = (
            np.array([getattr(one[1], name) for one in found])
            for name in ("low", "high", "expected")
        )
        early, late = (came < low).mean(), (came > high).mean()
        error, wait = np.abs(came - told) / MINUTE, (came - now) / MINUTE
        lines.append(
            f"| {recipe} | {len(found)} | {100 * (1 - early - late):.0f} % | {100 * early:.0f} %"
            f" | {100 * late:.0f} % | {np.median(wait):.0f} min | {np.median(error):.0f} min |"
        )
        print(lines[-1], flush=True)
    (Path(__file__).parent / "calibration.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
