"""The queue's bookkeeping: sweeping it changes no plan, and it does not grow with finished jobs."""

from __future__ import annotations

import pytest

from ganger.mechanisms.ordering import queue_index as index
from ganger.mechanisms.ordering.queue_index import QueueIndex, StandingIndex
from worlds import cluster, job, play

RECIPES = ["srtf", "las(quantum=3s)", "tiresias(thresholds=6s;15s)", "priority", "backfill"]
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
