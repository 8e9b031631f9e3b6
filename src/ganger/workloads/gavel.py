"""Gavel's traces, and Shockwave's that grew out of them: tab-separated, without a header.

Three orders of columns are told apart by their number. 7: job_type, command, num_steps_arg,
needs_data_dir, total_steps, arrival_time (s), scale_factor. 10: job_type, command, working
directory, num_steps_arg, needs_data_dir, total_steps, scale_factor, priority weight, SLO,
arrival_time. 12 (Shockwave): as 10 with a mode (static, accordion or gns) before the weight and a
duration (s) before the arrival.

job_type becomes `model`, total_steps `steps`, scale_factor the gang, the mode the group; an SLO
of x sets the deadline x durations after the arrival. The first two orders state no duration: it
is total_steps over the V100's steps per second in Gavel's throughput JSON, which the option
`throughputs` names (or is, as decoded).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.names import Names
from ganger.core.units import NEVER, SECOND
from ganger.workloads.build import Coded, Rows, build, coded
from ganger.workloads.files import TextFile, open_text
from ganger.workloads.rows import (
    GPUS,
    Category,
    Kind,
    Moment,
    Number,
    Span,
    Table,
    read_delimited,
)
from ganger.workloads.trace import Trace

ORDERS = {
    7: ("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time",
        "scale_factor"),
    10: ("job_type", "command", "working_dir", "num_steps_arg", "needs_data_dir", "total_steps",
         "scale_factor", "priority_weight", "slo", "arrival_time"),
    12: ("job_type", "command", "working_dir", "num_steps_arg", "needs_data_dir", "total_steps",
         "scale_factor", "mode", "priority_weight", "slo", "duration", "arrival_time"),
}  # fmt: skip
REFERENCE = "v100"


def read(
    path: Path, *, skip_bad: bool = False,
    throughputs: str | Path | Mapping[str, Any] | None = None,
) -> Trace:  # fmt: skip
    """The jobs of a Gavel or Shockwave trace. Raises BadInput, also where durations are neither
    stated nor to be had from `throughputs`."""
    file = open_text(path, skip_bad=skip_bad)
    header = ORDERS.get(len(file.header("\t")))
    if header is None:
        raise BadInput(
            f"{len(file.header(chr(9)))} tab-separated fields", where=f"{file.where}: line 1",
            mend="a Gavel trace has 7 or 10, a Shockwave trace 12",
        )  # fmt: skip
    model, mode = Category(required=True), Category()
    kinds: dict[str, Kind] = {
        "job_type": model, "mode": mode, "total_steps": Number(0, 1e15),
        "arrival_time": Moment(), "scale_factor": GPUS, "duration": Span(),
        "priority_weight": Number(1e-9, 1e9), "slo": Number(0.0, 1e9, unknown=-1.0),
    }  # fmt: skip
    wanted = {name: kind for name, kind in kinds.items() if name in header}
    table = read_delimited(file, wanted, delimiter="\t", header=header)
    duration = _durations(file, table, model.names, throughputs)
    rows = Rows(
        table["arrival_time"], duration, table["scale_factor"], steps=table["total_steps"],
        model=Coded(table["job_type"], model.names), group=coded(table, "mode", mode),
        weight=table.get("priority_weight", 1.0), deadline=_deadlines(table, duration),
    )  # fmt: skip
    return build(table, rows, name=file.path.name.split(".")[0])


def _durations(
    file: TextFile, table: Table, models: Names[str], given: str | Path | Mapping[str, Any] | None
) -> NDArray[np.int64]:
    if "duration" in table:
        stated: NDArray[np.int64] = table["duration"]
        return stated
    if given is None:
        raise file.refuse(
            "a Gavel trace states steps, not durations",
            "give Gavel's throughput file as the option throughputs=FILE",
        )  # fmt: skip
    speed = steps_per_second(given)
    models_, scales = table["job_type"].tolist(), table["scale_factor"].tolist()
    per_second = np.array(
        [speed(models[model], scale) for model, scale in zip(models_, scales, strict=True)]
    )
    table.refuse(
        per_second <= 0, "job_type",
        lambda row: f"no throughput of {models[models_[row]]!r} on {scales[row]} GPUs",
        f"add it for {REFERENCE} to the throughput file",
    )  # fmt: skip
    steps = table["total_steps"]
    micros: NDArray[np.int64] = np.rint(
        np.divide(steps * SECOND, per_second, out=np.zeros(len(table)), where=per_second > 0)
    ).astype(np.int64)
    return micros


def steps_per_second(given: str | Path | Mapping[str, Any]) -> Callable[[str, int], float]:
    """What Gavel's throughput table says a job of (type, scale factor) does alone on V100s.

    Where it was not measured at that size (many types do not run distributed, though the traces
    give them gangs), the largest smaller size counts; 0 where there is none. Raises BadInput where
    it is no such table.
    """
    where = "throughputs"
    if not isinstance(given, Mapping):
        file = open_text(given)
        where = file.where
        try:
            given = msgspec.json.decode(file.text, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise file.refuse(f"no JSON object: {error}", "give Gavel's throughput file") from None
    table = given.get(REFERENCE)
    if not isinstance(table, Mapping):
        raise BadInput(f"it has no {REFERENCE!r}", where=where, mend="give Gavel's throughput file")

    def measured(model: str, scale: int) -> float:
        entry = table.get(f"({model!r}, {scale})")
        alone = entry.get("null", 0.0) if isinstance(entry, Mapping) else 0.0
        return float(alone) if isinstance(alone, int | float) else 0.0

    @cache
    def speed(model: str, scale: int) -> float:
        scales = (size for size in (scale, 8, 4, 2, 1) if size <= scale)
        return next((rate for size in scales if (rate := measured(model, size)) > 0), 0.0)

    return speed


def _deadlines(table: Table, duration: NDArray[np.int64]) -> Any:
    if "slo" not in table:
        return NEVER
    slo = table["slo"]
    latest = table["arrival_time"] + np.maximum(slo, 0) * duration
    return np.where(slo > 0, np.minimum(latest, NEVER / 2), NEVER).astype(np.int64)
