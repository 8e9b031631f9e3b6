"""Hand checks of MARBLE, Wang et al., DRAGON, Elan, Elastic-Tiresias and ONES."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ganger.core.spec import ClusterSpec, JobSpec, Needs, NodeSpec, Role, Shape
from ganger.core.units import SECOND
from ganger.mechanisms.sizing.marginal_gain import Curves, grow, knees, shrink
from ganger.recipes.training.elasticity import ones as orchestrate
from ganger.recipes.training.elasticity.ones import Offer, Schedule, filled
from ganger.sim.physics import Costs

from .elastic_jobs import cluster, jct, job, play, profiles

CARD = profiles(a=(1.0, 1.8, 2.4, 2.4), b=(1.0, 1.5, 1.7, 1.7))
KNEE = profiles(net=(1.0, 1.9, 2.6, 2.8, 2.85, 2.9))


def flexible(name: str, at: float, asks: int, least: int, most: int, **more: Any) -> JobSpec:
    """A job that asks for `asks` GPUs and runs on `least` to `most`."""
    shape = Shape((Role(size=asks, least=least, most=most),))
    return JobSpec(name=name, submitted=round(at * SECOND), shape=shape, **more)


def sizes_at(log: list[tuple[float, str, int]], when: float) -> dict[str, int]:
    """The last size of each job that was set by `when`."""
    return {name: gpus for at, name, gpus in log if at <= when}


# ---------------------------------------------------------------------- rules


def test_growing_and_shrinking_by_gain() -> None:
    curves = Curves.of([(1.0, 1.8, 2.4), (1.0, 1.5, 1.7)], [1, 1])
    gains = np.diff(curves.speed, axis=1)

    def smaller(sizes: list[int], need: int) -> list[int] | None:
        left = shrink(curves, np.array(sizes), gains, need)
        return None if left is None else [int(size) for size in left]

    assert grow(curves, np.array([1, 1]), gains, 1).tolist() == [2, 1]
    assert grow(curves, np.array([1, 0]), gains, 9).tolist() == [3, 0], "who is out stays out"
    assert smaller([3, 3], 1) == [3, 2]
    assert smaller([3, 3], 3) == [2, 1]
    assert smaller([1, 1], 1) is None
    scaling = Curves.of([KNEE.models["net"].scaling], [1])
    assert [knees(scaling, tolerance).tolist() for tolerance in (0.15, 0.0)] == [[3], [6]]


# ---------------------------------------------------------------------- marble


def test_marble_shares_a_node_at_the_knee() -> None:
    """Two jobs of 29 units: at 3 GPUs each 29 / 2.6; one after the other on 6, 10 and 20."""
    jobs = [(job(name, 0, 6, model="net"), 29.0) for name in "ab"]
    _, run = play(jobs, cluster(1, 6), "marble", profiles=KNEE)
    assert jct(run) == {"a": pytest.approx(29 / 2.6), "b": pytest.approx(29 / 2.6)}
    rigid = [(flexible(name, 0, 6, 6, 6, model="net"), 10.0) for name in "ab"]
    _, alone = play(rigid, cluster(1, 6), "fifo", profiles=KNEE)
    assert jct(alone) == {"a": 10, "b": 20}


def test_marble_starts_below_the_knee_where_less_is_free_and_grows_up_to_it() -> None:
    jobs = [(job("a", 0, 6, model="net"), 26.0), (job("b", 1, 6, model="net"), 260.0)]
    log, _ = play(jobs, cluster(1, 4), "marble", profiles=KNEE)
    assert sizes_at(log, 1) == {"a": 3, "b": 1}
    assert sizes_at(log, 11) == {"a": 3, "b": 3}
    optimus, _ = play(jobs, cluster(1, 4), "optimus(interval=1s)", profiles=KNEE)
    assert sizes_at(optimus, 3)["b"] > 1, "where remaining time counts, the long job gets more"


# ---------------------------------------------------------------------- non-intrusive


def test_wang_et_al_on_the_card_of_optimus() -> None:
    jobs = [(job("a", 0, 4, model="a"), 100.0), (job("b", 0, 4, model="b"), 60.0)]
    log, _ = play(jobs, cluster(1, 4), "non-intrusive", profiles=CARD)
    assert sizes_at(log, 0) == {"a": 2, "b": 2}


def test_the_newcomer_is_paid_for_by_whoever_loses_least() -> None:
    """On 4 GPUs a runs 2 and b 2. Losing one costs a, of 100, 44 s and b, of 60, 20 s."""
    jobs = [
        (job("a", 0, 2, model="a"), 100.0),
        (job("b", 0, 2, model="b"), 60.0),
        (job("new", 0.5, 1), 5.0),
    ]
    log, _ = play(jobs, cluster(1, 4), "non-intrusive", profiles=CARD)
    assert sizes_at(log, 0) == {"a": 2, "b": 2}
    assert sizes_at(log, 0.5) == {"a": 2, "b": 1, "new": 1}
    assert sizes_at(log, 6) == {"a": 2, "b": 2, "new": 1}


def test_what_is_lost_is_rescales_times_their_cost() -> None:
    """a grows and shrinks with each newcomer, by the same decisions whatever a rescale costs."""
    jobs = [(job("a", 0, 2), 1000.0), *((job(f"n{i}", 200.0 * i + 100, 1), 50.0) for i in range(4))]
    ends = {}
    for name, costs in {
        "free": Costs(),
        "side-car": Costs(rescale="side-car"),
        "pods": Costs(checkpoint=30 * SECOND, restore=30 * SECOND),
    }.items():
        log, run = play(jobs, cluster(1, 2), "non-intrusive", costs=costs)
        ends[name] = jct(run)["a"]
        rescales = sum(who == "a" for _, who, _ in log) - 1
        assert rescales >= 6
    assert ends["free"] < ends["side-car"] < ends["pods"]
    log, run = play(jobs, cluster(1, 2), "non-intrusive", costs=Costs(rescale="side-car"))
    lost = sum(1 for _, who, _ in log if who == "a") - 1
    restarts = int(run.jobs.restarts[0])
    assert restarts == lost
    did = float(run.jobs.held_gpu_seconds[0] - run.jobs.active_gpu_seconds[0])
    assert did == pytest.approx(sum(5 * gpus for _, who, gpus in log[1:] if who == "a"))


# ---------------------------------------------------------------------- dragon


def test_dragon_shrinks_for_the_head_after_30_seconds_and_grows_back_within_60() -> None:
    jobs = [(flexible("a", 0, 4, 1, 4), 300.0), (flexible("b", 0, 3, 2, 4), 60.0)]
    log, run = play(jobs, cluster(1, 4), "dragon")
    assert log[:3] == [(0, "a", 4), (30, "a", 2), (30, "b", 2)]
    ended = jct(run)["b"]
    back = next(at for at, name, gpus in log if name == "a" and gpus == 4 and at > 30)
    assert ended <= back <= ended + 60


def test_dragon_differs_from_elan_by_its_patience() -> None:
    jobs = [(flexible("a", 0, 4, 1, 4), 300.0), (flexible("b", 10, 2, 2, 4), 60.0)]
    starts = {
        recipe: next(at for at, name, _ in play(jobs, cluster(1, 4), recipe)[0] if name == "b")
        for recipe in ("dragon", "elan")
    }
    assert starts == {"dragon": 40, "elan": 10}


def test_dragon_lets_smaller_ones_pass_and_shrinks_nobody_in_vain() -> None:
    jobs = [
        (flexible("a", 0, 3, 3, 3), 100.0),
        (flexible("big", 1, 4, 4, 4), 10.0),
        (flexible("small", 2, 1, 1, 1), 5.0),
    ]
    log, _ = play(jobs, cluster(1, 4), "dragon")
    assert [entry for entry in log if entry[0] < 100] == [(0, "a", 3), (2, "small", 1)]


# ---------------------------------------------------------------------- elan


def test_elan_shrinks_to_admit_and_expands_on_idle_gpus() -> None:
    jobs = [(job("a", 0, 4), 400.0), (job("b", 40, 2), 40.0)]
    log, run = play(jobs, cluster(1, 4), "elan", costs=Costs(rescale="io-free"))
    assert next(gpus for _, name, gpus in log if name == "a") == 4
    assert sizes_at(log, 40) == {"a": 3, "b": 1}
    assert sizes_at(log, 10000)["a"] == 4
    assert run.jobs.lost.sum() == 0


def test_elan_never_stops_who_runs_where_optimus_may() -> None:
    """A gang of 3 that came first cannot run beside the one of 2; it does not push it out."""
    jobs = [
        (flexible("x", 0, 2, 2, 2), 50.0),
        (flexible("gang", 1, 3, 3, 3), 10.0),
        (flexible("late", 2, 2, 2, 2), 50.0),
    ]
    log, run = play(jobs, cluster(1, 4), "elan")
    assert sizes_at(log, 2) == {"x": 2, "late": 2}
    assert run.jobs.preemptions.sum() == 0


# ---------------------------------------------------------------------- edl


def test_elastic_tiresias_shrinks_lower_queues_only_when_many_wait() -> None:
    jobs = [
        (flexible("old", 0, 4, 1, 4), 1000.0),
        *((flexible(f"n{i}", 20, 4, 4, 4), 10.0) for i in range(3)),
    ]
    calm, _ = play(jobs, cluster(1, 4), "edl(thresholds=40s,many=3)")
    assert sizes_at(calm, 20)["n0"] == 4, "old is in the lower queue"
    two = [
        (flexible("old", 0, 4, 1, 4), 1000.0),
        *((flexible(f"n{i}", 20, 3, 3, 3), 10.0) for i in range(3)),
    ]
    many, _ = play(two, cluster(1, 4), "edl(thresholds=40s,many=2)")
    few, _ = play(two, cluster(1, 4), "edl(thresholds=40s,many=3)")
    assert sizes_at(many, 20) == {"old": 1, "n0": 3}
    assert sizes_at(few, 20) == {"old": 0, "n0": 3}


def test_elastic_tiresias_grows_where_it_adds_most_and_tiresias_does_not() -> None:
    jobs = [
        (flexible("a", 0, 1, 1, 4, model="a"), 100.0),
        (flexible("b", 0, 1, 1, 4, model="b"), 60.0),
    ]
    log, _ = play(jobs, cluster(1, 4), "edl", profiles=CARD)
    assert sizes_at(log, 0) == {"a": 3, "b": 1}
    plain, _ = play(jobs, cluster(1, 4), "tiresias", profiles=CARD)
    assert sizes_at(plain, 0) == {"a": 1, "b": 1}


# ---------------------------------------------------------------------- ones


def test_ones_lets_the_job_near_its_end_keep_its_gpu() -> None:
    """At 90 s a has done 0.9 and b 0.45; the newcomer is short: b goes."""
    jobs = [
        (flexible("a", 0, 1, 1, 1), 100.0),
        (flexible("b", 0, 1, 1, 1), 200.0),
        (flexible("new", 90, 1, 1, 1), 5.0),
    ]
    log, run = play(jobs, cluster(1, 2), "ones")
    assert [entry for entry in log if entry[0] == 90] == [(90, "b", 0), (90, "new", 1)]
    assert jct(run)["a"] == 100
    optimus, _ = play(jobs, cluster(1, 2), "optimus(interval=10s)")
    assert [name for at, name, _ in optimus if at == 90] == [], "there who came first goes on"


def test_a_new_job_gets_a_gpu_at_once_where_one_can_be_freed() -> None:
    jobs = [
        (flexible("a", 0, 4, 1, 4), 1000.0),
        *((flexible(f"n{i}", 10.0 + i, 2, 1, 4), 300.0) for i in range(3)),
    ]
    for seed in range(5):
        _, run = play(jobs, cluster(1, 4), "ones", seed=seed)
        assert run.jobs.first_start.tolist() == [0, 10, 11, 12]


def test_a_jobs_limit_doubles_with_each_epoch_in_which_it_ran() -> None:
    jobs = [(flexible("a", 0, 1, 1, 8), 1000.0)]
    log, _ = play(jobs, cluster(1, 8), "ones(epoch=30s)")
    assert log[:4] == [(0, "a", 1), (30, "a", 2), (60, "a", 4), (90, "a", 8)]


@pytest.mark.parametrize(("patience", "generations"), [(0, 7), (2, 2), (3, 3), (9, 7)])
def test_ones_ends_its_search_where_it_finds_nothing_better(
    monkeypatch: pytest.MonkeyPatch, patience: int, generations: int
) -> None:
    """Whichever of two equal jobs has the one GPU, as much is left to do."""
    tried = list[int]()

    def counted(people: Schedule, offer: Offer, rng: np.random.Generator) -> Schedule:
        tried.append(len(people))
        return filled(people, offer, rng)

    monkeypatch.setattr(orchestrate, "filled", counted)
    jobs = [(flexible(name, 0, 1, 1, 1), 30.0) for name in "ab"]
    play(jobs, cluster(1, 1), f"ones(population=4, rounds=7, patience={patience})")
    once = [5] + [4] * generations  # what was kept and what runs, then children
    assert tried == once * 2, "the one decision is checked by a second"


# ---------------------------------------------------------------------- smd


def test_smd_picks_the_two_jobs_that_fit_together() -> None:
    """GPUs and CPUs 4 and 4: (2, 2), (4, 1) and (2, 2) worth 5, 6, 4: the first and the third."""
    needs = {"a": Needs(cpus=1000), "b": Needs(cpus=250), "c": Needs(cpus=1000)}
    sizes, weight = {"a": 2, "b": 4, "c": 2}, {"a": 5.0, "b": 6.0, "c": 4.0}
    jobs = [
        (
            JobSpec(
                name=name,
                weight=weight[name],
                shape=Shape((Role(size=sizes[name], needs=needs[name]),)),
            ),
            100.0,
        )
        for name in "abc"
    ]
    spec = ClusterSpec((NodeSpec(gpus=4, gpu_type="V100", cpus=4000),))
    log, _ = play(jobs, spec, "smd")
    assert {name for at, name, _ in log if not at} == {"a", "c"}
    optimus, _ = play(jobs[1:], spec, "optimus")
    smd, _ = play([jobs[1], (jobs[2][0], 5.0)], spec, "smd")
    assert [name for at, name, _ in optimus if not at] == ["b"], "first come, first served"
    assert [name for at, name, _ in smd if not at] == ["b"]


def test_smd_lets_the_job_that_is_worth_more_go_first() -> None:
    jobs = [(job("long", 0, 4, 4), 40000.0), (job("short", 0, 4, 4), 60.0)]
    log, _ = play(jobs, cluster(1, 4), "smd")
    assert [name for at, name, _ in log if not at] == ["short"]
    optimus, _ = play(jobs, cluster(1, 4), "optimus")
    assert [name for at, name, _ in optimus if not at] == ["long"]


@pytest.mark.parametrize(
    "recipe", ["smd", "marble", "non-intrusive", "dragon", "elan", "edl", "ones"]
)
@pytest.mark.parametrize("knows", ["nothing", "history", "noisy"])
def test_without_the_truth_they_still_run(recipe: str, knows: str) -> None:
    jobs = [(job(f"j{i}", 5.0 * i, 4), 60.0) for i in range(6)]
    _, run = play(jobs, cluster(1, 4), recipe, knows=knows)
    assert run.jobs.state == ["finished"] * 6
