"""Figures of a run, in the words of the field: JCT, makespan, queueing delay, fairness, use.

Definitions, once for every table, page and file:

* JCT = finish - arrival. Only jobs that finished have one; those killed at their time limit and
  services never do.
* Makespan = last end - first arrival, the ends of killed jobs included. Queueing delay = first
  start - arrival. Pending time is all the time a job waited for devices, waits after a preemption
  included.
* Slowdown = JCT / duration, the duration being what the job takes alone and in one piece.
* Finish-time fairness rho = T_shared / T_independent. T_shared is the JCT. T_independent is what
  the job would have taken on its own 1/N of the cluster, N being the mean number of jobs present
  (submitted and not over, itself and services included) between its arrival and its finish:
  `duration x max(1, gpus x N / cluster_gpus)`. A job with rho > 1 was worse off for sharing.
* `gpu_allocated_ratio`: GPU-seconds held / GPU-seconds up, from the first arrival to the last
  end. `gpu_active_ratio`: the same for GPU-seconds that computed. `gpu_up_ratio`: GPU-seconds
  up / GPU-seconds there are in that time; what lacks was broken, or switched off to save power.
* Percentiles interpolate linearly between order statistics (numpy's default).
* `deadline_missed_fraction`: of the jobs with a deadline, the part that did not finish by it.
* `energy_kwh`, `energy_of_idle_kwh`, `carbon_kg` and `cost`: see `ganger.lab.billing.account`.

A figure that does not exist (the mean JCT of no finished job) is NaN, and null in JSON. Jobs
that failed, were cancelled or never finished have no JCT, so the counts belong beside every mean.
Where recipes are compared, all that is a mean or percentile over jobs (`JOB_FIGURES`) is taken over
the jobs that finished under every recipe: `comparable`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.lab.figures import (
    Floats,
    completion_times,
    ends,
    fairness,
    finished,
    integral,
    known,
    missed_deadlines,
    queueing_delays,
    slowdowns,
)
from ganger.lab.result import JobTable, Run

By = Literal["tenant", "gpus", "gpu_type"]


class Estimate(NamedTuple):
    """A mean over seeds, and half the width of its 95% confidence interval (NaN for one seed)."""

    mean: float
    half_width: float


class Comparable(NamedTuple):
    """One run beside others: its metrics, with `JOB_FIGURES` over the `jobs` that finished under
    every recipe, and how many jobs of the run are `outside` (services not counted)."""

    figures: dict[str, float]
    jobs: int
    outside: int


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in their seed only, and the estimate of every metric over them."""

    label: str
    """The recipe, plus whatever else tells this group from the others."""
    recipe: str
    knows: str
    trace: str
    cluster: str
    load: float
    runs: tuple[Run, ...]
    beside: tuple[Comparable, ...]
    """Each run as it can be compared with the other recipes' runs."""
    metrics: Mapping[str, Estimate]

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of the runs."""
        return [run.seed for run in self.runs]

    def mean(self, metric: str) -> float:
        """The mean of one metric over the seeds; NaN where there is none."""
        return self.metrics[metric].mean if metric in self.metrics else math.nan


def compute(run: Run) -> dict[str, float]:
    """Fill `run.metrics` with every metric of this module's docstring, and return it.

    `jobs_*` count jobs that have an end; services are counted by `services`, and enter
    allocation, tenants' shares and the N of rho only.
    """
    run.metrics = {
        **_counts(run.jobs),
        **_times(run),
        **_use(run),
        **_disturbance(run.jobs),
        **(run.account.metrics() if run.account is not None else {}),
    }
    return run.metrics


def metrics_of(run: Run) -> dict[str, float]:
    """The run's metrics, computed on first use."""
    return run.metrics or compute(run)


def comparable(runs: Sequence[Run]) -> list[Comparable]:
    """Each run as it can be compared with those of the same trace, load and seed. Where no job
    finished under all of them, each keeps the figures of its own jobs, and `jobs` is 0."""
    fields: dict[tuple[str, float, int], list[int]] = {}
    for number, run in enumerate(runs):
        fields.setdefault((run.trace, run.load, run.seed), []).append(number)
    found: dict[int, Comparable] = {}
    for members in fields.values():
        common = _common([runs[number].jobs for number in members])
        for number, among in zip(members, common, strict=True):
            run, own = runs[number], metrics_of(runs[number])
            count = int(among.sum())
            if len(members) > 1 and 0 < count < own["jobs_submitted"]:
                own = {**own, **_over_jobs(run, among)}
            found[number] = Comparable(own, count, int(own["jobs_submitted"]) - count)
    return [found[number] for number in range(len(runs))]


