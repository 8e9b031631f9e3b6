"""Tenants' virtual clusters: who starts next, who gives back what it has beyond its quota, and what
those who wait are told."""

from __future__ import annotations

from typing import Any

import pytest

from bench import Bench
from ganger.core.events import CAPACITY_FREED, QUEUED, STARTED, Started, Submitted, Woke
from ganger.core.plan import Start, Stop
from ganger.core.spec import ClusterSpec, Locality, NodeSpec, OnPreempt, TenantSpec
from ganger.core.units import NEVER, SECOND
from ganger.mechanisms.fairness.virtual_clusters import VirtualClusters
from ganger.mechanisms.placement.delay_scheduling import Relaxing
from ganger.mechanisms.placement.place import PACK, Placer
from worlds import Work, gpus, job


def shared(
    *works: Work,
    nodes: int = 1,
    each: int = 4,
    full: float = 0.9,
    min_run: float = 0,
    place: Placer = PACK,
    **quotas: int,
) -> Bench:
    """Tenants with these quotas on one cluster."""
    tenants = tuple(TenantSpec(name, quota) for name, quota in quotas.items())
    spec = ClusterSpec((NodeSpec(count=nodes, gpus=each, gpu_type="A"),), (), tenants)
    policy = VirtualClusters("vc", place, full, round(min_run * SECOND))
    return Bench(*works, on=spec, policy=policy)


def comes(bench: Bench, at: float, *rows: int) -> list[str]:
    """These jobs come, and whoever is told to start does so at once; what was decided."""
    plan = bench.feed(at, *(Submitted(row) for row in rows), Woke())
    assert plan is not None
    said = []
    for action in plan.actions:
        assert isinstance(action, Start | Stop)
        said.append(f"{type(action).__name__.lower()} {bench.jobs.name(action.job)}")
    begin = [each for each in plan.actions if isinstance(each, Start) and not each.waits]
    if begin:
        bench.feed(at, *(Started(each.job, each.attempt) for each in begin))
    return said


def told(bench: Bench, at: float) -> dict[str, tuple[str, dict[str, float]]]:
    """By tenant, why its jobs wait."""
    plan = bench.feed(at, Woke())
    assert plan is not None
    name: Any = bench.jobs.tenants.__getitem__
    return {name(one.tenant): (one.code, one.evidence) for one in plan.reasons}


def test_who_waits_is_told_its_quota_and_what_it_uses_of_it() -> None:
    """`mine` is over its quota but has just begun; `yours` asks for more than its quota allows, and
    `theirs`, which has no quota, only for what is taken."""
    bench = shared(
        *(job(f"mine {i}", tenant="mine") for i in range(4)),
        job("more", 2, tenant="mine"),
        job("wide", 2, size=3, tenant="yours"),
        job("one", 2, tenant="theirs"),
        min_run=100,
        mine=2,
        yours=2,
    )
    assert len(comes(bench, 0, 0, 1, 2, 3)) == 4
    assert comes(bench, 2, 4, 5, 6) == []
    assert told(bench, 3) == {
        "mine": ("AssocGrpGRES", {"asked_gpus": 1.0, "used_gpus": 4.0, "quota_gpus": 2.0}),
        "yours": ("AssocGrpGRES", {"asked_gpus": 3.0, "used_gpus": 0.0, "quota_gpus": 2.0}),
        "theirs": ("Resources", {"asked_gpus": 1.0, "used_gpus": 0.0}),
    }


@pytest.mark.parametrize("quotas", [{}, {"mine": 2}], ids=["without quotas", "with quotas"])
def test_only_where_there_are_quotas_does_a_start_make_anybody_a_victim(
    quotas: dict[str, Any],
) -> None:
    works = [job("all", size=4, tenant="mine"), job("next", tenant="mine")]
    bench = shared(*works, **quotas)
    plan = bench.feed(0, Submitted(0), Submitted(1))
    assert plan is not None
    asks = STARTED if quotas else 0
    assert plan.until & STARTED == asks
    assert [one.until & STARTED for one in plan.reasons] == [asks]
    assert plan.until & (QUEUED | CAPACITY_FREED) == QUEUED | CAPACITY_FREED
    assert plan.wake == NEVER


def test_where_nobody_waits_no_start_asks_again() -> None:
    plan = shared(job("a", tenant="mine"), mine=2).feed(0, Submitted(0))
    assert plan is not None
    assert plan.until & STARTED == 0


def test_the_tenant_that_uses_least_of_its_quota_is_next_and_equals_go_by_arrival() -> None:
    """`big` uses 2 of 8 and `small` 1 of 2; after one start more `big` is at 3 of 8, and so on."""
    works = [
        job("small 0", tenant="small"), job("big 0", size=2, tenant="big"),
        job("small 1", 1, tenant="small"), *(job(f"big {i}", 1, tenant="big") for i in (1, 2, 3)),
        job("nobody", 1, size=2, tenant="other"),
    ]  # fmt: skip
    bench = shared(*works, each=8, small=2, big=8)
    assert comes(bench, 0, 0, 1) == ["start small 0", "start big 0"]
    rows = range(2, bench.jobs.n)
    # At once: other at 0, big at 2/8, 3/8, then small and big both at one half: small came first.
    assert comes(bench, 1, *rows) == ["start nobody", "start big 1", "start big 2", "start small 1"]


