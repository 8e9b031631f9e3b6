"""How much of a GPU, and of its memory, a model uses, from its computation graph: without running
it (Yeung et al., HotCloud 2020; Horus, TPDS 2021).

Both systems train their regressors on measured models. Their measurements are not public, so
ours is trained on the synthetic generator `roofline`: a step computes three forward passes or
streams what they read and write, whichever takes longer on a V100 (15.7 TFLOP/s, 900 GB/s), and
before each operator the GPU waits 10 microseconds for its launch. Use is the part of the step in
which the GPU computes. Nothing of that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np

from ganger.core.profiles import Graph, Profile
from ganger.solve.boost import Floats, Trees, boost, forest

FLOPS: Final = 15.7e12
BYTES: Final = 900e9
LAUNCH_S: Final = 10e-6
PASSES: Final = 3
"""A backward pass computes twice as much as the forward pass."""
SAMPLES: Final = 2000
SEED: Final = 0
_MIB: Final = 1 << 20
_RUNTIME_MIB: Final = 500
"""What the CUDA runtime takes itself."""
_COPIES: Final = 4
"""Of each parameter: its value, its gradient and two moments of the optimiser."""


def roofline(graph: Graph) -> float:
    """The part of a step in which the GPU computes, by the synthetic generator; 0 to 1."""
    computes = PASSES * graph.gflops * 1e9 * graph.batch / FLOPS
    streams = PASSES * (graph.activations * graph.batch * _MIB + graph.parameters * 4e6) / BYTES
    busy = max(computes, streams)
    return busy / (busy + PASSES * graph.operators * LAUNCH_S)


def features(graph: Graph) -> list[float]:
    """What the trees see: the logarithms of the graph's numbers, and of a step's operations,
    bytes and launches."""
    numbers = (graph.gflops, graph.operators, graph.parameters, graph.activations, graph.batch)
    step = (
        graph.gflops * graph.batch,
        graph.activations * graph.batch,
        graph.gflops * graph.batch / graph.operators,
    )
    return [math.log(max(each, 1e-12)) for each in (*numbers, *step)]


def drawn(samples: int = SAMPLES, seed: int = SEED) -> list[Graph]:
    """Graphs by the generator: every number even in its logarithm, over what public models span."""
    low, high = np.log([(0.01, 10, 0.1, 0.1, 1), (100, 1000, 500, 300, 512)])
    rows = np.exp(np.random.default_rng(seed).uniform(low, high, (samples, 5)))
    return [
        Graph(gflops, round(operators), parameters, activations, round(batch))
        for gflops, operators, parameters, activations, batch in rows.tolist()
    ]


@cache
def trained() -> Trees:
    """The boosted trees."""
    graphs = drawn()
    x: Floats = np.array([features(graph) for graph in graphs])
    return boost(x, np.array([roofline(graph) for graph in graphs]), rounds=100, depth=4)


@cache
def predicted_use(graph: Graph) -> float:
    """The share of a GPU's time that a model of this graph is predicted to use."""
    return min(max(trained().at(features(graph)), 0.0), 1.0)


@cache
def forest_trained() -> Trees:
    """A random forest on the same graphs (Liquid, TPDS 2021)."""
    graphs = drawn()
    x: Floats = np.array([features(graph) for graph in graphs])
    return forest(x, np.array([roofline(graph) for graph in graphs]))


@cache
def forest_use(graph: Graph) -> float:
    """As `predicted_use`, by the forest."""
    return min(max(forest_trained().at(features(graph)), 0.0), 1.0)


def predicted_memory(graph: Graph) -> int:
    """MiB of a GPU that a model of this graph needs: parameters of four bytes with their gradients
    and moments, activations of a batch, and the runtime."""
    parameters = _COPIES * graph.parameters * 4e6 / _MIB
    return math.ceil(_RUNTIME_MIB + parameters + graph.activations * graph.batch)


def gpu_memory(profile: Profile) -> int:
    """MiB of each GPU that the model needs at its peak: as stated, else as its graph predicts, else
    0."""
    if profile.memory is None and profile.graph is not None:
        return predicted_memory(profile.graph)
    return math.ceil(profile.peak)


def gpu_use(
    profile: Profile, gpus: int, predict: Callable[[Graph], float] = predicted_use
) -> float:
    """The share of the time for which the model computes on a GPU that it has alone: predicted from
    its graph (by `predict`), else the `gpu` of its utilisation, else the share of its stages, of
    which the GPU's is the last but one; NaN where nothing is known."""
    if profile.graph is not None:
        return predict(profile.graph)
    if "gpu" in profile.utilisation:
        return profile.utilisation["gpu"]
    stages = profile.stages_on(gpus)
    if stages is None or len(stages.times) < 2:
        return math.nan
    return min(stages.times[-2] / stages.alone, 1.0)
