"""Nexus: how many requests a second keep their SLO, against batching that knows no cluster."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from effects.common import Effect, effect, mean, verdict
from ganger.core.units import SECOND
from ganger.lab.serving.fleet import read_fleet
from ganger.lab.serving.run import Setup, serve
from ganger.workloads.models.profiles import Models, Pipeline
from ganger.workloads.models.reading import read_models
from ganger.workloads.requests.processes import constant
from ganger.workloads.requests.synthetic import Mix, generated

_SLO = 120 * SECOND // 1000
_SECONDS = 8.0
_WANTED = 0.99
"""So large a part has to be in time."""
_STEPS = 6


def _traffic() -> Models:
    """Objects are found; cars and pedestrians among them are looked at: V100, published."""
    papers = read_models("papers")
    stages = (("find", "ssd300"), ("car", "resnet50"), ("person", "se-resnext101"))
    query = Pipeline("traffic", stages, (("find", "car", 1.5), ("find", "person", 0.4)))
    models = {name: papers.models[name] for _, name in stages}
    return replace(papers, models=models, pipelines={"traffic": query})


def _most(models: Models, recipe: str, seed: int) -> float:
    """The requests a second of which 99 in 100 are in time, by bisection on a ratio."""
    base = 100.0

    def keeps(rate: float) -> bool:
        requests = generated(
            constant(base),
            seed=seed,
            duration=_SECONDS * rate / base,
            mix=Mix(names=("traffic",), slo=_SLO),
        )
        run = serve(
            requests, models, read_fleet("V100:16"), recipe, Setup(seed=seed, faster=rate / base)
        )
        return (run.metrics["attainment"] or 0.0) >= _WANTED

    low, high = 200.0, 3200.0
    for _ in range(_STEPS):
        middle = sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


@effect
def nexus() -> Effect:
    """Sessions that are planned for, against batch sizes that each model finds for itself."""
    models = _traffic()
    others = {
        "lanes apart": "serve.dedicated",
        "full batches": "serve.fixed-batch",
        "an even split": "nexus(segments=2)",
        "clipper": "clipper",
    }

    def measure(seed: int) -> dict[str, float]:
        own = _most(models, "nexus", seed)
        return {name: own / _most(models, recipe, seed) for name, recipe in others.items()}

    ours = mean(measure)
    return Effect(
        "nexus",
        "a query of three models (SSD300, then ResNet-50 for 1.5 and SE-ResNeXt-101 for"
        " 0.4 items on average), 120 ms, 16 V100; requests a second of which 99 in 100 are in time,"
        " over that of others",
        "1.8 to 12.7x",
        ours,
        verdict((ours["lanes apart"], 1.8)),
        "the paper's Clipper and TensorFlow Serving have GPUs for each model, as lanes apart do;"
        " here `clipper` and full batches have one queue for all lanes, which all hold all models"
        " at no cost, and plans cannot add to that",
    )
