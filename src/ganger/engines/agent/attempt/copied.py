"""A trial that begins with what another one had saved."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import Final

_PART: Final = ".copying"


def begin_with(own: Path, source: Path) -> None:
    """Copy what lies in the folder `source` into `own`, unless that has something already; what a
    copy that was interrupted left there does not count. Nothing happens where there is no source.
    What vanishes meanwhile is left out: trials that go on replace their checkpoints. Raises
    OSError."""
    own.mkdir(parents=True, exist_ok=True)
    part = own / _PART
    try:
        shutil.rmtree(part, ignore_errors=True)
        if any(own.iterdir()) or not source.is_dir():
            return
        _copy(source, part)
    except RecursionError:
        raise OSError(errno.ENAMETOOLONG, "folders lie too deep in it", str(source)) from None
    for each in part.iterdir():
        os.replace(each, own / each.name)
    part.rmdir()


def _copy(source: Path, target: Path) -> None:
    """Files, folders, and links as links; whatever else lies there is left out."""
    target.mkdir()
    with os.scandir(source) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.is_symlink():
                    (target / entry.name).symlink_to(os.readlink(entry.path))
                elif entry.is_dir():
                    _copy(Path(entry.path), target / entry.name)
                elif entry.is_file():
                    shutil.copy2(entry.path, target / entry.name, follow_symlinks=False)
