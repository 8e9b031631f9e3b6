"""The worked examples of a scheduling lecture, run by this scheduler and solver, number by number.

A lesson is tables and Gantt charts with words between them. Where the lecture's own figure needs
a reading that it does not state, the lesson says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ganger.core.books.network import one_way, ring_all_reduce
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, JobSpec, NodeSpec
from ganger.core.units import HOUR, SECOND
from ganger.lab.lessons.parts import (
    Cell,
    Chart,
    Lesson,
    TableOf,
    gang_of,
    one_node,
    trace_of,
)
from ganger.lab.result import Run
from ganger.lab.simulating.setup import Setup
from ganger.lab.simulation import run_one
from ganger.solve.division.programme import Shares, isolated, proportional, shares
from ganger.solve.division.shares import max_min, max_sum

# ---------------------------------------------------------------------- assignment

ASSIGNMENT = shares(
    np.array([[10.0, 30, 80], [50, 65, 70], [20, 55, 60]]), np.ones(3), np.array([2.0, 1, 1])
)
TYPES = ("K80", "P100", "V100")


def assignments() -> list[tuple[int, tuple[int, ...]]]:
    """All feasible ways to give each job one GPU: (total throughput, type of each), best first."""
    rate, counts = ASSIGNMENT.rate, ASSIGNMENT.capacity
    return sorted(
        (
            (int(sum(rate[i, kind] for i, kind in enumerate(kinds))), kinds)
            for kinds in product(range(3), repeat=3)
            if all(kinds.count(kind) <= counts[kind] for kind in range(3))
        ),
        reverse=True,
    )


def _mixed(counts: Sequence[int], types: Sequence[str]) -> ClusterSpec:
    return ClusterSpec(
        tuple(NodeSpec(gpus=n, gpu_type=name) for n, name in zip(counts, types, strict=True))
    )


def _profiles(names: Sequence[str], rate: NDArray[np.float64], types: Sequence[str]) -> Profiles:
    return Profiles(
        {
            name: Profile(by_type=dict(zip(types, row.tolist(), strict=True)))
            for name, row in zip(names, rate, strict=True)
        }
    )


def _three(recipe: str) -> Run:
    specs = [JobSpec(name=name, model=name) for name in "ABC"]
    setup = Setup(profiles=_profiles("ABC", ASSIGNMENT.rate, TYPES))
    return run_one(trace_of(specs, [9000] * 3, SECOND), _mixed((2, 1, 1), TYPES), recipe, setup)


def assignment() -> Lesson:
    """Which job on which GPU type (chapter 5): 135 by turns, 185 at best."""
    ranked = assignments()
    rows: list[tuple[Cell, ...]] = [
        (float(total), *(TYPES[kind] for kind in kinds)) for total, kinds in ranked[:3]
    ]
    turns = next(total for total, kinds in ranked if kinds == (0, 1, 2))
    best, even = max_sum(ASSIGNMENT, ASSIGNMENT.rate).value, proportional(ASSIGNMENT)
    fair = max_min(ASSIGNMENT, even)
    throughput = ASSIGNMENT.effective(fair.x)
    figures: list[tuple[Cell, ...]] = [
        ("by turns: A-K80, B-P100, C-V100", float(turns)),
        ("linear programme: largest sum", round(best, 6)),
        ("gain over turns, %", round(100 * (best / turns - 1), 2)),
        ("feasible assignments", float(len(ranked))),
        ("max-min ratio to equal time on all GPUs", round(fair.value, 5)),
        *(
            (f"  throughput of {job}", round(float(throughput[i]), 2))
            for i, job in enumerate("ABC")
        ),
        ("  total", round(float(throughput.sum()), 2)),
        ("warm-up, 1 V100 + 1 K80: best of the two", float(max(80 + 50, 70 + 10))),
        ("  the other way round", float(min(80 + 50, 70 + 10))),
    ]
    return Lesson(
        "assignment",
        "Three jobs, four GPUs of three types",
        [
            "2 K80, 1 P100, 1 V100. Samples/s on K80, P100, V100: A (10, 30, 80), B (50, 65, 70),"
            " C (20, 55, 60).",
            TableOf("best assignments", ("total", "A", "B", "C"), rows),
            TableOf("", ("figure", "value"), figures),
            Chart(
                "blind to types: heterogeneity-agnostic (135 samples/s at first)",
                _three("heterogeneity-agnostic"),
                "Takes free GPUs by turns, whatever their type."
                " Read: ganger recipe heterogeneity-agnostic",
            ),
            Chart(
                "gavel(objective=max-sum) (185 samples/s at first)",
                _three("gavel(objective=max-sum, every=10s)"),
                "Solves the linear programme, and gives every job its part of the time."
                " Read: ganger recipe gavel",
            ),
            "Each job has 9,000 samples to do. The linear programme needs no integers: its"
            " constraints are those of an assignment. The max-min value is unique, the allocation"
            " that reaches it need not be.",
        ],
    )


# ---------------------------------------------------------------------- the price of fairness

READINGS = (
    ("(i) gangs of 2, one type at a time", 2.0, 1.0),
    ("(ii) one GPU each", 1.0, 1.0),
    ("(iii) elastic over any mix, time-shared", 1.0, np.inf),
)
TWO = np.array([[80.0, 10.0], [70.0, 50.0]])


def reading(scale: float, limit: float) -> Shares:
    """2 V100 and 2 K80 for A (80, 10) and B (70, 50), under one reading of what a job may use."""
    return shares(TWO * scale, np.full(2, scale), np.array([2.0, 2.0]), limit)


def fairness_figures(scale: float, limit: float) -> dict[str, float]:
    """Largest total; max-min ratio to the equal share, the throughputs at it, their total."""
    read = reading(scale, limit)
    largest, ratio = max_sum(read, read.rate).value, max_min(read, isolated(read)).value
    a, b = (isolated(read) * ratio).tolist()
    return {"largest": largest, "ratio": ratio, "A": a, "B": b, "total": a + b}


def static_sharing() -> tuple[float, float]:
    """The best min-ratio when whole GPUs are held for good, and the total there."""
    equal = isolated(reading(1.0, np.inf))
    found = []
    for v100, k80 in product(range(3), repeat=2):
        eff = np.array([[v100, k80], [2 - v100, 2 - k80]]) * TWO
        ratio = float((eff.sum(axis=1) / equal).min())
        found.append((ratio, float(eff.sum())))
    return max(found)


def fairness() -> Lesson:
    """What max-min fairness costs (chapter 7): three readings, three answers."""
    rows: list[tuple[Cell, ...]] = []
    for label, scale, limit in READINGS:
        figures = fairness_figures(scale, limit)
        rows.append(
            (label, *(round(figures[k], 4) for k in ("largest", "ratio", "A", "B", "total")))
        )
    ratio, total = static_sharing()
    specs = [JobSpec(name=name, model=name, shape=gang_of(2)) for name in "AB"]
    setup = Setup(profiles=_profiles("AB", TWO * 2, ("V100", "K80")))
    run = run_one(
        trace_of(specs, [7200, 9600], SECOND),
        _mixed((2, 2), ("V100", "K80")),
        "gavel(every=10s)",
        setup,
    )
    columns = ("reading", "max total", "ratio", "A", "B", "total")
    return Lesson(
        "fairness",
        "Two jobs, 2 V100 and 2 K80",
        [
            "Samples/s per GPU on V100, K80: A (80, 10), B (70, 50). The ratio is throughput over"
            " that of an equal share; A, B and total stand where it is largest.",
            TableOf("", columns, rows),
            Chart(
                "reading (i) in rounds of 10 s: gavel",
                run,
                "Max-min fairness: the job that is worst off, against an equal share, is as well"
                " off as it can be. Read: ganger recipe gavel",
            ),
            f"Whole GPUs held for good: ratio {ratio:g}, total {total:g}. So the lecture's 210 and"
            " -19.2 % hold for reading (i) and for static sharing; when elastic jobs share time,"
            " fairness costs 2.5 % (253.58 of 260). At the 260 point the ratios are 1.778 and"
            " 0.833. In reading (ii) the row shows both at the same ratio; A could have 80 at no"
            " cost to B, and water-filling gives it that.",
        ],
    )


# ---------------------------------------------------------------------- placement, gangs


def placement() -> Lesson:
    """What a slow link costs (chapter 6)."""
    rows: list[tuple[Cell, ...]] = [
        (f"1 GB at {bandwidth} GB/s", round(1000 * one_way(1, bandwidth), 3))
        for bandwidth in (600, 25, 10)
    ]
    near, far = 0.2 + one_way(0.5, 600), 0.2 + one_way(0.5, 10)
    rows += [
        ("1e9 parameters in fp32 (4 GB) at 600 GB/s", round(1000 * one_way(4, 600), 2)),
        ("  at 10 GB/s", 1000 * one_way(4, 10)),
        ("500 ms + 5 ms: ten times slower links add", 5.0 * 10 - 5.0),
        ("  which is, in % of 505 ms", round(100 * 45 / 505, 1)),
        ("200 ms + 0.5 GB at 600 GB/s", round(1000 * near, 2)),
        ("  at 10 GB/s", 1000 * far),
        ("  slower by, in %", round(100 * (far / near - 1), 1)),
        ("ring all-reduce of 1 GB over 4 at 10 GB/s", round(1000 * ring_all_reduce(1, 10, 4), 3)),
    ]
    return Lesson(
        "placement",
        "How long moving gradients takes",
        [
            TableOf("", ("what", "ms (or %)"), rows),
            "Recipes that keep gangs close: ganger recipe placement, ganger recipe philly.",
            "The lecture's figures are size / bandwidth, one way. A ring all-reduce over n"
            " workers moves 2 (n - 1) / n times the size: 1.5 times for n = 4. GB/s are bytes:"
            " 10 GB/s is an 80 Gb/s link.",
        ],
    )


def by_turns(gpus: int, gangs: Sequence[int]) -> list[int]:
    """What each gang holds when pods are placed one by one, in turns, until no GPU is free."""
    held = [0] * len(gangs)
    while sum(held) < gpus and any(h < g for h, g in zip(held, gangs, strict=True)):
        for i, gang in enumerate(gangs):
            held[i] += held[i] < gang and sum(held) < gpus
    return held


def gang() -> Lesson:
    """All or nothing (chapter 3): two gangs of 4 on 6 GPUs."""
    specs = [JobSpec(name=name, shape=gang_of(4)) for name in ("first", "second")]
    run = run_one(trace_of(specs, [5, 5], HOUR), one_node(6), "fifo")
    held = by_turns(6, (4, 4))
    return Lesson(
        "gang",
        "Six GPUs, two jobs of four",
        [
            f"Pods placed one by one and by turns: the jobs hold {held[0]} and {held[1]} GPUs,"
            " none can begin, and none lets go: a deadlock. A gang starts whole or not at all:",
            Chart("fifo", run, "In order of arrival, whole gangs. Read: ganger recipe fifo"),
        ],
    )


# ---------------------------------------------------------------------- chapter 0

PEOPLE = (("Alice", 4, 6.0), ("Bob", 2, 1.0), ("Carol", 1, 0.5), ("Dave", 2, 3.0), ("Eve", 1, 0.25))


WAYS = {
    "fifo": "In order of arrival; the first that does not fit holds up all behind it.",
    "backfill": "As fifo, but a later job may go first where it delays no earlier one.",
}


def people(gpus: int, recipe: str) -> Run:
    """Alice to Eve at 0 on one node, one run of Carol's sweep."""
    specs = [JobSpec(name=name, shape=gang_of(size)) for name, size, _ in PEOPLE]
    return run_one(trace_of(specs, [hours for *_, hours in PEOPLE], HOUR), one_node(gpus), recipe)


