"""What a trial reports of itself, kept in the attempt's folder until the owner's journal has it:
each report once, in order. A trial that reports faster than its reports are taken waits."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final

import msgspec

from ganger.core.events import METRICS_MAX
from ganger.engines.agent.attempt.steps import NAME_CHARACTERS_MAX
from ganger.engines.agent.protocol import Report

_A_SECOND: Final = 20.0
"""So many reports are taken a second, in the long run."""
_AT_ONCE: Final = 200.0
"""So many are taken at once, after a pause."""
_AGAIN_SECONDS: Final = 1.0
"""How often a full disk is tried again."""
_AT_A_TIME: Final = 500
"""So many are told in one message."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Report).decode


class Reports:
    """Appends to the file at `path`. `metric`: the name of the one that a trial is judged by; empty
    for the first."""

    def __init__(self, path: Path, metric: str) -> None:
        self._path, self._metric = path, metric
        self._left, self._counted_at = _AT_ONCE, time.monotonic()
        self._unwritten = b""
        self.rest_until = -inf
        """Nothing more is to be taken before that time (monotonic seconds)."""

    def take(self, told: dict[str, Any]) -> bool:
        """Take one: its `step`, its `metrics`, whether it is `final`. False if it is not written
        yet. Raises ValueError, TypeError, AttributeError or LookupError on nonsense."""
        metrics = {str(name): float(value) for name, value in told["metrics"].items()}
        if not 0 < len(metrics) <= METRICS_MAX + 1:
            raise ValueError("too many metrics, or none")
        if any(not 0 < len(name) <= NAME_CHARACTERS_MAX for name in metrics):
            raise ValueError("a name is too long")
        "".join(metrics).encode()
        value = metrics.pop(self._metric or next(iter(metrics)))
        epoch = float(told["step"])
        if not isfinite(epoch) or epoch < 0:
            raise ValueError("not a step")
        others = {name: each for name, each in metrics.items() if isfinite(each)}
        report = Report(epoch, value if isfinite(value) else None, others, bool(told.get("final")))
        self._unwritten += _encode(report) + b"\n"
        self._count()
        return self.write()

    def _count(self) -> None:
        now = time.monotonic()
        self._left = min(self._left + (now - self._counted_at) * _A_SECOND, _AT_ONCE) - 1.0
        self._counted_at = now
        if self._left < 0.0:
            self.rest_until = now - self._left / _A_SECOND

    def write(self) -> bool:
        """Write what is not written yet; False if it cannot be now, so that it is to be tried
        again when the rest is over."""
        if not self._unwritten:
            return False
        try:
            descriptor = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            try:
                written = os.write(descriptor, self._unwritten)
            finally:
                os.close(descriptor)
        except OSError:
            written = 0
        self._unwritten = self._unwritten[written:]
        if self._unwritten:
            self.rest_until = time.monotonic() + _AGAIN_SECONDS
        return written > 0


class Kept:
    """Reads what the supervisor keeps: each report again from the first for each new reader."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.again()

    def again(self) -> None:
        """From the first one on."""
        self._at, self._number = 0, 0

    def new(self) -> Iterator[tuple[int, tuple[Report, ...]]]:
        """Those that were not read since: the number of the first, from 1, and some in a row."""
        lines: list[bytes] = []
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(self._at)
            lines = file.read().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()  # it is being written
        for first in range(0, len(lines), _AT_A_TIME):
            some = lines[first : first + _AT_A_TIME]
            number = self._number + 1
            self._number += len(some)
            self._at += sum(map(len, some))
            yield number, tuple(_decode(line) for line in some)
