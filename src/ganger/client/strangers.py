"""Files and folders that another user made or may change. They are not obeyed here: a journal names
a recipe, a recipe is Python, and a backup holds what runs under which user."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from pathlib import Path

from ganger.core.errors import BadInput

_STICKY = stat.S_ISVTX
_SECRET_BYTES = 1 << 20


def refuse_others_folder(folder: Path, *, above: bool) -> None:
    """Raise BadInput where the folder is another user's. With `above` also where somebody else can
    put another one in its place: the folders above it must be this user's or root's, and nobody
    else may write there (but as in /tmp, where nobody moves what is not theirs)."""
    folder = folder.resolve()
    mend = "use a GANGER_HOME that only you can change"
    for path in (folder, *(folder.parents if above else ())):
        found = path.stat()
        if _is_others(found):
            raise BadInput(f"{path} belongs to another user", where=str(folder), mend=mend)
        if path != folder and others_may_change(found):
            raise BadInput(f"{path} can be written by others", where=str(folder), mend=mend)


def refuse_others_file(path: Path, *, above: bool = False) -> Path:
    """The path without links. Raises BadInput where the file is another user's (root's are
    believed) or somebody else may change it; with `above` also where somebody else can put another
    file in its place."""
    path = path.resolve()
    for each in (path, *(path.parents if above else ())):
        try:
            found = each.stat()
        except OSError as error:
            raise BadInput(f"it cannot be read: {error.strerror}", where=str(path)) from None
        if _is_others(found):
            raise BadInput(
                f"{'it' if each == path else each} is another user's, and says what runs here",
                where=str(path),
                mend="read it, then use a copy of your own",
            )
        if others_may_change(found):
            raise BadInput(
                f"others may change {'it' if each == path else each}, and with it what runs here",
                where=str(path),
                mend=f"read it, then `chmod go-w {each}`, or use a copy",
            )
    return path


def others_may_change(found: os.stat_result) -> bool:
    """Whether somebody else than the owner and root can write a file, or move what is in a folder.
    A group with the owner as its only member does not count."""
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISDIR(found.st_mode) and mode & _STICKY:
        return False
    return bool(mode & stat.S_IWOTH) or bool(mode & stat.S_IWGRP and not _is_alone(found))


def _is_others(found: os.stat_result) -> bool:
    return found.st_uid not in (0, os.geteuid())


def _is_alone(found: os.stat_result) -> bool:
    """Whether the file's group is the owner's own, with the same name and no further members."""
    with contextlib.suppress(KeyError):
        owner, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
        alone = set(group.gr_mem) <= {owner.pw_name}
        return owner.pw_gid == group.gr_gid and owner.pw_name == group.gr_name and alone
    return False


def read_secret(path: Path, *, group: bool = False) -> bytes:
    """The bytes of a file with secrets, of at most 1 MiB. Raises BadInput where others may read or
    change it, or where it is another user's (root's are believed); with `group`, its group may."""
    where = str(path)
    try:
        with path.open("rb") as file:
            state, data = os.fstat(file.fileno()), file.read(_SECRET_BYTES + 1)
    except OSError as error:
        raise BadInput(f"it cannot be read: {error.strerror}", where=where) from None
    if _is_others(state):
        raise BadInput("it is another user's", where=where, mend="use a file of your own")
    if stat.S_IMODE(state.st_mode) & (0o027 if group else 0o077):
        mend = f"chmod {'640' if group else '600'} {path}"
        raise BadInput("it has secrets, and others may read it", where=where, mend=mend)
    if len(data) > _SECRET_BYTES:
        raise BadInput(f"it has more than {_SECRET_BYTES:,} bytes", where=where)
    return data
