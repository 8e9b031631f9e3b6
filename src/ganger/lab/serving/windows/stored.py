"""A table of windows as a file, so that the next run goes on from it (`ganger.windows/2`).

MessagePack of plain data: what is counted of each entry, its blocks (from which the intervals
follow), and distributions of times as bins. Names stand for codes, since another log may bring
models and tenants in another order.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

import ganger
from ganger.core.errors import BadInput

FORMAT: Final = "ganger.windows/2"
_LARGEST: Final = 1 << 28
"""Bytes; no table is as large."""


class Times(Struct, forbid_unknown_fields=True):
    """A distribution of microseconds: of the bins that hold any, which and how many."""

    count: int
    total: float
    bins: list[int]
    counts: list[float]


class ClassCounts(Struct, forbid_unknown_fields=True):
    """Requests of one class: `model` by its place, `tenant` None for all, `slo` -1 for all."""

    model: int
    tenant: str | None
    slo: int
    requests: int
    in_time: int
    dropped: int
    latencies: Times
    ttft: Times
    tpot: Times


class Counts(Struct, forbid_unknown_fields=True):
    """What became of the requests of an entry."""

    requests: int
    answered: int
    late: int
    batches: int
    executed: int
    loads: int
    preempted: int
    dropped: dict[str, int]
    latencies: Times
    busy: list[int]
    by_model: list[list[int]]
    right: float
    judged: bool
    ttft: Times
    tpot: Times
    made: int
    coarse: int
    classes: list[ClassCounts]


class StoredLook(Struct, forbid_unknown_fields=True):
    """What windows of an entry are like; `work` by the name that is asked for."""

    count: int
    rate: float
    work: dict[str, float]
    gap_cv: float
    dispersion: float
    sizes: dict[str, float]


class StoredEntry(Struct, forbid_unknown_fields=True):
    """An entry: `blocks` are attainment and quantiles (nan where nothing was answered)."""

    look: StoredLook
    counts: Counts
    blocks: list[tuple[float, float, float]]


class StoredTable(Struct, forbid_unknown_fields=True):
    """A file. `holds_for`: all that the entries depend on besides the requests; `log`: how those
    begin."""

    format: str
    holds_for: str
    log: str
    entries: list[StoredEntry]


def file_of(folder: Path, recipe: str, fleet: str, holds_for: str) -> Path:
    """The file of a table in a folder: what it holds for is in its name."""
    words = re.sub(r"[^A-Za-z0-9.=]+", "-", f"{recipe}-{fleet}").strip("-")[:80]
    return folder / f"{words}-{digest(holds_for)[:12]}.windows"


def digest(text: str) -> str:
    """Letters that differ where the text does, or the version of Ganger."""
    return hashlib.sha256(f"{ganger.__version__}\n{text}".encode()).hexdigest()


def load(path: Path, holds_for: str, log: str) -> list[StoredEntry]:
    """The entries of a file; none where there is none yet. `log`: how the requests begin, "" where
    they may be of any log. Raises BadInput."""
    mend = "delete it, and it is made again"
    try:
        if not path.exists():
            return []
        if path.stat().st_size > _LARGEST:
            raise BadInput("it is too large for a table of windows", where=str(path), mend=mend)
        table = msgspec.msgpack.decode(path.read_bytes(), type=StoredTable)
    except OSError as error:
        raise BadInput(
            f"cannot be read: {error.strerror or error}", where=str(path), mend="check the path"
        ) from None
    except msgspec.MsgspecError:
        raise BadInput("it is not a table of windows", where=str(path), mend=mend) from None
    if table.format != FORMAT or table.holds_for != digest(holds_for):
        raise BadInput("it is a table of other runs", where=str(path), mend=mend)
    if log and table.log != log:
        raise BadInput(
            "it is a table of another log",
            where=str(path),
            mend="name another folder, or add --windows-like for a log that goes on like that one",
        )
    return table.entries


def save(path: Path, holds_for: str, log: str, entries: list[StoredEntry]) -> None:
    """Write a file whole, in place of the one before. Raises BadInput."""
    data = msgspec.msgpack.encode(StoredTable(FORMAT, digest(holds_for), log, entries))
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.write_bytes(data)
        new.replace(path)
    except OSError as error:
        raise BadInput(
            f"cannot be written: {error.strerror or error}", where=str(path), mend="check the path"
        ) from None
