"""Columns of jobs that people choose, in the words of squeue (`%i %j`), `squeue -O` and sacct."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import click

from ganger.cli.text import clock, moment, table
from ganger.client.answers import JobAnswer
from ganger.client.shown import shown
from ganger.core.errors import BadInput


class _Column(NamedTuple):
    title: str
    letters: str
    names: tuple[str, ...]
    of: Callable[[JobAnswer], str]


def where_or_why(job: JobAnswer) -> str:
    """Its nodes, or in brackets why it has none."""
    return ",".join(job.nodes) or (f"({job.reason})" if job.reason else "")


def gpus(job: JobAnswer) -> str:
    """Its GPUs; of a share, the part of one."""
    return f"{job.gpus * job.share:g}"


def ran(job: JobAnswer) -> str:
    """For how long it has run."""
    return clock(job.ran) if job.started else "-"


_COLUMNS: Final = (
    _Column("JOBID", "iA", ("jobid", "jobarrayid", "jobidraw"), lambda job: job.label),
    _Column("NAME", "j", ("name", "jobname"), lambda job: job.name),
    _Column("USER", "u", ("user", "username"), lambda job: job.user),
    _Column("ACCOUNT", "a", ("account", "tenant"), lambda job: job.tenant),
    _Column("PARTITION", "P", ("partition",), lambda job: "-"),
    _Column("ST", "t", ("statecompact", "st"), lambda job: job.code),
    _Column("STATE", "T", ("state",), lambda job: job.state),
    _Column("TIME", "M", ("elapsed", "timeused", "time"), ran),
    _Column("TIME_LIMIT", "l", ("timelimit", "limit"), lambda job: clock(job.time_limit)),
    _Column("NODES", "D", ("nnodes", "numnodes"), lambda job: str(len(job.nodes))),
    _Column("NODELIST", "N", ("nodelist",), lambda job: ",".join(job.nodes)),
    _Column("REASON", "r", ("reason",), lambda job: job.reason or "None"),
    _Column("NODELIST(REASON)", "R", ("reasonlist",), where_or_why),
    _Column("PRIORITY", "pQ", ("priority", "prioritylong"), lambda job: str(job.priority)),
    _Column("GPUS", "b", ("gpus", "gres", "tres-per-node"), lambda job: gpus(job)),
    _Column("SUBMIT_TIME", "V", ("submit", "submittime"), lambda job: moment(job.submitted)),
    _Column("START_TIME", "S", ("start", "starttime"),
            lambda job: moment(job.started or job.expected_start)),
    _Column("END_TIME", "e", ("end", "endtime"), lambda job: moment(job.finished)),
    _Column("EXITCODE", "", ("exitcode",),
            lambda job: "-" if job.exit_code is None else str(job.exit_code)),
    _Column("PARENT", "", ("parent",), lambda job: str(job.parent or "-")),
    _Column("CHILDREN", "", ("children",), lambda job: str(sum(job.children.values()) or "-")),
    _Column("RESTARTS", "", ("restarts", "restartcnt"), lambda job: str(max(job.attempt - 1, 0))),
)  # fmt: skip
_SIGNAL: Final = re.compile(r"signal (\d+)")


def _exit_code(job: JobAnswer) -> str:
    """As sacct has it: the code, and the signal that ended it."""
    signal = _SIGNAL.search(job.reason)
    if job.state == "FAILED" and signal:
        return f"0:{signal[1]}"
    return {"FAILED": f"{job.exit_code}:0", "NODE_FAIL": "1:0", "OUT_OF_MEMORY": "0:125"}.get(
        job.state, "0:0"
    )


def _span(seconds: float | None, none: str = "UNLIMITED") -> str:
    """As sacct has a length of time: `HH:MM:SS`, or `D-HH:MM:SS`."""
    if seconds is None:
        return none
    minutes, second = divmod(int(seconds), 60)
    days, hour = divmod(minutes // 60, 24)
    return f"{days}-" * (days > 0) + f"{hour:02d}:{minutes % 60:02d}:{second:02d}"


def _at(unix_seconds: float | None) -> str:
    """As sacct has a time: always with its date, and of this machine's clock."""
    if unix_seconds is None:
        return "Unknown"
    return datetime.fromtimestamp(unix_seconds).strftime("%Y-%m-%dT%H:%M:%S")


def _tres(job: JobAnswer) -> str:
    kind = job.gpu_types[0].lower() if len(job.gpu_types) == 1 else ""
    typed = f",gres/gpu:{kind}={gpus(job)}" if kind else ""
    return f"gres/gpu={gpus(job)}{typed}" if job.gpus else ""


