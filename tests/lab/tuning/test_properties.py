"""What holds for recipes over trials, whatever the curves are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.lab.tuning.result import per_trial
from ganger.mechanisms.tuning import asynchronous, halving
from ganger.sim.physics import Costs
from ganger.workloads.curves.table import CurveTable
from lab.tuning.searches import Searched, experiment, searched, table

ETA = 3
NAN = math.nan


@st.composite
def curves(draw: Any) -> CurveTable:
    """Three to twelve configurations of five epochs: any values, also equal ones and some that
    break down, and any speeds."""
    count = draw(st.integers(3, 12))
    values = st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, NAN])
    rows = draw(st.lists(st.lists(values, min_size=5, max_size=5), min_size=count, max_size=count))
    seconds = draw(st.lists(st.integers(1, 7), min_size=count, max_size=count))
    return table(*rows, seconds=[float(each) for each in seconds])


def rank(value: float) -> float:
    """The less the better; a trial that broke down is the worst."""
    return math.inf if math.isnan(value) else value


def rungs(found: Searched) -> Iterator[tuple[float, int, int, float, list[tuple[float, int]]]]:
    """Each time that a trial comes to a rung: when, who, to which rung (0: epoch 1; 1: epoch 3),
    how bad it was, and what has come there by then, itself included, the best first."""
    came: list[dict[int, float]] = [{}, {}]
    for step in found.steps:
        for trial, epoch, value in step.reports:
            broken = value is None
            for rung, goal in enumerate((1.0, 3.0)):
                before = rung == 0 or trial in came[rung - 1]
                if trial not in came[rung] and before and (epoch >= goal or broken):
                    if broken and rung == 0 and epoch > 1.0:
                        continue
                    bad = math.inf if value is None else value
                    came[rung][trial] = bad
                    ranked = sorted((each, job) for job, each in came[rung].items())
                    yield step.at, trial, rung, bad, ranked
                    break


@given(curves(), st.integers(1, 4))
def test_where_trials_are_stopped_one_goes_on_if_and_only_if_it_is_among_the_best(
    source: CurveTable, parallelism: int
) -> None:
    found = searched(
        experiment(parallelism, trials=len(source), epochs=5), source, f"tune.asha(eta={ETA})"
    )
    stopped = {(at, trial) for at, what, trial in found.actions() if what in ("retired", "retire")}
    for at, trial, rung, bad, ranked in rungs(found):
        among = ranked.index((bad, trial)) < math.ceil(len(ranked) / ETA)
        ends = (at, trial) in stopped
        if bad < math.inf:
            assert among is not ends, (at, trial, rung, ranked)
        else:
            assert ends, "one that broke down never goes on"


@given(curves(), st.integers(1, 4))
def test_where_trials_are_promoted_no_more_than_one_in_eta_have_left_a_rung_and_the_best(
    source: CurveTable, parallelism: int
) -> None:
    """At each promotion: of n that are in a rung, at most floor(n / eta) have left it, and the one
    that leaves is among the best floor(n / eta) at that moment."""
    recipe = f"tune.asha(eta={ETA},variant=promote)"
    found = searched(experiment(parallelism, trials=len(source), epochs=5), source, recipe)
    check_promotions(found)


def check_promotions(found: Searched, least: int = 0) -> None:
    """Raise AssertionError if a trial left a rung that should not have; at `least` so many may."""
    came: list[dict[int, float]] = [{}, {}]
    gone: list[set[int]] = [set(), set()]
    at_rung: dict[int, int] = {}
    for step in found.steps:
        stays = list[int]()
        for trial, epoch, value in step.reports:
            rung = at_rung.get(trial, 0)
            if rung < 2 and (value is None or epoch >= (1.0, 3.0)[rung]):
                came[rung][trial] = math.inf if value is None else value
                stays.append(trial)
        leave = {trial for what, trial in step.actions if what != "ask"}
        starts = [trial for what, trial in step.actions if what == "start"]
        for trial in [*starts, *(trial for trial in stays if trial not in leave)]:
            if trial not in came[at_rung.get(trial, 0)]:
                continue
            rung = at_rung.get(trial, 0)
            ranked = sorted((bad, job) for job, bad in came[rung].items())
            allowed = max(len(ranked) // ETA, least)
            gone[rung].add(trial)
            assert len(gone[rung]) <= allowed, (step.at, trial, ranked)
            assert ranked.index((came[rung][trial], trial)) < allowed, (step.at, trial, ranked)
            at_rung[trial] = rung + 1


def check_halving(found: Searched, source: CurveTable) -> None:
    """Raise AssertionError unless just the best third of the first rung trained for longer."""
    check_promotions(found, least=1)
    first = [rank(source.curve(at).values["loss"][0]) for at in range(len(source))]
    best = sorted(range(len(source)), key=lambda at: (first[at], at))
    goes_on = set(best[: max(len(source) // ETA, 1)])
    trained = {at for at, epochs in enumerate(found.epochs()) if epochs > 1}
    assert trained == {at for at in goes_on if first[at] < math.inf}


@given(curves(), st.integers(1, 4))
def test_halving_lets_the_best_third_of_all_go_on(source: CurveTable, parallelism: int) -> None:
    search = experiment(parallelism, trials=len(source), epochs=5)
    check_halving(searched(search, source, f"tune.sha(eta={ETA})"), source)


def _at_random(self: Any, race: Any) -> Any:
    """Promotes whoever is last by number, good or bad."""
    for rung, came in enumerate(race.rungs):
        if self.rungs.epoch(rung) >= self.rungs.longest:
            continue
        still = sorted(set(came) - race.gone[rung])
        if still and len(race.gone[rung]) < len(came) // self.rungs.eta:
            race.gone[rung] = race.gone[rung] | {still[-1]}
            if not race.is_over(still[-1]):
                return still[-1], self.rungs.epoch(rung + 1)
    return None


FALLING = table(*([1.0 + 0.1 * at - 0.01 * epoch for epoch in range(5)] for at in range(9)))


def test_a_recipe_that_promotes_at_random_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asynchronous.Promote, "resumes", _at_random)
    recipe = f"tune.asha(eta={ETA},variant=promote)"
    found = searched(experiment(3, trials=9, epochs=5), FALLING, recipe)
    with pytest.raises(AssertionError, match="assert"):
        check_promotions(found)


def test_a_halving_that_keeps_the_worst_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = halving.SuccessiveHalving._badness
    monkeypatch.setattr(halving.SuccessiveHalving, "_badness", lambda *words: -right(*words))
    found = searched(experiment(3, trials=9, epochs=5), FALLING, f"tune.sha(eta={ETA})")
    with pytest.raises(AssertionError, match="assert"):
        check_halving(found, FALLING)


def test_a_good_trial_that_comes_late_goes_on_if_that_is_wanted() -> None:
    """Three at once, of which the first to come goes on when three have; the slow one is better."""
    source = table(*([value] * 5 for value in (1.0, 4.0, 2.0, 3.0)), seconds=[9.0, 1.0, 1.0, 1.0])
    search = experiment(2, trials=4, epochs=5)
    strict = searched(search, source, f"tune.asha(eta={ETA},variant=promote)")
    assert strict.epochs() == [1, 1, 3, 1], "of four one has left, the best of three when it did"
    paper = searched(search, source, f"tune.asha(eta={ETA},variant=promote,beyond=true)")
    assert paper.epochs() == [3, 1, 3, 1]


RECIPES = (
    "tune.random",
    "tune.sha",
    "tune.asha",
    "tune.asha(variant=promote)",
    "tune.median(least=1)",
    "tune.pbt(every=2,trials=3)",
    "hypersched(eta=2,most_gpus=3)",
    "hyperdrive(every=1,target=0.2)",
    "hermes",
    "rubberband(epoch=3s)",
    "seer(rounds=2,most_gpus=2)",
    "fluid(tuner=stop,most_gpus=3,packed=1)",  # of trials that share, each has served
    "easeml(patience=1)",
)


@given(
    curves(),
    st.integers(1, 4),
    st.sampled_from(RECIPES),
    st.sampled_from(["deadline", "gpu_hours", "epochs"]),
    st.integers(1, 30),
    st.sampled_from([0, 2]),
)
def test_no_limit_and_no_grant_is_ever_exceeded(
    source: CurveTable, parallelism: int, recipe: str, kind: str, amount: int, saving: int
) -> None:
    """Time and GPU-hours to the microsecond, and what saving takes; of epochs, no more are reported
    than there are."""
    given_up: dict[str, Any] = {"deadline": f"{amount}s"}
    if kind != "deadline":
        share = amount / 3600 if kind == "gpu_hours" else float(amount)
        given_up = {"budget": {kind: share}}
    chosen = experiment_with(parallelism, len(source), given_up)
    costs = Costs(checkpoint=saving * 1_000_000)
    try:
        found = searched(chosen, source, recipe, costs=costs)
    except BadInput as refused:
        if "no trial reports before" not in str(refused):
            raise
        return
    metrics = found.run.metrics
    jobs = found.kernel.jobs
    ended = int(jobs.finished[: jobs.n].max())
    if kind == "deadline":
        assert ended <= (amount + saving) * 1_000_000
        assert metrics["deadline_kept"] is True
    elif kind == "gpu_hours":
        held = int(jobs.held[0])
        assert held <= (amount + parallelism * saving) * 1_000_000
        assert metrics["budget_kept"] is True
    else:
        assert reported_before_the_last_instant(found) < amount
    assert int(jobs.served[1 : jobs.n].sum()) <= int(jobs.held[0])
    assert (jobs.phase[: jobs.n] >= 7).all(), "nothing goes on"


def reported_before_the_last_instant(found: Searched) -> float:
    """The epochs of all trials together that were reported before the last reports came."""
    last = max(step.at for step in found.steps if step.reports)
    trained: dict[int, float] = {}
    for step in found.steps:
        for trial, epoch, _ in step.reports:
            if step.at < last:
                trained[trial] = max(epoch, trained.get(trial, 0.0))
    return sum(trained.values())


def experiment_with(parallelism: int, trials: int, limits: dict[str, Any]) -> Any:
    """A search that one thing limits."""
    from ganger.workloads.experiment.document import Budget

    if "budget" in limits:
        limits = {"budget": Budget(**limits["budget"])}
    return experiment(parallelism, trials=trials, epochs=5, **limits)


@given(curves(), st.integers(1, 4), st.sampled_from(RECIPES), st.integers(0, 3))
def test_the_same_seed_gives_the_same_run(
    source: CurveTable, parallelism: int, recipe: str, seed: int
) -> None:
    search = experiment(parallelism, searcher="random", epochs=5)
    first, second = (searched(search, source, recipe, seed) for _ in range(2))
    assert first.steps == second.steps
    assert per_trial([first.run]) == per_trial([second.run])
