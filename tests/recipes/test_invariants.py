"""What must hold for every recipe in the catalogue, on any world (design, section 7).

`make test` has a few worlds for each, `make soak` a hundred or a thousand larger ones.
"""

from __future__ import annotations

import random
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anything import World, worlds
from audit import Audit
from ganger.core.events import Failed, Finished
from ganger.core.kernel import Kernel
from ganger.core.plan import Plan
from ganger.core.protocols import Policy
from ganger.core.spec import ClusterSpec, Needs, NodeSpec, OnPreempt, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import OVER, Phase
from ganger.core.state.snapshot import Snapshot, capture, restore
from ganger.core.units import HOUR, NEVER, SECOND
from ganger.core.view import View
from ganger.lab.log import LogWriter, replay
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulation import Setup
from ganger.recipes import registry
from ganger.recipes.registry import CATALOGUE
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from soaking import alike, many
from worlds import Diary, Played, Work, gpus, job, play

SMALLER = {"pollux": "pollux(population=8,generations=4)"}
"""The same recipe with a smaller search, where its defaults take seconds a decision."""
RECIPES = [SMALLER.get(name, name) for name in sorted(CATALOGUE)]
WAYS = "every=20s,whole_steps=yes,barrier=yes,patience=30s,counters=yes,by_type=yes,held_back=yes"
"""All of `gavel(compatible=yes)` but for `dropped`, under which short gangs never end."""
FORESIGHTLESS = WAYS.removesuffix(",held_back=yes")
"""Who holds back newcomers, as the public simulator does, asks whether more are to come."""
VARIANTS = [
    *(
        f"gavel({how},{WAYS})"
        for how in (
            "objective=fifo,in_order=yes",
            "centred=yes,left_over=yes",
            "objective=makespan,centred=yes,left_over=yes",
        )
    ),
    f"gavel(agnostic=yes,shuffled=yes,centred=yes,left_over=yes,{FORESIGHTLESS})",
    "gavel(space_sharing=yes,every=20s)",
    "gavel(space_sharing=yes,objective=ftf,every=20s)",
    "muri-s(every=20s)",
    "muri-l(every=20s,group=3,quantum=4s)",
    "co-scheml(bound=9,share=4,skip=yes)",
    "horus(shortest=yes,share=4,skip=yes)",
    "lucid(limit=3s,busy=0)",
    "jigsaw(fraction=0.1,gain=1,share=4)",
    "singularity(level=1s,interval=3s)",
    "liquid(limit=9,share=4,racks=1,generations=3)",
    "salus(iterations=preempt)",
    "salus(iterations=round_robin,share=3)",
    "mlcloudprice(every=3s,move=1s)",
    "fifo(walk=skip)",
    "srtf(walk=strict,min_run=3s)",
    "priority(preempt=no)",
    "las(quantum=3s)",
    "las(attained=time,quantum=2s)",
    "mlfq(thresholds=4s;9s)",
    "tiresias(thresholds=5s;20s)",
    "tiresias(thresholds=5s;20s,min_run=2s,starvation=2)",
    "backfill(walk=conservative)",
    "tiresias(thresholds=5s;20s,consolidate=no,fit=worst,index=arrival,interval=3s)",
    "backfill(interval=2s)",
    "srsf(walk=easy)",
    "edf(preempt=no)",
]
"""The defaults of some recipes are hours; on traces of seconds these show more. Rounds must be
longer than a checkpoint and a restore together (6 s at most), or those that take turns never get
anywhere."""


MAY_WAIT_FOR_EVER = {"yarn-cs"}
"""yarn-cs says so: a gang wider than every rack."""


def every_recipe(test: Any) -> Any:
    """The test, for each recipe in the catalogue and some variants of theirs."""
    return pytest.mark.parametrize("recipe", [*RECIPES, *VARIANTS])(test)


