"""Hand checks of recipes that share GPUs: Gandiva."""

from __future__ import annotations

from typing import Any

import pytest

from bench import Bench
from ganger.core.books.ledger import Ledger
from ganger.core.events import Started, Submitted, Woke
from ganger.core.plan import AnyAction, Plan, Resume, Slot, Start, Stop, Suspend
from ganger.core.profiles import Measured, Profile, Profiles
from ganger.core.spec import ClusterSpec, GpuType, Kind, Needs, NodeSpec, OnPreempt, Role, Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import MINUTE, SECOND, WHOLE
from ganger.core.view import View
from ganger.lab.simulation import Setup
from ganger.mechanisms.common.planes import Planes
from ganger.mechanisms.common.two_level import TwoLevel, draw
from ganger.recipes import registry
from ganger.recipes.training.sharing.gandiva import PairsThatPay, Tried
from worlds import Played, Work, gpus, job, play, trace_of

M = MINUTE // SECOND
KEEPS = Shape((Role(needs=Needs(gpu_memory=6000)),))


def box(nodes: int = 1, each: int = 1, memory: int = 16_000) -> ClusterSpec:
    """Nodes of GPUs with so many MiB."""
    return ClusterSpec(
        (NodeSpec(count=nodes, gpus=each, gpu_type="A"),), (GpuType("A", memory=memory),)
    )


def keeping(mib: int, size: int = 1) -> Shape:
    """A gang that says how much memory it keeps on each GPU."""
    return Shape((Role(size=size, needs=Needs(gpu_memory=mib)),))


VERBS: dict[str, type[Start | Stop | Suspend | Resume]] = {
    "start": Start, "stop": Stop, "suspend": Suspend, "resume": Resume,
}  # fmt: skip


def doing(run: Played, verb: str) -> list[tuple[float, str]]:
    """When what was suspended, resumed, started or stopped."""
    kind, found = VERBS[verb], list[tuple[float, str]]()
    for batch, plan in run.diary.steps:
        for action in plan.actions if plan is not None else ():
            if isinstance(action, kind):
                found.append((batch.at / MINUTE, run.jobs.name(action.job)))
    return found


# ---------------------------------------------------------------------- turns


@pytest.mark.parametrize("shape", [KEEPS, gpus(1)])
def test_the_short_job_is_done_at_two_minutes_instead_of_eleven(shape: Shape) -> None:
    """The card's check: jobs of 10 and 1 min arrive together on 1 GPU, quantum 1."""
    works = [job("long", 0, 10 * M, shape=shape), job("short", 0, 1 * M, shape=shape)]
    assert play("fifo", trace_of(works), box()).ended("short") == 11 * M
    run = play("gandiva", trace_of(works), box())
    assert (run.started("short"), run.ended("short"), run.ended("long")) == (M, 2 * M, 11 * M)
    assert run.jobs.attempt[0] == (1 if shape is KEEPS else 2)


def test_three_jobs_take_turns_in_the_order_in_which_they_wait() -> None:
    works = [job(name, 0, 3 * M, shape=keeping(5000)) for name in "abc"]
    run = play("gandiva", trace_of(works), box())
    assert doing(run, "suspend") == [(at, "abcabc"[int(at) - 1]) for at in (1, 2, 3, 4, 5, 6)]
    assert doing(run, "resume") == [(at, "abcabc"[int(at) - 3]) for at in (3, 4, 5, 6, 7, 8)]
    assert [run.ended(name) for name in "abc"] == [7 * M, 8 * M, 9 * M]


def test_who_does_not_fit_into_memory_beside_those_asleep_waits_for_an_end() -> None:
    works = [job(name, 0, 3 * M, shape=keeping(6000)) for name in "abc"]
    run = play("gandiva", trace_of(works), box())
    assert [run.started(name) for name in "abc"] == [0, M, 5 * M]


