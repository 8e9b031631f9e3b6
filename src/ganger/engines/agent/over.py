"""Which attempts are over on this machine, though nothing else of them is kept."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ganger.engines.agent.attempt.attempt_dir import write_durably
from ganger.engines.agent.protocol import Key


class Over:
    """The last attempt of each job that was forgotten: none up to it may start again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: dict[int, int] = {}
        lines = path.read_text().splitlines() if path.exists() else []
        for line in lines:
            with contextlib.suppress(ValueError):  # the last line may be cut
                job, attempt = map(int, line.split())
                self._last[job] = max(attempt, self._last.get(job, 0))
        if len(lines) > 2 * len(self._last) + 1000:
            text = "".join(f"{job} {attempt}\n" for job, attempt in self._last.items())
            write_durably(path, text.encode())

    def holds(self, key: Key) -> bool:
        """Whether that attempt is over."""
        return key.attempt <= self._last.get(key.job, 0)

    def add(self, key: Key) -> None:
        """It is over."""
        self._last[key.job] = max(key.attempt, self._last.get(key.job, 0))
        with contextlib.suppress(OSError), self._path.open("a") as file:
            file.write(f"{key.job} {key.attempt}\n")
