"""The lecture's pieces worked out for inputs of one's own, by the simulator and the solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.books.network import one_way, ring_all_reduce
from ganger.core.errors import BadInput
from ganger.core.spec import JobSpec
from ganger.core.units import HOUR, SECOND
from ganger.lab.figures import known, queueing_delays
from ganger.lab.lessons.parts import (
    Bars,
    Cell,
    Chart,
    Lesson,
    Lines,
    TableOf,
    gang_of,
    jct_of,
    makespan_of,
    one_node,
    trace_of,
)
from ganger.lab.result import Run
from ganger.lab.simulation import run_one
from ganger.recipes.registry import find, parse
from ganger.solve.division.programme import Shares, isolated, proportional, shares
from ganger.solve.division.shares import efficient, max_min, max_sum
from ganger.workloads.clusters import load_cluster
from ganger.workloads.synthetic import synthesize

Rates = Sequence[tuple[str, list[float]]]
CLUSTER_GPUS_MAX: Final = 256
_PROMISES: Final = 20
"""So many steps from no fairness to all of it."""


def _read(recipe: str) -> str:
    return (
        f"{find(recipe.partition('(')[0]).summary} Read: ganger recipe {recipe.partition('(')[0]}"
    )


# ---------------------------------------------------------------------- chapters 0, 2 and 3


def queue(gpus: int, jobs: Sequence[tuple[str, int, float, float]], recipe: str) -> Lesson:
    """Gangs (name, GPUs, hours, hour of arrival) on one node under a recipe."""
    for name, size, _, _ in jobs:
        if size > gpus:
            raise BadInput(f"{name} asks for {size} of {gpus} GPUs", mend="give the node more")
    order = sorted(jobs, key=lambda job: job[3])
    specs = [
        JobSpec(name=name, shape=gang_of(size), submitted=round(at * HOUR))
        for name, size, _, at in order
    ]
    ran = "las(attained=time)" if recipe == "las" else recipe
    run = run_one(trace_of(specs, [hours for *_, hours, _ in order], HOUR), one_node(gpus), ran)
    table = run.jobs  # whose times begin at 0, not at the first arrival
    rows: list[tuple[Cell, ...]] = []
    for i, (name, size, hours, at) in enumerate(order):
        starts, ends = (float(column[i]) / 3600 for column in (table.first_start, table.finish))
        rows.append((name, float(size), hours, at, starts, starts - at, ends, ends - at))
    columns = ("job", "GPUs", "runs", "comes", "starts", "waits", "ends", "JCT")
    return Lesson(
        "queue",
        f"{len(order)} jobs, {gpus} GPUs, {recipe}",
        [
            TableOf("times in hours", columns, rows),
            TableOf("all jobs", ("figure", "value"), _figures(run)),
            Bars("Wait for the first start, hours", "h", [(str(r[0]), float(r[5])) for r in rows]),
            Chart(ran, run, _read(ran)),
        ],
    )


def _figures(run: Run) -> list[tuple[Cell, ...]]:
    metrics = run.metrics
    return [
        ("mean JCT, hours", metrics["jct_mean_seconds"] / 3600),
        ("mean wait, hours", metrics["queueing_delay_mean_seconds"] / 3600),
        ("makespan, hours", metrics["makespan_seconds"] / 3600),
        ("GPU time held, %", 100 * metrics["gpu_allocated_ratio"]),
        ("preemptions", metrics["preemptions"]),
    ]


def policies(gpus: int, jobs: Sequence[tuple[int, int, int]], recipes: Sequence[str]) -> Lesson:
    """Jobs of one GPU (seconds, arrival, priority) on one node under each recipe."""
    order = sorted(jobs, key=lambda job: job[1])
    specs = [
        JobSpec(name=f"job {i}", submitted=at * SECOND, priority=priority)
        for i, (_, at, priority) in enumerate(order)
    ]
    trace = trace_of(specs, [seconds for seconds, _, _ in order], SECOND)
    for recipe in recipes:
        parse(recipe)  # a registered recipe: no file is read
    runs = {recipe: run_one(trace, one_node(gpus), recipe) for recipe in recipes}
    rows: list[tuple[Cell, ...]] = []
    for recipe, run in runs.items():
        jct = jct_of(run)
        times = ", ".join(f"{time:g}" for time in jct)
        preempted = run.metrics["preemptions"]
        rows.append((recipe, times, sum(jct) / len(jct), makespan_of(run), preempted))
    return Lesson(
        "policies",
        f"{len(order)} jobs on {gpus} GPUs",
        [
            TableOf(
                "seconds", ("recipe", "JCT of each", "mean JCT", "makespan", "preempted"), rows
            ),
            *(
                Bars(title, "s", bars := [(str(r[0]), float(r[at])) for r in rows], _least(bars))
                for at, title in ((2, "Mean JCT, seconds"), (3, "Makespan, seconds"))
            ),
            *(Chart(recipe, run, _read(recipe)) for recipe, run in runs.items()),
        ],
    )


def _least(bars: Sequence[tuple[str, float]]) -> tuple[str, ...]:
    lowest = min(value for _, value in bars)
    return tuple(label for label, value in bars if value == lowest)


def queueing_delay(kind: str, jobs: int, seed: int, cluster: str, recipe: str) -> Lesson:
    """Waits of made-up jobs by the GPUs that they ask for."""
    machines = load_cluster(cluster)
    gpus = sum(node.gpus * node.count for node in machines.nodes)
    if not 1 <= gpus <= CLUSTER_GPUS_MAX:
        raise BadInput(f"{cluster} has {gpus} GPUs", mend=f"give 1 to {CLUSTER_GPUS_MAX}")
    parse(recipe)  # a registered recipe: no file is read
    run = run_one(synthesize(kind, jobs, seed, gpus=gpus), machines, recipe)
    waits, asked = queueing_delays(run.jobs) / 3600, run.jobs.gpus
    rows: list[tuple[Cell, ...]] = []
    for size in np.unique(asked).tolist():
        mine = known(waits[asked == size])
        if mine.size:
            median, ninth = np.percentile(mine, [50, 90]).tolist()
            rows.append(
                (f"{size}", float(mine.size), float(mine.mean()), median, ninth, float(mine.max()))
            )
    columns = ("GPUs asked for", "jobs", "mean", "median", "90th percentile", "longest")
    return Lesson(
        "queueing-delay",
        f"{jobs} {kind} jobs (seed {seed}) on {cluster}, {recipe}",
        [
            TableOf("hours of waiting", columns, rows),
            Bars(
                "Mean wait by GPUs asked for, hours",
                "h",
                [(f"{r[0]} GPU{'s' * (r[0] != '1')}", float(r[2])) for r in rows],
            ),
            _read(recipe),
        ],
    )


# ---------------------------------------------------------------------- chapters 4 and 5


def _matrix(rates: Rates, types: Sequence[str]) -> NDArray[np.float64]:
    for name, row in rates:
        if len(row) != len(types):
            raise BadInput(
                f"{name} has {len(row)} numbers for {len(types)} types",
                where="rates",
                mend="give one for each type",
            )
        if not max(row) > 0:
            raise BadInput(f"{name} runs nowhere", where="rates", mend="give a number above 0")
    return np.array([row for _, row in rates], np.float64)


def sensitivity(types: Sequence[str], rates: Rates) -> Lesson:
    """Speedups over the first type, and the best assignment of one GPU of each type."""
    matrix = _matrix(rates, types)
    if not (matrix[:, 0] > 0).all():
        raise BadInput(f"a job does not run on {types[0]}", where="rates", mend="give it a rate")
    speedup = matrix / matrix[:, :1]
    names = [name for name, _ in rates]
    rows: list[tuple[Cell, ...]] = [
        (name, *map(float, row), float(up[-1]))
        for name, row, up in zip(names, matrix, speedup, strict=True)
    ]
    posed = shares(matrix, np.ones(len(names)), np.ones(len(types)))
    best = max_sum(posed, posed.rate)
    return Lesson(
        "sensitivity",
        f"{len(names)} jobs on {', '.join(types)}",
        [
            TableOf("iterations/s", ("job", *types, f"{types[0]} to {types[-1]}"), rows),
            Bars(
                f"Speedup over {types[0]}",
                "x",
                [
                    (f"{name}, {kind}", float(speedup[i, j]))
                    for i, name in enumerate(names)
                    for j, kind in enumerate(types)
                ],
            ),
            _division("one GPU of each type, divided for the largest total", names, types, best.x),
            TableOf("", ("figure", "value"), [("largest total, iterations/s", best.value)]),
        ],
    )


def _division(
    title: str, names: Sequence[str], types: Sequence[str], x: NDArray[np.float64]
) -> TableOf:
    """X as a table, without what rounding left."""
    rows: list[tuple[Cell, ...]] = [
        (name, *(round(float(part), 9) for part in row)) for name, row in zip(names, x, strict=True)
    ]
    return TableOf(title, ("X: part of its time", *types), rows)


def gavel(types: Sequence[tuple[int, str]], rates: Rates, yours: Sequence[str]) -> Lesson:
    """One's own assignment beside that by turns, the fairest and the best."""
    kinds, counts = [kind for _, kind in types], [count for count, _ in types]
    names, matrix = [name for name, _ in rates], _matrix(rates, kinds)
    own = _assigned(yours, names, kinds, counts)
    posed = shares(matrix, np.ones(len(names)), np.array(counts, np.float64))
    even = proportional(posed)
    best, fair = max_sum(posed, posed.rate), max_min(posed, even)
    ways = {
        "yours": own,
        "by turns": _by_turns(len(names), counts),
        "fairest (largest least ratio)": fair.x,
        "best (largest total)": best.x,
    }
    rows: list[tuple[Cell, ...]] = []
    for label, x in ways.items():
        eff = posed.effective(x)
        least = float((eff / even).min())
        total = float(eff.sum())
        rows.append((label, total, 100 * total / best.value, least, *map(float, eff)))
    bars = [(str(row[0]), float(row[1])) for row in rows]
    return Lesson(
        "gavel",
        ", ".join(f"{count} {kind}" for count, kind in types),
        [
            TableOf("samples/s", ("assignment", "total", "% of best", "least ratio", *names), rows),
            Bars("Total throughput, samples/s", "/s", bars, (bars[-1][0],)),
            _division("largest total", names, kinds, best.x),
            _division("largest least ratio", names, kinds, fair.x),
            "Recipes that decide so: ganger recipe gavel; blind to types: ganger recipe"
            " heterogeneity-agnostic.",
        ],
    )


