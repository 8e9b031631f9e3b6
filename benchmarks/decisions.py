"""How long a decision takes with 160 jobs on 64 GPUs of three types: Sia, Pollux, and others.

    python benchmarks/decisions.py [--recipe sia,pollux] [--jobs 160] [--rounds 10]

All jobs are there from the start, may use 1 to 16 GPUs each, and choose their batch sizes. Prints
CPU and wall milliseconds of the dearest decision of each round, median and largest, after the first
round, in which the oracle's tables are filled.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from ganger.core.kernel import Kernel
from ganger.core.plan import Plan
from ganger.core.profiles import Goodput, Profile, Profiles, StepModel
from ganger.core.protocols import Policy
from ganger.core.spec import ClusterSpec, GpuType, JobSpec, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import declare
from ganger.core.units import HOUR, SECOND
from ganger.core.view import View
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulation import Setup
from ganger.recipes import registry
from ganger.sim.engine import Simulator
from ganger.sim.physics import Costs, Physics
from ganger.workloads.measured.profiles import with_goodput
from ganger.workloads.trace import Trace

CLUSTER = ClusterSpec(
    (
        NodeSpec(count=6, gpus=4, gpu_type="T4"),
        NodeSpec(count=3, gpus=8, gpu_type="A100"),
        NodeSpec(count=4, gpus=4, gpu_type="RTX"),
    ),
    (GpuType("T4"), GpuType("A100", speed=4.0), GpuType("RTX", speed=1.6)),
)


class Timed:
    """A policy with a stop-watch."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.name = policy, policy.name
        self.cpu: dict[int, float] = {}
        self.wall: dict[int, float] = {}
        """Milliseconds by simulated time: the longest if there was more than one."""

    def decide(self, view: View, memory: Any) -> tuple[Plan, Any]:
        """As the policy does."""
        cpu, wall = time.process_time(), time.perf_counter()
        decided = self.policy.decide(view, memory)
        if len(view.pending) + len(view.active) and view.now % (60 * SECOND) == 0:
            took = 1e3 * (time.process_time() - cpu), 1e3 * (time.perf_counter() - wall)
            self.cpu[view.now] = max(self.cpu.get(view.now, 0.0), took[0])
            self.wall[view.now] = max(self.wall.get(view.now, 0.0), took[1])
        return decided


def models(count: int = 8) -> Profiles:
    """Applications that differ in how they compute, synchronise and learn."""
    rng = np.random.default_rng(0)
    known = {}
    for i in range(count):
        step = StepModel(
            0.02,
            float(rng.uniform(1e-3, 4e-3)),
            float(rng.uniform(0.01, 0.1)),
            0.002,
            float(rng.uniform(0.002, 0.02)),
            0.001,
            1.5,
        )
        noise = tuple(float(x) for x in np.geomspace(50, rng.uniform(1e3, 1e5), 5))
        known[f"m{i}"] = Profile(
            by_type={"T4": 1.0, "A100": float(rng.uniform(2, 6)), "RTX": float(rng.uniform(1, 2))},
            goodput=Goodput(
                64, 4096, (8, 128), 2e6, (0.0, 0.2, 0.4, 0.6, 0.8), (64.0,), (noise,), model=step
            ),
        )
    return Profiles(known)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recipe", default="sia,pollux")
    parser.add_argument("--jobs", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    profiles = models()
    for recipe in registry.split_specs(args.recipe):
        shape = Shape((Role(size=1, least=1, most=16),))
        specs = [JobSpec(name=f"j{i}", model=f"m{i % 8}", shape=shape) for i in range(args.jobs)]
        trace = with_goodput(Trace(declare(specs), np.ones(args.jobs, np.int64)), profiles)
        trace.duration[:] = np.maximum(trace.duration, 10 * HOUR)
        nodes = Nodes(CLUSTER)
        setup = Setup(profiles=profiles, costs=Costs(restore=30 * SECOND))
        physics = Physics(nodes, profiles, setup.costs)
        policy = Timed(registry.make(recipe))
        kernel = Kernel(
            nodes, trace.declared, policy, oracle=make_oracle(trace, physics, setup), seed=0
        )
        kernel.run(Simulator(trace.declared, trace.duration, physics), args.rounds * 60 * SECOND)
        cpu, wall = (np.array(list(taken.values())[1:]) for taken in (policy.cpu, policy.wall))
        print(
            f"{recipe}: {args.jobs} jobs, {len(cpu)} rounds: CPU {np.median(cpu):.1f} ms (at most"
            f" {cpu.max():.1f}), wall {np.median(wall):.1f} ms (at most {wall.max():.1f})"
        )


if __name__ == "__main__":
    main()
