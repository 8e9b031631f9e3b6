"""Pairs: two gangs on the same GPUs, by the throughputs measured together."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anything import paired
from audit import Audit
from ganger.core.books.ledger import members
from ganger.core.errors import BadInput
from ganger.core.events import Failed, Finished
from ganger.core.plan import Placement, Plan, Resize, Slot, Start, Stop
from ganger.core.profiles import Measured, Profile, Profiles, Stages
from ganger.core.spec import ClusterSpec, GpuType, NodeSpec
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.rounds.program import pose
from ganger.recipes import registry
from ganger.recipes.training.gavel.space_sharing import pack
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from ganger.workloads.clusters import load_cluster
from ganger.workloads.formats import load_trace
from worlds import Played, Work, cluster, gpus, job, play, trace_of

pytestmark = pytest.mark.long

ROOT = os.environ.get("GANGER_TRACES", "")
OBJECTIVES = ["max-min", "water-filling", "fifo", "makespan", "max-sum", "cost", "ftf"]
FRIENDS = Profiles(
    {
        "m": Profile(
            measured=Measured(
                {"V100": {1: 10.0, 2: 18.0}}, "V100", {}, {"m": {"V100": {1: 8.0, 2: 9.0}}}
            )
        )
    }
)
"""Alone 10 steps per second; two beside each other 8 each; gangs of two gain nothing."""


def model(name: str, lasts: float = 100, size: int = 1, **more: Any) -> Work:
    """A job whose model is `name`."""
    return job(name=more.pop("called", name), lasts=lasts, size=size, model=name, **more)


def test_two_jobs_share_one_gpu_at_their_measured_speed() -> None:
    works = [model("m", called="a"), model("m", called="b")]
    setup = Setup(profiles=FRIENDS)
    alone = play("gavel(every=10s)", trace_of(works), cluster(1, 1), setup)
    both = play("gavel(space_sharing=yes,every=10s)", trace_of(works), cluster(1, 1), setup)
    assert alone.makespan == pytest.approx(200)
    assert both.jct() == pytest.approx([125, 125])
    assert both.actions == [(0, "start a on 0:0"), (0, "start b on 0:0")]


def test_who_is_left_alone_goes_on_at_full_speed_without_a_restart() -> None:
    works = [model("m", called="a", lasts=80), model("m", called="b", lasts=160)]
    setup = Setup(profiles=FRIENDS, costs=Costs(restore=30 * SECOND))
    both = play("gavel(space_sharing=yes,every=10s)", trace_of(works), cluster(1, 1), setup)
    assert both.jct() == pytest.approx([100, 180])
    assert not both.jobs.preemptions[:2].any()


def test_nobody_is_interrupted_when_a_partner_comes() -> None:
    works = [model("m", called="a", lasts=100), model("m", called="b", at=15, lasts=100)]
    setup = Setup(profiles=FRIENDS, costs=Costs(restore=30 * SECOND))
    both = play("gavel(space_sharing=yes,every=10s)", trace_of(works), cluster(1, 1), setup)
    starts = [said for _, said in both.actions if said.startswith(("start", "resize"))]
    assert starts == ["start a on 0:0", "start b on 0:0"]
    assert both.started("b") == 20


@pytest.mark.parametrize(("beside", "ends", "most"), [("m", 200, 1), ("n", 100, 2)])
def test_pairs_are_made_by_stages_where_no_pair_was_measured(
    beside: str, ends: float, most: int
) -> None:
    """All of one resource beside the same, or beside all of another one."""
    known = Profiles(
        {"m": Profile(stages=(Stages((4, 0)),)), "n": Profile(stages=(Stages((0, 4)),))}
    )
    recipe, works = "gavel(space_sharing=yes,every=10s)", [model("m"), model(beside, called="b")]
    both = play(recipe, trace_of(works), cluster(1, 1), Setup(profiles=known))
    assert both.makespan == pytest.approx(ends)
    assert most_on_one_device(both) == most


def test_pairs_follow_what_the_oracle_believes_of_sharing() -> None:
    """Whoever believes that two gain nothing beside each other lets them take turns."""
    setup = Setup(profiles=FRIENDS, knows="noisy", noise=0.0, speed_noise=1.0)
    works = [model("m", called=f"j{i}", lasts=100) for i in range(2)]
    ends = set()
    for seed in range(8):
        run = play(
            "gavel(space_sharing=yes,every=10s)",
            trace_of(works),
            cluster(1, 1),
            replace(setup, seed=seed),
        )
        ends.add(round(run.makespan))
    assert ends == {125, 200}


def test_pairs_that_gain_nothing_take_turns() -> None:
    works = [model("m", called="a", size=2), model("m", called="b", size=2)]
    both = play(
        "gavel(space_sharing=yes,every=10s)",
        trace_of(works),
        cluster(1, 2),
        Setup(profiles=FRIENDS),
    )
    assert both.makespan == pytest.approx(200)
    assert most_on_one_device(both) == 1


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_does_more_with_pairs(objective: str) -> None:
    works = [model("m", called=f"j{i}", lasts=100) for i in range(6)]
    setup = Setup(profiles=FRIENDS)
    span = [
        play(
            f"gavel(objective={objective},space_sharing={each},every=10s)",
            trace_of(works),
            cluster(1, 2),
            setup,
        ).makespan
        for each in ("no", "yes")
    ]
    assert span[0] == pytest.approx(300, abs=11)
    assert span[1] <= 0.85 * span[0]


def test_a_pair_on_a_dear_type_is_worth_what_it_does_per_dollar() -> None:
    """Together on the V100 two do 1.8 for 3 dollars an hour; one there and one on the K80 do
    1 for 3 and 0.5 for 1."""
    alone = {"V100": {1: 1.0}, "K80": {1: 0.5}}
    both = {"V100": {1: 0.9}, "K80": {1: 0.2}}
    told = Profiles({"m": Profile(measured=Measured(alone, "V100", {}, {"m": both}))})
    on = ClusterSpec(
        (NodeSpec(gpus=1, gpu_type="V100"), NodeSpec(gpus=1, gpu_type="K80")),
        (GpuType("V100", price=3.0), GpuType("K80", price=1.0)),
    )
    works = [model("m", called=name, lasts=1000) for name in "ab"]
    spec = "gavel(objective=cost,space_sharing=yes,every=10s)"
    run = play(spec, trace_of(works), on, Setup(profiles=told, until=5 * SECOND))
    assert sorted(run.jobs.rate[:2].tolist()) == pytest.approx([0.5, 1.0])


class Packing:
    """Notes the pairs of the jobs that wait, and starts nobody."""

    name = "packing"

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Nothing."""
        if len(view.pending):
            self.packed = pack(view, pose(view, view.pending))
        return view.draft.plan(), None


