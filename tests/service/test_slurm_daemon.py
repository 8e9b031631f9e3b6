"""The daemon over a real Slurm: what people do with it, and what happens to it."""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engines.site import Site, missing
from ganger.client.connection import Client
from ganger.core.errors import BadInput, GangerError
from ganger.service.durable.journal import Journal
from ganger.service.durable.recovery import check_history
from ganger.service.serve import Settings, header_for, serve
from service.machines import Machine, wait_for
from service.slurm_desk import STEPS, job, nodes, runs, submit, told
from waiting import until

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
TRAIN = Path(__file__).parents[2] / "examples" / "train.py"
TORCH = os.environ.get("GANGER_TORCH_PYTHON", "")
if not TORCH and importlib.util.find_spec("torch") is not None:
    TORCH = sys.executable


def output(client: Client, number: int) -> str:
    """What a job has written so far."""
    return b"".join(client.stream(f"/v1/jobs/{number}/logs", {})).decode().strip()


def test_people_use_it_as_they_use_one_machine(machine: Machine) -> None:
    client = machine.up()
    status = client.call("GET", "/v1/status")
    assert (status["engine"], status["gpus"], status["nodes"]) == ("slurm", 14, 4)
    well = submit(machine, "sh", "-c", "echo on $CUDA_VISIBLE_DEVICES", gpus=2, gpu_types=["v100"])
    ill = submit(machine, "sh", "-c", "exit 3")
    long = submit(machine, "sleep", "300", gpus=4, gpu_types=["v100"])
    found = {one["job"]: one for one in wait_for(client, [well, ill], 60)}
    assert found[well]["state"] == "COMPLETED"
    assert job(machine, well)["attempts"][0]["devices"][0][:2] in ("v0", "v1")
    assert (found[ill]["state"], found[ill]["reason"]) == ("FAILED", "exit code 3")
    assert output(client, well).startswith("on ")
    runs(machine, long)
    two = [
        submit(
            machine, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 300", gpus=2, gpu_types=["k80"]
        )
        for _ in range(2)
    ]
    runs(machine, *two)
    for one in two:
        gave = until(functools.partial(output, client, one), "output")
        (shown,) = job(machine, one)["attempts"][0]["devices"]
        assert shown.partition(":")[2] == gave, "the GPUs that Slurm gave it"
        client.call("POST", f"/v1/jobs/{one}/cancel")
    with pytest.raises(GangerError, match=r"share: Slurm gives whole GPUs only"):
        submit(machine, "true", share=0.5)
    waits = submit(machine, "true", gpus=8, nodes=2, gpu_types=["v100"])
    why = client.call("GET", f"/v1/jobs/{waits}/explain")
    assert why["state"] == "PENDING"
    assert why["holders"] == [long]
    client.call("POST", f"/v1/jobs/{long}/cancel")
    assert wait_for(client, [long, waits], 60)[0]["state"] == "CANCELLED"
    assert job(machine, waits)["state"] == "COMPLETED"


def test_a_daemon_that_was_killed_finds_its_jobs_again(machine: Machine, tmp_path: Path) -> None:
    client = machine.up()
    count = 'echo start >> "$0"; sleep 6; echo done >> "$0"'
    ends = [tmp_path / f"ends-{i}" for i in range(3)]
    jobs = [submit(machine, "sh", "-c", count, str(path)) for path in ends]
    runs(machine, *jobs)
    machine.kill()
    client = machine.up()
    assert [job(machine, number)["state"] for number in jobs] == ["RUNNING"] * 3
    machine.kill()
    time.sleep(6)  # they end while nobody looks
    client = machine.up()
    assert {one["state"] for one in wait_for(client, jobs, 60)} == {"COMPLETED"}
    assert {path.read_text() for path in ends} == {"start\ndone\n"}


