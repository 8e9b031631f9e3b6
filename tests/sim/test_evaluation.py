"""What training tells of its model: when, what, and how long jobs take to converge."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.events import Evaluated
from ganger.core.profiles import Convergence, Profile, Profiles, Steps
from ganger.core.protocols import Journal
from ganger.core.spec import ClusterSpec, JobSpec, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import SECOND
from ganger.estimate.convergence import epochs_until_done
from ganger.estimate.fits import LossCurve
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from ganger.workloads.measured.profiles import trained_to_target
from ganger.workloads.trace import Trace

FALLING = Convergence((1.0, 2.0, 4.0, 10.0), (4.0, 2.0, 1.0, 0.5), target=1.0)
"""Four epochs to a loss of 1."""


class Heard:
    """A journal of evaluations: seconds, job, epoch, value."""

    def __init__(self) -> None:
        self.told: list[tuple[float, int, float, float]] = []

    def append(self, revision: int, batch: Any, plan: Any, memory: Any) -> None:
        self.told += [
            (batch.at / SECOND, event.job, event.epoch, round(event.value or 0.0, 6))
            for event in batch.events
            if isinstance(event, Evaluated)
        ]


def play(
    profile: Profile,
    seconds: tuple[int, ...] = (100,),
    recipe: str = "fifo",
    gpus: int = 1,
    later: int = 0,
    **setup: Any,
) -> tuple[Run, Heard]:
    """Jobs of one model on a node with `gpus` GPUs, all but the first `later` (seconds)."""
    shape = Shape(roles=(Role(size=1),))
    specs = [
        JobSpec(name=f"j{i}", model="m", shape=shape, submitted=later * SECOND if i else 0)
        for i in range(len(seconds))
    ]
    trace = Trace(declare(specs), np.array(seconds) * SECOND)
    spec = ClusterSpec(nodes=(NodeSpec(count=1, gpus=gpus, gpu_type="T4"),))
    heard = Heard()

    def journal(kernel: Any) -> Journal:
        return heard

    known = Setup(profiles=Profiles({"m": profile}), validate=True, **setup)
    return run_one(trace, spec, recipe, known, journal=journal), heard


def test_epochs_to_the_target_share_the_run_time() -> None:
    """100 s are 4 epochs; after the fourth the job is done and tells nothing more."""
    run, heard = play(Profile(convergence=FALLING))
    assert heard.told == [(25, 0, 1, 4.0), (50, 0, 2, 2.0), (75, 0, 3, 1.5)]
    assert run.jobs.finish[0] == 100


def test_a_profile_that_knows_its_epochs_tells_how_long_a_job_takes() -> None:
    """Four epochs of 25 s; models that say nothing of that keep the trace's own."""
    jobs = declare([JobSpec(name="a", model="m"), JobSpec(name="b", model="other")])
    trace = Trace(jobs, np.array([7, 7]) * SECOND)
    known = Profiles({"m": Profile(convergence=msgspec.structs.replace(FALLING, seconds=25.0))})
    assert (trained_to_target(trace, known).duration == [100 * SECOND, 7 * SECOND]).all()


def test_accuracy_rises_to_its_target() -> None:
    rising = Convergence((1.0, 5.0), (0.5, 0.9), metric="accuracy", target=0.7, every=2.0)
    assert rising.length() == 3
    _, heard = play(Profile(convergence=rising), (90,))
    assert heard.told == [(60, 0, 2, 0.6)]


def test_without_a_target_training_ends_where_the_loss_moves_little() -> None:
    """Optimus' rule, on a curve of its kind: the fall over 10 epochs is below 5 % of the first."""
    curve = LossCurve(0.1, 0.2, 0.5)
    epochs = tuple(range(1, 400))
    told = Convergence(epochs, tuple(curve.at(np.array(epochs)).tolist()))
    assert told.length() == curve.steps_until(0.05, 10)


@pytest.mark.parametrize("recipe", ["las(quantum=7s)", "srtf"])
def test_whoever_is_preempted_goes_on_with_the_same_epoch(recipe: str) -> None:
    run, heard = play(Profile(convergence=FALLING), (100, 80), recipe)
    assert [each[2] for each in heard.told if each[1] == 0] == [1, 2, 3]
    assert [each[2] for each in heard.told if each[1] == 1] == [1, 2, 3]
    assert run.jobs.lost.sum() == 0


def test_what_a_failure_lost_is_evaluated_again() -> None:
    """Down at 60 s with epochs 1 and 2 told; the checkpoint of 40 s has one epoch and a half."""
    _, heard = play(
        Profile(convergence=FALLING),
        outages=(Outage(0, 60 * SECOND, 70 * SECOND),),
        costs=Costs(checkpoint_every=40 * SECOND),
    )
    assert heard.told == [(25, 0, 1, 4.0), (50, 0, 2, 2.0), (80, 0, 2, 2.0), (105, 0, 3, 1.5)]


