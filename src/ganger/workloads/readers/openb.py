"""Alibaba openb (cluster-trace-gpu-v2023, the trace of FGD): pods with fractions of GPUs.

Columns: `name, cpu_milli, memory_mib, num_gpu, gpu_milli` (share of each GPU in thousandths) and,
in the timed lists, `gpu_spec` (allowed models, `|` between them), `qos`, `pod_phase`,
`creation_time, deletion_time, scheduled_time` (s). A pod is one worker in one node; its group is
its qos. Pods without a GPU, and timed pods that were never scheduled, are left out. The lists
without times are bags to fill a cluster with: every pod arrives at 0 and runs until stopped.
CPUs and memory are kept, since the node list states both; `host_resources=False` drops them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ganger.core.spec import Kind
from ganger.core.units import NEVER, WHOLE
from ganger.workloads.build import Rows, build, coded
from ganger.workloads.files import open_text
from ganger.workloads.rows import Category, Clock, Count, Moment, Table, Text, read_delimited
from ganger.workloads.trace import Trace

HEADER = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


def read(path: Path, *, skip_bad: bool = False, host_resources: bool = True) -> Trace:
    """The GPU pods of an openb pod list. Raises BadInput."""
    file = open_text(path, skip_bad=skip_bad)
    spec, qos, clock = Category(), Category(), Clock()
    table = read_delimited(
        file,
        {
            "name": Text(),
            "cpu_milli": Count(0, 1 << 40),
            "memory_mib": Count(0, 1 << 40),
            "num_gpu": Count(0, 64),
            "gpu_milli": Count(0, WHOLE),
        },
        {
            "gpu_spec": spec,
            "qos": qos,
            "creation_time": Moment(clock=clock),
            "deletion_time": Moment(blank=NEVER, clock=clock),
            "scheduled_time": Moment(blank=NEVER, clock=clock),
        },
    )
    table.leave_out((table["num_gpu"] == 0) | (table["gpu_milli"] == 0), "the jobs ask for no GPU")
    rows = _timed(table) if "creation_time" in table else _bag(table)
    one = table["num_gpu"] == 1
    rows.workers = np.where(one, 0, 1)
    rows.share = np.where(one, table["gpu_milli"], WHOLE)
    rows.names = table["name"]
    rows.gpu_type, rows.group = coded(table, "gpu_spec", spec), coded(table, "qos", qos)
    if host_resources:
        rows.cpus, rows.memory = table["cpu_milli"], table["memory_mib"]
    return build(table, rows, name="openb", fields={"names": "name"})


def _timed(table: Table) -> Rows:
    start, end = table["scheduled_time"], table["deletion_time"]
    table.leave_out(
        (start >= NEVER) | (end >= NEVER), "the jobs were never scheduled, or never ended"
    )
    table.refuse(end < start, "deletion_time", "it ends before it starts", "fix or remove it")
    return Rows(table["creation_time"], end - start, np.maximum(table["num_gpu"], 1))


def _bag(table: Table) -> Rows:
    zeros = np.zeros(len(table), np.int64)
    return Rows(zeros, zeros + NEVER, np.maximum(table["num_gpu"], 1), kind=int(Kind.SERVE))
