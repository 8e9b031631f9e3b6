"""Groups that share GPUs: who is in them, when, and who is left in peace."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.core.books.ledger import members
from ganger.core.plan import Start
from ganger.core.profiles import Measured, Profile, Profiles, Stages
from ganger.core.spec import ClusterSpec, NodeSpec, OnPreempt
from ganger.core.units import SECOND
from ganger.lab.simulation import Setup, run_one
from ganger.sim.physics import Costs
from worlds import Played, Work, cluster, job, play, trace_of

KNOWN = Profiles(
    {
        "load": Profile(stages=(Stages((4, 0, 0, 0)),)),
        "prepare": Profile(stages=(Stages((0, 4, 0, 0)),)),
        "train": Profile(stages=(Stages((0, 0, 4, 0)),)),
        "send": Profile(stages=(Stages((0, 0, 0, 4)),)),
        "mixed": Profile(stages=(Stages((2, 0, 2, 0)),)),
        "other": Profile(stages=(Stages((0, 2, 0, 2)),)),
    }
)
"""Four that use one resource each, and two that use two each: all take 4 s alone."""


def model(name: str, called: str, lasts: float = 100, **more: Any) -> Work:
    return job(called, lasts=lasts, model=name, **more)


def run(recipe: str, works: list[Work], on: ClusterSpec | None = None, **setup: Any) -> Played:
    return play(recipe, works, on or cluster(1, 1), Setup(profiles=KNOWN, **setup))


def places(played: Played) -> dict[str, tuple[int, int]]:
    """Where each job was started first: node, devices."""
    found: dict[str, tuple[int, int]] = {}
    for _, plan in played.diary.steps:
        for action in plan.actions if plan is not None else []:
            if isinstance(action, Start):
                slot = action.placement[0]
                found.setdefault(played.jobs.name(action.job), (slot.node, slot.devices))
    return found


def test_the_pairs_of_the_card_share_or_take_turns() -> None:
    both = run("muri-s(every=10s)", [model("mixed", "a"), model("other", "b")])
    assert both.jct() == [100, 100], "each as fast as alone"
    turns = run("muri-s(every=10s)", [model("train", "a"), model("train", "b")])
    assert turns.jct() == [100, 200], "the sum of their speeds is 1: no group"


@pytest.mark.parametrize(("alike", "begins"), [(511, True), (512, False)])
def test_of_one_shape_the_first_512_jobs_are_grouped(alike: int, begins: bool) -> None:
    """All but the last use the same resource. Each of the 171 who find a GPU brings three: the
    last two, which are the last of 512."""
    works = [model("train", f"t{at}") for at in range(alike)] + [model("load", "last")]
    played = run("muri-s(every=10s,group=3)", works, cluster(171, 1), until=SECOND)
    assert ("last" in places(played)) is begins


def test_two_rounds_make_groups_of_four_and_one_makes_pairs() -> None:
    works = [model(name, name) for name in ("load", "prepare", "train", "send")]
    assert run("muri-s(every=10s)", works).jct() == [100] * 4
    assert run("muri-s(every=10s,group=3)", works).makespan == 200
    assert run("muri-s(every=10s,group=2)", works).makespan == 200
    assert run("muri-s(every=10s,group=1)", works).makespan == 400


def beside(**parts: float) -> Measured:
    """Ten steps a second alone, and such parts of that beside others."""
    others = {name: {"V100": {1: 10 * part}} for name, part in parts.items()}
    return Measured({"V100": {1: 10.0}}, "V100", {}, others)


def test_pairs_are_those_of_the_largest_total_and_not_the_best_pair_first() -> None:
    """b beside c is best, and leaves a and d, which may be with nobody else, alone."""
    known = Profiles(
        {
            "a": Profile(measured=beside(b=0.7)),
            "b": Profile(measured=beside(a=0.7, c=0.9)),
            "c": Profile(measured=beside(b=0.9, d=0.7)),
            "d": Profile(measured=beside(c=0.7)),
        }
    )
    works = [model(name, name) for name in known.models]
    where = places(play("muri-s(every=10s)", works, cluster(1, 2), Setup(profiles=known)))
    assert where["a"] == where["b"] != where["c"] == where["d"]
    assert play("muri-s(every=10s)", works[1:3], cluster(1, 1), profiles=known).jct() == (
        pytest.approx([100 / 0.9] * 2)
    )


def test_nobody_is_put_together_while_there_are_gpus_for_all() -> None:
    works = [model("load", "a"), model("train", "b")]
    alone = places(run("muri-s(every=10s)", works, cluster(1, 2)))
    assert alone["a"] != alone["b"]
    three = places(run("muri-s(every=10s)", [*works, model("send", "c")], cluster(1, 2)))
    assert len(set(three.values())) == 2, "one pair is enough, the third stays alone"


def test_only_jobs_of_equal_gpu_count_share() -> None:
    works = [model("load", "wide", size=2), model("train", "narrow")]
    both = run("muri-s(every=10s)", works, cluster(1, 2))
    assert both.makespan == 200
    wide = run("muri-s(every=10s)", [works[0], model("train", "as wide", size=2)], cluster(1, 2))
    assert wide.jct() == [100, 100]


def test_a_window_keeps_those_behind_it_out_of_groups() -> None:
    """The window has the two shortest of a kind; the others run when these have ended."""
    works = [model("load", f"load {i}", lasts=10 + i) for i in range(3)]
    works += [model("train", "train", lasts=50)]
    seen = run("muri-s(every=10s,window=2)", works)
    assert seen.started("train") == 11 + 10
    assert run("muri-s(every=10s)", works).started("train") == 0


def test_who_has_a_partner_or_gets_one_is_not_interrupted() -> None:
    works = [model("load", "a"), model("train", "b", lasts=200, at=15), model("send", "c", at=20)]
    seen = run("muri-s(every=10s)", works, costs=Costs(restore=30 * SECOND))
    assert seen.actions[:3] == [
        (0, "start a on 0:0"),
        (15, "start b on 0:0"),
        (25, "start c on 0:0"),
    ]
    assert not seen.jobs.preemptions[:3].any()
    assert seen.ended("a") == 100


def test_company_is_kept_among_equals() -> None:
    """Two of each model on two GPUs: whichever pairs are made first stay until one of them ends."""
    works = [model("load", f"load {i}", lasts=100 + i) for i in range(2)]
    works += [model("train", f"train {i}", lasts=200 - i) for i in range(2)]
    seen = run("muri-s(every=10s)", works, cluster(1, 2), costs=Costs(restore=SECOND))
    assert not seen.jobs.preemptions[:4].any()
    assert seen.makespan == 200


def test_those_who_must_not_be_preempted_or_need_more_than_gpus_run_alone() -> None:
    for more in ({"on_preempt": OnPreempt.NEVER}, {"on_preempt": OnPreempt.KILL}):
        works = [model("load", "a", **more), model("train", "b")]
        assert run("muri-s(every=10s)", works).makespan == 200
    unknown = [job("a", lasts=100), model("train", "b")]
    assert run("muri-s(every=10s)", unknown).makespan == 200


def test_a_gpu_that_is_free_between_rounds_is_taken_at_once() -> None:
    works = [model("train", "a", lasts=15), model("train", "b", lasts=100)]
    assert run("muri-s(every=10m)", works).started("b") == 15


def test_between_rounds_others_start_beside_those_that_run() -> None:
    works = [model("train", "a", lasts=15), model("train", "b"), model("train", "c")]
    seen = run("muri-s(every=10m)", works, cluster(1, 2))
    assert (seen.started("b"), seen.started("c")) == (0, 15)


def test_those_behind_one_that_is_in_the_window_already_are_looked_at_too() -> None:
    """Two narrow and two wide jobs on 3 GPUs run at once, since both kinds are grouped."""
    works = [model("load", "a"), model("train", "b")]
    works += [model(name, f"wide {name}", size=2) for name in ("load", "train")]
    assert run("muri-s(every=10s)", works, cluster(1, 3)).jct() == [100] * 4


def test_a_pair_that_pays_on_one_type_only_is_not_made_where_both_may_be_used() -> None:
    steps = {kind: {1: 10.0} for kind in ("A", "B")}
    beside = {"m": {"A": {1: 9.0}, "B": {1: 4.0}}}
    known = Profiles({"m": Profile(measured=Measured(steps, "A", {}, beside))})
    works = [model("m", f"j{i}") for i in range(3)]
    both = ClusterSpec((NodeSpec(gpus=1, gpu_type="A"), NodeSpec(gpus=1, gpu_type="B")))
    setup = Setup(profiles=known)
    assert play("muri-s(every=10s)", works, both, setup).makespan == 200
    one = ClusterSpec((NodeSpec(gpus=1, gpu_type="A"),))
    assert play("muri-s(every=10s)", works[:2], one, setup).jct() == pytest.approx([100 / 0.9] * 2)


def test_the_least_attained_service_goes_first_in_muri_l() -> None:
    """Two that cannot share take turns by the quantum, whatever is left of them."""
    works = [model("train", "long", lasts=40), model("train", "short", lasts=20)]
    seen = run("muri-l(every=10s,quantum=10s)", works)
    assert [said for _, said in seen.actions[:3]] == [
        "start long on 0:0",
        "stop long",
        "start short on 0:0 after long",
    ]
    assert seen.jct() == [60, 40]
    assert run("muri-s(every=10s)", works).jct() == [60, 20]


def test_groups_hold_quarters_of_the_same_devices() -> None:
    works = [model(name, name, size=2) for name in ("load", "prepare", "train")]
    seen = run("muri-s(every=10s)", works, cluster(1, 2))
    slots = [
        action.placement[0]
        for _, plan in seen.diary.steps
        for action in (plan.actions if plan is not None else [])
        if isinstance(action, Start)
    ]
    assert {(slot.devices, slot.share) for slot in slots} == {(0b11, 250)}
    assert list(members(slots[0].devices)) == [0, 1]


def test_a_round_that_nobody_waits_for_is_not_asked_for() -> None:
    alone = run("muri-s(every=10s)", [model("train", "a")])
    assert {batch.at for batch, _ in alone.diary.steps} == {0, 100 * SECOND}


@pytest.mark.parametrize(
    ("recipe", "called", "told"),
    [
        ("muri-l", "bert", True),
        ("muri-l", "train", False),
        ("fifo", "bert", False),
    ],
)
def test_a_run_in_which_no_model_can_share_says_so(recipe: str, called: str, told: bool) -> None:
    found = run_one(trace_of([model(called, "a")]), cluster(1, 1), recipe, Setup(profiles=KNOWN))
    assert any("no job shares GPUs" in note for note in found.notes) == told
