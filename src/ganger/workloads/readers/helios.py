"""SenseTime Helios (2020): the original job table, and the flat Venus CSV made from it.

Original columns: `job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time,
end_time, duration, queue` (dates; seconds). Venus: `job_id, submit_time, arrival_s, service_sec,
gpu_count`. The virtual cluster is the tenant. Jobs that ask for no GPU are left out. `cpu_num`
counts the whole job and is kept, per GPU, only with `host_resources`, as most clusters state no
cores and could then place nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ganger.core.units import WHOLE
from ganger.workloads.build import Numbers, Rows, build, coded
from ganger.workloads.files import TextFile, open_text
from ganger.workloads.rows import (
    MOST_GPUS,
    Category,
    Count,
    Moment,
    Number,
    Span,
    Table,
    Text,
    read_delimited,
)
from ganger.workloads.trace import Trace

HEADER = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")
VENUS = ("job_id", "submit_time", "service_sec", "gpu_count")


def read(path: Path, *, skip_bad: bool = False, host_resources: bool = False) -> Trace:
    """The GPU jobs of a Helios table. Raises BadInput."""
    file = open_text(path, skip_bad=skip_bad)
    if "service_sec" in file.header():
        return _read_venus(file)
    return read_table(file, "helios", tenant="vc", group="", host_resources=host_resources)


def _read_venus(file: TextFile) -> Trace:
    table = read_delimited(
        file,
        {
            "job_id": Text(),
            "submit_time": Moment(),
            "service_sec": Span(),
            "gpu_count": Count(1, MOST_GPUS),
        },
    )
    rows = Rows(table["submit_time"], table["service_sec"], table["gpu_count"], table["job_id"])
    return build(table, rows, name="helios-venus", fields={"names": "job_id"})


def read_table(
    file: TextFile, name: str, *, tenant: str, group: str, host_resources: bool
) -> Trace:
    """The table that Helios and Acme share; `tenant` and `group` say which columns these are."""
    owners = {item: Category() for item in ("user", tenant, group) if item}
    table = read_delimited(
        file,
        {
            "job_id": Text(),
            "gpu_num": Number(0, MOST_GPUS),
            "submit_time": Moment(),
            "duration": Span(),
            **owners,
        },
        {"cpu_num": Number(0, 1e9, blank=0.0)},
    )
    table.leave_out(table["gpu_num"] == 0, "the jobs ask for no GPU")
    gpus, share = whole_and_share(table["gpu_num"])
    cpus: Numbers = 0
    if host_resources and "cpu_num" in table:
        cpus = np.rint(table["cpu_num"] / np.maximum(gpus, 1) * WHOLE).astype(np.int64)
    rows = Rows(
        table["submit_time"],
        table["duration"],
        gpus,
        table["job_id"],
        share=share,
        cpus=cpus,
        user=coded(table, "user", owners["user"]),
        tenant=_owner(table, tenant, owners),
        group=_owner(table, group, owners),
    )
    return build(table, rows, name=name, fields={"names": "job_id"})


def whole_and_share(asked: Any) -> tuple[Any, Any]:
    """GPUs and thousandths of each of a demand like 0.5 or 8; what is above 1 is rounded up."""
    gpus = np.maximum(np.ceil(asked), 1).astype(np.int64)
    share = np.where(asked < 1, np.maximum(np.rint(asked * WHOLE), 1), WHOLE).astype(np.int64)
    return gpus, share


def _owner(table: Table, name: str, owners: dict[str, Category]) -> Any:
    return coded(table, name, owners[name]) if name else None