def _assigned(
    yours: Sequence[str], names: Sequence[str], kinds: Sequence[str], counts: Sequence[int]
) -> NDArray[np.float64]:
    """One's own assignment as X. Raises BadInput."""
    if len(yours) != len(names):
        raise BadInput(
            f"{len(yours)} types for {len(names)} jobs",
            where="yours",
            mend="name one for each job, or none",
        )
    x = np.zeros((len(names), len(kinds)))
    for i, kind in enumerate(yours):
        if kind == "none":
            continue
        if kind not in kinds:
            raise BadInput(f"there is no {kind}", where="yours", mend=f"use {', '.join(kinds)}")
        x[i, kinds.index(kind)] = 1.0
    for j, count in enumerate(counts):
        if x[:, j].sum() > count:
            raise BadInput(
                f"{x[:, j].sum():g} jobs on {count} {kinds[j]}",
                where="yours",
                mend="each job has a GPU of its own",
            )
    return x


def _by_turns(jobs: int, counts: Sequence[int]) -> NDArray[np.float64]:
    """A GPU of the next type for each job in turn, while there are any."""
    x, free, at = np.zeros((jobs, len(counts))), list(counts), 0
    for i in range(min(jobs, sum(counts))):
        while not free[at % len(counts)]:
            at += 1
        x[i, at % len(counts)] = 1.0
        free[at % len(counts)] -= 1
        at += 1
    return x


