"""The engine over a real Slurm: a controller and four node daemons of two GPU types."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from engines.conformance import Conformance, Does, Play, on
from engines.rig import LaunchingBench
from engines.site import Site, missing, standing, tracking
from engines.weather import RECIPES, weather
from ganger.core.errors import BadInput
from ganger.core.events import (
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Progressed,
    Refused,
    Released,
    Started,
    Withheld,
)
from ganger.core.plan import Resume, Start, Stop, Suspend
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.core.units import HOUR, SECOND
from ganger.engines.gang import Hold
from ganger.engines.slurm import fleet
from ganger.engines.slurm.calls.client import Client
from ganger.engines.slurm.engine import SlurmEngine, discover
from soaking import many

NODES = {"v0": ("v100", 4), "v1": ("v100", 4), "k0": ("k80", 4), "k1": ("k80", 2)}
NAMES = list(NODES)
TELLS = Path(__file__).parents[2] / "examples" / "slurm-ended.sh"
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A Slurm that lives as long as the module's tests."""
    with standing(NODES) as site:
        yield site


class SlurmBench(LaunchingBench):
    """An engine on the site."""

    lacks = frozenset({"suspend", "agents", "refusal"})
    engine: SlurmEngine

    def __init__(self, site: Site, home: Path, patience: int = 8 * SECOND) -> None:
        self.site, self.home, self.cluster = site, home, uuid.uuid4().hex
        self.patience = patience
        self.wrong: dict[str, Sequence[str]] = {}
        super().__init__(home)

    def connected(self, holds: Sequence[Hold]) -> SlurmEngine:
        engine = SlurmEngine(
            Client("main"),
            self.home,
            self.launches.__getitem__,
            lambda hello: [NAMES.index(hello.name)],
            cluster=self.cluster,
            patience=self.patience,
            progress_every=SECOND // 10,
            warn=self.wrong.__setitem__,
        )
        engine.adopt(holds)
        return engine

    @property
    def machines(self) -> int:
        return len(NAMES)

    def kill_agent(self, node: int) -> None:
        raise NotImplementedError

    def refuse(self, job: int) -> None:
        raise NotImplementedError

    def output(self, job: int, attempt: int = 1) -> str:
        """What the first node's part of a job wrote."""
        return (self.home / "logs" / f"{job}.{attempt}.log").read_text()


@pytest.fixture
def bench(site: Site, tmp_path: Path) -> Iterator[SlurmBench]:
    """A new engine on the site."""
    bench = SlurmBench(site, tmp_path)
    bench.settle()
    yield bench
    bench.engine.close()
    site.clear()
    site.wait_idle()


@pytest.fixture
def play(bench: SlurmBench) -> Play:
    """A play on the engine's bench."""
    return Play(bench)


class TestSlurm(Conformance):
    """The suite."""

    def test_a_partition_that_is_closed_is_a_refusal(self, play: Play, bench: SlurmBench) -> None:
        job = play.job(Does.FINISHES)
        bench.site.ask("scontrol", "update", "PartitionName=main", "State=INACTIVE")
        try:
            play.apply(Start(job, 1, (on(0, 0), on(1, 0))))
            assert "artition" in play.until(Refused, job).why
        finally:
            bench.site.ask("scontrol", "update", "PartitionName=main", "State=UP")
        play.apply(Start(job, 2, (on(0, 0), on(1, 0))))
        play.until(Finished, job, 2)


def test_the_cluster_is_discovered(site: Site) -> None:
    assert [(spec.name, spec.gpu_type, spec.gpus, spec.cpus) for spec in discover(Client())] == [
        ("k0", "k80", 4, 16000),
        ("k1", "k80", 2, 16000),
        ("v0", "v100", 4, 16000),
        ("v1", "v100", 4, 16000),
    ]
    with pytest.raises(BadInput, match="no node is in partition 'other'"):
        discover(Client("other"))


