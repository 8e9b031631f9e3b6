"""The local engine with real processes passes the suite."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from engines.conformance import Conformance, play
from engines.rig import Agents, LocalBench

__all__ = ["play"]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="live engines are for Linux")


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


class TestLocal(Conformance):
    """The suite."""
