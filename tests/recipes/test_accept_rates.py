"""Hand checks of recipes with guaranteed and opportunistic jobs, and with requests and limits:
AntMan, TGS, KubeShare."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.core.books.ledger import Ledger, members
from ganger.core.events import Failed, Finished, Released
from ganger.core.plan import Start, Tune
from ganger.core.profiles import Memory, Profile, Profiles, Stages
from ganger.core.spec import (
    ClusterSpec,
    GpuType,
    Kind,
    Locality,
    Needs,
    NodeSpec,
    OnPreempt,
    Role,
    Shape,
    TenantSpec,
)
from ganger.core.units import SECOND
from ganger.estimate.sharing.rates import HOST_MIB_PER_SECOND, settling
from ganger.lab.simulation import Setup
from ganger.mechanisms.common.two_level import TwoLevel
from ganger.recipes import registry
from ganger.sim.rows import Outage
from worlds import Played, Work, gpus, job, play

NOW = "antman(settle=0s)"


def box(nodes: int = 1, each: int = 1, memory: int = 16_000, **quotas: int) -> ClusterSpec:
    """Nodes of GPUs, and tenants with quotas."""
    tenants = tuple(TenantSpec(name, quota) for name, quota in quotas.items())
    node = NodeSpec(count=nodes, gpus=each, gpu_type="A")
    return ClusterSpec((node,), (GpuType("A", memory=memory),), tenants)


def models(memory: Memory | None = None, **used: float) -> Profiles:
    """Models that use so much of a GPU."""
    return Profiles(
        {name: Profile(utilisation={"gpu": part}, memory=memory) for name, part in used.items()}
    )


KNOWN = models(p6=0.6, p7=0.7, half=0.5, third=0.3, most=0.79, full=0.8, all=1.0)


def one(model: str, at: float = 0, lasts: float = 100, size: int = 1, **more: Any) -> Work:
    """A job named for its model, and when it comes."""
    return job(more.pop("name", f"{model}@{at:g}"), at, lasts, size=size, model=model, **more)


def told(run: Played, knob: str = "request") -> list[tuple[float, str, Any]]:
    """When which job was given what."""
    return [
        (batch.at / SECOND, run.jobs.name(action.job), action.knobs[knob])
        for batch, plan in run.diary.steps
        for action in (plan.actions if plan is not None else ())
        if isinstance(action, Tune)
    ]


# ---------------------------------------------------------------------- AntMan


def test_the_guaranteed_job_keeps_its_speed_and_the_other_has_40_percent() -> None:
    """The card's check: 60 % and 70 %."""
    run = play(NOW, [one("p6"), one("p7")], box(), profiles=KNOWN)
    assert run.jct() == pytest.approx([100, 100 + (100 - 100 * 0.4 / 0.7)])
    assert told(run) == [(0, "p6@0", 1.0), (0, "p7@0", 0.0), (100, "p7@0", 1.0)]


def test_until_its_rate_is_found_the_opportunistic_job_has_half_of_that() -> None:
    run = play("antman", [one("p6"), one("p7")], box(), profiles=KNOWN)
    assert run.jct() == pytest.approx([100, 200 - (10 * 0.2 + 90 * 0.4) / 0.7])
    slow = play("antman(settle=40s)", [one("p6"), one("p7")], box(), profiles=KNOWN)
    assert slow.jct() == pytest.approx([100, 200 - (40 * 0.2 + 60 * 0.4) / 0.7])


def test_a_guaranteed_job_that_needs_more_memory_never_fails() -> None:
    """The card's check: 14,000 MiB come to 10,000 on 16,000. The guaranteed job has all of it."""
    known = Profiles(
        {
            "spike": Profile(utilisation={"gpu": 0.5}, memory=Memory(4000, 10_000)),
            "other": Profile(utilisation={"gpu": 0.5}, memory=Memory(8000, 2000, 0.25)),
        }
    )
    run = play(NOW, [one("spike"), one("other")], box(), profiles=known)
    assert run.jct()[0] == 100
    part = 1 / (1 + 2 * 8000 / (HOST_MIB_PER_SECOND * 0.25))
    assert run.jct()[1] == pytest.approx(100 + (100 - 100 * part))


