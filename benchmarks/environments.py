"""Steps of the environment of the queue in a CPU second, beside the same run under `fifo`.

    python benchmarks/environments.py              # print
    python benchmarks/environments.py --write      # and write environments.md

A few more jobs arrive than the cluster can run, so that the window of 50 is full most of the time.
Fifo's actions are played, by what an observation says: the first job if it fits, else to wait. So
both runs start the same jobs at the same times, which is checked.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from provenance import machine, made, write

from ganger.core.units import SECOND
from ganger.envs import QueueEnv
from ganger.lab.api import as_cluster
from ganger.lab.simulating.setup import Setup
from ganger.lab.simulation import run_one
from ganger.mechanisms.learning.features import JOB
from ganger.mechanisms.learning.starting import AROUND
from ganger.workloads.synthetic import synthesize

CLUSTER = "16x4xV100"
WINDOW = 50
HEAD = "| jobs | steps | waiting, mean | full windows |\n|---:|---:|---:|---:|"
RATES = "| a CPU second | median | least | most |\n|:---|---:|---:|---:|"
IS_A_JOB, FITS = (len(JOB) + AROUND.index(name) for name in ("is a job", "fits"))


class Played(NamedTuple):
    """A run of the environment. `waiting`: jobs that waited at each step."""

    seconds: float
    waiting: list[int]
    completed: list[int]


def world(jobs: int) -> QueueEnv:
    """The environment; its trace is the same for every seed."""
    return QueueEnv(synthesize("poisson", jobs, 3, gpus=64, load=1.02), CLUSTER, window=WINDOW)


def play(env: QueueEnv) -> Played:
    """Fifo's actions, until the last job has ended."""
    began, waiting, over = time.process_time(), list[int](), False
    observed, _ = env.reset(seed=0)
    assert env.episode is not None
    view = env.episode.kernel.view
    while not over:
        waiting.append(len(view.pending))
        head = int(observed[:, IS_A_JOB].argmax())
        observed, _, over, _, _ = env.step(head if observed[head, FITS] else WINDOW)
    return Played(time.process_time() - began, waiting, env.episode.completed().tolist())


def fifo(jobs: int) -> tuple[float, list[int]]:
    """CPU seconds of fifo's own run, and when its jobs end."""
    trace = synthesize("poisson", jobs, 3, gpus=64, load=1.02)
    began = time.process_time()
    run = run_one(trace, as_cluster(CLUSTER), "fifo", Setup(), record=False)
    return time.process_time() - began, np.rint(run.jobs.finish * SECOND).astype(int).tolist()


def counted(jobs: int) -> str:
    """A row of what happened, which is the same on every machine."""
    played, own = play(world(jobs)), fifo(jobs)[1]
    assert played.completed == own, "jobs end at other times than under fifo"
    full = statistics.mean(each >= WINDOW for each in played.waiting)
    return (
        f"| {jobs:,} | {len(played.waiting):,} | {statistics.mean(played.waiting):.0f}"
        f" | {full:.0%} |"
    )


def main() -> None:
    """Measure in turns, print, write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    row, env = counted(args.jobs), world(args.jobs)
    steps, own, costs = list[float](), list[float](), list[float]()
    load = os.getloadavg()[0]
    for _ in range(args.rounds):
        played, seconds = play(env), fifo(args.jobs)[0]
        steps.append(len(played.waiting) / played.seconds)
        own.append(args.jobs / seconds)
        costs.append(played.seconds / seconds)
    rates = [
        f"| {name} | {statistics.median(each):,.0f} | {min(each):,.0f} | {max(each):,.0f} |"
        for name, each in (("steps of the environment", steps), ("jobs of fifo's own run", own))
    ]
    table = "\n".join([HEAD, row, "", RATES, *rates])
    ratio = f"The same jobs cost {statistics.median(costs):.1f} times the CPU time of fifo's run."
    print(f"{table}\n\n{ratio}")
    if args.write:
        text = f"""# Steps of an environment

Made by {made()}; {machine()}. The load on the machine was {load:.1f} before and
{os.getloadavg()[0]:.1f} after. Medians of {args.rounds} rounds in turns. The goal is 12,000 steps a
CPU second.

`QueueEnv` with a window of {WINDOW} on 64 GPUs; a few more jobs arrive than can run. Fifo's actions
are played, and jobs end when they do under `fifo`. A step is all that happens until the next
choice: jobs that arrive, start and end in the simulator, and the rows of the next observation.

{table}

{ratio}
"""
        write(Path(__file__).with_suffix(".md"), text)


if __name__ == "__main__":
    main()
