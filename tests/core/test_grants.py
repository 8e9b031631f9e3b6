"""A parent's grant through a restart; the order of what happens at one instant."""

from __future__ import annotations

import msgspec
import pytest

from bench import Bench, on
from core.test_kernel import Nested, family
from ganger.core import events
from ganger.core.books.ledger import Ledger
from ganger.core.events import SERVED, Command, Released, Started, Submitted, kinds_of_change
from ganger.core.kernel import Kernel
from ganger.core.plan import Start
from ganger.core.spec import Kind
from ganger.core.state.cluster import Nodes
from ganger.core.state.grants import Grants
from ganger.core.state.jobs import Phase
from ganger.core.state.snapshot import Snapshot, capture, restore
from ganger.core.units import SECOND
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulation import Setup
from ganger.sim.engine import Simulator
from ganger.sim.physics import Costs, Physics
from worlds import Diary, cluster, gpus, job, trace_of


@pytest.mark.parametrize("at", [0, 1, 3, 5, 6, 7, 9, 12])
def test_a_kernel_restored_while_trials_run_goes_on_to_the_same_bytes(at: int) -> None:
    """A short trial takes the place of a long one at 3 s, which saves for 2 s as it goes."""
    short = job("short trial", 3, 1, parent="sweep")
    works = [*family(6), short, job("beside", 3, 4, size=3), job("last", 7, 3, size=4)]
    trace, nodes = trace_of(works), Nodes(cluster(1, 8))
    setup = Setup(costs=Costs(0, 2 * SECOND, SECOND))
    physics = Physics(nodes, setup.profiles, setup.costs)
    diaries = [Diary(), Diary()]
    for stops, diary in zip([False, True], diaries, strict=True):
        policy = Nested(inner="srtf", outer="fifo")
        kernel = Kernel(
            nodes, trace.declared, policy, journal=diary, oracle=make_oracle(trace, physics, setup)
        )
        engine = Simulator(trace.declared, trace.duration, physics, ())
        kernel.run(engine, at * SECOND)
        if stops:
            kept = msgspec.msgpack.decode(msgspec.msgpack.encode(capture(kernel)), type=Snapshot)
            kernel = restore(
                kept,
                Nodes(cluster(1, 8)),
                policy,
                journal=diary,
                oracle=make_oracle(trace, physics, setup),
            )
        kernel.run(engine, 60 * SECOND)
    first, second = ([msgspec.json.encode(step) for step in diary.steps] for diary in diaries)
    assert first == second


def test_at_one_instant_what_frees_comes_first_then_what_runs_then_who_comes_then_orders() -> None:
    order = [
        ["Finished"], ["Failed"], ["Released"], ["Refused", "Unable"], ["NodeDown"],
        ["NodeUp", "Withheld"],
        ["Started"], ["Progressed", "Measured", "Evaluated", "Served"], ["Submitted", "Accepted"],
        ["Command", "NodeCommand"], ["Woke"],
    ]  # fmt: skip
    assert kinds_of_change(SERVED) == SERVED
    for rank, names in enumerate(order):
        assert [getattr(events, name).rank for name in names] == [rank] * len(names)


def test_who_leaves_a_grant_is_waited_for_when_the_grant_grows_and_when_it_is_closed() -> None:
    """Trial 5 is told to leave GPU 0 of its parent's two; the parent gets a third, then goes."""
    nodes = Nodes(cluster(1, 4))
    grants = Grants(nodes, Ledger(nodes))
    grants.open(1, gpus(2), on(0b0011))
    grants.inner[1].take(5, gpus(1), on(0b0001))
    grants.inner[1].give(5, leaving=True)
    grants.open(1, gpus(3), on(0b0111))
    assert {row[0] for row in grants.inner[1].leaving[0]} == {5}
    grants.close(1)
    assert {row[0] for row in grants.top.ledger.leaving[0]} == {5}


@pytest.mark.parametrize("verb", ["requeue", "cancel"])
def test_whoever_runs_inside_a_grant_goes_with_its_parent_in_the_same_instant(verb: str) -> None:
    """A person stops the search; its trial saves for 2 s, and its GPU is waited for."""
    works = [
        job("search", lasts=None, size=2, kind=Kind.TUNE),
        job("trial", parent="search"),
        job("other", size=4),
    ]
    bench = Bench(*works, on=cluster(1, 4))
    bench.feed(0, *map(Submitted, range(3)), then=[Start(0, 1, on(0b0011))])
    bench.feed(0, Started(0, 1), then=[Start(1, 1, on(0b0001))])
    bench.feed(0, Started(1, 1))
    assert bench.kernel.view.inside(0) is not None
    bench.feed(5, Command(0, verb), then=[Start(2, 1, on(0b1111), (0, 1))])
    assert (bench.phase(0), bench.phase(1)) == (Phase.STOPPING, Phase.STOPPING)
    assert bench.kernel.view.inside(0) is None
    bench.feed(6, Released(0, 1))
    assert bench.phase(1) == Phase.STOPPING
    bench.feed(7, Released(1, 1))
    bench.feed(7, Started(2, 1))
    assert bench.phase(2) == Phase.RUNNING
