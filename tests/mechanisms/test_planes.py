"""Services by one recipe, all other jobs by another, on one cluster."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from bench import Bench, on
from ganger.core.events import Finished, Started, Submitted
from ganger.core.plan import AnyAction, Plan, Provision, Route, Spawn, Start, Tune
from ganger.core.protocols import Policy
from ganger.core.spec import ClusterSpec, GpuType, Kind, Needs, NodeSpec, Role, Shape
from ganger.core.view import View
from ganger.lab.log import LogWriter, replay
from ganger.lab.simulation import Setup, run_one
from ganger.mechanisms.common.planes import Planes
from ganger.mechanisms.common.two_level import TwoLevel
from ganger.recipes import registry
from worlds import Work, cluster, job, play, trace_of


def mixed(kind: Kind = Kind.TRAIN) -> list[Work]:
    """Forty jobs of one kind, with all that makes a queue move."""
    return [
        job(
            f"j{i}",
            i // 2,
            3 + 7 * i % 11,
            size=1 + i % 3,
            kind=kind,
            priority=i % 4,
            tenant="ab"[i % 2],
            estimate=12.0 if i % 5 else 40.0,
        )
        for i in range(40)
    ]


@pytest.mark.parametrize("kind", [Kind.TRAIN, Kind.SERVE, Kind.TASK])
@pytest.mark.parametrize(
    "recipe",
    ["fifo", "srtf", "backfill", "las(quantum=5s)", "drf", "tiresias", "max-min(every=9s)"],
)
def test_where_all_jobs_are_of_one_kind_its_recipe_decides_as_if_it_were_alone(
    recipe: str, kind: Kind
) -> None:
    alone = play(recipe, mixed(kind), cluster(2, 3))
    serving, training = registry.make("fifo"), registry.make(recipe)
    if kind is Kind.SERVE:
        serving, training = training, serving
    both = play(Planes(serving, training), mixed(kind), cluster(2, 3))
    assert both.text() == alone.text()
    ends = [work.spec.name for work in mixed(kind)]
    assert [both.ended(name) for name in ends] == [alone.ended(name) for name in ends]


def shared() -> list[Work]:
    """A service that comes while training fills the cluster, and one that comes with more."""
    return [
        job("long", 0, 30, size=3), job("web", 1, 20, size=2, kind=Kind.SERVE, priority=9),
        job("short", 1, 4, size=1), job("api", 1, 10, size=1, kind=Kind.SERVE),
        job("late", 2, 5, size=1),
    ]  # fmt: skip


def test_services_are_asked_first_and_neither_side_preempts_the_other() -> None:
    run = play(
        Planes(registry.make("priority(walk=skip)"), registry.make("fifo")), shared(), cluster(1, 4)
    )
    assert (
        run.text()
        == """\
