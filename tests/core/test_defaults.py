"""What is meant where nothing is said: of jobs, clusters, events, and what policies keep."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import NODEFAULT, Struct, structs

from bench import Bench
from ganger.core import events, plan, profiles, spec
from ganger.core.books.ledger import Ledger, Room
from ganger.core.events import ANYTHING
from ganger.core.serving import answering, verbs, world
from ganger.core.serving.world import World
from ganger.core.spec import (
    ClusterSpec,
    GpuType,
    JobSpec,
    Locality,
    Needs,
    NodeSpec,
    Offer,
    Role,
    Shape,
    TenantSpec,
)
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

SHAPE = Shape((Role("worker", 1, 0, 0, Needs(1, 1000, 0, 0, 0)),), (), "", Locality.ANY, ())
SAID: dict[type[Struct], dict[str, Any]] = {
    Needs: {"gpus": 1, "share": 1000, "gpu_memory": 0, "cpus": 0, "memory": 0},
    Role: {"name": "worker", "size": 1, "least": 0, "most": 0, "needs": Needs(1, 1000, 0, 0, 0)},
    Shape: {"roles": SHAPE.roles, "gpu_types": (), "pool": "", "locality": 3, "labels": ()},
    JobSpec: {
        "submitted": 0, "shape": SHAPE, "kind": 0, "tenant": "", "user": "", "group": "",
        "priority": 0, "weight": 1.0, "deadline": 1 << 62, "limit": 1 << 62, "estimate": 1 << 62,
        "steps": 0.0, "model": "", "after": (), "array": "", "parent": "", "on_preempt": 0,
        "checkpoint": -1, "restore": -1, "inner": "",
    },
    GpuType: {
        "memory": 16384, "watts": 0.0, "price": 0.0, "speed": 1.0, "idle_watts": -1.0,
        "watts_from": "stated", "per": 1, "least": 0, "clocks": (), "memory_clocks": (),
    },
    Offer: {
        "market": "on_demand", "zone": "", "price": -1.0, "prices": (), "bid": -1.0,
        "available": (), "notice": 0, "per": 1, "rentable": False, "instance": "",
    },
    NodeSpec: {
        "count": 1, "gpus": 0, "gpu_type": "", "cpus": 0, "memory": 0, "pool": "", "rack": "",
        "nodes_per_rack": 0, "island": 0, "labels": (), "name": "", "watts": -1.0, "offer": None,
        "bandwidth": 0.0, "uplink": -1.0,
    },
    spec.Switch: {"above": "", "bandwidth": 0.0},
    spec.Network: {"rack": 0.0, "switches": (), "contention": 0.0},
    TenantSpec: {
        "quota": -1, "weight": 1.0, "parent": "", "budget": -1.0, "beyond": "warn",
    },
    ClusterSpec: {
        "gpu_types": (), "tenants": (), "name": "cluster", "carbon": -1.0, "network": None,
    },
    profiles.StepModel: {
        "alpha_n": 0.0, "beta_n": 0.0, "alpha_r": 0.0, "beta_r": 0.0, "gamma": 1.0,
    },
    profiles.Goodput: {
        "starts": (0.0,), "batches": (1.0,), "noise": ((0.0,),), "times": {}, "model": None,
        "only": 0.0, "by_type": {},
    },
    profiles.Convergence: {
        "metric": "loss", "target": 0.0, "change": 0.05, "window": 10, "every": 1.0, "noise": 0.0,
        "seconds": 0.0,
    },
    profiles.Steps: {"servers": 0, "split": False, "per_node": 0},
    profiles.Measured: {"apart": {}, "beside": {}},
    profiles.Stages: {"iteration": 0.0, "gpus": 1, "overhead": (1.0,)},
    profiles.Memory: {"ephemeral": 0.0, "iteration": 0.0},
    profiles.Passes: {"loss": 0.0},
    profiles.Profile: {
        "by_type": {}, "locality": (1.0, 1.0, 1.0, 1.0), "scaling": (), "skewed": False,
        "disturbed": {}, "sensitivity": None, "goodput": None, "measured": None, "steps": None,
        "convergence": None, "watts": {}, "stages": (), "utilisation": {}, "graph": None,
        "memory": None, "passes": None, "answering": None, "host": None, "clocks": None,
    },
    profiles.Profiles: {"models": {}, "default": profiles.Profile()},
    answering.BatchTimes: {"share": 1.0},
    answering.Answering: {"times": {}, "load": 0.0, "accuracy": None, "stages": ()},
    answering.Step: {"feeds": ()},
    events.Failed: {"kept": 0.0, "why": "", "final": False},
    events.Released: {"kept": 0.0},
    events.Refused: {"why": ""},
    events.NodeDown: {"by": 0},
    events.Started: {"rate": 1.0},
    events.Measured: {"computing": 0.0, "batch": 0.0, "most": 0.0, "noise": 0.0},
    events.Evaluated: {"metrics": None, "final": False},
    events.Served: {"routers": {}},
    events.Unable: {"n": 1, "why": ""},
    events.Accepted: {"spawned": False},
    events.Command: {"value": 0.0},
    plan.Slot: {"workers": 1, "role": 0, "share": 0},
    plan.Start: {"waits": ()},
    plan.Stop: {"why": "preempted"},
    plan.Resize: {"waits": ()},
    plan.Suspend: {"yields": False},
    plan.Spawn: {"n": 1, "copies": None},
    plan.Lend: {"pool": ""},
    plan.Reason: {"shape": -1, "tenant": -1, "evidence": {}, "until": 1023, "within": -1},
    plan.Plan: {"actions": [], "reasons": [], "wake": 1 << 62, "until": 1023, "basis": -1},
    world.Task: {"items": 1, "step": 0, "arrival": 0, "deadline": 1 << 62, "inputs": ()},
    world.Lane: {
        "device": 0, "store": -1, "share": 1.0, "copies": False, "ahead": 0, "running": None,
        "since": 0, "due": 0, "queued": [], "down": False, "cache": -1, "cached": 0,
        "only": -1,
    },
    world.Store: {"used": 0, "resident": {}, "loading": set()},
    world.Known: {
        "bytes": 0, "load": 0, "accuracy": "nan", "borders": (), "beside": {}, "tokens": {},
        "cache_bytes": 0, "layers": (), "recorded": None, "peaks": {}, "parity_of": "",
        "parity_k": 0,
    },
    world.Recorded: {"scores": None},
    world.Stage: {"feeds": (), "after": 0},
    verbs.Part: {"first": 0, "last": 0, "tokens": ()},
    verbs.Batch: {"steps": 1, "drops": ()},
    verbs.Wait: {"rows": 1},
    verbs.Ended: {"operator": 0, "outputs": (), "over": (), "scores": ()},
    verbs.News: {"up": (), "down": (), "truths": ()},
}  # fmt: skip
"""What clusters, jobs, profiles, journals and routers mean where a field is not written: files of
users and journals of earlier versions leave it out, so that with another value here they would mean
something else."""


def unsaid(kind: type[Struct]) -> dict[str, Any]:
    """What each field of a struct is where it is not written."""
    found = {}
    for field in structs.fields(kind):
        if not field.required:
            value = field.default if field.default is not NODEFAULT else field.default_factory()
            found[field.name] = "nan" if value != value else value
    return found


@pytest.mark.parametrize("kind", SAID, ids=lambda kind: kind.__qualname__)
def test_what_files_and_journals_mean_where_a_field_is_not_written(kind: type[Struct]) -> None:
    assert unsaid(kind) == SAID[kind]


def test_no_struct_that_is_written_or_sent_is_missing_here() -> None:
    rooms = (spec, profiles, answering, events, plan, world, verbs)
    kinds = [
        each
        for room in rooms
        for each in vars(room).values()
        if isinstance(each, type) and issubclass(each, Struct) and each.__module__ == room.__name__
    ]
    assert [kind for kind in kinds if unsaid(kind) and kind not in SAID] == []


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (Turn(0, "A", 5), {"last": False, "fails": False}),
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
    empty = World([], lanes(1))
    assert (empty.now, empty.steps_done(0), empty.open, empty.wanted) == (0, 0, 0, 0)
    assert empty.draw(7) == World([], lanes(1), seed=0).draw(7) != World([], [], seed=1).draw(7)


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
