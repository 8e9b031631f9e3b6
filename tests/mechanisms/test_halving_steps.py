"""Successive halving step by step: events go in by hand, and the next plan is looked at."""

from __future__ import annotations

from typing import Any

from bench import Bench, on
from ganger.core.events import (
    CAPACITY_FREED,
    COMMANDED,
    EVALUATED,
    QUEUED,
    AnyEvent,
    Command,
    Evaluated,
    Failed,
    Finished,
    Released,
    Started,
    Submitted,
    Woke,
)
from ganger.core.plan import PAUSED, RETIRED, AskAt, Plan, Reason, Retire, Start, Stop
from ganger.core.spec import Kind, Role, Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER
from ganger.mechanisms.common.two_level import TwoLevel
from ganger.mechanisms.tuning.halving import _Rung
from ganger.recipes import registry
from worlds import cluster, job

UNTIL = CAPACITY_FREED | COMMANDED | EVALUATED | QUEUED


def search(trials: int, gpus: int, recipe: str) -> Bench:
    """A search with so many GPUs, which has just started its first trials."""
    parent = job("search", lasts=None, kind=Kind.TUNE, shape=Shape((Role(size=gpus),)))
    works = [parent, *(job(f"t{at}", parent="search") for at in range(trials))]
    policy = TwoLevel(registry.make("fifo"), registry.make(recipe))
    bench = Bench(*works, on=cluster(1, 8), policy=policy)
    bench.feed(0, *map(Submitted, range(trials + 1)))
    bench.feed(0, Started(0, 1))
    bench.feed(0, *(Started(row, 1) for row in range(1, min(gpus, trials) + 1)))
    return bench


def done(bench: Bench, at: float, *events: AnyEvent) -> list[Any]:
    """What is done about the events, without what is asked of trials."""
    plan = bench.feed(at, *events)
    actions = plan.actions if plan is not None else []
    return [action for action in actions if not isinstance(action, AskAt)]


def test_the_last_to_reach_the_rung_goes_on_and_the_worse_is_retired_in_line() -> None:
    bench = search(2, 2, "tune.sha(trials=1,eta=2,first=3)")
    assert done(bench, 1, Evaluated(1, 1, 2.0, 0.5)) == []
    assert done(bench, 2, Evaluated(1, 1, 3.0, 0.5)) == [Stop(1, 1, PAUSED)]
    assert done(bench, 3, Released(1, 1, 3.0)) == []
    assert done(bench, 4, Evaluated(2, 1, 3.0, 0.4)) == [Retire(1)]
    assert done(bench, 5, Evaluated(2, 1, 50.0, 0.4)) == [], "nobody to compare it with"
    assert done(bench, 6, Finished(2, 1)) == [Stop(0, 1, RETIRED)], "the search has ended"


def test_trials_that_still_save_are_judged_too() -> None:
    bench = search(4, 4, "tune.sha(trials=1,eta=4,first=3)")
    assert done(bench, 2, Evaluated(1, 1, 3.0, 0.5)) == [Stop(1, 1, PAUSED)]
    assert done(bench, 3, Evaluated(2, 1, 3.0, 0.6)) == [Stop(2, 1, PAUSED)]
    assert done(bench, 4, Evaluated(3, 1, 3.0, 0.7)) == [Stop(3, 1, PAUSED)]
    assert done(bench, 5, Released(3, 1, 3.0)) == []
    plan = done(bench, 6, Evaluated(4, 1, 3.0, 0.8))
    assert plan == [Stop(4, 1, RETIRED), Retire(2), Retire(3)], "1 goes on when it has let go"
    assert done(bench, 7, Released(2, 1, 3.0)) == []
    assert bench.phase(2) == bench.phase(3) == Phase.FINISHED
    assert done(bench, 8, Released(1, 1, 3.0)) == [Start(1, 2, on(0b0001))]


def test_values_that_are_no_numbers_and_trials_that_failed_are_the_worst() -> None:
    bench = search(4, 4, "tune.sha(trials=1,eta=2,first=3)")
    done(bench, 1, Failed(1, 1, 0.0, "Crashed", final=True))
    assert done(bench, 2, Evaluated(2, 1, 3.0, None)) == [Stop(2, 1, RETIRED)]
    done(bench, 3, Released(2, 1, 3.0))
    done(bench, 4, Evaluated(3, 1, 3.0, 1e30))
    done(bench, 5, Released(3, 1, 3.0))
    assert done(bench, 6, Evaluated(4, 1, 3.0, 1e29)) == [Start(3, 2, on(0b0001))]
    goal = bench.jobs.asks_at
    assert (goal[3], goal[4]) == (6.0, 6.0)


