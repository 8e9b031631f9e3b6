"""Recipes compared on parts of what happened, or on the present queue with several draws of run
times: all see the same, and figures are compared part by part."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import numpy as np

from ganger.core.errors import BadInput, GangerError
from ganger.core.spec import ClusterSpec, NodeSpec
from ganger.lab.recommend.race import LEAST_JOBS, Entrant, gap
from ganger.lab.recommend.recipe_filter import Objective, objective_of
from ganger.lab.simulating.refusals import could_start
from ganger.lab.simulating.setup import Setup
from ganger.lab.simulation import run_one
from ganger.recipes.registry import parse
from ganger.web.background.comparing import Asked, Compared, Row
from ganger.workloads.clusters import describe
from ganger.workloads.readers.ganger_trace import read
from ganger.workloads.trace import Trace
from ganger.workloads.transform import parts

PARTS: Final = 5
JOBS_A_PART: Final = 500
RUN_SECONDS: Final = 20.0
"""Of a processor, for one recipe on one part."""


class _TooLongError(GangerError):
    """A run takes too long."""


@dataclass
class _Tried:
    """A recipe on a cluster, and its figures by part."""

    name: str
    recipe: str
    cluster: ClusterSpec
    figures: list[dict[str, float]] = field(default_factory=list)
    why: str = ""

    def entrant(self, metric: str) -> Entrant:
        return Entrant(
            self.name, "", {(at, 0): each[metric] for at, each in enumerate(self.figures)}
        )


def compare(asked: Asked, tell: Callable[..., None]) -> Compared:
    """Try all, and say which is best. Raises BadInput."""
    objective = objective_of(asked.objective)
    cluster = msgspec.json.decode(asked.cluster, type=ClusterSpec)
    changed = resized(cluster, asked.kind, asked.nodes)
    for recipe in asked.recipes:
        parse(recipe)  # a registered recipe: no file is read
    every = [_Tried(f"{asked.recipe}, as now", asked.recipe, cluster)]
    wanted = dict.fromkeys(asked.recipes if changed is cluster else [asked.recipe, *asked.recipes])
    every += [
        _Tried(recipe, recipe, changed)
        for recipe in wanted
        if changed is not cluster or recipe != asked.recipe
    ]
    shown, without = some_of(asked.traces, cluster)
    total = len(shown) * len(every)
    tell(total=total)
    for at, part in enumerate(shown):
        for number, tried in enumerate(every):
            if not tried.why:
                _try(tried, part, asked.knows)
            tell(done=at * len(every) + number + 1, total=total)
    compared = _result(every, shown, objective)
    return msgspec.structs.replace(compared, nodes=asked.nodes, without=without)


def some_of(traces: Sequence[str], cluster: ClusterSpec) -> tuple[list[Trace], int]:
    """The traces, or parts of one that is long; and how many jobs of one are left out, for which
    the cluster has no room, as after a node has gone."""
    with TemporaryDirectory(prefix="ganger-web-") as folder:
        whole = []
        for at, text in enumerate(traces):
            path = Path(folder) / f"{at}.jsonl"
            path.write_text(text, encoding="utf-8")
            whole.append(read(path))
    before = whole[0].jobs
    whole = [could_start(each, cluster) for each in whole]
    without = before - whole[0].jobs
    if len(whole) > 1:
        return [parts(each, 1, JOBS_A_PART)[0] for each in whole], without
    count = max(1, min(PARTS, whole[0].jobs // LEAST_JOBS))
    return parts(whole[0], count, JOBS_A_PART), without


def resized(cluster: ClusterSpec, kind: str, nodes: int) -> ClusterSpec:
    """The cluster with so many more nodes like the first of that GPU type, or without the last
    ones. Raises BadInput."""
    if not nodes:
        return cluster
    like = [node for node in cluster.nodes if node.gpus and node.gpu_type == kind]
    if not like:
        raise BadInput(f"no node has GPUs of type {kind!r}")
    if nodes > 0:
        new = [msgspec.structs.replace(like[0], name="", count=1)] * nodes
        return describe(msgspec.structs.replace(cluster, nodes=(*cluster.nodes, *new))).check()
    kept: list[NodeSpec] = []
    gone = -nodes
    for node in reversed(cluster.nodes):
        takes = min(node.count, gone) if node.gpus and node.gpu_type == kind else 0
        gone -= takes
        if node.count > takes:
            kept.append(msgspec.structs.replace(node, count=node.count - takes))
    if gone or not kept:
        raise BadInput(f"there are fewer than {-nodes} such nodes, or no others")
    smaller = msgspec.structs.replace(cluster, nodes=tuple(reversed(kept)))
    return describe(smaller).check()


def _try(tried: _Tried, part: Trace, knows: str) -> None:
    end = time.process_time() + RUN_SECONDS

    def progress(share: float) -> None:
        if time.process_time() > end:
            raise _TooLongError(f"takes more than {RUN_SECONDS:g} s of a processor")

    try:
        run = run_one(
            part, tried.cluster, tried.recipe, Setup(knows=knows), progress=progress, record=False
        )
    except GangerError as error:
        tried.why = getattr(error, "what", str(error))
        return
    if run.metrics["jobs_unfinished"]:
        tried.why = f"leaves {run.metrics['jobs_unfinished']:.0f} jobs waiting for ever"
        return
    tried.figures.append(run.metrics)


def _result(every: list[_Tried], shown: list[Trace], objective: Objective) -> Compared:
    base = every[0]
    if base.why:
        raise BadInput(f"{base.name}: {base.why}")
    metric = objective.metric
    now = base.entrant(metric)
    rows: list[tuple[float, Row]] = []
    for tried in every:
        if tried.why:
            rows.append((math.inf, Row(tried.name, why=tried.why)))
            continue
        jct, wait, makespan, preemptions = (
            float(np.mean([each[key] for each in tried.figures])) for key in FIGURES
        )
        row = Row(tried.name, jct, wait, makespan, preemptions)
        if tried is not base:
            over = gap(objective, now, tried.entrant(metric))
            row.ratio = over.value
            row.low, row.high = (over.low, over.high) if over.compared else (None, None)
        rows.append((row.ratio or 1.0, row))
    order = [rows[0][1], *(row for _, row in sorted(rows[1:], key=lambda each: each[0]))]
    ran = [row for row in order if not row.why]
    pick = min(ran, key=lambda row: row.ratio or 1.0)
    sure = pick.high is not None and pick.high < 1.0
    return Compared(
        order, len(shown), max(part.jobs for part in shown), objective.title, pick.name, sure
    )


FIGURES: Final = (
    "jct_mean_seconds", "queueing_delay_mean_seconds", "makespan_seconds", "preemptions",
)  # fmt: skip
"""In the order of a row."""
