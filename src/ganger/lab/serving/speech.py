"""Figures of token models, and of the classes of requests: times to the first token and for each
further one, by tenant and by SLO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.serving.world import Requests, World
from ganger.core.units import NEVER, SECOND
from ganger.lab.serving.distribution import Latencies
from ganger.lab.serving.windows.stored import ClassCounts, Times

I64 = NDArray[np.int64]
Flags = NDArray[np.bool_]
_MOST: Final = 64
"""Classes; where there would be more, SLOs are not told apart, or then tenants."""
_EXACT: Final = 1 << 17
"""Times of a class that are kept one by one."""


class Speech:
    """Times to first tokens (TTFT) and for each further one (TPOT) of answered requests."""

    def __init__(self, slo_ttft: int, slo_tpot: int) -> None:
        self.ttft, self.tpot = Latencies(), Latencies()
        self._slo_ttft, self._slo_tpot = slo_ttft, slo_tpot
        self.made = 0

    def add(
        self, requests: Requests, rows: slice, arrival: I64, ended: I64, answered: Flags
    ) -> tuple[I64, I64]:
        """Some rows are over: both times of each in microseconds, -1 where there is none."""
        count = len(arrival)
        made = np.array(requests.made[rows], np.int64)
        self.made += int(made.sum())
        ttft = np.full(count, -1, np.int64)
        tpot = np.full(count, -1, np.int64)
        if not made.any():
            return ttft, tpot
        first = np.array(requests.first[rows], np.int64)
        here = answered & (made > 0)
        ttft[here] = (first - arrival)[here]
        several = answered & (made > 1)
        tpot[several] = np.rint((ended - first)[several] / (made[several] - 1)).astype(np.int64)
        self.ttft.add(ttft[here])
        self.tpot.add(tpot[several])
        return ttft, tpot

    def in_time(self, ttft: I64, tpot: I64) -> Flags:
        """Which are within the SLOs on tokens; what has no tokens is."""
        found: Flags = (ttft <= self._slo_ttft) & (tpot <= self._slo_tpot)
        return found

    def add_like(self, other: Speech, part: float) -> None:
        """Add `part` times as many as another has, distributed alike."""
        self.made += round(other.made * part)
        for mine, theirs in ((self.ttft, other.ttft), (self.tpot, other.tpot)):
            if theirs.count:
                mine.add_like(theirs, round(theirs.count * part))

    def restore(self, ttft: Times, tpot: Times, made: int) -> None:
        """Become what was stored."""
        self.ttft.restore(ttft)
        self.tpot.restore(tpot)
        self.made = made

    def metrics(self, span: float) -> dict[str, float | int | None]:
        """All figures; None where there was no token model."""
        found: dict[str, float | int | None] = {}
        for name, each in (("ttft", self.ttft), ("tpot", self.tpot)):
            p50, p99 = each.quantiles((0.5, 0.99))
            for what, value in (("mean", each.mean), ("p50", p50), ("p99", p99)):
                found[f"{name}_{what}_seconds"] = value / SECOND
        spoke = self.ttft.count > 0
        found["output_tokens"] = self.made if spoke else None
        found["output_tokens_per_second"] = self.made / span if spoke and span else None
        return found


class _Class:
    """Requests of one model, tenant and SLO."""

    def __init__(self) -> None:
        self.requests = self.in_time = self.dropped = 0
        self.latencies, self.ttft, self.tpot = (Latencies(_EXACT) for _ in range(3))


class Classes:
    """Figures by what is asked for, tenant and SLO (the time to the deadline)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._found: dict[tuple[int, int, int], _Class] = {}
        self._coarse = 0
        """1: SLOs are not told apart (-1 stands for all); 2: nor are tenants."""

    def add(
        self,
        columns: list[I64],
        latency: I64,
        ended: tuple[Flags, Flags],
        times: tuple[I64, I64] | None,
    ) -> None:
        """Some rows are over: `columns` are what was asked for, tenants and SLOs; `ended` says
        which were answered, and which in time; `times` are to the first token and for each further
        one, where there are token models."""
        while True:
            for at in range(3 - self._coarse, 3):
                columns[at] = np.full(len(latency), -1)
            groups = _groups(columns)
            if len(self._found.keys() | groups.keys()) <= _MOST or self._coarse == 2:
                break
            self._coarsen()
        for key, rows in groups.items():
            answered, in_time = (each[rows] for each in ended)
            found = self._found.setdefault(key, _Class())
            found.requests += len(answered)
            found.in_time += int(in_time.sum())
            found.dropped += len(answered) - int(answered.sum())
            found.latencies.add(latency[rows][answered])
            if times is not None:
                for name, each in (("ttft", times[0][rows]), ("tpot", times[1][rows])):
                    getattr(found, name).add(each[each >= 0])

    def add_like(self, other: Classes, part: float) -> None:
        """Add `part` times as many of each class as another has, distributed alike."""
        while self._coarse < other._coarse:
            self._coarsen()
        while other._coarse < self._coarse:
            other._coarsen()
        for key, theirs in other._found.items():
            mine = self._found.setdefault(key, _Class())
            mine.requests += round(theirs.requests * part)
            mine.in_time += round(theirs.in_time * part)
            mine.dropped += round(theirs.dropped * part)
            for name in ("latencies", "ttft", "tpot"):
                times = getattr(theirs, name)
                if times.count:
                    getattr(mine, name).add_like(times, round(times.count * part))

    def stored(self) -> tuple[int, list[ClassCounts]]:
        """How coarse the classes are, and each as plain data."""
        tenants = self._world.tenants
        return self._coarse, [
            ClassCounts(
                model, tenants[tenant] if tenant >= 0 else None, slo,
                each.requests, each.in_time, each.dropped,
                each.latencies.stored(), each.ttft.stored(), each.tpot.stored(),
            )
            for (model, tenant, slo), each in sorted(self._found.items())
        ]  # fmt: skip

    def restore(self, coarse: int, rows: Sequence[ClassCounts], code: Callable[[str], int]) -> None:
        """Become what was stored; `code` is that of a tenant."""
        self._coarse = coarse
        for row in rows:
            key = row.model, -1 if row.tenant is None else code(row.tenant), row.slo
            each = self._found[key] = _Class()
            each.requests, each.in_time, each.dropped = row.requests, row.in_time, row.dropped
            for name in ("latencies", "ttft", "tpot"):
                getattr(each, name).restore(getattr(row, name))

    def _coarsen(self) -> None:
        """Put classes together that are no longer told apart."""
        self._coarse += 1
        merged: dict[tuple[int, int, int], _Class] = {}
        for (model, tenant, _), each in self._found.items():
            key = model, tenant if self._coarse == 1 else -1, -1
            into = merged.setdefault(key, _Class())
            into.requests += each.requests
            into.in_time += each.in_time
            into.dropped += each.dropped
            for name in ("latencies", "ttft", "tpot"):
                getattr(into, name).join(getattr(each, name))
        self._found = merged

    def rows(self) -> list[dict[str, Any]]:
        """One for each class. `tenant`: None where those of all are put together; `slo_seconds`:
        None without a deadline, and where those with any are put together; `attainment_bound`: None
        until somebody finds it."""
        found = []
        for (model, tenant, slo), each in sorted(self._found.items()):
            row: dict[str, Any] = {
                "model": self._world.asked(model),
                "tenant": self._world.tenants[tenant] if tenant >= 0 else None,
                "slo_seconds": slo / SECOND if 0 <= slo < NEVER else None,
                "requests": each.requests,
                "attainment": each.in_time / each.requests,
                "attainment_bound": None,
                "dropped": each.dropped,
            }
            for name in ("latency", "ttft", "tpot"):
                times = each.latencies if name == "latency" else getattr(each, name)
                for what, value in zip(("p50", "p99"), times.quantiles((0.5, 0.99)), strict=True):
                    row[f"{name}_{what}_seconds"] = value / SECOND if value == value else None
            found.append(row)
        return sorted(found, key=lambda row: (row["model"], row["tenant"] or ""))


def _groups(columns: list[I64]) -> dict[tuple[int, int, int], I64 | slice]:
    """The rows with each combination of values."""
    code, values = np.zeros(len(columns[0]), np.int64), list[I64]()
    for column in columns:
        if (column == column[0]).all():
            values.append(column[:1])
            continue
        every, at = np.unique(column, return_inverse=True)
        values.append(every)
        code = code * len(every) + at
    sizes = [len(each) for each in values]
    if max(sizes) == 1:
        return {(int(values[0][0]), int(values[1][0]), int(values[2][0])): slice(None)}
    order = np.argsort(code, kind="stable")
    ends = np.flatnonzero(np.diff(code[order])) + 1
    found: dict[tuple[int, int, int], I64 | slice] = {}
    for rows in np.split(order, ends):
        model, tenant, slo = np.unravel_index(int(code[rows[0]]), sizes)
        found[int(values[0][model]), int(values[1][tenant]), int(values[2][slo])] = rows
    return found
