"""Sockets by which a user's own processes are asked, such as the pages' and a service's front: they
lie in a folder of the user's own, and one line of JSON is answered by one line."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
_ANSWER_SECONDS: Final = 10.0
_ASKED_SECONDS: Final = 5.0
_ASKED_BYTES: Final = 64 << 10


def own_folder(root: Path, what: str) -> Path:
    """Where processes of the user's own lie that are about a home: in it, or where that is another
    user's, in a folder of one's own."""
    with contextlib.suppress(OSError):
        if root.stat().st_uid == os.geteuid():
            return root / what
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    name = hashlib.sha256(str(root).encode()).hexdigest()[:16]
    return Path(state).expanduser() / f"ganger-{what}" / name


def ask(folder: Path, name: str, asked: Any, kind: type[T]) -> T | None:
    """What the process answers that listens there; None if there is none."""
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_ANSWER_SECONDS)
        try:
            sock.connect(f"/proc/self/fd/{descriptor}/{name}")
            sock.sendall(msgspec.json.encode(asked) + b"\n")
            with sock.makefile("rb") as file:
                return msgspec.json.decode(file.readline(), type=kind)
        except (OSError, msgspec.MsgspecError):
            return None
        finally:
            os.close(descriptor)


async def listen(
    folder: Path,
    name: str,
    control: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> asyncio.Server:
    """Listen at a socket that nobody else can open, in place of one that was there."""
    path = folder / name
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    before = os.umask(0o177)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:  # a socket's path must be short, and this one is whatever the home is called
        short = f"/proc/self/fd/{descriptor}/{name}"
        return await asyncio.start_unix_server(control, short, limit=_ASKED_BYTES)
    finally:
        os.umask(before)
        os.close(descriptor)


async def answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    kind: type[T],
    obey: Callable[[T], Any],
) -> T | None:
    """Answer a process of the same user, or of root: what was asked; None where that is not valid,
    and for others."""
    try:
        if not _is_own(writer):
            return None
        line = await asyncio.wait_for(reader.readline(), _ASKED_SECONDS)
        asked = msgspec.json.decode(line, type=kind)
        writer.write(msgspec.json.encode(obey(asked)) + b"\n")
        await writer.drain()
    except (OSError, ValueError, msgspec.MsgspecError, TimeoutError):
        return None
    else:
        return asked
    finally:
        writer.close()


def _is_own(writer: asyncio.StreamWriter) -> bool:
    sock = writer.get_extra_info("socket")
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", peer)[1] in (0, os.geteuid())