_SACCTS: Final = {
    title.lower(): _Column(title, "", (), of)
    for title, of in {
        "JobID": lambda job: job.label,
        "JobIDRaw": lambda job: str(job.job),
        "JobName": lambda job: job.name,
        "User": lambda job: job.user,
        "Account": lambda job: job.tenant,
        "Partition": lambda job: "ganger",
        "QOS": lambda job: "normal",
        "Submit": lambda job: _at(job.submitted),
        "Eligible": lambda job: _at(job.submitted),
        "Start": lambda job: _at(job.started),
        "End": lambda job: _at(job.finished),
        "Elapsed": lambda job: _span(job.ran),
        "ElapsedRaw": lambda job: str(int(job.ran)),
        "Timelimit": lambda job: _span(job.time_limit),
        "TimelimitRaw": lambda job: (
            "UNLIMITED" if job.time_limit is None else str(math.ceil(job.time_limit / 60))
        ),
        "State": lambda job: job.state,
        "ExitCode": _exit_code,
        "NNodes": lambda job: str(len(job.nodes)),
        "NodeList": lambda job: ",".join(job.nodes),
        "Priority": lambda job: str(job.priority),
        "AllocTRES": _tres,
        "ReqTRES": _tres,
        "Reason": lambda job: job.reason or "None",
        "Restarts": lambda job: str(max(job.attempt - 1, 0)),
    }.items()
}
"""Columns as sacct calls and writes them."""
_OF_LETTER: Final = {letter: one for one in _COLUMNS for letter in one.letters}
_OF_NAME: Final = {name: one for one in _COLUMNS for name in one.names}
_FIELD = re.compile(r"%(\.?)(\d*)([A-Za-z])")
_NAMED = re.compile(r"([\w-]+)(?:[:%]-?(\d+))?")


def listing(
    jobs: Sequence[JobAnswer], format_: str, *, header: bool, parsable: bool, sacct: bool = False
) -> str:
    """The jobs in the columns of `format_`, as `%.8i %j` or `JobID,State`; with `sacct` these are
    called and written as sacct does. Raises BadInput."""
    if _FIELD.search(format_):
        return _as_squeue(jobs, format_, header)
    columns, widths = _named(format_, sacct)
    rows = [tuple(shown(column.of(job)) for column in columns) for job in jobs]
    rows = [tuple(cell[:width] for cell, width in zip(row, widths, strict=True)) for row in rows]
    titles = tuple(column.title for column in columns)
    if parsable:  # a name with | in it must not make columns
        rows = [tuple(cell.replace("|", "_") for cell in row) for row in rows]
        return "\n".join("|".join(row) for row in ([titles] if header else []) + rows)
    lines = table(titles, rows).split("\n")
    return "\n".join(lines if header else lines[1:])


def _named(format_: str, sacct: bool) -> tuple[list[_Column], list[int | None]]:
    columns, widths = [], []
    for word in format_.split(","):
        found = _NAMED.fullmatch(word.strip())
        name = found[1].lower() if found else ""
        column = (_SACCTS.get(name) if sacct else None) or _OF_NAME.get(name)
        if found is None or column is None:
            known = ", ".join(one.title for one in _SACCTS.values())
            known = known if sacct else ", ".join(one.names[0] for one in _COLUMNS)
            raise BadInput(
                f"{word!r} is not a valid column", where="--format", mend=f"one of {known}"
            )
        columns.append(column)
        widths.append(int(found[2]) if found[2] else None)
    return columns, widths


def _as_squeue(jobs: Sequence[JobAnswer], format_: str, header: bool) -> str:
    for _, _, letter in _FIELD.findall(format_):
        if letter not in _OF_LETTER:
            known = " ".join(f"%{one}" for one in _OF_LETTER)
            raise BadInput(
                f"%{letter} is not a valid column", where="--format", mend=f"one of {known}"
            )

    def line(cell: Callable[[_Column], str]) -> str:
        def put(found: re.Match[str]) -> str:
            text, width = cell(_OF_LETTER[found[3]]), int(found[2] or 0)
            text = text[:width] if width else text
            return text.rjust(width) if found[1] else text.ljust(width)

        return _FIELD.sub(put, format_).rstrip()

    rows = [line(lambda column, job=job: shown(column.of(job))) for job in jobs]  # type: ignore[misc]
    return "\n".join(([line(lambda column: column.title)] if header else []) + rows)


def format_options(command: Any) -> Any:
    """Add the options that choose columns."""
    for option in (
        click.option("--noheader", is_flag=True, help="Leave out the line of column titles."),
        click.option(
            "--parsable2",
            "-P",
            "parsable",
            is_flag=True,
            help="Separate columns by |, without padding.",
        ),
        click.option(
            "--format",
            "-o",
            "-O",
            "format_",
            metavar="FORMAT",
            help="Columns, written as for squeue or sacct: '%i %.9j %T', JobID,State.",
        ),
    ):
        command = option(command)
    return command


def say(
    jobs: Sequence[JobAnswer], format_: str, noheader: bool, parsable: bool, *, sacct: bool = False
) -> None:
    """Print the jobs in columns that were chosen."""
    text = listing(jobs, format_, header=not noheader, parsable=parsable, sacct=sacct)
    if text:
        click.echo(text)
