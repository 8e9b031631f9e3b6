"""A search on a cluster as a run with its figures, from what the daemon answers: for its report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ganger.client.answering.families import ChildAnswer, ReportAnswer
from ganger.client.answers import AttemptAnswer, JobDetail
from ganger.core.tuning.space import Value
from ganger.lab.result import Segment
from ganger.lab.tuning.detail import Detail, Reported, paid_by
from ganger.lab.tuning.result import Trial, TuningRun
from ganger.mechanisms.tuning.trials import Mode, badness


def run_of(
    search: JobDetail,
    trials: Sequence[JobDetail],
    reports: Sequence[ReportAnswer],
    gpus: Mapping[str, int],
    now: float,
) -> TuningRun:
    """The search up to `now` (Unix seconds), with all reports of its `trials`, which the daemon
    answered each by itself. `gpus`: of each node that the cluster has, by name."""
    family = search.family
    children = {child.job: child for child in family.children} if family is not None else {}
    mode = Mode.MAX if family is not None and family.more_is_better else Mode.MIN
    began = min((each.started for each in search.attempts if each.started is not None), default=now)
    numbers = {each.job: at for at, each in enumerate(trials)}
    first = {each.job: _first(each.attempts, began) for each in trials}
    curves, heard = [Reported() for _ in trials], list[tuple[float, float]]()
    for report in reports:
        if report.job not in numbers:
            continue
        value = math.nan if report.value is None else report.value
        curve, at = curves[numbers[report.job]], first[report.job] - began + report.seconds
        while curve.epochs and curve.epochs[-1] >= report.step:  # it has trained this again
            for column in (curve.epochs, curve.seconds, curve.values):
                column.pop()
        curve.epochs.append(report.step)
        curve.seconds.append(at)
        curve.values.append(value)
        heard.append((at, value))
    nodes = _nodes([search, *trials], gpus)
    place = {name: at for at, name in enumerate(nodes)}
    held = [
        part for attempt in search.attempts for part in _segments(0, attempt, place, began, now)
    ]
    segments = [
        part
        for each in trials
        for attempt in each.attempts
        for part in _segments(numbers[each.job], attempt, place, began, now)
    ]
    end = now if search.finished is None else search.finished
    detail = Detail(curves, segments, nodes, paid_by(held, []))
    rows = [
        _trial(
            at, each, children.get(each.job), curves[at], segments, first[each.job] - began, mode
        )
        for at, each in enumerate(trials)
    ]
    steps = _best_by_time(heard, mode)
    return TuningRun(
        experiment=f"{search.name} (job {search.job})",
        recipe=f"{family.recipe if family is not None and family.recipe else 'search'}"
        f" ({search.job})",
        seed=0,
        metric=(family.metric if family is not None else "") or "value",
        mode=mode.value,
        cluster=", ".join(nodes),
        metrics=_figures(
            rows, curves, steps, detail, family.ended_by if family else "", end - began
        ),
        trials=rows,
        best_by_time=steps,
        detail=detail,
    )


def _first(attempts: Iterable[AttemptAnswer], otherwise: float) -> float:
    return next((each.started for each in attempts if each.started is not None), otherwise)


def _nodes(jobs: Iterable[JobDetail], gpus: Mapping[str, int]) -> dict[str, int]:
    """Every node on which there was something, with its GPUs; of one that has left, as many as were
    seen."""
    seen: dict[str, int] = {}
    for job in jobs:
        for attempt in job.attempts:
            for name, devices in _devices(attempt):
                seen[name] = max(seen.get(name, 0), gpus.get(name, 0), *(n + 1 for n in devices), 0)
    return dict(sorted(seen.items()))


def _devices(attempt: AttemptAnswer) -> Iterable[tuple[str, list[int]]]:
    """What `box:0,1` says."""
    for word in attempt.devices:
        name, _, listed = word.rpartition(":")
        yield name, [int(number) for number in listed.split(",") if number.isdigit()]


def _segments(
    number: int, attempt: AttemptAnswer, place: Mapping[str, int], began: float, now: float
) -> Iterable[Segment]:
    """Where an attempt was; until now if it has not ended."""
    if attempt.started is None:
        return
    ended = now if attempt.ended is None else attempt.ended
    for name, devices in _devices(attempt):
        mask = sum(1 << device for device in set(devices))
        if mask and ended > attempt.started:
            yield Segment(number, attempt.started - began, ended - began, place[name], mask)


def _trial(
    number: int,
    job: JobDetail,
    child: ChildAnswer | None,
    curve: Reported,
    segments: Iterable[Segment],
    started: float,
    mode: Mode,
) -> Trial:
    known = [value for value in curve.values if not math.isnan(value)]
    mine = [part for part in segments if part.job == number]
    broke = bool(curve.values) and math.isnan(curve.values[-1])
    words: dict[str, Value] = dict(job.params)
    return Trial(
        number=number,
        configuration=f"job {job.job}",
        point=words,
        state="diverged" if broke else _state(job, child),
        started_seconds=started if mine else math.nan,
        ended_seconds=max((part.end_seconds for part in mine), default=math.nan),
        epochs=max(curve.epochs, default=0.0),
        reports=len(curve.values),
        best=min(known, key=lambda value: badness(value, mode), default=math.nan),
        last=curve.values[-1] if curve.values else math.nan,
        gpu_hours=sum(
            part.devices.bit_count() * (part.end_seconds - part.start_seconds) / 3600
            for part in mine
        ),
    )


def _state(job: JobDetail, child: ChildAnswer | None) -> str:
    return (child.state if child is not None else job.state).lower().replace("_", " ")


def _best_by_time(heard: Iterable[tuple[float, float]], mode: Mode) -> list[tuple[float, float]]:
    """When something better was reported than ever before, and how good it was."""
    steps = list[tuple[float, float]]()
    for at, value in sorted(heard):
        better = not steps or badness(value, mode) < badness(steps[-1][1], mode)
        if better and not math.isnan(value):
            steps.append((at, value))
    return steps


def _figures(
    trials: Sequence[Trial],
    curves: Iterable[Reported],
    steps: Sequence[tuple[float, float]],
    detail: Detail,
    ended_by: str,
    seconds: float,
) -> dict[str, Any]:
    """Those that a simulated search has, too."""
    return {
        "trials": len(trials),
        "trials_complete": sum(trial.state == "completed" for trial in trials),
        "trials_stopped": sum(
            trial.state in ("stopped", "cancelled", "set aside") for trial in trials
        ),
        "trials_diverged": sum(trial.state == "diverged" for trial in trials),
        "reports": sum(len(curve.values) for curve in curves),
        "epochs": sum(trial.epochs for trial in trials),
        "best": steps[-1][1] if steps else None,
        "best_at_seconds": steps[-1][0] if steps else None,
        "seconds": seconds,
        "gpu_hours": detail.paid[-1].gpu_hours if detail.paid else 0.0,
        "trial_gpu_hours": sum(trial.gpu_hours for trial in trials),
        "cost": None,
        "ended_by": ended_by,
        "deadline_kept": None,
        "budget_kept": None,
    }
