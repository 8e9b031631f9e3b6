"""Pilots on a real Slurm: whole nodes held by Slurm jobs, with an agent in each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from engines.conformance import Conformance, Does, Play, on
from engines.rig import LaunchingBench
from engines.site import PATIENCE_SECONDS, Site, missing, standing, tracking
from ganger.core.events import (
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Progressed,
    Refused,
    Released,
    Started,
)
from ganger.core.plan import Start, Stop
from ganger.core.units import SECOND
from ganger.engines.gang import Hold
from ganger.engines.slurm.calls.client import Client
from ganger.engines.slurm.engine import discover
from ganger.engines.slurm.pilots import PilotEngine, Terms

NODES = {"v0": ("v100", 4), "v1": ("v100", 4), "k0": ("k80", 4)}
NAMES = ["v0", "v1", "k0"]
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
signals_reach_the_pilot_alone = pytest.mark.skipif(
    tracking() != "cgroup", reason="NO FREEZER CGROUP HERE: SLURM'S SIGNALS REACH EVERY PROCESS"
)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A Slurm that lives as long as the module's tests."""
    with standing(NODES) as site:
        yield site


class PilotBench(LaunchingBench):
    """An engine that holds two nodes of one kind."""

    lacks = frozenset({"agents", "refusal"})
    engine: PilotEngine

    def __init__(self, site: Site, home: Path, terms: Terms, wish: Sequence[str] = ()) -> None:
        self.site, self.home, self.terms, self.wish = site, home, terms, list(wish)
        self.order: list[str] = []
        """The nodes' names, as they came: the kernel's numbers."""
        super().__init__(home)

    def connected(self, holds: Sequence[Hold]) -> PilotEngine:
        engine = PilotEngine(
            Client("main"),
            self.home,
            self.launches.__getitem__,
            lambda hello: [self._number(hello.name)],
            nodes=discover(Client("main")),
            terms=self.terms,
            wish=lambda: self.wish,
            token="known",
            cluster="test",
            host="127.0.0.1",
            lost_after=10 * SECOND,
            progress_every=SECOND // 10,
        )
        engine.adopt(holds)
        return engine

    def _number(self, name: str) -> int:
        if name not in self.order:
            self.order.append(name)
        return self.order.index(name)

    @property
    def machines(self) -> int:
        return max(self.terms.least, len(self.wish))

    def pilots(self) -> int:
        """How many Slurm jobs there are."""
        return len(self.site.ask("squeue", "-h", "-o", "%A").split())

    def kill_agent(self, node: int) -> None:
        raise NotImplementedError

    def refuse(self, job: int) -> None:
        raise NotImplementedError


@pytest.fixture
def make(site: Site, tmp_path: Path) -> Iterator[Callable[..., PilotBench]]:
    """Makes an engine on the site, whose first pilots are there."""
    made: list[PilotBench] = []

    def bench(terms: Terms, *wish: str) -> PilotBench:
        made.append(PilotBench(site, tmp_path, terms, wish))
        made[0].settle()
        made[0].wish.clear()  # nobody waits any more
        return made[0]

    yield bench
    for one in made:
        one.engine.close()
    site.clear()
    site.wait_idle()


@pytest.fixture(scope="class")
def held(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PilotBench]:
    """An engine whose two pilots live as long as the class's tests."""
    bench = PilotBench(site, tmp_path_factory.mktemp("pilots"), Terms(least=2, most=2))
    bench.settle()
    yield bench
    bench.engine.close()
    site.clear()
    site.wait_idle()


class TestPilots(Conformance):
    """The suite."""

    @pytest.fixture
    def bench(self, held: PilotBench) -> PilotBench:
        return held

    @pytest.fixture
    def play(self, bench: PilotBench) -> Play:
        return Play(bench)

    def test_a_start_takes_less_than_a_fifth_of_a_second(self, play: Play) -> None:
        held, took = play.bench, []
        for _ in range(5):
            job = play.job(Does.FINISHES)
            play.apply(Start(job, 1, (on(0, 0),)))
            began = time.monotonic()
            play.wait(lambda job=job: held.starts(job) > 0, "its first line")  # type: ignore[misc]
            took.append(time.monotonic() - began)
            play.until(Finished, job)
        assert sorted(took)[2] < 0.2, took


