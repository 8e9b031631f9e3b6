"""Slurm's short way to write many host names: `gpu[01-03,7],login`. Standard library only."""

from __future__ import annotations

import re
from typing import Final

HOSTS_MAX: Final = 100_000
_ITEM = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_BRACKET = re.compile(r"\[([^\]]*)\]")


def expand(text: str) -> list[str]:
    """The host names, in order. Raises ValueError."""
    found: list[str] = []
    for item in _ITEM.findall(text):
        found += _item(item)
        _bounded(len(found))
    return found


def _item(text: str) -> list[str]:
    match = _BRACKET.search(text)
    if match is None:
        return [text]
    middles = [i for part in match[1].split(",") for i in _range(part)]
    after = _item(text[match.end() :])
    _bounded(len(middles) * len(after))
    return [f"{text[: match.start()]}{i}{rest}" for i in middles for rest in after]


def _range(text: str) -> list[str]:
    first, dash, last = text.partition("-")
    last = last if dash else first
    if not (first.isdecimal() and last.isdecimal()):
        raise ValueError(f"{text!r} is not a range")
    _bounded(int(last) - int(first) + 1)
    return [str(i).zfill(len(first)) for i in range(int(first), int(last) + 1)]


def _bounded(hosts: int) -> None:
    if hosts > HOSTS_MAX:
        raise ValueError(f"more than {HOSTS_MAX} hosts")