def test_somebody_elses_gpus_are_not_planned_with(machine: Machine, site: Site) -> None:
    client = machine.up()
    site.ask(
        "sbatch", "-w", "v0", "--gres=gpu:3", "--mem=100", "-o", "/dev/null", "--wrap", "sleep 300"
    )
    until(lambda: nodes(machine)["v0"]["gpus_withheld"] == 3, "GPUs that are others'")
    assert nodes(machine)["v0"]["gpus_free"] == 1
    assert nodes(machine)["v0"]["state"] == "up"
    five = submit(machine, "sleep", "1", gpus=5, workers=5, gpu_types=["v100"])
    assert wait_for(client, [five], 60)[0]["state"] == "COMPLETED", "it fits beside them"
    both = submit(machine, "true", gpus=8, nodes=2, gpu_types=["v100"])
    time.sleep(2)
    assert job(machine, both)["state"] == "PENDING"
    why = client.call("GET", f"/v1/jobs/{both}/explain")["lines"]
    assert "GPUs are used outside Ganger: 3 on v0." in why
    site.clear()
    assert wait_for(client, [both], 60)[0]["state"] == "COMPLETED"


def test_what_others_hold_when_it_comes_is_known_before_anything_is_planned(
    machine: Machine, site: Site
) -> None:
    site.ask(
        "sbatch", "-w", "v0", "--gres=gpu:4", "--mem=100", "-o", "/dev/null", "--wrap", "sleep 300"
    )
    until(lambda: "v0" in site.ask("squeue", "-h", "-t", "R", "-o", "%N"), "somebody's job")
    client = machine.up()
    until(lambda: nodes(machine)["v1"]["state"] == "up", "nodes")
    number = submit(machine, "true", gpus=4, gpu_types=["v100"])
    assert wait_for(client, [number], 60)[0]["state"] == "COMPLETED"
    (only,) = job(machine, number)["attempts"]
    assert only["devices"][0].startswith("v1:")


def test_a_suspended_job_saves_leaves_and_goes_on_as_a_new_attempt(
    machine: Machine, tmp_path: Path
) -> None:
    client = machine.up()
    number = submit(machine, sys.executable, "-c", STEPS, str(tmp_path / "ends"))
    runs(machine, number)
    until(lambda: job(machine, number)["progress"].get("step", 0) > 3, "some steps")
    client.call("POST", f"/v1/jobs/{number}/suspend")
    found = wait_for(client, [number], 60)[0]
    assert (found["state"], found["attempt"]) == ("COMPLETED", 2)
    assert (tmp_path / "ends").read_text() == "2\n"


def test_a_drained_node_is_named_and_comes_back(machine: Machine, site: Site) -> None:
    client = machine.up()
    site.ask("scontrol", "update", "NodeName=k1", "State=DRAIN", "Reason=test")
    until(lambda: nodes(machine)["k1"]["state"] == "down", "node that is closed")
    status = client.call("GET", "/v1/status")
    assert {"down: k1", "k1: drain in Slurm: test"} <= set(status["trouble"])
    assert (status["gpus_free"], status["gpus_out"]) == (12, 2)
    waits = submit(machine, "true", gpus=6, workers=3, gpu_types=["k80"])
    why = client.call("GET", f"/v1/jobs/{waits}/explain")["lines"]
    assert "Out of use: k1 (drain in Slurm: test)." in why
    assert "4 of 6 such are free" in why[0]
    site.ask("scontrol", "update", "NodeName=k1", "State=RESUME")
    until(lambda: nodes(machine)["k1"]["state"] == "up", "node that is open")
    assert wait_for(client, [waits], 60)[0]["state"] == "COMPLETED"


def test_a_job_finds_its_slurm_job_in_which_srun_starts_steps(machine: Machine) -> None:
    """As a script of sbatch does; `squeue` shows by which number people know the job."""
    client = machine.up()
    number = submit(
        machine,
        "sh",
        "-c",
        "squeue -h -j $SLURM_JOB_ID -o %k; srun echo step",
        per="job",
        env={"PATH": os.environ["PATH"]},
    )
    assert wait_for(client, [number], 60)[0]["state"] == "COMPLETED"
    said = b"".join(client.stream(f"/v1/jobs/{number}/logs", {})).decode()
    assert said.split() == [f"ganger:{number}/1", "step"]


