"""Looking ahead: a run that is taken over in the middle goes on as it would have."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from ganger.core.kernel import Kernel
from ganger.core.profiles import Profile, Profiles
from ganger.core.protocols import Ignorant
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Phase
from ganger.core.state.snapshot import capture, restore
from ganger.core.units import HOUR, NEVER, SECOND
from ganger.lab.ahead.whatif import (
    believed,
    drawn,
    expected_starts,
    foresee,
    future,
    past,
    play,
)
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from ganger.sim.truth import Truth
from ganger.workloads.synthetic import synthesize
from ganger.workloads.trace import Trace

CLUSTER = ClusterSpec((NodeSpec(count=4, gpus=8, gpu_type="V100"),))


def all_at_once(seed: int, jobs: int = 60) -> Trace:
    """A workload of which everybody is there from the beginning."""
    trace = synthesize("philly", jobs, seed, gpus=32)
    trace.declared.submitted[:jobs] = 0
    return trace


def begun(trace: Trace, recipe: str) -> tuple[Kernel, Simulator]:
    nodes = Nodes(CLUSTER)
    physics = Physics(nodes)
    kernel = Kernel(
        nodes, trace.declared, registry.make(recipe), oracle=Truth(trace.duration, physics)
    )
    return kernel, Simulator(trace.declared, trace.duration, physics)


def limited(trace: Trace) -> Trace:
    """Every second job has a limit that it will reach."""
    trace.declared.limit[: trace.jobs : 2] = trace.duration[::2] * 3 // 4
    return trace


@pytest.mark.parametrize("recipe", ["fifo", "srtf", "backfill", "tiresias", "sjf"])
@pytest.mark.parametrize("limits", [False, True], ids=["no limits", "limits"])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_taken_over_in_the_middle_ends_the_same(recipe: str, limits: bool, seed: int) -> None:
    trace = limited(all_at_once(seed)) if limits else all_at_once(seed)
    whole, engine = begun(trace, recipe)
    whole.run(engine)
    finished = whole.jobs.finished[: trace.jobs].copy()
    assert (whole.jobs.phase[: trace.jobs] == Phase.FAILED).any() == limits
    half, engine = begun(limited(all_at_once(seed)) if limits else all_at_once(seed), recipe)
    half.run(engine, int(np.median(finished)))
    nodes = Nodes(CLUSTER)
    copy = restore(
        capture(half), nodes, registry.make(recipe), oracle=Truth(trace.duration, Physics(nodes))
    )
    waiting = np.flatnonzero(copy.jobs.phase[: trace.jobs] == Phase.PENDING).tolist()
    assert waiting
    play(copy, trace.duration, [*waiting, -1])
    ended = copy.jobs.finished[: trace.jobs]
    assert np.abs(ended - finished).max() <= 3  # rounding to a microsecond at each stop


def test_without_an_oracle_the_users_word_counts() -> None:
    trace = all_at_once(1, 4)
    declared = trace.declared
    declared.estimate[:4] = NEVER
    declared.limit[:4] = (NEVER, 2 * HOUR, NEVER, HOUR)
    declared.estimate[2] = 3 * HOUR
    kernel = Kernel(Nodes(CLUSTER), declared, registry.make("fifo"), oracle=Ignorant())
    kernel.jobs.phase[:4] = Phase.PENDING
    assert believed(kernel).tolist() == [HOUR, 2 * HOUR, 3 * HOUR, HOUR]
    for seed in range(20):
        lucky = drawn(kernel, np.random.default_rng(seed))
        assert lucky[0] != HOUR
        assert lucky[1] <= 2 * HOUR  # never beyond the limit


def test_expected_starts_hold_what_comes_true() -> None:
    trace = all_at_once(2)
    kernel, engine = begun(trace, "fifo")
    kernel.run(engine, 10 * SECOND)
    data = capture(kernel)

    def copy() -> Kernel:
        nodes = Nodes(CLUSTER)
        return restore(
            data, nodes, registry.make("fifo"), oracle=Truth(trace.duration, Physics(nodes))
        )

    waiting = np.flatnonzero(kernel.jobs.phase[: trace.jobs] == Phase.PENDING).tolist()
    found = expected_starts(copy, waiting, samples=0)
    drawn_from = expected_starts(copy, waiting, samples=5)
    kernel.run(engine)
    assert set(found) == set(drawn_from) == set(waiting)
    for row, outlook in found.items():
        assert outlook.low == outlook.expected == outlook.high
        assert abs(outlook.expected - int(kernel.jobs.first_start[row])) <= 3
    assert all(one.low <= one.expected <= one.high for one in drawn_from.values())
    assert any(one.low < one.high for one in drawn_from.values())


def test_run_times_are_drawn_from_jobs_alike() -> None:
    trace = all_at_once(5, 60)
    declared = trace.declared
    declared.user[:60] = [declared.users.code("ann"), declared.users.code("bob")] * 30
    declared.gpus[:60] = 1
    declared.model[:60] = declared.group[:60] = 0
    kernel = Kernel(Nodes(CLUSTER), declared, registry.make("fifo"), oracle=Ignorant())
    jobs = kernel.jobs
    jobs.phase[:60] = Phase.PENDING
    jobs.phase[:40] = Phase.FINISHED
    jobs.work[:40] = np.where(np.arange(40) % 2, 100.0, 1000.0 + np.arange(40)) * SECOND
    told = np.array([drawn(kernel, np.random.default_rng(seed)) for seed in range(40)])
    assert (told[:, :40] == 0).all()
    bobs, anns = told[:, 41::2], told[:, 40::2]
    assert np.mean(bobs == 100 * SECOND) > 0.7  # all of his took that, and few draws look further
    assert np.mean(anns >= 1000 * SECOND) > 0.7
    jobs.work[41] = 500.0 * SECOND  # longer than any of bob's: drawn from everybody's
    assert drawn(kernel, np.random.default_rng(0))[41] >= 1000 * SECOND


def test_jobs_to_come_are_like_those_that_came() -> None:
    trace = synthesize("philly", 300, 1, gpus=32)
    kernel, engine = begun(trace, "fifo")
    kernel.run(engine, int(trace.declared.submitted[200]))
    before = kernel.jobs.n
    first = foresee(kernel, np.random.default_rng(0))
    jobs = kernel.jobs
    assert first == before < jobs.n
    came = jobs.phase[:first] > Phase.DECLARED
    later = jobs.submitted[first : jobs.n]
    assert later.min() > kernel.now
    assert (np.diff(later) >= 0).all()
    assert (jobs.phase[first : jobs.n] == Phase.DECLARED).all()
    pairs = set(zip(jobs.user[:first][came], jobs.shape[:first][came], strict=True))
    assert set(zip(jobs.user[first : jobs.n], jobs.shape[first : jobs.n], strict=True)) <= pairs
    rate = np.count_nonzero(came) / kernel.now
    foreseen = len(later) / int(later[-1] - kernel.now)
    assert 0.5 < foreseen / rate < 2.0


def test_jobs_to_come_can_hold_up_those_that_wait() -> None:
    trace = all_at_once(6, 60)
    kernel, engine = begun(trace, "priority")
    kernel.run(engine, SECOND)
    data = capture(kernel)

    def copy() -> Kernel:
        nodes = Nodes(CLUSTER)
        oracle = Truth(trace.duration, Physics(nodes))
        return restore(data, nodes, registry.make("priority"), oracle=oracle)

    waiting = np.flatnonzero(kernel.jobs.phase[:60] == Phase.PENDING).tolist()
    alone = play(copy(), trace.duration, waiting)
    crowded = copy()
    rush = [
        structs.replace(
            crowded.jobs.spec(waiting[0]),
            name=f"rush-{i}",
            priority=9,
            submitted=crowded.now + 10 * SECOND,
        )
        for i in range(40)
    ]
    first = crowded.jobs.n
    crowded.declare(rush)
    lasting = np.r_[trace.duration[:60], np.full(40, HOUR)]
    held_up = play(crowded, lasting, waiting, first)
    assert all(held_up[row] >= alone[row] for row in waiting)
    assert sum(held_up.values()) > sum(alone.values())


def test_a_better_policy_promises_more() -> None:
    trace = all_at_once(3)
    kernel, engine = begun(trace, "fifo")
    kernel.run(engine, SECOND)
    data = capture(kernel)
    means = {}
    for recipe in ("fifo", "sjf"):
        nodes = Nodes(CLUSTER)
        oracle = Truth(trace.duration, Physics(nodes))
        found = future(restore(data, nodes, registry.make(recipe), oracle=oracle), recipe)
        assert found.unstarted == 0
        means[recipe] = found.wait_mean_seconds
    assert means["sjf"] < means["fifo"]


def test_the_past_becomes_a_trace() -> None:
    trace = all_at_once(4, 20)
    kernel, engine = begun(trace, "fifo")
    kernel.run(engine)
    again = past(kernel, 0)
    assert again.jobs == 20
    assert np.abs(again.duration - trace.duration[:20]).max() <= 1
    assert past(kernel, kernel.now + 1).jobs == 0


SHARING = Profiles({}, Profile(utilisation={"gpu": 0.6}))
"""Every job uses three fifths of its GPUs alone."""


def sharing(trace: Trace, recipe: str) -> tuple[Kernel, Simulator]:
    nodes = Nodes(CLUSTER)
    physics = Physics(nodes, SHARING)
    oracle = Truth(trace.duration, physics)
    kernel = Kernel(nodes, trace.declared, registry.make(recipe), oracle=oracle)
    return kernel, Simulator(trace.declared, trace.duration, physics)


@pytest.mark.parametrize("recipe", ["co-scheml", "yeung(limit=1.3)", "antman(settle=1us)"])
def test_so_does_a_run_of_jobs_that_share_gpus(recipe: str) -> None:
    """Each goes on as slowly as it did in company, and faster when that has left."""
    trace = all_at_once(0)
    whole, engine = sharing(trace, recipe)
    whole.run(engine)
    finished = whole.jobs.finished[: trace.jobs].copy()
    half, engine = sharing(all_at_once(0), recipe)
    half.run(engine, int(np.median(finished)))
    assert any(placement[0].share for placement in half.placements().values())
    nodes = Nodes(CLUSTER)
    oracle = Truth(trace.duration, Physics(nodes, SHARING))
    copy = restore(capture(half), nodes, registry.make(recipe), oracle=oracle)
    waiting = np.flatnonzero(copy.jobs.phase[: trace.jobs] == Phase.PENDING).tolist()
    assert waiting
    play(copy, trace.duration, [*waiting, -1])
    ended = copy.jobs.finished[: trace.jobs]
    assert np.abs(ended - finished).max() <= 50  # rounding to a microsecond at each change


def test_what_shares_gpus_under_an_oracle_that_knows_no_model_is_looked_ahead_of() -> None:
    """Nothing is known of what sharing costs: a job is believed to need all of its GPU."""
    trace = all_at_once(0)
    half, engine = sharing(trace, "co-scheml")
    half.run(engine, 10 * SECOND)
    nodes = Nodes(CLUSTER)
    copy = restore(capture(half), nodes, registry.make("fifo"), oracle=Ignorant())
    waiting = np.flatnonzero(copy.jobs.phase[: trace.jobs] == Phase.PENDING).tolist()
    assert len(play(copy, trace.duration, waiting)) == len(waiting)
