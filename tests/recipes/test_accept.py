"""Each recipe's hand check: numbers worked out on paper, from the catalogue's cards."""

from __future__ import annotations

import pytest

from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.core.units import SECOND
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage
from worlds import Work, cluster, job, play

FOUR_JOBS = [
    job("job 0", at=0, lasts=30, priority=3),
    job("job 1", at=0, lasts=10, priority=1),
    job("job 2", at=1, lasts=25, priority=2),
    job("job 3", at=4, lasts=40, priority=4),
]
"""The lecture's example, for two GPUs."""


@pytest.mark.parametrize(
    ("recipe", "jct", "average", "makespan"),
    [
        ("fifo", [30, 10, 34, 66], 35.0, 70),
        ("sjf", [30, 10, 34, 66], 35.0, 70),
        ("srtf", [39, 10, 25, 62], 34.0, 66),
        ("srsf", [39, 10, 25, 62], 34.0, 66),
        ("priority(highest=smallest)", [39, 10, 25, 62], 34.0, 66),
        ("priority(highest=largest)", [30, 53, 51, 40], 43.5, 53),
        ("priority(highest=smallest, preempt=no)", [30, 10, 34, 66], 35.0, 70),
        ("priority(highest=largest, preempt=no)", [30, 10, 54, 46], 35.0, 55),
        ("las(quantum=1s)", [47, 19, 41, 54], 40.25, 58),
        ("las(attained=time, quantum=1s)", [47, 19, 41, 54], 40.25, 58),
        ("mlfq(thresholds=10s)", [40, 10, 34, 61], 36.25, 65),
        ("backfill", [30, 10, 34, 66], 35.0, 70),
    ],
)
def test_the_lectures_four_jobs_on_two_gpus(
    recipe: str, jct: list[float], average: float, makespan: float
) -> None:
    run = play(recipe, FOUR_JOBS)
    assert run.jct() == jct
    assert sum(run.jct()) / 4 == average
    assert run.makespan == makespan


def test_fifo_lets_the_third_job_wait_26_seconds() -> None:
    run = play("fifo", FOUR_JOBS)
    assert run.started("job 3") == 4 + 26


def test_the_lectures_printed_priority_run_step_by_step() -> None:
    """[0,1) 0,1; [1,4) 0,2; [4,30) 0,3; [30,44) 2,3; [44,52) 1,2; [52,53) 1."""
    assert (
        play("priority", FOUR_JOBS).text()
        == """\
0: start job 0 on 0:0; start job 1 on 0:1
1: stop job 1; start job 2 on 0:1 after job 1
4: stop job 2; start job 3 on 0:1 after job 2
30: start job 2 on 0:0
44: start job 1 on 0:1"""
    )


def test_srtf_is_not_optimal_on_two_gpus() -> None:
    """Two unit jobs and one of 2, then two more unit jobs: total JCT 8, and 7 is possible."""
    works = [
        *(job(f"unit {i}", at=0, lasts=1) for i in range(2)),
        job("long", at=0, lasts=2),
        *(job(f"late {i}", at=2, lasts=1) for i in range(2)),
    ]
    assert sum(play("srtf", works).jct()) == 8
    longest_first = [
        work._replace(
            spec=work.spec.__class__(
                name=work.spec.name,
                submitted=work.spec.submitted,
                shape=work.spec.shape,
                priority=int(work.spec.name == "long"),
            )
        )
        for work in works
    ]
    assert sum(play("priority", longest_first).jct()) == 7


# ---------------------------------------------------------------------- chapter 0

