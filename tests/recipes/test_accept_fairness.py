"""Hand checks of the fair and the programmed recipes, and where they differ from a neighbour."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ganger.core.allocation import Allocation
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, Needs, NodeSpec, OnPreempt, Role, Shape, TenantSpec
from ganger.core.state.table import Ids
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.mechanisms.fairness.fair import Notes
from ganger.mechanisms.rounds.rounds import RoundPolicy
from worlds import Played, Work, cluster, job, play


def mixed(*counts: tuple[str, int], **more: Any) -> ClusterSpec:
    """One node per GPU type."""
    return ClusterSpec(tuple(NodeSpec(gpus=n, gpu_type=name) for name, n in counts), **more)


def profiles(**models: dict[str, float]) -> Profiles:
    return Profiles({name: Profile(by_type=by_type) for name, by_type in models.items()})


THREE = profiles(
    a={"K80": 10, "P100": 30, "V100": 80},
    b={"K80": 50, "P100": 65, "V100": 70},
    c={"K80": 20, "P100": 55, "V100": 60},
)
THREE_GPUS = mixed(("K80", 2), ("P100", 1), ("V100", 1))


def three(lasts: float = 10000) -> list[Work]:
    return [job(name, lasts=lasts, model=name) for name in "abc"]


def rates(run: Played) -> list[float]:
    """How fast each job runs when the simulation stops."""
    return [float(rate) for rate in run.jobs.rate[: run.jobs.n]]


def shares(policy: str, works: list[Work], on: ClusterSpec, **more: Any) -> dict[str, float]:
    """The part of all GPU-time that each job executed."""
    run = play(policy, works, on, **more)
    n = run.jobs.n
    served = run.kernel.view.attained(np.arange(n))
    return {run.jobs.name(i): float(served[i] / served.sum()) for i in range(n)}


# ---------------------------------------------------------------------- gavel


def test_gavels_max_sum_does_185_where_turns_do_135() -> None:
    stop = 100 * SECOND
    best = play("gavel(objective=max-sum)", three(), THREE_GPUS, profiles=THREE, until=stop)
    assert rates(best) == [80, 50, 55]
    blind = play("heterogeneity-agnostic", three(), THREE_GPUS, profiles=THREE, until=stop)
    assert rates(blind) == [10, 65, 60]
    assert sum(rates(best)) == 185
    assert sum(rates(blind)) == 135


def test_gavels_rounds_approach_the_max_min_throughputs() -> None:
    """37.03, 66.93, 44.15: ratio 1.13924 for everybody."""
    run = play(
        "gavel(every=1s)",
        three(1e6),
        THREE_GPUS,
        profiles=THREE,
        until=2000 * SECOND,
        validate=False,
    )
    done = run.kernel.view.work(np.arange(3)) / run.kernel.now
    assert done == pytest.approx([37.03, 66.93, 44.15], rel=0.01)


class Fixed:
    """An allocator that always gives 3/4 and 1/4 of one GPU."""

    def allocate(self, view: View, ids: Ids) -> Allocation:
        allocation = Allocation()
        for row, amount in zip(ids.tolist(), (0.75, 0.25), strict=False):
            allocation.add((row,), "V100", 1, amount)
        return allocation


def test_three_quarters_and_a_quarter_are_3_to_1_over_four_rounds() -> None:
    policy = RoundPolicy("fixed", Fixed(), 10 * SECOND)
    run = play(
        policy, [job("a", lasts=1000), job("b", lasts=1000)], cluster(1, 1), until=40 * SECOND
    )
    assert (run.kernel.view.ran(np.arange(2)) / SECOND).tolist() == [30, 10]


def test_an_agnostic_programme_gives_up_what_types_are_good_at() -> None:
    stop = 4000 * SECOND

    def work(policy: str) -> float:
        run = play(policy, three(1e6), THREE_GPUS, profiles=THREE, until=stop, validate=False)
        return float((run.kernel.view.work(np.arange(3)) / run.kernel.now).sum())

    aware, agnostic = work("gavel(every=10s)"), work("gavel(every=10s, agnostic=yes, fill=no)")
    assert aware == pytest.approx(148.1, rel=0.02)
    assert agnostic < 140


@pytest.mark.parametrize(
    "objective",
    ["max-min", "water-filling", "fifo", "makespan", "max-sum", "cost", "ftf", "isolated"],
)
@pytest.mark.parametrize("agnostic", ["yes", "no"])
def test_every_objective_finishes_every_job(objective: str, agnostic: str) -> None:
    works = [
        job(f"{model}{i}", at=7 * i, lasts=900 + 100 * i, size=1 + i % 2, model=model)
        for i, model in enumerate("abcabcab")
    ]
    on = mixed(("K80", 2), ("P100", 2), ("V100", 2))
    run = play(
        f"gavel(objective={objective}, agnostic={agnostic}, every=5s)", works, on, profiles=THREE
    )
    assert all(run.phase(work.spec.name) == "finished" for work in works)


def test_makespan_finishes_long_and_short_together() -> None:
    """One GPU, 30 s and 10 s of work: both end near 40, not at 40 and 20 as in equal turns."""
    works = [job("long", lasts=30), job("short", lasts=10)]
    fair = play("gavel(every=1s)", works, cluster(1, 1))
    even = play("gavel(objective=makespan, every=1s)", works, cluster(1, 1))
    assert fair.ended("short") in (19, 20)
    assert (even.ended("short") or 0) >= 36
    assert even.makespan == fair.makespan == 40


def test_fifo_objective_prefers_the_first() -> None:
    works = [job("first", lasts=20), job("second", lasts=20)]
    run = play("gavel(objective=fifo, every=1s)", works, cluster(1, 1))
    assert run.jct() == [20, 40]


# ---------------------------------------------------------------------- max-min and friends


def test_max_min_by_weight() -> None:
    works = [job("light", lasts=1000), job("heavy", lasts=1000, weight=3.0)]
    got = shares("max-min(every=1s)", works, cluster(1, 1), until=100 * SECOND)
    assert got == pytest.approx({"light": 0.25, "heavy": 0.75}, abs=0.02)
    got = shares("max-min(every=1s, heterogeneous=no)", works, cluster(1, 1), until=100 * SECOND)
    assert got == pytest.approx({"light": 0.25, "heavy": 0.75}, abs=0.02)
    even = shares("las(quantum=1s)", works, cluster(1, 1), until=100 * SECOND)
    assert even == pytest.approx({"light": 0.5, "heavy": 0.5}, abs=0.02)


def test_gavels_one_programme_leaves_the_second_worst_to_efficiency_and_max_min_does_not() -> None:
    """Three share a K80; of two on the V100 the faster gets all beyond the common level."""
    on = mixed(("K80", 1), ("V100", 1))
    known = profiles(slow={"V100": 1.0, "K80": 1.0}, fast={"V100": 2.0, "K80": 1.0})

    def only(kind: str) -> Shape:
        return Shape((Role(),), gpu_types=(kind,))

    works = [job(f"k{i}", lasts=1e5, model="slow", shape=only("K80")) for i in range(3)]
    works += [job(m, lasts=1e5, model=m, shape=only("V100")) for m in ("slow", "fast")]
    stop, v100 = 300 * SECOND, {}
    for recipe in ("gavel(every=1s)", "max-min(every=1s)"):
        got = shares(recipe, works, on, profiles=known, until=stop, validate=False)
        v100[recipe] = got["fast"] / (got["fast"] + got["slow"])
    assert v100["max-min(every=1s)"] == pytest.approx(0.5, abs=0.02)
    assert abs(v100["gavel(every=1s)"] - 0.5) > 0.1


def test_a_hierarchy_gives_its_tenants_2_and_4_of_6_gpus() -> None:
    tenants = (TenantSpec("small"), TenantSpec("large", weight=2.0))
    on = ClusterSpec((NodeSpec(gpus=6, gpu_type="V100"),), tenants=tenants)
    works = [job(f"s{i}", lasts=600, tenant="small", size=2) for i in range(2)]
    works += [job(f"l{i}", lasts=600, tenant="large", size=2) for i in range(4)]
    got = shares("hierarchical(every=1s)", works, on, until=300 * SECOND)
    assert list(got.values()) == pytest.approx([1 / 6] * 6, abs=0.01)


def test_a_hierarchy_differs_from_max_min_when_tenants_are_unequally_many() -> None:
    tenants = (TenantSpec("one"), TenantSpec("many"))
    on = ClusterSpec((NodeSpec(gpus=1, gpu_type="V100"),), tenants=tenants)
    works = [job("alone", lasts=600, tenant="one")]
    works += [job(f"m{i}", lasts=600, tenant="many") for i in range(3)]
    stop = 120 * SECOND
    by_tree = shares("hierarchical(every=1s)", works, on, until=stop)
    assert by_tree["alone"] == pytest.approx(1 / 2, abs=0.02)
    assert shares("max-min(every=1s)", works, on, until=stop)["alone"] == pytest.approx(
        1 / 4, abs=0.02
    )
    first = shares("hierarchical(every=1s, inside=fifo, fill=no)", works, on, until=stop)
    assert first["m0"] == pytest.approx(1 / 2, abs=0.02)
    assert first["m2"] == pytest.approx(0, abs=0.02)


def test_a_hierarchy_hands_on_what_a_tenant_cannot_use() -> None:
    """Organisation > two teams of weight 3 and 1; the heavy one has a single small job."""
    tenants = (
        TenantSpec("org"),
        TenantSpec("heavy", weight=3.0, parent="org"),
        TenantSpec("light", parent="org"),
    )
    on = ClusterSpec((NodeSpec(gpus=4, gpu_type="V100"),), tenants=tenants)
    works = [job("h", lasts=600, tenant="heavy")]
    works += [job(f"l{i}", lasts=600, tenant="light") for i in range(3)]
    run = play("hierarchical(every=1s)", works, on)
    assert run.jct() == [600] * 4


# ---------------------------------------------------------------------- finish-time fairness


def rhos(run: Played, jobs: int, each: float) -> list[float]:
    return [jct / (jobs * each) for jct in run.jct()]


def test_identical_jobs_have_equal_rho() -> None:
    run = play("ftf(every=1s)", [job(f"j{i}", lasts=100) for i in range(4)], cluster(1, 1))
    assert rhos(run, 4, 100) == pytest.approx([1.0] * 4, abs=0.02)


def test_a_job_alone_has_rho_at_most_1() -> None:
    assert play("ftf(every=1s)", [job("j", lasts=100)], cluster(1, 1)).jct() == [100]


def test_ftf_repays_a_job_for_the_time_it_waited() -> None:
    """Equal shares forget the past; finish-time fairness does not.

    `stays` cannot be preempted and keeps `old` waiting for 30 s, when `new` arrives.
    """
    works = [job("stays", lasts=30, on_preempt=OnPreempt.NEVER), job("old", at=1, lasts=60)]
    works.append(job("new", at=30, lasts=60))
    even = play("max-min(every=1s)", works, cluster(1, 1))
    fair = play("ftf(every=1s)", works, cluster(1, 1))
    assert fair.makespan == even.makespan == 150
    assert even.ended("old") in (148, 149)
    # 29 + 60 / a = 60 / (1 - a) for a = 0.5595, which ends `old` at 30 + 60 / a.
    assert fair.ended("old") == pytest.approx(137.2, abs=1)


def test_the_isolated_time_is_integrated_over_a_changing_number_of_jobs() -> None:
    """10 s of work done while 2 competed are 20 s of isolated time; 10 more among 4, 40 more."""
    from ganger.mechanisms.fairness.fair import integrate_isolated

    class Stub:
        done = 0.0

        def work(self, ids: Ids) -> Any:
            return np.array([self.done])

    view, ids = Stub(), np.array([7])
    notes = Notes()
    for done, alone in ((0.0, 0.5), (10.0, 0.25), (20.0, 0.25)):
        view.done = done
        notes = integrate_isolated(view, ids, np.array([alone]), notes)  # type: ignore[arg-type]
    assert notes.of(ids)[1][0] == [20 + 40]


# ---------------------------------------------------------------------- drf


def demand(cpus: int, gigabytes: int) -> Shape:
    needs = Needs(gpus=0, cpus=cpus * 1000, memory=gigabytes * 1024)
    return Shape((Role(needs=needs),))


def drf_jobs() -> list[Work]:
    works = [job(f"a{i}", lasts=100, user="A", shape=demand(1, 4)) for i in range(6)]
    return works + [job(f"b{i}", lasts=100, user="B", shape=demand(3, 1)) for i in range(6)]


DRF_CLUSTER = ClusterSpec((NodeSpec(cpus=9000, memory=18 * 1024),))


@pytest.mark.parametrize("walk", ["strict", "skip"])
def test_drf_gives_3_tasks_to_a_and_2_to_b(walk: str) -> None:
    run = play(f"drf(walk={walk})", drf_jobs(), DRF_CLUSTER, until=SECOND)
    started = [work.spec.name for work in drf_jobs() if run.started(work.spec.name) == 0]
    assert started == ["a0", "a1", "a2", "b0", "b1"]


def test_first_come_would_give_a_4() -> None:
    run = play("fifo", drf_jobs(), DRF_CLUSTER, until=SECOND)
    started = [work.spec.name for work in drf_jobs() if run.started(work.spec.name) == 0]
    assert started == ["a0", "a1", "a2", "a3"]


def test_drf_weighs_tenants() -> None:
    tenants = (TenantSpec("x", weight=3.0), TenantSpec("y"))
    on = ClusterSpec((NodeSpec(gpus=4, gpu_type="V100"),), tenants=tenants)
    works = [job(f"{t}{i}", lasts=10, tenant=t) for i in range(4) for t in "xy"]
    run = play("drf(owner=tenant, resources=gpus)", works, on, until=SECOND)
    started = [work.spec.name for work in works if run.started(work.spec.name) == 0]
    assert started == ["x0", "y0", "x1", "x2"]


# ---------------------------------------------------------------------- gittins


def test_a_fresh_job_beats_one_of_age_1() -> None:
    """Sizes 1 or 10: at age 1 the index falls from 1/2 to 1/9."""
    works = [job("long", lasts=10), job("short", at=1, lasts=1)]
    run = play("gittins(sizes=1s;10s, quantum=1s)", works, cluster(1, 1))
    assert run.jct() == [11, 1]


def test_where_sizes_are_certain_gittins_lets_the_older_one_finish_and_las_does_not() -> None:
    works = [job("old", lasts=10), job("new", at=5, lasts=10)]
    assert play("gittins(sizes=10s, quantum=1s)", works, cluster(1, 1)).jct() == [10, 15]
    assert play("las(quantum=1s)", works, cluster(1, 1)).jct() == [19, 15]


def test_gittins_learns_the_distribution_from_finished_jobs() -> None:
    works = [job(f"past{i}", at=i, lasts=10) for i in range(3)]
    works += [job("old", at=100, lasts=10), job("new", at=105, lasts=10)]
    run = play("gittins(quantum=1s, refresh=50s)", works, cluster(1, 1))
    assert run.ended("old") == 110


def test_tiresias_g_ranks_inside_a_queue_by_index() -> None:
    """Most jobs took 1,000 s: one that has run for 2,000 will hardly end within the step."""
    works = [job(f"past{i}", at=1000 * i, lasts=1000) for i in range(3)]
    works += [job("rare", at=3000, lasts=10000)]
    works += [job("old", at=20000, lasts=20000), job("new", at=22000, lasts=1000)]
    least = play("tiresias(thresholds=1000000s)", works, cluster(1, 1))
    ranked = play("tiresias(thresholds=1000000s, index=gittins)", works, cluster(1, 1))
    assert least.jct()[4:] == [20000, 19000]
    assert ranked.jct()[4:] == [21000, 1000]
