"""The supervisor: parent of one part's processes, from their start to the record of their exit.

Forked by the agent and independent of it from then on: it takes orders on a socket, so an agent
that comes back finds it again. It ends when nothing of the part runs any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import time
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final

from ganger.core.units import NEVER, SECOND
from ganger.engines.agent.attempt import processes
from ganger.engines.agent.attempt.attempt_dir import AttemptDir, note_exit
from ganger.engines.agent.attempt.cgroup import Group
from ganger.engines.agent.attempt.output import Output
from ganger.engines.agent.attempt.printed import Printed
from ganger.engines.agent.attempt.reports import Reports
from ganger.engines.agent.attempt.spawn import Stage, Worker, ask, spawn
from ganger.engines.agent.attempt.steps import Steps
from ganger.engines.agent.attempt.still import Still
from ganger.engines.agent.protocol import (
    Exit,
    Launched,
    Prepare,
    Progress,
    Rate,
    Reported,
    Resume,
    Stop,
    Suspend,
)
from ganger.engines.agent.wire import GoneError, Link

_WATCH_SECONDS: Final = 0.5
_REPORT_SECONDS: Final = 0.5
_KILL_AGAIN_SECONDS: Final = 0.05
_LAST_WORDS_MAX: Final = 2000
"""So many reports are taken when the job is over: more than wait in a socket."""
_HELPLESS_SECONDS: Final = 10.0
"""What SIGKILL cannot end in this time sits in the kernel; its exit is recorded nevertheless."""
_PACE_SECONDS: Final = 0.2
"""A job that may compute for a part of the time only is held for the rest of each such span."""
_SLICE_SECONDS: Final = 0.002
"""It never runs for less at a time."""

RUNNING, ASKED, TERMINATED, KILLED = range(4)


class Supervisor:
    """Keeps one part. `sdk`: where its reports come; `files`: descriptors of its output and error
    (the same for one file)."""

    def __init__(
        self,
        folder: AttemptDir,
        prepare: Prepare,
        group: Group,
        control: socket.socket,
        sdk: socket.socket,
        files: tuple[int, int],
        umask: int,
        zygote: str = "",
        exits: Path | None = None,
        cores: frozenset[int] = frozenset(),
        by_mps: bool = False,
    ) -> None:
        self._exits, self._cores = exits, cores
        self._still = Still(group, self._members, by_mps)
        self._folder, self._prepare, self._group = folder, prepare, group
        self._launch = prepare.launch
        self._umask, self._zygote = umask, zygote
        self._warm: dict[int, socket.socket] = {}
        """Workers that a zygote forked, and where it tells how they ended."""
        self._memory = sum(
            prepare.launch.shape.roles[part.role].needs.memory * part.workers
            for part in prepare.parts
        )
        self._selector = selectors.DefaultSelector()
        self._control = control
        self._links: list[Link] = []
        self._ranks: dict[int, int] = {}
        """Workers that run: process number to rank."""
        self._pids: tuple[int, ...] = ()
        self._codes: dict[int, int] = {}
        self._first_failure = 0
        self._why = self._detail = ""
        self._level = RUNNING
        self._next_level_at = inf
        self._asked = self._heard = self._listens = False
        self._frozen_at = 0.0
        self._rate = 1.0  # for which part of the time the job may compute
        self._paces = self._trusted = self._held = False
        """Whether the job sees to that itself (`sdk.step`), is left to, and is held now."""
        self._pace_at = inf
        self._limit_at = self._limit_left = inf
        self._watch_at = inf
        self._report_at = inf
        self._steps = Steps()
        self._reports = Reports(folder.reports, self._launch.metric)
        first = any(part.node_rank == 0 for part in prepare.parts)
        wanted = self._launch.printed and bool(self._launch.metric) and first
        self._printed = Printed(self._launch.metric, self._launch.metrics) if wanted else None
        """Finds reports in what the job prints; None if that is not wanted, or not any more."""
        self._hears = True
        """Whether what the job says is listened to: not while it reports faster than is taken."""
        self._outputs = self._open_outputs(files)
        self._open = [output for output, _ in self._outputs]
        """Those that something may still come from."""
        self._sdk = sdk

    # ------------------------------------------------------------------ the loop

    def run(self, workers: list[Worker], cwd: str) -> None:
        """Start the workers, see them through, write how it ended."""
        processes.adopt_orphans()
        _wake, woken = processes.woken_by_signals()
        for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(ignored, signal.SIG_IGN)
        register = self._selector.register
        register(woken, selectors.EVENT_READ, lambda: woken.recv(4096))
        register(self._control, selectors.EVENT_READ, self._accept)
        register(self._sdk, selectors.EVENT_READ, self._hear)
        for output in self._open:
            register(output, selectors.EVENT_READ, partial(self._pump, output))
        self._start(workers, cwd)
        while self._ranks:
            self._turn()
        self._clear()
        self._finish()

    def _turn(self) -> None:
        now = time.monotonic()
        due = min(self._next_level_at, self._limit_at, self._watch_at, self._report_at)
        due = min(due, self._pace_at, inf if self._hears else self._reports.rest_until)
        for key, _ in self._selector.select(None if due == inf else max(due - now, 0)):
            key.data()
        self._reap()
        now = time.monotonic()
        if now >= self._next_level_at:
            self._escalate(self._level + 1 if self._level < KILLED else KILLED)
        if now >= self._limit_at:
            self._limit_at = inf
            self._end("TimeLimit")
        if now >= self._watch_at:
            self._watch(now)
        if now >= self._pace_at:
            self._pace(now)
        if now >= self._report_at:
            self._report_at = inf
            self._tell_progress()
        if not self._hears and now >= self._reports.rest_until:
            self._hear_again()
            self._tell_reports(self._reports.write())

    def _start(self, workers: list[Worker], cwd: str) -> None:
        ends = [end for _, end in self._outputs]
        stage = Stage(self._launch, self._group, cwd, ends[0], ends[-1], self._umask, self._cores)
        for worker in workers:
            try:
                pid = self._warm_start(worker, stage) or spawn(worker, stage)
            except OSError as why:
                self._why, self._first_failure = "LaunchFailed", 127
                self._detail = f"{worker.argv[0]} in {cwd}: {why.strerror}"
                self._escalate(KILLED)
                break
            self._ranks[pid] = worker.rank
        for end in ends:
            os.close(end)
        self._pids = tuple(self._ranks)
        now = time.monotonic()
        if self._launch.limit < NEVER:
            self._limit_at = now + self._launch.limit / SECOND
        if self._memory and not self._group.limits_memory:
            self._watch_at = now + _WATCH_SECONDS
        if not self._why:
            self._tell(self._launched())

    def _warm_start(self, worker: Worker, stage: Stage) -> int:
        """Have a zygote fork the worker: its process number; 0 if it is to be started cold."""
        if not self._zygote:
            return 0
        if (asked := ask(self._zygote, worker, stage)) is None:
            return 0
        pid, sock = asked
        self._warm[pid] = sock
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._hear_zygote(pid))
        return pid

    def _hear_zygote(self, pid: int) -> None:
        """A worker of the zygote has ended, or the zygote itself."""
        sock = self._warm.pop(pid)
        self._selector.unregister(sock)
        try:
            status = int(sock.recv(64))
        except (OSError, ValueError):
            processes.send([pid, *processes.descendants(pid)], signal.SIGKILL)
            status = signal.SIGKILL
        sock.close()
        self._ended(pid, status)

    def _reap(self) -> None:
        """Take the exits of workers and of orphans that came to us."""
        for pid, status in processes.reaped():
            self._ended(pid, status)

    def _ended(self, pid: int, status: int) -> None:
        rank = self._ranks.pop(pid, None)
        if rank is None:
            return
        code = self._codes[rank] = os.waitstatus_to_exitcode(status)
        if code and not self._first_failure:
            self._first_failure = code
            if self._level == RUNNING and self._ranks:  # a gang runs whole or not at all
                self._escalate(TERMINATED)

    # ------------------------------------------------------------------ ending it

    def _end(self, why: str) -> None:
        self._why = self._why or why
        self._escalate(max(self._level, TERMINATED))

    def _escalate(self, level: int) -> None:
        """Ask, then terminate, then kill; each gives some time to go before the next."""
        if level > ASKED:
            self._thaw()
        self._level = level
        self._pace(now := time.monotonic())
        if level == ASKED:
            self._next_level_at = now + self._launch.grace / SECOND
            catchers = [pid for pid in self._members() if processes.catches(pid, signal.SIGUSR1)]
            self._heard |= bool(processes.send(catchers, signal.SIGUSR1)) or self._listens
            if not self._heard:  # nobody there who could save
                self._escalate(TERMINATED)
        elif level == TERMINATED:
            self._next_level_at = now + self._launch.kill_after / SECOND
            self._heard |= self._still.end(signal.SIGTERM)
        else:
            self._next_level_at = now + _KILL_AGAIN_SECONDS
            self._heard = True
            self._kill()

    def _members(self) -> list[int]:
        """Every process of the part."""
        found = {*processes.descendants(os.getpid()), *self._group.pids(), *self._warm}
        for pid in self._warm:
            found.update(processes.descendants(pid))
        return list(found)

    def _kill(self) -> None:
        self._still.end(signal.SIGKILL)
        self._group.kill()

    def _clear(self) -> None:
        """The workers are gone: nothing that they left behind stays."""
        until = time.monotonic() + _HELPLESS_SECONDS
        while self._members() and time.monotonic() < until:
            self._kill()
            self._reap()
            if self._members():
                time.sleep(0.002)

    def _finish(self) -> None:
        for _ in range(_LAST_WORDS_MAX):
            if not self._hear():
                break
        self._tell_progress()
        dropped = sum(output.finish() for output, _ in self._outputs)
        self._read(b"\n")  # the last line may have no end
        why = self._why
        if not why and self._first_failure and self._group.oom_kills():
            why = "OutOfMemory"
        steps = self._steps
        exit_ = Exit(
            self._first_failure,
            why,
            self._detail,
            self._asked,
            self._heard,
            steps.step,
            steps.total,
            steps.saved,
            steps.micros,
            self._codes,
            dropped,
            next((output.why for output, _ in self._outputs if output.why), "") if dropped else "",
        )
        self._group.remove()
        if self._exits is not None and self._prepare.parts:
            note_exit(self._exits, self._prepare.key, self._prepare.parts[0].node_rank, exit_)
        while self._folder.path.exists():
            try:
                self._folder.write_exit(exit_)
                return
            except OSError:  # no disk: the part is not over until it is written down
                time.sleep(1.0)

    # ------------------------------------------------------------------ suspending

    def _freeze(self) -> None:
        if self._frozen_at or self._level:
            return
        self._frozen_at = time.monotonic()
        self._limit_left = self._limit_at - self._frozen_at
        self._limit_at = inf
        self._held, self._pace_at = False, inf
        self._still.hold(True)

    def _thaw(self) -> None:
        if not self._frozen_at:
            return
        self._limit_at = time.monotonic() + self._limit_left
        self._frozen_at = 0.0
        self._steps.pause()
        self._still.hold(False)
        self._pace(time.monotonic())

    # ------------------------------------------------------------------ pacing

    def _pace(self, now: float) -> None:
        """Hold the job for a part of the time, or let it go on; suspended, it is asked later."""
        if self._frozen_at:
            return
        free = (self._paces and self._trusted) or self._rate >= 1.0 or self._level > RUNNING
        if free or self._held:
            if self._held:
                self._held = False
                self._still.hold(False)
            runs = max(self._rate * _PACE_SECONDS, _SLICE_SECONDS)
            self._pace_at = inf if free else now + runs
            return
        self._held = True
        self._still.hold(True)
        self._pace_at = now + (1.0 - self._rate) * _PACE_SECONDS

    def _set_rate(self, order: Rate) -> None:
        """For which part of the time the job may compute from now on."""
        self._rate, self._trusted = min(max(order.part, 0.0), 1.0), not order.held
        self._folder.tell_rate(1.0 if order.held else self._rate)
        if self._held or self._pace_at == inf:
            self._pace(time.monotonic())

    # ------------------------------------------------------------------ what comes in

    def _accept(self) -> None:
        sock, _ = self._control.accept()
        link = Link(sock, Stop | Suspend | Resume | Rate)
        self._links.append(link)
        self._selector.register(link, selectors.EVENT_READ, lambda: self._obey(link))
        if self._pids:
            self._tell(self._launched())
            self._tell_progress()

    def _obey(self, link: Link) -> None:
        try:
            orders = link.receive()
        except GoneError:
            self._drop(link)
            return
        for order in orders:
            if isinstance(order, Suspend):
                self._freeze()
            elif isinstance(order, Resume):
                self._thaw()
            elif isinstance(order, Rate):
                self._set_rate(order)
            else:
                self._leave(order)

    def _leave(self, order: Stop) -> None:
        self._reap()
        if not self._ranks:
            return  # it ended by itself before
        self._asked = True
        self._thaw()
        self._why = self._why or order.why
        if order.kill:
            wanted = KILLED
        elif order.checkpoint:
            wanted = ASKED
            self._folder.ask_to_leave()
        else:
            wanted = TERMINATED
        if wanted > self._level:
            self._escalate(wanted)

    def _hear(self) -> bool:
        """Take one report of the SDK; False if there was none."""
        try:
            data = self._sdk.recv(1 << 16)
        except OSError:
            return False
        # Whatever a job sends: it must not end its supervisor.
        with contextlib.suppress(
            ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RecursionError
        ):
            report: dict[str, Any] = json.loads(data)
            self._listens |= "listens" in report
            if "paces" in report and not self._paces:
                self._paces = True
                self._pace(time.monotonic())
            if "report" in report:
                self._printed = None
                self._tell_reports(self._reports.take(report["report"]))
            self._steps.take(report)
            if self._report_at == inf:
                self._report_at = time.monotonic() + _REPORT_SECONDS * self._steps.told
                self._steps.told = True
        self._rest_if_due()
        return True

    def _read(self, chunk: bytes) -> None:
        """Take the reports in what the job printed."""
        for report in list(self._printed.feed(chunk)) if self._printed is not None else ():
            with contextlib.suppress(ValueError, TypeError, LookupError, ArithmeticError):
                self._tell_reports(self._reports.take(report))
        self._rest_if_due()

    def _rest_if_due(self) -> None:
        """The job reports too fast: listen no more for a while, so that it has to wait."""
        if self._hears and self._reports.rest_until > time.monotonic():
            self._hears = False
            self._selector.unregister(self._sdk)
            for output in self._open:
                self._selector.unregister(output)

    def _hear_again(self) -> None:
        self._hears = True
        self._selector.register(self._sdk, selectors.EVENT_READ, self._hear)
        for output in self._open:
            self._selector.register(output, selectors.EVENT_READ, partial(self._pump, output))

    def _tell_reports(self, written: bool) -> None:
        if written:
            self._tell(Reported(self._prepare.key, 0))

    def _pump(self, output: Output) -> None:
        if not output.pump() and output in self._open:
            self._open.remove(output)  # all who could write are gone
            if self._hears:
                self._selector.unregister(output)

    def _watch(self, now: float) -> None:
        """Without a memory controller: end it when it holds more than it may."""
        self._watch_at = now + _WATCH_SECONDS
        if self._level < KILLED and processes.resident_mib(self._members()) > self._memory:
            self._why = self._why or "OutOfMemory"
            self._escalate(KILLED)

    # ------------------------------------------------------------------ what goes out

    def _tell_progress(self) -> None:
        one = self._steps
        if max(one.step, one.saved) >= 0 or one.served:
            key = self._prepare.key
            self._tell(
                Progress(key, one.step, one.total, one.micros, one.saved, one.metrics, one.served)
            )

    def _launched(self) -> Launched:
        return Launched(self._prepare.key, self._pids, paces=True)

    def _tell(self, message: Launched | Progress | Reported) -> None:
        for link in list(self._links):
            try:
                link.send(message)
            except GoneError:
                self._drop(link)

    def _drop(self, link: Link) -> None:
        if link in self._links:
            self._links.remove(link)
            self._selector.unregister(link)
            link.close()

    def _open_outputs(self, files: tuple[int, int]) -> list[tuple[Output, int]]:
        """A pump per file, with the end of its pipe that the workers write to."""
        found = []
        for file in dict.fromkeys(files):
            reads, writes = os.pipe2(os.O_CLOEXEC)
            hear = self._read if self._printed is not None else None
            output = Output(reads, file, self._launch.output_limit, self._launch.uid, hear)
            found.append((output, writes))
        return found
