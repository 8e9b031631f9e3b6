"""What each recipe for trials does with a few trials, worked out by hand."""

from __future__ import annotations

import math

import pytest

from ganger.core.errors import BadInput
from ganger.mechanisms.tuning.brackets import brackets
from ganger.mechanisms.tuning.racing import Rungs
from ganger.workloads.experiment.document import Resources
from lab.tuning.searches import experiment, searched, table

DOWN = [[1.0 + 0.1 * at - 0.01 * epoch for epoch in range(9)] for at in range(9)]
"""Nine configurations, nine epochs; the earlier, the better at every epoch."""


def test_random_search_trains_every_trial_to_its_end_as_many_at_once_as_there_is_room_for() -> None:
    found = searched(experiment(2, trials=5), table(*DOWN[:5]), "tune.random")
    assert found.epochs() == [9] * 5
    assert [trial.started_seconds for trial in found.run.trials] == [0, 0, 9, 9, 18]
    assert found.run.metrics["seconds"] == 27
    assert found.run.metrics["gpu_hours"] == 2 * 27 / 3600


def test_trials_of_two_gpus_hold_two_each() -> None:
    search = experiment(2, trials=3, resources=Resources(gpus=2))
    found = searched(search, table(*DOWN[:3]), "tune.random")
    assert found.run.cluster == "4 GPUs"
    assert found.run.metrics["seconds"] == 18
    assert found.run.metrics["gpu_hours"] == 4 * 18 / 3600
    assert found.run.metrics["trial_gpu_hours"] == pytest.approx(3 * 2 * 9 / 3600)


@pytest.mark.parametrize("most", [4, 9])
def test_random_search_trains_no_trial_for_longer_than_is_said(most: int) -> None:
    found = searched(experiment(2, trials=3, epochs=most), table(*DOWN[:3]), "tune.random")
    assert found.epochs() == [most] * 3


def test_the_last_trial_that_is_asked_for_is_run_also_where_no_other_runs() -> None:
    """One at a time: when one ends, nothing runs until the next one comes."""
    found = searched(experiment(1, trials=3), table(*DOWN[:3]), "tune.random")
    assert found.epochs() == [9] * 3
    found = searched(experiment(1, trials=3), table(*DOWN[:3]), "tune.asha")
    assert len(found.run.trials) == 3


def test_asha_that_stops_compares_a_trial_with_those_that_were_there_before() -> None:
    """One at a time, eta 3, rungs at 1, 3, 9: the best comes first, so that it passes all rungs;
    of n at the first rung the best ceil(n / 3) go on: 1 of 1, 1 of 2, 1 of 3, 2 of 4."""
    order = [0, 3, 2, 1, 4]
    found = searched(
        experiment(1, trials=5), table(*(DOWN[at] for at in order)), "tune.asha(epochs=9)"
    )
    assert found.epochs() == [9, 1, 1, 3, 1]
    states = [trial.state for trial in found.run.trials]
    assert states == ["complete", *["stopped"] * 4]


def test_asha_that_stops_lets_whoever_comes_in_a_bad_order_go_on() -> None:
    """Each is better than all before it, so that none is stopped: the price of not waiting."""
    found = searched(experiment(1, trials=4), table(*DOWN[3::-1]), "tune.asha(epochs=9)")
    assert found.epochs() == [9] * 4


def test_asha_that_promotes_runs_new_trials_until_a_third_may_go_on() -> None:
    """One at a time, as in the paper: three at the first rung, then the best of them to epoch 3,
    where it is one of one and waits for two others, and so on. Those that are set aside at the
    end have completed."""
    found = searched(
        experiment(1, trials=6), table(*DOWN[:6]), "tune.asha(epochs=9,variant=promote)"
    )
    assert found.actions() == [
        (0, "ask", 1),
        (0, "start", 0),
        (1, "paused", 0),
        (1, "ask", 1),
        (1, "start", 1),
        (2, "paused", 1),
        (2, "ask", 1),
        (2, "start", 2),
        (3, "paused", 2),
        (3, "start", 0),
        (5, "paused", 0),
        (5, "ask", 1),
        (5, "start", 3),
        (6, "paused", 3),
        (6, "ask", 1),
        (6, "start", 4),
        (7, "paused", 4),
        (7, "ask", 1),
        (7, "start", 5),
        (8, "paused", 5),
        (8, "start", 1),
        (10, "paused", 1),
        *((10, "retire", trial) for trial in (0, 2, 3, 4, 5)),
    ]
    assert found.epochs() == [3, 3, 1, 1, 1, 1]


