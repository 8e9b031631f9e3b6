"""No recipe is another one under a new name: each pair of neighbours differs where it should."""

from __future__ import annotations

import pytest

from ganger.core.profiles import Memory, Passes, Profile, Profiles, Stages
from ganger.core.spec import ClusterSpec, GpuType, Needs, NodeSpec, Role, Shape
from worlds import Work, cluster, job, play

ONE, FOUR = cluster(1, 1), cluster(1, 4)

SHORT_LATE = [job("long", 0, 10), job("short", 2, 3)]
WIDE_SHORT = [job("wide", 0, 4, size=4), job("narrow", 0, 10)]
HEAD_BLOCKED = [job("a", 0, 10, size=3), job("head", 1, 5, size=4), job("short", 2, 5)]
"""GPU 3 is free until the head may start at 10 s."""
THREE_WAIT = [
    job("a", 0, 10, size=2),
    job("head", 1, 5, size=3),
    job("second", 2, 10, size=4),
    job("filler", 3, 20, size=1),
]
TURNS = [job("a", 0, 8), job("b", 0, 8)]
DEADLINES = [job("late", 0, 5, priority=9, deadline=99), job("soon", 0, 5, deadline=9)]
LADDER = [job("low", 0, 5, priority=1), job("high", 0, 5, priority=2)]
WIDE_AND_LONG = [job("gang", 0, 30, size=4), job("late", 10, 30, size=1)]


def part(name: str, at: float, thousandths: int) -> Work:
    """A job that takes a part of one GPU for 9 s."""
    return job(name, at, 9, shape=Shape((Role(needs=Needs(share=thousandths)),)))


@pytest.mark.parametrize(
    ("one", "other", "works", "on", "ends"),
    [
        pytest.param(
            "fifo",
            "fifo(walk=skip)",
            HEAD_BLOCKED,
            FOUR,
            ([10, 15, 20], [10, 15, 7]),
            id="the strict walk blocks, skipping passes",
        ),
        pytest.param(
            "fifo",
            "backfill",
            HEAD_BLOCKED,
            FOUR,
            ([10, 15, 20], [10, 15, 7]),
            id="easy backfilling fills the gap",
        ),
        pytest.param(
            "fifo",
            "fgd",
            [part("a", 0, 500), part("b", 1, 300), part("c", 2, 200), job("whole", 3, 9)],
            cluster(1, 2),
            ([9, 10, 11, 12], [9, 10, 11, 18]),
            id="fgd keeps room for halves, not for a whole GPU",
        ),
        pytest.param("sjf", "srtf", SHORT_LATE, ONE, ([10, 13], [13, 5]), id="only srtf preempts"),
        pytest.param(
            "srtf", "srsf", WIDE_SHORT, FOUR, ([4, 14], [14, 10]), id="srsf counts the GPUs"
        ),
        pytest.param(
            "fifo",
            "sjf",
            [job("x", 0, 1), *(job(f"j{i}", 0.5, 3 - i) for i in (0, 1))],
            ONE,
            ([1, 4, 6], [1, 6, 3]),
            id="the shortest of those that wait",
        ),
        pytest.param(
            "priority(highest=largest)",
            "priority(highest=smallest)",
            LADDER,
            ONE,
            ([10, 5], [5, 10]),
            id="two readings of priority",
        ),
        pytest.param(
            "priority",
            "priority(preempt=no)",
            [job("low", 0, 5), job("high", 1, 5, priority=1)],
            ONE,
            ([10, 6], [5, 10]),
            id="priority with and without preemption",
        ),
        pytest.param(
            "edf",
            "priority",
            DEADLINES,
            ONE,
            ([10, 5], [5, 10]),
            id="the nearest deadline against the highest number",
        ),
        pytest.param(
            "las(quantum=2s)",
            "mlfq(thresholds=2s;20s)",
            TURNS,
            ONE,
            ([14, 16], [10, 16]),
            id="las takes turns for ever, mlfq at each threshold",
        ),
        pytest.param(
            "las(quantum=2s)", "fifo", TURNS, ONE, ([14, 16], [8, 16]), id="las takes turns"
        ),
        pytest.param(
            "las(quantum=2s)",
            "tiresias(thresholds=4s)",
            TURNS,
            ONE,
            ([14, 16], [12, 16]),
            id="tiresias lets a job run through its level",
        ),
        pytest.param(
            "tiresias(thresholds=40s)",
            "mlfq(thresholds=40s)",
            WIDE_AND_LONG,
            FOUR,
            ([60, 40], [30, 60]),
            id="tiresias counts GPUs, mlfq time",
        ),
        pytest.param(
            "las(attained=service,quantum=20s)",
            "las(attained=time,quantum=20s)",
            WIDE_AND_LONG,
            FOUR,
            ([60, 40], [50, 60]),
            id="2-D and 1-D las",
        ),
    ],
)
def test_neighbours_differ(
    one: str, other: str, works: list[Work], on: ClusterSpec, ends: tuple[list[float], list[float]]
) -> None:
    got = tuple(
        [run.ended(work.spec.name) for work in works]
        for run in (play(recipe, works, on) for recipe in (one, other))
    )
    assert got == ends
    assert got[0] != got[1]


