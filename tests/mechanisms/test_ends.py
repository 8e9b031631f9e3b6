"""When jobs that run must have ended, by their time limits."""

from __future__ import annotations

import numpy as np

from bench import Bench, on
from ganger.core.events import Started, Submitted
from ganger.core.plan import Start
from ganger.core.units import NEVER, SECOND
from ganger.mechanisms.common.waiting import _latest
from worlds import job


def test_a_limit_counts_from_the_start_and_a_job_that_waits_ends_never() -> None:
    """A limit of 10 s that began at 0 s ends at 10 s, whenever one asks."""
    bench = Bench(*(job(name, size=2, limit=10) for name in ("runs", "waits")), job("late", 4))
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, on(0b0011))])
    bench.feed(0, Started(0, 1))
    ids = np.array([0, 1])
    assert _latest(bench.kernel.view, ids) == [10 * SECOND, NEVER]
    bench.feed(4, Submitted(2))
    assert _latest(bench.kernel.view, ids) == [10 * SECOND, NEVER]
