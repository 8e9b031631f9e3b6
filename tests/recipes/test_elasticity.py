"""Optimus, AFS and exact elastic scaling, end to end."""

from __future__ import annotations

import numpy as np
import pytest

from ganger.core.events import Batch, Submitted
from ganger.core.kernel import Kernel
from ganger.core.spec import ClusterSpec, JobSpec, Needs, NodeSpec, OnPreempt, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import declare
from ganger.core.units import SECOND
from ganger.mechanisms.sizing.elastic import pools
from ganger.recipes import registry
from ganger.sim.physics import Costs
from ganger.sim.rows import Outage

from .elastic_jobs import cluster, jct, job, play, profiles

CARD = profiles(a=(1.0, 1.8, 2.4, 2.4), b=(1.0, 1.5, 1.7, 1.7))
STEEP = profiles(a=(1.0, 2.0, 3.0, 4.0), b=(1.0, 1.1, 1.15, 1.2))
RECIPES = ["optimus(interval=60s)", "afs", "afs(lengths=p)", "elastic-scaling"]


def first_sizes(recipe: str, scaling: object) -> dict[str, int]:
    jobs = [(job("a", 0, 4, model="a"), 100.0), (job("b", 0, 4, model="b"), 60.0)]
    log, _ = play(jobs, cluster(1, 4), recipe, profiles=scaling)
    return {name: gpus for at, name, gpus in log if at == 0}


def test_three_recipes_on_the_card() -> None:
    assert first_sizes("optimus", CARD) == {"a": 2, "b": 2}
    assert first_sizes("afs", CARD) == {"a": 2, "b": 2}
    assert first_sizes("elastic-scaling", CARD) == {"a": 3, "b": 1}


def test_afs_average_jct_of_its_card() -> None:
    assert first_sizes("afs", STEEP) == {"a": 3, "b": 1}
    jobs = [(job("a", 0, 4, model="a"), 100.0), (job("b", 0, 4, model="b"), 60.0)]
    _, run = play(jobs, cluster(1, 4), "afs", profiles=STEEP)
    assert np.mean(list(jct(run).values())) == pytest.approx(44.44, abs=0.01)


def test_afs_differs_from_optimus() -> None:
    """A long job that scales a little outweighs, for Optimus, a short one that scales well."""
    jobs = [(job("a", 0, 4, model="a"), 100.0), (job("b", 0, 4, model="b"), 4000.0)]
    sizes = {
        recipe: {
            n: g for at, n, g in play(jobs, cluster(1, 4), recipe, profiles=STEEP)[0] if not at
        }
        for recipe in ("optimus", "afs")
    }
    assert sizes["optimus"]["b"] > sizes["afs"]["b"]


@pytest.mark.parametrize("recipe", ["afs", "elastic-scaling"])
def test_a_job_shrinks_on_arrival_and_grows_on_completion(recipe: str) -> None:
    jobs = [(job("long", 0, 4), 400.0), (job("short", 40, 2), 40.0)]
    log, run = play(jobs, cluster(1, 4), recipe)
    sizes = [gpus for _, name, gpus in log if name == "long"]
    assert sizes[0] == 4
    assert min(sizes) < 4
    assert sizes[-1] == 4
    assert run.jobs.lost.sum() == 0


def test_optimus_waits_for_its_interval() -> None:
    jobs = [(job("first", 0, 2), 1900.0), (job("second", 10, 4), 100.0)]
    log, _ = play(jobs, cluster(1, 4), "optimus")
    assert min(at for at, name, _ in log if name == "second") == 600.0


@pytest.mark.parametrize("recipe", RECIPES)
def test_hard_cases_hold(recipe: str) -> None:
    """More jobs than GPUs, leasts above one, gangs of two roles, jobs that must not be preempted,
    costs of restarting: under `validate`, and everything finishes."""
    rng = np.random.default_rng(5)
    jobs = []
    for i in range(40):
        least = int(rng.integers(1, 4))
        kind = OnPreempt.NEVER if i % 7 == 0 else OnPreempt.CHECKPOINT
        jobs.append(
            (
                job(f"j{i}", i * 20.0, least + int(rng.integers(0, 6)), least, on_preempt=kind),
                float(rng.lognormal(5, 1)),
            )
        )
    two = Shape(roles=(Role("chief", 1), Role("worker", 2, least=1, most=4)))
    gang = job("gang", 900.0, 1)
    jobs.append((type(gang)(name="gang", submitted=gang.submitted, shape=two), 120.0))
    costs = Costs(start=2 * SECOND, checkpoint=5 * SECOND, restore=10 * SECOND)
    _, run = play(jobs, cluster(2, 4), recipe, costs=costs)
    assert run.jobs.state == ["finished"] * 41


