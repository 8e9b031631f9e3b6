"""The node agent's loop: engines on one side, supervisors on the other."""

from __future__ import annotations

import fcntl
import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any, Final

from ganger.core.errors import BadInput
from ganger.core.spec import NodeSpec
from ganger.engines.agent.attempt import processes
from ganger.engines.agent.attempt.attempt_dir import AttemptDir, SupervisorRecord, write_durably
from ganger.engines.agent.attempt.cgroup import Containment, Group
from ganger.engines.agent.attempt.launch import Home, Start, fork_supervisor
from ganger.engines.agent.attempt.spawn import JOB_FOLDER
from ganger.engines.agent.attempt.warm import Warmth
from ganger.engines.agent.engine_link import EngineLink
from ganger.engines.agent.meter import Meter, Running
from ganger.engines.agent.over import Over
from ganger.engines.agent.pacing import Pacing
from ganger.engines.agent.parts import Part, state_of
from ganger.engines.agent.protocol import (
    Exit,
    Exited,
    Forget,
    Go,
    Key,
    Launched,
    Leaving,
    Message,
    Prepare,
    Progress,
    Rate,
    Read,
    Ready,
    Refused,
    Reported,
    Resume,
    Stop,
    Suspend,
    Terms,
    Text,
)
from ganger.engines.agent.reading import read_piece
from ganger.engines.agent.sharing import Sharing
from ganger.engines.agent.wire import GoneError, Link
from ganger.engines.launch import SUPERVISOR_KILLED, Launch
from ganger.sdk.steps import free_port

log = logging.getLogger("ganger.agent")
_STRAY_SECONDS: Final = 1.0
_ORPHAN_SECONDS: Final = 5.0
_LOOK_AGAIN_SECONDS: Final = 0.02
_ALONE_SECONDS: Final = 3.0
"""So long has an engine to order what runs on a machine that leaves; then its agent does."""


