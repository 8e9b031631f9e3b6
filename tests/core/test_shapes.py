"""How many workers each role of a shape has, and on which GPUs a part of one is found."""

from __future__ import annotations

import pytest

from ganger.core.books.ledger import Ledger
from ganger.core.spec import ClusterSpec, GpuType, Needs, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes


def test_a_gang_at_the_size_that_it_asks_for_has_the_workers_that_it_asks_for() -> None:
    servers = Role(size=3, needs=Needs(gpus=0, cpus=1000))
    assert Shape((servers, Role(size=2))).sizes(2) == (3, 2), "its first role needs no GPU"
    assert Shape((Role(size=4),)).sizes(4) == (4,)


def test_at_another_size_only_the_first_role_grows_and_shrinks_by_whole_workers() -> None:
    shape = Shape((Role(size=2, least=1, most=5, needs=Needs(gpus=2)), Role(size=3)))
    assert [shape.least, shape.gpus, shape.most] == [5, 7, 13]
    assert [shape.sizes(gpus) for gpus in (5, 7, 9, 10)] == [(1, 3), (2, 3), (3, 3), (3, 3)]


@pytest.mark.parametrize(
    ("memory", "fits"), [(0, True), (15_999, True), (16_000, True), (16_001, False)]
)
def test_a_part_of_a_gpu_may_ask_for_the_memory_of_a_whole_one_and_no_more(
    memory: int, fits: bool
) -> None:
    spec = ClusterSpec(
        (NodeSpec(1, gpu_type="t", gpus=1),), gpu_types=(GpuType("t", memory=16_000),)
    )
    shape = Shape((Role(needs=Needs(share=500, gpu_memory=memory)),))
    assert (Ledger(Nodes(spec)).find(shape) is not None) == fits