def starts(run: Run) -> list[float]:
    """When each job began, hours."""
    return [float(at) / 3600 for at in run.jobs.first_start]


def chapter_0() -> Lesson:
    """Alice to Eve share a cluster: which jobs wait for which."""
    cases = [(gpus, recipe) for gpus in (8, 4) for recipe in ("fifo", "backfill")]
    runs = {case: people(*case) for case in cases}
    rows: list[tuple[Cell, ...]] = [
        (f"{gpus} GPUs, {recipe}", *starts(run)) for (gpus, recipe), run in runs.items()
    ]
    names = tuple(name for name, *_ in PEOPLE)
    return Lesson(
        "chapter-0",
        "Alice 4 GPUs x 6 h, Bob 2 x 1, Carol 1 x 0.5, Dave 2 x 3, Eve 1 x 0.25",
        [
            TableOf("start, hours", ("", *names), rows),
            *(
                Chart(f"{gpus} GPUs, {recipe}", run, f"{WAYS[recipe]} Read: ganger recipe {recipe}")
                for (gpus, recipe), run in runs.items()
            ),
            "The lecture says that Eve might wait 6 hours: not on 8 GPUs (1 h behind a strict"
            " queue, 0 h with backfill), but its widget has 4 GPUs.",
        ],
    )
