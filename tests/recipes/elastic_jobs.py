"""Small elastic workloads for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganger.core.kernel import Kernel
from ganger.core.plan import Resize, Start, Stop
from ganger.core.profiles import Profile, Profiles
from ganger.core.spec import ClusterSpec, JobSpec, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import SECOND
from ganger.lab.result import Run
from ganger.lab.simulation import Setup, run_one
from ganger.workloads.trace import Trace


def cluster(nodes: int, gpus: int) -> ClusterSpec:
    """`nodes` nodes of `gpus` V100."""
    return ClusterSpec(nodes=(NodeSpec(count=nodes, gpus=gpus, gpu_type="V100"),))


def job(name: str, at: float, most: int, least: int = 1, **more: Any) -> JobSpec:
    """A job that asks for `least` GPUs and can use `most`."""
    shape = Shape(roles=(Role(size=least, least=least, most=most),))
    return JobSpec(name=name, submitted=round(at * SECOND), shape=shape, **more)


def trace(jobs: list[tuple[JobSpec, float]]) -> Trace:
    """Jobs (in order of submission) with their seconds at the size they ask for."""
    declared = declare([spec for spec, _ in jobs])
    return Trace(declared, np.array([round(s * SECOND) for _, s in jobs], np.int64))


def profiles(**scaling: tuple[float, ...]) -> Profiles:
    """Models that scale so."""
    return Profiles({name: Profile(scaling=curve) for name, curve in scaling.items()})


class Sizes:
    """A journal of (seconds, job, GPUs) for every start, resize and stop (0 GPUs)."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.log: list[tuple[float, str, int]] = []

    def append(self, revision: int, batch: Any, plan: Any, memory: Any) -> None:
        """Note what the plan says."""
        for action in plan.actions if plan is not None else ():
            gpus = 0
            if isinstance(action, Start | Resize):
                gpus = sum(slot.devices.bit_count() for slot in action.placement)
            if isinstance(action, Start | Resize | Stop):
                self.log.append((batch.at / SECOND, self.kernel.jobs.name(action.job), gpus))


def play(
    jobs: list[tuple[JobSpec, float]], spec: ClusterSpec, recipe: Any, **setup: Any
) -> tuple[list[tuple[float, str, int]], Run]:
    """Run under `validate`; the log of sizes and the run."""
    kept: list[Sizes] = []

    def journal(kernel: Kernel) -> Sizes:
        kept.append(Sizes(kernel))
        return kept[0]

    run = run_one(trace(jobs), spec, recipe, Setup(validate=True, **setup), journal=journal)
    return kept[0].log, run


def jct(run: Run) -> dict[str, float]:
    """Seconds from arrival to finish by name."""
    table = run.jobs
    took = (table.finish - table.arrival).tolist()
    return dict(zip(table.name, took, strict=True))
