"""Nexus: the checks by hand of its card, its parts, and what sets it apart."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.core.serving.verbs import Wait
from ganger.core.serving.world import Pipeline, World
from ganger.core.units import NEVER, SECOND
from ganger.recipes.registry import make_router
from ganger.recipes.serving.nexus.memory import Memory, spread
from ganger.recipes.serving.nexus.packing import (
    Session,
    fitted,
    largest_batch,
    merged,
    pack,
    residue,
    throughput,
)
from ganger.recipes.serving.nexus.planning import Planning
from ganger.recipes.serving.nexus.query import budgets
from ganger.recipes.serving.nexus.router import Nexus
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane
from serving.reference import Naive
from serving.rig import (
    MS,
    Asked,
    OneByOne,
    Seen,
    affine,
    columns,
    lanes,
    model,
    pipeline,
    play,
    table,
)
from serving.test_every_router import MODELS, shown
from serving.test_pipelines import BOTH, REQUESTS


def session(number: int, took: Mapping[int, float], slo: float, rate: float) -> Session:
    """Milliseconds by batch; a batch in between takes as long as the next larger."""
    sizes = sorted(took)
    latency = [0] + [
        round(took[sizes[bisect_right(sizes, n - 1)]] * MS) for n in range(1, sizes[-1] + 1)
    ]
    return Session(number, latency, round(slo * MS), rate)


A = session(0, {4: 50, 8: 75, 16: 100}, 200, 64)
B = session(1, {4: 50, 8: 90, 16: 125}, 250, 32)
C = session(2, {4: 60, 8: 95, 16: 125}, 250, 32)


def test_the_cards_first_session_has_batches_of_eight_every_eighth_of_a_second() -> None:
    """Sixteen would take 15/64 s to gather."""
    assert largest_batch(A.latency, A.slo) == 16
    assert throughput(A.latency, A.slo) == pytest.approx(160)
    node = residue(A)
    assert (node.shares[0].batch, node.duty) == (8, 125 * MS)
    assert node.occupancy == pytest.approx(0.6)


@pytest.mark.parametrize("order", [(A, B, C), (C, B, A), (B, C, A)])
def test_the_cards_three_sessions_need_two_gpus(order: tuple[Session, ...]) -> None:
    nodes = pack(order)
    found = {tuple(sorted(share.session.number for share in node.shares)): node for node in nodes}
    assert set(found) == {(0, 1), (2,)}
    both = found[0, 1]
    assert (both.duty, both.took, both.occupancy) == (125 * MS, 125 * MS, 1.0)
    assert {share.session.number: share.batch for share in both.shares} == {0: 8, 1: 4}
    assert merged(residue(A), residue(C)) is None  # 75 + 60 ms


X, Y = {40: 200, 50: 250, 60: 300}, {40: 300, 50: 400, 60: 500}


@pytest.mark.parametrize(
    ("gamma", "split", "gpus"),
    [
        (0.1, (60, 40), 1 / 300 + 0.1 / 300),
        (1, (50, 50), 1 / 250 + 1 / 400),
        (10, (40, 60), 1 / 200 + 10 / 500),
    ],
)
def test_the_cards_query_is_split_by_what_each_stage_has_to_do(
    gamma: float, split: tuple[int, int], gpus: float
) -> None:
    query = pipeline("q", [0, 1], (0, 1, gamma))
    segments = budgets(
        query, [1, gamma], 10, lambda stage, budget: (X, Y)[stage].get(10 * budget, 0)
    )
    assert segments[0] == pytest.approx(gpus)
    assert segments[1] == [each // 10 for each in split]


def test_branches_of_a_query_have_the_same_time_left_and_one_that_cannot_be_split_is_said() -> None:
    """Behind the first stage both have what it leaves; the slow one needs all of it."""
    query = pipeline("q", [0, 1, 2], (0, 1, 1), (0, 2, 1))
    needs = (2, 3, 6)
    total, found = budgets(
        query, [1, 1, 1], 8, lambda stage, budget: budget if budget >= needs[stage] else 0
    )
    assert found == [2, 6, 6]
    assert total == pytest.approx(1 / 2 + 2 / 6)
    assert budgets(query, [1, 1, 1], 7, lambda stage, budget: budget >= needs[stage])[0] == float(
        "inf"
    )
    chain = pipeline("chain", [0, 1], (0, 1, 1))
    assert budgets(chain, [1, 1], 1, lambda stage, budget: budget) == (float("inf"), [1, 0])


def test_lanes_take_turns_by_their_weights_in_no_more_than_sixteen_turns_a_lane() -> None:
    turns = spread([(5, 1.0), (6, 40.0)])
    assert (turns.count(5), turns.count(6)) == (1, 31)
    assert spread([(5, 1.0), (6, 2.0)]) == [6, 5, 6, 5, 6, 6, 5, 6]


def test_a_batch_that_a_whole_gpu_would_not_run_is_not_gathered_either() -> None:
    """Seventeen could be gathered and executed in 197 ms, but take longer than they come in."""
    node = residue(session(0, {16: 90, 17: 102}, 200, 16 / 0.095))
    assert node.shares[0].batch == 16
    assert node.duty == pytest.approx(95 * MS)


def test_the_greatest_occupancy_is_placed_first_and_where_it_fills_most() -> None:
    """Cycles of 100 ms, of which they take 40, 50, 50 and 60: the first would go with a 50."""
    some = [session(at, {1: took}, took + 100, 10) for at, took in enumerate((40, 50, 50, 60))]
    nodes = pack(some)
    found = [{share.session.number for share in node.shares} for node in nodes]
    assert sorted(map(sorted, found)) == [[0, 3], [1, 2]]
    small = session(4, {1: 10}, 110, 10)
    (most, _) = pack([session(0, {1: 60}, 160, 10), session(1, {1: 80}, 180, 10), small])
    assert {share.session.number for share in most.shares} == {1, 4}


def test_what_fills_gpus_has_them_for_itself_and_only_the_rest_is_shared() -> None:
    nodes = pack([Session(0, A.latency, A.slo, 400), B])
    assert [[share.batch for share in node.shares] for node in nodes[:2]] == [[16], [16]]
    assert [node.occupancy for node in nodes[:2]] == [1, 1]
    assert sum(
        share.session.rate for node in nodes for share in node.shares if share.session.number == 0
    ) == pytest.approx(400)


SESSIONS = st.lists(
    st.builds(
        lambda number, base, each, slo, rate: Session(
            number, [0, *(base + each * n for n in range(1, 33))], slo, rate
        ),
        st.integers(0, 9),
        st.integers(500, 20_000),
        st.integers(100, 5_000),
        st.integers(5_000, 300_000),
        st.floats(0.1, 500),
    ),
    min_size=1,
    max_size=6,
)


@given(sessions=SESSIONS)
def test_every_packing_serves_all_rates_within_all_slos(sessions: list[Session]) -> None:
    able = [each for each in sessions if each.latency[1] <= each.slo]
    nodes = pack(sessions)
    served = sum(share.session.rate for node in nodes for share in node.shares)
    assert served == pytest.approx(sum(each.rate for each in able))
    for node in nodes:
        assert node.occupancy <= 1 + 1e-6
        for share in node.shares:
            if 2 * share.session.latency[1] > share.session.slo:
                continue  # one alone keeps it, if it need not wait
            assert node.duty + share.took <= share.session.slo * (1 + 1e-6)
            if node.duty > share.took:  # a cycle's batch takes what comes in it
                assert share.batch >= node.duty * share.session.rate / SECOND - 1e-6


@given(sessions=SESSIONS, count=st.integers(1, 5), fill=st.booleans())
def test_a_fleet_is_filled_or_the_rates_are_cut(
    sessions: list[Session], count: int, fill: bool
) -> None:
    nodes, factor = fitted(sessions, count, fill=fill)
    assert len(nodes) <= count
    assert fill or factor <= 1
    able = {each.number for each in sessions if each.latency[1] <= each.slo}
    assert {share.session.number for node in nodes for share in node.shares} == able
    if factor >= 1:
        assert len(pack(sessions)) <= count


def test_a_filled_fleet_serves_as_many_times_the_rates_as_it_can() -> None:
    """Three GPUs do 480 a second where 64 are asked for, in batches of sixteen."""
    nodes, factor = fitted([A], 3, fill=True)
    assert factor == pytest.approx(480 / 64, rel=1e-3)
    assert [node.shares[0].batch for node in nodes] == [16, 16, 16]
    few, factor = fitted([A], 3, fill=False)
    assert (len(few), factor) == (1, 1)
    much = Session(0, A.latency, A.slo, 3200)
    assert fitted([much], 3, fill=False)[1] == pytest.approx(480 / 3200, rel=1e-3)


# ---------------------------------------------------------------------- the router


def hurried(*, fill: bool = True, execution: bool = False) -> Nexus:
    """Rates every 4 ms, plans every 16: what takes seconds elsewhere."""
    return Nexus(Planning(16 * MS, 8 * MS, 1.05, 0.2, execution, fill, 20, 4 * MS), 1.15)


@given(
    asked=REQUESTS,
    count=st.integers(1, 4),
    seed=st.integers(0, 3),
    fill=st.booleans(),
    execution=st.booleans(),
)
def test_plans_do_not_depend_on_how_requests_are_grouped(
    asked: list[Asked], count: int, seed: int, fill: bool, execution: bool
) -> None:
    router = hurried(fill=fill, execution=execution)
    seen = play(router, MODELS, lanes(count), asked, noise=1.0, seed=seed, pipelines=BOTH)
    again = play(
        OneByOne(router), MODELS, lanes(count), asked, noise=1.0, seed=seed, pipelines=BOTH
    )
    assert shown(again) == shown(seen)
    chunks = play(
        router, MODELS, lanes(count), asked, noise=1.0, seed=seed, chunk=3, pipelines=BOTH
    )
    assert shown(chunks) == shown(seen)
    naive = Naive(router, MODELS, lanes(count), asked, (), seed, BOTH)
    naive.play()
    assert sorted(naive.ran, key=lambda ran: (ran.began, ran.lane)) == seen.batches
    assert [ended / MS for ended in naive.world.requests.ended] == seen.ended


@given(
    asked=REQUESTS,
    turns=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 2), st.booleans()), max_size=9),
)
def test_every_request_ends_once_though_lanes_come_and_go(
    asked: list[Asked], turns: list[tuple[int, int, bool]]
) -> None:
    world = World(MODELS, lanes(3), pipelines=BOTH)
    seen = Seen(world)
    plane = Plane(world, hurried(), Physics(MODELS, noise=0), iter([columns(asked)]), [seen])
    for at, lane, up in [*sorted(turns), (1000, 0, True), (1000, 1, True), (1000, 2, True)]:
        plane.advance(at * MS)
        plane.turn(lane, at * MS, up=up)
    plane.advance(NEVER - 1)
    plane.finish()
    assert len(seen.outcomes) == len(asked)


def cards() -> list[Asked]:
    """Three seconds of the card's sessions, evenly, as models 0 to 2."""
    return [
        *(Asked(at * 1000 / 64, 0, 200) for at in range(3 * 64)),
        *(Asked(at * 1000 / 32, which, 250) for which in (1, 2) for at in range(3 * 32)),
    ]


