"""Hand checks of Synergy and of remote input: who gets CPUs and host memory, and what that does to
speed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.core.plan import Tune
from ganger.core.profiles import Profile, Profiles, Sensitivity
from ganger.core.spec import ClusterSpec, Needs, NodeSpec, Role, Shape
from ganger.core.units import SECOND
from ganger.lab.simulation import Setup
from ganger.mechanisms.host_resources.remote_input import remote_workers
from ganger.mechanisms.host_resources.supply import (
    Division,
    Stock,
    SupplyPolicy,
    User,
    divide,
    stock,
)
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import FIRST_COME
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.sim.rows import Outage
from ganger.workloads.measured.speeds import read_profiles
from worlds import Played, job, play

CORES = (3000.0, 6000.0, 9000.0)
MODELS = Profiles(
    {
        "hungry": Profile(sensitivity=Sensitivity(CORES, (0.0,), ((0.5,), (1.0,), (1.5,)))),
        "modest": Profile(sensitivity=Sensitivity(CORES, (0.0,), ((1.0,), (1.0,), (1.0,)))),
    }
)
HUNGRY, MODEST = (MODELS.of(name).sensitivity for name in ("hungry", "modest"))


def servers(count: int = 1) -> ClusterSpec:
    """Servers of 4 GPUs and 24 cores."""
    return ClusterSpec((NodeSpec(count=count, gpus=4, gpu_type="V100", cpus=24000),))


def wants(sensitivity: Sensitivity) -> tuple[int, int]:
    """The demand in whole numbers."""
    cpus, memory = sensitivity.demand()
    return int(cpus), int(memory)


def rates(run: Played) -> list[float]:
    """How fast each job runs when the simulation stops."""
    return run.jobs.rate[: run.jobs.n].tolist()  # type: ignore[no-any-return]


A = job("a", 0, 30, size=2, model="hungry")
B = job("b", 0, 30, size=2, model="modest")


@pytest.mark.parametrize("division", list(Division))
def test_both_jobs_run_at_full_speed_where_an_even_split_starves_one(division: Division) -> None:
    """A wants 9 cores per GPU and B 3: 18 + 6 = 24. Its GPUs' part is 12 for A."""
    run = play(
        f"synergy(division={division.value})", [A, B], servers(), profiles=MODELS, until=SECOND
    )
    assert rates(run) == [1.5, 1.0]
    even = play("srtf", [A, B], servers(), profiles=MODELS, until=SECOND)
    assert rates(even) == [1.0, 1.0]


def test_cores_are_divided_where_all_jobs_are_sensitive_also_those_without_a_model() -> None:
    """One of two GPUs has all that it wants; a part of 4 GPUs would be 6 cores each."""
    hungry = Profiles({}, MODELS.of("hungry"))
    run = play("synergy", [job("a", 0, 30, size=2)], servers(), profiles=hungry, until=SECOND)
    assert rates(run) == [1.5]


def test_jct_is_what_the_supply_makes_it_and_changes_when_a_neighbour_goes() -> None:
    """Two hungry jobs get their part, 6 cores per GPU, and run as supposed. Beside a modest one the
    first ends after 20 s, and the next takes what it had: 40 s for work of 60."""
    works = [A, job("c", 0, 30, size=2, model="hungry")]
    run = play("synergy", works, servers(), profiles=MODELS)
    assert [run.ended(name) for name in "ac"] == [30, 30]
    works = [A, B, job("c", 0, 60, size=2, model="hungry")]
    run = play("synergy(order=fifo)", works, servers(), profiles=MODELS)
    assert [run.ended(name) for name in "abc"] == [20, 30, 60]


def test_a_job_goes_where_its_demand_fits_and_not_where_best_fit_would_starve_a_neighbour() -> None:
    """x and y want 21 of node 0's 24 cores; z wants 9, which an empty node has."""
    works = [
        job("x", 0, 90, size=2, model="hungry"),
        job("y", 0, 90, model="modest"),
        job("z", 1, 90, model="hungry"),
    ]
    fed = play("synergy(order=fifo)", works, servers(2), profiles=MODELS, until=2 * SECOND)
    assert "start z on 1:0" in fed.text()
    assert rates(fed) == [1.5, 1.0, 1.5]
    packed = SupplyPolicy(QueuePolicy("packed", FIRST_COME, Walk.SKIP), Division.TUNE)
    starved = play(packed, works, servers(2), profiles=MODELS, until=2 * SECOND)
    assert "start z on 0:3" in starved.text()
    assert rates(starved) == [1.0, 1.0, 1.5]


