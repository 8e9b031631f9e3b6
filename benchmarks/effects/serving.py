"""Systems that serve requests: how they batch, refuse, share devices and choose models."""

from __future__ import annotations

import numpy as np

from effects.common import Effect, effect, mean, shape, verdict
from effects.serving_common import GPU, affine, in_time, most, run, stream
from ganger.core.spec import ClusterSpec, JobSpec, Kind, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import MINUTE, SECOND
from ganger.lab.serving.hosting import Traffic
from ganger.lab.simulation import Setup, run_one
from ganger.workloads.requests.columns import Requests
from ganger.workloads.requests.merging import merged
from ganger.workloads.requests.processes import diurnal, spike
from ganger.workloads.trace import Trace

KNOWS = "both know the SLO; {} measured latencies, {} nothing more"


@effect
def clipper() -> Effect:
    """Adaptive batches against none."""
    models = affine(("m", 10, 2, 64))

    def measure(seed: int) -> dict[str, float]:
        def keeps(recipe: str, rate: float) -> bool:
            return in_time(run(stream(rate, 20, 0.05, "m", seed=seed), models, recipe)) >= 99

        rates = {
            name: most(lambda rate, name=name: keeps(name, rate), 10, 450)
            for name in ("clipper", "serve.no-batch", "serve.triton")
        }
        return {
            "load, clipper / no batching": rates["clipper"] / rates["serve.no-batch"],
            "load, clipper / whatever waits": rates["clipper"] / rates["serve.triton"],
        }

    ours = mean(measure)
    return Effect(
        "clipper",
        "Poisson, a model of 10 + 2 n ms, one device, SLO 50 ms; the load at which 99 %"
        " are in time",
        "adaptive batches: throughput up to 26x (from memory) within the SLO",
        ours,
        verdict((ours["load, clipper / no batching"], 26)),
        "full batches do 4.8 times as much as single requests here, which also queue sooner; sizes"
        " that are not limited do as well as Clipper's",
        "neither knows latencies",
    )


@effect
def clockwork() -> Effect:
    """Refusing early against being late, overloaded."""
    models = affine(("a", 4, 1, 32), ("b", 9, 4, 16))

    def measure(seed: int) -> dict[str, float]:
        found = {
            name: run(stream(700, 20, 0.1, "a", "b", seed=seed), models, name, "gpu:2")
            for name in ("clockwork", "clipper", "serve.triton")
        }
        rows = {f"in time %, {name}": in_time(each) for name, each in found.items()}
        return rows | {
            f"p99.9 ms, {name}": 1000 * (each.metrics["latency_p999_seconds"] or 0.0)
            for name, each in found.items()
            if name != "serve.triton"
        }

    ours = mean(measure)
    return Effect(
        "clockwork",
        "Poisson, 700 a second for models of 4 + n and 9 + 4 n ms, two devices, SLO"
        " 100 ms, which is more than they can do",
        "answers within the SLO under overload, where queues as Clipper's miss",
        ours,
        shape(
            ours["p99.9 ms, clockwork"] <= 100 < ours["p99.9 ms, clipper"]
            and ours["in time %, clockwork"] > ours["in time %, clipper"]
        ),
        costs=KNOWS.format("clockwork", "clipper"),
    )


@effect
def nanily() -> Effect:
    """Batches by what the tightest request can wait for, against sizes that are fixed."""
    models = affine(("m", 10, 5, 32))
    sizes = (1, 2, 4, 8, 16)

    def measure(seed: int) -> dict[str, float]:
        rows = {}
        for rate in (60, 110, 140, 170, 220):
            requests = [stream(rate, 20, 0.1, "m", seed=seed) for _ in (*sizes, 0)]
            best = max(
                in_time(run(each, models, f"serve.fixed-batch(size={size},timeout=10ms)"))
                for each, size in zip(requests, sizes, strict=False)
            )
            rows[f"points more, {rate}/s"] = in_time(run(requests[-1], models, "nanily")) - best
        return rows

    ours = mean(measure)
    return Effect(
        "nanily",
        "Poisson, a model of 10 + 5 n ms, one device, SLO 100 ms; points in time more"
        " than the best of the fixed sizes 1, 2, 4, 8, 16 at each load",
        "more requests inside the SLO than any fixed batch size",
        ours,
        shape(all(each > -0.01 for each in ours.values()) and max(ours.values()) > 1),
        "fixed sizes refuse nothing: from 170 a second on that is what costs them most",
        KNOWS.format("nanily", "fixed sizes"),
    )


@effect
def dybatch() -> Effect:
    """Slices against whole requests: how much longer each takes than alone."""
    models = affine(("large", 2, 1, 64), ("small", 2, 1, 64))
    alone = {"large": 0.066, "small": 0.006}

    def measure(seed: int) -> dict[str, float]:
        def both() -> Requests:
            return merged(
                [
                    stream(4, 60, 5, "large", seed=seed, items=64),
                    stream(30, 60, 5, "small", seed=seed + 9, items=4),
                ]
            )

        rows = {}
        for name, recipe in (
            ("whole", "serve.no-batch"),
            ("slices of 8", "dybatch"),
            ("of 1", "dybatch(slice=1)"),
        ):
            found = run(both(), models, recipe, watch=True).watched
            assert found is not None
            for model, seconds in alone.items():
                median = found.by_model[model]["latency_p95_seconds"] or 0.0
                rows[f"{model}, {name}"] = median / seconds
        return rows

    ours = mean(measure)
    return Effect(
        "dybatch",
        "Poisson, 4 requests of 64 items and 30 of 4 a second, 2 + n ms, one device;"
        " the 95th percentile of latency over the time alone",
        "the largest slow-down falls with the slices until batching is lost",
        ours,
        shape(
            max(ours["large, slices of 8"], ours["small, slices of 8"])
            < min(ours["small, whole"], ours["large, of 1"])
        ),
        costs="each batch costs its 2 ms, also a slice",
    )


