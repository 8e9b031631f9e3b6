"""Replicas on shares of devices: what each share answers within an SLO, on which type of device,
and for which load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ganger.core.serving.answering import BatchTimes
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.mechanisms.scaling.fleets import Course, Instance
from ganger.mechanisms.scaling.traffic import mean_rate, tightest


def rate_within(times: BatchTimes, slo: float) -> float:
    """Inputs a second with the largest batch that ends within an SLO (seconds) in 99 of 100
    cases; 0 where not even one input does."""
    size = sum(took <= slo for took in times.p99)
    return max(times.rates[:size], default=0.0)


def on_one_type(instances: Sequence[Instance]) -> list[Instance]:
    """Those of the type that has most places for the whole of one, of equals the first."""
    places = dict[str, int]()
    for each in instances:
        places[each.gpu_type] = places.get(each.gpu_type, 0) + each.places * each.share
    chosen = max(places, key=lambda name: places[name], default="")
    return [each for each in instances if each.gpu_type == chosen]


class Lately(NamedTuple):
    """The most requests a second of the last windows, the tightest SLO in them (seconds), and the
    part of the last one's requests that were late or dropped."""

    rate: float
    slo: float
    missed: float


def lately(view: View, service: int, course: Course, load: float, calm: int) -> Lately | None:
    """How a service did in its last `calm` windows, and `course` notes that they were seen. None
    where it did not report since it was last asked, where its replicas had not yet loaded for as
    long as the last window was, or where nothing has a deadline."""
    windows = list(view.services.get(service, ()))
    if not windows or windows[-1].until <= course.seen:
        return None
    course.seen = windows[-1].until
    if windows[-1].since < course.changed + load * SECOND:
        return None
    slo, last = tightest(windows), windows[-1].figures
    rates = [rate for each in windows[-calm:] if (rate := mean_rate(each)) is not None]
    if slo is None or not rates:
        return None
    dropped = last.get("dropped") or 0.0
    over = (last.get("answered") or 0.0) + dropped
    late = (last.get("late") or 0.0) + dropped
    return Lately(max(rates), slo, late / over if over else 0.0)
