"""What a waiting job waits for: who stands before it, what comes free, which ends are enough."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import ganger
from bench import Bench, Scripted, on
from ganger.core.events import QUEUED, WOKE, Started, Submitted, Woke
from ganger.core.plan import Placement, Plan, Reason, Slot, Start
from ganger.core.spec import ClusterSpec, Kind, Locality, Needs, NodeSpec, Role, Shape
from ganger.core.units import NEVER, SECOND
from ganger.mechanisms.common.two_level import TwoLevel
from ganger.mechanisms.common.waiting import (
    MECHANISMS,
    Release,
    changes_in,
    enough,
    ranks,
    reason_behind,
    reason_for,
    releases,
    reserved_at,
    rooms,
)
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import By, priority_largest
from ganger.mechanisms.ordering.periodic import Periodic
from ganger.mechanisms.ordering.queue import QueuePolicy
from worlds import Work, cluster, gpus, job


def test_inside_a_grant_the_inner_policy_ranks_and_over_the_cluster_the_outer() -> None:
    """The first parent is row 0: its children are ranked by the inner policy like all others'."""
    outer, inner = QueuePolicy("outer"), QueuePolicy("inner")
    both = Periodic(TwoLevel(Periodic(outer, 60), inner), 60)
    assert [ranks(both, within) for within in (-1, 0, 1, 7)] == [outer.ahead, *[inner.ahead] * 3]
    assert ranks(TwoLevel(object(), inner), -1) is None  # type: ignore[arg-type]


def test_an_interval_between_decisions_keeps_the_name_of_the_policy() -> None:
    assert Periodic(QueuePolicy("sjf"), 60).name == "sjf"


@pytest.mark.parametrize(
    ("reasons", "told"),
    [([], 1), (["a shape"], 2), (["all"], 1), (["a shape", "all"], 2), (["all", "a tenant"], 2)],
)
def test_where_no_reason_is_for_everybody_those_that_come_yet_wait_for_the_next_interval(
    reasons: list[str], told: int
) -> None:
    known = {"a shape": said(0), "a tenant": said(tenant=0), "all": said()}
    policy = Scripted()
    bench = Bench(job("a"), policy=Periodic(policy, 60 * SECOND))
    bench.kernel.validate = False
    policy.next = Plan([], [known[each] for each in reasons])
    plan = bench.feed(0, Submitted(0))
    assert plan is not None
    assert len(plan.reasons) == told
    assert (plan.reasons[-1].by == "Periodic") == ("all" not in reasons)


def said(shape: int = -1, tenant: int = -1, within: int = -1, **evidence: float) -> Reason:
    """A reason for jobs of a shape, a tenant and a grant."""
    return Reason("Resources", "QueuePolicy", shape, tenant, evidence, within=within)


def test_the_most_specific_reason_counts_and_only_within_the_same_grant() -> None:
    every, shape, tenant, both = said(), said(0), said(tenant=0), said(0, 0)
    assert reason_for([every, shape, tenant, both], 0, 0, -1) is both
    assert reason_for([every, tenant], 0, 0, -1) is tenant
    assert reason_for([every, shape], 0, 3, -1) is shape
    assert reason_for([shape, every], 1, 0, -1) is every
    assert reason_for([shape, said(within=2)], 1, 0, -1) is None
    assert reason_for([said(within=2)], 1, 0, 2) is not None


def test_who_waits_behind_those_that_were_refused_waits_for_what_could_change_that() -> None:
    first = [
        Reason(
            "Resources", "QueuePolicy", 0, evidence={"asked_gpus": 8.0, "may_pass": 0.0}, until=1
        ),
        Reason("AssocGrpGRES", "QueuePolicy", 1, until=4),
        Reason("Resources", "QueuePolicy", 0, until=8, within=3),
    ]
    assert reason_behind(first, -1) == Reason(
        "Priority", "QueuePolicy", evidence={"may_pass": 0.0}, until=5
    )
    assert reason_behind(first, 3) == Reason("Priority", "QueuePolicy", until=8, within=3)
    assert reason_behind(first, 4) is None


