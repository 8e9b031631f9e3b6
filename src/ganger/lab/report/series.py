"""The numbers behind the charts, made small: no series has more than 600 points.

A report of a million jobs must open on a phone, so distributions become quantiles and samples
over time become averages over equal slices of the run (which keeps every integral true).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ganger.lab.figures import Floats, completion_times, fairness, known, queueing_delays
from ganger.lab.metrics import Group
from ganger.lab.result import Run, Segment
from ganger.lab.simulating.recorder import GANTT_JOBS

QUANTILES = 240
SLICES = 160
MOST_TENANTS = 12
MOST_GANGS = 10
MOST_SEGMENTS = 4000
MOST_GANTT_GPUS = 128


def panel(groups: Sequence[Group], colours: dict[str, int]) -> dict[str, Any]:
    """Everything the charts of one load show. `colours`: the number of each label's colour."""
    horizon = max((last_moment(group.runs[0]) for group in groups), default=0.0)
    return {
        "load": groups[0].load,
        "horizon": short(horizon),
        "gpus": max(group.runs[0].cluster_gpus for group in groups),
        "gangs": gang_labels(groups),
        "groups": [_group(group, colours[group.label], horizon, groups) for group in groups],
    }


def _group(group: Group, colour: int, horizon: float, everyone: Sequence[Group]) -> dict[str, Any]:
    return {
        "series": colour,
        "seeds": len(group.runs),
        "metrics": {
            name: [short(estimate.mean, 8), short(estimate.half_width, 8)]
            for name, estimate in group.metrics.items()
        },
        "jct": distribution(group, completion_times),
        "delay": distribution(group, queueing_delays),
        "time": over_time(group.runs[0], horizon),
        "gangs": by_gang(group, gang_edges(everyone)),
        "gantt": gantt(group.runs[0]),
    }