def test_what_a_job_asks_for_itself_is_not_divided() -> None:
    asks = job("asks", 0, 30, shape=Shape((Role(size=2, needs=Needs(cpus=9000)),)), model="hungry")
    run = play(
        "synergy",
        [asks, B, job("c", 0, 30, model="modest")],
        servers(),
        profiles=MODELS,
        until=SECOND,
    )
    assert rates(run)[:2] == [1.5, 1.0]


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from([HUNGRY, MODEST]), st.integers(1, 4), st.integers(0, 2)),
        max_size=9,
    )
)
def test_nobody_gets_less_than_its_part_and_nothing_is_given_twice(
    jobs: list[tuple[Sensitivity, int, int]],
) -> None:
    """On three nodes of 8 GPUs and 48 cores; OPT is never below TUNE."""
    users, there = list[User](), {0: 0, 1: 0, 2: 0}
    for number, (sensitivity, gpus, node) in enumerate(jobs):
        if there[node] + gpus <= 8:
            there[node] += gpus
            users.append(User(number, ((node, gpus),), sensitivity, wants(sensitivity)))
    stocks = {node: Stock((48000.0, 1e5), (6000.0, 1e4)) for node in there}
    sums = {}
    for how in Division:
        given_out = divide(users, stocks, how)
        for user in users:
            want = user.sensitivity.demand()[0]
            assert min(want, 6000.0) - 1e-6 <= given_out[user.job][0] <= want + 1e-6
        for node in stocks:
            used = sum(
                gpus * given_out[user.job][0]
                for user in users
                for at, gpus in user.places
                if at == node
            )
            assert used <= 48000.0 + 1e-6
        sums[how] = sum(user.sensitivity.at(*given_out[user.job]) for user in users)
    assert sums[Division.OPT] >= sums[Division.TUNE] - 1e-6


def test_sensitivity_is_linear_between_and_level_beyond() -> None:
    table = Sensitivity((1000.0, 3000.0), (0.0, 100.0), ((0.2, 0.4), (0.6, 1.0)))
    assert table.at(1000, 0) == pytest.approx(0.2)
    assert table.at(2000, 50) == pytest.approx(0.55)
    assert table.at(9000, 900) == pytest.approx(1.0)
    assert table.at(500, 100) == pytest.approx(0.2)
    assert table.demand() == (3000.0, 100.0)


@pytest.mark.skipif("GANGER_TRACES" not in os.environ, reason="no folder of traces")
def test_synergys_tables_reach_the_demands_that_stand_beside_them() -> None:
    path = Path(os.environ["GANGER_TRACES"]) / "synergy" / "sensitivity_profiles.json"
    models, compared = read_profiles(path).models, 0
    for name, by_server in json.loads(path.read_text()).items():
        sensitivity = models[name.removesuffix("_1")].sensitivity
        assert sensitivity is not None
        assert sensitivity.at(3000, 64000) == pytest.approx(1.0)
        stated = by_server["cpus_per_gpu_4"]
        if "mem" in stated:
            compared += 1
            assert sensitivity.demand() == (1000 * stated["cpus"], 1024 * stated["mem"]), name
    assert compared == 7


# ---------------------------------------------------------------------- remote input


FED = Profiles({"net": Profile(sensitivity=Sensitivity((600.0, 1000.0), (0.0,), ((0.6,), (1.0,))))})
"""A GPU consumes 1000 samples/s, and a thousandth of a core prepares one a second."""


def starved(gpus: int = 2) -> ClusterSpec:
    """One node, with CPUs for 600 samples/s for every GPU."""
    return ClusterSpec((NodeSpec(gpus=gpus, gpu_type="V100", cpus=600 * gpus),))


def told(run: Played) -> list[float]:
    """How many remote workers jobs were given, in turn."""
    return [
        float(action.knobs["remote_workers"])
        for _, plan in run.diary.steps
        for action in (plan.actions if plan is not None else ())
        if isinstance(action, Tune)
    ]


