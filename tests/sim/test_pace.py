"""Jobs whose speed changes with their progress."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ganger.core.profiles import Goodput, OnType, Profile, Profiles, StepModel, StepTimes
from ganger.core.spec import ClusterSpec, GpuType, JobSpec, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import SECOND
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.sim.pace import Pace
from ganger.workloads.measured.profiles import with_goodput
from ganger.workloads.trace import Trace

MODEL = StepModel(0.0, 0.01)
"""A hundred examples a second on each GPU, and synchronising is free."""
GROWING = Goodput(
    batch=100,
    most=400,
    local=(10, 100),
    examples=1e5,
    starts=(0.0, 0.5),
    batches=(100.0,),
    noise=((0.0, 1e12),),
    model=MODEL,
)
"""1000 s alone. No noise at first: a larger batch is worth nothing; then all noise."""


def run_gang(goodput: Goodput, gpus: int, recipe: str = "fifo", **more: Any) -> Run:
    known = Profiles({"m": Profile(goodput=goodput)})
    shape = Shape(roles=(Role(size=gpus),))
    specs = [JobSpec(name=f"j{i}", submitted=i, model="m", shape=shape) for i in range(2)]
    made = with_goodput(Trace(declare(specs), np.ones(2, np.int64)), known)
    spec = ClusterSpec(nodes=(NodeSpec(count=1, gpus=4, gpu_type="T4"),))
    return run_one(made, spec, recipe, Setup(profiles=known, validate=True, **more))


def test_speeds_by_hand() -> None:
    """Four GPUs take M0 in 0.25 s: 4 times as fast with no noise, and so with all of it."""
    assert Pace(GROWING).speeds((4,)).tolist() == pytest.approx([4.0, 4.0])
    slow = StepModel(0.5, 0.005, alpha_r=0.0)  # 1 s for 100 on one GPU
    pace = Pace(Goodput(100, 400, (10, 100), 1e5, (0.0, 0.5), (100.0,), ((0.0, 1e12),), {}, slow))
    # On 4 GPUs M0 takes 0.625 s; 400 examples take 1 s but count as 100 while there is no noise.
    assert pace.speeds((4,)).tolist() == pytest.approx([1 / 0.625, 4.0])
    assert pace.speeds((1,)).tolist() == pytest.approx([1.0, 1.0])


def test_a_job_finishes_when_both_halves_are_done() -> None:
    slow = StepModel(0.5, 0.005)
    goodput = Goodput(100, 400, (10, 100), 1e5, (0.0, 0.5), (100.0,), ((0.0, 1e12),), model=slow)
    assert goodput.seconds() == pytest.approx(1000)
    run = run_gang(goodput, 4)
    assert run.jobs.finish[0] == pytest.approx(500 * 0.625 + 500 / 4, abs=1e-4)
    assert run.jobs.finish[1] == pytest.approx(2 * run.jobs.finish[0], abs=1e-4)


def test_preempted_in_between_nothing_is_lost() -> None:
    slow = StepModel(0.5, 0.005)
    goodput = Goodput(
        100,
        400,
        (10, 100),
        1e5,
        (0.0, 0.2, 0.5, 0.7),
        (100.0,),
        ((0.0, 10.0, 1e3, 1e5),),
        model=slow,
    )
    run = run_gang(goodput, 4, "las(quantum=1m)")
    alone = run_gang(goodput, 4).jobs.finish[1]
    assert run.jobs.preemptions.sum() > 0
    assert run.jobs.lost.sum() == 0
    assert run.jobs.finish.max() == pytest.approx(alone, abs=1e-3)


def test_measured_times_are_used_where_they_are_and_bridged_where_not() -> None:
    def times(step: float) -> StepTimes:
        return StepTimes((100.0,), (step,), (0.0,))

    measured = {"1": times(1.0), "2": times(1.0), "1-1": times(2.0), "4/4": times(4.0)}
    goodput = Goodput(100, 800, (100, 101), 1e5, batches=(100.0,), noise=((1e12,),), times=measured)
    pace = Pace(goodput)
    assert pace.speeds((1,))[0] == pytest.approx(1.0, rel=0.02)
    assert pace.speeds((2,))[0] == pytest.approx(2.0, rel=0.02)
    # Much accumulation hides synchronisation; here all of a step counts as computing.
    assert pace.speeds((1, 1))[0] == pytest.approx(1.0, rel=0.02)
    assert pace.speeds((1, 1, 1, 1))[0] == pytest.approx(1.0, rel=0.02)
    assert 0.5 < pace.speeds((1, 1, 1))[0] < 2.0
    assert pace.even(2, 2)[0] == pace.speeds((1, 1))[0]


def test_what_was_measured_on_a_type_stands_for_its_speed() -> None:
    """1000 s alone on T4. An A100 does 100 examples in a fifth of the time, and 400 in half of it,
    which is 8 times as fast once larger batches are worth it. A V100, where nothing was measured,
    is as fast as the cluster says."""

    def times(*steps: float) -> StepTimes:
        return StepTimes((100.0, 400.0)[: len(steps)], steps, (0.0,) * len(steps))

    known = Profiles(
        {
            "m": Profile(
                goodput=Goodput(
                    100,
                    400,
                    (100, 100),
                    1e5,
                    (0.0, 0.5),
                    (100.0,),
                    ((0.0, 1e12),),
                    {"1": times(1.0)},
                    by_type={"A100": OnType((100, 400), {"1": times(0.2, 0.5)})},
                )
            )
        }
    )
    finish = {}
    for kind in ("T4", "A100", "V100"):
        made = with_goodput(Trace(declare([JobSpec(name="j", model="m")]), np.ones(1, int)), known)
        on = ClusterSpec((NodeSpec(gpus=1, gpu_type=kind),), (GpuType("V100", speed=2.5),))
        run = run_one(made, on, "fifo", Setup(profiles=known, validate=True))
        finish[kind] = run.jobs.finish[0]
    assert finish["T4"] == pytest.approx(1000)
    assert finish["A100"] == pytest.approx(500 / 5 + 500 / 8, rel=1e-6)
    assert finish["V100"] == pytest.approx(400)


def test_sia_puts_each_job_where_its_goodput_is() -> None:
    """Both have speed 1 on a T4; on an A100 one has 8, the other 1.25, which goes there once the
    former is done: its rest of 820 s takes 656."""

    def on(step: float) -> Profile:
        t4, a100 = ({"1": StepTimes((100.0,), (took,), (0.0,))} for took in (1.0, step))
        return Profile(
            goodput=Goodput(
                100,
                100,
                (100, 100),
                1e5,
                noise=((1e12,),),
                times=t4,
                by_type={"A100": OnType((100, 100), a100)},
            )
        )

    known = Profiles({"slow": on(0.8), "quick": on(0.125)})
    specs = [JobSpec(name=name, model=name) for name in ("slow", "quick")]
    made = with_goodput(Trace(declare(specs), np.ones(2, int)), known)
    spec = ClusterSpec((NodeSpec(gpus=1, gpu_type="A100"), NodeSpec(gpus=1, gpu_type="T4")))
    run = run_one(made, spec, "sia", Setup(profiles=known, validate=True))
    assert run.jobs.finish.tolist() == pytest.approx([836, 125])


def test_jobs_without_goodput_are_as_before() -> None:
    known = Profiles({"m": Profile(goodput=GROWING)})
    specs = [JobSpec(name="plain"), JobSpec(name="tuned", model="m")]
    made = Trace(declare(specs), np.array([5 * SECOND, 7 * SECOND]))
    spec = ClusterSpec(nodes=(NodeSpec(count=1, gpus=4, gpu_type="T4"),))
    run = run_one(made, spec, "fifo", Setup(profiles=known, validate=True))
    assert run.jobs.finish.tolist() == pytest.approx([5.0, 7.0])
