"""How far a job says it is, and how long a step takes."""

from __future__ import annotations

from typing import Any, Final

_SMOOTHING: Final = 0.3
_SPAN_SECONDS: Final = 0.05
"""Steps are timed over at least so long."""
_METRICS_MAX: Final = 64


class Steps:
    """Takes the SDK's reports. `micros` is what a step takes, 0 while unknown."""

    def __init__(self) -> None:
        self.step, self.total, self.saved = -1, 0, -1
        self.micros = 0.0
        self.metrics: dict[str, float] = {}
        self.told = False
        self._from: tuple[int, float] | None = None

    def take(self, report: dict[str, Any]) -> None:
        """Take a report: any of `step, total, at` (seconds, the job's clock), `saved, metrics`.
        Raises ValueError or TypeError on nonsense."""
        if "saved" in report:
            self.saved = max(self.saved, int(report["saved"]))
        if "step" not in report:
            return
        step, at = int(report["step"]), float(report["at"])
        for name, value in list(report.get("metrics", {}).items())[:_METRICS_MAX]:
            self.metrics[str(name)] = float(value)
        self.step, self.total = step, int(report.get("total", 0))
        if self._from is None or step <= self._from[0]:
            self._from = step, at
            return
        did, took = step - self._from[0], at - self._from[1]
        if took >= _SPAN_SECONDS:
            now = took / did * 1e6
            self.micros = self.micros + _SMOOTHING * (now - self.micros) if self.micros else now
            self._from = step, at

    def pause(self) -> None:
        """The job stood still: what passed must not count as a step's time."""
        self._from = None
