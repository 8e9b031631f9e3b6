"""The network family: hand checks of the cards, and what sets each apart from its neighbour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ganger.core.books.links import Links, Transfer
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan, Start, Tune
from ganger.core.profiles import Convergence, Profile, Profiles, Steps
from ganger.core.spec import ClusterSpec, Network, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.units import SECOND
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.links.grains import StepGrain, Terms
from ganger.sim.physics import Costs, Physics
from ganger.sim.truth import Truth
from ganger.solve.flows.flow_rates import Flow, FlowRates
from sim.links.worlds import Clock
from worlds import Diary, Work, job, trace_of

ONE_GB = Steps(1.0, 1 / 1.6, (1e9, 1e9, 1.0, 1.0))
"""A second of computing; on five nodes 1 GB passes each link, at 1 GB/s at most."""
HALF_GB = Steps(1.0, 0.5 / 1.6, (1e9, 1e9, 1.0, 1.0))
LINK = Network(1.0, 1.0)


class Ran:
    """A run on ten nodes of one GPU, in racks of four: two jobs on five nodes share the links of
    the second rack."""

    def __init__(
        self,
        recipe: str,
        works: Sequence[Work],
        profiles: dict[str, Profile],
        network: Network | None = LINK,
        *,
        nodes: tuple[NodeSpec, ...] = (NodeSpec(10, 1, "V100", nodes_per_rack=4),),
    ) -> None:
        trace = trace_of(works)
        known = Nodes(ClusterSpec(nodes, network=network))
        physics = Physics(known, Profiles(profiles), Costs(by_step=True))
        self.diary, truth = Diary(), Truth(trace.duration, physics)
        policy = registry.make(recipe)
        kernel = Kernel(
            known, trace.declared, policy, oracle=truth, journal=self.diary, validate=True
        )
        kernel.run(Simulator(trace.declared, trace.duration, physics))
        self.ends = [int(at) / SECOND for at in kernel.jobs.finished[: kernel.jobs.n]]

    def plans(self) -> list[tuple[int, Plan]]:
        """Every plan, and when it was made."""
        return [(batch.at, plan) for batch, plan in self.diary.steps if plan is not None]

    def places(self) -> dict[int, list[tuple[int, int]]]:
        """By job its nodes and GPUs at its last start."""
        return {
            action.job: [(slot.node, slot.devices.bit_count()) for slot in action.placement]
            for _, plan in self.plans()
            for action in plan.actions
            if isinstance(action, Start)
        }

    def tuned(self) -> list[tuple[float, int, dict[str, object]]]:
        """When which job was given which terms."""
        return [
            (at / SECOND, action.job, dict(action.knobs))
            for at, plan in self.plans()
            for action in plan.actions
            if isinstance(action, Tune)
        ]


def pair(first: str = "net", second: str = "net", lasts: float = 100) -> list[Work]:
    return [job("a", 0, lasts, 5, model=first), job("b", 0, lasts, 5, model=second)]


def learns(*values: float) -> Profile:
    """A model that tells its loss ten times."""
    told = Convergence(tuple(range(1, 11)), values, change=0.0)
    return Profile(steps=ONE_GB, convergence=told)


def test_jpas_lets_the_job_send_first_that_gains_most_and_flips_when_its_curve_flattens() -> None:
    """a falls early and is then flat, b falls steadily: a comes first as long as its curve does
    fall, then b. Fairly both need 3 s a step while both send."""
    early = learns(0.5, 0.3, 0.2, *[0.199] * 7)
    steady = learns(*np.linspace(1.0, 0.1, 10).tolist())
    models = {"early": early, "steady": steady}
    ran = Ran("jpas(levels=2, interval=10s)", pair("early", "steady"), models)
    assert Ran("fifo", pair("early", "steady"), models).ends == pytest.approx([300, 300], abs=1)
    both = [each for each in ran.tuned() if each[0] < min(ran.ends)]
    last = {who: knobs["link_priority"] for _, who, knobs in both}
    assert last == {0: 0, 1: 1}
    assert max(ran.ends) < 220, "who has priority shifts the other's phase"
    first = next(who for _, who, knobs in ran.tuned() if knobs["link_priority"] == 1)
    assert first == 0


def test_parrots_coflow_ends_together_and_the_next_job_has_the_rest() -> None:
    """Flows of 4 and 2 GB on two links of 1 GB/s go at 1 and 0.5: both end at 4 s; the spare half
    of the second link goes to the next job."""
    rates = FlowRates([1.0, 1.0])
    rates.change([(0, Flow(((0, 1.0), (1, 0.5)), priority=1)), (1, Flow(((1, 1.0),)))])
    assert rates.rates == pytest.approx({0: 1.0, 1: 0.5})


def test_parrot_favours_the_job_with_the_smaller_coflow() -> None:
    """1 GB against half a GB a step: fairly both slow each other, under parrot the small one
    hardly waits, and the large one does not starve."""
    models = {"net": Profile(steps=ONE_GB), "small": Profile(steps=HALF_GB)}
    fair, ran = (
        Ran("fifo", pair("net", "small"), models),
        Ran("parrot", pair("net", "small"), models),
    )
    assert ran.ends[1] < fair.ends[1]
    assert ran.ends[0] < 400
    weights = {who: knobs["link_weight"] for _, who, knobs in ran.tuned()[:2]}
    assert weights == pytest.approx({0: 1.0, 1: 9.0})


@pytest.mark.parametrize(("size", "expected"), [(4.0, "shares"), (6.0, "waits")])
def test_ada_dual_shares_a_link_where_that_is_sooner_for_both(size: float, expected: str) -> None:
    """b = 1, eta = 0, M1 = 10: beside it M2 = 4 begins (22 s in sum against 24), M2 = 6 waits (26
    against 28)."""
    nodes = Nodes(ClusterSpec((NodeSpec(2, 1, "V100"),), network=Network(1.0)))
    grain = StepGrain(Links(nodes, Network(1.0)))
    path = ((0, 1.0),)
    for who, gb in enumerate((10.0, size)):
        transfer = Transfer(1e-6 + gb, 1e-6, gb, 1.0, (path,), path)
        grain.put(who, transfer, Terms(rule="dual"), who)
    ends, sent, now = dict[int, float](), set[int](), 0
    due: list[tuple[int, int, int]] = []
    while len(ends) < 2:
        grain.settle(now)
        due = sorted([*due, *grain.due])
        grain.due.clear()
        now, who, version = due.pop(0)
        if grain.reached(now, who, version):
            if who in sent:
                ends[who] = now / SECOND
                grain.put(who, None, Terms(), now)
            sent.add(who)
    assert sum(ends.values()) == pytest.approx(22.0 if expected == "shares" else 26.0, abs=1e-3)


def test_ada_srsf_takes_the_least_loaded_nodes_and_few_for_large_jobs() -> None:
    """Two nodes of four: a one-GPU job goes to the node with less work left, where best fit would
    fill the other."""
    nodes = (NodeSpec(2, 4, "V100"),)
    works = [job("long", 0, 100, 3), job("one", 1, 10, 1), job("two", 2, 5, 2)]
    places = Ran("ada-srsf", works, {}, None, nodes=nodes).places()
    assert places == {0: [(0, 3)], 1: [(1, 1)], 2: [(1, 2)]}
    best_fit = Ran("srsf", works, {}, None, nodes=nodes).places()
    assert best_fit[1] == [(0, 1)]


def test_ada_srsf_admits_fewer_transfers_than_blind_sharing() -> None:
    """Two jobs in phase: SRSF(1) lets one wait once, and then they take turns, 2 s a step."""
    models = {"net": Profile(steps=ONE_GB)}
    ends = {
        rule: Ran(f"ada-srsf(beside={rule})", pair(), models).ends
        for rule in ("alone", "two", "dual")
    }
    assert ends["two"] == pytest.approx([300, 300], abs=1)
    assert ends["alone"] == ends["dual"] == pytest.approx([200, 201], abs=1)


def test_on_one_link_ada_dual_beats_both_of_its_bounds() -> None:
    """Two jobs share a link of 1.25 GB/s with a contention of 0.3, in ten random pairs. Seconds of
    a step over those alone, in the mean: AdaDUAL, then both at once, then one after the other."""
    slow = {
        rule: float(np.mean([_slowed(rule, seed) for seed in range(10)]))
        for rule in ("dual", "two", "alone")
    }
    assert slow["two"] / slow["dual"] > 1.03
    assert slow["alone"] / slow["dual"] > 1.06


def _slowed(rule: str, seed: int) -> float:
    """Step times of two jobs over those alone."""
    random = np.random.default_rng(seed)
    nodes = Nodes(ClusterSpec((NodeSpec(2, 1, "V100"),), network=Network(1.25)))
    grain, path = StepGrain(Links(nodes, Network(1.25, contention=0.3))), ((0, 1.0),)
    sizes = random.choice([0.05, 0.2, 0.5], 2)
    for who, size in enumerate(sizes.tolist()):
        transfer = Transfer(0.3 + size / 1.25, 0.3, size, 1.25, (path,), path)
        begins = round(random.uniform(0.0, transfer.stated) * SECOND)
        grain.put(who, transfer, Terms(rule=rule), begins)
    steps = Clock().run(grain, 2, 30 * SECOND)
    return float((steps / (0.3 + sizes / 1.25)).mean())


def test_of_transfers_that_wait_the_shortest_jobs_begin_first() -> None:
    """Ada-SRSF ranks jobs on several nodes by remaining service; those that move share alike."""
    models = {"net": Profile(steps=ONE_GB)}
    works = [
        job("long", 0, 100, 5, model="net"),
        job("short", 0, 20, 5, model="net"),
    ]
    first = {who: knobs for at, who, knobs in Ran("ada-srsf", works, models).tuned() if at < 1}
    assert first == {
        0: {"link_rule": "dual", "link_priority": 0},
        1: {"link_rule": "dual", "link_priority": 1},
    }
    assert Terms(priority=3, rule="dual").shared_priority == 0


def flexible(name: str, least: int, most: int, **more: object) -> Work:
    """A job that takes `least` to `most` GPUs."""
    shape = Shape((Role(size=least, least=least, most=most),))
    return job(name, 0, 100, shape=shape, model="net", **more)  # type: ignore[arg-type]


def test_gadget_keeps_a_ring_of_three_inside_the_node_that_holds_it() -> None:
    """Nodes with 3 and 2 free GPUs: the ring of three stays inside the first one. With w = 4, 1 GB
    and 1 GB/s a ring moves 1.5 s a step."""
    steps = Steps(0.0, 1.0, (1.0, 1.0, 1.0, 1.0))
    assert steps.seconds(4, 0) == pytest.approx(1.5)
    nodes = (NodeSpec(1, 3, "V100"), NodeSpec(1, 2, "V100"))
    ran = Ran("gadget", [job("a", 0, 10, 3, model="net")], {}, Network(1.0), nodes=nodes)
    assert ran.places() == {0: [(0, 3)]}


def test_gadget_reserves_bandwidth_where_optimus_does_not_look() -> None:
    """Rings over two nodes each reserve 0.6 of links of 1 GB/s: of two jobs of three GPUs on nodes
    of two the second one would cross the links of the first."""
    nodes = (NodeSpec(3, 2, "V100", nodes_per_rack=3),)
    works = [job("a", 0, 10, 3, model="net"), job("b", 0, 10, 3, model="net")]
    models = {"net": Profile(steps=ONE_GB)}
    ran = Ran("gadget(reserve=0.6)", works, models, Network(1.0), nodes=nodes)
    assert min(ran.ends) < max(ran.ends), "one after the other"
    both = Ran("optimus", works, models, Network(1.0), nodes=nodes)
    assert both.ends[0] == pytest.approx(both.ends[1], rel=0.2)


def test_gadget_divides_by_utility_where_optimus_ends_short_jobs() -> None:
    """Two jobs, the second with four times the weight: its slope is steeper, so it grows first."""
    nodes = (NodeSpec(1, 6, "V100"),)
    works = [flexible("a", 1, 4), flexible("b", 1, 4, weight=4.0)]
    ran = Ran("gadget", works, {}, None, nodes=nodes)
    assert {who: sum(n for _, n in at) for who, at in ran.places().items()} == {0: 2, 1: 4}
