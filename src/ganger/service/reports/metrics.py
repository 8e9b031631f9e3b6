"""Figures for Prometheus, read from the tables when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE

from ganger import __version__
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.service.http.app_context import AppContext
from ganger.service.reports import rows
from ganger.service.reports.counters import BOUNDS

_WAITS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)
_SLOWDOWNS = (1.1, 1.5, 2, 3, 5, 10, 30, 100)

__all__ = ["CONTENT_TYPE", "exposition"]


class _Collector:
    def __init__(self, world: AppContext) -> None:
        self._world = world

    def collect(self) -> Iterator[Metric]:
        with self._world.daemon.lock:
            yield from _figures(self._world)


def _figures(world: AppContext) -> Iterator[Metric]:
    daemon = world.daemon
    kernel = daemon.kernel
    jobs, n = kernel.jobs, kernel.jobs.n
    phase = jobs.phase[:n]
    build = GaugeMetricFamily("ganger_build_info", "1.", labels=["version", "recipe"])
    build.add_metric([__version__, daemon.header.policy], 1)
    yield build
    counted = GaugeMetricFamily("ganger_jobs", "Jobs.", labels=["phase", "tenant"])
    tenants = len(jobs.tenants)
    counts = np.bincount(
        phase.astype(np.int64) * tenants + jobs.tenant[:n], minlength=len(Phase) * tenants
    ).reshape(len(Phase), tenants)
    for one in Phase:
        for code in np.flatnonzero(counts.sum(axis=0)).tolist():
            counted.add_metric([one.name.lower(), jobs.tenants[code]], int(counts[one, code]))
    yield counted
    gpus = GaugeMetricFamily("ganger_gpus", "GPUs by state and kind.", labels=["state", "kind"])
    table: dict[tuple[str, str], int] = {}
    for node in rows.node_answers(daemon):
        free = "free" if node.state == "up" else node.state
        for state, number in ((free, node.gpus_free), ("held", node.gpus - node.gpus_free)):
            table[state, node.gpu_type] = table.get((state, node.gpu_type), 0) + number
    for (state, kind), number in sorted(table.items()):
        gpus.add_metric([state, kind], number)
    yield gpus
    started = jobs.first_start[:n] >= 0
    waits = (jobs.first_start[:n] - jobs.submitted[:n])[started] / SECOND
    yield _histogram("ganger_job_wait_seconds", "From submission to first start.", waits, _WAITS)
    done = (phase == Phase.FINISHED) & (jobs.ran[:n] > 0)
    jct = (jobs.finished[:n] - jobs.submitted[:n])[done]
    yield _histogram(
        "ganger_job_slowdown_ratio",
        "JCT by run time, of finished jobs.",
        jct / jobs.ran[:n][done],
        _SLOWDOWNS,
    )
    yield _by(
        "ganger_preemptions",
        "Preemptions, by why.",
        "cause",
        {"policy": int(jobs.preemptions[:n].sum()), "order": daemon.tally.requeued},
    )
    yield _by(
        "ganger_plan_refusals", "Starts that the engine refused.", "reason", daemon.tally.refused
    )
    yield _gpu_seconds(world)
    idle = world.idleness.jobs()
    yield GaugeMetricFamily(
        "ganger_idle_jobs", "Jobs that do nothing with their GPUs.", value=len(idle)
    )
    yield GaugeMetricFamily(
        "ganger_idle_gpus", "GPUs that such jobs hold.", value=sum(job.gpus for job in idle)
    )
    yield CounterMetricFamily(
        "ganger_decisions", "Decisions of the policy.", value=kernel.decisions
    )
    tally = daemon.tally
    buckets = [
        (str(bound), int(count))
        for bound, count in zip((*BOUNDS, "+Inf"), np.cumsum(tally.steps), strict=True)
    ]
    steps = HistogramMetricFamily("ganger_decision_duration_seconds", "Time that steps took.")
    steps.add_metric([], buckets, sum_value=tally.step_seconds)
    yield steps


def _by(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    metric = CounterMetricFamily(name, text, labels=[label])
    for value, count in sorted(counts.items()):
        metric.add_metric([value], count)
    return metric


def _gpu_seconds(world: AppContext) -> Metric:
    """What tenants' jobs had. Idle is what a look found idle; that work may be lost, too."""
    used = CounterMetricFamily("ganger_gpu_seconds", "GPU time.", labels=["tenant", "outcome"])
    for share in rows.shares(world.daemon):
        lost = share.lost_gpu_hours * 3600
        done = max(share.gpu_hours * 3600 - lost, 0.0)
        idle = min(world.idleness.gpu_seconds.get(share.tenant, 0.0), done)
        for outcome, seconds in (("useful", done - idle), ("lost", lost), ("idle", idle)):
            used.add_metric([share.tenant, outcome], seconds)
    return used


def _histogram(name: str, text: str, values: np.ndarray, bounds: tuple[float, ...]) -> Metric:
    buckets = [(str(float(bound)), int((values <= bound).sum())) for bound in bounds]
    buckets.append(("+Inf", len(values)))
    metric = HistogramMetricFamily(name, text)
    metric.add_metric([], buckets, sum_value=float(values.sum()))
    return metric


def exposition(world: AppContext) -> bytes:
    """All figures in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(world))
    return generate_latest(registry)
