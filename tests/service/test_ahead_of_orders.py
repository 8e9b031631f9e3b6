"""What orders would do to others, before they are given; jobs that are submitted again."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganger.core.errors import BadInput
from ganger.core.units import HOUR, SECOND
from ganger.engines.testing.fake import Script
from ganger.service.commands import Order, Submit
from ganger.service.durable.sandbox import effects_of
from ganger.service.jobs.again import again
from ganger.service.reports import rows
from service.desk import Desk, box, header


def desk(tmp_path: Path, policy: str = "fifo") -> Desk:
    """Four GPUs; job 1 has all of them for an hour, and jobs 2, 3 and 4 wait for two, four, two."""
    made = Desk(tmp_path, header(policy), lambda job, attempt: Script(runs=HOUR))
    for gpus in (4, 2, 4, 2):
        made.submit(gpus=gpus, estimate="1h")
    return made


def starts(made: Desk, verb: str, *jobs: int, value: float = 0.0) -> dict[int, tuple[float, ...]]:
    """By number of the job that moves: hours from now to its start, without and with the order."""
    found = effects_of(made.daemon, Order([job - 1 for job in jobs], {verb: value}))
    assert found.until is None
    now = made.daemon.now() / SECOND
    return {
        one.job: tuple(
            -1.0 if at is None else round((at - now) / 3600, 1) for at in (one.before, one.after)
        )
        for one in found.moved
    }


def test_cancelling_the_head_lets_those_behind_it_start_earlier(tmp_path: Path) -> None:
    """2 starts in an hour, 3 in two, 4 in three; without 3, job 4 runs beside 2."""
    made = desk(tmp_path)
    assert starts(made, "cancel", 3) == {4: (3.0, 1.0)}
    assert starts(made, "cancel", 1) == {2: (1.0, 0.0), 3: (2.0, 1.0), 4: (3.0, 2.0)}
    assert starts(made, "hold", 4) == {}
    assert [made.daemon.kernel.jobs.phase[row] for row in range(4)] == [3, 2, 2, 2]


def test_a_priority_moves_others_back_and_release_brings_a_job_in(tmp_path: Path) -> None:
    made = desk(tmp_path, "priority")
    assert starts(made, "priority", 3, value=9.0) == {2: (1.0, 2.0), 4: (1.0, 2.0)}
    made.ask(Order([1], {"hold": 0.0}))
    found = effects_of(made.daemon, Order([1], {"release": 0.0}))
    assert (found.jobs, found.earlier, found.later) == ([2], 1, 1)  # 4 beside it, 3 after it
    assert [one.job for one in found.moved] == [3, 4]
    assert [(one.job, one.before) for one in found.own] == [(2, None)]
    with pytest.raises(BadInput, match="not held"):
        effects_of(made.daemon, Order([2], {"release": 0.0}))
    with pytest.raises(BadInput, match="does not apply"):
        effects_of(made.daemon, Order([1], {"suspend": 0.0}))


def test_a_look_that_has_no_time_says_how_far_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ganger.lab.ahead import orders

    made = desk(tmp_path)
    monkeypatch.setattr(orders.effects, "__defaults__", (-1.0,))
    found = effects_of(made.daemon, Order([0], {"cancel": 0.0}))
    assert found.until == made.daemon.now() / SECOND
    assert (found.earlier, found.later, found.moved) == (0, 0, [])


def test_a_job_is_submitted_again_as_it_was(tmp_path: Path) -> None:
    made = desk(tmp_path)
    asked = {"command": ["echo", "{lr}"], "name": "x", "env": {"A": "1"}, "deadline": "+2h"}
    first = made.submit(**asked, gpus=2, after=["1"], hold=True)[0]
    new = made.ask(Submit(again(made.daemon, [first])))[0]
    one, two = (rows.job_detail(made.daemon, row) for row in (first, new))
    assert (two.command, two.name, two.gpus) == (one.command, one.name, one.gpus)
    assert made.daemon.reader.facts(new).launch.env == {"A": "1"}
    assert (two.after, two.reason) == ([], "Resources")
    assert two.deadline is not None
    assert one.deadline is not None
    assert two.deadline - two.submitted == one.deadline - one.submitted


def test_an_array_is_submitted_again_as_a_whole_or_by_task(tmp_path: Path) -> None:
    made = Desk(tmp_path, header("fifo", box(1)))
    accepted = made.ask(made.jobs(array="3-5", gpus=1))
    other = made.submit(gpus=1)[0]
    names = [rows.label(made.daemon, row) for row in made.ask(Submit(again(made.daemon, accepted)))]
    assert names == ["5_3", "5_4", "5_5"]
    task = made.ask(Submit(again(made.daemon, [accepted[1]])))
    assert [rows.label(made.daemon, row) for row in task] == ["8_4"]
    with pytest.raises(BadInput, match="jobs of their own"):
        again(made.daemon, [accepted[0], other])


def test_what_a_job_held_is_priced_by_type(tmp_path: Path) -> None:
    import msgspec

    from ganger.core.spec import GpuType

    begin = header("fifo", box(4))
    cluster = msgspec.structs.replace(begin.cluster, gpu_types=(GpuType("V100", price=3.0),))
    made = Desk(
        tmp_path,
        msgspec.structs.replace(begin, cluster=cluster),
        lambda job, attempt: Script(runs=2 * HOUR),
    )
    row = made.submit(gpus=2)[0]
    while rows.job_answer(made.daemon, row).state != "COMPLETED":
        made.daemon.once()
    found = rows.job_detail(made.daemon, row)
    assert found.gpu_hours == pytest.approx(4.0, rel=0.01)
    assert found.cost == pytest.approx(12.0, rel=0.01)
