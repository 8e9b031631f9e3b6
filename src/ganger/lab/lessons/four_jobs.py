"""The lecture's four jobs on two GPUs under every rule of its chapter 2, for any durations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, permutations, product
from typing import Any, Final, NamedTuple

from ganger.core.protocols import Policy
from ganger.core.spec import JobSpec
from ganger.core.units import SECOND
from ganger.lab.lessons.parts import (
    Cell,
    Chart,
    Lesson,
    TableOf,
    jct_of,
    makespan_of,
    one_node,
    trace_of,
)
from ganger.lab.result import Run
from ganger.lab.simulation import run_one
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import By, last_come, longest
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.workloads.trace import Trace

DURATIONS, ARRIVALS, PRIORITIES = (30, 10, 25, 40), (0, 0, 1, 4), (3, 1, 2, 4)
"""The lecture's; arrivals and priorities are always these."""


class Rule(NamedTuple):
    """A policy by its name in the lecture; `printed` is what the lecture says of it, `words` how it
    decides, `recipe` where to read on."""

    label: str
    policy: str | Policy
    printed: str
    words: str
    recipe: str


def _first(name: str, *formulas: Any) -> Policy:
    return QueuePolicy(name, By(formulas), Walk.SKIP, preempt=True)


RULES: Final = (
    Rule("FIFO", "fifo", "35 / 70, correct", "First come, first served.", "fifo"),
    Rule("SJF, non-preemptive", "sjf", "-",
         "When a GPU is free, the shortest job that waits starts, and runs to its end.", "sjf"),
    Rule("SJF/SRTF, preemptive", "srtf", "34 / 66, correct",
         "At every arrival and finish, the two jobs with the least left to do run.", "srtf"),
    Rule("Priority, preemptive, 1 = highest (as labelled)", "priority(highest=smallest)",
         "not printed", "The two smallest priority numbers run; others are stopped for them.",
         "priority"),
    Rule("Priority, preemptive, 4 = highest", "priority(highest=largest)", "printed as Priority",
         "The two largest priority numbers run; others are stopped for them.", "priority"),
    Rule("Priority, non-preemptive, 1 = highest", "priority(highest=smallest, preempt=no)", "-",
         "The smallest priority number starts next, and runs to its end.", "priority"),
    Rule("Priority, non-preemptive, 4 = highest", "priority(highest=largest, preempt=no)", "-",
         "The largest priority number starts next, and runs to its end.", "priority"),
    Rule("Longest first, preemptive", _first("longest-first", longest), "same as printed Priority",
         "The two longest jobs, as declared, run; others are stopped for them.", "srtf"),
    Rule("LIFO, preemptive", _first("lifo", last_come), "-",
         "The two that came last run; others are stopped for them.", "fifo"),
    Rule("LAS, unit quanta", "las(attained=time, quantum=1s)", "-",
         "Least attained service: every second, the two that have run least so far run. It needs no"
         " durations.", "las"),
    Rule("MLFQ, 2 queues, threshold 10", "mlfq(thresholds=10s)", "-",
         "A job that has run for 10 s goes to the second queue, which is served when the first is"
         " empty.", "mlfq"),
)  # fmt: skip


def four_jobs_trace(durations: Sequence[int] = DURATIONS) -> Trace:
    """The jobs; durations in seconds."""
    specs = [
        JobSpec(name=f"job {i}", submitted=at * SECOND, priority=priority)
        for i, (at, priority) in enumerate(zip(ARRIVALS, PRIORITIES, strict=True))
    ]
    return trace_of(specs, durations, SECOND)


