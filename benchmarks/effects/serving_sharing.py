"""Systems by which several models share a device."""

from __future__ import annotations

import numpy as np

from effects.common import Effect, effect, mean, verdict
from effects.serving_common import GPU, run, stream
from ganger.core.events import Batch
from ganger.core.plan import Plan, Start, Stop
from ganger.core.spec import ClusterSpec, JobSpec, Kind, Needs, NodeSpec, Role, Shape
from ganger.core.state.jobs import declare
from ganger.core.units import SECOND, WHOLE
from ganger.lab.serving.hosting import Traffic
from ganger.lab.simulation import Setup, run_one
from ganger.workloads.models.profiles import Latency, Model, Models
from ganger.workloads.models.reading import read_models
from ganger.workloads.models.shipped import shipped
from ganger.workloads.requests.columns import Requests
from ganger.workloads.requests.merging import merged
from ganger.workloads.trace import Trace

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


_SHARES = tuple(each / 10 for each in range(1, 11))
_NETS = {"small": (4.0, 2.0, 0.2), "middle": (6.0, 3.0, 0.4), "large": (8.0, 4.0, 0.4)}
"""Milliseconds of a batch and of each input in it, on as much of a device as is useful."""


def _shared() -> Models:
    sizes = np.arange(1, 17)
    models = {}
    for name, (base, each, useful) in _NETS.items():
        took = []
        for share in _SHARES:
            times = (base + each * sizes) / 1000 * max(useful / share, 1.0)
            took.append(Latency(GPU, share, sizes, times, 1.1 * times))
        models[name] = Model(name, bytes=1, load={"host": 5.0}, latency=tuple(took))
    return Models(models, {GPU: 0})


@effect
def gslice() -> Effect:
    """Each model on its knee, against equal parts, and against batches that take turns."""
    models, where = _shared(), ClusterSpec((NodeSpec(gpus=1, gpu_type=GPU),))

    def served(recipe: str, share: float, requests: Requests) -> float:
        """Answers in time a second of all services together."""
        shape = Shape((Role(most=1, needs=Needs(share=round(share * WHOLE))),))
        jobs = [JobSpec(name=name, kind=Kind.SERVE, model=name, shape=shape) for name in _NETS]
        trace = Trace(declare(jobs), np.array([130 * SECOND] * len(jobs)), name="three services")
        traffic = Traffic(requests, models, "nanily")
        found = run_one(trace, where, "fifo", Setup(serving=recipe, traffic=traffic))
        return sum(each["goodput_per_second"] or 0.0 for each in found.services.values())

    def measure(seed: int) -> dict[str, float]:
        requests = stream(750, 120, 0.1, *_NETS, seed=seed)
        turns = run(requests, models, "nanily").metrics["goodput_per_second"]
        return {
            "in time a second, gslice": served("gslice", 1.0, requests),
            "equal parts": served("scale.static-peak(replicas=1)", 0.3, requests),
            "in turns": turns or 0.0,
        }

    ours = mean(measure)
    best = ours["in time a second, gslice"]
    return Effect(
        "gslice",
        "three models that can use 20, 40 and 40 % of a device (16 inputs in 36, 54 and 72 ms),"
        " one device, Poisson, 750 requests a second, all alike, SLO 100 ms, `nanily` batches",
        "more requests in time than equal parts of the device, and than models in turns on it",
        ours,
        verdict((best / ours["equal parts"], 1.04), (best / ours["in turns"], 1.04)),
        "the paper's ratios depend on its models, and are not compared; shares do not slow each"
        " other down here; equal parts are of 30 %, as measured in steps of 10",
        "gslice knows latencies on each share, as `nanily` does on all sides; each has the device",
    )


_SLICES = (0.142, 0.285, 0.428, 0.571, 1.0)
_ALONE = {"flat": (40.0, 20.0, 0.5), "middle": (60.0, 30.0, 0.3), "steep": (80.0, 40.0, 0.1)}
"""Milliseconds of a batch and of each input in it, and the part of them for which only a seventh of
the device is of use."""
_ASKED = {"flat": 110, "middle": 70, "steep": 45}
"""Requests a second."""


