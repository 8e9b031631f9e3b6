"""MIG-Serving: how devices are divided, how few are needed, and the way from one division to the
next."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.books.mig import KNOB, MIG_SLICES, read
from ganger.core.plan import Start, Stop, Tune
from ganger.core.spec import ClusterSpec, JobSpec, Kind, Needs, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import SECOND, WHOLE
from ganger.lab.log import LogWriter, replay
from ganger.lab.result import Run
from ganger.lab.serving.hosting import Traffic
from ganger.lab.simulation import Setup, run_one
from ganger.recipes.serving.slices.packing import (
    Config,
    Problem,
    best_configs,
    greedy,
    incomplete,
    layouts,
)
from ganger.recipes.serving.slices.policy import MigServing
from ganger.recipes.serving.slices.search import Search, device_parts, fewest
from ganger.recipes.serving.slices.transition import Lying, goal_of, goals, starts_of
from ganger.solve.covering import Covering, cheapest, relaxed
from ganger.workloads.models.profiles import Latency, Model, Models
from ganger.workloads.requests.merging import merged
from ganger.workloads.requests.processes import Curve, constant, spike
from ganger.workloads.requests.synthetic import Mix, generated
from ganger.workloads.trace import Trace
from worlds import Diary

_1G, _2G, _3G, _4G, _7G = 0, 2, 3, 4, 5
"""Rows of `MIG_SLICES`."""
USEFUL = (_1G, _2G, _3G, _4G, _7G)
X, Y = (100, 180, 250, 0, 450), (0, 0, 200, 230, 350)
"""The services of the card: requests a second on 1, 2, 3, 4 and 7 sevenths."""


def problem(rates: list[tuple[float, ...]], loads: list[float]) -> Problem:
    table = np.zeros((len(rates), len(MIG_SLICES["A100"])))
    table[:, USEFUL] = rates
    return Problem(table, np.array(loads, float), layouts("A100", frozenset(USEFUL)), "A100")


def programme(posed: Problem, room: int = 10_000) -> Covering:
    """The same as a covering programme: a device costs 1."""
    services, kinds = posed.rates.shape
    bundles = np.array([[each.count(kind) for kind in range(kinds)] for each in posed.layouts])
    some, all_ = np.zeros(services, np.int64), np.full(services, 10_000)
    pool = np.zeros(len(bundles), np.int64)
    prices = np.ones(len(bundles))
    return Covering(posed.rates, posed.loads, some, all_, bundles, prices, pool, np.array([room]))


def counted(posed: Problem, configs: list[Config]) -> tuple[Any, Any]:
    """A deployment as pieces and bundles."""
    pieces = np.zeros(posed.rates.shape, np.int64)
    bundles = np.zeros(len(posed.layouts), np.int64)
    for config in configs:
        kinds = [kind for kind, _ in config]
        for kind, service in config:
            pieces[service, kind] += 1
        held = (
            at
            for at, layout in enumerate(posed.layouts)
            if all(layout.count(kind) >= kinds.count(kind) for kind in kinds)
        )
        bundles[next(held)] += 1
    return pieces, bundles


def random_problem(seed: int, services: int, devices: float) -> Problem:
    """Services that answer more or less than in proportion to their slices, some of which need
    larger ones; their loads are about so many devices together."""
    rng = np.random.default_rng(seed)
    sizes = np.array([MIG_SLICES["A100"][kind].compute for kind in USEFUL])
    rates, loads = list[tuple[float, ...]](), list[float]()
    for _ in range(services):
        each = rng.uniform(20, 200) * sizes ** rng.uniform(0.5, 1.2) * rng.uniform(0.9, 1.1, 5)
        each[: rng.choice([0, 0, 0, 1, 2, 3])] = 0
        rates.append(tuple(each.tolist()))
        part = devices / services * rng.uniform(0.2, 1.8)
        loads.append(float(part * (each * 7 / sizes).max()))
    return problem(rates, loads)


def test_the_layouts_of_a_device() -> None:
    """Three sevenths lie on half of the memory: beside two of them nothing fits."""
    found = layouts("A100", frozenset(USEFUL))
    assert len(found) == 12
    assert {(_7G,), (_4G, _3G), (_3G, _3G), (_4G, _2G, _1G), (_1G,) * 7} <= set(found)
    assert (_3G, _3G, _1G) not in found
    assert (_4G,) not in found
    assert (_2G,) * 4 not in found
    assert layouts("A100", frozenset((_3G,))) == ((_3G, _3G),)
    assert layouts("V100", frozenset()) == ()


def test_the_example_of_the_card_needs_two_devices() -> None:
    """Whole ones answer 450 and 350: four are needed. Seven sevenths answer the first service's
    700, and two of three sevenths the second one's 400."""
    posed = problem([X, Y], [700, 400])
    whole = problem([(0, 0, 0, 0, 450), (0, 0, 0, 0, 350)], [700, 400])
    quick = greedy(posed, posed.loads, 99)
    assert len(greedy(whole, whole.loads, 99)) == 4
    assert len(quick) == 2, "by chance the greedy one finds two, too"
    assert posed.covers(quick)
    found = Search(30, 2, 4).improved(posed, quick, np.random.default_rng(0))
    assert len(found) == 2
    assert posed.covers(found)
    assert cheapest(programme(posed), counted(posed, quick)).cost == 2
    assert 1 < relaxed(programme(posed)) < 2


