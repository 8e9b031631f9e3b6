"""Work in several processes, which are forked and so have what is loaded; a bound on CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_all_start_methods, get_context
from typing import Any, TypeVar

T = TypeVar("T")

_shared: list[Callable[[int], Any]] = []


def in_processes(
    do: Callable[[int], T],
    count: int,
    *,
    workers: int = 1,
    progress: Callable[[float], object] = lambda share: None,
) -> list[T]:
    """`do(0)` to `do(count - 1)`, in so many processes; in this one where there is nothing to gain
    by others, or no way to fork. `progress` hears which share is done. What it raises is raised."""
    if workers <= 1 or count <= 1 or "fork" not in get_all_start_methods():
        results = []
        for number in range(count):
            results.append(do(number))
            progress((number + 1) / count)
        return results
    _shared.append(do)  # forked workers have it, and need no copy
    try:
        done: dict[int, T] = {}
        with ProcessPoolExecutor(min(workers, count), get_context("fork")) as pool:
            futures = {pool.submit(_do, number): number for number in range(count)}
            for future in as_completed(futures):
                done[futures[future]] = future.result()
                progress(len(done) / count)
    finally:
        _shared.pop()
    return [done[number] for number in range(count)]


def _do(number: int) -> Any:
    return _shared[-1](number)


class Late(Exception):  # noqa: N818 - no error: the run is over
    """A run took too long."""


class CpuLimit:
    """A journal that ends a run (raises Late) after so many seconds of CPU time."""

    def __init__(self, seconds: float) -> None:
        self._end = time.process_time() + seconds

    def append(self, *step: object) -> None:
        """Look at the clock after a step."""
        if time.process_time() > self._end:
            raise Late