def test_pilots_come_for_those_who_wait_and_go_when_idle(
    make: Callable[..., PilotBench], site: Site
) -> None:
    bench = make(Terms(most=2, idle_seconds=3.0), "k0")
    assert bench.order == ["k0"], "a pilot of the kind that is wanted"
    play = Play(bench)
    job = play.running(Does.SAVES)
    time.sleep(4)
    play.quiet(1)
    assert bench.pilots() == 1, "who has work is not given back"
    play.apply(Stop(job, 1))
    play.until(Released, job)
    play.wait(lambda: NodeDown(0) in play.events, "a node that is given back")
    play.wait(lambda: bench.pilots() == 0, "no pilot")
    bench.wish[:] = ["k0"]
    play.events.clear()
    play.wait(lambda: NodeUp(0) in play.events, "a node that is there again")
    play.until(Finished, play.running(Does.FINISHES))


def test_an_idle_pilot_makes_room_for_one_that_is_wanted(
    make: Callable[..., PilotBench], site: Site
) -> None:
    bench = make(Terms(most=1), "v0")
    bench.wish[:] = ["k0"]
    play = Play(bench)
    play.wait(lambda: NodeDown(0) in play.events, "a node that is given back")
    play.wait(lambda: NodeUp(1) in play.events, "the node that is wanted")
    assert bench.order == ["v0", "k0"]
    bench.wish[:] = ["k0", "v1"]
    play.quiet(5)
    assert bench.pilots() == 1
    assert NodeDown(1) not in play.events, "it is wanted, too"


def test_there_are_never_more_than_were_allowed(make: Callable[..., PilotBench]) -> None:
    bench = make(Terms(most=1), "v0")
    play = Play(bench)
    play.running(Does.RUNS)
    bench.wish[:] = ["v1", "k0"]
    play.quiet(6)
    assert bench.pilots() == 1
    assert NodeDown(0) not in play.events


def test_who_runs_on_a_pilot_whose_time_is_over_saves_and_goes_on_elsewhere(
    make: Callable[..., PilotBench], site: Site
) -> None:
    bench = make(Terms(most=2, minutes=1, grace_seconds=50), "v0")
    play = Play(bench)
    job = play.running(Does.SAVES)
    play.until(Progressed, job)
    (number,) = site.ask("squeue", "-h", "-o", "%A").split()
    play.wait(lambda: NodeDown(0) in play.events, "a node that is closed: Slurm says when")
    assert play.until(Released, job).kept == pytest.approx(7000)
    play.wait(lambda: number not in site.ask("squeue", "-h", "-o", "%A").split(), "its end")
    play.events.clear()
    bench.wish[:] = ["v1"]
    play.wait(lambda: any(isinstance(one, NodeUp) for one in play.events), "another pilot")
    node = next(one.node for one in play.events if isinstance(one, NodeUp))
    play.apply(Start(job, 2, (on(node, 0),)))
    play.until(Progressed, job, 2)


def cancelled(bench: PilotBench, does: Does) -> tuple[Play, int]:
    """A play in which a job ran on a pilot that somebody cancels."""
    play = Play(bench)
    job = play.running(does)
    if does is Does.SAVES:
        play.until(Progressed, job)
    bench.site.ask("scancel", bench.site.ask("squeue", "-h", "-o", "%A").strip())
    return play, job


@signals_reach_the_pilot_alone
@pytest.mark.parametrize("does", [Does.SAVES, Does.RUNS])
def test_who_runs_on_a_pilot_that_is_cancelled_saves_and_leaves(
    make: Callable[..., PilotBench], does: Does
) -> None:
    bench = make(Terms(most=2), "v0")
    play, job = cancelled(bench, does)
    play.wait(lambda: NodeDown(0) in play.events, "a node that is closed")
    kept = play.until(Released, job).kept
    assert does is Does.RUNS or kept == pytest.approx(7000)
    play.wait(lambda: bench.pilots() == 0, "its end")
    assert not play.find(Failed, job)
    assert bench.alive(job) == 0


