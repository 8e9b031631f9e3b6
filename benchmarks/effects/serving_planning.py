"""Systems that plan how many replicas of what services have, by cost."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from effects.common import Effect, effect, mean, shape, verdict
from ganger.core.spec import ClusterSpec, GpuType, JobSpec, Kind, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import MINUTE, SECOND
from ganger.lab.serving.hosting import Traffic
from ganger.lab.simulation import Setup, run_one
from ganger.workloads.models.profiles import Latency, Model, Models, Pipeline
from ganger.workloads.requests.processes import diurnal, spike
from ganger.workloads.requests.synthetic import Mix, generated
from ganger.workloads.trace import Trace

_TYPES: Final = (GpuType("gpu", price=0.9), GpuType("small", price=0.1))
_CLUSTER: Final = ClusterSpec(
    (NodeSpec(gpus=16, gpu_type="gpu"), NodeSpec(gpus=40, gpu_type="small")), _TYPES
)
_LATENCIES: Final = (
    "100 + 40 n ms on `gpu` at $0.9 an hour, 400 + 200 n on `small` at $0.1, SLO 2 s, a replica"
    " loads for {} s, `nanily` batches"
)
KNOWS: Final = "{} knows latencies, prices and the SLO, {} nothing; both pay for what they hold"


@cache
def _models(load: float) -> Models:
    """`m`, and a pipeline `p` of `a` and, for every second request, `b`."""

    def took(device: str, base: float, each: float, largest: int) -> Latency:
        sizes = np.arange(1, largest + 1)
        seconds = np.asarray(base + each * sizes, np.float64)
        return Latency(device, 1.0, sizes, seconds, 1.1 * seconds)

    models = {
        name: Model(
            name,
            bytes=1,
            load={"host": load},
            latency=(
                took("gpu", part * 0.1, part * 0.04, 32),
                took("small", part * 0.4, part * 0.2, 8),
            ),
        )
        for name, part in (("m", 1.0), ("a", 0.5), ("b", 1.0))
    }
    chain = Pipeline("p", (("first", "a"), ("second", "b")), (("first", "second", 0.5),))
    return Models(models, {"gpu": 0, "small": 0}, {"p": chain})


def _serve(
    recipe: str,
    curve: Any,
    minutes: int,
    seed: int,
    *,
    load: float,
    types: tuple[str, ...] = (),
    most: int = 40,
    asks: str = "m",
    router: str = "nanily",
) -> tuple[float, float]:
    """A service of 2 replicas at first: the per cent in time, and what its replicas cost."""
    shape_ = Shape((Role(size=2, least=1, most=most),), types)
    web = JobSpec(name="web", model=asks, kind=Kind.SERVE, shape=shape_)
    trace = Trace(declare([web]), np.array([minutes * MINUTE]), name="one service")
    mix = Mix(names=(asks,), slo=2 * SECOND)
    asked = generated(curve, seed=seed, duration=60.0 * minutes - 30, mix=mix)
    traffic = Traffic(asked, _models(load), router)
    found = run_one(trace, _CLUSTER, "fifo", Setup(serving=recipe, traffic=traffic, seed=seed))
    assert found.account is not None
    return 100 * found.services["web"]["attainment"], found.account.costs["services"]


@effect
def mark() -> Effect:
    """The cheapest types for the load that is forecast, against GPUs by how busy they are."""

    def measure(seed: int) -> dict[str, float]:
        curve, rows = spike(15, 120, 900, 300), dict[str, float]()
        for name, recipe, types, most in (
            ("mark", "mark", (), 40),
            ("threshold", "scale.threshold", ("gpu",), 12),
            ("peak", "scale.static-peak", ("gpu",), 10),
        ):
            rows[f"in time %, {name}"], rows[f"dollars, {name}"] = _serve(
                recipe, curve, 40, seed, load=20, types=types, most=most
            )
        return rows

    ours = mean(measure)
    ratio = ours["dollars, threshold"] / ours["dollars, mark"]
    equal = ours["in time %, mark"] >= ours["in time %, threshold"] - 0.5
    return Effect(
        "mark",
        "15 requests a second, 120 for 5 of 40 minutes; " + _LATENCIES.format(20),
        "up to 7.8x cheaper than scaling GPUs by a threshold at the same part in time",
        ours,
        verdict((ratio if equal else 0.5, 7.8)),
        "functions are left out: it is late in the burst until what it launches has loaded; with"
        " enough for the peak all the time (`peak`) next to nothing is late",
        KNOWS.format("mark", "the others"),
    )


@effect
def barista() -> Effect:
    """Replicas that are ready when a daily load comes, against replicas by open requests."""

    def measure(seed: int) -> dict[str, float]:
        curve, rows = diurnal(15, 0.8, 1800, 3600), dict[str, float]()
        for name, recipe in (
            ("barista", "barista(interval=2m,season=60m)"),
            ("reactive", "scale.reactive"),
        ):
            rows[f"in time %, {name}"], rows[f"dollars, {name}"] = _serve(
                recipe, curve, 180, seed, load=60, types=("gpu",), most=16
            )
        return rows

    ours = mean(measure)
    return Effect(
        "barista",
        "3 to 27 requests a second and back each hour, for 3 hours, on `gpu` only; "
        + _LATENCIES.format(60),
        "fewer are late than with reactive scaling at equal cost (in words)",
        ours,
        shape(
            ours["in time %, barista"] > ours["in time %, reactive"]
            and ours["dollars, barista"] <= 1.05 * ours["dollars, reactive"]
        ),
        "as many are late as with reactive scaling, for less; the first hour it has no cycle to go"
        " by, and a replica counts as one request after another, although batches do more",
        KNOWS.format("barista", "reactive"),
    )


@effect
def inferline() -> Effect:
    """Replicas for each stage, planned and tuned, against replicas of the whole pipeline."""

    def measure(seed: int) -> dict[str, float]:
        curve, rows = spike(10, 40, 600, 120), dict[str, float]()
        for name, recipe, types, most in (
            ("inferline", "inferline", (), 40),
            ("whole", "scale.threshold", ("gpu",), 16),
            ("whole, peak", "scale.static-peak", ("gpu",), 8),
        ):
            rows[f"in time %, {name}"], rows[f"dollars, {name}"] = _serve(
                recipe,
                curve,
                20,
                seed,
                load=10,
                types=types,
                most=most,
                asks="p",
                router="serve.least-loaded(size=4)",
            )
        return rows

    ours = mean(measure)
    late = {name: 100 - ours[f"in time %, {name}"] for name in ("inferline", "whole")}
    return Effect(
        "inferline",
        "a pipeline whose first model takes 50 + 20 n ms on `gpu` at $0.9 an hour and 200 + 100 n"
        " on `small` at $0.1, and whose second, for every second request, takes twice that; 10"
        " requests a second, 40 for 2 of 20 minutes, SLO 2 s, a replica loads for 10 s,"
        " `serve.least-loaded(size=4)`; others run the whole pipeline on each `gpu`",
        "up to 7.6x cheaper than scaling the pipeline as a whole, and up to 32x fewer late",
        ours,
        verdict(
            (ours["dollars, whole"] / ours["dollars, inferline"], 7.6),
            (late["whole"] / late["inferline"], 32),
        ),
        "windows are 10 s long: it hears of the burst when one ends, and its replicas load;"
        " enough for the peak all the time is in the last figures",
        KNOWS.format("inferline", "the others"),
    )