def test_a_gang_has_its_ranks_and_the_devices_that_slurm_chose(
    play: Play, bench: SlurmBench
) -> None:
    say = "echo $RANK/$WORLD_SIZE $NODE_RANK $MASTER_ADDR $CUDA_VISIBLE_DEVICES; exec sleep 60"
    other, gang = play.running(Does.RUNS, on(0, 3)), play.number()
    bench.launch(gang, "sh", "-c", say)
    play.apply(Start(gang, 1, (on(0, 1, 2), on(2, 0))))
    play.until(Started, gang)
    play.wait(lambda: "1/3" in bench.output(gang), "output")
    first = bench.engine.devices(other, 1)["v0"]
    devices = bench.engine.devices(gang, 1)
    assert len(first) == 1
    assert len(devices["v0"]) == 2
    assert len(devices["k0"]) == 1
    assert not set(first) & set(devices["v0"])
    shown = ",".join(map(str, devices["v0"]))
    assert sorted(bench.output(gang).splitlines()) == [
        f"0/3 0 127.0.0.1 {shown}",
        f"1/3 0 127.0.0.1 {shown}",
    ]


def test_words_of_the_command_reach_no_shell(play: Play, bench: SlurmBench) -> None:
    job, words = play.number(), ("$(id)", "a'b", "; reboot", "x\ny", "`w`")
    bench.launch(job, "printf", "%s|", *words)
    play.apply(Start(job, 1, (on(0, 0),)))
    play.until(Finished, job)
    assert bench.output(job) == "".join(f"{word}|" for word in words)


def test_a_job_cancelled_behind_our_back_has_failed(play: Play, bench: SlurmBench) -> None:
    deaf, saves = play.running(Does.DEAF), play.running(Does.SAVES, on(1, 0))
    play.until(Progressed, saves)
    bench.site.ask("scancel", *bench.site.ask("squeue", "-h", "-o", "%A").split())
    for job in (deaf, saves):
        assert play.until(Failed, job).why == "Cancelled: in Slurm"
        assert bench.alive(job) == 0
    if tracking() == "cgroup":  # else they are killed with the head
        assert play.find(Failed, saves)[0].kept == pytest.approx(7000)


def preempt(site: Site, node: str) -> None:
    """Somebody wants all GPUs of a node, and comes first."""
    site.ask(
        "sbatch",
        "-p",
        "urgent",
        "-w",
        node,
        "--gres=gpu:4",
        "--mem=100",
        "-o",
        "/dev/null",
        "--wrap",
        "sleep 300",
    )


def test_a_job_that_slurm_preempts_saves_and_may_go_on(play: Play, bench: SlurmBench) -> None:
    job = play.running(Does.SAVES, on(0, 0, 1, 2, 3))
    play.until(Progressed, job)
    preempt(bench.site, "v0")
    failed = play.until(Failed, job)
    assert failed.why.startswith("NodeFail")
    assert not failed.final
    if tracking() == "cgroup":
        assert failed.kept == pytest.approx(7000)
    play.wait(lambda: Withheld(0, 4) in play.events, "GPUs that are others'")
    play.apply(Start(job, 2, (on(1, 0),)))
    play.until(Started, job, 2)


@pytest.mark.parametrize(("does", "goes_on"), [(Does.SAVES, True), (Does.RUNS, False)])
def test_when_the_time_of_its_slurm_job_is_nearly_over_a_job_that_saves_goes_on(
    play: Play, bench: SlurmBench, does: Does, goes_on: bool
) -> None:
    job = play.running(does)
    if goes_on:
        play.until(Progressed, job)
    number = bench.site.ask("squeue", "-h", "-o", "%A").strip()
    bench.site.ask("scancel", "--batch", "--signal=USR1", number)  # as --signal has Slurm do
    failed = play.until(Failed, job)
    assert failed.final is not goes_on
    assert failed.why.startswith("NodeFail" if goes_on else "TimeLimit")
    assert failed.kept == pytest.approx(7000 if goes_on else 0)


