"""Against the closed forms of queueing theory, within their confidence intervals."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.serving.world import Known, Latencies, World
from ganger.recipes.registry import make_router
from ganger.recipes.serving.clockwork import LATE
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from serving.rig import CODES, Asked, lanes, model, play, speaker, table

pytestmark = pytest.mark.long

REQUESTS, PARTS = 30_000, 30


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
    recipe: str,
    per_ms: float,
    count: int,
    served: Latencies | Known,
    *,
    exponential: bool = False,
    output: int = 1,
) -> tuple[float, float]:
    """The mean time in the system, and half its 99.9 % interval, by batch means."""
    gaps = np.random.default_rng(5).exponential(1000 / per_ms, REQUESTS)
    models = [model("m", served) if isinstance(served, Latencies) else served]
    world = World(models, lanes(count))
    waits = Waits()
    physics = Drawn(models, 7) if exponential else Physics(models, noise=0)
    chunk = {
        "arrival": gaps.cumsum().astype(np.int64).tolist(),
        "prompt": [3] * REQUESTS,
        "output": [output] * REQUESTS,
    }
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


@pytest.mark.parametrize(
    ("recipe", "served", "output"),
    [
        ("serve.triton", table(*[10] * 64), 1),
        ("serve.triton", CONSTANT, 4),  # 4 ms, and three steps of 2
        ("serve.continuous-batching", STEP, 1),
    ],
)
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
    found, half = mean_and_half_width(
        "serve.continuous-batching(max_num_seqs=1000)", 0.2, 1, STEP, output=5
    )
    assert abs(found - (5 * 10 + 5)) < half + 0.02


def test_the_size_of_clipper_is_a_saw_tooth_to_the_integer() -> None:
    """A batch of n takes n ms of 10 that each request has: the size grows by one to 11, which is
    late, is cut to 9, and so on; all wait from the beginning, so that every batch is full."""
    asked = [Asked(0, 0, 10.0) for _ in range(300)]
    seen = play(make_router("clipper"), [model("m", table(*range(1, 33)))], lanes(1), asked)
    sizes = [len(batch.tasks) for batch in seen.batches]
    tooth = [9, 10, 11]
    assert sizes[:-1] == [*range(1, 9), *(tooth * 20)][: len(sizes) - 1]
    assert len(sizes) > 30


@given(
    asked=st.lists(
        st.builds(
            Asked,
            st.integers(0, 60).map(lambda at: at / 4),
            st.integers(0, 2),
            st.sampled_from([8.0, 14.0, 22.0, 30.0, 200.0]),
            st.just(1),
            **CODES,
        ),
        min_size=1,
        max_size=60,
    ),
    count=st.integers(1, 2),
    margin=st.sampled_from(["0", "2ms"]),
)
def test_clockwork_answers_nothing_late_where_nothing_takes_longer_than_its_profile(
    asked: list[Asked], count: int, margin: str
) -> None:
    """What it admits it answers in time, or refuses before it runs. Every batch takes its mean, and
    the profile states a 99th percentile above that; once measured, the mean is the estimate."""
    models = [
        model("a", table(5, 7, 8, 12, p99=1.3)),
        model("b", table(9, 9.5, 11)),
        model("c", table(1, p99=2)),
    ]
    seen = play(make_router(f"clockwork(margin={margin})"), models, lanes(count), asked)
    rows = sorted(asked, key=lambda one: one.at)
    for one, outcome, ended in zip(rows, seen.outcomes, seen.ended, strict=True):
        assert outcome in {"answered", LATE}
        assert ended <= one.at + one.within or outcome == LATE