@pytest.mark.parametrize(
    ("recipe", "model", "starts"),
    [
        (NOW, "most", 0),
        (NOW, "full", 100),
        ("antman(busy=0.81)", "full", 0),
        ("antman(busy=0.79)", "most", 100),
    ],
)
def test_nobody_comes_to_a_gpu_that_is_used_for_80_percent_of_the_time(
    recipe: str, model: str, starts: float
) -> None:
    run = play(recipe, [one(model), one("third", 0)], box(), profiles=KNOWN)
    assert run.started("third@0") == starts


@pytest.mark.parametrize(
    ("recipe", "peak", "starts"),
    [
        (NOW, 16_383, 0),
        (NOW, 16_384, 100),
        ("antman(bound=9000)", 8999, 0),
        ("antman(bound=9000)", 9000, 100),
        ("antman(bound=0)", 20_000, 0),
    ],
)
def test_nobody_comes_to_a_gpu_whose_memory_is_needed(
    recipe: str, peak: float, starts: float
) -> None:
    known = Profiles(
        {
            "big": Profile(utilisation={"gpu": 0.5}, memory=Memory(peak - 1, 1)),
            "small": Profile(utilisation={"gpu": 0.5}, memory=Memory(10)),
        }
    )
    run = play(recipe, [one("big"), one("small")], box(memory=32_000), profiles=known)
    assert run.started("small@0") == starts


@pytest.mark.parametrize(
    ("memory", "seconds", "starts"), [(16_000, 0.0, 0), (15_999, 0.0, 100), (15_999, 0.5, 0)]
)
def test_memory_that_does_not_fit_must_be_able_to_move(
    memory: int, seconds: float, starts: float
) -> None:
    known = models(Memory(6000, 2000, seconds), a=0.5, b=0.5)
    run = play(NOW, [one("a"), one("b")], box(memory=memory), profiles=known)
    assert run.started("b@0") == starts


def test_what_is_guaranteed_does_not_move_for_a_guaranteed_job() -> None:
    """On the first GPU an opportunistic job has 15,000 MiB that cannot move, on the second one that
    can: the guaranteed job goes to the second."""
    known = Profiles(
        {
            "stuck": Profile(utilisation={"gpu": 0.5}, memory=Memory(15_000)),
            "moves": Profile(utilisation={"gpu": 0.5}, memory=Memory(15_000, 0, 0.5)),
        }
    )
    works = [
        one("stuck", tenant="none"),
        one("moves", tenant="none"),
        one("moves", 1, tenant="some"),
    ]
    run = play(NOW, works, box(1, 2, none=0, some=1), profiles=known)
    assert [said for _, said in run.actions if said.startswith("start")][
        2
    ] == "start moves@1 on 0:1"


def test_opportunistic_jobs_go_where_gpus_are_used_least() -> None:
    works = [one("p6"), one("third"), one("half"), one("p7", 1), one("p7", 2)]
    run = play(NOW, works, box(1, 3), profiles=KNOWN)
    starts = [said.rpartition(" ")[2] for _, said in run.actions if said.startswith("start")]
    assert starts == ["0:0", "0:1", "0:2", "0:1", "0:2"]


def test_a_gang_beside_others_takes_the_node_that_is_used_least() -> None:
    """Nodes of two GPUs: 0.6 + 0.3, and 0.5 + 0.3."""
    works = [one("p6"), one("third"), one("half"), one("third", 0, name="x")]
    works.append(one("p7", 1, size=2))
    run = play(NOW, works, box(2, 2), profiles=KNOWN)
    assert run.actions[-1][1] == "tune p7@1" or run.started("p7@1") == 1
    last = [said for _, said in run.actions if said.startswith("start")][-1]
    assert last == "start p7@1 on 1:0-1" or last == "start p7@1 on 1:0,1"


def test_only_so_many_opportunistic_jobs_come_to_a_gpu() -> None:
    works = [one("third"), one("third", 1), one("third", 2), one("third", 3)]
    assert play(NOW, works, box(), profiles=KNOWN).started("third@2") == 100
    three = play("antman(settle=0s,beside=2)", works, box(), profiles=KNOWN)
    assert [three.started(f"third@{at}") for at in (1, 2, 3)] == [1, 2, 100]
    slots = {
        slot.share
        for _, plan in three.diary.steps
        for action in (plan.actions if plan else ())
        for slot in getattr(action, "placement", ())
    }
    assert slots == {333}


