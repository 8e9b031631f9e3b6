"""HyperSched by hand: when trials cease to begin, who grows, and what its parts change."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ganger.recipes.tuning.hypersched import grows, last_start
from ganger.sim.physics import Costs
from ganger.workloads.experiment.document import Resources
from lab.tuning.searches import Searched, experiment, searched, table

FLAT = table(*([1.0 + 0.1 * at] * 200 for at in range(8)))
"""Eight configurations, 200 epochs of one second; the earlier, the better."""
ROOT = [math.sqrt(gpus) for gpus in range(1, 9)]


def run(
    recipe: str = "hypersched", parallelism: int = 4, curves: Any = FLAT, **more: Any
) -> Searched:
    costs = more.pop("costs", Costs())
    resources = Resources(most_gpus=4, scaling=more.pop("scaling", ROOT))
    search = experiment(parallelism, trials=8, resources=resources, **more)
    return searched(search, curves, recipe, costs=costs)


def test_the_last_trial_begins_when_it_can_still_come_to_something() -> None:
    """The card: the longest has taken 20 s, a start takes 5 s, an epoch 2 s: not in the last
    60 s."""
    assert last_start(20.0, 5.0, 2.0, 4, 100.0) == 60.0
    assert last_start(20.0, 5.0, 0.5, 4, 100.0) == 50.0, "to its end, if that takes less"


def test_a_trial_grows_only_if_it_gains_what_a_start_costs() -> None:
    """The card: a start takes 10 s, speed is the root: with 100 s left 1 to 4 gains 1.8; with 30 s
    left 1 to 2 loses."""
    assert grows(100.0, 10.0, 2.0)
    assert not grows(30.0, 10.0, math.sqrt(2.0))
    assert grows(110.0, 10.0, 1.22), "1.109 times as much"
    assert not grows(110.0, 10.0, 1.21), "exactly 1.1"
    assert not grows(0.0, 10.0, 8.0)
    assert grows(math.inf, 10.0, 1.11), "no deadline: only speed counts"


def sizes(found: Searched) -> list[tuple[float, int]]:
    """When which trial got other GPUs."""
    return [(at, trial) for at, what, trial in found.actions() if what == "resize"]


def test_the_best_trial_gets_the_gpus_of_those_that_have_left() -> None:
    """Eight on four GPUs. All but the first are set aside at epoch 1. Then all have begun, so
    that the first grows at its fifth report: it has 4 GPUs, on which it is twice as fast."""
    found = run(deadline="60s")
    assert sizes(found) == [(5, 0)]
    assert found.epochs()[0] == 5 + 2 * 55
    assert found.epochs()[3:] == [1] * 5


def test_a_trial_that_has_grown_is_settled_again_after_five_reports() -> None:
    """It gets a second GPU in the middle of its ninth epoch; of the 4.5 epochs to the fifth report
    after that each takes 1 / sqrt(2) s. One that comes free before waits."""
    ends = [1.0, 1.5, 2.0, 2.5, 1.0, 1.5, 2.0, 2.5]
    late = table(*([1.0 + 0.1 * at] * 200 for at in range(8)), seconds=ends)
    found = run(parallelism=3, curves=late, deadline="60s")
    assert sizes(found) == [(8.5, 0), (pytest.approx(8.5 + 4.5 / math.sqrt(2.0)), 0)]


def test_no_trial_grows_if_that_is_switched_off() -> None:
    found = run("hypersched(dealing=nobody)", deadline="60s")
    assert sizes(found) == []
    assert found.epochs()[0] == 60


@pytest.mark.parametrize(
    ("dealing", "trained"),
    [
        ("uniform", [115, 115]),
        ("softmax", [127, 100]),
        ("top", [150, 60]),
    ],
)
def test_gpus_are_dealt_by_the_rule(dealing: str, trained: list[int]) -> None:
    """Two are the best of eight, as good as each other at the rungs, and the first is better by 0.5
    elsewhere: at 5 s six of eight GPUs are free. Evenly, four each; by the exponential (0.62 and
    0.38 of six, rounded down, and the rest to the first), five and three; all to the first, seven
    and one. For the other 55 s they train the root as fast."""
    first = [1.0 if epoch in (1, 4, 16, 64) else 0.5 for epoch in range(1, 201)]
    pair = table(first, [1.0] * 200, *([2.0] * 200 for _ in range(6)))
    search = experiment(8, trials=8, resources=Resources(most_gpus=8, scaling=ROOT), deadline="60s")
    found = searched(search, pair, f"hypersched(dealing={dealing})")
    assert found.epochs()[:2] == trained


def test_chance_deals_all_that_is_free() -> None:
    pair = table(*([1.0] * 200 for _ in range(2)), *([2.0] * 200 for _ in range(6)))
    search = experiment(8, trials=8, resources=Resources(most_gpus=8), deadline="20s")
    trained = {
        tuple(searched(search, pair, "hypersched(dealing=random)", seed).epochs()[:2])
        for seed in range(6)
    }
    assert len(trained) > 1
    assert {sum(each) for each in trained} == {10 + 8 * 15}


def test_no_trial_begins_near_the_deadline() -> None:
    """Two at once, 14 s; every trial is the worst of its rung at epoch 1 or at epoch 4. At 4 s one
    has run for 4 s, so that none begins after 14 - 4 x 4 s: the last that is left goes on, though
    others were better where it was. Without that end, trials begin until there is no time."""
    curves = table(*([2.0 - 0.1 * at] + [1.0 + 0.1 * at] * 199 for at in range(8)))
    found = run(parallelism=2, curves=curves, deadline="14s")
    begun = [trial.started_seconds for trial in found.run.trials]
    assert begun == [0, 0, 2]
    assert found.run.metrics["seconds"] == 14
    late = run("hypersched(ends=false)", 2, curves, deadline="14s")
    assert max(trial.started_seconds for trial in late.run.trials) == 12


def test_a_trial_is_judged_again_at_a_rung_that_it_has_passed() -> None:
    """The first comes to epoch 1 alone, at 1 s; three better ones come there at 2.5 s. Judged
    again, it leaves at its next report; judged once, it is still alone at epoch 4."""
    early = table([2.0] * 200, *([1.0] * 200 for _ in range(3)), seconds=[1.0, 2.5, 2.5, 2.5])
    search = experiment(4, trials=4, resources=Resources(most_gpus=1), deadline="20s")
    assert searched(search, early, "hypersched").epochs()[0] == 3
    assert searched(search, early, "hypersched(again=false)").epochs()[0] == 20


def test_a_trial_that_was_set_aside_goes_on_when_it_is_among_the_best_again() -> None:
    """Two at once, the best one in two. The second is worse than the first and leaves; a worse
    one takes its place, so that it is as good as the middle of three."""
    curves = table(*([value] * 200 for value in (1.0, 2.0, 3.0, 4.0)))
    search = experiment(2, trials=4, resources=Resources(most_gpus=1), deadline="20s")
    found = searched(search, curves, "hypersched(eta=2)")
    second = [(at, what) for at, what, trial in found.actions() if trial == 1 and what != "ask"]
    assert second[:3] == [(0, "start"), (1, "paused"), (2, "start")]


def test_it_is_not_asha_that_stops_or_promotes() -> None:
    """Its nearest neighbours leave the GPUs of trials that have left idle."""
    ours = run(deadline="60s")
    for variant in ("stop", "promote"):
        theirs = run(f"tune.asha(eta=4,epochs=100,variant={variant})", deadline="60s")
        assert max(theirs.epochs()) <= 60 < max(ours.epochs())


def test_starting_up_is_what_was_observed() -> None:
    """A start takes 10 s, four times one epoch's: the first grows at its fifth report only if what
    is left is long enough: 2 (left - 10) > 1.1 left from 22.2 s on."""
    costs = Costs(start=10_000_000, restore=10_000_000)
    for deadline, grown in (("43s", []), ("55s", [(32, 0)])):
        found = run(deadline=deadline, costs=costs)
        assert sizes(found) == grown
