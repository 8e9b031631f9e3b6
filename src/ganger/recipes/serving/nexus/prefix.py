"""Prefix batching: models that begin with the same layers run those together, then each its own.

Shen et al.: Nexus, SOSP 2019, section 6.3. Models that were specialised from one network share its
first layers; a batch of requests for several of them runs these once for all, and the rest model by
model. Where some of them share more layers than others, those run together for longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final

from ganger.core.serving.verbs import Part
from ganger.core.serving.world import Known, World

Tables = Mapping[int, Sequence[int]]
"""By model, microseconds by inputs."""
_PLANNED: Final = 512
"""No batch of several models is planned with more inputs."""


def alike(models: Sequence[Known]) -> list[list[int]]:
    """By model, all that begin with the same layer and were measured on the same devices, itself
    included."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for at, known in enumerate(models):
        first = known.layers[0] if known.layers else ""
        key = (first, frozenset(known.latencies)) if first else (at,)
        groups.setdefault(key, []).append(at)
    by_model = {at: group for group in groups.values() for at in group}
    return [by_model[at] for at in range(len(models))]


def stretches(
    models: Sequence[Known], some: Sequence[int], first: int = 0
) -> Iterator[tuple[Sequence[int], int, int]]:
    """What a batch of these models runs, one after the other: for which of them, from which layer,
    and before which it ends (0: to their end)."""
    if len(some) == 1:
        yield some, first, 0
        return
    columns = zip(*(models[at].layers[first:] for at in some), strict=False)
    depth = first + sum(1 for _ in takewhile(lambda each: each[0] and len({*each}) == 1, columns))
    if depth > first:
        yield some, first, depth
    apart: dict[tuple[object, ...], list[int]] = {}
    for at in some:
        layers = models[at].layers
        shared = depth < len(layers) and layers[depth] != ""
        apart.setdefault((layers[depth],) if shared else (at, "alone"), []).append(at)
    for those in apart.values():
        yield from stretches(models, those, depth)


def parts(models: Sequence[Known], tables: Tables, counts: Mapping[int, int]) -> list[Part]:
    """A batch of so many inputs for each of these models, in order; its parts have no tasks yet. A
    layer takes as long as in that of its models of which it takes longest."""
    run = []
    for some, first, last in stretches(models, sorted(counts)):
        items = sum(counts[at] for at in some)
        slowest = max(some, key=lambda at: tables[at][items] * models[at].part(first, last))
        run.append(Part(slowest, some, items, first, last))
    return run


def took(models: Sequence[Known], tables: Tables, counts: Mapping[int, int]) -> int:
    """Microseconds of such a batch."""
    return round(
        sum(
            tables[part.model][part.items] * models[part.model].part(part.first, part.last)
            for part in parts(models, tables, counts)
        )
    )


def planned(
    models: Sequence[Known],
    tables: Tables,
    mix: Mapping[int, float],
    group: Sequence[int],
    slo: int,
) -> list[int]:
    """Microseconds by inputs that ask for the models of a group in these proportions; at least for
    one input, and until there is no time for more."""
    largest = min(len(tables[at]) for at in group)
    if len(mix) == 1:
        return list(tables[next(iter(mix))][:largest])
    total = sum(mix.values())
    latency = [0]
    for inputs in range(1, min(largest, _PLANNED + 1)):
        counts, sent, share = dict[int, int](), 0, 0.0
        for at, weight in mix.items():
            share += weight / total if total else 1 / len(mix)
            upto = int(inputs * share + 0.5)
            if upto > sent:
                counts[at], sent = upto - sent, upto
        latency.append(max(took(models, tables, counts), latency[-1]))
        if latency[-1] > slo:
            break
    return latency


def model_of(world: World, number: int) -> int:
    """The model of a request, or of a task."""
    if number < 0:
        return world.tasks[number].model
    return world.requests.model[number - world.requests.base]


def counted(world: World, numbers: Sequence[int]) -> dict[int, int]:
    """By model, the inputs of these requests and tasks."""
    counts: dict[int, int] = {}
    for number in numbers:
        at = model_of(world, number)
        counts[at] = counts.get(at, 0) + world.count_items((number,))
    return counts


def batch(world: World, tables: Tables, numbers: Sequence[int]) -> tuple[Part, ...]:
    """These requests and tasks as a batch. The answered requests stand in the parts that go to the
    end of their model."""
    of = {number: model_of(world, number) for number in numbers}
    return tuple(
        Part(
            part.model,
            [number for number in numbers if of[number] in part.tasks],
            part.items,
            part.first,
            part.last,
        )
        for part in parts(world.models, tables, counted(world, numbers))
    )
