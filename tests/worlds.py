"""Small worlds for tests: jobs and clusters in a line each, runs that keep a diary."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ganger.core.events import Batch
from ganger.core.kernel import Kernel
from ganger.core.plan import Placement, Plan, Provision, Resize, Start
from ganger.core.protocols import Policy
from ganger.core.spec import ClusterSpec, JobSpec, NodeSpec, Role, Shape
from ganger.core.state.jobs import Phase, declare
from ganger.core.units import NEVER, SECOND
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulation import Setup
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Physics
from ganger.workloads.trace import Trace

MANY_STEPS = 12_000


class Work(NamedTuple):
    """A declared job, and how long it truly takes (microseconds)."""

    spec: JobSpec
    lasts: int


def gpus(count: int, **more: Any) -> Shape:
    """A gang of `count` whole GPUs."""
    return Shape((Role(size=count),), **more)


def job(name: str, at: float = 0, lasts: float | None = 1, size: int = 1, **declared: Any) -> Work:
    """`size` GPUs for `lasts` seconds (None: until stopped), submitted `at` seconds.

    Further times (`limit`, `estimate`, `deadline`, `checkpoint`, `restore`) in seconds too.
    """
    for key in ("limit", "estimate", "deadline", "checkpoint", "restore"):
        if key in declared:
            declared[key] = round(declared[key] * SECOND)
    declared.setdefault("shape", gpus(size))
    spec = JobSpec(name=name, submitted=round(at * SECOND), **declared)
    return Work(spec, NEVER if lasts is None else round(lasts * SECOND))


def trace_of(works: Iterable[Work]) -> Trace:
    """The trace of these jobs, in order of submission."""
    ordered = sorted(works, key=lambda work: work.spec.submitted)
    declared = declare([work.spec for work in ordered])
    return Trace(declared, np.array([work.lasts for work in ordered], np.int64))


def cluster(nodes: int = 1, each: int = 2, **more: Any) -> ClusterSpec:
    """`nodes` nodes of `each` GPUs."""
    more.setdefault("gpu_type", "V100")
    return ClusterSpec((NodeSpec(count=nodes, gpus=each, **more),))


class Diary:
    """A journal that keeps everything."""

    def __init__(self) -> None:
        self.steps: list[tuple[Batch, Plan | None]] = []

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: Any) -> None:
        """Keep one step; a run of tests that takes so many turns in circles."""
        assert len(self.steps) < MANY_STEPS, f"it turns in circles at {batch.at}: {plan}"
        self.steps.append((batch, plan))


class Played:
    """A run that is over: its kernel and its diary, with times in seconds."""

    def __init__(self, kernel: Kernel, diary: Diary, engine: Simulator) -> None:
        self.kernel, self.diary, self.engine = kernel, diary, engine
        self.jobs = kernel.jobs

    def row(self, name: str) -> int:
        """The job's number."""
        return self.jobs.find(name)

    def phase(self, name: str) -> str:
        """Where the job ended."""
        return Phase(self.jobs.phase[self.row(name)]).name.lower()

    def started(self, name: str) -> float | None:
        """When the job first ran, None if it never did."""
        at = int(self.jobs.first_start[self.row(name)])
        return None if at < 0 else at / SECOND

    def ended(self, name: str) -> float | None:
        """When the job was over, None if it is not."""
        at = int(self.jobs.finished[self.row(name)])
        return None if at < 0 else at / SECOND

    def jct(self) -> list[float]:
        """Finish minus arrival of every job."""
        n = self.jobs.n
        spans = self.jobs.finished[:n] - self.jobs.submitted[:n]
        return [float(span) / SECOND for span in spans]

    @property
    def makespan(self) -> float:
        """Last finish minus first arrival."""
        n = self.jobs.n
        return float(self.jobs.finished[:n].max() - self.jobs.submitted[:n].min()) / SECOND

    @property
    def actions(self) -> list[tuple[float, str]]:
        """(seconds, action in words) of everything that was decided."""
        return [
            (batch.at / SECOND, words(self.kernel, action))
            for batch, plan in self.diary.steps
            if plan is not None
            for action in plan.actions
        ]

    def text(self) -> str:
        """The decision log, one line per decision that did something."""
        lines = []
        for batch, plan in self.diary.steps:
            if plan is not None and plan.actions:
                done = "; ".join(words(self.kernel, action) for action in plan.actions)
                lines.append(f"{batch.at / SECOND:g}: {done}")
        return "\n".join(lines)


def words(kernel: Kernel, action: Any) -> str:
    """An action as people would note it: `start a on 0:2+1:1`, node by node, GPU by GPU."""
    if isinstance(action, Provision):
        return f"provision {action}"
    said = f"{type(action).__name__.lower()} {kernel.jobs.name(action.job)}"
    if isinstance(action, Start | Resize):
        said += f" on {where(action.placement)}"
        if action.waits:
            said += f" after {','.join(kernel.jobs.name(other) for other in action.waits)}"
    return said


def where(placement: Placement) -> str:
    """A placement as `node:gpu,gpu node:gpu`."""
    return " ".join(
        f"{slot.node}:{','.join(str(d) for d in range(64) if slot.devices >> d & 1)}"
        for slot in placement
    )


def play(
    policy: str | Policy,
    works: Sequence[Work] | Trace,
    on: ClusterSpec | None = None,
    setup: Setup | None = None,
    *,
    validate: bool = True,
    **more: Any,
) -> Played:
    """Simulate `works` on `on` (2 GPUs unless said), every invariant checked after every step."""
    from ganger.core.state.cluster import Nodes

    setup = setup or Setup(**more)
    trace = works if isinstance(works, Trace) else trace_of(works)
    nodes = Nodes((on or cluster()).check())
    physics = Physics(nodes, setup.profiles, setup.costs)
    diary = Diary()
    kernel = Kernel(
        nodes,
        trace.declared,
        registry.make(policy) if isinstance(policy, str) else policy,
        oracle=make_oracle(trace, physics, setup),
        journal=diary,
        seed=setup.seed,
        validate=validate,
    )
    engine = Simulator(trace.declared, trace.duration, physics, setup.outages)
    kernel.run(engine, setup.until)
    return Played(kernel, diary, engine)


def open_way(folder: Path) -> None:
    """Let other users pass through `folder` and all above it that tests made."""
    for each in (folder, *folder.parents):
        if each == Path(tempfile.gettempdir()):
            break
        each.chmod(0o711)
