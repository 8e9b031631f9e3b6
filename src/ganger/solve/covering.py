"""The cheapest bundles whose pieces, divided among demands, cover them: an integer programme.

Devices are bundles of slices and services are demands, for one. A piece is of some kind, and a
bundle has so many of each kind.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ganger.solve.highs import Floats, Ints, Model, maximise, maximise_whole, model


class Covering(NamedTuple):
    """`gains`: what a piece of each kind covers of each demand, (demands, kinds); `needs`: of each
    demand; `least` and `limits`: pieces that each demand has to have, and may have; `bundles`:
    pieces of each kind in each bundle, (bundles, kinds); `prices`: of a bundle; `pool`: which pool
    each bundle is taken from, and `room`: the bundles that each pool has."""

    gains: Floats
    needs: Floats
    least: Ints
    limits: Ints
    bundles: Ints
    prices: Floats
    pool: Ints
    room: Ints


class Cover(NamedTuple):
    """`pieces`: of each kind for each demand; `bundles`: how many of each; `cost`: of all bundles;
    `bound`: what it is at least; `nodes`: that were tried."""

    pieces: Ints
    bundles: Ints
    cost: float
    bound: float
    nodes: int

    @property
    def gap(self) -> float:
        """The part of the cost that might still be saved."""
        return 1 - self.bound / self.cost if self.cost > 0 else 0.0


def posed(covering: Covering) -> Model:
    """The programme: pieces of each demand and kind, demand by demand, and bundles."""
    demands, kinds = covering.gains.shape
    count, pools = len(covering.prices), len(covering.room)
    cells = demands * kinds
    by_demand = sparse.kron(sparse.eye_array(demands), np.ones((1, kinds)))
    covers = sparse.kron(sparse.eye_array(demands), np.ones((1, kinds))) @ sparse.diags_array(
        covering.gains.ravel()
    )
    by_kind = sparse.kron(np.ones((1, demands)), sparse.eye_array(kinds))
    member = sparse.csr_array(
        (np.ones(count), (covering.pool, np.arange(count))), shape=(pools, count)
    )
    use = sparse.csr_array(covering.bundles.T.astype(np.float64))
    rows: Any = sparse.vstack(
        [
            sparse.hstack([covers, sparse.csr_array((demands, count))]),
            sparse.hstack([by_demand, sparse.csr_array((demands, count))]),
            sparse.hstack([by_kind, -use]),
            sparse.hstack([sparse.csr_array((pools, cells)), member]),
        ]
    )
    none = np.full(demands, np.inf)
    able = (covering.gains > 0).ravel()
    return model(
        np.concatenate([np.zeros(cells), -covering.prices]),
        sparse.csr_array(rows),
        np.concatenate([none, covering.limits, np.zeros(kinds), covering.room]).astype(np.float64),
        least=np.concatenate(
            [covering.needs, covering.least, np.full(kinds + pools, -np.inf)]
        ).astype(np.float64),
        upper=np.concatenate([np.where(able, np.inf, 0.0), np.full(count, np.inf)]),
        integer=np.ones(cells + count, np.bool_),
    )


def relaxed(covering: Covering) -> float:
    """What the cheapest cover costs if pieces and bundles could be halved: no cover costs less.
    Raises Infeasible where there is none."""
    return -maximise(posed(covering)._replace(integer=None)).value


def cheapest(
    covering: Covering,
    start: tuple[Ints, Ints],
    *,
    nodes: int = 10_000,
    gap: float = 1e-6,
    seconds: float = np.inf,
) -> Cover:
    """The cheapest cover within that many nodes, or with a `gap` that is proved; never dearer than
    `start`, pieces and bundles that cover all. `seconds` is for the edge only."""
    first = np.concatenate([start[0].ravel(), start[1]]).astype(np.float64)
    answer = maximise_whole(posed(covering), first, nodes=nodes, gap=gap, seconds=seconds)
    whole: NDArray[np.int64] = np.rint(answer.x).astype(np.int64)
    cells = covering.gains.size
    pieces = whole[:cells].reshape(covering.gains.shape)
    return Cover(pieces, whole[cells:], -answer.value, -answer.bound, answer.work)
