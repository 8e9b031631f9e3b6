"""Jobs on shared links: by hand, and the two grains against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ganger.core.kernel import Kernel
from ganger.core.plan import Plan, Start, Tune
from ganger.core.profiles import Profile, Profiles, Steps
from ganger.core.spec import Network
from ganger.core.state.cluster import Nodes
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import By
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.links.fluid import Mover, step_times
from ganger.sim.physics import Physics
from sim.links.worlds import LINK, Random, ends, ran, spec_of
from worlds import job


def pair(lag: float = 0.0) -> list[Any]:
    """Two jobs of 50 steps alone; each computes for a second and moves for one."""
    return [job("a", 0, 100, 5, model="net"), job("b", lag, 100, 5, model="net")]


@pytest.mark.parametrize("by_step", [False, True])
def test_without_links_and_with_wide_ones_nothing_changes(by_step: bool) -> None:
    for network in (None, Network(1.0, 2.0), Network(1.0)):
        assert ends(ran(pair(), network, by_step=by_step)) == [200.0, 200.0]


@pytest.mark.parametrize(("lag", "expected"), [(0.0, 300.0), (0.5, 250.0), (1.0, 200.0)])
def test_by_step_the_phase_counts(lag: float, expected: float) -> None:
    """In phase both send at half the rate, 3 s a step; in turns neither meets the other, 2 s; by
    half a step out of phase each meets the other for half of the time, 2.5 s."""
    kernel = ran(pair(lag), LINK, by_step=True)
    assert ends(kernel) == pytest.approx([expected, expected + lag], abs=1.0)


def test_in_the_mean_it_is_the_mean_of_all_phases() -> None:
    """The chain of two jobs that compute and send for 1 s alone: 2.5 s a step."""
    assert ends(ran(pair(), LINK)) == pytest.approx([250.0, 250.0])


def test_jobs_of_different_tenants_slow_each_other_and_who_is_left_speeds_up() -> None:
    """The second job is half as long: until it ends both go at 2.5 s a step, then at 2 s."""
    jobs = [
        job("a", 0, 100, 5, model="net", tenant="vision"),
        job("b", 0, 50, 5, model="net", tenant="speech"),
    ]
    assert ends(ran(jobs, LINK)) == pytest.approx([225.0, 125.0])


class Favours:
    """Fifo that turns a knob of the job `who` when it runs."""

    name = "favours"

    def __init__(self, who: int, **knobs: float) -> None:
        self._queue = QueuePolicy("fifo", By(()), Walk.SKIP)
        self._who, self._knobs = who, knobs

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """As fifo does."""
        plan, memory = self._queue.decide(view, memory)
        starts = [each for each in plan.actions if isinstance(each, Start)]
        for start in starts:
            if start.job == self._who:
                plan.actions.append(Tune(start.job, start.attempt, self._knobs))
        return plan, memory


def test_priority_sends_first() -> None:
    """With strict priority the favoured one sends in 1 s, as if alone; step by step the other one
    falls behind it and meets it no more: 3 s once, then 2 s a step. In the mean it meets it at
    random: its chain gives 2.8 s a step."""
    first, other = ends(ran(pair(), LINK, Favours(1, link_priority=1), by_step=True))
    assert other == pytest.approx(200.0, abs=1.0)
    assert first == pytest.approx(201.0, abs=2.0)
    first, other = ends(ran(pair(), LINK, Favours(1, link_priority=1)))
    assert other == pytest.approx(200.0, abs=0.1)
    assert first == pytest.approx(280.0, abs=0.1)


def test_weights_divide_the_link() -> None:
    """Nine to one: the heavy one is hardly slowed."""
    first, other = ends(ran(pair(), LINK, Favours(1, link_weight=9.0)))
    assert (first, other) == pytest.approx((275.0, 208.3333), abs=0.001)


def test_servers_share_the_link_of_their_node() -> None:
    """Two workers push 1 GB each to the one server, on its node, which hears one of them and tells
    it the sum: 1 s each way at 1 GB/s, where the profile counts 2 n / p = 4 times the gradients."""
    steps = Steps(1.0, 1.0, (1e9, 1e9, 4.0, 4.0), servers=1)
    jobs = [job("a", 0, 100, 2, model="net")]
    wide = ends(ran(jobs, Network(4.0), steps=steps, by_step=True))
    assert wide == ends(ran(jobs, None, steps=steps))
    narrow = ends(ran(jobs, Network(1.0), steps=steps, by_step=True))
    assert narrow == ends(ran(jobs, Network(1.0), steps=steps))
    assert narrow[0] > wide[0]


def test_contention_takes_some_of_the_link() -> None:
    """With a contention of 0.5 two have 2 / 2.5 of the link: 1 + 2.5 s a step in phase."""
    kernel = ran(pair(), Network(1.0, 1.0, contention=0.5), by_step=True)
    assert ends(kernel) == pytest.approx([350.0, 350.0], abs=1.0)


def test_a_run_taken_over_in_its_middle_goes_on_alike() -> None:
    """A copy of the kernel in a simulator that adopts it ends as the first one does."""
    from sim.links.worlds import ONE_GB
    from worlds import trace_of

    trace = trace_of(pair())
    nodes = Nodes(spec_of(LINK))
    physics = Physics(nodes, Profiles({"net": Profile(steps=ONE_GB)}))
    kernel = Kernel(nodes, trace.declared, registry.make("fifo"))
    kernel.run(Simulator(trace.declared, trace.duration, physics), 60 * SECOND)
    engine = Simulator(trace.declared, trace.duration, physics)
    engine.adopt(kernel.jobs, kernel.placements(), (), kernel.now)
    kernel.run(engine)
    assert ends(kernel) == pytest.approx([250.0, 250.0])


@pytest.mark.parametrize("seed", range(3))
def test_both_grains_agree(seed: int) -> None:
    """On random worlds mean step times are within 5 % of those of single steps; the benchmark has
    twenty."""
    world = Random(seed)
    fluid, single = world.fluid(), world.by_step(200)
    assert abs(np.mean(fluid / single) - 1) < 0.05
    assert np.mean(np.abs(fluid / single - 1)) < 0.05


def test_no_mean_is_faster_than_alone_and_many_are_like_few() -> None:
    """Eighty jobs on one link: by parts of the time, they are as fast as the link lets them be."""
    world = Random(1)
    transfer = world.transfers[0]
    steps = step_times([Mover(transfer)] * 80, np.array(world.links.capacity))
    assert (steps >= transfer.stated).all()
    widest = max(part * 80 * transfer.size / world.links.capacity[i] for i, part in transfer.path)
    assert steps[0] == pytest.approx(widest, rel=0.05)
