"""Hand checks of the placement, sharing, spot and production recipes, and their neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ganger.core.books.mig import mig_slice
from ganger.core.books.network import one_way, ring_all_reduce
from ganger.core.books.share import Part, Sharing, may_share
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import (
    ClusterSpec,
    GpuType,
    Needs,
    NodeSpec,
    OnPreempt,
    Role,
    Shape,
    TenantSpec,
)
from ganger.core.units import SECOND
from ganger.lab.simulation import Setup
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from worlds import Work, cluster, gpus, job, play

# ---------------------------------------------------------------------- delay scheduling


def delay_jobs() -> list[Work]:
    """Two nodes of 3 GPUs, one GPU free on each; node 0 frees a whole pair after 1 s."""
    return [
        job("short", lasts=1, size=2),
        job("long", lasts=100, size=2),
        job("gang", lasts=10, size=2, model="net"),
    ]


SLOW_WHEN_SPLIT = Profiles({"net": Profile(locality=(1.0, 1.0, 2.0, 2.0))})


@pytest.mark.parametrize(("wait", "jct"), [("1s", 11), ("0s", 20)])
def test_waiting_1_for_one_node_gives_11_and_not_waiting_20(wait: str, jct: float) -> None:
    recipe = f"delay-scheduling(node_wait={wait}, rack_wait=0s)"
    run = play(recipe, delay_jobs(), cluster(2, 3), profiles=SLOW_WHEN_SPLIT)
    assert run.jct()[2] == jct


def test_patience_ends_without_any_other_event() -> None:
    recipe = "delay-scheduling(node_wait=500ms, rack_wait=0s)"
    run = play(recipe, delay_jobs(), cluster(2, 3), profiles=SLOW_WHEN_SPLIT)
    assert run.started("gang") == 0.5


def test_fifo_does_not_wait() -> None:
    assert play("fifo", delay_jobs(), cluster(2, 3), profiles=SLOW_WHEN_SPLIT).jct()[2] == 20


# ---------------------------------------------------------------------- gang, placement


def test_two_gangs_of_4_on_6_gpus_run_one_after_the_other() -> None:
    """Pods placed one by one and by turns would hold 3 GPUs each and wait for ever."""
    run = play(
        "fifo(walk=skip)", [job("a", lasts=5, size=4), job("b", lasts=5, size=4)], cluster(3, 2)
    )
    assert run.jct() == [5, 10]


def where_two_go(recipe: str, **more: Any) -> list[int]:
    run = play(recipe, [job("x", lasts=9), job("y", lasts=9)], cluster(2, 2), until=SECOND, **more)
    return [run.kernel.ledger.holds[i][1][0].node for i in range(2)]


@pytest.mark.parametrize(("fit", "nodes"), [("best", [0, 0]), ("worst", [0, 1]), ("first", [0, 0])])
def test_fit_rules(fit: str, nodes: list[int]) -> None:
    assert where_two_go(f"placement(fit={fit})") == nodes


def test_best_fit_takes_the_fuller_node_and_first_fit_the_lower() -> None:
    works = [job("big", lasts=9, size=2), job("x", lasts=9, size=3), job("y", lasts=9)]
    on = ClusterSpec((NodeSpec(count=2, gpus=4, gpu_type="V100"),))
    nodes = {}
    for fit in ("best", "first"):
        run = play(f"placement(fit={fit})", works, on, until=SECOND)
        nodes[fit] = run.kernel.ledger.holds[2][1][0].node
    assert nodes == {"best": 1, "first": 0}


def test_random_placement_follows_the_seed() -> None:
    drawn = [tuple(where_two_go("placement(fit=random)", seed=seed)) for seed in range(8)]
    again = [tuple(where_two_go("placement(fit=random)", seed=seed)) for seed in range(8)]
    assert drawn == again
    assert len(set(drawn)) > 1


def test_consolidation_waits_for_a_whole_node() -> None:
    works = [*delay_jobs()[:2], job("gang", lasts=10, size=2)]
    assert play("placement", works, cluster(2, 3)).started("gang") == 0
    assert play("placement(within=node)", works, cluster(2, 3)).started("gang") == 1


def test_how_long_moving_a_gigabyte_takes() -> None:
    times = [round(1000 * one_way(1, bandwidth), 3) for bandwidth in (600, 25, 10)]
    assert times == [1.667, 40, 100]
    assert one_way(4, 600) == pytest.approx(6.67e-3, abs=5e-6)
    assert one_way(4, 10) == 0.4
    assert 0.2 + one_way(0.5, 600) == pytest.approx(0.20083, abs=5e-6)
    assert 0.2 + one_way(0.5, 10) == 0.25
    assert 0.25 / (0.2 + one_way(0.5, 600)) == pytest.approx(1.245, abs=5e-4)
    assert ring_all_reduce(1, 10, 4) == pytest.approx(1.5 * one_way(1, 10))


def test_blind_assignment_by_chance_follows_the_seed() -> None:
    on = ClusterSpec(tuple(NodeSpec(gpus=4, gpu_type=name) for name in ("K80", "V100")))

    def types(seed: int) -> str:
        run = play(
            "heterogeneity-agnostic(chance=yes)",
            [job(f"j{i}", lasts=9) for i in range(4)],
            on,
            seed=seed,
            until=SECOND,
        )
        return "".join(str(run.kernel.ledger.holds[i][1][0].node) for i in range(4))

    assert len({types(seed) for seed in range(8)}) > 2


# ---------------------------------------------------------------------- space sharing

A100 = ClusterSpec((NodeSpec(gpus=1, gpu_type="A100"),), gpu_types=(GpuType("A100", memory=40960),))


def part(compute: float, memory: float) -> Shape:
    """A share of one A100, both as fractions."""
    return Shape(
        (Role(needs=Needs(share=round(1000 * compute), gpu_memory=round(40960 * memory))),)
    )


@pytest.mark.parametrize("mode", ["mps", "mig", "time"])
def test_two_jobs_at_30_percent_memory_and_40_percent_compute_fit_on_one_gpu(mode: str) -> None:
    works = [job(f"j{i}", lasts=10, shape=part(0.4, 0.3)) for i in range(2)]
    assert play(f"space-sharing(mode={mode})", works, A100).jct() == [10, 10]


@pytest.mark.parametrize("mode", ["mps", "mig", "time"])
def test_three_jobs_at_40_percent_memory_do_not(mode: str) -> None:
    works = [job(f"j{i}", lasts=10, shape=part(0.3, 0.4)) for i in range(3)]
    assert play(f"space-sharing(mode={mode})", works, A100).jct() == [10, 10, 20]


def test_mig_rounds_up_to_partitions_and_mps_does_not() -> None:
    """Three jobs of 30 % compute: 3 x 3/7 is more than 7/7."""
    works = [job(f"j{i}", lasts=10, shape=part(0.3, 0.1)) for i in range(3)]
    assert play("space-sharing(mode=mps)", works, A100).jct() == [10, 10, 10]
    assert play("space-sharing(mode=mig)", works, A100).jct() == [10, 10, 20]
    assert play("fifo(walk=skip)", works, A100).jct() == [10, 10, 10]


def test_the_table_of_partitions() -> None:
    for asked, slots in (((400, 12288), (3, 4)), ((100, 5000), (1, 1)), ((100, 9000), (1, 2))):
        found = mig_slice(Part(*asked), "A100", 40960)
        assert found is not None
        assert found[:2] == slots
    assert mig_slice(Part(100, 5000), "V100", 40960) is None
    assert not may_share(Sharing.MPS, [Part(10, 1)] * 49, 40960)
    assert may_share(Sharing.TIME, [Part(10, 1)] * 49, 40960)


def test_gangs_of_parts_take_different_devices() -> None:
    on = ClusterSpec((NodeSpec(count=2, gpus=2, gpu_type="A100"),), gpu_types=A100.gpu_types)
    shape = Shape((Role(size=3, needs=Needs(share=500, gpu_memory=1000)),))
    works = [job(f"g{i}", lasts=10, shape=shape) for i in range(3)]
    assert play("space-sharing", works, on).jct() == [10, 10, 20]


# ---------------------------------------------------------------------- spot

SPOT = ClusterSpec(
    (NodeSpec(gpus=1, gpu_type="V100", labels=("spot",)), NodeSpec(gpus=1, gpu_type="V100"))
)


def test_a_revocation_loses_half_an_interval_and_a_restart_and_nothing_else() -> None:
    """Checkpoints every 10 s of work, revoked at 15, 3 s to restore: 5 + 3 more than 40."""
    setup = Setup(
        costs=Costs(checkpoint_every=10 * SECOND, restore=3 * SECOND),
        outages=(Outage(0, 15 * SECOND, 1000 * SECOND),),
    )
    run = play("spot", [job("a", lasts=40)], SPOT, setup)
    assert run.jct() == [48]
    assert run.jobs.lost[0] / SECOND == 5
    assert run.jobs.restarts[0] == 1


def test_jobs_that_cannot_checkpoint_keep_off_spot_nodes() -> None:
    works = [job(f"k{i}", lasts=10, on_preempt=OnPreempt.KILL) for i in range(2)]
    works.append(job("c", lasts=10))
    run = play("spot", works, SPOT)
    assert run.jct() == [10, 20, 10]
    assert play("fifo(walk=skip)", works, SPOT).jct() == [10, 10, 20]


def test_without_preference_spot_nodes_come_in_their_turn() -> None:
    works = [job("c", lasts=10), job("k", at=1, lasts=10, on_preempt=OnPreempt.KILL)]
    on = ClusterSpec(SPOT.nodes[::-1])
    assert play("spot", works, on).jct() == [10, 10]
    assert play("spot(prefer=no)", works, on).jct() == [10, 19]


# ---------------------------------------------------------------------- production queues


def test_a_head_blocks_its_own_tenant_only() -> None:
    tenants = (TenantSpec("a", quota=4), TenantSpec("b", quota=4))
    on = ClusterSpec((NodeSpec(count=2, gpus=4, gpu_type="V100"),), tenants=tenants)
    works = [
        job("a0", lasts=10, size=2, tenant="a"), job("a1", lasts=10, size=4, tenant="a"),
        job("a2", lasts=10, size=2, tenant="a"), job("b0", lasts=10, size=4, tenant="b"),
    ]  # fmt: skip
    run = play("yarn-cs", works, on)
    assert [run.started(f"a{i}") for i in range(3)] == [0, 10, 20]
    assert run.started("b0") == 0
    assert [play("fifo", works, on).started(name) for name in ("a1", "b0")] == [0, 10]


def test_yarn_waits_for_one_node_though_two_have_room() -> None:
    run = play("yarn-cs", delay_jobs(), cluster(2, 3))
    assert run.started("gang") == 1


def test_tiresias_beats_yarn_on_a_heavy_tail_without_durations() -> None:
    rng, n = np.random.default_rng(1), 400
    lasts = np.exp(rng.normal(6.0, 2.0, n)).clip(30, 5e4)
    sizes = rng.choice([1, 1, 1, 2, 4, 8], n)
    at = np.cumsum(rng.exponential((lasts * sizes).mean() / 32 / 0.8, n))
    works = [
        job(f"j{i}", at=float(at[i]), lasts=float(lasts[i]), size=int(sizes[i]), tenant=f"t{i % 2}")
        for i in range(n)
    ]
    jct = {
        recipe: float(np.mean(play(recipe, works, cluster(4, 8), validate=False).jct()))
        for recipe in ("yarn-cs", "tiresias")
    }
    assert jct["yarn-cs"] >= 1.5 * jct["tiresias"]


def test_qssf_runs_third_second_first() -> None:
    """(GPUs, predicted) = (1, 10), (4, 2), (2, 3): services 10, 8, 6."""
    works = [
        job("now", lasts=1, size=4),
        job("first", at=0.5, lasts=10, size=1), job("second", at=0.5, lasts=2, size=4),
        job("third", at=0.5, lasts=3, size=2),
    ]  # fmt: skip
    run = play("helios", works, cluster(1, 4))
    assert [run.started(name) for name in ("third", "second", "first")] == [1, 4, 6]


def test_qssf_differs_from_sjf() -> None:
    works = [job("now", lasts=1, size=4)]
    works += [job("wide", at=0.5, lasts=2, size=4), job("thin", at=0.5, lasts=3)]
    assert play("sjf", works, cluster(1, 4)).started("wide") == 1
    assert play("helios", works, cluster(1, 4)).started("thin") == 1


def test_gangs_of_one_shape_but_other_rules_do_not_block_each_other() -> None:
    """Under Tiresias a skewed model waits for one node; a like gang that need not goes ahead."""
    setup = Setup(profiles=Profiles({"vgg": Profile(skewed=True)}))
    works = [
        *delay_jobs()[:2],
        job("vgg", lasts=5, model="vgg", shape=gpus(2)),
        job("resnet", lasts=5, shape=gpus(2)),
    ]
    run = play("tiresias", works, cluster(2, 3), setup)
    assert run.started("resnet") == 0
    assert run.started("vgg") == 1
