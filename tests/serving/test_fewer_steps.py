"""What saves steps of a run changes nothing of it: Clockwork looks at what is new, and columns that
nobody states are narrow."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.serving.verbs import STAY, Do, Ended
from ganger.core.serving.world import Known, Lane, Requests, Store, World
from ganger.core.units import NEVER
from ganger.mechanisms.serving.dispatch import LeastLoaded
from ganger.recipes.serving.clockwork import Clockwork
from ganger.recipes.serving.clockwork_state import (
    WINDOW,
    Memory,
    Spans,
    Waiting,
    all_serve,
    members,
    served_demand,
    unserved,
)
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from ganger.sim.requests.trouble import Change, drive
from serving.rig import MS, Asked, Seen, columns, lanes, model, placed, table
from serving.test_every_router import shown

SIZES, LONGEST = (1, 2, 4), 25 * MS
OF_BOTH = [
    ("a", table(5, 7, 8, 12, p99=1.3), table(12, 14, 15, p99=1.8)),
    ("b", table(9, 9.5, 11, p99=1.1), table(20, 22, 24)),
    ("c", table(1, 2, p99=2), table(0.5, 9)),
]
"""Models on a type of device and on an old one."""
MODELS: list[Known] = [
    *(
        Known(name, {("gpu", 1.0): gpu, ("old", 1.0): old}, bytes_, round(load * MS))
        for (name, gpu, old), bytes_, load in zip(OF_BOTH, (40, 50, 30), (3, 20, 0.5), strict=True)
    ),
    model("d", table(3, 4, 5, 6), bytes_=30, load=2),
]


class Thorough(Clockwork):
    """Looks at every lane, each time, and is asked after every end while anything waits."""

    def next(self, world: World, idle: Sequence[Lane]) -> Sequence[Do]:
        world.memory.fresh = -1
        return super().next(world, idle)

    def ended(self, world: World, done: Ended) -> Sequence[Do]:
        orders = super().ended(world, done)
        return () if orders is STAY and world.memory.some else orders


def served(
    router: Clockwork,
    asked: Sequence[Asked],
    room: int,
    types: Sequence[str],
    changes: Sequence[Change],
) -> Seen:
    """On devices of these types with so much room each, which fail and come back."""
    count = len(types)
    both = placed(count)
    for lane in both:
        lane.type = types[lane.device]
    world = World(MODELS, both, [Store(at, room) for at in range(count)])
    seen = Seen(world)
    plane = Plane(world, router, Physics(MODELS, noise=0), iter([columns(asked)]), [seen])
    drive(plane, changes)
    plane.finish()
    return seen


@given(
    asked=st.lists(
        st.tuples(
            st.integers(0, 120).map(lambda at: at / 2),
            st.integers(0, 3),
            st.sampled_from([7.0, 15.0, 30.0, 200.0]),
            st.sampled_from([1, 1, 1, 2]),
        ).map(lambda given: Asked(*given)),
        min_size=1,
        max_size=60,
    ),
    room=st.integers(50, 130),
    types=st.lists(st.sampled_from(["gpu", "old"]), max_size=3).map(lambda more: ["gpu", *more]),
    failures=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), max_size=3),
)
def test_clockwork_that_looks_at_what_is_new_finds_what_it_finds_when_it_looks_at_all(
    asked: list[Asked], room: int, types: list[str], failures: list[tuple[int, int]]
) -> None:
    """Also where models come and go, and devices with them. What is answered is in time."""
    asked = sorted(asked, key=lambda one: one.at)
    changes = [
        Change(at * MS + later, device % len(types), up)
        for at, device in failures
        for later, up in ((0, False), (9 * MS, True))
    ]
    changes.sort()
    quick = served(Clockwork(SIZES, LONGEST, 0), asked, room, types, changes)
    whole = served(Thorough(SIZES, LONGEST, 0), asked, room, types, changes)
    assert shown(quick) == shown(whole)
    assert quick.loads == whole.loads
    for one, outcome, ended in zip(asked, quick.outcomes, quick.ended, strict=True):
        assert outcome != "answered" or ended <= one.at + one.within


def test_a_lane_that_comes_back_takes_what_waited_before() -> None:
    """The other lane has taken one model at 2, and was asked for the other when there was no lane
    for it."""
    models = [model("a", table(20)), model("b", table(4))]
    world = World(models, lanes(2))
    seen = Seen(world)
    asked = [Asked(2, 0, 100), Asked(2, 1, 100)]
    router = Clockwork(SIZES, LONGEST, 0)
    plane = Plane(world, router, Physics(models, noise=0), iter([columns(asked)]), [seen])
    drive(plane, [Change(1 * MS, 1, up=False), Change(5 * MS, 1, up=True)])
    plane.finish()
    assert [(each.lane, each.model, each.began) for each in seen.batches] == [(0, 0, 2), (1, 1, 5)]


def beside_another(count: int) -> World:
    """So many lanes of a type that runs the second model alone, and a lane that runs only the
    first, which is always idle: it is asked for at every arrival."""
    models = [model("a", table(5)), model("b", table(5), type_="old")]
    every = lanes(count + 1)
    for lane in every[:count]:
        lane.type = "old"
    return World(models, every)


def test_lanes_that_end_together_each_take_of_what_waited_before() -> None:
    world = beside_another(2)
    seen = Seen(world)
    asked = [Asked(at, 1, 100) for at in (0, 0, 1, 1)]
    router = Clockwork((1,), LONGEST, 0)
    plane = Plane(world, router, Physics(world.models, noise=0), iter([columns(asked)]), [seen])
    plane.advance()
    plane.finish()
    assert [(each.lane, each.began) for each in seen.batches] == [(0, 0), (1, 0), (0, 5), (1, 5)]


def test_a_lane_that_drains_takes_nothing_more_when_its_batch_ends() -> None:
    world = beside_another(1)
    seen = Seen(world)
    asked = [Asked(0, 1, 100), Asked(1, 1, 100)]
    router = Clockwork((1,), LONGEST, 0)
    plane = Plane(world, router, Physics(world.models, noise=0), iter([columns(asked)]), [seen])
    plane.advance(2 * MS)
    plane.turn(0, 2 * MS, up=False, drains=True)
    plane.advance(20 * MS)
    plane.turn(0, 20 * MS, up=True)
    plane.advance()
    plane.finish()
    assert [(each.tasks, each.began) for each in seen.batches] == [((0,), 0), ((1,), 20)]


def controller(pools: int) -> Memory:
    """What the controller remembers of so many devices with a lane each."""
    world = World([model("m", table(10))] * 4, placed(pools), [Store(at, 0) for at in range(pools)])
    return Clockwork((1,), WINDOW, 0).begin(world)


@given(
    waits=st.lists(
        st.tuples(
            st.floats(0, 1.2).map(lambda part: part * WINDOW),
            st.sets(st.integers(0, 3), min_size=1),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_where_all_is_said_to_be_served_the_split_of_demand_serves_all(
    waits: list[tuple[float, set[int]]],
) -> None:
    memory = controller(4)
    memory.waiting = [Waiting(demand=demand) for demand, _ in waits]
    memory.pools_of = [sorted(pools) for _, pools in waits]
    if all_serve(memory, [(demand, len(pools)) for demand, pools in waits]):
        found = served_demand(memory, range(len(waits)))
        for at, (demand, _) in enumerate(waits):
            assert found[at] == pytest.approx(demand, rel=1e-12)


def test_all_is_said_to_be_served_up_to_what_the_pool_with_most_could_have_to_do() -> None:
    """A pool begins with one microsecond. Two demands of 0.6 on two devices leave at most 0.9."""
    memory = controller(2)
    assert all_serve(memory, [(WINDOW - 2, 1)])
    assert not all_serve(memory, [(WINDOW, 1)])
    assert all_serve(memory, [(0.6 * WINDOW, 2)] * 2)
    assert not all_serve(memory, [(0.6 * WINDOW, 2), (0.6 * WINDOW, 1)])
    assert not all_serve(memory, [(0.0, 1)])
    memory.lanes_of[1] = []
    assert not all_serve(memory, [(1.0, 1)])


def test_what_is_loaded_next_is_what_most_is_left_of() -> None:
    """Model 2 lies nowhere, model 0 nowhere either and asks less; model 1 has too much for its
    device, and model 3 all that it needs."""
    memory = controller(2)
    memory.waiting = [Waiting(demand=part * WINDOW) for part in (0.3, 1.5, 2.0, 0.2)]
    memory.pools_of = [[], [0], [], [1]]
    memory.some = 0b1111
    assert unserved(memory) == [2, 1, 0]
    memory.waiting[1].demand = 0.5 * WINDOW
    assert unserved(memory) == [2, 0]


def test_members_of_a_set_rise() -> None:
    assert members(0) == []
    assert members(0b1011 | 1 << 200) == [0, 1, 3, 200]


def test_what_waits_is_taken_out_of_the_middle_or_as_a_whole() -> None:
    memory = controller(1)
    memory.waiting[2] = Waiting([7, 8, 9], [70, 80, 90], [1.0, 2.0, 4.0], 7.0)
    memory.some = 0b101
    assert memory.take(2, 1, 1) == [8]
    assert memory.waiting[2] == Waiting([7, 9], [70, 90], [1.0, 4.0], 5.0)
    assert memory.some == 0b101
    assert memory.take(2, 0, 2) == [7, 9]
    assert memory.waiting[2] == Waiting()
    assert memory.some == 0b001


def test_what_takes_longest_follows_what_is_measured() -> None:
    """Of three that wait, two can run together; a size that is no size changes nothing."""
    spans = Spans([0, 5, 8, 9, 7, 10], [1, 2, 4])
    assert (spans.fits, spans.most, spans.longest) == ([0, 1, 2, 2, 4], [0, 5, 8, 8, 8], 10)
    spans.measure(4, 12)
    assert (spans.most, spans.longest) == ([0, 5, 8, 8, 12], 12)
    spans.measure(3, 11)
    assert (spans.most, spans.longest) == ([0, 5, 8, 8, 12], 12)
    for _ in range(10):
        spans.measure(4, 6)
    assert (spans.most, spans.longest) == ([0, 5, 8, 8, 8], 11)


def test_a_column_takes_eight_bytes_from_when_it_is_stated() -> None:
    requests = Requests()
    requests.add({"arrival": [1, 2], "deadline": [5, 6]})
    narrow = ("model", "tenant", "items", "input", "label", "prompt", "made", "first")
    assert {getattr(requests, name).itemsize for name in narrow} == {1}
    requests.add({"arrival": [3], "label": [1 << 40], "input": [9]})
    requests.add({"arrival": [4], "model": [700]})
    assert list(requests.label) == [-1, -1, 1 << 40, -1]
    assert list(requests.input) == [-1, -1, 9, -1]
    assert list(requests.model) == [0, 0, 0, 700]
    assert list(requests.deadline) == [5, 6, NEVER, NEVER]
    assert list(requests.items) == [1] * 4
    assert list(requests.by) == [-1] * 4
    assert list(requests.ended) == list(requests.made) == list(requests.first) == [0] * 4
    assert len(requests.outcome) == len(requests.tenant) == len(requests.prompt) == 4
    assert Requests(speaks=True).made.itemsize == Requests(speaks=True).first.itemsize == 8


def test_the_first_of_the_least_loaded_lanes_is_chosen_among_all_and_among_some() -> None:
    world = World([model("m", table(1))], placed(1))
    choose = LeastLoaded().choose
    assert choose(world, 0, 0, [0, 1, 2, 3], [3, 1, 2, 1]) == 1
    assert choose(world, 0, 0, [0, 2, 3], [3, 1, 2, 2]) == 2
