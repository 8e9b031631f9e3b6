"""What changes the speed of a running job: a rescale protocol, neighbours that disturb it."""

from __future__ import annotations

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.events import Progressed, Started
from ganger.core.plan import Plan, Resize, Slot, Start
from ganger.core.profiles import Goodput, Profile, Profiles, StepModel
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.sim.physics import Costs, Physics
from ganger.sim.rescale import protocol
from worlds import Played, cluster, gpus, job, play, trace_of


class Growing:
    """Runs job 0 on GPU 0, and from `at` seconds on on GPUs 0 to `to` - 1."""

    name = "growing"

    def __init__(self, at: int, first: int, to: int) -> None:
        self.at, self.first, self.to = at * SECOND, first, to

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Start, then resize once."""
        jobs = view.jobs
        actions: list[Start | Resize] = []
        if len(view.pending) and not jobs.attempt[0]:
            actions = [Start(0, 1, (Slot(0, (1 << self.first) - 1, self.first),))]
        elif view.now == self.at and jobs.attempt[0] == 1 and jobs.phase[0] == 4:
            actions = [Resize(0, 2, (Slot(0, (1 << self.to) - 1, self.to),), (0,))]
        wake = self.at if view.now < self.at else NEVER
        return Plan(list(actions), wake=wake), None


def grow(costs: Costs, first: int = 1, to: int = 2, at: int = 40) -> Played:
    from ganger.core.spec import Role, Shape

    shape = Shape((Role(size=1, least=1, most=4),))
    return play(Growing(at, first, to), [job("a", 0, 100, shape=shape)], cluster(1, 4), costs=costs)


@pytest.mark.parametrize(
    ("costs", "ends"),
    [
        # 40 s alone, 60 s of work left, at twice the speed: 30 s, and whatever rescaling takes.
        pytest.param(Costs(), 70, id="for nothing"),
        pytest.param(Costs(checkpoint=10 * SECOND, restore=20 * SECOND), 100, id="none is named"),
        pytest.param(
            Costs(checkpoint=10 * SECOND, restore=20 * SECOND, rescale="stop-restart"),
            100,
            id="stop and restart",
        ),
        pytest.param(
            Costs(checkpoint=10 * SECOND, restore=20 * SECOND, rescale="side-car"),
            75,
            id="side-car",
        ),
        pytest.param(Costs(rescale="io-free"), 71, id="IO-free"),
        pytest.param(Costs(rescale="stop-free"), 40 + 1 + 20 + 20, id="20 s at the old speed"),
    ],
)
def test_what_growing_costs_by_protocol(costs: Costs, ends: float) -> None:
    assert grow(costs).ended("a") == ends


def test_a_device_proxy_costs_three_hundredths_all_the_time() -> None:
    left = 100 - 40 * 0.97
    run = grow(Costs(rescale="device-proxy"))
    assert run.ended("a") == pytest.approx(40 + 30 + left / 2 / 0.97, abs=1e-5)
    alone = play("fifo", [job("a", 0, 97)], costs=Costs(rescale="device-proxy"))
    assert alone.ended("a") == pytest.approx(100)


def test_spliced_replicas_take_turns_and_each_change_costs_three_hundredths_of_a_step() -> None:
    """On 4 of 8 GPUs a step takes 2 + 0.03 times as long, on 3 of them three replicas share the
    fullest GPU; its curve of speed by size says nothing, for there are 8 workers still."""
    proxy = Costs(rescale="device-proxy")
    flat = Profiles({"m": Profile(scaling=(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0))})
    works = [job("a", 0, 100, size=8, model="m"), job("b", 0, 100, size=8)]
    run = play("fifo", works, cluster(1, 8), profiles=flat, costs=proxy, until=0)
    view, declared = run.kernel.view, trace_of(works).declared
    physics = Physics(view.nodes, flat, proxy)
    for row in (0, 1):
        for size, step in ((8, 1.0), (4, 2.03), (3, 3.06), (2, 4.09), (1, 8.21)):
            rate = physics.rate(declared, row, (Slot(0, (1 << size) - 1, size),))
            assert rate == pytest.approx(0.97 / step)
    shrunk = Physics(view.nodes, flat, Costs(rescale="io-free"))
    assert shrunk.rate(declared, 0, (Slot(0, 0b1111, 4),)) == 0.5
    rows, one = np.array([0, 1]), np.array([1, 1])
    told = view.oracle.throughput(view, rows, "V100", np.array([4, 2]), one)
    assert told == pytest.approx([1 / 2.03, 1 / 4.09])
    told = view.oracle.throughput(view, rows[:, None], "V100", np.array([[4, 8]]), one[None, :])
    assert told == pytest.approx(np.array([[1 / 2.03, 1.0]] * 2))
    chooses = Profile(goodput=Goodput(1.0, 1.0, (1.0, 1.0), 1.0, model=StepModel(0.1, 0.1)))
    beside = Profiles({**flat.models, "chooses its batch": chooses})
    run = play("fifo", works, cluster(1, 8), profiles=beside, costs=proxy, until=0)
    view = run.kernel.view
    told = view.oracle.throughput(view, rows, "V100", np.array([4, 2]), one)
    assert told == pytest.approx([1 / 2.03, 1 / 4.09])


def test_stop_free_growing_costs_those_who_train_less_than_a_second() -> None:
    """Of EDL's card: 20 s of preparation, during which no work is lost but 1 s of pause."""
    run = grow(Costs(rescale="stop-free"))
    told = [
        event
        for batch, _ in run.diary.steps
        for event in batch.events
        if isinstance(event, Started | Progressed)
    ]
    assert told == [Started(0, 1, 1.0), Started(0, 2, 1.0), Progressed(0, 2, 60 * SECOND, 2.0)]