CARDS = [
    model(name, table(*(each / MS for each in one.latency[1:])))
    for name, one in (("a", A), ("b", B), ("c", C))
]


def test_the_cards_sessions_run_on_two_lanes_of_three_once_rates_are_known() -> None:
    """A batch of eight of the first and of four of the second every 125 ms; the third alone."""
    seen = play(make_router("nexus(profile=1,fill=false)"), CARDS, lanes(3), cards())
    assert seen.outcomes == ["answered"] * (3 * 128)
    assert all(
        ended <= one.at + one.within
        for one, ended in zip(sorted(cards(), key=lambda one: one.at), seen.ended, strict=True)
    )
    later = [each for each in seen.batches if 1500 < each.began < 2700]
    ran = [{each.model for each in later if each.lane == lane} for lane in range(3)]
    assert ran in ([{0, 1}, {2}, set()], [{2}, {0, 1}, set()])
    begins = [each.began for each in later if each.model == 0]
    assert {round(b - a) for a, b in pairwise(begins)} == {125}
    assert {len(each.tasks) for each in later if each.model == 0} == {8}
    assert {len(each.tasks) for each in later if each.model == 1} == {4}


def test_a_filled_fleet_uses_the_third_lane_and_none_has_one_session_on_all() -> None:
    seen = play(make_router("nexus(profile=1)"), CARDS, lanes(3), cards())
    later = [each for each in seen.batches if each.began > 1500]
    assert {each.lane for each in later} == {0, 1, 2}
    assert seen.outcomes == ["answered"] * (3 * 128)


