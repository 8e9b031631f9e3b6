"""Live beside simulated: real processes, and the arithmetic of the comparison."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.events import Finished, Started
from ganger.core.kernel import Kernel
from ganger.core.plan import Stop
from ganger.core.state.cluster import Nodes
from ganger.core.units import SECOND
from ganger.lab.live import run as live
from ganger.lab.live.parity import (
    TRAINING_RECIPES,
    Outcome,
    Study,
    Trial,
    agreement,
    columns,
    cores,
    workload,
)
from ganger.lab.live.run import Probe, Stamps, Training, run_live
from ganger.lab.simulating.policies import load_policy
from ganger.sim.engine import Simulator
from ganger.sim.physics import Costs, Physics
from worlds import Diary

pytestmark = pytest.mark.long


def test_the_simulator_foretells_a_live_run_with_preemptions(tmp_path: Path) -> None:
    """Twelve jobs, nearly at once: the bound is generous, for the machine may be busy."""
    recipe = "tiresias(thresholds=1s)"
    study = Study(tmp_path, jobs=12, gpus=8, load=3)
    found = study.run([recipe], 1)[0]
    assert found.unfinished == 0
    assert found.divergence == ""
    assert found.steps > 24
    assert found.jct_error < 0.3
    assert found.order > 0.7
    trial = study.trials[recipe][0]
    assert 0 < trial.start_seconds < 3
    assert trial.finish_seconds > 0
    assert 0 < trial.load_seconds < trial.start_seconds + 1
    free = study.simulate(recipe, Costs()).jct_mean_seconds
    assert free < trial.simulated.jct_mean_seconds, "what starting costs is not for nothing there"
    stayed = np.array(trial.live.finish) - study.trace.declared.submitted[:12] / SECOND
    assert (stayed > np.array(trial.computed) / SECOND).all(), "no job is done before it computed"
    assert trial.preemptions > 0
    assert trial.checkpoint_seconds > 0
    assert trial.restore_seconds > 0


def test_a_run_that_takes_too_long_is_broken_off_and_leaves_no_process(tmp_path: Path) -> None:
    study = Study(tmp_path, jobs=6, gpus=8, load=3)
    with pytest.raises(BadInput, match="not over after 1 s"):
        run_live(
            study.trace, study.cluster, "fifo", study.setup, tmp_path / "a", tmp_path / "log", 1
        )
    assert '"Started"' in (tmp_path / "log").read_text()
    late = time.monotonic() + 0.7  # a keeper ends a moment after its job
    while (left := [one for one in Path("/proc").iterdir() if speaks_of(one, tmp_path)]) and (
        time.monotonic() < late
    ):
        time.sleep(0.02)
    assert left == []


def speaks_of(process: Path, folder: Path) -> bool:
    """Whether the folder is in a process's command line."""
    try:
        return str(folder).encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_what_a_run_cost_is_what_is_found(tmp_path: Path) -> None:
    """A simulated run whose costs are known, stamped as its processes would have stamped it."""
    given = Costs(start=90_000, checkpoint=40_000, restore=70_000, load=60_000, finish=20_000)
    study = Study(tmp_path, jobs=30, gpus=8)
    nodes, trace = Nodes(study.cluster), study.trace
    physics = Physics(nodes, study.setup.profiles, given)
    diary = Diary()
    kernel = Kernel(nodes, trace.declared, load_policy("las(quantum=1s)"), journal=diary)
    probe = Probe(Simulator(trace.declared, trace.duration, physics), kernel)
    kernel.run(probe)
    began: dict[tuple[int, int], int] = {}
    stamps: dict[tuple[int, int], Stamps] = {}
    for batch, plan in diary.steps:
        for event in batch.events:
            if isinstance(event, Started):
                began[event.job, event.attempt] = batch.at + given.load
            elif isinstance(event, Finished):
                key, ends = (event.job, event.attempt), batch.at - given.finish
                stamps[key] = Stamps(began[key], ends, ends)
        for action in plan.actions if plan is not None else ():
            if isinstance(action, Stop):
                key = action.job, action.attempt
                if began.get(key, batch.at) < batch.at:  # it computed
                    stamps[key] = Stamps(began[key], batch.at, batch.at)
    assert len(probe.stopped) > 10
    assert any(waits for _, waits in probe.decided.values())
    assert probe.costs(stamps) == given
    late = {key: seen._replace(stopped=seen.stopped + 5_000) for key, seen in stamps.items()}
    assert probe.costs(late) == replace(given, restore=65_000), "steps after a stop are kept"


