"""Agents and engines for the tests of the local engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.conformance import Play
from engines.rig import Agents, LocalBench


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    """Two agents that live as long as the module's tests."""
    agents = Agents(tmp_path_factory.mktemp("agents"), ["a", "b"])
    yield agents
    agents.close()


@pytest.fixture
def bench(agents: Agents) -> Iterator[LocalBench]:
    """A new engine on the agents."""
    bench = LocalBench(agents)
    bench.settle()
    yield bench
    bench.engine.close()


@pytest.fixture
def play(bench: LocalBench) -> Play:
    """A play on the engine's bench."""
    return Play(bench)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[LocalBench]:
    """An engine on agents of its own: the numbers of a kernel's jobs start at 0."""
    agents = Agents(tmp_path, ["a", "b"])
    bench = LocalBench(agents)
    bench.settle()
    yield bench
    bench.engine.close()
    agents.close()