# ---------------------------------------------------------------------- chapters 6 and 7


def step_time(
    compute: float, gradients: float, workers: int, links: Sequence[tuple[str, float]]
) -> Lesson:
    """Steps of `compute` ms that exchange `gradients` GB over each link."""
    rows: list[tuple[Cell, ...]] = []
    fastest = max(bandwidth for _, bandwidth in links)
    least = compute + 1000 * float(one_way(gradients, fastest))
    for name, bandwidth in links:
        once = 1000 * float(one_way(gradients, bandwidth))
        ring = 1000 * float(ring_all_reduce(gradients, bandwidth, workers))
        step = compute + once
        slower = 100 * (step / least - 1) if least > 0 else 0.0
        rows.append((name, bandwidth, once, step, slower, ring, compute + ring))
    columns = ("link", "GB/s", "once", "step", "slower, %", "ring", "step by ring")
    return Lesson(
        "step-time",
        f"{compute:g} ms of computing, {gradients:g} GB of gradients, {workers} workers",
        [
            TableOf("ms", columns, rows),
            Bars(
                "A step, gradients sent once, ms",
                "ms",
                [(str(row[0]), float(row[3])) for row in rows],
            ),
            Bars(
                f"A step, ring of {workers}, ms",
                "ms",
                [(str(row[0]), float(row[6])) for row in rows],
            ),
            "Recipes that keep gangs close: ganger recipe placement, ganger recipe philly.",
        ],
    )


