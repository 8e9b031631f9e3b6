"""What lessons are made of: words, tables, charts, and the small workloads that they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from ganger.core.spec import ClusterSpec, JobSpec, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import SECOND
from ganger.lab.result import Run
from ganger.workloads.trace import Trace

LECTURE = 'Stanford CS229s, Systems for Machine Learning, lecture "Cluster Scheduling"'
"""Whose examples these are."""
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
class Lesson:
    """Words, tables and charts in the order in which they are read."""

    name: str
    title: str
    parts: list[str | TableOf | Chart] = field(default_factory=list)

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
