"""Microsoft ITP (2021), published with ElasticFlow: raw clusters and jobs with deadlines.

Raw columns: `job_id, submission_time` (s), `duration` (s), `num_gpu`. The ElasticFlow files add
`num_iteration` (here `steps`), `model_name`, `deadline` (s, on the clock of the submissions) and
`batch_size` (here the group, as `batch size 64`); upstream made these four up.
"""

from __future__ import annotations

from pathlib import Path

from ganger.core.units import NEVER
from ganger.workloads.build import Rows, build, coded, recoded
from ganger.workloads.files import open_text
from ganger.workloads.rows import (
    GPUS,
    Category,
    Clock,
    Moment,
    Number,
    Span,
    Text,
    read_delimited,
)
from ganger.workloads.trace import Trace

HEADER = ("job_id", "submission_time", "duration", "num_gpu")


def read(path: Path, *, skip_bad: bool = False) -> Trace:
    """The jobs of an ITP file. Raises BadInput."""
    file = open_text(path, skip_bad=skip_bad)
    model, batch, clock = Category(), Category(), Clock()
    table = read_delimited(
        file,
        {
            "job_id": Text(),
            "submission_time": Moment(clock=clock),
            "duration": Span(),
            "num_gpu": GPUS,
        },
        {
            "num_iteration": Number(0, 1e18, blank=0.0),
            "model_name": model,
            "deadline": Moment(blank=NEVER, clock=clock),
            "batch_size": batch,
        },
    )
    size = coded(table, "batch_size", batch)
    rows = Rows(
        table["submission_time"],
        table["duration"],
        table["num_gpu"],
        table["job_id"],
        steps=table.get("num_iteration", 0.0),
        deadline=table.get("deadline", NEVER),
        model=coded(table, "model_name", model),
        group=size and recoded(size, batch_name),
    )
    return build(table, rows, name=file.path.name.split(".")[0], fields={"names": "job_id"})


def batch_name(size: str) -> str:
    """A batch size as the group that stands for it."""
    return f"batch size {size}" if size else ""