def _posed(use: str, matrix: NDArray[np.float64], counts: Sequence[int]) -> Shares:
    scale = 2.0 if use == "gangs of 2" else 1.0
    limit = np.inf if use == "any mix" else 1.0
    capacity = np.array(counts, np.float64)
    return shares(matrix * scale, np.full(len(matrix), scale), capacity, limit)


def trade_off(weight: float, use: str, types: Sequence[tuple[int, str]], rates: Rates) -> Lesson:
    """The largest total under promises from none to the fairest, and under this one."""
    names = [name for name, _ in rates]
    posed = _posed(use, _matrix(rates, [kind for _, kind in types]), [n for n, _ in types])
    equal = isolated(posed)
    ratio = max_min(posed, equal).value
    largest = max_sum(posed, posed.rate).value
    rows: list[tuple[Cell, ...]] = []
    for promise in sorted({weight, *(step / _PROMISES for step in range(_PROMISES + 1))}):
        eff = posed.effective(efficient(posed, promise * ratio * equal, posed.rate).x)
        total, least = float(eff.sum()), float((eff / equal).min())
        rows.append((promise, total, 100 * (1 - total / largest), least, *map(float, eff)))
    mine = next(row for row in rows if row[0] == weight)
    points = {
        "largest total": [(float(row[0]), float(row[1])) for row in rows],
        **{
            f"{name}": [(float(row[0]), float(row[4 + i])) for row in rows]
            for i, name in enumerate(names)
        },
    }
    return Lesson(
        "trade-off",
        f"{', '.join(f'{n} {kind}' for n, kind in types)}; a job uses {use}",
        [
            f"At w = {weight:g} the largest total is {float(mine[1]):.6g} samples/s,"
            f" {float(mine[2]):.3g} % less than without any promise ({largest:.6g}); the job that"
            f" is worst off has {float(mine[3]):.4g} of an equal share. It can have at most"
            f" {ratio:.4g}.",
            Lines("Throughput over fairness, samples/s", "fairness w", "samples/s", points),
            TableOf("samples/s", ("w", "total", "cost, %", "least ratio", *names), rows),
        ],
    )