def test_nobody_is_interrupted_before_its_quantum_is_over_or_while_nobody_waits() -> None:
    works = [job("a", 0, 10 * M, shape=KEEPS), job("b", 90, 1 * M, shape=KEEPS)]
    run = play("gandiva(quantum=2m)", trace_of(works), box())
    assert doing(run, "suspend") == [(2, "a")]
    assert (run.started("b"), run.ended("b")) == (2 * M, 3 * M)
    assert doing(run, "resume") == [(3, "a")]


@pytest.mark.parametrize("stays", [OnPreempt.NEVER, OnPreempt.KILL])
def test_who_must_not_be_preempted_is_not_interrupted(stays: OnPreempt) -> None:
    works = [
        job("a", 0, 10 * M, shape=KEEPS, on_preempt=stays),
        job("b", 0, 1 * M, shape=KEEPS),
    ]
    assert play("gandiva", trace_of(works), box()).started("b") == 10 * M


def test_a_newcomer_lies_over_the_job_with_the_fewest_asleep_below_it() -> None:
    """Two GPUs. c goes to the first, d to the second: a third job on the first waits longer."""
    works = [job(name, 0, 20 * M, shape=keeping(4000)) for name in "ab"]
    works += [job(name, 1, 20 * M, shape=keeping(4000)) for name in "cd"]
    run = play("gandiva", trace_of(works), box(each=2))
    assert [run.started(name) for name in "cd"] == [M, M]
    last = [row for row in run.actions if row[1].startswith("start")]
    assert last == [
        (0, "start a on 0:0"),
        (0, "start b on 0:1"),
        (M, "start c on 0:0"),
        (M, "start d on 0:1"),
    ]


def test_a_gang_takes_the_place_of_a_gang_of_as_many_gpus() -> None:
    """The pair runs where the pair ran; the single job has a GPU to itself."""
    works = [
        job("single", 0, 9 * M, shape=keeping(4000)),
        job("pair", 0, 9 * M, shape=keeping(4000, 2)),
        job("later", 0, 1 * M, shape=keeping(4000, 2)),
    ]
    run = play("gandiva", trace_of(works), box(each=3))
    assert doing(run, "suspend") == [(1, "pair")]
    assert (run.ended("later"), run.ended("single")) == (2 * M, 9 * M)


def test_where_only_larger_jobs_compute_a_small_one_takes_the_turn_of_the_smallest() -> None:
    """The gang of two sleeps for a minute, not the one of three; its second GPU stays idle."""
    works = [
        job("three", 0, 9 * M, shape=keeping(4000, 3)),
        job("two", 0, 9 * M, shape=keeping(4000, 2)),
        job("small", 0, 1 * M, shape=keeping(4000)),
    ]
    run = play("gandiva", trace_of(works), box(each=5))
    assert doing(run, "suspend") == [(1, "two")]
    assert [run.ended(name) for name in ("small", "two", "three")] == [2 * M, 10 * M, 9 * M]


def test_a_job_is_placed_beside_jobs_of_its_size_then_on_an_empty_node() -> None:
    """Best fit alone would put d beside a, where one GPU is left, and c there, too."""
    works = [
        job("a", 0, 60, size=3), job("b", 1, 60, size=1), job("c", 2, 60, size=1),
        job("d", 3, 60, size=3), job("e", 4, 60, size=1),
    ]  # fmt: skip
    run = play("gandiva", trace_of(works), box(nodes=3, each=4))
    starts = [said for _, said in run.actions if said.startswith("start")]
    assert [said.rpartition(" ")[2][0] for said in starts] == ["0", "1", "1", "2", "1"]


# ---------------------------------------------------------------------- pairs


def starts(run: Played) -> list[str]:
    """Who was started where."""
    return [said.removeprefix("start ") for _, said in run.actions if said.startswith("start")]


def test_a_gang_counts_on_all_its_nodes_also_where_one_of_its_size_was_before() -> None:
    """b is on node 1 beside a, of five GPUs like itself, and on node 2. Once x has left, node 2
    still serves b, so that y goes to node 3, which serves nobody."""
    works = [
        job("a", 0, 60, size=5), job("x", 1, 8, size=1), job("z", 2, 8, size=4),
        job("b", 3, 60, size=5), job("y", 20, 9, size=1),
    ]  # fmt: skip
    run = play("gandiva", trace_of(works), box(nodes=4, each=4))
    assert starts(run) == [
        "a on 0:0,1,2,3 1:0",
        "x on 2:0",
        "z on 3:0,1,2,3",
        "b on 1:1,2,3 2:1,2",
        "y on 3:0",
    ]


