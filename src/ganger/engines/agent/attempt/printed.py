"""Reports of a trial that only prints: lines such as `epoch 3: acc=0.93`, or JSON objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

_LINE_MAX: Final = 1 << 12
"""A longer line is no report."""
_NUMBER: Final = r"([-+]?(?:(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?+|nan|inf))(?!\w|[.,]\d)"
"""No part of it is tried twice on the same digits: a line of digits takes no long time."""
_ENDS: Final = re.compile(rb"[\r\n]")
"""A bar of progress that is drawn again is another line."""
_STEPS: Final = ("step", "epoch")
_Parsed = tuple[float | None, dict[str, float]]
"""The step, and the metrics."""


class Printed:
    """Finds what is printed of the `metric`, with `=` or `:` before its number; the last of a line
    counts. The step is what the same line says of `step` or `epoch`, else the number of the report.
    What it says of `others` is reported with it.
    """

    def __init__(self, metric: str, others: Sequence[str] = ()) -> None:
        self._metric, self._name = metric, metric.lower().encode()
        self._value = _named(re.escape(metric))
        self._others = {name: _named(re.escape(name)) for name in others}
        self._step = _named("|".join(_STEPS), between=r"\s*+(?:[=:]\s*+)?")
        self._rest = b""
        self._count = 0
        self._cut = False
        """Whether the line that is read is too long already."""

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """The reports in what was printed, as the SDK would send them."""
        *lines, rest = _ENDS.split(self._rest + chunk)
        for line in lines:
            report = None if self._cut else self._report(line)
            self._cut = False
            if report is not None:
                yield report
        self._cut |= len(rest) > _LINE_MAX
        self._rest = b"" if self._cut else rest

    def _report(self, line: bytes) -> dict[str, Any] | None:
        if self._name not in line.lower() or len(line) > _LINE_MAX:
            return None
        text = line.decode(errors="replace").strip()
        parsed = self._from_json(text) if text.startswith("{") else None
        parsed = parsed or self._from_words(text)
        if parsed is None:
            return None
        self._count += 1
        step, metrics = parsed
        return {"step": self._count if step is None else step, "metrics": metrics}

    def _from_words(self, text: str) -> _Parsed | None:
        values = self._value.findall(text)
        if not values:
            return None
        step = self._step.search(text)
        metrics = {self._metric: float(values[-1])}
        for name, pattern in self._others.items():
            if found := pattern.findall(text):
                metrics[name] = float(found[-1])
        return float(step[1]) if step else None, metrics

    def _from_json(self, text: str) -> _Parsed | None:
        try:
            fields = json.loads(text)
            metrics = {self._metric: float(fields[self._metric])}
            metrics |= {name: float(fields[name]) for name in self._others if name in fields}
            step = next((float(fields[name]) for name in _STEPS if name in fields), None)
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
            return None
        return step, metrics


def _named(names: str, between: str = r"\s*+[=:]\s*+") -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-])(?:{names})[\"']?{between}{_NUMBER}", re.IGNORECASE)