def test_a_pair_is_only_on_types_on_which_both_may_run() -> None:
    """a must be on a V100, and c on a K80: they are no pair, and each of them is one with b."""
    both = {"V100": {1: 8.0}, "K80": {1: 8.0}}
    alone = {"V100": {1: 10.0}, "K80": {1: 10.0}}
    friends = Profiles({"m": Profile(measured=Measured(alone, "V100", {}, {"m": both}))})
    works = [
        model("m", called=name, shape=gpus(1, gpu_types=kinds))
        for name, kinds in (("a", ("V100",)), ("b", ()), ("c", ("K80",)))
    ]
    on = ClusterSpec((NodeSpec(gpus=1, gpu_type="K80"), NodeSpec(gpus=1, gpu_type="V100")))
    policy = Packing()
    play(policy, trace_of(works), on, Setup(profiles=friends, until=1))
    pairs, types = policy.packed.pairs, policy.packed.problem.types
    assert list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == [(0, 1), (1, 2)]
    for rates in (pairs.rate_first, pairs.rate_second):
        runs = [{kind for kind, rate in zip(types, row, strict=True) if rate} for row in rates]
        assert runs == [{"V100"}, {"K80"}]


class Sharer:
    """Starts everybody on half of the first GPU."""

    name = "sharer"

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """Whoever waits."""
        for number in view.pending.tolist():
            view.draft.start(number, (Slot(0, 1, 1, 0, 500),))
        return view.draft.plan(), None


def test_what_sharing_costs_must_be_known_and_is_half_where_it_was_not_measured() -> None:
    works = [job("a", lasts=5), job("b", lasts=5)]
    with pytest.raises(BadInput, match="no profile says what that costs"):
        play(Sharer(), trace_of(works), cluster(1, 1))
    told = play(Sharer(), trace_of(works), cluster(1, 1), Setup(profiles=FRIENDS))
    assert told.jct() == pytest.approx([10, 10])


@pytest.mark.parametrize("more", ["compatible=yes", "agnostic=yes", "barrier=yes"])
def test_what_does_not_go_together_is_said(more: str) -> None:
    with pytest.raises(BadInput, match="space_sharing goes with"):
        registry.make(f"gavel(space_sharing=yes,{more})")


