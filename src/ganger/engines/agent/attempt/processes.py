"""Processes as Linux shows them: descendants, caught signals, memory, the process that inherits
orphans."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ganger.engines.launch import MIB

_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36  # prctl(2)
_CLONE3, _INTO_CGROUP = 435, 0x200000000  # clone3(2)
_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock, so that it can fork
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def woken_by_signals() -> tuple[socket.socket, socket.socket]:
    """Two sockets, both to be kept: the second can be read whenever a signal came that has a
    handler, as SIGCHLD has from now on. What is in it is the signals' numbers."""
    wake, woken = socket.socketpair()
    wake.setblocking(False)
    woken.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wake, woken


def reaped() -> Iterator[tuple[int, int]]:
    """The children that have ended, orphans that came to us included: (process, status) each."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, status


def adopt_orphans() -> None:
    """Descendants whose parent dies become this process's children (PR_SET_CHILD_SUBREAPER)."""
    _libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Be killed when `parent`, this process's parent, dies; at once if it is dead already."""
    _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


class _CloneArguments(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            "flags",
            "pidfd",
            "child_tid",
            "parent_tid",
            "exit_signal",
            "stack",
            "stack_size",
            "tls",
            "set_tid",
            "set_tid_size",
            "cgroup",
        )
    )


def fork_into(group: str | None) -> tuple[int, bool]:
    """Fork; in the child, which must soon exec, the number is 0. The flag says whether it was born
    in the v2 cgroup `group`: to be born there takes no time, to move there 10 ms and more."""
    if group is not None:
        with contextlib.suppress(OSError):
            folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
            how = _CloneArguments(flags=_INTO_CGROUP, exit_signal=signal.SIGCHLD, cgroup=folder)
            pid = _libc.syscall(_CLONE3, ctypes.byref(how), ctypes.sizeof(how))
            if pid:
                os.close(folder)
            if pid >= 0:
                return pid, True
    return os.fork(), False


def boot() -> str:
    """What tells this boot of the machine from others."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def children(pid: int) -> list[int]:
    """The children of all threads of `pid`; none if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/task/{thread}/children").read_text()
                found.extend(map(int, text.split()))
    return found


def descendants(pid: int) -> list[int]:
    """All descendants of `pid`, parents first."""
    found = children(pid)
    for one in found:
        found.extend(children(one))  # the list grows while it is walked
    return found


def marked(setting: str, uid: int) -> list[int]:
    """The live processes of user `uid` that were started with this setting (`NAME=value`), and
    their descendants."""
    found: dict[int, None] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            folder = Path("/proc", name)
            if folder.stat().st_uid == uid and setting.encode() in (
                (folder / "environ").read_bytes().split(b"\0")
            ):
                found.update(dict.fromkeys([int(name), *descendants(int(name))]))
    return list(found)


def end_marked(setting: str, uid: int, seconds: float) -> None:
    """Kill the processes that `marked` finds until there are none, for some seconds at most.

    A child looks for them, because reading the environment of a process may have to wait for that
    process."""
    until = time.monotonic() + seconds
    pid = os.fork()
    if not pid:
        try:
            while found := marked(setting, uid):
                send(found, signal.SIGKILL)
                time.sleep(0.002)
        finally:
            os._exit(0)
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def send(pids: Iterable[int], number: int) -> int:
    """Signal each of `pids`; how many there were."""
    reached = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            reached += 1
    return reached


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler of its own for the signal."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line[7:], 16) >> (number - 1) & 1)
    except (OSError, ValueError):
        pass
    return False


def resident_mib(pids: Iterable[int]) -> int:
    """MiB of memory that the processes occupy; shared pages count in each."""
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * _PAGE_BYTES // MIB
