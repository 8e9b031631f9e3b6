"""Attempts that run nothing: what a search holds for its trials."""

from __future__ import annotations

from pathlib import Path

from engines.conformance import Does, Play, on
from engines.rig import Agents, LocalBench
from ganger.core.events import Failed, NodeDown, NodeUp, Released, Started
from ganger.core.plan import Resize, Start, Stop
from ganger.core.units import SECOND
from ganger.engines.launch import Launch
from ganger.engines.local import LocalEngine


def parent(play: Play, bench: LocalBench) -> int:
    """A new job that only holds something."""
    number = play.number()
    bench.launches[number] = Launch(command=("true",), hollow=True)
    return number


def test_a_grant_is_there_at_once_and_no_process_runs(play: Play, bench: LocalBench) -> None:
    job = parent(play, bench)
    play.apply(Start(job, 1, (on(0, 0, 1), on(1, 0))))
    play.until(Started, job)
    play.apply(Resize(job, 2, (on(0, 0),), (job,)))
    play.until(Started, job, 2)
    assert [event.kept for event in play.find(Released, job)] == [float(1 << 62)]
    play.apply(Stop(job, 2))
    play.until(Released, job, 2)
    assert bench.alive(job) == 0


def test_a_grant_begins_when_those_before_it_have_left(play: Play, bench: LocalBench) -> None:
    before, job = play.job(Does.SAVES), parent(play, bench)
    play.apply(Start(before, 1, (on(0, 0),)))
    play.until(Started, before)
    play.apply(Stop(before, 1), Start(job, 1, (on(0, 0),), (before,)))
    assert play.find(Started, job) == []
    play.until(Started, job)
    assert len(play.find(Released, before)) == 1


def test_another_engine_goes_on_with_a_grant(play: Play, bench: LocalBench) -> None:
    running, starting, stopping = (parent(play, bench) for _ in range(3))
    bench.reconnect(
        [
            (running, 3, "RUNNING", (on(0, 0),)),
            (starting, 1, "STARTING", (on(0, 1),)),
            (stopping, 2, "STOPPING", (on(0, 2),)),
        ]
    )
    play.until(Started, starting)
    play.until(Released, stopping, 2)
    assert play.find(Started, running, 3) == []
    play.apply(Stop(running, 3))
    play.until(Released, running, 3)


def test_a_lost_node_takes_the_grant_along_and_a_node_of_others_does_not(tmp_path: Path) -> None:
    agents = Agents(tmp_path, ["a", "b"])
    bench = LocalBench(agents)
    bench.engine.close()
    bench.engine = LocalEngine(
        bench.launches.__getitem__,
        bench._admit,
        agents=[at._replace(spawn=None) for at in agents.at()],
        lost_after=SECOND // 2,
    )
    play = Play(bench)
    try:
        bench.settle()
        here, there, child = parent(play, bench), parent(play, bench), play.job(Does.RUNS)
        play.apply(
            Start(here, 1, (on(0, 0, 1),)),
            Start(there, 1, (on(1, 0, 1),)),
            Start(child, 1, (on(1, 0),)),
        )
        play.until(Started, child)
        bench.kill_agent(1)
        play.until(Failed, there)
        lost = [event for event in play.events if isinstance(event, Failed)]
        assert [event.job for event in lost] == [child, there], "children before their parents"
        assert all(event.why == "NodeFail" and not event.final for event in lost)
        assert NodeDown(1) in play.events
        agents.start("b")
        play.wait(lambda: NodeUp(1) in play.events[-3:], "the node is back")
        assert play.find(Failed, here) == []
    finally:
        bench.engine.close()
        agents.close()
