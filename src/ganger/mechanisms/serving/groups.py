"""Groups of lanes: those that may run the same models take from the same queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ganger.core.errors import BadInput
from ganger.core.serving.world import Lane, World


class Groups(NamedTuple):
    """`of_lane`: by lane, -1 for one that copies; `of_model`: by model, the groups that may run it;
    `lanes`: by group, those that are up."""

    of_lane: list[int]
    of_model: list[list[int]]
    lanes: list[list[int]]


def grouped(world: World, name: str, *, each: bool, apart: bool) -> Groups:
    """Find the groups for a router of this name. `each`: every lane is a group by itself; `apart`:
    every model has an equal part of the lanes for itself. Raises BadInput where models can run in
    several groups and no lane is chosen for a request."""
    lanes = [lane for lane in world.lanes if not lane.copies]
    may_run = _parted(world, lanes, name) if apart else [_able(world, lane) for lane in lanes]
    kinds: dict[int | frozenset[int], int] = {}
    of_lane = [-1] * len(world.lanes)
    of_model: list[list[int]] = [[] for _ in world.models]
    for lane, models in zip(lanes, may_run, strict=True):
        key = lane.number if each else models
        if key not in kinds:
            kinds[key] = len(kinds)
            for model in models:
                of_model[model].append(kinds[key])
        of_lane[lane.number] = kinds[key]
    up: list[list[int]] = [[] for _ in kinds]
    for lane in lanes:
        if not lane.down:
            up[of_lane[lane.number]].append(lane.number)
    for model, groups in enumerate(of_model):
        if len(groups) > 1 and not each:
            raise BadInput(
                f"model {world.models[model].name} runs on lanes that serve different models",
                where=name,
                mend="use a recipe that dispatches to lanes",
            )
    return Groups(of_lane, of_model, up)


def _able(world: World, lane: Lane) -> frozenset[int]:
    """The models that a lane may run, of which its memory can hold each by itself."""
    return frozenset(
        model
        for model, known in enumerate(world.models)
        if world.latencies(model, lane) is not None
        and (lane.store < 0 or known.bytes <= world.stores[lane.store].capacity)
    )


def _parted(world: World, lanes: Sequence[Lane], name: str) -> list[frozenset[int]]:
    """One model for each lane, in turn; a lane that cannot run its own runs none. Raises BadInput
    where there are fewer lanes than models."""
    count = len(world.models)
    if len(lanes) < count:
        raise BadInput(
            f"{count} models and {len(lanes)} lanes",
            where=name,
            mend="give at least a lane for each model, or a file of the models that are asked for",
        )
    return [
        frozenset({at % count} if world.latencies(at % count, lane) is not None else ())
        for at, lane in enumerate(lanes)
    ]
