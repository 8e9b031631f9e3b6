"""What is meant where nothing is said: of jobs, clusters, events, and what policies keep."""

from __future__ import annotations

from typing import Any

import pytest

from bench import Bench
from ganger.core import events
from ganger.core.books.ledger import Ledger, Room
from ganger.core.events import ANYTHING, Failed, Measured, Released, Started
from ganger.core.plan import Plan, Reason, Slot
from ganger.core.profiles import Stages
from ganger.core.serving.world import Task, World
from ganger.core.spec import GpuType, JobSpec, Needs, NodeSpec, OnPreempt, Role, TenantSpec
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import declare
from ganger.core.units import NEVER
from ganger.mechanisms.fairness.fair import Notes
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.tuning.limits import LimitedMemory
from ganger.recipes import registry
from ganger.recipes.training.attained.e_las import ByProgress, discounted
from ganger.recipes.training.elasticity.ones import Schedules
from ganger.recipes.training.gavel.simulator_rounds import BarrierMemory, Turn
from ganger.recipes.training.placement.hived import CellMemory
from serving.rig import lanes
from worlds import cluster, job


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (Needs(), {"gpus": 1, "share": 1000, "gpu_memory": 0, "cpus": 0, "memory": 0}),
        (Role(), {"size": 1, "least": 0, "most": 0}),
        (
            JobSpec(name="a"),
            {
                "submitted": 0,
                "priority": 0,
                "weight": 1.0,
                "deadline": NEVER,
                "limit": NEVER,
                "estimate": NEVER,
                "steps": 0.0,
                "on_preempt": OnPreempt.CHECKPOINT,
                "checkpoint": -1,
                "restore": -1,
            },
        ),
        (GpuType("A"), {"memory": 16384, "watts": 0.0, "price": 0.0, "speed": 1.0}),
        (
            NodeSpec(),
            {"count": 1, "gpus": 0, "cpus": 0, "memory": 0, "nodes_per_rack": 0, "island": 0},
        ),
        (TenantSpec("t"), {"quota": -1, "weight": 1.0}),
        (Slot(3, 0b1), {"workers": 1, "role": 0, "share": 0}),
        (Started(0, 1), {"rate": 1.0}),
        (Failed(0, 1), {"kept": 0.0, "final": False}),
        (Released(0, 1), {"kept": 0.0}),
        (Measured(0, 1, 5.0), {"computing": 0.0, "batch": 0.0, "most": 0.0, "noise": 0.0}),
        (Reason("Resources", "queue"), {"shape": -1, "tenant": -1, "until": ANYTHING}),
        (Plan(), {"actions": [], "reasons": [], "wake": NEVER, "until": ANYTHING, "basis": -1}),
        (Turn(0, "A", 5), {"last": False, "fails": False}),
        (Stages((1.0,)), {"iteration": 0.0, "gpus": 1, "overhead": (1.0,)}),
        (Task(0, 0), {"items": 1, "step": 0, "arrival": 0, "deadline": NEVER}),
        (
            QueuePolicy("queue"),
            {"walk": Walk.STRICT, "preempt": False, "min_run": 0, "depth": 1000},
        ),
        (ByProgress(discounted, 100), {"arrival": False}),
        (LimitedMemory(), {"trained": {}, "paid": 0.0, "at": 0, "rate": 0.0, "over": False}),
        (Notes(), {"jobs": [], "columns": b"", "draws": 0}),
        (Schedules(), {"jobs": [], "columns": b"", "due": 0}),
        (CellMemory(), {"bound": (), "guaranteed": ()}),
        (
            BarrierMemory(),
            {
                "since": 0,
                "jobs": [],
                "turns": [],
                "ends": 0,
                "counted": 0,
                "received": {},
                "total": {},
                "deficits": {},
                "failures": {},
                "changed": True,
                "rounds": 0,
                "notes": Notes(),
            },
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_meant_where_nothing_is_said(said: Any, meant: dict[str, Any]) -> None:
    assert {name: getattr(said, name) for name in meant} == meant


def test_a_kind_of_change_is_one_bit_which_records_name_by_its_number() -> None:
    kinds = (
        events.CAPACITY_FREED, events.CAPACITY_LOST, events.STARTED, events.PROGRESSED,
        events.QUEUED, events.COMMANDED, events.WOKE, events.EVALUATED, events.SERVED,
        events.ROUTED,
    )  # fmt: skip
    assert kinds == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    assert sum(kinds) == ANYTHING


def test_a_kernel_and_a_world_that_are_told_nothing_begin_at_nothing() -> None:
    view = Bench(job("a")).kernel.view
    assert (view.now, view.revision, view.seed) == (0, 0, 0)
    world = World([], lanes(1))
    assert (world.now, world.steps_done(0), world.open, world.wanted) == (0, 0, 0, 0)
    assert world.draw(7) == World([], lanes(1), seed=0).draw(7) != World([], [], seed=1).draw(7)


@pytest.mark.parametrize(
    ("role", "least", "most"),
    [(Role(size=3), 3, 3), (Role(size=3, least=1), 1, 3), (Role(size=3, most=9), 3, 9)],
)
def test_a_role_that_says_no_range_has_its_size(role: Role, least: int, most: int) -> None:
    assert role.range == (least, most)


def test_a_job_that_nothing_follows_is_in_no_ring_and_every_follower_is_looked_at() -> None:
    """The ring goes through the second of two that `a` waits for."""
    from ganger.core.errors import BadInput

    declare([JobSpec(name="a", after=("b", "c")), JobSpec(name="b"), JobSpec(name="c")])
    for waits in (("b", "c"), ("c", "b"), ("b", "d", "c")):
        specs = [JobSpec(name="a", after=waits), JobSpec(name="b"), JobSpec(name="d"),
                 JobSpec(name="c", after=("a",))]  # fmt: skip
        with pytest.raises(BadInput, match="a -> c -> a"):
            declare(specs)


def test_at_most_three_recipes_are_suggested() -> None:
    from ganger.core.errors import BadInput

    for wrong, near in (("gavl", 1), ("fif", 1), ("gandiv", 1)):
        with pytest.raises(BadInput) as caught:
            registry.find(wrong)
        assert near <= str(caught.value).count(" or ") + 1 <= 3
    assert registry.nearest("aaa", ["aaa1", "aaa2", "aaa3", "aaa4"]).count("aaa") == 3
    assert registry.nearest("zzz", ["one", "two"]) == "there are one, two"


def test_a_table_grows_by_doubling_and_begins_with_sixteen() -> None:
    table = declare([JobSpec(name=f"j{i}") for i in range(3)])
    assert table.capacity == 16
    assert not table.reserve(16)
    assert table.reserve(17)
    assert table.capacity == 32
    assert table.reserve(100)
    assert table.capacity == 100


def test_an_empty_grant_has_nothing() -> None:
    nodes = Nodes(cluster(2, 4))
    grant = Ledger(nodes, {1: Room(0b0110)})
    assert (grant.free, grant.total, grant.up) == (2, 2, [False, True])
    assert grant.full == [0, 0b0110]


def test_a_request_that_states_nothing_but_its_arrival_is_one_input_of_anything() -> None:
    requests = World([], lanes(1)).requests
    requests.add({"arrival": [7]})
    names = ("arrival", "deadline", "model", "tenant", "items", "input", "label", "prompt", "by")
    assert [getattr(requests, name)[0] for name in names] == [7, NEVER, 0, 0, 1, -1, -1, 0, -1]
