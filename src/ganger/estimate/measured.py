"""Speeds that jobs measured themselves: their step times, fitted as Pollux' agent does, and the
noise of their gradients (Pollux, OSDI 2021, sections 3 and 4.1).

What is not measured yet is guessed so that it is tried: with one size seen, synchronising is free.
Beyond twice the most replicas that were measured nothing is gained (Pollux gives a job at most
twice the GPUs that it ever had).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.events import Measured
from ganger.core.profiles import Goodput, StepModel
from ganger.core.state.jobs import Phase
from ganger.core.state.table import Ids
from ganger.core.view import View
from ganger.estimate import goodput
from ganger.estimate.history import History, Past

POINTS_MAX: Final = 32
"""So many points are kept of a model's curve, the last ones."""


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One measurement: seconds a step, and of it computing (0: not reported), on the reference
    type; examples a step (0: not reported)."""

    nodes: int
    replicas: int
    batch: float
    step: float
    computing: float


class Curve(msgspec.Struct):
    """What jobs of one model measured: the last point of each (nodes, replicas, batch). `noise`:
    the gradient noise scale in examples, as last reported (0: never); `most`: the largest batch
    that a job stated it may use; `model`: fitted to the points, None after they changed."""

    points: list[Point] = []
    noise: float = 0.0
    most: float = 0.0
    model: StepModel | None = None


class Learnt(Past):
    """What `History` has learnt, and curves by model (a job without one has its own)."""

    curves: dict[str, Curve] = msgspec.field(default_factory=dict)


class MeasuredSpeeds(History):
    """`History`, and of speed what jobs measured (`ganger.sdk.progress`).

    Jobs that named no batch size do the same steps at every size. Of the others, progress is
    useful examples: throughput x efficiency at the best batch size between the smallest measured
    and the largest allowed; without a reported noise, larger batches bring nothing.
    """

    steady = False
    learnt: Learnt

    def __init__(self) -> None:
        super().__init__()
        self.learnt = Learnt()

    def observe(self, view: View) -> None:
        """Learn from what finished and what was measured in this step."""
        super().observe(view)
        for event in view.events:
            if isinstance(event, Measured):
                self._measured(view, event)

    def throughput(
        self, view: View, ids: Ids, gpu_type: str, gpus: NDArray[Any], nodes: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Speed relative to the size asked for, packed; linear in GPUs where nothing is known."""
        shape = np.broadcast_shapes(ids.shape, np.shape(gpus), np.shape(nodes))
        jobs, factor = view.jobs, _type_speeds(view).get(gpu_type, 1.0)
        many, spread = np.broadcast_to(gpus, shape), np.broadcast_to(nodes, shape)
        rows = np.broadcast_to(ids, shape)
        out = many / np.maximum(jobs.gpus[rows], 1)
        for job in np.unique(ids).tolist():
            curve = self.learnt.curves.get(_key(view, job))
            if curve is not None:
                at = rows == job
                asked = max(int(jobs.gpus[job]), 1)
                told = _speed(curve, np.append(spread[at], 1), np.append(many[at], asked))
                out[at] = told[:-1] / told[-1]
        return np.asarray(out * factor)

    def _measured(self, view: View, event: Measured) -> None:
        job = event.job
        held = view.ledger.holds.get(job)
        if view.jobs.phase[job] != Phase.RUNNING or view.jobs.attempt[job] != event.attempt:
            return
        if held is None:
            return
        placement = held[1]
        cluster = view.nodes
        kind = cluster.types[cluster.gpu_type[placement[0].node]]
        speed = _type_speeds(view).get(kind, 1.0) * 1e-6
        replicas = sum(slot.workers for slot in placement)
        new = Point(
            len(placement), replicas, event.batch, event.step * speed, event.computing * speed
        )
        curve = self.learnt.curves.setdefault(_key(view, job), Curve())
        same = (new.nodes, new.replicas, new.batch)
        kept = [one for one in curve.points if (one.nodes, one.replicas, one.batch) != same]
        curve.points = [*kept, new][-POINTS_MAX:]
        curve.noise = event.noise or curve.noise
        curve.most = max(curve.most, event.most)
        curve.model = None


def _key(view: View, job: int) -> str:
    """Jobs of one model share a curve."""
    jobs = view.jobs
    model = jobs.models[int(jobs.model[job])]
    return f"model {model}" if model else f"job {job}"


def _type_speeds(view: View) -> dict[str, float]:
    return {kind.name: kind.speed for kind in view.nodes.type_specs}


def _speed(curve: Curve, nodes: NDArray[Any], replicas: NDArray[Any]) -> NDArray[np.float64]:
    """Useful examples (or steps) a second."""
    points = curve.points
    if curve.model is None:
        curve.model = _fit(points)
    most_seen = max(one.replicas for one in points)
    replicas = np.minimum(replicas, 2 * most_seen)
    nodes = np.minimum(nodes, replicas)
    told = [one.batch for one in points if one.batch]
    if not told:
        return 1.0 / goodput.step_time(curve.model, nodes, replicas, 1.0 / replicas)
    least = min(told)
    local = max(one.batch / one.replicas for one in points if one.batch)
    asks = Goodput(
        batch=least,
        most=max(curve.most, *told),
        local=(1.0, max(local, 1.0)),
        examples=0.0,
        model=curve.model,
    )
    return goodput.best(asks, curve.noise, nodes, replicas).goodput


def _fit(points: list[Point]) -> StepModel:
    nodes, replicas, batch, step, computing = np.array(
        [tuple(msgspec.structs.astuple(one)) for one in points]
    ).T
    local = np.where(batch > 0, batch, 1.0) / replicas
    alone = np.where(replicas == 1, step, np.nan)
    return goodput.fit(nodes, replicas, local, step, np.where(computing > 0, computing, alone))
