"""What jobs and services reported, kept so that a policy that was not asked misses nothing; and
what policies have set for them.

`view.trials` has the reports, also of other jobs that evaluate their model; `view.services` the
last windows. With `AskAt` a policy is asked only when a trial reaches an epoch. What policies set
with `Tune`, `Route` and `Lend` stands in `view.knobs`, `view.routes` and `view.lent`, and in the
snapshot.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable

import msgspec

from ganger.core.events import METRICS_MAX, Evaluated, Served

REPORTS_MAX = 4096
"""The most reports that are kept of one trial, the last ones."""
WINDOWS_MAX = 64
"""The most windows that are kept of one service, the last ones."""


class Curve:
    """What one trial, or job, reported, in order: epochs, values (NaN: it broke down), and other
    metrics by name (NaN where a report lacks one), of `METRICS_MAX` names: however many reports
    come, each with names of its own, a job fills no memory with them."""

    __slots__ = ("epochs", "final", "metrics", "values")

    def __init__(self) -> None:
        self.epochs = array("d")
        self.values = array("d")
        self.metrics: dict[str, array[float]] = {}
        self.final = False
        """Whether the trial said that it is done."""

    def add(self, report: Evaluated) -> None:
        """One report more."""
        if len(self.epochs) >= REPORTS_MAX:
            for column in (self.epochs, self.values, *self.metrics.values()):
                del column[: REPORTS_MAX // 4]
        before = len(self.epochs)
        self.epochs.append(report.epoch)
        self.values.append(math.nan if report.value is None else report.value)
        for name in report.metrics or ():
            if name not in self.metrics and len(self.metrics) < METRICS_MAX:
                self.metrics[name] = array("d", [math.nan]) * before
        for name, column in self.metrics.items():
            column.append((report.metrics or {}).get(name, math.nan))
        self.final = self.final or report.final

    def reached(self, epoch: float) -> float:
        """The value of the first report at `epoch` or after; of the last one if none is that far;
        NaN before the first. What a trial reported before it was set back does not count."""
        value = self.values[-1] if self.values else math.nan
        later = math.inf
        for at in range(len(self.epochs) - 1, -1, -1):
            if not epoch <= self.epochs[at] < later:
                break
            later, value = self.epochs[at], self.values[at]
        return value

    def last_metrics(self) -> dict[str, float]:
        """The other metrics of the last report."""
        return {name: column[-1] for name, column in self.metrics.items()}

    @property
    def last(self) -> float:
        """The epoch of the last report; 0 before the first."""
        return self.epochs[-1] if self.epochs else 0.0


class Window(msgspec.Struct, frozen=True, gc=False):
    """How one service did from `since` until `until` (microseconds); a figure that was not measured
    is not there."""

    since: int
    until: int
    figures: dict[str, float]


class KeptCurve(msgspec.Struct):
    """A curve in a snapshot, which is MessagePack: that keeps NaN."""

    epochs: list[float]
    values: list[float]
    metrics: dict[str, list[float]]
    final: bool


class Facts:
    """The curves of trials, and the last windows of services, each by row."""

    def __init__(self) -> None:
        self.trials: dict[int, Curve] = {}
        self.services: dict[int, deque[Window]] = {}

    def evaluated(self, report: Evaluated) -> None:
        """A trial reported."""
        curve = self.trials.get(report.job)
        if curve is None:
            curve = self.trials[report.job] = Curve()
        curve.add(report)

    def served(self, report: Served, at: int, now: int) -> None:
        """A window of the service in place `at` of the report has ended."""
        figures = {
            name: value
            for name, column in report.figures.items()
            if (value := column[at]) is not None
        }
        windows = self.services.setdefault(report.services[at], deque(maxlen=WINDOWS_MAX))
        windows.append(Window(report.since, now, figures))

    def forget(self, jobs: Iterable[int]) -> None:
        """These jobs are over, and so is what asked about them."""
        for job in jobs:
            self.trials.pop(job, None)
            self.services.pop(job, None)

    def kept(self) -> tuple[dict[int, KeptCurve], dict[int, list[Window]]]:
        """All of it, as plain data."""
        trials = {
            job: KeptCurve(
                curve.epochs.tolist(),
                curve.values.tolist(),
                {name: column.tolist() for name, column in curve.metrics.items()},
                curve.final,
            )
            for job, curve in self.trials.items()
        }
        return trials, {job: list(windows) for job, windows in self.services.items()}

    def put_back(self, trials: dict[int, KeptCurve], services: dict[int, list[Window]]) -> None:
        """What `kept` gave."""
        for job, kept in trials.items():
            curve = self.trials[job] = Curve()
            curve.epochs, curve.values = array("d", kept.epochs), array("d", kept.values)
            curve.metrics = {name: array("d", column) for name, column in kept.metrics.items()}
            curve.final = kept.final
        for service, windows in services.items():
            self.services[service] = deque(windows, WINDOWS_MAX)


class Settings(msgspec.Struct):
    """What policies have set, and stands until they set it otherwise. Plain data: a snapshot keeps
    it as it is."""

    knobs: dict[int, dict[str, float | bool | str]] = {}
    """By job: the knobs that were turned (`Tune`)."""
    inherited: dict[int, bool] = {}
    """The jobs that share GPUs on terms of a policy before this one, until it is asked."""
    routes: dict[int, dict[int, float]] = {}
    """By service: weights by replica (`Route`)."""
    spawning: dict[int, int] = {}
    """By parent: children that were asked for and are not there yet (`Spawn`)."""
    lent: dict[int, str] = {}
    """By node that is lent: to whom (`Lend`)."""

    def put_back(self, kept: Settings) -> None:
        """What a snapshot says, beside what stands."""
        for name in self.__struct_fields__:
            getattr(self, name).update(getattr(kept, name))

    def forget(self, job: int) -> None:
        """The job is over."""
        self.knobs.pop(job, None)
        self.inherited.pop(job, None)
        self.routes.pop(job, None)
        self.spawning.pop(job, None)

    def came(self, parent: int, n: int = 1) -> None:
        """`n` children that were asked for are there, or will never be."""
        left = self.spawning.get(parent, 0) - n
        if left > 0:
            self.spawning[parent] = left
        else:
            self.spawning.pop(parent, None)
