"""A daemon that the programs find by GANGER_HOME."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ganger.client.connection import Client
from service.machines import Machine


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """It runs."""
    made = Machine(tmp_path_factory.mktemp("programs") / "home")
    made.up()
    yield made
    made.end()


@pytest.fixture
def daemon(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client of the daemon that this process finds, too."""
    monkeypatch.setenv("GANGER_HOME", str(machine.root))
    return machine.client
