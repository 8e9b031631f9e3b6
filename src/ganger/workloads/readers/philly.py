"""Microsoft Philly (2017): the flat CSV that later papers carry, and the original job log.

CSV: `timestamp` (submission), `duration` (s), `num_gpus`, `gpu_time`, `cluster` (the virtual
cluster, here the tenant). The original `cluster_job_log` is a JSON list of
`{status, vc, jobid, attempts: [{start_time, end_time, detail: [{ip, gpus}]}], submitted_time,
user}`: a job's duration is the sum of its finished attempts, its gang the largest attempt.
Jobs without a finished attempt on a GPU are left out. Times carry no zone and are taken as UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.units import SECOND
from ganger.workloads.build import Rows, build, coded
from ganger.workloads.careful import CHUNK
from ganger.workloads.files import TextFile, open_text
from ganger.workloads.rows import (
    GPUS,
    Category,
    Cell,
    CellError,
    Clock,
    Count,
    Moment,
    Number,
    Span,
    Text,
    read_delimited,
    read_records,
)
from ganger.workloads.trace import Trace

HEADER = ("timestamp", "duration", "num_gpus", "cluster")


def read(path: Path, *, skip_bad: bool = False) -> Trace:
    """The Philly jobs of a CSV file or of a JSON job log. Raises BadInput."""
    file = open_text(path, skip_bad=skip_bad)
    return _read_log(file) if file.text.lstrip()[:1] == "[" else _read_csv(file)


def _read_csv(file: TextFile) -> Trace:
    cluster = Category()
    table = read_delimited(
        file, {"timestamp": Moment(), "duration": Span(), "num_gpus": GPUS, "cluster": cluster}
    )
    rows = Rows(
        table["timestamp"],
        table["duration"],
        table["num_gpus"],
        tenant=coded(table, "cluster", cluster),
    )
    return build(table, rows, name="philly", fields={"least": "num_gpus"})


class _Place(msgspec.Struct):
    gpus: list[str] = []


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Place] = []


class _Entry(msgspec.Struct):
    jobid: str
    submitted_time: str
    vc: str = ""
    user: str = ""
    attempts: list[_Attempt] = []


def _read_log(file: TextFile) -> Trace:
    vc, user = Category(), Category()
    table = read_records(
        file.complaints,
        {
            "jobid": Text(),
            "submitted_time": Moment(clock=Clock(True)),
            "duration": Number(),
            "gpus": Count(),
            "vc": vc,
            "user": user,
        },
        _entries(file),
        unit="entry",
    )
    table.leave_out(table["gpus"] == 0, "no attempt on a GPU finished")
    rows = Rows(
        table["submitted_time"],
        np.rint(table["duration"] * SECOND).astype(np.int64),
        table["gpus"],
        table["jobid"],
        tenant=coded(table, "vc", vc),
        user=coded(table, "user", user),
    )
    return build(table, rows, name="philly", fields={"names": "jobid"})


def _entries(file: TextFile) -> Iterator[tuple[NDArray[np.int64], dict[str, list[Cell]]]]:
    try:
        raw = msgspec.json.decode(file.text, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise file.refuse(f"not a JSON list: {error}", "copy the file again") from None
    decode = msgspec.json.Decoder(_Entry).decode
    for begin in range(0, len(raw), CHUNK):
        numbers: list[int] = []
        columns: dict[str, list[Cell]] = {
            name: [] for name in ("jobid", "submitted_time", "duration", "gpus", "vc", "user")
        }
        for at, piece in enumerate(raw[begin : begin + CHUNK], begin + 1):
            try:
                entry = decode(piece)
                work = _work(entry)
            except (msgspec.DecodeError, CellError) as error:
                file.complaints.add(str(error), place=f"entry {at}", mend="fix or remove it")
                continue
            numbers.append(at)
            cells: tuple[Cell, ...] = (
                entry.jobid,
                entry.submitted_time,
                *work,
                entry.vc,
                entry.user,
            )
            for column, cell in zip(columns.values(), cells, strict=True):
                column.append(cell)
        yield np.array(numbers, np.int64), columns


def _work(entry: _Entry) -> tuple[float, int]:
    """Seconds run over all finished attempts, and GPUs in the largest of them (0: none)."""
    moment = Moment(clock=Clock(True))
    seconds, gpus = 0.0, 0
    for attempt in entry.attempts:
        held = sum(len(place.gpus) for place in attempt.detail)
        times = (attempt.start_time, attempt.end_time)
        if held and all(time not in (None, "", "None") for time in times):
            start, end = (int(moment([time])[0]) for time in times if time is not None)
            seconds += (end - start) / SECOND
            gpus = max(gpus, held)
    return seconds, gpus