HOUR = 3600
CHAPTER_0 = [
    job("Alice", lasts=6 * HOUR, size=4),
    job("Bob", lasts=1 * HOUR, size=2),
    job("Carol", lasts=HOUR // 2, size=1),
    job("Dave", lasts=3 * HOUR, size=2),
    job("Eve", lasts=HOUR // 4, size=1),
]


@pytest.mark.parametrize(
    ("recipe", "on_gpus", "starts_in_hours"),
    [
        ("fifo", 8, [0, 0, 0, 0.5, 1]),
        ("fifo(walk=skip)", 8, [0, 0, 0, 0.5, 0]),
        ("backfill", 8, [0, 0, 0, 0.5, 0]),
        ("backfill(walk=conservative)", 8, [0, 0, 0, 0.5, 0]),
        ("fifo", 4, [0, 6, 6, 6.5, 7]),
        ("backfill", 4, [0, 6, 6, 6.5, 6]),
    ],
)
def test_chapter_0_eve_waits_for_those_before_her_unless_backfilled(
    recipe: str, on_gpus: int, starts_in_hours: list[float]
) -> None:
    run = play(recipe, CHAPTER_0, cluster(1, on_gpus))
    names = ("Alice", "Bob", "Carol", "Dave", "Eve")
    assert [run.started(name) for name in names] == [hours * HOUR for hours in starts_in_hours]


# ---------------------------------------------------------------------- one card each


def test_mlfq_beats_fifo_on_one_gpu_with_short_late_jobs() -> None:
    works = [job("a", 0, 10), job("b", 3, 2), job("c", 4, 2)]
    assert play("mlfq(thresholds=2s)", works, cluster(1, 1)).jct() == [14, 2, 3]
    fifo = play("fifo", works, cluster(1, 1)).jct()
    assert sum(fifo) / 3 == pytest.approx(9.667, abs=5e-4)


def test_2d_las_ranks_the_one_gpu_job_first_after_an_hour_and_1d_las_ties() -> None:
    """Both ran one hour, on 4 and on 1 GPUs; a newcomer that needs all makes one of them go."""
    works = [
        job("wide", lasts=3 * HOUR, size=4),
        job("narrow", lasts=3 * HOUR, size=1),
        job("late", at=HOUR, lasts=HOUR, size=1),
    ]
    two = play("las(quantum=1h)", works, cluster(1, 5))
    assert two.actions[2:4] == [(HOUR, "stop wide"), (HOUR, "start late on 0:0 after wide")]
    one = play("las(attained=time, quantum=1h)", works, cluster(1, 5))
    assert one.actions[2][1] == "stop narrow", "a tie goes to the earlier one"


@pytest.mark.parametrize(
    ("last", "starts"),
    [
        pytest.param(job("C", lasts=10, size=2), 0, id="10 s end with A and delay nobody"),
        pytest.param(job("D", lasts=11, size=2), 15, id="11 s would delay the head"),
    ],
)
def test_easy_backfills_only_what_does_not_delay_the_head(last: Work, starts: float) -> None:
    works = [job("A", lasts=10, size=2), job("B", lasts=5, size=4), last]
    run = play("backfill", works, cluster(1, 4))
    assert run.started("B") == 10
    assert run.started(last.spec.name) == starts


def test_easy_counts_what_is_left_of_a_job_that_comes_back() -> None:
    """Its node fails when 100 s of 150 are behind it. The 50 s that are left end before the head
    may start; 150 and more would not."""
    works = [job("A", lasts=300), job("head", 1, 10, size=2), job("back", 2, 150)]
    saved = Costs(checkpoint_every=10 * SECOND)
    fails = (Outage(1, 102 * SECOND, 160 * SECOND),)
    run = play("backfill", works, cluster(2, 1), costs=saved, outages=fails)
    assert run.ended("back") == 210
    assert run.started("head") == 300


@pytest.mark.parametrize("recipe", ["fifo", "srtf", "las", "tiresias", "backfill", "mlfq"])
def test_two_gangs_of_4_on_6_gpus_one_waits_and_none_deadlocks(recipe: str) -> None:
    works = [job("one", lasts=5, size=4), job("two", lasts=7, size=4)]
    run = play(recipe, works, cluster(6, 1))
    assert (run.started("one"), run.ended("one")) == (0, 5)
    assert (run.started("two"), run.ended("two")) == (5, 12)


def test_edf_runs_the_nearest_deadline_first_and_those_without_one_last() -> None:
    works = [
        job("none", 0, 10),
        job("late", 1, 10, deadline=100),
        job("soon", 2, 10, deadline=20),
    ]
    run = play("edf", works, cluster(1, 1))
    assert [run.ended(name) for name in ("soon", "late", "none")] == [12, 21, 30]


def test_tiresias_demotes_by_gpu_time_and_keeps_whom_it_runs_among_equals() -> None:
    """Threshold 8 GPU-seconds: the gang of 4 falls after 2 s, the single job after 8 s."""
    works = [job("gang", 0, 10, size=4), job("one", 1, 10, size=1)]
    run = play("tiresias(thresholds=8s)", works, cluster(1, 4))
    assert (
        run.text()
        == """\
0: start gang on 0:0,1,2,3
2: stop gang; start one on 0:0 after gang
10: stop one; start gang on 0:0,1,2,3 after one
18: start one on 0:0"""
    )


TWO_NODES = ClusterSpec((NodeSpec(count=2, gpus=4, gpu_type="V100"),))
SKEWED = Profiles({"vgg": Profile(skewed=True), "resnet": Profile()})


def test_tiresias_consolidates_vgg_and_lets_resnet_take_any_gpus() -> None:
    """Two GPUs are free on one node and one on the other: VGG waits until one node has three."""
    fill = job("fill", lasts=5, size=2)
    for model, starts in (("resnet", 0), ("vgg", 5)):
        works = [
            fill,
            job("wide", lasts=9, size=3),
            job(model, lasts=1, model=model, size=3),
        ]
        run = play("tiresias", works, TWO_NODES, profiles=SKEWED)
        assert run.started(model) == starts, model


def test_who_comes_between_two_looks_at_the_queue_waits_for_the_next() -> None:
    """A look every 10 s: the first end, at 12, is seen at 20, and a job that comes at 41, to an
    idle cluster, starts at 50."""
    works = [job("first", 0, 12), job("next", 3, 5), job("lone", 41, 2)]
    for recipe in ("backfill(interval=10s)", "tiresias(interval=10s)"):
        run = play(recipe, works, cluster(1, 1))
        assert [run.started(name) for name in ("first", "next", "lone")] == [0, 20, 50], recipe
    assert play("backfill", works, cluster(1, 1)).started("next") == 12


def test_a_look_at_the_queue_goes_by_submission_or_by_first_start() -> None:
    """Two GPUs; when the gang's turn comes at 20 s, it came before `late`, which runs."""
    works = [job("one", 0, 20), job("gang", 1, 20, size=2), job("late", 2, 40)]
    for index, stopped in (("arrival", [(20, "stop late")]), ("least", [])):
        run = play(f"tiresias(index={index})", works, cluster(1, 2))
        assert [each for each in run.actions if each[1].startswith("stop")] == stopped, index


def test_times_are_exact_to_the_microsecond() -> None:
    run = play("fifo", [job("a", 0.000001, 0.000003), job("b", 0.000002, 1)], cluster(1, 1))
    assert run.jobs.finished[:2].tolist() == [4, 4 + SECOND]
