"""Pairs of the largest total weight: against all there are, and with their proof."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ganger.solve.pairing import Pairing, heaviest_pairs
from soaking import many

Floats = NDArray[np.float64]


def graph(seed: int, nodes: int) -> Floats:
    """A graph of one of five kinds: dense or sparse, with weights that are all different or hardly
    ever, or near points in a square."""
    rng = np.random.default_rng(seed)
    kind = seed % 5
    weight = rng.random((nodes, nodes))
    if kind in (2, 3):
        weight = rng.integers(0, 3, (nodes, nodes)).astype(np.float64)
    elif kind == 4:
        points = rng.random((nodes, 2))
        weight = 1.3 - np.sqrt(((points[:, None] - points) ** 2).sum(axis=-1))
    weight = np.triu(weight, 1)
    if kind in (1, 3):
        weight *= rng.random((nodes, nodes)) < 0.4 if nodes <= 10 else 0.1
    return weight + weight.T


def brute(weight: Floats) -> float:
    """The largest total weight, by trying every set of pairs."""
    nodes = len(weight)

    @lru_cache(None)
    def best(left: int) -> float:
        if not left:
            return 0.0
        first = left.bit_length() - 1
        rest = left ^ 1 << first
        with_others = [
            float(weight[first, other]) + best(rest ^ 1 << other)
            for other in range(nodes)
            if rest >> other & 1 and weight[first, other] > 0
        ]
        return max([best(rest), *with_others])

    return best((1 << nodes) - 1)


def check(weight: Floats) -> Pairing:
    """The pairs are pairs of those that may be together, and their proof is theirs."""
    answer = heaviest_pairs(weight)
    partner = answer.partner
    paired = np.flatnonzero(partner >= 0)
    assert (partner[partner[paired]] == paired).all()
    assert (weight[paired, partner[paired]] > 0).all()
    assert answer.value == pytest.approx(weight[paired, partner[paired]].sum() / 2)
    assert answer.bound == pytest.approx(answer.value, abs=1e-6)
    return answer


@pytest.mark.parametrize(
    "seeds", [range(250), pytest.param(range(1000, 1000 + many(20000)), marks=pytest.mark.soak)]
)
def test_no_other_pairs_weigh_more(seeds: range) -> None:
    for seed in seeds:
        weight = graph(seed, 2 + seed % 9)
        assert check(weight).value == pytest.approx(brute(weight), abs=1e-6), seed


@pytest.mark.parametrize(
    "seeds",
    [
        range(60),
        (5019, 5049, 5069, 5089, 5144, 5149, 5224, 5314, 5394),
        pytest.param(range(5000, 5000 + many(5000)), marks=pytest.mark.soak),
    ],
    ids=["some", "odd sets are taken apart again", "many"],
)
def test_larger_graphs_are_proved(seeds: Sequence[int]) -> None:
    """Deep nests of odd sets, which small graphs have no room for."""
    for seed in seeds:
        check(graph(seed, 15 + seed % 50))


@pytest.mark.parametrize(("seed", "nodes"), [(39, 59), (899, 64), (1904, 34), (6439, 24)])
def test_the_way_to_the_root_leads_through_inner_odd_sets(seed: int, nodes: int) -> None:
    check(graph(seed, nodes))


@pytest.mark.parametrize(
    ("edges", "nodes", "value", "partner"),
    [
        pytest.param({}, 3, 0, [-1, -1, -1], id="nobody may be with anybody"),
        pytest.param({(0, 1): 2, (1, 2): 3, (2, 3): 2}, 4, 4, [1, 0, 3, 2], id="2 + 2, not 3"),
        pytest.param({(0, 1): 2, (1, 2): 5, (2, 3): 2}, 4, 5, [-1, 2, 1, -1], id="5, not 2 + 2"),
        pytest.param({(0, 1): 5, (1, 2): 5, (0, 2): 5}, 3, 5, None, id="a triangle has one pair"),
        pytest.param(
            {(0, 1): 8, (1, 2): 9, (0, 2): 10, (2, 3): 7},
            4,
            15,
            [1, 0, 3, 2],
            id="out of a triangle by its tip",
        ),
        pytest.param({(0, 1): -1, (1, 2): 1}, 3, 1, [-1, 2, 1], id="nothing below 0"),
    ],
)
def test_small_graphs_by_hand(
    edges: dict[tuple[int, int], float], nodes: int, value: float, partner: list[int] | None
) -> None:
    weight = np.zeros((nodes, nodes))
    for (a, b), each in edges.items():
        weight[a, b] = weight[b, a] = each
    answer: Any = check(weight)
    assert answer.value == pytest.approx(value)
    assert partner is None or answer.partner.tolist() == partner


def test_no_nodes_and_one_node_have_no_pairs() -> None:
    assert heaviest_pairs(np.zeros((0, 0))).partner.tolist() == []
    assert heaviest_pairs(np.ones((1, 1))).partner.tolist() == [-1]


def test_nodes_that_are_all_alike_are_all_paired_but_one() -> None:
    for nodes in (20, 21):
        partner = check(np.full((nodes, nodes), 0.5)).partner
        assert (partner < 0).sum() == nodes % 2
