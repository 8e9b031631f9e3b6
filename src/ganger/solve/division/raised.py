"""The smallest throughput at its largest, then the sum: both in one small programme.

`shares.max_min` and `shares.efficient` answer the same two questions one after the other, for any
number of jobs and with proofs. Where classes of equal jobs are few, most of their time goes into
posing the programmes. Here one model is posed, and the second question goes on from where the
first ended. It says nothing where several answers are equally good, so that which of them is given
does not depend on how it was found.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ganger.solve.division.classes import classes
from ganger.solve.division.prices import DIRECT
from ganger.solve.division.programme import Floats, Ints, Shares
from ganger.solve.highs import Columns, Model, Staged

TIE = 1e-7
"""An entry of the dual below this part of the mean gain is 0 but for rounding."""


class Raised(NamedTuple):
    """The smallest eff / unit, and x; None for x if there are several."""

    level: float
    x: Floats | None


def raised(posed: Shares, unit: Floats) -> Raised | None:
    """The x with the largest sum of eff / unit among those that raise the smallest eff / unit as
    far as can be. None if there are many classes of jobs."""
    if not np.isfinite(posed.limit).all() or len(posed.capacity) < 2 or not (unit > 0).all():
        return None
    if len(posed.capacity) < posed.rate.shape[1]:
        return None
    merged = classes([posed.rate, posed.scale, posed.limit, unit])
    few, pace = posed.part(merged.first), unit[merged.first]
    best = few.rate.max(axis=1)
    n, k = few.rate.shape
    if n > DIRECT or not (best > 0).all():
        return None
    # In units of all that a class may have at its best, t in those of what one job does alone.
    rise = pace / (best * few.limit)
    top = rise.max()
    rise /= top
    room = merged.size * few.limit
    values = np.empty((n, k, 3))
    values[:, :, 0], values[:, :, 1] = few.scale[:, None], 1.0
    values[:, :, 2] = -few.rate / best[:, None]
    upper = np.append(np.where(few.rate > 0, np.inf, 0.0).ravel(), 1.0)
    gain = np.zeros(n * k + 1)
    gain[-1] = 1.0
    most = np.concatenate([posed.capacity, room, np.zeros(n)])
    starts, rows = _pattern(n, k)
    columns = Columns(starts, rows, np.concatenate([values.ravel(), rise * room]))
    try:
        staged = Staged(
            Model(gain, columns, np.full(len(most), -np.inf), most, np.zeros(len(gain)), upper)
        )
        level = float(staged.maximise().x[-1])
        wanted = few.rate / pace[:, None]
        gain[:-1], gain[-1] = (wanted / wanted.mean()).ravel(), 0.0
        found = staged.then(gain, len(gain) - 1, level)
    except ArithmeticError:
        return None
    free = np.count_nonzero(np.abs(found.reduced[:-1])[upper[:-1] > 0] <= TIE)
    if free + np.count_nonzero(np.abs(found.duals) <= TIE) != len(most):
        return Raised(level / top, None)  # some that are left out could come in for nothing
    return Raised(level / top, (found.x[:-1].reshape(n, k) / merged.size[:, None])[merged.of])


@lru_cache(maxsize=256)
def _pattern(n: int, k: int) -> tuple[Ints, Ints]:
    """By column, where its entries begin, and in which rows they are: the kinds, everybody's time,
    everybody's throughput."""
    job, kind = np.divmod(np.arange(n * k), k)
    own = np.stack([kind, k + job, k + n + job], axis=1).ravel()
    starts = np.append(np.arange(0, 3 * n * k + 1, 3), 3 * n * k + n)
    return starts.astype(np.int32), np.append(own, k + n + np.arange(n)).astype(np.int32)