def test_a_slice_is_worth_more_the_more_of_a_load_lacks() -> None:
    """By the card: parts of the load, times the part that lacks."""
    posed = problem([(10, 0, 0, 0, 50), (20, 0, 0, 0, 100)], [100, 100])
    lacking = np.array([100.0, 50.0])
    worth = incomplete(posed, lacking)
    assert worth == pytest.approx([0.01, 0.005])
    scored = {config: score for score, config in best_configs(posed, lacking, worth)}
    assert scored[((_7G, 0),)] == pytest.approx(0.5), "50 of 100, all of which lacks"
    assert ((_7G, 1),) not in scored, "only 50 of its 100 are of use: a quarter"
    small = next(config for config in scored if len(config) == 7)
    assert scored[small] == pytest.approx(7 * 0.1), "10 of 100, or 20 of 100 of which half lacks"


@given(seed=st.integers(0, 10_000), services=st.integers(1, 6), devices=st.floats(0.2, 6))
def test_deployments_answer_all_loads_on_slices_that_exist(
    seed: int, services: int, devices: float
) -> None:
    posed = random_problem(seed, services, devices)
    quick = greedy(posed, posed.loads, 99)
    found = Search(5, 3, 2).improved(posed, quick, np.random.default_rng(seed))
    for configs in (quick, found):
        assert posed.covers(configs)
        assert fewest(posed) <= len(configs) + 1e-6
        for config in configs:
            kinds = tuple(sorted((kind for kind, _ in config), reverse=True))
            assert starts_of("A100", (), kinds) is not None
            assert all(posed.rates[service, kind] > 0 for kind, service in config)
    assert len(found) <= len(quick)
    assert len(greedy(posed, posed.loads, 1)) == 1


def test_the_search_is_at_most_one_device_above_the_programme() -> None:
    """Ten of the size that the paper has are in benchmarks/slices.py."""
    better = 0
    for seed in range(3):
        posed = random_problem(seed, 8, 15)
        quick = greedy(posed, posed.loads, 999)
        found = Search(40, 6, 4).improved(posed, quick, np.random.default_rng(0))
        best = cheapest(programme(posed), counted(posed, quick))
        assert best.gap < 1e-6
        assert best.cost <= len(found) <= min(best.cost + 1, len(quick))
        better += len(found) < len(quick)
    assert better >= 1


def test_the_programme_finds_what_trying_everything_finds() -> None:
    """Two demands of at most four pieces, of two kinds, from two pools of bundles."""
    rng = np.random.default_rng(1)
    bundles = np.array([[2, 0], [0, 1], [1, 1]])
    for _ in range(8):
        gains, needs = rng.integers(0, 4, (2, 2)).astype(float), rng.integers(1, 6, 2).astype(float)
        gains[:, 1] += 1
        prices = rng.integers(1, 5, 3).astype(float)
        room = np.array([2, 3])
        least, most = np.array([0, 1]), np.array([4, 4])
        posed = Covering(gains, needs, least, most, bundles, prices, np.array([0, 0, 1]), room)
        best, start = np.inf, None
        for bought in product(range(3), range(3), range(4)):
            have = bundles.T @ np.array(bought)
            cost = float(prices @ np.array(bought))
            if bought[0] + bought[1] > room[0] or cost >= best:
                continue
            for own in product(range(5), repeat=4):
                pieces = np.array(own).reshape(2, 2)
                if (
                    ((gains * pieces).sum(axis=1) >= needs).all()
                    and (pieces.sum(axis=0) <= have).all()
                    and (pieces.sum(axis=1) <= most).all()
                    and (pieces.sum(axis=1) >= least).all()
                    and not pieces[gains == 0].any()
                ):
                    best, start = cost, start or (pieces, np.array(bought))
                    break
        if start is None:
            continue
        found = cheapest(posed, start)
        assert found.cost == pytest.approx(best)
        assert ((gains * found.pieces).sum(axis=1) >= needs - 1e-9).all()
        assert (found.pieces.sum(axis=0) <= bundles.T @ found.bundles).all()
        assert relaxed(posed) <= best + 1e-9


