"""What is written down in logs and journals, and what others build on: it may not change by
accident."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import pytest

from bench import Bench, on
from ganger.core import events
from ganger.core.errors import BadInput
from ganger.core.events import (
    Accepted,
    AnyEvent,
    Batch,
    Command,
    Evaluated,
    Event,
    Served,
    Started,
    Submitted,
    Woke,
)
from ganger.core.plan import AnyAction, Plan, Provision, Spawn, Start, Stop, Suspend, Tune
from ganger.core.spec import JobSpec, Kind, Needs, Role, Shape
from ganger.core.state.bounds import refuse_unfit
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.mechanisms.common.planes import OTHERS, SERVICES, Planes
from ganger.recipes import registry
from worlds import cluster, job


def test_events_of_one_instant_come_in_this_order() -> None:
    """First what frees devices, then what takes them away, then what asks for them."""
    ranks: dict[int, set[str]] = {}
    for kind in get_args(AnyEvent):
        ranks.setdefault(kind.rank, set()).add(kind.__name__)
    assert ranks == {
        0: {"Finished"},
        1: {"Failed"},
        2: {"Released"},
        3: {"Refused", "Unable"},
        4: {"NodeDown"},
        5: {"NodeUp", "Withheld"},
        6: {"Started"},
        7: {"Progressed", "Measured", "Sampled", "Evaluated", "Served"},
        8: {"Submitted", "Accepted"},
        9: {"Command", "NodeCommand"},
        10: {"Woke"},
    }
    assert Event.rank == 9


def test_kinds_of_change_are_bits_that_stand_in_logs() -> None:
    names = (
        "CAPACITY_FREED",
        "CAPACITY_LOST",
        "STARTED",
        "PROGRESSED",
        "QUEUED",
        "COMMANDED",
        "WOKE",
        "EVALUATED",
        "SERVED",
        "ROUTED",
    )
    assert [getattr(events, name) for name in names] == [1 << at for at in range(10)]
    assert events.ANYTHING == 1023


def test_phases_and_kinds_of_jobs_are_numbers_that_stand_in_snapshots() -> None:
    assert [phase.name for phase in sorted(Phase)] == [
        "DECLARED",
        "BLOCKED",
        "PENDING",
        "STARTING",
        "RUNNING",
        "SUSPENDED",
        "STOPPING",
        "FINISHED",
        "FAILED",
        "CANCELLED",
    ]
    assert sorted(map(int, Phase)) == list(range(10))
    assert {kind.name: int(kind) for kind in Kind} == {"TRAIN": 0, "SERVE": 1, "TUNE": 2, "TASK": 3}


def test_workers_by_role_at_a_size() -> None:
    two = Shape((Role("worker", 4, 2, 6, Needs(gpus=2)), Role("server", 3, needs=Needs(gpus=1))))
    assert (two.gpus, two.least, two.most) == (11, 7, 15)
    assert two.sizes(11) == (4, 3)
    assert two.sizes(7) == (2, 3)
    assert two.sizes(15) == (6, 3)


def test_what_one_report_may_hold() -> None:
    bench = Bench(job("a"), on=cluster(1, 4))

    def figures(number: int) -> Served:
        return Served(0, (0,), {f"f{at}": (1.0,) for at in range(number)})

    def metrics(number: int) -> Evaluated:
        return Evaluated(0, 1, 1.0, 0.5, {f"m{at}": 1.0 for at in range(number)})

    refuse_unfit([figures(64), metrics(16)], bench.kernel)
    with pytest.raises(BadInput, match=r"number of figures 65 is not in 0 \.\. 64"):
        refuse_unfit([figures(65)], bench.kernel)
    with pytest.raises(BadInput, match=r"number of metrics 17 is not in 0 \.\. 16"):
        refuse_unfit([metrics(17)], bench.kernel)


def test_a_job_that_no_column_holds_is_not_accepted() -> None:
    bench = Bench(job("a"), on=cluster(1, 4))
    refuse_unfit([Accepted(1, JobSpec(name="b", priority=(1 << 31) - 1))], bench.kernel)
    with pytest.raises(BadInput, match="priority"):
        refuse_unfit([Accepted(1, JobSpec(name="b", priority=1 << 31))], bench.kernel)


def test_a_search_that_people_stop_takes_its_trials_along_in_the_same_step() -> None:
    parent = job("search", lasts=None, kind=Kind.TUNE, shape=Shape((Role(size=2),)))
    bench = Bench(parent, job("t", parent="search"), on=cluster(1, 4))
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, on(0b11))])
    bench.feed(0, Started(0, 1), then=[Start(1, 1, on(0b01))])
    bench.feed(0, Started(1, 1))
    plan = bench.feed(1, Command(0, "requeue"))
    assert plan is not None
    assert plan.actions == [Stop(1, 1, "parent"), Stop(0, 1, "requeued")]
    assert (bench.phase(0), bench.phase(1)) == (Phase.STOPPING, Phase.STOPPING)


class Uses:
    """A policy that says which actions it uses."""

    def __init__(self, *orders: type) -> None:
        self.name, self.orders = "uses", orders

    def decide(self, view: object, memory: None) -> tuple[Plan, None]:
        """Nothing."""
        return Plan(), memory


def test_two_policies_use_what_either_uses() -> None:
    assert Planes(Uses(Spawn, Tune), Uses(Tune, Suspend)).orders == (Spawn, Tune, Suspend)
    assert Planes(registry.make("fifo"), Uses(Provision)).orders == (Provision,)
    assert Planes(registry.make("fifo"), registry.make("srtf")).orders == ()


def test_a_part_of_a_view_has_those_of_its_kinds_that_are_set_aside() -> None:
    works = [job("a"), job("web", lasts=None, kind=Kind.SERVE), job("b")]
    bench = Bench(*works, on=cluster(1, 4))
    bench.feed(0, *map(Submitted, range(3)), then=[Start(row, 1, on(1 << row)) for row in range(3)])
    bench.feed(0, *(Started(row, 1) for row in range(3)))
    bench.feed(1, Woke(), then=[Stop(row, 1, "paused") for row in range(3)])
    bench.feed(2, *(events.Released(row, 1, 1.0) for row in range(3)))
    view = bench.kernel.view
    training, services = view.part(OTHERS), view.part(SERVICES)
    assert view.paused.tolist() == [0, 1, 2]
    assert (training.paused.tolist(), services.paused.tolist()) == ([0, 2], [1])
    assert training.paused is training.paused, "worked out once, until it changes"
    assert services.is_paused(1)
    bench.feed(3, Woke(), then=[Start(0, 2, on(1))])
    assert (training.paused.tolist(), services.paused.tolist()) == ([2], [1])
    assert not view.is_paused(0)


class Hears:
    """A policy that keeps what it hears has changed inside the grant of job 0."""

    name = "hears"

    def __init__(self) -> None:
        self.next = Plan()
        self.changed: list[list[int]] = []

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """The next plan."""
        inside = view.inside(0)
        self.changed.append(list(inside.changed) if inside is not None else [])
        return self.next, memory


def heard(
    bench: Bench, at: float, *happened: AnyEvent, then: Sequence[AnyAction] = ()
) -> list[int]:
    """What the policy hears has changed."""
    policy: Any = bench.policy
    policy.next = Plan(list(then))
    bench.kernel.validate = False  # which asks twice
    bench.kernel.step(Batch(round(at * SECOND), list(happened)))
    found: list[int] = policy.changed[-1]
    return found


def test_what_a_trial_reports_is_heard_each_time_and_once() -> None:
    parent = job("search", lasts=None, kind=Kind.TUNE, shape=Shape((Role(size=2),)))
    bench = Bench(parent, job("t", parent="search"), on=cluster(1, 4), policy=Hears())
    heard(bench, 0, Submitted(0), Submitted(1), then=[Start(0, 1, on(0b11))])
    heard(bench, 0, Started(0, 1), then=[Start(1, 1, on(0b01))])
    assert heard(bench, 0, Started(1, 1)) == [1]
    assert heard(bench, 1, Evaluated(1, 1, 1.0, 0.5), Evaluated(1, 1, 2.0, 0.4)) == [1]
    assert heard(bench, 2, Evaluated(1, 1, 3.0, 0.3)) == [1]
    assert heard(bench, 3, Woke(), then=[Stop(1, 1, "paused")]) == []
    assert heard(bench, 4, events.Released(1, 1, 1.0)) == [1]
    assert heard(bench, 5, Command(1, "hold")) == []
    assert heard(bench, 6, Command(1, "release")) == [1], "the policy may start it again"
    assert heard(bench, 7, Command(1, "priority", 5.0)) == [1]