def short(value: float, digits: int = 4) -> float | None:
    """Four significant digits, which is finer than a pixel; null for NaN."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def shorts(values: Iterable[float]) -> list[float | None]:
    """`short` of every value."""
    return [short(value) for value in values]


def distribution(group: Group, figure: Any) -> dict[str, list[float | None]]:
    """Points of the cumulative distribution, all seeds pooled: value, and the share of submitted
    jobs at or below it. Jobs without a value keep the curve below 1."""
    values = np.sort(np.concatenate([known(figure(run.jobs)) for run in group.runs]))
    total = sum(int((~run.jobs.open_ended).sum()) for run in group.runs)
    ranks = np.unique(np.linspace(0, values.size - 1, min(QUANTILES, values.size)).astype(int))
    return {"x": shorts(values[ranks]), "y": shorts((ranks + 1) / max(total, 1))}


def last_moment(run: Run) -> float:
    """The last sampled moment in seconds; 0 for an empty run."""
    return float(run.timeline.seconds[-1]) if run.timeline.seconds.size else 0.0


def over_time(run: Run, horizon: float) -> dict[str, list[float | None]]:
    """Averages over equal slices of [0, horizon]; null once the run is over."""
    edges = np.linspace(0.0, horizon, SLICES + 1)
    line = run.timeline
    columns: dict[str, NDArray[np.float64] | NDArray[np.int64]] = {
        "held": line.gpus_held,
        "running": line.gpus_running,
        "jobs_waiting": line.jobs_pending,
        "gpus_waiting": line.gpus_pending,
    }
    if horizon <= 0 or not line.seconds.size:
        return {name: list[float | None]() for name in columns}
    alive = edges[:-1] < line.seconds[-1]
    return {
        name: [
            short(value) if here else None
            for value, here in zip(averages(line.seconds, column, edges), alive, strict=True)
        ]
        for name, column in columns.items()
    }


def averages(
    seconds: Floats, values: NDArray[np.float64] | NDArray[np.int64], edges: Floats
) -> Floats:
    """Mean of a step function between neighbouring edges; zero before its first sample and after
    its last, where the run is over."""
    steps = np.concatenate(([0.0], np.cumsum(np.diff(seconds) * values[:-1])))
    return np.diff(np.interp(edges, seconds, steps)) / np.diff(edges)


def gang_edges(groups: Sequence[Group]) -> list[int]:
    """The largest gang of each class: every size where there are few, else powers of two."""
    sizes = np.unique(np.concatenate([run.jobs.gpus for g in groups for run in g.runs]))
    if sizes.size > MOST_GANGS:
        sizes = np.unique(2 ** np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64))
    return [int(size) for size in sizes]


def gang_labels(groups: Sequence[Group]) -> list[str]:
    """What the classes of `gang_edges` are called: `4`, or `5-8` where sizes share a class."""
    edges = gang_edges(groups)
    present = {int(size) for g in groups for run in g.runs for size in run.jobs.gpus}
    labels = []
    for low, high in zip([0, *edges], edges, strict=False):
        inside = sorted(size for size in present if low < size <= high)
        labels.append(f"{high}" if inside == [high] else f"{low + 1}\u2013{high}")
    return labels


def by_gang(group: Group, edges: list[int]) -> dict[str, list[float | None]]:
    """Mean JCT and number of finished jobs in each class of gang sizes, all seeds pooled."""
    jct = np.concatenate([completion_times(run.jobs) for run in group.runs])
    sizes = np.concatenate([run.jobs.gpus for run in group.runs])
    classes = np.searchsorted(edges, sizes)
    chosen = [known(jct[classes == i]) for i in range(len(edges))]
    return {
        "mean": shorts(float(c.mean()) if c.size else math.nan for c in chosen),
        "jobs": shorts(float(c.size) for c in chosen),
    }


def tenants(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """One row per tenant, largest user of GPU-hours first: under every recipe its rho, its share
    of all GPU-hours and its mean JCT. Small tenants beyond a dozen are one row together."""
    tables = [_by_tenant(group) for group in groups]
    hours: dict[str, float] = {}
    for table in tables:
        for name, sums in table.items():
            hours[name] = hours.get(name, 0.0) + sums["held"]
    order = sorted(hours, key=lambda name: (-hours[name], name))
    shown, rest = order[:MOST_TENANTS], order[MOST_TENANTS:]
    rows = [_tenant_row(name, [name], tables) for name in shown]
    return rows + ([_tenant_row(f"{len(rest)} others", rest, tables)] if rest else [])


def _by_tenant(group: Group) -> dict[str, dict[str, float]]:
    """Sums per tenant over all seeds, so that tenants can be added up."""
    names = np.array([name for run in group.runs for name in run.jobs.tenant], dtype=object)
    uniques, codes = np.unique(names, return_inverse=True)
    columns = {
        "held": np.concatenate([run.jobs.held_gpu_seconds for run in group.runs]),
        "jct": np.concatenate([completion_times(run.jobs) for run in group.runs]),
        "rho": np.concatenate([fairness(run) for run in group.runs]),
    }
    columns["n"] = np.isfinite(columns["rho"]).astype(np.float64)
    sums = {
        key: np.bincount(codes, np.nan_to_num(column), len(uniques))
        for key, column in columns.items()
    }
    return {str(u): {key: float(sums[key][i]) for key in sums} for i, u in enumerate(uniques)}


def _tenant_row(
    title: str, names: list[str], tables: list[dict[str, dict[str, float]]]
) -> dict[str, Any]:
    cells = []
    for table in tables:
        mine = [table[name] for name in names if name in table]
        added = {key: sum(sums[key] for sums in mine) for key in ("held", "jct", "rho", "n")}
        total = sum(sums["held"] for sums in table.values())
        n = added["n"] or math.nan
        share = added["held"] / total if total else math.nan
        cells.append({"rho": added["rho"] / n, "share": share, "jct": added["jct"] / n})
    return {"tenant": title or "(none)", "cells": cells}


def gantt(run: Run) -> dict[str, Any] | None:
    """Bars [job, start, end, first row, rows] and the jobs' words; None for a run too large. Of
    jobs that share GPUs a bar ends with which part of the height it has, and of how many."""
    segments = run.segments
    if not segments or no_gantt(run):
        return None
    first_row = np.concatenate(([0], np.cumsum(run.node_gpus))).tolist()
    seen = sorted({segment.job for segment in segments})
    stays = [
        (s.job, s.start_seconds, s.end_seconds, first_row[s.node] + gpu, count)
        for s in segments
        for gpu, count in blocks(s)
    ]
    return {
        "bars": [
            [job, short(start), short(end), row, rows, *part]
            for (job, start, end, row, rows), part in zip(stays, parts(stays), strict=True)
        ],
        "jobs": {j: [run.jobs.name[j], run.jobs.tenant[j], int(run.jobs.gpus[j])] for j in seen},
        "nodes": list(run.node_gpus),
        "end": short(max(segment.end_seconds for segment in segments)),
    }


def parts(stays: Sequence[tuple[int, float, float, int, int]]) -> list[tuple[int, ...]]:
    """For each stay (job, start, end, first row, rows) which part of the height of its rows it has,
    and of how many: empty for one that shares no GPU at any time. Stays that share GPUs, directly
    or through others, have equally many parts."""
    part, chain = [0] * len(stays), list(range(len(stays)))
    there: list[int] = []
    for mine in sorted(range(len(stays)), key=lambda i: stays[i][1]):
        _, start, _, row, rows = stays[mine]
        there = [other for other in there if stays[other][2] > start]
        beside = [i for i in there if stays[i][3] < row + rows and row < stays[i][3] + stays[i][4]]
        part[mine] = min(set(range(len(beside) + 1)) - {part[other] for other in beside})
        for other in beside:
            chain[_first(chain, other)] = _first(chain, mine)
        there.append(mine)
    many: dict[int, int] = {}
    for i, own in enumerate(part):
        many[_first(chain, i)] = max(many.get(_first(chain, i), 0), own + 1)
    among = [many[_first(chain, i)] for i in range(len(stays))]
    return [(own, n) if n > 1 else () for own, n in zip(part, among, strict=True)]


def _first(chain: list[int], at: int) -> int:
    """The stay that stands for all that share GPUs with this one."""
    while chain[at] != at:
        chain[at] = at = chain[chain[at]]
    return at


def no_gantt(run: Run) -> str:
    """Why there is no chart of a run; "" where there is one."""
    gpus, segments = sum(run.node_gpus), run.segments
    if segments is None:
        return f"{len(run.jobs.name):,} jobs are too many to draw (at most {GANTT_JOBS:,})"
    if gpus > MOST_GANTT_GPUS:
        return f"{gpus:,} GPUs are too many to draw (at most {MOST_GANTT_GPUS:,})"
    if len(segments) > MOST_SEGMENTS:
        return f"{len(segments):,} stays on a node are too many to draw (at most {MOST_SEGMENTS:,})"
    return "" if segments else "no job ran"


def blocks(segment: Segment) -> list[tuple[int, int]]:
    """Neighbouring GPUs of a segment as (first, how many)."""
    found: list[tuple[int, int]] = []
    for gpu in range(segment.devices.bit_length()):
        if not segment.devices >> gpu & 1:
            continue
        if found and sum(found[-1]) == gpu:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((gpu, 1))
    return found
