"""Profiles from a file: what they say, and what is refused."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from ganger.core.errors import BadInput
from ganger.core.plan import Slot
from ganger.core.profiles import Graph, Profile, Profiles, Stages, Steps
from ganger.core.spec import ClusterSpec, GpuType, JobSpec, Locality, NodeSpec, Role, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import declare
from ganger.lab.log import Log, LogWriter, replay
from ganger.lab.simulation import Setup, run_one
from ganger.sim.physics import Physics
from ganger.workloads.clusters import load_cluster
from ganger.workloads.measured.speeds import read_profiles
from ganger.workloads.synthetic import demo
from worlds import cluster, job, play

DOCUMENT = Path(__file__).parents[2] / "docs/profiles-file.md"
RING = Steps(compute=1.0, gradients=4.0, bandwidth=(8.0, 8.0, 2.0, 1.0))


def written(folder: Path, text: str, name: str = "models.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def sensitive(table: str) -> str:
    return f'format = "ganger.profiles/1"\n[models.a.sensitivity]\n{table}'


def staged(table: str) -> str:
    return f'format = "ganger.profiles/1"\n[[models.a.stages]]\n{table}'


def training(curve: str) -> str:
    return f'format = "ganger.profiles/1"\n[models.a.convergence]\n{curve}'


def test_the_example_of_the_docs_is_read(tmp_path: Path) -> None:
    example = DOCUMENT.read_text().split("```toml\n")[1].split("```")[0]
    known = read_profiles(written(tmp_path, example))
    assert known.of("vgg16").skewed
    assert known.of("bert").steps == Steps(0.35, 1.3, (150, 20, 10, 3))
    curve = known.of("bert").convergence
    assert curve is not None
    assert curve.length() == 18  # 0.81 at 10, 0.86 at 20: 0.85 at 18
    assert known.of("bert").stages == (Stages((0.0005, 0.16, 0.0), 0.178, 1, (1.0, 1.05)),)
    assert known.of("vgg16").utilisation == {"gpu": 0.9, "bandwidth": 0.5}
    assert known.of("vgg16").graph == Graph(15.5, 40, 138, 110, 32)
    assert known.of("unheard of").locality[Locality.RACK] == 1.2
    assert read_profiles("published").of("lm-80").locality[Locality.ANY] == 2.81


def graph(**wrong: float) -> str:
    """A file with a graph of which a number is wrong."""
    told = {"gflops": 1.0, "operators": 1, "parameters": 1.0, "activations": 1.0, "batch": 1}
    lines = "\n".join(f"{field} = {value}" for field, value in (told | wrong).items())
    return f'format = "ganger.profiles/1"\n[models.a.graph]\n{lines}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models]", "format is None"),
        ('format = "ganger.profiles/2"', "newer"),
        ('format = "ganger.profiles/1"', "models"),
        ('format = "ganger.profiles/1"\n[models.a]\nspeed = 2', "models[...]"),
        ('format = "ganger.profiles/1"\n[models.a]\nlocality = [1, 1, 0.5, 1]', "a.locality"),
        ('format = "ganger.profiles/1"\n[models.a]\nscaling = [1, nan]', "a.scaling"),
        ('format = "ganger.profiles/1"\n[models.a]\nby_type = {V100 = 0.0}', "a.by_type"),
        (training("epochs = [2, 1]\nvalues = [2, 1]"), "convergence.epochs"),
        (training("epochs = [1, nan]\nvalues = [2, 1]"), "convergence.epochs"),
        (training("epochs = [1, 2]\nvalues = [2]"), "convergence.values"),
        (training('metric = "accuracy"\nepochs = [1]\nvalues = [1.5]'), "convergence.values"),
        (training('metric = "speed"\nepochs = [1]\nvalues = [1.0]'), "convergence.metric"),
        (training("epochs = [1]\nvalues = [1]\nchange = -0.1"), "convergence.change"),
        (training("epochs = [9]\nvalues = [1]\nevery = 1e-9"), "convergence.every"),
        (training("epochs = [9]\nvalues = [1]\nnoise = -1"), "convergence.noise"),
        (staged("times = []"), "stages.times"),
        (staged("times = [0, 0]"), "stages.times"),
        (staged("times = [1, -1]"), "stages.times"),
        (staged("times = [1, inf]"), "stages.times"),
        (staged("times = [1, 1, 1, 1, 1, 1, 1, 1, 1]"), "stages.times"),
        (staged("times = [1]\niteration = -1"), "stages.iteration"),
        (staged("times = [1]\noverhead = []"), "stages.overhead"),
        (staged("times = [1]\noverhead = [0.9]"), "stages.overhead"),
        (staged("times = [1]\ngpus = 0"), "gpus of [0]"),
        (staged("times = [1]\ngpus = 2") + "\n[[models.a.stages]]\ntimes = [1]", "a.stages"),
        (
            'format = "ganger.profiles/1"\n[models.a.utilisation]\ngpu = 1.5',
            "a.utilisation.gpu: 1.5",
        ),
        *(
            (graph(**{field: value}), f"a.graph.{field}: {value:g}")
            for field, value in (
                ("gflops", 0.0),
                ("operators", 0),
                ("parameters", -1.0),
                ("activations", math.inf),
                ("batch", 0),
                ("gflops", 1.1e9),
            )
        ),
        *(
            (f'format = "ganger.profiles/1"\n[models.a.memory]\npersistent = 1\n{line}', place)
            for line, place in (
                ("ephemeral = -1", "a.memory.ephemeral: -1"),
                ("ephemeral = 1.1e9", "a.memory.ephemeral: 1.1e+09"),
                ("iteration = 9e-7", "a.memory.iteration: 9e-07"),
            )
        ),
        *(
            (f'format = "ganger.profiles/1"\n[models.a.passes]\n{lines}', place)
            for lines, place in (
                ("forward = 0\nbackward = 1", "a.passes.forward: 0"),
                ("forward = 1\nbackward = 1e-7", "a.passes.backward: 1e-07"),
                ("forward = 1\nbackward = 1\nloss = -1", "a.passes.loss: -1"),
            )
        ),
        *(
            (f'format = "ganger.profiles/1"\n[models.a.answering]\n{lines}', place)
            for lines, place in (
                ("load = -1", "a.answering.load: -1"),
                ("accuracy = 1.1", "a.answering.accuracy: 1.1"),
                ("times.T4 = [{mean = [], p99 = []}]", "a.answering.times.T4: not a mean"),
                ("times.T4 = [{mean = [1], p99 = [1, 2]}]", "a.answering.times.T4: not a mean"),
                ("times.T4 = [{mean = [2], p99 = [1]}]", "a.answering.times.T4: a time"),
                ("times.T4 = [{mean = [1], p99 = [1], share = 0}]", "a.answering.times.T4.share"),
            )
        ),
        (sensitive("cpus = [3, 1]\nmemory = [0]\nspeed = [[1], [1]]"), "sensitivity.cpus"),
        (sensitive("cpus = [1]\nmemory = []\nspeed = [[]]"), "sensitivity.memory"),
        (sensitive("cpus = [1, 2]\nmemory = [0]\nspeed = [[1]]"), "sensitivity.speed"),
        (sensitive("cpus = [1, 2]\nmemory = [0]\nspeed = [[1], [nan]]"), "sensitivity.speed: nan"),
        (
            'format = "ganger.profiles/1"\n[models.a]\nscaling = [1]\n[models.a.steps]\n'
            "compute = 1.0\ngradients = 1.0\nbandwidth = [1.0, 1.0, 1.0, 1.0]",
            "beside",
        ),
    ],
)
def test_wrong_profiles_are_refused_with_their_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as error:
        read_profiles(written(tmp_path, text))
    assert said in str(error.value)
    assert "models.toml" in str(error.value)


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match="published"):
        read_profiles("nowhere.toml")


# ---------------------------------------------------------------------- steps by their parts


def test_a_ring_moves_less_than_twice_the_gradients() -> None:
    """4 GB over 8 GB/s: alone 1 s; on two 1 + 2/2 x 0.5 = 1.5 s; on four 1 + 6/4 x 0.5."""
    assert RING.seconds(1, Locality.ISLAND) == 1.0
    assert RING.seconds(2, Locality.ISLAND) == 1.5
    assert RING.seconds(4, Locality.ISLAND) == 1.75
    assert RING.seconds(4, Locality.ANY) == 1.0 + 1.5 * 4
    assert RING.throughput(4, Locality.ISLAND) == pytest.approx(4 / 1.75)
    assert RING.seconds(4, Locality.ISLAND, speed=2.0) == 1.25, "links are no faster"


def test_parameter_servers_are_as_in_the_card_of_smd() -> None:
    """step = 8 / w + w / p: (3, 3) takes 3.667, (4, 2) takes 4.0."""
    for workers, servers, seconds in ((3, 3, 8 / 3 + 1), (4, 2, 4.0)):
        steps = Steps(8.0, 1.0, (2.0, 2.0, 2.0, 2.0), servers=servers, split=True)
        assert steps.seconds(workers, Locality.RACK) == pytest.approx(seconds)


def test_arrays_say_the_same_as_numbers() -> None:
    profile = Profile(by_type={"K80": 0.25}, steps=RING)
    gpus, tiers = np.array([0, 1, 2, 4]), np.array([0, 1, 2, 3])
    each = [
        profile.rate("K80", 1.0, size, 2, Locality(tier))
        for size, tier in zip(gpus.tolist(), tiers.tolist(), strict=True)
    ]
    assert profile.rates("K80", 1.0, gpus, 2, tiers).tolist() == pytest.approx(each)
    assert each[0] == 0.0


def test_the_simulator_runs_by_them() -> None:
    """Asked for two close together (1.5 s a step): over two racks a step takes 5 s."""
    nodes = Nodes(
        ClusterSpec(
            (NodeSpec(count=2, gpus=2, gpu_type="V100"),), gpu_types=(GpuType("V100"),)
        ).check()
    )
    declared = declare([JobSpec(name="a", model="net", shape=Shape((Role(size=2),)))])
    physics = Physics(nodes, Profiles({"net": Profile(steps=RING)}))
    assert physics.rate(declared, 0, (Slot(0, 0b11, 2),)) == 1.0
    apart = physics.rate(declared, 0, (Slot(0, 1), Slot(1, 1)))
    assert apart == pytest.approx(1.5 / RING.seconds(2, Locality.RACK))


def test_what_is_said_of_all_models_alone_is_heard(tmp_path: Path) -> None:
    """A default without any named model counts, in the run and in its log's replay."""
    setup = Setup(profiles=Profiles(default=Profile(by_type={"V100": 0.5})))
    trace, where, log = demo(jobs=20), load_cluster("4x8xV100"), tmp_path / "run.log"
    with ExitStack() as stack:
        run = run_one(
            trace,
            where,
            "fifo",
            setup,
            journal=lambda kernel: stack.enter_context(
                LogWriter(log, kernel, trace, where, "fifo", setup)
            ),
        )
    assert run.jobs.ran == pytest.approx(2 * run.jobs.duration)
    assert replay(log) > 0
    assert Log(log).header.profiles == setup.profiles


def test_a_slow_link_makes_a_recipe_that_knows_wait_for_a_node() -> None:
    """One GPU is free on each of two nodes: apart, steps would take more than three times as long
    for an hour; in 3 s a node has room."""
    profiles = Profiles({"net": Profile(steps=RING)})
    works = [
        job("one", 0, 4, size=2),
        job("two", 0, 9, size=2),
        job("wide", 1, 3600, size=2, model="net"),
    ]
    for recipe, starts in (("spin", 4), ("fifo", 1)):
        run = play(recipe, works, cluster(2, 3), profiles=profiles)
        assert run.started("wide") == starts, recipe
