"""What a stream of requests is like: load over time, burstiness, models, tokens; in one pass."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.units import NEVER, SECOND
from ganger.workloads.requests.columns import Chunk, Requests

_WINDOWS = 1 << 12
_TOP: Final = 20
_RESERVOIR = 1 << 16


class _Load:
    """Requests a window; when there are too many windows, each becomes twice as long."""

    def __init__(self) -> None:
        self.window, self.first = SECOND, -1
        self.counts = np.zeros(0, np.int64)

    def add(self, arrival: NDArray[np.int64]) -> None:
        """Count arrivals, which come in order; windows begin with the first."""
        self.first = int(arrival[0]) if self.first < 0 else self.first
        arrival = arrival - self.first
        while arrival[-1] // self.window >= _WINDOWS:
            self.window *= 2
            self.counts = np.add.reduceat(self.counts, np.arange(0, len(self.counts), 2))
        found = np.bincount(arrival // self.window)
        if len(found) > len(self.counts):
            self.counts = np.concatenate(
                (self.counts, np.zeros(len(found) - len(self.counts), np.int64))
            )
        self.counts[: len(found)] += found


class _Moments:
    """Mean and coefficient of variation of numbers that pass by."""

    def __init__(self) -> None:
        self.n, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, values: NDArray[Any]) -> None:
        """More numbers (Chan, Golub and LeVeque, COMPSTAT 1982, formula 2.1)."""
        if not len(values):
            return
        n, mean = len(values), float(values.mean())
        squares = float(((values - mean) ** 2).sum())
        total, apart = self.n + n, mean - self.mean
        self.squares += squares + apart * apart * self.n * n / total
        self.mean += apart * n / total
        self.n = total

    @property
    def cv(self) -> float | None:
        """Standard deviation over mean."""
        return (self.squares / self.n) ** 0.5 / self.mean if self.n and self.mean else None


class _Sizes:
    """Mean, largest and quantiles of a size; the quantiles are of an even sample where there are
    more than 65,536 requests."""

    def __init__(self) -> None:
        self.moments, self.most, self.step, self.seen = _Moments(), 0, 1, 0
        self.kept: NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, values: NDArray[Any]) -> None:
        """More sizes."""
        self.moments.add(values)
        self.most = max(self.most, int(values.max()))
        first = -self.seen % self.step
        self.kept = np.concatenate((self.kept, values[first :: self.step]))
        self.seen += len(values)
        while len(self.kept) > _RESERVOIR:
            self.kept, self.step = self.kept[::2], self.step * 2

    @property
    def figures(self) -> dict[str, float]:
        """What is known of it."""
        p50, p90, p99 = np.quantile(self.kept, (0.5, 0.9, 0.99)).tolist()
        return {"mean": self.moments.mean, "p50": p50, "p90": p90, "p99": p99, "max": self.most}


class _Seen:
    """All that is counted while chunks pass."""

    def __init__(self) -> None:
        self.n, self.first, self.last = 0, -1, -1
        self.load, self.gaps, self.slo = _Load(), _Moments(), _Sizes()
        self.due = 0
        self.models: NDArray[np.int64] = np.zeros(0, np.int64)
        self.tenants: NDArray[np.int64] = np.zeros(0, np.int64)
        self.sizes = {name: _Sizes() for name in ("items", "prompt_tokens", "output_tokens")}

    def add(self, chunk: Chunk) -> None:
        """One chunk more."""
        at = chunk.arrival
        self.gaps.add(np.diff(at, prepend=self.last) if self.n else np.diff(at))
        self.first, self.last = (self.first if self.n else int(at[0])), int(at[-1])
        self.n += len(chunk)
        self.load.add(at)
        self.models = _counted(self.models, chunk.model)
        if chunk.tenant is not None:
            self.tenants = _counted(self.tenants, chunk.tenant)
        if chunk.deadline is not None and (known := chunk.deadline < NEVER).any():
            self.due += int(known.sum())
            self.slo.add((chunk.deadline - at)[known])
        for name, sizes in self.sizes.items():
            column = getattr(chunk, name)
            if column is not None:
                sizes.add(column)


def describe(requests: Requests) -> dict[str, Any]:
    """Plain figures about requests, times in seconds. Reads them all, in constant memory. Raises
    BadInput."""
    seen = _Seen()
    for chunk in requests.chunks():
        seen.add(chunk)
    span = (seen.last - seen.first) / SECOND if seen.n else 0.0
    window = seen.load.window / SECOND
    rate = (seen.n - 1) / span if span else None
    return {
        "name": requests.name,
        "source": requests.source,
        "requests": seen.n,
        "first_seconds": seen.first / SECOND if seen.n else None,
        "span_seconds": span,
        "requests_per_second": rate,
        "gap_cv": seen.gaps.cv if span else None,
        "window_seconds": window,
        "requests_by_window": seen.load.counts.tolist(),
        "peak_requests_per_second": int(seen.load.counts.max(initial=0)) / window,
        "models": _ranked(seen.models, requests.models),
        "model_count": int((seen.models > 0).sum()),
        "tenant_count": int((seen.tenants[1:] > 0).sum()),
        "tenants": _ranked(seen.tenants[1:], list(requests.tenants)[1:]),
        "with_deadline": seen.due,
        "slo_seconds": {name: value / SECOND for name, value in seen.slo.figures.items()}
        if seen.due
        else None,
        **{name: sizes.figures if sizes.seen else None for name, sizes in seen.sizes.items()},
        "left_out": requests.remarks.left_out,
        "notes": requests.remarks.notes,
    }


def _counted(counts: NDArray[np.int64], codes: NDArray[np.int32]) -> NDArray[np.int64]:
    found = np.bincount(codes, minlength=len(counts))
    found[: len(counts)] += counts
    return found


def _ranked(counts: NDArray[np.int64], names: Any) -> list[dict[str, Any]]:
    """The most frequent names; of many, the first twenty."""
    total = int(counts.sum())
    order = np.argsort(-counts, kind="stable")[:_TOP].tolist()
    return [
        {"name": names[code], "requests": int(counts[code]), "fraction": counts[code] / total}
        for code in order
        if counts[code]
    ]
