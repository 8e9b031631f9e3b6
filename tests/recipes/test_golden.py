"""Three small scenarios whose whole decision log is known, line by line."""

from __future__ import annotations

from ganger.core.spec import ClusterSpec, Locality, Needs, NodeSpec, OnPreempt, Role, Shape
from ganger.core.units import SECOND
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from worlds import cluster, gpus, job, play

MORNING = [
    job("etl", 0, 4, size=1),
    job("bert", 0, 12, size=4),
    job("gpt", 1, 9, size=8),
    job("tune", 2, 3, size=2, priority=2),
    job("eval", 3, 2, size=1, after=("tune",), priority=2),
    job("urgent", 5, 4, size=6, priority=9),
]


def test_a_morning_under_priorities_with_costs() -> None:
    run = play("priority", MORNING, cluster(2, 4), costs=Costs(0, 1 * SECOND, 1 * SECOND))
    assert run.text() == GOLDEN_PRIORITY


def test_the_same_morning_under_shortest_remaining_service_when_a_node_goes() -> None:
    run = play("srsf", MORNING, cluster(2, 4), outages=(Outage(1, 6 * SECOND, 9 * SECOND),))
    assert run.text() == GOLDEN_OUTAGE


MIXED = ClusterSpec(
    (
        NodeSpec(count=2, gpus=4, gpu_type="A100", cpus=16000, memory=65536, island=2),
        NodeSpec(count=1, gpus=2, gpu_type="K80", pool="old", cpus=4000, memory=8192),
    )
)
half = Needs(share=500, gpu_memory=4000)


def test_shares_types_islands_and_servers_in_one_queue() -> None:
    works = [
        job("pair", 0, 6, shape=gpus(2, locality=Locality.ISLAND)),
        job("half 1", 0, 5, shape=Shape((Role(needs=half),))),
        job("half 2", 0, 7, shape=Shape((Role(needs=half),))),
        job("old", 1, 3, shape=gpus(2, gpu_types=("K80",), pool="old")),
        job("ps", 1, 4, shape=Shape((Role("ps", 1, needs=Needs(gpus=0, cpus=8000)), Role("w", 3)))),
        job("next pair", 2, 2, shape=gpus(2, locality=Locality.ISLAND)),
        job("four", 2, 2, shape=gpus(4, gpu_types=("A100",)), on_preempt=OnPreempt.NEVER),
    ]
    assert play("fifo", works, MIXED).text() == GOLDEN_MIXED


GOLDEN_PRIORITY = """\
0: start etl on 0:0; start bert on 1:0,1,2,3
2: start tune on 0:1,2
5: stop bert; start urgent on 0:0,1,2,3 1:0,1 after bert; start eval on 1:2 after bert
10: start bert on 0:0,1,2,3
18: start gpt on 0:0,1,2,3 1:0,1,2,3"""
GOLDEN_OUTAGE = """\
0: start etl on 0:0; start bert on 1:0,1,2,3
2: start tune on 0:1,2
5: stop bert; start eval on 0:0; start urgent on 1:0,1,2,3 0:1,2 after bert
7: start bert on 0:0,1,2,3
14: start urgent on 0:0,1,2,3 1:0,1
18: start gpt on 0:0,1,2,3 1:0,1,2,3"""
GOLDEN_MIXED = """\
0: start pair on 0:0,1; start half 1 on 0:2; start half 2 on 0:2
1: start old on 2:0,1; start ps on 1: 1:0,1,2
4: start next pair on 2:0,1
5: start four on 1:0,1,2,3"""
