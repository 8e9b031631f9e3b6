"""Nexus: the checks by hand of its card, its parts, and what sets it apart."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.serving.world import World
from ganger.core.units import NEVER, SECOND
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
    columns,
    lanes,
    pipeline,
    play,
)
from serving.test_every_router import MODELS, shown
from serving.test_pipelines import BOTH, REQUESTS


def session(number: int, took: Mapping[int, float], slo: float, rate: float) -> Session:
    """Milliseconds by batch; a batch in between takes as long as the next larger."""
    sizes = sorted(took)
    latency = [0] + [round(took[sizes[bisect_right(sizes, n - 1)]] * MS)
                     for n in range(1, sizes[-1] + 1)]  # fmt: skip
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


@pytest.mark.parametrize(("gamma", "split", "gpus"), [
    (0.1, (60, 40), 1 / 300 + 0.1 / 300), (1, (50, 50), 1 / 250 + 1 / 400),
    (10, (40, 60), 1 / 200 + 10 / 500),
])  # fmt: skip
def test_the_cards_query_is_split_by_what_each_stage_has_to_do(
    gamma: float, split: tuple[int, int], gpus: float
) -> None:
    query = pipeline("q", [0, 1], (0, 1, gamma))
    segments = budgets(query, [1, gamma], 10,
                       lambda stage, budget: (X, Y)[stage].get(10 * budget, 0))  # fmt: skip
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
        "inf")  # fmt: skip


def test_what_fills_gpus_has_them_for_itself_and_only_the_rest_is_shared() -> None:
    nodes = pack([Session(0, A.latency, A.slo, 400), B])
    assert [node.whole for node in nodes] == [True, True, False, False][: len(nodes)]
    assert [node.shares[0].batch for node in nodes[:2]] == [16, 16]
    assert sum(share.session.rate for node in nodes for share in node.shares
               if share.session.number == 0) == pytest.approx(400)  # fmt: skip


SESSIONS = st.lists(
    st.builds(lambda number, base, each, slo, rate: Session(
        number, [0, *(base + each * n for n in range(1, 33))], slo, rate),
        st.integers(0, 9), st.integers(500, 20_000), st.integers(100, 5_000),
        st.integers(5_000, 300_000), st.floats(0.1, 500)),
    min_size=1, max_size=6,
)  # fmt: skip


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


@given(asked=REQUESTS, count=st.integers(1, 4), seed=st.integers(0, 3), fill=st.booleans(),
       execution=st.booleans())  # fmt: skip
def test_plans_do_not_depend_on_how_requests_are_grouped(
    asked: list[Asked], count: int, seed: int, fill: bool, execution: bool
) -> None:
    router = hurried(fill=fill, execution=execution)
    seen = play(router, MODELS, lanes(count), asked, noise=1.0, seed=seed, pipelines=BOTH)
    again = play(OneByOne(router), MODELS, lanes(count), asked, noise=1.0, seed=seed,
                 pipelines=BOTH)  # fmt: skip
    assert shown(again) == shown(seen)
    chunks = play(router, MODELS, lanes(count), asked, noise=1.0, seed=seed, chunk=3,
                  pipelines=BOTH)  # fmt: skip
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
