"""Prices and payoffs: by hand, and the competitive bound beside the true ratio."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec, Role, Shape
from ganger.core.units import HOUR, MINUTE
from ganger.mechanisms.market.prices import Choice, Prices, competitive
from ganger.recipes import registry
from ganger.solve.completion import cheapest
from worlds import Played, Work, job, play

pytestmark = pytest.mark.long

ONE = [Choice(0, 1, 1)]


def prices(capacity: int, slots: int, low: float, high: float, kinds: int = 1) -> Prices:
    return Prices(np.full(kinds, float(capacity)), np.zeros((kinds, slots)), low, high)


def test_a_price_doubles_with_each_of_four_units() -> None:
    """Capacity 4, L = 1, U = 16: 1, 2, 4, 8, 16. A job of one unit and one slot with utility 5 is
    let in at use 2 (price 4), the next like it is not (price 8)."""
    market, seen = prices(4, 1, 1.0, 16.0), []
    for _ in range(5):
        seen.append(float(market.table()[0, 0]))
        market.used += 1
    assert seen == [1.0, 2.0, 4.0, 8.0, 16.0]
    market = prices(4, 1, 1.0, 16.0)
    market.used += 2
    offer = market.offer(ONE, 1, np.array([5.0]))
    assert (offer.payoff, offer.cost) == (1.0, 4.0)
    market.take(offer)
    assert not market.offer(ONE, 1, np.array([5.0])).plan


def test_the_slow_type_serves_unless_the_deadline_forces_the_fast_one() -> None:
    """Speeds 1 and 2 at prices 1 and 3, work 4: 4 slots of the slow one cost 4, 2 of the fast one
    6. Done within two slots only the fast one can be."""
    costs, gains = np.tile([1.0, 3.0], (4, 1)), np.array([1, 2])
    plans = cheapest(costs, gains, 4)
    assert plans.cost.tolist() == [np.inf, 6.0, 5.0, 4.0]
    assert plans.until(3) == [0, 0, 0, 0]
    assert plans.until(1) == [1, 1]


def test_plans_are_the_cheapest_of_all() -> None:
    """Against every combination of choices."""
    random = np.random.default_rng(3)
    for _ in range(60):
        slots, choices, work = (
            random.integers(1, 4),
            random.integers(1, 4),
            int(random.integers(1, 7)),
        )
        costs = random.uniform(0.1, 5, (slots, choices))
        costs[random.random(costs.shape) < 0.2] = np.inf
        gains = random.integers(1, 4, choices)
        plans = cheapest(costs, gains, work)
        for done in range(slots):
            ways = itertools.product(range(-1, choices), repeat=done + 1)
            best = min(
                sum(costs[t, c] for t, c in enumerate(way) if c >= 0)
                if sum(gains[c] for c in way if c >= 0) >= work
                else np.inf
                for way in ways
            )
            assert plans.cost[done] == pytest.approx(best)
            if best < np.inf:
                way = plans.until(done)
                assert sum(costs[t, c] for t, c in enumerate(way) if c >= 0) == pytest.approx(best)
                assert sum(gains[c] for c in way if c >= 0) >= work


SLOTS = 3
Case = list[tuple[int, int, list[Choice], np.ndarray]]
"""By job its slot of arrival, its work, its choices and its utility by completion slot."""


def case(seed: int) -> tuple[int, Case]:
    """A capacity and at most six jobs, in order of arrival."""
    random = np.random.default_rng(seed)
    capacity, jobs = int(random.integers(2, 5)), []
    for arrives in sorted(random.integers(0, SLOTS, random.integers(1, 7)).tolist()):
        most = int(random.integers(1, 3))
        choices = [Choice(0, gpus, gpus) for gpus in range(1, most + 1)]
        worth = float(random.uniform(1, 10)) * np.linspace(1.0, random.uniform(0.2, 1), SLOTS)
        worth[:arrives] = 0.0
        jobs.append((arrives, int(random.integers(1, 4)), choices, worth))
    return capacity, jobs


def best_of_all(capacity: int, jobs: Case) -> float:
    """The largest sum of utilities of any schedule, over all that may be in use."""
    best = {(0,) * SLOTS: 0.0}
    for arrives, work, choices, worth in jobs:
        ways = {(0,) * SLOTS: 0.0}
        sizes = [0, *(each.gpus for each in choices)]
        for way in itertools.product(*([0] if t < arrives else sizes for t in range(SLOTS))):
            if sum(way) >= work:
                done = max(t for t in range(SLOTS) if way[t])
                ways[way] = max(ways.get(way, 0.0), float(worth[done]))
        after = dict[tuple[int, ...], float]()
        for used, got in best.items():
            for way, more in ways.items():
                both = tuple(a + b for a, b in zip(used, way, strict=True))
                if max(both) <= capacity and after.get(both, -1.0) < got + more:
                    after[both] = got + more
        best = after
    return max(best.values())


def market_of(capacity: int, jobs: Case) -> tuple[Prices, float, float]:
    """The prices at the end, the sum of utilities, and the bound of the dual."""
    each = [float(worth.max()) / work for _, work, _, worth in jobs]
    least = [float(worth[worth > 0].min()) / (2 * work + 2) for _, work, _, worth in jobs]
    market = prices(capacity, SLOTS, min(least) / 2, max(*each, 3 * min(least)))
    got = payoffs = 0.0
    for arrives, work, choices, worth in jobs:
        gone = market.used[:, :arrives].copy()
        market.used[:, :arrives] = capacity  # what is over cannot be had
        offer = market.offer(choices, work, worth)
        payoffs += market.offer(choices, work, worth, beyond=True).payoff
        market.used[:, :arrives] = gone
        market.take(offer)
        got += offer.payoff + offer.cost
    return market, got, market.bound(payoffs)


def test_the_bound_is_never_broken_on_200_cases() -> None:
    """No schedule has more than the dual says, nor more than the ratio that is known beforehand
    times what the market got; and the market is not always as good as the best."""
    ratios = []
    for seed in range(200):
        capacity, jobs = case(seed)
        market, got, bound = market_of(capacity, jobs)
        best = best_of_all(capacity, jobs)
        assert (market.used <= capacity).all()
        assert got <= best + 1e-9 <= bound + 2e-9
        assert best <= competitive(market.low, market.high) * got + 1e-9
        ratios.append(best / got if got else 1.0)
    assert 1.0 < max(ratios) < 6.0
    assert np.mean(ratios) < 1.6


def flexible(name: str, at: float, lasts: float, most: int, **more: Any) -> Work:
    return job(name, at, lasts, shape=Shape((Role(size=1, least=1, most=most),)), **more)


def ends(ran: Played) -> list[float]:
    return [int(at) / HOUR for at in ran.jobs.finished[: ran.jobs.n]]


@pytest.mark.parametrize("recipe", ["oasis", "aonline"])
def test_total_utility_is_larger_than_first_come_first_served(recipe: str) -> None:
    """Forty jobs on four GPUs at twice what these can do; a quarter weighs 50 times the others.
    Under a market they all come to their end, and the sum of its utilities is larger."""
    random, weight = np.random.default_rng(1), np.tile([50.0, 1.0, 1.0, 1.0], 10)
    works = [
        flexible(
            f"j{i}", 300.0 * i, lasts, 4, weight=float(weight[i]), deadline=300.0 * i + 2.5 * lasts
        )
        for i, lasts in enumerate(random.uniform(1200, 4800, 40).tolist())
    ]
    on = ClusterSpec((NodeSpec(1, 4, "V100"),))

    utility = registry.make(recipe).utility  # type: ignore[attr-defined]

    def total(name: str) -> float:
        ran = play(name, works, on)
        view, done = ran.kernel.view, ran.jobs.finished[:40]
        assert (done > 0).all()
        each = [utility(view, job, done[job] - ran.jobs.submitted[job]) for job in range(40)]
        return float(np.sum(each))

    assert total(recipe) > total("fifo(walk=skip)")


def test_aonline_takes_the_cheap_slow_type_where_oasis_ends_sooner() -> None:
    """Both types cost alike when free. A job without a deadline is done by either; one whose
    deadline only the fast type meets has that under aonline; oasis takes what ends first."""
    types = (GpuType("A", speed=1.0), GpuType("B", speed=2.0))
    on = ClusterSpec((NodeSpec(1, 1, "A"), NodeSpec(1, 1, "B")), types)
    works = [flexible("hurried", 0, 7200, 1, deadline=4200.0)]
    assert ends(play("aonline", works, on))[0] == pytest.approx(1.0, abs=0.01)
    works = [flexible("easy", 0, 7200, 1)]
    quick = ends(play("oasis(times=0s;10h, values=10;1)", works, on))[0]
    assert quick == pytest.approx(1.0, abs=0.01)


def test_points_of_a_user_are_checked() -> None:
    with pytest.raises(BadInput, match="ascending"):
        registry.make("oasis(times=2h;1h, values=1;2)")
    assert registry.make("oasis(times=1h;2h, values=2;1)").slot == 10 * MINUTE  # type: ignore[attr-defined]
