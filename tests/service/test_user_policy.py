"""A user's own policy decides over real work, one job after the other; and versions of one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from ganger.core.state.jobs import Phase
from ganger.core.state.snapshot import capture
from ganger.service.durable.recovery import guard_of, make_kernel
from service.desk import Desk, header

MINE = """
class Mine:
    name = "mine"

    def decide(self, view, memory):
        {first}
        for job in view.pending.tolist():
            placement = view.ledger.find(view.draft.shape(job))
            if placement is not None:
                view.draft.start(job, placement)
        return view.draft.plan(), None
"""


def test_jobs_that_come_later_are_seen_and_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE.format(first="assert max(view.pending, default=-1) < view.jobs.n"))
    desk = Desk(tmp_path, header(f"{path}:Mine"))
    for number in range(5):
        (row,) = desk.submit()
        desk.steps(6)
        assert row == number
        assert desk.phase(row) is Phase.FINISHED, guard_of(desk.daemon.kernel).error
    assert not guard_of(desk.daemon.kernel).error


@pytest.mark.parametrize("fault", ["1 / 0", "view.jobs.gpus[0] = 3", "raise SystemExit(0)"])
def test_one_that_fails_stops_no_daemon(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE.format(first=fault))
    desk = Desk(tmp_path, header(f"{path}:Mine"))
    (row,) = desk.submit()
    desk.steps(6)
    assert desk.phase(row) is Phase.PENDING
    assert "mine.py" in guard_of(desk.daemon.kernel).error


@pytest.mark.parametrize("recipe", ["ftf", "pollux", "las"])
def test_a_memory_that_another_version_kept_costs_no_job(tmp_path: Path, recipe: str) -> None:
    desk = Desk(tmp_path, header(recipe))
    desk.submit(array="0-5", gpus=1)
    desk.steps(4)
    before = desk.daemon.kernel
    old = msgspec.msgpack.encode({"due": "tomorrow", "jobs": 3})
    kernel = make_kernel(header(recipe), msgspec.structs.replace(capture(before), memory=old))
    assert not kernel.memory or recipe == "las"
    assert np.array_equal(kernel.jobs.phase[:6], before.jobs.phase[:6])
    assert guard_of(kernel).name == recipe
