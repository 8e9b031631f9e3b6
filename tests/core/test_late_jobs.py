"""Children that a policy asks for, sets aside and retires, and what they report meanwhile."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from bench import Bench, on
from ganger.core.errors import BadInput, InvariantError
from ganger.core.events import (
    ANYTHING,
    CAPACITY_FREED,
    COMMANDED,
    EVALUATED,
    METRICS_MAX,
    QUEUED,
    ROUTED,
    SERVED,
    Accepted,
    AnyEvent,
    Batch,
    Command,
    Evaluated,
    Failed,
    Finished,
    Released,
    Served,
    Started,
    Submitted,
    Unable,
    Woke,
    kinds_of_change,
)
from ganger.core.plan import (
    PAUSED,
    RETIRED,
    SPAWNED_MAX,
    AnyAction,
    AskAt,
    Plan,
    Provision,
    Resize,
    Retire,
    Route,
    Spawn,
    Start,
    Stop,
    Suspend,
    Tune,
)
from ganger.core.spec import JobSpec, Kind, Role, Shape
from ganger.core.state.bounds import FIGURES_MAX, refuse_unfit
from ganger.core.state.facts import REPORTS_MAX, WINDOWS_MAX, Curve, Facts
from ganger.core.state.jobs import Phase
from ganger.core.state.snapshot import Snapshot, capture, forget, restore
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.mechanisms.common.two_level import TwoLevel
from worlds import cluster, job, play

SEARCH = job("search", lasts=None, kind=Kind.TUNE, shape=Shape((Role(size=4, least=1, most=8),)))
TRIAL = JobSpec(name="more", parent="search")


def search(trials: int = 2) -> Bench:
    """A search with four GPUs: its first trial runs on GPU 0, the others wait."""
    works = [SEARCH, *(job(f"t{i}", parent="search") for i in range(trials))]
    bench = Bench(*works, on=cluster(2, 4))
    bench.feed(0, *map(Submitted, range(bench.jobs.n)), then=[Start(0, 1, on(0b1111))])
    bench.feed(0, Started(0, 1), then=[Start(1, 1, on(0b0001))])
    bench.feed(0, Started(1, 1))
    return bench


def asked(bench: Bench, at: float, *events: AnyEvent, until: int) -> bool:
    """Whether a policy that waits for `until` was asked after the events."""
    bench.feed(at, Woke(), then=())
    bench.policy.next = Plan(until=until)
    bench.kernel.step(Batch(round(at * SECOND), [Command(0, "release")]))
    before = bench.policy.asked
    bench.kernel.step(Batch(round(at * SECOND), list(events)))
    return bool(bench.policy.asked > before)


def again(bench: Bench) -> Bench:
    """The same bench with a kernel restored from a snapshot, which goes on to the same bytes."""
    kept = msgspec.msgpack.encode(capture(bench.kernel))
    twin = Bench.__new__(Bench)
    twin.trace, twin.policy = bench.trace, bench.policy
    twin.kernel = restore(
        msgspec.msgpack.decode(kept, type=Snapshot), bench.kernel.nodes, bench.policy, validate=True
    )
    twin.jobs = twin.kernel.jobs
    assert msgspec.msgpack.encode(capture(twin.kernel)) == kept
    return twin


# ---------------------------------------------------------------------- more children


def test_children_that_were_asked_for_are_counted_until_they_are_there() -> None:
    bench = search()
    view = bench.kernel.view
    bench.feed(1, Woke(), then=[Spawn(0, TRIAL, 2), Spawn(0, TRIAL)])
    assert view.spawning == {0: 3}
    bench = again(bench)
    view = bench.kernel.view
    assert view.spawning == {0: 3}
    late = [JobSpec(name=f"more-{row}", parent="search") for row in (3, 4, 5)]
    bench.feed(1, Accepted(3, late[0], spawned=True), Accepted(4, late[1]))
    assert view.spawning == {0: 2}, "one of the two came from somebody else"
    bench.feed(1, Accepted(5, late[2], spawned=True))
    assert view.spawning == {0: 1}
    inside = view.inside(0)
    assert inside is not None
    assert inside.pending.tolist() == [2, 3, 4, 5]
    assert inside.within == 0
    assert view.within == -1
    bench.feed(2, Accepted(6, msgspec.structs.replace(TRIAL, name="x"), spawned=True))
    assert view.spawning == {}


@pytest.mark.parametrize(
    ("action", "complaint"),
    [
        (Spawn(9, TRIAL), "no live job 9"),
        (Spawn(-1, TRIAL), "no live job -1"),
        (Spawn(0, JobSpec(name="x", parent="t0")), "names 't0' as parent"),
        (Spawn(1, JobSpec(name="x", parent="t0")), "has a parent itself"),
        (Spawn(0, TRIAL, 0), "0 children"),
        (Spawn(0, TRIAL, SPAWNED_MAX + 1), "10001 children"),
        (Spawn(0, TRIAL, 1, (0, 1.0)), "job 0 is copied, and it is not a child of job 0"),
        (Spawn(0, TRIAL, 1, (99, 1.0)), "job 99 is copied, and it is not a child"),
        (Spawn(0, TRIAL, 1, (-1, 1.0)), "job -1 is copied, and it is not a child"),
        (Spawn(0, TRIAL, 1, (1, -1.0)), "job 1 is copied after -1 epochs"),
        (Spawn(0, TRIAL, 1, (1, float("nan"))), "job 1 is copied after nan epochs"),
    ],
)
def test_what_cannot_be_a_child_is_not_asked_for(action: Spawn, complaint: str) -> None:
    with pytest.raises((InvariantError, BadInput), match=complaint):
        search().feed(1, Woke(), then=[action])


def test_no_policy_asks_for_children_without_end() -> None:
    bench = search()
    bench.feed(1, Woke(), then=[Spawn(0, TRIAL, SPAWNED_MAX)])
    with pytest.raises(InvariantError, match="10001 children of job 0 are asked for at once"):
        bench.feed(2, Woke(), then=[Spawn(0, TRIAL)])


def test_a_search_that_is_over_has_no_more_children_and_nobody_asks_about_them() -> None:
    bench = search()
    bench.feed(1, Evaluated(1, 1, 1.0, 0.5), then=[Spawn(0, TRIAL, 5), Route(0, {1: 1.0})])
    bench.feed(2, Served(0, (0,), {"queue": (1.0,)}))
    view = bench.kernel.view
    assert (list(view.trials), list(view.services), view.routes) == ([1], [0], {0: {1: 1.0}})
    bench.policy.next = Plan()
    bench.kernel.step(Batch(3 * SECOND, [Finished(0, 1)]))
    assert (view.spawning, view.trials, view.services, view.routes) == ({}, {}, {}, {})
    assert bench.kernel._fits == {}
    with pytest.raises(InvariantError, match="no live job 0"):
        bench.feed(4, Released(1, 1), Woke(), then=[Spawn(0, TRIAL)])


# ---------------------------------------------------------------------- set aside


def paused() -> Bench:
    """The first trial has been set aside with 7 s of work."""
    bench = search()
    bench.feed(7, Woke(), then=[Stop(1, 1, PAUSED)])
    assert bench.phase(1) == Phase.STOPPING
    bench.feed(8, Released(1, 1, 7.0 * SECOND))
    return bench


def inside(bench: Bench) -> View:
    """The grant of the search."""
    view = bench.kernel.view.inside(0)
    assert view is not None
    return view


def test_a_trial_that_is_set_aside_keeps_its_work_and_holds_and_awaits_nothing() -> None:
    bench = paused()
    for each in (bench, again(bench)):
        assert each.phase(1) == Phase.BLOCKED
        view = inside(each)
        assert (view.paused.tolist(), view.pending.tolist(), view.ledger.free) == ([1], [2], 4)
        assert each.kernel.paused == {1}
        assert (each.jobs.work[1], each.jobs.preemptions[1]) == (7.0 * SECOND, 0)
        each.feed(20, Woke(), then=[Start(1, 2, on(0b0010))])
        assert (each.phase(1), inside(each).paused.tolist()) == (Phase.STARTING, [])
        assert each.kernel.paused == set()
        assert each.jobs.pended[1] == 0, "what is set aside does not wait"


def test_a_restored_kernel_knows_what_is_about_to_be_set_aside_or_retired() -> None:
    bench = search(3)
    bench.feed(0, Woke(), then=[Start(2, 1, on(0b0010))])
    bench.feed(1, Started(2, 1), then=[Stop(1, 1, PAUSED), Stop(2, 1, RETIRED)])
    bench = again(bench)
    bench.feed(2, Released(1, 1, 0.0), Released(2, 1, 0.0))
    assert (bench.phase(1), bench.phase(2)) == (Phase.BLOCKED, Phase.FINISHED)


def test_the_next_policy_finds_what_the_one_before_set_aside_in_the_line() -> None:
    bench = paused()
    bench.feed(9, Command(1, "hold"))
    held = forget(capture(bench.kernel))
    bench.feed(9, Command(1, "release"))
    free = forget(capture(bench.kernel))
    for kept, phase in ((held, Phase.BLOCKED), (free, Phase.PENDING)):
        kernel = restore(kept, bench.kernel.nodes, bench.policy, validate=True)
        assert (Phase(kernel.jobs.phase[1]), kernel.paused) == (phase, set())
        kernel.step(Batch(10 * SECOND, [Woke()]))


def test_a_person_may_hold_release_and_cancel_what_is_set_aside() -> None:
    bench = paused()
    bench.feed(9, Command(1, "hold"))
    assert (inside(bench).paused.tolist(), bench.kernel.paused) == ([], {1})
    with pytest.raises(InvariantError, match="BLOCKED"):
        bench.feed(9, Woke(), then=[Start(1, 2, on(0b0001))])
    bench = paused()
    bench.feed(9, Command(1, "hold"))
    bench = again(bench)
    bench.feed(9, Command(1, "release"))
    assert (inside(bench).paused.tolist(), bench.phase(1)) == ([1], Phase.BLOCKED)
    bench.feed(10, Command(1, "cancel"))
    assert (bench.phase(1), inside(bench).paused.tolist()) == (Phase.CANCELLED, [])
    assert bench.kernel.paused == set()


def test_a_trial_that_ends_while_it_is_set_aside_is_over() -> None:
    bench = search()
    bench.feed(7, Woke(), then=[Stop(1, 1, PAUSED)])
    bench.feed(8, Finished(1, 1))
    assert (bench.phase(1), bench.kernel.paused) == (Phase.FINISHED, set())
    bench = search()
    bench.feed(7, Woke(), then=[Stop(1, 1, PAUSED)])
    bench.feed(8, Failed(1, 1, 0.0))
    assert (bench.phase(1), inside(bench).paused.tolist()) == (Phase.BLOCKED, [1])


def test_what_was_stopped_twice_is_set_aside_once() -> None:
    """After it was started again, a plain stop puts the trial back in line."""
    bench = paused()
    bench.feed(9, Woke(), then=[Start(1, 2, on(0b0001))])
    bench.feed(9, Started(1, 2), then=[Stop(1, 2)])
    bench.feed(10, Released(1, 2, 0.0))
    assert (bench.phase(1), inside(bench).pending.tolist()) == (Phase.PENDING, [1, 2])


# ---------------------------------------------------------------------- wanted no more


def test_a_trial_that_is_retired_has_finished_whether_it_ran_or_waited() -> None:
    bench = search(3)
    bench.feed(5, Woke(), then=[Stop(1, 1, RETIRED), Retire(2)])
    assert (bench.phase(1), bench.phase(2)) == (Phase.STOPPING, Phase.FINISHED)
    assert bench.jobs.pended[2] == 5 * SECOND
    bench.feed(6, Released(1, 1, 5.0 * SECOND))
    assert (bench.phase(1), bench.jobs.preemptions[1]) == (Phase.FINISHED, 0)
    assert inside(bench).pending.tolist() == [3]
    with pytest.raises(InvariantError, match="FINISHED"):
        bench.feed(7, Woke(), then=[Retire(2)])


def test_one_that_is_set_aside_can_be_retired_and_one_that_runs_must_be_stopped() -> None:
    bench = paused()
    bench.feed(9, Woke(), then=[Retire(1)])
    assert (bench.phase(1), inside(bench).paused.tolist()) == (Phase.FINISHED, [])
    with pytest.raises(InvariantError, match="RUNNING"):
        search().feed(9, Woke(), then=[Retire(1)])


def test_jobs_that_wait_for_a_retired_one_may_run_and_their_policy_is_asked() -> None:
    bench = Bench(job("a"), job("b", after=("a",)))
    bench.policy.next = Plan([Retire(0)], until=QUEUED)
    bench.kernel.step(Batch(0, [Submitted(0), Submitted(1)]))
    assert bench.phase(1) == Phase.PENDING
    bench.policy.next = Plan([Start(1, 1, on(0b0001))])
    bench.kernel.step(Batch(1, [Woke()]))
    assert bench.phase(1) == Phase.STARTING, "that was a change"


def drawn(bench: Bench, draw: Any) -> Plan:
    """What comes of a decision that `draw` makes in the draft."""

    def decide(view: View, memory: None) -> tuple[Plan, None]:
        draw(view.draft)
        return view.draft.plan(), None

    bench.kernel.policy.decide = decide  # type: ignore[method-assign]
    plan = bench.feed(bench.kernel.now / SECOND + 1, Woke())
    assert plan is not None
    return plan


def test_the_draft_retires_what_runs_by_stopping_it() -> None:
    assert drawn(search(), lambda draft: draft.retire(1)).actions == [Stop(1, 1, "retired")]
    assert drawn(search(), lambda draft: draft.retire(2)).actions == [Retire(2)]
    assert drawn(search(), lambda draft: draft.pause(1)).actions == [Stop(1, 1, "paused")]


# ---------------------------------------------------------------------- reports


def test_trials_are_kept_and_a_policy_is_asked_from_the_epoch_on_that_it_named() -> None:
    bench = search()
    view = bench.kernel.view
    bench.feed(1, Evaluated(1, 1, 1.0, 0.9), then=[AskAt(1, 3.0)])
    for epoch, due in ((2.0, False), (2.9, False), (3.0, True), (4.0, True)):
        assert asked(bench, 1, Evaluated(1, 1, epoch, 1 / epoch), until=EVALUATED) is due
    assert asked(bench, 1, Evaluated(1, 1, 2.0, None), until=EVALUATED), "it broke down"
    assert asked(bench, 1, Evaluated(1, 1, 2.5, 0.1, None, True), until=EVALUATED), "it is done"
    curve = view.trials[1]
    assert list(curve.epochs) == [1.0, 2.0, 2.9, 3.0, 4.0, 2.0, 2.5]
    assert math.isnan(curve.values[5])
    assert curve.final
    twin = again(bench)
    assert not asked(twin, 2, Evaluated(1, 1, 2.0, 0.5), until=EVALUATED)
    assert twin.kernel.view.trials[1].last == 2.0


def test_reports_of_old_attempts_are_not_kept_and_those_of_training_silence_nobody() -> None:
    bench = search()
    bench.feed(1, Evaluated(1, 9, 1.0, 0.9))
    assert not bench.kernel.view.trials
    train = Bench(job("a"))
    train.feed(0, Submitted(0), then=[Start(0, 1, on(0b0001))])
    train.feed(0, Started(0, 1))
    train.feed(1, Evaluated(0, 9, 0.5, 0.95), Evaluated(0, 1, 1.0, 0.9), then=[AskAt(0, 5.0)])
    assert list(train.kernel.view.trials[0].values) == [0.9]
    assert asked(train, 1, Evaluated(0, 1, 2.0, 0.8), until=EVALUATED), "only trials are silent"


def test_a_report_that_comes_while_the_trial_is_set_aside_is_not_lost() -> None:
    bench = search()
    bench.feed(7, Woke(), then=[Stop(1, 1, PAUSED)])
    bench.feed(8, Evaluated(1, 1, 4.0, 0.2))
    assert list(bench.kernel.view.trials[1].values) == [0.2]


def test_windows_of_services_are_kept_by_row() -> None:
    bench = Bench(job("web", kind=Kind.SERVE), job("api", kind=Kind.SERVE))
    bench.feed(0, Submitted(0), Submitted(1))
    window = Served(0, (0, 1), {"queue": (3.0, 5.0), "p99": (0.2, None)})
    assert not asked(bench, 1, window, until=COMMANDED)
    bench.feed(1, Command(0, "hold"))
    bench.policy.next = Plan(until=SERVED)
    bench.feed(1, Command(0, "release"))
    before = bench.policy.asked
    bench.feed(1, window)
    assert bench.policy.asked > before
    view = again(bench).kernel.view
    assert [len(view.services[row]) for row in (0, 1)] == [2, 2]
    last = view.services[0][-1]
    assert (last.since, last.until, last.figures) == (0, SECOND, {"queue": 3.0, "p99": 0.2})
    assert view.services[1][-1].figures == {"queue": 5.0}
    seen: list[list[int]] = []

    def decide(view: View, memory: None) -> tuple[Plan, None]:
        seen.append(list(view.changed))
        return Plan(), None

    bench.kernel.policy.decide = decide  # type: ignore[method-assign]
    bench.feed(2, window, window)
    assert seen[0] == [0, 1], "once each"


def test_only_the_last_reports_and_windows_are_kept() -> None:
    facts = Facts()
    for step in range(REPORTS_MAX + 1):
        facts.evaluated(Evaluated(3, 1, float(step), 0.5, {"auc": float(step)}))
    curve = facts.trials[3]
    assert len(curve.epochs) == len(curve.metrics["auc"]) == REPORTS_MAX - REPORTS_MAX // 4 + 1
    assert (curve.epochs[0], curve.last) == (REPORTS_MAX // 4, REPORTS_MAX)
    for at in range(WINDOWS_MAX + 3):
        facts.served(Served(at, (1,), {}), 0, at + 1)
    assert len(facts.services[1]) == WINDOWS_MAX
    assert facts.services[1][-1].since == WINDOWS_MAX + 2


def test_reports_with_names_of_their_own_fill_no_memory() -> None:
    """A column of each of 16 names in each of 4,096 reports would take 2 GB."""
    curve = Curve()
    for step in range(REPORTS_MAX):
        curve.add(Evaluated(0, 1, float(step), 0.5, {f"{step}-{at}": 1.0 for at in range(9)}))
    assert list(curve.metrics) == [*(f"0-{at}" for at in range(9)), *(f"1-{at}" for at in range(7))]
    assert {len(column) for column in curve.metrics.values()} == {REPORTS_MAX}


def test_a_curve_has_a_column_for_each_metric_and_says_what_was_known_when() -> None:
    curve = Curve()
    assert (curve.last, math.isnan(curve.reached(5.0))) == (0.0, True)
    curve.add(Evaluated(0, 1, 1.0, 0.5))
    curve.add(Evaluated(0, 1, 2.0, 0.4, {"auc": 0.7}))
    curve.add(Evaluated(0, 1, 4.0, 0.3))
    assert [curve.reached(epoch) for epoch in (1.0, 1.1, 4.0, 9.0)] == [0.5, 0.4, 0.3, 0.3]
    curve.add(Evaluated(0, 2, 2.0, 0.6))  # a node failed, and the work since epoch 1 was lost
    assert [curve.reached(epoch) for epoch in (2.0, 4.0)] == [0.6, 0.6]
    assert np.isnan(curve.metrics["auc"]).tolist() == [True, False, True, True]
    assert not curve.final


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        (Evaluated(9, 1, 1.0, 0.5), "no job 10"),
        (Evaluated(1, 1, math.inf, 0.5), "not a finite number"),
        (Evaluated(1, 1, 1.0, math.nan), "not a finite number"),
        (Evaluated(1, 1, 1.0, 0.5, {"auc": math.inf}), "not a finite number"),
        (Evaluated(1, 1, 1.0, 0.5, {str(i): 0.0 for i in range(METRICS_MAX + 1)}), "metrics"),
        (Served(-1, (0,), {}), "since"),
        (Served(0, (9,), {}), "no job 10"),
        (Served(0, (0,), {"queue": (1.0, 2.0)}), "queue has 2 entries"),
        (Served(0, (0,), {"queue": (math.nan,)}), "not a finite number"),
        (Served(0, (), {str(i): () for i in range(FIGURES_MAX + 1)}), "figures"),
    ],
)
def test_what_the_tables_cannot_hold_is_refused(event: AnyEvent, complaint: str) -> None:
    bench = search()
    with pytest.raises(BadInput, match=complaint):
        refuse_unfit([event], bench.kernel)


def test_what_the_tables_can_hold_is_taken() -> None:
    metrics = {str(i): 0.0 for i in range(METRICS_MAX)}
    figures: dict[str, tuple[float | None, ...]] = {str(i): (None,) for i in range(FIGURES_MAX)}
    refuse_unfit([Evaluated(1, 1, 1.0, None, metrics), Served(0, (0,), figures)], search().kernel)


# ---------------------------------------------------------------------- what policies set


def test_knobs_and_routes_stand_until_the_job_is_over() -> None:
    bench = search()
    bench.feed(1, Woke(), then=[Tune(1, 1, {"lr": 0.1, "amp": True}), Tune(1, 1, {"lr": 0.2})])
    bench.policy.next = Plan([Route(0, {1: 0.5, 2: 0.5})], until=ROUTED)
    bench.kernel.step(Batch(2 * SECOND, [Woke()]))
    before = bench.policy.asked
    bench.kernel.step(Batch(2 * SECOND, [Started(1, 9)]))
    assert bench.policy.asked > before, "the table is another one"
    bench = again(bench)
    assert bench.kernel.view.knobs == {1: {"lr": 0.2, "amp": True}}
    assert bench.kernel.view.routes == {0: {1: 0.5, 2: 0.5}}
    bench.feed(3, Finished(1, 1))
    assert bench.kernel.view.knobs == {}


def test_anything_of_a_record_of_before_is_anything() -> None:
    assert [kinds_of_change(each) for each in (127, 126, 0, ANYTHING)] == [ANYTHING, 126, 0, 1023]
    kept = capture(search().kernel)
    old = msgspec.structs.replace(
        kept,
        until=127,
        columns={name: data for name, data in kept.columns.items() if name != "asks_at"},
    )
    bench = search()
    kernel = restore(old, bench.kernel.nodes, bench.policy)
    before = bench.policy.asked
    kernel.step(Batch(SECOND, [Served(0, (0,), {})]))
    assert bench.policy.asked == before + 1


class Switching:
    """First come, first served; and it writes into its first plan, after drawing it, that a node is
    switched off."""

    name = "switching"

    def __init__(self, node: int) -> None:
        self._node = node

    def decide(self, view: View, memory: int | None) -> tuple[Plan, int]:
        """A plan, the first with one action that was not drawn."""
        for row in view.pending.tolist():
            place = view.ledger.find(view.draft.shape(row))
            if place is not None:
                view.draft.start(row, place)
        plan = view.draft.plan()
        if memory is None:
            plan.actions.append(Provision(self._node, "off"))
        return plan, 1


def test_what_a_recipe_adds_to_its_plan_is_done_also_beside_grants() -> None:
    works = [SEARCH, job("t0", 0, 5, parent="search")]
    policy = TwoLevel(Switching(1), Switching(2))
    steps = play(policy, works, cluster(3, 4)).diary.steps
    switched = [
        each.node
        for _, plan in steps
        if plan is not None
        for each in plan.actions
        if isinstance(each, Provision)
    ]
    assert sorted(switched) == [1, 2], "once for each of the two"


def test_a_job_that_is_told_to_go_can_be_retired_and_is_over_when_it_has_let_go() -> None:
    bench = search(3)
    bench.feed(1, Woke(), then=[Stop(1, 1, PAUSED)])
    bench.feed(2, Woke(), then=[Retire(1)])
    assert bench.phase(1) == Phase.STOPPING
    assert again(bench).phase(1) == Phase.STOPPING
    bench.feed(3, Released(1, 1, 3.0))
    assert bench.phase(1) == Phase.FINISHED
    assert bench.kernel.view.inside(0) is not None
    assert bench.kernel.paused == set()


def test_a_retired_job_is_over_as_one_that_finished_also_when_its_parent_ends_with_it() -> None:
    bench = search(1)
    bench.feed(1, Woke(), then=[Stop(1, 1, RETIRED)])
    bench.policy.next = Plan()
    bench.kernel.step(Batch(2 * SECOND, [Finished(0, 1), Released(1, 1, 1.0)]))
    assert (bench.phase(0), bench.phase(1)) == (Phase.FINISHED, Phase.FINISHED)


def test_the_policy_is_asked_when_a_retired_job_has_let_go() -> None:
    bench = search(2)
    bench.feed(1, Woke(), then=[Stop(1, 1, RETIRED)])
    before = bench.policy.asked
    bench.policy.next = Plan(until=CAPACITY_FREED)
    bench.kernel.step(Batch(2 * SECOND, [Command(0, "release")]))
    bench.kernel.step(Batch(3 * SECOND, [Released(1, 1, 1.0)]))
    assert bench.policy.asked > before + 1


def test_a_job_that_is_drawn_and_retired_in_one_plan_is_over() -> None:
    bench = search(2)
    draft = bench.kernel.view.draft
    draft.start(2, on(0b0010))
    draft.retire(2)
    plan = draft.plan()
    assert plan.actions == [Retire(2)]
    draft.rollback()
    draft.clear()


def test_windows_of_a_service_that_is_over_are_not_kept() -> None:
    bench = Bench(job("web", lasts=None, kind=Kind.SERVE), on=cluster(1, 4))
    bench.feed(0, Submitted(0), then=[Start(0, 1, ())])
    bench.feed(0, Started(0, 1))
    bench.feed(1, Served(0, (0,), {"queue": (1.0,)}))
    assert list(bench.kernel.view.services) == [0]
    bench.policy.next = Plan()
    bench.kernel.step(Batch(2 * SECOND, [Finished(0, 1), Served(0, (0,), {"queue": (1.0,)})]))
    assert list(bench.kernel.view.services) == []


# ---------------------------------------------------------------------- what cannot be done


def test_what_an_engine_cannot_do_is_taken_back_and_no_policy_is_asked_to_ask_again() -> None:
    """Of three children one is still to come; the knobs and the routes of one job are gone."""
    bench = search(2)
    view = bench.kernel.view
    knobs = [Tune(1, 1, {"lr": 0.1}), Tune(0, 1, {"lr": 0.2})]
    bench.feed(1, Woke(), then=[Spawn(0, TRIAL, 3), *knobs, Route(0, {1: 1.0}), Route(1, {2: 1.0})])
    bench.feed(1, Woke())
    before = bench.policy.asked
    bench.feed(2, Unable(0, "Spawn", 2), Unable(1, "Tune"), Unable(0, "Route"), Unable(1, "Stop"))
    assert bench.policy.asked == before
    assert (view.spawning, view.knobs, view.routes) == ({0: 1}, {0: {"lr": 0.2}}, {1: {2: 1.0}})
    bench.feed(3, Unable(0, "Spawn"))
    assert view.spawning == {}


def test_a_person_may_end_a_search_as_one_that_finished_wherever_it_is() -> None:
    """One that waits ends at once; one that runs, or was told to go, when it has let go. Who waits
    for it may run then; and its trials are cancelled."""
    after = job("after", after=("search",))
    for told in ([], [Stop(0, 1)]):
        bench = Bench(SEARCH, job("t0", parent="search"), after, on=cluster(2, 4))
        bench.feed(0, *map(Submitted, range(3)))
        assert bench.phase(2) == Phase.BLOCKED
        bench.feed(1, Woke(), then=[Start(0, 1, on(0b1111))])
        bench.feed(2, Started(0, 1), then=told)
        plan = bench.feed(3, Command(0, "finish"))
        assert plan is not None
        assert plan.actions == ([] if told else [Stop(0, 1, RETIRED)])
        assert bench.phase(0) == Phase.STOPPING
        bench.feed(4, Released(0, 1, 0.0))
        assert [bench.phase(row) for row in range(3)] == [
            Phase.FINISHED,
            Phase.CANCELLED,
            Phase.PENDING,
        ]
    waits = Bench(SEARCH, after, on=cluster(2, 4))
    waits.feed(0, Submitted(0), Submitted(1))
    waits.policy.next = Plan(until=QUEUED)
    waits.kernel.step(Batch(SECOND, [Command(0, "hold"), Command(0, "release")]))
    asked = waits.policy.asked
    waits.kernel.step(Batch(2 * SECOND, [Command(0, "finish")]))
    assert (waits.phase(0), waits.phase(1)) == (Phase.FINISHED, Phase.PENDING)
    assert waits.policy.asked > asked
    waits.kernel.step(Batch(3 * SECOND, [Command(0, "finish")]))
    assert waits.phase(0) == Phase.FINISHED


def test_what_people_order_is_done_in_a_step_that_asks_no_policy() -> None:
    """Its plan is the order, and otherwise what stood: when to ask again, and after what."""
    bench = search(1)
    bench.policy.next = Plan(wake=9 * SECOND, until=SERVED)
    bench.kernel.step(Batch(SECOND, [Command(1, "priority", 2.0)]))
    asked = bench.policy.asked
    plan = bench.kernel.step(Batch(2 * SECOND, [Command(1, "suspend")]))
    assert bench.policy.asked == asked
    assert plan == Plan([Suspend(1, 1)], [], 9 * SECOND, SERVED, bench.kernel.revision)


class Written:
    """Writes a plan down by itself, without drawing it: the next one of some."""

    name = "written"

    def __init__(self, *plans: list[AnyAction]) -> None:
        self._plans = plans

    def decide(self, view: View, memory: int | None) -> tuple[Plan, int]:
        """The plan with the number of those before."""
        at = memory or 0
        return Plan([*(self._plans[at] if at < len(self._plans) else ())]), at + 1


def test_two_levels_carry_out_plans_that_their_policies_have_not_drawn() -> None:
    """The outer policy starts the search and a job, then moves the job and stops the search; the
    inner one starts a trial and sets it an epoch."""
    outer = Written(
        [Start(0, 1, on(0b0011)), Start(2, 1, on(0b0001, node=1))],
        [],
        [Resize(2, 2, on(0b0110, node=1))],
        [Stop(0, 1)],
    )
    inner = Written([Start(1, 1, on(0b0010)), AskAt(1, 7.0)])
    works = [SEARCH, job("t0", parent="search"), job("other", shape=Shape((Role(most=2),)))]
    bench = Bench(*works, on=cluster(2, 4), policy=TwoLevel(outer, inner))
    first = bench.feed(0, *map(Submitted, range(3)))
    second = bench.feed(1, Started(0, 1), Started(2, 1))
    third = bench.feed(2, Started(1, 1))
    fourth = bench.feed(3, Released(2, 1, 0.0), Started(2, 2))
    assert [plan and plan.actions for plan in (first, second, third, fourth)] == [
        [Start(0, 1, on(0b0011)), Start(2, 1, on(0b0001, node=1))],
        [Start(1, 1, on(0b0010)), AskAt(1, 7.0)],
        [Resize(2, 2, on(0b0110, node=1))],
        [Stop(1, 1, "parent"), Stop(0, 1)],
    ]
    assert [bench.phase(row) for row in range(3)] == [Phase.STOPPING, Phase.STOPPING, Phase.RUNNING]