def test_over_its_quota_a_tenant_has_opportunistic_jobs_even_on_free_gpus() -> None:
    """ann may have one GPU. Her second job is alone on the second GPU until bob's job comes, which
    is guaranteed there; hers becomes that when her first one ends."""
    works = [
        one("half", 0, 60, tenant="ann", name="first"),
        one("p6", 0, tenant="ann", name="second"),
        one("p7", 10, 30, tenant="bob", name="his"),
    ]
    run = play(NOW, works, box(1, 2, ann=1, bob=1), profiles=KNOWN)
    assert told(run) == [
        (0, "first", 1.0),
        (0, "second", 0.0),
        (10, "his", 1.0),
        (60, "second", 1.0),
    ]
    assert (run.ended("first"), run.ended("his")) == (60, 40)
    assert run.ended("second") == pytest.approx(100 + 30 - 30 * 0.3 / 0.6)


def test_who_becomes_guaranteed_is_not_beside_a_guaranteed_job() -> None:
    """Two opportunistic jobs on one GPU: the first becomes guaranteed, the second stays."""
    works = [one("third", at, 100, tenant="ann", name=f"j{at}") for at in range(3)]
    run = play("antman(settle=0s,beside=2)", works, box(), profiles=KNOWN)
    assert told(run) == [
        (0, "j0", 1.0),
        (1, "j1", 0.0),
        (2, "j2", 0.0),
        (100, "j1", 1.0),
        (101, "j2", 1.0),
    ]
    assert run.ended("j1") == 101


def test_a_gang_becomes_guaranteed_when_all_of_its_gpus_are_free_of_guaranteed_jobs() -> None:
    works = [one("third", 0, 50), one("third", 0, 80, name="longer"), one("half", 1, 200, size=2)]
    run = play(NOW, works, box(1, 2), profiles=KNOWN)
    assert told(run)[2:] == [(1, "half@1", 0.0), (80, "half@1", 1.0)]


def test_a_guaranteed_gang_may_span_nodes_over_opportunistic_jobs() -> None:
    """Each of three nodes has an opportunistic job; bob's gang of three is on all of them."""
    works = [one("third", 0, 100, tenant="ann", name=f"a{n}") for n in range(3)]
    works += [one("p6", 1, 10, size=3, tenant="bob")]
    spec = box(3, 1, ann=0, bob=3)
    run = play(NOW, works, spec, profiles=KNOWN)
    assert (run.started("p6@1"), run.ended("p6@1")) == (1, 11)
    near = [*works[:3], one("p6", 1, 10, tenant="bob", shape=gpus(3, locality=Locality.NODE))]
    near = [each for each in near if each.spec.shape.gpus < 3] + [
        job("near", 1, 10, shape=gpus(2, locality=Locality.NODE), model="p6", tenant="bob")
    ]
    assert play(NOW, near, box(1, 2, ann=0, bob=2), profiles=KNOWN).started("near") == 1


@pytest.mark.parametrize(
    "more",
    [
        {"shape": Shape((Role(needs=Needs(cpus=1000)),))},
        {"shape": Shape((Role(needs=Needs(gpu_memory=1000)),))},
        {"model": "unknown"},
    ],
)
def test_who_asks_for_more_than_gpus_or_is_not_known_shares_with_nobody(
    more: dict[str, Any],
) -> None:
    node = NodeSpec(gpus=1, gpu_type="A", cpus=8000, memory=64_000)
    spec = ClusterSpec((node,), (GpuType("A"),))
    apart = job("apart", 0, 100, **{"model": "third", **more})
    run = play(NOW, [apart, one("third", 1)], spec, profiles=KNOWN)
    assert run.started("third@1") == 100
    run = play(
        NOW,
        [one("third"), job("apart", 1, 100, **{"model": "third", **more})],
        spec,
        profiles=KNOWN,
    )
    assert run.started("apart") == 100


