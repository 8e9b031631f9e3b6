"""How fast a model runs on what: the table type shared by the simulator's truth and the oracles.

A profile gives speeds relative to the reference: 1 is the speed at the size the job asks for, on
the reference GPU type, all GPUs in one node.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from operator import attrgetter
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.books.network import hierarchical, parameter_servers, ring_all_reduce
from ganger.core.clocks import Clocks
from ganger.core.host_use import HostUse
from ganger.core.host_use import Sensitivity as Sensitivity
from ganger.core.serving.answering import Answering
from ganger.core.spec import Locality

NO_SLOWDOWN = (1.0, 1.0, 1.0, 1.0)


class StepModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long one training step takes, seconds (Pollux, OSDI 2021, section 3.2).

    Computing: alpha_c + beta_c x local batch. Synchronising n >= 2 replicas: alpha + beta (n - 2),
    with `_r` inside a node and `_n` across nodes. A step: (computing^gamma + sync^gamma)^(1/gamma).
    """

    alpha_c: float
    beta_c: float
    alpha_n: float = 0.0
    beta_n: float = 0.0
    alpha_r: float = 0.0
    beta_r: float = 0.0
    gamma: float = 1.0


class StepTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured seconds per step, and of those waiting for synchronisation, by local batch
    (ascending)."""

    local: tuple[float, ...]
    step: tuple[float, ...]
    sync: tuple[float, ...]


class OnType(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured on one GPU type: least and most examples on one GPU at a time, and step
    times by placement, as in `Goodput`."""

    local: tuple[float, float]
    times: dict[str, StepTimes]


