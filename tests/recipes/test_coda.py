"""CODA: cores by trial, CPU jobs that borrow and make way, and what is held back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.host_use import HostUse
from ganger.core.plan import Tune
from ganger.core.profiles import Profile, Profiles, Sensitivity
from ganger.core.spec import ClusterSpec, Needs, NodeSpec, OnPreempt, Role, Shape
from ganger.core.units import SECOND
from ganger.estimate.sharing.host_bandwidth import HostUser
from ganger.recipes.training.sharing.cores import SETTLED, Search, divided, step, throttled
from worlds import Played, Work, job, play


def saturates(at: int) -> Profile:
    """A model that is fastest on so many cores per GPU, and in proportion slower on fewer."""
    return Profile(sensitivity=Sensitivity((at * 1000.0,), (0.0,), ((1.0,),)))


MODELS = Profiles(
    {
        **{f"at {cores}": saturates(cores) for cores in range(1, 9)},
        "net": Profile(host=HostUse(25.0)),
        "stream": Profile(host=HostUse(150.0 / 8)),
        "gentle": Profile(host=HostUse(1.0)),
    }
)


def servers(count: int = 1, gpus: int = 2, cores: int = 16, bandwidth: float = 0.0) -> ClusterSpec:
    """Nodes of two GPUs and 16 cores, of which 12 are reserved for jobs with GPUs."""
    each = NodeSpec(count=count, gpus=gpus, gpu_type="V100", cpus=cores * 1000, bandwidth=bandwidth)
    return ClusterSpec((each,))


def cpus(name: str, many: int, at: float = 0, lasts: float = 9e3, **more: Any) -> Work:
    """A job of so many cores and no GPU."""
    shape = Shape((Role(needs=Needs(gpus=0, cpus=many * 1000)),))
    return job(name, at, lasts, shape=shape, **more)


def tuned(run: Played, name: str) -> list[tuple[float, float]]:
    """(seconds, value) of all that the job was given."""
    return [
        (batch.at / SECOND, float(value))
        for batch, plan in run.diary.steps
        for action in (plan.actions if plan is not None else ())
        if isinstance(action, Tune) and action.job == run.row(name)
        for value in action.knobs.values()
    ]


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("at 5", [2, 3, 4, 5, 6, 5]),
        ("at 2", [2, 3, 1, 2]),
        ("at 1", [2, 3, 1]),
        ("at 8", [2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_the_card_a_model_that_saturates_at_five_cores_settles_at_five(
    model: str, path: list[int]
) -> None:
    """Started at two, one core a minute. Nobody can have more than 8 cores for each of 2 GPUs."""
    run = play("coda", [job("a", 0, 900, size=2, model=model)], servers(), profiles=MODELS)
    assert tuned(run, "a") == [(60.0 * at, cores * 1000.0) for at, cores in enumerate(path)]


def test_a_job_begins_with_what_was_found_for_its_model_or_its_user() -> None:
    works = [
        job("a", 0, 900, model="at 5"),
        job("b", 900, 90, model="at 5"),
        job("c", 900, 90, model="at 4"),
    ]
    run = play("coda", works, servers(), profiles=MODELS)
    assert tuned(run, "b") == [(900.0, 5000.0)]
    assert tuned(run, "c")[0][1] == 2000.0
    own = [job("a", 0, 900, user="ann"), job("b", 900, 90, user="ann"), job("c", 900, 9, user="bo")]
    known = Profiles({}, MODELS.of("at 3"))
    run = play("coda", own, servers(), profiles=known)
    assert [tuned(run, name)[0][1] for name in "bc"] == [3000.0, 2000.0]


def test_the_card_a_stream_that_would_slow_training_by_two_fifths_is_held_back() -> None:
    """50 and 150 GB/s of 120: training has 0.6 of its speed. At half of its own the stream moves
    75 GB/s, and 45 of 50 are left; at four tenths it moves 60."""
    works = [job("net", 0, 60, size=2, model="net"), cpus("stream", 8, model="stream")]
    on = servers(bandwidth=120.0, cores=32)
    free = play("fifo(walk=skip)", works, on, profiles=MODELS, until=SECOND)
    assert free.jobs.rate[0] == pytest.approx(0.6)
    run = play("coda", works, on, profiles=MODELS, until=SECOND)
    assert run.jobs.rate[0] > 0.95
    assert tuned(run, "stream") == [pytest.approx((0.0, 60.0))]
    fewer = play("coda(throttle=cores)", works, on, profiles=MODELS, until=SECOND)
    assert tuned(fewer, "stream") == [pytest.approx((0.0, 3200.0))]
    assert fewer.jobs.rate[:2].tolist() == pytest.approx([1.0, 0.4])
    done = play("coda", works, on, profiles=MODELS, until=70 * SECOND)
    assert done.phase("net") == "finished"
    assert done.jobs.rate[1] == pytest.approx(120 / 150)


def test_only_as_much_is_taken_as_it_needs_and_of_whoever_moves_most() -> None:
    """Of 60 GB/s and 10 the first is cut; where nobody loses a twentieth, nobody is."""
    training, others = [HostUser(50.0, 1.0)], [HostUser(10.0, 1.0), HostUser(60.0, 1.0)]
    assert throttled(training, others, 110.0, 0.05) == [1.0, 0.8]
    assert throttled(training, others, 117.0, 0.05) == [1.0, 1.0]
    assert throttled(training, others, 117.0, 0.0) == [1.0, 0.9]
    assert throttled([], others, 10.0, 0.05) == [1.0, 1.0]
    assert throttled([HostUser(99.0, 1.0)], others, 9.0, 0.05) == [0.1, 0.1]


def test_cpu_jobs_borrow_reserved_cores_and_make_way_for_gpu_jobs() -> None:
    """16 cores, 12 of them reserved. `a` takes the 4 others, `b` borrows 8; the trainer wants 2 a
    GPU, 4 in all, which are left; its third core for each wants 2 more, and `b` goes."""
    works = [
        cpus("a", 4, lasts=200),
        cpus("b", 8, lasts=500),
        job("t", 10, 300, size=2, model="at 5"),
    ]
    run = play("coda", works, servers(), profiles=MODELS)
    assert (70.0, "stop b") in run.actions
    assert [said for _, said in run.actions if said.startswith("stop")] == ["stop b"]
    assert run.ended("a") == 200
    assert [cores for _, cores in tuned(run, "t")] == [2000, 3000, 4000, 5000, 6000, 5000]


def test_whoever_may_not_be_preempted_borrows_nothing() -> None:
    stays = cpus("b", 8, lasts=500, on_preempt=OnPreempt.NEVER)
    run = play(
        "coda", [stays, job("t", 10, 30)], servers(2, cores=10), profiles=MODELS, until=SECOND
    )
    assert run.phase("b") == "pending"
    run = play("coda", [cpus("b", 8, lasts=9)], servers(2, cores=10), profiles=MODELS)
    assert run.ended("b") == 9


def test_cores_beyond_the_reserve_go_back_to_a_cpu_job_that_needs_them() -> None:
    """The trainer has found that it can use 7 cores for each of 2 GPUs: 14, of which 12 are
    reserved. Whoever then asks for 4 gets them, and leaves it 6 a GPU."""
    works = [job("t", 0, 2000, size=2, model="at 7"), cpus("late", 4, at=700, lasts=100)]
    run = play("coda", works, servers(), profiles=MODELS)
    assert run.started("late") == 700
    assert tuned(run, "t")[-3:] == [(420.0, 7000.0), (700.0, 6000.0), (800.0, 7000.0)]


def test_gangs_and_small_jobs_have_nodes_of_their_own_until_these_are_full() -> None:
    works = [
        job("gang", 0, 9, size=4),
        job("small", 1, 9),
        job("other gang", 2, 9, size=4),
        job("late gang", 3, 9, size=4),
    ]
    run = play("coda", works, servers(4, gpus=4), profiles=MODELS)
    starts = [said for _, said in run.actions if said.startswith("start")]
    assert [said.split(" on ")[1].split(":")[0] for said in starts] == ["2", "0", "3", "1"]
    assert run.jct() == [9] * 4


def test_it_differs_from_synergy_which_gives_by_a_table_and_lets_nobody_borrow() -> None:
    works = [job("a", 0, 900, size=2, model="at 5"), cpus("b", 8, at=1, lasts=500)]
    ours = play("coda", works, servers(), profiles=MODELS)
    theirs = play("synergy(order=fifo)", works, servers(), profiles=MODELS)
    assert tuned(theirs, "a")[0] == (0.0, 5000.0)
    assert tuned(ours, "a")[0] == (0.0, 2000.0)
    plain = play("fifo(walk=skip)", works, servers(), profiles=MODELS)
    assert plain.ended("a") != ours.ended("a")


@given(
    st.lists(st.tuples(st.integers(1, 4), st.floats(0, 16)), max_size=5),
    st.floats(0, 32), st.floats(0, 4),
)  # fmt: skip
def test_no_more_cores_are_given_than_there_are_and_none_are_kept_from_who_wants_them(
    wanted: list[tuple[int, float]], room: float, part: float
) -> None:
    given_out = divided(wanted, room, part)
    used = sum(gpus * each for (gpus, _), each in zip(wanted, given_out, strict=True))
    asked = sum(gpus * each for gpus, each in wanted)
    assert used <= room + 1e-6
    assert used == pytest.approx(min(asked, room), abs=1e-6)


@given(st.integers(1, 12), st.integers(1, 8), st.integers(1, 12))
def test_a_search_ends_where_more_cores_add_nothing(at: int, start: int, most: int) -> None:
    """Whatever it begins with, of a model that is in proportion faster up to `at` cores."""
    search, looks = Search(1, min(start, most), min(start, most), 0), 0
    while search.way != SETTLED:
        speed = min(search.cores / at, 1.0)
        search, looks = step(search, speed, 0.02, most, looks), looks + 1
        assert 1 <= search.cores <= most
        assert looks <= 2 * most + 2
    assert search.cores == min(at, most)
