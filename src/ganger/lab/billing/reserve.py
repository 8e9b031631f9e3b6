"""Nodes that are named for services: these pay for them, and jobs for what they have on loan."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]


class Reserve(NamedTuple):
    """What nodes for services cost, and what each job held of them, at the nodes' prices.

    All of it is paid for: a job on loan pays the part `rate` of the price of what it holds there,
    and the services pay the rest, with what nobody held."""

    cost: float
    """Of all of the nodes while they were on."""
    held: _Floats
    """By job: of what it held there."""
    rate: float
    """0 to 1."""

    def lent(self, service: NDArray[np.bool_]) -> float:
        """The price of what other jobs than services held."""
        return float(self.held[~service].sum())

    def charged(self, cost: _Floats, service: NDArray[np.bool_]) -> _Floats:
        """What each job pays, of what it holds anywhere at the `cost` of that. Services share what
        nobody else pays of the reserve as they held it, or alike where none held anything; without
        any service that stays nobody's."""
        kept = np.where(service, self.held, 0.0)
        lent = self.held - kept
        rest = max(self.cost - kept.sum() - self.rate * lent.sum(), -kept.sum())
        held = kept if kept.any() else service.astype(np.float64)
        owned = rest * held / held.sum() if held.any() else 0.0
        return np.asarray(cost - (1 - self.rate) * lent + owned)
