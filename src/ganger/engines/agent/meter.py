"""How busy each part's devices and cores are, looked at every few seconds."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from ganger.engines.agent.protocol import Key, Used

EVERY_SECONDS: Final = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")

Utilisation = Callable[[], list[float]]
"""The part of the last moment in which each GPU of the machine computed, 0 to 1."""


class Running(NamedTuple):
    """A part that runs: its processes, and the numbers of its GPUs on this machine."""

    key: Key
    pids: Iterable[int]
    gpus: Sequence[int]


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of its children that have ended; 0 if it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS
    return 0.0


def by_nvml() -> Utilisation | None:
    """Asks NVML, None where there is none. A device that does not tell counts as busy."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # no library, no driver, no right to ask: all the same here
        return None

    def look() -> list[float]:
        found = []
        for handle in handles:
            try:
                found.append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
            except pynvml.NVMLError:
                found.append(1.0)
        return found

    return look if handles else None


class Meter:
    """Compares what each part has used with what it had at the last look. `utilisation` is None
    for simulated devices: then only cores are counted. `core_sets`: the cores that stand for each
    device; a part has used as much of its devices as of these."""

    def __init__(
        self,
        utilisation: Utilisation | None,
        every_seconds: float = EVERY_SECONDS,
        core_sets: Sequence[frozenset[int]] = (),
    ) -> None:
        self._utilisation, self._every = utilisation, every_seconds
        self._core_sets = core_sets
        self._before: dict[Key, tuple[float, dict[int, float]]] = {}
        self.due = inf
        """When to look next (monotonic seconds)."""

    def watch(self, anything: bool) -> None:
        """Something runs, or nothing does."""
        if not anything:
            self.due = inf
            self._before.clear()
        elif self.due == inf:
            self.due = time.monotonic()

    def look(self, parts: Iterable[Running]) -> list[Used]:
        """What each part used since the last look; a new part is in the answer from the next look
        on."""
        now = time.monotonic()
        self.due = now + self._every
        gpus = self._utilisation() if self._utilisation is not None else []
        found, after = [], {}
        for part in parts:
            spent = {pid: cpu_seconds(pid) for pid in part.pids}
            after[part.key] = now, spent
            if part.key not in self._before:
                continue
            at, before = self._before[part.key]
            cores = sum(
                max(seconds - before.get(pid, 0.0), 0.0) for pid, seconds in spent.items()
            ) / max(now - at, 1e-3)
            shares = [gpus[i] for i in part.gpus if i < len(gpus)]
            busiest = max(shares) if shares else -1.0
            if self._core_sets and part.gpus:
                cores_there = len(frozenset().union(*(self._core_sets[i] for i in part.gpus)))
                busiest = min(round(cores / cores_there, 4), 1.0)
            found.append(Used(part.key, busiest, round(cores, 4)))
        self._before = after
        return found
