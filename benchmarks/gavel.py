"""Gavel's published figures, with and without the ways of its public simulator, and its speed.

    GANGER_TRACES=FOLDER python benchmarks/gavel.py [--page [TABLE...] | --ways | --pairs | --speed]

FOLDER holds `gavel`. Prints the first table of docs/gavel.md: average JCT and total duration in
seconds of the public simulator (360 s rounds, one GPU a server, seed 0), of
`gavel(compatible=yes)`, and of `gavel`. `--ways`: what every single switch is worth. `--pairs`:
every objective with and without space sharing. `--speed`: CPU seconds beside the public
simulator's. `--page`: all of them, or the tables named, written into docs/gavel.md with commit,
date and command, and the completion time of every job into tests/recipes/gavel_jobs.json. A test
works out a sample of the rows again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
from provenance import machine, made

from ganger.core.plan import Plan
from ganger.core.protocols import Policy
from ganger.lab.result import Run
from ganger.lab.simulating.policies import load_policy
from ganger.lab.simulation import Setup, run_one
from ganger.recipes.training.gavel.recipes import Objective
from ganger.workloads.clusters import load_cluster
from ganger.workloads.formats import load_trace
from ganger.workloads.measured.throughputs import load_throughputs, steps_per_second
from ganger.workloads.synthetic import synthesize
from ganger.workloads.trace import Trace

ROOT = Path(__file__).parents[1]
PAGE, JOBS = ROOT / "docs/gavel.md", ROOT / "tests/recipes/gavel_jobs.json"
FAIR, SPAN = "max_min_fairness", "minimize_makespan"
EVEN, LARGE = "12x1xV100+12x1xP100+12x1xK80", "36x1xV100+36x1xP100+36x1xK80"
FIGURES: list[tuple[str, str, str, float, float]] = [
    (FAIR, "36x1xV100", "objective=fifo", 12722.8, 61512.2),
    (FAIR, "36x1xV100", "objective=max-min,agnostic=yes", 10934.0, 63312.2),
    (FAIR, EVEN, "objective=fifo", 20396.2, 74154.7),
    (FAIR, EVEN, "objective=max-min,agnostic=yes", 19145.2, 73788.4),
    (FAIR, EVEN, "objective=max-min", 14981.3, 63438.6),
    (FAIR, EVEN, "objective=ftf", 15839.9, 64754.7),
    (FAIR, EVEN, "objective=makespan", 27819.7, 61512.5),
    (SPAN, EVEN, "objective=fifo", 42981.9, 98361.5),
    (SPAN, EVEN, "objective=makespan", 71569.9, 72325.1),
]
"""Trace, cluster, recipe's parameters, average JCT and total duration of the public simulator."""
WAYS = (
    "", "in_order", "centred", "whole_steps", "barrier", "patience", "counters", "by_type",
    "left_over", "held_back", "dropped", "shuffled",
)  # fmt: skip
OBJECTIVES = ("objective=fifo", "objective=max-min", "objective=max-min,agnostic=yes")
SHARED = [each.value for each in Objective if each is not Objective.ISOLATED]
PUBLIC = {800: 10.5, 5036: 62.0}
"""CPU seconds of the public simulator on these jobs, as measured on 2026-11-22 on a 2-core machine
of the type on which the page is made; a reference, not measured again."""
IDLE = "116 to 171"
"""The same of 5,036 jobs spread over 12,200 h."""


def folder() -> Path:
    """Where Gavel's traces lie."""
    return Path(os.environ["GANGER_TRACES"]) / "gavel"


def play(trace: str, cluster: str, recipe: str) -> Run:
    """One run on a trace of the physical cluster."""
    loaded = load_trace(
        folder() / f"physical_cluster/{trace}.trace.gz",
        throughputs=folder() / "simulation_throughputs.json.gz",
    )
    return run_one(loaded, load_cluster(cluster), recipe, Setup(), record=False)


def told(run: Run, jct: float | None = None, duration: float | None = None) -> str:
    """Average JCT and total duration, and how far they are from the figures beside them."""
    found = run.metrics["jct_mean_seconds"], run.metrics["makespan_seconds"]
    cells = []
    for value, figure in zip(found, (jct, duration), strict=True):
        beside = f" ({value / figure - 1:+.2%})" if figure else ""
        cells.append(f"{value:.1f}{beside}")
    return " | ".join(cells)


