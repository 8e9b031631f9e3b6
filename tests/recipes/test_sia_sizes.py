"""On how many GPUs of a cell Sia lets a job run (section 3.2), by hand."""

from __future__ import annotations

from bench import Bench
from ganger.core.spec import Role, Shape
from ganger.recipes.training.goodput.sia import sizes
from worlds import cluster, job


def test_powers_of_two_within_a_node_and_whole_nodes_beyond() -> None:
    cell = Bench(job("a"), on=cluster(3, 4)).kernel.view.ledger.cells[0]
    asks = Shape((Role(size=3, least=1, most=12),))
    assert sizes(asks, cell, 12) == [1, 2, 3, 4, 8, 12], "what it asks for is one of them"
    assert sizes(asks, cell, 11) == [1, 2, 3, 4, 8]
    assert sizes(Shape((Role(size=2, least=2, most=8),)), cell, 12) == [2, 4, 8]
    six = Bench(job("a"), on=cluster(2, 6)).kernel.view.ledger.cells[0]
    assert sizes(asks, six, 12) == [1, 2, 3, 4, 6, 12]
