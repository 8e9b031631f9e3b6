"""The Standard Workload Format of the Parallel Workloads Archive, read and written.

Lines that start with `;` are header comments; every other line has 18 numbers, -1 for unknown:
job, submit (s), wait, run, processors used, CPU time, memory, processors asked, time asked, memory
asked, status, user, group, executable, queue, partition, preceding job, think time.

Processors become GPUs: those asked for, or those used where that is unknown or
`processors="used"`. The time asked for is the estimate. The group is the tenant, the queue the
group, the executable the model; a preceding job that is in the log must finish first. Jobs of
unknown run time or without processors are left out. Writing keeps whole seconds, GPUs, estimate,
user, tenant, group, model and one dependency; all else is lost, as the format has no room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.state.names import Names
from ganger.core.units import NEVER, SECOND
from ganger.workloads.build import Coded, Rows, build, recoded
from ganger.workloads.files import TextFile, open_text, write_bytes
from ganger.workloads.plain import blank_separated, pieces
from ganger.workloads.rows import (
    MOST_GPUS,
    Category,
    Cell,
    Count,
    Moment,
    Number,
    Span,
    Text,
    read_records,
)
from ganger.workloads.trace import Trace

FIELDS = (
    "job", "submit", "wait", "run", "used", "cpu_time", "memory_used", "asked", "time_asked",
    "memory_asked", "status", "user", "group", "executable", "queue", "partition", "preceding",
    "think_time",
)  # fmt: skip
_OWNERS = ("user", "group", "executable", "queue")


def read(path: Path, *, skip_bad: bool = False, processors: str = "asked") -> Trace:
    """The jobs of an SWF log; `processors` is `asked` or `used`. Raises BadInput."""
    if processors not in ("asked", "used"):
        raise BadInput(f"processors={processors!r}", where=str(path), mend="use asked or used")
    file = open_text(path, skip_bad=skip_bad)
    owners = {name: Category() for name in _OWNERS}
    count = Count(-1, MOST_GPUS)
    table = read_records(
        file.complaints,
        {
            "job": Text(),
            "submit": Moment(),
            "run": Span(unknown=-1.0),
            "used": count,
            "asked": count,
            "time_asked": Span(unknown=-1.0),
            "preceding": Number(-1),
            **owners,
        },
        _chunks(file),
    )
    first, second = (
        (table["asked"], table["used"])
        if processors == "asked"
        else (table["used"], table["asked"])
    )
    gpus = np.where(first > 0, first, second)
    table.leave_out(table["run"] >= NEVER, "the run times are unknown")
    table.leave_out(gpus <= 0, "the jobs have no processors")
    columns = {
        name: recoded(Coded(table[name], kind.names), _known) for name, kind in owners.items()
    }
    rows = Rows(
        table["submit"],
        table["run"],
        gpus,
        table["job"],
        estimate=table["time_asked"],
        user=columns["user"],
        tenant=columns["group"],
        group=columns["queue"],
        model=columns["executable"],
        after=_after(table["preceding"], table["job"], table.good),
    )
    trace = build(table, rows, name=file.path.name.split(".")[0], fields={"names": "job"})
    trace.cluster = _cluster(file)
    return trace


_READ = ("job", "submit", "run", "used", "asked", "time_asked", "preceding", *_OWNERS)


def _chunks(
    file: TextFile,
) -> Iterator[tuple[NDArray[np.int64], Mapping[str, Sequence[Cell]]]]:
    begin = 1
    for piece in pieces(file.text):
        fields = None if ";" in piece else blank_separated(piece, len(FIELDS))
        if fields is None:
            lines, columns = _line_by_line(file, piece, begin)
        else:
            lines, columns = np.arange(begin, begin + len(fields[0])), fields
        if len(lines):
            by_name = dict(zip(FIELDS, columns, strict=True))
            yield lines, {name: by_name[name] for name in _READ}
        begin += piece.count("\n")


def _line_by_line(
    file: TextFile, piece: str, begin: int
) -> tuple[NDArray[np.int64], Sequence[Sequence[Cell]]]:
    """The columns of a piece in which there are comments, or lines that are wrong."""
    numbers: list[int] = []
    rows: list[list[str]] = []
    for at, line in enumerate(piece.split("\n"), begin):
        row = line.split()
        if len(row) == len(FIELDS) and row[0][0] != ";":
            numbers.append(at)
            rows.append(row)
        elif row and row[0][0] != ";":
            file.complaints.add(
                f"{len(row)} fields where SWF has 18",
                place=f"line {at}",
                mend="complete or remove the line",
            )
    return np.array(numbers, np.int64), list(zip(*rows, strict=True))


def _known(number: str) -> str:
    return "" if number == "-1" else number


def _after(
    preceding: NDArray[np.float64], names: NDArray[np.object_], good: NDArray[np.bool_]
) -> dict[int, tuple[str, ...]]:
    rows = np.flatnonzero(preceding > 0).tolist()
    if not rows:
        return {}
    there = set(names[good].tolist())
    wanted = {row: str(int(preceding[row])) for row in rows}
    return {row: (name,) for row, name in wanted.items() if name in there and name != names[row]}


def _cluster(file: TextFile) -> str:
    """The machine as its header states it, where nodes and processors divide evenly."""
    stated: dict[str, int] = {}
    for line in file.text[: 1 << 14].split("\n"):
        name, _, value = line.lstrip("; ").partition(":")
        if line.startswith(";") and value.strip().isdecimal():
            stated[name.strip()] = int(value)
    nodes, processors = stated.get("MaxNodes", 0), stated.get("MaxProcs", 0)
    if nodes > 0 and processors > 0 and processors % nodes == 0 and processors // nodes <= 64:
        return f"{nodes}x{processors // nodes}xCPU"
    return ""


def write(trace: Trace, path: Path) -> None:
    """Write an SWF log, jobs numbered from 1. Raises BadInput for jobs that never end."""
    declared, n = trace.declared, trace.jobs
    if (trace.duration[:n] >= NEVER).any():
        raise BadInput(
            "it holds services, which never end",
            where=str(path),
            mend="SWF holds jobs with a run time only",
        )
    lines = [
        "; Version: 2.2",
        f"; MaxJobs: {n}",
        f"; MaxRecords: {n}",
        "; Note: processors are GPUs; written by Ganger",
    ]
    gpus = declared.gpus[:n].tolist()
    columns = zip(
        _whole(declared.submitted[:n]),
        _whole(trace.duration[:n]),
        gpus,
        _whole(declared.estimate[:n]),
        _numbered(declared.users, declared.user[:n]),
        _numbered(declared.tenants, declared.tenant[:n]),
        _numbered(declared.models, declared.model[:n]),
        _numbered(declared.groups, declared.group[:n]),
        strict=True,
    )
    for row, (submit, run, size, estimate, user, tenant, model, group) in enumerate(columns):
        before = declared.after.get(row, ())
        preceding = before[0] + 1 if before else -1
        lines.append(
            f"{row + 1} {submit} -1 {run} {size} -1 -1 {size} {estimate} -1 1 {user} {tenant} "
            f"{model} {group} -1 {preceding} -1"
        )
    write_bytes(path, ("\n".join(lines) + "\n").encode())


def _whole(times: NDArray[np.int64]) -> list[int]:
    """Times in whole seconds, -1 for none."""
    whole = np.where(times >= NEVER, -1, np.rint(times / SECOND)).astype(np.int64)
    return [int(time) for time in whole]


def _numbered(names: Names[str], codes: NDArray[np.int32]) -> list[int]:
    """Names as numbers: their own where all are numbers, else their codes; -1 for none."""
    own = all(name.isdecimal() for name in names if name)
    numbers = [int(name) if own and name else code for code, name in enumerate(names)]
    known = [number if name else -1 for number, name in zip(numbers, names, strict=True)]
    return [known[code] for code in codes.tolist()]