# ---------------------------------------------------------------------- a row of each table


def figure_row(trace: str, cluster: str, how: str, jct: float, duration: float) -> str:
    """What the public simulator, `compatible` and the paper's rounds make of one objective."""
    same = told(play(trace, cluster, f"gavel({how},compatible=yes)"), jct, duration)
    plain = told(play(trace, cluster, f"gavel({how})"))
    return f"| {trace} | {cluster} | {how} | {jct} | {duration} | {same} | {plain} |"


def way_row(way: str) -> str:
    """What one switch alone makes of the heterogeneous rows of the first trace."""
    switch = f",{way}={'1920s' if way == 'patience' else 'yes'}" if way else ""
    cells = [told(play(FAIR, EVEN, f"gavel({how}{switch})")) for how in OBJECTIVES]
    return f"| {way or 'none'} | {' | '.join(cells)} |"


def pair_row(trace: str, objective: str) -> str:
    """What space sharing is worth to one objective."""
    alone = play(trace, EVEN, f"gavel(objective={objective})")
    both = play(trace, EVEN, f"gavel(objective={objective},space_sharing=yes)")
    figures = alone.metrics["jct_mean_seconds"], alone.metrics["makespan_seconds"]
    return f"| {trace} | {objective} | {told(alone)} | {told(both, *figures)} |"


def figures() -> Iterator[str]:
    """The table of published figures."""
    yield (
        "| trace | cluster | `gavel(...)` | public: JCT | total | compatible: JCT | total"
        " | gavel: JCT | total |"
    )
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|"
    for each in FIGURES:
        yield figure_row(*each)


def ways() -> Iterator[str]:
    """The table of switches."""
    heads = (f"{how.removeprefix('objective=')}: JCT | total" for how in OBJECTIVES)
    yield f"| switch | {' | '.join(heads)} |"
    yield "|---|" + "---:|" * 2 * len(OBJECTIVES)
    for way in WAYS:
        yield way_row(way)


def pairs() -> Iterator[str]:
    """The table of space sharing."""
    yield "| trace | objective | alone: JCT | total | in pairs: JCT | total |"
    yield "|---|---|---:|---:|---:|---:|"
    for trace in (FAIR, SPAN):
        for objective in SHARED:
            yield pair_row(trace, objective)


# ---------------------------------------------------------------------- speed


def spread(trace: Trace, hours: float) -> Trace:
    """The trace with its arrivals over so many hours; 0: all at once."""
    declared = trace.declared.take(slice(None))
    at = declared.submitted[: trace.jobs]
    declared.submitted[: trace.jobs] = np.rint(at * (hours * 3600e6 / float(at[-1]))).astype(
        np.int64
    )
    return replace(trace, declared=declared)


def generated(jobs: int, gpus: int, hours: float) -> Trace:
    """Jobs of Gavel's generator, of at most so many GPUs, that arrive over so many hours."""
    profiles = load_throughputs(folder() / "simulation_throughputs.json.gz")
    trace = synthesize("gavel", jobs, 0, gpus=gpus, throughput=steps_per_second(profiles))
    return replace(spread(trace, hours), profiles=profiles)


def bare(trace: Trace, gpus: int = 108) -> None:
    """First come, first served on GPUs that are all alike, as a loop over a heap."""
    arrivals, lasts = trace.declared.submitted[: trace.jobs].tolist(), trace.duration.tolist()
    free, heap, head, arrived = gpus, list[int](), 0, 0
    while arrived < trace.jobs or heap:
        if heap and (arrived >= trace.jobs or heap[0] <= arrivals[arrived]):
            now = heappop(heap)
            free += 1
        else:
            now = arrivals[arrived]
            arrived += 1
        while head < arrived and free:
            free -= 1
            heappush(heap, now + lasts[head])
            head += 1


class Recorded:
    """A policy that keeps its plans, or (`again`) gives those that it kept, without deciding."""

    def __init__(self, policy: Policy) -> None:
        self.name, self._policy = policy.name, policy
        self._plans: list[Plan] = []
        self.again = False
        self._at = 0

    def decide(self, view: Any, memory: Any) -> tuple[Plan, Any]:
        """The plan."""
        if self.again:
            kept = self._plans[self._at]
            self._at += 1
            return Plan(list(kept.actions), kept.reasons, kept.wake, kept.until), None
        plan, memory = self._policy.decide(view, memory)
        self._plans.append(Plan(list(plan.actions), plan.reasons, plan.wake, plan.until))
        return plan, memory


