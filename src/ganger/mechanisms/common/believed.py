"""How long and how fast a job is believed to run: what the oracle says.

Run times that it does not know the user may have declared; speeds that it does not know are in
proportion to GPUs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ganger.core.state.table import Ids
from ganger.core.units import NEVER
from ganger.core.view import View


def believed_duration(view: View, ids: Any) -> NDArray[np.float64]:
    """Expected run time: the oracle's, else the user's estimate, else the limit, else forever."""
    told = view.oracle.duration(view, ids)
    unknown = np.isnan(told)
    if not unknown.any():
        return told
    own = np.where(view.jobs.estimate[ids] < NEVER, view.jobs.estimate[ids], view.jobs.limit[ids])
    believed: NDArray[np.float64] = np.where(unknown, own, told)
    return believed


def believed_speed(
    view: View, ids: Ids, gpu_type: str, gpus: NDArray[Any], nodes: NDArray[Any]
) -> NDArray[np.float64]:
    """Speed on `gpus` GPUs of `gpu_type` over `nodes` nodes, all broadcast; 1 is the job as asked
    for on the reference. Where the oracle does not know, a job's speed is in proportion to its
    GPUs, and 1 on as many as it asks for."""
    told = view.oracle.throughput(view, ids, gpu_type, gpus, nodes)
    unknown = np.isnan(told)
    if unknown.any():
        asked = np.maximum(view.jobs.gpus[ids], 1)
        told = np.where(unknown, np.maximum(gpus, 1) / asked, told)
    shape = np.broadcast(ids, gpus, nodes).shape
    return told if told.shape == shape else np.broadcast_to(told, shape)


def believed_length(view: View, job: int) -> float:
    """One job's `believed_duration`. A walk asks for one job after the other, and numpy is slow on
    single numbers."""
    told = float(view.oracle.duration(view, job))  # type: ignore[arg-type]
    if told != told:  # not a number: unknown
        estimate = view.at.estimate[job]
        told = float(estimate if estimate < NEVER else view.at.limit[job])
    return told


def believed_rest(view: View, job: int) -> int:
    """What is left of one job's `believed_length`, in whole microseconds, at most NEVER."""
    return int(min(believed_length(view, job) - view.work(job), NEVER))
