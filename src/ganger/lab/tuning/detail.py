"""A search in full, for its report: every report, which trial held which GPUs, and what had been
paid by when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ganger.core.books.ledger import members
from ganger.core.units import SECOND
from ganger.lab.result import Segment
from ganger.mechanisms.tuning.billing import Rate
from ganger.sim.reports import Journal


@dataclass(frozen=True)
class Reported:
    """What one trial reported, in order: after how many epochs, when (seconds since the search
    began), and what; NaN where it broke down."""

    epochs: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


class Paid(NamedTuple):
    """What a search has held and cost so many seconds after it began. `money`: None without
    prices."""

    seconds: float
    gpu_hours: float
    money: float | None


@dataclass(frozen=True)
class Detail:
    """A search in full. `curves`: by trial; `segments`: which trial (as `job`) was on which GPUs;
    `nodes`: the number of GPUs of each node by name, in the order of `segments`; `paid`: from when
    to when it changed, straight between."""

    curves: list[Reported]
    segments: list[Segment]
    nodes: dict[str, int]
    paid: list[Paid]


def by_trial(kept: Journal, trials: int) -> list[Reported]:
    """All reports of a simulated run, by trial; the first trial is row 1 of the run."""
    curves = [Reported() for _ in range(trials)]
    for at, job, epoch, value in zip(kept.at, kept.job, kept.epoch, kept.value, strict=True):
        curve = curves[job - 1]
        curve.epochs.append(epoch)
        curve.seconds.append(at / SECOND)
        curve.values.append(value)
    return curves


def paid_by(held: Sequence[Segment], rates: Sequence[Rate]) -> list[Paid]:
    """What was paid over time for what a search held, each GPU at the rate of its node; money is
    None without rates."""
    moments = sorted({0.0, *(m for each in held for m in (each.start_seconds, each.end_seconds))})
    payments = []
    for moment in moments:
        until = [
            each._replace(end_seconds=min(each.end_seconds, moment))
            for each in held
            if each.start_seconds < moment
        ]
        hours = sum(
            each.devices.bit_count() * (each.end_seconds - each.start_seconds) for each in until
        )
        payments.append(Paid(moment, hours / 3600, bill(until, rates) if rates else None))
    return payments


def bill(held: Iterable[Segment], rates: Sequence[Rate], *, longer: int = 0) -> float:
    """What is to be paid for all that a search held, each GPU from when the search got it until it
    gave it back, or so many microseconds `longer`."""
    stays: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for each in sorted(held, key=lambda segment: segment.start_seconds):
        for device in members(each.devices):
            mine = stays.setdefault((each.node, device), [])
            start = each.start_seconds
            if mine and mine[-1][1] >= start - 1e-9:  # it kept this one
                start = mine.pop()[0]
            mine.append((start, each.end_seconds))
    return sum(
        rates[node].cost(round(start * SECOND), round(end * SECOND) + longer)
        for (node, _), mine in stays.items()
        for start, end in mine
    )