def test_a_sites_own_jobs_are_advised_upon_explained_and_imported_and_left_alone(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANGER_HOME", str(tmp_path / "home"))
    give = ("--gres=gpu:v100:4", "--mem=100", "-t", "9", "-o", "/dev/null", "--wrap")
    first = site.ask("sbatch", "--parsable", "-w", "v0", *give, "sleep 300").strip()
    until(lambda: "RUNNING" in site.ask("squeue", "-h", "-o", "%T"), "a job that runs")
    waits = site.ask("sbatch", "--parsable", "-w", "v0", *give, "true").strip()
    until(lambda: "Resources" in site.ask("squeue", "-h", "-o", "%r"), "Slurm's reason")
    assert "v1: 4 GPUs v100" in told("up", "--engine", "slurm", "--dry-run")
    before = site.ask("squeue", "-h", "-o", "%A %T")
    advice = told("up", "--engine", "slurm", "--advise", "--recipe", "fifo")
    assert "1 jobs run and 1 wait; fifo would do nothing" in advice, "it is bound to v0"
    why = told("explain", "--slurm", waits)
    assert "are not free" in why
    assert f"held by {first} (root, 4)" in why
    ahead = told("whatif", "--slurm", "--partition", "main", "--recipe", "fifo", "--add", "4xv100")
    assert [line.split("  ")[0] for line in ahead.splitlines()[1:]] == ["fifo", "fifo on more"]
    assert site.ask("squeue", "-h", "-o", "%A %T") == before
    ran = lambda: "RunTime=00:00:00" not in site.ask("scontrol", "show", "job", first)  # noqa: E731
    until(ran, "a job that ran for a second: one cancelled before counts as never started")
    site.ask("scancel", first, waits)
    until(lambda: not site.ask("squeue", "-h"), "an empty queue")
    told("trace", "import-slurm", "-o", str(tmp_path / "jobs.csv"))
    lines = (tmp_path / "jobs.csv").read_text().splitlines()
    assert any(line.startswith(f"{first},") for line in lines)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"partition": "other"}, "no node is in partition 'other'"),
        ({"gpus": "4"}, "it is not for the engine slurm"),
        ({"sbatch_options": "--nodes=2"}, "for Ganger to give"),
        (
            {"sbatch_options": "--reservation=none"},
            "--sbatch-options: Requested reservation is inv",
        ),
        ({"sbatch_options": "--qos --account=a"}, "--sbatch-options: option '--qos' requires an a"),
        (
            {"sbatch_options": "--colour=red"},
            "--sbatch-options: unrecognized option '--colour=red'",
        ),
        ({"sbatch_options": "--account="}, "--account has no value"),
        ({"engine": "grid"}, "no engine 'grid'"),
        ({"engine": "local", "partition": "main"}, "it is not for the engine local"),
        ({"engine": "local", "pilot": "0..2"}, "it is not for the engine local"),
        ({"pilot": "3..2"}, "3 is more than 2"),
        ({"pilot": "many"}, "'many' is not a valid range"),
        ({"pilot_idle": "5m"}, "it is not for the engine slurm"),
    ],
)
def test_what_it_is_not_started_with(
    site: Site, tmp_path: Path, settings: dict[str, str], why: str
) -> None:
    given = {"home": str(tmp_path / "home"), "engine": "slurm", **settings}
    with pytest.raises(GangerError, match=why):
        serve(msgspec.convert(given, Settings))