def test_a_graceful_exit_needs_no_preparation() -> None:
    """Two GPUs for 20 s, then one: 40 s of work done, 60 to go, and the pause."""
    assert grow(Costs(rescale="stop-free"), first=2, to=1, at=20).ended("a") == 20 + 1 + 60


def test_unknown_protocols_are_refused() -> None:
    with pytest.raises(BadInput, match="no rescale protocol 'magic'"):
        protocol("magic")


# ---------------------------------------------------------------------- neighbours


LOUD = Profiles({"net": Profile(disturbed={"loud": 2.0}), "loud": Profile()})


def test_a_neighbour_slows_a_job_down_while_it_is_there() -> None:
    works = [job("net", 0, 10, model="net"), job("loud", 4, 6, model="loud")]
    run = play("fifo", works, profiles=LOUD)
    assert run.ended("loud") == 10, "it is not disturbed itself"
    assert run.ended("net") == 4 + 6 + 3, "4 s of work, 3 in 6 s, 3 more"
    assert play("fifo", works, cluster(2, 1), profiles=LOUD).ended("net") == 10, "another node"


def test_finishing_takes_as_long_beside_a_neighbour() -> None:
    works = [job("net", 0, 10, model="net"), job("loud", 4, 6, model="loud")]
    run = play("fifo", works, profiles=LOUD, costs=Costs(finish=SECOND))
    assert run.ended("loud") == 4 + 6 + 1
    assert run.ended("net") == 4 + 7 + 2.5 + 1, "4 s of work, 3.5 in 7 s, 2.5 more"


def test_a_neighbour_that_comes_while_a_job_loads_does_not_make_it_compute_sooner() -> None:
    works = [job("net", 0, 10, model="net"), job("loud", 1, 6, model="loud")]
    run = play("fifo", works, profiles=LOUD, costs=Costs(start=4 * SECOND, load=4 * SECOND))
    assert run.ended("loud") == 1 + 4 + 6
    assert run.ended("net") == 4 + 7 + 6.5, "3.5 s of work in 7 s, 6.5 more"


def test_two_neighbours_count_twice_and_limits_stand() -> None:
    works = [
        job("net", 0, 10, model="net", limit=30),
        *(job(f"loud {i}", 0, 8, model="loud") for i in range(2)),
    ]
    run = play("fifo", works, cluster(1, 3), profiles=LOUD)
    assert run.ended("net") == 8 + 8
    short = play(
        "fifo",
        [works[0]._replace(spec=job("net", 0, 10, model="net", limit=5).spec), *works[1:]],
        cluster(1, 3),
        profiles=LOUD,
    )
    assert (short.ended("net"), short.phase("net")) == (5, "failed")


def test_neighbours_that_start_and_end_at_the_same_instant_lose_no_start() -> None:
    works = [
        job("net 0", 0, 4, model="net"),
        job("loud", 0, 4, model="loud"),
        *(job(f"net {i}", 0, 4, model="net", shape=gpus(1)) for i in (1, 2, 3)),
    ]
    costs = Costs(start=4 * SECOND)
    run = play("fifo", works, cluster(1, 3), profiles=LOUD, costs=costs)
    assert min(run.jobs.finished[:5]) > 0
    # 4 s to start; two at half speed beside `loud` until 8; then 2 s each of work are left.
    assert [run.ended(f"net {i}") for i in range(4)] == [10, 10, 16, 18]
