"""Speeds from what jobs measured: curves that come near the truth, and are tried where unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bench import Scripted
from ganger.core.events import AnyEvent, Batch, Measured, Started, Submitted
from ganger.core.kernel import Kernel
from ganger.core.plan import Placement, Plan, Slot, Start
from ganger.core.profiles import StepModel
from ganger.core.spec import JobSpec
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import declare
from ganger.core.state.snapshot import capture, restore
from ganger.core.units import SECOND
from ganger.estimate.goodput import step_time
from ganger.estimate.measured import MeasuredSpeeds
from worlds import cluster, gpus

TRUE = StepModel(0.05, 0.002, 0.2, 0.02, 0.05, 0.005, 1.5)
PLACES: tuple[Placement, ...] = (
    (Slot(0, 0b1, 1),), (Slot(0, 0b110, 2),), (Slot(0, 0b1111000, 4),), (Slot(1, 0b11111111, 8),),
    (Slot(2, 0b11111111, 8), Slot(3, 0b11111111, 8)),
)  # fmt: skip
SIZES = (1, 2, 4, 8, 16)


def measured_on(places: int, **told: Any) -> Kernel:
    """Jobs of one model, one on each of the first `places`, have measured themselves: strong
    scaling of 128 examples, but for what is `told` otherwise."""
    specs = [JobSpec(name=f"j{i}", shape=gpus(size), model="m") for i, size in enumerate(SIZES)]
    policy = Scripted()
    nodes = Nodes(cluster(4, 8))
    kernel = Kernel(nodes, declare(specs), policy, oracle=MeasuredSpeeds(), validate=True)
    policy.next = Plan([Start(i, 1, PLACES[i]) for i in range(places)])
    kernel.step(Batch(0, [Submitted(i) for i in range(5)]))
    policy.next = Plan()
    kernel.step(Batch(SECOND, [Started(i, 1) for i in range(places)]))
    news: list[AnyEvent] = []
    for i in range(places):
        n, size = len(PLACES[i]), SIZES[i]
        took = float(step_time(TRUE, n, size, 128 / size)) * SECOND
        news.append(Measured(i, 1, took, **{"batch": 128.0, **told}))
    kernel.step(Batch(2 * SECOND, news))
    return kernel


def told(kernel: Kernel, job: int, sizes: tuple[int, ...], nodes: tuple[int, ...]) -> NDArray[Any]:
    ids = np.full(len(sizes), job)
    return kernel.oracle.throughput(kernel.view, ids, "V100", np.array(sizes), np.array(nodes))


def test_a_curve_comes_near_the_true_one() -> None:
    kernel = measured_on(5)
    found = told(kernel, 0, SIZES, (1, 1, 1, 1, 2))
    local = 128 / np.array(SIZES)
    true = 1 / step_time(TRUE, np.array([1, 1, 1, 1, 2]), np.array(SIZES), local)
    assert found / (true / true[0]) == pytest.approx(np.ones(5), rel=0.12)
    between = told(kernel, 0, (3, 6), (1, 1))
    true_between = 1 / step_time(TRUE, np.ones(2), np.array([3, 6]), 128 / np.array([3, 6]))
    assert between / (true_between / true[0]) == pytest.approx(np.ones(2), rel=0.15)


def test_one_size_is_taken_to_scale_to_twice_that_and_no_further() -> None:
    found = told(measured_on(1), 0, (1, 2, 4, 8), (1, 1, 1, 1))
    assert found[:2] == pytest.approx([1.0, 2.0], rel=0.05)
    assert found[2:] == pytest.approx([found[1]] * 2)


def test_speed_is_relative_to_the_size_asked_for() -> None:
    kernel = measured_on(5)
    one, four = told(kernel, 0, SIZES, (1,) * 5), told(kernel, 2, SIZES, (1,) * 5)
    assert four[2] == pytest.approx(1.0)
    assert four == pytest.approx(one / one[2])


def test_steps_without_a_batch_size_scale_as_measured() -> None:
    kernel = measured_on(4, batch=0.0)
    found = told(kernel, 0, (1, 2, 4, 8), (1,) * 4)
    sizes = np.array([1, 2, 4, 8])
    true = 1 / step_time(TRUE, np.ones(4), sizes, 128 / sizes)
    assert found / (true / true[0]) == pytest.approx(np.ones(4), rel=0.12)


def test_noise_makes_more_gpus_worth_more() -> None:
    quiet = told(measured_on(5, most=4096.0, noise=1.0), 0, SIZES, (1,) * 5)
    noisy = told(measured_on(5, most=4096.0, noise=5000.0), 0, SIZES, (1,) * 5)
    assert noisy[4] > 1.5 * quiet[4]
    unknown = told(measured_on(5, most=4096.0), 0, SIZES, (1,) * 5)
    assert unknown[4] <= quiet[4] * 1.01


def test_nothing_measured_is_linear_and_a_measurement_of_an_old_attempt_is_nothing() -> None:
    kernel = measured_on(0)
    assert told(kernel, 1, (1, 2, 4), (1, 1, 1)).tolist() == [0.5, 1.0, 2.0]
    kernel.step(Batch(3 * SECOND, [Measured(0, 1, 5.0)]))
    assert told(kernel, 1, (1, 2, 4), (1, 1, 1)).tolist() == [0.5, 1.0, 2.0]


def test_what_was_learnt_survives_a_snapshot() -> None:
    kernel = measured_on(4)
    again = restore(capture(kernel), Nodes(cluster(4, 8)), Scripted(), oracle=MeasuredSpeeds())
    again.view.now = kernel.now
    assert told(again, 0, SIZES, (1,) * 5).tolist() == told(kernel, 0, SIZES, (1,) * 5).tolist()
