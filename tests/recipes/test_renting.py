"""Machines that are rented for jobs: the cards' examples by hand, what simulated runs pay, and what
the recipes differ in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.core.plan import Provision
from ganger.core.profiles import Measured, Profile, Profiles, Steps
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec, Offer, OnPreempt, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.units import HOUR, MINUTE, NEVER, SECOND
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.provisioning.instances import Catalogue, Instance
from ganger.mechanisms.provisioning.outcome import Upkeep, follow
from ganger.mechanisms.provisioning.rentals import Demand, Goal, Valued, decide, widths
from ganger.mechanisms.provisioning.servers import Sync
from ganger.recipes.training.renting.cynthia import ByModel, fit_loss_model
from ganger.recipes.training.renting.fc2 import ByMeasurement
from ganger.sim.physics import Costs
from worlds import Diary, Work, job, trace_of


def machine(
    price: float, count: int = 8, gpus: int = 1, kind: str = "V100", **more: Any
) -> NodeSpec:
    """Nodes for rent at USD an hour."""
    uplink = more.pop("uplink", -1.0)
    offer = Offer(price=price, rentable=True, **more)
    return NodeSpec(count, gpus, kind, offer=offer, uplink=uplink)


def market(*groups: NodeSpec, speeds: dict[str, float] | None = None) -> ClusterSpec:
    types = {group.gpu_type for group in groups}
    return ClusterSpec(
        groups, tuple(GpuType(name, speed=(speeds or {}).get(name, 1.0)) for name in sorted(types))
    )


def kinds(*groups: NodeSpec) -> list[tuple[Instance, int]]:
    return [(each, each.count) for each in Catalogue(Nodes(market(*groups))).instances]


def demand(profile: Profile, seconds: float, most: int = 8) -> Demand:
    return Demand(1, 1, most, seconds, profile, lambda kind, gpus, machines: float(gpus))


def hours(name: str, lasts: float, at: float = 0, most: int = 1, **more: Any) -> Work:
    """A job of one GPU, or up to `most`."""
    shape = Shape((Role(size=1, least=1, most=most),)) if most > 1 else Shape()
    if "deadline" in more:
        more["deadline"] *= 3600
    return job(name, 3600 * at, 3600 * lasts, shape=shape, **more)


def run(works: list[Work], on: ClusterSpec, recipe: str, **setup: Any) -> Run:
    return run_one(trace_of(works), on, recipe, Setup(validate=True, **setup))


# ---------------------------------------------------------------------- Cynthia

STEPS = Steps(compute=8.0, gradients=1.0, bandwidth=(1.0,) * 4, servers=1, split=True)
"""8 s of work that workers split; 1 GB of gradients; servers of 1 GB/s."""


def test_cynthia_never_takes_more_workers_than_the_servers_can_hear() -> None:
    """The card: a step of max(8/n, 2n) is 8, 4, 6, 8 s for 1 to 4 workers, so no more than 2 are
    ever chosen. On one worker the exchange adds 2 s to the reference of 10 s."""
    model, work = ByModel(stated=True), demand(Profile(steps=STEPS), 10.0)
    found = {each.gpus: each.seconds for each in model(kinds(machine(1.0)), work)}
    assert found == {1: pytest.approx(8.0), 2: pytest.approx(4.0)}
    more = {each.gpus: each for each in ByModel()(kinds(machine(1.0, 12)), work)}
    assert max(more) > 2, "with more servers more workers are heard"


def test_cynthia_takes_the_cheapest_that_is_in_time_and_names_what_comes_nearest() -> None:
    """900 steps of 8 s on one worker, at a dollar an hour for it and for its server: two hours for
    $4; on two workers one hour for $3."""
    work = demand(Profile(steps=STEPS), 9000.0)
    every = [
        Valued(each, each.seconds, each.expected(0))
        for each in ByModel(stated=True)(kinds(machine(1.0)), work)
    ]
    assert [each.seconds for each in every] == pytest.approx([7200, 3600])
    assert [each.dollars for each in every] == pytest.approx([4.0, 3.0])
    for goal, gpus in ((Goal(), 2), (Goal(7200), 2), (Goal(dollars=10), 2)):
        pick = decide(every, goal).pick
        assert pick is not None
        assert pick.rental.gpus == gpus
    late = decide(every, Goal(1800.0, 100.0))
    assert late.pick is None
    assert late.fastest is not None
    assert (late.fastest.rental.gpus, late.cheapest) == (2, None)
    poor = decide(every, Goal(7200.0, 1.0))
    assert poor.cheapest is not None
    assert poor.cheapest.dollars == pytest.approx(3.0)
    assert poor.fastest is None


def test_workers_that_do_not_wait_compute_and_communicate_in_turn_and_need_more_batches() -> None:
    """Each of n workers takes 8 + 2n s for a batch of its own, and n of them need sqrt(n) times
    the batches."""
    work = demand(Profile(steps=STEPS), 10.0)
    found = {
        each.gpus: each.seconds
        for each in ByModel(Sync.ASP, stated=True)(kinds(machine(1.0)), work)
    }
    assert found[1] == pytest.approx(10.0)
    assert found[2] == pytest.approx(2**0.5 * 12.0 / 2)


def test_cores_of_a_server_may_be_what_limits() -> None:
    """Two cores add up 0.1 GB/s each, so that the server is five times as slow as its link."""
    group = NodeSpec(8, 1, "V100", cpus=2000, offer=Offer(price=1.0, rentable=True))
    work = demand(Profile(steps=STEPS), 10.0)
    slow = [each.seconds for each in ByModel(per_core=0.1, stated=True)(kinds(group), work)]
    assert slow == [pytest.approx(10.0)], "the exchange of one worker alone takes 10 s"


def test_the_model_of_the_loss_says_how_many_epochs() -> None:
    epochs = [1.0, 2.0, 4.0, 8.0]
    fitted = fit_loss_model(epochs, [2.0 / k + 0.5 for k in epochs])
    assert fitted.epochs(0.7) == pytest.approx(10.0)
    assert fitted.spread == pytest.approx(0.0, abs=1e-9)
    assert fitted.epochs(0.5) == float("inf")


# ---------------------------------------------------------------------- FC2


def test_fc2_puts_parameters_on_the_wide_link_and_workers_on_the_cheap_machine() -> None:
    """The card: X ($1, 1 Gb/s) and Y ($2, 10 Gb/s) compute alike; a server with 1 Gb/s is full at
    two workers."""
    steps = Steps(compute=1.0, gradients=0.125 / 4, bandwidth=(1.0,) * 4, servers=1)
    x = machine(1.0, kind="X", uplink=0.125)
    y = machine(2.0, kind="Y", uplink=1.25)
    work = demand(Profile(steps=steps), 3600.0)
    every = [
        Valued(each, each.seconds, each.expected(0)) for each in ByMeasurement()(kinds(x, y), work)
    ]
    assert {each.rental.server.gpu_type for each in every if each.rental.server} == {"Y"}
    answer = decide(every, Goal(seconds=1200.0)).pick
    assert answer is not None
    assert answer.rental.instance.gpu_type == "X"
    server = ByMeasurement(hourly=1.5).server_of(kinds(x, y))
    assert server is not None
    assert server[0].gpu_type == "X", "an hour of Y costs more than the budget"


def test_fc2_adds_workers_while_throughput_scales() -> None:
    """1, 1.8, 2.2, 2.4 times the speed: the third worker adds 0.4, less than half of 0.9."""
    speeds = [1.0, 1.8, 2.2, 2.4]
    work = Demand(1, 1, 4, 3600.0, Profile(), lambda kind, gpus, machines: speeds[gpus - 1])
    assert [each.gpus for each in ByMeasurement(0.5)(kinds(machine(1.0)), work)] == [1, 2]
    assert [each.gpus for each in ByMeasurement(0.4)(kinds(machine(1.0)), work)] == [1, 2, 3]


def test_sizes_that_are_looked_at() -> None:
    assert widths(1, 16, 4, 4) == [1, 2, 3, 4, 8, 12, 16]
    assert widths(3, 10, 4, 4) == [3, 4, 8, 10]
    assert widths(5, 16, 4, 1) == []
    assert len(widths(1, 1000, 1, 1000)) <= 32
    assert widths(1, 1000, 1, 1000)[-1] == 1000


# ---------------------------------------------------------------------- simulated


def test_a_job_has_the_cheapest_machines_in_time_and_gives_them_back() -> None:
    """K80 at $1 takes 4 times as long as V100 at $3. a is in time on K80, b on V100 only; for c,
    which has no deadline, 3 V100 hours cost less than 4 times as many of K80."""
    on = market(machine(3.0, 4), machine(1.0, 4, kind="K80"), speeds={"K80": 0.5})
    works = [hours("a", 1, deadline=3), hours("b", 2, deadline=3), hours("c", 1, at=8)]
    found = run(works, on, "cynthia")
    assert (found.jobs.finish / 3600).tolist() == [2.0, 2.0, 10.0]
    assert found.cost == {"jobs": pytest.approx(2 + 6 + 2), "services": 0, "idle": 0}


def test_machines_boot_and_are_paid_for_meanwhile() -> None:
    found = run([hours("a", 1)], market(machine(6.0)), "fc2", costs=Costs(boot=10 * MINUTE))
    assert found.jobs.first_start.tolist() == [600]
    assert found.cost == {"jobs": pytest.approx(6), "services": 0, "idle": pytest.approx(1)}


def test_a_job_that_grows_is_as_wide_as_its_deadline_asks() -> None:
    """Speed is in proportion to GPUs, so each size costs the same; one machine does if it may."""
    on = market(machine(1.0, 8))
    works = [hours("a", 8, most=8), hours("b", 8, at=20, most=8, deadline=24)]
    found = run(works, on, "cynthia")
    assert found.jobs.finish.tolist() == [8 * 3600, 22 * 3600 + 7200]


def test_who_finds_no_machine_waits_for_one() -> None:
    found = run([hours("a", 1), hours("b", 2)], market(machine(1.0, 1)), "cynthia")
    assert found.jobs.first_start.tolist() == [0, 3600]


DEAR = ((0, 1.0), (2 * HOUR, 5.0), (3 * HOUR, 2.0))


def spot(**more: Any) -> NodeSpec:
    offer = Offer("spot", prices=DEAR, bid=2.0, rentable=True, **more)
    return NodeSpec(2, 1, "V100", labels=("spot",), offer=offer)


def test_a_job_survives_that_its_machine_is_taken_away() -> None:
    """a is on the spot market for $1 for two hours, saves when told, and goes on
    on demand; c, which cannot save, never goes to the spot market."""
    on = market(spot(notice=2 * MINUTE), machine(3.0, 2))
    never = OnPreempt.NEVER
    found = run([hours("a", 4), hours("c", 1, on_preempt=never)], on, "cynthia")
    assert found.jobs.finish.tolist() == [4 * 3600, 3600]
    spent = 2 - 2 / 60
    assert found.cost["jobs"] == pytest.approx(spent + 3 * (4 - spent) + 3)


def test_neighbours_differ_in_what_they_take() -> None:
    """Speeds 1, 1.8, 2.2, 2.4 on 1 to 4 GPUs, and two hours for four hours of work: fc2 stops at 2
    GPUs and is late, cynthia takes the 3 that are in time, spot the one machine asked for."""
    steps = {"V100": {1: 1.0, 2: 1.8, 3: 2.2, 4: 2.4}}
    profiles = Profiles({"m": Profile(measured=Measured(steps, "V100"))})
    works = [hours("a", 4, most=4, deadline=2, model="m")]
    ended = {
        recipe: run(works, market(machine(1.0)), recipe, profiles=profiles).jobs.finish[0] / 3600
        for recipe in ("cynthia", "fc2")
    }
    assert ended == {"cynthia": pytest.approx(4 / 2.2), "fc2": pytest.approx(4 / 1.8)}


# ---------------------------------------------------------------------- MLCloudPrice

SPEEDS = Profiles({"m": Profile(measured=Measured({"P100": {1: 30.0}, "V100": {1: 80.0}}, "V100"))})
RISES = ((0, 2.0), (6 * HOUR, 3.0))


def two_types(prices: tuple[tuple[int, float], ...]) -> ClusterSpec:
    v100 = Offer("spot", prices=prices, rentable=True)
    return market(machine(1.0, 1, kind="P100"), NodeSpec(1, 1, "V100", offer=v100))


def test_a_job_moves_when_what_is_left_to_save_is_more_than_the_move_costs() -> None:
    """The card: $1 for 30 it/s and $2 for 80 it/s, so V100; at $3 an iteration is cheaper on P100.
    What is left when that is seen are r hours on V100, for 3 r, or 2.67 r on P100: the third of r
    is more than the move of 10 minutes for $1 / 6 where r is more than half an hour."""
    for lasts, moves in ((7.0, True), (6.4, False)):
        works = [hours("a", lasts, model="m")]
        costs = Costs(checkpoint=0, restore=10 * MINUTE)
        found = run(
            works,
            two_types(RISES),
            "mlcloudprice(every=6h,move=10m)",
            profiles=SPEEDS,
            costs=costs,
        )
        rest = lasts - 6
        paid = rest * 80 / 30 + 1 / 6 if moves else 3 * rest
        assert sum(found.cost.values()) == pytest.approx(12 + paid, abs=0.005)
        stays = run(works, two_types(RISES), "cynthia", profiles=SPEEDS, costs=costs)
        assert stays.cost["jobs"] == pytest.approx(12 + 3 * rest), "its neighbour stays"


def test_of_two_jobs_the_one_that_saves_more_gets_the_machine() -> None:
    """When V100 rises to $9 there is one P100: for b, which has longer to go, that saves more."""
    prices = ((0, 2.0), (6 * HOUR, 9.0))
    on = market(
        machine(1.0, 1, kind="P100"),
        NodeSpec(2, 1, "V100", offer=Offer("spot", prices=prices, rentable=True)),
    )
    works = [hours("a", 7, model="m"), hours("b", 9, model="m")]
    found = run(works, on, "mlcloudprice(every=6h)", profiles=SPEEDS)
    assert found.jobs.finish.tolist() == [7 * 3600, (6 + 3 * 80 / 30) * 3600]


# ---------------------------------------------------------------------- money

RENTERS = ["andreas", "cynthia", "fc2", "jahani", "mlcloudprice(every=1h,move=1m)"]
terms = st.tuples(
    st.integers(1, 500), st.sampled_from([SECOND, MINUTE, HOUR]), st.integers(1, 3), st.booleans()
)
lengths = st.lists(
    st.tuples(st.integers(0, 9000), st.integers(1, 20_000), st.integers(1, 3)),
    min_size=1,
    max_size=5,
)


@settings(max_examples=10)
@given(st.lists(terms, min_size=1, max_size=3), lengths, st.sampled_from(RENTERS))
def test_what_jobs_and_nobody_pay_adds_up_to_the_bill_of_the_machines(
    offered: list[tuple[int, int, int, bool]], jobs: list[tuple[int, int, int]], recipe: str
) -> None:
    """To the cent: every machine is billed from when it was asked for until it was given back."""
    groups = []
    for cents, per, count, series in offered:
        price = cents / 100
        prices = ((0, price), (HOUR, 2 * price), (3 * HOUR, price / 2)) if series else ()
        offer = Offer(price=-1.0 if series else price, prices=prices, per=per, rentable=True)
        groups.append(NodeSpec(count, 1, "V100", offer=offer))
    works = [
        job(f"j{n}", at, lasts, shape=Shape((Role(size=1, least=1, most=most),)))
        for n, (at, lasts, most) in enumerate(jobs)
    ]
    on, diary = market(*groups), Diary()
    found = run_one(trace_of(works), on, recipe, Setup(validate=True), journal=lambda _: diary)
    owner = {row: each for each in Catalogue(Nodes(on)).instances for row in each.rows}
    since, bill = dict[int, int](), 0.0
    for batch, plan in diary.steps:
        for action in plan.actions if plan is not None else ():
            if isinstance(action, Provision) and action.verb == "on":
                since[action.node] = batch.at
            elif isinstance(action, Provision):
                bill += owner[action.node].bill(since.pop(action.node), batch.at)
    assert not since, "all machines are given back"
    assert round(sum(found.cost.values()), 2) == pytest.approx(round(bill, 2), abs=0.0101)
    assert sum(found.cost.values()) == pytest.approx(bill, rel=1e-9)


@settings(max_examples=10)
@given(
    st.lists(st.tuples(st.integers(1, 3 * 3600), st.integers(0, 30)), min_size=1, max_size=6),
    st.integers(1, 30_000),
    st.sampled_from([SECOND, HOUR]),
    st.sampled_from([0, MINUTE]),
)
def test_what_was_forecast_of_one_job_is_what_its_simulation_takes_and_costs(
    steps: list[tuple[int, int]], lasts: int, per: int, notice: int
) -> None:
    """Prices that change, a bid of $1.50, checkpoints each half hour, half a minute to go on."""
    at, prices = 0, list[tuple[int, float]]()
    for gap, tenths in steps:
        prices.append((at * SECOND, tenths / 10))
        at += gap
    prices.append((at * SECOND, 1.0))
    offer = Offer("spot", prices=tuple(prices), bid=1.5, per=per, notice=notice, rentable=True)
    on = market(NodeSpec(1, 1, "V100", labels=("spot",), offer=offer))
    costs = Costs(restore=30 * SECOND, checkpoint_every=30 * MINUTE)
    found = run([job("a", lasts=lasts)], on, "cynthia", costs=costs)
    kind = Catalogue(Nodes(on)).instances[0]
    upkeep = Upkeep(restore=30 * SECOND, every=30 * MINUTE)
    told = follow([(kind, 1)], 0, lasts * SECOND, upkeep)
    assert told.done < NEVER
    assert found.jobs.finish[0] == pytest.approx(told.done / SECOND)
    assert sum(found.cost.values()) == pytest.approx(told.dollars)
