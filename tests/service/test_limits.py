"""A time limit counts the run time of attempts whose work is kept, as in the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganger.core.state.jobs import Phase
from ganger.core.units import HOUR, SECOND
from ganger.engines.gang import UNCHANGED
from ganger.engines.testing.fake import Script
from service.desk import Desk


@pytest.mark.parametrize(
    ("kept", "left"),
    [
        (UNCHANGED, 2 * HOUR),
        (0.0, 3 * HOUR),  # from nothing: as after Slurm's requeue
        (HOUR / 2, 2.5 * HOUR),
    ],
)
def test_the_next_attempt_has_what_is_left_of_the_limit(
    tmp_path: Path, kept: float, left: float
) -> None:
    def script(job: int, attempt: int) -> Script:
        if attempt == 1:
            return Script(runs=HOUR, fails="node", final=False, kept=kept)
        return Script()

    desk = Desk(tmp_path, script=script)
    (row,) = desk.submit(time_limit="3h", retries=3)
    assert desk.daemon.launch(row).limit == 3 * HOUR
    while desk.daemon.kernel.jobs.attempt[row] < 2 or desk.phase(row) != Phase.RUNNING:
        desk.daemon.once()
    assert desk.daemon.launch(row).limit == pytest.approx(left, abs=SECOND)
    again = desk.again()
    assert again.daemon.launch(row).limit == pytest.approx(left, abs=SECOND)
    again.close()


def test_a_limit_that_is_used_up_is_not_none_at_all(tmp_path: Path) -> None:
    def script(job: int, attempt: int) -> Script:
        if attempt == 1:
            return Script(runs=2 * HOUR, fails="node", final=False, kept=UNCHANGED)
        return Script()

    desk = Desk(tmp_path, script=script)
    (row,) = desk.submit(time_limit="1h", retries=3)
    while desk.daemon.kernel.jobs.attempt[row] < 2:
        desk.daemon.once()
    assert desk.daemon.launch(row).limit == 1
    desk.close()
