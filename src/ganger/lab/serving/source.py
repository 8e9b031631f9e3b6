"""Requests, as a router's plane takes them: checked against models and fleet, a chunk at a time."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.serving.router import Router
from ganger.core.serving.world import Pipeline, World
from ganger.core.units import NEVER
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.tokens import Lengths, lane_of
from ganger.mechanisms.serving.pipeline import expected
from ganger.workloads.models.matching import matched
from ganger.workloads.models.profiles import Models
from ganger.workloads.requests.columns import CHUNK, Chunk, Requests

_TASKS: Final = 10_000
"""No request is more tasks, on average."""
ROWS: Final = 1 << 13
"""So many requests are handed over together; a chunk is several times as large meanwhile."""


def _machine(values: NDArray[Any]) -> Sequence[int]:
    """As the plane keeps them: eight bytes each."""
    return array("q", np.ascontiguousarray(values, np.int64).tobytes())


class Source:
    """The requests as columns for the plane: models by their place in the file, deadlines set.
    Without a router, for whatever could answer them. `slo`: microseconds until the deadline of
    requests that state none; `faster`: they come so many times as fast; `progress` hears how many
    have come."""

    def __init__(
        self,
        requests: Requests,
        models: Models,
        fleet: Fleet,
        world: World,
        router: Router | None,
        slo: int = NEVER,
        faster: float = 1.0,
        progress: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._requests, self._models, self._fleet = requests, models, fleet
        self._router, self._progress = router, progress
        self._slo, self._faster = slo, faster
        self._code = {world.asked(at): at for at in range(len(world.variants))}
        largest = [
            max((each.largest for each in model.latencies.values()), default=0)
            for model in world.models
        ]
        self._largest = np.array(
            [
                *(min(largest[model] for model in those) for those in world.variants if those),
                *(_most_items(each, largest) for each in world.pipelines),
            ],
            np.int64,
        )
        """By what is asked for: of a family, what every variant can take; of a pipeline, what is
        not too many tasks."""
        self._lengths = Lengths(world, requests.row)
        self._labels = [self._labels_of(those) for those in world.variants]
        self._codes, self.dated, self.asks_slo = np.zeros(0, np.int64), False, False
        """`dated`: whether any request has a deadline; `asks_slo`: whether any states none."""

    def _labels_of(self, variants: Sequence[int]) -> NDArray[np.int64] | None:
        """The true classes of the inputs that one of these models was recorded on."""
        models = list(self._models.models.values())
        return next((models[at].labels for at in variants if models[at].labels is not None), None)

    def chunks(self, rows: int = ROWS, ahead: int = CHUNK) -> Iterator[dict[str, Sequence[int]]]:
        """One after the other, of so many rows; `ahead` are read together. Raises BadInput."""
        before = 0
        for chunk in matched(self._requests, self._models, ahead, self._slo).chunks(rows):
            yield self.columns(chunk, before)
            before += len(chunk)
            self._progress(before)

    def columns(self, chunk: Chunk, before: int) -> dict[str, Sequence[int]]:
        """Of a chunk that was checked; so many came before. Raises BadInput."""
        names = self._requests.models
        new = len(names) - len(self._codes)
        self._codes = np.concatenate((self._codes, np.full(new, -1, np.int64)))
        for code in np.unique(chunk.model).tolist():
            if self._codes[code] < 0:
                row = before + int((chunk.model == code).argmax())
                self._codes[code] = self._of(names[code], self._requests.row(row))
        model = self._codes[chunk.model]
        faster = self._faster
        arrival = chunk.arrival if faster == 1 else np.rint(chunk.arrival / faster).astype(np.int64)
        due = np.full(len(chunk), NEVER) if chunk.deadline is None else chunk.deadline
        given = np.where(due < NEVER, due - chunk.arrival, self._slo)
        self.dated = self.dated or bool((given < NEVER).any())
        self.asks_slo = self.asks_slo or bool((due >= NEVER).any())
        due = np.where(given < NEVER, arrival + np.minimum(given, NEVER - 1), NEVER)
        columns: dict[str, Sequence[int]] = {
            "arrival": _machine(arrival), "model": _machine(model),
            "deadline": _machine(due.clip(max=NEVER)),
        }  # fmt: skip
        for name in ("tenant", "items", "input", "label"):
            column = getattr(chunk, name)
            if column is not None:
                columns[name] = _machine(column)
        columns.update(
            self._lengths.columns(
                chunk.prompt_tokens, chunk.output_tokens, chunk.items, model, before
            )
        )
        router = self._router
        judges = router is not None and (router.can.chooses or router.can.weighs)
        if chunk.label is None and chunk.input is not None and judges:
            columns["label"] = self._true(chunk.input, model)
        if chunk.items is not None and router and not router.can.divides:
            self._fits(chunk.items, model, before)
        return columns

    def _true(self, inputs: NDArray[np.int64], model: NDArray[np.int64]) -> list[int]:
        """The labels of inputs, where they were recorded; -1 elsewhere."""
        found = np.full(len(inputs), -1, np.int64)
        for code in np.unique(model).tolist():
            labels = self._labels[code]
            if labels is not None:
                here = (model == code) & (inputs >= 0)
                found[here] = labels[inputs[here] % len(labels)]
        return found.tolist()

    def _of(self, name: str, where: str) -> int:
        """The place of a model that is asked for there. Raises BadInput for what is none, or runs
        nowhere here."""
        at = self._code.get(name)
        if at is None:
            if self._router is not None and name in self._models.pipelines:
                raise BadInput(
                    f"{name!r} is a pipeline, and {self._router.name} does not run pipelines",
                    where=where,
                    mend="use a recipe that does, such as nexus, or let requests name a model",
                )
            if self._router is not None and not self._router.can.chooses:
                raise BadInput(
                    f"{name!r} is a family of models, and {self._router.name} does not choose"
                    " among models",
                    where=where,
                    mend="use a recipe that does, such as clipper, or let requests name a model",
                )
            raise BadInput(
                f"no model of the family {name!r} was measured on {self._fleet}",
                where=where,
                mend="add a latency there to the models file",
            )
        if not self._largest[at]:
            if name in self._models.pipelines:
                self._refuse_pipeline(name)
            model = self._models.models.get(name)
            lanes = [lane_of(each) for each in model.tokens] if model is not None else []
            raise BadInput(
                f"model {name!r} was not measured on {self._fleet}",
                where=where,
                mend=f"use lanes of {' or '.join(lanes)}, as in {lanes[0]}:4"
                if lanes
                else "add its latency there to the models file",
            )
        return at

    def _refuse_pipeline(self, name: str) -> None:
        """Complain about a pipeline of which not a single item can be worked on."""
        for stage, model in self._models.pipelines[name].stages:
            if not self._largest[self._code[model]]:
                raise BadInput(
                    f"model {model!r} of stage {stage!r} was not measured on {self._fleet}",
                    where=f"pipeline {name!r}",
                    mend="add its latency there to the models file",
                )
        raise BadInput(
            f"an item of a request is more than {_TASKS:,} items of its stages",
            where=f"pipeline {name!r}",
            mend="let its edges hand on fewer",
        )

    def _fits(self, items: NDArray[np.int32], model: NDArray[np.int64], before: int) -> None:
        over = np.flatnonzero(items > self._largest[model])
        if len(over):
            row = int(over[0])
            most = int(self._largest[model[row]])
            why = f"its model was measured to batches of {most}"
            if self._router is not None and self._router.can.pipelines:
                name = next((each for each, code in self._code.items() if code == model[row]), "")
                if name in self._models.pipelines:
                    why = f"the stages of {name!r} then have more than {_TASKS:,}"
            raise BadInput(
                f"it brings {int(items[row])} inputs, and {why}",
                where=self._requests.row(before + row),
                mend="measure larger batches, or split the request",
            )


def _most_items(pipeline: Pipeline, largest: Sequence[int]) -> int:
    """Of a request for a pipeline; 0 where a stage cannot run."""
    if not all(largest[stage.model] for stage in pipeline.stages):
        return 0
    return int(_TASKS / sum(expected(pipeline)))
