"""The engine's side of its connections: agents dialled on this machine, agents that join by TCP."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import selectors
import socket
import subprocess
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from ganger.core.errors import BadInput
from ganger.core.units import SECOND
from ganger.engines.agent.attempt.attempt_dir import short_path
from ganger.engines.agent.connection import Connection, Connections
from ganger.engines.agent.protocol import (
    FRAME_BYTES_MAX,
    Challenge,
    Denied,
    Exit,
    Exited,
    Hello,
    Leaving,
    Message,
    Ping,
    Prepare,
    Read,
    Ready,
    Refused,
    Text,
    ToEngine,
    Used,
    Welcome,
    lacking,
    proof,
    proves,
)
from ganger.engines.agent.wire import UNPROVED_BYTES_MAX, GoneError, Link
from ganger.engines.joining import TurnedAway, listening

log = logging.getLogger("ganger.engine")
_DIAL_SECONDS: Final = (0.02, 2.0)
_PROVE_SECONDS: Final = 10.0
"""A machine that joins has so long to prove that it knows the token."""
_UNPROVED_MAX: Final = 128
"""Connections that have not done so, at most."""
_PAUSE_SECONDS: Final = 1.0
"""No connection is taken for so long after one could not be (there are no descriptors left)."""


def _not_read(box: Box, why: str) -> BadInput:
    return BadInput(f"the output lies there, and {why}", where=f"machine {box.hello.name!r}")


class AgentAt(NamedTuple):
    """An agent on this machine: its Unix socket, and what starts it if nobody answers. It is not
    started again before the process that `spawn` returned has ended."""

    path: Path
    spawn: Callable[[], subprocess.Popen[bytes]] | None = None


class Box:
    """A machine as its agent describes it, connected (`link`) or away since `lost_at`."""

    def __init__(self, hello: Hello, nodes: tuple[int, ...]) -> None:
        self.hello, self.nodes = hello, nodes
        self.link: Link | None = None
        self.remote = False
        """Whether it is another machine, which dialled."""
        self.host = ""
        """Where it was reached when it connected last; empty: not known."""
        self.ready = False
        """Whether it has told all that it had."""
        self.up = False
        """Whether the owner was told that its nodes are up, and not since that they are down."""
        self.down = False
        """Whether it was given up."""
        self.closed = False
        """Whether nothing can be started there for now."""
        self.lost_at = inf
        self.unwanted: set[Any] = set()
        """Parts that run there though nobody wants them any more."""
        self.mentioned: set[Any] = set()
        """Parts that it has told of since it connected."""

    def node_of(self, seat: int) -> int:
        """The node by its seat; -1: none of its own."""
        return self.nodes[seat] if seat < len(self.nodes) else -1


class Owner(Protocol):
    """Hears what machines report."""

    def welcomed(self, box: Box) -> None:
        """An agent has connected; what it tells follows."""
        ...

    def told(self, box: Box, message: Message) -> None:
        """An agent says something about a part, or that it is ready."""
        ...

    def used(self, box: Box, message: Used) -> None:
        """How busy a part was."""
        ...

    def lost(self, box: Box) -> None:
        """A machine has been away for too long."""
        ...

    def closed(self, box: Box) -> None:
        """Nothing can be started on a machine for now; what runs there goes on."""
        ...

    def opened(self, box: Box) -> None:
        """A machine that was closed can be used again."""
        ...

    def withheld(self, box: Box, gpus: int) -> None:
        """So many of a machine's GPUs are others' from now on."""
        ...

    def evict(self, node: int, why: str) -> None:
        """A node will soon be gone: what runs there is to save and leave."""
        ...


class Fleet(Protocol):
    """The machines that attempts run on, as an engine speaks with them."""

    owner: Owner
    """Who is told. Set before the first `wait`."""
    by_name: dict[str, Box]

    def wait(self, seconds: float) -> None:
        """Take what comes within `seconds`; returns after the first thing that came."""
        ...

    def interrupt(self) -> None:
        """End a `wait` that is going on, or the next one. Any thread."""
        ...

    def send(self, box: Box, message: Message) -> None:
        """Say it to a machine, if it is there."""
        ...

    def address(self, box: Box) -> tuple[str, str] | None:
        """(its address, ours as it sees us); None for this machine."""
        ...

    def noted_exit(self, job: int, attempt: int, node_rank: int) -> Exit | None:
        """How a part ended of which its machine says nothing any more; None if nobody knows."""
        ...

    def close(self) -> None:
        """Leave; everything goes on running."""
        ...


class _Connection(Connection):
    def __init__(self, link: Link, at: AgentAt | None) -> None:
        super().__init__(link)
        self.at = at
        self.address = ""
        """The address of who dialled."""
        if at is None:
            with contextlib.suppress(OSError):
                self.address = str(link.socket.getpeername()[0])
        self.box: Box | None = None


class Machines(Connections[_Connection]):
    """All agents. Not thread-safe but for `interrupt` and `read`."""

    def __init__(
        self,
        admit: Callable[[Hello], Sequence[int]],
        agents: Sequence[AgentAt],
        listen: tuple[str, int] | None,
        token: str,
        cluster: str,
        lost_after: int,
    ) -> None:
        if listen is not None and not token:
            raise BadInput("agents that join need a token", where="engine", mend="give it one")
        super().__init__(selectors.DefaultSelector())
        self.owner: Owner
        """Set before the first `wait`."""
        self._admit = admit
        self._token, self._cluster = token, cluster
        self._patience = lost_after / SECOND
        self.by_name: dict[str, Box] = {}
        self.uses: dict[tuple[int, int, str], Used] = {}
        """How busy the parts of jobs were at the last look, by job, seat and agent."""
        self._to_read: deque[tuple[Box, Read, Future[Text]]] = deque()
        self._reading: dict[int, tuple[Box, Future[Text]]] = {}
        """What was asked and not answered yet."""
        self._asked = 0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ, lambda mask: self._awake())
        self._agents = list(agents)
        self._dial_at = [0.0] * len(agents)
        self._pause = [_DIAL_SECONDS[0]] * len(agents)
        self._spawned: list[subprocess.Popen[bytes] | None] = [None] * len(agents)
        self._listener: socket.socket | None = None
        self._listen_at = inf
        """When connections are taken again, if they are not now."""
        self._trouble = ""
        self._turned_away = TurnedAway()
        self.port = 0
        if listen is not None:
            self._listener = listening(listen)
            self.port = self._listener.getsockname()[1]
            self._listen()

    # ------------------------------------------------------------------ time

    def interrupt(self) -> None:
        """End a `wait` that is going on, or the next one. Any thread."""
        os.eventfd_write(self._wake, 1)

    def _awake(self) -> None:
        os.eventfd_read(self._wake)
        while self._to_read:
            box, order, answer = self._to_read.popleft()
            one = self._connection(box)
            if not answer.set_running_or_notify_cancel():
                continue
            if one is None or one.version < 2:
                why = "it is away" if one is None else f"its agent speaks version {one.version}"
                answer.set_exception(_not_read(box, why))
                continue
            self._asked += 1
            self._reading[self._asked] = box, answer
            self._send(one, msgspec.structs.replace(order, ask=self._asked))

    def read(self, node: int, order: Read) -> Future[Text] | None:
        """Have the machine of this node read a piece of a job's output; the answer, or BadInput.
        None if that machine is this one. Any thread."""
        boxes = list(self.by_name.values())
        answer: Future[Text] = Future()
        for box in boxes:
            if node in box.nodes:
                if not box.remote:
                    return None
                self._to_read.append((box, order, answer))
                self.interrupt()
                return answer
        if not any(not box.remote for box in boxes):
            return None  # this machine's own agent is not there yet
        answer.set_exception(BadInput("its machine has not joined yet", where="output"))
        return answer

    def wait(self, seconds: float) -> None:
        """Take what comes within `seconds`; returns after the first thing that came."""
        lost = [box.lost_at + self._patience for box in self._away()]
        due = min([*self._dial_at, *lost], default=inf)
        if self._remote():
            due = min(due, time.monotonic() + min(self._patience, _PROVE_SECONDS) / 4)
        due = min(due, self._listen_at)
        seconds = min(seconds, max(due - time.monotonic(), 0))
        for key, mask in self._selector.select(None if seconds == inf else seconds):
            key.data(mask)
        self._tend()

    def _away(self) -> list[Box]:
        return [box for box in self.by_name.values() if box.link is None and not box.down]

    def _remote(self) -> list[_Connection]:
        return [one for one in self._connections if one.at is None]

    def _tend(self) -> None:
        now = time.monotonic()
        for i, at in enumerate(self._dial_at):
            if now >= at:
                self._dial(i)
        for box in self._away():
            if now >= box.lost_at + self._patience:
                box.up, box.down = False, True
                self.owner.lost(box)
        if now >= self._listen_at:
            self._listen()
        for one in self._remote():
            unproved = one.box is None and now - one.made_at > _PROVE_SECONDS
            if unproved or now - one.heard_at > self._patience:
                self._drop(one)
            elif one.box is not None and now - one.told_at > self._patience / 4:
                self._send(one, Ping())

    # ------------------------------------------------------------------ coming and going

    def _dial(self, i: int) -> None:
        path, spawn = self._agents[i]
        now = time.monotonic()
        self._dial_at[i] = now + self._pause[i]
        self._pause[i] = min(2 * self._pause[i], _DIAL_SECONDS[1])
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_path(path.parent, path.name) as short:
                sock.connect(short)
        except OSError:
            sock.close()
            last = self._spawned[i]
            if spawn is not None and (last is None or last.poll() is not None):
                self._spawned[i] = spawn()
            return
        self._dial_at[i] = inf
        self._add(sock, self._agents[i])

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as error:
            self._selector.unregister(self._listener)
            self._listen_at = time.monotonic() + _PAUSE_SECONDS
            if self._trouble != str(error):
                self._trouble = str(error)
                log.warning("machines that join cannot be accepted now: %s", error)
            return
        self._trouble = ""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one = self._add(sock, None)
        self._send(one, Challenge(one.nonce))
        self._thin()

    def _listen(self) -> None:
        """Take connections."""
        assert self._listener is not None
        self._listen_at = inf
        self._selector.register(self._listener, selectors.EVENT_READ, lambda mask: self._accept())

    def _thin(self) -> None:
        """Where too many have proved nothing yet: drop any of the address that has most. The oldest
        would surely be a machine's, where others there are quicker than its proof."""
        unproved = [one for one in self._remote() if one.box is None]
        if len(unproved) > _UNPROVED_MAX:
            most = Counter(one.address for one in unproved).most_common(1)[0][0]
            self._drop(secrets.choice([one for one in unproved if one.address == most]))

    def _add(self, sock: socket.socket, at: AgentAt | None) -> _Connection:
        most = UNPROVED_BYTES_MAX if at is None else FRAME_BYTES_MAX
        return self._watch(_Connection(Link(sock, ToEngine, most), at))

    def _drop(self, one: _Connection) -> None:
        if not self._forget(one):
            return
        box = one.box
        if box is not None and box.link is one.link:
            box.link, box.ready, box.lost_at = None, False, time.monotonic()
            for ask in [ask for ask, (where, _) in self._reading.items() if where is box]:
                self._reading.pop(ask)[1].set_exception(_not_read(box, "it is away"))
        if one.at is not None:
            i = self._agents.index(one.at)
            self._dial_at[i] = time.monotonic() + self._pause[i]

    # ------------------------------------------------------------------ talking

    def send(self, box: Box, message: Message) -> None:
        """Send it, if the box is connected; what the box missed is sent when it is back."""
        one = self._connection(box)
        if one is None:
            return
        if isinstance(message, Prepare) and (why := lacking(one.version, message)):
            why = f"its agent speaks version {one.version}, which does not support {why}"
            self.owner.told(box, Refused(message.key, why))
            return
        self._send(one, message)

    def _connection(self, box: Box) -> _Connection | None:
        for one in self._connections:
            if one.box is box and box.link is one.link:
                return one
        return None

    def _take(self, one: _Connection, message: Any) -> None:
        if isinstance(message, Ping):
            return
        if isinstance(message, Denied):
            log.warning("an agent refuses this engine: %s", message.why)
            if one.at is not None:
                self._pause[self._agents.index(one.at)] = _DIAL_SECONDS[1]
            raise GoneError(message.why)
        if isinstance(message, Hello):
            self._hello(one, message)
        elif one.box is None or one.box.link is not one.link:
            raise GoneError("it has not identified itself")
        else:
            if isinstance(message, Ready):
                one.box.ready = True
            if isinstance(message, Used):
                self.uses[message.key.job, message.key.seat, one.box.hello.name] = message
                self.owner.used(one.box, message)
                return
            if isinstance(message, Text):
                if message.ask in self._reading:
                    self._reading.pop(message.ask)[1].set_result(message)
                return
            if isinstance(message, Leaving):
                self._leaves(one.box, message.why)
                return
            if isinstance(message, Exited):
                self.uses.pop((message.key.job, message.key.seat, one.box.hello.name), None)
            self.owner.told(one.box, message)

    def _leaves(self, box: Box, why: str) -> None:
        """Nothing new starts on a machine, and what runs there saves and leaves."""
        if not box.closed:
            self.owner.closed(box)
            for node in box.nodes:
                self.owner.evict(node, why)

    def _hello(self, one: _Connection, hello: Hello) -> None:
        why, nodes = one.speaks(hello.version), tuple[int, ...]()
        if why:
            pass
        elif one.at is None and not proves(
            hello.proof, self._token, "agent", one.nonce, hello.nonce
        ):
            why = "it does not know the token"
        else:
            box = self.by_name.get(hello.name)
            if box is not None and box.link is not None and box.hello.boot != hello.boot:
                why = f"an agent named {hello.name!r} is connected already"
            else:
                try:
                    nodes = tuple(self._admit(hello))
                except BadInput as error:
                    why = str(error)
        if why:
            self._turned_away.say(hello.name, why)
            self._send(one, Denied(why))
            raise GoneError(why)
        self._welcome(one, hello, nodes)

    def _welcome(self, one: _Connection, hello: Hello, nodes: tuple[int, ...]) -> None:
        box = self.by_name.get(hello.name)
        if box is None:
            box = self.by_name[hello.name] = Box(hello, nodes)
        for other in list(self._connections):
            if other.box is box:
                self._drop(other)
        box.hello, box.nodes, box.link = hello, nodes, one.link
        box.ready = box.closed = False
        box.remote, box.host = one.at is None, one.address or "127.0.0.1"
        box.unwanted.clear()
        box.mentioned.clear()
        one.box = box
        one.link.frame_bytes_max = FRAME_BYTES_MAX
        if one.at is not None:
            self._pause[self._agents.index(one.at)] = _DIAL_SECONDS[0]
            given = b""
        else:
            given = proof(self._token, "engine", hello.nonce, one.nonce)
        self._send(one, Welcome(self._cluster, b"", given))
        self.owner.welcomed(box)

    def noted_exit(self, job: int, attempt: int, node_rank: int) -> Exit | None:
        """None: what agents do not say is known to nobody."""
        return None

    def address(self, box: Box) -> tuple[str, str] | None:
        """(its address, ours as it sees us) if it is away over TCP; None for this machine."""
        if box.link is None or box.link.socket.family == socket.AF_UNIX:
            return None
        try:
            theirs, ours = box.link.socket.getpeername()[0], box.link.socket.getsockname()[0]
        except OSError:
            return None
        return theirs, ours

    def close(self) -> None:
        """End all connections; the agents go on."""
        for one in list(self._connections):
            self._drop(one)
        if self._listener is not None:
            self._listener.close()
        self._selector.close()
        os.close(self._wake)
