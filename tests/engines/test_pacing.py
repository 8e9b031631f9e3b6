"""How much of the time an opportunistic job computes, decided from the steps of those beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ganger.core.plan import WITHDRAWN
from ganger.engines.agent.pacing import LEAST, UNMEASURED, Pacing
from ganger.engines.agent.protocol import Key, Rate, Terms
from ganger.estimate.sharing.rates import ARRIVAL_RATE, RESET, STEP_TIME

FIRM, LOOSE, THIRD = Key(1, 1), Key(2, 1), Key(3, 1)
ALONE = 10_000.0
"""Microseconds of a step of the guaranteed job alone."""


class Machine:
    """A device that serves in proportion to what is asked: the guaranteed job uses `demand` of it
    alone, the opportunistic one as much as it may."""

    def __init__(self, demand: float, *, obeys: Callable[[Rate], float] = lambda r: r.part) -> None:
        self.pacing, self.now, self.demand, self.obeys = Pacing(), 0.0, demand, obeys
        self.rate = self.slower = 1.0
        self.told: list[Rate] = []
        self.running = {LOOSE}

    def run(self, seconds: float) -> None:
        """Half a second after another."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.5
            asked = self.rate * (LOOSE in self.running) + self.demand
            if FIRM in self.running:
                self.pacing.stepped(FIRM, ALONE * max(asked, 1.0) * self.slower)
            if self.now >= self.pacing.due:
                for rate in self.pacing.look(self.now):
                    if rate.key == LOOSE:
                        self.told.append(rate)
                        self.rate = self.obeys(rate)

    @property
    def loss(self) -> float:
        """What the guaranteed job loses of its speed."""
        return 1.0 - 1.0 / max(self.rate + self.demand, 1.0)

    def share(self, control: str, settle_s: float = 1.0) -> None:
        """Both run on device 0, the opportunistic one first."""
        self.pacing.add(LOOSE, [0], None, self.now)
        self.pacing.give(Terms(LOOSE, 0.0, 1.0, control, settle_s), self.now)
        self.run(1.0)
        self.running.add(FIRM)
        self.pacing.add(FIRM, [0], None, self.now)
        self.pacing.give(Terms(FIRM, 1.0, 1.0, control, settle_s), self.now)
        self.run(0.5)


def test_by_step_time_a_guaranteed_job_keeps_its_speed_and_the_other_has_the_rest() -> None:
    machine = Machine(0.6)
    machine.share(STEP_TIME)
    assert machine.rate == LEAST, "at once, before its step is known"
    machine.run(60.0)
    rates = []
    for _ in range(60):
        machine.run(1.0)
        rates.append(machine.rate)
        assert machine.loss <= 0.06, "one step of the rate beyond what is tolerated"
    assert 0.3 <= sum(rates) / len(rates) <= 0.45


def test_by_arrival_rate_it_settles_where_the_production_job_has_lost_three_percent() -> None:
    machine = Machine(0.7)
    machine.share(ARRIVAL_RATE)
    machine.run(90.0)
    rates = []
    for _ in range(60):
        machine.run(1.0)
        rates.append(machine.rate)
        assert machine.loss < 0.04
    assert 0.27 <= sum(rates) / len(rates) <= 0.34


def test_when_the_production_job_is_over_the_rate_grows_by_half_until_the_device_is_full() -> None:
    machine = Machine(0.7)
    machine.share(ARRIVAL_RATE)
    machine.run(90.0)
    machine.running.discard(FIRM)
    machine.pacing.drop(FIRM, machine.now)
    before, grown = machine.rate, list[float]()
    while machine.rate < 1.0:
        machine.run(1.0)
        grown.append(machine.rate)
    assert len(grown) <= 6
    assert grown == sorted(grown)
    assert grown[0] > before
    assert grown[1] == pytest.approx(min(grown[0] * 1.5, 1.0))
    assert machine.pacing.due == float("inf"), "nothing is left to look at"


def test_by_step_time_it_has_all_at_once_when_the_guaranteed_job_is_over_or_suspended() -> None:
    for leaves in (Pacing.drop, lambda pacing, key, now: pacing.suspend(key, True, now)):
        machine = Machine(0.6)
        machine.share(STEP_TIME)
        machine.run(20.0)
        assert machine.rate < 0.6
        leaves(machine.pacing, FIRM, machine.now)
        machine.running.discard(FIRM)
        machine.run(0.5)
        assert machine.rate == 1.0


def test_a_job_that_does_not_keep_to_its_rate_by_itself_is_held() -> None:
    machine = Machine(0.6, obeys=lambda rate: rate.part if rate.held else 1.0)
    machine.share(STEP_TIME)
    assert machine.told[-1].held, "while a step alone is measured nobody is trusted"
    machine.run(60.0)
    assert machine.told[-1].held
    assert machine.loss <= 0.06
    honest = Machine(0.6)
    honest.share(STEP_TIME)
    honest.run(60.0)
    assert not honest.told[-1].held


