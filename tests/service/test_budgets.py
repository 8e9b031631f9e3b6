"""A tenant that has spent its budget, under a daemon that crashes and changes its recipe."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, GpuType
from ganger.core.state.jobs import Phase
from ganger.core.units import MINUTE
from ganger.engines.testing.fake import Script
from ganger.service.commands import SetPolicy, SetTenant
from ganger.service.durable.recovery import check_history, header_of
from ganger.service.jobs.rights import Rights
from ganger.service.reports.explain import explain
from ganger.service.reports.rows import quotas, reason_of
from service.desk import Desk, box

PRICED = ClusterSpec((box(2),), (GpuType("V100", price=60.0),))
"""A GPU costs a USD a minute."""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Two GPUs; each job runs for a minute."""
    header = header_of(PRICED.check(), "backfill", 0, "history")
    made = Desk(tmp_path, header, lambda job, attempt: Script(runs=MINUTE))
    yield made
    made.close()


def spent(desk: Desk) -> tuple[float | None, float | None, str]:
    """What the lab has spent of what."""
    (found,) = quotas(desk.daemon, Rights())
    return found.spent and round(found.spent, 2), found.budget, found.beyond


def test_what_waits_for_money_waits_through_crashes_and_recipes_until_somebody_gives_more(
    desk: Desk,
) -> None:
    """Two jobs of a minute each spend 2 USD; the third has to wait, others have not."""
    desk.ask(SetTenant("lab", budget=2.0, beyond="ask"))
    rows = [desk.submit(tenant="lab")[0] for _ in range(3)]
    desk.until_quiet()
    assert [desk.phase(row) for row in rows] == [Phase.FINISHED, Phase.FINISHED, Phase.PENDING]
    assert spent(desk) == (2.0, 2.0, "ask")
    assert reason_of(desk.daemon, rows[2]) == "AssocGrpBilling"
    said = explain(desk.daemon, rows[2]).lines
    assert "The budget of its tenant is spent: somebody has to give it more." in said
    assert any("spent 2.00 USD, budget 2.00 USD" in line for line in said)
    again = desk.again()
    again.ask(SetPolicy("srtf", "history"))
    (other,) = again.submit(tenant="free")
    again.until_quiet()
    assert spent(again) == (2.0, 2.0, "ask")
    assert (again.phase(rows[2]), again.phase(other)) == (Phase.PENDING, Phase.FINISHED)
    again.ask(SetTenant("lab", budget=2.5))
    again.until_quiet()
    assert again.phase(rows[2]) == Phase.FINISHED
    assert spent(again) == (3.0, 2.5, "ask")
    assert check_history(again.journal) == again.daemon.kernel.revision
    again.close()


def test_what_runs_is_stopped_when_the_money_is_spent_and_goes_on_when_there_is_more(
    desk: Desk,
) -> None:
    desk.ask(SetTenant("lab", budget=0.5, beyond="stop"))
    (row,) = desk.submit(tenant="lab")
    desk.until_quiet()
    assert desk.phase(row) == Phase.PENDING
    assert spent(desk)[0] == pytest.approx(0.5, abs=1e-3)
    desk.ask(SetTenant("lab", budget=-1.0))
    desk.until_quiet()
    assert desk.phase(row) == Phase.FINISHED


def test_a_budget_of_what_has_no_price_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    plain = Desk(tmp_path)
    with pytest.raises(BadInput, match="nothing has a price"):
        plain.ask(SetTenant("lab", budget=5.0))
    assert quotas(plain.daemon, Rights()) == []
    plain.close()
