"""Budgets of tenants: what holding costs, and what follows when it is spent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.spec import (
    ClusterSpec,
    GpuType,
    Needs,
    NodeSpec,
    Offer,
    OnPreempt,
    Role,
    Shape,
    TenantSpec,
)
from ganger.core.state.snapshot import capture, restore
from ganger.core.units import HOUR
from ganger.lab.simulating.policies import over_budget, with_budgets
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.common.budgets import BudgetMemory, Budgets, budgets_spent, carried
from ganger.recipes import registry
from worlds import Played, Work, job, play, trace_of


def on(*tenants: TenantSpec, gpus: int = 4, price: float = 1.0) -> ClusterSpec:
    """One node of V100 at so many USD an hour each."""
    node = NodeSpec(gpus=gpus, gpu_type="V100")
    return ClusterSpec((node,), (GpuType("V100", price=price),), tenants)


def lab(beyond: str, budget: float = 2.0) -> TenantSpec:
    """A tenant that may spend two GPU-hours, unless it is said otherwise."""
    return TenantSpec("lab", budget=budget, beyond=beyond)


def hours(name: str, at: float, lasts: float, tenant: str = "lab", **more: Any) -> Work:
    """A job on one GPU; times in hours."""
    return job(name, at * 3600, lasts * 3600, tenant=tenant, **more)


def test_tenants_without_a_budget_are_not_told_that_they_have_spent_one() -> None:
    spec = on(TenantSpec("lab"), TenantSpec("rich", budget=9.0))
    works = [hours("a", 0, 1), hours("b", 0, 1, "rich")]
    notes = run_one(trace_of(works), spec, "fifo", Setup()).notes
    assert not any("spent" in note for note in notes)
    poor = on(TenantSpec("lab", budget=0.5), TenantSpec("rich"))
    assert run_one(trace_of(works), poor, "fifo", Setup()).notes[-1:] == [
        "tenant lab spent 1.00 of 0.5 USD (warn)"
    ]


def run(cluster: ClusterSpec, works: list[Work], recipe: str = "fifo(walk=skip)") -> Played:
    return play(with_budgets(registry.make(recipe), cluster), works, cluster, until=100 * HOUR)


WORKS = [hours("a", 0, 3), hours("b", 1, 3), hours("other", 1, 3, "free"), hours("late", 2, 1)]
"""`lab` has spent 1 USD after an hour, and 2 after another half."""


def test_a_warning_holds_nobody_up() -> None:
    found = run(on(lab("warn")), WORKS)
    assert [found.ended(name) for name in ("a", "b", "other", "late")] == [
        3 * 3600,
        4 * 3600,
        4 * 3600,
        3 * 3600,
    ]
    spent = budgets_spent(found.kernel.view, found.kernel.memory, found.kernel.now)
    assert spent == {"lab": pytest.approx(7.0)}
    assert over_budget(found.kernel) == ["tenant lab spent 7.00 of 2 USD (warn)"]


def test_where_somebody_is_to_be_asked_what_runs_goes_on_and_what_waits_waits() -> None:
    found = run(on(lab("ask")), WORKS)
    assert [found.ended(name) for name in ("a", "b", "other")] == [3 * 3600, 4 * 3600, 4 * 3600]
    assert found.phase("late") == "pending"
    plan = next(plan for batch, plan in found.diary.steps if plan and batch.at == 2 * HOUR)
    (said,) = [each for each in plan.reasons if each.by == "Budgets"]
    assert said.evidence == {"spent_usd": pytest.approx(3.0), "budget_usd": 2.0}
    assert said.tenant == found.jobs.tenants.find("lab")


def test_where_it_stops_what_runs_is_saved_and_waits() -> None:
    """Half an hour after `b` has begun; what may not be preempted goes on."""
    stays = hours("stays", 0, 3, on_preempt=OnPreempt.NEVER)
    found = run(on(lab("stop", 3.5)), [*WORKS, stays])
    assert [(at / 3600, said) for at, said in found.actions if said.startswith("stop")] == [
        (1.5, "stop a"),
        (1.5, "stop b"),
    ]
    assert found.jobs.work[found.row("a")] / HOUR == pytest.approx(1.5)
    assert [found.phase(name) for name in ("a", "b", "late")] == ["pending"] * 3
    assert [found.ended(name) for name in ("other", "stays")] == [4 * 3600, 3 * 3600]


def test_a_budget_is_of_all_tenants_below() -> None:
    """`ann` and `bob` share the lab's; `cid` has his own."""
    tree = (lab("stop"), TenantSpec("ann", parent="lab"), TenantSpec("bob", parent="lab"))
    works = [hours("a", 0, 9, "ann"), hours("b", 0, 9, "bob"), hours("c", 0, 2, "cid")]
    found = run(on(*tree), works)
    assert [found.phase(name) for name in "abc"] == ["pending", "pending", "finished"]
    assert found.jobs.work[0] / HOUR == pytest.approx(1.0)


