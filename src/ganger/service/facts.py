"""What the daemon keeps of a live job beside its spec: how it is launched, and what gates it."""

from __future__ import annotations

from typing import Final

import msgspec

from ganger.core.spec import JobSpec
from ganger.engines.launch import Launch


class Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Launch facts of one job, written once. Times in microseconds.

    `name` is for people; `begin`: not before that time (0: none); `after_any`: rows that must be
    over first; `array` and `task`: the row of the first task of its array and its own number (-1:
    none); `script`: the text of its script, or "".
    """

    name: str
    launch: Launch
    user: str = ""
    begin: int = 0
    after_any: tuple[int, ...] = ()
    hold: bool = False
    array: int = -1
    task: int = -1
    script: str = ""


class Prepared(msgspec.Struct, frozen=True):
    """A job that may be accepted: all but its number is settled."""

    spec: JobSpec
    facts: Facts


ENCODE: Final = msgspec.msgpack.Encoder().encode
DECODE: Final = msgspec.msgpack.Decoder(Facts).decode
