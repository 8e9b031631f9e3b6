"""Every recipe decides over a live queue, survives restarts, and decides its history again."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.engines.testing.fake import Script
from ganger.recipes import registry
from ganger.service.durable.recovery import check_history, guard_of
from service.desk import Desk, box, header

STEPS_MAX = 3000


def script(job: int, attempt: int) -> Script:
    """From twenty seconds to three minutes; a preempted attempt keeps nothing it had not done."""
    return Script(runs=(20 + job * 37 % 160) * SECOND // attempt, stop=2 * SECOND)


@pytest.mark.parametrize("recipe", registry.recipes())
def test_a_recipe_runs_live(tmp_path: Path, recipe: str) -> None:
    nodes = (box(4, "a"), box(4, "b"))
    desk = Desk(tmp_path, header(recipe, *nodes), script)
    desk.journal.db.execute("PRAGMA synchronous = OFF")
    for tenant in ("ann", "bob"):
        desk.submit(gpus=1, array="0-2", tenant=tenant, estimate="1m")
        desk.submit(gpus=2, workers=2, min_gpus=1, max_gpus=4, tenant=tenant, estimate="2m")
        desk.submit(gpus=4, workers=4, tenant=tenant, time_limit="10m", deadline="+20m")
        desk.submit(gpus=8, nodes=2, tenant=tenant, priority=1)
    n = desk.daemon.kernel.jobs.n
    for step in range(STEPS_MAX):
        if all(desk.phase(row) >= Phase.FINISHED for row in range(n)):
            break
        desk.daemon.once()
        assert guard_of(desk.daemon.kernel).error == ""
        if step == 25:
            desk = desk.again()
            desk.journal.db.execute("PRAGMA synchronous = OFF")
    left = [row + 1 for row in range(n) if desk.phase(row) < Phase.FINISHED]
    assert left == []
    assert {desk.phase(row) for row in range(n)} == {Phase.FINISHED}
    assert guard_of(desk.daemon.kernel).differed == 0
    assert check_history(desk.journal) == desk.daemon.kernel.revision
    desk.close()
