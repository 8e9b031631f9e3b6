"""The numbers behind the charts of searches, made small: at most 300 trials of 60 points each."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ganger.core.tuning.space import Point, Value
from ganger.lab.report.searches.groups import Group
from ganger.lab.report.searches.importance import importance, number_of
from ganger.lab.report.series import (
    MOST_GANTT_GPUS,
    MOST_SEGMENTS,
    blocks,
    parts,
    short,
)
from ganger.lab.result import Segment
from ganger.lab.tuning.detail import Detail, Paid, Reported
from ganger.lab.tuning.result import Trial, TuningRun
from ganger.mechanisms.tuning.trials import Mode, badness

MOST_TRIALS: Final = 300
MOST_POINTS: Final = 60
MOST_RUNGS: Final = 14
MOST_AXES: Final = 12
_BEST_DRAWN: Final = 40
_SLICES: Final = 160
_LOG: Final = 50.0
"""A parameter, or a metric, that is positive and spans more than this has a logarithmic scale."""
_EDGE: Final = 0.95
"""This part of what was reported, the best, is inside the picture of the curves."""
_DIGITS: Final = 6


def panel(groups: Sequence[Group], colours: dict[str, int]) -> dict[str, Any]:
    """Everything that the charts show."""
    run = groups[0].runs[0]
    return {
        "metric": run.metric,
        "more": run.mode == Mode.MAX.value,
        "groups": [_group(group, colours[group.recipe]) for group in groups],
    }


def _group(group: Group, colour: int) -> dict[str, Any]:
    return {
        "series": colour,
        "metrics": {
            name: [short(each.mean, 8), short(each.half_width, 8)]
            for name, each in group.metrics.items()
        },
        "best": {
            name: _pairs(_best(group.runs, along)) if _known(group.runs, name) else []
            for name, along in _ALONG.items()
        },
        "search": _search(group.runs[0]),
    }


# ------------------------------------------------------------------ the best so far

Along = Callable[[Paid], float]
_ALONG: Final[dict[str, Along]] = {
    "seconds": lambda paid: paid.seconds,
    "gpu_hours": lambda paid: paid.gpu_hours,
    "money": lambda paid: paid.money or 0.0,
}


def _known(runs: Sequence[TuningRun], name: str) -> bool:
    detailed = [run.detail for run in runs if run.detail is not None and run.detail.paid]
    priced = all(detail.paid[-1].money is not None for detail in detailed)
    return len(detailed) == len(runs) and (name != "money" or priced)


def _best(runs: Sequence[TuningRun], along: Along) -> list[tuple[float, float]]:
    """The best so far after so much of what is counted `along`: steps of one run, means of
    several from where all have reported."""
    steps = [_steps(run, along) for run in runs]
    if not all(steps):
        return []
    if len(steps) == 1:
        return steps[0]
    first, last = max(s[0][0] for s in steps), max(s[-1][0] for s in steps)
    grid = np.linspace(first, last, _SLICES).tolist()
    return [(at, float(np.mean([_at(s, at) for s in steps]))) for at in grid]


def _steps(run: TuningRun, along: Along) -> list[tuple[float, float]]:
    """Corners of the line of one run; it ends when the search did."""
    assert run.detail is not None
    paid, corners = run.detail.paid, list[tuple[float, float]]()
    last = list(dict(run.best_by_time).items())  # the best of each instant
    for seconds, value in _thin(last, MOST_TRIALS):
        at = along(_after(paid, seconds))
        if corners:
            corners.append((at, corners[-1][1]))
        corners.append((at, value))
    if corners:
        corners.append((max(along(paid[-1]), corners[-1][0]), corners[-1][1]))
    return corners


def _after(paid: Sequence[Paid], seconds: float) -> Paid:
    """What was paid by then."""
    at = bisect_right(paid, seconds, key=lambda each: each.seconds)
    if at == 0 or at == len(paid):
        return paid[max(at - 1, 0)]._replace(seconds=seconds)
    before, after = paid[at - 1], paid[at]
    part = (seconds - before.seconds) / (after.seconds - before.seconds)
    money = None
    if before.money is not None and after.money is not None:
        money = before.money + part * (after.money - before.money)
    return Paid(seconds, before.gpu_hours + part * (after.gpu_hours - before.gpu_hours), money)


def _at(steps: Sequence[tuple[float, float]], x: float) -> float:
    return steps[max(bisect_right(steps, x, key=lambda each: each[0]) - 1, 0)][1]


# ------------------------------------------------------------------ one search


def _search(run: TuningRun) -> dict[str, Any] | None:
    """One search by trial; None of one that was not watched."""
    if run.detail is None:
        return None
    mode = Mode(run.mode)
    bad = [badness(trial.best, mode) for trial in run.trials]
    drawn = _drawn(bad)
    ranks = _rank([bad[at] for at in drawn])
    curves = run.detail.curves
    low, high = _range([value for curve in curves for value in curve.values], mode)
    names = list(dict.fromkeys(name for trial in run.trials for name in trial.point))
    weights = importance([trial.point for trial in run.trials], bad)
    if len(names) > MOST_AXES:
        names = sorted(names, key=lambda name: -weights.get(name, 0.0))[:MOST_AXES]
    return {
        "trials": [_trial(run.trials[at], rank) for at, rank in zip(drawn, ranks, strict=True)],
        "of": len(run.trials),
        "curves": [_curve(curves[at]) for at in drawn],
        "range": [short(low, _DIGITS), short(high, _DIGITS)],
        "log": _spans(low, high),
        "axes": [_axis(name, [run.trials[at].point for at in drawn]) for name in names],
        "importance": [[name, short(part)] for name, part in weights.items()],
        "ladder": ladder(curves, mode),
        "gantt": _gantt(run.detail, run.trials),
        "no_gantt": no_gantt(run.detail),
    }


def _drawn(bad: Sequence[float]) -> list[int]:
    """Which trials are drawn: all, or the best and others evenly."""
    order = sorted(range(len(bad)), key=lambda at: (bad[at], at))
    if len(order) <= MOST_TRIALS:
        return order
    rest = order[_BEST_DRAWN:]
    step = len(rest) / (MOST_TRIALS - _BEST_DRAWN)
    kept = [rest[int(at * step)] for at in range(MOST_TRIALS - _BEST_DRAWN)]
    return order[:_BEST_DRAWN] + kept


def _rank(bad: Sequence[float]) -> list[float]:
    """From 0 for the best to 1 for the worst; of those that broke down, too."""
    return [1.0 if math.isinf(value) else at / max(len(bad) - 1, 1) for at, value in enumerate(bad)]


def _trial(trial: Trial, rank: float) -> list[Any]:
    return [
        trial.number,
        trial.configuration,
        trial.state,
        short(trial.epochs),
        short(trial.best, _DIGITS),
        short(trial.gpu_hours),
        short(rank),
    ]


def _curve(curve: Reported) -> list[list[float | None]]:
    points = list(zip(curve.epochs, curve.values, strict=True))
    return [[short(x), short(y, _DIGITS)] for x, y in _thin(points, MOST_POINTS)]


def _thin(points: Sequence[tuple[float, float]], limit: int) -> list[tuple[float, float]]:
    """At most so many, the first and the last among them."""
    if len(points) <= limit:
        return list(points)
    return [points[round(at * (len(points) - 1) / (limit - 1))] for at in range(limit)]


def _pairs(points: Sequence[tuple[float, float]]) -> list[list[float | None]]:
    return [[short(x), short(y, _DIGITS)] for x, y in points]


def _range(values: Sequence[float], mode: Mode) -> tuple[float, float]:
    """The ends of the scale of the metric: from the best to what all but the worst are within."""
    known = np.array([value for value in values if math.isfinite(value)])
    if not known.size:
        return 0.0, 1.0
    ends = (0.0, _EDGE) if mode is Mode.MIN else (1 - _EDGE, 1.0)
    low, high = np.quantile(known, ends).tolist()
    return (low, high) if low < high else (low - abs(low) / 10 - 1e-12, high + abs(high) / 10)


def _spans(low: float, high: float) -> bool:
    return low > 0 and high / low > _LOG


def _axis(name: str, points: Sequence[Point]) -> dict[str, Any]:
    """One parameter: where each trial lies between its ends (null: it has none), and what stands
    at which place."""
    values = [point.get(name) for point in points]
    numbers = number_of(values)
    known = [number for number in numbers or () if number is not None]
    if numbers is None or not known:
        words = sorted({_word(value) for value in values if value is not None})
        places = {word: (at + 0.5) / len(words) for at, word in enumerate(words)}
        return {
            "name": name,
            "at": [None if v is None else short(places[_word(v)]) for v in values],
            "say": [None if v is None else _word(v) for v in values],
            "ticks": [[short(place), word] for word, place in places.items()],
        }
    low, high = min(known), max(known)
    log = _spans(low, high)
    warp: Callable[[float], float] = math.log if log else lambda number: number
    span = warp(high) - warp(low)

    def place(number: float) -> float:
        return (warp(number) - warp(low)) / span if span else 0.5

    return {
        "name": name,
        "at": [None if n is None else short(place(n)) for n in numbers],
        "say": [None if n is None else f"{n:.4g}" for n in numbers],
        "ticks": [
            [short(place(n)), f"{n:.2g}" if abs(n) < 1 else f"{n:.4g}"]
            for n in _ticks(low, high, log=log)
        ],
    }


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ticks(low: float, high: float, *, log: bool) -> list[float]:
    """The ends, and what lies between them at equal distances."""
    if low == high:
        return [low]
    if log:
        powers = [10.0**n for n in range(math.ceil(math.log10(low)), 1 + int(math.log10(high)))]
        inside = [p for p in powers if low * 1.6 < p < high / 1.6]
        return [low, *inside, high]
    return [low + part * (high - low) / 4 for part in range(5)]


def ladder(curves: Sequence[Reported], mode: Mode) -> list[dict[str, Any]]:
    """The epochs at which trials were left behind, those of most trials: how many came so far, how
    many went on, and what was best and in the middle there."""
    last = Counter(curve.epochs[-1] for curve in curves if curve.epochs)
    rungs = sorted(epoch for epoch, _ in last.most_common(MOST_RUNGS))
    rungs_shown = []
    for epoch in rungs:
        reached = [curve for curve in curves if curve.epochs and curve.epochs[-1] >= epoch]
        values = [c.values[max(bisect_right(c.epochs, epoch) - 1, 0)] for c in reached]
        order = sorted((badness(value, mode), value) for value in values if not math.isnan(value))
        rungs_shown.append(
            {
                "epoch": short(epoch),
                "reached": len(reached),
                "on": sum(curve.epochs[-1] > epoch for curve in reached),
                "best": short(order[0][1], _DIGITS) if order else None,
                "middle": short(order[len(order) // 2][1], _DIGITS) if order else None,
            }
        )
    return rungs_shown


# ------------------------------------------------------------------ trials on GPUs


def no_gantt(detail: Detail) -> str:
    """Why there is no chart of trials on GPUs; "" where there is one."""
    gpus = sum(_used(detail).values())
    if gpus > MOST_GANTT_GPUS:
        return f"{gpus:,} GPUs are too many to draw (at most {MOST_GANTT_GPUS:,})"
    if len(detail.segments) > MOST_SEGMENTS:
        return f"{len(detail.segments):,} stays are too many to draw (at most {MOST_SEGMENTS:,})"
    return "" if detail.segments else "no trial ran on a GPU"


def _used(detail: Detail) -> dict[int, int]:
    """By number of the node its GPUs, for nodes on which there was a trial."""
    used = {segment.node for segment in detail.segments}
    return {at: gpus for at, gpus in enumerate(detail.nodes.values()) if at in used}


def _gantt(detail: Detail, trials: Sequence[Trial]) -> dict[str, Any] | None:
    if no_gantt(detail):
        return None
    used = _used(detail)
    first = dict(zip(used, np.concatenate(([0], np.cumsum(list(used.values())))), strict=False))
    stays = [
        (s.job, s.start_seconds, s.end_seconds, int(first[s.node]) + gpu, count)
        for s in detail.segments
        for gpu, count in blocks(s)
    ]
    names = list(detail.nodes)
    return {
        "bars": [
            [job, short(start), short(end), row, rows, *part]
            for (job, start, end, row, rows), part in zip(stays, parts(stays), strict=True)
        ],
        "jobs": {at: _bar(trials[at], detail.segments) for at in {stay[0] for stay in stays}},
        "beside": "state",
        "nodes": list(used.values()),
        "names": [names[at] for at in used],
        "end": short(max(segment.end_seconds for segment in detail.segments)),
    }


def _bar(trial: Trial, segments: Sequence[Segment]) -> list[Any]:
    widest = max(s.devices.bit_count() for s in segments if s.job == trial.number)
    return [f"trial {trial.number}: {trial.configuration}", trial.state, widest]
