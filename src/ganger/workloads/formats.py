"""All trace formats: what they are, how to tell them apart, and the one way to load and save."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ganger.core.errors import BadInput
from ganger.workloads.files import peek_text, suffix_of
from ganger.workloads.readers import (
    acme,
    gavel,
    helios,
    itp,
    openb,
    pai,
    philly,
    pollux,
    sacct,
    swf,
    tiresias,
)
from ganger.workloads.readers import ganger_trace as own
from ganger.workloads.readers import ganger_trace_writer as own_writer
from ganger.workloads.trace import Trace


@dataclass(frozen=True)
class Head:
    """What can be seen of a file without reading it: its extension and its first lines."""

    suffix: str
    lines: tuple[str, ...]

    def has(self, *columns: str) -> bool:
        """Whether the first line, read as comma-separated, names all of `columns`."""
        first = {cell.strip().strip('"') for cell in self.first.split(",")}
        return first.issuperset(columns)

    @property
    def first(self) -> str:
        """The first line that is not empty."""
        return next((line for line in self.lines if line.strip()), "")


@dataclass(frozen=True)
class Format:
    """A trace format. `read` takes a path, `skip_bad` and the format's own options."""

    name: str
    description: str
    read: Callable[..., Trace]
    recognises: Callable[[Head], bool]
    write: Callable[[Trace, Path], None] | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options that only this format takes."""
        names = inspect.signature(self.read).parameters
        return tuple(name for name in names if name not in ("path", "skip_bad"))


def _is_own(head: Head) -> bool:
    if head.suffix == ".parquet" or "ganger.trace/" in head.first:
        return True
    if head.suffix in (".jsonl", ".ndjson"):
        return True
    plain = [line for line in head.lines if line.strip() and not line.startswith("#")]
    return bool(plain) and {"submitted", "duration", "gpus"} <= {
        cell.strip().strip('"') for cell in plain[0].split(",")
    }


def _is_philly(head: Head) -> bool:
    log = head.first.lstrip().startswith("[") and any("jobid" in line for line in head.lines[:400])
    return log or head.has(*philly.HEADER)


def _is_task_table(head: Head) -> bool:
    if head.has(*pai.TASK_TABLE) or head.has(*pai.SAMPLE):
        return True
    cells = head.first.split(",")
    states = ("Terminated", "Failed", "Running", "Waiting", "Interrupted")
    return len(cells) == len(pai.TASK_TABLE) and cells[3] in states


def _is_swf(head: Head) -> bool:
    rows = [line.split() for line in head.lines if line.strip() and line.lstrip()[0] != ";"]
    if not rows or len(rows[0]) != len(swf.FIELDS):
        return False
    return all(cell.lstrip("-").replace(".", "", 1).isdecimal() for cell in rows[0])


def _is_sacct(head: Head) -> bool:
    cells = head.first.split("|")
    return "Submit" in cells and ("JobID" in cells or "JobIDRaw" in cells)


FORMATS: dict[str, Format] = {
    format_.name: format_
    for format_ in (
        Format("ganger", "Ganger's own CSV, JSON Lines or Parquet (docs/trace-format.md)", own.read,
               _is_own, own_writer.write),
        Format("swf", "Standard Workload Format; processors are GPUs", swf.read,
               lambda head: head.suffix == ".swf" or _is_swf(head), swf.write),
        Format("sacct", "Slurm accounting: sacct -a -X --parsable2", sacct.read, _is_sacct),
        Format("philly", "Microsoft Philly: flat CSV or cluster_job_log JSON", philly.read,
               _is_philly),
        Format("helios", "SenseTime Helios: cluster_log.csv or the flat Venus CSV", helios.read,
               lambda head: head.has(*helios.HEADER) or head.has(*helios.VENUS)),
        Format("acme", "Shanghai AI Lab Acme: trace_seren.csv, trace_kalos.csv", acme.read,
               lambda head: head.has(*acme.HEADER)),
        Format("pai", "Alibaba PAI 2020: pai_task_table.csv or the flat sample", pai.read,
               _is_task_table),
        Format("openb", "Alibaba openb 2023: pod lists with GPU fractions", openb.read,
               lambda head: head.has(*openb.HEADER)),
        Format("itp", "Microsoft ITP 2021: raw or ElasticFlow CSV", itp.read,
               lambda head: head.has(*itp.HEADER)),
        Format("gavel", "Gavel and Shockwave traces (tab-separated)", gavel.read,
               lambda head: len(head.first.split("\t")) in gavel.ORDERS),
        Format("tiresias", "Tiresias, Muri and Chronus simulators' CSV", tiresias.read,
               lambda head: head.has(*tiresias.HEADER)),
        Format("pollux", "Pollux and Sia workloads (durations assumed)", pollux.read,
               lambda head: head.has(*pollux.HEADER)),
    )
}  # fmt: skip
"""Every format by name."""


def find_format(name: str) -> Format:
    """The format of that name. Raises BadInput."""
    if name not in FORMATS:
        raise BadInput(
            f"no format {name!r}", where="format", mend="use auto, " + ", ".join(FORMATS)
        )
    return FORMATS[name]


def detect(path: str | Path) -> Format:
    """The format of a file, by its extension and its first lines. Raises BadInput."""
    path = Path(path)
    if path.is_dir():
        raise BadInput("it is a folder", where=str(path), mend="name one trace file in it")
    suffix = suffix_of(path)
    if suffix == ".parquet":
        return FORMATS["ganger"]
    text = peek_text(path)
    if not text.strip():
        raise BadInput("the file is empty", where=str(path), mend="give a file that holds jobs")
    head = Head(suffix, tuple(text.splitlines()))
    for format_ in FORMATS.values():
        if format_.recognises(head):
            return format_
    raise _unknown(head, path)


_HEADERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("ganger", ",", own.REQUIRED), ("sacct", "|", ("Submit", "Start", "State", "AllocTRES")),
    ("philly", ",", philly.HEADER), ("helios", ",", helios.HEADER), ("helios", ",", helios.VENUS),
    ("acme", ",", acme.HEADER), ("pai", ",", pai.SAMPLE), ("openb", ",", openb.HEADER),
    ("itp", ",", itp.HEADER), ("tiresias", ",", tiresias.HEADER), ("pollux", ",", pollux.HEADER),
)  # fmt: skip


def _unknown(head: Head, path: Path) -> BadInput:
    """What keeps a file from being read as the format that it is nearest to."""
    if "\0" in head.first:
        return BadInput("it is not text", where=str(path), mend="give text, plain or gzip")
    lacks: tuple[float, str, str] = (0.5, "", "")
    for name, delimiter, header in _HEADERS:
        cells = {cell.strip().strip('"') for cell in head.first.split(delimiter)}
        missing = [column for column in header if column not in cells]
        if missing:
            lacks = min(lacks, (len(missing) / len(header), name, missing[0]))
    spelt = {cell.strip().strip('"').lower() for cell in re.split(r"[,;\t|]", head.first)}
    if lacks[1]:
        return BadInput(
            f"column {lacks[2]!r} is missing",
            where=f"{path}: line 1",
            mend=f"format {lacks[1]} needs it",
        )
    if "ganger.requests/" in head.first:
        return BadInput(
            "it holds requests, not jobs",
            where=str(path),
            mend="see `ganger requests simulate --help`",
        )
    if spelt.issuperset(own.REQUIRED):
        return BadInput(
            f"no known format begins with {head.first[:80]!r}",
            where=f"{path}: line 1",
            mend="write columns in small letters, with commas between",
        )
    return BadInput(
        f"no known format begins with {head.first[:80]!r}",
        where=str(path),
        mend="name it, or see `ganger trace formats` and docs/trace-format.md",
    )


def load_trace(
    path: str | Path,
    format: str = "auto",  # noqa: A002 - the word that users type
    *,
    skip_bad: bool = False,
    **options: Any,
) -> Trace:
    """Read a trace of any format; gzip is looked through.

    `options` are those of the format (`FORMATS[name].options`), such as `throughputs` for Gavel.
    Jobs come sorted by submission, the first at 0. Raises BadInput naming file, line and field,
    or, with `skip_bad`, leaves bad rows out and says so in `Trace.skipped`.
    """
    path = Path(path)
    format_ = detect(path) if format == "auto" else find_format(format)
    for name in options:
        if name not in format_.options:
            known = ", ".join(format_.options) or "none"
            raise BadInput(
                f"format {format_.name} has no option {name!r}",
                where=str(path),
                mend=f"its options: {known}",
            )
    return format_.read(path, skip_bad=skip_bad, **options)


def save_trace(trace: Trace, path: str | Path, format: str = "auto") -> None:  # noqa: A002
    """Write a trace; `auto` is SWF for `.swf` and else our own; the path `-` is standard output.
    Raises BadInput."""
    path = Path(path)
    by_suffix = "swf" if suffix_of(path) == ".swf" else "ganger"
    format_ = find_format(by_suffix if format == "auto" else format)
    if format_.write is None:
        writable = ", ".join(name for name, each in FORMATS.items() if each.write)
        raise BadInput(
            f"format {format_.name} cannot be written", where=str(path), mend=f"use {writable}"
        )
    format_.write(trace, path)
