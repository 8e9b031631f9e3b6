"""Small mechanisms by themselves: shuffles that are asked for again, quotas of nothing."""

from __future__ import annotations

import random

from bench import Bench
from ganger.core.profiles import Memory
from ganger.core.spec import ClusterSpec, NodeSpec, TenantSpec
from ganger.core.units import NEVER
from ganger.mechanisms.common.python_random import shuffle
from ganger.mechanisms.ordering.admit import Quotas
from ganger.mechanisms.ordering.backfill import Reservations
from ganger.mechanisms.sharing.two_classes import Use
from worlds import cluster, job


def shuffles(seed: int, many: int, count: int) -> list[list[int]]:
    """The first ones, as Python's own generator gives them."""
    draws, found = random.Random(seed + 5), []
    for _ in range(many):
        order = list(range(count))
        draws.shuffle(order)
        found.append(order)
    return found


def test_a_shuffle_that_was_passed_can_be_asked_for_again() -> None:
    view = Bench(job("a")).kernel.view
    known = shuffles(view.seed, 6, 5)
    assert [shuffle(view, number, 5) for number in (0, 1, 4, 1, 0, 5, 3)] == [
        known[number] for number in (0, 1, 4, 1, 0, 5, 3)
    ]


def test_a_quota_of_nothing_is_a_quota_and_minus_one_is_none() -> None:
    tenants = (TenantSpec("none", 0), TenantSpec("one", 1), TenantSpec("any"))
    spec = ClusterSpec((NodeSpec(gpus=2, gpu_type="A"),), (), tenants)
    works = [job(tenant, tenant=tenant) for tenant in ("none", "one", "any")]
    view = Bench(*works, on=spec).kernel.view
    code = view.jobs.tenants.find
    assert Quotas().limits(view) == {code("none"): 0, code("one"): 1}
    assert Quotas((("any", 0), ("who", 3))).limits(view) == {code("any"): 0}


def test_a_reservation_begins_no_earlier_than_it_may() -> None:
    """Both GPUs are free until 100 us, and never again; and then only from 10 us on."""
    view = Bench(job("a"), on=cluster(1, 2)).kernel.view
    (cell,) = view.ledger.cells
    reserved = Reservations(view)
    reserved._change(0, 100, NEVER, -2)
    assert [reserved.earliest(cell, 1, lasting, 1) for lasting in (50, 99, 100)] == [1, 1, NEVER]
    assert reserved.earliest(cell, 1, 50, 50) == 50
    reserved._change(0, 0, 10, -2)
    assert [reserved.earliest(cell, 1, 50, after) for after in (1, 10, 15)] == [10, 10, 15]


def test_a_guaranteed_job_comes_only_where_it_fits_beside_what_is_guaranteed() -> None:
    use = Use(busy=0.5, memory=14_000, kept=10_000, moves=True, loose=1)
    has_memory = [use.has_memory(Memory(peak), 16_000, firm=True) for peak in (6000, 6001)]
    assert has_memory == [True, False]
