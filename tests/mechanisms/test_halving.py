"""Successive halving inside the grant of a search, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from bench import Bench
from ganger.core.errors import BadInput, InvariantError
from ganger.core.events import Evaluated, Finished, Released, Started, Submitted
from ganger.core.plan import AskAt, Spawn, Start, Stop
from ganger.core.profiles import Convergence, Profile, Profiles
from ganger.core.spec import JobSpec, Kind, Role, Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND
from ganger.lab.simulating.policies import load_policy
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.common.two_level import TwoLevel
from ganger.recipes import registry
from worlds import Diary, Work, cluster, job, trace_of


def search(gpus: int, least: int = 1, most: int = 9, lasts: float | None = None) -> Work:
    """A search that holds so many GPUs."""
    return job(
        "search",
        lasts=lasts,
        kind=Kind.TUNE,
        shape=Shape((Role(size=gpus, least=least, most=most),)),
    )


def curve(*values: float, metric: Any = "loss") -> Profile:
    """A configuration that reports these after 1, 2, ... epochs of one second."""
    epochs = tuple(float(at + 1) for at in range(len(values)))
    return Profile(convergence=Convergence(epochs, values, metric, change=0, seconds=1.0))


NINE = {
    f"c{at}": curve(*(0.1 * (at + 1) + 1.0 / epoch for epoch in range(1, 10))) for at in range(9)
}
"""Nine configurations; the lower the number, the better at every epoch."""


def declared(models: dict[str, Profile], gpus: int, inner: str, **more: Any) -> Any:
    """The run of a search whose trials the trace lists, one per configuration."""
    works = [
        search(gpus),
        *(
            job(
                model,
                lasts=len(profile.convergence.epochs if profile.convergence else ()),
                parent="search",
                model=model,
            )
            for model, profile in models.items()
        ),
    ]
    return played(works, gpus, inner, Profiles(models), **more)


def played(works: list[Work], gpus: int, inner: str, profiles: Profiles, **more: Any) -> Any:
    """The run, and its diary."""
    diary = Diary()
    kernels: list[Any] = []

    def journal(kernel: Any) -> Diary:
        kernels.append(kernel)
        return diary

    setup = Setup(profiles=profiles, inner=inner, validate=True, **more)
    run_one(trace_of(works), cluster(1, gpus), "fifo", setup, journal=journal)
    return kernels[0], diary


def seconds(kernel: Any) -> dict[str, float]:
    """By job: how long it ran."""
    jobs = kernel.jobs
    return {jobs.name(row): float(jobs.ran[row]) / SECOND for row in range(jobs.n)}


def test_nine_trials_three_of_them_one_of_those_as_the_paper_counts_it() -> None:
    """9 x 1 + 3 x (3 - 1) + 1 x (9 - 3) epochs on three GPUs: 3 + 2 + 6 seconds."""
    kernel, _ = declared(NINE, 3, "tune.sha(trials=1,eta=3,first=1)")
    took = seconds(kernel)
    assert took.pop("search") == 11
    assert took == {"c0": 9, "c1": 3, "c2": 3, **{f"c{at}": 1 for at in range(3, 9)}}
    assert kernel.jobs.phase[:10].tolist() == [Phase.FINISHED] * 10


@pytest.mark.parametrize("eta", [2, 3, 4])
def test_one_in_eta_goes_on_and_never_fewer_than_one(eta: int) -> None:
    kernel, _ = declared(NINE, 9, f"tune.sha(trials=1,eta={eta},first=1)")
    took = seconds(kernel)
    rungs = {
        2: {"c0": 9, "c1": 4, "c2": 2, "c3": 2},
        3: {"c0": 9, "c1": 3, "c2": 3},
        4: {"c0": 9, "c1": 4},
    }
    assert {name: took[name] for name in rungs[eta]} == rungs[eta]
    assert {took[name] for name in NINE if name not in rungs[eta]} == {1}


def test_an_accuracy_should_be_large_and_the_earlier_of_equals_goes_on() -> None:
    grow = {
        f"c{at}": curve(
            *(min(0.1 * at + 0.01 * epoch, 0.5) for epoch in range(1, 5)), metric="accuracy"
        )
        for at in range(9)
    }
    took = seconds(declared(grow, 9, "tune.sha(trials=1,eta=3,first=1,mode=max)")[0])
    assert {name for name, each in took.items() if each > 1} == {"search", "c5", "c6", "c7"}
    assert [took[f"c{at}"] for at in (5, 6, 7)] == [4, 3, 3], "5 to 8 all report 0.5"


def test_a_trial_that_broke_down_is_the_worst() -> None:
    ends_early = {**NINE, "c0": curve(0.01)}  # one epoch, and it never reports
    took = seconds(declared(ends_early, 9, "tune.sha(trials=1,eta=3,first=1)")[0])
    assert took["c0"] == 1
    assert {name for name, each in took.items() if each == 3} == {"c2", "c3"}
    assert took["c1"] == 9


def test_trials_that_reached_the_rung_hold_nothing_until_the_others_have() -> None:
    """Two GPUs, three trials: the third runs when one of the first two is set aside."""
    three = {name: NINE[name] for name in ("c0", "c1", "c2")}
    kernel, diary = declared(three, 2, "tune.sha(trials=1,eta=3,first=2)")
    stops = [
        (batch.at // SECOND, action.job, action.why)
        for batch, plan in diary.steps
        if plan
        for action in plan.actions
        if isinstance(action, Stop)
    ]
    starts = [
        (batch.at // SECOND, action.job)
        for batch, plan in diary.steps
        if plan
        for action in plan.actions
        if isinstance(action, Start)
    ]
    assert stops == [(2, 1, "paused"), (2, 2, "paused"), (4, 3, "retired")]
    assert starts == [(0, 0), (0, 1), (0, 2), (2, 3), (4, 1)]
    assert seconds(kernel) == {"search": 11, "c0": 9, "c1": 2, "c2": 2}
    assert kernel.jobs.preemptions[:4].tolist() == [0, 0, 0, 0]


def test_what_is_asked_for_of_a_trial_is_its_rungs_end() -> None:
    """Reports before it change nothing, so that nobody decides on them."""
    kernel, diary = declared(NINE, 9, "tune.sha(trials=1,eta=3,first=3)")
    asks = [
        (batch.at // SECOND, action.job, action.epoch)
        for batch, plan in diary.steps
        if plan
        for action in plan.actions
        if isinstance(action, AskAt)
    ]
    assert asks[:9] == [(0, row, 3.0) for row in range(1, 10)]
    assert asks[9:] == [(3, 1, 9.0), (3, 2, 9.0), (3, 3, 9.0)]
    decided = {batch.at // SECOND for batch, plan in diary.steps if plan}
    assert decided == {0, 3, 9}, "not at 1, 2, 4, ..."
    assert kernel.jobs.finished[0] == 9 * SECOND


def test_of_the_last_trial_nothing_more_is_asked() -> None:
    """It reports to the end of its days, and nobody decides on that."""
    kernel, diary = declared(
        {name: NINE[name] for name in ("c0", "c1")}, 2, "tune.sha(trials=2,first=2)"
    )
    asks = [
        (batch.at // SECOND, action.job, action.epoch)
        for batch, plan in diary.steps
        if plan
        for action in plan.actions
        if isinstance(action, AskAt)
    ]
    assert asks == [(0, 1, 2.0), (0, 2, 2.0), (2, 1, float(NEVER))]
    assert {batch.at // SECOND for batch, plan in diary.steps if plan} == {0, 2, 9}
    assert kernel.jobs.finished[0] == 9 * SECOND


def test_a_search_asks_for_the_trials_that_it_lacks_and_ends_with_the_last() -> None:
    kernel, diary = played([search(3)], 3, "tune.sha(trials=9,eta=3,first=1)", Profiles(NINE))
    spawns = [
        action
        for _, plan in diary.steps
        if plan
        for action in plan.actions
        if isinstance(action, Spawn)
    ]
    assert [(spawn.parent, spawn.n) for spawn in spawns] == [(0, 9)]
    assert spawns[0].spec == JobSpec(name="search-trial", parent="search")
    jobs = kernel.jobs
    took = {jobs.models[jobs.model[row]]: float(jobs.ran[row]) / SECOND for row in range(1, 10)}
    assert took == {"c0": 9, "c1": 3, "c2": 3, **{f"c{at}": 1 for at in range(3, 9)}}
    assert (jobs.phase[0], jobs.finished[0]) == (Phase.FINISHED, 11 * SECOND)


def test_trials_of_the_trace_count_and_each_search_has_its_own() -> None:
    listed = job("c8", lasts=9, parent="search", model="c8")
    again = job("again", at=20, lasts=None, kind=Kind.TUNE, shape=Shape((Role(size=3),)))
    works = [search(3), listed, again]
    kernel, diary = played(works, 3, "tune.sha(trials=4,eta=2,first=1,gpus=2)", Profiles(NINE))
    spawns = [
        action
        for _, plan in diary.steps
        if plan
        for action in plan.actions
        if isinstance(action, Spawn)
    ]
    assert [(spawn.parent, spawn.n, spawn.spec.shape.gpus) for spawn in spawns] == [
        (0, 3, 2),
        (2, 4, 2),
    ]
    assert kernel.jobs.phase[: kernel.jobs.n].tolist() == [Phase.FINISHED] * 10


def test_trials_that_come_later_take_nothing_from_those_that_run() -> None:
    """`slow` needs 20 s for its first epoch, and is by far the best; others come at 5 s."""
    slow = Profile(convergence=Convergence((1.0, 2.0), (0.01, 0.005), change=0, seconds=20.0))
    works = [
        search(2),
        job("slow", lasts=40, parent="search", model="slow"),
        *(job(name, at=5, lasts=9, parent="search", model=name) for name in ("c0", "c1", "c2")),
    ]
    models = Profiles({**NINE, "slow": slow})
    took = seconds(played(works, 2, "tune.sha(trials=1,eta=4,first=1)", models)[0])
    assert took == {"search": 40, "slow": 40, "c0": 1, "c1": 1, "c2": 1}


def test_a_search_that_is_stopped_whole_goes_on_in_the_rung_where_it_was() -> None:
    """The recipe for the cluster takes all of its GPUs away at 4 s, for 10 s."""
    urgent = job("urgent", at=4, lasts=10, size=3, priority=9)
    diary, kernels = Diary(), list[Any]()

    def journal(kernel: Any) -> Diary:
        kernels.append(kernel)
        return diary

    setup = Setup(profiles=Profiles(NINE), inner="tune.sha(trials=9,eta=3,first=1)", validate=True)
    run_one(trace_of([search(3), urgent]), cluster(1, 3), "priority", setup, journal=journal)
    spawned = sum(
        isinstance(action, Spawn) for _, plan in diary.steps if plan for action in plan.actions
    )
    assert spawned == 1
    jobs = kernels[0].jobs
    assert jobs.finished[0] == (11 + 10) * SECOND
    assert sorted(jobs.ran[2:11] // SECOND) == [1, 1, 1, 1, 1, 1, 3, 3, 9]


def test_a_trial_that_its_search_cannot_hold_is_refused_with_the_reason() -> None:
    with pytest.raises(BadInput, match="asks for 4 GPUs, and its parent 'search' never holds more"):
        played([search(2, most=2)], 4, "tune.sha(trials=2,gpus=4)", Profiles(NINE))


def test_a_search_in_which_nothing_says_what_trials_are_is_refused() -> None:
    with pytest.raises(BadInput, match="nothing says what a trial of 'search' is"):
        played([search(2)], 4, "tune.sha", Profiles())
    with pytest.raises(BadInput, match="it would never end"):
        played([search(2)], 4, "fifo", Profiles())


def test_copies_of_trials_need_curves_of_their_own() -> None:
    with pytest.raises(BadInput, match="do not say how a copy of another trial goes on"):
        played([search(9)], 9, "tune.pbt(trials=9,every=2,part=0.5)", Profiles(NINE))


@pytest.mark.parametrize("recipe", ["tune.asha(trials=9,epochs=9)", "tune.median(trials=9)"])
def test_other_recipes_divide_a_search_among_jobs_too(recipe: str) -> None:
    kernel, _ = played([search(3)], 3, recipe, Profiles(NINE))
    jobs = kernel.jobs
    assert jobs.phase[:10].tolist() == [Phase.FINISHED] * 10
    assert 9 < sum(seconds(kernel).values()) - seconds(kernel)["search"] < 81


def test_it_divides_grants_and_nothing_else() -> None:
    policy = registry.make("tune.sha")
    with pytest.raises(InvariantError, match=r"tune\.sha divides what a job of kind tune holds"):
        run_one(trace_of([job("a")]), cluster(1, 2), policy, Setup())
    assert isinstance(load_policy("Tune.SHA(eta=4)", plane="tuning"), type(policy))
    assert TwoLevel(registry.make("fifo"), policy).name == "fifo"


@pytest.mark.parametrize(
    ("recipe", "plane", "mend"),
    [
        ("tune.sha", "training", "use it as --inner tune.sha, or on an experiment file"),
        ("tune.sha(eta=4)", "serving", "use it as --inner tune.sha"),
        ("scale.threshold", "training", "use it as --serving scale.threshold"),
        ("SCALE.threshold", "tuning", "use it as --serving scale.threshold"),
    ],
)
def test_a_recipe_for_some_jobs_is_refused_where_one_for_all_is_wanted(
    recipe: str, plane: str, mend: str
) -> None:
    with pytest.raises(BadInput) as refused:
        load_policy(recipe, plane=plane)
    assert mend in str(refused.value)
    assert load_policy("fifo", plane=plane).name == "fifo"


def test_the_searcher_is_seeded() -> None:
    orders = set()
    for seed in range(4):
        kernel, _ = played([search(3)], 3, "tune.sha(trials=9,eta=3)", Profiles(NINE), seed=seed)
        jobs = kernel.jobs
        orders.add(tuple(jobs.models[jobs.model[row]] for row in range(1, 10)))
        best = min(range(1, 10), key=lambda row: -jobs.ran[row])
        assert jobs.models[jobs.model[best]] == "c0", "whatever the order"
    assert len(orders) > 1


def test_a_trial_that_ran_past_the_last_rung_before_it_was_set_aside_ends() -> None:
    """Nobody was asked while three quick trials reported all that they could; of these the best
    one, which waits, has nothing left to do in the last rung."""
    policy = TwoLevel(load_policy("fifo"), registry.make("tune.sha(trials=3,epochs=3)"))
    works = [search(3), *(job(name, lasts=9, parent="search") for name in "abc")]
    bench = Bench(*works, on=cluster(1, 3), policy=policy)
    bench.feed(0, *(Submitted(row) for row in range(4)))
    bench.feed(0, Started(0, 1))
    bench.feed(0, *(Started(row, 1) for row in (1, 2, 3)))
    bench.feed(1, Evaluated(1, 1, 1.0, 0.1), Evaluated(1, 1, 9.0, 0.1))
    bench.feed(2, Released(1, 1))
    bench.feed(3, *(Evaluated(row, 1, 9.0, 0.5) for row in (2, 3)))
    bench.feed(4, *(Released(row, 1) for row in (2, 3)))
    assert [bench.phase(row) for row in (1, 2, 3)] == [Phase.FINISHED] * 3


def test_a_search_whose_best_trial_ran_to_its_end_retires_each_other_trial_once() -> None:
    """b ends by itself before it is set aside; when c is judged, a and c go, and the search is
    over in the same decision."""
    policy = TwoLevel(load_policy("fifo"), registry.make("tune.sha(trials=3,eta=3)"))
    works = [search(1), *(job(name, lasts=9, parent="search") for name in "abc")]
    bench = Bench(*works, on=cluster(1, 1), policy=policy)
    bench.feed(0, *(Submitted(row) for row in range(4)))
    bench.feed(0, Started(0, 1))
    bench.feed(0, Started(1, 1))
    bench.feed(1, Evaluated(1, 1, 1.0, 0.9))
    bench.feed(2, Released(1, 1))
    bench.feed(2, Started(2, 1))
    bench.feed(3, Evaluated(2, 1, 1.0, 0.1))
    bench.feed(4, Finished(2, 1))
    bench.feed(4, Started(3, 1))
    bench.feed(5, Evaluated(3, 1, 1.0, 0.8))
    assert bench.phase(1) == Phase.FINISHED
    bench.feed(6, Released(3, 1))
    bench.feed(6, Released(0, 1))
    assert [bench.phase(row) for row in range(4)] == [Phase.FINISHED] * 4
