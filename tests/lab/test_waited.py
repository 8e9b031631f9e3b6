"""The table of why jobs waited: it accounts for every second that jobs were pending."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from ganger.core.plan import Plan
from ganger.core.spec import ClusterSpec, Kind, NodeSpec, TenantSpec
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.lab.metrics import to_json
from ganger.lab.report import render
from ganger.lab.result import Run, Waited
from ganger.lab.simulating.waited import shares
from ganger.lab.simulation import Setup, run_one
from ganger.lab.tables import waiting_table
from recipes.days import DAYS
from worlds import Work, cluster, job, trace_of

HOUR_S = 3600


def run(recipe: Any, works: list[Work], each: int = 2, **more: Any) -> Run:
    """A run of one node that knows why jobs waited."""
    where = ClusterSpec((NodeSpec(gpus=each, gpu_type="V100"),), tenants=more.pop("tenants", ()))
    return run_one(trace_of(works), where, recipe, Setup(why=True, **more))


def known(found: Run) -> dict[tuple[str, str], tuple[int, float, float]]:
    """By reason: jobs, seconds, GPU-seconds."""
    return {
        (one.code, one.by): (
            one.jobs,
            round(one.job_hours * HOUR_S, 3),
            round(one.gpu_hours * HOUR_S, 3),
        )
        for one in found.waited or ()
    }


def test_the_head_waits_for_gpus_and_those_behind_it_for_the_head() -> None:
    works = [job("a", 0, 10, 2), job("wide", 1, 10, 2), job("behind", 2, 10, 1)]
    assert known(run("fifo", works)) == {
        ("Resources", "QueuePolicy"): (2, 9 + 10, 2 * 9 + 10),
        ("Priority", ""): (1, 8, 8),
    }


class Silent:
    """Starts one job at a time and gives no reasons."""

    name = "silent"

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        for row in view.pending.tolist()[: 0 if len(view.active) else 1]:
            place = view.ledger.find(view.draft.shape(row))
            if place is not None:
                view.draft.start(row, place)
        plan = view.draft.plan()
        plan.reasons = []
        return plan, memory


def test_a_policy_that_gives_no_reasons_has_jobs_that_wait_for_unknown_ones() -> None:
    found = run(Silent(), [job("a", 0, 10), job("b", 1, 10)])
    assert known(found) == {("", ""): (1, 9, 9)}
    (one,) = shares([found.waited or []])
    assert (one.reason, one.share) == ("unknown: the recipe gave no reason", 1)


@pytest.mark.parametrize("recipe", ["fifo", "srtf", "las", "backfill", "gavel", "yarn-cs", "drf"])
@pytest.mark.parametrize("day", sorted(DAYS))
def test_every_second_of_waiting_has_one_reason(recipe: str, day: str) -> None:
    world = DAYS[day]()
    setup = world.setup
    setup = Setup(**{**vars(setup), "why": True})
    found = run_one(trace_of(world.works), world.cluster, recipe, setup)
    total = sum(one.job_hours for one in found.waited or ()) * HOUR_S
    assert total == pytest.approx(found.jobs.pending.sum(), abs=1e-3)


def test_trials_that_wait_in_a_grant_are_counted() -> None:
    works = [
        job("search", 0, None, 1, kind=Kind.TUNE),
        *(job(f"trial{i}", 1, 10, parent="search") for i in range(3)),
    ]
    found = run("fifo", works, until=100 * SECOND)
    assert known(found)["Resources", "QueuePolicy"] == (2, 10 + 20, 10 + 20)


def test_a_quota_is_a_reason_of_its_own() -> None:
    works = [job("a", 0, 10, tenant="lab"), job("b", 0, 10, tenant="lab")]
    found = run("yarn-cs", works, tenants=(TenantSpec("lab", 1), TenantSpec("art", 1)))
    assert known(found) == {("AssocGrpGRES", "QueuePolicy"): (1, 10, 10)}


def test_runs_that_did_not_add_it_up_have_no_table() -> None:
    found = run_one(trace_of([job("a"), job("b")]), cluster(1, 1), "fifo", Setup())
    assert found.waited is None
    assert "waited" not in to_json([found])["runs"][0]
    assert "Why jobs waited" not in render([found])


def test_the_table_is_in_json_in_the_report_and_on_a_terminal_of_eighty_columns() -> None:
    works = [job("a", 0, 7200, 2), job("b", 0, 10, 2), job("c", 0, 10, 1)]
    found = run("fifo", works)
    assert to_json([found])["runs"][0]["waited"][0]["code"] == "Resources"
    page = render([found])
    assert 'id="waited"' in page
    assert "nothing free fits it (the ordered queue)" in page
    console = Console(width=80, force_terminal=False, record=True, file=io.StringIO())
    console.print(waiting_table([found]))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "fifo, why jobs waited" in text
    assert [line.split()[-1] for line in text.splitlines() if line.strip().endswith("%")] == [
        "67%",
        "33%",
    ]


def test_means_are_over_seeds_and_shares_are_of_gpu_hours() -> None:
    one = [Waited("Resources", "QueuePolicy", 4, 2.0, 6.0), Waited("Priority", "", 2, 2.0, 2.0)]
    two = [Waited("Resources", "QueuePolicy", 2, 2.0, 8.0)]
    found = shares([one, two])
    assert [(each.jobs, each.job_hours, each.gpu_hours) for each in found] == [(3, 2, 7), (1, 1, 1)]
    assert [each.share for each in found] == [7 / 8, 1 / 8]