# --------------------------------------------------------------- from one division to the next


def test_replicas_that_are_wanted_stay_where_they_are() -> None:
    lying = [Lying(10, 0, _3G, 0), Lying(11, 1, _3G, 4)]
    goal = goal_of("A100", ((_3G, 0), (_3G, 2)), lying)
    assert goal.kept == [10]
    assert goal.missing == [(_3G, 2, 4)]
    assert goal_of("A100", (), lying).kept == []


def test_who_is_in_the_way_of_a_new_slice_goes_though_it_is_wanted() -> None:
    """Four sevenths start at the first slot only, where a seventh lies."""
    goal = goal_of("A100", ((_4G, 0), (_1G, 1)), [Lying(10, 1, _1G, 1)])
    assert goal.kept == []
    assert sorted(goal.missing) == [(_1G, 1, 6), (_4G, 0, 0)]
    goal = goal_of("A100", ((_4G, 0), (_1G, 1)), [Lying(10, 1, _1G, 5)])
    assert goal.kept == [10]
    assert goal.missing == [(_4G, 0, 0)]


def test_a_device_becomes_what_it_has_most_of_and_free_ones_come_next() -> None:
    a, b, c, d = (0, 0), (0, 1), (0, 2), (1, 0)
    state = {
        a: [Lying(10, 0, _7G, 0)],
        b: [Lying(11, 1, _3G, 0), Lying(12, 1, _3G, 4)],
        c: [],
        d: [Lying(13, 1, _3G, 4)],
    }
    configs: list[Config] = [((_3G, 1), (_3G, 1)), ((_4G, 2), (_3G, 1)), ((_7G, 2),)]
    found = goals("A100", configs, state)
    assert found[b].kept == [11, 12]
    assert not found[b].missing
    assert found[d].kept == [13]
    assert found[d].missing == [(_4G, 2, 0)]
    assert found[c].missing == [(_7G, 2, 0)], "the free one, not the one that others have"
    assert found[a] == ([], [])


# ---------------------------------------------------------------------------------- services

SHARES = (0.142, 0.285, 0.428, 0.571, 1.0)


def model(name: str, rates: tuple[float, ...], t4: float = 0.0) -> Model:
    """One request at a time, a tenth of the card's a second by slice, and of `t4` on a T4; it loads
    for four seconds."""
    took = [
        Latency("A100", share, np.array([1]), np.array([10 / rate]), np.array([12 / rate]))
        for share, rate in zip(SHARES, rates, strict=True)
        if rate
    ]
    if t4:
        took.append(Latency("T4", 1.0, np.array([1]), np.array([10 / t4]), np.array([12 / t4])))
    return Model(name, bytes=1, load={"host": 4.0}, latency=tuple(took))


