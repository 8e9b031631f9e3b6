"""What CPU-only neighbours leave a job of the cores and the memory bandwidth of its hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.events import Finished
from ganger.core.host_use import HostUse
from ganger.core.plan import Plan, Tune
from ganger.core.profiles import Profile, Profiles, Sensitivity
from ganger.core.spec import ClusterSpec, Needs, NodeSpec, Role, Shape
from ganger.core.units import NEVER, SECOND
from ganger.core.view import View
from ganger.estimate.sharing.host_bandwidth import HostUser, stretch
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from ganger.workloads.clusters import load_cluster
from ganger.workloads.measured.speeds import read_profiles
from worlds import Played, Work, job, play, trace_of

MODELS = Profiles(
    {
        "net": Profile(host=HostUse(25.0)),
        "stream": Profile(host=HostUse(150.0 / 8)),
        "half": Profile(host=HostUse(60.0, 0.5)),
        "fed": Profile(sensitivity=Sensitivity((1000.0, 4000.0), (0.0,), ((0.25,), (1.0,)))),
    }
)


def host(bandwidth: float = 120.0, **more: Any) -> ClusterSpec:
    """A node of two GPUs and 16 cores, whose memory moves so many GB/s."""
    node = NodeSpec(gpus=2, gpu_type="V100", cpus=16_000, bandwidth=bandwidth, **more)
    return ClusterSpec((node,))


def cores(name: str, many: int, at: float = 0, lasts: float = 30, model: str = "") -> Work:
    """A job of so many cores and no GPU."""
    shape = Shape((Role(needs=Needs(gpus=0, cpus=many * 1000)),))
    return job(name, at, lasts, shape=shape, model=model)


def rates(run: Played) -> list[float]:
    """How fast each job runs when the simulation stops."""
    return run.jobs.rate[: run.jobs.n].tolist()  # type: ignore[no-any-return]


class Turning:
    """First come, first served; after 10 s it turns these knobs of job 1."""

    orders: tuple[type, ...] = (Tune,)
    name = "turning"

    def __init__(self, **knobs: float) -> None:
        self.inner, self.knobs = registry.make("fifo(walk=skip)"), knobs

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """As the inner one, and one Tune."""
        plan, _ = self.inner.decide(view, memory)
        if view.now == 10 * SECOND:
            plan.actions.append(Tune(1, 1, self.knobs))
        plan.wake = 10 * SECOND if view.now < 10 * SECOND else plan.wake
        return plan, None


def test_training_beside_a_stream_has_three_fifths_of_its_speed_and_all_of_it_once_that_ends() -> (
    None
):
    """50 and 150 GB/s are wanted of 120: all accesses take 5 / 3 as long. The stream's 30 s of work
    take 50 s; training has done 30 s of 60 by then."""
    works = [job("net", 0, 60, size=2, model="net"), cores("stream", 8, model="stream")]
    run = play("fifo(walk=skip)", works, host(), profiles=MODELS)
    assert run.jct() == pytest.approx([80, 50])
    assert play("fifo(walk=skip)", works, host(0.0), profiles=MODELS).jct() == [60, 30]


def test_what_waits_for_memory_half_of_its_time_is_slowed_less() -> None:
    """60 / (0.5 + 0.5 s) + 150 / s = 120 where accesses take s = 1.5 times as long."""
    slow = stretch((HostUser(60.0, 0.5), HostUser(108.0, 1.0)), 120.0)
    assert slow == pytest.approx(1.5)
    assert HostUser(60.0, 0.5).speed(slow) == pytest.approx(0.8)


def test_a_throttle_gives_training_back_what_it_takes_from_the_stream() -> None:
    """Held to 70 GB/s from 10 s on, it leaves the 50 that training wants."""
    works = [job("net", 0, 60, size=2, model="net"), cores("stream", 8, model="stream")]
    run = play(Turning(bandwidth_gbps=70.0), works, host(), profiles=MODELS, until=11 * SECOND)
    assert rates(run) == pytest.approx([1.0, 70 / 150])
    run = play(Turning(cpus=2000.0), works, host(), profiles=MODELS, until=11 * SECOND)
    assert rates(run) == pytest.approx([1.0, 0.25])


@given(
    st.lists(
        st.tuples(st.floats(0.1, 300), st.floats(0.05, 1), st.floats(0.5, 300)),
        min_size=1, max_size=6,
    ),
    st.floats(1, 200),
)  # fmt: skip
def test_no_more_is_moved_than_there_is_and_none_is_left_while_somebody_waits(
    wanted: list[tuple[float, float, float]], capacity: float
) -> None:
    users = tuple(HostUser(*each) for each in wanted)
    slow = stretch(users, capacity)
    moved = sum(user.demand * user.speed(slow) for user in users)
    assert moved <= capacity * (1 + 1e-9)
    assert slow == 1.0 or moved >= capacity * (1 - 1e-9)
    assert all(0 < user.speed(slow) <= 1 for user in users)


def test_cores_that_others_ask_for_are_not_there_for_those_that_ask_for_none() -> None:
    """A GPU's part of 16 cores is 8, of which the model uses 4. Beside a job of 12 cores two GPUs
    have 2 each, half of its speed, and from 30 s on all that they can use."""
    works = [job("fed", 0, 60, size=2, model="fed"), cores("other", 12)]
    run = play("fifo(walk=skip)", works, host(), profiles=MODELS)
    assert run.jct() == pytest.approx([30 + 45, 30])
    small = [job("fed", 0, 60, size=2, model="fed"), cores("other", 8)]
    assert play("fifo(walk=skip)", small, host(), profiles=MODELS).jct() == [60, 30]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bandwidth = 0", "models.toml: m.host.bandwidth: 0"),
        ("bandwidth = 5\nbound = 1.5", "models.toml: m.host.bound: 1.5"),
    ],
)
def test_a_traffic_that_cannot_be_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "models.toml"
    file.write_text(f'format = "ganger.profiles/1"\n[models.m.host]\n{text}\n')
    with pytest.raises(BadInput) as refused:
        read_profiles(file)
    assert said in str(refused.value)


def test_files_state_the_bandwidth_of_nodes_and_the_traffic_of_models(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(
        'format = "ganger.cluster/1"\n[[nodes]]\ngpus = 2\ngpu_type = "V100"\ncpus = 16\n'
        "memory_bandwidth = 120\n"
    )
    assert load_cluster(str(file)).nodes[0].bandwidth == 120.0
    models = tmp_path / "models.toml"
    models.write_text('format = "ganger.profiles/1"\n[models.m.host]\nbandwidth = 25\n')
    assert read_profiles(models).of("m").host == HostUse(25.0, 1.0)
    file.write_text(file.read_text().replace("= 120", "= -1"))
    with pytest.raises(BadInput):
        load_cluster(str(file))


def test_a_run_that_is_taken_over_in_the_middle_goes_on_at_the_same_speeds() -> None:
    """From 11 s on as `test_a_throttle_...`: the stream ends at 10 + (30 - 6) x 150 / 70 s."""
    works = [job("net", 0, 60, size=2, model="net"), cores("stream", 8, model="stream")]
    knobs = {"bandwidth_gbps": 70.0}
    run = play(Turning(**knobs), works, host(), profiles=MODELS, until=11 * SECOND)
    kernel, trace = run.kernel, trace_of(works)
    physics = Physics(kernel.nodes, MODELS)
    engine = Simulator(trace.declared, trace.duration, physics)
    engine.adopt(kernel.jobs, kernel.placements(), [], kernel.now, knobs={1: knobs})
    ends = dict[int, float]()
    while (batch := engine.poll(NEVER)) is not None:
        ends |= {each.job: batch.at / SECOND for each in batch.events if type(each) is Finished}
    whole = play(Turning(**knobs), works, host(), profiles=MODELS)
    assert [ends[0], ends[1]] == pytest.approx([whole.ended("net"), whole.ended("stream")])
    assert ends[1] == pytest.approx(10 + 24 * 150 / 70)
