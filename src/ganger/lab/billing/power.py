"""What the machines of a cluster draw, how much carbon that is, and where the figures come from.

A GPU draws its idle watts while its node is on. While a job computes on it, it draws those of the
job's model, where they were measured (`Profile.watts`), else those at full load; a job that has a
part of a GPU adds that part of the difference. The rest of a node draws the same all the time that
it is on. A node that is off, or down, draws nothing. What nobody states is assumed, and all figures
say so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from ganger.core.clocks import parts_of
from ganger.core.profiles import Profiles
from ganger.core.spec import ClusterSpec
from ganger.core.state.cluster import Nodes
from ganger.mechanisms.provisioning.power import ASSUMED_HOST, Watts, idle_watts, watts_of

WORLD: Final = 481.0
"""Grams of CO2 equivalent for a kWh of electricity: the world's mean of 2023 by Ember (July 2024).
"""


Knobs: TypeAlias = Mapping[str, float | bool | str]
FULL: Final[Knobs] = {}


class Grid(NamedTuple):
    """Grams of CO2 equivalent for a kWh, and the source of that."""

    grams: float
    source: str


def figure(value: float) -> str:
    """A figure for people: thousands without decimals, less with up to four digits."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def sources_in_words(watts: Iterable[Watts], grid: Grid) -> list[str]:
    """Where watts and the grid's intensity come from, in sentences."""
    each = "; ".join(
        f"{kind.what} {figure(kind.load)} W ({kind.load_from})"
        + (f", idle {figure(kind.idle)} W ({kind.idle_from})" if kind.idle != kind.load else "")
        for kind in watts
    )
    return [f"Watts: {each}.", f"Carbon: {figure(grid.grams)} g for a kWh ({grid.source})."]


def grid_of(cluster: ClusterSpec, stated: float = -1.0) -> Grid:
    """`stated`: for this run; -1: what the cluster file states, else the world's mean."""
    if stated >= 0:
        return Grid(stated, "stated for the run")
    if cluster.carbon >= 0:
        return Grid(cluster.carbon, "cluster file")
    return Grid(WORLD, "world mean of 2023, Ember")


class Power:
    """By node: `base`, the watts that it draws while it is on and nothing computes, and `each`,
    what of that a holder of one of its GPUs answers for (of a node without GPUs: of all its CPUs).
    """

    def __init__(self, nodes: Nodes, profiles: Profiles) -> None:
        self._profiles = profiles
        self._types = [watts_of(gpu) for gpu in nodes.type_specs]
        self._specs = list(nodes.type_specs)
        self._used: set[tuple[str, int]] = set()
        hosts = [group.watts for group in nodes.spec.nodes for _ in range(group.count)]
        codes, gpus = nodes.gpu_type[: nodes.n].tolist(), nodes.gpus[: nodes.n].tolist()
        groups = [group for group in nodes.spec.nodes for _ in range(group.count)]
        kinds = [self._types[code] for code in codes]
        self.base = [idle_watts(*each) for each in zip(groups, kinds, strict=True)]
        self.each = [whole / max(n, 1) for whole, n in zip(self.base, gpus, strict=True)]
        self._hosts = sorted({(watts, "stated") for watts in hosts if watts >= 0})
        self._hosts += [(ASSUMED_HOST, "assumed")] * any(watts < 0 for watts in hosts)
        self._codes = set(codes)

    def above_idle(self, model: str, code: int, knobs: Knobs = FULL) -> float:
        """The watts beyond idle of a GPU of the type of that `code` that computes `model`, at the
        clocks that `knobs` say."""
        kind, profile = self._types[code], self._profiles.of(model)
        watts = profile.watts.get(kind.what)
        if watts is not None:
            self._used.add((model, code))
        watts = kind.load if watts is None else watts
        if knobs and profile.clocks is not None:
            watts *= profile.clocks.power(*parts_of(self._specs[code], knobs))
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
