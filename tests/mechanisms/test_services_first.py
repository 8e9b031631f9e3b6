"""Services that make room for themselves in one pool."""

from __future__ import annotations

import pytest

from ganger.core.protocols import Policy
from ganger.core.spec import Kind, OnPreempt
from ganger.lab.simulation import Setup, run_one
from ganger.recipes import registry
from mechanisms.shared_days import POOLS, SCALING, day
from worlds import Work, cluster, job, play


def service(name: str, at: float, size: int) -> Work:
    """A service that runs as a whole for a minute."""
    return job(name, at, 60, size=size, kind=Kind.SERVE)


def joined(rule: str = "priorities", training: str = "fifo") -> Policy:
    """Services first come, first served."""
    return registry.make_sharing(rule).join(registry.make("fifo"), registry.make(training))


def test_the_fewest_jobs_go_and_come_back_when_there_is_room() -> None:
    """Node 0 has two jobs of two GPUs, node 1 one of four: a service of four takes node 1."""
    works = [
        job("a", 0, 100, size=2), job("b", 0, 100, size=2), job("c", 0, 100, size=4),
        service("web", 10, 4),
    ]  # fmt: skip
    run = play(joined(), works, cluster(2, 4))
    assert (
        run.text()
        == """\
0: start a on 0:0,1; start b on 0:2,3; start c on 1:0,1,2,3
10: stop c
10: start web on 1:0,1,2,3
70: start c on 1:0,1,2,3"""
    )
    assert run.started("web") == pytest.approx(10, abs=1e-5)


def test_only_as_many_go_as_are_needed_and_the_smaller_of_two_that_would_do() -> None:
    works = [
        job("small", 0, 100, size=1), job("large", 0, 100, size=3), service("web", 10, 1),
        service("api", 20, 2),
    ]  # fmt: skip
    run = play(joined(), works, cluster(1, 4))
    stops = [line for line in run.text().splitlines() if "stop" in line]
    assert stops == ["10: stop large"], "its GPUs are enough for both"


def test_training_keeps_what_it_is_guaranteed_and_who_must_not_be_preempted_stays() -> None:
    works = [job("a", 0, 100, size=2), job("b", 0, 100, size=2), service("web", 10, 2)]
    assert "stop" not in play(joined("priorities(guarantee=3)"), works, cluster(1, 4)).text()
    assert "stop" in play(joined("priorities(guarantee=2)"), works, cluster(1, 4)).text()
    pinned = [job(name, 0, 100, size=2, on_preempt=OnPreempt.NEVER) for name in "ab"]
    assert "stop" not in play(joined(), [*pinned, works[2]], cluster(1, 4)).text()


def test_where_a_service_waits_for_another_reason_nobody_goes() -> None:
    """The second service waits behind the first, which is wider than what may be free."""
    works = [job("a", 0, 100, size=2), service("wide", 10, 5), service("web", 11, 2)]
    run = play(joined(), works, cluster(1, 4), until=80_000_000)
    assert "stop" not in run.text()


def test_services_start_at_once_in_one_pool_and_jobs_pay_for_it() -> None:
    trace, loads = day(2)
    queues = {}
    for rule in ("first", "priorities"):
        setup = Setup(serving=SCALING, sharing=rule, loads=loads, validate=rule != "first")
        run = run_one(trace, POOLS, "fifo", setup)
        service_rows = run.jobs.service
        queues[rule] = run.jobs.pending[service_rows].sum(), run.jobs.preemptions.sum()
    assert queues["priorities"][0] < queues["first"][0]
    assert queues["priorities"][1] > 0 == queues["first"][1]