def test_it_is_not_its_neighbours() -> None:
    """On two lanes. Lanes of their own are too few; lanes that all share run the first model more
    often and in smaller batches, and plans from the deadlines refuse before they need to."""
    with pytest.raises(BadInput, match="3 models and 2 lanes"):
        play(make_router("serve.dedicated"), CARDS, lanes(2), cards())
    size = {}
    for recipe in ("nexus(profile=1)", "nanily", "clockwork", "serve.triton", "clipper"):
        seen = play(make_router(recipe), CARDS, lanes(2), cards())
        first = [len(each.tasks) for each in seen.batches if each.model == 0 and each.began > 1500]
        size[recipe] = sum(first) / len(first), seen.outcomes.count("answered")
    assert len(set(size.values())) == len(size)
    assert size["nexus(profile=1)"][0] == pytest.approx(8, abs=0.5)


def test_the_first_that_can_wait_for_its_whole_window_begins_the_batch() -> None:
    """Batches of up to four. When the lane is free at 40 ms, four take 25 ms: those due at 60 are
    dropped, though one alone takes 10; without more behind it, one that is due at 60 is run."""
    models = [model("long", table(40)), model("m", table(10, 15, 20, 25))]
    late = [Asked(1, 1, 59), Asked(1, 1, 59)]
    some = [Asked(0, 0, 1000), *late, *[Asked(11, 1, 59)] * 4]
    seen = play(make_router("nexus(profile=1)"), models, lanes(1), some)
    dropped = "it could not be answered in time"
    assert seen.outcomes == ["answered", dropped, dropped, *["answered"] * 4]
    assert seen.ended[1:3] == [40, 40]
    alone = play(make_router("nexus(profile=1)"), models, lanes(1), some[:2])
    assert (alone.outcomes, alone.ended) == (["answered"] * 2, [40, 50])


