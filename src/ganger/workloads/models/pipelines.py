"""Pipelines of a models file, as routers know them."""

from __future__ import annotations

from ganger.core.serving.world import Pipeline, Stage
from ganger.workloads.models.profiles import Models


def pipelines_of(models: Models) -> list[Pipeline]:
    """The pipelines, with the places of their models."""
    place = {name: at for at, name in enumerate(models.models)}
    placed = []
    for pipeline in models.pipelines.values():
        number = {name: at for at, (name, _) in enumerate(pipeline.stages)}
        feeds: list[list[tuple[int, float]]] = [[] for _ in number]
        for source, target, items in pipeline.edges:
            feeds[number[source]].append((number[target], items))
        fed = [to for some in feeds for to, _ in some]
        placed.append(
            Pipeline(
                pipeline.name,
                tuple(
                    Stage(name, place[model], tuple(sorted(feeds[at])), fed.count(at))
                    for at, (name, model) in enumerate(pipeline.stages)
                ),
            )
        )
    return placed
