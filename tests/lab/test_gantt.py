"""The chart in characters, letter by letter."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ganger.core.errors import BadInput
from ganger.core.spec import Needs, Role, Shape
from ganger.lab.report import gantt
from ganger.lab.report.series import parts
from ganger.lab.result import Segment
from ganger.lab.simulation import run_one
from worlds import cluster, job, trace_of

from .builders import by_hand, simulated

KEEPS = Shape((Role(needs=Needs(gpus=1, gpu_memory=1024)),))
BY_GPU = """\
0:0 000000000000000333333333333333333333
0:1 111112222222222222··················
    ┴─────────────────┴────────────────┴
    0 s            35.0 s         1m 10s
0 job-0   1 job-1   2 job-2   3 job-3
"""

BY_JOB = """\
0 job-0 00000000000000
1 job-1 11111
2 job-2      22222222222
3 job-3   ------------333333333333333333
        ┴───────────────┴──────────────┴
        0 s          35.0 s       1m 10s
"""


def trimmed(text: str) -> str:
    """Without the blanks at the ends of lines."""
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def test_by_gpu() -> None:
    assert gantt.plain(by_hand(), width=40) == BY_GPU


def test_by_job_shows_waits() -> None:
    run = by_hand()
    run.jobs.arrival[2] = 10.0
    assert trimmed(gantt.plain(run, width=40, by="job")) == BY_JOB


def test_colours_repeat_what_symbols_say() -> None:
    assert {str(span.style) for span in gantt.render(by_hand()).spans if "on" in str(span.style)}


def test_a_short_job_shows_where_nothing_else_is() -> None:
    run = by_hand()
    run.segments = [Segment(0, 0, 30, 0, 1), Segment(1, 40, 40.1, 0, 1), Segment(3, 60, 70, 0, 1)]
    top = gantt.plain(run, width=40).splitlines()[0]
    assert top.count("1") == 1
    assert set(top[4:]) == {"0", "1", "3", "·"}


@pytest.mark.parametrize("by", ["gpu", "job"])
def test_fits_and_cannot_steer_the_terminal(by: str) -> None:
    run = simulated("tiresias", jobs=60, nodes=2)
    run.jobs.name[0] = "\x1b[2J" + "long" * 50
    found = gantt.plain(run, width=80, by="gpu" if by == "gpu" else "job")
    assert max(map(len, found.splitlines())) <= 80
    assert "\x1b" not in found


def test_a_run_of_nothing_is_an_empty_chart() -> None:
    run = by_hand()
    run.segments = []
    assert gantt.plain(run, width=40).splitlines()[0] == "0:0 " + "·" * 36


def test_refusals() -> None:
    run = by_hand()
    with pytest.raises(BadInput, match="too narrow"):
        gantt.render(run, width=10)
    run.segments = None
    with pytest.raises(BadInput, match="no record"):
        gantt.render(run)


def test_a_suspended_job_is_drawn_only_while_it_computes() -> None:
    """Two jobs on one GPU take turns of 10 s: their segments never overlap, and add up to the work
    of both."""
    works = [job(name, 0, lasts, shape=KEEPS) for name, lasts in (("one", 25), ("two", 20))]
    run = run_one(trace_of(works), cluster(1, 1), "gandiva(quantum=10s)", record=True)
    assert run.segments is not None
    turns = sorted((s.start_seconds, s.end_seconds, s.job) for s in run.segments)
    assert [job for _, _, job in turns] == [0, 1, 0, 1, 0]
    assert all(end <= start for (_, end, _), (start, _, _) in pairwise(turns))
    assert sum(end - start for start, end, _ in turns) == 45


def test_jobs_that_share_a_gpu_have_parts_of_its_height() -> None:
    """The third comes when the first is gone, and has its part; the fourth is on its own."""
    stays = [
        (0, 0.0, 10.0, 0, 2),
        (1, 5.0, 20.0, 1, 1),
        (2, 10.0, 15.0, 0, 2),
        (3, 20.0, 30.0, 0, 2),
    ]
    assert parts(stays) == [(0, 2), (1, 2), (0, 2), ()]
    assert parts([(0, 0.0, 10.0, 0, 2), (1, 0.0, 10.0, 2, 1)]) == [(), ()], "beside each other"
