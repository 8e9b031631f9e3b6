"""What lessons are made of: words, tables, charts, and the small workloads that they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ganger.core.spec import ClusterSpec, JobSpec, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import SECOND
from ganger.lab.lessons.pieces import LECTURE
from ganger.lab.report.series import gantt
from ganger.lab.result import Run
from ganger.workloads.trace import Trace

Cell: TypeAlias = str | float


@dataclass(frozen=True)
class TableOf:
    """Numbers under headings."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


@dataclass(frozen=True)
class Chart:
    """One run, to be drawn."""

    title: str
    run: Run
    words: str = ""
    """What decides, and where to read more."""


@dataclass(frozen=True)
class Bars:
    """Figures of a table as bars from zero: (label, value) each; the `best` stand out."""

    title: str
    unit: str
    rows: list[tuple[str, float]]
    best: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lines:
    """Columns of a table as lines over a common x."""

    title: str
    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]


@dataclass(frozen=True)
class Lesson:
    """Words, tables and charts in the order in which they are read."""

    name: str
    title: str
    parts: list[str | TableOf | Chart | Bars | Lines] = field(default_factory=list)

    @property
    def tables(self) -> list[TableOf]:
        """The tables alone."""
        return [part for part in self.parts if isinstance(part, TableOf)]


def trace_of(specs: Sequence[JobSpec], lasts: Sequence[float], unit: int) -> Trace:
    """Jobs that take so many units (microseconds each)."""
    return Trace(declare(specs), np.array([round(time * unit) for time in lasts], np.int64))


def gang_of(size: int) -> Shape:
    """A gang of workers with a GPU each."""
    return Shape((Role(size=size),))


def one_node(gpus: int) -> ClusterSpec:
    """One node."""
    return ClusterSpec((NodeSpec(gpus=gpus, gpu_type="GPU"),))


def jct_of(run: Run, unit: int = SECOND) -> list[float]:
    """Every job's completion time, in units."""
    return [float(t) for t in (run.jobs.finish - run.jobs.arrival) * (SECOND / unit)]


def makespan_of(run: Run) -> float:
    """Seconds from the first arrival to the last finish."""
    return float(run.jobs.finish.max() - run.jobs.arrival.min())


def to_json(lesson: Lesson) -> dict[str, Any]:
    """The lesson as plain data; a run as its intervals, and as the bars of a chart (`drawn`)."""
    return {
        "format": "ganger-lesson/1",
        "name": lesson.name,
        "title": lesson.title,
        "lecture": LECTURE,
        "parts": [_part(part) for part in lesson.parts],
    }


def _part(part: str | TableOf | Chart | Bars | Lines) -> dict[str, Any]:
    if isinstance(part, str):
        return {"text": part}
    if isinstance(part, TableOf):
        return {"table": part.title, "columns": part.columns, "rows": part.rows}
    if isinstance(part, Bars):
        return {"bars": part.title, "unit": part.unit, "rows": part.rows, "best": part.best}
    if isinstance(part, Lines):
        return {"lines": part.title, "x": part.x, "y": part.y, "series": part.lines}
    return {
        "chart": part.title,
        "words": part.words,
        "jobs": part.run.jobs.name,
        "intervals": [segment._asdict() for segment in part.run.segments or []],
        "drawn": gantt(part.run),
    }