def run(recipe: str | Policy, world: World, *, validate: bool = True) -> Played:
    """Play `recipe` on `world`."""
    return play(recipe, world.trace, world.cluster, world.setup, validate=validate)


def encoded(played: Played) -> list[bytes]:
    """The diary as bytes, a line a step."""
    return [msgspec.json.encode(step) for step in played.diary.steps]


def first_difference(one: list[bytes], two: list[bytes]) -> tuple[bytes, bytes] | None:
    """The first lines that differ, None if the diaries are the same."""
    pairs = zip_longest(one, two, fillvalue=b"")
    return next(((left, right) for left, right in pairs if left != right), None)


def check(recipe: str, world: World) -> None:
    """All that can be said of one run."""
    played = run(recipe, world)
    Audit(played).walk()
    jobs, n = played.jobs, played.jobs.n
    finished = jobs.phase[:n] == 7
    killed = (jobs.on_preempt[:n] == OnPreempt.KILL).any()  # these may lose their work for ever
    if not killed and recipe not in MAY_WAIT_FOR_EVER:
        over = [phase in OVER for phase in jobs.phase[:n].tolist()]
        assert all(over), "on an idle cluster that fits every job none stays behind"
        limited = world.trace.declared.limit[:n] < NEVER
        followers = np.isin(np.arange(n), list(jobs.after))
        assert (finished | limited | followers).all()
        assert played.kernel.ledger.free == played.kernel.nodes.total_gpus
    never = jobs.on_preempt[:n] == OnPreempt.NEVER
    assert not jobs.preemptions[:n][never].any()
    if world.uniform:
        shapes = [jobs.shapes[code] for code in jobs.shape[:n].tolist()]
        elastic = [any(role.most > role.size for role in shape.roles) for shape in shapes]
        lasts, fixed = world.trace.duration, finished & ~np.array(elastic)
        assert (jobs.ran[:n] >= lasts)[fixed].all()
        assert (jobs.finished[:n] - jobs.submitted[:n] >= lasts)[fixed].all()
    still = (played.kernel.now - jobs.held_since[:n]) * jobs.size[:n]
    assert (jobs.served[:n] <= jobs.held[:n] + still).all()


@every_recipe
@alike(6, world=worlds())
def test_nothing_is_ever_oversubscribed_torn_lost_or_forgotten(recipe: str, world: World) -> None:
    check(recipe, world)


@pytest.mark.soak
@every_recipe
@settings(max_examples=many(1000))
@given(world=worlds(jobs=40))
def test_nothing_is_ever_oversubscribed_torn_lost_or_forgotten_for_long(
    recipe: str, world: World
) -> None:
    check(recipe, world)


@every_recipe
def test_a_type_whose_nodes_lack_the_label_is_no_place_to_wait_for(recipe: str) -> None:
    """The soak's find: the preferred type has a free GPU, but the label is elsewhere."""
    spec = ClusterSpec(
        (
            NodeSpec(gpus=1, gpu_type="A"),
            NodeSpec(gpus=1, gpu_type="A", labels=("fast",)),
            NodeSpec(gpus=1, gpu_type="B"),
        )
    )
    shape = gpus(1, gpu_types=("B", "A"), labels=("fast",))
    played = play(recipe, [job("a", lasts=30, shape=shape)], spec, Setup(until=2 * HOUR))
    assert played.jobs.phase[0] == Phase.FINISHED


@every_recipe
def test_a_gang_without_gpus_asks_for_none(recipe: str) -> None:
    """The soak's find: two workers that need cores only, and one GPU in all of the cluster."""
    spec = ClusterSpec((NodeSpec(gpus=1, gpu_type="A", cpus=8000),))
    shape = Shape((Role(size=2, needs=Needs(gpus=0, cpus=1000)),))
    played = play(recipe, [job("a", lasts=30, shape=shape)], spec, Setup(until=2 * HOUR))
    assert played.jobs.phase[0] == Phase.FINISHED


