"""Replicas of services: when there are more and fewer, and that nobody else notices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import Bench
from ganger.core.errors import InvariantError
from ganger.core.events import Submitted
from ganger.core.plan import Plan, Resize, Start, Stop
from ganger.core.profiles import Load
from ganger.core.spec import JobSpec, Kind, Needs, Role, Shape
from ganger.core.state.facts import Window
from ganger.core.state.jobs import Phase
from ganger.core.units import MINUTE, SECOND
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.scaling.replicas import (
    Concurrency,
    Fixed,
    Scaling,
    Threshold,
    open_requests,
    replica_of,
)
from worlds import Diary, Work, cluster, job, play, trace_of

RULE = Threshold(up=0.8, down=0.3, cooldown=60)


def windows(*busy: float | None, each: int = 10) -> list[Window]:
    """Windows of 10 microseconds from 0 on."""
    return [
        Window(at * each, (at + 1) * each, {} if share is None else {"busy": share})
        for at, share in enumerate(busy)
    ]


@pytest.mark.parametrize(
    ("since", "now", "told", "wanted"),
    [
        (0, 100, windows(0.81), 4),
        (0, 100, windows(0.8), 3),
        (0, 100, windows(0.3), 3),
        (0, 100, windows(0.29), 2),
        (0, 100, windows(0.9, 0.5), 3),
        (0, 100, windows(0.5, 0.9), 4),
        (0, 100, windows(None), 3),
        (0, 100, [], 3),
        (0, 60, windows(0.9), 4),
        (0, 59, windows(0.9), 3),
        (10, 100, windows(0.9, 0.9), 4),
        (11, 100, windows(0.9, 0.9), 3),
    ],
)
def test_the_last_whole_window_says_whether_there_are_too_few(
    since: int, now: int, told: Sequence[Window], wanted: int
) -> None:
    assert RULE.wanted(3, since, now, told) == wanted


def open_(*counts: float, each: int = 10) -> list[Window]:
    """Windows of 10 microseconds from 0 on, with so many requests open."""
    return [
        Window(at * each, (at + 1) * each, {"ongoing": count}) for at, count in enumerate(counts)
    ]


AT_ONCE = Concurrency(target=2, look_back=10, up_delay=0, down_delay=0, up=1, down=1)


@pytest.mark.parametrize(
    ("rule", "have", "since", "windows", "wanted"),
    [
        (AT_ONCE, 3, 0, open_(6), 3),
        (AT_ONCE, 3, 0, open_(6.1), 4),
        (AT_ONCE, 3, 0, open_(20), 10),
        (AT_ONCE, 3, 0, open_(2.1), 2),
        (AT_ONCE, 3, 0, open_(0), 0),  # a service whose least is one keeps that
        (AT_ONCE, 3, 0, open_(0.1), 1),
        (replace(AT_ONCE, down=0.5), 1, 0, open_(0), 0),
        (AT_ONCE, 3, 0, [], 3),
        (AT_ONCE, 3, 10, open_(20), 3),  # before the last change
        (AT_ONCE, 3, 0, [*open_(20), Window(10, 20, {})], 10),  # the last one says nothing
        (AT_ONCE, 0, 0, open_(5), 3),
        (replace(AT_ONCE, look_back=20), 3, 0, open_(0, 20, 4), 6),  # the mean of the last two
        (replace(AT_ONCE, look_back=21), 3, 0, open_(0, 20, 4), 4),
        (replace(AT_ONCE, up=0.5), 3, 0, open_(20), 7),  # 3 + 3.5
        (replace(AT_ONCE, down=0.2), 3, 0, open_(4), 2),  # 2.8 is 3: one at least
        (replace(AT_ONCE, down=0.2), 10, 0, open_(4), 9),  # 8.4
        (replace(AT_ONCE, up_delay=20), 3, 0, open_(20, 20), 3),
        (replace(AT_ONCE, up_delay=20), 3, 0, open_(20, 20, 9), 5),
        (replace(AT_ONCE, up_delay=20), 3, 0, open_(20, 6, 20), 3),  # not without a break
        (replace(AT_ONCE, up_delay=20), 3, 0, open_(20, 0, 20), 3),
        (replace(AT_ONCE, up_delay=20), 3, 10, open_(20, 20, 20), 3),  # the first was before
        (replace(AT_ONCE, down_delay=20), 3, 0, open_(0, 0), 3),
        (replace(AT_ONCE, down_delay=20), 3, 0, open_(0, 0, 1), 1),
        (replace(AT_ONCE, down_delay=9000), 3, 0, open_(*[0] * 63), 3),
        (
            replace(AT_ONCE, down_delay=9000),
            3,
            0,
            open_(*[0] * 64),
            0,
        ),  # as far as windows are kept
    ],
)
def test_replicas_follow_the_requests_that_are_open(
    rule: Concurrency, have: int, since: int, windows: list[Window], wanted: int
) -> None:
    assert rule.wanted(have, since, 10_000, windows) == wanted


def test_a_fluid_service_has_open_what_waits_and_what_runs() -> None:
    assert open_requests(Window(0, 1, {"queue": 3, "busy": 0.5, "replicas": 4})) == 5
    assert open_requests(Window(0, 1, {"queue": 3})) == 3
    assert open_requests(Window(0, 1, {})) is None
    assert AT_ONCE.wanted(3, 0, 9, [Window(0, 1, {})]) == 3


def test_a_fixed_number_is_kept_and_the_most_is_what_the_service_allows() -> None:
    assert Fixed(4).wanted(1, 0, 0, ()) == 4
    for recipe, count in (("scale.static-peak", 3), ("scale.static-peak(replicas=1)", 1)):
        kernel, diary = served([service("web", 2, 1, 3)], {}, serving=recipe)
        assert counts(diary, kernel, "web")[-1][1] == count


def test_a_replica_is_one_worker_of_the_first_role_and_all_of_the_others() -> None:
    roles = (Role("front", 3, 1, 5, Needs(gpus=2)), Role("cache", 2, needs=Needs(0, cpus=1000)))
    service = JobSpec(
        name="web",
        kind=Kind.SERVE,
        shape=Shape(roles, ("T4",), "pool"),
        tenant="t",
        user="u",
        group="g",
        model="m",
        priority=3,
        weight=2.0,
        restore=7,
        checkpoint=5,
        submitted=9,
        limit=99,
        after=("x",),
    )
    shape = Shape((Role("front", 1, 0, 0, Needs(gpus=2)), roles[1]), ("T4",), "pool")
    assert replica_of(service) == JobSpec(
        name="web-replica",
        parent="web",
        kind=Kind.SERVE,
        shape=shape,
        tenant="t",
        user="u",
        group="g",
        model="m",
        priority=3,
        weight=2.0,
        restore=7,
        checkpoint=5,
    )


def service(name: str, size: int, least: int, most: int, **more: Any) -> Work:
    """A service of so many replicas of one GPU."""
    shape = Shape((Role(size=size, least=least, most=most),))
    return job(name, kind=Kind.SERVE, shape=shape, **{"lasts": None, **more})


def served(
    works: list[Work],
    loads: dict[str, Load],
    gpus: int = 8,
    until: float = 1000,
    serving: str = "scale.threshold",
) -> tuple[Any, Diary]:
    """A run with a recipe for services, which each minute may change; its kernel."""
    diary, kernels = Diary(), list[Any]()

    def journal(kernel: Any) -> Diary:
        kernels.append(kernel)
        return diary

    setup = Setup(serving=serving, loads=loads, validate=True, until=round(until * SECOND))
    run_one(trace_of(works), cluster(1, gpus), "fifo", setup, journal=journal)
    return kernels[0], diary


def counts(diary: Diary, kernel: Any, name: str) -> list[tuple[int, int]]:
    """How many replicas of a service were told to run, by second, whenever that changed."""
    jobs, running, found = kernel.jobs, set[int](), list[tuple[int, int]]()
    parent = jobs.find(name)
    for batch, plan in diary.steps:
        for action in plan.actions if plan else ():
            if isinstance(action, Start | Stop) and jobs.parent[action.job] == parent:
                (running.add if isinstance(action, Start) else running.discard)(action.job)
        if not found or found[-1][1] != len(running):
            found.append((batch.at // SECOND, len(running)))
    return found


def test_a_service_grows_and_shrinks_with_its_load_between_its_least_and_its_most() -> None:
    load = Load((0.0, 200.0, 300.0, 1000.0), (60.0, 250.0, 1.0, 0.0), 40.0)
    kernel, diary = served([service("web", 3, 2, 5)], {"web": load})
    assert counts(diary, kernel, "web") == [
        (0, 0),
        (0, 3),
        (210, 4),
        (270, 5),
        (350, 4),
        (410, 3),
        (470, 2),
    ], "what queued meanwhile keeps them busy until 342 s"
    jobs = kernel.jobs
    assert jobs.restarts[: jobs.n].tolist() == [0] * jobs.n
    assert jobs.preemptions[: jobs.n].tolist() == [0] * jobs.n
    assert not any(
        isinstance(action, Resize) for _, plan in diary.steps if plan for action in plan.actions
    )
    assert jobs.phase[5] == Phase.FINISHED, "the newest went first"
    assert (jobs.size[0], jobs.held[0]) == (0, 0), "the service holds nothing itself"


def test_idle_services_shrink_to_their_least_one_a_minute() -> None:
    kernel, diary = served([service("web", 4, 1, 5)], {"web": Load((0.0, 900.0), (1.0, 0.0), 40.0)})
    assert counts(diary, kernel, "web") == [(0, 0), (0, 4), (60, 3), (120, 2), (180, 1)]


def test_what_waits_goes_before_what_runs() -> None:
    """Two GPUs: one of three replicas waits, and is retired first."""
    kernel, diary = served(
        [service("web", 3, 1, 3)], {"web": Load((0.0, 900.0), (1.0, 0.0), 40.0)}, gpus=2
    )
    assert counts(diary, kernel, "web") == [(0, 0), (0, 2), (120, 1)]
    reasons = [reason for _, plan in diary.steps if plan for reason in plan.reasons]
    assert reasons[0].by == "Scaling"
    assert reasons[0].evidence == {"asked_gpus": 1.0}
    assert kernel.jobs.phase[1:4].tolist() == [Phase.RUNNING, Phase.FINISHED, Phase.FINISHED]


def test_replicas_follow_what_is_open_once_that_has_lasted() -> None:
    """Three replicas of 40 a second: at 60 a second, 1.5 run; at 250, ever more wait."""
    load = Load((0.0, 200.0, 300.0, 1000.0), (60.0, 250.0, 1.0, 0.0), 40.0)
    recipe = "scale.reactive(up_delay=20s,down_delay=60s)"
    kernel, diary = served([service("web", 3, 2, 5)], {"web": load}, serving=recipe)
    assert counts(diary, kernel, "web") == [(0, 0), (0, 3), (70, 2), (230, 5), (430, 2)]


def test_training_beside_it_is_neither_stopped_nor_stops_it() -> None:
    load = Load((0.0, 100.0, 900.0), (1.0, 500.0, 0.0), 40.0)
    works = [
        service("web", 1, 1, 5),
        job("a", at=1, lasts=300, size=5),
        job("b", at=2, lasts=9, size=2),
    ]
    kernel, diary = served(works, {"web": load})
    jobs = kernel.jobs
    assert jobs.finished[1:3].tolist() == [301 * SECOND, 11 * SECOND]
    assert counts(diary, kernel, "web") == [
        (0, 0),
        (0, 1),
        (110, 2),
        (170, 3),
        (301, 5),
    ], "two fit beside `a`; two more were asked for meanwhile"
    assert jobs.preemptions[: jobs.n].tolist() == [0] * jobs.n


def test_services_of_their_own_scale_by_themselves_and_end_with_all_replicas() -> None:
    busy, idle = Load((0.0, 900.0), (500.0, 0.0), 40.0), Load((0.0, 900.0), (1.0, 0.0), 40.0)
    works = [service("busy", 2, 1, 3), service("idle", 2, 1, 3, lasts=130)]
    kernel, diary = served(works, {"busy": busy, "idle": idle})
    assert counts(diary, kernel, "busy") == [(0, 0), (0, 2), (60, 3)]
    assert counts(diary, kernel, "idle") == [(0, 0), (0, 2), (60, 1), (130, 0)]
    jobs = kernel.jobs
    assert (jobs.phase[1], jobs.finished[1]) == (Phase.FINISHED, 130 * SECOND)
    assert kernel.facts.services.keys() == {0}


def test_a_job_that_is_no_service_holds_what_it_asks_for() -> None:
    class Nothing:
        name = "nothing"

        def decide(self, view: Any, memory: None) -> tuple[Plan, None]:
            """Start everybody on nothing."""
            for row in view.pending.tolist():
                view.draft.start(row, ())
            return view.draft.plan(), None

    with pytest.raises(InvariantError, match="only a service holds nothing itself"):
        play(Nothing(), [job("a")])
    held = play(Nothing(), [service("web", 1, 1, 1, lasts=5)])
    assert held.phase("web") == "finished"
    assert held.jobs.finished[0] == 5 * SECOND


@given(
    busy=st.lists(st.floats(0, 1), min_size=1, max_size=30),
    size=st.integers(1, 6),
    least=st.integers(1, 3),
    more=st.integers(0, 4),
)
def test_a_service_never_wants_fewer_than_its_least_nor_more_than_its_most(
    busy: list[float], size: int, least: int, more: int
) -> None:
    """Whatever it reports; and it changes by one at a time, after the cooldown."""
    most = max(least, size) + more
    size = max(size, least)
    policy = Scaling("scaling", Threshold(0.6, 0.4, MINUTE))
    from bench import Bench
    from ganger.core.events import Served, Submitted

    bench = Bench(service("web", size, least, most), on=cluster(1, 8), policy=policy)
    plan = bench.feed(0, Submitted(0))
    assert plan is not None
    assert [action.placement for action in plan.actions if isinstance(action, Start)] == [()]
    before, changed = size, 0.0
    for at, share in enumerate(busy):
        now = 20.0 * (at + 1)
        bench.feed(now, Served(round((now - 20) * SECOND), (0,), {"busy": (share,)}))
        wanted = bench.kernel.memory.wanted[0]
        assert least <= wanted <= most
        assert abs(wanted - before) <= 1
        if wanted != before:
            assert now - changed >= 60
            changed = now
        before = wanted


def test_a_service_behind_a_job_that_is_none_begins_and_the_job_is_left_alone() -> None:
    web = job("web", kind=Kind.SERVE, shape=Shape((Role(size=1, most=4),)))
    bench = Bench(job("train"), web, policy=Scaling("scale", Fixed(0)))
    plan = bench.feed(0, Submitted(0), Submitted(1))
    assert plan is not None
    assert plan.actions[0] == Start(1, 1, ())
    assert all(getattr(action, "job", 1) == 1 for action in plan.actions)