def test_a_guaranteed_job_whose_steps_grow_by_themselves_starves_nobody() -> None:
    """It takes ten percent longer from some time on: what a step takes alone is seen again."""
    for control in (STEP_TIME, ARRIVAL_RATE):
        machine = Machine(0.6)
        machine.share(control)
        machine.run(60.0)
        machine.slower = 1.1
        machine.run(120.0)
        rates = []
        for _ in range(60):
            machine.run(1.0)
            rates.append(machine.rate)
        assert sum(rates) / len(rates) > 0.2


def test_a_limit_is_kept_also_by_a_job_that_says_that_it_paces_itself() -> None:
    pacing = Pacing()
    pacing.add(FIRM, [0], Terms(FIRM, 0.3, 0.3), 0.0)
    assert pacing.look(0.0) == [Rate(FIRM, 0.3, held=True)]


def test_far_too_slow_divides_the_rate_and_starts_slowly_again() -> None:
    machine = Machine(0.7)
    machine.share(ARRIVAL_RATE)
    machine.run(60.0)
    before, machine.demand = machine.rate, 0.95
    machine.run(2.0)
    assert machine.rate == pytest.approx(before / RESET, rel=0.6)


def test_beside_a_job_that_tells_no_steps_it_has_a_tenth() -> None:
    pacing = Pacing()
    pacing.add(LOOSE, [0], None, 0.0)
    pacing.give(Terms(LOOSE, 0.0, 1.0, STEP_TIME), 0.0)
    pacing.add(FIRM, [0], None, 0.0)
    assert pacing.look(1.0)[0].part == LEAST
    assert pacing.look(11.0) == [Rate(LOOSE, UNMEASURED, held=True)]


def test_others_devices_are_nobodys_business() -> None:
    pacing = Pacing()
    pacing.add(LOOSE, [0, 1], None, 0.0)
    pacing.give(Terms(LOOSE, 0.0, 1.0, STEP_TIME), 0.0)
    pacing.add(FIRM, [2], None, 0.0)
    assert {rate.part for rate in pacing.look(0.0)} == {1.0}
    pacing.add(THIRD, [1], None, 1.0)
    assert [(rate.key, rate.part) for rate in pacing.look(1.0) if rate.part < 1] == [(LOOSE, LEAST)]


def test_requests_and_limits_divide_the_time_as_tokens_do() -> None:
    pacing = Pacing()
    pacing.add(FIRM, [0], Terms(FIRM, 0.5, 0.6), 0.0)
    assert pacing.look(0.0) == [Rate(FIRM, 0.6, held=True)], "alone, its limit"
    pacing.add(THIRD, [0], Terms(THIRD, 0.2, 0.9), 1.0)
    told = {rate.key: rate.part for rate in pacing.look(1.0)}
    assert told == {FIRM: pytest.approx(0.5), THIRD: pytest.approx(0.5)}


def test_terms_that_are_withdrawn_leave_the_job_its_devices() -> None:
    pacing = Pacing()
    pacing.add(LOOSE, [0], Terms.of(LOOSE, {"request": 0.0, "control": STEP_TIME}), 0.0)
    pacing.add(FIRM, [0], None, 0.0)
    assert [rate.part for rate in pacing.look(0.0) if rate.key == LOOSE] == [LEAST]
    pacing.give(Terms.of(LOOSE, {"request": WITHDRAWN, "control": STEP_TIME}), 1.0)
    assert pacing.look(1.0) == [Rate(LOOSE, 1.0)]


@pytest.mark.parametrize(
    "knobs",
    [
        {"request": 2.0}, {"request": -0.5}, {"request": float("nan")}, {"request": "much"},
        {"request": 0.5, "limit": 0.4}, {"request": 0.0, "limit": 0.0},
        {"request": 0.0, "control": "kindly"}, {"request": 0.0, "settle_s": float("inf")},
    ],
)  # fmt: skip
def test_terms_that_make_no_sense_are_none(knobs: dict[str, float | str]) -> None:
    with pytest.raises(ValueError, match=r"terms of sharing|could not convert"):
        Terms.of(LOOSE, knobs)


def test_a_supervisor_that_is_there_again_is_told_again() -> None:
    pacing = Pacing()
    pacing.add(FIRM, [0], Terms(FIRM, 0.5, 0.6), 0.0)
    assert pacing.look(0.0)
    assert not pacing.look(1.0)
    pacing.add(FIRM, [0], Terms(FIRM, 0.5, 0.6), 2.0)
    assert pacing.due == 2.0
    assert pacing.look(2.0) == [Rate(FIRM, 0.6, held=True)]
