"""Small mechanisms by themselves: shuffles that are asked for again, quotas of nothing."""

from __future__ import annotations

import random

from bench import Bench
from ganger.core.spec import ClusterSpec, NodeSpec, TenantSpec
from ganger.mechanisms.common.python_random import shuffle
from ganger.mechanisms.ordering.admit import Quotas
from worlds import job


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