def _common(tables: list[JobTable]) -> list[NDArray[np.bool_]]:
    """Of each table, which jobs finished in all of them. Rows are the same jobs, or, where the
    tables are of different length, those of the same name."""
    done = [finished(jobs) for jobs in tables]
    if len({len(jobs.name) for jobs in tables}) == 1:
        return [np.logical_and.reduce(done)] * len(tables)
    names = [
        {name for name, ok in zip(jobs.name, each.tolist(), strict=True) if ok}
        for jobs, each in zip(tables, done, strict=True)
    ]
    everywhere = set.intersection(*names)
    return [np.array([name in everywhere for name in jobs.name], np.bool_) for jobs in tables]


def confidence(values: Iterable[float]) -> Estimate:
    """Mean and half-width of the 95% Student-t interval of independent values (one a seed).

    NaNs are left out; the half-width of fewer than two values is NaN, and that of values which
    differ by rounding only is 0.
    """
    x = known(np.fromiter(values, dtype=np.float64))
    if x.size < 2:
        return Estimate(_mean(x), math.nan)
    from scipy.special import stdtrit  # slow to import, and only several seeds need it

    error = float(x.std(ddof=1)) / math.sqrt(x.size)
    if error <= _ROUNDING * float(np.abs(x).max()):
        error = 0.0
    return Estimate(_mean(x), float(stdtrit(x.size - 1, 0.975)) * error)


_ROUNDING = 1e-12


def aggregate(runs: Sequence[Run]) -> list[Group]:
    """Group runs that differ in their seed only, in order of appearance.

    Runs of one recipe on another trace or cluster, at another load or with other knowledge are
    other groups, and the labels then say so.
    """
    groups: dict[tuple[str, str, str, str, float], list[int]] = {}
    for number, run in enumerate(runs):
        key = (run.recipe, run.knows, run.trace, run.cluster, run.load)
        groups.setdefault(key, []).append(number)
    beside = comparable(runs)
    return [
        _group(key, [(runs[number], beside[number]) for number in members], list(groups))
        for key, members in groups.items()
    ]


def breakdown(run: Run, by: By = "tenant") -> list[dict[str, Any]]:
    """One row per tenant, gang size or GPU type: counts, JCT, queueing delay, GPU-hours, rho, bill.

    Rows are sorted by the key, which stands under the name `by`. Jobs that never ran have the
    GPU type "". `gpu_hours_ratio` is the share of all GPU-hours held.
    """
    jobs = run.jobs
    keys: list[Any] = jobs.gpus.tolist() if by == "gpus" else getattr(jobs, by)
    columns = (completion_times(jobs), queueing_delays(jobs), fairness(run))
    total = float(np.nansum(jobs.held_gpu_seconds))
    bill = run.account.of if run.account is not None else lambda rows: {}
    return [
        {by: key, **_row(jobs, rows, columns, total), **bill(rows)}
        for key, rows in sorted(_rows_by(keys).items())
    ]


def _row(
    jobs: JobTable, rows: NDArray[np.int64], columns: tuple[Floats, ...], total: float
) -> dict[str, float]:
    jct, delay, rho = (known(column[rows]) for column in columns)
    held = float(np.nansum(jobs.held_gpu_seconds[rows]))
    return {
        "jobs": int(rows.size),
        "jobs_finished": int(jct.size),
        "jct_mean_seconds": _mean(jct),
        "jct_p50_seconds": _percentile(jct, 50),
        "jct_p99_seconds": _percentile(jct, 99),
        "queueing_delay_mean_seconds": _mean(delay),
        "gpu_hours": held / 3600,
        "gpu_hours_ratio": held / total if total else math.nan,
        "finish_time_fairness_mean": _mean(rho),
    }


