"""What became of a search in full, for its report: every report, who held which GPUs, and what had
been paid when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ganger.core.units import SECOND
from ganger.lab.result import Segment
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


def paid_by(held: Iterable[Segment], prices: Sequence[float] | None) -> list[Paid]:
    """What was paid over time for what a search held, at the price by node of a GPU for an hour."""
    changes: dict[float, tuple[float, float]] = {0.0: (0.0, 0.0)}
    for segment in held:
        gpus = segment.devices.bit_count()
        rate = gpus * prices[segment.node] if prices is not None else 0.0
        for moment, sign in ((segment.start_seconds, 1), (segment.end_seconds, -1)):
            before = changes.get(moment, (0.0, 0.0))
            changes[moment] = before[0] + sign * gpus, before[1] + sign * rate
    found, gpus_now, rate_now = list[Paid](), 0.0, 0.0
    seconds = hours = money = 0.0
    for moment in sorted(changes):
        hours += gpus_now * (moment - seconds) / 3600
        money += rate_now * (moment - seconds) / 3600
        seconds = moment
        found.append(Paid(seconds, hours, money if prices is not None else None))
        gpus_now, rate_now = gpus_now + changes[moment][0], rate_now + changes[moment][1]
    return found


def prices_by_node(types: Sequence[str], prices: Mapping[str, float]) -> list[float] | None:
    """Of a GPU for an hour, by node, from those by GPU type; None where nothing has a price."""
    return [prices.get(name, 0.0) for name in types] if prices else None
