"""Gavel's traces, and Shockwave's that grew out of them: tab-separated, without a header.

Three orders of columns are distinguished by their number. 7: job_type, command, num_steps_arg,
needs_data_dir, total_steps, arrival_time (s), scale_factor. 10: job_type, command, working
directory, num_steps_arg, needs_data_dir, total_steps, scale_factor, priority weight, SLO,
arrival_time. 12 (Shockwave): as 10 with a mode (static, accordion or gns) before the weight and a
duration (s) before the arrival.

job_type becomes `model`, total_steps `steps`, scale_factor the gang, the mode the group; an SLO
of x sets the deadline x durations after the arrival. The first two orders state no duration: it
is total_steps over the V100's steps per second in Gavel's throughput JSON (`throughputs`), which
the option `throughputs` names (or is, decoded or as profiles). The trace then knows, too, how fast
each job is on which GPUs; with `placement=yes` also how much slower where its GPUs are not in one
node.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.profiles import Profiles
from ganger.core.state.names import Names
from ganger.core.units import NEVER, SECOND
from ganger.workloads.build import Coded, Rows, build, coded
from ganger.workloads.files import TextFile, open_text
from ganger.workloads.measured.throughputs import (
    REFERENCE,
    Given,
    load_throughputs,
    steps_per_second,
)
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
    7: (
        "job_type",
        "command",
        "num_steps_arg",
        "needs_data_dir",
        "total_steps",
        "arrival_time",
        "scale_factor",
    ),
    10: (
        "job_type",
        "command",
        "working_dir",
        "num_steps_arg",
        "needs_data_dir",
        "total_steps",
        "scale_factor",
        "priority_weight",
        "slo",
        "arrival_time",
    ),
    12: (
        "job_type",
        "command",
        "working_dir",
        "num_steps_arg",
        "needs_data_dir",
        "total_steps",
        "scale_factor",
        "mode",
        "priority_weight",
        "slo",
        "duration",
        "arrival_time",
    ),
}
_YES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def read(
    path: Path,
    *,
    skip_bad: bool = False,
    throughputs: Given | None = None,
    placement: bool | str = False,
) -> Trace:
    """The jobs of a Gavel or Shockwave trace. Raises BadInput, also where durations are neither
    stated nor to be had from `throughputs`."""
    if str(placement).lower() not in _YES:
        raise BadInput(f"placement={placement}", where=str(path), mend="write yes or no")
    file = open_text(path, skip_bad=skip_bad)
    header = ORDERS.get(len(file.header("\t")))
    if header is None:
        raise BadInput(
            f"{len(file.header(chr(9)))} tab-separated fields",
            where=f"{file.where}: line 1",
            mend="a Gavel trace has 7 or 10, a Shockwave trace 12",
        )
    model, mode = Category(required=True), Category()
    kinds: dict[str, Kind] = {
        "job_type": model,
        "mode": mode,
        "total_steps": Number(0, 1e15),
        "arrival_time": Moment(),
        "scale_factor": GPUS,
        "duration": Span(),
        "priority_weight": Number(1e-9, 1e9),
        "slo": Number(0.0, 1e9, unknown=-1.0),
    }
    wanted = {name: kind for name, kind in kinds.items() if name in header}
    table = read_delimited(file, wanted, delimiter="\t", header=header)
    profiles = None
    if throughputs is not None:
        profiles = load_throughputs(
            throughputs, placement=_YES[str(placement).lower()], models=set(model.names)
        )
    duration = _durations(file, table, model.names, profiles)
    rows = Rows(
        table["arrival_time"],
        duration,
        table["scale_factor"],
        steps=table["total_steps"],
        model=Coded(table["job_type"], model.names),
        group=coded(table, "mode", mode),
        weight=table.get("priority_weight", 1.0),
        deadline=_deadlines(table, duration),
    )
    trace = build(table, rows, name=file.path.name.split(".")[0])
    if profiles is None:
        return trace
    used = {name: profiles.models[name] for name in model.names if name in profiles.models}
    return replace(trace, profiles=Profiles(used))


def _durations(
    file: TextFile, table: Table, models: Names[str], profiles: Profiles | None
) -> NDArray[np.int64]:
    if "duration" in table:
        stated: NDArray[np.int64] = table["duration"]
        return stated
    if profiles is None:
        raise file.refuse(
            "a Gavel trace states steps, not durations",
            "give Gavel's throughput file as the option throughputs=FILE",
        )
    models_, scales = table["job_type"].tolist(), table["scale_factor"].tolist()
    speed = steps_per_second(profiles)
    per_second = np.array(
        [speed(models[model], scale) for model, scale in zip(models_, scales, strict=True)]
    )
    table.refuse(
        per_second <= 0,
        "job_type",
        lambda row: f"no throughput of {models[models_[row]]!r} on {scales[row]} GPUs",
        f"add it for {REFERENCE} to the throughput file",
    )
    steps = table["total_steps"]
    micros: NDArray[np.int64] = np.rint(
        np.divide(steps * SECOND, per_second, out=np.zeros(len(table)), where=per_second > 0)
    ).astype(np.int64)
    return micros


def _deadlines(table: Table, duration: NDArray[np.int64]) -> Any:
    if "slo" not in table:
        return NEVER
    slo = table["slo"]
    latest = table["arrival_time"] + np.maximum(slo, 0) * duration
    return np.where(slo > 0, np.minimum(latest, NEVER / 2), NEVER).astype(np.int64)