def test_stages_tell_how_much_of_a_gpu_a_model_uses_too() -> None:
    train = Profile(stages=(Stages((1.0, 6.0, 1.0), iteration=10.0),))
    known = Profiles({"train": train, "p7": Profile(utilisation={"gpu": 0.7})})
    run = play(NOW, [one("train"), one("p7")], box(), profiles=known)
    assert run.jct() == pytest.approx([100, 200 - 100 * 0.4 / 0.7])
    both = Profile(utilisation={"gpu": 0.9}, stages=train.stages)
    assert (both.compute(1), train.compute(1)) == pytest.approx((0.9, 0.6))
    assert Profile(stages=(Stages((1.0,)),)).compute(1) != Profile(
        stages=(Stages((1.0,)),)
    ).compute(1)
    assert Profile(stages=(Stages((0.0, 9.0, 1.0), iteration=5.0),)).compute(1) == 1.0


def test_nothing_is_shared_and_nothing_changes_where_no_model_is_known() -> None:
    works = [one("x", 0), one("y", 1)]
    run = play(NOW, works, box())
    assert [run.started(each.spec.name) for each in works] == [0, 100]
    assert told(run) == []


def test_a_node_that_fails_takes_both_classes_and_they_start_anew() -> None:
    setup_works = [one("third"), one("half")]
    outage = Outage(0, 20 * SECOND, 30 * SECOND)
    run = play(NOW, setup_works, box(), Setup(profiles=KNOWN, outages=(outage,)))
    assert {run.phase("third@0"), run.phase("half@0")} == {"finished"}
    assert told(run)[2:4] == [(30, "third@0", 1.0), (30, "half@0", 0.0)]


def test_trials_share_inside_their_grant() -> None:
    works = [
        job("search", 0, None, shape=gpus(1), kind=Kind.TUNE),
        *(job(n, 0, 100, parent="search", model=m) for n, m in (("a", "p6"), ("b", "p7"))),
    ]
    run = play(TwoLevel(registry.make("fifo"), registry.make(NOW)), works, box(), profiles=KNOWN)
    assert run.ended("a") == 100
    assert run.ended("b") == pytest.approx(200 - 100 * 0.4 / 0.7)


@settings(max_examples=25)
@given(st.data())
def test_devices_shares_and_classes_are_conserved(data: st.DataObject) -> None:
    """On every device at most one guaranteed job, at most two opportunistic ones, and no memory
    beyond what can move; and everybody finishes."""
    draw = data.draw
    known = Profiles(
        {
            f"m{i}": Profile(
                utilisation={"gpu": (i + 1) / 6},
                memory=Memory(draw(st.sampled_from([0, 3000, 9000])), 500, (i % 2) / 2),
            )
            for i in range(6)
        }
    )
    works = [
        one(
            draw(st.sampled_from(["m0", "m1", "m2", "m3", "m4", "m5", "none"])),
            draw(st.integers(0, 60)),
            draw(st.integers(1, 60)),
            draw(st.sampled_from([1, 1, 2, 3])),
            name=f"j{n}",
            tenant=draw(st.sampled_from(["ann", "bob"])),
            on_preempt=draw(st.sampled_from([OnPreempt.CHECKPOINT, OnPreempt.NEVER])),
        )
        for n in range(draw(st.integers(1, 14)))
    ]
    recipe = draw(st.sampled_from(["antman(beside=2)", "tgs", "antman(busy=1,bound=0,beside=2)"]))
    seen: list[dict[int, list[int]]] = []
    check = Ledger.check

    def look(ledger: Ledger) -> None:
        on: dict[int, list[int]] = {}
        for number, (_, placement) in ledger.holds.items():
            for slot in placement:
                for device in members(slot.devices):
                    on.setdefault(slot.node * 64 + device, []).append(number)
        seen.append(on)
        check(ledger)

    Ledger.check = look  # type: ignore[method-assign, assignment]
    try:
        run = play(recipe, works, box(2, 3, memory=10_000, ann=3), profiles=known)
    finally:
        Ledger.check = check  # type: ignore[method-assign]
    assert {run.phase(work.spec.name) for work in works} == {"finished"}
    assert max((len(jobs) for on in seen for jobs in on.values()), default=1) <= 3
    audit(run)


