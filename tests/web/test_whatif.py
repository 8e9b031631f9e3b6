"""The comparison of recipes: what is asked, what is simulated, what is recommended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, JobSpec, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import HOUR, MINUTE
from ganger.engines.testing.fake import Script
from ganger.service.durable.sandbox import past_of
from ganger.web.background import compare
from ganger.web.background.comparing import Asked, Compared, Row
from ganger.web.pages.whatif import asked_in, sentence
from ganger.workloads.readers.ganger_trace_writer import lines_of
from ganger.workloads.trace import Trace
from service.desk import Desk, header

CLUSTER = ClusterSpec((NodeSpec(gpus=1, gpu_type="V100", count=2),)).check()


def trace(jobs: int, wide: int = -1) -> Trace:
    """Bursts of three jobs each day that take two hours, half an hour and half an hour, of one GPU;
    two can run at once. The job `wide` asks for three GPUs."""
    lasts = [120, 30, 30]
    specs = [
        JobSpec(
            name=str(at),
            submitted=(at // 3) * 24 * HOUR,
            shape=Shape((Role(size=3 if at == wide else 1),)),
        )
        for at in range(jobs)
    ]
    takes = np.array([lasts[at % 3] * MINUTE for at in range(jobs)], np.int64)
    return Trace(declare(specs), takes)


def compared(recipes: list[str], nodes: int = 0, jobs: int = 300, **more: Any) -> Compared:
    stated: dict[str, Any] = {
        "traces": [lines_of(trace(jobs)).decode()], "recipe": "fifo", "knows": "truth",
        "cluster": msgspec.Raw(msgspec.json.encode(CLUSTER)), "kind": "V100", "objective": "jct",
        "recipes": recipes, "nodes": nodes, **more,
    }  # fmt: skip
    told = list[int]()
    found = compare.compare(Asked(**stated), lambda **said: told.append(said["total"]))
    assert len(told) == 1 + told[-1]
    return found


def test_a_node_more_is_better_by_what_two_jobs_wait() -> None:
    """On two GPUs the third job waits half an hour: 120, 30 and 60 minutes in the mean make 70; on
    three 120, 30 and 30 make 60."""
    found = compared([], nodes=1)
    now, more = found.rows
    assert (now.name, now.jct / 60, now.wait / 60) == ("fifo, as now", 70.0, 10.0)
    assert (more.name, more.jct / 60, more.wait) == ("fifo", 60.0, 0.0)
    assert found.parts == 5
    assert more.ratio == pytest.approx(6 / 7)
    assert (found.pick, found.sure) == ("fifo", True)
    assert sentence(found) == (
        "Take fifo with 1 more node: mean JCT is 14 % less than now (between 14 and 14 %, 95 %)."
    )


def test_a_node_less_and_the_shortest_first() -> None:
    """On one GPU fifo makes 120, 150 and 180 minutes of a burst, and sjf 30, 60 and 180."""
    found = compared(["sjf"], nodes=-1)
    assert [(row.name, row.jct / 60) for row in found.rows] == [
        ("fifo, as now", 70.0),
        ("sjf", 90.0),
        ("fifo", 150.0),
    ]
    assert sentence(found) == "Nothing that was tried is better than fifo, as now."


def test_what_cannot_be_compared_is_said() -> None:
    with pytest.raises(BadInput, match="fewer than 2"):
        compared([], nodes=-2)
    with pytest.raises(BadInput, match="no node"):
        compared([], nodes=1, kind="H100")
    with pytest.raises(BadInput, match="no recipe"):
        compared(["/tmp/x.py:Y".replace("/", "").replace(":", "")])
    found = compared([], nodes=1, jobs=30)
    assert (found.parts, found.rows[1].low) == (1, None)
    assert "one part" in sentence(found)


def test_a_job_for_which_there_is_no_room_is_left_out_and_counted() -> None:
    """As after its node has gone: the others are compared as if it were not there."""
    wide = compared(["srtf"], traces=[lines_of(trace(301, wide=300)).decode()])
    assert wide.without == 1
    assert msgspec.structs.replace(wide, without=0) == compared(["srtf"])


def test_a_difference_that_is_not_sure_is_not_recommended() -> None:
    rows = [Row("fifo, as now", 10.0), Row("las", 9.0, ratio=0.9, low=0.7, high=1.1)]
    found = Compared(rows, 5, 100, "mean JCT", "las", sure=False)
    assert sentence(found).startswith("Keep what is: las is the best of those tried, 10 % less")
    assert "between -10 and 30 %" in sentence(found)
    for nodes, words in ((1, "las with 1 more node is"), (-2, "las with 2 fewer nodes is")):
        assert words in sentence(msgspec.structs.replace(found, nodes=nodes))


@pytest.mark.parametrize(("form", "recipes"), [
    ({"recipe": ["las", "srtf"]}, ["las", "srtf"]),
    ({"recipe": ["las"], "others": ["gavel(x=1,y=2), las ,drf"]}, ["las", "gavel(x=1,y=2)", "drf"]),
    ({"nodes": ["-3"], "kind": ["A100"]}, []),
])  # fmt: skip
def test_a_form_is_read(form: dict[str, list[str]], recipes: list[str]) -> None:
    found = asked_in(form)
    assert found["recipes"] == recipes
    assert found["days"] == 0
    assert asked_in({**form, "of": ["past"], "days": ["7"]})["days"] == 7


def test_the_queue_is_given_with_what_is_left_and_the_past_as_it_was(tmp_path: Path) -> None:
    """Job 1 has run for a part of its hour; 2 waits. Then both are over."""
    made = Desk(tmp_path, header(), lambda job, attempt: Script(runs=HOUR))
    for gpus in (4, 2):
        made.submit(gpus=gpus, estimate="1h")
    with pytest.raises(BadInput, match="no job finished"):
        past_of(made.daemon, 7, 100)
    queue = past_of(made.daemon, 0, 100)
    assert (queue.jobs, len(queue.traces), queue.recipe) == (2, 5, "fifo")
    spec = msgspec.json.decode(queue.cluster, type=ClusterSpec)
    parts, without = compare.some_of(queue.traces, spec)
    assert without == 0
    assert [part.declared.gpus[:2].tolist() for part in parts] == [[4, 2]] * 5
    assert len({part.duration[0] for part in parts}) == 5  # drawn anew each time
    assert past_of(made.daemon, 0, 1).jobs == 1
    while (made.daemon.kernel.jobs.phase[:2] != 7).any():
        made.daemon.once()
    made.submit(gpus=0)
    made.daemon.once()
    assert (past_of(made.daemon, 7, 100).jobs, past_of(made.daemon, 7, 100).without) == (2, 0)
    with pytest.raises(BadInput, match="none of these jobs asks for GPUs"):
        past_of(made.daemon, 0, 100)
    while made.daemon.kernel.jobs.phase[2] != 7:
        made.daemon.once()
    assert (past_of(made.daemon, 7, 100).jobs, past_of(made.daemon, 7, 100).without) == (2, 1)
    past, _ = compare.some_of(past_of(made.daemon, 7, 100).traces, spec)
    assert past[0].duration[:2].tolist() == [HOUR, HOUR]
