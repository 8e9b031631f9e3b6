"""Tiresias-L and the feedback queue beside the rule of Tiresias' public simulator."""

from __future__ import annotations

import csv
import os
import random
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import mean

import pytest

from worlds import cluster, job, play

LIMITS = (3250, 7200, 18000)


@dataclass(eq=False)
class Waiter:
    """One job, times in seconds."""

    submitted: float
    gpus: int
    left: float
    ran: float = 0.0
    level: int = 0
    ended: float = 0.0


@dataclass
class Public:
    """Tiresias-L by counting GPUs: lists of jobs, of which those that run stand before the others.

    After arrivals and demotions, which go to the end of their lists, the lists are walked in order
    and whoever fits into what is left runs."""

    gpus: int
    by_time: bool = False
    lists: list[list[Waiter]] = field(default_factory=lambda: [[] for _ in range(len(LIMITS) + 1)])
    running: list[Waiter] = field(default_factory=list)

    def play(self, jobs: list[Waiter]) -> list[float]:
        """The completion time of every job."""
        come, now = sorted(jobs, key=lambda each: each.submitted), 0.0
        while come or self.running:
            then = min(
                [each.submitted for each in come[:1]]
                + [now + min(each.left, self._until_demoted(each)) for each in self.running]
            )
            for each in self.running:
                each.ran, each.left = each.ran + then - now, each.left - (then - now)
            now = then
            for each in [each for each in self.running if not each.left]:
                each.ended = now
                self.lists[each.level].remove(each)
            while come and come[0].submitted == now:
                self.lists[0].append(come.pop(0))
            for each in [each for each in jobs if each in self.running and each.left]:
                if not self._until_demoted(each):
                    self.lists[each.level].remove(each)
                    each.level += 1
                    self.lists[each.level].append(each)
            self._walk()
        return [each.ended - each.submitted for each in jobs]

    def _until_demoted(self, each: Waiter) -> float:
        if each.level == len(LIMITS):
            return inf
        return LIMITS[each.level] / (1 if self.by_time else each.gpus) - each.ran

    def _walk(self) -> None:
        free = self.gpus
        self.running = []
        for line in self.lists:
            for each in line:
                if each.gpus <= free:
                    free -= each.gpus
                    self.running.append(each)
        ids = {id(each) for each in self.running}
        for line in self.lists:
            line.sort(key=lambda each: id(each) not in ids)


def heavy_tail(between: float, jobs: int = 400) -> list[tuple[int, int, int]]:
    """Submission, GPUs and duration, seconds."""
    draw, at, made = random.Random(0), 0, []
    for _ in range(jobs):
        at += int(draw.expovariate(1 / between))
        lasts = max(30, int(draw.lognormvariate(7.3, 1.6)))
        made.append((at, draw.choice([1, 1, 1, 1, 2, 2, 4, 8]), lasts))
    return made


def both(
    rows: list[tuple[int, int, int]], gpus: int, recipe: str, *, by_time: bool = False
) -> tuple[list[float], list[float]]:
    """Completion times of the recipe, and of the public rule."""
    works = [job(f"j{i}", at, lasts, size=n) for i, (at, n, lasts) in enumerate(rows)]
    ours = play(recipe, works, cluster(1, gpus), validate=False).jct()
    return ours, Public(gpus, by_time).play([Waiter(at, n, lasts) for at, n, lasts in rows])


@pytest.mark.parametrize("between", [400, 250])
@pytest.mark.parametrize(
    ("recipe", "by_time"),
    [
        ("tiresias", False),
        ("tiresias(attained=time)", True),
        ("mlfq(thresholds=3250s;7200s;18000s)", True),
    ],
)
def test_job_by_job_as_the_public_simulator(recipe: str, by_time: bool, between: float) -> None:
    """400 jobs on 32 GPUs. One GPU is as good as another there, and evictions move nobody."""
    ours, theirs = both(heavy_tail(between), 32, recipe, by_time=by_time)
    same = sum(abs(one - other) < 1 for one, other in zip(ours, theirs, strict=True))
    assert mean(ours) == pytest.approx(mean(theirs), rel=0.01)
    assert same >= 0.8 * len(ours)


def test_by_first_start_jobs_evict_their_equals_and_wait_longer() -> None:
    ours, theirs = both(heavy_tail(250), 32, "tiresias(index=started)")
    assert mean(ours) > 1.1 * mean(theirs)


@pytest.mark.traces
@pytest.mark.skipif("GANGER_TRACES" not in os.environ, reason="GANGER_TRACES is not set")
def test_the_public_60_jobs() -> None:
    with (Path(os.environ["GANGER_TRACES"]) / "tiresias" / "60_job.csv").open() as file:
        rows = [
            (int(row["submit_time"]), int(row["num_gpu"]), int(row["duration"]))
            for row in csv.DictReader(file)
        ]
    for gpus in (8, 16, 32):
        ours, theirs = both(rows, gpus, "tiresias")
        assert ours == pytest.approx(theirs, abs=1)


def test_a_job_that_comes_back_waits_for_a_running_equal() -> None:
    """The pair falls to the second queue at 5 s, is evicted for newcomers at 6 and 20, and comes
    back when they have gone. `one` gives way as it falls, at 16; at 24 it runs, an equal."""
    works = [job("pair", 0, 60, size=2), job("one", 6, 30), job("quick", 6, 4), job("last", 20, 4)]
    for recipe, stops in (
        ("tiresias(thresholds=10s)", [16]),
        ("tiresias(thresholds=10s,index=started)", [16, 24]),
    ):
        run = play(recipe, works, cluster(1, 2))
        assert [at for at, said in run.actions if said == "stop one"] == stops, recipe
        assert [at for at, said in run.actions if said == "stop pair"][:2] == [6, 20]


def test_a_starved_job_goes_back_to_the_top_of_the_feedback_queue() -> None:
    """`old` ran 12 s, as long as it then waits while newcomers pass it."""
    works = [job("old", 0, 30), *(job(f"new {i}", 12 + 6 * i, 6) for i in range(8))]
    never = play("mlfq(thresholds=10s)", works, cluster(1, 1))
    after = play("mlfq(thresholds=10s,starvation=1)", works, cluster(1, 1))
    assert never.ended("old") == 12 + 8 * 6 + 18
    assert [at for at, said in after.actions if said.startswith("start old")][1] == 24
