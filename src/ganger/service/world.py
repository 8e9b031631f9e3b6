"""What a server process holds together, for the endpoints."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ganger import __version__
from ganger.client.answers import Status
from ganger.core.errors import GangerError
from ganger.core.jobs import Phase
from ganger.core.spec import Shape
from ganger.core.units import SECOND
from ganger.service.accept import Fits, Who
from ganger.service.daemon import Daemon
from ganger.service.recovery import guard_of


class Forbidden(GangerError):  # noqa: N818 - reads as a sentence
    """Only somebody else may do that."""


class World:
    """The daemon, and how it is reached. `shared`: several users, told apart by the socket."""

    def __init__(
        self, daemon: Daemon, home: Path, *, shared: bool = False, listen: str = "",
        token_hash: str = "", logs: Path | None = None, engine: str = "local",
    ) -> None:  # fmt: skip
        self.daemon = daemon
        self.home = home
        self.shared = shared
        self.listen = listen
        self.engine = engine
        self.token_hash = token_hash
        self.logs = logs or home / "agent" / "logs"
        self.go_down: Callable[[], None] = lambda: None
        self.leaving = False
        """The server ends: streams should."""
        self._fits: tuple[object, Fits] = (None, Fits(daemon.kernel.nodes))
        self._stepped: asyncio.Event | None = None

    def fits(self, shape: Shape) -> None:
        """Raise BadInput if `shape` could never run here."""
        nodes = self.daemon.kernel.nodes
        if self._fits[0] is not nodes:
            self._fits = nodes, Fits(nodes)
        self._fits[1].check(shape)

    def known_types(self, names: list[str]) -> list[str]:
        """GPU types as the cluster spells them."""
        types = {name.lower(): name for name in self.daemon.kernel.nodes.types}
        return [types.get(name.lower(), name) for name in names]

    def listen_for_steps(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake those who wait whenever a step was made."""
        self._stepped = stepped = asyncio.Event()

        def tell() -> None:
            stepped.set()
            stepped.clear()

        def stepped_on() -> None:
            loop.call_soon_threadsafe(tell)

        self.daemon.on_step = stepped_on

    async def next_step(self, timeout: float) -> None:
        """Wait for the next step, at most `timeout` seconds."""
        assert self._stepped is not None
        try:
            await asyncio.wait_for(self._stepped.wait(), max(min(timeout, 1.0), 0.001))
        except TimeoutError:
            return

    def refuse_others(self, who: Who, rows: Sequence[int]) -> None:
        """Raise Forbidden unless every job is `who`'s own."""
        for row in rows:
            if not self.owns(who, row):
                raise Forbidden(f"job {row + 1} is somebody else's")

    def owns(self, who: Who, row: int) -> bool:
        """Whether the job is `who`'s own."""
        jobs = self.daemon.kernel.jobs
        return jobs.users[jobs.user[row]] == who.user

    def refuse_users(self, who: Who) -> None:
        """Raise Forbidden unless `who` runs the daemon."""
        if self.shared and who.uid not in (0, os.getuid()):
            raise Forbidden("only who runs the daemon may do that")

    def status(self) -> Status:
        """How the daemon does."""
        daemon = self.daemon
        with daemon.lock:
            kernel = daemon.kernel
            jobs, nodes = kernel.jobs, kernel.nodes
            counts = np.bincount(jobs.phase[: jobs.n], minlength=len(Phase))
            held = sum(
                slot.devices.bit_count()
                for placement in kernel.placements().values()
                for slot in placement
            )
            trouble = [
                f"{name}: {said}" for name, all_ in list(daemon.warnings.items()) for said in all_
            ]
            held += sum(kernel.withheld(node) for node in range(nodes.n))
            down = [nodes.names[node] for node in range(nodes.n) if kernel.barred(node) == "down"]
            if down:
                trouble.append(f"down: {', '.join(down)}")
            if daemon.full:
                trouble.append(f"nothing can be kept: {daemon.full}")
            guard = guard_of(kernel)
            if guard.error:
                trouble.append(f"the policy fails: {guard.error}")
            if guard.differed:
                trouble.append(f"{guard.differed} plans were kept that would be decided otherwise")
            gpus = nodes.total_gpus
            return Status(
                version=__version__, mode="shared" if self.shared else "personal",
                engine=self.engine, home=str(self.home), pid=os.getpid(), listen=self.listen,
                recipe=daemon.header.policy, knows=daemon.header.knows, since=daemon.since,
                now=daemon.now() / SECOND, revision=kernel.revision, decisions=kernel.decisions,
                last_decision_seconds=daemon.decision_seconds[1],
                slowest_decision_seconds=daemon.decision_seconds[2],
                jobs={phase.name.lower(): int(counts[phase]) for phase in Phase if counts[phase]},
                nodes=nodes.n, gpus=gpus, gpus_free=max(gpus - held, 0), trouble=trouble,
            )  # fmt: skip
