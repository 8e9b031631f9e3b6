"""How long jobs last: draws that past jobs alike make likely, with how little is known in them.

Jobs that still run say something too: they last longer than they have (right-censored times). To
leave them out would make long jobs too rare, since of the jobs that came together the short ones
are over first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ganger.core.state.table import cells

Floats: TypeAlias = NDArray[np.float64]
STRENGTH: Final = 3.0
"""The wider group counts as so many jobs beside those of a narrower one."""
TAIL: Final = 0.9
"""Beyond this quantile, times follow a parametric tail where no job says otherwise."""
_GROWTH_MAX = 30.0


class Lifetimes:
    """One guess, made with `luck`, at how the run times of groups of jobs are distributed, and
    draws from it.

    `took[n]`: how long each past job lasted, or has lasted so far where not `over[n]`, in any one
    unit, above 0. `groups[level][n]`: numbers of the groups that each belongs to, from the widest
    level to the narrowest.

    A draw for a group takes one of its jobs that lasted longer than the age. If that one is not
    over, the draw goes on from its age: its mass is redistributed to the right (Efron, Proc. 5th
    Berkeley Symp. 1967), which gives the estimate of Kaplan and Meier (JASA 1958). At each step it
    may instead turn to the next wider group, as a Dirichlet process does whose base is that group
    (Susarla and Van Ryzin, JASA 1976; in levels: Teh et al., JASA 2006): often where few of its own
    jobs lasted so long. Beyond the widest group lies a parametric tail. Every past job has a
    random weight, the same in all draws (the Bayesian bootstrap; Rubin, Ann. Statist. 1981), and
    the tail is random likewise: two guesses differ by as much as is not known.
    """

    def __init__(
        self,
        took: Floats,
        over: NDArray[np.bool_],
        groups: Sequence[NDArray[np.int64]],
        luck: np.random.Generator,
    ) -> None:
        self._luck = luck
        self._took, self._over = took, over
        self._weight = luck.exponential(size=len(took))
        self._order = np.argsort(took, kind="stable")
        self._groups = groups
        self._known: dict[tuple[int, int], _Group] = {}
        self._tail = _Tail(took, over, luck)

    def draw(self, groups: Sequence[int], age: float = 0.0) -> float:
        """How long a job lasts that belongs to `groups` (from the widest to the narrowest) and has
        lasted for `age`: more than that."""
        level = len(groups) - 1
        while level >= 0:
            found = self._group(level, groups[level]).draw(age, self._luck)
            if found is None:
                level -= 1
            elif found[1]:
                return found[0]
            else:
                age = found[0]
        return self._tail.draw(age, self._luck)

    def _group(self, level: int, number: int) -> _Group:
        key = level, number
        if key not in self._known:
            rows = self._order[self._groups[level][self._order] == number]
            strength = float(self._luck.gamma(STRENGTH))
            self._known[key] = _Group(
                self._took[rows], self._over[rows], self._weight[rows], strength
            )
        return self._known[key]


class _Group:
    """The past jobs of one group, the shortest first."""

    def __init__(
        self, took: Floats, over: NDArray[np.bool_], weight: Floats, strength: float
    ) -> None:
        self._took, self._mass = took, np.cumsum(weight)
        self._time, self._over = cells(took), over.tolist()
        self._strength = strength

    def draw(self, age: float, luck: np.random.Generator) -> tuple[float, bool] | None:
        """How long one that lasted longer did, and whether it is over; None: ask a wider group."""
        first = int(np.searchsorted(self._took, age, side="right"))
        if first == len(self._over):
            return None
        before = float(self._mass[first - 1]) if first else 0.0
        at = before + float(luck.random()) * (float(self._mass[-1]) - before + self._strength)
        if at >= self._mass[-1]:
            return None
        row = max(int(np.searchsorted(self._mass, at, side="right")), first)
        return self._time[row], self._over[row]


class _Tail:
    """How long those last that last longer than the knee, a quantile of all times.

    Exponential or Pareto, as likely as what is known makes each (Bayesian model averaging; Hoeting
    et al., Statist. Sci. 1999), with a rate or index drawn likewise. The priors count as one job
    more, over after twice the knee, or e times the knee. Times that are not over are lower bounds.
    """

    def __init__(self, took: Floats, over: NDArray[np.bool_], luck: np.random.Generator) -> None:
        self.knee = float(np.quantile(took, TAIL)) if len(took) else 1.0
        beyond = took > self.knee
        ends = took[beyond & over]
        waited = self.knee + float((took[beyond] - self.knee).sum())
        grew = 1.0 + float(np.log(took[beyond] / self.knee).sum())
        shape = 1.0 + len(ends)
        exponential = np.log(self.knee) - shape * np.log(waited)
        pareto = -float(np.log(ends).sum()) - shape * np.log(grew)
        self.grows = bool(luck.random() < 1.0 / (1.0 + np.exp(min(exponential - pareto, 700.0))))
        self.rate = float(luck.gamma(shape)) / (grew if self.grows else waited)

    def draw(self, age: float, luck: np.random.Generator) -> float:
        """A total run time, drawn for a job that has run for `age`."""
        begins, more = max(age, self.knee), float(luck.exponential()) / self.rate
        return begins * float(np.exp(min(more, _GROWTH_MAX))) if self.grows else begins + more
