"""Buddy cells between decisions: what stands from the last one is what would be made anew."""

from __future__ import annotations

from typing import Any

import pytest

from bench import Bench
from ganger.core.events import Finished, NodeDown, NodeUp, Started, Submitted, Woke
from ganger.core.plan import Plan, Slot, Start, Stop
from ganger.core.spec import ClusterSpec, Needs, NodeSpec, OnPreempt, Role, Shape, TenantSpec
from ganger.core.view import View
from ganger.recipes import registry
from ganger.recipes.training.placement.hived import (
    CellMemory,
    CellPolicy,
    _Binding,
    _fabric,
    _StandingBinding,
)
from recipes.days import DAYS
from recipes.test_ties import TIES
from worlds import job, play


class Compared:
    """Looks after every decision whether the binding that stands says what a new one would; it is
    made anew only where the fabric changed."""

    name = "compared"

    def __init__(self, text: str) -> None:
        policy = registry.make(text)
        assert isinstance(policy, CellPolicy)
        self.policy: CellPolicy = policy
        self.fabric: Any = None
        self.made = 0

    def decide(self, view: View, memory: CellMemory | None) -> tuple[Plan, CellMemory]:
        """As the policy does."""
        standing = view.cached(_StandingBinding)
        before = standing.binding
        plan, kept = self.policy.decide(view, memory)
        binding, fabric = standing.binding, _fabric(view)
        assert binding is not None
        assert (binding is before) == (fabric == self.fabric), "made anew for nothing, or not"
        self.fabric = fabric
        anew = _Binding(self.policy, view, kept)
        assert known(binding) == known(anew)
        return plan, kept


def known(binding: _Binding) -> dict[str, object]:
    """What it says, in any order."""
    return {
        "taken": binding.taken,
        "there": binding._there,
        "entries": binding._entry,
        "guaranteed": binding.guaranteed,
        "bound": sorted(binding.bound, key=str),
        "owned there": binding.owned_there,
        "owned": binding.owned,
        "largest": binding._largest.tolist(),
    }


WORLDS = {**{day: DAYS[day] for day in ("gangs", "kinds", "crowd")}, **TIES}


@pytest.mark.parametrize("day", WORLDS)
def test_a_binding_that_stands_is_the_one_that_would_be_made(day: str) -> None:
    world = WORLDS[day]()
    policy: Any = Compared("hived")
    play(policy, world.works, world.cluster, world.setup, validate=False)


SPEC = ClusterSpec(
    (NodeSpec(count=2, gpus=4, gpu_type="V100"),), (), (TenantSpec("ann", 4), TenantSpec("bob", 4))
)


def test_a_node_that_went_down_holds_no_cell_until_it_is_there_again() -> None:
    bench = Bench(
        *(job(f"j{i}", size=2, tenant="ann") for i in range(3)),
        on=SPEC,
        policy=registry.make("hived"),
    )
    bench.kernel.validate = False
    plan = bench.feed(0, Submitted(0))
    assert plan is not None
    assert [slot.node for slot in plan.actions[0].placement] == [0]  # type: ignore[union-attr]
    bench.feed(0, Started(0, 1))
    bench.feed(1, Finished(0, 1))
    bench.feed(2, NodeDown(0))
    plan = bench.feed(3, Submitted(1))
    assert plan is not None
    assert [slot.node for slot in plan.actions[0].placement] == [1]  # type: ignore[union-attr]
    bench.feed(3, Started(1, 1))
    bench.feed(4, Finished(1, 1))
    bench.feed(5, NodeUp(0))
    plan = bench.feed(6, Submitted(2))
    assert plan is not None
    assert [slot.node for slot in plan.actions[0].placement] == [0]  # type: ignore[union-attr]


@pytest.mark.parametrize("stays", [OnPreempt.NEVER, OnPreempt.CHECKPOINT])
def test_a_guest_that_must_not_be_preempted_is_not_driven_out_of_a_cell(stays: OnPreempt) -> None:
    """Two guests hold three GPUs of each node; ann has a right to four on one node."""
    works = [job(f"guest {i}", size=3, tenant="cid", on_preempt=stays) for i in range(2)]
    bench = Bench(
        *works,
        job("mine", size=4, tenant="ann"),
        job("late", size=2, tenant="bob"),
        on=SPEC,
        policy=registry.make("hived"),
    )
    bench.kernel.validate = False
    bench.feed(0, Submitted(0), Submitted(1))
    bench.feed(0, Started(0, 1), Started(1, 1))
    plan = bench.feed(1, Submitted(2))
    assert plan is not None
    said = [type(action).__name__ for action in plan.actions]
    assert said == ([] if stays is OnPreempt.NEVER else ["Stop", "Start"])
    bench.feed(2, Woke())


def test_guests_on_the_node_of_a_cell_go_for_its_cpus_and_those_on_other_nodes_do_not() -> None:
    """A guest has one GPU and seven of eight cores of each node; ann's two GPUs come with four."""
    nodes = (NodeSpec(count=2, gpus=4, gpu_type="V100", cpus=8000),)
    guest = Shape((Role(size=1, needs=Needs(cpus=7000)),))
    mine = Shape((Role(size=2, needs=Needs(cpus=2000)),))
    bench = Bench(
        *(job(f"guest {i}", shape=guest, tenant="cid") for i in range(2)),
        job("mine", shape=mine, tenant="ann"),
        on=ClusterSpec(nodes, (), SPEC.tenants),
        policy=registry.make("hived"),
    )
    bench.kernel.validate = False
    bench.feed(0, Submitted(0), Submitted(1))
    bench.feed(0, Started(0, 1), Started(1, 1))
    plan = bench.feed(1, Submitted(2))
    assert plan is not None
    assert plan.actions == [Stop(0, 1), Start(2, 1, (Slot(0, 0b1100, 2),), (0,))]


def test_who_was_booked_again_where_it_is_stays_in_its_cell() -> None:
    """As by a draft that stopped and restored it; `Compared` looks at what is known of it."""
    bench = Bench(
        job("a", size=2, tenant="ann"),
        job("b", size=2, tenant="ann"),
        on=SPEC,
        policy=Compared("hived"),
    )
    bench.kernel.validate = False
    bench.feed(0, Submitted(0))
    bench.feed(0, Started(0, 1))
    shape, placement = bench.kernel.ledger.holds[0]
    bench.kernel.ledger.holds[0] = (shape, placement)
    plan = bench.feed(1, Submitted(1))
    assert plan is not None
    assert plan.actions == [Start(1, 1, (Slot(0, 0b1100, 2),))]
