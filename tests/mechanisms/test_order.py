"""Keys of an order: one number per formula, what is not known comes last, and when keys jump."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import Bench, on, running
from ganger.core.events import QUEUED, Finished, Started, Submitted, Woke
from ganger.core.plan import Start
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.mechanisms.ordering import order as order_module
from ganger.mechanisms.ordering.order import (
    FIRST_COME,
    By,
    Formula,
    Gittins,
    Levels,
    Lines,
    Order,
    Quanta,
    Then,
    attained_service,
    attained_time,
    deadline,
    first_start,
    last_come,
    priority_largest,
    priority_smallest,
)
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.solve.gittins import gittins_index
from worlds import cluster, job


@pytest.mark.parametrize(
    ("numbers", "key"),
    [
        ((), ()),
        ((2.0,), (2.0,)),
        ((nan,), (inf,)),
        ((2.0, 1.0), (2.0, 1.0)),
        ((nan, 1.0), (inf, 1.0)),
        ((1.0, nan, 3.0), (1.0, inf, 3.0)),
    ],
)
def test_a_key_has_a_number_per_formula(numbers: tuple[float, ...], key: Any) -> None:
    view = Bench(job("a")).kernel.view
    formulas = tuple(lambda view, job, number=number: number for number in numbers)
    order = By(formulas)
    assert order.key(view, 0) == key
    assert order.until(view, 0) == NEVER
    assert order.passes(view, 0, 1.0) == NEVER


# ---------------------------------------------------------------------- when keys jump

AHEAD = 90
"""Microseconds that a test looks ahead."""


def clock(size: int) -> View:
    """Job 0 runs on so many GPUs since 0 s; `view.now` is moved by hand. Job 1 waits."""
    bench = Bench(job("a", size=size), job("b"))
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, on((1 << size) - 1))])
    bench.feed(0, Started(0, 1))
    return bench.kernel.view


def seen(order: Order, view: View) -> Callable[[int], float]:
    """The first part of the running job's key at a time."""

    def at(time: int) -> float:
        then, view.now = view.now, time
        key = order.key(view, 0)
        view.now = then
        return key[0]

    return at


def first(times: range, holds: Callable[[int], bool]) -> int:
    """The first of the times at which something holds, NEVER if it does at none."""
    return next((time for time in times if holds(time)), NEVER)


def as_it_is_seen(order: Order, size: int, now: int, level: float) -> None:
    """`until` and `passes` say what comes of asking for the key at every microsecond."""
    view = clock(size)
    view.now = now
    key, ahead = seen(order, view), range(now + 1, now + AHEAD)
    jump = first(ahead, lambda time: key(time) != key(now))
    assert order.until(view, 0) == jump
    passes = jump if key(now) >= level else first(ahead, lambda time: key(time) >= level)
    assert order.passes(view, 0, level) == passes
    assert order.until(view, 1) == NEVER, "who waits"


times = st.integers(0, 30)
quantities = st.sampled_from([attained_service, attained_time])
running_on = st.integers(1, 3)


@given(
    st.lists(st.integers(1, 70), unique=True, max_size=4),
    quantities,
    running_on,
    times,
    st.integers(0, 5),
)
def test_a_ladder_says_when_its_levels_change(
    thresholds: list[int], attained: Formula, size: int, now: int, level: int
) -> None:
    as_it_is_seen(Levels(tuple(thresholds), attained), size, now, level)


@given(st.integers(5, 20), quantities, running_on, times, st.integers(0, 4))
def test_quanta_say_when_they_are_full(
    quantum: int, attained: Formula, size: int, now: int, level: int
) -> None:
    as_it_is_seen(Quanta(quantum, attained), size, now, level)


@given(
    st.lists(st.integers(1, 60), unique=True, min_size=1, max_size=3),
    st.integers(3, 20),
    running_on,
    times,
    st.integers(0, 4),
)
def test_two_orders_in_a_row_jump_when_either_does(
    thresholds: list[int], quantum: int, size: int, now: int, level: int
) -> None:
    view = clock(size)
    view.now = now
    one, two = Levels(tuple(thresholds)), Quanta(quantum, attained_time)
    both = Then(one, two, (priority_largest,))
    assert both.key(view, 0) == (*one.key(view, 0), *two.key(view, 0), 0.0)
    assert both.until(view, 0) == min(one.until(view, 0), two.until(view, 0))
    reached = one.key(view, 0)[0] >= level
    passes = both.until(view, 0) if reached else one.passes(view, 0, level)
    assert both.passes(view, 0, level) == passes


SERVED = (10, 20, 40, 80, 160)


