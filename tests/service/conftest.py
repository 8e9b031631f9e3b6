"""Daemons over a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.site import Site, standing
from service.machines import Machine
from service.slurm_desk import NODES


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A Slurm that lives as long as the module's tests."""
    with standing(NODES) as site:
        yield site


@pytest.fixture
def machine(site: Site, tmp_path: Path) -> Iterator[Machine]:
    """A daemon's folder; whatever it runs is gone afterwards."""
    made = Machine(tmp_path / "home", gpus="", engine="slurm", partition="main")
    yield made
    made.end()
    site.clear()
    if "drain" in site.ask("sinfo", "-h", "-N", "-o", "%T"):
        site.ask("scontrol", "update", f"NodeName={','.join(NODES)}", "State=RESUME")
    site.wait_idle()


@pytest.fixture
def pilots(machine: Machine) -> Machine:
    """A daemon's folder in pilot mode."""
    machine.settings |= {"pilot": "0..2", "pilot_idle": "4s"}
    return machine
