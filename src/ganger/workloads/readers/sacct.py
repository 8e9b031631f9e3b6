"""Slurm's accounting: the output of `sacct --allusers --allocations --parsable2` with its header.

Needed columns: JobID or JobIDRaw, Submit, Start, AllocTRES or ReqTRES, and ElapsedRaw, Elapsed or
End. Used where there: State, TimelimitRaw (minutes) or Timelimit, User, Account, Partition, QOS,
Priority. A good command is

    sacct -a -X -P -o JobID,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,AllocTRES,ReqTRES,\
User,Account,Partition,QOS,Priority

GPUs are `gres/gpu=N` of what was allocated, else of what was asked for; a type counts only if it
was asked for (`gres/gpu:a100=4` in ReqTRES). The account is the tenant, the partition the group
(with `pools=True` also the pool), the time limit both limit and estimate, the part of an array's
id before `_` the array. Job steps, jobs without GPUs, and jobs that never started or still run are
left out and counted.

How a job ended is not replayed, what it used is: whatever its state, it takes as long as it ran and
then finishes. So that limits kill no job in a replay that Slurm let live, and fair comparisons lose
no job: a job that ended in TIMEOUT takes just its limit, without the grace that Slurm gave it, and
one that ended otherwise after its limit has what it ran as its limit. Both are counted, and so are
those that failed, were cancelled or lost their node.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.state.names import Names
from ganger.core.units import MINUTE, NEVER, parse_duration
from ganger.workloads.build import Coded, Rows, build, coded, mapped, recoded
from ganger.workloads.files import TextFile, open_text
from ganger.workloads.rows import (
    MOST_GPUS,
    Category,
    CellError,
    Clock,
    Count,
    Kind,
    Moment,
    Span,
    Table,
    Text,
    read_delimited,
)
from ganger.workloads.trace import Trace

_NAMED = re.compile(r"gres/gpu(?![^:=,])")
_GPU = re.compile(r"gres/gpu(?::([^=,]+))?=(\d+)(?![^,])")
_NOT_YET = ("", "Unknown", "None", "N/A")
_UNLIMITED = ("", "UNLIMITED", "Partition_Limit", "INVALID")
_BADLY = ("FAILED", "CANCELLED", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "DEADLINE")
_NEVER_RAN = ("BOOT_FAIL", "REVOKED")
_LIVE = ("RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "RESIZING", "COMPLETING")


def read(path: Path, *, skip_bad: bool = False, pools: bool = False) -> Trace:
    """The finished GPU jobs of sacct's output. Raises BadInput."""
    file = open_text(path, skip_bad=skip_bad)
    header = file.header("|")
    ids = _first(file, header, ("JobID", "JobIDRaw"))
    elapsed = _first(file, header, ("ElapsedRaw", "Elapsed", "End"))
    tres = _first(file, header, ("AllocTRES", "ReqTRES"))
    texts = {
        name: Category()
        for name in (
            "Start",
            "State",
            "TimelimitRaw",
            "Timelimit",
            "User",
            "Account",
            "Partition",
            "AllocTRES",
            "ReqTRES",
            "End",
            "Elapsed",
        )
    }
    required: dict[str, Kind] = {
        ids: Text(),
        "Submit": Moment(clock=Clock(True)),
        "Start": texts.pop("Start"),
    }
    start = required["Start"]
    required[elapsed] = Span(blank=NEVER) if elapsed == "ElapsedRaw" else texts.pop(elapsed)
    spent = required[elapsed]
    optional: dict[str, Kind] = {**texts, "Priority": Count(0, 1 << 32, blank=0)}
    table = read_delimited(file, required, optional, delimiter="|", comment="")
    names = table[ids]
    _leave_out_others(table, names, Coded(table["Start"], _names(start)), texts["State"])
    duration = _elapsed(table, elapsed, spent, Coded(table["Start"], _names(start)))
    if "State" in table:
        idle = _is(Coded(table["State"], texts["State"].names), "CANCELLED") & (duration == 0)
        table.leave_out(idle, "the jobs never started")
    gpus, types = _gpus(table, texts, tres)
    table.leave_out(gpus == 0, "the jobs have no GPU")
    table.refuse(gpus > MOST_GPUS, tres, "it asks for too many GPUs", "at most 1e6")
    stated = _limits(table, texts)
    state = coded(table, "State", texts["State"])
    duration, limit, notes = _ends(table, duration, stated, state)
    partition = coded(table, "Partition", texts["Partition"])
    rows = Rows(
        table["Submit"],
        duration,
        np.maximum(gpus, 1),
        names,
        gpu_type=types,
        limit=limit,
        estimate=stated,
        user=coded(table, "User", texts["User"]),
        group=partition,
        tenant=coded(table, "Account", texts["Account"]),
        pool=partition if pools else None,
        priority=np.minimum(table.get("Priority", 0), (1 << 31) - 1),
        array=_arrays(names),
    )
    trace = build(table, rows, name="sacct", fields={"names": ids}, zone=" of its own clock")
    trace.notes = notes
    return trace


def _first(file: TextFile, header: list[str], names: tuple[str, ...]) -> str:
    """The first of `names` that is a column. Raises BadInput where none is."""
    for name in names:
        if name in header:
            return name
    raise BadInput(
        f"column {names[0]!r} is missing",
        where=f"{file.where}: line 1",
        mend=f"ask sacct for one of {', '.join(names)}, with --parsable2",
    )


