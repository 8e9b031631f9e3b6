"""What the machines of a cluster draw, how much carbon that is, and where the figures come from.

A GPU draws its idle watts while its node is on. While a job computes on it, it draws those of the
job's model, where they were measured (`Profile.watts`), else those at full load; a job that has a
part of a GPU adds that part of the difference. The rest of a node draws the same all the time that
it is on. A node that is off, or down, draws nothing. What nobody states is assumed, and all figures
say so.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ganger.core.profiles import Profiles
from ganger.core.spec import ClusterSpec, GpuType
from ganger.core.state.cluster import Nodes

ASSUMED_WATTS: Final = 300.0
"""Of a GPU at full load, of a type of which nobody states it."""
ASSUMED_IDLE: Final = 0.15
"""The part of its watts at full load that an idle GPU draws, where nobody states it."""
ASSUMED_HOST: Final = 200.0
"""Watts of a node beside its GPUs, where nobody states them."""
WORLD: Final = 481.0
"""Grams of CO2 equivalent for a kWh of electricity: the world's mean of 2023 by Ember (July 2024).
"""


class Watts(NamedTuple):
    """What one kind of machine draws under load and idle, and where the two figures come from:
    `card` (the maker of the board), `measured`, `stated` (by the cluster file) or `assumed`."""

    what: str
    load: float
    idle: float
    load_from: str
    idle_from: str


class Grid(NamedTuple):
    """Grams of CO2 equivalent for a kWh, and the source of that."""

    grams: float
    source: str


def grid_of(cluster: ClusterSpec, stated: float = -1.0) -> Grid:
    """`stated`: for this run; -1: what the cluster file states, else the world's mean."""
    if stated >= 0:
        return Grid(stated, "stated for the run")
    if cluster.carbon >= 0:
        return Grid(cluster.carbon, "cluster file")
    return Grid(WORLD, "world mean of 2023, Ember")


def watts_of(gpu: GpuType) -> Watts:
    """What a GPU of a type draws."""
    load, source = (gpu.watts, gpu.watts_from) if gpu.watts > 0 else (ASSUMED_WATTS, "assumed")
    if gpu.idle_watts >= 0:
        return Watts(gpu.name, load, min(gpu.idle_watts, load), source, gpu.watts_from)
    return Watts(gpu.name, load, ASSUMED_IDLE * load, source, "assumed")


class Power:
    """By node: `base`, the watts that it draws while it is on and nothing computes, and `each`,
    what of that a holder of one of its GPUs answers for (of a node without GPUs: of all its CPUs).
    """

    def __init__(self, nodes: Nodes, profiles: Profiles) -> None:
        self._profiles = profiles
        self._types = [watts_of(gpu) for gpu in nodes.type_specs]
        self._used: set[tuple[str, int]] = set()
        hosts = [group.watts for group in nodes.spec.nodes for _ in range(group.count)]
        codes, gpus = nodes.gpu_type[: nodes.n].tolist(), nodes.gpus[: nodes.n].tolist()
        idle = [self._types[code].idle for code in codes]
        host = [ASSUMED_HOST if watts < 0 else watts for watts in hosts]
        self.base = [own + n * each for own, n, each in zip(host, gpus, idle, strict=True)]
        self.each = [whole / max(n, 1) for whole, n in zip(self.base, gpus, strict=True)]
        self._hosts = sorted({(watts, "stated") for watts in hosts if watts >= 0})
        self._hosts += [(ASSUMED_HOST, "assumed")] * any(watts < 0 for watts in hosts)
        self._codes = set(codes)

    def above_idle(self, model: str, code: int) -> float:
        """The watts beyond idle of a GPU of the type of that `code` that computes `model`."""
        kind = self._types[code]
        watts = self._profiles.of(model).watts.get(kind.what)
        if watts is None:
            return kind.load - kind.idle
        self._used.add((model, code))
        return max(watts - kind.idle, 0.0)

    def sources(self) -> list[Watts]:
        """What was reckoned with: GPU types, models that were measured and ran, and nodes."""
        kinds = enumerate(self._types)
        sources = [each for code, each in kinds if code in self._codes and each.what]
        for model, code in sorted(self._used):
            kind = self._types[code]
            measured = self._profiles.of(model).watts[kind.what]
            model_watts = Watts(
                f"{kind.what}, {model}", measured, kind.idle, "measured", kind.idle_from
            )
            sources.append(model_watts)
        nodes = "a node beside its GPUs"
        return sources + [
            Watts(nodes, watts, watts, source, source) for watts, source in self._hosts
        ]