def test_muri_shares_where_srsf_lets_wait_and_its_halves_know_different_things() -> None:
    """One loads while the other trains. Of two that both train the shorter goes first, or, where
    nobody knows which that is, the one that had less."""
    known = Profiles(
        {"load": Profile(stages=(Stages((4, 0)),)), "train": Profile(stages=(Stages((0, 4)),))}
    )
    pair = [job("a", 0, 10, model="load"), job("b", 0, 10, model="train")]
    ends = {name: play(name, pair, ONE, profiles=known).makespan for name in ("muri-s", "srsf")}
    assert ends == {"muri-s": 10, "srsf": 20}
    alike = [job("short", 0, 12, model="train"), job("late", 10, 10, model="train")]
    two = [
        play(f"{name}(every=5s{more})", alike, ONE, profiles=known)
        for name, more in (("muri-s", ""), ("muri-l", ",quantum=5s"))
    ]
    assert [each.jct() for each in two] == [[12, 12], [22, 10]]


PACKING = ("co-scheml", "yeung", "horus", "lucid")


@pytest.mark.parametrize(
    ("first", "second", "lasts", "starts"),
    [
        pytest.param(
            {"gpu": 0.6, "x": 0.0}, {"gpu": 0.6, "x": 0.6}, 10, [0, 10, 0, 10],
            id="a step takes 1.36 times as long, and they use 1.2 of the GPU",
        ),
        pytest.param(
            {"gpu": 0.3, "x": 0.9}, {"gpu": 0.2, "x": 0.9}, 10, [10, 0, 0, 10],
            id="a step takes 1.87 times as long, and they use 0.5 of the GPU",
        ),
        pytest.param({"gpu": 0.3}, {"gpu": 0.2}, 20, [0, 0, 0, 0], id="twice as much work"),
        pytest.param({"gpu": 0.3}, {"gpu": 0.2}, 21, [0, 0, 0, 10], id="more work than that"),
    ],
)  # fmt: skip
def test_recipes_that_pack_differ_in_what_they_predict_and_in_who_may_be_packed(
    first: dict[str, float], second: dict[str, float], lasts: int, starts: list[int]
) -> None:
    """When the second starts. Gandiva pairs only jobs that it has seen alone, and takes turns."""
    known = Profiles({"a": Profile(utilisation=first), "b": Profile(utilisation=second)})
    works = [job("a", 0, 10, model="a"), job("b", 0, lasts, model="b")]
    assert [play(each, works, ONE, profiles=known).started("b") for each in PACKING] == starts
    assert play("gandiva", works, ONE, profiles=known).started("b") == 10


