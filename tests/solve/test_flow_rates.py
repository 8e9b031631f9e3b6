"""Max-min fair rates: against progressive filling as the textbook has it, and what holds of any."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ganger.solve.flows.bottlenecks import Bottlenecks
from ganger.solve.flows.flow_rates import NEAR, Flow, FlowRates
from ganger.solve.flows.max_min import Crossings, max_min


def textbook(flows: dict[int, Flow], capacity: list[float]) -> dict[int, float]:
    """Bertsekas and Gallager, Data Networks, section 6.5.2, with weights: one level at a time."""
    rates, room = dict[int, float](), list(capacity)
    for priority in sorted({flow.priority for flow in flows.values()}, reverse=True):
        active = {number for number, flow in flows.items() if flow.priority == priority}
        while active:
            demand = [0.0] * len(room)
            for number in active:
                for link, part in flows[number].path:
                    demand[link] += part * flows[number].weight
            level = min(
                [room[link] / each for link, each in enumerate(demand) if each]
                + [flows[number].cap / flows[number].weight for number in active]
            )
            most = level * (1 + 1e-12)
            full = {i for i, each in enumerate(demand) if each and room[i] / each <= most}
            for number in sorted(active):
                path, weight, cap, _ = flows[number]
                if cap / weight <= most or any(link in full for link, _ in path):
                    active.remove(number)
                    rates[number] = level * weight
            room = list(capacity)
            for number, rate in rates.items():
                for link, part in flows[number].path:
                    room[link] = max(room[link] - part * rate, 0.0)
    return rates


def test_three_flows_on_two_links() -> None:
    """Two share the narrow link; the one on the wide link alone has what they leave."""
    rates = FlowRates([1.0, 3.0])
    long, narrow, wide = Flow(((0, 1.0), (1, 1.0))), Flow(((0, 1.0),)), Flow(((1, 1.0),))
    rates.change([(0, long), (1, narrow), (2, wide)])
    assert rates.rates == {0: 0.5, 1: 0.5, 2: 2.5}
    assert rates.stopper == {0: 0, 1: 0, 2: 1}
    rates.change(remove=[1])
    assert rates.rates == {0: 1.0, 2: 2.0}


def test_weights_caps_and_priorities() -> None:
    """Twice the weight is twice the rate; who asks for less leaves the rest."""
    rates, path = FlowRates([3.0]), ((0, 1.0),)
    rates.change([(0, Flow(path)), (1, Flow(path, weight=2.0))])
    assert rates.rates == {0: 1.0, 1: 2.0}
    rates.change([(2, Flow(path, cap=0.3))])
    assert rates.rates == pytest.approx({0: 0.9, 1: 1.8, 2: 0.3})
    rates.change([(3, Flow(path, cap=2.0, priority=1))])
    assert rates.rates == pytest.approx({0: 0.25, 1: 0.5, 2: 0.25, 3: 2.0})
    rates.change([(4, Flow(path, priority=2))], remove=[3])
    assert rates.rates == pytest.approx({0: 0.0, 1: 0.0, 2: 0.0, 4: 3.0})


def test_links_without_end_and_flows_without_links() -> None:
    """What nothing stops has all that it asks for."""
    rates = FlowRates([math.inf, 2.0])
    rates.change([(0, Flow(((0, 1.0),), cap=7.0)), (1, Flow(((0, 1.0), (1, 0.5))))])
    assert rates.rates == {0: 7.0, 1: 4.0}
    assert rates.stopper == {0: -1, 1: 1}


PARTS = st.sampled_from([0.5, 1.0, 2.0])


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[float], list[tuple[list[Flow], list[int]]]]:
    """Capacities, and what comes and goes at each instant; who goes is one of those there."""
    links = draw(st.integers(1, 6))
    capacity = draw(st.lists(st.floats(0.1, 10), min_size=links, max_size=links))
    alike, classes = draw(st.booleans()), draw(st.booleans())
    path = st.lists(
        st.tuples(st.integers(0, links - 1), PARTS),
        min_size=1,
        max_size=4,
        unique_by=lambda p: p[0],
    )
    flow = st.builds(
        Flow,
        path.map(tuple),
        st.just(1.0) if alike else PARTS,
        st.one_of(st.just(math.inf), st.floats(0.05, 5)),
        st.integers(0, 1) if classes else st.just(0),
    )
    instant = st.tuples(st.lists(flow, max_size=3), st.lists(st.integers(0, 30), max_size=2))
    return capacity, draw(st.lists(instant, min_size=1, max_size=12))


@given(lives())
@settings(max_examples=150, deadline=None)
def test_conservation_and_the_textbook(
    life: tuple[list[float], list[tuple[list[Flow], list[int]]]],
) -> None:
    """No link above its capacity, nobody who could have more without harm, priority respected, and
    the textbook's rates, however flows came and went."""
    capacity, instants = life
    rates, flows = FlowRates(capacity), dict[int, Flow]()
    for at, (come, go) in enumerate(instants):
        gone = sorted({sorted(flows)[each % len(flows)] for each in go if flows})
        new = {100 * at + i: flow for i, flow in enumerate(come)}
        rates.change(new.items(), gone)
        flows = {number: flow for number, flow in flows.items() if number not in gone} | new
        expected = textbook(flows, capacity)
        assert rates.rates == pytest.approx(expected, rel=1e-9, abs=1e-12)
        for link, most in enumerate(capacity):
            assert rates.load(link) <= most * (1 + 1e-9)
        for number, flow in flows.items():
            stopper, rate = rates.stopper[number], rates.rates[number]
            if stopper < 0:
                assert rate == pytest.approx(flow.cap)
                continue
            assert rates.load(stopper) == pytest.approx(capacity[stopper]), "work conserving"
            for other in rates.on(stopper):
                if flows[other].priority <= flow.priority:
                    mine, theirs = rate / flow.weight, rates.rates[other] / flows[other].weight
                    lower = flows[other].priority < flow.priority
                    assert theirs <= 1e-9 if lower else theirs <= mine * (1 + 1e-9) + 1e-12