def optimum_preemptive(durations: Sequence[int] = DURATIONS) -> float:
    """The least average JCT over all schedules that may switch at every whole unit of time.

    All choices until the last arrival, then shortest remaining first, which is optimal from
    there (McNaughton, 1959: nothing more arrives and machines are alike).
    """

    @cache
    def best(now: int, left: tuple[int, ...]) -> int:
        """The least sum of ends from now on."""
        if now == max(ARRIVALS):
            rest = sorted(r for r in left if r)
            return sum(now + sum(rest[i::-2]) for i in range(len(rest)))
        here = [i for i, r in enumerate(left) if r and ARRIVALS[i] <= now]
        found = []
        for run in combinations(here, min(2, len(here))):
            after = tuple(r - (i in run) for i, r in enumerate(left))
            ended = sum(now + 1 for i in run if not after[i])
            found.append(ended + best(now + 1, after))
        return min(found)

    return (best(0, tuple(durations)) - sum(ARRIVALS)) / len(durations)


def non_preemptive(durations: Sequence[int] = DURATIONS) -> Iterator[tuple[float, int]]:
    """(average JCT, makespan) of every sequence and assignment to two machines."""
    for order in permutations(range(4)):
        for machines in product(range(2), repeat=4):
            free, total, last = [0, 0], 0, 0
            for job, machine in zip(order, machines, strict=True):
                end = max(free[machine], ARRIVALS[job]) + durations[job]
                free[machine], total, last = end, total + end - ARRIVALS[job], max(last, end)
            yield total / 4, last


def four_jobs(durations: Sequence[int] = DURATIONS) -> Lesson:
    """The queueing disciplines on four jobs and two GPUs (chapter 2)."""
    trace, runs, rows = four_jobs_trace(durations), dict[str, Run](), list[tuple[Cell, ...]]()
    own = tuple(durations) != DURATIONS
    for rule in RULES:
        run = runs[rule.label] = run_one(trace, one_node(2), rule.policy)
        jct = jct_of(run)
        times = ", ".join(f"{time:g}" for time in jct)
        last = f"ganger recipe {rule.recipe}" if own else rule.printed
        rows.append((rule.label, times, sum(jct) / 4, makespan_of(run), last))
    schedules = list(non_preemptive(durations))
    average, alone = min(mean for mean, _ in schedules), min(last for _, last in schedules)
    ends = sorted({makespan for mean, makespan in schedules if mean == average})
    lone = max(at + time for at, time in zip(ARRIVALS, durations, strict=True))
    least = f">= {max(sum(durations) / 2, lone):g}"
    rows.append(("Optimum, preemptive", "-", optimum_preemptive(durations), least, "-"))
    rows.append(("Optimum, non-preemptive", "-", average, " or ".join(map(str, ends)), "-"))
    charts = [
        Chart(rule.label, runs[rule.label], f"{rule.words} Read: ganger recipe {rule.recipe}")
        for rule in RULES
    ]
    said = ", ".join(map(str, durations))
    columns = ("policy", "JCT of jobs 0-3", "average", "makespan", "read" if own else "lecture")
    return Lesson(
        "four-jobs",
        "Four jobs, two GPUs",
        [
            f"Durations {said}; arrivals 0, 0, 1, 4; priority numbers 3, 1, 2, 4.",
            TableOf("", columns, rows),
            *charts,
            (_on_others(rows) if own else _ON_THE_LECTURES)
            + f" The best makespan of any non-preemptive schedule is {alone}. Longest first goes by"
            " the length declared; decided at arrivals and finishes, longest remaining first"
            " makes the same schedule." * (not own),
            "Change the durations and look again: ganger lesson four-jobs --durations 30,10,5,60",
        ],
    )


_ON_THE_LECTURES: Final = (
    "The printed Priority figures (43.5 / 53) need 4 to be the highest number; the table"
    " labels 1 as highest, and that gives 34 / 66. 34 / 66 for SJF needs preemption:"
    " without it SJF is FIFO here. LAS loses to FIFO: these jobs have no heavy tail."
)


def _on_others(rows: Sequence[tuple[Cell, ...]]) -> str:
    """Which rules are best by average and by makespan, of durations that are not the lecture's."""
    ran = rows[: len(RULES)]
    found = []
    for column, what in ((2, "average JCT"), (3, "makespan")):
        best = min(float(row[column]) for row in ran)
        names = "; ".join(str(row[0]) for row in ran if row[column] == best)
        found.append(f"The least {what} of these, {best:g}, has: {names}.")
    return " ".join(found)
