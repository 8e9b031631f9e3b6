"""The folder of one part of an attempt: what makes a start happen once and an exit never lost.

The folder is made exclusively; `prepare` in it says what to run. `keeper` is created, exclusively,
just before the supervisor is forked, so nothing starts twice, and locked for as long as it lives.
`exit` is written, synced and renamed into place from a file that was allocated before the job
started: a full disk does not lose it. `job/` is the job's own: the socket that the SDK reports to,
and the file `leave`, which says that Ganger wants the job to go. `rate` says for which part of the
time the job may compute, where it is not all of it; `terms`, on what terms it shares its devices.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from ganger.engines.agent.protocol import Exit, Key, Prepare, Terms

_EXIT_BYTES: Final = 8192
_Record = TypeVar("_Record")


class SupervisorRecord(msgspec.Struct, frozen=True):
    """The part's cgroup folders by hierarchy."""

    groups: dict[str, str]


@contextlib.contextmanager
def short_path(folder: Path, name: str) -> Iterator[str]:
    """A path of `folder/name` that is short enough for a Unix socket."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def sync(folder: Path) -> None:
    """Make the folder's entries durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, data: bytes) -> None:
    """Write, sync, rename into place, sync the folder."""
    made = path.with_name(path.name + ".new")
    with made.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    made.rename(path)
    sync(path.parent)


def note_exit(exits: Path, key: Key, node_rank: int, exit_: Exit) -> None:
    """Note how a part ended in a folder that outlives its agent, if there is one."""
    with contextlib.suppress(OSError):
        if exits.is_dir():
            name = exits / f"{key.job}.{key.attempt}.{node_rank}"
            write_durably(name, msgspec.msgpack.encode(exit_))


def noted_exit(exits: Path, job: int, attempt: int, node_rank: int) -> Exit | None:
    """What was noted of it; None if nothing was."""
    try:
        data = (exits / f"{job}.{attempt}.{node_rank}").read_bytes()
        return msgspec.msgpack.decode(data, type=Exit)
    except (OSError, msgspec.MsgspecError):
        return None