def test_the_command_prints_figures_and_says_if_one_misses(tmp_path: Path) -> None:
    words = ["--gpus", "8", "--jobs", "12", "--load", "3", "--runs", "1", "--recipe", "sjf"]
    done = subprocess.run(
        [sys.executable, "-m", "ganger.cli", "parity", *words, "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    found = json.loads(done.stdout)[0]
    assert (found["recipe"], found["runs"], found["unfinished"]) == ("sjf", 1, 0)
    assert found["jct_error"] < 0.3
    assert found["preemptions"] == found["checkpoint_seconds"] == found["restore_seconds"] == 0
    assert found["good"] == (found["jct_error"] <= 0.05)
    assert done.returncode == (0 if found["good"] else 1)
    assert "sjf: mean JCT" in done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--recipe", "fifo,fifoo"], "did you mean fifo"), (["--jobs", "1"], "jobs")],
)
def test_wrong_options_are_refused_before_anything_runs(words: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ganger.cli", "parity", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_every_seed_has_the_same_jobs_in_another_order() -> None:
    one, other = workload(100, 8, 0), workload(100, 8, 1)
    assert sorted(one.duration) == sorted(other.duration)
    assert one.duration.tolist() != other.duration.tolist()
    assert one.duration.min() >= 0.29 * SECOND
    assert one.duration.max() <= 3 * SECOND
    sizes = np.bincount(one.declared.gpus[:100])
    assert sizes.tolist() == [0, 60, 25, 0, 15]
    assert max(workload(100, 1, 0).declared.gpus[:100]) == 1
    slack = workload(100, 8, 0, load=0.4).declared.submitted[99] / one.declared.submitted[99]
    assert slack == pytest.approx(2, rel=1e-3)


def test_agreement_is_the_share_of_pairs_in_the_same_order() -> None:
    assert agreement((1, 2, 3), (10, 20, 30)) == 1
    assert agreement((1, 2, 3), (3, 2, 1)) == 0
    assert agreement((1, 2, 3), (1, 3, 2)) == pytest.approx(2 / 3)
    assert agreement((1, 2, math.nan), (1, 2, 3)) == pytest.approx(1 / 3)


def trial(live: float, simulated: float, finish: tuple[float, ...] = (1.0, 2.0)) -> Trial:
    """A trial with these mean JCTs."""
    was, said = (Outcome(jct, 10 * jct, finish) for jct in (live, simulated))
    return Trial(was, said, 0.1, 0.0, 0.0, 0.08, 0.05, 3, 7, "", (0,))


def test_errors_are_medians_over_runs_beside_their_spread(tmp_path: Path) -> None:
    study = Study(tmp_path, jobs=2, gpus=1)
    study.trials["fifo"] = [trial(1.0, 1.1), trial(2.0, 2.04), trial(4.0, 3.0)]
    found = study.parity("fifo")
    assert found.jct_error == pytest.approx(0.1)
    assert found.jct_error_worst == pytest.approx(0.25)
    assert found.makespan_error == pytest.approx(0.1)
    assert found.jct_spread == pytest.approx(3 / 2)
    assert (found.order, found.order_live, found.steps) == (1, 1, 21)
    assert not found.good
    said = study.simulate("fifo", study.trials["fifo"][0].costs).jct_mean_seconds
    errors = [abs(said / live - 1) for live in (1.0, 2.0, 4.0)]
    assert found.jct_error_other_costs == pytest.approx(sorted(errors)[1])
    table = dict(columns(found))
    assert (table["error"], table["worst"], table["checkpoint"]) == ("10.0%", "25.0%", "-")


def test_the_simulator_says_how_much_small_errors_in_costs_may_matter(tmp_path: Path) -> None:
    """A lone job: its JCT is its costs and its work."""
    study = Study(tmp_path, jobs=2, gpus=8, load=0.01)
    work = float(study.trace.duration[:2].mean()) / SECOND
    costs = Costs(start=SECOND, finish=SECOND, checkpoint=SECOND, restore=SECOND)
    assert study.sensitivity("fifo", costs) == pytest.approx(0.2 / (2 + work), rel=1e-6)
    assert study.sensitivity("fifo", Costs()) == 0


def test_one_run_has_no_spread_and_an_unfinished_job_is_a_miss(tmp_path: Path) -> None:
    study = Study(tmp_path, jobs=2, gpus=1)
    study.trials["fifo"] = [trial(1.0, 1.0, (1.0, math.nan))]
    found = study.parity("fifo")
    assert (found.jct_error, found.unfinished, found.good) == (0, 1, False)
    assert math.isnan(found.jct_spread)
    assert dict(columns(found))["live spread"] == "-"


def trained(tmp_path: Path, load: int = 0) -> Study:
    """Jobs of one core each, on two cores at most; a start takes `load` microseconds."""
    training = Training(sys.executable, SECOND / 200, load)
    return Study(tmp_path, jobs=6, gpus=min(cores(), 2), load=2, training=training)


def test_a_quantum_shorter_than_a_start_is_refused_before_anything_runs(tmp_path: Path) -> None:
    study = trained(tmp_path, 3 * SECOND)
    with pytest.raises(BadInput, match=r"las\(quantum=2s\): not over after .* 3.0 s to import"):
        study.run(["fifo", "las(quantum=2s)"], 1)
    assert study.trials == {}
    assert list(tmp_path.iterdir()) == []
    for recipe in TRAINING_RECIPES:
        study.refuse_endless(recipe)


def test_of_jobs_that_train_the_simulator_gets_how_long_each_computed(tmp_path: Path) -> None:
    study = trained(tmp_path)
    computed = [(job + 1) * SECOND for job in range(6)]
    gpus, arrival = study.cluster.gpus, study.trace.declared.submitted[:6].tolist()
    free, ends = [0] * gpus, []
    for at, took in zip(arrival, computed, strict=True):  # in order of arrival, on what is free
        free.sort()
        free[0] = max(free[0], at) + took
        ends.append(free[0] / SECOND)
    assert study.simulate("fifo", Costs(), computed).finish == pytest.approx(tuple(ends))
    other = study.simulate("fifo", Costs(), [2 * one for one in computed])
    assert other.makespan_seconds > max(ends)
    with pytest.raises(BadInput, match="want as many cores"):
        Study(tmp_path, gpus=cores() + 1, training=Training("python", 1.0, 0))


WORKS = """
import os, sys, time
from pathlib import Path
from ganger import sdk
stamps, steps = sys.argv[1:]
sdk.should_checkpoint()
with Path(stamps, os.environ["GANGER_JOB"] + "." + os.environ["GANGER_ATTEMPT"]).open("w") as file:
    print(time.monotonic_ns(), 0, 0, file=file, flush=True)
    until = time.process_time() + int(steps) * 1e-3
    while time.process_time() < until:
        pass
    print(time.monotonic_ns(), steps, 0, file=file, flush=True)
"""


def test_never_more_jobs_compute_at_once_than_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that work as those that train do, but for PyTorch."""
    (tmp_path / "works.py").write_text(WORKS)
    monkeypatch.setattr(live, "_TRAINED", tmp_path / "works.py")
    study = trained(tmp_path)
    trial = study.trial("fifo")
    spans = [
        [int(line.split()[0]) for line in path.read_text().splitlines()]
        for path in (tmp_path / "0" / "stamps").iterdir()
    ]
    assert len(spans) == 6
    assert sum(end - begin for begin, end in spans) // 1000 == pytest.approx(
        sum(trial.computed), rel=1e-3
    )
    most = max(sum(one[0] <= begin < one[1] for one in spans) for begin, _ in spans)
    assert most == study.cluster.gpus <= cores()
    assert not trial.divergence
    assert trial.simulated.jct_mean_seconds == pytest.approx(trial.live.jct_mean_seconds, rel=0.5)


@pytest.mark.parametrize(("jobs", "load"), [(1, 0.8), (10, 0.0), (10, math.nan)])
def test_absurd_studies_are_refused(tmp_path: Path, jobs: int, load: float) -> None:
    with pytest.raises(BadInput, match="give 2 or more"):
        Study(tmp_path, jobs=jobs, load=load)