def test_antman_keeps_a_guaranteed_job_whole_where_muri_slows_both_and_tgs_takes_3_percent() -> (
    None
):
    """60 % and 70 % of a GPU. A regression on use leaves both 1 / 1.42 of their speed."""
    known = Profiles(
        {"a": Profile(utilisation={"gpu": 0.6}), "b": Profile(utilisation={"gpu": 0.7})}
    )
    pair = [job("a", 0, 100, model="a"), job("b", 0, 100, model="b")]
    ends = {
        name: play(name, pair, ONE, profiles=known).jct()
        for name in ("antman(settle=0s)", "tgs(period=0s)", "muri-l", "fifo")
    }
    antman, tgs, muri, fifo = ends.values()
    assert antman == pytest.approx([100, 200 - 100 * 0.4 / 0.7])
    assert 101 < tgs[0] < 103.1
    assert muri[0] == pytest.approx(142)
    assert fifo == [100, 200]


def test_salus_takes_jobs_in_turn_where_others_that_pack_have_no_memory_for_both() -> None:
    """Both keep 5,000 MiB and take 9,000 in an iteration, of 20,000. Under
    yeung they run one after the other; AntMan moves memory of the second to the host and back."""
    need = Memory(5_000, 9_000, 0.2)
    known = Profiles({"m": Profile(utilisation={"gpu": 0.4}, memory=need)})
    spec = ClusterSpec((NodeSpec(gpus=1, gpu_type="A"),), (GpuType("A", memory=20_000),))
    pair = [job("a", 0, 100, model="m"), job("b", 0, 100, model="m")]
    ends = {
        name: play(name, pair, spec, profiles=known).jct()
        for name in ("salus", "antman(settle=0s)", "yeung", "fifo")
    }
    assert ends["salus"] == [200, 200]
    assert ends["antman(settle=0s)"][0] == 100
    assert 160 < ends["antman(settle=0s)"][1] < 200
    assert ends["yeung"] == ends["fifo"] == [100, 200]


def test_jigsaw_gains_where_salus_only_takes_turns() -> None:
    """Its steps take 5/6 of two in turn; half of the backward passes are left out by half of the
    workers."""
    known = Profiles(
        {
            "m": Profile(
                utilisation={"gpu": 1.0}, memory=Memory(10, 10, 0.3), passes=Passes(1.0, 2.0)
            )
        }
    )
    both = [job("a", 0, 90, size=2, model="m"), job("b", 0, 90, size=2, model="m")]
    two = cluster(1, 2)
    ends = {
        name: max(play(name, both, two, profiles=known).jct())
        for name in ("jigsaw", "salus(iterations=round_robin)", "muri-l", "fifo")
    }
    assert ends["jigsaw"] == pytest.approx(150)
    assert ends["salus(iterations=round_robin)"] == ends["fifo"] == 180
    assert ends["muri-l"] >= 180


def test_kubeshare_lets_a_busy_job_have_more_than_its_part_and_space_sharing_does_not() -> None:
    known = Profiles({"busy": Profile(utilisation={"gpu": 1.0})})
    half = [job("a", 0, 100, shape=Shape((Role(needs=Needs(share=500)),)), model="busy")]
    assert play("kubeshare", half, ONE, profiles=known).jct() == [50]
    assert play("space-sharing(mode=time)", half, ONE, profiles=known).jct() == [100]


def test_easy_protects_only_the_head_and_conservative_everyone_who_waits() -> None:
    """The filler would end at 23 s. It does not delay the head (at 10 s), but the second."""
    easy = play("backfill(walk=easy)", THREE_WAIT, FOUR)
    conservative = play("backfill(walk=conservative)", THREE_WAIT, FOUR)
    names = ("head", "second", "filler")
    assert [easy.started(name) for name in names] == [10, 23, 3]
    assert [conservative.started(name) for name in names] == [10, 15, 25]


def test_tiresias_places_by_tensor_skew_and_las_does_not() -> None:
    profiles = Profiles({"vgg": Profile(skewed=True)})
    works = [job("x", 0, 5, size=2), job("y", 0, 9, size=3), job("vgg", 0, 1, size=3, model="vgg")]
    on = cluster(2, 4)
    assert play("tiresias", works, on, profiles=profiles).started("vgg") == 5
    assert play("las", works, on, profiles=profiles).started("vgg") == 0