def test_somebody_elses_gpus_are_theirs_one_by_one(play: Play, bench: SlurmBench) -> None:
    ours = play.running(Does.RUNS, on(0, 0))
    bench.site.ask(
        "sbatch",
        "-w",
        "v0,v1",
        "-N2",
        "--gres=gpu:3",
        "--mem=100",
        "-o",
        "/dev/null",
        "--wrap",
        "sleep 4",
    )
    play.wait(lambda: Withheld(0, 3) in play.events, "GPUs that are others'")
    assert Withheld(1, 3) in play.events
    play.until(Finished, play.running(Does.FINISHES, on(1, 0)))
    play.wait(lambda: {Withheld(0, 0), Withheld(1, 0)} <= set(play.events), "GPUs again")
    assert bench.alive(ours)
    assert not [event for event in play.events if isinstance(event, Failed | NodeDown)]


def test_a_start_on_gpus_that_somebody_took_is_refused_long_before_patience_ends(
    site: Site, tmp_path: Path
) -> None:
    bench = SlurmBench(site, tmp_path, patience=HOUR)
    bench.settle()
    play = Play(bench)
    site.ask(
        "sbatch", "-w", "v0", "--gres=gpu:3", "--mem=100", "-o", "/dev/null", "--wrap", "sleep 300"
    )
    job = play.job(Does.FINISHES)
    play.apply(Start(job, 1, (on(0, 0, 1),)))  # planned before anything was known of them
    assert play.until(Refused, job).why.startswith("Slurm says")
    assert Withheld(0, 3) in play.events
    play.apply(Start(job, 2, (on(1, 0, 1),)))
    play.until(Finished, job, 2)
    bench.engine.close()
    site.clear()


def test_who_is_suspended_saves_and_leaves(play: Play, bench: SlurmBench) -> None:
    job = play.running(Does.SAVES)
    play.until(Progressed, job)
    play.apply(Suspend(job, 1))
    assert play.until(Released, job).kept == pytest.approx(7000)
    play.apply(Resume(job, 1))  # it came too late
    play.apply(Start(job, 2, (on(1, 0),)))
    play.until(Started, job, 2)


def test_a_job_held_behind_our_back_is_refused_and_can_start_anew(
    play: Play, bench: SlurmBench
) -> None:
    bench.site.ask("scontrol", "update", "PartitionName=main", "State=DOWN")
    job = play.job(Does.FINISHES)
    play.apply(Start(job, 1, (on(0, 0),)))
    play.wait(lambda: bench.site.ask("squeue", "-h", "-o", "%T").strip() == "PENDING", "a job")
    number = bench.site.ask("squeue", "-h", "-o", "%A").strip()
    bench.site.ask("scontrol", "hold", number)
    bench.site.ask("scontrol", "update", "PartitionName=main", "State=UP")
    assert play.until(Refused, job).why.startswith("Slurm says")
    play.apply(Start(job, 2, (on(0, 0),)))
    play.until(Finished, job, 2)
    assert play.bench.starts(job) == 1


def test_a_job_that_slurm_has_twice_is_the_one_that_was_submitted_last(
    play: Play, bench: SlurmBench
) -> None:
    job = play.job(Does.FINISHES)
    bench.site.ask(
        "sbatch",
        f"--job-name=ganger-{bench.cluster}",
        f"--comment=ganger:{job + 1}/1",
        "-o",
        "/dev/null",
        "--wrap",
        "true",
    )
    play.wait(lambda: not bench.site.ask("squeue", "-h"), "its end")
    bench.site.ask("scontrol", "update", "PartitionName=main", "State=DOWN")
    try:
        play.apply(Start(job, 1, (on(0, 0),)))
        play.wait(lambda: bench.site.ask("squeue", "-h", "-o", "%T").strip() == "PENDING", "a job")
        play.apply(Stop(job, 1))
        play.until(Released, job)
    finally:
        bench.site.ask("scontrol", "update", "PartitionName=main", "State=UP")


