"""The rights of one thread: what root does on a user's behalf it does with theirs.

Linux keeps users per thread, and the C library keeps all threads' alike: so the system calls are
made here themselves. The thread's effective user becomes the other one, by which the kernel judges
files, and also its own switches below /proc/sys, disk quotas and what may be seen of processes
(setfsuid(2) would do for the first alone). The thread's real and saved user stay root, so that the
user can neither signal nor trace it, and it can turn back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import pwd
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple


class _Calls(NamedTuple):
    setgroups: int
    setresuid: int
    setresgid: int


_GENERIC: Final = _Calls(159, 147, 149)
_CALLS: Final = {
    "x86_64": _Calls(116, 117, 119),
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
    "ppc64le": _Calls(81, 164, 169),
}
_SAME: Final = ctypes.c_uint32(-1)
_libc = ctypes.CDLL(None, use_errno=True)


def account(uid: int, gid: int = -1) -> tuple[int, list[int]]:
    """The group and all groups of a user; `gid` goes before the one that is on record."""
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        gid = gid if gid >= 0 else uid
        return gid, [gid]
    gid = gid if gid >= 0 else user.pw_gid
    return gid, os.getgrouplist(user.pw_name, gid)


def _calls() -> _Calls:
    found = _CALLS.get(platform.machine())
    if found is None:
        raise OSError(errno.ENOSYS, f"users cannot be distinguished on {platform.machine()}")
    return found


def _set_groups(groups: Sequence[int]) -> None:
    array = (ctypes.c_uint32 * len(groups))(*groups)
    if _libc.syscall(_calls().setgroups, len(groups), array):
        raise OSError(ctypes.get_errno(), "setgroups failed")


def _set_group(gid: int) -> None:
    """Raises OSError if it is not this thread's effective group afterwards."""
    _libc.syscall(_calls().setresgid, _SAME, ctypes.c_uint32(gid), _SAME)
    if os.getegid() != gid:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def _set_user(uid: int) -> None:
    """Raises OSError if it is not this thread's effective user afterwards."""
    _libc.syscall(_calls().setresuid, _SAME, ctypes.c_uint32(uid), _SAME)
    if os.geteuid() != uid:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


@contextlib.contextmanager
def rights_of(uid: int, gid: int = -1) -> Iterator[None]:
    """Within it this thread opens, makes and removes files as user `uid`. Changes nothing for the
    user that this process has, or below 0. Raises OSError if it cannot be done; then, too, nothing
    is done with more rights than the user's."""
    if uid < 0 or uid == os.geteuid():
        yield
        return
    gid, groups = account(uid, gid)
    own, group, before = os.geteuid(), os.getegid(), os.getgroups()
    try:
        _set_groups(groups)
        _set_group(gid)
        _set_user(uid)
        yield
    finally:
        _set_user(own)
        _set_group(group)
        _set_groups(before)


@contextlib.contextmanager
def user_is(uid: int) -> Iterator[None]:
    """Within it this thread writes to what is open already as user `uid`, whose groups do not
    matter any more. Changes nothing for the user that this process has, or below 0. Raises
    OSError."""
    own = os.geteuid()
    if uid < 0 or uid == own:
        yield
        return
    try:
        _set_user(uid)
        yield
    finally:
        _set_user(own)
