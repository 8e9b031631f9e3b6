"""The map of nodes and GPUs as SVG, one small picture a node: 4,000 GPUs are 4,000 rectangles in
about 20 KB, compressed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from html import escape
from typing import Final
from urllib.parse import quote

from markupsafe import Markup

from ganger.client.answering.gpu_map import HeldAnswer, HolderAnswer, MapAnswer, NodeMap

WAYS: Final = {"job": "job", "tenant": "tenant", "use": "use"}
"""By what GPUs are coloured."""
COLOURS: Final = 11
OTHERS: Final = "c11"
"""The grey of whoever has no colour of its own."""
CELL: Final = 10
STEP: Final = 12
ACROSS: Final = 8
"""GPUs in one row of a node."""
_ROOMY, _MIDDLE = 64, 640
"""Up to so many GPUs nodes are drawn large, or of middle size."""
LEGEND_MAX: Final = 11


@dataclass(frozen=True)
class Key:
    """One line of the legend: a colour's class, what it stands for, how many GPUs that holds, and
    the job's number where it is a job."""

    colour: str
    text: str
    gpus: float
    job: int = 0


@dataclass(frozen=True)
class Drawn:
    """The map: nodes by GPU type, how large they are drawn, the legend, and what it leaves out."""

    groups: list[tuple[str, int, Markup]]
    size: str
    legend: list[Key]
    left_out: int


def draw(answer: MapAnswer, by: str, idle: Collection[int], prefix: str) -> Drawn:
    """The map coloured `by` job, tenant or use; `idle` are jobs that were found doing nothing."""
    total = sum(node.gpus for node in answer.nodes)
    size = "roomy" if total <= _ROOMY else "middle" if total <= _MIDDLE else "small"
    jobs = {job.job: job for job in answer.jobs}
    colours = _colours(answer, by, idle)
    nodes: dict[str, list[NodeMap]] = {}
    for node in answer.nodes:
        kind = node.gpu_type or ("GPUs" if node.gpus else "Without GPUs")
        nodes.setdefault(kind, []).append(node)
    groups = [
        (
            kind,
            sum(node.gpus for node in every),
            Markup("".join(_node(node, jobs, colours, size, prefix) for node in every)),
        )
        for kind, every in nodes.items()
    ]
    keys = _legend(answer, by, idle, colours)
    return Drawn(groups, size, keys[:LEGEND_MAX], max(len(keys) - LEGEND_MAX, 0))


def _colours(answer: MapAnswer, by: str, idle: Collection[int]) -> dict[int, str]:
    """The class of each job's colour."""
    if by == "use":
        return {job.job: "idle" if job.job in idle else "c0" for job in answer.jobs}
    if by == "job":
        return {job.job: f"c{job.job % COLOURS}" for job in answer.jobs}
    held: Counter[str] = Counter()
    for job in answer.jobs:
        held[job.tenant] += job.gpus
    ranks = {name: at for at, (name, _) in enumerate(_ranked(held))}
    return {
        job.job: f"c{ranks[job.tenant]}" if ranks[job.tenant] < COLOURS else OTHERS
        for job in answer.jobs
    }


def _ranked(held: Mapping[str, int]) -> list[tuple[str, int]]:
    """By name, if all have a colour, so that colours stay; else who holds most comes first."""
    if len(held) <= COLOURS:
        return sorted(held.items())
    return sorted(held.items(), key=lambda entry: (-entry[1], entry[0]))


def _legend(
    answer: MapAnswer, by: str, idle: Collection[int], colours: Mapping[int, str]
) -> list[Key]:
    if by == "job":
        jobs = sorted(answer.jobs, key=lambda job: (-job.gpus, job.job))
        return [Key(colours[job.job], _called(job), job.gpus, job.job) for job in jobs]
    held: Counter[tuple[str, str]] = Counter()
    for job in answer.jobs:
        name = job.tenant if by == "tenant" else "idle" if job.job in idle else "in use"
        held[colours[job.job], name] += job.gpus
    return [Key(colour, name, gpus) for (colour, name), gpus in held.most_common()]


def _called(job: HolderAnswer) -> str:
    return f"{job.label} {job.name}" if job.name else job.label


def _node(
    node: NodeMap,
    jobs: Mapping[int, HolderAnswer],
    colours: Mapping[int, str],
    size: str,
    prefix: str,
) -> str:
    """A node: its name, and a rectangle for each GPU or each job's part of it."""
    across = min(node.gpus, ACROSS) or 1
    down = -(-node.gpus // ACROSS) or 1
    parts: dict[int, list[tuple[HeldAnswer, HolderAnswer | None]]] = {}
    for held in node.held:
        for gpu in held.gpus:
            parts.setdefault(gpu, []).append((held, jobs.get(held.job)))
    out = "" if node.state == "up" else f" {escape(node.state)}"
    cells = []
    for gpu in range(node.gpus):
        x, y = gpu % ACROSS * STEP, gpu // ACROSS * STEP
        if gpu not in parts:
            kind = "withheld" if gpu in node.withheld else "out" if out else "free"
            cells.append(f'<rect class="{kind}" x="{x}" y="{y}" width="10" height="10"/>')
            continue
        top = float(y)
        for held, job in parts[gpu]:
            height = CELL * min(held.share, 1.0) if len(parts[gpu]) > 1 else CELL
            colour = colours.get(held.job, OTHERS)
            where = f'x="{x}" y="{top:g}" width="10" height="{height:g}"'
            title = _title(job) if size == "roomy" and job else ""
            cells.append(
                f'<a href="{prefix}/jobs/{held.job}" tabindex="-1" data-job="{held.job}">'
                f'<rect class="{colour}" {where}>{title}</rect></a>'
            )
            top += height
    wide, high = across * STEP - 2, down * STEP - 2
    free = node.gpus - len(parts) - len(node.withheld)
    state = node.state if node.state != "up" else f"{free} of {node.gpus} GPUs free"
    name = escape(node.name)
    return (
        f'<li class="node{out}"><a href="{prefix}/nodes?find={quote(node.name, safe="")}"'
        f' title="{name}: {escape(state)}">{name}</a>'
        f'<svg viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="group"'
        f' aria-label="{name}: {escape(state)}">{"".join(cells)}</svg></li>'
    )


def _title(job: HolderAnswer) -> str:
    return f"<title>{escape(_called(job))}, {escape(job.user)}, {job.gpus} GPUs</title>"
