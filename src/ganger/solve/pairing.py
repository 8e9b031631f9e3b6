"""Pairs of the largest total weight in any graph: maximum-weight matching.

Edmonds' blossom algorithm (Journal of Research NBS 69B, 1965), on a dense matrix of whole numbers.
It begins with the best fractional pairs, which an assignment of every node to a partner gives
(Applegate and Cook, 1993): what is left to do is one search from each of the few odd cycles in it.

The proof is a price for every node and for every odd set that was shrunk. In units of half a unit
of weight: y(a) + y(b) >= 2 w(a, b) for every pair that is in no shrunk set together, with equality
for pairs that were made; y >= 0, and 0 where a node has no partner.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
from scipy.optimize import linear_sum_assignment

from ganger.solve.division.programme import Floats, Ints

Edge: TypeAlias = tuple[int, int]
SCALE: Final = 1 << 32
"""Weights are whole numbers of this part of the largest one."""
FREE, OUTER, INNER = range(3)
"""Where a node or a shrunk set is in the tree of a search: outside; an even number of steps from
its root, so that it could do without its partner; or an odd one."""


class Pairing(NamedTuple):
    """`partner[a]`: the node that a is with, -1 for none. `value`: the total weight of the pairs,
    `bound`: what it could be at most by the proof; they differ by rounding at most."""

    partner: Ints
    value: float
    bound: float


def heaviest_pairs(weight: Floats) -> Pairing:
    """The pairs of the largest total weight. `weight`: (nodes, nodes), symmetric, 0 or less where
    two must not be together. Exact, but for a rounding to the 2^-32nd part of the largest weight.
    """
    n = len(weight)
    unit = float(weight.max(initial=0.0)) / SCALE
    if n < 2 or unit <= 0:
        return Pairing(np.full(n, -1), 0.0, 0.0)
    whole = np.rint(np.maximum(weight, 0.0) / unit).astype(np.int64)
    np.fill_diagonal(whole, 0)
    search = _Search(whole)
    for root in range(n):
        if search.partner[root] < 0 and search.price[root] > 0:
            search.run(root)
    partner = np.array(search.partner)
    alone = (partner < 0) | (whole[np.arange(n), partner] == 0)
    partner[alone] = -1
    value = float(weight[np.flatnonzero(~alone), partner[~alone]].sum()) / 2
    return Pairing(partner, value, search.bound() * unit)


class _Search:
    """The pairs so far, their proof, and the tree of the search at hand.

    Numbers below n are nodes; from n on they are shrunk sets, each an odd cycle of nodes and sets
    (`cycle`), whose `edges[i]` joins the i-th to the next. `base`: the one node of a set that has
    its partner outside. `top`: by node, the largest set that it is in, or itself. `via`: the edge
    by which a top came into the tree, from the tree's end.
    """

    def __init__(self, weight: Ints) -> None:
        self.n = n = len(weight)
        self.twice = 2 * weight
        self.price, self.partner = _fractional(weight)
        self.top = np.arange(n)
        self.base = list(range(n))
        self.within = [-1] * n
        self.cycle: dict[int, list[int]] = {}
        self.edges: dict[int, list[Edge]] = {}
        self.price_of_set: dict[int, int] = {}
        self.nodes: dict[int, Ints] = {}
        self.unused: list[int] = []

    def bound(self) -> float:
        """The value of the proof: no pairs have a larger total weight."""
        sets = sum(
            price * (len(self._nodes(each)) // 2) for each, price in self.price_of_set.items()
        )
        return float(self.price.sum()) / 2 + sets

    # ------------------------------------------------------------------ one search

    def run(self, root: int) -> None:
        """Give `root`, which has no partner and a price above 0, a partner or the price 0."""
        self.label = [FREE] * len(self.base)
        self.via: dict[int, Edge | None] = {}
        self._enter(int(self.top[root]), OUTER, None)
        while not self._step():
            pass

    def _enter(self, top: int, label: int, via: Edge | None) -> None:
        self.label[top], self.via[top] = label, via

    def _step(self) -> bool:
        """Change prices until something happens, and do that; whether the search is over."""
        labels = np.array(self.label)[self.top]
        outer = np.flatnonzero(labels == OUTER)
        slack = self.price[outer, None] + self.price - self.twice[outer]
        np.right_shift(slack, 1, out=slack, where=labels == OUTER)
        slack[self.top[outer, None] == self.top] = _NEVER
        slack[:, labels == INNER] = _NEVER
        # Of equals an end of the search comes first, and what makes odd sets last.
        ties = np.where(labels == OUTER, 2, np.array(self.partner)[self._bases()] >= 0)
        at, to = divmod(int((4 * slack + ties).argmin()), self.n)
        cheapest = int(outer[self.price[outer].argmin()])
        inner = [top for top in self.price_of_set if self._is_top(top) and self.label[top] == INNER]
        thinnest = min(inner, key=self.price_of_set.__getitem__, default=-1)
        change = min(int(slack[at, to]), int(self.price[cheapest]))
        expands = thinnest >= 0 and self.price_of_set[thinnest] < change
        if expands:
            change = self.price_of_set[thinnest]
        self._reprice(labels, change)
        if expands:
            self._expand(thinnest)
        elif self.price[cheapest] == 0:
            self._swap_up(cheapest, -1)
            return True
        else:
            return self._reach(int(outer[at]), to)
        return False

    def _reprice(self, labels: Ints, change: int) -> None:
        if change:
            self.price[labels == OUTER] -= change
            self.price[labels == INNER] += change
            for each in self.price_of_set:
                if self._is_top(each) and self.label[each] != FREE:
                    self.price_of_set[each] += change if self.label[each] == OUTER else -change

    def _bases(self) -> Ints:
        """By node, the base of its top."""
        return np.array(self.base)[self.top]

    def _is_top(self, each: int) -> bool:
        return self.within[each] < 0

    def _reach(self, a: int, b: int) -> bool:
        """The edge from a node of the tree to another one costs nothing; whether that ends the
        search."""
        top = int(self.top[b])
        if self.label[top] == OUTER:
            self._shrink(a, b)
            return False
        if self.partner[self.base[top]] < 0:
            self._rebase(top, b)
            self.partner[b] = a
            self._swap_up(a, b)
            return True
        self._take_in(a, b)
        return False

    def _take_in(self, a: int, b: int) -> None:
        """Take the top of b into the tree behind a, and its partner."""
        top = int(self.top[b])
        self._enter(top, INNER, (a, b))
        base = self.base[top]
        partner = self.partner[base]
        self._enter(int(self.top[partner]), OUTER, (base, partner))

    def _swap_up(self, node: int, partner: int) -> None:
        """Give an outer node another partner (-1: none); swap partners from there to the root."""
        while True:
            top = int(self.top[node])
            self._rebase(top, node)
            self.partner[node] = partner
            via = self.via[top]
            if via is None:
                return
            above = int(self.top[via[0]])
            entered = self.via[above]
            assert entered is not None, "the root is outer"
            node, partner = entered
            self._rebase(above, partner)
            self.partner[partner] = node

    def _rebase(self, top: int, node: int) -> None:
        """Pair the nodes of a set among themselves so that `node` is the one without."""
        if top < self.n:
            return
        child = node
        while self.within[child] != top:
            child = self.within[child]
        self._rebase(child, node)
        cycle, edges = self.cycle[top], self.edges[top]
        at = cycle.index(child)
        cycle, edges = cycle[at:] + cycle[:at], edges[at:] + edges[:at]
        for i in range(1, len(cycle), 2):
            a, b = edges[i]
            self._rebase(cycle[i], a)
            self._rebase(cycle[i + 1], b)
            self.partner[a], self.partner[b] = b, a
        self.cycle[top], self.edges[top] = cycle, edges
        self.base[top] = node

    # ------------------------------------------------------------------ odd sets

    def _shrink(self, a: int, b: int) -> None:
        """The edge from a to b closes an odd cycle of tops: make it one."""
        paths: list[list[Edge]] = [[], []]
        seen: list[list[int]] = [[int(self.top[a])], [int(self.top[b])]]
        for path, tops in zip(paths, seen, strict=True):
            while (via := self.via[tops[-1]]) is not None:
                path.append(via)
                tops.append(int(self.top[via[0]]))
        while len(seen[0]) > 1 and len(seen[1]) > 1 and seen[0][-2] == seen[1][-2]:
            for tops, path in zip(seen, paths, strict=True):
                tops.pop()
                path.pop()
        begin, end = seen
        new = self.unused.pop() if self.unused else len(self.base)
        if new == len(self.base):
            self.base.append(-1)
            self.within.append(-1)
            self.label.append(FREE)
        self.cycle[new] = begin[::-1] + end[:-1]
        self.edges[new] = [*paths[0][::-1], (a, b), *(edge[::-1] for edge in paths[1])]
        self.base[new] = self.base[begin[-1]]
        self.price_of_set[new] = 0
        self.within[new] = -1
        self._enter(new, OUTER, self.via[begin[-1]])
        for child in self.cycle[new]:
            self.within[child] = new
        self.nodes[new] = np.concatenate([self._nodes(child) for child in self.cycle[new]])
        self.top[self.nodes[new]] = new

    def _nodes(self, each: int) -> Ints:
        """The nodes of a set, or the node itself."""
        return self.nodes[each] if each >= self.n else np.array([each])

    def _expand(self, old: int) -> None:
        """An inner set has the price 0: the part of its cycle on the way from where the tree enters
        it to its base stays in the tree, the rest leaves it."""
        entry = self.via[old]
        assert entry is not None, "an inner set was entered"
        cycle, edges = self.cycle.pop(old), self.edges.pop(old)
        del self.price_of_set[old], self.nodes[old]
        self.unused.append(old)
        self.label[old] = FREE
        for child in cycle:
            self.within[child] = -1
            self.top[self._nodes(child)] = child
            self.label[child] = FREE
        at = cycle.index(int(self.top[entry[1]]))
        if at % 2:  # to the end of the cycle, which is before its begin
            steps = [*edges[at:]]
        else:
            steps = [(b, a) for a, b in edges[:at][::-1]]
        a, b = entry
        for i in range(0, len(steps), 2):
            self._take_in(a, b)
            a, b = steps[i + 1]
        self._enter(int(self.top[b]), INNER, (a, b))


_NEVER: Final = 1 << 60


def _fractional(weight: Ints) -> tuple[Ints, list[int]]:
    """Prices that are a proof for fractional pairs, and the whole pairs among these, with all but
    one node of each odd cycle paired along it."""
    n, nodes = len(weight), np.arange(len(weight))
    _, to = linear_sum_assignment(weight, maximize=True)
    to = np.asarray(to, np.int64)
    lost = weight - weight[nodes, to][:, None]
    column = np.zeros(n, np.int64)
    while True:  # the price of j as a partner is the most that anybody would gain by it
        better = np.maximum(column, (column[to][:, None] + lost).max(axis=0))
        if (better == column).all():
            break
        column = better
    price = weight[nodes, to] - column[to] + column
    partner, done = [-1] * n, [False] * n
    for first in range(n):
        cycle: list[int] = []
        node = first
        while not done[node]:
            done[node] = True
            cycle.append(node)
            node = int(to[node])
        if len(cycle) % 2 and len(cycle) > 1:
            cheapest = min(range(len(cycle)), key=lambda at: price[cycle[at]])
            cycle = cycle[cheapest + 1 :] + cycle[:cheapest]
        for a, b in zip(cycle[0::2], cycle[1::2], strict=False):
            partner[a], partner[b] = b, a
    return price, partner