def test_asha_promotes_the_best_of_the_highest_rung_first() -> None:
    found = searched(experiment(1, trials=9), table(*DOWN), "tune.asha(epochs=9,variant=promote)")
    assert found.epochs() == [9, 3, 3, 1, 1, 1, 1, 1, 1]
    starts = [trial for _, what, trial in found.actions() if what == "start"]
    assert starts == [0, 1, 2, 0, 3, 4, 5, 1, 6, 7, 8, 2, 0]


def test_halving_ends_at_the_most_epochs_that_a_trial_trains() -> None:
    """9 x 1, 3 x 3, then one alone: to 5, not to 9."""
    found = searched(experiment(9, trials=9, epochs=5), table(*DOWN), "tune.sha")
    assert found.epochs() == [5, 3, 3, 1, 1, 1, 1, 1, 1]
    found = searched(experiment(9, trials=9, epochs=3), table(*DOWN), "tune.sha")
    assert found.epochs() == [3, 3, 3, 1, 1, 1, 1, 1, 1], "all of the last rung end with it"


def test_the_brackets_of_hyperband_are_those_of_its_algorithm() -> None:
    """R = 81, eta = 3. (Table 1 of the paper lists 27, 9, 6, 5 for the last four: it rounds
    (s_max + 1) / (s + 1) down first. Algorithm 1 gives these.)"""
    assert brackets(81.0, 3, 1.0) == [(81, 1.0), (34, 3.0), (15, 9.0), (8, 27.0), (5, 81.0)]
    assert brackets(9.0, 3, 1.0) == [(9, 1.0), (5, 3.0), (3, 9.0)]
    assert brackets(1.0, 3, 1.0) == [(1, 1.0)]


def test_hyperband_runs_one_bracket_after_the_other() -> None:
    """Nine from epoch 1, five from epoch 3, three to the end; the trials of a bracket race among
    themselves only."""
    curves = [*DOWN, *DOWN[:5], *DOWN[:3]]
    found = searched(experiment(9, trials=17), table(*curves), "tune.hyperband(epochs=9)")
    assert found.epochs() == [9, 3, 3, *[1] * 6, 9, *[3] * 4, 9, 9, 9]
    starts = [trial.started_seconds for trial in found.run.trials]
    assert starts == [*[0] * 9, *[9] * 5, *[18] * 3]
    assert found.run.metrics["seconds"] == 27
    twice = searched(
        experiment(9, trials=34), table(*curves, *curves), "tune.hyperband(epochs=9,rounds=2)"
    )
    assert twice.epochs() == 2 * found.epochs()


def test_the_median_rule_compares_the_best_with_the_means_of_others() -> None:
    """Means after epoch 1 of the first three: 1, 3, 5. The fourth reports 4 > 3 and ends; the
    fifth reports 3, which is not worse than the median of 1, 3, 4, 5, and goes on. After epoch 2
    the means are 1, 3, 5 still: the best that it has reported is 3, so that it goes on again."""
    flat = [[value] * 3 for value in (1.0, 3.0, 5.0, 4.0, 3.0)]
    found = searched(experiment(1, trials=5), table(*flat), "tune.median(least=3)")
    assert found.epochs() == [3, 3, 3, 1, 3]
    patient = searched(experiment(1, trials=5), table(*flat), "tune.median(least=3,grace=2)")
    assert patient.epochs() == [3, 3, 3, 2, 3]
    few = searched(experiment(1, trials=5), table(*flat), "tune.median(least=4)")
    assert few.epochs() == [3, 3, 3, 3, 3], "the fourth has three others, the fifth is no worse"
    early = table(*flat[:3], [3.0, 9.0, 9.0])
    found = searched(experiment(1, trials=4), early, "tune.median(least=3)")
    assert found.epochs() == [3, 3, 3, 3], "what counts of a trial is its best"
    seldom = searched(experiment(1, trials=5), table(*flat), "tune.median(least=3,every=2,grace=2)")
    assert seldom.epochs() == [3, 3, 3, 2, 3]


