"""Workloads of Pollux and Sia: applications whose run time is not stated.

Columns: `name, time` (s), `application, num_replicas, batch_size`. The application becomes
`model`, the batch size the group (`batch size 2048`). How long a job takes is a matter of the
application's profile; so that a workload can be replayed without one, each application is given
the geometric middle of the class of GPU-time that Pollux (OSDI 2021, section 5.1) puts it in:
small below 1 GPU-hour (0.1 to 1 taken), medium 1 to 10, large 10 to 100, extra-large 100 to 1000,
divided by the replicas. `gpu_hours` overrides it by application. `steps` is 0: not stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ganger.core.units import HOUR
from ganger.workloads.build import Coded, Rows, build, mapped, recoded
from ganger.workloads.files import open_text
from ganger.workloads.readers.itp import batch_name
from ganger.workloads.rows import GPUS, Category, Moment, Text, read_delimited
from ganger.workloads.trace import Trace

HEADER = ("name", "time", "application", "num_replicas", "batch_size")
_SMALL, _MEDIUM, _LARGE, _HUGE = 10**-0.5, 10**0.5, 10**1.5, 10**2.5
GPU_HOURS: Mapping[str, float] = {
    "cifar10": _SMALL,
    "ncf": _SMALL,
    "bert": _MEDIUM,
    "deepspeech2": _MEDIUM,
    "yolov3": _LARGE,
    "imagenet": _HUGE,
    "gpt_pmp": _HUGE,
}


def read(
    path: Path, *, skip_bad: bool = False, gpu_hours: Mapping[str, float] | None = None
) -> Trace:
    """The jobs of a Pollux or Sia workload, with assumed durations. Raises BadInput."""
    file = open_text(path, skip_bad=skip_bad)
    application, batch = Category(required=True), Category()
    table = read_delimited(
        file,
        {
            "name": Text(),
            "time": Moment(),
            "application": application,
            "num_replicas": GPUS,
            "batch_size": batch,
        },
    )
    work = {**GPU_HOURS, **(gpu_hours or {})}
    model = Coded(table["application"], application.names)
    hours = mapped(model, lambda name: work.get(name, 0.0))
    table.refuse(
        hours <= 0,
        "application",
        lambda row: f"no GPU-hours known for {application.names[model.codes[row]]!r}",
        "give them in gpu_hours",
    )
    duration = np.rint(hours * HOUR / table["num_replicas"]).astype(np.int64)
    rows = Rows(
        table["time"],
        duration,
        table["num_replicas"],
        table["name"],
        model=model,
        group=recoded(Coded(table["batch_size"], batch.names), batch_name),
    )
    source = f"{file.where}; durations assumed from the applications' classes of GPU-time"
    return build(table, rows, name="pollux", source=source, fields={"names": "name"})
