"""Trials of a search over a curve table: what each truly is, and what it reports when."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Mapping
from math import isnan, nan
from typing import Protocol

import msgspec

from ganger.core.errors import BadInput
from ganger.core.events import Evaluated
from ganger.core.plan import Spawn
from ganger.core.spec import JobSpec, Kind
from ganger.core.state.jobs import Declared
from ganger.core.tuning.goals import Constraint, feasible
from ganger.core.units import NEVER
from ganger.sim.children import Searcher
from ganger.sim.evaluation import Evaluates, instant

AFTER: int = 10_000
"""Microseconds of work from the last report of a trial to its end: a recipe hears of the report
first, also where the trial is thousands of times as fast as on one GPU."""
_NEAR = 0.5
"""Microseconds that rounding may be off."""


class TrialCurve(Protocol):
    """What a trial reports, in order: epochs, microseconds since it began, values by metric."""

    @property
    def epochs(self) -> list[float]:
        """Ascending."""

    @property
    def ends(self) -> list[int]:
        """As many, never falling."""

    @property
    def values(self) -> Mapping[str, list[float]]:
        """As many each."""


class Journal:
    """All reports of a run, as columns: when, by which job, after how many epochs, what."""

    def __init__(self) -> None:
        self.at, self.job = array("q"), array("q")
        self.epoch, self.value = array("d"), array("d")
        self.broken: set[int] = set()
        """The places of reports that break a constraint."""

    def __len__(self) -> int:
        return len(self.at)


class CurveReports:
    """When trials report and what; in place of `Evaluations`. A trial has done all its work with
    the last entry of its curve, at the speed of the machine on which the curve was measured."""

    def __init__(
        self, metric: str, metrics: tuple[str, ...], constraints: tuple[Constraint, ...] = ()
    ) -> None:
        self._metric, self._constraints = metric, constraints
        self._others = [name for name in metrics if name != metric]
        self._curves: dict[int, TrialCurve] = {}
        self.at: dict[int, int] = {}
        """By job the time of its next report."""
        self.kept = Journal()
        self.heard: Callable[[int, float, float], object] = lambda job, epoch, value: None
        """Is told of each report: job, epoch, value (NaN where it breaks a constraint)."""

    def __bool__(self) -> bool:
        return True

    def look(self, declared: Declared) -> None:
        """What jobs declare does not matter."""

    def begin(self, job: int, curve: TrialCurve) -> None:
        """This is what the job will report."""
        self._curves[job] = curve

    def last_epoch(self, job: int) -> float:
        """The epoch with which the curve of the job ends."""
        return self._curves[job].epochs[-1]

    def at_epoch(self, job: int, epoch: float) -> dict[str, float]:
        """All metrics of the job's report after so many epochs."""
        curve = self._curves[job]
        number = bisect_right(curve.epochs, epoch) - 1
        return (
            {name: values[number] for name, values in curve.values.items()} if number >= 0 else {}
        )

    def length(self, job: int) -> int:
        """How long the job takes until it reports last, microseconds at the size asked for."""
        return self._curves[job].ends[-1]

    def file(self, job: int, share: float, total: int, did: float, rate: float, began: int) -> int:
        """When a job reports next that has done `share` of its work, and had done `did` of `total`
        when it began to compute at this `rate`; NEVER if all is reported."""
        curve = self._curves.get(job)
        if curve is None or rate <= 0.0:
            return NEVER
        ends = curve.ends
        ahead = bisect_right(ends, share * total + _NEAR)
        if ahead == len(ends):
            self.at.pop(job, None)
            return NEVER
        at = self.at[job] = instant(ends[ahead], did, rate, began)
        return at

    def tell(self, job: int, attempt: int, share: float) -> Evaluated:
        """What a job reports that has done `share` of its work."""
        curve = self._curves[job]
        ends = curve.ends
        number = max(bisect_right(ends, share * (ends[-1] + AFTER) + _NEAR) - 1, 0)
        value = curve.values[self._metric][number]
        others = None
        if self._others:
            others = {name: curve.values[name][number] for name in self._others}
        epoch = curve.epochs[number]
        kept = self.kept
        kept.at.append(self.at[job])
        kept.job.append(job)
        kept.epoch.append(epoch)
        kept.value.append(value)
        if self._constraints and not feasible(self._constraints, others):
            kept.broken.add(len(kept.value) - 1)
            self.heard(job, epoch, nan)
        else:
            self.heard(job, epoch, value)
        final = number + 1 == len(ends)
        return Evaluated(job, attempt, epoch, None if isnan(value) else value, others, final)