def test_a_profile_of_more_than_was_measured_drops_earlier() -> None:
    asked = [Asked(0, 0, 11)]
    models = [model("m", table(10))]
    for profile, outcome in (("1", "answered"), ("1.15", "it could not be answered in time")):
        seen = play(make_router(f"nexus(profile={profile})"), models, lanes(1), asked)
        assert seen.outcomes == [outcome]


@pytest.mark.parametrize(
    ("more", "last", "plans"),
    [
        (1, 63, [30, 60]),  # the epoch
        (3, 21, [10]),  # overload, and what was measured then is enough
    ],
)
def test_there_is_a_plan_every_thirty_seconds_and_for_overload_after_ten(
    more: int, last: int, plans: list[int]
) -> None:
    """After a plan at each of the first measurements, which end with the first second. Five
    requests a second become so many times as many; a lane does ten."""
    asked = [Asked(200.0 * at, 0, 200) for at in range(5 * 5)]
    asked += [Asked(5000 + 200.0 * at / more, 0, 200) for at in range((last - 5) * 5 * more)]
    planned = list[int]()

    class Noting(Planning):
        def plan(self, world: World, memory: Memory) -> None:
            planned.append(round(memory.planned / SECOND))
            super().plan(world, memory)

    planning = Noting(30 * SECOND, 10 * SECOND, 1.05, 0.2, False, False, 50)
    play(Nexus(planning, 1.0), [model("m", table(100))], lanes(2), asked)
    assert planned[-len(plans) - 1 :] == [1, *[1 + each for each in plans]]
    assert len(planned) == 4 + len(plans)


