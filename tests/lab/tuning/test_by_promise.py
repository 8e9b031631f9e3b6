"""HyperDrive and Hermes by hand: which trials have slots, take turns, or end."""

from __future__ import annotations

import pytest

from ganger.recipes.tuning.hyperdrive import promising
from ganger.sim.physics import Costs
from lab.tuning.searches import experiment, searched, table

MINUTE = 60.0


def falling(*floors: float, epochs: int = 60) -> list[list[float]]:
    """Curves that fall as a power of the epochs to these floors."""
    return [[floor + 0.8 * (epoch + 1) ** -0.7 for epoch in range(epochs)] for floor in floors]


def test_the_slots_of_promising_trials_are_those_that_they_want_and_deserve() -> None:
    """The card: four slots, min(1, 3.6), min(2, 3.2), min(3, 1.2), min(4, 0.4): the second."""
    assert promising([0.1, 0.9, 0.3, 0.8], 4) == 0.8
    assert promising([0.9], 1) == 0.9
    assert promising([0.5, 0.5, 0.5], 4) == 0.5, "two are wanted by three of them"
    assert promising([], 4) > 1.0


def test_a_trial_that_will_not_reach_the_target_ends_and_one_that_does_ends_the_search() -> None:
    """Eight to floors of 0.9, 0.8, ... 0.2, two at once, and a target of 0.27, which only the last
    reaches, at its 33rd epoch: 0.2 + 0.8 x 33^-0.7 = 0.269. It is judged every 5."""
    curves = table(*falling(0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2))
    found = searched(experiment(2, trials=8, epochs=60), curves, "hyperdrive(target=0.27)")
    trained = found.epochs()
    assert trained[7] == 35
    assert max(trained[:7]) < 35
    assert sum(trained) < 8 * 60 / 3
    assert found.run.trials[7].ended_seconds == found.run.metrics["seconds"]
    assert {trial.state for trial in found.run.trials} == {"stopped"}


def test_a_search_ends_with_all_its_trials_when_one_reaches_the_target() -> None:
    """Three at once, all of which would; the first is there at 5 s."""
    curves = table(*([1.0 - 0.01 * epoch for epoch in range(60)] for _ in range(5)))
    found = searched(experiment(3, trials=5, epochs=60), curves, "hyperdrive(target=0.965)")
    assert found.epochs() == [5, 5, 5]
    assert found.run.metrics["seconds"] == 5


def test_an_accuracy_reaches_a_target_from_below_and_a_guess_is_killed() -> None:
    rising = [[0.9 - value for value in curve] for curve in falling(0.1, 0.5, epochs=40)]
    guess = [0.1] * 40
    search = experiment(1, trials=3, epochs=40, mode="max")
    found = searched(search, table(guess, *rising[::-1]), "hyperdrive(target=0.7,kill=0.11)")
    assert found.epochs()[0] == 5
    assert found.run.metrics["best"] >= 0.7
    alone = searched(search, table(guess, guess, guess), "hyperdrive(kill=0.09)")
    assert alone.epochs() == [40] * 3, "0.1 is better than that"


def test_without_a_target_trials_take_turns() -> None:
    """Three on one GPU, five epochs each, the one that waited longest next."""
    curves = table(*([1.0] * 15 for _ in range(3)))
    found = searched(experiment(1, trials=3, epochs=15), curves, "hyperdrive")
    starts = [(at, trial) for at, what, trial in found.actions() if what == "start"]
    assert starts == [(5.0 * at, at % 3) for at in range(9)]


def test_a_promising_trial_keeps_its_slot_while_others_take_turns() -> None:
    """The second comes to the target of 0.25 at its 53rd epoch. Of the others, which are noisy,
    that is less sure, and they share the other slot."""
    good = falling(0.2)[0]
    noisy = [value + 0.035 + 0.02 * (epoch % 2) for epoch, value in enumerate(good)]
    curves = table(noisy, good, noisy, noisy)
    found = searched(experiment(2, trials=4, epochs=60), curves, "hyperdrive(target=0.25)")
    paused = {trial for _, what, trial in found.actions() if what == "paused"}
    assert paused == {0, 2, 3}
    assert found.epochs()[1] == found.run.metrics["seconds"] == 55, "without a break"


def test_a_trial_that_cannot_come_there_before_the_deadline_ends() -> None:
    """The target needs 33 epochs, and there are 7 s."""
    curves = table(*falling(0.2))
    search = experiment(1, trials=1, epochs=60, deadline="7s")
    assert searched(search, curves, "hyperdrive(target=0.27)").epochs() == [5]
    search = experiment(1, trials=1, epochs=60, deadline="200s")
    assert searched(search, curves, "hyperdrive(target=0.27)").epochs() == [35]


SLOW = [[1.0 - 0.01 * (epoch + 1) for epoch in range(10)]] * 7
FAST = [1.0 - 0.09 * (epoch + 1) for epoch in range(10)]


@pytest.mark.parametrize(
    ("recipe", "minutes"), [("hermes", 13), ("tune.random", 40), ("hyperdrive(every=1)", 40)]
)
def test_hermes_finishes_the_best_trial_first_though_it_came_last(
    recipe: str, minutes: int
) -> None:
    """The card: eight trials of ten minutes, two at once, the best one last. First come first
    served, and in turns, it is over at 40 min; Hermes lets each run for a minute, and then the
    best for nine."""
    curves = table(*SLOW, FAST, seconds=[MINUTE] * 8)
    found = searched(experiment(2, trials=8, epochs=10), curves, recipe)
    assert found.run.trials[7].ended_seconds == minutes * MINUTE
    assert found.epochs() == [10] * 8
    assert found.run.metrics["seconds"] == 40 * MINUTE


def test_hermes_suspends_a_trial_when_one_that_waits_converges_faster() -> None:
    """One GPU, two trials. In the first window falls count from 1.0, the worst first report: by 0.5
    and 0. Then the first rises, so that the second goes on, and falls by 0.2 each time."""
    first, second = [0.5, 0.6, 0.6, 0.6], [1.0, 0.8, 0.6, 0.4]
    found = searched(experiment(1, trials=2, epochs=4), table(first, second), "hermes")
    starts = [(at, trial) for at, what, trial in found.actions() if what == "start"]
    assert starts == [(0, 0), (1, 1), (2, 0), (3, 1), (6, 0)]


def test_a_longer_window_takes_longer_to_find_the_best_and_switches_less_often() -> None:
    """Eight windows of two minutes on two GPUs, and the best has eight of ten left."""
    curves = table(*SLOW, FAST, seconds=[MINUTE] * 8)
    found = searched(experiment(2, trials=8, epochs=10), curves, "hermes(window=2)")
    assert found.run.trials[7].ended_seconds == 16 * MINUTE


def test_going_on_takes_the_time_of_a_restart() -> None:
    costs = Costs(restore=2_000_000)
    curves = table(*SLOW[:2], FAST)
    found = searched(experiment(1, trials=3, epochs=10), curves, "hermes", costs=costs)
    assert found.run.metrics["seconds"] == 30 + 2 * 2, "two were set aside, each once"