def beside(first: float, second: float) -> Setup:
    """Models x and y do 10 steps a second alone, and beside each other these parts of it."""

    def model(other: str, part: float) -> Profile:
        alone = {"A": {1: 10.0, 2: 10.0}}
        both = {other: {"A": {1: 10.0 * part, 2: 10.0 * part}}}
        return Profile(measured=Measured(alone, "A", beside=both))

    profiles = Profiles(models={"x": model("y", first), "y": model("x", second)})
    return Setup(profiles=profiles)


def two(**more: Any) -> list[Work]:
    """Jobs of models x and y that would run 10 min alone."""
    return [job(name, 0, 10 * M, model=model, **more) for name, model in (("a", "x"), ("b", "y"))]


def test_a_pair_that_does_less_than_one_alone_is_tried_once_and_taken_apart() -> None:
    """The card's check: 0.6 + 0.3. From the third minute on both have run alone; until the fourth
    they are side by side, and never again."""
    run = play("gandiva", trace_of(two(shape=KEEPS)), box(), beside(0.6, 0.3))
    assert doing(run, "resume")[0] == (2, "a")
    assert doing(run, "suspend")[:3] == [(1, "a"), (3, "a"), (4, "b")]
    ends = [run.ended(name) for name in "ab"]
    assert ends == [pytest.approx(20.1 * M), pytest.approx(19.7 * M)]


def test_a_pair_that_does_more_than_one_alone_is_kept() -> None:
    """The card's check: 0.7 + 0.6. Together from the second minute on: a has 9 min left and takes
    9 / 0.7, then b is alone."""
    run = play("gandiva", trace_of(two(shape=KEEPS)), box(), beside(0.7, 0.6))
    assert doing(run, "suspend") == [(1, "a")]
    assert run.ended("a") == pytest.approx((2 + 9 / 0.7) * M)
    left = 9 - 0.6 * 9 / 0.7
    assert run.ended("b") == pytest.approx((2 + 9 / 0.7 + left) * M)
    assert (
        play("gandiva(pack=no)", trace_of(two(shape=KEEPS)), box(), beside(0.7, 0.6)).ended("a")
        == 19 * M
    )


def test_jobs_that_say_nothing_of_memory_are_paired_once_they_have_run_alone() -> None:
    run = play("gandiva", trace_of(two()), box(), beside(0.7, 0.6))
    assert doing(run, "stop") == [(1, "a")]
    assert run.ended("a") == pytest.approx((2 + 9 / 0.7) * M)
    assert doing(run, "start")[2] == (2, "a")


def test_what_a_pair_of_models_does_is_known_to_the_next_of_their_kind() -> None:
    """c and d come when a and b are over: they are not tried again."""
    later = [
        job(name, 30 * M, 3 * M, model=model, shape=KEEPS)
        for name, model in (("c", "x"), ("d", "y"))
    ]
    run = play("gandiva", trace_of([*two(shape=KEEPS), *later]), box(), beside(0.6, 0.3))
    assert [run.ended(name) for name in "cd"] == [35 * M, 36 * M]


def test_three_jobs_share_turns_between_a_pair_and_one() -> None:
    """z is known beside nobody, so it has its turns alone."""
    works = [*two(shape=keeping(5000)), job("c", 0, 4 * M, model="z", shape=keeping(5000))]
    run = play("gandiva", trace_of(works), box(), beside(0.7, 0.6))
    assert doing(run, "suspend")[:6] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
        (4, "a"),
        (4, "b"),
        (5, "c"),
    ]
    assert run.phase("c") == "finished"