class Goodput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job that chooses its batch size: useful progress is throughput x statistical efficiency.

    `batch`: the batch size M0 that it was tuned for; `most`: the largest allowed; `local`: least
    and most examples on one GPU at a time (gradients accumulate beyond); `examples`: examples
    to train on at M0 until it is done. `noise[b][i]`: the gradient noise scale phi, in examples,
    at batch `batches[b]` from `starts[i]` (share of the work done, ascending from 0) on.
    Step times: `times` by placement, GPUs per node like `1-3-4` (ascending) or nodes and GPUs in
    all like `6/24`; where that is empty, `model`. Efficiency at M is (phi + M0) / (phi + M).
    `only`: the one batch size that it runs at, 0 if it chooses. `local`, `times` and `model` are of
    the reference type; `by_type`: what was measured on others.
    """

    batch: float
    most: float
    local: tuple[float, float]
    examples: float
    starts: tuple[float, ...] = (0.0,)
    batches: tuple[float, ...] = (1.0,)
    noise: tuple[tuple[float, ...], ...] = ((0.0,),)
    times: dict[str, StepTimes] = {}
    model: StepModel | None = None
    only: float = 0.0
    by_type: dict[str, OnType] = {}

    def alone(self) -> float:
        """Seconds per step of M0 on one GPU: the reference, at which progress has speed 1."""
        if self.times:
            measured = self.times["1"]
            return float(np.interp(self.batch, measured.local, measured.step))
        assert self.model is not None, "neither measured times nor a model"
        return self.model.alpha_c + self.model.beta_c * self.batch

    def seconds(self) -> float:
        """The whole job on one GPU at M0."""
        return self.examples / self.batch * self.alone()


class Convergence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What training reports of its model as it goes, and when it is done.

    `values[i]` is the `metric` after `epochs[i]` (both above 0, `epochs` ascending): `loss`, which
    falls, or `accuracy`, which rises to at most 1. Linear between, level before and beyond. It is
    reported after each `every` epochs, off by a lognormal factor of spread `noise`.
    A job is done where the metric reaches `target`; without one (0) where it changes by less than
    `change` of its first value over `window` epochs (Optimus, EuroSys 2018, section 3.1). That may
    be beyond the last of `epochs`: then after the last one, as always where `change` is 0, too.
    `seconds`: of one epoch on the GPUs
    asked for, of the reference type; 0 where only the trace says how long jobs take.
    """

    epochs: tuple[float, ...]
    values: tuple[float, ...]
    metric: Literal["loss", "accuracy"] = "loss"
    target: float = 0.0
    change: float = 0.05
    window: int = 10
    every: float = 1.0
    noise: float = 0.0
    seconds: float = 0.0

    def at(self, epoch: Any) -> Any:
        """The metric after so many epochs; elementwise."""
        return np.interp(epoch, self.epochs, self.values)

    def falling(self, value: Any) -> Any:
        """A reported value as what falls while training goes well: the loss, or the error rate."""
        return value if self.metric == "loss" else 1.0 - value

    def length(self) -> int:
        """Epochs to the end: the iterations to target."""
        last = math.ceil(self.epochs[-1])
        if not (self.target or self.change):
            return last
        steps = np.arange(1, last + self.window + 1)
        falls = self.falling(self.at(steps))
        if self.target:
            done = falls[:last] <= self.falling(self.target)
        else:
            done = falls[:last] - falls[self.window :] < self.change * falls[0]
        return int(done.argmax()) + 1 if done.any() else last


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The requests of one service: from `times[i]` on (seconds after it was submitted, ascending)
    `rates[i]` come each second, until the last of `times`. One worker of its first role answers
    `each` a second."""

    times: tuple[float, ...]
    rates: tuple[float, ...]
    each: float


class Steps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a step of synchronous data-parallel training takes, from its parts.

    `compute`: seconds of one GPU of the reference type on its part of the batch, equal however many
    there are; with `split`, on the whole of a batch that n GPUs divide. `gradients`: GB summed each
    step. `bandwidth`: GB/s between GPUs of one island, node, rack, or anywhere. Without `servers`
    gradients go round a ring: 2 (n - 1) / n times their size passes each link. With them every
    worker pushes all of them and pulls the sum: 2 n / servers times their size passes each
    server's link (the communication terms of Optimus, EuroSys 2018, section 3.2, and of SMD). With
    `per_node` they are summed in each node of so many GPUs first, then round a ring of nodes.
    """

    compute: float
    gradients: float
    bandwidth: tuple[float, float, float, float]
    servers: int = 0
    split: bool = False
    per_node: int = 0

    def seconds(self, gpus: Any, tier: Any, speed: float = 1.0) -> Any:
        """One step on `gpus` GPUs, `speed` times as fast as the reference; elementwise."""
        computing = self.compute / speed / (gpus if self.split else 1)
        bandwidth = np.array(self.bandwidth)[tier]
        if self.per_node:
            inner = np.array(self.bandwidth)[np.minimum(tier, Locality.NODE)]
            wide = self.per_node
            return computing + hierarchical(self.gradients, inner, bandwidth, gpus, wide)
        if self.servers:
            return computing + parameter_servers(self.gradients, bandwidth, gpus, self.servers)
        return computing + ring_all_reduce(self.gradients, bandwidth, gpus)

    def throughput(self, gpus: Any, tier: Any, speed: float = 1.0) -> Any:
        """Batches of one GPU (with `split`: whole ones) per second; elementwise."""
        return (1 if self.split else gpus) / self.seconds(gpus, tier, speed)


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Steps per second by GPU type and number of GPUs, as measured; 0 where the model cannot run.

    Speed 1 is that of the GPUs asked for on `reference`. `apart`: the same on GPUs of more than one
    node, where that makes a difference. `beside`: by another model that shares the GPUs, with a
    gang of the same size.
    """

    steps: dict[str, dict[int, float]]
    reference: str
    apart: dict[str, dict[int, float]] = {}
    beside: dict[str, dict[str, dict[int, float]]] = {}

    def at(self, gpu_type: str, gpus: int, *, apart: bool = False) -> float:
        """Alone on so many GPUs; where that was not measured, on the next smaller number."""
        if apart and gpus in self.apart.get(gpu_type, {}):
            return self.apart[gpu_type][gpus]
        return _smaller(self.steps.get(gpu_type, {}), gpus)

    def shared(self, other: str, gpu_type: str, gpus: int) -> float:
        """Beside `other`; 0 where that was not measured at this very size."""
        return self.beside.get(other, {}).get(gpu_type, {}).get(gpus, 0.0)

    def part(self, other: str, gpu_type: str, gpus: int) -> float:
        """The speed beside `other` over that alone; 0 where either was not measured."""
        alone = self.at(gpu_type, gpus)
        return self.shared(other, gpu_type, gpus) / alone if alone else 0.0


def _smaller(by_size: dict[int, float], gpus: int) -> float:
    if gpus in by_size:
        return by_size[gpus]
    return by_size[max(sizes)] if (sizes := [size for size in by_size if size < gpus]) else 0.0


class Stages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long an iteration alone on `gpus` GPUs uses each resource, seconds: `times`, in the order
    in which it uses them (storage, CPU, GPU, network; or storage and CPU in one).

    `iteration`: seconds of an iteration alone, which may be less than the sum of its stages where
    they overlap; 0: that sum. `overhead[k - 1]`: the factor on an iteration by k jobs that
    interleave their stages, the last one for more (Muri, SIGCOMM 2022).
    """

    times: tuple[float, ...]
    iteration: float = 0.0
    gpus: int = 1
    overhead: tuple[float, ...] = (1.0,)

    @property
    def alone(self) -> float:
        """Seconds of an iteration alone."""
        return self.iteration or sum(self.times)

    @property
    def busy(self) -> float:
        """The mean share of an iteration alone for which a resource is in use."""
        return sum(self.times) / (len(self.times) * self.alone)


