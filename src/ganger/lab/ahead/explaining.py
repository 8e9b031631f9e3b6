"""Why a waiting job waits, in sentences, from a kernel and the plan in force.

The kernel is that of a daemon, or of a log that was replayed to some time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ganger.client.answers import (
    AlternativeAnswer,
    Asked,
    BestNode,
    Explanation,
    NodeAnswer,
    ReleaseAnswer,
)
from ganger.client.states import state_of
from ganger.core.books.empty import EmptyCluster
from ganger.core.books.ledger import Ledger
from ganger.core.kernel import Kernel
from ganger.core.plan import Placement, Plan, Reason
from ganger.core.protocols import Policy
from ganger.core.spec import Shape
from ganger.core.state.jobs import Phase
from ganger.core.units import NEVER, SECOND, WHOLE, format_duration
from ganger.lab.ahead.alternatives import Waits
from ganger.mechanisms.common.waiting import (
    MECHANISMS,
    changes_in,
    in_one_node,
    ranks,
    reason_behind,
    reason_for,
)

HOLDERS_MAX = 20
"""So many jobs are named in lists."""
_RANKED_MAX = 5000
"""Of so many waiting jobs the recipe's own order is asked for."""
_UNITS = {
    "gpus": "GPUs",
    "jobs": "jobs",
    "trials": "trials",
    "epochs": "epochs",
    "chances": "chances",
    "part": "",
}


class Measured(NamedTuple):
    """How a job that shares GPUs does, as its agent last saw it; None: not known. `rate`: for which
    part of the time it may compute; `speed`: as a part of its speed alone, by its own steps."""

    rate: float | None = None
    speed: float | None = None


@dataclass(frozen=True)
class Scene:
    """A kernel at one instant. `plan`: the last one that `policy` made; `recipe`: the name of that;
    `now`: microseconds; `label`: the name that people use for a job; `warnings`: what is wrong with
    nodes, by their names; `measured`: what agents saw of a job."""

    kernel: Kernel
    plan: Plan | None
    recipe: str
    policy: Policy
    now: int
    label: Callable[[int], str]
    warnings: Mapping[str, Sequence[str]]
    measured: Callable[[int], Measured] = lambda row: Measured()

    @property
    def reasons(self) -> list[Reason]:
        """What the plan says of jobs that wait."""
        return self.plan.reasons if self.plan is not None else []

    def said_of(self, row: int) -> Reason | None:
        """Why a pending job waits by the plan; None: it gives no reason of any job."""
        at = self.kernel.view.at
        within = int(at.within[row])
        own = reason_for(self.reasons, at.shape[row], at.tenant[row], within)
        return own or reason_behind(self.reasons, within)

    def reason_of(self, row: int) -> str:
        """Slurm's word for why a pending job waits."""
        said = self.said_of(row)
        return said.code if said is not None else "Resources"


def reason_suspended(kernel: Kernel, row: int) -> str:
    """Slurm's word for why a suspended job does not run yet that a person resumed, or that the
    recipe suspended; "" for others."""
    waits = row in kernel.resuming or row in kernel.view.resumable
    return "Resources" if waits else ""


def explain_suspended(scene: Scene, row: int, where: Sequence[str], answer: Explanation) -> bool:
    """What a suspended job keeps that yielded its compute, and what it waits for once a person
    resumed it; False of other jobs. `where`: its nodes or devices."""
    kernel, jobs = scene.kernel, scene.kernel.jobs
    if jobs.phase[row] != Phase.SUSPENDED or jobs.size[row] or not jobs.gpus[row] or not where:
        return False
    answer.reason = reason_suspended(kernel, row)
    keeps = f"It keeps only its GPU memory on {', '.join(where)}"
    if not answer.reason:
        answer.lines += [
            f"{keeps}: other jobs may run there.",
            "After `ganger resume` it goes on as soon as no other job runs there.",
        ]
        return True
    if row in kernel.resuming:
        answer.lines.append(f"{keeps}. It resumes as soon as no other job runs there.")
    else:
        answer.lines.append(f"{keeps}. The recipe suspended it, and resumes it in its next turn.")
    users = users_of(kernel, row, kernel.placements()[row])
    answer.holders = [job + 1 for job in users[:HOLDERS_MAX]]
    if users:
        runs = "runs" if len(users) == 1 else "run"
        answer.lines.append(f"{jobs_named(scene.label, users).capitalize()} {runs} there.")
    return True


def users_of(kernel: Kernel, row: int, placement: Placement) -> list[int]:
    """The other jobs that compute on devices of `placement`, which `row` has, or that have not yet
    let go of them; ascending."""
    devices: dict[int, int] = {}
    for slot in placement:
        devices[slot.node] = devices.get(slot.node, 0) | slot.devices
    ledger = kernel.view.draft.ledger_of(row)
    if ledger is None:
        return []
    held = [(job, place) for job, (_, place) in ledger.holds.items() if job not in ledger.asleep]
    held += [(job, place) for (job, _), place in kernel.letting_go.items()]
    return sorted(
        {
            job
            for job, place in held
            if job != row and any(slot.devices & devices.get(slot.node, 0) for slot in place)
        }
    )


