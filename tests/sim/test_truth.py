"""How wrong the noisy oracle is: as much as it was told to be, and always in the same way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bench import Scripted
from ganger.core.kernel import Kernel
from ganger.core.spec import JobSpec
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import declare
from ganger.lab.simulating.oracles import make_oracle
from ganger.lab.simulation import Setup
from ganger.sim.physics import Physics
from ganger.workloads.trace import Trace
from worlds import cluster

JOBS = 2000
IDS = np.arange(JOBS)


def noisy(**how: Any) -> Kernel:
    """A kernel of many one-GPU jobs of 100 s, whose oracle errs."""
    trace = Trace(declare([JobSpec(name=f"j{i}") for i in range(JOBS)]), np.full(JOBS, 10**8))
    nodes, setup = Nodes(cluster(2, 8)), Setup(knows="noisy", **how)
    oracle = make_oracle(trace, Physics(nodes), setup)
    return Kernel(nodes, trace.declared, Scripted(), oracle=oracle)


def errors(kernel: Kernel, gpus: int, gpu_type: str = "V100") -> NDArray[Any]:
    """Logs of told over true speeds on so many GPUs."""
    many, one = np.full(JOBS, gpus), np.ones(JOBS, np.int64)
    told = kernel.oracle.throughput(kernel.view, IDS, gpu_type, many, one)
    return np.asarray(np.log(told / gpus))


def test_durations_and_speeds_err_by_their_own_spreads() -> None:
    kernel = noisy(noise=0.5, speed_noise=0.2)
    took = np.log(kernel.oracle.duration(kernel.view, IDS) / 1e8)
    assert took.std() == pytest.approx(0.5, rel=0.1)
    assert errors(kernel, 1).std() == pytest.approx(0.2, rel=0.1)


def test_without_a_spread_speeds_are_true() -> None:
    assert not errors(noisy(noise=0.5), 4).any()


def test_each_job_type_and_size_is_misjudged_by_itself_and_the_same_way_again() -> None:
    kernel = noisy(speed_noise=0.2)
    one = errors(kernel, 1)
    assert (one == errors(kernel, 1)).all()
    assert (one == errors(noisy(speed_noise=0.2), 1)).all()
    others = [
        errors(kernel, 8),
        errors(kernel, 1, "K80"),
        errors(noisy(speed_noise=0.2, seed=1), 1),
    ]
    for other in others:
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.1


def test_a_grid_of_sizes_errs_as_each_size_does() -> None:
    kernel = noisy(speed_noise=0.2)
    sizes = np.array([1, 2, 8])
    grid = kernel.oracle.throughput(kernel.view, IDS[:, None], "V100", sizes, np.ones_like(sizes))
    for column, gpus in enumerate(sizes.tolist()):
        assert np.log(grid[:, column] / gpus) == pytest.approx(errors(kernel, gpus))
