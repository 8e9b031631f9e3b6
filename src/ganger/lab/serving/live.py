"""A models file as a live server: lanes of this machine, and the router that drives them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isclose
from typing import Final

from msgspec.structs import replace as changed

from ganger.core.errors import BadInput
from ganger.core.serving.router import Router
from ganger.core.serving.world import Known, Lane, Latencies, Store, World
from ganger.core.units import SECOND
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.run import families_of, known_of
from ganger.recipes.registry import make_router
from ganger.serving.crew import Servable, inspect, joint
from ganger.serving.outliving import Inherited
from ganger.serving.server import Began, Settings, serve
from ganger.workloads.models.profiles import Model, Models

_THOUSANDTH: Final = 1e-3
LANES_MAX: Final = 256


@dataclass(frozen=True)
class Machine:
    """How this machine serves. `lanes`: batches at once; `threads`: cores of each; `device`: as
    whose latencies the file has them, "" for its only one; `memory`: bytes of models for each lane,
    0 for no limit."""

    lanes: int = 1
    threads: int = 1
    device: str = ""
    memory: int = 0


@dataclass(frozen=True)
class Served:
    """What a server is made of. `models`: by what a request may ask for, so families come after
    the models."""

    world: World
    router: Router
    models: list[Servable]
    notes: list[str]


def prepared(models: Models, recipe: str | Router, machine: Machine, seed: int = 0) -> Served:
    """Look at every model of a file, and make the world in which the recipe serves them. Raises
    BadInput, also for what a recipe needs that no machine has."""
    router = make_router(recipe) if isinstance(recipe, str) else recipe
    _refuse(router, models)
    device = _device(models, machine)
    share = _share(models, device, machine.threads)
    notes = []
    servable = [
        inspect(each.name, each.onnx, f"{models.source}: model {each.name!r}")
        for each in models.models.values()
    ]
    known = [
        _known(model, each, device, share)
        for model, each in zip(models.models.values(), servable, strict=True)
    ]
    lanes, stores = _lanes(models, known, router, machine, device, share)
    cores = len(available_cores())
    if machine.lanes * machine.threads > cores:
        notes.append(
            f"{machine.lanes} lanes of {machine.threads} cores share the {cores} of this machine"
        )
    if models.pipelines:
        notes.append("pipelines are not served: each of their models is, by its own name")
    families = families_of(models, known)
    if families and not router.can.chooses:
        names = ", ".join(name for name, _ in families)
        notes.append(
            f"{router.name} does not choose among the models of {names}: each is served by"
            " its own name"
        )
        families = []
    for name, variants in families:
        where = f"{models.source}: family {name!r}"
        servable.append(joint(name, [servable[each] for each in variants], where))
    for name, _ in families:
        _try(router, World(known, lanes, stores, families=families), name)
    world = World(known, lanes, stores, families=families, seed=seed)
    return Served(world, router, servable, notes)


def _try(router: Router, world: World, family: str) -> None:
    """Have a router choose among the models of a family once, where it says what it misses of
    them. Raises BadInput."""
    code = next(at for at in range(len(world.variants)) if world.asked(at) == family)
    columns = {"arrival": [0], "deadline": [SECOND], "model": [code]}
    world.memory = router.begin(world)
    world.requests.add(columns)
    world.open = 1
    router.arrive(world, range(1))


def serve_models(
    served: Served,
    machine: Machine,
    settings: Settings,
    began: Began,
    inherited: Inherited | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Raises BadInput."""
    settings = changed(settings, threads=machine.threads, cores=tuple(available_cores()))
    serve(served.world, served.router, served.models, settings, began, inherited)