@given(running_on, times, st.integers(0, 12), st.sampled_from([None, 15]))
def test_a_gittins_order_looks_ahead_for_the_index_that_lets_others_pass(
    size: int, now: int, nth: int, step: int | None
) -> None:
    """Its keys count whole quanta, and go up and down."""
    order, view = Gittins(SERVED, step, quantum=5), clock(size)
    view.now = now
    key = seen(order, view)
    assert key(now) == -round(
        gittins_index(np.array(SERVED, float), now * size // 5 * 5.0, step) * SECOND, 12
    )
    quanta = [time for time in range(now + 1, 300) if time * size // 5 > (time - 1) * size // 5]
    assert order.until(view, 0) == quanta[0]
    level = key(quanta[nth])
    assert order.passes(view, 0, level) == next(time for time in quanta if key(time) >= level)
    assert order.until(view, 1) == order.passes(view, 1, level) == NEVER


def test_a_gittins_order_looks_ahead_for_so_many_quanta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganger.mechanisms.ordering.order.LOOKAHEAD", 4)
    view = clock(1)
    view.now = 7
    assert Gittins((1000,), quantum=5).passes(view, 0, inf) == 20


def test_a_gittins_order_learns_from_those_that_finished_thinned_and_once_in_a_while() -> None:
    """Six have finished within the first epoch of 100 s, and one as it was over."""
    took = [10, 20, 30, 50, 70, 90, 100]
    works = [job(f"j{i}", 0, lasts) for i, lasts in enumerate(took)]
    bench = Bench(*works, job("now"), on=cluster(1, 8))
    bench.feed(0, *map(Submitted, range(8)), then=[Start(row, 1, on(1 << row)) for row in range(8)])
    bench.feed(0, *(Started(row, 1) for row in range(8)))
    view = bench.kernel.view
    order = Gittins(quantum=SECOND, refresh=100 * SECOND, points=3)

    def key() -> float:
        return order.key(view, 7)[0]

    assert key() == 0
    for row, at in enumerate(took):
        bench.feed(at, Finished(row, 1))
    view.now = 99 * SECOND
    assert key() == 0
    assert order.until(view, 0) == 100 * SECOND, "when it is taken anew"
    view.now = 100 * SECOND + 1
    for points, sizes in ((3, (20, 50, 90)), (6, took[:6]), (4, (10, 30, 50, 90))):
        view.scratch.clear()
        learnt = Gittins(quantum=SECOND, refresh=100 * SECOND, points=points)
        for ran in (0, 35, 60, 85):
            bench.kernel._since[7] = view.now - ran * SECOND
            index = gittins_index(np.array(sizes) * float(SECOND), float(ran * SECOND))
            assert learnt.key(view, 7)[0] == -round(index * SECOND, 12)
    view.now = 200 * SECOND
    view.scratch.clear()
    bench.kernel._since[7] = view.now
    learnt = Gittins(quantum=SECOND, refresh=100 * SECOND)
    assert learnt.key(view, 7)[0] < 0
    assert learnt._sizes(view).tolist() == [each * SECOND for each in took]


@pytest.mark.parametrize(
    ("order", "key"),
    [
        (Levels((5 * SECOND,), within=(priority_largest,)), (1.0, -3.0)),
        (Levels((5 * SECOND,), within=(priority_largest, deadline)), (1.0, -3.0, 90.0 * SECOND)),
        (Levels((15 * SECOND,)), (0.0,)),
        (By((priority_largest, deadline)), (-3.0, 90.0 * SECOND)),
    ],
)
def test_inside_a_level_all_formulas_count(order: Order, key: tuple[float, ...]) -> None:
    bench = running(job("a", size=2, priority=3, deadline=90), job("b"))
    view = bench.kernel.view
    view.now = 4 * SECOND
    assert order.key(view, 0) == key


@pytest.mark.parametrize(
    "order",
    [
        Levels((SECOND,)),
        Lines((SECOND,)),
        Quanta(SECOND, attained_time),
        Then(FIRST_COME, FIRST_COME),
        Gittins((SECOND,)),
        By((priority_largest,)),
    ],
)
def test_whoever_arrives_may_go_before_a_blocked_head(order: Order) -> None:
    """Only of first come, first served it is known that an arrival changes nothing."""
    for each, asks in ((order, QUEUED), (FIRST_COME, 0)):
        bench = Bench(job("a", size=4), job("b", size=4), policy=QueuePolicy("queue", each))
        bench.feed(0, Submitted(0), Submitted(1))
        plan = bench.feed(0, Started(0, 1), Woke())
        assert plan is not None
        assert [reason.code for reason in plan.reasons] == ["Resources"]
        assert plan.until & QUEUED == asks


def test_formulas_say_the_same_of_one_job_and_of_many() -> None:
    bench = running(job("a", size=2, deadline=50, priority=2), job("b", 1, size=3, estimate=9))
    view = bench.kernel.view
    view.now = 7 * SECOND
    for formula in (
        first_start,
        last_come,
        priority_smallest,
        deadline,
        attained_service,
        attained_time,
        order_module._gpus,
    ):
        each = [formula(view, row) for row in (0, 1)]
        assert formula(view, np.arange(2)).tolist() == each
    assert first_start(view, np.arange(2)).tolist() == [0, NEVER]
    assert last_come(view, np.arange(2)).tolist() == [0, -SECOND]