def run(
    serving: str = "mig-serving(rounds=20)",
    *,
    gpus: int = 4,
    busy: float = 56.0,
    most: int = 20,
    least: int = 1,
    others: tuple[JobSpec, ...] = (),
    log: Path | None = None,
    t4: float = 0.0,
) -> tuple[Run, Any, Diary]:
    """The card's services, asked 15 and 32 times a second for 90 seconds; the first `busy` times
    for 30 of them, from 40 on."""
    shape = Shape((Role(size=least, least=least, most=most),))
    jobs = [JobSpec(name=name, kind=Kind.SERVE, model=name, shape=shape) for name in "xy"]
    jobs += others
    trace = Trace(declare(jobs), np.array([100 * SECOND] * len(jobs)), name="services")
    where = ClusterSpec((NodeSpec(gpus=gpus, gpu_type="A100"),))
    if t4:
        where = ClusterSpec((NodeSpec(gpus=1, gpu_type="T4"), *where.nodes))
    curves: dict[str, Curve] = {"x": spike(15, busy, 40, 30), "y": constant(32)}
    asked = merged(
        [
            generated(each, seed=seed, duration=90.0, mix=Mix(names=(name,), slo=SECOND // 2))
            for seed, (name, each) in enumerate(curves.items())
        ]
    )
    models = {"x": model("x", X, t4), "y": model("y", Y, t4)}
    memory = dict.fromkeys(("A100", "T4") if t4 else ("A100",), 0)
    traffic = Traffic(asked, Models(models, memory), "serve.least-loaded")
    setup = Setup(serving=serving, traffic=traffic, window=5 * SECOND, validate=True)
    diary, kernels = Diary(), list[Any]()
    with ExitStack() as stack:

        def journal(kernel: Any) -> Any:
            kernels.append(kernel)
            if log is None:
                return diary
            return stack.enter_context(LogWriter(log, kernel, trace, where, "fifo", setup))

        return run_one(trace, where, "fifo", setup, journal=journal), kernels[0], diary


Held: TypeAlias = dict[int, tuple[float, int, int, int]]
"""By replica: since which second, whose it is, its share, and where it is."""


def held(kernel: Any, diary: Diary) -> list[tuple[float, Held]]:
    """After each plan, the second, and the replicas that have started."""
    jobs, now = kernel.jobs, Held()
    course = []
    for batch, plan in diary.steps:
        for action in plan.actions if plan else ():
            if isinstance(action, Stop):
                now.pop(action.job, None)
            elif isinstance(action, Start) and jobs.parent[action.job] >= 0:
                share = jobs.shapes[jobs.shape[action.job]].roles[0].needs.share
                mask = sum(slot.devices << 8 * slot.node for slot in action.placement)
                now[action.job] = batch.at / SECOND, int(jobs.parent[action.job]), share, mask
        course.append((batch.at / SECOND, dict(now)))
    return course


def test_slices_follow_the_load_and_never_answer_less_than_it_needs() -> None:
    """From the fifteenth second on, when loads are known and replicas have loaded, 15 and 32 a
    second are answered at every moment, and 56 by the end of the peak: while slices are made
    anew, too."""
    found, kernel, diary = run()
    rates = {
        round(share * WHOLE): each
        for share, each in zip(SHARES, zip(X, Y, strict=True), strict=True)
    }
    course = held(kernel, diary)

    def answering(at: float, now: Held, service: int) -> float:
        return sum(
            rates[share][service] / 10
            for since, whose, share, _ in now.values()
            if whose == service and since + 4 <= at + 1e-3
        )

    changed = 0
    for (_, before), (at, now) in pairwise(course):
        changed += 25 <= at < 95 and any(job not in now for job in before)
        if 25 <= at < 95:
            assert answering(at, now, 1) >= 32, at
            assert answering(at, now, 0) >= (56 if 65 <= at < 70 else 15), at
    assert changed >= 2, "replicas that had answered gave way to others"
    for name, since in (("x", 75), ("y", 55)):
        series = found.service_windows[name]
        rows = zip(series["since"], series["late"], series["arrivals"], strict=True)
        some = [(late, came) for at, late, came in rows if at and at >= since and came]
        assert sum(late or 0 for late, _ in some) <= 0.05 * sum(came or 0 for _, came in some)
    peak = next(now for at, now in course if at >= 60)
    assert len({mask for *_, mask in peak.values()}) == 2, "devices"


def test_slices_lie_where_they_were_said_to_and_beside_each_other() -> None:
    _, _, diary = run()
    lying, used = dict[int, dict[Any, tuple[int, int]]](), 0
    for _, plan in diary.steps:
        for action in plan.actions if plan else ():
            if isinstance(action, Stop):
                lying.pop(action.job, None)
            elif isinstance(action, Tune):
                lying[action.job] = read(action.knobs[KNOB])
        slots = [
            (device, slot)
            for each in lying.values()
            for device, (start, size) in each.items()
            for slot in range(start, start + size)
        ]
        assert len(slots) == len(set(slots))
        used = max(used, len(slots))
    assert used >= 12


def test_without_a_free_device_one_that_has_most_to_spare_gives_way() -> None:
    """On two devices the peak needs parts of both, which others hold: 67.2 and 38.4 a second."""
    _, kernel, diary = run(gpus=2)
    rates = {
        round(share * WHOLE): each
        for share, each in zip(SHARES, zip(X, Y, strict=True), strict=True)
    }
    at_peak = [now for at, now in held(kernel, diary) if 65 <= at <= 70][-1]
    answered = [
        sum(
            rates[share][service] / 10
            for _, whose, share, _ in at_peak.values()
            if whose == service
        )
        for service in (0, 1)
    ]
    assert answered[0] >= 56
    assert answered[1] >= 32


def test_a_service_has_as_many_replicas_as_it_may_have() -> None:
    _, kernel, diary = run(most=2, busy=30.0)
    for at, now in held(kernel, diary):
        owned = [sum(whose == service for _, whose, _, _ in now.values()) for service in (0, 1)]
        assert max(owned) <= 2 + 2, "those that go stay until the others have loaded"
        if at == 0 or at > 75:
            assert max(owned) <= 2
    _, kernel, diary = run(least=3, busy=15.0)
    final = held(kernel, diary)[-3][1]
    assert [sum(whose == service for _, whose, _, _ in final.values()) for service in (0, 1)] == [
        3,
        3,
    ]


def test_slices_replay_from_the_log(tmp_path: Path) -> None:
    run(log=tmp_path / "a.log")
    assert replay(tmp_path / "a.log") > 20


def test_a_service_that_nobody_measured_keeps_what_it_says() -> None:
    shape = Shape((Role(size=2, least=1, most=3, needs=Needs(share=285)),))
    other = JobSpec(name="c", kind=Kind.SERVE, model="other", shape=shape)
    _, kernel, diary = run(others=(other,), busy=15.0)
    final = held(kernel, diary)[-3][1]
    assert [share for _, whose, share, _ in final.values() if whose == 2] == [285, 285]


def test_parts_of_a_device_are_what_the_best_slices_cost() -> None:
    """One seventh for 100; four for 230 (three for 200 have half of the memory)."""
    posed = problem([X, Y], [700, 400])
    assert fewest(posed) == pytest.approx(1 + 400 * 3 / 7 / 200)
    assert device_parts(posed) == pytest.approx([1 / 700, 4 / 7 / 230])


def attained(found: Run) -> list[float]:
    """The part in time of each service."""
    return [each["attainment"] for each in found.services.values()]


def test_of_two_types_the_one_with_room_is_divided() -> None:
    """A model that is measured on a T4, too, has its slices on the A100s, as if that were none."""
    found, kernel, diary = run(t4=60.0, busy=30)
    nodes = [{mask > 255 for _, _, _, mask in now.values()} for _, now in held(kernel, diary)]
    assert {True} in nodes
    assert all(each <= {True} for each in nodes[len(nodes) // 2 :]), "nobody is on the T4"
    assert attained(found) == attained(run(busy=30)[0])


class Still:
    """A step of services without limits, on as many devices as are asked for."""

    devices = 1000

    def __init__(self, services: int) -> None:
        self.jobs, self.view = list(range(services)), self

    def rng(self, name: str) -> np.random.Generator:
        """Numbers for a search."""
        return np.random.default_rng(0)

    def within(self, posed: Problem, configs: Sequence[Config]) -> list[Config]:
        """As they are."""
        return list(configs)

    def named(self, configs: Sequence[Config]) -> list[Config]:
        """Jobs are called as services are numbered."""
        return list(configs)


def divided(posed: Problem, before: list[Config]) -> list[Config]:
    """The deployment that follows."""
    policy = MigServing(Search(5, 2, 2), 0.2, 3)
    return policy._divided(posed, Still(len(posed.loads)), before)  # type: ignore[arg-type]


def test_one_service_of_many_that_has_too_few_slices_has_all_divided_anew() -> None:
    """What it lacks is little beside what sixty have."""
    posed = problem([X] * 60, [200.0] * 60)
    enough = greedy(posed, posed.loads, 999)
    assert divided(posed, enough) == enough
    at = next(at for at, config in enumerate(enough) if any(who == 7 for _, who in config))
    config = list(enough[at])
    config.remove(next(each for each in config if each[1] == 7))
    few = [*enough[:at], tuple(config), *enough[at + 1 :]]
    assert 0 < posed.provided(few)[7] < 200
    assert posed.covers(divided(posed, few))


def test_slices_on_which_an_slo_cannot_be_kept_any_more_are_not_kept() -> None:
    posed = problem([Y], [200.0])
    assert divided(posed, [((_3G, 0), (_1G, 0))]) == [((_3G, 0),)]