# ---------------------------------------------------------------------- giving back


def test_a_job_that_is_never_preempted_is_not_evicted_for_a_quota() -> None:
    rigid = job("rigid", size=2, tenant="mine", on_preempt=OnPreempt.NEVER)
    bench = shared(rigid, job("yours", 1, tenant="yours"), each=2, mine=1, yours=1)
    comes(bench, 0, 0)
    assert comes(bench, 1, 1) == []


def test_a_tenant_gives_back_the_last_started_and_not_more_than_it_is_over() -> None:
    """`yours` asks for two of four GPUs, and `mine` is one over its quota of three."""
    works = [
        *(job(f"mine {i}", i, tenant="mine") for i in range(4)),
        job("one", 9, tenant="yours"),
        job("pair", 9, size=2, tenant="yours"),
    ]
    bench = shared(*works, mine=3, yours=2)
    for row in range(4):
        comes(bench, row, row)
    assert comes(bench, 9, 5) == [], "one GPU would not do: nobody is evicted"
    assert comes(bench, 10, 4) == ["stop mine 3", "start one"]


def test_the_tenant_that_is_furthest_over_gives_back_first() -> None:
    works = [
        *(job(f"far {i}", tenant="far") for i in range(3)),
        *(job(f"near {i}", 1, tenant="near") for i in range(3)),
        job("yours", 9, tenant="yours"),
    ]
    bench = shared(*works, each=6, far=1, near=2, yours=1)
    comes(bench, 0, 0, 1, 2)
    comes(bench, 1, 3, 4, 5)
    assert comes(bench, 9, 6) == ["stop far 2", "start yours"], "near started later"


def test_a_tenant_without_a_quota_gives_nothing_back() -> None:
    works = [job("free", size=4, tenant="other"), job("yours", 1, tenant="yours")]
    bench = shared(*works, yours=1)
    comes(bench, 0, 0)
    assert comes(bench, 1, 1) == []


def test_what_is_tried_in_vain_for_one_tenant_is_forgotten_before_the_next_is_served() -> None:
    """A pair would need a whole node, and on both nodes sits a job that is never preempted. The
    single that comes after it gets the GPU that was tried; until then `mine` uses all four."""
    never = OnPreempt.NEVER
    works = [
        job("rigid 0", tenant="mine", on_preempt=never), job("soft 0", tenant="mine"),
        job("rigid 1", tenant="mine", on_preempt=never), job("soft 1", tenant="mine"),
        job("pair", 2, shape=gpus(2, locality=Locality.NODE), tenant="a pair"),
        job("single", 3, tenant="a single"), job("more", 3, tenant="mine"),
    ]  # fmt: skip
    quotas: dict[str, Any] = {"mine": 2, "a pair": 2, "a single": 1}
    bench = shared(*works, nodes=2, each=2, **quotas)
    comes(bench, 0, 0, 1, 2, 3)
    assert comes(bench, 2, 4, 6) == []
    assert told(bench, 2)["mine"][1]["used_gpus"] == 4.0
    assert comes(bench, 3, 5) == ["stop soft 1", "start single"]


def test_while_enough_gpus_are_free_nobody_gives_back() -> None:
    """A pair does not fit in one node while 2 of 4 GPUs are free, one on each."""
    works = [job("left", tenant="mine"), job("x", tenant="gone"), job("right", tenant="mine"),
             job("pair", 2, shape=gpus(2, locality=Locality.NODE), tenant="yours")]  # fmt: skip
    half = []
    for full in (0.5, 0.75):
        bench = shared(*works, nodes=2, each=2, full=full, mine=1, yours=2)
        bench.feed(0, Submitted(0), Submitted(1), Submitted(2))
        bench.feed(0, *(Started(row, 1) for row in range(3)))
        half.append(comes(bench, 2, 3))
    assert half == [["stop right", "start pair"], ["stop right", "start pair"]]
    bench = shared(*works, nodes=2, each=2, full=1.0, mine=1, yours=2)
    comes(bench, 0, 0, 1, 2)
    assert comes(bench, 2, 3) == []


def test_a_victim_has_run_for_its_minimum_since_it_began() -> None:
    works = [job("mine", 20, size=2, tenant="mine"), job("yours", 30, tenant="yours")]
    bench = shared(*works, each=2, min_run=30, mine=1, yours=1)
    comes(bench, 20, 0)
    assert comes(bench, 30, 1) == []
    assert comes(bench, 49.9) == []
    assert comes(bench, 50) == ["stop mine", "start yours"]


def test_the_end_of_the_first_patience_is_woken_for() -> None:
    """Pairs want one node for 20 s, and each node has one GPU left; they come at 1 s and 3 s."""
    works = [
        *(job(f"a {i}", size=2, tenant="a") for i in (0, 1)),
        job("first", 1, size=2, tenant="b"),
        job("later", 3, size=2, tenant="c"),
    ]
    place = Relaxing(node_wait=20 * SECOND, rack_wait=0)
    bench = shared(*works, nodes=2, each=3, place=place)
    comes(bench, 0, 0, 1)
    assert comes(bench, 1, 2) == []
    assert comes(bench, 3, 3) == []
    assert bench.kernel.wake == 21 * SECOND
    assert comes(bench, 21) == ["start first"]
