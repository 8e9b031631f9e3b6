"""A daemon in this process over real agents of this machine, each a node of four GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engines.rig import Agents
from ganger.core.state.jobs import Phase
from ganger.core.units import SECOND
from ganger.engines.clock import Clock
from ganger.engines.gpus import find_nodes
from ganger.engines.local import LocalEngine
from ganger.service.commands import Ask
from ganger.service.daemon import Daemon
from ganger.service.durable.journal import Journal
from ganger.service.durable.recovery import header_of
from ganger.service.nodes import cluster_of
from service.desk import Desk

PATIENCE_SECONDS = 90.0


class LiveDesk(Desk):
    """Steps when it is told to, or until something is so. A lost agent is missed soon."""

    def __init__(
        self, root: Path, agents: Agents, policy: str, inner: str = "", serving: str = ""
    ) -> None:
        self.root, self.agents = root, agents
        nodes = [node for name in agents.homes for node in find_nodes("4", name)]
        self.journal = Journal(root / "journal.db")
        self.daemon = Daemon(self.journal)
        self.daemon.window = SECOND
        began = header_of(cluster_of(nodes), policy, 0, "history", inner, serving)
        last = self.daemon.open(began)
        self.live = LocalEngine(
            self.daemon.launch,
            lambda hello: self.daemon.node_numbers(hello.nodes),
            agents=[at._replace(spawn=None) for at in agents.at()],
            clock=Clock(last),
            lost_after=SECOND // 2,
            progress_every=SECOND // 10,
        )
        self.engine = self.live  # type: ignore[assignment]
        self.daemon.engine = self.live
        self.live.adopt(self.daemon.holds())
        self.until(lambda: sum(box.up for box in self.live.boxes.values()) == len(nodes))

    def once(self) -> None:
        """A step, or a moment without one."""
        self.daemon.once(self.daemon.now() + SECOND // 20)

    def until(self, happened: Callable[[], bool]) -> None:
        """Step until something is so."""
        late = time.monotonic() + PATIENCE_SECONDS
        while not happened():
            assert time.monotonic() < late, self.said()
            self.once()

    def said(self) -> str:
        """How the jobs are, for a test that fails."""
        jobs = self.daemon.kernel.jobs
        phases = [Phase(phase).name for phase in jobs.phase[: jobs.n]]
        return f"{phases} {self.daemon.ends}"

    def ask(self, ask: Ask) -> Any:
        """Have it done; its answer, or its error raised."""
        self.daemon.ask(ask)
        self.until(ask.done.done)
        return ask.done.result(0)

    def rows(self, parent: int, *phases: Phase) -> list[int]:
        """The children of a job that are in one of these phases."""
        jobs = self.daemon.kernel.jobs
        return [
            row
            for row in range(jobs.n)
            if jobs.parent[row] == parent and Phase(jobs.phase[row]) in phases
        ]

    def close(self) -> None:
        """Let go; the jobs go on."""
        self.live.close()
        super().close()
