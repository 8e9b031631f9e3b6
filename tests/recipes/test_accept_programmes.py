"""Hand checks of the programme family: POP, AlloX, Sia, Dorm; and where each differs."""

from __future__ import annotations

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, Needs, NodeSpec, Role, Shape
from ganger.core.state.table import Ids
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.mechanisms.sizing.target import TargetPolicy
from ganger.recipes.training.goodput.sia import Configurations, Options, value
from ganger.recipes.training.programmes.dorm import Applications, containers
from ganger.recipes.training.programmes.recipes import allox
from ganger.solve.choice import choose
from worlds import Played, Work, cluster, job, play


def mixed(*counts: tuple[str, int]) -> ClusterSpec:
    """One node per GPU type."""
    return ClusterSpec(tuple(NodeSpec(gpus=n, gpu_type=name) for name, n in counts))


def typed(**models: dict[str, float]) -> Profiles:
    """Models that are so fast on which type."""
    return Profiles({name: Profile(by_type=by_type) for name, by_type in models.items()})


# ---------------------------------------------------------------------- dorm


def elastic(name: str, gpus: int, most: int, at: float = 0, lasts: float = 100) -> Work:
    """A job of 1 to `most` containers of so many GPUs."""
    shape = Shape((Role(size=1, least=1, most=most, needs=Needs(gpus=gpus)),))
    return job(name, at, lasts, shape=shape)


@pytest.mark.parametrize(
    ("theta1", "sizes"),
    [
        pytest.param(0.5, [6, 2], id="all GPUs in use, shares 0.75 and 0.25"),
        pytest.param(0.2, [3, 4], id="7 GPUs, unfair by 0.125"),
    ],
)
def test_dorm_trades_use_for_fairness_as_theta1_says(theta1: float, sizes: list[int]) -> None:
    works = [elastic("a", 3, 9), elastic("b", 2, 9)]
    run = play(f"dorm(theta1={theta1})", works, cluster(1, 8), until=SECOND)
    assert run.jobs.size[:2].tolist() == sizes


def test_dorm_changes_no_more_running_jobs_than_theta2_says() -> None:
    """Four jobs on 2 of 8 GPUs each, when two more come: one may shrink, or two."""
    one = np.ones(6, np.int64)
    apps = Applications(
        np.full((6, 1), 1 / 8), one, 8 * one, np.array([2, 2, 2, 2, 0, 0]), 0 * one, np.ones(6)
    )
    room = np.ones((1, 1))
    for theta2, changed in ((0.0, 0), (0.25, 1), (0.5, 2)):
        got = containers(apps, room, 0.1, theta2)
        assert (got != apps.now)[:4].sum() == changed
        assert (got[4:] > 0).sum() == changed
        assert got.sum() == 8


def test_dorm_keeps_to_its_bound_on_unfairness_where_pure_use_does_not() -> None:
    """Like jobs: any division uses all; only the fair one is within the bound."""
    works = [
        job("a", 0, 1000, shape=Shape((Role(size=1, least=1, most=8),))),
        job("b", 10, 1000, shape=Shape((Role(size=1, least=1, most=8),))),
    ]
    run = play("dorm(theta1=0.1,theta2=1)", works, cluster(1, 8), until=20 * SECOND)
    assert run.jobs.size[:2].tolist() == [4, 4]
    total = play("elastic-scaling", works, cluster(1, 8), until=20 * SECOND)
    assert total.jobs.size[:2].tolist() != [4, 4]


# ---------------------------------------------------------------------- allox

HYBRID = typed(j1={"CPU": 0.1, "GPU": 1.0}, j2={"CPU": 0.8, "GPU": 1.0})
TWO_JOBS = [job("j1", 0, 1, model="j1"), job("j2", 0, 2, model="j2")]
CPU_AND_GPU = mixed(("GPU", 1), ("CPU", 1))


