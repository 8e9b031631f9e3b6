"""A daemon in this process, over an engine whose outcomes are scripted and whose time jumps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ganger.client.request import JobRequest
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.core.state.jobs import Phase
from ganger.core.units import HOUR, SECOND
from ganger.engines.agent.protocol import Progress, Read
from ganger.engines.clock import Clock
from ganger.engines.local import Hold
from ganger.engines.reconciliation import Believed
from ganger.engines.testing.fake import FakeEngine, Script
from ganger.service.commands import Ask, Order, Submit
from ganger.service.daemon import Daemon
from ganger.service.durable.journal import Header, Journal
from ganger.service.durable.recovery import guard_of, header_of
from ganger.service.jobs.submission import Who, prepare
from ganger.service.reports.rows import rows_of

ANN = Who("ann", 1000, 1000)
START = 1_000_000 * HOUR


class Stepped(Clock):
    """The time of a FakeEngine."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self.set_ahead = 0
        """By how much somebody has set the wall clock ahead."""

    @property
    def ahead(self) -> int:
        """The same."""
        return self.set_ahead

    def now(self) -> int:
        """The time."""
        return self._engine.now


class Scripted(FakeEngine):
    """A FakeEngine that outlives its daemons."""

    def __init__(self, script: Callable[[int, int], Script]) -> None:
        super().__init__(script, now=START)
        self.wall = Stepped(self)
        self.clock: Clock = self.wall
        self.progress: dict[int, Progress] = {}

    def adopt(self, holds: Iterable[Hold]) -> None:
        """Start what should be starting and was never seen."""
        for hold in holds:
            if hold.phase == Phase.STARTING:
                self._start(hold.job, hold.attempt, ())

    def reconcile(self, owner: Believed) -> bool:
        """Nothing gets lost here."""
        return True

    def devices(self, job: int, attempt: int) -> dict[str, tuple[int, ...]]:
        """The plan's it is."""
        return {}

    def lost_output(self, job: int, attempt: int) -> str:
        """Nothing is written here."""
        return ""

    def host(self, node: int) -> str:
        """This machine."""
        return "127.0.0.1"

    def read(self, node: int, order: Read) -> None:
        """All files are this machine's."""

    def close(self) -> None:
        """Nothing to let go of."""


def box(gpus: int = 4, name: str = "box") -> NodeSpec:
    """A node."""
    return NodeSpec(gpus=gpus, gpu_type="V100", cpus=8000, memory=65536, name=name)


def header(policy: str = "fifo", *nodes: NodeSpec, knows: str = "history") -> Header:
    """A header over `nodes`, by default one of 4 GPUs."""
    return header_of(ClusterSpec(nodes or (box(),)).check(), policy, 0, knows)


class Desk:
    """A daemon that steps when it is told to."""

    def __init__(
        self,
        root: Path,
        begin: Header | None = None,
        script: Callable[[int, int], Script] = lambda job, attempt: Script(runs=SECOND),
        engine: Scripted | None = None,
    ) -> None:
        self.root = root
        self.engine = engine if engine is not None else Scripted(script)
        self.journal = Journal(root / "journal.db")
        self.daemon = Daemon(self.journal, root / "scripts")
        self.daemon.engine = self.engine
        self.daemon.open(begin or header())
        self.good = guard_of(self.daemon.kernel).policy
        self.engine.adopt(self.daemon.holds())

    def ask(self, ask: Ask) -> Any:
        """Have it done in the next step; its answer, or its error raised."""
        self.daemon.ask(ask)
        self.daemon.once()
        return ask.done.result(0)

    def jobs(self, **fields: Any) -> Submit:
        """A submission."""
        request = JobRequest(**{"command": ["true"], **fields})
        now = self.daemon.now()
        resolve = lambda job: rows_of(self.daemon, job)  # noqa: E731
        return Submit(prepare(request, ANN, now, resolve, False, self.engine.clock.ahead))

    def submit(self, **fields: Any) -> list[int]:
        """Submit; the rows."""
        rows: list[int] = self.ask(self.jobs(**fields))
        return rows

    def order(self, verb: str, *rows: int, value: float = 0.0) -> None:
        """Say something of jobs."""
        self.ask(Order(list(rows), {verb: value}))

    def phase(self, row: int) -> Phase:
        """Where a job is."""
        return Phase(self.daemon.kernel.jobs.phase[row])

    def steps(self, number: int) -> None:
        """Let things happen."""
        for _ in range(number):
            self.daemon.once()

    def until_quiet(self) -> None:
        """Let everything happen that is ahead."""
        before = -1
        while before != self.daemon.kernel.revision:
            before = self.daemon.kernel.revision
            self.daemon.once()

    def close(self) -> None:
        """Let go of the journal, as a crash would."""
        self.daemon.reader.close()
        self.journal.close()

    def again(self, begin: Header | None = None) -> Desk:
        """Crash and come back."""
        self.close()
        return Desk(self.root, begin or self.daemon.header, engine=self.engine)
