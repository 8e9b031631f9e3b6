"""How far a job says it is, and how long a step takes."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from ganger.engines.agent.protocol import PORT

_SMOOTHING: Final = 0.3
_SPAN_SECONDS: Final = 0.05
"""Steps are timed over at least so long."""
_METRICS_MAX: Final = 64
NAME_CHARACTERS_MAX: Final = 128
_PORTS: Final = 1 << 16
_SERVED: Final = (
    "arrivals",
    "answered",
    "late",
    "dropped",
    "busy_seconds",
    "seconds",
    "ongoing",
    "queue",
    "p50",
    "p99",
    PORT,
)
"""What a replica tells of itself."""
_STEP_MAX: Final = 1 << 53
"""Beyond this steps are not exact, and no job takes so many."""


def _count(value: Any) -> int:
    """A number of steps. Raises ValueError, TypeError or OverflowError for what is none."""
    count = int(value)
    if not -1 <= count <= _STEP_MAX:
        raise ValueError("not a number of steps")
    return count


class Steps:
    """Takes the SDK's reports. `micros` is what a step takes, 0 while unknown."""

    def __init__(self) -> None:
        self.step, self.total, self.saved = -1, 0, -1
        self.micros = 0.0
        self.metrics: dict[str, float] = {}
        self.served: dict[str, float] = {}
        self.told = False
        self._from: tuple[int, float] | None = None

    def take(self, report: dict[str, Any]) -> None:
        """Take a report: any of `step, total, at` (seconds, the job's clock), `saved, metrics,
        served`. Raises ValueError, TypeError, AttributeError or OverflowError on nonsense. Of all
        metrics that were ever reported, the first 64 are kept."""
        if "saved" in report:
            self.saved = max(self.saved, _count(report["saved"]))
        for name, value in report.get("served", {}).items():
            if name not in _SERVED or not isfinite(number := float(value)) or number < 0:
                continue
            if name != PORT or (number < _PORTS and number.is_integer()):
                self.served[name] = number
        if "step" not in report:
            return
        step, at, total = _count(report["step"]), float(report["at"]), report.get("total", 0)
        if not isfinite(at):
            raise ValueError("not a time")
        for name, value in report.get("metrics", {}).items():
            self._measure(str(name), float(value))
        self.step, self.total = step, _count(total)
        if self._from is None or step <= self._from[0]:
            self._from = step, at
            return
        did, took = step - self._from[0], at - self._from[1]
        if took >= _SPAN_SECONDS:
            now = took / did * 1e6
            self.micros = self.micros + _SMOOTHING * (now - self.micros) if self.micros else now
            self._from = step, at

    def _measure(self, name: str, value: float) -> None:
        known = name in self.metrics or len(self.metrics) < _METRICS_MAX
        if known and len(name) <= NAME_CHARACTERS_MAX:
            self.metrics[name] = value

    def pause(self) -> None:
        """The job stood still: what passed must not count as a step's time."""
        self._from = None