@pytest.mark.parametrize("recipe", [*RECIPES, "pollux(population=20,generations=10)"])
def test_a_node_that_goes_and_comes_back(recipe: str) -> None:
    outages = (Outage(0, 100 * SECOND, 400 * SECOND), Outage(1, 700 * SECOND, 760 * SECOND))
    jobs = [(job(f"j{i}", 30.0 * i, 6), 500.0) for i in range(8)]
    log, run = play(jobs, cluster(2, 4), recipe, outages=outages)
    assert run.jobs.state == ["finished"] * 8
    assert all(gpus <= 4 for at, _, gpus in log if 100 <= at < 400)


@pytest.mark.parametrize("recipe", RECIPES)
def test_without_knowledge_it_still_runs(recipe: str) -> None:
    jobs = [(job(f"j{i}", 5.0 * i, 4), 60.0) for i in range(6)]
    _, run = play(jobs, cluster(1, 4), recipe, knows="nothing")
    assert run.jobs.state == ["finished"] * 6


def test_steps_of_several_gpus() -> None:
    """Workers of two GPUs: every size is even."""
    from ganger.core.spec import JobSpec, Needs

    shape = Shape(roles=(Role(size=1, least=1, most=3, needs=Needs(gpus=2)),))
    jobs = [(JobSpec(name=f"j{i}", shape=shape), 100.0) for i in range(3)]
    log, run = play(jobs, cluster(2, 4), "afs")
    assert {gpus for _, _, gpus in log} <= {0, 2, 4, 6}
    assert run.jobs.state == ["finished"] * 3


BOUND = [*RECIPES, "non-intrusive", "dragon", "elan", "smd(slot=60s)"]


def bound(recipe: str, *types: str) -> list[tuple[float, str, int]]:
    """One job of two to four GPUs of these types runs when one comes that must have a V100; there
    are four of those, and of K80. The log of sizes."""
    spec = ClusterSpec(tuple(NodeSpec(gpus=4, gpu_type=kind) for kind in ("V100", "K80")))
    runs, comes = (
        Shape(roles=(Role(size=4, least=2, most=4),), gpu_types=kinds)
        for kinds in (types, ("V100",))
    )
    jobs = [
        (JobSpec(name="runs", shape=runs), 2000.0),
        (JobSpec(name="comes", shape=comes, submitted=100 * SECOND), 100.0),
    ]
    return play(jobs, spec, recipe)[0]


@pytest.mark.parametrize("recipe", BOUND)
def test_idle_gpus_of_a_type_that_they_may_not_use_are_no_room(recipe: str) -> None:
    """Who may run on one type shrinks for who waits for it, though the other type is idle."""
    log = bound(recipe, "V100")
    assert max(gpus for at, name, gpus in log if name == "runs" and at <= 100) == 4
    assert next(at for at, name, gpus in log if name == "comes" and gpus) <= 160, log


@pytest.mark.parametrize("recipe", [*BOUND, "marble", "edl"])
def test_who_may_be_elsewhere_makes_way_for_who_may_not(recipe: str) -> None:
    log = bound(recipe, "V100", "K80")
    runs, comes = (
        [(at, gpus) for at, name, gpus in log if name == one] for one in ("runs", "comes")
    )
    assert runs[0] == (0.0, 4)
    assert comes[0][0] <= 160
    assert runs[-1] == (comes[0][0], 4), "it moved, once, and lost no GPU"


def test_a_pool_is_those_who_may_use_the_same_gpus() -> None:
    """Two chains of types, and a job without GPUs."""
    spec = ClusterSpec(tuple(NodeSpec(gpus=2, gpu_type=kind, cpus=8000) for kind in "abcd"))
    roles = (Role(least=1, most=2),)
    none = Shape(roles=(Role(needs=Needs(gpus=0)),))
    shapes = [Shape(roles=roles, gpu_types=tuple(types)) for types in ("a", "c", "ab", "b", "cd")]
    jobs = [JobSpec(name=f"j{i}", shape=shape) for i, shape in enumerate([*shapes, none])]
    kernel = Kernel(Nodes(spec), declare(jobs), registry.make("elan"))
    kernel.step(Batch(0, [Submitted(job) for job in range(len(jobs))]))
    found = sorted(pool.tolist() for pool in pools(kernel.view, np.arange(6)))
    assert found == [[0, 2, 3], [1, 4], [5]]