class Draws(Protocol):
    """Says which configuration a trial gets."""

    def draw(self, search: str, job: int) -> tuple[str, TrialCurve] | None:
        """What the next trial of that search, which becomes row `job`, is called and what it
        reports; None if there is no configuration left."""

    def copy(self, job: int, of: int, epoch: float) -> tuple[str, TrialCurve] | None:
        """The same of a trial that goes on where `of` was after `epoch` epochs, with a
        configuration near that one's."""


class FromDraws:
    """A `Searcher` of the simulator: each child, from row `first` on, is what `draws` says, and
    reports to `reports`."""

    def __init__(self, draws: Draws, reports: CurveReports, first: int) -> None:
        self._draws, self.reports, self.next = draws, reports, first

    def child(self, action: Spawn, kind: Kind, name: str) -> tuple[JobSpec, int]:
        """The next trial, and how long it truly runs. Raises BadInput if none is left."""
        if action.copies is None:
            drawn = self._draws.draw(action.spec.parent, self.next)
        else:
            drawn = self._draws.copy(self.next, *action.copies)
        if drawn is None:
            raise BadInput(
                "there is no configuration left for one more trial",
                where=action.spec.parent,
                mend="set `trials` lower, or use a larger space or table",
            )
        model, curve = drawn
        self.reports.begin(self.next, curve)
        self.next += 1
        spec = msgspec.structs.replace(action.spec, name=name, model=model, restore=-1)
        return spec, curve.ends[-1] + AFTER


class SeveralReports:
    """What trials of several searches report, each by its own curves, and `others` as their
    profiles say."""

    def __init__(self, others: Evaluates, searches: Iterable[CurveReports]) -> None:
        self._others, self._of = others, dict[int, CurveReports]()
        self.at = others.at
        """By job the time of its next report."""
        for reports in searches:
            reports.at = self.at

    def __bool__(self) -> bool:
        return True

    def look(self, declared: Declared) -> None:
        """Look at these columns from now on, which have grown."""
        self._others.look(declared)

    def begin(self, job: int, reports: CurveReports) -> None:
        """A job is a trial, and reports as `reports` says."""
        self._of[job] = reports

    def file(self, job: int, share: float, total: int, did: float, rate: float, began: int) -> int:
        """As its own do it."""
        return self._of.get(job, self._others).file(job, share, total, did, rate, began)

    def tell(self, job: int, attempt: int, share: float) -> Evaluated:
        """As its own do it."""
        return self._of.get(job, self._others).tell(job, attempt, share)


class BySearch:
    """A `Searcher` of the simulator for several searches: a child of row `parent` is what
    `searches[parent]` says, of others what `others` says; the first becomes row `first`. A trial is
    of a model whose name begins with that of its search; it is that name where `alike` has it."""

    def __init__(
        self,
        searches: Mapping[int, FromDraws],
        others: Searcher,
        reports: SeveralReports,
        first: int,
        alike: Container[str],
    ) -> None:
        self._searches, self._others, self._reports = searches, others, reports
        self._next, self._alike = first, alike

    def child(self, action: Spawn, kind: Kind, name: str) -> tuple[JobSpec, int]:
        """The next child, and how long it truly runs. Raises BadInput."""
        row, own = self._next, self._searches.get(action.parent)
        self._next += 1
        if own is None:
            return self._others.child(action, kind, name)
        own.next = row
        spec, takes = own.child(action, kind, name)
        self._reports.begin(row, own.reports)
        search = action.spec.parent
        model = search if search in self._alike else f"{search}:{spec.model}"
        return msgspec.structs.replace(spec, model=model), takes