def test_the_earliest_reservation_of_the_same_grant_is_told() -> None:
    told = [
        said(),
        said(0, reserved_at_s=9.0),
        said(1, reserved_at_s=4.5),
        said(2, reserved_at_s=1.0, within=0),
    ]
    assert reserved_at(told, -1) == round(4.5 * SECOND)
    assert reserved_at(told, 0) == SECOND
    assert reserved_at(told, 1) == NEVER


def test_what_would_change_it_is_said_in_words() -> None:
    assert changes_in(QUEUED | WOKE) == [
        "a job enters the queue",
        "a time comes at which the recipe decides",
    ]


@pytest.mark.parametrize("walk", list(Walk))
def test_before_a_job_stand_those_of_a_better_key_and_of_the_same_key_that_came_earlier(
    walk: Walk,
) -> None:
    """Where each tenant has a queue of its own, only the tenant's own jobs stand before it."""
    those = enumerate([("ann", 0), ("bob", 0), ("ann", 0), ("ann", 1), ("bob", 1)])
    works = [job(f"job {i}", tenant=name, priority=priority) for i, (name, priority) in those]
    bench = Bench(*works)
    bench.feed(0, *(Submitted(row) for row in range(5)))
    queue, view = QueuePolicy("q", By((priority_largest,)), walk), bench.kernel.view
    before = [queue.ahead(view, row).tolist() for row in range(5)]
    assert before == (
        [[3], [4], [0, 3], [], []]
        if walk is Walk.TENANT
        else [[3, 4], [0, 3, 4], [0, 1, 3, 4], [], [3]]
    )


# ---------------------------------------------------------------------- what the running give back


def held(*works: tuple[Work, Placement], nodes: int, each: int) -> Bench:
    """All of these run since 3 s where they are put; it is 5 s."""
    bench = Bench(*(work for work, _ in works), on=cluster(nodes, each))
    rows = range(len(works))
    starts = [Start(row, 1, works[row][1]) for row in rows]
    bench.feed(3, *(Submitted(row) for row in rows), then=starts)
    bench.feed(3, *(Started(row, 1) for row in rows))
    bench.feed(5, Woke())
    return bench


def test_a_job_without_limit_and_estimate_gives_back_nobody_knows_when() -> None:
    bench = held(
        (job("endless", lasts=None), on(0b0001)),
        (job("limited", limit=30), on(0b0010)),
        (job("guessed", estimate=20, limit=60), on(0b0100)),
        (job("late", estimate=2, limit=2), on(0b1000)),
        nodes=1,
        each=4,
    )
    view = bench.kernel.view
    assert releases(view, view.ledger, gpus(1)) == [
        Release(3, 1, (0,), 5 * SECOND, NEVER),
        Release(2, 1, (0,), 63 * SECOND, 23 * SECOND),
        Release(1, 1, (0,), 33 * SECOND, NEVER),
        Release(0, 1, (0,), NEVER, NEVER),
    ]


def test_what_starts_has_a_limit_but_no_expected_end() -> None:
    """The limit is of the time that it runs, and it has not begun."""
    bench = Bench(job("new", limit=30, estimate=10))
    bench.feed(0, Submitted(0), then=[Start(0, 1, on(0b1))])
    bench.feed(5, Woke())
    view = bench.kernel.view
    assert releases(view, view.ledger, gpus(1)) == [Release(0, 1, (0,), 35 * SECOND, NEVER)]


def test_a_job_with_a_microsecond_left_ends_by_then_and_one_with_nothing_left_nobody_knows() -> (
    None
):
    bench = held(
        (job("a", estimate=5e-6), on(0b01)), (job("b", estimate=6e-6), on(0b10)), nodes=1, each=2
    )
    view = bench.kernel.view
    view.now = 3 * SECOND + 5
    ends = {each.job: each.expected for each in releases(view, view.ledger, gpus(1))}
    assert ends == {0: NEVER, 1: view.now + 1}