class AttemptDir:
    """The part's folder at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.job = path / "job"
        self.script = self.job / "script"
        self.reports = path / "reports"

    @classmethod
    def make(cls, attempts: Path, prepare: Prepare) -> AttemptDir:
        """Make it. Raises FileExistsError if the part has one already, and other OSErrors.

        That there is a folder is durable. What it holds need not be: after a crash of the machine
        nothing runs, and whatever has no exit record is lost."""
        folder = cls(attempts / prepare.key.name)
        folder.path.mkdir()
        try:
            folder.path.chmod(0o711)  # the job's user passes through, to `job`
            folder.job.mkdir(mode=0o700)
            (folder.path / "prepare").write_bytes(msgspec.msgpack.encode(prepare))
            sync(attempts)
        except OSError:
            folder.remove()
            raise
        return folder

    @property
    def key(self) -> Key:
        """The part that it is about."""
        job, attempt, seat = self.path.name.split(".")
        return Key(int(job), int(attempt), int(seat))

    def _record(self, name: str, kind: type[_Record]) -> _Record | None:
        try:
            return msgspec.msgpack.decode((self.path / name).read_bytes(), type=kind)
        except (OSError, msgspec.MsgspecError):
            return None

    def prepare(self) -> Prepare | None:
        """What is to run."""
        return self._record("prepare", Prepare)

    def supervisor(self) -> SupervisorRecord | None:
        """What was noted at the start; None before."""
        return self._record("keeper", SupervisorRecord)

    def terms(self) -> Terms | None:
        """On what terms it shares its devices; None if none were given."""
        return self._record("terms", Terms)

    def keep_terms(self, terms: Terms) -> None:
        """Note them for the next agent. Raises OSError."""
        made = self.path / "terms.new"
        made.write_bytes(msgspec.msgpack.encode(terms))
        made.rename(self.path / "terms")

    def tell_rate(self, part: float) -> None:
        """Note for which part of the time the job may compute. Its folder is not the job's, which
        may only read there."""
        how = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path / "rate", how, 0o644)
            try:
                os.fchmod(descriptor, 0o644)
                os.pwrite(descriptor, b"%.4f\n" % part, 0)
            finally:
                os.close(descriptor)

    def exit(self) -> Exit | None:
        """How it ended; None until then."""
        return self._record("exit", Exit)

    # ------------------------------------------------------------------ starting and ending it

    def take(self, record: SupervisorRecord) -> int:
        """Take the right to start the part: a locked descriptor, to be held by the supervisor for
        life. Raises FileExistsError if it was ever taken, and other OSErrors."""
        descriptor = os.open(self.path / "keeper", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, msgspec.msgpack.encode(record))
        reserve = os.open(self.path / "exit.new", os.O_CREAT | os.O_RDWR, 0o600)
        os.posix_fallocate(reserve, 0, _EXIT_BYTES)
        os.close(reserve)
        return descriptor

    def is_kept(self) -> bool:
        """Whether its supervisor lives."""
        try:
            descriptor = os.open(self.path / "keeper", os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def was_taken(self) -> bool:
        """Whether anybody ever was its supervisor."""
        return (self.path / "keeper").exists()

    def write_exit(self, exit_: Exit) -> None:
        """Keep the exit, durably. Raises OSError."""
        data = msgspec.msgpack.encode(exit_)
        made = self.path / "exit.new"
        descriptor = os.open(made, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            os.write(descriptor, data)
            os.ftruncate(descriptor, len(data))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        made.rename(self.path / "exit")
        sync(self.path)

    # ------------------------------------------------------------------ sockets

    def listen(self) -> socket.socket:
        """The socket at which the supervisor will take orders."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(self.path, "control") as path:
            sock.bind(path)
        sock.listen(4)
        return sock

    def connect(self) -> socket.socket:
        """A connection to the supervisor. Raises OSError."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_path(self.path, "control") as path:
                sock.connect(path)
        except OSError:
            sock.close()
            raise
        return sock

    def ask_to_leave(self) -> None:
        """Make the file that tells the job so, following no link: its folder is the job's own."""
        how = os.O_CREAT | os.O_EXCL | os.O_WRONLY  # nothing that is there is opened
        with contextlib.suppress(OSError):
            os.close(os.open(self.job / "leave", how, 0o644))

    def hand_over(self, script: str, uid: int, gid: int) -> socket.socket:
        """Make what the job's own folder begins with, its script and the socket that the SDK's
        reports come to, then give the folder to the job's user: the socket. From then on that user
        may put a link in any name's place, so nothing is made or given away there any more."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with short_path(self.job, "sdk") as path:
            sock.bind(path)
            if uid >= 0:
                os.chown(path, uid, gid)
        sock.setblocking(False)
        if script:
            descriptor = os.open(self.script, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o700)
            with open(descriptor, "w") as file:
                file.write(script)
                os.fchmod(descriptor, 0o700)
                if uid >= 0:
                    os.fchown(descriptor, uid, gid)
        if uid >= 0:
            os.chown(self.job, uid, gid)
        return sock

    def remove(self) -> int:
        """Drop everything: 0, or the number of a process that does it, where the job left more
        behind than is dropped in a moment (a tree can be as large and as deep as its user likes).
        """
        for name in ("script", "sdk", "leave"):
            with contextlib.suppress(OSError):
                (self.job / name).unlink()
        try:
            with contextlib.suppress(FileNotFoundError):
                self.job.rmdir()
        except OSError:
            command = ["rm", "-rf", "--one-file-system", "--", str(self.path)]
            return os.posix_spawnp("rm", command, os.environ)
        shutil.rmtree(self.path, ignore_errors=True)
        return 0