def explain_waiting(scene: Scene, row: int, found: Explanation) -> None:
    """What a pending job waits for, what refused it, and which jobs hold what it could use."""
    kernel = scene.kernel
    jobs = kernel.jobs
    lasts = format_duration(scene.now - int(jobs.pending_since[row]))
    shape, within = jobs.shapes[jobs.shape[row]], int(jobs.within[row])
    wanted = f"{shape.gpus} GPU{'s' if shape.gpus != 1 else ''}"
    if shape.gpu_types:
        wanted += f" of type {' or '.join(shape.gpu_types)}"
    nodes = [
        node
        for node in node_answers(kernel)
        if node.gpus and (not shape.gpu_types or node.gpu_type in shape.gpu_types)
    ]
    free = sum(node.gpus_free for node in nodes if node.state == "up")
    total = sum(node.gpus for node in nodes)
    of = " such" if shape.gpu_types else ""
    ledger = kernel.view.draft.ledger_of(row)
    if within >= 0:
        free, total = (0, 0) if ledger is None else (ledger.free, ledger.total)
        of = f" that job {scene.label(within)} holds for its children"
    found.lines.append(f"It has waited {lasts} for {wanted}; {free} of {total}{of} are free.")
    if within >= 0 and kernel.jobs.phase[within] != Phase.RUNNING:
        state = state_of(Phase(kernel.jobs.phase[within]), "")[0].lower()
        parent = scene.label(within)
        found.lines.append(f"It gets its GPUs from job {parent}, which is {state}.")
    _refused(scene, row, found)
    holders = _holders(scene, ledger, shape.gpu_types)
    found.holders = [job + 1 for job in holders[:HOLDERS_MAX]]
    if holders:
        found.lines.append(
            f"The GPUs that it could use are held by {jobs_named(scene.label, holders)}."
        )
    others = [f"{node.gpus_withheld} on {node.name}" for node in nodes if node.gpus_withheld]
    if others:
        found.lines.append(f"GPUs are used outside Ganger: {', '.join(others)}.")
    down = [node.name + _wrong(scene, node.name) for node in nodes if node.state != "up"]
    if down:
        found.lines.append(f"Out of use: {', '.join(down)}.")


def _refused(scene: Scene, row: int, found: Explanation) -> None:
    """Which mechanism refused it, with what numbers, and what could change that."""
    _rank(scene, row, found)
    recipe, said = scene.recipe, scene.said_of(row)
    if found.reason == "Priority" and not found.ahead:
        found.lines.append(f"No job comes first: {_decides(scene)}.")
    elif found.ahead and (found.reason == "Priority" or _is_strict(said)):
        passes = (
            f"{recipe} lets no job pass:" if _is_strict(said) else f"{recipe} puts others first:"
        )
        comes = "s" if found.ahead == 1 else ""
        found.lines.append(
            f"{passes} {found.ahead} job{'s' if found.ahead != 1 else ''} that wait{comes}"
            f" come{comes} before it."
        )
    elif found.reason == "AssocGrpGRES":
        found.lines.append("Its tenant has reached its quota.")
    elif found.reason == "AssocGrpBilling":
        found.lines.append("The budget of its tenant is spent: somebody has to give it more.")
    if said is None:
        return
    found.by, found.evidence, found.until = said.by, said.evidence, changes_in(said.until)
    numbers = in_numbers(said.evidence, scene.now)
    found.lines.append(
        f"Refused by {MECHANISMS.get(said.by, 'the recipe')} ({said.by})"
        f"{f': {numbers}' if numbers else ''}."
    )
    if found.until:
        found.lines.append(f"That can change when {', or when '.join(found.until)}.")


def _is_strict(said: Reason | None) -> bool:
    """Whether nobody passes the first one of the queue."""
    return said is not None and said.evidence.get("may_pass") == 0.0


def _rank(scene: Scene, row: int, found: Explanation) -> None:
    """How many waiting jobs come before it: by the recipe's own order if it has one, else by
    priority and submission."""
    kernel = scene.kernel
    jobs, within = kernel.jobs, int(kernel.jobs.within[row])
    view = kernel.view if within < 0 else kernel.view.inside(within)
    ranked = ranks(scene.policy, within)
    if ranked is not None and view is not None and len(view.pending) <= _RANKED_MAX:
        found.ahead = len(ranked(view, row))
    else:
        waiting = np.flatnonzero(
            (jobs.phase[: jobs.n] == Phase.PENDING) & (jobs.within[: jobs.n] == within)
        )
        order = waiting[np.lexsort((waiting, -jobs.priority[waiting]))]
        found.ahead = int(np.flatnonzero(order == row)[0])
    found.position = found.ahead + 1


