"""What running costs: speed on a placement, start, checkpoint, restore, failure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ganger.core.books.ledger import members
from ganger.core.books.links import Links, Transfer
from ganger.core.clocks import parts_of
from ganger.core.plan import Placement
from ganger.core.profiles import Profiles
from ganger.core.spec import Locality
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Declared
from ganger.estimate.sharing.interference import Interference
from ganger.estimate.sharing.splicing import spliced
from ganger.sim.pace import Floats, Pace, counts_of
from ganger.sim.rescale import protocol

TRICKLE = 0.01
"""The least factor by supply: no host is so busy that a job stands still."""


@dataclass(frozen=True)
class Costs:
    """Delays in microseconds, for jobs that declare none of their own.

    `start`: from the decision until a first attempt computes. `checkpoint`: from a stop until the
    devices are free. `restore`: from the decision until a later attempt computes.
    `load`: how much of `start` and `restore` comes after the launch, which is what Started tells:
    the job counts as running then. `finish`: from the end of the work until the devices are free.
    `checkpoint_every`: work between automatic checkpoints, 0 for none; a failure falls back to
    the last. `profiling`: what a job's first attempt spends on being measured, without progress
    that counts, before it computes; only under policies that need throughputs. `boot`: from
    switching a node on until it can be used. `slicing`: what a start takes more where a slice of a
    device (MIG) has to be made for it. `rescale`: the name of the protocol (see `sim.rescale`) by
    which a running job gets other GPUs; "" for a stop and a start. `by_step`: the transfers of
    every step are flows on the links between nodes; else jobs move in the mean (see `sim.links`).
    """

    start: int = 0
    checkpoint: int = 0
    restore: int = 0
    load: int = 0
    finish: int = 0
    checkpoint_every: int = 0
    profiling: int = 0
    boot: int = 0
    slicing: int = 0
    rescale: str = ""
    by_step: bool = False


@dataclass
class Physics:
    """Speeds and costs on one cluster."""

    nodes: Nodes
    profiles: Profiles = field(default_factory=Profiles)
    costs: Costs = field(default_factory=Costs)

    def __post_init__(self) -> None:
        speeds = {gpu.speed for gpu in self.nodes.type_specs}
        self.protocol = protocol(self.costs.rescale)
        self.steady = 1.0 - self.protocol.overhead
        """Speed that is left beside what the rescale protocol costs all the time."""
        self.uniform = not self.profiles.models and self.profiles == Profiles() and speeds == {1.0}
        self.uniform &= self.steady == 1.0
        """Every job of the size it asked for runs at speed 1 anywhere."""
        every = [self.profiles.default, *self.profiles.models.values()]
        self.disturbing = any(profile.disturbed for profile in every)
        """Jobs on one node may slow each other down, whichever GPUs they hold."""
        self.fed = any(profile.sensitivity is not None for profile in every)
        """Speeds depend on cores or host memory."""
        self.streaming = any(self.nodes.bandwidth)
        self.streaming &= any(profile.host is not None for profile in every)
        """Jobs may slow each other down by their traffic with the memory of a host."""
        self.mixed = self.disturbing or self.fed or self.streaming
        """Whether jobs on one node may change each other's speeds."""
        self.changing = self.mixed or self.protocol.pause is not None
        self.changing |= any(each.shares for each in every)
        network, moves = self.nodes.spec.network, any(each.steps is not None for each in every)
        self.links = Links(self.nodes, network) if network is not None and moves else None
        """The links between nodes, where they and what jobs move over them are known."""
        self.changing |= self.links is not None
        self.clocked = any(each.clocks is not None for each in every)
        self.clocked &= any(kind.clocks or kind.memory_clocks for kind in self.nodes.type_specs)
        """Whether setting clocks changes speeds."""
        self.changing |= self.clocked
        """Speeds change while jobs run, with more than their own progress (see `sim.speeds`)."""
        self.interference = Interference(
            self.profiles, {kind.name: kind.memory for kind in self.nodes.type_specs}
        )
        """What is left of the speed of jobs that share GPUs."""
        self._known: dict[tuple[str, str, int, int, Locality], float] = {}
        self.paces = {
            model: Pace(profile.goodput)
            for model, profile in self.profiles.models.items()
            if profile.goodput is not None
        }
        """The models whose speed changes with progress, on their reference type."""
        self._paces: dict[tuple[str, str], Pace] = {}

    def tier(self, placement: Placement) -> Locality:
        """How close together the GPUs of `placement` are."""
        nodes = self.nodes
        first = placement[0].node
        if len({slot.node for slot in placement}) > 1:
            racks = {int(nodes.rack[slot.node]) for slot in placement}
            return Locality.RACK if len(racks) == 1 else Locality.ANY
        island = int(nodes.island[first])
        devices = 0
        for slot in placement:
            devices |= slot.devices
        if island and len({device // island for device in members(devices)}) > 1:
            return Locality.NODE
        return Locality.ISLAND

    def supply(
        self,
        declared: Declared,
        job: int,
        placement: Placement,
        given: dict[str, float],
        cpus_each: Callable[[int], float] | None = None,
    ) -> float:
        """The factor on a job's speed by the CPUs and the host memory that it has per GPU: what a
        policy has `given` it, else what it asks for, else its GPUs' part of its poorest node
        (`cpus_each`: what a GPU of that node has of its CPUs where others take some). A node that
        states neither feeds all of them as their run times suppose, and what it does not state it
        has plenty of."""
        sensitivity = self.profiles.of(declared.models[declared.model[job]]).sensitivity
        if sensitivity is None:
            return 1.0
        nodes, asked = self.nodes, declared.shapes[declared.shape[job]].roles
        stated = False
        least = [math.inf, math.inf]
        for slot in placement:
            gpus, need = int(nodes.gpus[slot.node]), asked[slot.role].needs
            if not slot.devices:
                continue
            each = max(need.gpus, 1)
            for at, (own, all_of_it) in enumerate(
                [
                    (need.cpus, int(nodes.cpus[slot.node])),
                    (need.memory, int(nodes.memory[slot.node])),
                ]
            ):
                stated |= all_of_it > 0
                if own:
                    least[at] = min(least[at], own / each)
                elif all_of_it:
                    part = all_of_it / gpus
                    if cpus_each is not None and at == 0:
                        part = cpus_each(slot.node)
                    least[at] = min(least[at], part)
        if not stated and not given:
            return 1.0
        cpus = given.get("cpus_per_gpu", least[0])
        return max(sensitivity.at(cpus, given.get("memory_per_gpu", least[1])), TRICKLE)

    def slowing(
        self, declared: Declared, job: int, placement: Placement, knobs: Mapping[str, Any]
    ) -> float:
        """How many times as long a job's steps take at the clocks that `knobs` say."""
        clocks = self.profiles.of(declared.models[declared.model[job]]).clocks
        if clocks is None or not knobs:
            return 1.0
        nodes = self.nodes
        kinds = {int(nodes.gpu_type[slot.node]) for slot in placement if slot.devices}
        parts = [parts_of(nodes.type_specs[kind], knobs) for kind in kinds]
        return max((clocks.slowing(*each) for each in parts), default=1.0)

    def pace(
        self, declared: Declared, job: int, placement: Placement
    ) -> tuple[Pace, Floats] | None:
        """The pace of a job whose speed changes with progress, and its speeds on `placement` from
        each of its starts on; None for other jobs."""
        model = declared.models[declared.model[job]]
        if model not in self.paces:
            return None
        kind = self.nodes.type_specs[self.nodes.gpu_type[placement[0].node]]
        pace, factor = self.pace_on(model, kind.name, kind.speed)
        return pace, self.steady * factor * pace.speeds(counts_of(placement))

    def pace_on(self, model: str, gpu_type: str, speed: float) -> tuple[Pace, float]:
        """The pace of a model on a GPU type, and the factor on its speeds: where it was not
        measured there, the reference type's, and how much faster the type is."""
        profile = self.profiles.of(model)
        assert profile.goodput is not None, "only a profile of goodput has a pace"
        if gpu_type not in profile.goodput.by_type:
            return self.paces[model], profile.by_type.get(gpu_type, speed)
        if (model, gpu_type) not in self._paces:
            self._paces[model, gpu_type] = Pace(profile.goodput, gpu_type)
        return self._paces[model, gpu_type], 1.0

    def rate(self, declared: Declared, job: int, placement: Placement) -> float:
        """Work per microsecond of `job` on `placement`; 1 on the reference."""
        if not placement:
            return 1.0
        gpus, asked = 0, declared.gpus[job]
        for slot in placement:
            gpus += slot.devices.bit_count()
        if self.uniform:
            return 1.0 if gpus == asked or not asked else gpus / int(asked)
        asked = int(asked)
        if not gpus:
            return self.steady
        profile = self.profiles.of(declared.models[declared.model[job]])
        if profile.goodput is not None:
            found = self.pace(declared, job, placement)
            assert found is not None, "a profile of goodput has a pace"
            return float(found[1][0])
        kind = self.nodes.type_specs[self.nodes.gpu_type[placement[0].node]]
        tier = self.tier(placement)
        key = declared.models[declared.model[job]], kind.name, gpus, asked, tier
        if key not in self._known:
            size, part = self.spliced(gpus, asked)
            alone = profile.rate(kind.name, kind.speed, size, asked, tier)
            self._known[key] = self.steady * part * alone
        return self._known[key]

    def transfer(self, declared: Declared, job: int, placement: Placement) -> Transfer | None:
        """What the job moves between nodes in each step; None: nothing, or it is not known."""
        profile = self.profiles.of(declared.models[declared.model[job]])
        if self.links is None or profile.steps is None or profile.goodput is not None:
            return None
        kind = self.nodes.type_specs[self.nodes.gpu_type[placement[0].node]]
        speed = profile.by_type.get(kind.name, kind.speed)
        return self.links.transfer(profile.steps, placement, self.tier(placement), speed)

    def spliced(self, gpus: int, asked: int) -> tuple[int, float]:
        """The size at which a job on `gpus` GPUs that asks for `asked` computes, and what is left
        of its speed there: its own size and all, unless the rescale protocol splices replicas."""
        overhead = self.protocol.splicing
        if overhead is None or not 0 < gpus < asked:
            return gpus, 1.0
        return asked, spliced(asked, gpus, overhead)
