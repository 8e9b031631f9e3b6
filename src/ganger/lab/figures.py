"""What happened to each job and each GPU, as columns: what every metric and chart is made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ganger.lab.result import JobTable, Run, Timeline

Floats = NDArray[np.float64]


def finished(jobs: JobTable) -> NDArray[np.bool_]:
    """Which jobs finished (services left out)."""
    return np.asarray(
        (np.array(jobs.state, dtype=object) == "finished")
        & ~jobs.open_ended
        & np.isfinite(jobs.finish),
        dtype=np.bool_,
    )


def ends(jobs: JobTable) -> Floats:
    """When each job was over that did any work, killed or not; NaN for services and the rest."""
    return np.where(jobs.open_ended | np.isnan(jobs.first_start), np.nan, jobs.finish)


def completion_times(jobs: JobTable) -> Floats:
    """JCT of every job in seconds; NaN unless it finished."""
    return np.where(finished(jobs), jobs.finish - jobs.arrival, np.nan)


def queueing_delays(jobs: JobTable) -> Floats:
    """First start - arrival in seconds; NaN for services and for jobs that never started."""
    return np.where(jobs.open_ended, np.nan, jobs.first_start - jobs.arrival)


def missed_deadlines(jobs: JobTable) -> Floats:
    """Of every job with a deadline (services left out): 1 if it did not finish by it, else 0."""
    due = np.isfinite(jobs.deadline) & ~jobs.open_ended
    met = finished(jobs) & (jobs.finish <= jobs.deadline)
    return (~met[due]).astype(np.float64)


def slowdowns(jobs: JobTable) -> Floats:
    """JCT / duration; NaN unless the job finished and takes any time at all."""
    return _divide(completion_times(jobs), jobs.duration)


def fairness(run: Run) -> Floats:
    """Finish-time fairness rho (see `ganger.lab.metrics`) of every job; NaN unless it finished."""
    jobs = run.jobs
    jct = completion_times(jobs)
    share = jobs.gpus * _mean_present(jobs) / max(run.cluster_gpus, 1)
    return _divide(jct, jobs.duration * np.maximum(1.0, share))


def integral(
    timeline: Timeline, values: NDArray[np.float64] | NDArray[np.int64], start: float, end: float
) -> float:
    """What a sampled value adds up to from `start` to `end` seconds; each sample holds until the
    next one, the last until `end`; nothing is known, and nothing counted, before the first."""
    edges = np.clip(np.append(timeline.seconds, np.inf), start, end)
    return float((np.diff(edges) * values).sum())


def _mean_present(jobs: JobTable) -> Floats:
    """Mean number of jobs present between each job's arrival and finish (NaN if not finished)."""
    arrivals, over = np.sort(known(jobs.arrival)), np.sort(known(jobs.finish))
    life = np.where(finished(jobs), jobs.finish - jobs.arrival, np.nan)
    lived = _elapsed_since(arrivals, jobs.finish) - _elapsed_since(arrivals, jobs.arrival)
    after = _elapsed_since(over, jobs.finish) - _elapsed_since(over, jobs.arrival)
    return _divide(lived - after, life)


def _elapsed_since(moments: Floats, now: Floats) -> Floats:
    """For every `now`: the sum, over the sorted moments before it, of the time since. The
    difference between two instants is the integral of a count of moments."""
    sums = np.concatenate(([0.0], np.cumsum(moments)))
    before = np.searchsorted(moments, now, side="right")
    return np.asarray(before * now - sums[before], dtype=np.float64)


def _divide(above: Floats, below: Floats) -> Floats:
    """Quotients; NaN where there is nothing to divide by."""
    out = np.full(above.shape, np.nan)
    np.divide(above, below, out=out, where=below > 0)
    return out


def known(values: Floats) -> Floats:
    """The values without NaN and infinity."""
    return values[np.isfinite(values)]