class Graph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the computation graph of a model tells without running it: `gflops` of a forward pass of
    one example, `operators` in it, `parameters` (millions), MiB that its activations take for one
    example (`activations`), and examples of one GPU at a time (`batch`)."""

    gflops: float
    operators: int
    parameters: float
    activations: float
    batch: int


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """MiB that a model takes of each of its GPUs: `persistent` from its first iteration to its
    last, `ephemeral` within an iteration (Salus, MLSys 2020). `iteration`: seconds of one alone; 0
    where that is not known, and then nothing of its memory is moved to the host."""

    persistent: float
    ephemeral: float = 0.0
    iteration: float = 0.0

    @property
    def peak(self) -> float:
        """What it takes while it computes."""
        return self.persistent + self.ephemeral


class Passes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds that one worker's `forward` and `backward` pass of a step take alone (only their
    ratio counts). `loss`: where workers back-propagate through a part of the layers only, training
    needs 1 + `loss` x the mean part that is left out times as many steps."""

    forward: float
    backward: float
    loss: float = 0.0


UNSTATED = Memory(0.0)
"""What models are taken to need that do not say it: nothing."""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model. `by_type`: speed factor by GPU type (missing: the type's own `speed`).
    `locality`: time factors for GPUs in one island, node, rack, or anywhere (1 = no slow-down).
    `scaling`: throughput at 1, 2, 3, ... GPUs relative to one GPU; past its end it stays level;
    empty: linear. `skewed`: the largest tensor holds so much of the model that spreading hurts.
    `disturbed`: by another model, the factor by which each job of it on a node that this one uses
    makes this one's steps longer.
    `measured`: steps per second, which stand for `by_type` and `scaling` on the types measured.
    `sensitivity`: how speed depends on CPUs and host memory, which nodes share out by GPUs unless a
    policy says otherwise.
    `steps`: what a step takes by its parts, which stands for `scaling` and `locality`.
    `goodput`: a job that chooses its batch size; its reference is one GPU at the batch size M0, and
    `locality`, `scaling` do not count, nor does `by_type` for types on which it was measured.
    `convergence`: what its jobs tell of their model, and when they are done.
    `watts`: by GPU type, what a GPU draws while it computes this model, as measured.
    `stages`: how long it uses which resource, by number of GPUs, ascending. `utilisation`: by
    resource, such as `gpu` or `bandwidth`, the share of it that the model uses alone, 0 to 1. Both
    tell how fast jobs are that share GPUs, where `measured` does not.
    `graph`: what is known of the model without running it.
    `memory`: what it takes of the memory of each of its GPUs.
    `passes`: how long a forward and a backward pass take.
    `answering`: what answering requests with it takes.
    `host`: its traffic with the memory of its hosts.
    `clocks`: what setting the clocks of its GPUs does to its speed and to what they draw.
    """

    by_type: dict[str, float] = {}
    locality: tuple[float, float, float, float] = NO_SLOWDOWN
    scaling: tuple[float, ...] = ()
    skewed: bool = False
    disturbed: dict[str, float] = {}
    sensitivity: Sensitivity | None = None
    goodput: Goodput | None = None
    measured: Measured | None = None
    steps: Steps | None = None
    convergence: Convergence | None = None
    watts: dict[str, float] = {}
    stages: tuple[Stages, ...] = ()
    utilisation: dict[str, float] = {}
    graph: Graph | None = None
    memory: Memory | None = None
    passes: Passes | None = None
    answering: Answering | None = None
    host: HostUse | None = None
    clocks: Clocks | None = None

    @property
    def shares(self) -> bool:
        """Whether it is known how fast the model runs beside some other on the same GPUs."""
        beside = self.measured is not None and bool(self.measured.beside)
        return beside or bool(self.stages) or bool(self.utilisation)

    @property
    def peak(self) -> float:
        """MiB of each of its GPUs that the model needs at its peak; 0 where that is not stated."""
        return self.memory.peak if self.memory is not None else 0.0

    def stages_on(self, gpus: int) -> Stages | None:
        """The stages on so many GPUs; where these were not measured, on the next smaller number,
        else on the smallest."""
        if not self.stages:
            return None
        return self.stages[max(bisect_right(self.stages, gpus, key=attrgetter("gpus")) - 1, 0)]

    def compute(self, gpus: int) -> float:
        """The part of the time for which the model computes on so many GPUs that it has alone: its
        utilisation of `gpu`, else the last stage but one of an iteration; NaN where neither is
        stated, or it is 0."""
        used, stages = self.utilisation.get("gpu", 0.0), self.stages_on(gpus)
        if not used and stages is not None and len(stages.times) > 1:
            used = min(stages.times[-2] / stages.alone, 1.0)
        return used or math.nan

    def busy(self, gpus: int) -> float:
        """The mean share of the resources that the model uses alone: by its stages, else by its
        utilisation; 1 where neither is stated."""
        stages = self.stages_on(gpus)
        if stages is not None:
            return stages.busy
        uses = self.utilisation.values()
        return sum(uses) / len(uses) if uses else 1.0

    def runs_on(self, gpu_type: str, gpus: int) -> bool:
        """Whether the model is not known to fail on so many GPUs of this type."""
        told = self.measured
        return told is None or gpu_type not in told.steps or told.at(gpu_type, gpus) > 0

    def speedup(self, gpus: int, asked: int) -> float:
        """Throughput on `gpus` GPUs over that on the `asked` ones."""
        if gpus == asked or not asked:
            return 1.0
        return self._at(gpus) / self._at(asked)

    def slowdown(self, tier: Locality, gpus: int) -> float:
        """The time factor of so many GPUs at that spread."""
        if self.steps is None or not gpus:
            return self.locality[tier]
        near: float = self.steps.seconds(gpus, Locality.ISLAND)
        return float(self.steps.seconds(gpus, tier)) / near

    def _at(self, gpus: int) -> float:
        if gpus <= 0:
            return 0.0
        if self.steps is not None:
            return float(self.steps.throughput(gpus, Locality.ISLAND))
        if not self.scaling:
            return float(gpus)
        return self.scaling[min(gpus, len(self.scaling)) - 1]

    def rate(self, gpu_type: str, speed: float, gpus: int, asked: int, tier: Locality) -> float:
        """Work per unit of time on `gpus` GPUs of `gpu_type` (whose own speed is `speed`)."""
        if self.measured is not None and gpu_type in self.measured.steps:
            told = self._told(self.measured, gpu_type, gpus, asked, tier > Locality.NODE)
            return told / self.locality[tier]
        typed = self.by_type.get(gpu_type, speed)
        if self.steps is not None and asked:
            return (
                float(self.steps.throughput(gpus, tier, typed)) / self._at(asked) if gpus else 0.0
            )
        return typed * self.speedup(gpus, asked) / self.locality[tier]

    def _told(self, told: Measured, gpu_type: str, gpus: int, asked: int, apart: bool) -> float:
        if not asked:
            return 1.0
        return told.at(gpu_type, gpus, apart=apart) / told.at(told.reference, asked)

    def rates(
        self, gpu_type: str, speed: float, gpus: NDArray[Any], asked: int, tiers: NDArray[Any]
    ) -> NDArray[np.float64]:
        """`rate` for many sizes and tiers at once; arrays of one shape."""
        if self.measured is not None and gpu_type in self.measured.steps:
            kinds = zip(
                gpus.ravel().tolist(), (tiers > Locality.NODE).ravel().tolist(), strict=True
            )
            each = [self._told(self.measured, gpu_type, size, asked, far) for size, far in kinds]
            told: NDArray[np.float64] = np.array(each).reshape(gpus.shape)
            told /= np.array(self.locality)[tiers]
            return told
        typed = self.by_type.get(gpu_type, speed)
        if self.steps is not None and asked:
            some: NDArray[np.float64] = self.steps.throughput(np.maximum(gpus, 1), tiers, typed)
            return np.where(gpus > 0, some / self._at(asked), 0.0)
        if not asked:
            many = np.ones(gpus.shape)
        elif not self.scaling:
            many = gpus / asked
        else:
            curve = np.array((0.0, *self.scaling))
            many = curve[np.clip(gpus, 0, len(self.scaling))] / self._at(asked)
        speeds: NDArray[np.float64] = typed * many / np.array(self.locality)[tiers]
        return speeds


PLAIN_PROFILE = Profile()


class Profiles(msgspec.Struct, frozen=True):
    """Profiles by model name; `default` for models that have none."""

    models: dict[str, Profile] = {}
    default: Profile = PLAIN_PROFILE

    def __bool__(self) -> bool:
        """Whether they say anything of any model."""
        return bool(self.models) or self.default != PLAIN_PROFILE

    def of(self, model: str) -> Profile:
        """The profile of `model`."""
        return self.models.get(model, self.default)
