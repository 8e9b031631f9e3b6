"""Three planes on the local engine, with real processes: a search under a grant that changes, a
service that is scaled beside training, and all of it in one kernel, decided again from its
journal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from engines.rig import Agents
from ganger.cli.main import cli
from ganger.core.state.jobs import Phase
from ganger.service.durable.recovery import check_history, guard_of
from service.live_desk import LiveDesk

TRIAL = """
import os, time
from ganger import sdk
where, configuration = os.environ["WHERE"], sdk.configuration
kept = sdk.checkpoint_dir / "epoch"
done = int(kept.read_text()) if kept.exists() else 0
with open(f"{where}/{sdk.number}.starts", "a") as file: file.write(f"{done}\\n")
for epoch in range(done + 1, 10):
    while not os.path.exists(f"{where}/go-{epoch}"):
        if sdk.should_checkpoint(): sdk.leave(epoch - 1)
        time.sleep(.01)
    time.sleep(float(os.environ.get("LASTS", "0")))
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.with_suffix(".new").write_text(str(epoch))
    kept.with_suffix(".new").rename(kept)
    sdk.saved(epoch)
    sdk.report(epoch, loss=float(configuration["floor"]) + 1 / epoch, final=epoch == 9)
    sdk.progress(epoch, 9)
    if sdk.should_checkpoint(): sdk.leave(epoch)
"""
REPLICA = """
import os, time
from ganger import sdk
where = os.environ["WHERE"]
with open(f"{where}/replica-{sdk.number}", "a") as file: file.write("started\\n")
sdk.served()
while not sdk.should_checkpoint():
    time.sleep(.02)
    busy = float(open(f"{where}/load").read())
    sdk.served(arrivals=busy, answered=busy, busy=busy)