def test_neighbours_that_slow_a_job_delay_its_evaluations() -> None:
    """Two on one node make each other twice as slow: an epoch of 25 s takes 50 s."""
    slowed = Profile(convergence=FALLING, disturbed={"m": 2.0})
    _, heard = play(slowed, (100, 100), gpus=2)
    assert [each[0] for each in heard.told if each[1] == 0] == [50, 100, 150]


def test_noise_is_told_the_same_way_every_time() -> None:
    noisy = Profile(convergence=Convergence((1.0, 4.0), (4.0, 1.0), target=1.0, noise=0.1))
    one, other = play(noisy)[1].told, play(noisy)[1].told
    assert one == other
    assert one[0][3] != 4.0


@given(
    epochs=st.lists(st.integers(1, 200), min_size=1, max_size=6, unique=True),
    seconds=st.lists(st.integers(1, 3000), min_size=1, max_size=6),
    every=st.sampled_from([0.3, 1.0, 7.0]),
    target=st.sampled_from([0.0, 0.5, 2.0]),
    recipe=st.sampled_from(["fifo", "las(quantum=1m)", "srtf", "optimus(interval=50s)"]),
    cost=st.integers(0, 30),
    knows=st.sampled_from(["truth", "losses"]),
)
def test_every_evaluation_is_told_once_and_in_order(
    epochs: list[int],
    seconds: list[int],
    every: float,
    target: float,
    recipe: str,
    cost: int,
    knows: str,
) -> None:
    """Whatever a scheduler does, a job tells each evaluation before its end once (nothing fails
    here), and deciding twice from the same view comes to the same plan."""
    ascending = tuple(map(float, sorted(epochs)))
    values = tuple(5.0 / (1 + epoch) for epoch in ascending)
    curve = Convergence(ascending, values, target=target, every=every, noise=0.05)
    costs = Costs(checkpoint=cost * SECOND, restore=cost * SECOND)
    run, heard = play(
        Profile(convergence=curve, steps=Steps(1.0, 0.1, (10.0, 5.0, 1.0, 1.0))),
        tuple(seconds),
        recipe,
        2,
        costs=costs,
        knows=knows,
    )
    assert (run.jobs.finish > 0).all()
    length = curve.length()
    numbers = [number * every for number in range(1, int(length / every) + 2)]
    due = [epoch for epoch in numbers if epoch < length]
    for job in range(len(seconds)):
        mine = [each for each in heard.told if each[1] == job]
        assert [epoch for _, _, epoch, _ in mine] == pytest.approx(due)
        assert [each[0] for each in mine] == sorted(each[0] for each in mine)


# ---------------------------------------------------------------------- what is made of it


def test_three_losses_tell_how_long_it_takes() -> None:
    """Points on a curve of Optimus' kind give its coefficients back, and so its end."""
    curve = LossCurve(0.1, 0.2, 0.5)
    points = [(float(k), float(curve.at(k))) for k in (1, 2, 3)]
    rule = Convergence((1.0,), (1.0,))
    assert epochs_until_done(points, rule) == pytest.approx(curve.steps_until(0.05, 10), abs=1)
    target = Convergence((1.0,), (1.0,), target=1.0)  # 1 / (0.1 k + 0.2) = 0.5 at k = 18
    assert epochs_until_done(points, target) == pytest.approx(18, abs=1)


def test_a_target_that_the_curve_never_meets_is_far_away() -> None:
    curve = LossCurve(0.1, 0.2, 0.5)
    points = [(float(k), float(curve.at(k))) for k in (1, 2, 3, 8)]
    assert epochs_until_done(points, Convergence((1.0,), (1.0,), target=0.4)) >= 10_000


def test_losses_tell_srtf_whom_history_misjudges() -> None:
    """One job of 100 s is over when five of 1,000 s and five of 100 s come, all of one user and
    model: history takes all for short, but after three losses the long ones are known."""
    slow = Convergence(
        tuple(range(1, 41)),
        tuple(LossCurve(0.1, 0.2, 0.0).at(np.arange(1, 41)).tolist()),
        target=0.25,
        every=1.0,
    )
    seconds = (100, *(1000, 100) * 5)
    profile = Profile(convergence=slow)
    waits = {
        knows: float(np.mean(play(profile, seconds, "srtf", 2, 200, knows=knows)[0].jobs.finish))
        for knows in ("truth", "losses", "history")
    }
    assert waits["truth"] < waits["losses"] < waits["history"]


def test_losses_without_a_profile_that_tells_any_are_refused() -> None:
    with pytest.raises(BadInput, match="no job tells its losses"):
        play(Profile(), knows="losses")


# ---------------------------------------------------------------------- what measuring costs


def test_being_measured_costs_whoever_asks_for_throughputs() -> None:
    """60 s of profiling before the first attempt computes, and not again after a preemption."""
    costs = Costs(profiling=60 * SECOND)
    assert play(Profile(), costs=costs)[0].jobs.finish[0] == 100  # fifo asks for nothing
    assert play(Profile(), (100,), "max-min", costs=costs)[0].jobs.finish[0] == 160
    twice = play(Profile(), (400, 400), "max-min", costs=costs)[0].jobs
    assert twice.preemptions.sum() > 0
    assert twice.finish.max() == pytest.approx(920, abs=1)
