"""What Slurm 22.05.8 and 24.11.5 really answered, read; and what no Slurm should answer.

The files were recorded from controllers with four node daemons: job 1 of two nodes, job 2 on k0,
a heterogeneous job (3, 4) and job 5 waiting, node k1 drained. Only paths and host names were cut.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.core.errors import BadInput
from ganger.engines.agent.protocol import Part
from ganger.engines.slurm.calls.answers import Away, devices_of, gpus_of, jobs_of, nodes_of
from ganger.engines.slurm.calls.client import Client, Component
from ganger.engines.slurm.calls.hostlist import expand
from ganger.engines.slurm.machines import spec_of
from ganger.engines.slurm.node_share import granted, on_devices

ANSWERS = Path(__file__).parent / "answers"
versions = pytest.mark.parametrize("version", ["22.05", "24.11"])


def answer(name: str, version: str) -> str:
    """A recorded answer."""
    return (ANSWERS / f"{name}-{version}.json").read_text()


@versions
def test_nodes_are_read(version: str) -> None:
    nodes = {node.name: node for node in nodes_of(answer("nodes", version), "scontrol")}
    assert sorted(nodes) == ["k0", "k1", "v0", "v1"]
    one = nodes["v0"]
    assert (one.address, one.gpus, one.cpus, one.memory) == ("127.0.0.1", {"v100": 4}, 16000, 16000)
    assert [node.name for node in nodes.values() if node.is_closed] == ["k1"]
    assert {name: node.gpus_used for name, node in nodes.items()} == {
        "k0": 1,
        "k1": 0,
        "v0": 2,
        "v1": 2,
    }
    assert not any(node.is_gone for node in nodes.values())
    spec = spec_of(nodes["k1"])
    assert spec is not None
    assert (spec.name, spec.gpus, spec.gpu_type) == ("k1", 2, "k80")


@pytest.mark.parametrize("read", [jobs_of, lambda text: nodes_of(text, "sinfo")])
def test_a_controller_that_is_away_has_not_said_that_there_is_nothing(read: Any) -> None:
    said = '{"errors": [{"error": "Unspecified error", "errno": -1}], "jobs": [], "nodes": []}'
    with pytest.raises(Away, match="Unspecified error"):
        read(said)
    assert read('{"errors": [], "jobs": [], "nodes": []}') == []


@versions
def test_jobs_are_read(version: str) -> None:
    jobs = {job.number: job for job in jobs_of(answer("squeue", version))}
    gang = jobs[1]
    assert (gang.name, gang.comment, gang.nodes) == ("ganger-x", "ganger:7/2", ("v0", "v1"))
    assert gang.gpus == {"v0": (0, 1), "v1": (0, 1)}
    assert gang.holds
    assert jobs[2].gpus == {"k0": (0,)}
    assert jobs[3].leader == jobs[4].leader == 3
    assert jobs[5].is_pending
    assert jobs[5].leader == 0
    assert not any(job.is_over for job in jobs.values() if job.number < 6)


@versions
@pytest.mark.parametrize("field", ["job_id", "job_state", "name"])
def test_a_missing_field_is_one_clear_error(version: str, field: str) -> None:
    found = msgspec.json.decode(answer("squeue", version))
    del found["jobs"][0][field]
    with pytest.raises(BadInput, match=f"squeue --json: '{field}' is missing"):
        jobs_of(msgspec.json.encode(found).decode())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"jobs": [1]}', '{"jobs": null}'])
def test_what_is_no_answer_is_one_clear_error(text: str) -> None:
    with pytest.raises(BadInput, match="squeue"):
        jobs_of(text)


def test_host_lists() -> None:
    assert expand("gpu[01-03,7],login") == ["gpu01", "gpu02", "gpu03", "gpu7", "login"]
    assert expand("r[0-1]n[2-3]") == ["r0n2", "r0n3", "r1n2", "r1n3"]
    assert expand("") == []
    for wrong in ("a[x]", "a[1-]", "a[0-999999]"):
        with pytest.raises(BadInput):
            expand(wrong)


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=20))
def test_a_list_of_numbers_expands_to_its_numbers(numbers: list[int]) -> None:
    text = ",".join(str(number) for number in numbers)
    assert expand(f"n[{text}]") == [f"n{number}" for number in numbers]


def test_gres() -> None:
    assert gpus_of("gpu:v100:4(S:0-1),gpu:k80:2") == {"v100": 4, "k80": 2}
    assert gpus_of("gpu:8") == {"gpu": 8}
    assert gpus_of("(null)") == gpus_of("") == gpus_of("shard:8") == {}
    assert devices_of("gpu:v100:3(IDX:0,2-3)") == (0, 2, 3)
    assert devices_of("gpu:v100:1(IDX:N/A)") == ()


def test_a_part_gets_the_devices_that_slurm_gave() -> None:
    parts = Part(devices=(0, 1)), Part(devices=(2,), role=1)
    assert [part.devices for part in on_devices(parts, granted("5,3,1"))] == [(5, 3), (1,)]
    with pytest.raises(ValueError, match="GPU-"):
        granted("GPU-1a")


class Commands:
    """In place of the commands: keeps what is called, says what it is told to."""

    def __init__(self, code: int = 0, said: str = "", error: str = "") -> None:
        self.called: list[tuple[list[str], str]] = []
        self._done = code, said, error

    def __call__(self, command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        self.called.append((command, how["input"]))
        return subprocess.CompletedProcess(command, *self._done)


def submitted(monkeypatch: pytest.MonkeyPatch, commands: Commands, *argv: str) -> int:
    """Submit a job of two kinds of nodes."""
    monkeypatch.setattr(subprocess, "run", commands)
    parts = [Component(("v0",), "v100", 2, 3, 100), Component(("k0", "k1"), "k80", 1, 1, 0)]
    return Client("main").submit(
        parts, argv, name="ganger-x", comment="ganger:7/1", output="o", minutes=9
    )


def test_a_submission_names_the_nodes_and_quotes_what_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = Commands(said="12;cluster\n")
    assert submitted(monkeypatch, commands, "echo", "$(reboot); 'x'\nrm") == 12
    [(command, script)] = commands.called
    first, second = command[: command.index(":")], command[command.index(":") :]
    assert {"--nodelist=v0", "--gres=gpu:v100:2", "--no-requeue", "--time=9"} <= set(first)
    assert {"--nodelist=k0,k1", "--nodes=2", "--comment=ganger:7/1"} <= set(second)
    monkeypatch.undo()
    shell = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=True)
    assert shell.stdout == "$(reboot); 'x'\nrm\n"


def test_options_are_refused_in_slurms_words(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("main", ("--account=vison", "--exclusive", "--qos"))
    account = "allocation failure: Invalid account or account/partition combination specified\n"
    monkeypatch.setattr(subprocess, "run", Commands(1, error=account))
    with pytest.raises(BadInput, match=r"--sbatch-options: Invalid account.*--account=NAME"):
        client.check("v100")
    monkeypatch.setattr(subprocess, "run", commands := Commands())
    client.check("v100")
    assert [command[-2:] for command, _ in commands.called] == [
        ["--account=vison", "--exclusive"],
        ["--account=vison", "--qos"],
    ], "one that lacks its value has no other behind it"


def test_a_controller_that_is_away_is_told_from_one_that_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(Away):
        submitted(monkeypatch, Commands(1, error="Unable to contact slurm controller"), "true")
    with pytest.raises(BadInput, match=r"sbatch: Invalid partition"):
        submitted(monkeypatch, Commands(1, error="Invalid partition"), "true")
    with pytest.raises(BadInput, match="no job number"):
        submitted(monkeypatch, Commands(said="what?"), "true")
