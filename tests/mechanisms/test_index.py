"""The queue's bookkeeping: sweeping it changes no plan, and it does not grow with finished jobs."""

from __future__ import annotations

import pytest

from bench import Bench, running
from ganger.core.units import SECOND
from ganger.mechanisms.ordering import queue_index as index
from ganger.mechanisms.ordering.order import By, Quanta, attained_time, priority_largest
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.ordering.queue_index import Pending, QueueIndex, StandingIndex
from worlds import cluster, job, play

RECIPES = [
    "srtf",
    "las(quantum=3s)",
    "las(quantum=1s)",
    "tiresias(thresholds=6s;15s)",
    "priority",
    "backfill",
]
WORKS = [
    job(f"job {i}", i // 3, 1 + i * 7 % 11, size=1 + i % 3, priority=i % 4) for i in range(120)
]


@pytest.mark.parametrize("recipe", RECIPES)
def test_sweeping_at_every_push_changes_no_plan(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = play(recipe, WORKS, cluster(2, 4), validate=False).text()
    monkeypatch.setattr(index, "SLACK", -10_000)
    assert play(recipe, WORKS, cluster(2, 4), validate=False).text() == plain


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_heaps_stay_as_small_as_what_waits_and_runs(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "SLACK", 10)
    run = play(recipe, WORKS, cluster(2, 4), validate=False)
    queue = run.kernel.view.cached(StandingIndex).index
    assert isinstance(queue, QueueIndex)
    assert len(queue._due) <= 2 * 20 + 10
    assert len(queue.running._heap) <= 2 * 8 + 10
    assert len(queue.pending.heaps) <= 3
    assert len(queue._silent) <= 2 * 8 + 10
    for entries in (queue.pending._all, queue.pending._list):
        assert len(entries or ()) <= 2 * 20 + 10


def test_of_jobs_that_are_filed_again_and_again_only_the_last_entries_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three wait; the priority of one rises a hundred times, then all others go."""
    monkeypatch.setattr(index, "SLACK", 10)
    bench = Bench(*(job(name, priority=5) for name in "abc"))
    view, order = bench.kernel.view, By((priority_largest,))
    pending = Pending(order, QueuePolicy("q", order), ranked=True, listed=True)
    for row in range(3):
        pending.add(view, row)
    for priority in range(100):
        bench.jobs.priority[1] = priority
        assert pending.add(view, 1) == (-priority, 1)
        for entries in (pending._all, pending._list):
            assert entries is not None
            assert len(entries) <= 2 * 3 + 10
        first = [1, 0, 2] if priority > 5 else [0, 1, 2] if priority == 5 else [0, 2, 1]
        assert pending.in_order(9) == first
        assert pending.in_order(2) == first[:2]
        assert pending.first() == pending.entry[first[0]]
    pending.remove(0)
    pending.remove(1)
    assert (pending.in_order(9), pending.first()) == ([2], pending.entry[2])
    pending.remove(2)
    assert (pending.in_order(9), pending.first()) == ([], None)


def test_of_silent_jumps_the_first_of_each_that_still_counts_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Job 0 was filed anew since; of job 1 two jumps are known."""
    monkeypatch.setattr(index, "SLACK", -10_000)
    bench = running(job("a", size=2), job("b", size=2))
    order = Quanta(SECOND, attained_time)
    queue = QueueIndex(
        bench.kernel.view, order, QueuePolicy("q", order, preempt=True), preempt=True
    )
    monkeypatch.setattr(queue, "_is_current", lambda job, entry: entry == (0.0, -1))
    for at, row, entry in ((9, 1, (0.0, -1)), (5, 0, (0.0, 0)), (7, 1, (0.0, -1))):
        queue._silence(at, row, entry)
    assert queue._silent == [(7, 1, (0.0, -1))]
