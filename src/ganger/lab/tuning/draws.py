"""Which configuration each trial gets: what a searcher proposes, among the curves there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.tuning.searcher import Searcher
from ganger.core.tuning.space import Point, Space
from ganger.lab.tuning.own_searcher import searcher_for
from ganger.mechanisms.tuning.searching.named import count_of
from ganger.workloads.curves.parametric import Formula, Parametric
from ganger.workloads.curves.stragglers import NO_STRAGGLERS, Stragglers
from ganger.workloads.curves.table import Curve, Curves, CurveTable

_RANDOM: Final = "random"


class Configurations:
    """The configurations of one search, in the order in which trials get them, none twice.

    A table has only some of the points of a space. Random search draws among those inside the
    space; what another searcher proposes becomes the nearest of these that no trial had yet, by
    distance in the unit cube of the space.
    """

    def __init__(
        self,
        source: CurveTable | Formula,
        space: Space | None,
        points: Sequence[Point],
        searcher: str,
        seed: int,
    ) -> None:
        """Raises BadInput where space, points and table do not fit."""
        self.rows: dict[int, int] = {}
        """By trial the row of its configuration."""
        self.searcher: Searcher | None = None
        self.curves: Curves
        self._grown: Parametric | None = None
        self._open: list[int] = []
        self._order: list[int] = []
        self._rng = np.random.default_rng([seed, 0xC0B1])
        if isinstance(source, Formula):
            if space is None:
                raise BadInput(
                    "parametric curves need a space", where="space", mend="add [space.NAME] tables"
                )
            self.curves = self._grown = Parametric(source, space, seed)
            self._space = space
            self.searcher = searcher_for(searcher, space, points, seed)
            self.count = count_of(searcher, space, points)
            return
        self.curves = source
        self._space = space if space is not None else source.space()
        self._every = _rows_inside(source, space, points)
        self._everywhere = np.array([self._space.units(source.point(row)) for row in self._every])
        self._open, self._units = list(self._every), self._everywhere
        self.count = len(self._open)
        if searcher == _RANDOM and not points:
            rng = np.random.default_rng([seed, 0x7AB1E])
            self._order = rng.permutation(self._open)[::-1].tolist()
            return
        self.searcher = searcher_for(searcher, self._space, points, seed)
        proposed = count_of(searcher, self._space, points)
        self.count = len(self._open) if proposed is None else min(len(self._open), proposed)

    def first_report(self) -> tuple[float, int] | None:
        """The epoch and the time (microseconds) of the first report of the fastest configuration;
        None where configurations are made up as they are asked for."""
        if self._grown is not None:
            return None
        firsts = [self.curves.first(row) for row in self._every]
        return min(epoch for epoch, _ in firsts), min(at for _, at in firsts)

    def draw(self, search: str, job: int) -> tuple[str, Curve] | None:
        """What the next trial is called and reports; None if there is no configuration left."""
        row = self._next()
        if row is None:
            return None
        self.rows[job] = row
        return self.curves.label(row), self.curves.curve(row)

    def copy(self, job: int, of: int, epoch: float) -> tuple[str, Curve] | None:
        """A trial that goes on where `of` was after `epoch` epochs, with a configuration near that
        one's; None where its curve ends by then. Of a table it is the nearest configuration, which
        other trials may have too."""
        near = self._space.near(self._inside(self.point(of)), self._rng)
        if self._grown is not None:
            row = self._grown.add(near)
        else:
            place = np.array(self._space.units(near))
            row = self._every[int(np.argmin(((self._everywhere - place) ** 2).sum(axis=1)))]
        curve = self.curves.curve(row).after(epoch)
        if not curve.epochs:  # a table in which some curves are shorter
            row = self.rows[of]
            curve = self.curves.curve(row).after(epoch)
        self.rows[job] = row
        return (self.curves.label(row), curve) if curve.epochs else None

    def _inside(self, point: Point) -> Point:
        """Those parameters that the space has."""
        return {name: point[name] for name in self._space.names if name in point}

    def tell(self, job: int, epoch: float, badness: float) -> None:
        """Let the searcher hear of a report."""
        if self.searcher is not None:
            self.searcher.tell(self.point(job), epoch, badness)

    def point(self, job: int) -> Point:
        """The configuration of a trial."""
        return self.curves.point(self.rows[job])

    def _next(self) -> int | None:
        if self.searcher is None:
            return self._order.pop() if self._order else None
        if self._grown is not None:
            return self._grown.add(self.searcher.ask())
        if not self._open:
            return None
        place = np.array(self._space.units(self.searcher.ask()))
        at = int(np.argmin(((self._units - place) ** 2).sum(axis=1)))
        self._units = np.delete(self._units, at, axis=0)
        row = self._open.pop(at)
        self.searcher.took(self.curves.point(row))
        return row


class Slowed:
    """The trials of `draws`, of which some are stragglers. `believed`: by trial how long it would
    take if it were none (microseconds)."""

    def __init__(self, draws: Configurations, stragglers: Stragglers, seed: int) -> None:
        self._draws, self._stragglers, self._seed = draws, stragglers, seed
        self.believed: dict[int, int] = {}

    def draw(self, search: str, job: int) -> tuple[str, Curve] | None:
        """The next trial, and what it reports when."""
        return self._slow(job, self._draws.draw(search, job))

    def copy(self, job: int, of: int, epoch: float) -> tuple[str, Curve] | None:
        """The same of a trial that begins as a copy."""
        return self._slow(job, self._draws.copy(job, of, epoch))

    def _slow(self, job: int, drawn: tuple[str, Curve] | None) -> tuple[str, Curve] | None:
        if drawn is None:
            return None
        label, curve = drawn
        self.believed[job] = curve.ends[-1]
        if self._stragglers == NO_STRAGGLERS:
            return drawn  # a generator takes longer than all else that a trial begins with
        rng = np.random.default_rng([self._seed, 0x510, job])
        return label, self._stragglers.slowed(curve, rng)


def _rows_inside(table: CurveTable, space: Space | None, points: Sequence[Point]) -> list[int]:
    """The rows of a table whose configurations lie in the space. Raises BadInput."""
    for name in space.names if space is not None else ():
        if name not in table.parameters:
            raise BadInput(
                f"the curve table has no parameter {name!r}",
                where="space",
                mend=f"it has {', '.join(table.parameters)}",
            )
    for name in {name for point in points for name in point}:
        if name not in table.parameters:
            raise BadInput(
                f"the curve table has no parameter {name!r}",
                where="points",
                mend=f"it has {', '.join(table.parameters)}",
            )
    if space is None:
        return list(range(len(table)))
    columns = {name: table.parameters[name] for name in space.names}
    rows = [
        row
        for row in range(len(table))
        if space.holds({name: column[row] for name, column in columns.items()})
    ]
    if not rows:
        raise BadInput(
            "no configuration of the curve table lies in it", where="space", mend="widen it"
        )
    return rows