@given(lives())
@settings(max_examples=60, deadline=None)
def test_in_whole_arrays(life: tuple[list[float], list[tuple[list[Flow], list[int]]]]) -> None:
    """All flows at once give the textbook's rates."""
    capacity, instants = life
    flows = dict(enumerate(f._replace(priority=0) for come, _ in instants for f in come))
    weights, caps = (np.array([getattr(f, x) for f in flows.values()]) for x in ("weight", "cap"))
    crossings = Crossings.of([flow.path for flow in flows.values()], len(capacity))
    found, _ = max_min(crossings, np.array(capacity), weights, caps)
    assert found.tolist() == pytest.approx(
        [rate for _, rate in sorted(textbook(flows, capacity).items())], rel=1e-9
    )


@pytest.mark.parametrize("seed", range(3))
def test_many_flows_on_a_tree(seed: int) -> None:
    """300 flows between 32 hosts in racks of 8 at 4:1, so that changes concern many."""
    random = np.random.default_rng(seed)
    capacity = [1.0] * 64 + [2.0] * 8

    def flow() -> Flow:
        one, other = random.choice(32, 2, replace=False).tolist()
        path = [(2 * one, 1.0), (2 * other + 1, 1.0)]
        if one // 8 != other // 8:
            path += [(64 + 2 * (one // 8), 1.0), (65 + 2 * (other // 8), 1.0)]
        return Flow(tuple(path))

    rates, flows = FlowRates(capacity), {number: flow() for number in range(300)}
    rates.change(flows.items())
    full, found = Bottlenecks(len(capacity)), 0
    for number, each in flows.items():
        full.put(number, each.path, each.weight, each.cap)
    for number in range(25):
        del flows[number]
        flows[300 + number] = flow()
        rates.change([(300 + number, flows[300 + number])], [number])
        full.drop(number)
        full.put(300 + number, *flows[300 + number][:3])
        found += full.solve(capacity, NEAR) is not None
    assert found >= 23, "of 25 changes nearly all are followed from link to link"
    expected = textbook(flows, capacity)
    assert rates.rates == pytest.approx(expected, rel=1e-9)


@given(lives())
@settings(max_examples=40, deadline=None)
def test_from_who_stops_whom(
    life: tuple[list[float], list[tuple[list[Flow], list[int]]]],
) -> None:
    """What the rounds over full links find is what the textbook's filling finds, whatever was
    there before; where they find nothing, they say so."""
    capacity, instants = life
    full, flows, found = Bottlenecks(len(capacity)), dict[int, Flow](), 0
    for at, (come, go) in enumerate(instants):
        for number in sorted({sorted(flows)[each % len(flows)] for each in go if flows}):
            full.drop(number)
            del flows[number]
        for i, flow in enumerate(come):
            flows[100 * at + i] = flow = flow._replace(priority=0)
            full.put(100 * at + i, flow.path, flow.weight, flow.cap)
        rates = full.solve(capacity, NEAR)
        if rates is not None:
            found += 1
            ours = dict(zip(rates.numbers, rates.rates, strict=True))
            assert ours == pytest.approx(textbook(flows, capacity), rel=1e-9, abs=1e-12)
            for number, link in zip(rates.numbers, rates.stopper, strict=True):
                if link < 0:
                    assert ours[number] == pytest.approx(flows[number].cap)
                else:
                    assert rates.used[link] == pytest.approx(capacity[link])
    event(f"found {found} of {len(instants)}")
