"""Weights that flow down a tree to jobs, anew whenever jobs can use no more.

Gavel (OSDI 2020), section 4.3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ganger.solve.division.programme import TINY, Floats, Ints, Mask


class Tree(NamedTuple):
    """Entities and the jobs that belong to them. Entity 0 is the root; `parent[e] < e` for all
    others.

    An entity's weight is its part of its parent's among those that still have open jobs; jobs
    that sit beside entities count together as one more of weight 1. Under the root the weights
    count as they are. Inside an entity jobs share by `job_weight`; where `fifo`, the first open
    one gets all.
    """

    parent: Ints
    weight: Floats
    fifo: Mask
    owner: Ints
    job_weight: Floats

    def parts(self, open_: Mask) -> Floats:
        """Each job's weight now; 0 for those that are not open or not yet."""
        size = len(self.parent)
        mine = np.where(open_, self.job_weight, 0.0)
        own = np.bincount(self.owner, mine, size)
        some = np.bincount(self.owner, open_, size) > 0
        live, total = some.copy(), some.astype(np.float64)
        for entity in range(size - 1, 0, -1):
            if live[entity]:
                live[self.parent[entity]] = True
                total[self.parent[entity]] += self.weight[entity]
        total[0] = 1.0
        part = np.zeros(size)
        part[0] = 1.0
        for entity in range(1, size):
            if live[entity]:
                above = self.parent[entity]
                part[entity] = part[above] * self.weight[entity] / total[above]
        each = part / np.maximum(total, TINY)
        shared: Floats = each[self.owner] * mine / np.maximum(own, TINY)[self.owner]
        queued = np.flatnonzero(open_ & self.fifo[self.owner])[::-1]
        if len(queued):
            shared[queued] = 0.0
            head = np.full(size, -1)
            head[self.owner[queued]] = queued
            head = head[head >= 0]
            shared[head] = each[self.owner[head]]
        return shared
