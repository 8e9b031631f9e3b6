"""What a live plane counts: requests, batches with their reasons, time. Printed for Prometheus and
as the statistics of the protocol."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.registry import Collector

from ganger import __version__
from ganger.core.serving.verbs import Batch, Load
from ganger.core.serving.world import Lane
from ganger.core.units import SECOND
from ganger.serving.plane import LivePlane
from ganger.serving.tickets import Ticket

__all__ = ["CONTENT_TYPE", "Figures", "exposition"]
_BOUNDS: Final = tuple(
    each * scale for scale in (1_000, 10_000, 100_000, 1_000_000) for each in (1, 2, 5)
)
"""Microseconds: the upper ends of a histogram of latencies."""
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ANSWERED, FAILED, GIVEN_UP = "answered", "failed", "given up"
_APART: Final = 100
"""No more reasons are counted apart; recipes have a handful."""


class Counts(Struct):
    """Of one model, since the server began. Times: microseconds, summed up."""

    outcomes: dict[str, int] = {}
    """Requests by what became of them: answered, failed, given up, or why they were dropped."""
    by: dict[str, int] = {}
    """Of a family: answers by the model that they are of."""
    labelled: int = 0
    correct: int = 0
    """Answers of which the truth came, and those that were right."""
    late: int = 0
    """Of those that were answered, how many after their deadline."""
    items: int = 0
    """Inputs of answered requests."""
    batches: int = 0
    reasons: dict[str, int] = {}
    """Batches by why they were formed."""
    sizes: dict[int, tuple[int, int]] = {}
    """By requests in a batch: how many batches, and their time."""
    loads: int = 0
    computed: int = 0
    queued: int = 0
    """Time of answered requests before their batch began."""
    latency: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1))
    batched: list[int] = field(default_factory=lambda: [0] * (len(_SIZES) + 1))


class Figures:
    """Watches a plane. `names`: of the models by code."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.models = [Counts() for _ in names]
        self.answers: dict[int, int] = {}
        """HTTP answers by status."""
        self.connections = 0
        self.busy: dict[int, int] = {}
        """By lane, microseconds."""

    def ran(
        self, lane: Lane, order: Batch | Load, began: int, ended: int, tickets: Sequence[Ticket]
    ) -> None:
        """A lane was busy."""
        took = ended - began
        self.busy[lane.number] = self.busy.get(lane.number, 0) + took
        if isinstance(order, Load):
            self.models[order.model].loads += 1
            return
        if not tickets:
            return
        counts, size = self.models[order.parts[0].model], len(tickets)
        counts.batches += 1
        counts.computed += took
        _count(counts.reasons, order.reason)
        batches, time = counts.sizes.get(size, (0, 0))
        counts.sizes[size] = batches + 1, time + took
        counts.batched[bisect_left(_SIZES, size)] += 1

    def settled(self, ticket: Ticket) -> None:
        """A request is over."""
        counts = self.models[ticket.model]
        if ticket.outputs is not None and not ticket.failure:
            took = ticket.ended - ticket.arrival
            _count(counts.outcomes, ANSWERED)
            if ticket.by >= 0:
                _count(counts.by, self.names[ticket.by])
            counts.late += ticket.ended > ticket.deadline
            counts.items += ticket.items
            counts.queued += max(ticket.began - ticket.arrival, 0)
            counts.latency += took
            counts.buckets[bisect_left(_BOUNDS, took)] += 1
        else:
            _count(counts.outcomes, FAILED if ticket.failure else ticket.reason or GIVEN_UP)

    def labelled(self, asked: int, said: Mapping[int, int], label: int, right: bool) -> None:
        """The truth about an answer came: to what was asked for, and what models of it gave."""
        results = {asked: right} | {
            model: class_ == label
            for model, class_ in said.items()
            if class_ >= 0 and model != asked
        }
        for model, fine in results.items():
            self.models[model].labelled += 1
            self.models[model].correct += fine

    def statistics(self, model: int) -> dict[str, Any]:
        """As the statistics extension of the protocol writes them, and, as `reasons`, why batches
        were formed and requests dropped."""
        counts = self.models[model]
        answered = counts.outcomes.get(ANSWERED, 0)
        failed = sum(counts.outcomes.values()) - answered
        return {
            "name": self.names[model],
            "version": "1",
            "inference_count": counts.items,
            "execution_count": counts.batches,
            "inference_stats": {
                "success": {"count": answered, "ns": counts.latency * 1000},
                "fail": {"count": failed, "ns": 0},
                "queue": {"count": answered, "ns": counts.queued * 1000},
                "compute_infer": {"count": counts.batches, "ns": counts.computed * 1000},
            },
            "batch_stats": [
                {"batch_size": size, "compute_infer": {"count": batches, "ns": time * 1000}}
                for size, (batches, time) in sorted(counts.sizes.items())
            ],
            "reasons": {"batches": counts.reasons, "requests": counts.outcomes},
            "feedback": {"labelled": counts.labelled, "correct": counts.correct},
            **({"answered_by": counts.by} if counts.by else {}),
        }