# ---------------------------------------------------------------------- any world


def most_on_one_device(played: Played) -> int:
    """The most jobs that held one GPU at a time; asserts that pairs share all their GPUs."""
    held: dict[int, Placement] = {}
    most = 0
    for batch, plan in played.diary.steps:
        over = {event.job for event in batch.events if isinstance(event, Finished | Failed)}
        for number in over & set(held):
            if played.jobs.phase[number] != Phase.STOPPING:
                held.pop(number)
        for action in plan.actions if plan is not None else []:
            if isinstance(action, Stop):
                held.pop(action.job, None)
            elif isinstance(action, Start | Resize):
                held[action.job] = action.placement
        most = max(most, crowd(held))
    return most


def crowd(held: dict[int, Placement]) -> int:
    """The most jobs on one GPU; who shares one shares all."""
    on: dict[tuple[int, int], list[int]] = {}
    for number, placement in held.items():
        for slot in placement:
            for device in members(slot.devices):
                on.setdefault((slot.node, device), []).append(number)
    for jobs in on.values():
        places = {tuple((slot.node, slot.devices) for slot in held[number]) for number in jobs}
        assert len(places) == 1, "gangs of a pair share all their GPUs"
        shares = [slot.share for number in jobs for slot in held[number][:1]]
        assert len(jobs) == 1 or sum(shares) <= 1000
    return max(map(len, on.values()), default=0)


pair_works = st.lists(
    st.tuples(
        st.sampled_from(["vgg", "bert", ""]),
        st.integers(1, 4),
        st.integers(0, 20),
        st.integers(1, 25),
        st.sampled_from([1.0, 3.0]),
    ),
    min_size=2,
    max_size=14,
)
pair_clusters = st.sampled_from(
    [
        ClusterSpec((NodeSpec(2, 4, "A"), NodeSpec(1, 4, "B"))),
        ClusterSpec((NodeSpec(4, 1, "A"),)),
        ClusterSpec((NodeSpec(1, 4, "A"), NodeSpec(2, 2, "B"))),
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    rows=pair_works,
    where=pair_clusters,
    objective=st.sampled_from(OBJECTIVES),
    costs=st.sampled_from([Costs(), Costs(checkpoint=SECOND, restore=SECOND)]),
    outage=st.sampled_from([(), (Outage(0, 7 * SECOND, 12 * SECOND),)]),
)
def test_pairs_hold_what_they_may_in_any_world(
    rows: list[tuple[str, int, int, int, float]],
    where: ClusterSpec,
    objective: str,
    costs: Costs,
    outage: tuple[Outage, ...],
) -> None:
    works = [
        job(f"j{i}", at=at, lasts=lasts, size=size, model=name, weight=weight)
        for i, (name, size, at, lasts, weight) in enumerate(rows)
    ]
    setup = Setup(profiles=paired, costs=costs, outages=outage)
    recipe = f"gavel(space_sharing=yes,objective={objective},every=6s)"
    played = play(recipe, trace_of(works), where, setup, validate=True)
    Audit(played).walk()
    assert most_on_one_device(played) <= 2
    assert (played.jobs.phase[: played.jobs.n] == Phase.FINISHED).all()
    assert played.kernel.ledger.free == played.kernel.nodes.total_gpus


# ---------------------------------------------------------------------- Gavel's own table


@pytest.mark.skipif(not ROOT, reason="GANGER_TRACES does not name a folder of traces")
@pytest.mark.traces
@pytest.mark.parametrize("objective", ["max-min", "makespan"])
def test_pairs_shorten_gavels_trace(objective: str) -> None:
    folder = Path(ROOT) / "gavel"
    loaded = load_trace(
        folder / "physical_cluster/max_min_fairness.trace.gz",
        throughputs=folder / "simulation_throughputs.json.gz",
    )
    cluster_ = load_cluster("12x1xV100+12x1xP100+12x1xK80")
    runs = [
        run_one(loaded, cluster_, f"gavel(objective={objective}{more})", Setup())
        for more in ("", ",space_sharing=yes")
    ]
    jct = [run.metrics["jct_mean_seconds"] for run in runs]
    assert jct[1] < 0.95 * jct[0]
    assert all(run.metrics["gpu_allocated_ratio"] <= 1 for run in runs)
    assert all((np.asarray(run.timeline.gpus_held) <= 36).all() for run in runs)
