"""Singularity: who is spliced onto fewer GPUs for whom, worked out by hand."""

from __future__ import annotations

import pytest

from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import Role, Shape
from ganger.core.units import SECOND
from ganger.sim.physics import Costs
from worlds import Played, Work, cluster, job, play

PROXY = Costs(rescale="device-proxy")


def spliceable(name: str, at: float, lasts: float, size: int, priority: int = -1) -> Work:
    """A job that may be on any number of GPUs up to the `size` it asks for."""
    shape = Shape((Role(size=size, least=1, most=size),))
    return job(name, at, lasts, shape=shape, priority=priority)


def sizes(run: Played) -> list[int]:
    """GPUs that each job holds at the end."""
    return [int(run.jobs.size[row]) for row in range(run.jobs.n)]


def test_eight_workers_on_four_gpus_and_no_step_is_lost() -> None:
    """From 100 s on a premium job has half of the GPUs: 97 s of work are done by then, the pause
    takes 30 s, and what is left goes at 0.97 / 2.03 until the 4 GPUs come back."""
    works = [spliceable("basic", 0, 200, 8), spliceable("premium", 100, 97, 4, 1)]
    run = play("singularity", works, cluster(1, 8), costs=PROXY)
    assert "resize basic on 0:0,1,2,3 after basic" in [
        said for at, said in run.actions if at == 100
    ]
    assert run.ended("premium") == pytest.approx(200)
    done = 97 + 70 * 0.97 / 2.03
    assert run.ended("basic") == pytest.approx(200 + 30 + (200 - done) / 0.97, abs=1e-4)


def test_a_premium_job_shrinks_basic_jobs_and_stops_none() -> None:
    """8 GPUs, two basic jobs of 4: both keep 2."""
    works = [spliceable("a", 0, 999, 4), spliceable("b", 0, 999, 4),
             spliceable("premium", 10, 99, 4, 1)]  # fmt: skip
    run = play("singularity", works, cluster(1, 8), costs=PROXY, until=60 * SECOND)
    assert sizes(run) == [2, 2, 4]
    assert not any(said.startswith("stop") for _, said in run.actions)
    shared = play("elan", works, cluster(1, 8), costs=PROXY, until=60 * SECOND)
    assert sizes(shared) != [2, 2, 4], "elan knows no tiers"


def test_a_basic_job_waits_for_what_is_left_and_takes_from_nobody() -> None:
    works = [spliceable("a", 0, 99, 4), spliceable("b", 1, 99, 8)]
    run = play("singularity", works, cluster(1, 6), costs=PROXY, until=9 * SECOND)
    assert sizes(run) == [4, 2]
    full = play("singularity", [*works[:1], spliceable("b", 1, 9, 4)], cluster(1, 4), costs=PROXY)
    assert full.started("b") == full.ended("a")


def test_standard_jobs_share_until_one_lacks_more_than_a_level_of_its_promise() -> None:
    """Both are promised 0.7. The first has slack when the second comes; they have half each. So
    the second lacks 0.2 of the time: after half an hour 6 minutes, and at the next decision it gets
    all it asks for."""
    works = [spliceable("old", 0, 99_999, 4, 0), spliceable("new", 3600, 99_999, 4, 0)]

    def after(seconds: int) -> list[int]:
        run = play("singularity", works, cluster(1, 4), costs=PROXY, until=seconds * SECOND)
        return sizes(run)

    assert after(3600) == [2, 2]
    assert after(5340) == [2, 2]
    assert after(5701) == [0, 4]


def test_it_moves_a_job_that_is_slower_for_being_on_two_nodes_once_there_is_room() -> None:
    far = Profiles({"m": Profile(locality=(1.0, 1.0, 2.0, 2.0))})
    works = [
        job("left", 0, 50, size=3), job("right", 0, 500, size=3),
        job("pair", 1, 500, size=2, model="m"),
    ]  # fmt: skip
    run = play("singularity", works, cluster(2, 4), costs=PROXY, profiles=far, until=99 * SECOND)
    assert [said for _, said in run.actions[-1:]] == ["resize pair on 0:0,1"]
    assert run.actions[-1][0] == run.ended("left")
    calm = play("singularity", works, cluster(2, 4), costs=PROXY, until=99 * SECOND)
    assert all(not said.startswith("resize") for _, said in calm.actions)


def test_premium_jobs_are_promised_more_and_so_claim_sooner() -> None:
    """Half of its GPUs is 0.45 below the promise of 0.95: a level of 6 minutes is lacking after 800
    s, not after 1800."""
    works = [spliceable("old", 0, 99_999, 4, 0), spliceable("new", 3600, 99_999, 4, 1)]
    for seconds, expected in ((4400, [2, 2]), (4501, [0, 4])):
        until = seconds * SECOND
        run = play("singularity", works, cluster(1, 4), costs=PROXY, until=until)
        assert sizes(run) == expected


def test_basic_jobs_that_wait_start_first_come_first_served() -> None:
    works = [job(name, at, 50, size=4, priority=-1) for at, name in enumerate("abc")]
    run = play("singularity", works, cluster(1, 4))
    assert [run.started(name) for name in "abc"] == [0, 50, 100]