def audit(run: Played) -> None:
    """After no step are two jobs guaranteed on one device; a job has a class if it shares."""
    firm, where = dict[int, bool](), dict[int, list[tuple[int, int]]]()
    for batch, plan in run.diary.steps:
        for event in batch.events:
            if isinstance(event, Finished | Failed | Released):
                where.pop(event.job, None)
        for action in plan.actions if plan is not None else ():
            if isinstance(action, Start):
                slots = action.placement
                on = [(slot.node, device) for slot in slots for device in members(slot.devices)]
                where[action.job] = on
                firm[action.job] = not slots[0].share
            elif isinstance(action, Tune):
                firm[action.job] = action.knobs["request"] == 1.0
        taken = [device for job, on in where.items() if firm[job] for device in on]
        assert len(taken) == len(set(taken))


# ---------------------------------------------------------------------- TGS


def test_the_production_job_stays_within_3_percent_and_the_other_has_near_30() -> None:
    """The card's check: 70 % is used. Then the rate grows by half until the GPU is full."""
    run = play("tgs", [one("p7", lasts=2000), one("all", lasts=2000)], box(), profiles=KNOWN)
    ramp = settling(0.7, 1.0, 0.01)
    before = ramp.periods * ramp.before[0] / 0.7
    ends = ramp.periods + (2000 - before) / (ramp.after[0] / 0.7)
    assert run.jct()[0] == pytest.approx(ends)
    assert 2000 < ends < 2000 / 0.97
    had = ramp.periods * ramp.before[1] + (ends - ramp.periods) * ramp.after[1]
    assert 0.28 < had / ends < 0.32
    grows = settling(0.0, 1.0, round(ramp.after[1], 3))
    assert grows.periods == 3
    assert run.jct()[1] == pytest.approx(ends + 3 + 2000 - had - 3 * grows.before[1])


def test_the_period_says_how_long_a_rate_takes() -> None:
    works = [one("p6"), one("p7")]
    fast = play("tgs(period=1ms)", works, box(), profiles=KNOWN)
    assert fast.jct()[1] < play("tgs(period=10s)", works, box(), profiles=KNOWN).jct()[1]
    now = settling(0.6, 0.7, 0.01).after
    at_once = play("tgs(period=0s)", works, box(), profiles=KNOWN).jct()
    assert at_once[0] == pytest.approx(100 * 0.6 / now[0])


def test_under_tgs_a_job_stays_of_the_class_in_which_it_began() -> None:
    """Its neighbour: under antman the job that is left becomes guaranteed, and the next one is
    beside it; under tgs it gives way."""
    works = [one("third", 0, 50), one("p6", 1, 100), one("half", 60, 100)]
    tgs = play("tgs(period=0s)", works, box(), profiles=KNOWN)
    antman = play(NOW, works, box(), profiles=KNOWN)
    assert told(tgs) == [(0, "third@0", 1.0), (1, "p6@1", 0.0), (60, "half@60", 1.0)]
    assert told(antman)[2:4] == [(50, "p6@1", 1.0), (60, "half@60", 0.0)]
    assert told(tgs, "control")[0][2] == "arrival-rate"
    assert told(antman, "control")[0][2] == "step-time"
    assert told(play("tgs(period=2s)", works, box(), profiles=KNOWN), "settle_s")[0][2] == 2.0


# ---------------------------------------------------------------------- KubeShare


def part(share: int, memory: int = 0) -> Shape:
    """A part of a GPU, in thousandths."""
    return Shape((Role(needs=Needs(share=share, gpu_memory=memory)),))


def parts(*shares: int, **more: Any) -> list[Work]:
    """Jobs that request these parts, all at once."""
    return [job(f"j{at}", 0, 100, shape=part(share), **more) for at, share in enumerate(shares)]


def places(run: Played) -> dict[str, str]:
    """Where each job started."""
    starts = [said.split() for _, said in run.actions if said.startswith("start")]
    return {words[1]: words[3] for words in starts}


def test_three_requests_are_on_two_gpus() -> None:
    """The card's check: 0.5 + 0.4, and 0.3, the largest first."""
    run = play("kubeshare", parts(500, 300, 400), box(1, 2))
    assert places(run) == {"j0": "0:0", "j2": "0:0", "j1": "0:1"}