0: start long on 0:0,1,2
1: start api on 0:3
11: start short on 0:3
15: start late on 0:3
30: start web on 0:0,1"""
    )
    one = play("priority", shared(), cluster(1, 4))
    assert "stop long" in one.text(), "one recipe for all preempts training for a service"


def test_a_run_with_a_recipe_for_services_and_one_inside_grants_replays_from_its_log(
    tmp_path: Path,
) -> None:
    works = [
        *shared(),
        job("search", 3, None, size=2, kind=Kind.TUNE),
        *(job(f"t{i}", 3, 9 - i, size=1, parent="search") for i in range(5)),
    ]
    trace, on, log = trace_of(works), cluster(1, 4), tmp_path / "run.jsonl"
    setup = Setup(inner="sjf", serving="priority", validate=True)
    with ExitStack() as stack:
        run = run_one(
            trace,
            on,
            "fifo",
            setup,
            journal=lambda kernel: stack.enter_context(
                LogWriter(log, kernel, trace, on, "fifo", setup)
            ),
        )
    assert set(run.jobs.state) == {"finished"}
    assert run.knows == "truth", "what is inside grants asks for durations"
    assert replay(log) > 10
    text = log.read_text()
    log.write_text(text.replace('"serving":"priority"', '"serving":"sjf"', 1))
    with pytest.raises(Exception, match="the log says"):
        replay(log)


def test_services_have_one_recipe_with_the_others_unless_another_is_named() -> None:
    trace = trace_of(shared())
    ends = [
        run_one(trace, cluster(1, 4), "fifo", Setup(serving=serving)).jobs.finish.tolist()
        for serving in ("", "priority(walk=skip)")
    ]
    assert ends == [[30, 50, 34, 40, 39], [30, 50, 15, 11, 20]]


class Ordering:
    """A policy that uses some actions beside starts and stops, and decides nothing."""

    def __init__(self, name: str, *orders: type) -> None:
        self.name, self.orders = name, orders


def test_both_recipes_may_use_their_orders_and_a_run_has_the_name_of_the_one_for_training() -> None:
    serving, training = Ordering("s", Route, Provision), Ordering("t", Provision, Tune)
    both = Planes(serving, training)  # type: ignore[arg-type]
    assert both.orders == (Route, Provision, Tune), "each once"
    assert both.name == "t"
    assert Planes(registry.make("fifo"), training).orders == (Provision, Tune)  # type: ignore[arg-type]
    assert Planes(registry.make("fifo"), registry.make("srtf")).orders == ()


class Written:
    """Writes one plan down by itself, without drawing it, and none after that."""

    name = "written"

    def __init__(self, *actions: AnyAction) -> None:
        self._actions = actions

    def decide(self, view: View, memory: int | None) -> tuple[Plan, int]:
        """The plan of the first decision, or an empty one."""
        return Plan([] if memory else [*self._actions]), 1


def test_plans_that_are_not_drawn_are_carried_out_for_both() -> None:
    web = job("web", lasts=None, kind=Kind.SERVE)
    planes = Planes(Written(Start(0, 1, on(0b01))), Written(Start(1, 1, on(0b10))))
    bench = Bench(web, job("a"), policy=planes)
    plan = bench.feed(0, Submitted(0), Submitted(1))
    assert plan is not None
    assert plan.actions == [Start(0, 1, on(0b01)), Start(1, 1, on(0b10))]


def test_what_was_kept_for_a_search_is_forgotten_when_it_is_over() -> None:
    """Two searches, each with a trial; the first ends."""
    works = [
        *(job(name, lasts=None, kind=Kind.TUNE) for name in "ab"),
        job("t", parent="a"),
        job("u", parent="b"),
    ]
    bench = Bench(*works, policy=TwoLevel(registry.make("fifo"), Written()))
    bench.feed(0, *map(Submitted, range(4)))
    bench.feed(1, Started(0, 1), Started(1, 1))
    assert bench.kernel.memory.inner == {0: 1, 1: 1}
    bench.feed(2, Finished(0, 1))
    assert bench.kernel.memory.inner == {1: 1}


def test_turns_of_jobs_beside_services_and_searches_are_ordered_once() -> None:
    """The plan of a recipe that is one of two says each of its turns, and the plan of both no more
    often: jobs a and b take turns of a minute on the one GPU that the others leave."""
    shape = Shape((Role(needs=Needs(gpu_memory=6000)),))
    both = [job(name, lasts=150, shape=shape) for name in "ab"]
    works = [job("web", lasts=600, kind=Kind.SERVE), job("search", lasts=600, kind=Kind.TUNE)]
    trial = job("trial", lasts=500, parent="search")
    box = ClusterSpec((NodeSpec(gpus=3, gpu_type="A"),), (GpuType("A", memory=16_000),))
    turns = registry.make("gandiva")
    for policy in (
        TwoLevel(turns, registry.make("fifo")),
        Planes(registry.make("fifo"), turns),
        Planes(registry.make("fifo"), TwoLevel(turns, turns)),
    ):
        run = play(policy, [*works, trial, *both], box)
        slept = [said for at, said in run.actions if said.startswith("suspend")]
        assert slept == [f"suspend {name}" for name in "abab"]
        assert [run.jobs.attempt[run.row(name)] for name in "ab"] == [1, 1]
        assert (run.ended("a"), run.ended("b")) == (270, 300)


def test_a_search_that_names_a_recipe_has_that_one_and_others_the_clusters() -> None:
    """Two searches on one GPU each; the trials that each asks for, and when it is over."""
    made = list[str]()

    def make(text: str) -> Policy:
        made.append(text)
        return registry.make(text)

    own = job("own", lasts=None, kind=Kind.TUNE, inner="tune.random(trials=2,epochs=1)")
    works = [own, job("plain", lasts=None, kind=Kind.TUNE), job("t", parent="plain")]
    policy = TwoLevel(registry.make("fifo"), registry.make("fifo"), make)
    bench = Bench(*works, policy=policy)
    bench.feed(0, *map(Submitted, range(3)))
    plan = bench.feed(1, Started(0, 1), Started(1, 1))
    assert plan is not None
    assert [type(action) for action in plan.actions] == [Start, Spawn]
    assert (plan.actions[1].parent, plan.actions[0].job) == (0, 2)  # type: ignore[union-attr]
    assert set(made) == {"tune.random(trials=2,epochs=1)"}, "for no other"
    assert bench.kernel.jobs.spec(0).inner == "tune.random(trials=2,epochs=1)"


def test_a_policy_is_asked_when_a_search_begins_whose_recipe_asks_for_trials() -> None:
    """Nothing else is there, and the cluster's own recipe for trials asks for none."""
    own = job("own", lasts=None, kind=Kind.TUNE, inner="tune.random(trials=1,epochs=1)")
    policy = TwoLevel(registry.make("fifo"), registry.make("fifo"), registry.make)
    bench = Bench(own, policy=policy)
    bench.feed(0, Submitted(0))
    plan = bench.feed(1, Started(0, 1))
    assert plan is not None
    assert [type(action) for action in plan.actions] == [Spawn]