def test_four_remote_workers_restore_1000_samples_per_second() -> None:
    assert remote_workers(1000, 600, 100) == 4
    assert remote_workers(500, 600, 100) == 0
    alone = [job("a", lasts=60, model="net")]
    assert play("fifo", alone, starved(1), profiles=FED).jct() == [100]
    for pool, jct in ((4, 60), (3, 66.667), (0, 100)):
        spec = f"cpu-disaggregation(cores=0.1,pool={pool})"
        assert play(spec, alone, starved(1), profiles=FED).jct() == pytest.approx([jct], abs=1e-3)


def test_a_job_that_states_its_own_cpus_is_fed_for_what_those_lack() -> None:
    """Of 1.2 cores that its node has it asks for 0.6: as starved as on a node that has no more."""
    own = job("a", lasts=60, model="net", shape=Shape((Role(needs=Needs(cpus=600)),)))
    on = ClusterSpec((NodeSpec(gpus=1, gpu_type="V100", cpus=1200),))
    run = play("cpu-disaggregation(cores=0.1)", [own], on, profiles=FED)
    assert told(run) == [4.0]


def test_workers_go_to_running_jobs_in_order_and_come_back() -> None:
    works = [job("a", lasts=10, model="net"), job("b", lasts=20, model="net")]
    works.append(job("c", lasts=20))
    run = play("cpu-disaggregation(cores=0.1,pool=6)", works, starved(3), profiles=FED)
    tunes = [
        (batch.at // SECOND, action.job, action.knobs["remote_workers"])
        for batch, plan in run.diary.steps
        if plan is not None
        for action in plan.actions
        if isinstance(action, Tune)
    ]
    assert tunes == [(0, 0, 4.0), (0, 1, 2.0), (10, 1, 4.0)]
    assert run.jct() == pytest.approx([10, 10 + (20 - 8) / 1.0, 20], abs=1e-3)


def test_a_job_of_unknown_sensitivity_keeps_no_workers_from_those_after_it() -> None:
    works = [job("plain", lasts=60), job("fed", lasts=60, model="net")]
    run = play("cpu-disaggregation(cores=0.1)", works, starved(), profiles=FED)
    assert run.jct() == pytest.approx([60, 60], abs=1e-3)


def test_workers_follow_a_job_that_starts_again() -> None:
    """The node fails after 10 s; the second attempt is fed as the first one was."""
    setup = Setup(profiles=FED, outages=(Outage(0, 10 * SECOND, 20 * SECOND),))
    run = play(
        "cpu-disaggregation(cores=0.1)", [job("a", lasts=60, model="net")], starved(1), setup
    )
    assert run.jct() == pytest.approx([80], abs=1e-3)


@pytest.mark.parametrize(("cores", "workers"), [(0.4, [1.0]), (0.1, [4.0])])
def test_one_worker_that_is_wanted_is_told_and_none_that_is_not(
    cores: float, workers: list[float]
) -> None:
    """The second job has CPUs enough."""
    on = ClusterSpec((NodeSpec(count=2, gpus=1, gpu_type="V100", cpus=600),))
    works = [job("a", lasts=10, model="net"), job("b", lasts=10, model="slow")]
    slow = Profile(sensitivity=Sensitivity((500.0, 600.0), (0.0,), ((500.0,), (500.0,))))
    profiles = Profiles({**FED.models, "slow": slow})
    run = play(f"cpu-disaggregation(cores={cores})", works, on, profiles=profiles)
    assert told(run) == workers


def test_who_is_beside_a_job_that_states_its_own_cpus_has_an_equal_part_of_the_rest() -> None:
    """`asks` leaves 3 of 24 cores to the three others: one each, less than their part of 6."""
    asks = job("asks", 0, 30, shape=Shape((Role(needs=Needs(cpus=21_000)),)), model="modest")
    works = [asks, *(job(name, 0, 30, model="hungry") for name in "bcd")]
    policy = SupplyPolicy(QueuePolicy("queue", FIRST_COME, Walk.SKIP), Division.TUNE)
    run = play(policy, works, servers(), profiles=MODELS, until=SECOND)
    (node,) = {slot.node for slot in run.kernel.ledger.holds[1][1]}
    assert stock(run.kernel.view, node, 3).share[0] == 1000
    given = {
        action.job: action.knobs["cpus_per_gpu"]
        for _, plan in run.diary.steps
        for action in (plan.actions if plan is not None else ())
        if isinstance(action, Tune)
    }
    assert given == {1: 1000, 2: 1000, 3: 1000}
