"""What engines report of attempts that nobody told to go, and orders that come too late."""

from __future__ import annotations

from bench import running
from ganger.core.events import Command, Finished, Released
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND


def test_an_attempt_that_was_taken_away_has_run_until_then_and_waits_again() -> None:
    bench = running()
    bench.feed(7, Released(0, 1, 5.0 * SECOND))
    assert bench.phase(0) == Phase.PENDING
    assert bench.jobs.ran[0] == 7 * SECOND
    assert bench.jobs.served[0] == 14 * SECOND, "on two GPUs"
    assert bench.jobs.work[0] == 5 * SECOND
    assert bench.jobs.preemptions[0] == 1
    bench.feed(8, Released(0, 1, 6.0 * SECOND))
    assert bench.jobs.preemptions[0] == 1, "it was reported before"
    assert bench.jobs.ran[0] == 7 * SECOND


def test_orders_for_a_job_that_is_over_change_nothing() -> None:
    bench = running()
    bench.feed(3, Finished(0, 1))
    for verb in ("cancel", "hold", "release", "requeue", "suspend", "resume"):
        plan = bench.feed(4, Command(0, verb))
        assert plan is None or not plan.actions, verb
        assert bench.phase(0) == Phase.FINISHED
    assert not bench.kernel.on_hold
    assert not bench.kernel.blockers


def test_who_waits_on_hold_is_among_those_on_hold_until_released() -> None:
    bench = running()
    bench.feed(3, Command(1, "hold"))
    assert bench.kernel.on_hold == {1}
    assert bench.phase(1) == Phase.BLOCKED
    bench.feed(4, Command(1, "release"))
    assert not bench.kernel.on_hold
    assert bench.phase(1) == Phase.PENDING
