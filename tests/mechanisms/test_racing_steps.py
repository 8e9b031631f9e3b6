"""Trials that are judged one by one, step by step: events go in by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from bench import Bench
from ganger.core.events import Accepted, AnyEvent, Command, Evaluated, Finished, Started, Submitted
from ganger.core.plan import PAUSED, RETIRED, AskAt, Spawn, Start, Stop
from ganger.core.spec import JobSpec, Kind, Role, Shape
from ganger.core.view import View
from ganger.mechanisms.common.two_level import TwoLevel
from ganger.mechanisms.tuning.asynchronous import Promote
from ganger.mechanisms.tuning.limits import Limited, Limits
from ganger.mechanisms.tuning.racing import Known, Race, RacingMemory, Rungs
from ganger.mechanisms.tuning.trials import Mode
from ganger.recipes import registry
from worlds import cluster, job


def search(recipe: str, gpus: int, listed: int = 0) -> Bench:
    """A search that holds so many GPUs, with trials that its trace lists."""
    parent = job("search", lasts=None, kind=Kind.TUNE, shape=Shape((Role(size=gpus),)))
    works = [parent, *(job(f"t{at}", parent="search") for at in range(listed))]
    policy = TwoLevel(registry.make("fifo"), registry.make(recipe))
    bench = Bench(*works, on=cluster(1, 8), policy=policy)
    bench.feed(0, *map(Submitted, range(listed + 1)))
    return bench


def done(bench: Bench, at: float, *events: AnyEvent) -> list[Any]:
    """What is done about the events, without what is asked of trials."""
    plan = bench.feed(at, *events)
    actions = plan.actions if plan is not None else []
    return [action for action in actions if not isinstance(action, AskAt)]


def spawned(actions: list[Any]) -> int:
    """How many trials are asked for."""
    return sum(action.n for action in actions if isinstance(action, Spawn))


def test_no_more_are_asked_for_while_some_are_on_their_way() -> None:
    bench = search("tune.random(trials=9)", 2)
    assert spawned(done(bench, 0, Started(0, 1))) == 2
    assert spawned(done(bench, 1, Command(0, "priority", 3.0))) == 0
    child = JobSpec(name="t", parent="search")
    assert spawned(done(bench, 2, Accepted(1, child, spawned=True))) == 0


def test_a_rung_does_not_end_while_one_of_its_trials_is_on_its_way_and_one_is_asked_for() -> None:
    """Both trials have come to the rung's end, and in place of each one is asked for."""
    bench = search("tune.bohb(epochs=9,eta=3,first=1)", 2)
    assert spawned(done(bench, 0, Started(0, 1))) == 2
    names = ("one", "two")
    come = [
        Accepted(at + 1, JobSpec(name=name, parent="search"), spawned=True)
        for at, name in enumerate(names)
    ]
    done(bench, 1, *come)
    done(bench, 1, Started(1, 1), Started(2, 1))
    for row in (1, 2):
        actions = done(bench, 1 + row, Evaluated(row, 1, 1.0, 0.5 + row))
        assert (actions[0], spawned(actions)) == (Stop(row, 1, PAUSED), 1)


def test_a_trial_that_starts_is_asked_before_it_has_trained_for_what_is_left_to_all() -> None:
    """Of ten epochs the first has trained eight: the two that run may train one each."""
    bench = limited(Limits(epochs=10.0))
    bench.feed(0, Started(1, 1), Started(2, 1))
    assert bench.jobs.asks_at[3] == 2.0
    bench.feed(1, Evaluated(1, 1, 8.0, 0.5))
    plan = bench.feed(2, Finished(1, 1))
    assert plan is not None
    assert [type(action) for action in plan.actions] == [Start, AskAt]
    assert plan.actions[1] == AskAt(3, 1)


def test_a_trial_that_is_on_its_way_has_its_part_of_what_is_left() -> None:
    """Of ten epochs each of two has five, though only one is there yet."""
    works = [job("search", lasts=None, kind=Kind.TUNE, shape=Shape((Role(size=2),)))]
    inner = Limited(cast("Any", registry.make("tune.random(trials=4)")), Limits(epochs=10.0))
    bench = Bench(*works, on=cluster(1, 8), policy=TwoLevel(registry.make("fifo"), inner))
    bench.feed(0, Submitted(0))
    assert spawned(done(bench, 0, Started(0, 1))) == 2
    bench.feed(1, Accepted(1, JobSpec(name="t", parent="search"), spawned=True))
    assert bench.jobs.asks_at[1] == 5.0


