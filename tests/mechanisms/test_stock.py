"""What a node has for the GPUs of jobs whose supply is divided, by hand."""

from __future__ import annotations

from math import inf

from bench import Bench, on
from ganger.core.events import Submitted
from ganger.core.plan import Start
from ganger.core.spec import Needs, Role, Shape
from ganger.mechanisms.host_resources.supply import stock
from worlds import cluster, job


def test_a_gpus_share_is_its_part_of_the_node_or_of_what_is_free() -> None:
    """Four GPUs, 8 CPUs, of which a job asked for 5: one GPU may have its 2, two share the 3."""
    works = [job("asks", shape=Shape((Role(needs=Needs(cpus=5000)),))), job("b")]
    bench = Bench(*works, on=cluster(1, 4, cpus=8000))
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, on(0b1))])
    found = [stock(bench.kernel.view, 0, users) for users in (0, 1, 2, 3)]
    assert [each.share[0] for each in found] == [2000, 2000, 1500, 1000]
    assert {each.room for each in found} == {(3000, inf)}, "no memory is stated"
    assert {each.share[1] for each in found} == {inf}
