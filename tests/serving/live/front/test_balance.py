"""Which replica gets a request, and how traffic moves to the next version: no socket, no clock."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ganger.serving.front.balance import (
    DEAF,
    FAILURES,
    HALF_SECONDS,
    OUT_SECONDS,
    Replica,
    Version,
    drawn,
    least_loaded,
)
from ganger.serving.front.counts import Counts
from ganger.serving.front.rollout import ANSWERS, Guard, Rollout, stepped, weighed


def replica(job: int = 1, *, latency: float = 0.0, has: int = 0, healthy: bool = True) -> Replica:
    return Replica(job, 1, 1, "h", job, healthy=healthy, latency=latency, requests=set(range(has)))


def test_the_least_loaded_is_the_one_that_answers_soonest() -> None:
    slow, quick, full = (
        replica(1, latency=0.1),
        replica(2, latency=0.01),
        replica(3, latency=0.01, has=8),
    )
    assert least_loaded([slow, quick, full], 0.0) is quick
    assert least_loaded([slow, full], 0.0) is full
    assert least_loaded([slow, replica(4, latency=0.01, has=20)], 0.0) is slow
    assert least_loaded([slow], 0.0, [slow]) is None
    assert least_loaded([], 0.0) is None


def test_a_new_replica_is_believed_to_be_as_fast_as_the_fastest_and_no_faster() -> None:
    new, known = replica(1, has=1), replica(2, latency=0.5)
    assert least_loaded([new, known], 0.0) is known
    assert least_loaded([replica(1), replica(2, latency=0.5, has=1)], 0.0).job == 1  # type: ignore[union-attr]


def test_one_that_was_slow_is_tried_again() -> None:
    once, quick = replica(1), replica(2)
    once.answered(1.0, now=0.0)
    quick.answered(0.01, now=0.0)
    assert least_loaded([once, quick], 0.0) is quick
    for second in range(0, 200, 10):
        quick.answered(0.01, now=float(second))
        if least_loaded([once, quick], float(second)) is once:
            break
    else:
        raise AssertionError("it never is")
    assert second > HALF_SECONDS


def test_health_is_lost_by_checks_in_a_row_and_won_by_one() -> None:
    one = replica(healthy=False)
    assert not one.takes(0.0)
    one.checked(well=True)
    assert one.takes(0.0)
    for _ in range(DEAF - 1):
        one.checked(well=False)
        assert one.takes(0.0)
    one.checked(well=True)
    for _ in range(DEAF):
        one.checked(well=False)
    assert not one.takes(0.0)


def test_failures_in_a_row_leave_a_replica_out_for_longer_each_time() -> None:
    ones = [replica(1), replica(2), replica(3)]
    for now, times in ((0.0, 1), (100.0, 2)):
        for _ in range(FAILURES - 1):
            assert not ones[0].failed(now, ones)
        ones[0].answered(0.1, now)
        for _ in range(FAILURES - 1):
            assert not ones[0].failed(now, ones)
        assert ones[0].failed(now, ones)
        assert not ones[0].takes(now + OUT_SECONDS * times - 0.01)
        assert ones[0].takes(now + OUT_SECONDS * times)


@given(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=200))
def test_half_of_the_replicas_are_never_left_out(n: int, failing: list[int]) -> None:
    ones = [replica(job) for job in range(n)]
    for at in failing:
        ones[at % n].failed(1.0, ones)
        assert 2 * sum(not one.takes(1.0) for one in ones) <= n


def test_versions_are_drawn_by_weight() -> None:
    random = Random(1)
    versions = [Version(1, 3.0), Version(2, 1.0), Version(3, 9.0, shadow=True), Version(4, 0.0)]
    found = [drawn(versions, random).job for _ in range(1000)]  # type: ignore[union-attr]
    assert set(found) == {1, 2}
    assert 700 < found.count(1) < 800
    assert drawn([Version(1, 0.0)], random) is None


def counted(answers: int, errors: int = 0, seconds: float = 0.01) -> Counts:
    made = Counts()
    for n in range(answers):
        made.answered(seconds, bad=n < errors)
    return made


def moved(
    rollout: Rollout,
    seconds: float = 1e9,
    *,
    ready: bool = True,
    new: Counts | None = None,
    old: Counts | None = None,
) -> Rollout:
    seen = {job: counts for job, counts in ((1, old), (2, new)) if counts is not None}
    return stepped(rollout, ready, seconds, seen) or rollout


def test_a_rollout_goes_step_by_step_to_its_end() -> None:
    rollout = Rollout(1, 2, (0.1, 0.5), 30.0)
    versions = [Version(1, 1.0), Version(2, 0.0)]
    assert stepped(rollout, False, 1e9, {}) is None
    assert [one.weight for one in weighed(versions, rollout)] == [1.0, 0.0]
    rollout = moved(rollout)
    assert (rollout.state, rollout.part) == ("moves", 0.1)
    new, old = counted(ANSWERS), counted(100)
    assert moved(rollout, 29.9, new=new, old=old) is rollout
    assert moved(rollout, new=counted(ANSWERS - 1), old=counted(100)) is rollout
    rollout = moved(rollout, 30.0, new=new, old=old)
    assert [one.weight for one in weighed(versions, rollout)] == [0.5, 0.5]
    rollout = moved(rollout, new=new, old=old)
    assert (rollout.state, rollout.part) == ("done", 1.0)
    assert moved(rollout, ready=False) is rollout
    assert [one.weight for one in weighed(versions, rollout)] == [0.0, 1.0]


def test_and_back_where_the_new_version_is_worse() -> None:
    rollout = msgspec.structs.replace(
        Rollout(1, 2, (0.5,), guard=Guard(0.1, 2.0)), state="moves", at=0
    )
    old = counted(100, errors=5)
    assert moved(rollout, 0.0, new=counted(100, errors=15), old=old) is rollout
    back = moved(rollout, 0.0, new=counted(100, errors=16), old=old)
    assert (back.state, back.part) == ("back", 0.0)
    assert back.why == "16.0% of its answers were errors, and 5.0% of the other version's"
    slow = moved(rollout, 0.0, new=counted(100, seconds=0.021), old=counted(100))
    assert slow.why == "its 99th percentile was 21 ms, and 10 ms of the other version's"
    assert moved(rollout, 0.0, new=counted(100, seconds=0.0199), old=counted(100)) is rollout
    few = counted(ANSWERS - 1, errors=ANSWERS - 1)
    assert moved(rollout, 0.0, new=few, old=old) is rollout
    assert moved(rollout, 0.0, ready=False).why == "it has no replica any more"
