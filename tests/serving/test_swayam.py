"""Swayam: frontends that agree without messages, and backends that go away by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ganger.core.events import Accepted, Batch, Served
from ganger.core.serving import verbs
from ganger.core.serving.verbs import News, Retire
from ganger.core.serving.world import World
from ganger.core.spec import Kind, Role, Shape
from ganger.core.units import SECOND
from ganger.lab.serving.fleet import read_fleet
from ganger.lab.serving.hosting import Traffic
from ganger.lab.serving.run import Setup as ServingSetup
from ganger.lab.serving.run import serve
from ganger.lab.serving.tally import Tally
from ganger.lab.simulation import Setup, run_one
from ganger.recipes.registry import make_router
from ganger.recipes.serving.swayam import Memory
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from ganger.workloads.clusters import load_cluster
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.processes import diurnal, spike
from ganger.workloads.requests.synthetic import Mix, generated
from serving.rig import MS, Asked, Seen, columns, lanes, model, play, table
from serving.test_host import EXAMPLES
from worlds import job, trace_of

MODELS = [model("m", table(10, p99=1.3), load=500)]


def poisson(rate: float, seconds: float, seed: int = 1) -> list[Asked]:
    """Requests that may take 40 ms."""
    gaps = np.random.default_rng(seed).exponential(1000 / rate, int(rate * seconds))
    return [Asked(at, 0, 40) for at in gaps.cumsum().tolist()]


class Watched:
    """A run on some lanes that can be looked at in between."""

    def __init__(self, recipe: str, count: int, asked: list[Asked]) -> None:
        self.world = World(MODELS, lanes(count))
        self.seen = Seen(self.world)
        self.retired: list[tuple[float, int]] = []
        self.plane = Plane(
            self.world,
            make_router(recipe),
            Physics(MODELS),
            iter([columns(asked)]),
            [self.seen],
            self.retire,
        )

    def retire(self, lane: int) -> None:
        self.retired.append((self.world.now / SECOND, lane))

    def until(self, seconds: float) -> Memory:
        """What the frontends know then."""
        self.plane.advance(round(seconds * SECOND))
        memory = self.world.memory
        assert isinstance(memory, Memory)
        return memory

    def lanes_used(self, since: float, until: float) -> set[int]:
        """Which lanes ran a batch that began in these seconds."""
        return {ran.lane for ran in self.seen.batches if since * MS <= ran.began < until * MS}


def test_frontends_with_equal_load_use_the_same_first_backends_and_the_rest_goes_away() -> None:
    """250 a second of 10 ms need four of ten lanes; three frontends find that out, each alone."""
    run = Watched("swayam(frontends=3,window=2s,horizon=2s,idle=3s)", 10, poisson(250, 30))
    needs = []
    for at in range(10, 30, 2):
        memory = run.until(at + 0.5)
        needs += [frontend.needs for frontend in memory.frontends]
    assert 3 <= min(needs) <= max(needs) <= 5
    assert needs.count(4) > len(needs) / 2
    assert run.lanes_used(0, 2) == set(range(10))  # before the first window nothing is known
    assert run.lanes_used(10, 30) <= set(range(5))
    gone = {lane for at, lane in run.retired if at < 10}
    assert gone >= {5, 6, 7, 8, 9}
    assert all(at > 4 for at, _ in run.retired)  # idle for three seconds, since the second one


def test_the_first_backend_never_goes_away() -> None:
    run = Watched("swayam(window=1s,idle=1s)", 4, poisson(20, 3))
    run.until(60)
    assert sorted({lane for _, lane in run.retired}) == [1, 2, 3]
    assert run.plane.next_time > 60 * SECOND  # nothing more happens


def test_a_backend_that_went_away_is_set_up_again_before_it_is_used() -> None:
    """From 50 to 600 requests a second at 10 s: more backends are wanted at the end of the window,
    and there half a second later."""
    late = [one._replace(at=one.at + 10_000) for one in poisson(600, 6)]
    run = Watched("swayam(window=2s,idle=2s,prunes=no)", 12, [*poisson(50, 10), *late])
    run.until(30)
    before, at_once, then = (run.lanes_used(*times) for times in ((8, 12), (12, 12.5), (12.5, 15)))
    assert len(before) <= 3
    assert at_once <= before
    assert len(then) > 7


def test_a_backend_that_comes_back_while_it_is_set_up_is_warm() -> None:
    world = World(MODELS, lanes(1))
    router = make_router("swayam")
    world.memory = router.begin(world)
    world.memory.ready[0] = 500 * MS
    world.now = 10 * MS
    router.told(world, News(up=(0,)))
    world.requests.add(columns([Asked(10)]))
    router.arrive(world, range(1))
    orders = router.next(world, world.lanes)
    assert [order.lane for order in orders if isinstance(order, verbs.Batch)] == [0]


def test_requests_that_would_be_late_are_dropped_unless_it_does_not_prune() -> None:
    asked = [Asked(0.0, 0, 25)] * 5
    pruned, all_ = (
        play(make_router(recipe), MODELS, lanes(1), asked)
        for recipe in ("swayam", "swayam(prunes=no)")
    )
    assert [*map(pruned.outcomes.count, ("answered", "it could not be answered in time"))] == [2, 3]
    assert all_.outcomes == ["answered"] * 5
    assert sorted(all_.ended) == [10, 20, 30, 40, 50]


def test_the_horizon_is_never_shorter_than_a_backend_needs_to_load() -> None:
    """100 more each second, and eight seconds to load: what counts is the load in eight seconds."""
    slow = [model("m", table(10), load=8000)]
    rows = [
        Asked(1000.0 * second + 1000.0 * at / (100 * second), 0, 40)
        for second in range(1, 4)
        for at in range(100 * second)
    ]
    wanted = {}
    for load, models in ((500, MODELS), (8000, slow)):
        world = World(models, lanes(40))
        plane = Plane(
            world,
            make_router("swayam(window=1s,windows=3,horizon=1s)"),
            Physics(models),
            iter([columns(rows)]),
        )
        plane.advance(4 * SECOND)
        wanted[load] = world.wanted
    assert wanted[500] == pytest.approx(6, abs=1)  # 400 a second
    assert wanted[8000] == pytest.approx(14, abs=2)  # 1100 a second


def test_it_uses_fewer_lanes_than_the_peak_needs_and_keeps_the_slo() -> None:
    """A load that swings between 26 and 234 in two minutes: beside all lanes all the time."""
    requests = generated(
        diurnal(130, 0.8, 60.0, 120.0),
        seed=2,
        duration=120.0,
        mix=Mix(names=("bert",), slo=SECOND // 10),
    )
    models = read_models(EXAMPLES / "models.toml")
    recipes = ("swayam(window=2s,horizon=4s,idle=4s)", "serve.no-batch")
    ours, peak = (
        serve(requests, models, read_fleet("T4:4"), recipe, ServingSetup()).metrics
        for recipe in recipes
    )
    assert _of(ours, "attainment") > 0.96
    assert _of(peak, "lanes_used_mean") == pytest.approx(4, abs=0.1)
    assert _of(ours, "lanes_used_mean") < 0.8 * _of(peak, "lanes_used_mean")


def _of(metrics: Any, name: str) -> float:
    value = metrics[name]
    assert value is not None
    return float(value)


# ---------------------------------------------------------------------- its control half


ROUTER = "swayam(window=2s,horizon=2s,idle=8s)"


def replicas(serving: str, router: str, to: float, least: int = 1) -> tuple[Any, list[float]]:
    """A service for 200 s, which begins with two replicas and may have `least` to six. 30 requests
    come a second, and `to` from the 60th second to the 100th. Its figures in the end with how many
    replicas were `spawned`, and its replicas by window of five seconds."""
    shape = Shape((Role(size=2, least=least, most=6),))
    web = job("web", at=0, lasts=200, kind=Kind.SERVE, shape=shape, model="bert")
    requests = generated(
        spike(30, to, 60.0, 40.0),
        seed=4,
        duration=200.0,
        mix=Mix(names=("bert",), slo=SECOND // 10),
    )
    traffic = Traffic(requests, read_models(EXAMPLES / "models.toml"), router)
    counts: list[float] = []
    spawned: list[int] = []

    class Noted:
        def append(self, revision: int, batch: Batch, *_: Any) -> None:
            for event in batch.events:
                if isinstance(event, Served):
                    counts.append(event.figures["replicas"][0] or 0.0)
                elif isinstance(event, Accepted):
                    spawned.append(event.job)

    setup = Setup(traffic=traffic, serving=serving, window=5 * SECOND, validate=True)
    run = run_one(
        trace_of((web,)), load_cluster("1x8xT4"), "fifo", setup, journal=lambda kernel: Noted()
    )
    return {**run.services["web"], "spawned": len(spawned)}, counts


def test_replicas_come_when_frontends_want_them_and_go_when_they_are_given_back() -> None:
    """One is enough before and after the spike, which needs four."""
    found, counts = replicas("scale.asked", ROUTER, 300)
    assert counts[0] == 2
    assert counts[10] == 1  # 50 s: the second one went away
    assert 4 <= max(counts[13:20]) <= 6
    assert counts[-5:] == [1] * 5
    fixed, same = replicas("scale.static-peak", ROUTER, 300)
    assert set(same[1:]) == {6}
    assert 0.85 < found["attainment"] < fixed["attainment"]
    assert sum(counts) < 0.5 * sum(same)


def test_only_what_the_router_gives_back_goes_and_only_if_it_is_granted() -> None:
    """Under another recipe for services the replicas stay; under another router none is wanted."""
    _, counts = replicas("scale.threshold(up=1,down=0)", ROUTER, 30)
    assert set(counts) == {2}
    _, counts = replicas("scale.asked", "serve.triton", 30)
    assert set(counts) == {2}
    found, counts = replicas("scale.asked", ROUTER, 30, least=2)
    assert set(counts) == {2}
    assert found["spawned"] == 2  # a service keeps the fewest of its role
    _, counts = replicas("scale.asked", "swayam(window=2s,horizon=2s,idle=5m)", 30)
    assert set(counts) == {2}  # one is enough, but none was given back


def test_a_lane_is_used_from_its_first_batch_until_it_is_given_back() -> None:
    """20 s, and 10 s of another time, of 40."""
    world = World(MODELS, lanes(2))
    tally = Tally(world, [None])
    batch = verbs.Batch(0, (verbs.Part(0, [0], 1),), "next")
    world.requests.add(columns([Asked(0.0)]))
    tally.ran(world.lanes[0], batch, 0, 10 * SECOND, verbs.OK)
    world.now = 20 * SECOND
    tally.retired(0)
    tally.retired(1)  # it was never used
    tally.ran(world.lanes[0], batch, 30 * SECOND, 40 * SECOND, verbs.OK)
    world.answer((0,), 0, at=40 * SECOND)
    tally.settled(world, 1)
    assert tally.metrics(2)["lanes_used_mean"] == 30 / 40


def test_it_retires_by_an_order() -> None:
    world = World(MODELS, lanes(3))
    router = make_router("swayam(window=1s,idle=1s)")
    world.memory = router.begin(world)
    world.requests.add(columns([Asked(0.0)]))
    router.arrive(world, range(1))
    world.requests.outcome[0] = 1
    world.memory.frontends[0].waiting.clear()
    world.memory.frontends[1].waiting.clear()
    world.now = 3 * SECOND
    given = [order.lane for order in router.next(world, world.lanes) if isinstance(order, Retire)]
    assert given == [1, 2]