def seconds(trace: Trace, recipe: str | Policy) -> float:
    """CPU seconds of a run on 36 GPUs of each type."""
    run = run_one(trace, load_cluster(LARGE), recipe, Setup(), record=False)
    return float(run.simulation["cpu_seconds"])


def measured(trace: Trace, recipe: str) -> tuple[float, float]:
    """CPU seconds of the recipe's run, and of kernel and engine alone where its plans are known."""
    took, policy = seconds(trace, recipe), Recorded(load_policy(recipe))
    seconds(trace, policy)
    policy.again = True
    return took, seconds(trace, policy)


def speed() -> Iterator[str]:
    """The table of CPU seconds: under load, at equal completion times, and where hardly any job
    waits."""
    seconds(generated(20, 1, 4.0), "gavel(compatible=yes)")  # what is loaded once is loaded
    rows: dict[str, list[str]] = {"public simulator": [f"{PUBLIC[jobs]:.1f}" for jobs in PUBLIC]}
    for jobs, public in PUBLIC.items():
        trace = generated(jobs, 1, jobs / 4.8)
        began = time.process_time()
        bare(trace)
        rows.setdefault("bare loop: first come, first served", []).append(
            f"{time.process_time() - began:.3f}"
        )
        for recipe in ("gavel", "gavel(compatible=yes)"):
            took, alone = measured(trace, recipe)
            rows.setdefault(f"`{recipe}`", []).append(f"{took:.2f} ({public / took:.1f}x)")
            rows.setdefault(f"its kernel and engine alone, `{recipe}`", []).append(f"{alone:.2f}")
    idle = seconds(generated(5036, 36, 12_200.0), "gavel")
    rows["public simulator, hardly any job waits"] = ["", IDLE]
    rows["`gavel`, hardly any job waits"] = ["", f"{idle:.2f}"]
    yield "| CPU seconds | " + " | ".join(f"{jobs:,} jobs" for jobs in PUBLIC) + " |"
    yield "|---|---:|---:|"
    for name, cells in rows.items():
        yield f"| {name} | {' | '.join(cells)} |"


# ---------------------------------------------------------------------- the page

TABLES = {"figures": figures, "ways": ways, "pairs": pairs, "speed": speed}
SAME_ANYWHERE = [each[:3] for each in FIGURES if each[2] != "objective=ftf"]
"""The figures' rows that are the same on every type of processor."""


def ends(trace: str, cluster: str, how: str) -> list[float]:
    """When each job ends under `compatible`, seconds, in the trace's order."""
    run = play(trace, cluster, f"gavel({how},compatible=yes)")
    return [round(float(at), 3) for at in run.jobs.finish]


def write_page(names: list[str]) -> None:
    """Make these tables of the page anew, and the completion times with the first."""
    for name in names:
        rows = "\n".join(TABLES[name]())
        told = f"{rows}\n\nMade by {made()}; {machine()}."
        PAGE.write_text(replaced(PAGE.read_text(), name, told))
        print(f"{name}: done", flush=True)
    if "figures" in names:
        times = {" ".join(each): ends(*each) for each in SAME_ANYWHERE}
        lines = (f"{json.dumps(name)}: {json.dumps(each)}" for name, each in times.items())
        JOBS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def replaced(text: str, name: str, inside: str) -> str:
    """The page with another part `name`."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
    changed, count = pattern.subn(lambda found: f"{found[1]}{inside}{found[2]}", text)
    if count != 1:
        raise ValueError(f"the page has {count} parts {name!r}")
    return changed


def part(name: str) -> list[str]:
    """The lines of a part of the page."""
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", PAGE.read_text(), re.DOTALL)
    return found[1].splitlines() if found else []


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("ways", "pairs", "speed"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--page", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    args = parser.parse_args()
    if args.page is not None:
        write_page(args.page or list(TABLES))
        return
    name = next((name for name in ("ways", "pairs", "speed") if getattr(args, name)), "figures")
    for row in TABLES[name]():
        print(row, flush=True)


if __name__ == "__main__":
    main()
