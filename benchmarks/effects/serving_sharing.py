"""Systems by which requests of several models share a device."""

from __future__ import annotations

from effects.common import Effect, effect, mean, verdict
from effects.serving_common import run, stream
from ganger.workloads.models.reading import read_models
from ganger.workloads.models.shipped import shipped

NAMES = ("dense-4096", "shufflenet", "squeezenet", "resnet50", "vgg19")
RATE = 10
"""Requests a second."""


@effect
def irina() -> Effect:
    """What ends soonest, also before what runs, against batches that wait for a time."""
    models = read_models(shipped("measured"))

    def measure(seed: int) -> dict[str, float]:
        latency = {}
        for name, recipe in (
            ("irina", "irina(stacks=no)"),
            ("no preemption", "irina(stacks=no,preempts=no)"),
            ("fixed timeout", "serve.fixed-batch(size=8,timeout=10ms)"),
            ("whatever waits", "serve.triton(size=8)"),
        ):
            requests = stream(RATE, 300, 60, *NAMES, seed=seed)
            metrics = run(requests, models, recipe, "cpu-1:1").metrics
            latency[name] = 1000 * (metrics["latency_mean_seconds"] or 0.0)
        return {
            "mean ms, irina": latency["irina"],
            **{
                f"mean, {name} / irina": took / latency["irina"]
                for name, took in latency.items()
                if name != "irina"
            },
        }

    ours = mean(measure)
    return Effect(
        "irina",
        "five nets as measured on one core (4, 3, 3, 36, 170 ms alone, with the segments into which"
        f" they can be cut), one device, Poisson, {RATE} requests a second, all alike",
        "mean completion 1.3x to 2.5x lower than with a fixed timeout for batches",
        ours,
        verdict((ours["mean, fixed timeout / irina"], 1.3)),
        "nobody measured what part of the core these nets use, so none runs beside another"
        " (`stacks=no`); a stop costs nothing here",
        "irina knows latencies and segments, the others nothing",
    )
