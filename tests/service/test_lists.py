"""Lists of jobs that are searched and sorted, the map of GPUs, and outputs by ranges."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganger.core.errors import BadInput
from ganger.core.units import HOUR
from ganger.engines.agent.attempt.launch import log_in
from ganger.engines.testing.fake import Script
from ganger.service.reports.gpu_map import gpu_map
from ganger.service.reports.rows import job_page
from service.desk import Desk, box, header
from service.test_extremes import Driver


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Two nodes of four GPUs, on which two jobs run and two wait."""
    begin = header("fifo", box(4, "left"), box(4, "right"))
    made = Desk(tmp_path, begin, script=lambda job, attempt: Script(runs=1000 * HOUR))
    made.submit(gpus=3, name="Alpha", tenant="vision")
    made.submit(gpus=4, name="beta", tenant="nlp")
    made.submit(gpus=2, name="gamma", tenant="nlp", priority=3)
    made.submit(gpus=4, name="delta", tenant="vision")
    made.steps(1)
    yield made
    made.close()


def listed(desk: Desk, **filters: str) -> list[int]:
    return [one.job for one in job_page(desk.daemon, filters, 0, 100).jobs]


def test_jobs_are_found_by_name_user_tenant_and_number(desk: Desk) -> None:
    assert listed(desk, find="ALPH") == [1]
    assert listed(desk, find="nlp") == [2, 3]
    assert listed(desk, find="ann") == listed(desk) == [1, 2, 3, 4]
    assert listed(desk, find="4") == [4]
    assert listed(desk, find="nothing like that") == []
    assert listed(desk, find="nlp", state="pending") == [3]


def test_jobs_are_sorted_by_what_is_asked(desk: Desk) -> None:
    assert listed(desk, sort="gpus") == [3, 1, 2, 4]
    assert listed(desk, sort="-gpus") == [2, 4, 1, 3]
    assert listed(desk, sort="-priority") == [3, 1, 2, 4]
    assert listed(desk, sort="tenant") == [2, 3, 1, 4]
    assert listed(desk, sort="-tenant") == [1, 4, 2, 3]
    with pytest.raises(BadInput, match="not a valid order"):
        listed(desk, sort="name")


def test_the_map_says_which_job_holds_which_gpu(desk: Desk) -> None:
    left, right = gpu_map(desk.daemon).nodes
    assert [(held.job, held.gpus, held.share) for held in left.held] == [(1, [0, 1, 2], 1.0)]
    assert [(held.job, held.gpus) for held in right.held] == [(2, [0, 1, 2, 3])]
    holders = gpu_map(desk.daemon).jobs
    assert [(one.job, one.name, one.tenant, one.state, one.gpus) for one in holders] == [
        (1, "Alpha", "vision", "RUNNING", 3),
        (2, "beta", "nlp", "RUNNING", 4),
    ]


def test_the_map_says_which_part_of_a_gpu_is_held(tmp_path: Path) -> None:
    begin = header("fifo", box(2, "one"))
    desk = Desk(tmp_path, begin, script=lambda job, attempt: Script(runs=HOUR))
    desk.submit(gpus=1, share=0.5)
    desk.submit(gpus=1, share=0.25)
    desk.steps(1)
    (node,) = gpu_map(desk.daemon).nodes
    assert [(held.job, held.share) for held in node.held] == [(1, 0.5), (2, 0.25)]
    desk.close()


def test_an_output_is_read_by_ranges(desk: Desk) -> None:
    driver = Driver(desk)
    path = Path(log_in(driver.world.logs, 0, 1, 0))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(b"line %06d\n" % at for at in range(50_000)))

    def piece(query: str) -> tuple[int, int, bytes]:
        status, body = driver.call("GET", "/v1/jobs/1/output", query)
        assert status == 200, body
        found = json.loads(body)
        return found["at"], found["end"], base64.b64decode(found["data"])

    assert piece("at=12") == (12, 12 + (1 << 18), path.read_bytes()[12 : 12 + (1 << 18)])
    assert piece("lines=2") == (599_976, 600_000, b"line 049998\nline 049999\n")
    assert piece("at=600000") == (600_000, 600_000, b"")
    status, body = driver.call("GET", "/v1/jobs/1/output", "at=-1")
    assert (status, json.loads(body)["where"]) == (400, "at")
    assert driver.call("GET", "/v1/jobs/1/output", "stream=x")[0] == 400
    assert json.loads(driver.call("GET", "/v1/jobs/3/output")[1])["end"] == -1
