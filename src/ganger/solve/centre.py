"""The middle of all best answers, where an interior-point method ends and a vertex method does not.

Many programmes over shares have a whole face of best answers. Followed from inside as the barrier
fades, they end at its analytic centre (McLinden, "An analogue of Moreau's proximation theorem",
Pacific J. Math. 1980). Newton's matrix is one small block per job and a few rows that couple them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ganger.solve.programme import Floats, Shares

FADE = 0.2
"""By how much the barrier fades at a time."""
STEPS = 50
"""Newton steps for one barrier, at most."""
LEVELS = 40
NEAR = 1e-7
"""The weight of the barrier at which to end, relative to the largest t."""


class _Barrier(NamedTuple):
    """-t / weight - log of x, of what is left of each job's time, of each kind, and of how far each
    eff is above floor + pace t. `gentle`: the last as that of a cone, 2 log(eff - floor) - log eff.
    """

    posed: Shares
    pace: Floats
    floor: Floats
    gentle: bool = False

    def slack(self, x: Floats, t: float) -> tuple[Floats, Floats, Floats]:
        """Left of every job's time, of every kind, and over what is asked of eff."""
        posed = self.posed
        over = posed.effective(x) - self.floor - self.pace * t
        return posed.limit - x.sum(axis=1), posed.capacity - posed.scale @ x, over

    def value(self, x: Floats, t: float, weight: float) -> float:
        """The function; infinite outside."""
        left, room, over = self.slack(x, t)
        parts = (x, left, room, over)
        if any(part.min(initial=1.0) <= 0 for part in parts):
            return np.inf
        total = -t / weight - sum(float(np.log(part).sum()) for part in parts)
        if self.gentle:
            total += float(np.log(self.posed.effective(x)).sum() - np.log(over).sum())
        return total

    def step(self, x: Floats, t: float, weight: float, rising: bool) -> tuple[Floats, float, float]:
        """Newton's direction in x and t, and half the square of its length."""
        posed, (left, room, over) = self.posed, self.slack(x, t)
        rate, scale = posed.rate, posed.scale
        first, second = 1 / over, 1 / over**2
        if self.gentle:
            eff = posed.effective(x)
            first, second = 2 / over - 1 / eff, 2 / over**2 - 1 / eff**2
        # In units of x, in which the blocks are far from singular.
        rate, each = rate * x, scale[:, None] * x
        down = -1 + x / left[:, None] + each / room - first[:, None] * rate
        down_t = -1 / weight + float((self.pace / over).sum())
        n = x.shape[1]
        block = second[:, None, None] * rate[:, :, None] * rate[:, None, :]
        block += x[:, :, None] * x[:, None, :] / (left**2)[:, None, None]
        block[:, range(n), range(n)] += 1
        # Columns: the right-hand side, t's coupling, and one for each kind.
        columns = np.zeros((len(x), n, n + 2))
        columns[:, :, 0] = -down
        columns[:, :, 1] = -(self.pace * second)[:, None] * rate
        columns[:, range(n), range(2, n + 2)] = each
        solved = np.linalg.solve(block, columns)
        kinds = np.einsum("ij,ijk->jk", each, solved)
        coupled = np.linalg.solve(np.diag(room**2) + kinds[:, 2:], kinds[:, :2])
        free = solved[:, :, :2] - np.einsum("ijk,kl->ijl", solved[:, :, 2:], coupled)
        dt = 0.0
        if rising:
            across = np.einsum("ij,ijl->l", columns[:, :, 1], free)
            own = float((self.pace**2 * second).sum()) - across[1]
            dt = (-down_t - across[0]) / own
        dx = free[:, :, 0] - dt * free[:, :, 1]
        return x * dx, dt, -0.5 * (float((down * dx).sum()) + down_t * dt * rising)

    def centred(self, x: Floats, t: float, weight: float, rising: bool) -> tuple[Floats, float]:
        """Where the function is least, from (x, t)."""
        for _ in range(STEPS):
            try:
                dx, dt, gain = self.step(x, t, weight, rising)
            except np.linalg.LinAlgError:  # so near the edge that numbers do not suffice
                return x, t
            if not np.isfinite(gain) or gain < 1e-9:
                break
            size, now = 1.0, self.value(x, t, weight)
            while self.value(x + size * dx, t + size * dt, weight) > now - 0.2 * size * gain:
                size /= 2
                if size < 1e-12:
                    return x, t
            x, t = x + size * dx, t + size * dt
        return x, t


def _inside(posed: Shares) -> Floats:
    """Shares that use half of everything."""
    n = posed.rate.shape[1]
    share = np.minimum(posed.limit[:, None] / n, posed.capacity / posed.scale.sum())
    half: Floats = 0.5 * np.broadcast_to(share, posed.rate.shape)
    return half


def highest(posed: Shares, pace: Floats) -> tuple[Floats, float]:
    """The middle of all x that reach the largest t with eff >= pace t, and that t. One column for
    every kind, finite limits, and `pace` above 0 everywhere."""
    even = posed._replace(rate=posed.rate / pace[:, None])
    barrier = _Barrier(even, np.ones(len(pace)), np.zeros(len(pace)))
    x = _inside(even)
    t = 0.5 * float(even.effective(x).min())
    weight = t
    for _ in range(LEVELS):
        x, t = barrier.centred(x, t, weight, True)
        weight *= FADE
        if weight < NEAR * t:
            break
    return x, t


def within(posed: Shares, floor: Floats, *, gentle: bool = False) -> Floats | None:
    """The middle of all x with eff >= floor > 0; None if there is hardly any.

    `gentle`: as a conic solver sees it to which the floor is one of 1 / eff.
    """
    even = posed._replace(rate=posed.rate / floor[:, None])
    ones = np.ones(len(floor))
    barrier, x = _Barrier(even, ones, 0 * ones), _inside(even)
    t = 0.5 * float(even.effective(x).min())
    weight = t
    for _ in range(LEVELS):
        if t > 1:
            break
        x, t = barrier.centred(x, t, weight, True)
        weight *= FADE
    if float(even.effective(x).min()) <= 1:
        return None
    return _Barrier(even, 0 * ones, ones, gentle).centred(x, 0.0, 1.0, False)[0]
