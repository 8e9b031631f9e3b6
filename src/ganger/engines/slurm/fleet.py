"""The nodes of a Slurm cluster as the machines that `Attempts` speaks with.

The orders for all parts of an attempt become one Slurm job. Commands run on threads of their own, a
few at a time; what Slurm and the attempts' folders say is turned into the agents' messages.
"""

from __future__ import annotations

import logging
import os
import selectors
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Final

import msgspec

from ganger.core.errors import GangerError
from ganger.core.plan import Placement
from ganger.core.units import NEVER, SECOND
from ganger.engines.agent.protocol import (
    Exit,
    Exited,
    Forget,
    Go,
    Key,
    Message,
    Prepare,
    Prepared,
    Ready,
    Refused,
    Stop,
)
from ganger.engines.machines import Box, Owner
from ganger.engines.slurm.calls.answers import Away, Job, Node
from ganger.engines.slurm.calls.client import Client, Component
from ganger.engines.slurm.calls.commands import Commands
from ganger.engines.slurm.following import (
    TAG,
    AttemptKey,
    Following,
    as_slurms,
    comment_of,
    key_of,
    messages,
    why_over,
)
from ganger.engines.slurm.machines import Machines
from ganger.engines.slurm.order import AttemptFolder

log = logging.getLogger("ganger.engine")
_KEPT: Final = ("PATH", "HOME", "PYTHONPATH", "LANG")
"""The variables that our own programs keep when Slurm runs them."""
POLL_SECONDS: Final = 2.0
"""Between two looks at the queue, however many jobs there are: one request to the controller."""
NODES_SECONDS: Final = 8.0
"""Between two looks at the nodes: two requests."""
_FILES_SECONDS: Final = 0.1
_UNSEEN_SECONDS: Final = 3.0
"""A job that is not in the queue so long after its submission is gone; and what its folder says
may come so much later than Slurm's word that it is over."""
_SPARE_MINUTES: Final = 5
_KILLED: Final = (-9, -15)
_TAKEN_SECONDS: Final = 6.0
"""A job that Slurm has not started by then is cancelled if others hold its GPUs: three looks."""
_DOUBT_SECONDS: Final = 10.0
"""So long may Slurm take to say why it has killed a worker or told it to leave."""


def program(module: str, folder: Path) -> list[str]:
    """How Slurm runs `ganger.engines.slurm.MODULE FOLDER`: by this interpreter, with few of this
    process's variables."""
    kept = [f"{name}={os.environ[name]}" for name in _KEPT if name in os.environ]
    env = shutil.which("env") or "/usr/bin/env"
    return [env, *kept, sys.executable, "-P", "-m", f"ganger.engines.slurm.{module}", str(folder)]