def test_options_are_tried_when_they_are_new_and_a_closed_partition_is_no_fault_of_theirs(
    site: Site, tmp_path: Path
) -> None:
    settings = Settings(home=str(tmp_path), engine="slurm", sbatch_options="--nice=3 --exclusive")
    site.ask("scontrol", "update", "PartitionName=main", "State=INACTIVE")
    try:
        before = header_for(settings, None)
    finally:
        site.ask("scontrol", "update", "PartitionName=main", "State=UP")
    journal = Journal(tmp_path / "journal.db")
    gone = msgspec.structs.replace(settings, sbatch_options="--reservation=over")
    with pytest.raises(BadInput, match="reservation"):
        header_for(gone, before, journal)
    journal.set("sbatch_options", gone.sbatch_options)
    assert header_for(gone, before, journal) == before, "jobs that run are not left alone"
    journal.close()


def test_without_a_controller_a_daemon_does_not_come_up_and_says_why(
    machine: Machine, site: Site
) -> None:
    machine.up()
    machine.kill()
    site.kill("slurmctld", signal.SIGTERM)
    try:
        with pytest.raises(GangerError, match=r"does not answer|Failed while"):
            serve(msgspec.convert(machine.settings, Settings))
    finally:
        site.start_controller()
    machine.up()


def test_a_home_keeps_its_engine(machine: Machine) -> None:
    machine.up()
    machine.kill()
    with pytest.raises(GangerError, match="the jobs of this home run on the engine slurm"):
        serve(Settings(home=str(machine.root), engine="local"))
    machine.settings = {"home": str(machine.root)}
    assert machine.up().call("GET", "/v1/status")["engine"] == "slurm"


# ---------------------------------------------------------------------- pilots


def test_pilots_come_when_jobs_wait_and_go_when_they_are_idle(
    pilots: Machine, site: Site, tmp_path: Path
) -> None:
    client = pilots.up()
    until(lambda: {one["state"] for one in nodes(pilots).values()} == {"down"}, "no node yet")
    assert client.call("GET", "/v1/status")["trouble"] == [], "that is as it should be"
    saves = submit(
        pilots, sys.executable, "-c", STEPS, str(tmp_path / "ends"), gpus=2, gpu_types=["k80"]
    )
    runs(pilots, saves)
    assert "k" in job(pilots, saves)["attempts"][0]["devices"][0][0]
    halves = [submit(pilots, "sleep", "2", share=0.5, gpu_types=["k80"]) for _ in range(2)]
    runs(pilots, *halves)
    client.call("POST", f"/v1/jobs/{saves}/suspend")
    until(lambda: job(pilots, saves)["state"] == "SUSPENDED", "a job that stands still")
    client.call("POST", f"/v1/jobs/{saves}/resume")
    found = wait_for(client, [saves, *halves], 60)
    assert [one["state"] for one in found] == ["COMPLETED"] * 3
    assert (tmp_path / "ends").read_text() == "1\n", "it was frozen, not started anew"
    gang = submit(pilots, "true", gpus=8, nodes=2, gpu_types=["v100"])
    assert wait_for(client, [gang], 90)[0]["state"] == "COMPLETED"
    until(lambda: not site.ask("squeue", "-h"), "an empty queue")


def test_pilots_and_their_jobs_outlive_a_daemon_that_is_killed(
    pilots: Machine, site: Site, tmp_path: Path
) -> None:
    pilots.up(pilot_idle="1m")
    count = 'echo start >> "$0"; sleep 4; echo done >> "$0"'
    number = submit(pilots, "sh", "-c", count, str(tmp_path / "ends"))
    runs(pilots, number)
    before = site.ask("squeue", "-h", "-o", "%A")
    pilots.kill()
    client = pilots.up()
    assert wait_for(client, [number], 60)[0]["state"] == "COMPLETED"
    assert (tmp_path / "ends").read_text() == "start\ndone\n"
    assert site.ask("squeue", "-h", "-o", "%A") == before