@signals_reach_the_pilot_alone
def test_who_runs_on_a_pilot_that_is_cancelled_saves_though_no_daemon_is_there(
    make: Callable[..., PilotBench],
) -> None:
    bench = make(Terms(most=2), "v0")
    play, job = cancelled(bench, Does.SAVES)
    late = time.monotonic() + PATIENCE_SECONDS
    while bench.alive(job):  # nobody polls meanwhile
        assert time.monotonic() < late
        time.sleep(0.1)
    assert play.until(Released, job).kept == pytest.approx(7000)


@pytest.mark.parametrize("does", [Does.SAVES, Does.RUNS])
def test_who_is_killed_with_its_pilot_is_not_to_blame(tmp_path: Path, does: Does) -> None:
    with standing({"v0": ("v100", 4)}, "linuxproc") as site:
        bench = PilotBench(site, tmp_path, Terms(least=1, most=2))
        try:
            bench.settle()
            play, job = cancelled(bench, does)
            play.wait(lambda: NodeDown(0) in play.events, "a node that is closed")
            ends = (Failed, Released)
            play.wait(lambda: any(play.find(end, job) for end in ends), "the attempt's end")
            assert not [one for one in play.find(Failed, job) if one.final]
            assert bench.alive(job) == 0
        finally:
            bench.engine.close()


def test_a_start_on_a_node_that_is_leaving_is_refused(
    make: Callable[..., PilotBench], site: Site
) -> None:
    bench = make(Terms(most=1), "v0")
    play = Play(bench)
    holds = play.running(Does.DEAF)
    number = site.ask("squeue", "-h", "-o", "%A").strip()
    site.ask("scancel", "--batch", "--signal=USR1", number)
    play.wait(lambda: NodeDown(0) in play.events, "a node that is closed")
    late = play.job(Does.FINISHES)
    play.apply(Start(late, 1, (on(0, 1),)))
    play.until(Refused, late)
    play.until(Released, holds)


def test_a_node_that_dies_fails_what_ran_there(make: Callable[..., PilotBench], site: Site) -> None:
    bench = make(Terms(most=1), "k0")
    play = Play(bench)
    job = play.running(Does.RUNS)
    site.kill_node("k0")
    try:
        assert play.until(Failed, job).why.startswith("NodeFail")
    finally:
        site.start_node("k0")


def test_pilots_outlive_the_daemon_and_join_it_where_it_comes_back(
    make: Callable[..., PilotBench], site: Site
) -> None:
    bench = make(Terms(most=1), "v0")
    play = Play(bench)
    job = play.running(Does.SAVES)
    port = bench.engine.port
    bench.reconnect([(job, 1, "RUNNING", (on(0, 0),))])
    assert bench.engine.port != port
    bench.settle()
    play.at_work(job)
    play.started_times(job, 1)
    assert bench.pilots() == 1
    play.apply(Stop(job, 1))
    assert play.until(Released, job).kept == pytest.approx(7000)


@pytest.mark.parametrize("again", [["v0"], ["v1"], []], ids=["its node", "another", "none"])
@pytest.mark.parametrize("phase", ["RUNNING", "STARTING"])
def test_a_job_that_finished_while_all_were_down_is_not_run_again_by_another_pilot(
    make: Callable[..., PilotBench], site: Site, tmp_path: Path, again: list[str], phase: str
) -> None:
    bench = make(Terms(most=2), "v0")
    play, job, go = Play(bench), 7001, tmp_path / "go"
    bench.launch(job, "sh", "-c", f"while [ ! -e {go} ]; do sleep .05; done")
    play.apply(Start(job, 1, (on(0, 0),)))
    play.until(Started, job)
    site.kill("slurmctld")
    go.touch()  # and nobody polls
    late = time.monotonic() + PATIENCE_SECONDS
    while bench.alive(job) or not (tmp_path / "exits" / f"{job}.1.0").exists():
        assert time.monotonic() < late
        time.sleep(0.05)
    site.kill_node("v0")  # the pilot, and all that it knew
    site.start_controller()
    site.start_node("v0")
    site.clear()
    site.wait_idle()
    bench.wish[:] = again
    bench.reconnect([(job, 1, phase, (on(0, 0),))])
    play.until(Finished, job)
    assert not play.find(Failed, job)
    assert bench.starts(job) == 1