def test_parts_of_gpus_and_cores_of_nodes_without_gpus_cost_their_part() -> None:
    """300 thousandths of a GPU of 2 USD, and 5 of 10 cores of a node of 1 USD."""
    nodes = (
        NodeSpec(gpus=1, gpu_type="V100"),
        NodeSpec(cpus=10_000, offer=Offer(price=1.0)),
    )
    cluster = ClusterSpec(nodes, (GpuType("V100", price=2.0),), (lab("warn", 9.0),))
    works = [
        hours("part", 0, 1, shape=Shape((Role(needs=Needs(share=300)),))),
        hours("cores", 0, 1, shape=Shape((Role(needs=Needs(gpus=0, cpus=5000)),))),
    ]
    found = run(cluster, works)
    spent = budgets_spent(found.kernel.view, found.kernel.memory, found.kernel.now)
    assert spent == {"lab": pytest.approx(0.6 + 0.5)}


@pytest.mark.parametrize("recipe", ["fifo", "srtf", "las(quantum=1h)", "backfill"])
def test_other_tenants_run_as_if_those_were_not_there(recipe: str) -> None:
    """From when `lab` has nothing left on, a full cluster is theirs."""
    works = [
        *(hours(f"l{at}", 0, 5) for at in range(4)),
        *(hours(f"o{at}", at, 2, "free") for at in range(6)),
    ]
    found = run(on(lab("stop", 4.0)), works, recipe)
    assert all(found.phase(f"o{at}") == "finished" for at in range(6))
    assert all(found.phase(f"l{at}") == "pending" for at in range(4))


def test_what_was_spent_outlives_a_change_of_recipe_and_of_budgets() -> None:
    memory = BudgetMemory("inner", {"lab": 1.5}, {"lab": 7}, 9, ["lab"])
    kept = carried(memory, limited=True, keeps=False, now=99)
    assert kept == BudgetMemory(None, {"lab": 1.5}, {"lab": 7}, 9, ["lab"])
    assert carried(memory, limited=False, keeps=True, now=99) == "inner"
    assert carried("inner", limited=True, keeps=True, now=99) == BudgetMemory("inner", at=99)


def test_a_budget_needs_prices_that_stand() -> None:
    for cluster, said in (
        (on(lab("warn"), price=0.0), "nothing has a price"),
        (on(lab("never")), "beyond = 'never'"),
        (on(lab("warn", -3.0)), "budget = -3"),
        (on(lab("warn", float("nan"))), "budget = nan"),
    ):
        with pytest.raises(BadInput, match=said):
            cluster.check()
    assert isinstance(with_budgets(registry.make("fifo"), on(lab("warn"))), Budgets)
    assert not isinstance(with_budgets(registry.make("fifo"), on()), Budgets)


some_jobs = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 4), st.sampled_from("ab")),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40)
@given(
    some_jobs, st.integers(0, 30), st.sampled_from(["srtf", "fifo(walk=skip)", "las(quantum=1h)"])
)
def test_money_is_neither_lost_nor_made_and_a_restart_changes_nothing(
    jobs: list[tuple[int, int, int, str]], budget: int, recipe: str
) -> None:
    """What is spent is the GPU-hours that are held. A snapshot goes on to the same plans."""
    spec = TenantSpec("a", budget=float(budget), beyond="stop")
    cluster = on(spec, TenantSpec("b", budget=1e6))
    works = [
        hours(f"{n}", at, lasts, tenant, shape=Shape((Role(size=size),)))
        for n, (at, lasts, size, tenant) in enumerate(jobs)
    ]
    found = run(cluster, works, recipe)
    kernel, n = found.kernel, found.jobs.n
    spent = budgets_spent(kernel.view, kernel.memory, kernel.now)
    for name in "ab":
        code = kernel.jobs.tenants.find(name)
        held = found.jobs.held[:n][found.jobs.tenant[:n] == code].sum() / HOUR
        assert spent[name] == pytest.approx(held)
    assert spent["a"] <= budget + 1e-6
    snapshot = capture(kernel)
    policy = with_budgets(registry.make(recipe), cluster)
    again = restore(snapshot, kernel.nodes, policy, oracle=kernel.oracle, seed=0)
    assert capture(again).memory == snapshot.memory
    assert policy.decide(again.view, again.memory)[0].actions == []