def in_numbers(evidence: dict[str, float], now: int) -> str:
    """Evidence in words: `quota 4 GPUs, used 3 GPUs`."""
    said = []
    for key, value in evidence.items():
        name, _, unit = key.rpartition("_")
        if key.endswith("_at_s"):
            left = max(round(value * SECOND) - now, 0)
            said.append(f"{name.removesuffix('_at')} in {format_duration(left)}")
        elif unit == "s":
            said.append(f"{name.replace('_', ' ')} {format_duration(round(value * SECOND))}")
        elif unit == "usd":
            said.append(f"{name} {value:.2f} USD")
        elif unit in _UNITS:
            thing = _UNITS[unit][: -1 if value == 1 else None]
            said.append(f"{name.replace('_', ' ')} {value:g} {thing}".rstrip())
    return ", ".join(said)


def _decides(scene: Scene) -> str:
    recipe, plan = scene.recipe, scene.plan
    if plan is None or plan.wake >= NEVER:
        return f"{recipe} starts it when it decides again"
    left = format_duration(max(plan.wake - scene.now, 0))
    return f"{recipe} starts it when it decides again, in {left} or sooner"


def _wrong(scene: Scene, node: str) -> str:
    said = "; ".join(scene.warnings.get(node, ()))
    return f" ({said})" if said else ""


def compare(scene: Scene, found: Explanation, there: Waits) -> None:
    """What it asks for, and the best that is there."""
    shape, names = there.shape, scene.kernel.nodes.names
    needs = shape.roles[0].needs
    found.asks = Asked(
        gpus=shape.gpus,
        share=needs.share / WHOLE,
        cpus=sum(role.size * role.needs.cpus for role in shape.roles) / WHOLE,
        memory=sum(role.size * role.needs.memory for role in shape.roles),
        gpu_types=list(shape.gpu_types),
        pool=shape.pool,
        labels=list(shape.labels),
        close="node" if in_one_node(shape) else shape.locality.name.lower(),
    )
    found.free_gpus, room = there.free_gpus, there.room
    found.recipe_waits, found.starts_next = there.fits and not there.starts, there.starts
    if not there.fits and not there.ends and scene.kernel.jobs.within[found.job - 1] < 0:
        found.lines += _hopes(scene.kernel, shape)
    if room is not None:
        found.best = BestNode(
            name=names[room.node],
            gpus_free=room.gpus,
            cpus_free=room.cpus / WHOLE,
            memory_free=room.memory,
            lacks=list(room.lacks),
        )
    found.releases = [
        ReleaseAnswer(
            job=one.job + 1,
            label=scene.label(one.job),
            gpus=one.gpus,
            nodes=[names[node] for node in one.nodes],
            latest=_span(one.latest),
            expected=_span(one.expected),
        )
        for one in there.ends[:HOLDERS_MAX]
    ]
    found.alternatives = [
        AlternativeAnswer(options=one.options, nodes=one.nodes) for one in there.alternatives
    ]


def _hopes(kernel: Kernel, shape: Shape) -> list[str]:
    """What would end the wait of a job that no releases make room for."""
    if not EmptyCluster(kernel.nodes).fits(shape, tuple(role.range[0] for role in shape.roles)):
        return [
            "Nothing in this cluster could take it, even if no job ran: cancel it, or add nodes."
        ]
    if any(kernel.barred(node) or kernel.withheld(node) for node in range(kernel.nodes.n)):
        return ["It can start when nodes or GPUs that are out of use come back."]
    return []


def _holders(scene: Scene, ledger: Ledger | None, types: tuple[str, ...]) -> list[int]:
    """Who holds GPUs of a type that would do, where the job would be placed; the longest last."""
    kernel = scene.kernel
    nodes = kernel.nodes
    fits = {
        node for node in range(nodes.n) if not types or nodes.types[nodes.gpu_type[node]] in types
    }
    found = [
        row
        for row, (_, placement) in (ledger.holds.items() if ledger is not None else ())
        if any(slot.node in fits and slot.devices for slot in placement)
    ]
    return sorted(found, key=lambda row: -int(kernel.jobs.held_since[row]))


def jobs_named(label: Callable[[int], str], found: Sequence[int]) -> str:
    """The first of some jobs by name, and how many more there are."""
    some = ", ".join(label(row) for row in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return f"job{'s' if len(found) != 1 else ''} {some}{more}"


def _span(time: int) -> float | None:
    return time / SECOND if 0 <= time < NEVER else None


def node_answers(kernel: Kernel) -> list[NodeAnswer]:
    """All nodes."""
    nodes = kernel.nodes
    used, holders = [0] * nodes.n, [[] for _ in range(nodes.n)]  # type: ignore[var-annotated]
    for row, placement in kernel.ledger.holds.items():
        for slot in placement[1]:
            used[slot.node] |= slot.devices
            if row + 1 not in holders[slot.node]:
                holders[slot.node].append(row + 1)
    return [
        NodeAnswer(
            name=nodes.names[node],
            state=kernel.barred(node) or "up",
            gpu_type=nodes.types[nodes.gpu_type[node]],
            gpus=int(nodes.gpus[node]),
            gpus_free=max(
                int(nodes.gpus[node]) - kernel.withheld(node) - used[node].bit_count(), 0
            ),
            gpus_withheld=kernel.withheld(node),
            cpus=int(nodes.cpus[node]) / WHOLE,
            memory=int(nodes.memory[node]),
            jobs=sorted(holders[node]),
        )
        for node in range(nodes.n)
    ]
