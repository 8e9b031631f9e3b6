"""Dominant resource fairness of divisible work (Ghodsi et al., NSDI 2011, section 4)."""

from __future__ import annotations

import numpy as np

from ganger.solve.division.programme import Floats

_EVEN = 1e-12


def dominant_shares(demand: Floats, weight: Floats, most: Floats) -> Floats:
    """The dominant share of each under weighted DRF by progressive filling.

    `demand`: (n, resources), what one unit takes of each resource as a fraction of all there is;
    `most`: units that are of use. All grow by weight until they have enough or use a resource
    that is gone.
    """
    largest = demand.max(axis=1, initial=0.0)
    use = demand / np.maximum(largest, 1e-300)[:, None]
    share, growing = np.zeros(len(demand)), (largest > 0) & (weight > 0) & (most > 0)
    while growing.any():
        pace = np.where(growing, weight, 0.0)
        left = np.maximum(1.0 - np.einsum("nr,n->r", use, share), 0.0)
        taken = np.einsum("nr,n->r", use, pace)
        until_gone = np.where(taken > 0, left / np.maximum(taken, 1e-300), np.inf)
        enough = (largest * most - share)[growing] / weight[growing]
        step = max(min(float(until_gone.min()), float(enough.min())), 0.0)
        share += pace * step
        gone = (taken > 0) & (until_gone <= step + _EVEN)
        growing &= (largest * most - share > _EVEN) & ~(use[:, gone] > 0).any(axis=1)
    return share
