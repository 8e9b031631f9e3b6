"""Hand checks of recipes whose jobs run iterations in turn: Salus, JigSaw."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.core.events import Failed, Finished, Released
from ganger.core.plan import Placement, Start, Tune
from ganger.core.profiles import Memory, Passes, Profile, Profiles
from ganger.core.spec import ClusterSpec, GpuType, Needs, NodeSpec, OnPreempt, Role, Shape
from ganger.core.units import SECOND
from ganger.core.view import View
from ganger.lab.simulation import Setup
from ganger.mechanisms.ordering.admit import Walk
from ganger.mechanisms.ordering.order import By
from ganger.mechanisms.ordering.queue import QueuePolicy
from ganger.mechanisms.sharing.lanes import ByLanes, LanePolicy, Turns
from ganger.recipes.training.sharing.lane_scores import InLanes
from ganger.sim.rows import Outage
from worlds import Played, Work, job, play

ALL = ("pack", "fair", "round_robin", "preempt")
NEED = Memory(2000, 6000, 0.5)


def box(nodes: int = 1, each: int = 1, memory: int = 16_000) -> ClusterSpec:
    """Nodes of GPUs."""
    node = NodeSpec(count=nodes, gpus=each, gpu_type="A")
    return ClusterSpec((node,), (GpuType("A", memory=memory),))


def models(memory: Memory = NEED, **used: float) -> Profiles:
    """Models that use so much of a GPU, and need as much memory."""
    return Profiles(
        {name: Profile(utilisation={"gpu": part}, memory=memory) for name, part in used.items()}
    )


def one(model: str, at: float = 0, lasts: float = 100, size: int = 1, **more: Any) -> Work:
    """A job of a model."""
    return job(more.pop("name", f"{model}@{at:g}"), at, lasts, size=size, model=model, **more)


def salus(
    works: list[Work], spec: ClusterSpec, known: Profiles, iterations: str = "pack", **more: Any
) -> Played:
    """A run under Salus."""
    return play(f"salus(iterations={iterations})", works, spec, profiles=known, **more)


def seats(run: Played) -> list[tuple[float, str, Any, Any]]:
    """When which job was given which lane and turn."""
    return [
        (batch.at / SECOND, run.jobs.name(action.job), action.knobs["lane"], action.knobs["turn"])
        for batch, plan in run.diary.steps
        for action in (plan.actions if plan is not None else ())
        if isinstance(action, Tune)
    ]


@pytest.mark.parametrize("iterations", ALL)
def test_one_lane_holds_five_jobs_where_peaks_would_hold_two(iterations: str) -> None:
    """The card's check: 16,000 MiB; each keeps 2,000 and takes 6,000 in an iteration. One lane:
    5 x 2,000 + 6,000."""
    works = [one("m", 0, name=f"j{at}") for at in range(6)]
    assert begun(salus(works, box(), models(m=1.0), iterations)) == 5
    assert begun(salus(works, box(memory=15_999), models(m=1.0), iterations)) == 4
    assert begun(play("yeung(limit=9)", works, box(), profiles=models(m=1.0))) == 2, "their peaks"


def begun(run: Played) -> int:
    """How many jobs were started at once."""
    return sum(at == 0 and said.startswith("start") for at, said in run.actions)


def test_as_many_lanes_as_memory_allows_compute_side_by_side() -> None:
    """Two lanes need all of 16,000 MiB; with a third job there is one for all. When it is over
    there are two again, and each job, which uses half of the GPU, has its full speed."""
    works = [one("m", 0, 100, name="a"), one("m", 0, 100, name="b"), one("m", 50, 10, name="c")]
    run = salus(works, box(), models(m=0.5))
    assert seats(run) == [
        (0, "a", 1, "time"),
        (0, "b", 2, "time"),
        (50, "b", 1, "time"),
        (50, "c", 1, "time"),
        (80, "b", 2, "time"),
    ]
    assert run.jct() == pytest.approx([120, 120, 30])
    fair = salus(works, box(), models(m=0.5), "fair")
    assert fair.ended("c") == 80
    assert fair.jct() == pytest.approx([210, 210, 30])


def test_lanes_divide_a_gpu_by_what_their_jobs_use_in_turn() -> None:
    """Four jobs need 800 MiB each within an iteration, and two lanes fit. The first uses 0.4 on
    average and has that; the other would use 0.8 and has 0.6, until the first is over and its jobs
    get a lane each."""
    known = models(Memory(100, 800), a=0.6, b=0.2, c=0.8, d=0.8)
    works = [one(name, 0, 100, name=name) for name in "abcd"]
    run = salus(works, box(memory=2100), known)
    assert [row[2] for row in seats(run)][:4] == [1, 1, 2, 2]
    left = 100 - 200 * 0.5 * 0.6 / 0.8
    assert run.jct() == pytest.approx([200, 200, *[200 + left / (0.5 / 0.8)] * 2])


def test_turns_are_equal_in_time_or_in_iterations() -> None:
    """An iteration of one takes 0.3 s, of the other 0.1 s."""
    known = Profiles(
        {
            "slow": Profile(utilisation={"gpu": 1.0}, memory=Memory(10, 10, 0.3)),
            "fast": Profile(utilisation={"gpu": 1.0}, memory=Memory(10, 10, 0.1)),
        }
    )
    works = [one("slow"), one("fast")]
    assert salus(works, box(), known, "fair").jct() == [200, 200]
    turn = salus(works, box(), known, "round_robin")
    assert turn.jct() == pytest.approx([100 / 0.75, 200])


def test_who_ends_first_computes_and_the_others_keep_their_memory() -> None:
    """b is the shorter one from the moment it comes, a goes on at once when it ends; a job that
    would be shorter than what a has left, but not than b, waits."""
    works = [one("m", 0, 100, name="a"), one("m", 20, 30, name="b"), one("m", 30, 40, name="c")]
    run = salus(works, box(), models(m=1.0), "preempt")
    assert seats(run) == [
        (0, "a", 1, "time"),
        (20, "a", 1, "wait"),
        (20, "b", 1, "time"),
        (30, "c", 1, "wait"),
        (pytest.approx(50), "c", 1, "time"),
        (pytest.approx(90, abs=0.1), "a", 1, "time"),
    ]
    assert run.jct() == pytest.approx([170, 30, 60], rel=2e-3), "who waits keeps a thousandth"
    assert not run.jobs.preemptions[:3].any()


def test_priority_goes_before_length() -> None:
    works = [one("m", 0, 100, name="a"), one("m", 10, 200, name="b", priority=2)]
    run = salus(works, box(), models(m=1.0), "preempt")
    assert run.ended("b") == 210
    later = [*works, one("m", 20, 10, name="c", priority=1)]
    assert salus(later, box(), models(m=1.0), "preempt").ended("b") == 210
    line = [one("m", at, 10, name=f"j{at}", priority=at) for at in range(4)]
    alone = play("salus(iterations=preempt,share=1)", line, box(), profiles=models(m=1.0))
    assert [alone.started(f"j{at}") for at in (3, 2, 1)] == [10, 20, 30]


def test_no_more_than_four_lanes_compute_side_by_side() -> None:
    works = [one("m", 0, name=f"j{at}") for at in range(5)]
    run = salus(works, box(), models(Memory(10, 10), m=0.1))
    assert [lane for _, _, lane, _ in seats(run)][:5] == [1, 2, 3, 4, 4]


def test_whose_turn_it_is_changes_with_who_comes_and_not_with_what_is_believed() -> None:
    """From 50 s on the last would go first. At 60 s the one that waits as the third is over, and
    nothing else changes; at 70 s one more comes."""

    def turning(view: View, job: int) -> float:
        return float(job if view.now < 50 * SECOND else -job)

    score = InLanes(1)
    place = ByLanes(score=score, bound=9, together=9)
    queue = QueuePolicy("turning", walk=Walk.SKIP, place=place)
    policy = LanePolicy(queue, place, Turns.FIRST, By((turning,)))
    works = [one("m", 0, name="a"), one("m", 0, name="b"), one("m", 0, name="c", limit=60)]
    run = play(
        policy, [*works, one("m", 70, 10, name="d")], box(memory=99_000), profiles=models(m=1.0)
    )
    first = [(at, name) for at, name, _, turn in seats(run) if turn == "time"]
    assert first[:2] == [(0, "a"), (70, "d")]


@pytest.mark.parametrize(
    "more",
    [
        {"shape": Shape((Role(needs=Needs(cpus=1000)),))},
        {"shape": Shape((Role(needs=Needs(gpu_memory=1000)),))},
        {"on_preempt": OnPreempt.NEVER},
        {"model": "unknown"},
    ],
)
def test_who_asks_for_more_or_stays_or_is_not_known_shares_with_nobody(
    more: dict[str, Any],
) -> None:
    node = NodeSpec(gpus=1, gpu_type="A", cpus=8000, memory=64_000)
    spec = ClusterSpec((node,), (GpuType("A"),))
    apart = job("apart", 0, 100, **{"model": "m", **more})
    assert salus([apart, one("m", 1)], spec, models(m=0.1)).started("m@1") == 100
    apart = job("apart", 1, 100, **{"model": "m", **more})
    assert salus([one("m"), apart], spec, models(m=0.1)).started("apart") == 100


def test_only_turns_by_iteration_need_to_know_how_long_one_takes() -> None:
    known = models(Memory(10, 10), m=0.5)
    works = [one("m"), one("m", 1)]
    starts = {each: salus(works, box(), known, each).started("m@1") for each in ALL}
    assert starts == {"pack": 1, "fair": 1, "round_robin": 100, "preempt": 1}


def test_who_knows_nothing_shares_nothing() -> None:
    setup = Setup(profiles=models(m=0.5), knows="nothing")
    assert play("salus", [one("m"), one("m", 1)], box(), setup).started("m@1") == 100


def test_free_gpus_come_first_and_then_those_where_steps_are_least_longer() -> None:
    """0.9 and 0.1 on two GPUs: beside 0.9 the third would have both lose."""
    works = [one("most"), one("bit", 0), one("half", 1), one("half", 2)]
    known = models(Memory(10, 10), most=0.9, bit=0.1, half=0.5)
    run = salus(works, box(1, 2), known)
    on = [said.split()[-1] for _, said in run.actions if said.startswith("start")]
    assert on == ["0:0", "0:1", "0:1", "0:1"]


def test_a_gang_shares_all_of_its_gpus_with_gangs_of_its_size_alone() -> None:
    works = [one("m", 0, size=2), one("m", 1, size=2), one("m", 2)]
    run = salus(works, box(1, 2), models(m=0.5))
    assert [run.started(each.spec.name) for each in works] == [0, 1, 101]


def test_of_more_jobs_than_share_the_last_waits() -> None:
    works = [one("m", at, name=f"j{at}") for at in range(4)]
    known = models(Memory(10, 10), m=0.2)
    run = play("salus(share=3)", works, box(), profiles=known)
    assert [run.started(f"j{at}") for at in range(4)] == [0, 1, 2, 100]


def test_a_node_that_fails_takes_all_of_a_lane_and_they_start_anew() -> None:
    outage = Outage(0, 20 * SECOND, 30 * SECOND)
    works = [one("m", 0, name="a"), one("m", 0, name="b")]
    run = play(
        "salus(iterations=preempt)", works, box(), Setup(profiles=models(m=1.0), outages=(outage,))
    )
    assert seats(run)[2:4] == [(30, "a", 1, "time"), (30, "b", 1, "wait")]
    assert {run.phase("a"), run.phase("b")} == {"finished"}


@settings(max_examples=25)
@given(st.data())
def test_memory_and_time_of_each_gpu_are_conserved(data: st.DataObject) -> None:
    """At no time do those that persist, and of each lane the largest iteration, need more than
    there is; on one GPU nothing is done twice over; and everybody finishes."""
    draw = data.draw
    known = Profiles(
        {
            f"m{i}": Profile(
                utilisation={"gpu": (i + 1) / 5},
                memory=Memory(
                    draw(st.sampled_from([0, 1000, 3000])),
                    draw(st.sampled_from([0, 2000, 6000])),
                    0.1 * (i + 1),
                ),
            )
            for i in range(5)
        }
    )
    names = st.sampled_from([*known.models, "none"])
    works = [
        one(
            draw(names),
            draw(st.integers(0, 60)),
            draw(st.integers(1, 60)),
            draw(st.sampled_from([1, 1, 2, 3])),
            name=f"j{n}",
            priority=draw(st.integers(0, 1)),
        )
        for n in range(draw(st.integers(1, 14)))
    ]
    size = draw(st.sampled_from([9000, 10_000, 16_000]))
    run = salus(works, box(2, 3, size), known, draw(st.sampled_from(ALL)))
    assert {run.phase(work.spec.name) for work in works} == {"finished"}
    conserved(run, known, size)


def conserved(run: Played, known: Profiles, size: int) -> None:
    """Walk the diary."""
    where, seat = dict[int, Placement](), dict[int, int]()
    for batch, plan in run.diary.steps:
        for event in batch.events:
            if isinstance(event, Finished | Failed | Released):
                where.pop(event.job, None)
                seat.pop(event.job, None)
        for action in plan.actions if plan is not None else ():
            if isinstance(action, Start):
                where[action.job] = action.placement
            elif isinstance(action, Tune):
                seat[action.job] = int(action.knobs["lane"])
        need: dict[tuple[int, int], float] = {}
        lanes: dict[tuple[int, int, int], float] = {}
        for number, placement in where.items():
            memory = known.of(run.jobs.models[run.jobs.model[number]]).memory or Memory(0)
            for slot in placement:
                for device in range(8):
                    if slot.devices >> device & 1:
                        key = slot.node, device
                        need[key] = need.get(key, 0) + memory.persistent
                        lane = *key, seat.get(number, -number - 1)
                        lanes[lane] = max(lanes.get(lane, 0), memory.ephemeral)
        for (node, device, _), ephemeral in lanes.items():
            need[node, device] += ephemeral
        assert all(mib <= size for mib in need.values())


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 40)), min_size=1, max_size=8),
    st.sampled_from(ALL),
)
def test_a_gpu_does_no_more_than_it_can(drawn: list[tuple[int, int]], iterations: str) -> None:
    """What the jobs use of it alone, in all, takes at least as long; and in one lane no more than
    one of them computes at a time."""
    known = models(Memory(100, 100, 0.1), **{f"m{i}": i / 5 for i in range(1, 6)})
    works = [one(f"m{i}", 0, lasts, name=f"j{n}") for n, (i, lasts) in enumerate(drawn)]
    run = salus(works, box(), known, iterations)
    ends = max(run.jct())
    alone = sum(lasts for _, lasts in drawn)
    leak = 1 + 0.001 * len(drawn)
    assert ends * leak >= sum(i / 5 * lasts for i, lasts in drawn)
    if iterations != "pack":
        assert alone / leak <= ends <= alone + 1e-3


# ---------------------------------------------------------------------- JigSaw

PASSES = Passes(1.0, 2.0)


def trained(used: float = 1.0, passes: Passes = PASSES, **more: float) -> Profiles:
    """Models with these passes, by the seconds of an iteration: `m` has 3."""
    return Profiles(
        {
            name: Profile(
                utilisation={"gpu": used}, memory=Memory(1000, 1000, seconds), passes=passes
            )
            for name, seconds in {"m": 3.0, **more}.items()
        }
    )


def pair(size: int = 2, **more: Any) -> list[Work]:
    """Two jobs of a model."""
    return [one("m", 0, 100, size, name="a", **more), one("m", 0, 100, size, name="b", **more)]


def test_two_workers_take_five_seconds_for_what_took_six() -> None:
    """The card's check: forward 1, backward 2, fractions 1 and 0.5. A step of each of two jobs
    takes 3 + 2 seconds of both GPUs, and not 3 + 3."""
    run = play("jigsaw", pair(), box(1, 2), profiles=trained())
    assert run.jct() == pytest.approx([100 * 5 / 3] * 2)
    half = play("jigsaw", pair(), box(1, 2), profiles=trained(used=0.5))
    assert half.jct() == pytest.approx([100 * 5 / 3] * 2), "one iteration at a time"
    assert salus(pair(), box(1, 2), trained(), "round_robin").jct() == pytest.approx([200, 200])
    first = play("jigsaw(fraction=0)", pair(), box(1, 2), profiles=trained())
    assert first.jct() == pytest.approx([100 * 4 / 3] * 2)


def test_full_workers_are_on_different_gpus_as_far_as_there_are_enough() -> None:
    """Three jobs: on three GPUs a step takes 3 + 2 + 2 seconds, on two of them 3 + 2 + 3."""
    for size, seconds in ((3, 7), (2, 8)):
        works = [one("m", 0, 100, size, name=name) for name in "abc"]
        run = play("jigsaw(share=3)", works, box(1, size), profiles=trained())
        assert run.jct() == pytest.approx([100 * seconds / 3] * 3)


def test_a_job_that_is_left_alone_does_all_layers_again() -> None:
    """Until 50 s a and b do 0.6 each; then a has what is left at its own speed."""
    works = [one("m", 0, 100, 2, name="a"), one("m", 0, 30, 2, name="b")]
    run = play("jigsaw", works, box(1, 2), profiles=trained(passes=Passes(1.0, 2.0, 0.0)))
    assert run.jct() == pytest.approx([50 + 70, 50])
    knobs = [
        (batch.at / SECOND, run.jobs.name(a.job), a.knobs["backward"], a.knobs["full"])
        for batch, plan in run.diary.steps
        for a in (plan.actions if plan is not None else ())
        if isinstance(a, Tune)
    ]
    assert knobs == [
        (0, "a", 0.5, 0),
        (0, "b", 0.5, 1),
        (pytest.approx(50), "a", 1.0, 0),
    ]


def test_lost_steps_count_in_time_and_in_who_goes_together() -> None:
    """Half of the workers leave out half of the layers, a quarter in all: with a loss of 0.4
    training takes 1.1 times as many steps. Together they then do 1.2 / 1.1."""
    lossy = trained(passes=Passes(1.0, 2.0, 0.4))
    run = play("jigsaw", pair(), box(1, 2), profiles=lossy)
    assert run.jct() == pytest.approx([100 * 1.1 * 5 / 3] * 2)
    assert play("jigsaw(gain=1.1)", pair(), box(1, 2), profiles=lossy).jct() == [100, 200]
    assert play("jigsaw(gain=1.2)", pair(), box(1, 2), profiles=trained()).started("b") == 0
    assert play("jigsaw(gain=1.21)", pair(), box(1, 2), profiles=trained()).started("b") == 100


def test_a_longer_iteration_is_a_longer_turn() -> None:
    """Iterations of 3 and 1 s. One GPU has 3 + 2/3, the other 2 + 1: both jobs do a step in 11/3 s,
    which is 1.09 of what one does alone."""
    works = [one("m", 0, 300, 2), one("n", 0, 100, 2)]
    run = play("jigsaw", works, box(1, 2), profiles=trained(n=1.0))
    assert run.jct()[0] == pytest.approx(300 * 11 / 9)
    assert play("jigsaw(gain=1.1)", works, box(1, 2), profiles=trained(n=1.0)).started("n@0") == 300


@pytest.mark.parametrize(
    ("works", "known"),
    [
        (pair(size=1), trained()),
        (pair(shape=Shape((Role(size=2, needs=Needs(cpus=10)),))), trained()),
        (pair(), models(Memory(1000, 1000, 3.0), m=1.0)),
        (pair(), models(Memory(1000, 1000), m=1.0)),
        (pair(), trained(passes=Passes(2.0, 1e-6))),
    ],
)
def test_who_gains_nothing_or_is_not_known_shares_with_nobody(
    works: list[Work], known: Profiles
) -> None:
    node = NodeSpec(gpus=2 if works[0].spec.shape.gpus > 1 else 1, gpu_type="A", cpus=8000)
    spec = ClusterSpec((node,), (GpuType("A", memory=16_000),))
    assert play("jigsaw", works, spec, profiles=known).jct() == [100, 200]


def test_memory_of_jigsaw_is_that_of_one_lane() -> None:
    known = Profiles(
        {"m": Profile(utilisation={"gpu": 1.0}, memory=Memory(2000, 6000, 3.0), passes=PASSES)}
    )
    works = [one("m", 0, 100, 2, name=f"j{at}") for at in range(6)]
    for memory, many in ((16_000, 5), (15_999, 4)):
        run = play("jigsaw(share=9)", works, box(1, 2, memory), profiles=known)
        assert begun(run) == many
        conserved(run, known, memory)
