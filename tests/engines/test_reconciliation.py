"""An owner that has missed something asks again, over real processes: what truly runs is told, what
was never ordered is done, and under chaos every job ends."""

from __future__ import annotations

import pytest

from engines.conformance import Does, Play, on
from engines.rig import LocalBench
from engines.weather import RECIPES, weather
from ganger.core.events import Failed, Finished, Released, Started
from ganger.core.plan import Stop
from ganger.core.state.jobs import Phase
from ganger.engines.gang import Hold
from ganger.engines.reconciliation import Believed
from soaking import many
from worlds import cluster

pytestmark = pytest.mark.long


def believes(job: int, attempt: int, phase: Phase, node: int = 0, device: int = 0) -> Believed:
    """An owner that knows of one attempt."""
    return Believed([Hold(job, attempt, phase, (on(node, device),))])


def test_an_end_that_was_not_heard_is_told_again(play: Play, bench: LocalBench) -> None:
    job = play.running(Does.FINISHES)
    play.until(Finished, job)
    play.quiet(0.1)  # the agent was told to forget it
    play.events.clear()
    assert not bench.engine.reconcile(believes(job, 1, Phase.RUNNING))
    play.until(Finished, job)
    assert bench.engine.reconcile(Believed([])), "the owner knows now"
    play.quiet(0.1)
    assert len(play.find(Finished, job)) == 1


def test_a_start_that_was_not_heard_is_told_again(play: Play, bench: LocalBench) -> None:
    job = play.running(Does.SAVES)
    play.events.clear()
    assert not bench.engine.reconcile(believes(job, 1, Phase.STARTING))
    play.until(Started, job)
    assert bench.engine.reconcile(believes(job, 1, Phase.RUNNING))
    play.apply(Stop(job, 1))
    play.until(Released, job)


def test_orders_that_did_not_come_are_carried_out_once(play: Play, bench: LocalBench) -> None:
    job = play.job(Does.SAVES)
    bench.engine.reconcile(believes(job, 1, Phase.STARTING))
    bench.engine.reconcile(believes(job, 1, Phase.STARTING))
    play.until(Started, job)
    play.started_times(job, 1)
    bench.engine.reconcile(believes(job, 1, Phase.STOPPING))
    play.until(Released, job)
    stray = play.running(Does.RUNS, on(1, 1))
    bench.engine.reconcile(Believed([]))
    play.until(Released, stray)
    assert bench.alive(stray) == 0


def test_what_the_engine_knows_nothing_of_has_failed(play: Play, bench: LocalBench) -> None:
    job = play.job(Does.FINISHES)
    bench.engine.reconcile(believes(job, 3, Phase.RUNNING))
    assert play.until(Failed, job, 3).why.startswith("NodeFail")
    other = play.job(Does.FINISHES)
    bench.engine.reconcile(believes(other, 3, Phase.STOPPING))
    play.until(Released, other, 3)


# ---------------------------------------------------------------------- chaos over real processes


@pytest.mark.parametrize("seed", [1])
def test_a_bad_engine_of_real_processes_loses_no_job(alone: LocalBench, seed: int) -> None:
    done = weather(alone, cluster(2, 4), RECIPES[seed % len(RECIPES)], seed, 12).done
    assert {"lose", "repeat", "delay"} <= done.keys()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 100 + many(40)))
def test_a_bad_engine_of_real_processes_loses_no_job_for_long(alone: LocalBench, seed: int) -> None:
    weather(alone, cluster(2, 4), RECIPES[seed % len(RECIPES)], seed, 16)