def _names(kind: Kind) -> Names[str]:
    assert isinstance(kind, Category)
    return kind.names


def _leave_out_others(table: Table, names: Any, start: Coded, state: Category) -> None:
    steps = np.fromiter(("." in name for name in names), bool, len(table))
    table.leave_out(steps, "they are steps of other jobs")
    waiting = mapped(start, lambda text: text in _NOT_YET) > 0
    table.leave_out(waiting, "the jobs never started")
    if "State" in table:
        ended = Coded(table["State"], state.names)
        table.leave_out(_is(ended, *_LIVE), "the jobs had not ended yet")
        table.leave_out(_is(ended, *_NEVER_RAN), "the jobs never started")


def _is(state: Coded, *words: str) -> NDArray[np.bool_]:
    """Which rows ended (or are) so; sacct adds to some states by whom."""
    return mapped(state, lambda text: text.split(" ")[0] in words) > 0


def _ends(
    table: Table, duration: NDArray[np.int64], limit: Any, state: Coded | None
) -> tuple[NDArray[np.int64], Any, list[str]]:
    """Durations and limits under which each job ends in a replay as late as it did, and what was
    done for that."""
    if state is None:
        return duration, limit, []
    timed_out, over = _is(state, "TIMEOUT"), table.good & (duration > limit)
    cut, grown = over & timed_out, over & ~timed_out
    notes = []
    if (count := int((table.good & timed_out).sum())) > 0:
        notes.append(
            "jobs that ended in TIMEOUT are simulated with the time that they ran, at most"
            f" their limit, and finish: {count:,}"
        )
    if grown.any():
        notes.append(
            "jobs that ran past their limit and were not stopped get the time that they"
            f" ran as their limit: {int(grown.sum()):,}"
        )
    badly = [(word, int((table.good & _is(state, word)).sum())) for word in _BADLY]
    told = ", ".join(f"{count:,} {word}" for word, count in badly if count)
    if told:
        notes.append(
            f"jobs that ended badly are simulated with the time that they ran, and finish: {told}"
        )
    return np.where(cut, limit, duration), np.where(grown, duration, limit), notes


def _elapsed(table: Table, name: str, kind: Kind, start: Coded) -> NDArray[np.int64]:
    """Microseconds run, by whatever the file states it."""
    if name == "ElapsedRaw":
        raw: NDArray[np.int64] = table[name]
        table.refuse(raw >= NEVER, name, "it is empty", "give seconds")
        return raw
    column = Coded(table[name], _names(kind))
    if name == "Elapsed":
        run = mapped(column, _span)
    else:
        run = mapped(column, _date) - mapped(start, _date)
    table.refuse(
        ~(run >= 0), name, "no run time can be made of it", "add ElapsedRaw to the columns"
    )
    return np.where(run >= 0, run, 0).astype(np.int64)


def _span(text: str) -> float:
    try:
        return parse_duration(text)
    except BadInput:
        return np.nan


def _date(text: str) -> float:
    try:
        return float(Moment(clock=Clock(True))([text])[0])
    except CellError:
        return np.nan


def _gpus(
    table: Table, texts: dict[str, Category], tres: str
) -> tuple[NDArray[np.int64], Coded | None]:
    """GPUs by row, and the types asked for (those allocated, where the file states only those)."""
    gpus = np.zeros(len(table), np.int64)
    for name in ("AllocTRES", "ReqTRES"):
        column = coded(table, name, texts.get(name) or Category())
        if column is not None:
            count = mapped(column, _count)
            table.refuse(
                np.isnan(count), name, "it states no number of GPUs", "write like gres/gpu=4"
            )
            gpus = np.where(gpus > 0, gpus, np.nan_to_num(count).astype(np.int64))
    asked = "ReqTRES" if "ReqTRES" in table else tres
    column = coded(table, asked, texts[asked])
    return gpus, column and recoded(column, _types)


def _count(tres: str) -> float:
    """GPUs in a TRES list: the plain count, or the sum over types where only those are stated;
    NaN where one of them is no number."""
    found = _GPU.findall(tres)
    if len(found) != len(_NAMED.findall(tres)):
        return np.nan
    plain = [int(number) for kind, number in found if not kind]
    return min(plain[0] if plain else sum(int(number) for _, number in found), MOST_GPUS + 1)


def _types(tres: str) -> str:
    return "|".join(kind.upper() for kind, number in _GPU.findall(tres) if kind and int(number))


def _limits(table: Table, texts: dict[str, Category]) -> Any:
    for name in ("TimelimitRaw", "Timelimit"):
        column = coded(table, name, texts[name])
        if column is not None:
            unit = MINUTE if name == "TimelimitRaw" else None
            limit = mapped(column, lambda text, unit=unit: _limit(text, unit))  # type: ignore[misc]
            table.refuse(
                np.isnan(limit), name, "it is not a valid time limit", "give minutes or UNLIMITED"
            )
            return np.where(np.isnan(limit) | (limit >= NEVER / 2), NEVER, limit).astype(np.int64)
    return NEVER


def _limit(text: str, unit: int | None) -> float:
    if text in _UNLIMITED:
        return float(NEVER)
    if unit is None:
        return _span(text)
    return float(text) * unit if text.isdecimal() and len(text) < 10 else np.nan


def _arrays(names: Any) -> Coded:
    arrays: Names[str] = Names([""])
    codes = [arrays.code(name.partition("_")[0]) if "_" in name else 0 for name in names]
    return Coded(np.array(codes, np.int32), arrays)
