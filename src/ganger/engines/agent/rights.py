"""The rights of one thread on files: what root does on a user's behalf it does with theirs.

Linux keeps, per thread, the user by which file access is judged (setfsuid(2)). The thread keeps
root's other rights, so that the user can neither signal nor trace it, and it can turn back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import pwd
from collections.abc import Iterator, Sequence
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)
_SETGROUPS: Final = {"x86_64": 116, "aarch64": 159, "riscv64": 159, "ppc64le": 81}
"""The system call itself: the C library's function changes the groups of all threads."""


def account(uid: int, gid: int = -1) -> tuple[int, list[int]]:
    """The group and all groups of a user; `gid` goes before the one that is on record."""
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        gid = gid if gid >= 0 else uid
        return gid, [gid]
    gid = gid if gid >= 0 else user.pw_gid
    return gid, os.getgrouplist(user.pw_name, gid)


def _set_groups(groups: Sequence[int]) -> None:
    number = _SETGROUPS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"users cannot be told apart on {platform.machine()}")
    array = (ctypes.c_uint32 * len(groups))(*groups)
    if _libc.syscall(number, len(groups), array):
        raise OSError(ctypes.get_errno(), "setgroups failed")


def _set(uid: int, gid: int) -> None:
    """Raises OSError if the thread has not these rights afterwards."""
    _libc.setfsgid(ctypes.c_uint32(gid))
    _libc.setfsuid(ctypes.c_uint32(uid))
    now = _libc.setfsuid(ctypes.c_uint32(-1)), _libc.setfsgid(ctypes.c_uint32(-1))
    if now != (uid, gid):
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
    before = os.getgroups()
    try:
        _set_groups(groups)
        _set(uid, gid)
        yield
    finally:
        _set(os.geteuid(), os.getegid())
        _set_groups(before)
