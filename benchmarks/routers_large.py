"""The rows of `routers.md` beyond its table of recipes: all slots, many models, a day, a control
decision. `python benchmarks/routers.py` makes the page; this file alone prints its rows.

    python benchmarks/routers_large.py [--whole-day]
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from provenance import ROOT

from ganger.core.plan import Plan
from ganger.core.profiles import Load
from ganger.core.serving.router import Router
from ganger.core.serving.world import Known, Lane, Latencies, Store, World
from ganger.core.spec import ClusterSpec, JobSpec, Kind, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import MINUTE, SECOND
from ganger.core.view import View
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.hosting import Traffic
from ganger.lab.serving.run import Setup as Serving
from ganger.lab.serving.run import serve
from ganger.lab.serving.tally import Tally
from ganger.lab.simulation import Setup, load_policy, run_one
from ganger.mechanisms.common.planes import Planes
from ganger.recipes.registry import make_router
from ganger.sim.requests.outputs import Outputs
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from ganger.workloads.clusters import load_cluster
from ganger.workloads.models.profiles import Latency, Model, Models
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.processes import diurnal, step
from ganger.workloads.requests.synthetic import Mix, generated
from ganger.workloads.trace import Trace

SLO, LARGEST = 100_000, 64
TABLE = Latencies(
    [0, *(3_000 + 1_500 * n for n in range(1, LARGEST + 1))],
    [0, *(round(1.3 * (3_000 + 1_500 * n)) for n in range(1, LARGEST + 1))],
)
DAY, A_DAY = 100_000_000, 86_400
VARIANTS, INPUTS, CLASSES = 4, 20_000, 10


class Served(NamedTuple):
    """What was measured."""

    per_second: float
    tally: Tally
    seconds: float


def played(
    world: World,
    router: Router,
    chunks: Iterator[Any],
    outputs: Outputs | None = None,
    right: int = 1,
) -> Served:
    """Requests a CPU second, and what became of them."""
    tally = Tally(world, [1.0] * right)
    began = time.process_time()
    plane = Plane(world, router, Physics(world.models), chunks, [tally], outputs=outputs)
    plane.advance()
    plane.finish()
    seconds = time.process_time() - began
    return Served(tally.requests / seconds, tally, seconds)


def all_slots(per_second: int, requests: int) -> Served:
    """Cache, choice among four variants of each of four families (Exp3), least-loaded dispatch,
    queues of at most 1,000, earliest deadline first, admission by what ends in time."""
    rng = np.random.default_rng(1)
    at = rng.exponential(1e6 / per_second, requests).cumsum().astype(np.int64)
    inputs = rng.integers(0, INPUTS, requests)
    truth = rng.integers(0, CLASSES, INPUTS)
    count = 4 * VARIANTS
    models = [Known(f"m{at}", {("gpu", 1.0): TABLE}, 0, 0, 0.8) for at in range(count)]
    says = [
        np.where(rng.random(INPUTS) < 0.8, truth, rng.integers(0, CLASSES, INPUTS)).tolist()
        for _ in models
    ]
    families = [(f"f{k}", tuple(range(VARIANTS * k, VARIANTS * (k + 1)))) for k in range(4)]
    world = World(models, [Lane(at, "gpu", device=at) for at in range(16)], families=families)
    router = make_router("serve.composed")
    columns = {
        "arrival": at.tolist(), "deadline": (at + SLO).tolist(),
        "model": (count + rng.integers(0, 4, requests)).tolist(), "input": inputs.tolist(),
        "label": truth[inputs].tolist(),
    }  # fmt: skip
    return played(world, router, iter([columns]), Outputs(says), count)


def many_models(per_second: int, requests: int, models: int = 1000, lanes: int = 64) -> Served:
    """Clockwork with memory for a tenth of the models on each device; the k-th most popular is
    asked for in proportion to 1 / k; a load takes 8 ms."""
    rng = np.random.default_rng(1)
    popular = 1 / np.arange(1, models + 1)
    at = rng.exponential(1e6 / per_second, requests).cumsum().astype(np.int64)
    asked = rng.choice(models, requests, p=popular / popular.sum())
    columns = {"arrival": at.tolist(), "deadline": (at + SLO).tolist(), "model": asked.tolist()}
    known = [Known(f"m{at}", {("gpu", 1.0): TABLE}, 1 << 20, 8_000, 1.0) for at in range(models)]
    both = [
        Lane(at, "gpu", device=at % lanes, store=at % lanes, copies=at >= lanes)
        for at in range(2 * lanes)
    ]
    world = World(known, both, [Store(at, models // 10 << 20) for at in range(lanes)])
    return played(world, make_router("clockwork"), iter([columns]), right=models)


def day(requests: int) -> Served:
    """The 100 million requests of a day whose load swings by half, or fewer in as much less time,
    on three lanes under `serve.triton`."""
    world = World(
        [Known("m", {("gpu", 1.0): TABLE}, 0, 0, 1.0)],
        [Lane(at, "gpu", device=at) for at in range(3)],
    )
    return played(world, make_router("serve.triton"), _generated(requests))


def _generated(requests: int) -> Iterator[dict[str, Any]]:
    """In chunks of constant memory."""
    period = A_DAY * requests / DAY
    curve = diurnal(DAY / A_DAY, 0.5, period / 2, period)
    for chunk in generated(curve, seed=1, most=requests, mix=Mix(slo=SLO)).chunks(1 << 13):
        assert chunk.deadline is not None
        yield {
            "arrival": array("q", chunk.arrival.tobytes()),
            "deadline": array("q", chunk.deadline.tobytes()),
        }


def by_windows(requests: int, length: float) -> dict[str, float]:
    """The same day on four lanes, run twice: every request, and by windows of `length` seconds.

    Returns the CPU seconds of both runs, the ratio of the two, the part of the windows that was
    read from the table, and by how much the figures of the two runs differ.
    """
    period = A_DAY * requests / DAY
    curve = diurnal(DAY / A_DAY, 0.5, period / 2, period)
    made = generated(curve, seed=1, most=requests, mix=Mix(slo=SLO, names=("m",)))
    mean, p99 = (np.array(each[1:]) / SECOND for each in (TABLE.mean, TABLE.p99))
    took = Latency("gpu", 1.0, np.arange(1, LARGEST + 1), mean, p99)
    models = Models({"m": Model("m", latency=(took,))}, {"gpu": 0})
    runs, seconds = [], []
    for windows in (0, round(length * SECOND)):
        began = time.process_time()
        runs.append(
            serve(made, models, Fleet((("gpu", 4),)), "serve.triton", Serving(windows=windows))
        )
        seconds.append(time.process_time() - began)
    return _compared(seconds, runs[0].metrics, {**runs[1].metrics, "windows": runs[1].windows})


def beside(seconds: float) -> dict[str, float]:
    """A service of up to eight GPUs beside a training job, asked 200 times a second and from
    half-way on 350 times, run twice: every request, and by windows of ten seconds.

    Returns the same as `by_windows`, without yardsticks.
    """
    many = Shape((Role(size=1, least=1, most=8),))
    web = JobSpec(name="web", kind=Kind.SERVE, model="resnet50", shape=many)
    specs = [web, JobSpec(name="j", shape=Shape((Role(size=2),)))]
    lasts = np.array([seconds * SECOND, seconds / 3 * SECOND], np.int64)
    trace = Trace(declare(specs), lasts)
    mix = Mix(models=1, names=("resnet50",), slo=SLO)
    made = generated(step(200, 350, at=seconds / 2), seed=3, duration=seconds, mix=mix)
    models = read_models(ROOT / "examples/serving/models.toml")
    runs, took = [], []
    for by_windows in (False, True):
        traffic = Traffic(made, models, "serve.triton", by_windows=by_windows, yardsticks=False)
        scaling = "scale.threshold(up=0.6,cooldown=20s)"
        setup = Setup(traffic=traffic, serving=scaling, window=10 * SECOND)
        began = time.process_time()
        run = run_one(trace, load_cluster("1x12xT4"), "fifo", setup, record=False)
        took.append(time.process_time() - began)
        runs.append(run.services["web"])
    return _compared(took, *runs)


def _compared(seconds: list[float], whole: Any, some: Any) -> dict[str, float]:
    """Two runs of the same requests, of which the second was by windows."""
    off = {
        name: float(some[name] or 0) / float(whole[name] or 1) - 1
        for name in ("latency_p50_seconds", "latency_p99_seconds")
    }
    off["attainment"] = float(some["attainment"] or 0) - float(whole["attainment"] or 0)
    return {
        "every request": seconds[0],
        "by windows": seconds[1],
        "times as fast": seconds[0] / seconds[1],
        "read": some["windows"]["read"] / some["windows"]["windows"],
        **off,
    }


def bytes_in_flight(requests: int) -> tuple[float, int]:
    """The most memory that requests take while they are in flight, by request, and how many were
    in flight then: all that the run holds when it holds most, what is generated ahead included."""
    held = [0]

    def watched(world: list[World]) -> Iterator[Any]:
        for columns in _generated(requests):
            yield columns
            held[0] = max(held[0], len(world[0].requests.arrival) if world else 0)

    worlds: list[World] = []
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    world = World(
        [Known("m", {("gpu", 1.0): TABLE}, 0, 0, 1.0)],
        [Lane(at, "gpu", device=at) for at in range(3)],
    )
    worlds.append(world)

    class Nothing:
        def ran(self, *given: object) -> None:
            """Nothing."""

        def settled(self, world: World, count: int) -> None:
            """Nothing."""

    plane = Plane(
        world, make_router("serve.triton"), Physics(world.models), watched(worlds), [Nothing()]
    )
    plane.advance()
    plane.finish()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak / held[0], held[0]


class Timed:
    """A policy with a stop-watch: milliseconds of CPU of every decision at the end of a window."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.name = policy, policy.name
        self.took: list[float] = []

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """As the policy does."""
        began = time.process_time()
        decided: tuple[Plan, Any] = self.policy.decide(view, memory)
        if view.now and view.now % MINUTE == 0:
            self.took.append(1e3 * (time.process_time() - began))
        return decided


