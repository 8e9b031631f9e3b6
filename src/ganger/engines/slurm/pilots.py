"""The engine whose machines are pilots: Slurm jobs that hold whole nodes, and an agent in each.

Slurm says only where and when there are nodes; what runs there is the local engine's affair. Pilots
are asked for when jobs wait that no node has room for, and given back when nothing runs on them.
"""

from __future__ import annotations

import logging
import shlex
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from ganger.core.errors import GangerError
from ganger.core.spec import NodeSpec
from ganger.core.units import SECOND
from ganger.engines.agent.attempt.attempt_dir import noted_exit
from ganger.engines.agent.attempt.launch import Home
from ganger.engines.agent.protocol import Exit, Exited, Forget, Hello, Message
from ganger.engines.clock import Clock
from ganger.engines.gang import Hold
from ganger.engines.launch import Launch
from ganger.engines.local import FleetEngine
from ganger.engines.machines import Box, Machines
from ganger.engines.slurm.calls.answers import Job
from ganger.engines.slurm.calls.client import Client
from ganger.engines.slurm.calls.commands import Commands
from ganger.engines.slurm.fleet import POLL_SECONDS, program
from ganger.engines.slurm.pilot import Crew, CrewFolder

log = logging.getLogger("ganger.engine")
PILOT: Final = "ganger-pilot"
"""The comment of pilots."""
_FILES_SECONDS: Final = 0.2
_JOIN_SECONDS: Final = 120.0
"""A pilot that runs and has not joined by then is given up."""
_DOUBT_SECONDS: Final = 3.0
"""So long may a pilot take to say that Slurm has killed what ran on it."""
_KILLED: Final = (-9, -15)
_AGAIN_SECONDS: Final = 30.0
"""After a pilot was refused."""
Kind: TypeAlias = tuple[str, int]
"""A kind of node: GPU type and number of GPUs."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes are held, from `least` to `most`; a pilot on which nothing ran for
    `idle_seconds` is given back; it asks for `minutes` (0: the partition's default), and leaves
    `grace_seconds` before they end."""

    least: int = 0
    most: int = 1
    idle_seconds: float = 300.0
    minutes: int = 0
    grace_seconds: int = 120


class Pilot:
    """A pilot job: `kind` of node; `node` once it runs."""

    def __init__(self, number: int, kind: Kind) -> None:
        self.number, self.kind = number, kind
        self.node = ""
        self.began_at = inf
        self.joined = False
        self.busy_at = time.monotonic()
        """When it last had work, or was wanted."""
        self.leaving = ""
        self.cancelled = False


