"""Slurm's short way to write many host names: `gpu[01-03,7],login`."""

from __future__ import annotations

import re
from typing import Final

from ganger.core.errors import BadInput

HOSTS_MAX: Final = 100_000
_ITEM = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_BRACKET = re.compile(r"\[([^\]]*)\]")


def expand(text: str) -> list[str]:
    """The host names, in order. Raises BadInput."""
    found = [name for item in _ITEM.findall(text) for name in _item(item)]
    if len(found) > HOSTS_MAX:
        raise BadInput(f"more than {HOSTS_MAX} hosts", where="host list")
    return found


def _item(text: str) -> list[str]:
    match = _BRACKET.search(text)
    if match is None:
        return [text]
    before, after = text[: match.start()], _item(text[match.end() :])
    return [f"{before}{i}{rest}" for part in match[1].split(",") for i in _range(part)
            for rest in after]  # fmt: skip


def _range(text: str) -> list[str]:
    first, dash, last = text.partition("-")
    last = last if dash else first
    if not (first.isdecimal() and last.isdecimal()) or int(last) - int(first) >= HOSTS_MAX:
        raise BadInput(f"{text!r} is no range", where="host list")
    return [str(i).zfill(len(first)) for i in range(int(first), int(last) + 1)]