def control(recipe: str, services: int = 1000, gpus: int = 500) -> list[float]:
    """Milliseconds of a control decision: the load of every service changes each minute."""
    rng = np.random.default_rng(2)
    shape = Shape((Role(size=1, least=1, most=4),))
    specs = [JobSpec(name=f"s{at}", kind=Kind.SERVE, shape=shape) for at in range(services)]
    trace = Trace(declare(specs), np.full(services, 20 * MINUTE, np.int64))
    times = tuple(60.0 * at for at in range(12))
    loads = {
        f"s{at}": Load(times, (*rng.uniform(5, 60, 11).tolist(), 0.0), 20.0)
        for at in range(services)
    }
    policy = Timed(Planes(load_policy(recipe, plane="serving"), load_policy("fifo")))
    cluster = ClusterSpec((NodeSpec(count=gpus // 4, gpus=4, gpu_type="V100"),))
    setup = Setup(loads=loads, window=MINUTE, until=11 * MINUTE)
    run_one(trace, cluster, policy, setup, record=False)
    return policy.took


def slots_row(per_second: int, requests: int) -> str:
    """What became of them, which is the same on every machine."""
    tally = all_slots(per_second, requests).tally
    return (
        f"| all slots | 16 | {per_second:,} | {tally.executed / tally.batches:.2f} |"
        f" {tally.answered:,} | {tally.late:,} | {tally.requests - tally.answered:,} |"
    )


def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--whole-day", action="store_true")
    args = parser.parse_args()
    for rate in (1600, 7500):
        found = all_slots(rate, 100_000)
        print("all slots", rate, round(found.per_second), found.tally.metrics(16), flush=True)
    for rate in (8000, 16_000):
        found = many_models(rate, 100_000)
        print("1,000 models", rate, round(found.per_second), found.tally.metrics(64), flush=True)
    found = day(DAY if args.whole_day else DAY // 20)
    print("day", found.seconds, round(found.per_second), found.tally.metrics(3), flush=True)
    print("by windows", by_windows(DAY // 10, 15), flush=True)
    print("beside training", beside(1200.0), flush=True)
    print("bytes a request in flight", bytes_in_flight(1_000_000), flush=True)
    for recipe in ("scale.threshold", "scale.reactive"):
        print(recipe, [round(each, 1) for each in control(recipe)], SECOND, flush=True)


if __name__ == "__main__":
    main()