def test_a_job_on_a_pilot_that_is_cancelled_runs_again_on_another(
    pilots: Machine, site: Site, tmp_path: Path
) -> None:
    client = pilots.up()
    number = submit(pilots, sys.executable, "-c", STEPS, str(tmp_path / "ends"))
    until(lambda: job(pilots, number)["progress"].get("step", 0) > 3, "some steps")
    site.ask("scancel", site.ask("squeue", "-h", "-o", "%A").strip())
    found = wait_for(client, [number], 60)[0]
    assert (found["state"], found["attempt"]) == ("COMPLETED", 2)


# ---------------------------------------------------------------------- everything at once


def _twenty(machine: Machine, where: Path) -> dict[int, Path]:
    """Twenty jobs of many sorts; each attempt that gets to its end writes its number to a file."""
    found: dict[int, Path] = {}

    def add(*command: str, **fields: Any) -> None:
        path = where / f"{len(found)}"
        found[submit(machine, *command, str(path), retries=3, **fields)] = path

    train = [
        "sh",
        "-c",
        f"{TORCH} {TRAIN} --samples 300 --epochs 2 --pause 0.02 "
        '&& { [ "$RANK" != 0 ] || echo $GANGER_ATTEMPT >> "$0"; }',
    ]
    if TORCH:
        add(*train, gpus=2, workers=2, gpu_types=["v100"])
    for kind, gpus in (("v100", 5), ("v100", 4), ("k80", 6), ("v100", 2), ("k80", 2), ("v100", 1)):
        add(sys.executable, "-c", STEPS, gpus=gpus, workers=gpus, gpu_types=[kind])
    while len(found) < 20:
        add(
            "sh",
            "-c",
            f'sleep {len(found) % 4}; [ "$RANK" != 0 ] || echo $GANGER_ATTEMPT >> "$0"',
            gpus=1 + len(found) % 4,
        )
    return found


@pytest.mark.timeout(400)
def test_twenty_jobs_three_recipes_a_dead_node_and_another_controller(
    machine: Machine, site: Site, tmp_path: Path
) -> None:
    where = tmp_path / "ends"
    where.mkdir()
    client = machine.up(recipe="fifo")
    jobs = _twenty(machine, where)

    def done() -> int:
        return len(list(where.glob("*[0-9]")))

    until(lambda: done() >= 3, "the first jobs", 120)
    client.call("PUT", "/v1/policy", body={"recipe": "tiresias"})
    busy = until(
        lambda: next((name for name in ("v0", "v1") if nodes(machine)[name]["jobs"]), ""), "a node"
    )
    site.kill_node(busy)
    until(lambda: done() >= 6, "more jobs", 120)
    site.kill("slurmctld", signal.SIGTERM)
    client.call("PUT", "/v1/policy", body={"recipe": "srtf"})
    until(lambda: "Slurm: " in str(client.call("GET", "/v1/status")["trouble"]), "trouble")
    site.start_controller()
    until(lambda: "Slurm: " not in str(client.call("GET", "/v1/status")["trouble"]), "no trouble")
    until(lambda: done() >= 9, "even more jobs", 120)
    machine.kill()
    site.start_node(busy)
    client = machine.up(recipe="")
    found = wait_for(client, list(jobs), 240)
    bad = [one["job"] for one in found if one["state"] != "COMPLETED"]
    assert not bad, "\n".join(map(str, (job(machine, number) for number in bad)))
    for number, path in jobs.items():
        attempts = job(machine, number)["attempts"]
        assert [bool(one["outcome"]) for one in attempts] == [True] * (len(attempts) - 1) + [False]
        # Who was stopped between its last line and its end did both; nobody did it twice.
        written = path.read_text().split()
        assert written[-1] == str(len(attempts))
        assert len(set(written)) == len(written)
    assert client.call("GET", "/v1/policy")["recipe"] == "srtf"
    machine.kill()
    journal = Journal(machine.root / "journal.db", readonly=True)
    assert check_history(journal) > 20
    journal.close()
    machine.up()