def test_requests_of_a_session_are_spread_by_what_its_lanes_do() -> None:
    assert spread([(7, 1.0)]) == [7]
    order = spread([(0, 3.0), (1, 1.0)])
    assert (order.count(0), order.count(1)) == (6, 2)
    assert "".join(map(str, order)) == "00100010"
    assert spread([(0, 1e6), (1, 1e-6)]).count(1) == 1


@pytest.mark.parametrize("fill", ["yes", "no"])
def test_two_types_are_packed_apart_each_for_what_it_can_do(fill: str) -> None:
    """The second type is three times as quick, and has three of four requests."""
    both = model("m", affine(4, 2, 8))
    assert isinstance(both.latencies, dict)
    both.latencies["quick", 1.0] = affine(4 / 3, 2 / 3, 8)
    two = lanes(2)
    two[1].type = "quick"
    asked = [Asked(4.0 * at, 0, 100) for at in range(900)]
    seen = play(make_router(f"nexus(fill={fill})"), [both], two, asked)
    later = [each for each in seen.batches if each.began > 1500]
    quick = sum(len(each.tasks) for each in later if each.lane == 1)
    assert quick / sum(len(each.tasks) for each in later) == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize("gamma", [0.1, 1, 10])
def test_the_deadline_of_a_stage_follows_from_what_there_is_to_do(gamma: float) -> None:
    """100 ms: a stage with more to do has more of it, and the last is due at the end."""
    query = pipeline("q", [0, 1], (0, 1, gamma))
    models = [model("x", affine(5, 2)), model("y", affine(5, 2))]
    router = make_router("nexus")
    world = World(models, lanes(8), pipelines=[query])
    asked = [Asked(5.0 * at, 2, 100) for at in range(400)]
    plane = Plane(world, router, Physics(models), iter([columns(asked)]))
    plane.advance(1500 * MS)
    (stream,) = world.memory.streams.values()
    assert stream.parts[1] == 1.0
    assert {0.1: 0.75, 1: 0.5, 10: 0.25}[gamma] == pytest.approx(stream.parts[0], abs=0.16)
    first = stream.parts[0] * 100 * MS
    slos = [world.memory.flows[at].slo for at in stream.sessions]
    assert slos == [pytest.approx(first), pytest.approx(100 * MS - first)]


@pytest.mark.parametrize(("cycle", "gap"), [("duty", 125), ("execution", 100)])
def test_a_shared_lane_begins_a_cycle_no_sooner_than_the_duty_or_the_batches_say(
    cycle: str, gap: int
) -> None:
    """32 and 16 a second in a cycle of 125 ms: four and two, 50 ms each."""
    sessions = ((0, 200, 32), (1, 250, 16))
    asked = [
        Asked(at * 1000 / rate, which, slo)
        for which, slo, rate in sessions
        for at in range(4 * rate)
    ]
    router = make_router(f"nexus(profile=1,fill=no,cycle={cycle})")
    world = World(CARDS[:2], lanes(1))
    seen = Seen(world)
    rows = columns(asked)
    plane = Plane(world, router, Physics(CARDS, noise=0), iter([rows]), [seen])
    plane.advance()
    plane.finish()
    assert world.memory.pace == [gap * MS]
    begins = [each.began for each in seen.batches if each.model == 0 and each.began > 1500]
    assert min(b - a for a, b in pairwise(begins)) >= gap
    assert set(seen.outcomes) == {"answered"}