def test_nothing_waits_for_a_node_that_is_closed(play: Play, bench: SlurmBench) -> None:
    bench.site.ask("scontrol", "update", "NodeName=v1", "State=DRAIN", "Reason=test")
    play.wait(lambda: NodeDown(1) in play.events, "node that is closed")
    try:
        job = play.job(Does.FINISHES)
        play.apply(Start(job, 1, (on(1, 0),)))
        assert play.until(Refused, job).why == "its node is down"
    finally:
        bench.site.ask("scontrol", "update", "NodeName=v1", "State=RESUME")


def test_a_drained_node_is_closed_and_what_runs_there_goes_on(
    play: Play, bench: SlurmBench
) -> None:
    ours = play.running(Does.RUNS, on(1, 0))
    bench.site.ask("scontrol", "update", "NodeName=v1", "State=DRAIN", "Reason=test")
    play.wait(lambda: NodeDown(1) in play.events, "node that is closed")
    bench.site.ask("scontrol", "update", "NodeName=v1", "State=RESUME")
    play.wait(lambda: NodeUp(1) in play.events, "node that is open again")
    assert not play.find(Failed, ours)


def test_a_node_that_dies_fails_what_ran_there_and_comes_back(
    play: Play, bench: SlurmBench
) -> None:
    job, other = play.running(Does.RUNS, on(3, 0)), play.running(Does.RUNS, on(2, 0))
    bench.site.kill("slurmd.k1")
    failed = play.until(Failed, job)
    assert failed.why.startswith("NodeFail")
    assert not failed.final
    play.wait(lambda: NodeDown(3) in play.events, "node that is down")
    bench.site.start_node("k1")
    play.wait(lambda: NodeUp(3) in play.events, "node that is up")
    assert not play.find(Failed, other)


def test_the_controller_may_restart(play: Play, bench: SlurmBench) -> None:
    runs, comes = play.running(Does.SAVES), play.job(Does.FINISHES)
    bench.site.kill("slurmctld", signal.SIGTERM)
    play.apply(Start(comes, 1, (on(0, 1),)))
    play.wait(lambda: bool(bench.wrong.get("Slurm")), "trouble")
    play.quiet(5)
    assert not [event for event in play.events if isinstance(event, Failed | NodeDown | Refused)]
    bench.site.start_controller()
    play.until(Finished, comes)
    play.started_times(comes, 1)
    play.apply(Stop(runs, 1))
    assert play.until(Released, runs).kept == pytest.approx(7000)
    play.started_times(runs, 1)


def test_however_many_jobs_run_the_controller_is_asked_less_than_once_a_second(
    play: Play, bench: SlurmBench
) -> None:
    for device in range(4):
        for node in range(3):
            play.running(Does.RUNS, on(node, device))
    play.quiet(1)  # what belongs to their starts
    bench.site.ask("sdiag", "--reset")
    began = time.monotonic()
    play.quiet(12)
    asked = bench.site.requests()
    assert 0 < sum(asked.values()) / (time.monotonic() - began) < 1, asked


def test_a_site_may_tell_at_once_that_a_job_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("POLL_SECONDS", "NODES_SECONDS"):  # Slurm is asked once, and not again
        monkeypatch.setattr(fleet, name, 600.0)
    script = f"JobCompType=jobcomp/script\nJobCompLoc={TELLS}\n"
    with standing(NODES, more=script) as site:
        bench = SlurmBench(site, tmp_path)
        try:
            bench.settle()
            play = Play(bench)
            job, other = play.running(Does.RUNS), play.running(Does.RUNS, on(1, 1))
            preempt(site, "v0")
            assert play.until(Failed, job).why == "NodeFail: Slurm says PREEMPTED"
            play.apply(Stop(other, 1, "cancelled"))
            play.until(Released, other)
        finally:
            bench.engine.close()


CLUSTER = ClusterSpec(
    tuple(NodeSpec(name=name, gpus=gpus, gpu_type=kind) for name, (kind, gpus) in NODES.items())
)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "seed",
    [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(100, 100 + many(24)))],
)
def test_under_chaos_no_job_is_lost_and_none_starts_twice(bench: SlurmBench, seed: int) -> None:
    done = weather(bench, CLUSTER, RECIPES[seed % len(RECIPES)], seed, 10).done
    assert done