class Forgetful:
    """A policy whose caches are dropped now and then."""

    def __init__(self, policy: Policy, seed: int) -> None:
        self._policy, self._random = policy, random.Random(seed)
        self.name = policy.name

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """As the policy does."""
        if self._random.random() < 0.3:
            view.scratch.clear()
        return self._policy.decide(view, memory)


def cached(recipe: str, world: World, seed: int) -> None:
    """Caches kept for the whole run, rebuilt at every step (validate), or dropped at random."""
    first = encoded(run(recipe, world, validate=False))
    forgetful = Forgetful(registry.make(recipe), seed)
    for other in (run(recipe, world, validate=True), run(forgetful, world, validate=False)):
        assert first_difference(first, encoded(other)) is None


@every_recipe
@alike(3, world=worlds(), seed=st.integers(0, 99))
def test_the_same_seed_gives_the_same_bytes_whatever_is_cached(
    recipe: str, world: World, seed: int
) -> None:
    cached(recipe, world, seed)


def restored(recipe: str, world: World, at: int) -> None:
    """A kernel is captured and restored after `at` seconds, and another one is not."""
    trace, nodes = world.trace, Nodes(world.cluster)
    physics = Physics(nodes, world.setup.profiles, world.setup.costs)
    diaries = [Diary(), Diary()]
    for stops, diary in zip([False, True], diaries, strict=True):
        kernel = Kernel(
            nodes,
            trace.declared,
            registry.make(recipe),
            journal=diary,
            oracle=make_oracle(trace, physics, world.setup),
            seed=world.setup.seed,
        )
        engine = Simulator(trace.declared, trace.duration, physics, world.setup.outages)
        kernel.run(engine, at * SECOND)
        if stops:
            kept = msgspec.msgpack.encode(capture(kernel))
            kernel = restore(
                msgspec.msgpack.decode(kept, type=Snapshot),
                Nodes(world.cluster),
                registry.make(recipe),
                journal=diary,
                validate=True,
                seed=world.setup.seed,
                oracle=make_oracle(trace, physics, world.setup),
            )
        kernel.run(engine, world.setup.until)
    one, two = ([msgspec.json.encode(step) for step in diary.steps] for diary in diaries)
    assert first_difference(one, two) is None


@every_recipe
@alike(3, world=worlds(), at=st.integers(0, 60))
def test_a_kernel_restored_from_a_snapshot_goes_on_to_the_same_bytes(
    recipe: str, world: World, at: int
) -> None:
    restored(recipe, world, at)


@pytest.mark.soak
@every_recipe
@settings(max_examples=many(100))
@given(world=worlds(jobs=30), seed=st.integers(0, 99), at=st.integers(0, 60))
def test_whatever_is_cached_or_restored_for_long(
    recipe: str, world: World, seed: int, at: int
) -> None:
    cached(recipe, world, seed)
    restored(recipe, world, at)


