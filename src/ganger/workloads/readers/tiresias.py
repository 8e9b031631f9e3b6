"""The family of Tiresias' simulator: its own traces, Muri's and Chronus', distinguished by columns.

All have `job_id, num_gpu, submit_time, duration` and mostly `iterations` (here `steps`) and
`model_name`. Tiresias counts seconds. Muri (which adds `resource_time_0` to `_2`: storage and CPU,
GPU, network) counts milliseconds; its `priority` is kept, its `batch_size` becomes the group, and
the means of these times by model and number of GPUs become the stages of the models' profiles.
Chronus (which adds `expect_time_list`) counts compressed units that come to about a minute each,
taken as 60 s unless `unit` (s) says otherwise; its `user` is the virtual cluster, here the tenant;
jobs that are not best effort get the first expected time as their deadline; `job_type` (strict,
soft, best) is the group. Rows that ask for no GPU are left out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ganger.core.profiles import Profile, Profiles, Stages
from ganger.core.state.names import Names
from ganger.core.units import MINUTE, NEVER, SECOND
from ganger.workloads.build import Rows, build, coded, mapped, recoded
from ganger.workloads.files import TextFile, open_text
from ganger.workloads.readers.itp import batch_name
from ganger.workloads.rows import (
    MOST_GPUS,
    Category,
    CellError,
    Count,
    Moment,
    Number,
    Span,
    Table,
    Text,
    floats,
    read_delimited,
)
from ganger.workloads.trace import Trace

STAGES = ("iteration_time", "resource_time_0", "resource_time_1", "resource_time_2")
DIGITS = 9
"""Of the means of stages, decimals of a second."""
HEADER = ("job_id", "num_gpu", "submit_time", "duration", "model_name")


def read(path: Path, *, skip_bad: bool = False, unit: float | None = None) -> Trace:
    """The jobs of a trace of this family; `unit` overrides the seconds in a unit of its times.
    Raises BadInput."""
    file = open_text(path, skip_bad=skip_bad)
    scale = _unit(file) if unit is None else unit * SECOND
    model, batch, tenant, group = Category(), Category(), Category(), Category()
    expected = Category()
    table = read_delimited(
        file,
        {
            "job_id": Text(),
            "num_gpu": Count(0, MOST_GPUS),
            "submit_time": Moment(scale),
            "duration": Span(scale),
            "model_name": model,
        },
        {
            "iterations": Number(0, 1e18),
            "priority": Count(-(1 << 31), (1 << 31) - 1),
            "user": tenant,
            "batch_size": batch,
            "job_type": group,
            "expect_time_list": expected,
            "best_effort": Count(0, 1),
            **dict.fromkeys(STAGES, Number(0, 1e12)),
        },
    )
    table.leave_out(table["num_gpu"] == 0, "the jobs ask for no GPU")
    size = coded(table, "batch_size", batch)
    rows = Rows(
        table["submit_time"],
        table["duration"],
        table["num_gpu"],
        table["job_id"],
        model=coded(table, "model_name", model),
        steps=table.get("iterations", 0.0),
        priority=table.get("priority", 0),
        tenant=coded(table, "user", tenant),
        group=recoded(size, batch_name) if size else coded(table, "job_type", group),
    )
    if "expect_time_list" in table:
        rows.deadline = _deadlines(table, expected, scale)
    trace = build(table, rows, name=file.path.name.split(".")[0], fields={"names": "job_id"})
    if not all(column in table for column in STAGES):
        return trace
    return replace(trace, profiles=_profiles(table, model.names, scale / SECOND))


def _profiles(table: Table, models: Names[str], unit: float) -> Profiles:
    """The stages of each model by number of GPUs. `unit`: seconds in a unit of its times."""
    names, gpus = table["model_name"][table.good], table["num_gpu"][table.good]
    times = np.stack([table[column][table.good] for column in STAGES]) * unit
    known: dict[str, Profile] = {}
    for code in np.unique(names).tolist():
        stages = []
        for size in np.unique(gpus[names == code]).tolist():
            means = times[:, (names == code) & (gpus == size)].mean(axis=1)
            iteration, *each = np.round(means, DIGITS).tolist()
            if any(each):
                stages.append(Stages(tuple(each), iteration, size))
        if models[code] and stages:
            known[models[code]] = Profile(stages=tuple(stages))
    return Profiles(known)


def _unit(file: TextFile) -> float:
    header = file.header()
    if "resource_time_0" in header:
        return SECOND / 1000
    return MINUTE if "expect_time_list" in header else SECOND


def _deadlines(table: Table, expected: Category, scale: float) -> NDArray[np.int64]:
    lists = coded(table, "expect_time_list", expected)
    assert lists is not None  # the caller has seen the column
    first = mapped(lists, _first_time)
    effort = table.get("best_effort", np.zeros(len(table), np.int64))
    table.refuse(
        (first < 0) & (effort == 0),
        "expect_time_list",
        "no time stands there",
        "write seconds, - between them",
    )
    due = table["submit_time"] + np.rint(np.maximum(first, 0) * scale).astype(np.int64)
    return np.where(effort == 1, NEVER, due)


def _first_time(text: str) -> float:
    """The first of a list like `100-200`, or -1 where there is none."""
    try:
        value = float(floats([text.split("-")[0]])[0])
    except CellError:
        return -1.0
    return value if value < 1e11 else -1.0