def test_a_trial_for_which_nobody_waits_goes_on_to_the_next_judgement() -> None:
    """It is judged every five epochs, and reports its seventh: the next is the tenth."""
    bench = search("hyperdrive(trials=1,every=5,epochs=50)", 1, listed=1)
    bench.feed(0, Started(0, 1))
    bench.feed(0, Started(1, 1))
    plan = bench.feed(7, Evaluated(1, 1, 7.0, 0.5))
    assert plan is not None
    assert plan.actions == [AskAt(1, 10.0)]


def test_trials_that_a_limit_ends_are_retired_those_that_were_about_to_end_are_not() -> None:
    bench = limited(Limits(epochs=10.0))
    bench.feed(0, Started(1, 1), Started(2, 1))
    bench.feed(1, Command(2, "cancel"))
    plan = bench.feed(2, Evaluated(1, 1, 10.0, 0.5))
    assert plan is not None
    assert plan.actions == [Stop(row, 1, RETIRED) for row in (1, 3, 0)]


def limited(limits: Limits) -> Bench:
    """A search on two GPUs of a trace that lists four trials, about to start the first two."""
    works = [job("search", lasts=None, kind=Kind.TUNE, shape=Shape((Role(size=2),)))]
    works += [job(f"t{at}", parent="search") for at in range(4)]
    inner = Limited(cast("Any", registry.make("tune.random(trials=4)")), limits)
    bench = Bench(*works, on=cluster(1, 8), policy=TwoLevel(registry.make("fifo"), inner))
    bench.feed(0, *map(Submitted, range(5)))
    bench.feed(0, Started(0, 1))
    return bench


def test_trials_that_are_there_count_among_those_that_are_wanted() -> None:
    bench = search("tune.random(trials=3)", 4, listed=2)
    assert spawned(done(bench, 0, Started(0, 1))) == 1


def test_a_trial_that_passes_a_rung_is_asked_again_at_the_next_one() -> None:
    bench = search("tune.asha(trials=1,epochs=9,first=1,eta=3)", 1, listed=1)
    bench.feed(0, Started(0, 1))
    bench.feed(0, Started(1, 1))
    plan = bench.feed(1, Evaluated(1, 1, 1.0, 0.5))
    assert plan is not None
    assert plan.actions == [AskAt(1, 3.0)]


def test_a_trial_that_says_that_it_is_done_ends() -> None:
    bench = search("tune.asha(trials=1,epochs=81)", 1, listed=1)
    done(bench, 0, Started(0, 1))
    done(bench, 0, Started(1, 1))
    actions = done(bench, 5, Evaluated(1, 1, 5.0, 0.5, final=True))
    assert Stop(1, 1, RETIRED) in actions


def test_what_stands_highest_goes_on_first() -> None:
    """Of nine at the first rung the best three may go on, and 7 has not; of three at the second
    the best may."""
    first = {at: at / 10 for at in range(5, 14)}
    memory = RacingMemory(
        rungs=(first, {5: 0.3, 6: 0.1, 8: 0.2}), gone=(frozenset({5, 6}), frozenset())
    )
    view = cast("View", SimpleNamespace(at=SimpleNamespace(phase=[2] * 20)))
    race = Race(view, memory, Mode.MIN, Known())
    judge = Promote(Rungs(1.0, 3, 27.0))
    assert judge.resumes(race) == (6, 9.0)
    assert judge.resumes(race) == (7, 3.0)
    assert judge.resumes(race) is None
    assert race.remembered().gone == (frozenset({5, 6, 7}), frozenset({6}))


def test_after_the_first_look_only_what_changed_is_looked_at() -> None:
    nobody = np.zeros(0, np.int64)
    view = SimpleNamespace(changed=[4, 2, 4], pending=np.array([3]), paused=nobody, active=nobody)
    known = Known()
    looks = [list(known.to_look_at(cast("View", view), [7, 1])) for _ in range(2)]
    assert looks == [[1, 3, 7], [2, 4]]
