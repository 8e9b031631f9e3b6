"""One run: a router over requests on a fleet."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.serving.router import Router
from ganger.core.serving.tokens import Times
from ganger.core.serving.world import Known, Lane, Latencies, Pipeline, Stage, World
from ganger.core.units import NEVER, SECOND, format_duration
from ganger.lab.serving.bound import Bound, Rates, bounded
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.future import Future
from ganger.lab.serving.tally import Tally
from ganger.lab.serving.tokens import Lengths, Usual, lane_of, rooms_of, speaks, usual_of
from ganger.lab.serving.trouble import UNTROUBLED, Trouble
from ganger.lab.serving.watching import Watched, Watching
from ganger.mechanisms.serving.pipeline import expected
from ganger.recipes.registry import make_router
from ganger.sim.requests.outputs import Outputs
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane, Watch
from ganger.sim.requests.trouble import drive
from ganger.workloads.models.matching import matched
from ganger.workloads.models.profiles import Model, Models
from ganger.workloads.requests.columns import Chunk, Requests

_TIERS: Final = ("host", "disk", "remote")
_LARGEST: Final = 1 << 14
"""No table of latencies is longer."""
_TASKS: Final = 10_000
"""No request is more tasks, on average."""
_USUAL: Final = Usual()


@dataclass(frozen=True)
class Setup:
    """What decides how a run goes, besides requests, models, fleet and recipe.

    `slo`: microseconds until the deadline of requests that state none; `noise`: how much of the
    measured spread of latencies there is; `faster`: requests come so many times as fast; `trouble`:
    devices that fail or are slow; `slo_ttft`, `slo_tpot`: microseconds until the first token, and
    for each further one, that an answer of a token model in time does not exceed; `watch`: whether
    what a report draws is kept.
    """

    slo: int = NEVER
    noise: float = 1.0
    seed: int = 0
    faster: float = 1.0
    trouble: Trouble = UNTROUBLED
    slo_ttft: int = NEVER
    slo_tpot: int = NEVER
    watch: bool = False


class Place(NamedTuple):
    """Where recipes are compared: on which fleet, at which load, with which SLO (microseconds, for
    requests that state no deadline)."""

    fleet: str
    faster: float = 1.0
    slo: int = NEVER

    @property
    def slo_seconds(self) -> float | None:
        """None where none is set."""
        return None if self.slo == NEVER else self.slo / SECOND

    def told(self, among: Collection[Place]) -> str:
        """What tells it from the others; "" where it is the only one."""
        words = (self.fleet, f"load {self.faster:g}", f"SLO {format_duration(self.slo)}"
                 if self.slo < NEVER else "no SLO")  # fmt: skip
        return ", ".join(word for at, word in enumerate(words)
                         if len({each[at] for each in among}) > 1)  # fmt: skip


@dataclass
class ServingRun:
    """What one run leaves behind: figures, drops by reason, and figures by model."""

    recipe: str
    fleet: str
    setup: Setup
    metrics: Mapping[str, float | int | None]
    dropped: Mapping[str, int]
    models: list[dict[str, Any]]
    remarks: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0
    in_time: list[tuple[int, int]] = field(default_factory=list)
    """Of blocks of requests that follow each other: how many, and how many in time."""
    needs: str = ""
    """`future`: it was told which requests would come, so it is a bound; else nothing."""
    classes: list[dict[str, Any]] = field(default_factory=list)
    """Figures by model, tenant and SLO; none where each model has one class."""
    watched: Watched | None = None
    dated: bool = True
    """Whether any request had a deadline."""

    @property
    def place(self) -> Place:
        """What it can be compared with."""
        return Place(self.fleet, self.setup.faster, self.setup.slo)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        per_second = self.metrics["requests"] or 0
        return {
            "recipe": self.recipe, "needs": self.needs or None,
            "fleet": self.fleet, "seed": self.setup.seed,
            "faster": self.setup.faster, "slo_seconds": self.place.slo_seconds,
            "metrics": dict(self.metrics),
            "dropped_by_reason": dict(self.dropped), "models": self.models,
            "classes": self.classes,
            "simulation": {
                "cpu_seconds": self.cpu_seconds,
                "requests_per_cpu_second": per_second / self.cpu_seconds
                if self.cpu_seconds else None,
            },
        }  # fmt: skip


def serve(
    requests: Requests, models: Models, fleet: Fleet, recipe: str | Router, setup: Setup, *,
    per_request: Path | None = None, progress: Callable[[int], None] = lambda count: None,
) -> ServingRun:  # fmt: skip
    """Drive the router over all requests; `progress` hears how many have come. Raises BadInput."""
    router = make_router(recipe) if isinstance(recipe, str) else recipe
    began = time.process_time()
    known = all_known(requests, models, fleet)
    lanes, stores = fleet.lanes(_memory(known, models, fleet, router), router.can.streams)
    give_caches(lanes, known, models, router)
    if router.can.streams > 1:
        _priced(known, fleet, router)
    families = families_of(models, known) if router.can.chooses else []
    pipelines = pipelines_of(models) if router.can.pipelines else []
    world = World(known, lanes, stores, families=families, pipelines=pipelines, seed=setup.seed,
                  tenants=requests.tenants.values)  # fmt: skip
    physics = Physics(known, noise=setup.noise, seed=setup.seed)
    right = [right_of(model) for model in models.models.values()]
    source = Source(requests, models, fleet, world, setup, router, progress)
    if router.can.foresees:
        world.future = Future.of(Source(requests, models, fleet, world, setup, router).chunks())
    made = None if per_request is None else per_request.with_name(per_request.name + ".new")
    out = None if made is None else made.open("w", newline="", encoding="utf-8")
    try:
        tally = Tally(world, right, out, setup.slo_ttft, setup.slo_tpot)
        watching = Watching(world) if setup.watch else None
        watches: list[Watch] = [tally] if watching is None else [tally, watching]
        plane = Plane(world, router, physics, source.chunks(), watches, tally.retired,
                      outputs=outputs_of(models) if families else None)  # fmt: skip
        drive(plane, setup.trouble.changes(fleet, setup.seed))
        plane.finish()
        if not tally.requests:
            raise BadInput("there are no requests", where=requests.name, mend="give some")
    except BaseException:
        if out is not None and made is not None:
            out.close()
            made.unlink(missing_ok=True)
        raise
    if out is not None and made is not None and per_request is not None:
        out.close()
        made.replace(per_request)  # what was there before is lost only to a whole one
    asked, in_time, dropped = tally.by_model.tolist()
    by_model = [
        {"model": world.asked(at), "requests": asked[at], "attainment": in_time[at] / asked[at],
         "dropped": dropped[at]}
        for at in range(len(world.variants)) if asked[at]
    ]  # fmt: skip
    return ServingRun(
        recipe if isinstance(recipe, str) else router.name, str(fleet), setup,
        tally.metrics(fleet.size * router.can.streams), tally.dropped, by_model,
        _remarks(requests, source, setup), time.process_time() - began, tally.in_time(),
        "future" if router.can.foresees else "", tally.classes.rows(),
        None if watching is None else watching.found(tally.latencies, tally.requests),
        source.dated,
    )  # fmt: skip


def _remarks(requests: Requests, source: Source, setup: Setup) -> list[str]:
    """Those of the reader, and that nothing can be late."""
    late = source.dated or min(setup.slo_ttft, setup.slo_tpot) < NEVER
    undated = "no request has a deadline: every answer counts as in time (give --slo)"
    return requests.remarks.lines if late else [*requests.remarks.lines, undated]


def bound_of(
    requests: Requests, models: Models, fleet: Fleet, setup: Setup, streams: int = 1
) -> Bound | None:
    """The most that any recipe can have in time that runs at most `streams` batches on a device at
    once; None where token models run, of which no bound is known. Raises BadInput, as `serve`
    would."""
    known = all_known(requests, models, fleet)
    if any(model.tokens for model in known):
        return None
    families = families_of(models, known)
    world = World(known, (), families=families, pipelines=pipelines_of(models))
    source = Source(requests, models, fleet, world, setup, None)
    return bounded(source.chunks(), Rates(known, fleet.devices, world.variants, streams,
                                          world.pipelines))  # fmt: skip


def all_known(requests: Requests, models: Models, fleet: Fleet) -> list[Known]:
    """What is known of every model. Raises BadInput."""
    usual, rooms = usual_of(requests, models), rooms_of(models, [name for name, _ in fleet.devices])
    return [
        known_of(model, fleet, usual.get(model.name, usual.get(model.family, Usual())), rooms)
        for model in models.models.values()
    ]


def give_caches(
    lanes: Sequence[Lane], known: Sequence[Known], models: Models, router: Router
) -> None:
    """Tell lanes how much room they have for caches of token models. Raises BadInput where lanes of
    a device would share one, or models are loaded into it."""
    rooms = rooms_of(models, [lane.type for lane in lanes])
    for lane in lanes:
        if not any(lane.type in each.tokens for each in known):
            continue
        if router.can.streams > 1 or lane.store >= 0:
            raise BadInput(
                f"{router.name} cannot share the memory of {lane.type} with the caches of token"
                " models", where=router.name, mend="use another recipe, or devices on which all"
                " models fit",
            )  # fmt: skip
        lane.cache = rooms.get(lane.type, -1)


def known_of(
    model: Model, fleet: Fleet, usual: Usual = _USUAL, rooms: Mapping[str, int] = {}
) -> Known:
    """What routers and the simulator know of a model on the types of the fleet; of a token model
    with requests of the `usual` lengths, and `rooms` for caches by type."""
    tables: dict[tuple[str, float], Latencies] = {}
    tokens: dict[str, Times] = {}
    cache_bytes = 0
    for name, _ in fleet.devices:
        speaking = speaks(model, name, usual, rooms.get(name, -1))
        if speaking is not None:
            tokens[name], tables[name, 1.0], cache_bytes = speaking
            continue
        found = model.on(name)
        if found is not None:
            sizes = np.arange(1, min(found.largest, _LARGEST) + 1)
            tables[name, 1.0] = Latencies(_micros(found.mean_seconds(sizes)),
                                          _micros(found.p99_seconds(sizes)))  # fmt: skip
    load = next((model.load[tier] for tier in _TIERS if tier in model.load), 0.0)
    borders = model.operators.borders if model.operators is not None else ()
    beside = {(each.device, 1.0): each.beside for each in model.latency
              if each.share == 1 and each.beside}  # fmt: skip
    return Known(model.name, tables, model.bytes, round(load * SECOND), model.accuracy, borders,
                 beside, tokens, cache_bytes)  # fmt: skip


def families_of(models: Models, known: Sequence[Known]) -> list[tuple[str, tuple[int, ...]]]:
    """The families, with those of their models that run on the fleet."""
    found: dict[str, list[int]] = {}
    for at, model in enumerate(models.models.values()):
        if model.family and model.family not in models.models and known[at].latencies:
            found.setdefault(model.family, []).append(at)
    return [(name, tuple(variants)) for name, variants in found.items()]


def pipelines_of(models: Models) -> list[Pipeline]:
    """The pipelines, with the places of their models."""
    place = {name: at for at, name in enumerate(models.models)}
    found = []
    for pipeline in models.pipelines.values():
        number = {name: at for at, (name, _) in enumerate(pipeline.stages)}
        feeds: list[list[tuple[int, float]]] = [[] for _ in number]
        for source, target, items in pipeline.edges:
            feeds[number[source]].append((number[target], items))
        fed = [to for some in feeds for to, _ in some]
        found.append(Pipeline(pipeline.name, tuple(
            Stage(name, place[model], tuple(sorted(feeds[at])), fed.count(at))
            for at, (name, model) in enumerate(pipeline.stages)
        )))  # fmt: skip
    return found


def outputs_of(models: Models) -> Outputs:
    """What models were recorded to say."""
    return Outputs([None if model.predicted is None else model.predicted.tolist()
                    for model in models.models.values()])  # fmt: skip


def _micros(seconds: NDArray[np.float64]) -> list[int]:
    return [0, *np.maximum(np.rint(seconds * SECOND), 1).astype(np.int64).tolist()]


_ROWS: Final = 1 << 13
"""So many requests are handed over together; a chunk is several times as large meanwhile."""


def _machine(values: NDArray[Any]) -> Sequence[int]:
    """As the plane keeps them: eight bytes each."""
    return array("q", np.ascontiguousarray(values, np.int64).tobytes())


def right_of(model: Model) -> NDArray[np.bool_] | float | None:
    """Which inputs a model answers rightly, or how often; None where neither is known."""
    if model.predicted is not None and model.labels is not None:
        return np.equal(model.predicted, model.labels)
    return None if isnan(model.accuracy) else model.accuracy


def _memory(
    known: Sequence[Known], models: Models, fleet: Fleet, router: Router
) -> dict[str, int] | None:
    """MiB by type where memory is watched: where all sizes are stated and not all models fit.
    Raises BadInput where the recipe cannot load models."""
    sizes = {name: models.devices.get(name, 0) for name, _ in fleet.devices}
    there = [model.bytes for model in known if model.latencies]
    need = sum(there)
    if not all(sizes.values()) or not all(there):
        return None
    tight = [name for name, mib in sizes.items() if mib << 20 < need]
    if not tight:
        return None
    most = max(sizes.values())
    for model in known:
        if model.bytes > most << 20:
            raise BadInput(
                f"{model.name!r} needs {model.bytes / (1 << 30):.2f} GiB, and no device of {fleet}"
                " has so much", where=models.source, mend="leave it out, or take a larger device",
            )  # fmt: skip
    if not router.can.loads:
        raise BadInput(
            f"the models need {need / (1 << 30):.2f} GiB, {tight[0]} has"
            f" {sizes[tight[0]] / 1024:.2f}",
            where=router.name,
            mend="use a recipe that loads models, such as clockwork or cache.lru, or give it a"
            " cache, as in serve.triton(cache=lru)",
        )
    return sizes


def _priced(known: Sequence[Known], fleet: Fleet, router: Router) -> None:
    """Complain where nobody measured what batches beside each other take. Raises BadInput."""
    for model in known:
        for type_, share in model.latencies:
            if (type_, share) not in model.beside:
                raise BadInput(
                    f"{router.name} runs batches beside each other, and what that costs"
                    f" {model.name!r} on {type_} is not known", where=str(fleet),
                    mend="add `beside` to its latency in the models file",
                )  # fmt: skip


class Source:
    """The requests as columns for the plane: models by their place in the file, deadlines set.
    Without a router, for whatever could answer them."""

    def __init__(
        self, requests: Requests, models: Models, fleet: Fleet, world: World,
        setup: Setup, router: Router | None, progress: Callable[[int], None] = lambda count: None,
    ) -> None:  # fmt: skip
        self._requests, self._models, self._fleet = requests, models, fleet
        self._setup, self._router, self._progress = setup, router, progress
        self._code = {world.asked(at): at for at in range(len(world.variants))}
        largest = [max((each.largest for each in model.latencies.values()), default=0)
                   for model in world.models]  # fmt: skip
        self._largest = np.array(
            [*(min(largest[model] for model in those) for those in world.variants if those),
             *(_most_items(each, largest) for each in world.pipelines)], np.int64
        )  # fmt: skip
        """By what is asked for: of a family, what every variant can take; of a pipeline, what is
        not too many tasks."""
        self._lengths = Lengths(world, requests.name)
        self._labels = [self._labels_of(those) for those in world.variants]
        self._codes, self.dated = np.zeros(0, np.int64), False

    def _labels_of(self, variants: Sequence[int]) -> NDArray[np.int64] | None:
        """The true classes of the inputs that one of these models was recorded on."""
        models = list(self._models.models.values())
        return next((models[at].labels for at in variants if models[at].labels is not None), None)

    def chunks(self) -> Iterator[dict[str, Sequence[int]]]:
        """One after the other. Raises BadInput."""
        before = 0
        for chunk in matched(self._requests, self._models).chunks(_ROWS):
            yield self._columns(chunk, before)
            before += len(chunk)
            self._progress(before)

    def _columns(self, chunk: Chunk, before: int) -> dict[str, Sequence[int]]:
        names = self._requests.models
        new = len(names) - len(self._codes)
        self._codes = np.concatenate((self._codes, np.full(new, -1, np.int64)))
        for code in np.unique(chunk.model).tolist():
            if self._codes[code] < 0:
                self._codes[code] = self._of(names[code])
        model = self._codes[chunk.model]
        faster = self._setup.faster
        arrival = chunk.arrival if faster == 1 else np.rint(chunk.arrival / faster).astype(np.int64)
        due = np.full(len(chunk), NEVER) if chunk.deadline is None else chunk.deadline
        given = np.where(due < NEVER, due - chunk.arrival, self._setup.slo)
        self.dated = self.dated or bool((given < NEVER).any())
        due = np.where(given < NEVER, arrival + np.minimum(given, NEVER - 1), NEVER)
        columns: dict[str, Sequence[int]] = {
            "arrival": _machine(arrival), "model": _machine(model),
            "deadline": _machine(due.clip(max=NEVER)),
        }  # fmt: skip
        for name in ("tenant", "items", "input", "label"):
            column = getattr(chunk, name)
            if column is not None:
                columns[name] = _machine(column)
        columns.update(self._lengths.columns(chunk.prompt_tokens, chunk.output_tokens, chunk.items,
                                             model, before))  # fmt: skip
        router = self._router
        if chunk.label is None and chunk.input is not None and router and router.can.chooses:
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

    def _of(self, name: str) -> int:
        """The place of a model. Raises BadInput for what is none, or runs nowhere here."""
        at = self._code.get(name)
        if at is None:
            if self._router is not None and name in self._models.pipelines:
                raise BadInput(
                    f"{name!r} is a pipeline, and {self._router.name} does not run pipelines",
                    where=self._requests.name,
                    mend="use a recipe that does, such as nexus, or let requests name a model",
                )  # fmt: skip
            if self._router is not None and not self._router.can.chooses:
                raise BadInput(
                    f"{name!r} is a family of models, and {self._router.name} does not choose"
                    " among models", where=self._requests.name,
                    mend="use a recipe that does, such as clipper, or let requests name a model",
                )  # fmt: skip
            raise BadInput(f"no model of the family {name!r} was measured on {self._fleet}",
                           where=self._requests.name,
                           mend="add a latency there to the models file")  # fmt: skip
        if not self._largest[at]:
            if name in self._models.pipelines:
                self._refuse_pipeline(name)
            model = self._models.models.get(name)
            lanes = [lane_of(each) for each in model.tokens] if model is not None else []
            raise BadInput(f"model {name!r} was not measured on {self._fleet}",
                           where=self._requests.name,
                           mend=f"use lanes of {' or '.join(lanes)}, as in {lanes[0]}:4" if lanes
                           else "add its latency there to the models file")  # fmt: skip
        return at

    def _refuse_pipeline(self, name: str) -> None:
        """Complain about a pipeline of which not a single item can be worked on."""
        for stage, model in self._models.pipelines[name].stages:
            if not self._largest[self._code[model]]:
                raise BadInput(f"model {model!r} of stage {stage!r} was not measured on"
                               f" {self._fleet}", where=f"pipeline {name!r}",
                               mend="add its latency there to the models file")  # fmt: skip
        raise BadInput(f"an item of a request is more than {_TASKS:,} items of its stages",
                       where=f"pipeline {name!r}", mend="let its edges hand on fewer")  # fmt: skip

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
                where=f"{self._requests.name}: request {before + row + 1}",
                mend="measure larger batches, or split the request",
            )  # fmt: skip


def _most_items(pipeline: Pipeline, largest: Sequence[int]) -> int:
    """Of a request for a pipeline; 0 where a stage cannot run."""
    if not all(largest[stage.model] for stage in pipeline.stages):
        return 0
    return int(_TASKS / sum(expected(pipeline)))
