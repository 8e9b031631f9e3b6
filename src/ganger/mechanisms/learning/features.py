"""Jobs as numbers that nets can read: about -1 to 1, whatever the cluster and the day."""

from __future__ import annotations

import numpy as np

from ganger.core.books.empty import EmptyCluster
from ganger.core.state.table import Ids
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.common.believed import believed_duration
from ganger.mechanisms.learning.stepwise import Floats

JOB = ("part of GPUs", "GPUs", "waited", "remaining", "remaining GPU time", "slack", "weight")
"""The columns of `waiting_rows`."""
_DAY = 1.0 / np.log1p(86400.0)
_LONGEST = 1e9
"""Seconds; longer times, and those that nobody knows, count as so long."""


def squeezed(seconds: Floats) -> Floats:
    """Times on a logarithmic scale: 0 for none, about 1 for a day."""
    scaled: Floats = np.log1p(seconds) * _DAY
    return scaled


def waiting_rows(view: View, ids: Ids) -> Floats:
    """About each of `ids`, which wait, what `JOB` says, from what the policy may believe."""
    jobs = view.jobs
    rest = (believed_duration(view, ids) - jobs.work.take(ids)) * (1.0 / SECOND)
    rest = np.minimum(np.maximum(rest, 1.0), _LONGEST)
    gpus, due = jobs.gpus.take(ids), jobs.deadline.take(ids)
    rows = np.empty((len(JOB), len(ids)))
    rows[1] = gpus * 100.0
    rows[2] = (view.now - jobs.submitted.take(ids)) * (1.0 / SECOND)
    rows[3] = rest
    np.maximum(rest * gpus, 1.0, out=rows[4])
    np.log1p(rows[1:5], out=rows[1:5])
    rows[1:5] *= _DAY
    np.multiply(gpus, 1.0 / max(view.ledger.total, 1), out=rows[0])
    rows[5] = 1.0
    if int(due.min()) < NEVER:
        slack = (due - view.now) / SECOND - rest
        rows[5] = np.where(due < NEVER, slack / (np.abs(slack) + 3600.0), 1.0)
    rows[6] = jobs.weight.take(ids)
    rows[6] /= rows[6] + 1.0
    return rows.T


class Runnable:
    """The shapes that an empty cluster has room for. Jobs of others are not chosen from."""

    def __init__(self) -> None:
        self._met, self._able = set[int](), set[int]()

    def first(self, window: int, view: View, pending: Ids) -> Ids:
        """The first of those that wait."""
        ids = pending[:window]
        if self._able.issuperset(view.jobs.shape[ids].tolist()):
            return ids
        shapes, empty = view.jobs.shape[pending].tolist(), view.cached(EmptyCluster, view.nodes)
        for shape in set(shapes) - self._met:
            self._met.add(shape)
            if empty.fits(view.jobs.shapes[shape]):
                self._able.add(shape)
        if not self._able.issuperset(shapes):
            pending = pending[[shape in self._able for shape in shapes]]
        return pending[:window]
