"""Figures for Prometheus, read from the tables when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)  # fmt: skip
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE

from ganger import __version__
from ganger.core.jobs import Phase
from ganger.core.units import SECOND
from ganger.service import rows
from ganger.service.world import World

_WAITS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)
_SLOWDOWNS = (1.1, 1.5, 2, 3, 5, 10, 30, 100)

__all__ = ["CONTENT_TYPE", "exposition"]


class _Collector:
    def __init__(self, world: World) -> None:
        self._world = world

    def collect(self) -> Iterator[Metric]:
        with self._world.daemon.lock:
            yield from _figures(self._world)


def _figures(world: World) -> Iterator[Metric]:
    daemon = world.daemon
    kernel = daemon.kernel
    jobs, n = kernel.jobs, kernel.jobs.n
    phase = jobs.phase[:n]
    build = GaugeMetricFamily("ganger_build_info", "1.", labels=["version", "recipe"])
    build.add_metric([__version__, daemon.header.policy], 1)
    yield build
    counted = GaugeMetricFamily("ganger_jobs", "Jobs by phase.", labels=["phase"])
    counts = np.bincount(phase, minlength=len(Phase))
    for one in Phase:
        counted.add_metric([one.name.lower()], int(counts[one]))
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
    yield _histogram("ganger_job_slowdown_ratio", "JCT by run time, of finished jobs.",
                     jct / jobs.ran[:n][done], _SLOWDOWNS)  # fmt: skip
    yield CounterMetricFamily("ganger_preemptions", "Preemptions.",
                              value=int(jobs.preemptions[:n].sum()))  # fmt: skip
    used = CounterMetricFamily("ganger_gpu_seconds", "GPU time.", labels=["tenant", "outcome"])
    for share in rows.shares(daemon):
        lost = share.lost_gpu_hours * 3600
        used.add_metric([share.tenant, "useful"], max(share.gpu_hours * 3600 - lost, 0.0))
        used.add_metric([share.tenant, "lost"], lost)
    yield used
    yield CounterMetricFamily("ganger_decisions", "Times the policy was asked.",
                              value=kernel.decisions)  # fmt: skip
    yield CounterMetricFamily("ganger_decision_duration_seconds", "Time spent in steps.",
                              value=daemon.decision_seconds[0])  # fmt: skip


def _histogram(name: str, text: str, values: np.ndarray, bounds: tuple[float, ...]) -> Metric:
    buckets = [(str(float(bound)), int((values <= bound).sum())) for bound in bounds]
    buckets.append(("+Inf", len(values)))
    metric = HistogramMetricFamily(name, text)
    metric.add_metric([], buckets, sum_value=float(values.sum()))
    return metric


def exposition(world: World) -> bytes:
    """All figures in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(world))
    return generate_latest(registry)
