"""Progressive filling: whose turn it is, what a job counts for, what those who wait are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench import Bench
from ganger.core.events import Started, Submitted, Woke
from ganger.core.plan import Start
from ganger.core.spec import ClusterSpec, Needs, NodeSpec, Role, Shape, TenantSpec
from ganger.core.units import SECOND
from ganger.mechanisms.fairness.fair import (
    FairPolicy,
    Owner,
    demands,
    gpu_demands,
    tenant_weights,
)
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import By, priority_largest
from ganger.mechanisms.placement.delay_scheduling import Relaxing
from worlds import cluster, job


def started(bench: Bench, at: float, *rows: int) -> list[str]:
    """These jobs come, whoever is told to start does so at once: their names."""
    plan = bench.feed(at, *(Submitted(row) for row in rows), Woke())
    assert plan is not None
    begin = [action for action in plan.actions if isinstance(action, Start)]
    if begin:
        bench.feed(at, *(Started(each.job, each.attempt) for each in begin))
    return [bench.jobs.name(each.job) for each in begin]


def filling(walk: Walk, *, owner: Owner = Owner.TENANT, **more: Any) -> FairPolicy:
    """A policy that counts GPUs."""
    return FairPolicy("fair", owner, gpu_demands, walk, **more)


@pytest.mark.parametrize(("walk", "may_pass"), [(Walk.STRICT, 0.0), (Walk.SKIP, 1.0)])
def test_who_waits_is_told_whether_others_may_pass(walk: Walk, may_pass: float) -> None:
    bench = Bench(job("wide", size=5), job("one", size=1), policy=filling(walk))
    plan = bench.feed(0, Submitted(0), Submitted(1))
    assert plan is not None
    assert [reason.evidence for reason in plan.reasons] == [
        {"asked_gpus": 5.0, "may_pass": may_pass}
    ]
    assert [action.job for action in plan.actions if isinstance(action, Start)] == (
        [1] if may_pass else []
    )


def test_one_whose_patience_has_ended_is_no_longer_placed_like_those_who_are_still_patient() -> (
    None
):
    """Pairs want one node for 20 s, and each node has one GPU left. `urgent` is tried first, and
    has 5 s of its patience left when that of `old` has ended: only `old` takes one GPU of each."""
    place = Relaxing(node_wait=20 * SECOND, rack_wait=0)
    works = [job("left", size=2), job("right", size=2), job("old", 1, size=2),
             job("urgent", 6, size=2, priority=9)]  # fmt: skip
    policy = filling(Walk.SKIP, order=By((priority_largest,)), place=place)
    bench = Bench(*works, on=cluster(2, 3), policy=policy)
    assert started(bench, 0, 0, 1) == ["left", "right"]
    assert started(bench, 1, 2) == []
    assert started(bench, 6, 3) == []
    assert started(bench, 20) == []
    assert started(bench, 21) == ["old"]


@pytest.mark.parametrize(("walk", "last"), [(Walk.STRICT, []), (Walk.SKIP, ["ann 3"])])
def test_the_owner_with_the_least_is_next_and_equals_go_by_who_came_first(
    walk: Walk, last: list[str]
) -> None:
    """After three turns both use two GPUs, and after four bob's next does not fit. Charged to the
    user, who is the same for all, jobs go as they came."""
    works = [
        *(job(f"ann {i}", tenant="ann", user="bob") for i in range(4)),
        *(job(f"bob {i}", size=2, tenant="bob", user="bob") for i in range(2)),
    ]
    bench = Bench(*works, on=cluster(1, 6), policy=filling(walk))
    assert started(bench, 0, *range(6)) == ["ann 0", "bob 0", "ann 1", "ann 2", *last]
    alone = Bench(*works, on=cluster(1, 6), policy=filling(walk, owner=Owner.USER))
    assert started(alone, 0, *range(6)) == ["ann 0", "ann 1", "ann 2", "ann 3", "bob 0"]


def test_tenants_get_by_their_weights_and_who_is_not_named_has_one() -> None:
    spec = ClusterSpec(
        (NodeSpec(gpus=4, gpu_type="A"),), (), (TenantSpec("nobody"), TenantSpec("b", weight=3.0))
    )
    works = [job(f"{tenant}{i}", tenant=tenant) for i in range(4) for tenant in "ab"]
    bench = Bench(*works, on=spec, policy=filling(Walk.SKIP))
    view, code = bench.kernel.view, bench.jobs.tenants.find("b")
    assert tenant_weights(view, code + 1).tolist() == [*[1.0] * code, 3.0]
    assert tenant_weights(view, code).tolist() == [1.0] * code, "of the first tenants only"
    assert sorted(started(bench, 0, *range(8))) == ["a0", "b0", "b1", "b2"]


@pytest.mark.parametrize(
    ("node", "shares"),
    [
        (NodeSpec(gpus=1, gpu_type="A"), [0.5, 0.0, 0.0]),
        (NodeSpec(gpus=2, cpus=1, memory=1, gpu_type="A"), [0.25, 1.0, 1.0]),
        (NodeSpec(gpus=4, cpus=4, memory=8, gpu_type="A"), [0.125, 0.25, 0.125]),
    ],
    ids=["one GPU and nothing else", "one of each", "some of each"],
)
def test_a_job_counts_for_its_part_of_what_the_cluster_has(
    node: NodeSpec, shares: list[float]
) -> None:
    """Half a GPU, a thousandth of a core and a MiB; what the cluster does not count is no part."""
    needs = Needs(share=500, cpus=min(node.cpus, 1), memory=min(node.memory, 1))
    bench = Bench(job("a", shape=Shape((Role(needs=needs),))), on=ClusterSpec((node,)))
    view, first = bench.kernel.view, np.array([0])
    assert demands(view, first)[0].tolist() == shares
    assert gpu_demands(view, first)[0].tolist() == shares[:1]