def available_cores() -> list[int]:
    """The cores on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _refuse(router: Router, models: Models) -> None:
    """Complain about what cannot be done on a machine."""
    can = router.can
    if can.foresees:
        raise BadInput(
            "it knows requests before they come, which no server does",
            where=router.name,
            mend="simulate it, or serve with another recipe",
        )
    if router.name == "serve.continuous-batching":
        raise BadInput(
            "it batches steps of token models, which are not served yet",
            where=router.name,
            mend="simulate it, or serve with another recipe",
        )
    for model in models.models.values():
        if model.tokens and not model.latency:
            raise BadInput(
                "token models are not served yet",
                where=f"{models.source}: model {model.name!r}",
                mend="leave it out of the file",
            )


def _device(models: Models, machine: Machine) -> str:
    """As whose the latencies of the file count here."""
    names = list(models.devices)
    if machine.device:
        if machine.device not in names:
            raise BadInput(
                f"there is no device {machine.device!r}",
                where=f"{models.source}: --device",
                mend=f"it has {', '.join(names)}",
            )
        return machine.device
    if len(names) != 1:
        raise BadInput(
            f"models were measured on {', '.join(names)}",
            where=models.source,
            mend="say with --device which of them this machine is",
        )
    return names[0]


def _share(models: Models, device: str, threads: int) -> float:
    """The share of the device that so many cores are: that of the machine, or the only one that was
    measured."""
    wanted = threads / len(available_cores())
    measured = [
        {each.share for each in model.latency if each.device == device}
        for model in models.models.values()
    ]
    if all(any(isclose(a, wanted, abs_tol=_THOUSANDTH) for a in each) for each in measured):
        return wanted
    common = set.intersection(*measured)
    if len(common) == 1:
        return common.pop()
    for model, shares in zip(models.models.values(), measured, strict=True):
        if not shares:
            raise BadInput(
                f"it was not measured on {device}",
                where=f"{models.source}: model {model.name!r}",
                mend="measure it here: ganger profile",
            )
    raise BadInput(
        f"no share of {device} was measured for all models that {threads} cores are",
        where=models.source,
        mend=f"measure all with: ganger profile --threads {threads}",
    )


def _known(model: Model, servable: Servable, device: str, share: float) -> Known:
    """What the router knows of a model: it is whole (its segments are not cut here), and takes one
    request at a time where it has no batch axis."""
    known = known_of(replace(model, operators=None), Fleet(((device, 1),)), shares=(share,))
    table = known.latencies[device, share]
    if not servable.signature.batched:
        first = int(model.on(device, share).batch[0])  # type: ignore[union-attr]
        table = Latencies((0, table.mean[first]), (0, table.p99[first]))
    size = known.bytes or servable.path.stat().st_size
    load = max(known.load, 1)
    return changed(
        known,
        latencies={(device, share): table},
        bytes=size,
        load=load,
        parity_of="",  # sums of inputs are not made here
        parity_k=0,
    )


def _lanes(
    models: Models,
    known: Sequence[Known],
    router: Router,
    machine: Machine,
    device: str,
    share: float,
) -> tuple[list[Lane], list[Store]]:
    """Lanes, each a device of its own, or as many beside each other as the recipe wants; with a
    limit of memory that not all models fit into, stores and lanes that copy."""
    count = machine.lanes * router.can.streams
    lanes = [Lane(at, device, device=at // router.can.streams, share=share) for at in range(count)]
    need = sum(each.bytes for each in known)
    if not machine.memory or machine.memory >= need:
        return lanes, []
    for each in known:
        if each.bytes > machine.memory:
            raise BadInput(
                f"it has {each.bytes:,} bytes, and a lane {machine.memory:,}",
                where=f"{models.source}: model {each.name!r}",
                mend="give more with --memory, or leave it out",
            )
    if not router.can.loads:
        raise BadInput(
            f"the models have {need:,} bytes, a lane {machine.memory:,}",
            where=router.name,
            mend="use a recipe that loads models, as in serve.triton(cache=lru)",
        )
    for lane in lanes:
        lane.store = lane.device
    lanes += [
        Lane(count + at, device, device=at, store=at, share=share, copies=True)
        for at in range(machine.lanes)
    ]
    return lanes, [Store(at, machine.memory) for at in range(machine.lanes)]
