"""Against the closed forms of queueing theory, within their confidence intervals."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest

from ganger.core.serving.world import Known, Latencies, World
from ganger.recipes.registry import make_router
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from serving.rig import lanes, model, speaker, table

REQUESTS, PARTS = 60_000, 30


class Waits:
    """The time that each request takes, milliseconds."""

    def __init__(self) -> None:
        self.took: list[float] = []

    def ran(self, *given: object) -> None:
        """Nothing."""

    def settled(self, world: World, count: int) -> None:
        requests = world.requests
        ended, arrival = requests.ended[:count], requests.arrival[:count]
        self.took += [(end - at) / 1000 for end, at in zip(ended, arrival, strict=True)]


class Drawn(Physics):
    """Exponential times of service."""

    def __init__(self, models: list[Known], seed: int) -> None:
        super().__init__(models, noise=0)
        self._draw = np.random.default_rng(seed)

    def micros(self, *given: object) -> int:
        return max(round(self._draw.exponential(10_000)), 1)


def mean_and_half_width(
    recipe: str, per_ms: float, count: int, served: Latencies | Known, *,
    exponential: bool = False, output: int = 1,
) -> tuple[float, float]:  # fmt: skip
    """The mean time in the system, and half its 99.9 % interval, by batch means."""
    gaps = np.random.default_rng(5).exponential(1000 / per_ms, REQUESTS)
    models = [model("m", served) if isinstance(served, Latencies) else served]
    world = World(models, lanes(count))
    waits = Waits()
    physics = Drawn(models, 7) if exponential else Physics(models, noise=0)
    chunk = {"arrival": gaps.cumsum().astype(np.int64).tolist(), "prompt": [3] * REQUESTS,
             "output": [output] * REQUESTS}  # fmt: skip
    plane = Plane(world, make_router(recipe), physics, iter([chunk]), [waits])
    plane.advance()
    plane.finish()
    means = np.array(waits.took).reshape(PARTS, -1).mean(1)
    return float(means.mean()), 3.66 * float(means.std(ddof=1)) / PARTS**0.5


@pytest.mark.parametrize("busy", [0.3, 0.8])
def test_one_server_of_constant_time(busy: float) -> None:
    """M/D/1: s (1 + rho / (2 (1 - rho)))."""
    found, half = mean_and_half_width("serve.no-batch", busy / 10, 1, table(10))
    assert abs(found - 10 * (1 + busy / (2 * (1 - busy)))) < half + 0.001


@pytest.mark.parametrize(("busy", "count"), [(0.7, 1), (0.8, 4)])
def test_several_servers_of_exponential_time(busy: float, count: int) -> None:
    """M/M/c: s + C(c, a) s / (c (1 - rho)), Erlang's C."""
    load = busy * count
    last = load**count / factorial(count) / (1 - busy)
    waits = last / (sum(load**k / factorial(k) for k in range(count)) + last)
    found, half = mean_and_half_width(
        "serve.no-batch", load / 10, count, table(10), exponential=True
    )
    assert abs(found - (10 + waits * 10 / (count * (1 - busy)))) < half


CONSTANT = speaker("m", prefill=(4, 0, 0), decode=((1e9, 2, 0, 0),), largest=64)
"""A token model whose steps take the same whatever the batch."""
STEP = speaker("m", prefill=(10, 0, 0), decode=((1e9, 10, 0, 0),))


@pytest.mark.parametrize(("recipe", "served", "output"), [
    ("serve.triton", table(*[10] * 64), 1),
    ("serve.triton", CONSTANT, 4),  # 4 ms, and three steps of 2
    ("serve.continuous-batching", STEP, 1),
])  # fmt: skip
def test_batches_of_all_that_wait(recipe: str, served: Latencies | Known, output: int) -> None:
    """A server of constant time whatever the batch: the batch sizes are a Markov chain, solved
    numerically (Bailey: On queueing processes with bulk service, JRSS B 1954)."""
    per_ms, service = 0.15, 10.0
    most = 40
    mean = per_ms * service
    comes = np.array([np.exp(-mean) * mean**k / factorial(k) for k in range(most + 1)])
    matrix = np.tile(comes, (most + 1, 1))  # of those that come while a batch runs, the next
    matrix[:, 1] += matrix[:, 0]  # nobody: the next begins with the one that comes then
    matrix[:, 0] = 0
    sizes = matrix[1] / matrix[1].sum()
    waited = (np.arange(most + 1) * comes * service / 2).sum()  # half a service, each that came
    expected = service + waited / (sizes * np.arange(most + 1)).sum()
    found, half = mean_and_half_width(recipe, per_ms, 1, served, output=output)
    assert abs(found - expected) < half + 0.001


def test_steps_that_take_the_same_whatever_runs() -> None:
    """A request of five steps waits for the end of the step that runs: half a step on average if
    the lane is busy as it comes, nothing else. A busy time of the lane is one of M/D/infinity, up
    to the step in which it ends: with many requests at once the lane is always busy."""
    found, half = mean_and_half_width("serve.continuous-batching(max_num_seqs=1000)", 0.2, 1, STEP,
                                      output=5)  # fmt: skip
    assert abs(found - (5 * 10 + 5)) < half + 0.02
