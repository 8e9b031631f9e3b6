"""What of the host goes with each GPU of a trial."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.core.errors import BadInput
from ganger.core.spec import ClusterSpec, GpuType, Needs, NodeSpec, Role, Shape
from ganger.lab.tuning.live import search_of
from ganger.workloads.experiment.document import Resources
from lab.tuning.searches import Searched, experiment, searched, table

CURVES = table(*([1.0 / (at + 1)] * 4 for at in range(6)))
TWO_CORES = Resources(cpus=2.0, memory="3GiB")


def shape_of(run: Searched, name: str) -> Shape:
    """What a job of the run asked for."""
    jobs = run.kernel.jobs
    return next(jobs.spec(row).shape for row in range(jobs.n) if jobs.name(row).startswith(name))


def node(gpus: int, cores: int, gib: int) -> ClusterSpec:
    """A cluster of one node."""
    nodes = (NodeSpec(gpus=gpus, gpu_type="T4", cpus=1000 * cores, memory=1024 * gib),)
    return ClusterSpec(nodes, (GpuType("T4"),))


@pytest.mark.parametrize(
    ("cores", "gib", "at_once"), [(8, 64, 4), (7, 64, 3), (64, 9, 3), (5, 9, 2), (4, 64, 2)]
)
def test_as_many_train_at_once_as_have_cores_and_memory(cores: int, gib: int, at_once: int) -> None:
    cluster = node(4, cores, gib)
    given = {"trials": 6, "resources": TWO_CORES}
    run = searched(experiment(at_once, **given), CURVES, "tune.random", cluster=cluster)
    assert shape_of(run, "search-trial").roles[0].needs == Needs(cpus=2000, memory=3072)
    assert [step[1:] for step in run.actions()].count(("start", 5)) == 1
    running = [step.at for step in run.steps for verb, _ in step.actions if verb == "start"]
    assert running.count(0.0) == at_once
    if at_once < 4:
        with pytest.raises(BadInput, match=f"with the cores and memory .* cluster has {at_once}"):
            searched(experiment(4, **given), CURVES, "tune.random", cluster=cluster)


def test_a_trial_that_gets_more_gpus_has_the_cores_that_go_with_them() -> None:
    """The first of four is the best: from 5 s on it has four GPUs, and is twice as fast."""
    curves = table(*([1.0 + at] * 200 for at in range(4)))
    wide = Resources(cpus=2.0, most_gpus=4, scaling=[1, 1.4, 1.7, 2])
    search = experiment(4, trials=4, resources=wide, deadline="60s")
    run = searched(search, curves, "hypersched", cluster=node(4, 8, 0))
    assert run.epochs() == [5 + 2 * 55, 1, 1, 1]


def test_without_a_cluster_there_is_what_trials_ask_for() -> None:
    run = searched(experiment(3, trials=6, resources=TWO_CORES), CURVES, "tune.random")
    nodes = run.kernel.nodes
    assert (nodes.cpus[: nodes.n].sum(), nodes.memory[: nodes.n].sum()) == (6000, 9216)


def test_a_live_search_asks_for_it_with_each_gpu() -> None:
    resources = Resources(gpus=2, cpus=1.5, memory="512M")
    fields = search_of(experiment(3, trials=6, resources=resources, command=["train"]), "tune.asha")
    assert (fields["gpus"], fields["cpus"], fields["memory"]) == (6, 1.5, "512M")


def test_what_is_no_amount_is_one_sentence() -> None:
    with pytest.raises(BadInput, match="'much' is not a valid amount of memory") as refused:
        experiment(1, trials=1, resources=Resources(memory="much"))
    assert refused.value.where == "x.toml: resources: memory"


def halves(recipe: str, parallelism: int = 4, **more: Any) -> Searched:
    """Six trials of four epochs of a second, on halves of GPUs."""
    resources = Resources(share=0.5, **more)
    found = experiment(parallelism, trials=6, resources=resources)
    return searched(found, table(*[[3.0, 2.0, 1.0, 0.5]] * 6), recipe)


def test_trials_on_halves_of_gpus_run_two_on_each_and_slow_each_other() -> None:
    """Two GPUs: four trials at once. Each keeps its GPU busy all the time, so that two take twice
    as long: 8 s for four of them, 8 more for the other two, which share one GPU."""
    search = halves("tune.random")
    first = [each for each in search.actions() if each[1] == "start" and each[0] == 0.0]
    assert len(first) == 4
    shape = search.kernel.jobs.spec(1).shape
    assert shape.roles == (Role(needs=Needs(share=500)),)
    metrics = search.run.metrics
    assert (metrics["seconds"], metrics["gpu_hours"]) == (16.0, pytest.approx(16 * 2 / 3600))


@pytest.mark.parametrize(
    "recipe",
    ["tune.random", "tune.sha", "tune.asha", "tune.asha(variant=promote)",
     "tune.median", "tune.pbt", "tune.hyperband(epochs=2,eta=2)"],
)  # fmt: skip
def test_every_baseline_gives_parts(recipe: str) -> None:
    """With `gpu_use` 0.5 two trials on one GPU take 1.25 times as long each."""
    search = halves(recipe, 2, gpu_use=0.5)
    assert sum(word == "start" and not at for at, word, _ in search.actions()) == 2
    assert min(at for at, _, _ in search.actions() if at) in (1.25, 5.0)


def test_cores_and_memory_go_with_a_part() -> None:
    search = halves("tune.random", cpus=1.5, memory="512M")
    needs = Needs(share=500, cpus=1500, memory=512)
    assert search.kernel.jobs.spec(1).shape.roles == (Role(needs=needs),)


def test_a_live_search_asks_for_whole_gpus_for_parts() -> None:
    resources = Resources(share=0.25, cpus=1.5, memory="512M")
    fields = search_of(experiment(8, trials=9, resources=resources, command=["train"]), "tune.asha")
    assert (fields["gpus"], fields["cpus"], fields["memory"]) == (2, 6.0, 2048)
    assert "share=0.25" in fields["recipe"]


@pytest.mark.parametrize(
    ("parallelism", "recipe", "resources", "says"),
    [
        (3, "tune.asha", Resources(share=0.5), "on each of which 2 trials run"),
        (4, "tune.asha", Resources(share=0.5, gpus=2), "a share is of one GPU"),
        (4, "tune.asha", Resources(share=0.5, most_gpus=2), "a share is of one GPU"),
        (4, "hypersched", Resources(share=0.5), "hypersched gives trials no stated part"),
        (4, "tune.asha(gpus=2,share=0.5)", Resources(gpus=2), "a share is of one GPU"),
    ],
)
def test_a_share_that_cannot_be_is_one_sentence(
    parallelism: int, recipe: str, resources: Resources, says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        search_of(experiment(parallelism, trials=6, resources=resources, command=["t"]), recipe)