sdk.leave()
"""
TRAINS = (
    "import os, time\nwhile not os.path.exists(os.environ['WHERE'] + '/trained'): time.sleep(.01)"
)
RUNS = (Phase.STARTING, Phase.RUNNING)
PYTHON = [sys.executable, "-S", "-c"]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Callable[..., LiveDesk]]:
    """A daemon over two nodes, under the recipes that are named."""
    agents = Agents(tmp_path / "agents", ["a", "b"])
    desks: list[LiveDesk] = []

    def begin(*recipes: str) -> LiveDesk:
        desks.append(LiveDesk(tmp_path, agents, *recipes))
        return desks[-1]

    yield begin
    for desk in desks:
        desk.close()
    agents.close()


def search(desk: LiveDesk, where: Path, lasts: str = "0", **fields: object) -> int:
    """A search over twelve configurations, the third of which is the best."""
    floors = [str(abs(number - 2) / 10) for number in range(12)]
    (row,) = desk.submit(
        command=[*PYTHON, TRIAL],
        kind="tune",
        metric="loss",
        configurations=[{"floor": floor} for floor in floors],
        env={"WHERE": str(where), "LASTS": lasts},
        checkpoint_dir=str(where / "kept"),
        **fields,
    )
    return row


def go(where: Path, *epochs: int) -> None:
    """Let the trials go on through these epochs."""
    for epoch in epochs:
        (where / f"go-{epoch}").touch()


def load(where: Path, busy: float) -> None:
    """Have the replicas say that they are so busy. The file is there as a whole at any time."""
    (where / "load.new").write_text(f"{busy}")
    (where / "load.new").rename(where / "load")


def held(desk: LiveDesk, row: int) -> int:
    """GPUs that a job holds."""
    return int(desk.daemon.kernel.jobs.size[row])


def restarts(desk: LiveDesk, row: int) -> int:
    """How often the trials of a search were started again."""
    jobs = desk.daemon.kernel.jobs
    return int(jobs.restarts[: jobs.n][jobs.parent[: jobs.n] == row].sum())


def replayed(desk: LiveDesk) -> None:
    """The journal is decided again, to the same plans."""
    kernel = desk.daemon.kernel
    assert guard_of(kernel).error == ""
    assert desk.daemon.set_aside == []
    assert check_history(desk.journal) == kernel.revision
    done = CliRunner().invoke(cli, ["replay", str(desk.journal.path), "--check"])
    assert done.output == f"{kernel.revision} steps replayed, every plan is the same\n"


def epochs_kept(desk: LiveDesk, trial: int) -> int:
    """Up to which epoch a trial has saved."""
    return int((Path(desk.daemon.reader.facts(trial).launch.checkpoint_dir) / "epoch").read_text())


def test_twelve_trials_under_a_grant_that_grows_shrinks_goes_and_comes_back(
    tmp_path: Path, begun: Callable[..., LiveDesk]
) -> None:
    desk = begun("afs", "tune.sha(trials=12,eta=3)")
    where = tmp_path / "where"
    where.mkdir()
    env = {"WHERE": str(where)}
    (trains,) = desk.submit(command=[*PYTHON, TRAINS], gpus=4, env=env)
    row = search(desk, where, gpus=4, min_gpus=1, max_gpus=8)
    desk.until(lambda: len(desk.rows(row, Phase.RUNNING)) == 4)
    first = desk.rows(row, Phase.RUNNING)
    desk.order("cancel", trains)  # it grows
    desk.until(lambda: held(desk, row) == 8 and len(desk.rows(row, Phase.RUNNING)) == 8)
    assert desk.daemon.kernel.jobs.restarts[first].tolist() == [0] * 4
    (trains,) = desk.submit(command=[*PYTHON, TRAINS], gpus=4, env=env)  # it shrinks
    desk.until(lambda: desk.phase(trains) == Phase.RUNNING)
    assert held(desk, row) == 4
    desk.until(lambda: len(desk.rows(row, Phase.RUNNING)) == 4)
    before = restarts(desk, row)
    desk.order("requeue", row)  # all of it goes, and comes back
    desk.until(lambda: restarts(desk, row) == before + 4)
    go(where, 1)
    desk.until(lambda: len(desk.rows(row, Phase.BLOCKED)) > 2)  # set aside at the first rung
    desk.order("cancel", trains)
    desk.until(lambda: held(desk, row) == 8)
    desk.agents.kill("b")  # a node is lost
    desk.until(lambda: held(desk, row) == 4)
    desk.agents.start("b")
    go(where, 2, 3)
    desk.until(lambda: sum(box.up for box in desk.live.boxes.values()) == 2)
    desk.until(lambda: len(desk.rows(row, Phase.FINISHED)) == 11)  # one is left after two rungs
    go(where, *range(4, 10))
    desk.until(lambda: desk.phase(row) == Phase.FINISHED)
    jobs = desk.daemon.kernel.jobs
    trials = [child for child in range(jobs.n) if jobs.parent[child] == row]
    assert len(trials) == 12
    assert {Phase(phase) for phase in jobs.phase[trials]} == {Phase.FINISHED}
    kept = [epochs_kept(desk, child) for child in trials]
    assert kept[2] == 9, "the best one trained to its end"
    assert sorted(kept)[-4:-1] == [3, 3, 3]
    for number in range(12):
        began = [int(line) for line in (where / f"{number}.starts").read_text().split()]
        assert began == sorted(began), "each went on from its checkpoint"
        assert began[0] == 0
    assert int((where / "2.starts").read_text().split()[-1]) >= 1
    replayed(desk)


def test_a_service_is_scaled_to_five_and_to_one_and_restarts_no_sibling(
    tmp_path: Path, begun: Callable[..., LiveDesk]
) -> None:
    desk = begun("fifo", "", "scale.threshold(cooldown=100ms)")
    load(tmp_path, 0.5)
    env = {"WHERE": str(tmp_path)}
    trains = desk.submit(command=[*PYTHON, TRAINS], gpus=3, env=env)
    (web,) = desk.submit(
        command=[*PYTHON, REPLICA], kind="serve", gpus=3, min_gpus=1, max_gpus=5, env=env
    )
    desk.until(lambda: len(desk.rows(web, Phase.RUNNING)) == 3)
    load(tmp_path, 0.95)
    desk.until(lambda: len(desk.rows(web, Phase.RUNNING)) == 5)
    load(tmp_path, 0.05)
    desk.until(lambda: len(desk.rows(web, *RUNS, Phase.STOPPING)) == 1)
    assert desk.rows(web, Phase.RUNNING) == [web + 1], "the first stays"
    for number in range(5):
        assert (tmp_path / f"replica-{number}").read_text() == "started\n", "none restarted"
    jobs = desk.daemon.kernel.jobs
    assert (desk.phase(trains[0]), int(jobs.preemptions[trains[0]])) == (Phase.RUNNING, 0)
    desk.order("cancel", web)
    (tmp_path / "trained").touch()
    desk.until(lambda: bool((jobs.phase[: jobs.n] >= Phase.FINISHED).all()))
    replayed(desk)


def test_three_planes_in_one_kernel_are_decided_again_from_its_journal(
    tmp_path: Path, begun: Callable[..., LiveDesk]
) -> None:
    desk = begun("fifo", "tune.sha(trials=6,eta=3)", "scale.threshold(cooldown=100ms)")
    load(tmp_path, 0.95)
    env = {"WHERE": str(tmp_path)}
    (web,) = desk.submit(
        command=[*PYTHON, REPLICA], kind="serve", gpus=1, min_gpus=1, max_gpus=3, env=env
    )
    row = search(desk, tmp_path, "0.1", gpus=3)
    trains = desk.submit(command=[*PYTHON, TRAINS], gpus=1, env=env, array="0-1")
    desk.until(lambda: len(desk.rows(web, Phase.RUNNING)) > 1)
    go(tmp_path, *range(1, 10))
    (tmp_path / "trained").touch()
    desk.until(lambda: desk.phase(row) == Phase.FINISHED)
    desk.until(lambda: all(desk.phase(job) == Phase.FINISHED for job in trains))
    desk.order("cancel", web)
    desk.until(lambda: desk.phase(web) == Phase.CANCELLED)
    jobs = desk.daemon.kernel.jobs
    third = [child for child in range(jobs.n) if jobs.parent[child] == row][2]
    assert epochs_kept(desk, third) == 9, "the best trained to its end"
    replayed(desk)
