"""What tests of the daemon over a real Slurm ask and wait for."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner

from ganger.cli.main import cli
from service.machines import Machine
from waiting import until

NODES = {"v0": ("v100", 4), "v1": ("v100", 4), "k0": ("k80", 4), "k1": ("k80", 2)}
STEPS = """
import os, sys, time
from ganger import sdk
kept = sdk.checkpoint_dir / "step"
step = int(kept.read_text()) if kept.exists() else 0
last = int(sys.argv[2]) if sys.argv[2:] else 60
while step < last:
    time.sleep(.05); step += 1
    sdk.progress(step, last)
    if sdk.should_checkpoint():
        if sdk.rank == 0:
            kept.parent.mkdir(parents=True, exist_ok=True)
            made = kept.with_suffix(".new"); made.write_text(str(step)); made.replace(kept)
        sdk.leave(step)
if sdk.rank == 0:
    open(sys.argv[1], "a").write(os.environ["GANGER_ATTEMPT"] + "\\n")
"""
"""60 steps, or as many as the second argument says; who ends writes its attempt into the first."""


def submit(machine: Machine, *command: str, **fields: Any) -> int:
    """Submit a job; its number."""
    number: int = machine.client.call("POST", "/v1/jobs", body={"command": command, **fields})[
        "job"
    ]
    return number


def job(machine: Machine, number: int) -> dict[str, Any]:
    """All about a job."""
    found: dict[str, Any] = machine.client.call("GET", f"/v1/jobs/{number}")[0]
    return found


def runs(machine: Machine, *numbers: int) -> None:
    """Wait until these jobs run."""
    until(
        lambda: {job(machine, number)["state"] for number in numbers} == {"RUNNING"},
        f"jobs {numbers} that run",
    )


def nodes(machine: Machine) -> dict[str, dict[str, Any]]:
    """The nodes, by name."""
    return {node["name"]: node for node in machine.client.call("GET", "/v1/nodes")}


def told(*words: str) -> str:
    """What a command prints."""
    found = CliRunner().invoke(cli, words)
    assert found.exit_code == 0, found.output
    return found.output