def test_allox_puts_each_where_the_sum_is_3_5() -> None:
    """J1 takes 10 on the CPU and 1 on the GPU, J2 2.5 and 2; both on the GPU would be 4."""
    run = play("allox", TWO_JOBS, CPU_AND_GPU, profiles=HYBRID)
    assert run.jct() == [1.0, 2.5]


def test_allox_lets_a_job_wait_for_a_fast_machine_where_sjf_takes_the_slow_one() -> None:
    """j1 waits 5 s for the GPU rather than 10 s on the CPU for its 1 s of work."""
    works = [job("first", 0, 5, model="gpu"), job("j1", 1, 1, model="j1")]
    models = typed(gpu={"CPU": 0.01, "GPU": 1.0}, j1={"CPU": 0.1, "GPU": 1.0})
    matched = play("allox", works, CPU_AND_GPU, profiles=models)
    assert matched.jct() == [5, 5]
    assert play("sjf", works, CPU_AND_GPU, profiles=models).jct() == [5, 10]


def test_alpha_keeps_a_long_job_from_starving() -> None:
    """Short jobs come faster than one GPU serves them; with a small alpha the oldest goes first."""
    works = [
        job("now", 0, 2),
        job("long", 0, 20, user="ann"),
        *(job(f"short {i}", i, 2, user="bob") for i in range(12)),
    ]
    one = cluster(1, 1)
    starved = play("allox", works, one)
    assert starved.started("long") == 26
    for entrants in ("jobs", "users"):
        fair = play(f"allox(alpha=0.1,entrants={entrants})", works, one)
        started = fair.started("long")
        assert started is not None
        assert started <= 4


# ---------------------------------------------------------------------- sia

TABLE_1 = np.array([1, 1.5, 1.5, 2.5, 3.5, 1.2, 2.1, 1, 1.9, 3.6])