def test_a_final_report_is_the_end_of_every_rung() -> None:
    bench = search(2, 2, "tune.sha(trials=1,eta=2,first=30)")
    assert done(bench, 1, Evaluated(1, 1, 2.0, 0.5, final=True)) == [Stop(1, 1, PAUSED)]


def test_a_search_with_one_trial_that_goes_on_is_not_over_when_another_has_ended() -> None:
    """Of two that go on to the second rung one has ended by itself."""
    bench = search(4, 4, "tune.sha(trials=1,eta=2,first=3)")
    assert done(bench, 1, Finished(1, 1)) == []
    for row, value in ((2, 0.1), (3, 0.2), (4, 0.3)):
        done(bench, row, Evaluated(row, 1, 3.0, value))
        done(bench, row, Released(row, 1, 3.0))
    assert bench.jobs.phase[0] == 4, "the search runs"
    assert bench.kernel.memory.inner[0].trials == [2, 3]
    assert done(bench, 5, Started(2, 2), Started(3, 2)) == []
    assert done(bench, 6, Finished(2, 2)) == []
    assert done(bench, 7, Evaluated(3, 2, 6.0, 0.2)) == [
        Stop(3, 2, RETIRED),
        Stop(0, 1, RETIRED),
    ], "the best of the two has ended, and so has the search"
    assert bench.kernel.memory.inner[0].trials == [2]


def test_one_that_waits_is_started_once_however_often_it_was_heard_of() -> None:
    bench = search(2, 1, "tune.sha(trials=1,eta=2,first=3)")
    done(
        bench,
        1,
        Command(2, "hold"),
        Command(2, "release"),
        Command(2, "hold"),
        Command(2, "release"),
    )
    assert done(bench, 2, Evaluated(1, 1, 3.0, 0.5)) == [
        Stop(1, 1, PAUSED),
        Start(2, 1, on(1), (1,)),
    ]


def test_one_that_is_held_is_passed_over_and_one_that_was_refused_comes_again() -> None:
    bench = search(3, 1, "tune.sha(trials=1,eta=3,first=3)")
    done(bench, 1, Command(2, "hold"))
    assert done(bench, 2, Evaluated(1, 1, 3.0, 0.5)) == [
        Stop(1, 1, PAUSED),
        Start(3, 1, on(1), (1,)),
    ]
    done(bench, 3, Released(1, 1, 3.0), Started(3, 1))
    done(bench, 4, Failed(3, 1, 0.0, "NodeFail"))
    assert bench.jobs.attempt[3] == 2, "it starts again at once"


def test_why_trials_wait_and_what_could_change_it() -> None:
    bench = search(3, 2, "tune.sha(trials=1,eta=3,first=3)")
    plan = bench.feed(1, Evaluated(1, 1, 3.0, 0.5))
    assert isinstance(plan, Plan)
    assert plan.reasons == []
    assert plan.until & UNTIL == UNTIL
    full = search(3, 2, "tune.sha(trials=1,eta=3,first=3)").feed(1, Command(3, "release"))
    assert full is not None
    why = {"each_gpus": 1.0, "rung_trials": 3.0, "rung_end_epochs": 3.0}
    assert full.reasons == [
        Reason("Resources", "SuccessiveHalving", evidence=why, until=UNTIL, within=0)
    ]
    inner = registry.make("tune.sha(trials=1)")
    bare, _ = inner.decide(bench.kernel.view.inside(0), None)  # type: ignore[arg-type]
    assert bare.until == UNTIL
    assert bare.wake == NEVER
    bench.kernel._draft.rollback()
    bench.kernel._draft.clear()


def test_a_decision_looks_at_what_changed() -> None:
    """Else each report of a search with thousands of trials would look at all of them."""
    bench = search(6, 6, "tune.sha(trials=1,eta=3,first=3)")
    done(bench, 1, Evaluated(1, 1, 3.0, 0.5))
    inside = bench.kernel.view.inside(0)
    assert inside is not None
    known = inside.cached(_Rung)
    trials = bench.kernel.memory.inner[0].trials
    assert (trials, known.members) == ([1, 2, 3, 4, 5, 6], {1, 2, 3, 4, 5, 6})
    inside.changed[:] = [2, 5, 2]
    assert known.to_look_at(inside, trials, all_there=True) == [2, 5]
    assert known.to_look_at(inside, [1, 2], all_there=False) == [1, 2]
    assert known.to_look_at(inside, [1, 2], all_there=True) == trials
    assert done(bench, 9, Woke()) == []