@effect
def ebird() -> Effect:
    """Batches beside each other against one fixed size."""
    models = affine(("m", 4, 1, 16), beside=(1.25, 1.5, 1.8))

    def measure(seed: int) -> dict[str, float]:
        requests = [stream(300, 20, 1, "m", seed=seed, cv=2) for _ in range(3)]
        bird, fixed, waits = (
            run(each, models, recipe).metrics
            for each, recipe in zip(
                requests,
                ("ebird", "serve.fixed-batch(size=8,timeout=10ms)", "serve.triton"),
                strict=True,
            )
        )
        return {
            f"{figure}, {name}": (other[key] or 0.0) / (bird[key] or 1.0)
            for name, other in (("fixed", fixed), ("whatever waits", waits))
            for figure, key in (("mean", "latency_mean_seconds"), ("p99", "latency_p99_seconds"))
        }

    ours = mean(measure)
    return Effect(
        "ebird",
        "bursts (CV 2), 300 a second, a model of 4 + n ms, 1.25, 1.5, 1.8 times as"
        " long beside 1, 2, 3 others, one device; latency of others over its own",
        "lower mean and p99 than one fixed batch size at equal throughput",
        ours,
        shape(ours["mean, fixed"] > 1.02 and ours["p99, fixed"] > 1.02),
        "it hangs on what batches beside each other cost: at 1.5, 2.1 and 2.8 times as long its p99"
        " was 1.4 times that of the fixed size",
        "what runs beside others takes longer",
    )


@effect
def model_switching() -> Effect:
    """A smaller model in the spike, against each model all the time."""
    models = affine(("big", 8, 2, 32), ("small", 2, 0.4, 64), family="f", accuracy=(0.78, 0.70))

    def measure(seed: int) -> dict[str, float]:
        def right(recipe: str, name: str) -> float:
            curve = diurnal(400, 0.9, 60, 120)
            asked = stream(0, 120, 0.05, name, seed=seed, curve=curve)
            found = run(asked, models, recipe).metrics["effective_accuracy"]
            return 100 * (found or 0.0)

        return {
            "right in time %, switching": right("model-switching", "f"),
            "big alone": right("serve.triton", "big"),
            "small alone": right("serve.triton", "small"),
        }

    ours = mean(measure)
    best = max(ours["big alone"], ours["small alone"])
    return Effect(
        "model-switching",
        "models of 8 + 2 n ms, right in 78 %, and 2 + 0.4 n, 70 %, one device,"
        " SLO 50 ms, 40 to 760 a second and back in 2 minutes; right and in time, of all that came",
        "effective accuracy above that of every model alone under a load that changes",
        ours,
        shape(ours["right in time %, switching"] > best + 0.1),
        "it hears of a load after a second, and what waits for the big model then blocks the lane:"
        " at a jump from 60 to 900 a second for 10 of 40 s it had 55.93, the small one alone 70.00",
        "all models stay loaded; it knows accuracies and latencies",
    )


@effect
def scale_reactive() -> Effect:
    """Replicas by open requests against enough for the peak."""
    models = affine(("m", 4, 1, 32))
    role = Role(size=2, least=1, most=8)
    spec = JobSpec(name="web", model="m", kind=Kind.SERVE, shape=Shape((role,)))
    trace = Trace(declare([spec]), np.array([25 * MINUTE]), name="one service")
    cluster = ClusterSpec((NodeSpec(count=1, gpus=8, gpu_type=GPU),))

    def measure(seed: int) -> dict[str, float]:
        rows = {}
        for name in ("scale.reactive", "scale.static-peak"):
            asked = stream(0, 1500, 0.1, "m", seed=seed, curve=spike(150, 1500, 300, 240))
            setup = Setup(
                serving=name,
                traffic=Traffic(asked, models, "serve.triton"),
                window=10 * SECOND,
                seed=seed,
            )
            found = run_one(trace, cluster, "fifo", setup)
            line = found.timeline
            held = float((np.diff(line.seconds) * line.gpus_held[:-1]).sum()) / 3600
            rows[f"in time %, {name}"] = 100 * found.services["web"]["attainment"]
            rows[f"GPU-hours, {name}"] = held
        return rows

    ours = mean(measure)
    return Effect(
        "scale.reactive",
        "a service of 4 + n ms, SLO 100 ms, 150 requests a second and 1500 for 4"
        " of 25 minutes, 1 to 8 replicas",
        "follows the load with fewer replicas than the peak"
        " needs (Ray Serve's rule; no figure is published)",
        ours,
        shape(
            ours["in time %, scale.reactive"] > ours["in time %, scale.static-peak"] - 5
            and ours["GPU-hours, scale.reactive"] < 0.75 * ours["GPU-hours, scale.static-peak"]
        ),
        "the rule looks back 30 s and waits 30 s before it adds: a sudden peak is late until then",
        "a replica loads at once",
    )
