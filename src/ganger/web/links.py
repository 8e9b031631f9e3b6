"""How a process of the same user gets a link: the socket of the pages, and the messages there."""

from __future__ import annotations

import contextlib
import hashlib
import html
import os
import socket
from pathlib import Path
from typing import Final

import msgspec

SOCKET: Final = "links.sock"
LOG: Final = "web.log"
LEADS: Final = "open.html"


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """How the pages are served: of which `home`; at `port` (0: the kernel's choice); under which
    `hosts` besides loopback, with https:// before those that are reached so; below `prefix`. With
    `lab` there is no daemon: the lab and the recipes alone."""

    home: str
    port: int = 0
    hosts: list[str] = []
    prefix: str = ""
    lab: bool = False


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked at the socket: a link (`read_only`: that changes nothing), or the end."""

    read_only: bool = False
    end: bool = False


class Told(msgspec.Struct):
    """The answer: where the pages are (`url`, without a link), the `token` of a new link, the
    process, and how it was started."""

    url: str
    token: str
    pid: int
    settings: Settings


def folder_of(root: Path) -> Path:
    """Where the socket for links lies: in the home, or where that is another user's, in a folder of
    one's own."""
    with contextlib.suppress(OSError):
        if root.stat().st_uid == os.geteuid():
            return root / "web"
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    name = hashlib.sha256(str(root).encode()).hexdigest()[:16]
    return Path(state).expanduser() / "ganger-web" / name


def leading_to(link: str, folder: Path) -> str:
    """The address of a file that leads a browser to a link, and that nobody else can read: what a
    program is started with, every user of the machine can."""
    path = folder / LEADS
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0; url={html.escape(link)}"><title>Ganger</title>'
        )
    return path.as_uri()


def asked_at(root: Path, **asked: bool) -> Told | None:
    """What the pages of a home answer at their socket; None if there are none."""
    folder = folder_of(root)
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10.0)
        try:
            sock.connect(f"/proc/self/fd/{descriptor}/{SOCKET}")
            sock.sendall(msgspec.json.encode(Asked(**asked)) + b"\n")
            with sock.makefile("rb") as file:
                return msgspec.json.decode(file.readline(), type=Told)
        except (OSError, msgspec.MsgspecError):
            return None
        finally:
            os.close(descriptor)
