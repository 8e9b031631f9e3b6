"""Searches for tests: small tables, runs whose every decision is kept, and what rungs saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ganger.core.events import Batch, Evaluated
from ganger.core.kernel import Kernel
from ganger.core.plan import AskAt, Plan, Spawn, Start, Stop
from ganger.core.units import SECOND
from ganger.lab.tuning.result import TuningRun
from ganger.lab.tuning.run import Place, own_cluster, run_experiment
from ganger.workloads.curves.table import CurveTable, rectangular
from ganger.workloads.experiment.document import FORMAT, Document
from ganger.workloads.experiment.reading import Experiment, checked


def table(*curves: Sequence[float], seconds: Sequence[float] | None = None) -> CurveTable:
    """One configuration per curve, called c0, c1, ...; an epoch takes a second, or as many as
    `seconds` says of each configuration."""
    length = len(curves[0])
    epochs = np.arange(1.0, length + 1.0)
    each = np.array(seconds if seconds is not None else [1.0] * len(curves))
    ends = np.rint(each[:, None] * epochs * SECOND).astype(np.int64)
    labels = [f"c{at}" for at in range(len(curves))]
    values = {"loss": np.array(curves, float)}
    return rectangular("the table", labels, {"x": list(range(len(curves)))}, epochs, ends, values)


def experiment(parallelism: int = 1, **more: Any) -> Experiment:
    """A search for a small loss, whose trials get the configurations c0, c1, ... in this order."""
    more.setdefault("metric", "loss")
    if "points" not in more and "searcher" not in more and "trials" in more:
        more["points"] = [{"x": at} for at in range(more["trials"])]
        more["searcher"] = "points"
    return checked(Document(format=FORMAT, parallelism=parallelism, **more), "x.toml")


class Seen(NamedTuple):
    """One step of a run: when (seconds), what was reported (trial, epoch, value), and what was
    decided, as (word, trial)."""

    at: float
    reports: list[tuple[int, float, float | None]]
    actions: list[tuple[str, int]]


class Searched(NamedTuple):
    """A run that is over, and its steps."""

    run: TuningRun
    steps: list[Seen]
    kernel: Kernel

    def actions(self) -> list[tuple[float, str, int]]:
        """All that was decided about trials: when, what, which (from 0)."""
        return [(step.at, *action) for step in self.steps for action in step.actions]

    def epochs(self) -> list[float]:
        """How long each trial has trained."""
        return [trial.epochs for trial in self.run.trials]


class _Steps:
    def __init__(self) -> None:
        self.steps: list[Seen] = []
        self.kernels: list[Kernel] = []

    def begin(self, kernel: Kernel) -> _Steps:
        self.kernels.append(kernel)
        return self

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        reports = [
            (event.job - 1, event.epoch, event.value)
            for event in batch.events
            if isinstance(event, Evaluated)
        ]
        actions = []
        for action in plan.actions if plan else ():
            if isinstance(action, Spawn):
                actions.append(("ask", action.n))
            elif isinstance(action, Start) and action.job:
                actions.append(("start", action.job - 1))
            elif isinstance(action, Stop) and action.job:
                actions.append((action.why, action.job - 1))
            elif not isinstance(action, AskAt | Start | Stop):
                actions.append((type(action).__name__.lower(), getattr(action, "job", 0) - 1))
        self.steps.append(Seen(batch.at / SECOND, reports, actions))


def searched(found: Experiment, source: Any, recipe: str, seed: int = 0, **place: Any) -> Searched:
    """Run it, with every invariant checked at every step."""
    steps = _Steps()
    place.setdefault("cluster", own_cluster(found))
    where = Place(validate=True, **place)
    run = run_experiment(found, source, recipe, seed, where, journal=steps.begin)
    return Searched(run, steps.steps, steps.kernels[0])
