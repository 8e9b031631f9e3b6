"""Alibaba PAI (cluster-trace-gpu-v2020): the original task table, and the flat sample of it.

`pai_task_table.csv` has no header row: job_name, task_name, inst_num, status, start_time,
end_time (s), plan_cpu (percent of a core), plan_mem (GB), plan_gpu (percent of a GPU), gpu_type.
A task of n instances becomes a gang of n workers, each with plan_gpu: below 100 a share of one
GPU, above it whole GPUs, rounded up. Tasks that ask for no GPU or state no start or end are left
out. The table knows no submission: the start stands for it. The sample's columns are `job_name,
task_name, arrival_s, service_sec, gpu_count`. A job's name is `job_name/task_name`, its array the
job and its group the task. `host_resources` keeps CPUs and memory; `gpu_types=False` drops the
wanted type.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ganger.core.units import NEVER, WHOLE
from ganger.workloads.build import Coded, Rows, build, coded
from ganger.workloads.files import TextFile, open_text
from ganger.workloads.readers.helios import whole_and_share
from ganger.workloads.rows import (
    GPUS,
    MOST_GPUS,
    Category,
    Clock,
    Moment,
    Number,
    Span,
    Table,
    read_delimited,
)
from ganger.workloads.trace import Trace

SAMPLE = ("job_name", "task_name", "arrival_s", "service_sec", "gpu_count")
TASK_TABLE = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)


def read(
    path: Path, *, skip_bad: bool = False, host_resources: bool = False, gpu_types: bool = True
) -> Trace:
    """The GPU tasks of a PAI table. Raises BadInput."""
    file = open_text(path, skip_bad=skip_bad)
    if "service_sec" in file.header():
        return _read_sample(file)
    return _read_tasks(file, host_resources, gpu_types)


def _read_sample(file: TextFile) -> Trace:
    jobs, tasks = Category(required=True), Category()
    table = read_delimited(
        file,
        {
            "job_name": jobs,
            "task_name": tasks,
            "arrival_s": Moment(),
            "service_sec": Span(),
            "gpu_count": GPUS,
        },
    )
    return _build(
        table, jobs, tasks, Rows(table["arrival_s"], table["service_sec"], table["gpu_count"])
    )


def _read_tasks(file: TextFile, host_resources: bool, gpu_types: bool) -> Trace:
    jobs, tasks, types = Category(required=True), Category(), Category()
    clock = Clock()
    header = None if file.header()[:2] == ["job_name", "task_name"] else TASK_TABLE
    table = read_delimited(
        file,
        {
            "job_name": jobs,
            "task_name": tasks,
            "inst_num": Number(0, MOST_GPUS, blank=0.0),
            "start_time": Moment(blank=NEVER, clock=clock),
            "end_time": Moment(blank=NEVER, clock=clock),
            "plan_cpu": Number(0, 1e9, blank=0.0),
            "plan_mem": Number(0, 1e9, blank=0.0),
            "plan_gpu": Number(0, 1e8, blank=0.0),
            "gpu_type": types,
        },
        header=header,
    )
    start, end = table["start_time"], table["end_time"]
    table.leave_out((table["plan_gpu"] == 0) | (table["inst_num"] == 0), "the jobs ask for no GPU")
    table.leave_out((start >= NEVER) | (end >= NEVER), "the jobs state no start or no end")
    table.refuse(end < start, "end_time", "it ends before it starts", "fix or remove the row")
    per_worker, share = whole_and_share(table["plan_gpu"] / 100)
    workers = np.maximum(table["inst_num"], 1).astype(np.int64)
    gpus = workers * per_worker
    table.refuse(gpus > MOST_GPUS, "inst_num", "it asks for too many GPUs", "at most 1e6")
    rows = Rows(
        start,
        end - start,
        gpus,
        workers=np.where(per_worker > 1, workers, 0),
        share=share,
        gpu_type=coded(table, "gpu_type", types) if gpu_types else None,
    )
    if host_resources:
        rows.cpus = np.rint(table["plan_cpu"] / 100 * WHOLE).astype(np.int64)
        rows.memory = np.rint(table["plan_mem"] * 1e9 / (1 << 20)).astype(np.int64)
    return _build(table, jobs, tasks, rows)


def _build(table: Table, jobs: Category, tasks: Category, rows: Rows) -> Trace:
    rows.array = Coded(table["job_name"], jobs.names)
    rows.group = Coded(table["task_name"], tasks.names)
    names: Any = np.empty(len(table), object)
    names[:] = [
        f"{jobs.names.values[job]}/{tasks.names.values[task]}"
        for job, task in zip(rows.array.codes.tolist(), rows.group.codes.tolist(), strict=True)
    ]
    rows.names = names
    return build(table, rows, name="pai", fields={"names": "job_name", "workers": "inst_num"})