def test_sias_table_1() -> None:
    """Over 1A, 2A, 1B, 2B, 4B, with 2 A and 4 B: J1 on 4 B and J2 on 2 A make 5.6."""
    cells, gpus = np.array([0, 0, 1, 1, 1] * 2), np.array([1, 2, 1, 2, 4] * 2)
    options = Options(np.arange(10) // 5, cells, gpus, TABLE_1, np.ones(10))
    take = np.zeros((10, 2))
    take[np.arange(10), cells] = gpus
    found = choose(value(options, 1.0, 0.0), options.row, take, np.array([2.0, 4.0]))
    assert np.flatnonzero(found.taken).tolist() == [4, 6]
    assert found.value == pytest.approx(5.6)


def test_sia_at_most_doubles_and_a_restart_must_pay() -> None:
    alone = [job("a", 0, 1000, shape=Shape((Role(size=1, least=1, most=16),)))]
    run = play("sia", alone, cluster(4, 4), until=400 * SECOND)
    sizes = [text for _, text in run.actions]
    assert sizes[:4] == [
        "start a on 0:0",
        "resize a on 0:0,1 after a",
        "resize a on 0:0,1,2,3 after a",
        "resize a on 0:0,1,2,3 1:0,1,2,3 after a",
    ]
    young = Options(
        np.array([0, 0]),
        np.array([0, 0]),
        np.array([1, 2]),
        np.array([1.0, 2.0]),
        np.array([1.0, 0.4]),
    )
    kept, doubled = value(young, -0.5, 1.1)
    assert kept > doubled, "twice the speed at 0.4 of it is no gain, whatever the power's sign"


def test_sia_rests_until_somebody_could_want_to_change() -> None:
    """Two GPUs are 1.05 times one: worth a restart of 30 s from an age of 30 / 0.05 = 600 s on. In
    between it is not asked, and what it does is what it would do if it were."""
    models = Profiles({"m": Profile(scaling=(1.0, 1.05))})
    shape = Shape((Role(size=1, least=1, most=2),))
    works = [
        job("a", 0, 5000, model="m", shape=shape),
        job("b", 30, 9000, model="m", shape=shape),
        job("c", 4000, 100),
    ]
    rested = play("sia", works, cluster(1, 8), profiles=models, until=20000 * SECOND)
    restless = TargetPolicy("sia", Restless(-0.5, 1.1, 30 * SECOND), 60 * SECOND, on_events=False)
    asked = play(restless, works, cluster(1, 8), profiles=models, until=20000 * SECOND)
    assert rested.actions == asked.actions
    assert [at for at, text in rested.actions if text.startswith("resize")] == [660, 660]
    assert rested.kernel.decisions < 25 < 150 < asked.kernel.decisions


class Restless(Configurations):
    """One that never knows for how long it decides the same."""

    def lasts(self, view: View, ids: Ids) -> int:
        """Now."""
        return view.now


def test_sia_gives_each_the_type_that_suits_it_where_pollux_stays_on_the_first() -> None:
    models = typed(x={"A": 1.0, "B": 4.0}, y={"A": 1.0, "B": 1.1})
    works = [job("x", 0, 100, model="x"), job("y", 0, 100, model="y")]
    on = mixed(("A", 1), ("B", 1))
    assert rates(play("sia", works, on, profiles=models, until=9 * SECOND)) == [4.0, 1.0]
    assert rates(
        play("pollux(population=8,generations=4)", works, on, profiles=models, until=9 * SECOND)
    ) != [4.0, 1.0]


def rates(run: Played) -> list[float]:
    """How fast each job runs when the simulation stops; 0 for one that waits."""
    running = run.jobs.phase[: run.jobs.n] == 4
    return (run.jobs.rate[: run.jobs.n] * running).tolist()  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- pop

MODELS = typed(
    a={"K80": 10.0, "P100": 30.0, "V100": 80.0},
    b={"K80": 50.0, "P100": 70.0, "V100": 65.0},
    c={"K80": 30.0, "P100": 25.0, "V100": 20.0},
)
QUARTERS = [job(f"{name}{i}", 0, 10**7, model=name) for i, name in enumerate("abc" * 4)]
ON_QUARTERS = mixed(("K80", 8), ("P100", 4), ("V100", 4))
EVEN = np.tile([32.5, 58.75, 26.25], 4)
"""Throughput of equal time on all GPUs."""


def normalised(recipe: str) -> list[float]:
    """Throughput of every job over an hour of rounds, in multiples of equal time everywhere."""
    run = play(recipe, QUARTERS, ON_QUARTERS, profiles=MODELS, until=3600 * SECOND, validate=False)
    done = run.kernel.view.work(np.arange(run.jobs.n)) / (3600 * SECOND)
    return (done / EVEN).tolist()  # type: ignore[no-any-return]


def test_pop_of_four_like_parts_is_the_whole_programme() -> None:
    """Four copies of three jobs on 2 K80, 1 P100 and 1 V100, one copy to a part."""
    whole = normalised("gavel(every=20s,fill=no)")
    parts = normalised("pop(parts=4,deal=stratified,every=20s,fill=no)")
    assert min(parts) == pytest.approx(min(whole), rel=0.02)
    assert sum(parts) == pytest.approx(sum(whole), rel=0.02)


def test_pop_of_too_many_parts_falls_short_of_gavel() -> None:
    """Twelve parts of one job each: nobody can trade a K80 for a V100 any more."""
    whole = normalised("gavel(every=20s,fill=no)")
    parts = normalised("pop(parts=12,every=20s,fill=no)")
    assert min(parts) < 0.97 * min(whole)


def test_sia_runs_a_job_without_gpus_beside_the_others() -> None:
    works = [job("tool", 0, 30, size=0), job("train", 0, 30)]
    run = play("sia", works, cluster(1, 1))
    assert [run.ended(name) is not None for name in ("tool", "train")] == [True, True]


@pytest.mark.parametrize(("alpha", "window"), [(0.0, 9), (1.001, 9), (0.5, 0)])
def test_a_part_of_the_users_is_above_none_and_at_most_all(alpha: float, window: int) -> None:
    with pytest.raises(BadInput, match="allox"):
        allox(alpha=alpha, window=window)
    assert allox(alpha=1.0, window=1).name == "allox"
