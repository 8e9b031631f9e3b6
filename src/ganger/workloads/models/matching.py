"""Requests beside models: whether every request asks for something that is there, in time."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.units import NEVER, SECOND, format_duration
from ganger.workloads.models.profiles import Model, Models, Pipeline
from ganger.workloads.requests.columns import CHUNK, Chunk, Requests

_MANY: Final = 1e12


def matched(requests: Requests, models: Models, rows: int = CHUNK, slo: int = NEVER) -> Requests:
    """The same requests, checked while they are read: each names a model, a family or a pipeline of
    `models`, and none has less time than the fastest variant takes for it alone; `rows` at a time.
    `slo`: microseconds that requests have that state no deadline.

    Raises BadInput, when they are read.
    """
    fastest = Fastest(models)

    def produce(checked: Requests) -> Iterator[Chunk]:
        floor = np.zeros(0)
        number = 0
        for chunk in requests.chunks(rows):
            checked.remarks = requests.remarks
            new = len(requests.models) - len(floor)
            floor = np.concatenate((floor, np.full(new, np.nan)))
            asked = np.bincount(chunk.model, minlength=len(floor)) > 0
            for code in np.flatnonzero(asked & np.isnan(floor)).tolist():
                row = requests.row(number + int((chunk.model == code).argmax()))
                floor[code] = fastest.seconds(requests.models[code], row)
            _in_time(chunk, floor, requests, number, models, slo)
            number += len(chunk)
            yield chunk

    return Requests(produce, requests.name, requests.source, requests.models, requests.tenants)


def _in_time(
    chunk: Chunk,
    floor: NDArray[np.float64],
    requests: Requests,
    number: int,
    models: Models,
    slo: int,
) -> None:
    """Complain about the first request that nothing can answer in time."""
    due = np.full(len(chunk), NEVER) if chunk.deadline is None else chunk.deadline
    slack = np.where(due < NEVER, due - chunk.arrival, slo)
    late = np.flatnonzero(slack < np.floor(floor * SECOND + 1e-3)[chunk.model])
    if len(late):
        row = int(late[0])
        code = int(chunk.model[row])
        has, takes = format_duration(int(slack[row])), format_duration(floor[code] * SECOND)
        name = requests.models[code]
        raise BadInput(
            f"pipeline {name!r} has {has} to answer, and its stages take {takes} even alone"
            if name in models.pipelines
            else f"model {name!r} has {has} to answer, and no variant answers in less than {takes}"
            " even alone",
            where=requests.row(number + row),
            mend="give a longer SLO",
        )


class Fastest:
    """The least time in which a request can be answered, by what it names."""

    def __init__(self, models: Models) -> None:
        self.models = models
        self.families: dict[str, list[Model]] = {}
        for model in models.models.values():
            if model.family:
                self.families.setdefault(model.family, []).append(model)

    def seconds(self, name: str, where: str) -> float:
        """Of a model (or a variant of its family), of a family, or of a pipeline. Raises BadInput
        where there is none of that name."""
        model = self.models.models.get(name)
        if model is not None:
            return min(map(_alone, self.families.get(model.family, [model])))
        if name in self.families:
            return min(map(_alone, self.families[name]))
        if name in self.models.pipelines:
            return self._path(self.models.pipelines[name])
        known = [*self.models.models, *self.families, *self.models.pipelines]
        near = get_close_matches(name, known, 1)
        mend = f"did you mean {near[0]!r}?" if near else "add it to the models file"
        raise BadInput(f"there is no model {name!r}", where=where, mend=mend)

    def _path(self, pipeline: Pipeline) -> float:
        """The longest way through a pipeline, each stage that runs for sure alone and at its
        fastest."""
        reached: dict[str, float] = {}
        sure: dict[str, int] = {}
        for stage, model in pipeline.stages:
            fed = [(source, items) for source, target, items in pipeline.edges if target == stage]
            sure[stage] = max(
                (int(min(sure[source] * items, _MANY)) for source, items in fed),
                default=0 if fed else 1,
            )
            reached[stage] = max((reached[source] for source, _ in fed), default=0.0)
            if sure[stage]:
                reached[stage] += self.seconds(model, pipeline.name)
        return max(reached.values())


def _alone(model: Model) -> float:
    """Seconds for one item, or for the shortest prompt, on the fastest device."""
    times = [float(each.mean_seconds(each.batch[0])) for each in model.latency]
    times += [float(each.prefill_seconds(1, 1)) for each in model.tokens]
    return min(times)