@every_recipe
@alike(2, world=worlds())
def test_a_log_replays_to_the_same_plans(
    recipe: str, world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("log") / "run.jsonl"
    steps = write_log(path, recipe, world)
    assert replay(path) == steps


def write_log(path: Path, recipe: str, world: World) -> int:
    """Log a run to `path`; returns how many steps it took."""
    trace, nodes = world.trace, Nodes(world.cluster)
    physics = Physics(nodes, world.setup.profiles, world.setup.costs)
    oracle = make_oracle(trace, physics, world.setup)
    kernel = Kernel(
        nodes, trace.declared, registry.make(recipe), oracle=oracle, seed=world.setup.seed
    )
    with LogWriter(path, kernel, trace, world.cluster, recipe, world.setup) as journal:
        kernel.journal = journal
        engine = Simulator(trace.declared, trace.duration, physics, world.setup.outages)
        kernel.run(engine, world.setup.until)
    return kernel.revision


# ---------------------------------------------------------------------- what is not known yet

KNOW_NOTHING = [
    name for name in [*RECIPES, *VARIANTS] if registry.parse(name)[0].needs == "nothing"
]


def same_until(one: Diary, two: Diary) -> int:
    """How many steps have the same batch; the plans of those must be equal."""
    for at, ((batch, plan), (other, planned)) in enumerate(zip(one.steps, two.steps, strict=False)):
        if batch != other:
            return at
        assert (plan is None) == (planned is None)
        if plan is not None and planned is not None:
            assert plan.actions == planned.actions, f"step {at} at {batch.at}"
            assert plan.wake == planned.wake
    return min(len(one.steps), len(two.steps))


def unforeseen(recipe: str, world: World, hidden: set[int]) -> None:
    """Of two days that differ in how long `hidden` take, all is the same until one ends."""
    changed = [
        Work(work.spec, work.lasts + (7 * SECOND if i in hidden else 0))
        for i, work in enumerate(world.works)
    ]
    one = run(recipe, world, validate=False).diary
    two = run(recipe, world._replace(works=changed), validate=False).diary
    same = same_until(one, two)
    if same < len(one.steps):
        batch = one.steps[same][0]
        outcomes = [event for event in batch.events if isinstance(event, Finished | Failed)]
        assert {event.job for event in outcomes} & hidden, (batch, two.steps[same][0])


def with_some(world: World) -> st.SearchStrategy[tuple[World, set[int]]]:
    """The world, and some of its jobs."""
    jobs = st.sets(st.integers(0, len(world.works) - 1), min_size=1)
    return st.tuples(st.just(world), jobs)


@pytest.mark.parametrize("recipe", KNOW_NOTHING)
@alike(3, hiding=worlds().flatmap(with_some))
def test_hidden_durations_change_no_plan_before_the_first_finish_that_differs(
    recipe: str, hiding: tuple[World, set[int]]
) -> None:
    unforeseen(recipe, *hiding)


def uninvited(recipe: str, world: World, kept: int) -> None:
    """Of two days of which one lacks the jobs from number `kept` on, all is the same until then."""
    if "held_back=yes" in recipe:
        return  # by design it knows whether a job is to come, as the public simulator does
    end = world.works[kept].spec.submitted if kept < len(world.works) else NEVER
    works = [work for work in world.works if work.spec.submitted < end]
    whole = run(recipe, world, validate=False).diary
    if not works:
        return
    part = run(recipe, world._replace(works=works), validate=False).diary
    same = same_until(whole, part)
    assert same == len(whole.steps) or whole.steps[same][0].at >= end


def with_first(world: World) -> st.SearchStrategy[tuple[World, int]]:
    """The world, and how many of its jobs come in any case."""
    return st.tuples(st.just(world), st.integers(1, len(world.works)))


@every_recipe
@alike(3, inviting=worlds().flatmap(with_first))
def test_jobs_that_arrive_later_change_no_earlier_plan(
    recipe: str, inviting: tuple[World, int]
) -> None:
    uninvited(recipe, *inviting)


@pytest.mark.soak
@every_recipe
@settings(max_examples=many(100))
@given(world=worlds(jobs=30), data=st.data())
def test_what_is_not_known_yet_changes_nothing_for_long(
    recipe: str, world: World, data: st.DataObject
) -> None:
    if recipe in KNOW_NOTHING:
        unforeseen(recipe, world, data.draw(st.sets(st.integers(0, len(world.works) - 1))))
    uninvited(recipe, world, data.draw(st.integers(1, len(world.works))))


def test_pollux_starts_a_lonely_gang_on_the_one_type_that_can_hold_it() -> None:
    types = ClusterSpec(
        (NodeSpec(count=2, gpus=1, gpu_type="A"), NodeSpec(count=4, gpus=4, gpu_type="B"))
    )
    gang = [job("gang", 0, 21, size=8)]
    run_of_it = play("pollux", gang, types, until=600 * SECOND, validate=False)
    assert run_of_it.phase("gang") == "finished"