def test_an_accuracy_is_stopped_below_the_median_of_accuracies() -> None:
    flat = [[value] * 3 for value in (0.1, 0.3, 0.5, 0.2, 0.4)]
    found = searched(experiment(1, trials=5, mode="max"), table(*flat), "tune.median(least=3)")
    assert found.epochs() == [3, 3, 3, 1, 3]


def test_population_based_training_puts_a_copy_of_the_best_in_the_place_of_the_worst() -> None:
    """Four at once, every 2 epochs, the worst and the best quarter. The trials come to epoch 2 in
    their order: each is compared with those that were there before. The fourth is the worst of
    four: it ends, and a copy of the first goes on from epoch 2."""
    flat = table(*([value] * 6 for value in (1.0, 2.0, 3.0, 4.0)))
    copies = []
    for seed in range(20):
        search = experiment(4, trials=4, epochs=6)
        found = searched(search, flat, "tune.pbt(every=2,part=0.25)", seed)
        trials = found.run.trials
        assert [trial.epochs for trial in trials[:4]] == [6, 6, 6, 2]
        assert (2, "retired", 3) in found.actions()
        assert trials[4].started_seconds == 2
        assert found.run.metrics["seconds"] == 6, "the copy goes on from epoch 2"
        copies.append(trials[4].configuration)
    assert copies.count("c0") >= 12, "near the first, but for one parameter in four"
    assert len(set(copies)) > 1


def test_a_trial_that_breaks_down_ends_at_once_and_is_the_worst_of_its_rung() -> None:
    nan = math.nan
    curves = [[nan] * 9, DOWN[0], DOWN[2], DOWN[1]]
    found = searched(experiment(1, trials=4), table(*curves), "tune.asha(epochs=9)")
    assert found.epochs() == [1, 9, 1, 3], "two of four go on, and the one that broke down counts"
    assert [trial.state for trial in found.run.trials] == [
        "diverged",
        "complete",
        "stopped",
        "stopped",
    ]
    late = [[1.0, 0.9, *[nan] * 7], *DOWN[:2]]
    for recipe in (
        "tune.random",
        "tune.asha(epochs=9)",
        "tune.median",
        "tune.pbt(epochs=9,every=3)",
    ):
        found = searched(experiment(3, trials=3), table(*late), recipe)
        assert found.run.trials[0].epochs == 3, recipe
        assert found.run.trials[0].state == "diverged", recipe


def test_rungs_are_found_again_from_their_epochs() -> None:
    rungs = Rungs(2.0, 3, 50.0)
    assert [rungs.epoch(rung) for rung in range(5)] == [2, 6, 18, 50, 50]
    assert [rungs.at(rungs.epoch(rung)) for rung in range(4)] == [0, 1, 2, 3]
    assert Rungs(1.0, 3, 81.0).at(81.0) == 4
    assert Rungs(5.0, 3, 3.0).at(3.0) == 0


def test_reports_that_pass_over_a_rung_count_there() -> None:
    """Reports every second epoch, rungs at 1, 3, 9: at 2 the first is judged, at 4 the second."""
    curves = table(*DOWN[:4])
    sparse = type(curves)(
        curves.where,
        curves.labels,
        curves.parameters,
        curves.starts,
        curves.epochs * 2,
        curves.ends,
        curves.values,
    )
    found = searched(experiment(4, trials=4), sparse, "tune.sha")
    assert found.epochs() == [18, 2, 2, 2]
    found = searched(experiment(1, trials=4), sparse, "tune.asha(epochs=9)")
    assert found.epochs() == [10, 2, 2, 2]


def test_more_trials_than_configurations_are_refused_before_the_search_begins() -> None:
    with pytest.raises(BadInput, match="starts 17 trials, and there are 9 configurations"):
        searched(experiment(9), table(*DOWN), "tune.hyperband(epochs=9)")
    found = searched(experiment(9, trials=100, searcher="random"), table(*DOWN), "tune.random")
    assert len(found.run.trials) == 9, "each configuration once"