class Agent:
    """Owns one machine's jobs. `nodes` are its seats, in order; `joins` engines to dial. When none
    of those was heard for `fence_seconds`, all jobs are killed. Without `cgroups` jobs are held by
    their process tree."""

    def __init__(
        self,
        home: Path,
        name: str,
        nodes: tuple[NodeSpec, ...],
        *,
        joins: tuple[tuple[str, int], ...] = (),
        token: str = "",
        silence_seconds: float = 20.0,
        fence_seconds: float = inf,
        cgroups: bool = True,
        meter: Meter | None = None,
        sharing: Sharing | None = None,
    ) -> None:
        self.home = Home(home.resolve())
        self._umask = os.umask(0o077)
        self.home.make()
        self._lock = _lock(self.home.path / "lock")
        self.containment = Containment("none", {}, ())
        if cgroups:
            self.containment = Containment.find(f"ganger-{os.stat(self.home.path).st_ino}")
        self.boot = processes.boot()
        self.name, self.nodes = name, nodes
        self.sharing = sharing or Sharing(nodes)
        self._parts: dict[Key, Part] = {}
        self._supervisors: set[int] = set()
        self._removers: set[int] = set()
        """Processes that drop what jobs left in their folders."""
        self._warmth = Warmth(self.home.path / "warm")
        self._lost: dict[Key, float] = {}
        """Parts whose supervisor hung up without a record, and when to look again."""
        self._over = Over(self.home.path / "forgotten")
        self._selector = selectors.DefaultSelector()
        self._stopping = self._warned = False
        self._leaving = ""
        self._leave_at = inf
        """When what still runs is asked to leave without any engine."""
        self._meter = meter or Meter(None)
        self._pacing = Pacing()
        self._peer = EngineLink(self, self._selector, joins, token, silence_seconds, fence_seconds)

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Jobs stay; the next agent on this folder adopts them.
        SIGUSR1 says that the file `leaving` was written."""
        processes.adopt_orphans()
        _wake, woken = processes.woken_by_signals()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop_serving)
        signal.signal(signal.SIGUSR1, self._warn)
        self._warn()
        self._selector.register(woken, selectors.EVENT_READ, lambda mask: woken.recv(4096))
        for warning in self.containment.warnings:
            log.warning(warning)
        self._scan()
        self._peer.listen(self.home.socket)
        while not self._stopping:
            self._meter.watch(any(part.link is not None for part in self._parts.values()))
            due = min([self._peer.due, self._meter.due, self._leave_at, *self._lost.values()])
            due = min(due, self._pacing.due)
            wait = None if due == inf else max(due - time.monotonic(), 0)
            for ready, mask in self._selector.select(wait):
                ready.data(mask)
            self._reap()
            for part in [
                self._parts[key] for key, at in self._lost.items() if at < time.monotonic()
            ]:
                self._look(part)
            if self._meter.due <= time.monotonic():
                self._tell(*map(self._pacing.said_with, self._meter.look(self._running())))
            self._pace()
            self._leave()
            self._peer.tend()
            if self._peer.cut_off():
                log.warning("no contact with an engine for too long: the jobs are killed")
                self._stop_all(checkpoint=False)
        self._peer.close()
        self.containment.remove()
        if all(part.exit is not None or not part.taken for part in self._parts.values()):
            self.sharing.close()

    def _warn(self, *_: Any) -> None:
        self._warned = True

    def _leave(self) -> None:
        """Tell that this machine will soon be gone; later, ask whom no engine has asked."""
        warned, self._warned = self._warned, False
        if warned and not self._leaving and self.home.leaving.exists():
            self._leaving = self.home.leaving.read_text().strip() or "it is about to stop"
            self._leave_at = time.monotonic() + _ALONE_SECONDS
            log.warning("leaves: %s", self._leaving)
            self._tell(Leaving(self._leaving))
        if time.monotonic() >= self._leave_at:
            self._leave_at = inf
            self._stop_all(checkpoint=True)

    def _stop_all(self, *, checkpoint: bool) -> None:
        """End all jobs on this machine's account, asking first with `checkpoint`."""
        for part in list(self._parts.values()):
            if part.exit is None and not (checkpoint and part.asked):
                self._stop(Stop(part.key, checkpoint, not checkpoint, why="NodeFail"))

    def _running(self) -> Iterator[Running]:
        for part in self._parts.values():
            record = part.folder.supervisor() if part.link is not None else None
            if record is None or part.launched is None:
                continue
            pids = Group(record.groups).pids() if record.groups else set(part.launched.pids)
            if not record.groups:
                pids |= {one for pid in list(pids) for one in processes.descendants(pid)}
            yield Running(part.key, pids, self.sharing.devices(part.key, part.prepare.parts))

    def _pace(self) -> None:
        """Tell supervisors for which part of the time their jobs compute, where that changed."""
        for rate in self._pacing.look_if_due(time.monotonic()):
            self._tell(*self._pacing.news(rate.key))
            launched = self._parts[rate.key].launched
            if launched is not None and launched.paces:
                self._pass_on(rate)

    def _stop_serving(self, *_: Any) -> None:
        self._stopping = True

    def _reap(self) -> None:
        for pid, _ in processes.reaped():
            self._supervisors.discard(pid)
            self._removers.discard(pid)
            self._warmth.ended(pid)
            self.sharing.ended(pid)

    # ------------------------------------------------------------------ what is there already

    def _scan(self) -> None:
        """Adopt what an earlier agent on this folder left."""
        boot = self.home.path / "boot"
        same = boot.exists() and boot.read_text() == self.boot
        if not same:
            write_durably(boot, self.boot.encode())
        for path in self.home.attempts.iterdir():
            folder = AttemptDir(path)
            prepare, taken = folder.prepare(), folder.was_taken()
            restarted = not same and not folder.is_kept()
            if prepare is None and not taken and not restarted:
                folder.remove()  # never became a start
                continue
            nothing = Prepare(folder.key, Launch(command=()), ())
            part = self._parts[folder.key] = Part(folder, prepare or nothing)
            part.taken, part.exit = taken or restarted, folder.exit()
            if part.exit is None and restarted:
                self._ended(part, Exit(code=-9, why="NodeFail", detail="the machine restarted"))
            elif part.exit is None and taken:
                self._look(part)
        self.containment.sweep()

    def states(self) -> list[Message]:
        """The state of every part, and that this was all."""
        first = [Leaving(self._leaving)] if self._leaving else []
        parts = (message for part in self._parts.values() for message in part.state())
        return [*first, *parts, Ready()]

    # ------------------------------------------------------------------ orders

    def obey(self, order: Message) -> None:
        """Do what an engine says; the answers go to it."""
        do: dict[type, Callable[[Any], None]] = {
            Prepare: self._prepare,
            Go: self._go,
            Stop: self._stop,
            Forget: self._forget,
            Suspend: self._suspend,
            Resume: self._suspend,
            Terms: self._share,
            Read: self._read,
        }
        do[type(order)](order)

    def _prepare(self, order: Prepare) -> None:
        key = order.key
        part = self._parts.get(key)
        if part is None:
            over = f"attempt {key.attempt} of job {key.job} is over" * self._over.holds(key)
            if over or self._leaving:
                self._tell(Refused(key, over or f"its node leaves: {self._leaving}"))
                return
            try:
                self._check(order)
                part = self._parts[key] = Part(AttemptDir.make(self.home.attempts, order), order)
            except (OSError, BadInput) as why:
                text = why.strerror if isinstance(why, OSError) else str(why)
                self._tell(Refused(key, text or "it cannot be prepared"))
                return
        if order.go and not part.taken:
            tasks = sum(one.workers for one in order.parts)
            name = self.nodes[key.seat].name
            self._start(part, Go(key, "127.0.0.1", free_port(), (name,), (tasks,)))
        else:
            part.port = part.port or free_port()
            self._tell(*state_of(part))

    def _check(self, order: Prepare) -> None:
        where = f"job {order.key.job}"
        if not 0 <= order.key.seat < len(self.nodes):
            raise BadInput(f"no node {order.key.seat} here", where=where)
        gpus = self.nodes[order.key.seat].gpus
        for part in order.parts:
            if any(not 0 <= device < gpus for device in part.devices):
                raise BadInput(f"devices {part.devices} of {gpus}", where=where)

    def _go(self, order: Go) -> None:
        part = self._parts.get(order.key)
        if part is None:
            self._tell(Refused(order.key, "it is not prepared"))
        elif part.taken:
            self._tell(*state_of(part))
        else:
            self._start(part, order)

    def _start(self, part: Part, go: Go) -> None:
        prepare, seat = part.prepare, part.key.seat
        roles = prepare.launch.shape.roles
        needs = [(roles[one.role].needs, one.workers) for one in prepare.parts]
        group = self.containment.make(
            part.key.name,
            sum(need.memory * workers for need, workers in needs),
            sum(need.cpus * workers for need, workers in needs),
        )
        try:
            lock = part.folder.take(SupervisorRecord(group.paths))
            part.taken = True
            control = part.folder.listen()
        except OSError as why:
            group.remove()
            if part.taken:
                self._ended(part, Exit(code=127, why="NodeFail", detail=str(why)))
            else:
                self._drop(part)
                self._tell(Refused(part.key, why.strerror or str(why)))
            return
        bounded = any(
            need.gpu_memory for need, _ in needs
        )  # by what is done when torch is imported
        warm = self._warmth.zygote(prepare.launch) if group.paths and not bounded else ""
        before, cores = self.sharing.before[seat], self.sharing.cores(part.key, prepare.parts)
        mps = self.sharing.variables(prepare)
        start = Start(
            self.home, part.folder, prepare, go, group, before, self._umask, warm, cores, mps
        )
        part.supervisor = fork_supervisor(start, lock, control)
        self._supervisors.add(part.supervisor)
        os.close(lock)
        control.close()
        self._connect(part)

    def _stop(self, order: Stop) -> None:
        part = self._parts.get(order.key)
        if part is None:
            self._tell(Refused(order.key, "it is not here"))
        elif not part.taken:
            self._drop(part)
            self._tell(Refused(order.key, "it was not started"))
        elif part.exit is not None:
            self._tell(*state_of(part))
        else:
            part.asked = True
            self._pass_on(order)

    def _suspend(self, order: Suspend | Resume) -> None:
        self._pacing.suspend(order.key, isinstance(order, Suspend), time.monotonic())
        self._pass_on(order)

    def _share(self, order: Terms) -> None:
        """The part shares its devices on these terms, for the next agent on this folder, too."""
        part = self._parts.get(order.key)
        if part is None or part.exit is not None:
            return
        try:
            part.folder.keep_terms(order)
        except OSError as why:
            log.error("job %d: its terms are not kept: %s", order.key.job, why)
        self._pacing.give(order, time.monotonic())

    def _pass_on(self, order: Stop | Suspend | Resume | Rate) -> None:
        part = self._parts.get(order.key)
        if part is not None and part.link is not None:
            try:
                part.link.send(order)
            except GoneError:
                self._hung_up(part)

    def _forget(self, order: Forget) -> None:
        part = self._parts.get(order.key)
        if part is not None and part.exit is not None:
            self._over.add(order.key)
            self._drop(part)

    def _read(self, order: Read) -> None:
        path = self.home.log(order.job, order.attempt, order.node_rank)
        if order.path:
            path = Path(order.path)
        try:
            uid = order.uid if order.path else -1
            self._tell(Text(order.ask, *read_piece(path, order.at, order.lines, uid)))
        except (BadInput, OSError) as error:
            self._tell(Text(order.ask, order.at, why=getattr(error, "what", str(error))))

    def _drop(self, part: Part) -> None:
        if remover := part.folder.remove():
            self._removers.add(remover)
        del self._parts[part.key]

    def bind(self, cluster: str) -> bool:
        """Serve this cluster from now on; False if this folder serves another."""
        path = self.home.path / "cluster"
        if path.exists():
            return path.read_text() == cluster
        if cluster:
            write_durably(path, cluster.encode())
        return True

    # ------------------------------------------------------------------ supervisors

    def _connect(self, part: Part) -> None:
        try:
            link = Link(part.folder.connect(), Launched | Progress | Reported)
        except OSError:
            self._lost[part.key] = time.monotonic() + _LOOK_AGAIN_SECONDS
            return
        part.link = link
        self._selector.register(link, selectors.EVENT_READ, lambda mask: self._hear(part))

    def _hear(self, part: Part) -> None:
        if part.link is None:
            return
        try:
            for message in part.link.receive():
                if isinstance(message, Reported):
                    self._tell(*part.reported())
                    continue
                if isinstance(message, Launched):
                    part.launched = message
                    self._pacing.add(
                        part.key,
                        self.sharing.devices(part.key, part.prepare.parts),
                        part.folder.terms(),
                        time.monotonic(),
                        self.sharing.threads(part.prepare),
                    )
                else:
                    part.progress = message
                    self._pacing.stepped(part.key, message.step_micros)
                self._tell(message)
        except GoneError:
            self._hung_up(part)

    def _hung_up(self, part: Part) -> None:
        if part.link is not None:
            self._selector.unregister(part.link)
            part.link.close()
            part.link = None
        self._look(part)

    def _look(self, part: Part) -> None:
        """See what became of a part whose supervisor is not connected."""
        self._lost.pop(part.key, None)
        exit_ = part.folder.exit()
        if exit_ is not None:
            self._ended(part, exit_)
        elif not part.folder.is_kept():
            self._clean_up(part)
        else:
            self._connect(part)

    def _clean_up(self, part: Part) -> None:
        """The supervisor was killed: nothing of its part may stay."""
        record = part.folder.supervisor()
        if record is not None:
            group = Group(record.groups)
            group.kill_and_wait()
            self._kill_strays(part.supervisor)
            # Those that fled from the tree of an agent that was killed, too.
            uid = part.prepare.launch.uid
            mark = f"{JOB_FOLDER}={part.folder.job}"
            processes.end_marked(mark, uid if uid >= 0 else os.getuid(), _ORPHAN_SECONDS)
            group.remove()
        self._ended(part, Exit(code=-9, why="NodeFail", detail=SUPERVISOR_KILLED))

    def _kill_strays(self, supervisor: int) -> None:
        """End the children that are not supervisors: a supervisor that died orphaned them. They are
        here when it can be reaped, which is a little later than it hangs up."""
        until = time.monotonic() + _STRAY_SECONDS
        while time.monotonic() < until:
            self._reap()
            ours = self._supervisors | self._removers | self._warmth.pids | self.sharing.pids
            strays = [pid for pid in processes.children(os.getpid()) if pid not in ours]
            if not strays and supervisor not in self._supervisors:
                return
            for stray in strays:
                processes.send([stray, *processes.descendants(stray)], signal.SIGKILL)
            time.sleep(0.002)

    def _ended(self, part: Part, exit_: Exit) -> None:
        if part.folder.exit() is None:
            try:
                part.folder.write_exit(exit_)
            except OSError as why:  # told, though not kept: the next agent finds it lost again
                log.error("job %d: no exit record: %s", part.key.job, why)
        part.exit = exit_
        self._pacing.drop(part.key, time.monotonic())
        self._tell(*part.reported(), Exited(part.key, exit_))

    def _tell(self, *messages: Message) -> None:
        for message in messages:
            self._peer.tell(message)


def _lock(path: Path) -> int:
    """Hold the folder, or BadInput: two agents must not share one."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadInput(
            "another agent runs here", where=str(path.parent), mend="give it another --home"
        ) from None
    os.truncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor
