"""Money of a search where GPUs are billed by whole minutes or hours, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec
from ganger.core.units import HOUR, MINUTE, NEVER, SECOND
from ganger.lab.result import Segment
from ganger.lab.tuning.detail import Paid, bill, paid_by
from ganger.mechanisms.tuning.billing import Held, Rate, affordable, changed
from ganger.workloads.clusters import load_cluster
from ganger.workloads.experiment.document import Budget

from .searches import experiment, searched, table

BY_MINUTE = Rate(3.0, MINUTE)


def test_whole_minutes_and_a_minimum() -> None:
    assert Rate(3.0).cost(0, 90 * SECOND) == pytest.approx(0.075)
    assert BY_MINUTE.cost(0, 90 * SECOND) == pytest.approx(0.1)
    assert BY_MINUTE.cost(0, 60 * SECOND) == pytest.approx(0.05)
    assert Rate(3.0, SECOND, MINUTE).cost(5, 6) == pytest.approx(0.05)
    assert Rate(3.0, HOUR, 90 * MINUTE).cost(0, 1) == pytest.approx(6.0)


def test_a_gpu_that_is_kept_goes_on_with_its_minute() -> None:
    held, paid = changed((), {0: 0b11}, [BY_MINUTE], 0)
    assert (held, paid) == (((0, 0, 0b11),), 0.0)
    held, paid = changed(held, {0: 0b101}, [BY_MINUTE], 90 * SECOND)
    assert held == ((0, 0, 0b1), (90 * SECOND, 0, 0b100))
    assert paid == pytest.approx(0.1)  # two minutes of the one that went
    stays = [Segment(0, 0.0, 90.0, 0, 0b11), Segment(0, 90.0, 100.0, 0, 0b101)]
    assert bill(stays, [BY_MINUTE]) == pytest.approx(0.1 + 0.1 + 0.05)
    first, second = paid_by(stays, [BY_MINUTE])[1:]
    assert first == pytest.approx(Paid(90.0, 0.05, 0.2))
    assert second == pytest.approx(Paid(100.0, 200 / 3600, 0.25))


def test_until_when_money_lasts() -> None:
    held = ((0, 0, 0b11),)
    assert affordable(held, [BY_MINUTE], 0.25, 0) == 2 * MINUTE
    assert affordable(held, [BY_MINUTE], 0.2, 90 * SECOND) == 2 * MINUTE
    assert affordable(held, [BY_MINUTE], 0.19, 90 * SECOND) == 90 * SECOND
    assert affordable(held, [Rate(0.0)], 0.1, 7) == NEVER
    assert affordable(held, [Rate(3.0, MINUTE)], 3e6, 0) == 500_000 * HOUR


@given(
    some.lists(some.tuples(some.integers(0, 100), some.integers(1, 7)), min_size=1, max_size=4),
    some.integers(1, 50),
    some.integers(0, 40),
    some.floats(0.01, 50.0),
)
def test_it_is_affordable_and_a_moment_later_it_is_not(
    some_held: list[tuple[int, int]], per: int, least: int, money: float
) -> None:
    rates, now = [Rate(1.0 * HOUR / 100, per, least)], 100
    held: list[Held] = [(since, 0, mask) for since, mask in some_held]

    def cost(at: int) -> float:
        return sum(mask.bit_count() * rates[0].cost(since, at) for since, _, mask in held)

    until = affordable(held, rates, money, now)
    assert until >= now
    assert cost(until) <= money + 1e-6 or until == now
    assert cost(until + 1) > money - 1e-6


def test_a_search_ends_before_a_minute_that_it_cannot_pay() -> None:
    """Two GPUs at 3 an hour: a minute of both costs 0.1. Without granularity 0.15 would last 90 s;
    by whole minutes it lasts 60 s. Trials of ten epochs of 20 s never end before."""

    def cluster(**terms: Any) -> ClusterSpec:
        kinds = (GpuType("T4", price=3.0, **terms),)
        return ClusterSpec((NodeSpec(count=1, gpus=2, gpu_type="T4"),), gpu_types=kinds)

    source = table([9.0] * 10, [8.0] * 10, seconds=[20.0, 20.0])
    found = experiment(2, trials=2, budget=Budget(money=0.15))
    exact = searched(found, source, "tune.random", cluster=cluster()).run.metrics
    assert (exact["seconds"], exact["cost"]) == (90.0, pytest.approx(0.15))
    coarse = searched(found, source, "tune.random", cluster=cluster(per=MINUTE)).run.metrics
    assert (coarse["seconds"], coarse["cost"]) == (60.0, pytest.approx(0.1))
    assert (coarse["ended_by"], coarse["budget_kept"]) == ("the budget of money", True)
    least = searched(
        experiment(2, trials=2), source, "tune.random", cluster=cluster(least=HOUR)
    ).run.metrics
    assert (least["seconds"], least["cost"]) == (pytest.approx(200.0, abs=0.1), pytest.approx(6.0))


def test_the_cluster_file_says_it(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    text = 'format = "ganger.cluster/1"\n[[nodes]]\ncount = 1\ngpus = 2\ngpu_type = "T4"\n'
    file.write_text(
        text + '[[gpu_types]]\nname = "T4"\nprice = 3.0\nbilled = "hour"\nleast = "2h"\n'
    )
    (kind,) = load_cluster(str(file)).gpu_types
    assert (kind.price, kind.per, kind.least) == (3.0, HOUR, 2 * HOUR)
    file.write_text(text + '[[gpu_types]]\nname = "T4"\nbilled = "week"\n')
    with pytest.raises(BadInput, match="billed"):
        load_cluster(str(file))