class Pilots(Machines):
    """The machines of all pilots. `wish` names the nodes that waiting jobs would run on if all were
    there: pilots on these stay, others are asked for. It is asked at each look at the queue."""

    def __init__(
        self,
        client: Client,
        folder: CrewFolder,
        nodes: Sequence[NodeSpec],
        terms: Terms,
        wish: Callable[[], Sequence[str]],
        admit: Callable[[Hello], Sequence[int]],
        *,
        listen: tuple[str, int],
        token: str,
        cluster: str,
        lost_after: int,
        exits: Path,
        warn: Callable[[str, Sequence[str]], None],
    ) -> None:
        super().__init__(admit, (), listen, token, cluster, lost_after)
        self._client, self._folder, self._terms, self._wish = client, folder, terms, wish
        self._warn = warn
        self.exits = exits
        """Where pilots note how attempts ended."""
        self._name = f"ganger-{cluster}" if cluster else "ganger"
        self._kind_of: dict[str, Kind] = {spec.name: (spec.gpu_type, spec.gpus) for spec in nodes}
        self.pilots: dict[int, Pilot] = {}
        self.parts_on: Callable[[int], int]
        """How many attempts have a part on a node. Set before the first `wait`."""
        self._commands = Commands(self.interrupt)
        self._queue_at = self._files_at = self._submit_at = 0.0
        self._polling, self._submitting = False, Counter[Kind]()
        self._over: set[int] = set()
        self._doubtful: list[tuple[float, Box, Exited]] = []
        """Parts that were killed, perhaps since their pilot was cancelled, and until when."""

    # ------------------------------------------------------------------ time

    def wait(self, seconds: float) -> None:
        """Take what comes within `seconds`; returns after the first thing that came."""
        due = min(
            inf if self._polling else self._queue_at,
            self._files_at if self.pilots or self._doubtful else inf,
        )
        super().wait(min(seconds, max(due - time.monotonic(), 0)))

    def _tend(self) -> None:
        super()._tend()
        self._commands.take()
        now = time.monotonic()
        if now >= self._queue_at and not self._polling:
            self._polling = True
            self._commands.do(self._client.jobs, self._queue)
        if now >= self._files_at:
            self._files_at = now + _FILES_SECONDS
            for pilot in self.pilots.values():
                if pilot.leaving:  # its node may be known only now
                    self._leave(pilot, pilot.leaving)
                self._look(pilot, now)
            self._judge(now)

    def _welcome(self, one: Any, hello: Hello, nodes: tuple[int, ...]) -> None:
        super()._welcome(one, hello, nodes)
        for pilot in self.pilots.values():
            if pilot.node == hello.name:
                pilot.joined = True
        there = [pilot for pilot in self.pilots.values() if pilot.node == hello.name]
        self.by_name[hello.name].closed = bool(there) and all(one.leaving for one in there)

    def _leaves(self, box: Box, why: str) -> None:
        super()._leaves(box, why)
        for pilot in self.pilots.values():
            if self._box(pilot) is box:
                pilot.leaving = pilot.leaving or why
                log.info("pilot %d on %s leaves: %s", pilot.number, pilot.node, why)

    def _take(self, one: Any, message: Any) -> None:
        if (
            isinstance(message, Exited)
            and one.box is not None
            and one.box.link is one.link
            and _was_killed(message.exit)
            and all(message != held for _, _, held in self._doubtful)
        ):
            until = time.monotonic() + _DOUBT_SECONDS
            self._doubtful.append((until, one.box, message))
            self._files_at = 0.0
            return
        super()._take(one, message)

    def _judge(self, now: float) -> None:
        """Who was killed because its pilot was cancelled is not to blame."""
        doubtful, self._doubtful = self._doubtful, []
        for until, box, message in doubtful:
            pilot = next((one for one in self.pilots.values() if self._box(one) is box), None)
            if pilot is None or pilot.leaving or box.down:
                why = pilot.leaving if pilot is not None else "its pilot is gone"
                exit_ = msgspec.structs.replace(message.exit, why="NodeFail", detail=why)
                self.owner.told(box, Exited(message.key, exit_))
            elif now >= until:
                self.owner.told(box, message)
            else:
                self._doubtful.append((until, box, message))

    def noted_exit(self, job: int, attempt: int, node_rank: int) -> Exit | None:
        """Pilots note exits where all nodes see them: what they hold themselves goes with them."""
        found = noted_exit(self.exits, job, attempt, node_rank)
        if found is not None and _was_killed(found):
            return msgspec.structs.replace(found, why="NodeFail", detail="its pilot is gone")
        return found

    def send(self, box: Box, message: Message) -> None:
        """Say it, if the machine is connected; what is to be forgotten is forgotten here, too."""
        super().send(box, message)
        if isinstance(message, Forget):
            for path in self.exits.glob(f"{message.key.job}.{message.key.attempt}.*"):
                path.unlink(missing_ok=True)

    # ------------------------------------------------------------------ one pilot

    def _box(self, pilot: Pilot) -> Box | None:
        return self.by_name.get(pilot.node)

    def _look(self, pilot: Pilot, now: float) -> None:
        box = self._box(pilot)
        if pilot.cancelled or not pilot.node:
            return
        if box is not None and box.link is not None:
            pilot.joined = True
        if box is not None and any(self.parts_on(node) for node in box.nodes):
            pilot.busy_at = now
        elif pilot.leaving:
            self._cancel(pilot)
        elif now - pilot.busy_at > self._terms.idle_seconds and self._spare():
            self._leave(pilot, "nothing ran on it")
        elif not pilot.joined and now - pilot.began_at > _JOIN_SECONDS:
            self._warn("pilots", [f"Slurm job {pilot.number} on {pilot.node} did not join"])
            self._submit_at = now + _AGAIN_SECONDS
            self._cancel(pilot)

    def _staying(self) -> list[Pilot]:
        return [one for one in self.pilots.values() if not (one.leaving or one.cancelled)]

    def _spare(self) -> bool:
        return len(self._staying()) > self._terms.least

    def _leave(self, pilot: Pilot, why: str) -> None:
        """Nothing new starts there, and what runs there saves and leaves."""
        if not pilot.leaving:
            log.info("pilot %d on %s leaves: %s", pilot.number, pilot.node, why)
        pilot.leaving = why
        box = self._box(pilot)
        if box is not None:
            super()._leaves(box, why)

    def _cancel(self, pilot: Pilot) -> None:
        pilot.cancelled = True

        def then(_: Any, error: GangerError | None) -> None:
            pilot.cancelled = error is None  # else again

        self._commands.do(lambda: self._client.cancel(pilot.number), then)

    def _gone(self, pilot: Pilot) -> None:
        """Slurm says that it is over: what ran there is not waited for."""
        del self.pilots[pilot.number]
        self._over.add(pilot.number)
        box = self._box(pilot)
        again = any(other.node == pilot.node for other in self.pilots.values())
        if box is not None and not again and not box.down:
            for one in list(self._connections):
                if one.box is box:
                    self._drop(one)
            box.up, box.down = False, True
            self.owner.lost(box)

    # ------------------------------------------------------------------ all pilots

    def _queue(self, jobs: list[Job] | None, error: GangerError | None) -> None:
        now = time.monotonic()
        self._polling, self._queue_at = False, now + POLL_SECONDS
        self._warn("Slurm", [str(error)] if error is not None else [])
        if jobs is None:
            return
        ours = {
            job.number: job
            for job in jobs
            if job.name == self._name and job.comment.startswith(PILOT)
        }
        for number, job in ours.items():
            if number not in self.pilots and number not in self._over and not job.is_over:
                self.pilots[number] = Pilot(number, _kind_in(job.comment))  # of an earlier daemon
        for pilot in list(self.pilots.values()):
            found = ours.get(pilot.number)
            if found is None and now - pilot.busy_at < 2 * POLL_SECONDS and not pilot.node:
                continue  # it was submitted while the queue was asked for
            if found is None or found.is_over:
                self._gone(pilot)
            elif found.holds and found.nodes and not pilot.node:
                pilot.node, pilot.began_at, pilot.busy_at = found.nodes[0], now, now
        self._resize(now)

    def _resize(self, now: float) -> None:
        """Ask for pilots that are wanted, cancel those that wait and are not."""
        names = {name for name in self._wish() if name in self._kind_of}
        staying = self._staying()
        for pilot in staying:
            if pilot.joined and pilot.node in names:
                names.discard(pilot.node)
                pilot.busy_at = now
        wanted = Counter(self._kind_of[name] for name in names)
        for pilot in [pilot for pilot in staying if not pilot.joined]:
            if wanted[pilot.kind] > 0:
                wanted[pilot.kind] -= 1
                pilot.busy_at = now
            elif (
                not pilot.node and now - pilot.busy_at > self._terms.idle_seconds and self._spare()
            ):
                self._cancel(pilot)
        wanted -= self._submitting  # what is left is more than nothing
        submitting = self._submitting.total()
        room = max(self._terms.most - len(self.pilots) - submitting, 0)
        asks = list(wanted.elements())[:room]
        short = wanted.total() - room - (len(self.pilots) - len(staying))
        for pilot in sorted(staying, key=lambda one: one.busy_at)[: max(short, 0)]:
            if pilot.joined and now - pilot.busy_at > 2 * POLL_SECONDS:
                self._leave(pilot, "jobs wait for other nodes")
        held = Counter(pilot.kind for pilot in staying) + self._submitting + Counter(asks)
        others = list((Counter(self._kind_of.values()) - held).elements())
        missing = self._terms.least - len(staying) - submitting - len(asks)
        asks += others[: max(min(missing, room - len(asks)), 0)]
        for kind in asks if now >= self._submit_at else ():
            self._submit(kind)

    def _submit(self, kind: Kind) -> None:
        argv = program("pilot", self._folder.path)
        self._submitting[kind] += 1

        def then(number: int | None, error: GangerError | None) -> None:
            self._submitting -= Counter({kind: 1})
            self._warn("pilots", [str(error)] if error is not None else [])
            if number is None:
                self._submit_at = time.monotonic() + _AGAIN_SECONDS
            elif number not in self.pilots and number not in self._over:
                self.pilots[number] = Pilot(number, kind)

        self._commands.do(
            lambda: self._client.hold(
                *kind,
                argv,
                name=self._name,
                comment=f"{PILOT}:{shlex.quote(kind[0])}:{kind[1]}",
                output=str(self._folder.path / "%j.log"),
                minutes=self._terms.minutes,
                grace_seconds=self._terms.grace_seconds,
            ),
            then,
        )

    def close(self) -> None:
        """Leave; pilots and their jobs go on."""
        self._commands.close()
        super().close()


