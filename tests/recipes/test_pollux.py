"""Pollux end to end, under `validate`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ganger.core.profiles import Goodput, Profile, Profiles, StepModel
from ganger.core.spec import JobSpec, Needs, OnPreempt, Role, Shape
from ganger.core.units import HOUR, MINUTE, SECOND
from ganger.lab.result import Run
from ganger.recipes.training.goodput.pollux import after_restart
from ganger.sim.physics import Costs
from ganger.workloads.measured.profiles import with_goodput

from .elastic_jobs import cluster, jct, job, play, profiles, trace

pytestmark = pytest.mark.long

SMALL = "pollux(population=30,generations=25)"
RESCALE = Costs(restore=30 * SECOND)


def spans_apart(run: Run) -> None:
    """At no time do two jobs that span nodes touch one node."""
    assert run.segments is not None
    for one in run.segments:
        at = one.start_seconds
        there = [s for s in run.segments if s.start_seconds <= at < s.end_seconds]
        nodes = {s.job: {t.node for t in there if t.job == s.job} for s in there}
        wide = [node for held in nodes.values() if len(held) > 1 for node in held]
        assert len(wide) == len(set(wide))


def test_alone_it_grows_by_doubling_only() -> None:
    log, run = play([(job("only", 0, 16), 40000.0)], cluster(4, 4), SMALL, costs=RESCALE)
    sizes = [gpus for _, _, gpus in log]
    assert sizes[0] == 1
    largest = 1
    for size in sizes[1:]:
        assert size <= 2 * largest
        largest = max(largest, size)
    assert largest == 16
    assert run.jobs.state == ["finished"]


def test_what_a_hundred_restarts_leave_of_a_job() -> None:
    """Ten hours old, 100 restarts of 30 s: (36000 - 3000) / (36000 + 30), in microseconds."""
    jobs = SimpleNamespace(submitted=np.array([0, 0]), restarts=np.array([0, 100], np.int32))
    view: Any = SimpleNamespace(now=10 * HOUR, jobs=jobs)
    left = after_restart(view, np.array([0, 1]), 30 * SECOND)
    assert left == pytest.approx([36000 / 36030, 33000 / 36030])


def test_it_decides_every_interval_only() -> None:
    jobs = [(job("a", 0, 2), 600.0), (job("b", 10, 2), 300.0)]
    log, _ = play(jobs, cluster(1, 4), SMALL)
    assert {at % 60 for at, _, _ in log} == {0.0}


def test_it_rests_where_all_have_the_most_that_they_may_have() -> None:
    """One may have 1 GPU and the other 4: an hour of nothing new needs no decision a minute."""
    jobs = [(job("narrow", 0, 1), 7200.0), (job("wide", 0, 4), 14400.0)]
    _, run = play(jobs, cluster(1, 8), SMALL)
    assert run.simulation["decisions"] < 15


def test_it_searches_less_often_while_nothing_happens() -> None:
    """One of three gangs waits for ten hours. Searches that find nothing better follow each other
    after 1, 1, 2, 4, 8 ... minutes; who arrives is looked at within a minute all the same."""
    jobs = [(job(name, 0, 4, 4), 36000.0) for name in ("a", "b", "c")]
    jobs.append((job("late", 20000, 1, 1), 600.0))
    log, run = play(jobs, cluster(1, 9), SMALL)
    assert [at for at, name, _ in log if name == "late"] == [20040.0]
    assert run.jobs.state == ["finished"] * 4
    assert run.simulation["decisions"] < 60


def test_a_move_that_pays_later_is_made_in_time() -> None:
    """Two GPUs give 1.02 times one, and a move leaves age / (age + 30 s) of that: it pays from
    1500 s on, and is made before the job is twice as old."""
    jobs = [(job("only", 0, 2, model="m"), 20000.0)]
    log, _ = play(jobs, cluster(1, 2), SMALL, profiles=profiles(m=(1.0, 1.02)))
    (at,) = (at for at, _, gpus in log if gpus == 2)
    assert 1500 < at < 3000


def test_what_happens_makes_it_search_often_again() -> None:
    """Eight quiet hours do not make a newcomer wait: it grows once a move pays, two minutes on."""
    jobs = [(job(name, 0, 4, 4), 60000.0) for name in ("runs", "waits")]
    jobs.append((job("late", 30000, 2, model="m"), 3000.0))
    log, _ = play(jobs, cluster(1, 6), SMALL, profiles=profiles(m=(1.0, 1.3)))
    assert [(at, gpus) for at, name, gpus in log if name == "late"] == [(30000, 1), (30120, 2)]


def test_shrinks_on_arrival_and_grows_on_completion() -> None:
    jobs = [(job("long", 0, 4), 6000.0), (job("short", 600, 4), 600.0)]
    log, run = play(jobs, cluster(1, 4), SMALL, costs=RESCALE)
    ends = 600 + jct(run)["short"]
    before = [g for at, name, g in log if name == "long" and at < 600]
    during = [g for at, name, g in log if name == "long" and 600 <= at < ends]
    after = [g for at, name, g in log if name == "long" and at >= ends]
    assert before[-1] == 4
    assert min(during) < 4
    assert after[-1] == 4


def test_the_cost_of_a_restart_makes_it_keep() -> None:
    """Two GPUs give 1.3 times one. Aged one minute, a move keeps 60/90 of that: not worth it; a
    policy that thinks a restart costs nothing moves at once."""
    curve = profiles(m=(1.0, 1.3))
    jobs = [(job("only", 0, 2, model="m"), 600.0)]
    for recipe, grows_at in ((SMALL, 120.0), (SMALL.replace(")", ",rescale=0s)"), 60.0)):
        log, _ = play(jobs, cluster(1, 2), recipe, profiles=curve)
        assert [at for at, _, gpus in log if gpus == 2] == [grows_at]


def test_fair_where_optimus_is_not() -> None:
    """Two like jobs, one with a hundredth of the work: Optimus gives the long one all it can,
    Pollux equal shares."""
    jobs = [(job("long", 0, 7), 180000.0), (job("short", 0, 7), 1800.0)]
    halves = cluster(1, 8)

    def sizes(recipe: str) -> list[int]:
        log, _ = play(jobs, halves, recipe, until=5 * MINUTE)
        return [[g for _, name, g in log if name == who][-1] for who in ("long", "short")]

    assert sizes("optimus") == [7, 1]
    assert sizes(SMALL) == [4, 4]


@pytest.mark.parametrize("seed", [0, 1])
def test_hard_cases_hold(seed: int) -> None:
    """Gangs, leasts, jobs of other shapes, jobs not to be preempted, more jobs than GPUs."""
    rng = np.random.default_rng(seed)
    jobs = []
    for i in range(25):
        least = int(rng.choice([1, 1, 1, 2, 6]))
        kind = OnPreempt.NEVER if i % 8 == 0 else OnPreempt.CHECKPOINT
        spec = job(f"j{i}", i * 25.0, least + int(rng.integers(0, 6)), least, on_preempt=kind)
        jobs.append((spec, float(rng.lognormal(5, 1))))
    pairs = Shape(roles=(Role(size=2, needs=Needs(gpus=2)),))
    jobs.append((JobSpec(name="pairs", submitted=700 * SECOND, shape=pairs), 90.0))
    _, run = play(jobs, cluster(3, 4), SMALL, costs=RESCALE, seed=seed)
    assert run.jobs.state == ["finished"] * 26
    assert run.jobs.lost.sum() == 0


def test_who_waits_gets_what_is_free_without_a_search() -> None:
    """40 jobs of one GPU arrive at once beside a large one: all of them start at once, although
    one generation of two individuals finds no place for so many."""
    jobs = [(job("wide", 0, 32), 90000.0)]
    jobs += [(job(f"j{i}", 600.0, 1), 3000.0) for i in range(40)]
    few = "pollux(population=2,generations=1)"
    log, _ = play(jobs, cluster(12, 8), few, until=15 * MINUTE)
    assert len({name for at, name, _ in log if name != "wide" and at <= 660}) == 40


@pytest.mark.parametrize("rows", [4, 6])
def test_a_search_about_some_of_the_jobs_moves_no_others(rows: int) -> None:
    """Thirty jobs on eight GPUs, at most `rows` of them in one search: all finish, in time, and
    between two decisions no more are moved than a search is about."""
    jobs = [(job(f"j{i}", 5.0 * i, 2), 400.0 + 10 * i) for i in range(30)]
    recipe = f"pollux(population=12,generations=8,rows={rows})"
    log, run = play(jobs, cluster(2, 4), recipe, costs=RESCALE)
    assert run.jobs.state == ["finished"] * 30
    for at in {at for at, _, _ in log}:
        assert len({name for when, name, _ in log if when == at}) <= rows
    assert run.jobs.finish.max() < 2 * run.jobs.duration.sum() / 8 + 600


def test_jobs_that_span_nodes_keep_apart() -> None:
    jobs = [(job(f"j{i}", 0, 8), 4000.0) for i in range(5)]
    _, run = play(jobs, cluster(4, 2), SMALL)
    spans_apart(run)


def test_without_knowledge_it_still_runs() -> None:
    jobs = [(job(f"j{i}", 5.0 * i, 4), 60.0) for i in range(6)]
    _, run = play(jobs, cluster(1, 4), SMALL, knows="nothing")
    assert run.jobs.state == ["finished"] * 6


def test_the_seed_decides() -> None:
    jobs = [(job(f"j{i}", 30.0 * i, 8), 900.0) for i in range(8)]
    logs = [play(jobs, cluster(4, 4), SMALL, seed=seed)[0] for seed in (1, 1, 2)]
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


def test_jobs_that_tune_their_batch() -> None:
    model = StepModel(0.02, 0.001, 0.05, 0.01, 0.02, 0.002, 1.5)
    noise = ((50.0, 500.0, 20000.0),)
    tuned = Goodput(100, 3200, (10, 200), 2e6, (0.0, 0.3, 0.6), (100.0,), noise, model=model)
    known = Profiles({"m": Profile(goodput=tuned)})
    base = trace([(job(f"j{i}", 100.0 * i, 1, model="m"), 1.0) for i in range(6)])
    jobs = with_goodput(base, known, elastic=16)
    from ganger.lab.simulation import Setup, run_one

    setup = Setup(profiles=known, costs=RESCALE, validate=True)
    run = run_one(jobs, cluster(4, 4), SMALL, setup)
    assert run.jobs.state == ["finished"] * 6
    assert (run.jobs.finish - run.jobs.arrival < tuned.seconds()).all()
    assert run.jobs.lost.sum() == 0