class _Devices:
    """How many devices hold replicas, over time."""

    def __init__(self) -> None:
        self.held: dict[int, set[tuple[int, int]]] = {}
        self.area, self._at = 0.0, 0

    def append(self, revision: int, batch: Batch, plan: Plan | None, memory: object) -> None:
        """What a plan starts and stops."""
        used = len(set().union(*self.held.values())) if self.held else 0
        self.area += used * max(batch.at - max(self._at, _SETTLED), 0) / SECOND
        self._at = batch.at
        for action in plan.actions if plan else ():
            if isinstance(action, Start) and action.placement:
                self.held[action.job] = {
                    (slot.node, device) for slot in action.placement for device in range(16)
                    if slot.devices >> device & 1
                }  # fmt: skip
            elif isinstance(action, Stop):
                self.held.pop(action.job, None)


_SETTLED = 60 * SECOND
"""Until then loads are not known, or backlogs are worked off."""


@effect
def mig_serving() -> Effect:
    """Slices of devices, against whole ones."""
    sizes = np.arange(1, 17)
    models = {}
    for name, (base, each, flat) in _ALONE.items():
        took = []
        for share in _SLICES:
            times = (base + each * sizes) / 1000 * (flat + (1 - flat) / share)
            took.append(Latency("A100", share, sizes, times, 1.1 * times))
        models[name] = Model(name, bytes=1, load={"host": 5.0}, latency=tuple(took))
    known, where = Models(models, {"A100": 0}), ClusterSpec((NodeSpec(gpus=16, gpu_type="A100"),))

    def served(recipe: str, requests: Requests) -> tuple[float, float]:
        """Mean devices, and the part in time of what came once loads were known, in percent."""
        shape = Shape((Role(least=1, most=40),))
        jobs = [JobSpec(name=name, kind=Kind.SERVE, model=name, shape=shape) for name in _ALONE]
        trace = Trace(declare(jobs), np.array([180 * SECOND] * len(jobs)), name="three services")
        devices, traffic = _Devices(), Traffic(requests, known, "nanily")
        setup = Setup(serving=recipe, traffic=traffic, window=10 * SECOND)
        found = run_one(trace, where, "fifo", setup, journal=lambda kernel: devices)
        came = missed = 0.0
        for series in found.service_windows.values():
            rows = zip(
                series["since"], series["arrivals"], series["late"], series["dropped"], strict=True
            )
            for since, arrivals, late, dropped in rows:
                if since is not None and since * SECOND >= _SETTLED:
                    came += arrivals or 0.0
                    missed += (late or 0.0) + (dropped or 0.0)
        return devices.area * SECOND / (180 * SECOND - _SETTLED), 100 * (1 - missed / came)

    def measure(seed: int) -> dict[str, float]:
        streams = [
            stream(rate, 180, 1.0, name, seed=10 * seed + at)
            for at, (name, rate) in enumerate(_ASKED.items())
        ]
        requests = merged(streams)
        ours, whole = served("mig-serving", requests), served("mark", requests)
        knees = served("gslice", requests)
        return {
            "devices, mig-serving": ours[0],
            "devices, mark on whole ones": whole[0],
            "devices, gslice": knees[0],
            "in time %, mig-serving": ours[1],
            "in time %, mark on whole ones": whole[1],
            "in time %, gslice": knees[1],
        }

    ours = mean(measure)
    saved = ours["devices, mark on whole ones"] / ours["devices, mig-serving"]
    return Effect(
        "mig-serving",
        "three models of which half, 0.3 and 0.1 of the time does not shorten on more than a"
        " seventh of a device (16 inputs in 0.36, 0.54 and 0.72 s on a whole one), 110, 70 and 45"
        " requests a second, Poisson, SLO 1 s, 16 A100, `nanily` batches; after the first minute",
        "up to 40 % fewer GPUs than whole ones, with the same throughput",
        ours,
        verdict((saved, 1 / 0.6)),
        "slices of real models are not measured here; against the exact number of devices it is in"
        " benchmarks/slices.md. gslice divides devices in ways that no slices have",
        "all know latencies on what they use; mark provides for 1.2 times the fullest 5 s of a"
        " window and knows prices, which are equal, mig-serving for 1.2 and gslice for 1.1 times"
        " the mean of one",
    )