def test_books_of_packed_and_sleeping_jobs_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody computes on more than a whole GPU, whatever is suspended, resumed and paired."""
    seen: list[int] = []
    check = Ledger.check

    def look(ledger: Ledger) -> None:
        seen.extend(used for node in ledger.shared for used, _ in node.values())
        check(ledger)

    monkeypatch.setattr(Ledger, "check", look)
    play("gandiva", trace_of(two(shape=KEEPS)), box(), beside(0.7, 0.6))
    assert {500, 1000} <= set(seen)
    assert max(seen) <= 1000


# ---------------------------------------------------------------------- beside other recipes


def test_turns_are_taken_beside_searches_and_services_too() -> None:
    """The search and the service hold a GPU each, and are interrupted by nobody."""
    works = [
        job("search", 0, None, shape=keeping(4000), kind=Kind.TUNE),
        job("trial", 0, 5 * M, parent="search", shape=keeping(2000)),
        job("web", 0, 20 * M, kind=Kind.SERVE, shape=gpus(1)),
        job("long", 1, 10 * M, shape=KEEPS),
        job("short", 2, 1 * M, shape=KEEPS),
    ]
    policy = Planes(
        registry.make("scale.static-peak"),
        TwoLevel(registry.make("gandiva"), registry.make("fifo")),
    )
    run = play(policy, trace_of(works), box(each=3), until=60 * MINUTE)
    assert doing(run, "suspend") == [(2, "long")]
    assert doing(run, "resume") == [(3, "long")]
    assert [run.ended(name) for name in ("trial", "short", "long")] == [5 * M, 3 * M, 11 * M + 1]


def test_trials_take_turns_inside_their_grant() -> None:
    works = [
        job("search", 0, None, shape=gpus(1), kind=Kind.TUNE),
        *(job(name, 0, 2 * M, parent="search", shape=keeping(4000)) for name in "ab"),
    ]
    policy = TwoLevel(registry.make("fifo"), registry.make("gandiva"))
    run = play(policy, trace_of(works), box())
    assert doing(run, "suspend") == [(1, "a"), (2, "b")]
    assert [run.ended(name) for name in "ab"] == [3 * M, 4 * M]


class Written:
    """A policy that writes its plan down, without the draft: a, then b over it, then a again."""

    name = "written"

    def decide(self, view: View, memory: None) -> tuple[Plan, None]:
        """The turn that begins now, if one does."""
        phase, actions = [Phase(view.at.phase[job]) for job in (0, 1)], list[AnyAction]()
        if phase == [Phase.PENDING, Phase.PENDING]:
            actions = [Start(0, 1, (Slot(0, 1, 1),))]
        elif phase == [Phase.RUNNING, Phase.PENDING] and view.now >= MINUTE:
            actions = [Suspend(0, 1, yields=True), Start(1, 1, (Slot(0, 1, 1),))]
        elif phase == [Phase.SUSPENDED, Phase.RUNNING] and view.now >= 2 * MINUTE:
            actions = [Suspend(1, 1, yields=True), Resume(0, 1)]
        return Plan(actions, [], view.now + MINUTE), None


def test_what_a_policy_writes_down_of_turns_is_drawn_for_it() -> None:
    works = [job(name, 0, 3 * M, shape=KEEPS) for name in "ab"]
    search = job("s", 0, None, shape=gpus(1), kind=Kind.TUNE)
    alone = play(Written(), trace_of(works), box(), until=3 * MINUTE)
    within = play(
        TwoLevel(Written(), registry.make("fifo")),
        trace_of([*works, search]),
        box(),
        until=3 * MINUTE,
    )
    assert alone.actions == within.actions
    assert doing(alone, "resume") == [(2, "a")]


def test_a_turn_that_was_written_down_is_in_the_draft_once_it_is_drawn() -> None:
    bench = Bench(*(job(name, 0, 3 * M, shape=KEEPS) for name in "ab"), on=box())
    bench.feed(0, Submitted(0), Submitted(1), then=[Start(0, 1, (Slot(0, 1, 1),))])
    bench.feed(0, Started(0, 1))
    view = bench.kernel.view
    turn: list[AnyAction] = [Suspend(0, 1, yields=True), Start(1, 1, (Slot(0, 1, 1),))]
    draw(view, Plan(turn))
    assert view.ledger.asleep == {0}
    actions = view.draft.plan().actions
    view.draft.rollback()
    assert [type(action) for action in actions] == [Suspend, Start]
    assert actions[0] == turn[0]


class Beside:
    """What another recipe left: jobs a and b on a GPU each, and c on both, beside them. From then
    on it is Gandiva's."""

    name = "beside"
    orders = (Suspend, Resume)

    def __init__(self) -> None:
        self.then = registry.make("gandiva")

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """First the three, then as the recipe says."""
        if view.now or memory is not None:
            return self.then.decide(view, None if memory == 0 else memory)
        for row, devices in enumerate((0b01, 0b10, 0b11)):
            slot = Slot(0, devices, devices.bit_count(), share=WHOLE // 2)
            view.draft.start(row, (slot,))
        return view.draft.plan(wake=1), 0


def test_who_is_beside_two_others_yields_once() -> None:
    """Two pairs that do too little, and c is the last of both."""
    works = [
        job("a", 0, 10 * M, model="x", shape=KEEPS),
        job("b", 0, 10 * M, model="x", shape=KEEPS),
    ]
    works.append(job("c", 0, 10 * M, model="y", shape=keeping(6000, 2)))
    run = play(Beside(), trace_of(works), box(each=2), beside(0.6, 0.3))
    assert [run.phase(name) for name in "abc"] == ["finished"] * 3
    assert doing(run, "suspend")[0][1] == "c"


def test_who_asks_for_a_part_of_a_gpu_keeps_that_part() -> None:
    """Two quarters are on one GPU from the start, and nobody gets a half."""
    needs = Needs(share=250, gpu_memory=3000)
    works = two(shape=Shape((Role(needs=needs),)))
    run = play("gandiva", trace_of(works), box(), beside(0.7, 0.6))
    assert [run.started(name) for name in "ab"] == [0, 0]
    assert doing(run, "suspend") == []
    shares = [
        action.placement[0].share
        for _, plan in run.diary.steps
        for action in (plan.actions if plan else ())
        if isinstance(action, Start)
    ]
    assert shares == [0, 0]


# ---------------------------------------------------------------------- what is measured


def halves() -> Bench:
    """Job a has run on half of GPU 0 for two minutes at twice the speed of the reference, b on
    half of GPU 1 for a second, c is starting on half of GPU 2, d runs beside a since one minute."""
    half = [(Slot(0, 1 << device, 1, share=WHOLE // 2),) for device in (0, 1, 2, 0)]
    bench = Bench(*(job(name, 0, 600) for name in "abcd"))
    come = [Submitted(row) for row in range(4)]
    bench.feed(0, *come, then=[Start(0, 1, half[0])])
    bench.feed(0, Started(0, 1, rate=2.0))
    bench.feed(59, Woke(), then=[Start(3, 1, half[3])])
    bench.feed(60, Started(3, 1, rate=1.0))
    bench.feed(118, Woke(), then=[Start(1, 1, half[1]), Start(2, 1, half[2])])
    bench.feed(119, Started(1, 1, rate=3.0))
    bench.feed(120, Woke())
    return bench


def test_those_that_ran_for_too_short_a_time_keep_no_other_from_being_measured() -> None:
    view = halves().kernel.view
    groups: list[tuple[int, ...]] = [(2,), (1,), (0,)]
    pays = PairsThatPay(60 * SECOND)
    pays.follow(view, None, [], groups)
    assert pays.learn(view, None) == Tried({0: 2.0}, {})


def test_a_pair_does_the_sum_of_the_parts_of_what_each_does_alone() -> None:
    """a runs at 2 of 4 and d at 1 of 5; of a job whose speed alone is not known nothing is said."""
    view = halves().kernel.view
    pays = PairsThatPay(60 * SECOND)
    pays.follow(view, None, [], [(2,), (0, 3)])
    both = pays.learn(view, Tried({0: 4.0, 3: 5.0}, {}))
    assert list(both.pairs.values()) == [pytest.approx(0.5 + 0.2)]
    assert list(pays.learn(view, Tried({0: 4.0}, {})).pairs.values()) == [0.0]