CHAIN = pipeline("chain", [0, 1], (0, 1, 10))
JOIN = pipeline("join", [0, 1, 1, 0], (0, 1, 1), (0, 2, 1), (1, 3, 1), (2, 3, 1))


@pytest.mark.parametrize(
    ("query", "within", "up", "split"),
    [(CHAIN, 100, True, True), (CHAIN, 100, False, False), (CHAIN, 1e18, True, False),
     (JOIN, 100, True, False)],
)  # fmt: skip
def test_a_query_is_split_where_it_has_a_deadline_no_joins_and_a_lane(
    query: Pipeline, within: float, up: bool, split: bool
) -> None:
    """Else by what stages take alone."""
    models = [model("x", affine(5, 2)), model("y", affine(5, 2))]
    world = World(models, lanes(1), pipelines=[query])
    asked = [Asked(5.0 + at, 2, within) for at in range(4)]
    plane = Plane(world, make_router("nexus"), Physics(models), iter([columns(asked)]))
    if not up:
        plane.turn(0, 0, up=False)
    plane.advance(7 * MS)
    (stream,) = world.memory.streams.values()
    assert (stream.parts != world.memory.staged.parts[0]) is split


def test_no_more_than_sixteen_slos_are_told_apart() -> None:
    """Others count as the next shorter; the deadlines of requests are what they are."""
    world = World([model("m", table(10))], lanes(1))
    asked = [Asked(20.0 * at, 0, 100 + at) for at in range(16)]
    asked += [Asked(1000, 0, 107.5), Asked(1020, 0, 500), Asked(1040, 0, 12)]
    plane = Plane(world, make_router("nexus"), Physics(world.models), iter([columns(asked)]))
    plane.advance(1100 * MS)
    counts = {stream.slo / MS: stream.rate for stream in world.memory.streams.values()}
    assert len(counts) == 16
    more = {
        slo
        for slo, stream in ((key[1] / MS, value) for key, value in world.memory.streams.items())
        if stream.count
    }
    assert more == {100, 107, 115}


def test_rates_fade_while_nothing_comes() -> None:
    """Ten a second for two seconds, and then one request after four more without any."""
    world = World([model("m", table(10))], lanes(1))
    asked = [*(Asked(100.0 * at, 0, 500) for at in range(21)), Asked(6100, 0, 500)]
    plane = Plane(world, make_router("nexus"), Physics(world.models), iter([columns(asked)]))
    plane.advance(2050 * MS)
    (stream,) = world.memory.streams.values()
    assert stream.rate == pytest.approx(10, abs=1.5)
    before = stream.rate
    plane.advance(6200 * MS)
    assert stream.rate == pytest.approx(before * 0.8**4, rel=0.15)


def test_a_lane_that_asks_ahead_begins_when_it_is_free() -> None:
    """Asked at 6 ms, it is free at 10: what is due at 18 would be late."""
    asked = [Asked(0, 0, 1000), Asked(1, 0, 17), Asked(2, 0, 30)]
    seen = play(
        make_router("nexus(profile=1)"), [model("m", table(10))], lanes(1, ahead=4 * MS), asked
    )
    assert seen.outcomes == ["answered", "it could not be answered in time", "answered"]
    assert seen.ended == [10, 6, 20]


def test_an_idle_lane_whose_next_cycle_may_begin_is_asked_at_the_next_arrival() -> None:
    """The second lane has requests for its cycle at 12 ms. The first has none, and may begin one at
    11: until then no arrival matters, and from then on each does."""
    world = World([model("m", table(1))], lanes(2))
    router = make_router("nexus")
    memory = world.memory = router.begin(world)
    memory.start, memory.timers = [11 * MS, 12 * MS], [(12 * MS, 1)]
    world.now = 10 * MS
    (early,) = router.next(world, world.lanes)
    assert isinstance(early, Wait)
    assert (early.until, early.rows > 1) == (11 * MS, True)
    world.now = 11 * MS
    assert router.next(world, world.lanes) == [Wait(12 * MS)]
