"""How a process of the same user gets a link: the socket of the pages, and the messages there."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Final

import msgspec

from ganger.client.control import ask, own_folder

SOCKET: Final = "links.sock"
LOG: Final = "web.log"
LEADS: Final = "open.html"


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """How the pages are served: of which `home`; at `port` (0: the kernel's choice); under which
    `hosts` besides loopback, with https:// before those that are reached so; below `prefix`. With
    `lab` there is no daemon: the lab and the recipes alone. Pages that are `beside` came with their
    daemon (`ganger up --web`), and `ganger down` ends them too."""

    home: str
    port: int = 0
    hosts: list[str] = []
    prefix: str = ""
    lab: bool = False
    beside: bool = False


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
    """Where the socket for links lies."""
    return own_folder(root, "web")


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
    return ask(folder_of(root), SOCKET, Asked(**asked), Told)
