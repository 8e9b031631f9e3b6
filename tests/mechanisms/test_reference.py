"""The columnar core does what the object reference does, job for job, on random traces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from ganger.core.spec import ClusterSpec, JobSpec
from ganger.core.state.jobs import declare
from ganger.core.units import SECOND
from ganger.workloads.trace import Trace
from reference import Rule
from soaking import many
from worlds import cluster, gpus, play

PAIRS = {
    "fifo": Rule(reference.first_come, strict=True),
    "fifo(walk=skip)": Rule(reference.first_come),
    "sjf": Rule(reference.shortest, strict=True),
    "sjf(walk=skip)": Rule(reference.shortest),
    "srtf": Rule(reference.shortest_remaining, preempt=True),
    "srtf(walk=strict)": Rule(reference.shortest_remaining, preempt=True, strict=True),
    "srsf": Rule(reference.smallest_remaining_service, preempt=True),
    "srsf(walk=strict)": Rule(reference.smallest_remaining_service, preempt=True, strict=True),
    "priority": Rule(reference.highest_priority, preempt=True),
    "priority(walk=strict)": Rule(reference.highest_priority, preempt=True, strict=True),
    "priority(preempt=no)": Rule(reference.highest_priority),
    "las(quantum=3s)": reference.las(3 * SECOND),
    "las(quantum=7s)": reference.las(7 * SECOND),
    "tiresias(thresholds=4s;9s,attained=time,index=arrival,consolidate=no)": reference.levels(
        4 * SECOND, 9 * SECOND
    ),
    "tiresias(thresholds=6s;15s;40s,index=started,consolidate=no)": reference.tiresias(
        6 * SECOND, 15 * SECOND, 40 * SECOND
    ),
}
"""A recipe (whole seconds, so that ties abound), and the rule that it must be."""

TOTAL = 6
sizes = st.sampled_from([1, 1, 1, 2, 2, 3, 4, 5, 6])
row = st.tuples(st.integers(0, 12), sizes, st.integers(0, 15), st.integers(0, 3))
traces = st.one_of(
    st.lists(row, min_size=1, max_size=14),
    st.builds(lambda one, times: [one] * times, row, st.integers(2, 9)),
    st.lists(st.tuples(st.integers(0, 60), sizes, st.integers(0, 30), st.just(0)), max_size=40),
)
layouts = st.sampled_from([cluster(1, TOTAL), cluster(TOTAL, 1)])


def compare(recipe: str, rows: list[tuple[int, int, int, int]], on: ClusterSpec) -> None:
    """Play `rows` (submitted, GPUs, duration, priority; seconds) twice."""
    rows = sorted(rows, key=lambda row: row[0])
    jobs = [
        reference.Job(i, at * SECOND, size, lasts * SECOND, priority)
        for i, (at, size, lasts, priority) in enumerate(rows)
    ]
    reference.Cluster(TOTAL, PAIRS[recipe]).run(jobs)
    specs = [
        JobSpec(
            name=f"job-{job.id}",
            submitted=job.submitted,
            shape=gpus(job.size),
            priority=job.priority,
        )
        for job in jobs
    ]
    durations = np.array([job.duration for job in jobs], np.int64)
    core = play(recipe, Trace(declare(specs), durations), on).jobs
    got = [
        (int(core.first_start[i]), int(core.finished[i]), int(core.preemptions[i]))
        for i in range(core.n)
    ]
    assert got == [(job.first_start, job.finished, job.preemptions) for job in jobs]


@pytest.mark.parametrize("recipe", PAIRS)
@given(rows=traces, on=layouts)
def test_the_core_equals_the_reference(
    recipe: str, rows: list[tuple[int, int, int, int]], on: ClusterSpec
) -> None:
    compare(recipe, rows, on)


@pytest.mark.soak
@pytest.mark.parametrize("recipe", PAIRS)
@settings(max_examples=many(3000))
@given(rows=traces, on=layouts)
def test_the_core_equals_the_reference_for_long(
    recipe: str, rows: list[tuple[int, int, int, int]], on: ClusterSpec
) -> None:
    compare(recipe, rows, on)


def test_the_reference_itself_gets_the_lectures_four_jobs_right() -> None:
    for rule, jct in (
        (Rule(reference.first_come, strict=True), [30, 10, 34, 66]),
        (Rule(reference.shortest_remaining, preempt=True), [39, 10, 25, 62]),
        (Rule(reference.highest_priority, preempt=True), [30, 53, 51, 40]),
        (reference.las(1), [47, 19, 41, 54]),
        (reference.levels(10), [40, 10, 34, 61]),
    ):
        rows = [(0, 30, 3), (0, 10, 1), (1, 25, 2), (4, 40, 4)]
        jobs = [reference.Job(i, at, 1, lasts, rank) for i, (at, lasts, rank) in enumerate(rows)]
        reference.Cluster(2, rule).run(jobs)
        assert [job.finished - job.submitted for job in jobs] == jct
