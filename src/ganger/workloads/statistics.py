"""What a workload looks like, as plain data that the command line prints and plots."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ganger.core.units import DAY, HOUR, NEVER, SECOND, WHOLE
from ganger.workloads.trace import Trace

QUANTILES = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


def describe(trace: Trace) -> dict[str, Any]:
    """Counts, sizes and times of a workload; times in seconds, work in GPU-hours.

    Keys: name, source, jobs, rows (in the file; 0: no file), rows_left_out (by reason), skipped
    (the same as messages), notes (what was made of odd rows), span_seconds, gpu_hours,
    jobs_per_hour, mean_gpus_busy (GPUs that the work would keep busy over the span),
    duration_seconds (mean and quantiles), gangs (a row per gang size), gang_fraction, shared_jobs,
    services, tenants, users, models, deadlines, elastic, dependent, hour_of_day (jobs in each of 24
    hours since the first submission's hour 0).
    """
    declared, n = trace.declared, trace.jobs
    submitted, gpus = declared.submitted[:n], declared.gpus[:n]
    duration = trace.duration[:n]
    finite = duration < NEVER
    span = int(submitted[-1])
    hours = trace.gpu_seconds() / 3600
    return {
        "name": trace.name,
        "source": trace.source,
        "jobs": n,
        "rows": trace.rows,
        "rows_left_out": dict(trace.left_out),
        "skipped": list(trace.skipped),
        "notes": list(trace.notes),
        "span_seconds": span / SECOND,
        "gpu_hours": hours,
        "jobs_per_hour": n / (span / HOUR) if span else None,
        "mean_gpus_busy": hours / (span / HOUR) if span else None,
        "duration_seconds": _durations(duration[finite] / SECOND),
        "gangs": _gangs(gpus, np.where(finite, duration, 0)),
        "gang_fraction": float((gpus > 1).mean()),
        "shared_jobs": _jobs_with(
            trace, [shape.roles[0].needs.share < WHOLE for shape in declared.shapes]
        ),
        "elastic": _jobs_with(
            trace, [shape.roles[0].range[0] != shape.roles[0].range[1] for shape in declared.shapes]
        ),
        "services": int((~finite).sum()),
        "tenants": _distinct(declared.tenant[:n]),
        "users": _distinct(declared.user[:n]),
        "models": _distinct(declared.model[:n]),
        "deadlines": int((declared.deadline[:n] < NEVER).sum()),
        "dependent": len(declared.after),
        "hour_of_day": np.bincount(submitted % DAY // HOUR, minlength=24).tolist(),
    }


def _durations(seconds: NDArray[np.float64]) -> dict[str, float]:
    if not len(seconds):
        return {}
    levels = np.quantile(seconds, QUANTILES)
    named = {f"p{100 * q:g}": float(level) for q, level in zip(QUANTILES, levels, strict=True)}
    return {"mean": float(seconds.mean()), **named}


def _gangs(gpus: NDArray[np.int32], duration: NDArray[np.int64]) -> list[dict[str, float]]:
    sizes, inverse = np.unique(gpus, return_inverse=True)
    jobs = np.bincount(inverse)
    work = np.bincount(inverse, weights=duration / HOUR * gpus)
    whole = max(float(work.sum()), 1e-300)
    return [
        {
            "gpus": int(size),
            "jobs": int(count),
            "fraction": count / len(gpus),
            "gpu_hours": float(done),
            "gpu_hours_fraction": float(done) / whole,
        }
        for size, count, done in zip(sizes, jobs.tolist(), work, strict=True)
    ]


def _jobs_with(trace: Trace, property_of_shape: list[bool]) -> int:
    return int(np.array(property_of_shape, bool)[trace.declared.shape[: trace.jobs]].sum())


def _distinct(codes: NDArray[np.int32]) -> int:
    """Distinct names, the empty one (code 0) not counted."""
    return int(np.count_nonzero(np.unique(codes)))