class SlurmFleet:
    """The nodes of a partition. `home` must be on a file system that all of them share.

    `places` has the placements of attempts; `patience` (microseconds): a job that Slurm has
    not started by then is cancelled, and its attempt refused.
    """

    owner: Owner

    def __init__(
        self,
        client: Client,
        home: Path,
        machines: Machines,
        places: dict[AttemptKey, Placement],
        *,
        cluster: str,
        patience: int,
        warn: Callable[[str, Sequence[str]], None],
    ) -> None:
        self._client, self._home, self._places = client, home, places
        self._name = f"ganger-{cluster}" if cluster else "ganger"
        self._patience = patience / SECOND
        self._machines, self._warn = machines, warn
        self.by_name, self._nodes = machines.boxes, machines.nodes
        self._following: dict[AttemptKey, Following] = {}
        self._forgotten: set[AttemptKey] = set()
        self._outbox: list[tuple[Box, Message]] = []
        self._jobs: list[Job] = []
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._commands = Commands(self.interrupt)
        self._queue_at = self._nodes_at = self._files_at = 0.0
        self._polling = False
        self._ready = False
        self.trouble = ""
        """Why Slurm could not be asked; empty while it answers."""

    def first_look(self, jobs: list[Job]) -> None:
        """These are the jobs there are: what others hold is known before anything is planned."""
        self._machines.withhold(self.owner, [job for job in jobs if not self._is_ours(job)])

    # ------------------------------------------------------------------ time

    def interrupt(self) -> None:
        """End a `wait` that is going on, or the next one. Any thread."""
        os.eventfd_write(self._wake, 1)

    def wait(self, seconds: float) -> None:
        """Take what comes within `seconds`; returns after the first thing that came."""
        if self._outbox:
            seconds = 0
        now = time.monotonic()
        due = min(
            self._files_at if self._following else inf,
            self._nodes_at,
            inf if self._polling else self._queue_at,
        )
        for _ in self._selector.select(max(min(seconds, due - now), 0)):
            os.eventfd_read(self._wake)
        self._commands.take()
        now = time.monotonic()
        if now >= self._queue_at and not self._polling:
            self._polling = True
            self._commands.do(self._client.jobs, self._queue)
        if now >= self._nodes_at:
            self._nodes_at = inf
            self._commands.do(self._client.nodes, self._looked)
        if now >= self._files_at:
            self._files_at = now + _FILES_SECONDS
            for one in list(self._following.values()):
                self._look(one)
        sent, self._outbox = self._outbox, []
        for box, message in sent:
            self.owner.told(box, message)

    def close(self) -> None:
        """Leave; everything goes on running."""
        self._commands.close()
        self._selector.close()
        os.close(self._wake)

    def noted_exit(self, job: int, attempt: int, node_rank: int) -> Exit | None:
        """None: all that is known is in the attempt's folder, which was read."""
        return None

    def address(self, box: Box) -> tuple[str, str] | None:
        """(its address, ours as it sees us)."""
        return self._nodes[box.hello.name].address, ""

    # ------------------------------------------------------------------ what is wanted

    def send(self, box: Box, message: Message) -> None:
        """Take what is wanted of an attempt's part on a node."""
        name = box.hello.name
        if isinstance(message, Prepare):
            self._prepare(name, box, message)
        elif isinstance(message, Go | Stop | Forget):
            key = message.key.job, message.key.attempt
            one = self._following.get(key)
            if isinstance(message, Forget):
                self._forget(key)
            elif one is None:
                self._outbox.append((box, Refused(message.key, "it is not here")))
            elif isinstance(message, Go):
                self._go(one, name)
            else:
                self._stop(one, message)

    def _prepare(self, name: str, box: Box, message: Prepare) -> None:
        key = message.key.job, message.key.attempt
        one = self._following.get(key)
        if one is None:
            one = self._following[key] = Following(key, self._folder(key))
        one.prepares[name] = message
        if message.go:
            self._go(one, name)
        else:
            self._outbox.append((box, Prepared(message.key)))

    def _folder(self, key: AttemptKey) -> AttemptFolder:
        return AttemptFolder(self._home / "attempts" / f"{key[0]}.{key[1]}")

    def _go(self, one: Following, name: str) -> None:
        one.ready.add(name)
        if len(one.ready) < len(one.prepares) or one.number or one.submitting or one.retry:
            return
        try:
            order, components = one.order(
                self._home, self._places[one.key], self._machines.names, self._nodes
            )
            one.folder.write(order)
        except (OSError, GangerError) as why:
            self._refuse(one, str(why))
            return
        one.submitting = True
        one.submitted_at = time.monotonic()
        first = next(iter(one.prepares.values()))
        limit = first.launch.limit
        minutes = _SPARE_MINUTES - (-limit // (60 * SECOND)) if limit < NEVER else 0
        tag = comment_of(one.key)
        self._commands.do(
            lambda: self._submit(one, components, tag, minutes),
            lambda number, error: self._submitted(one, number, error),
        )

    def _submit(
        self, one: Following, components: Sequence[Component], tag: str, minutes: int
    ) -> int:
        argv = program("leader", one.folder.path)
        return self._client.submit(
            components,
            argv,
            name=self._name,
            comment=tag,
            minutes=minutes,
            output=str(one.folder.path / "slurm.log"),
        )

    def _submitted(self, one: Following, number: int | None, error: GangerError | None) -> None:
        one.submitting = False
        if isinstance(error, Away):
            one.retry = True  # it may have been taken: the queue will say
        elif error is not None or number is None:
            self._refuse(one, str(error))
        else:
            one.number = number
            one.submitted_at = time.monotonic()
            self._look(one)

    def _retry(self, one: Following) -> None:
        """The submission was not answered, and the queue does not have it."""
        one.retry = False
        if one.stop is not None:
            self._refuse(one, "it was not submitted")
        for name in () if one.stop is not None else list(one.prepares):
            self._go(one, name)

    def _stop(self, one: Following, message: Stop) -> None:
        old, one.stop = one.stop, message
        if old is None:
            launch = next(iter(one.prepares.values())).launch if one.prepares else None
            grace = (launch.grace + launch.kill_after) / SECOND if launch is not None else 60.0
            one.cancel_at = time.monotonic() + grace + self._patience
        elif not message.checkpoint and old.checkpoint:
            one.signalled = ""
        if one.number or one.submitting or one.retry:
            self._look(one)
        else:
            self._refuse(one, "it was not submitted")

    def _forget(self, key: AttemptKey) -> None:
        one = self._following.get(key)
        if one is None or all(name in one.over for name in one.prepares):
            self._following.pop(key, None)
            self._places.pop(key, None)
            self._forgotten.add(key)
            shutil.rmtree(self._folder(key).path, ignore_errors=True)

    # ------------------------------------------------------------------ what is

    def _is_ours(self, job: Job) -> bool:
        return job.name == self._name and job.comment.startswith(TAG)

    def _queue(self, jobs: list[Job] | None, error: GangerError | None) -> None:
        self._polling = False
        self._queue_at = time.monotonic() + POLL_SECONDS
        self._note(error)
        if jobs is None:
            return
        self._jobs = jobs
        found: dict[AttemptKey, Job] = {}
        for job in jobs:
            if self._is_ours(job) and job.leader in (0, job.number):
                key = key_of(job.comment)
                if key is not None and (key not in found or self._counts(key, job)):
                    found[key] = job
        for key, job in found.items():
            one = self._following.get(key)
            if one is None and not job.is_over and key not in self._forgotten:
                one = self._find(key)
            if one is not None and (one.number in (0, job.number)) and not one.submitting:
                one.number, one.job, one.retry = job.number, job, False
        for one in [one for one in self._following.values() if one.retry]:
            self._retry(one)
        now = time.monotonic()
        for key, one in self._following.items():
            gone = key not in found or found[key].number != one.number
            gone = gone and now - one.submitted_at > _UNSEEN_SECONDS
            if one.number and not one.submitting and (gone or (one.job and one.job.is_over)):
                one.over_at = min(one.over_at, now)
        if not self._ready:
            self._begin()
        self._files_at = 0.0
        self._bar()

    def _counts(self, key: AttemptKey, job: Job) -> bool:
        """Whether it is this job that counts, where Slurm shows several of the attempt: ours that
        was submitted twice, or of a Ganger of the same name before."""
        one = self._following.get(key)
        return job.number == one.number if one and one.number > 0 else not job.is_over

    def _find(self, key: AttemptKey) -> Following:
        """An attempt of an engine before this one."""
        one = self._following[key] = Following(key, self._folder(key))
        one.submitted_at = time.monotonic()
        try:
            order = one.folder.order()
        except (OSError, msgspec.MsgspecError):
            return one
        one.prepares = {
            seat.node: seat.prepare for seat in order.seats if seat.node in self.by_name
        }
        one.ready = set(one.prepares)
        return one

    def _begin(self) -> None:
        """Slurm was asked for the first time: say what is there, then that this was all."""
        self._ready = True
        for path in (self._home / "attempts").glob("*.*"):
            job, _, attempt = path.name.partition(".")
            key = int(job), int(attempt)
            if key not in self._following and AttemptFolder(path).is_claimed:
                one = self._find(key)
                one.number, one.over_at = -1, time.monotonic()
        for one in list(self._following.values()):
            self._look(one)
            for name, prepare in one.prepares.items():
                self.by_name[name].mentioned.add(prepare.key)
                if name not in one.told:
                    self._outbox.append((self.by_name[name], Prepared(prepare.key)))
        for box in self.by_name.values():
            self._welcome(box)

    def _welcome(self, box: Box) -> None:
        box.ready = True
        box.closed = self._nodes[box.hello.name].is_closed
        self.owner.welcomed(box)
        self._outbox.append((box, Ready()))

    def _note(self, error: GangerError | None) -> None:
        said = str(error) if error is not None else ""
        if said != self.trouble:
            log.warning("Slurm: %s", said or "it answers again")
            self._warn("Slurm", [said] if said else [])
        self.trouble = said

    def _looked(self, nodes: list[Node] | None, error: GangerError | None) -> None:
        self._nodes_at = time.monotonic() + NODES_SECONDS
        self._note(error)
        if nodes is not None and self._ready:
            for box in self._machines.update(nodes, self._jobs):
                self._welcome(box)
        self._bar()

    def _bar(self) -> None:
        """Tell of nodes that can be used no more, or again."""
        if not self._ready or self._outbox:
            return
        foreign = [job for job in self._jobs if not self._is_ours(job)]
        self._machines.tell(self.owner, foreign)

    def _look(self, one: Following) -> None:
        """See how an attempt is, and do what is to be done about it."""
        self._read(one)
        self._urge(one)
        now = time.monotonic()
        if one.over_at == inf and one.number > 0 and (word := one.folder.ended(one.number)):
            one.over_at, one.ended = now, frozenset({word})
        if one.doubtful and (one.over_at < inf or now >= one.doubt_until):
            for name, message in one.doubtful.items():
                self._say(one, name, message, doubt=False)
        if now - one.over_at > _UNSEEN_SECONDS or (one.over_at < inf and not one.folder.is_claimed):
            self._conclude(one)
        elif (
            one.job is not None
            and one.job.is_pending
            and one.stop is None
            and now - one.submitted_at > self._patience_with(one)
        ):
            one.stop = Stop(Key(*one.key), checkpoint=False)

    def _patience_with(self, one: Following) -> float:
        """Seconds: less if others hold what the job was to have."""
        for slot in self._places.get(one.key, ()):
            name = self._machines.names.get(slot.node, "")
            if self._machines.left(name) < slot.devices.bit_count():
                return min(_TAKEN_SECONDS, self._patience)
        return self._patience

    def _read(self, one: Following) -> None:
        changed = one.folder.changed()
        if changed == one.changed:
            return
        state = one.folder.state()
        if state is None:
            return
        one.changed = changed
        for name, told in state.seats.items():
            one.devices[name] = told.devices
            for message in messages(told):
                self._say(one, name, message)

    def _say(self, one: Following, name: str, message: Message, *, doubt: bool = True) -> None:
        known = one.told.setdefault(name, [])
        if message in known or name in one.over:
            return
        if isinstance(message, Exited):
            doubtful = message.exit.asked or message.exit.code in _KILLED
            if one.stop is None and doubtful and doubt:
                if name not in one.doubtful:
                    one.doubt_until = time.monotonic() + _DOUBT_SECONDS
                one.doubtful[name] = message
                return
            one.over.add(name)
            message = as_slurms(message, one.states) if one.stop is None else message
        known[:] = [old for old in known if type(old) is not type(message)] + [message]
        self._outbox.append((self.by_name[name], message))

    def _urge(self, one: Following) -> None:
        """Bring it to leave, if that is wanted."""
        if one.stop is None or one.number <= 0 or one.over_at < inf:
            return
        wanted = "USR1" if one.stop.checkpoint else "USR2"
        if time.monotonic() >= one.cancel_at or one.stop.kill or not one.folder.is_claimed:
            wanted = "cancel"
        if one.signalled in (wanted, "cancel") or (wanted != "cancel" and one.changed < 0):
            return
        one.signalled = wanted
        number = one.number

        def again(_: object, error: GangerError | None) -> None:
            if isinstance(error, Away):
                one.signalled = ""

        if wanted == "cancel":
            self._commands.do(lambda: self._client.cancel(number), again)
        else:
            self._commands.do(lambda: self._client.signal(number, wanted), again)

    def _conclude(self, one: Following) -> None:
        """Slurm says that it is over: what its folder does not say is judged by that."""
        states = one.states
        detail = f"Slurm says {', '.join(sorted(states)) or 'that it is gone'}"
        asked = one.stop is not None
        for name, prepare in one.prepares.items():
            if name in one.over:
                continue
            if not one.folder.is_claimed:
                self._say_refused(one, name, detail)
            else:
                lost = "Ended" if states else "NodeFail"
                why = why_over(states) or ("" if asked else lost)
                exit_ = Exit(code=-9, why=why, detail=detail if why else "", asked=asked)
                self._say(one, name, Exited(prepare.key, exit_), doubt=False)

    def _refuse(self, one: Following, why: str) -> None:
        for name in list(one.prepares):
            self._say_refused(one, name, why)

    def _say_refused(self, one: Following, name: str, why: str) -> None:
        if name not in one.over:
            one.over.add(name)
            self._outbox.append((self.by_name[name], Refused(one.prepares[name].key, why)))

    def devices(self, key: AttemptKey) -> dict[str, tuple[int, ...]]:
        """The device indices that Slurm gave an attempt, by node."""
        one = self._following.get(key)
        return dict(one.devices) if one is not None else {}