def _count(table: dict[str, int], key: str) -> None:
    if key not in table and len(table) >= _APART:
        key = "other"
    table[key] = table.get(key, 0) + 1


class _Collector(Collector):
    def __init__(self, figures: Figures, plane: LivePlane) -> None:
        self._figures, self._plane = figures, plane

    def collect(self) -> Iterator[Metric]:
        yield from _figures(self._figures, self._plane)


def exposition(figures: Figures, plane: LivePlane) -> bytes:
    """All figures, as Prometheus reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(figures, plane))
    return generate_latest(registry)


def _figures(figures: Figures, plane: LivePlane) -> Iterator[Metric]:
    build = GaugeMetricFamily("ganger_serve_build_info", "1.", labels=["version", "recipe"])
    build.add_metric([__version__, plane.router.name], 1)
    yield build
    requests = CounterMetricFamily(
        "ganger_serve_requests", "Requests that are over.", labels=["model", "outcome"]
    )
    late = CounterMetricFamily(
        "ganger_serve_late", "Answers after their deadline.", labels=["model"]
    )
    batches = CounterMetricFamily(
        "ganger_serve_batches", "Batches, by why they were formed.", labels=["model", "reason"]
    )
    labelled = CounterMetricFamily(
        "ganger_serve_labelled", "Answers of which the truth came.", labels=["model"]
    )
    correct = CounterMetricFamily(
        "ganger_serve_correct", "Of those, the ones that were right.", labels=["model"]
    )
    by = CounterMetricFamily(
        "ganger_serve_family_answers", "Answers of a family, by model.", labels=["family", "model"]
    )
    loads = CounterMetricFamily("ganger_serve_loads", "Models loaded.", labels=["model"])
    latency = HistogramMetricFamily(
        "ganger_serve_latency_seconds", "From arrival to answer.", labels=["model"]
    )
    sizes = HistogramMetricFamily(
        "ganger_serve_batch_requests", "Requests in a batch.", labels=["model"]
    )
    for name, counts in zip(figures.names, figures.models, strict=True):
        for outcome, number in counts.outcomes.items():
            requests.add_metric([name, outcome], number)
        for reason, number in counts.reasons.items():
            batches.add_metric([name, reason], number)
        late.add_metric([name], counts.late)
        loads.add_metric([name], counts.loads)
        labelled.add_metric([name], counts.labelled)
        correct.add_metric([name], counts.correct)
        for model, number in counts.by.items():
            by.add_metric([name, model], number)
        ends = [each / SECOND for each in _BOUNDS]
        latency.add_metric([name], _rising(ends, counts.buckets), counts.latency / SECOND)
        together = sum(size * number for size, (number, _) in counts.sizes.items())
        sizes.add_metric([name], _rising(_SIZES, counts.batched), together)
    yield from (requests, late, batches, loads, labelled, correct, by, latency, sizes)
    yield GaugeMetricFamily("ganger_serve_waiting", "Requests under way.", plane.waiting)
    yield GaugeMetricFamily("ganger_serve_connections", "Connections.", figures.connections)
    yield CounterMetricFamily(
        "ganger_serve_recipe_failures", "Times that the recipe failed.", plane.failures
    )
    busy = CounterMetricFamily("ganger_serve_lane_busy_seconds", "Of lanes.", labels=["lane"])
    for lane, time in sorted(figures.busy.items()):
        busy.add_metric([str(lane)], time / SECOND)
    yield busy
    answers = CounterMetricFamily("ganger_serve_http_answers", "Answers.", labels=["status"])
    for status, number in sorted(figures.answers.items()):
        answers.add_metric([str(status)], number)
    yield answers


def _rising(ends: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """The buckets of a histogram, each with all that are smaller."""
    below, buckets = 0, []
    for end, count in zip((*ends, float("inf")), counts, strict=True):
        below += count
        buckets.append(("+Inf" if end == float("inf") else f"{end:g}", float(below)))
    return buckets