def ends_of(bench: Bench, size: int, **more: Any) -> list[int]:
    """For which of the ends, row by row, a gang waits; the books stay as they were."""
    view = bench.kernel.view
    shape = gpus(size, **more)
    before = list(view.ledger.free_count)
    ends = sorted(releases(view, view.ledger, shape), key=lambda each: each.job)
    found = [each.job for each in enough(view.ledger, shape, ends)]
    assert list(view.ledger.free_count) == before
    return found


@pytest.mark.parametrize(("size", "ends"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (4, [])])
def test_as_many_ends_are_waited_for_as_it_takes(size: int, ends: list[int]) -> None:
    works = [(job(f"job {at}"), on(1 << at)) for at in range(3)]
    assert ends_of(held(*works, nodes=1, each=3), size) == ends


def test_ends_on_other_nodes_than_the_gang_gets_are_not_waited_for() -> None:
    """A pair in one node: two singles end first, one on each node; then a second on node 1."""
    works = [
        (job("first on 0"), on(0b01, 0)), (job("first on 1"), on(0b01, 1)),
        (job("second on 1"), on(0b10, 1)), (job("second on 0"), on(0b10, 0)),
    ]  # fmt: skip
    bench = held(*works, nodes=2, each=2)
    assert ends_of(bench, 2, locality=Locality.NODE) == [1, 2]
    assert ends_of(bench, 2) == [0, 1], "in two nodes it may be one GPU of each"


def test_who_fits_as_it_is_waits_for_nobody() -> None:
    bench = held((job("a"), on(0b1)), (job("b", kind=Kind.TASK), on(0b10)), nodes=1, each=4)
    assert ends_of(bench, 2) == []
    assert ends_of(bench, 3) == [0]


def test_half_a_gpu_is_given_back_as_that_gpu() -> None:
    half = (Slot(0, 0b1, share=500),)
    bench = held((job("a"), half), (job("b"), half), nodes=1, each=1)
    assert ends_of(bench, 1) == [0, 1]


def test_in_one_node_all_workers_need_room_together_and_elsewhere_the_largest_one() -> None:
    """Two workers of 1 GPU, 3 cores and 4 GiB, and a server of 2 cores and 6 GiB."""
    roles = (
        Role("w", 2, needs=Needs(cpus=3000, memory=4096)),
        Role("ps", 1, needs=Needs(gpus=0, cpus=2000, memory=6144)),
    )
    nodes = tuple(
        NodeSpec(1, count, "A", cpus=cpus, memory=memory)
        for count, cpus, memory in ((2, 8000, 14336), (2, 7999, 14335), (1, 3000, 6144), (1, 0, 0))
    )
    ledger = Bench(job("a"), on=ClusterSpec(nodes)).kernel.ledger
    together = rooms(ledger, Shape(roles, locality=Locality.NODE))
    assert [(room.node, room.lacks) for room in together] == [
        (0, ()),
        (1, ("CPUs", "memory")),
        (2, ("GPUs", "CPUs", "memory")),
        (3, ("GPUs", "CPUs", "memory")),
    ]
    apart = rooms(ledger, Shape(roles))
    assert [(room.node, room.lacks) for room in apart] == [
        (0, ()),
        (1, ()),
        (2, ()),
        (3, ("CPUs", "memory")),
    ]


def test_every_mechanism_that_refuses_has_words_and_no_words_are_left_over() -> None:
    source = Path(ganger.__file__).parent
    names = set[str]()
    for room in ("mechanisms", "recipes"):
        for path in (source / room).rglob("*.py"):
            for call in ast.walk(ast.parse(path.read_text())):
                match call:
                    case ast.Call(
                        func=ast.Name(id="Reason"), args=[_, ast.Constant(value=str(name)), *_]
                    ):
                        names.add(name)
                    case ast.Call(
                        func=ast.Name(id="start_waiting"),
                        args=[_, _, _, ast.Constant(value=str(name))],
                    ):
                        names.add(name)
                    case ast.Call(
                        func=ast.Name(id="why_waiting"), args=[ast.Constant(value=str(name)), _]
                    ):
                        names.add(name)
    assert names == set(MECHANISMS)