def test_its_neighbour_space_sharing_takes_them_as_they_come() -> None:
    run = play("space-sharing(mode=time)", parts(500, 300, 400), box(1, 2))
    assert places(run) == {"j0": "0:0", "j1": "0:0", "j2": "0:1"}


def test_two_busy_jobs_have_half_each_and_one_beside_an_idle_one_has_all() -> None:
    """The card's check: requests of 0.4, limits of 1. Run times are those at 0.4."""
    known = models(busy=1.0, idle=1e-9)
    both = play("kubeshare", parts(400, 400, model="busy"), box(), profiles=known)
    assert both.jct() == pytest.approx([80, 80])
    works = [*parts(400, model="busy"), job("idle", 0, 100, shape=part(400), model="idle")]
    assert play("kubeshare", works, box(), profiles=known).jct() == pytest.approx([40, 100])


def test_nobody_has_more_than_the_limit_and_nobody_less_than_it_requests() -> None:
    known = models(busy=1.0)
    run = play("kubeshare(limit=0.6)", parts(400, model="busy"), box(), profiles=known)
    assert run.jct() == pytest.approx([100 * 0.4 / 0.6])
    assert told(run, "limit") == [(0, "j0", 0.6)]
    run = play("kubeshare(limit=0.3)", parts(500, 500, model="busy"), box(), profiles=known)
    assert run.jct() == [100, 100]
    assert told(run, "limit") == [(0, "j0", 0.5), (0, "j1", 0.5)]


def test_a_job_whose_use_is_not_known_uses_what_it_requests() -> None:
    """It leaves 0.6, of which the busy one has all."""
    works = [*parts(400, model="busy"), job("x", 0, 100, shape=part(400), model="x")]
    run = play("kubeshare", works, box(), profiles=models(busy=1.0))
    assert run.jct() == pytest.approx([100 * 0.4 / 0.6, 100])
    assert play("kubeshare", works, box()).jct() == [100, 100]


def test_who_goes_leaves_its_part_to_the_others() -> None:
    works = [
        job("a", 0, 40, shape=part(500), model="busy"),
        job("b", 0, 100, shape=part(500), model="busy"),
    ]
    run = play("kubeshare", works, box(), profiles=models(busy=1.0))
    assert run.jct() == pytest.approx([40, 40 + 60 / 2])


def test_guaranteed_jobs_are_spread_and_others_packed() -> None:
    firm = play("kubeshare", parts(500, 300, 400, priority=1), box(1, 2))
    assert places(firm) == {"j0": "0:0", "j2": "0:1", "j1": "0:1"}
    three = play("kubeshare", parts(500, 300, 400, priority=1), box(1, 3))
    assert places(three) == {"j0": "0:0", "j2": "0:1", "j1": "0:2"}
    later = [*parts(300, 600), job("firm", 1, 100, shape=part(100), priority=1)]
    assert places(play("kubeshare", later, box()))["firm"] == "0:0"


def test_a_guaranteed_job_goes_first() -> None:
    works = [job("low", 0, 10, shape=part(900)), job("high", 0, 10, shape=part(800), priority=1)]
    run = play("kubeshare", works, box())
    assert (run.started("high"), run.started("low")) == (0, 10)
    early = [job("a", 0, 10, shape=part(1000)), job("b", 1, 10, shape=part(200)),
             job("c", 2, 10, shape=part(900))]  # fmt: skip
    assert play("kubeshare(walk=strict)", early, box()).started("b") == 10


def test_free_gpus_stay_together_and_memory_adds_up() -> None:
    """A gang of three has left one GPU of node 0: the part goes there, not to node 1."""
    works = [job("gang", 0, 100, size=3), job("j", 1, 100, shape=part(500, 9000)),
             job("k", 2, 100, shape=part(500, 9000))]  # fmt: skip
    run = play("kubeshare", works, box(2, 4))
    assert places(run)["j"] == "0:3"
    assert places(run)["k"] == "1:0"
    small = [*works[:2], job("k", 2, 100, shape=part(500, 7000))]
    assert places(play("kubeshare", small, box(2, 4)))["k"] == "0:3"


def test_whole_gpus_are_taken_as_ever() -> None:
    run = play("kubeshare", [job("a", 0, 10, size=2), *parts(500)], box(1, 2))
    assert told(run) == [(10, "j0", 0.5)]