def _was_killed(exit_: Exit) -> bool:
    """Whether it may have been killed with its pilot."""
    return exit_.code in _KILLED and not (exit_.asked or exit_.why)


def _kind_in(comment: str) -> Kind:
    _, kind, count = comment.split(":")
    return kind.strip("'"), int(count)


class PilotEngine(FleetEngine):
    """Executes plans on nodes that pilots hold. `home` is a folder that all nodes share; `nodes`
    those of the partition; agents join at `listen` (port 0 picks one) and know the `token`; `host`
    is this machine's name for them. For the rest see SlurmEngine and LocalEngine. Raises BadInput,
    OSError.
    """

    def __init__(
        self,
        client: Client,
        home: Path,
        launch_of: Callable[[int], Launch],
        admit: Callable[[Hello], Sequence[int]],
        *,
        nodes: Sequence[NodeSpec],
        terms: Terms,
        wish: Callable[[], Sequence[str]],
        token: str,
        cluster: str = "",
        listen: tuple[str, int] = ("", 0),
        host: str = "",
        clock: Clock | None = None,
        lost_after: int = 30 * SECOND,
        progress_every: int = 5 * SECOND,
        warn: Callable[[str, Sequence[str]], None] = lambda name, wrong: None,
    ) -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        Home(home).make()
        Home(home).exits.mkdir(mode=0o700, exist_ok=True)
        folder = CrewFolder(home / "pilots")
        self.fleet = Pilots(
            client,
            folder,
            nodes,
            terms,
            wish,
            admit,
            listen=listen,
            token=token,
            cluster=cluster,
            lost_after=lost_after,
            exits=Home(home).exits,
            warn=warn,
        )
        self.port = self.fleet.port
        """Where agents join."""
        self.uses = self.fleet.uses
        """How busy the parts of jobs were when their agents last looked."""
        folder.make(Crew(host or socket.gethostname(), self.port, str(home), tuple(nodes)), token)
        super().__init__(self.fleet, launch_of, clock, lost_after, progress_every)
        self.fleet.parts_on = self._attempts.on

    def adopt(self, holds: Iterable[Hold]) -> None:
        """Take over what a restored kernel believes to hold devices; what was noted of anything
        else is of no use any more."""
        holds = list(holds)
        alive = {(hold.job, hold.attempt) for hold in holds}
        for path in self.fleet.exits.glob("*.*.*"):
            job, attempt, _ = path.name.split(".", 2)
            if not (job + attempt).isdecimal() or (int(job), int(attempt)) not in alive:
                path.unlink(missing_ok=True)
        super().adopt(holds)