def _rows_by(keys: list[Any]) -> dict[Any, NDArray[np.int64]]:
    rows: dict[Any, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return {key: np.array(members, dtype=np.int64) for key, members in rows.items()}


def _group(
    key: tuple[str, str, str, str, float],
    members: list[tuple[Run, Comparable]],
    keys: list[tuple[str, str, str, str, float]],
) -> Group:
    recipe, knows, trace, cluster, load = key
    runs, beside = zip(*members, strict=True)
    names = {name: None for each in beside for name in each.figures}
    metrics = {
        name: confidence(each.figures.get(name, math.nan) for each in beside) for name in names
    }
    return Group(_label(key, keys), recipe, knows, trace, cluster, load, runs, beside, metrics)


def _label(
    key: tuple[str, str, str, str, float], keys: list[tuple[str, str, str, str, float]]
) -> str:
    """The recipe, and what else is needed to tell it apart. Load has a place of its own."""
    recipe, knows, trace, cluster, _ = key
    parts = [recipe]
    if len({other[1] for other in keys if other[0] == recipe}) > 1:
        parts.append(f"knows {knows}")
    if len({other[2] for other in keys}) > 1:
        parts.append(trace)
    if len({other[3] for other in keys}) > 1:
        parts.append(cluster)
    return ", ".join(parts)


def _counts(jobs: JobTable) -> dict[str, float]:
    finite = ~jobs.open_ended
    state = np.array(jobs.state, dtype=object)
    over = {name: int((finite & (state == name)).sum()) for name in _OVER}
    total = int(finite.sum())
    return {
        "jobs_submitted": total,
        **{f"jobs_{name}": count for name, count in over.items()},
        "jobs_unfinished": total - sum(over.values()),
        "services": int(jobs.service.sum()),
    }


_OVER = ("finished", "failed", "cancelled")


def _times(run: Run) -> dict[str, float]:
    jobs = run.jobs
    makespan = _makespan(jobs)
    done = int(finished(jobs).sum())
    return {
        **_over_jobs(run, np.ones(len(jobs.name), np.bool_)),
        "makespan_seconds": makespan,
        "deadline_missed_fraction": _mean(missed_deadlines(jobs)),
        "throughput_jobs_per_hour": done / makespan * 3600 if makespan > 0 else math.nan,
    }


def _over_jobs(run: Run, among: NDArray[np.bool_]) -> dict[str, float]:
    """What is a mean or percentile over jobs: over those `among` which have such a figure."""
    jobs = run.jobs
    slow, rho = known(slowdowns(jobs)[among]), known(fairness(run)[among])
    return {
        **_spread("jct", known(completion_times(jobs)[among])),
        **_spread("queueing_delay", known(queueing_delays(jobs)[among])),
        "pending_time_mean_seconds": _mean(known(jobs.pending[among & ~jobs.open_ended])),
        "slowdown_mean": _mean(slow),
        "slowdown_p99": _percentile(slow, 99),
        "finish_time_fairness_mean": _mean(rho),
        "finish_time_fairness_p99": _percentile(rho, 99),
        "finish_time_fairness_max": _percentile(rho, 100),
        "unfair_fraction": float((rho > 1 + _TOLERANCE).mean()) if rho.size else math.nan,
    }


JOB_FIGURES = (
    *(
        f"{name}_{end}_seconds"
        for name in ("jct", "queueing_delay")
        for end in ("mean", "p50", "p90", "p99")
    ),
    "pending_time_mean_seconds",
    "slowdown_mean",
    "slowdown_p99",
    "finish_time_fairness_mean",
    "finish_time_fairness_p99",
    "finish_time_fairness_max",
    "unfair_fraction",
)
"""The metrics that are taken over the common jobs where recipes are compared."""
_TOLERANCE = 1e-6
"""A job that had exactly its share is not unfairly treated by a rounding error."""


def _spread(name: str, values: Floats) -> dict[str, float]:
    return {
        f"{name}_mean_seconds": _mean(values),
        **{f"{name}_p{p}_seconds": _percentile(values, p) for p in (50, 90, 99)},
    }


def _makespan(jobs: JobTable) -> float:
    over, arrivals = known(ends(jobs)), known(jobs.arrival[~jobs.open_ended])
    return float(over.max() - arrivals.min()) if over.size else math.nan


def _use(run: Run) -> dict[str, float]:
    jobs, timeline = run.jobs, run.timeline
    over = known(ends(jobs))
    if not over.size or not timeline.seconds.size:
        return dict.fromkeys(("gpu_allocated_ratio", "gpu_active_ratio", "gpu_up_ratio"), math.nan)
    window = float(np.nanmin(jobs.arrival)), float(over.max())
    up = integral(timeline, timeline.gpus_up, *window)
    held = integral(timeline, timeline.gpus_held, *window)
    active = integral(timeline, timeline.gpus_running, *window)
    there = run.cluster_gpus * (window[1] - window[0])
    return {
        "gpu_allocated_ratio": held / up if up else math.nan,
        "gpu_active_ratio": active / up if up else math.nan,
        "gpu_up_ratio": up / there if there else math.nan,
    }


def _disturbance(jobs: JobTable) -> dict[str, float]:
    finite = ~jobs.open_ended
    return {
        "preemptions": int(jobs.preemptions[finite].sum()),
        "jobs_preempted": int((jobs.preemptions[finite] > 0).sum()),
        "restarts": int(jobs.restarts[finite].sum()),
        "lost_work_gpu_seconds": float(np.nansum((jobs.lost * jobs.gpus)[finite])),
    }


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else math.nan


def _percentile(values: Floats, p: float) -> float:
    return float(np.percentile(values, p)) if values.size else math.nan


def to_json(
    runs: Sequence[Run], per_job_path: str | Sequence[str | None] | None = None
) -> dict[str, Any]:
    """The runs as one JSON-ready object; what is not known (NaN) is null.

    `per_job_path`: where `write_jobs` put the jobs: one path per run, or one for a single run.
    Raises BadInput where the number of paths is not the number of runs.
    """
    paths = [per_job_path] if isinstance(per_job_path, str) else per_job_path
    if paths is None:
        paths = [None] * len(runs)
    if len(paths) != len(runs):
        raise BadInput(f"{len(paths)} per-job files for {len(runs)} runs", mend="give one per run")
    compared = comparable(runs) if len(runs) > 1 else [None] * len(runs)
    return {
        "runs": [
            {**_run_json(run, path), "on_common_jobs": beside and _common_json(beside)}
            for run, path, beside in zip(runs, paths, compared, strict=True)
        ]
    }


def write_jobs(run: Run, path: str | Path) -> None:
    """Write one row per submitted job to `path`: CSV, or Parquet if it ends in `.parquet`.

    Times are seconds since the trace's first submission; what did not happen is an empty field
    (null in Parquet). Raises BadInput for another suffix, or for Parquet without pyarrow.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        _write_parquet(job_columns(run), path)
    elif path.suffix == ".csv":
        _write_csv(job_columns(run), path)
    else:
        raise BadInput(f"cannot write jobs to {path.name!r}", mend="end it in .csv or .parquet")


def job_columns(run: Run) -> dict[str, list[Any]]:
    """The jobs as named columns of plain values, None where a thing did not happen."""
    jobs = run.jobs
    floats = {
        "arrival_seconds": jobs.arrival,
        "first_start_seconds": jobs.first_start,
        "finish_seconds": jobs.finish,
        "jct_seconds": completion_times(jobs),
        "queueing_delay_seconds": queueing_delays(jobs),
        "pending_seconds": jobs.pending,
        "duration_seconds": jobs.duration,
        "ran_seconds": jobs.ran,
        "deadline_seconds": jobs.deadline,
        "lost_seconds": jobs.lost,
        "held_gpu_seconds": jobs.held_gpu_seconds,
        "active_gpu_seconds": jobs.active_gpu_seconds,
        "finish_time_fairness": fairness(run),
        **(run.account.columns() if run.account is not None else {}),
    }
    return {
        "job": jobs.name,
        "tenant": jobs.tenant,
        "gpus": jobs.gpus.tolist(),
        "state": jobs.state,
        **{name: [_or_none(value) for value in column.tolist()] for name, column in floats.items()},
        "gpu_type": jobs.gpu_type,
        "nodes": jobs.nodes,
        "locality": jobs.locality,
        "preemptions": jobs.preemptions.tolist(),
        "restarts": jobs.restarts.tolist(),
        "service": jobs.service.tolist(),
    }


def _run_json(run: Run, path: str | None) -> dict[str, Any]:
    return {
        "recipe": run.recipe,
        "seed": run.seed,
        "knows": run.knows,
        "load": _or_none(run.load),
        "metrics": {name: _or_none(value) for name, value in metrics_of(run).items()},
        "per_job": path,
        "simulation": {name: _or_none(value) for name, value in run.simulation.items()},
        "rows": run.rows,
        "rows_left_out": dict(run.left_out),
        "notes": list(run.notes),
        **({"services": run.services} if run.services else {}),
        **({"experiments": [each.to_json() for each in run.searches]} if run.searches else {}),
        **({} if run.loans is None else {"loans": run.loans._asdict()}),
        **({"energy": run.account.as_json()} if run.account is not None else {}),
        **({"cost": {**run.cost, "all": sum(run.cost.values())}} if run.cost else {}),
        **({} if run.waited is None else {"waited": [one._asdict() for one in run.waited]}),
        **({"company": [row._asdict() for row in run.company]} if run.company else {}),
    }


def _common_json(beside: Comparable) -> dict[str, Any]:
    figures = {name: _or_none(beside.figures[name]) for name in JOB_FIGURES} if beside.jobs else {}
    return {"jobs": beside.jobs, "jobs_outside": beside.outside, "metrics": figures}


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _write_csv(columns: dict[str, list[Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(_rows(columns))


def _rows(columns: dict[str, list[Any]]) -> Iterator[tuple[Any, ...]]:
    return zip(*columns.values(), strict=True)


def _write_parquet(columns: dict[str, list[Any]], path: Path) -> None:
    from ganger.workloads.readers.ganger_trace import import_pyarrow

    pa, pq = import_pyarrow()
    never = pa.float64()  # a column in which nothing happened is one of numbers all the same
    pq.write_table(
        pa.table(
            {
                name: pa.array(column, never if column and set(column) == {None} else None)
                for name, column in columns.items()
            }
        ),
        path,
    )
