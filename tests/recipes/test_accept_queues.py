"""Hand checks of the queues of production clusters, of progress and of deadlines."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ganger.core.events import NodeDown
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, Needs, NodeSpec, OnPreempt, Role, Shape, TenantSpec
from ganger.core.units import SECOND
from ganger.estimate.forecast import forecast
from ganger.mechanisms.provisioning.provision import EnergySaving, Use
from ganger.recipes.training.attained.e_las import discounted, remaining_estimate
from ganger.sim.physics import Costs
from worlds import cluster, gpus, job, play

ONE, FOUR = cluster(1, 1), cluster(1, 4)

# ---------------------------------------------------------------------- e-las


def test_e_las_index_of_two_jobs_with_equal_service() -> None:
    assert round(remaining_estimate(4, 0.9), 2) == 0.44
    assert remaining_estimate(4, 0.1) == pytest.approx(36)
    assert discounted(4, 0.9) == pytest.approx(0.4)
    assert remaining_estimate(0, 0) == 0


NEAR_THE_END = [job("long", 0, 100), job("short", 0, 10), job("late", 9, 20)]
"""On two GPUs: when `late` comes, long has done 9 % and short 90 %, with equal service."""


def test_e_las_preempts_the_job_that_is_far_from_its_end_where_tiresias_sees_a_tie() -> None:
    run = play("e-las", NEAR_THE_END)
    assert run.actions[2:4] == [(9, "stop long"), (9, "start late on 0:0 after long")]
    assert run.ended("short") == 10
    tie = play("tiresias(thresholds=9s)", NEAR_THE_END)
    assert tie.actions[2][1] == "stop short", "equal levels: the later one goes"


def test_e_las_counts_no_epochs_of_a_job_that_has_none() -> None:
    """It waited for the end of each, a microsecond at a time, while such a job was leaving."""
    works = [job("empty", 0, 0), job("next", 1, 3)]
    run = play("e-las", works, ONE, costs=Costs(finish=5 * SECOND))
    assert run.ended("empty") == 5
    assert run.ended("next") == 13


def test_e_las_discount_differs_from_its_estimate() -> None:
    """At 6 s a (10 s) has 6 (1 - .6) = 2.4 or 4 to come; b, 40 s, has 6 (1 - .15) = 5.1 or 34."""
    works = [job("a", 0, 10), job("b", 0, 40), job("c", 6, 3)]
    for index in ("estimate", "discount"):
        assert play(f"e-las(index={index})", works).actions[2][1] == "stop b"
    # With one GPU and a job nine tenths done against one a hundredth done:
    works = [job("old", 0, 100), job("new", 90, 100)]
    estimate = play("e-las(index=estimate)", works, ONE)
    discount = play("e-las(index=discount)", works, ONE)
    assert estimate.ended("old") == 101, "new runs one epoch, then is far from its end"
    assert float(discount.ended("old") or 0) > 101, "new goes on while its service is small"


def test_e_las_consolidates_models_that_suffer_when_split() -> None:
    works = [
        job("x", 0, 5, size=2, on_preempt=OnPreempt.NEVER),
        job("y", 0, 9, size=3, on_preempt=OnPreempt.NEVER),
        job("net", 0, 1, size=3, model="net"),
    ]
    slow = Profiles({"net": Profile(locality=(1.0, 1.0, 1.5, 1.5))})
    assert play("e-las", works, cluster(2, 4), profiles=slow).started("net") == 5
    assert play("e-las", works, cluster(2, 4)).started("net") == 0


# ---------------------------------------------------------------------- tiresias' promotion


def test_a_promoted_job_starts_over_with_nothing_attained() -> None:
    """`old` has had 12 s when it falls to the lower queue. It waits 12 s while newcomers pass, has
    a turn of 10 s in the top queue as if it were new, and waits 10 s. Then it is their equal, and
    waits until the one that runs has ended."""
    works = [job("old", 0, 30), *(job(f"new {i}", 12 + 6 * i, 6) for i in range(8))]
    promoted = play("tiresias(thresholds=10s,starvation=1)", works, ONE)
    olds = [
        (at, said.split()[0])
        for at, said in promoted.actions
        if " old on" in said or said == "stop old"
    ]
    assert olds == [(0, "start"), (12, "stop"), (24, "start"), (34, "stop"), (46, "start")]
    assert promoted.ended("old") == 54
    assert play("tiresias(thresholds=10s)", works, ONE).ended("old") == 12 + 8 * 6 + 18


# ---------------------------------------------------------------------- philly


TENANTS = ClusterSpec(
    (NodeSpec(count=2, gpus=4, gpu_type="V100"),),
    tenants=(TenantSpec("ann", quota=4), TenantSpec("bob", quota=4)),
)


def test_philly_relaxes_locality_tier_by_tier() -> None:
    """The delay-scheduling card with three tiers: split, the gang runs at half speed."""
    slow = Profiles({"net": Profile(locality=(1.0, 1.0, 2.0, 2.0))})
    works = [
        job("short", lasts=1, size=2),
        job("long", lasts=100, size=2),
        job("gang", lasts=10, size=2, model="net"),
    ]
    ends = {
        wait: play(
            f"philly(node_wait={wait},rack_wait=0s)", works, cluster(2, 3), profiles=slow
        ).ended("gang")
        for wait in ("1s", "0s")
    }
    assert ends == {"1s": 11, "0s": 20}
    racks = ClusterSpec((NodeSpec(count=2, gpus=3, gpu_type="V100", nodes_per_rack=1),))
    run = play("philly(node_wait=200ms,rack_wait=300ms)", works, racks, profiles=slow)
    assert run.started("gang") == 0.5, "another rack is the third tier"


def test_philly_lets_a_tenant_exceed_its_quota_and_takes_it_back_when_nearly_full() -> None:
    works = [
        job("a1", 0, 50, size=4, tenant="ann"),
        job("a2", 0, 50, size=4, tenant="ann"),
        job("b", 10, 5, size=4, tenant="bob"),
    ]
    run = play("philly", works, TENANTS)
    assert run.started("a2") == 0
    assert run.started("b") == 10
    assert run.ended("a1") == 50
    assert run.ended("a2") == 55
    hard = play("yarn-cs", works, TENANTS)
    assert hard.started("a2") == 50, "the capacity scheduler's quotas are hard"


def test_philly_does_not_preempt_while_gpus_are_free() -> None:
    works = [
        job("a1", 0, 50, size=4, tenant="ann"),
        job("a2", 0, 50, size=3, tenant="ann"),
        job("b", 10, 5, size=4, tenant="bob"),
    ]
    assert play("philly(full=0.9)", works, TENANTS).started("b") == 50
    assert play("philly(full=0.8)", works, TENANTS).started("b") == 10


def test_philly_tells_fair_share_delay_from_fragmentation_delay() -> None:
    works = [
        job("a", 0, 9, size=3, tenant="ann"), job("b", 0, 9, size=3, tenant="bob"),
        job("over", 1, 1, size=4, tenant="ann"), job("split", 1, 1, size=2, tenant="bob"),
    ]  # fmt: skip
    quotas = ClusterSpec(
        TENANTS.nodes, tenants=(TenantSpec("ann", quota=4), TenantSpec("bob", quota=5))
    )
    run = play("philly", works, quotas)
    told = [
        {run.jobs.tenants[reason.tenant]: reason.code for reason in plan.reasons}
        for batch, plan in run.diary.steps
        if plan is not None and batch.at == SECOND
    ]
    assert told[-1] == {"ann": "AssocGrpGRES", "bob": "Resources"}


# ---------------------------------------------------------------------- ffdl


def test_ffdl_packs_and_a_gang_of_4_finds_a_node_where_spreading_leaves_none() -> None:
    """Four 1-GPU jobs on 4 nodes x 4: spread, no node is whole; packed, three are."""
    works = [*(job(f"one {i}", 0, 9) for i in range(4)), job("gang", 1, 1, size=4)]
    for seed in range(5):
        run = play("ffdl(bias=9)", works, cluster(4, 4), seed=seed)
        assert run.started("gang") == 1
        nodes = {run.diary.steps[0][1].actions[i].placement[0].node for i in range(4)}  # type: ignore[union-attr]
        assert len(nodes) < 4
    spread = play("placement(fit=worst,within=node)", works, cluster(4, 4))
    assert spread.started("gang") == 9


def test_ffdl_samples_where_best_fit_is_certain() -> None:
    """Without bias some seeds take the emptier node, which best fit never does; with a great one
    none does."""
    works = [job("big", 0, 9, size=2), job("x", 0, 9, size=1)]

    def where(recipe: str, seed: int) -> int:
        run = play(recipe, works, cluster(2, 4), seed=seed, until=SECOND)
        first, second = (run.kernel.ledger.holds[i][1][0].node for i in range(2))
        return int(first == second)

    assert {where("ffdl(samples=1,bias=0)", seed) for seed in range(12)} == {0, 1}
    assert {where("ffdl(samples=1,bias=60)", seed) for seed in range(12)} == {1}
    assert {where("placement", seed) for seed in range(12)} == {1}


def test_ffdl_holds_quotas_and_gangs() -> None:
    works = [job("a", 0, 5, size=4, tenant="ann"), job("b", 0, 5, size=4, tenant="ann")]
    assert play("ffdl", works, TENANTS).started("b") == 5
    run = play("ffdl", [job("one", lasts=5, size=4), job("two", lasts=7, size=4)], cluster(6, 1))
    assert (run.ended("one"), run.started("two")) == (5, 5)


# ---------------------------------------------------------------------- ali-mlaas


def test_three_halves_need_two_gpus_shared_and_three_exclusive() -> None:
    half = Shape((Role(needs=Needs(share=500)),))
    works = [job(f"half {i}", 0, 9, shape=half) for i in range(3)]
    shared = play("ali-mlaas", works, cluster(1, 2))
    assert [shared.started(work.spec.name) for work in works] == [0, 0, 0]
    whole = play("ali-mlaas", [job(f"one {i}", 0, 9) for i in range(3)], cluster(1, 2))
    assert sorted(str(whole.started(f"one {i}")) for i in range(3)) == ["0.0", "0.0", "9.0"]


def test_the_best_gpus_are_kept_for_those_that_demand_them() -> None:
    both = ClusterSpec((NodeSpec(gpus=2, gpu_type="V100"), NodeSpec(gpus=2, gpu_type="T4")))
    works = [
        job("x", 0, 9, size=2),
        job("y", 0, 9, size=2),
        job("high", 1, 5, shape=gpus(2, gpu_types=("V100",))),
    ]
    run = play("ali-mlaas", works, both)
    assert [run.started(name) for name in ("x", "y", "high")] == [0, 9, 1]
    assert play("sjf(walk=skip)", works, both).started("high") == 9
    wide = play("ali-mlaas", [job("wide", 0, 1, size=2)], ClusterSpec(both.nodes[:1]))
    assert wide.started("wide") == 0, "there is no other type"


# ---------------------------------------------------------------------- genie


def test_genie_starts_the_job_with_the_least_allowance() -> None:
    """A: deadline 10, run 4; B: deadline 3, run 2: allowances 6 and 1."""
    works = [job("a", 0, 4, deadline=10), job("b", 0, 2, deadline=3)]
    run = play("genie", works, ONE)
    assert (run.ended("b"), run.ended("a")) == (2, 6)


def test_genie_differs_from_the_earliest_deadline() -> None:
    """X may be put off until 9, Y, although its deadline is later, until 2."""
    works = [job("x", 0, 1, deadline=10), job("y", 0, 10, deadline=12)]
    assert [play("genie", works, ONE).started(name) for name in "xy"] == [10, 0]
    assert [play("edf", works, ONE).started(name) for name in "xy"] == [0, 1]


def elastic(name: str, lasts: float, deadline: float) -> object:
    shape = Shape((Role(size=1, least=1, most=4),))
    return job(name, 0, lasts, shape=shape, deadline=deadline)


@pytest.mark.parametrize(("deadline", "size"), [(9, 1), (5, 2), (3, 3), (1, 4)])
def test_genie_takes_the_fewest_gpus_that_meet_the_deadline_else_the_fastest(
    deadline: float, size: int
) -> None:
    """8 s on one GPU, 8/n s on n."""
    run = play("genie", [elastic("a", 8, deadline)], FOUR, until=SECOND)  # type: ignore[list-item]
    assert run.jobs.size[0] == size


# ---------------------------------------------------------------------- helios


def test_qssf_orders_by_gpus_times_predicted_duration() -> None:
    """(1 GPU, 10), (4, 2), (2, 3): third (6), second (8), first (10)."""
    works = [job("busy", 0, 1, size=4), job("first", 0, 10), job("second", 0, 2, size=4),
             job("third", 0, 3, size=2)]  # fmt: skip
    run = play("helios", works, FOUR)
    assert [run.started(name) for name in ("third", "second", "first")] == [1, 4, 6]


CES = EnergySaving(buffer=5, hold=12, falls=1.0)


def flat(series: Sequence[float], ahead: int) -> list[float]:
    return [series[-1]] * ahead


def test_ces_wakes_used_and_buffer_and_then_switches_nothing_off_for_12_bins() -> None:
    """Used 10 for an hour, then 16 with 15 active: one short, 21 on, held for 12 bins."""
    saving, use = CES, Use((), 15)
    for _ in range(6):
        use = saving.step(use, 10, 40, flat)
    assert use.active == 15
    use = saving.step(use, 16, 40, flat)
    assert (use.active, use.hold) == (21, 12)
    falling = lambda series, ahead: [0.0] * ahead  # noqa: E731
    for bin_ in range(12):
        use = saving.step(use, 16 - bin_ // 2, 40, falling)
        assert use.active == 21
    assert saving.step(use, 5, 40, falling).active == 10


def test_ces_switches_nothing_off_unless_past_and_forecast_both_fall_and_stay_low() -> None:
    saving, was = CES, Use((20.0,) * 6, 25)
    down = lambda series, ahead: [2.0] * ahead  # noqa: E731
    rising = lambda series, ahead: [2.0] * (ahead // 2) + [30.0] * (ahead - ahead // 2)  # noqa: E731
    assert saving.step(was, 10, 40, down).active == 15
    asked: list[int] = []

    def down_and_noted(series: Sequence[float], ahead: int) -> list[float]:
        asked.append(ahead)
        return [2.0] * ahead

    saving.step(was, 10, 40, down_and_noted)
    assert asked == [36], "three hours in bins of ten minutes, and as many after them"
    assert saving.step(was, 10, 40, flat).active == 25, "it is not forecast to fall further"
    assert saving.step(was, 10, 40, rising).active == 25, "it is forecast to rise again"
    assert saving.step(Use((10.0,) * 6, 25), 10, 40, down).active == 25, "it has not fallen"


def test_forecast_is_yesterday_moved_to_where_use_stands_now() -> None:
    day = [0.0] * 72 + [10.0] * 72
    assert forecast(day[:10], 3).tolist() == [0, 0, 0], "no day is known yet"
    two = day + [2.0] * 72
    assert forecast(two, 4, 144).tolist() == [12, 12, 12, 12]


def test_nodes_go_off_in_the_evening_and_come_back_for_whoever_waits() -> None:
    day = 86400
    works = [job(f"day {d} {i}", d * day, 3600 + 1200 * i) for d in range(2) for i in range(8)]
    late = day + 8 * 3600
    works += [job("late", late, 60, size=8)]
    run = play("helios-ces(buffer=1)", works, cluster(8, 1), costs=Costs(boot=300 * SECOND))
    downs = [
        batch.at / SECOND
        for batch, _ in run.diary.steps
        for event in batch.events
        if isinstance(event, NodeDown)
    ]
    assert downs, "on the second day the evening is known"
    assert day < min(downs) < max(downs) < late
    assert run.started("late") == late + 300, "it waits for the nodes to boot"
    assert play("helios", works, cluster(8, 1)).started("late") == late


def test_philly_evicts_nobody_that_has_run_for_less_than_its_minimum() -> None:
    """B lends its 2 GPUs to A's second job, and wants them back 4 s later."""
    on = ClusterSpec((NodeSpec(1, 4, "V100"),), (), (TenantSpec("A", 2), TenantSpec("B", 2)))
    works = [
        job("own", 0, 100, size=2, tenant="A"),
        job("lent", 0, 100, size=2, tenant="A"),
        job("back", 4, 10, size=2, tenant="B"),
    ]
    assert play("philly(full=0,min_run=3s)", works, on).started("back") == 4
    late = play("philly(full=0,min_run=30s)", works, on)
    assert (late.started("back") or 0) >= 30
