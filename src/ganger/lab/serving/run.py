"""One run: a router over requests on a fleet."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import isnan
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.serving.router import Router
from ganger.core.serving.tokens import Times
from ganger.core.serving.world import Known, Latencies, Recorded, World
from ganger.core.units import NEVER, SECOND, format_duration
from ganger.lab.serving.fleet import Fleet, billed, check_beside, give_caches, memory_of
from ganger.lab.serving.source import Source
from ganger.lab.serving.tally import Tally, written
from ganger.lab.serving.tokens import Usual, rooms_of, speaks, usual_of
from ganger.lab.serving.trouble import UNTROUBLED, Trouble
from ganger.lab.serving.watching import Watched, Watching
from ganger.lab.serving.windows.capacity import capacity_of
from ganger.lab.serving.windows.keeping import Kept, holds_for
from ganger.lab.serving.windows.thinning import Windowed
from ganger.lab.serving.windows.words import check_windows
from ganger.lab.serving.yardsticks.bound import COARSE, Bound
from ganger.lab.serving.yardsticks.classes import ClassKey, bounded_by_class
from ganger.lab.serving.yardsticks.future import Ahead, Columns, Future
from ganger.lab.serving.yardsticks.rates import Rates, Talking
from ganger.lab.serving.yardsticks.tokens import MANY
from ganger.recipes.registry import make_router
from ganger.sim.requests.outputs import Outputs
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import KEEP, Plane
from ganger.sim.requests.trouble import drive
from ganger.workloads.models.matching import matched
from ganger.workloads.models.pipelines import pipelines_of
from ganger.workloads.models.profiles import Model, Models
from ganger.workloads.requests.columns import Requests

_LARGEST: Final = 1 << 14
"""No table of latencies is longer."""
_USUAL: Final = Usual()
SOON: Final = 1 << 11
"""Rows at a time where what became of them decides whether the next are run."""


@dataclass(frozen=True)
class Setup:
    """What decides how a run goes, besides requests, models, fleet and recipe.

    `slo`: microseconds until the deadline of requests that state none; `noise`: how much of the
    measured spread of latencies there is; `faster`: requests come so many times as fast; `trouble`:
    devices that fail or are slow; `slo_ttft`, `slo_tpot`: microseconds until the first token, and
    for each further one, that an answer of a token model in time does not exceed; `watch`: whether
    what a report draws is kept; `windows`: microseconds of the windows by which a long log is run,
    0 for none: those that are like others are read from a table; `table`: a folder in which that is
    kept, "" for none; `like`: whether that may be of another log; `prices`: by type of device, of
    one for an hour; none: nothing is billed.
    """

    slo: int = NEVER
    noise: float = 1.0
    seed: int = 0
    faster: float = 1.0
    trouble: Trouble = UNTROUBLED
    slo_ttft: int = NEVER
    slo_tpot: int = NEVER
    watch: bool = False
    windows: int = 0
    table: str = ""
    like: bool = False
    prices: tuple[tuple[str, float], ...] = ()


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
        return ", ".join(
            word for at, word in enumerate(words) if len({each[at] for each in among}) > 1
        )


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
    """Figures by model, tenant and SLO."""
    watched: Watched | None = None
    dated: bool = True
    """Whether any request had a deadline."""
    own_slo: bool = False
    """Whether every request stated its deadline, so that the SLO of the set-up counted for none."""
    windows: dict[str, Any] | None = None
    """Which windows were run, and the table of those that were read; None without windows."""

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
            "classes": self.classes, "windows": self.windows,
            "simulation": {
                "cpu_seconds": self.cpu_seconds,
                "requests_per_cpu_second": per_second / self.cpu_seconds
                if self.cpu_seconds else None,
            },
        }  # fmt: skip


def serve(
    requests: Requests,
    models: Models,
    fleet: Fleet,
    recipe: str | Router,
    setup: Setup,
    *,
    per_request: Path | None = None,
    progress: Callable[[int], None] = lambda count: None,
) -> ServingRun:
    """Drive the router over all requests; `progress` hears how many have come. Raises BadInput."""
    router = make_router(recipe) if isinstance(recipe, str) else recipe
    name = recipe if isinstance(recipe, str) else router.name
    began = time.process_time()
    world = _world(requests, models, fleet, router, setup.seed)
    known = world.models
    physics = Physics(known, noise=setup.noise, seed=setup.seed)
    right = [right_of(model) for model in models.models.values()]
    windowed = kept = None
    if setup.windows:
        windowed = _windowed(requests, models, fleet, router, setup, world, right, per_request)
        holds = holds_for(name, fleet, setup, known, right)
        kept = Kept(setup.table, name, str(fleet), holds, requests, like=setup.like)
        kept.restore(windowed)
    some = requests if windowed is None else windowed.requests
    source = Source(some, models, fleet, world, router, setup.slo, setup.faster, progress)
    chunks: Iterator[Columns] = source.chunks(*(() if windowed is None else (SOON, SOON)))
    if router.can.foresees:
        again = Source(requests, models, fleet, world, router, setup.slo, setup.faster)
        chunks = foretold(world, router, chunks, again)
    with written(per_request) as out:
        tally = Tally(world, right, out, setup.slo_ttft, setup.slo_tpot)
        watching = Watching(world) if setup.watch else None
        parts = None if windowed is None else windowed.parts
        watches = [each for each in (tally, watching, parts) if each is not None]
        plane = Plane(
            world,
            router,
            physics,
            chunks,
            watches,
            tally.retired,
            KEEP if windowed is None else SOON,
            outputs_of(models) if world.families or router.can.weighs else None,
        )
        drive(plane, setup.trouble.changes(fleet, setup.seed))
        plane.finish()
        if not tally.requests:
            raise BadInput("there are no requests", where=requests.file, mend="give some")
        if windowed is not None and kept is not None:
            windowed.complete(tally)
            kept.save(windowed)
    return ServingRun(
        name,
        str(fleet),
        setup,
        billed(tally.metrics(fleet.size * router.can.streams), fleet, dict(setup.prices)),
        tally.dropped,
        _by_model(world, tally),
        _remarks(requests, source, setup),
        time.process_time() - began,
        tally.in_time(),
        "future" if router.can.foresees else "",
        tally.classes.rows(),
        None if watching is None else watching.found(tally.latencies, tally.requests),
        source.dated,
        not source.asks_slo,
        None if windowed is None else windowed.to_json(),
    )


def _world(requests: Requests, models: Models, fleet: Fleet, router: Router, seed: int) -> World:
    """What the router decides about. Raises BadInput."""
    known = all_known(requests, models, fleet)
    lanes, stores = fleet.lanes(memory_of(known, models, fleet, router), router.can.streams)
    give_caches(lanes, known, models, router)
    if router.can.streams > 1:
        check_beside(known, fleet, router)
    families = families_of(models, known) if router.can.chooses else []
    pipelines = pipelines_of(models) if router.can.pipelines else []
    return World(
        known,
        lanes,
        stores,
        families=families,
        pipelines=pipelines,
        seed=seed,
        tenants=requests.tenants.values,
    )


def _by_model(world: World, tally: Tally) -> list[dict[str, Any]]:
    """Figures by what was asked for."""
    asked, in_time, dropped = tally.by_model.tolist()
    return [
        {
            "model": world.asked(at),
            "requests": asked[at],
            "attainment": in_time[at] / asked[at],
            "dropped": dropped[at],
        }
        for at in range(len(world.variants))
        if asked[at]
    ]


def foretold(
    world: World, router: Router, chunks: Iterator[Columns], again: Source
) -> Iterator[Columns]:
    """Tell a router what comes: as far ahead as it looks while it comes, or all of it, from the
    same requests once more. The chunks for its plane."""
    if router.can.ahead:
        future = world.future = Ahead(chunks, router.can.ahead, world)
        return future.handed()
    world.future = Future.of(again.chunks())
    return chunks


def _windowed(
    requests: Requests,
    models: Models,
    fleet: Fleet,
    router: Router,
    setup: Setup,
    world: World,
    right: Sequence[NDArray[np.bool_] | float | None],
    per_request: Path | None,
) -> Windowed:
    """The requests by windows. Raises BadInput where something has to be known of every request."""
    others = {
        "devices fail or are slow": setup.trouble != UNTROUBLED,
        "a report draws every window": setup.watch,
        "a file with a row for each request": per_request is not None,
    }
    check_windows(router, "--windows", others)
    rates = Rates(world.models, fleet.devices, world.variants, router.can.streams, world.pipelines)
    code = {world.asked(at): at for at in range(len(world.variants))}
    checked = matched(requests, models, slo=setup.slo)

    def cost(name: str) -> float:
        rate = rates.rate(code[name]) if name in code else 0.0
        return 1 / rate if rate else 0.0

    def answered(some: Requests, faster: float) -> tuple[dict[str, float], float]:
        run = serve(some, models, fleet, router, replace(setup, windows=0, faster=faster))
        parts = {row["model"]: 1 - row["dropped"] / row["requests"] for row in run.models}
        return parts, (run.metrics["span_seconds"] or 0.0) * SECOND

    return Windowed(
        checked,
        setup.windows,
        setup.faster,
        cost,
        capacity_of(checked, cost, answered),
        lambda: Tally(world, right, None, setup.slo_ttft, setup.slo_tpot),
    )


def _remarks(requests: Requests, source: Source, setup: Setup) -> list[str]:
    """Those of the reader, that nothing can be late, and that the SLO counts for nothing."""
    late = source.dated or min(setup.slo_ttft, setup.slo_tpot) < NEVER
    lines = list(requests.remarks.lines)
    if not late:
        lines.append("no request has a deadline: every answer counts as in time (give --slo)")
    if setup.slo < NEVER and not source.asks_slo:
        lines.append(
            f"every request states its deadline: the SLO of {format_duration(setup.slo)}"
            " that was given counts for none"
        )
    return lines


def bound_of(
    requests: Requests,
    models: Models,
    fleet: Fleet,
    setup: Setup,
    streams: int = 1,
    count: int = MANY,
    *,
    divides: bool = False,
    classes: Collection[ClassKey] = (),
) -> tuple[Bound, dict[ClassKey, Bound]]:
    """The most that any recipe can have in time that runs at most `streams` batches on a device at
    once, and of each of the classes if it were alone; `count`: how many requests there are, if that
    is known; `divides`: whether it may cut requests that a batch could hold. Of a log that is so
    long that it is run by windows, with time in coarser pieces. Raises BadInput, as `serve`
    would."""
    known = all_known(requests, models, fleet)
    families = families_of(models, known)
    rooms = rooms_of(models, [name for name, _ in fleet.devices])
    lanes, _ = fleet.lanes(None)
    for lane in lanes:
        lane.cache = rooms.get(lane.type, -1)
    world = World(
        known,
        lanes,
        families=families,
        pipelines=pipelines_of(models),
        tenants=requests.tenants.values,
    )
    source = Source(requests, models, fleet, world, None, setup.slo, setup.faster)
    rates = Rates(
        known,
        fleet.devices,
        world.variants,
        streams,
        world.pipelines,
        divides=divides,
        talking=Talking(rooms, count, setup.slo_ttft, setup.slo_tpot),
        noise=setup.noise,
        lots=setup.seed,
    )
    return bounded_by_class(
        source.chunks(), rates, world, classes, coarse=bool(setup.windows) and count > COARSE
    )


def all_known(
    requests: Requests, models: Models, fleet: Fleet, shares: Sequence[float] = (1.0,)
) -> list[Known]:
    """What is known of every model on these `shares` of each device. Raises BadInput."""
    usual, rooms = usual_of(requests, models), rooms_of(models, [name for name, _ in fleet.devices])
    return [
        known_of(
            model, fleet, usual.get(model.name, usual.get(model.family, Usual())), rooms, shares
        )
        for model in models.models.values()
    ]


def known_of(
    model: Model,
    fleet: Fleet,
    usual: Usual = _USUAL,
    rooms: Mapping[str, int] = {},
    shares: Sequence[float] = (1.0,),
) -> Known:
    """What routers and the simulator know of a model on these `shares` of the types of the fleet;
    of a token model with requests of the `usual` lengths, and `rooms` for caches by type: it runs
    on whole devices only."""
    tables: dict[tuple[str, float], Latencies] = {}
    tokens: dict[str, Times] = {}
    cache_bytes = 0
    for (name, _), share in product(fleet.devices, shares):
        speaking = speaks(model, name, usual, rooms.get(name, -1))
        if speaking is not None and share == 1:
            tokens[name], tables[name, 1.0], cache_bytes = speaking
            continue
        found = model.on(name, share)
        if found is not None:
            sizes = np.arange(1, min(found.largest, _LARGEST) + 1)
            tables[name, share] = Latencies(
                _micros(found.mean_seconds(sizes)), _micros(found.p99_seconds(sizes))
            )
    graph = model.operators
    borders, layers = ((), ()) if graph is None else (graph.borders, graph.layers)
    beside = {
        (each.device, share): each.beside
        for each, share in product(model.latency, shares)
        if model.on(each.device, share) is each and each.beside
    }
    return Known(
        model.name,
        tables,
        model.bytes,
        round(model.load_seconds * SECOND),
        model.accuracy,
        borders,
        beside,
        tokens,
        cache_bytes,
        layers,
        recorded_of(model),
        {
            (each.device, each.share): float(each.series["compute"].max())
            for each in model.utilisation
            if "compute" in each.series
        },
        "" if model.parity is None else model.parity.of,
        0 if model.parity is None else model.parity.k,
    )


def recorded_of(model: Model) -> Recorded | None:
    """What recipes may know of its answers to a labelled data set; None where nothing was
    recorded."""
    if model.predicted is None or model.labels is None:
        return None
    inputs = slice(None) if model.calibration is None else model.calibration
    scores = None if model.scores is None else model.scores[inputs]
    return Recorded(model.predicted[inputs], model.labels[inputs], scores)


def families_of(models: Models, known: Sequence[Known]) -> list[tuple[str, tuple[int, ...]]]:
    """The families, with those of their models that run on the fleet."""
    found: dict[str, list[int]] = {}
    for at, model in enumerate(models.models.values()):
        if model.family and model.family not in models.models and known[at].latencies:
            found.setdefault(model.family, []).append(at)
    return [(name, tuple(variants)) for name, variants in found.items()]


def outputs_of(models: Models) -> Outputs:
    """What models were recorded to say."""
    return Outputs(
        [
            None if model.predicted is None else model.predicted.tolist()
            for model in models.models.values()
        ],
        [
            None if model.scores is None else model.scores.tolist()
            for model in models.models.values()
        ],
        {
            at: model.parity.scores
            for at, model in enumerate(models.models.values())
            if model.parity is not None
        },
    )


def _micros(seconds: NDArray[np.float64]) -> list[int]:
    return [0, *np.maximum(np.rint(seconds * SECOND), 1).astype(np.int64).tolist()]


def right_of(model: Model) -> NDArray[np.bool_] | float | None:
    """Which inputs a model answers rightly, or how often; None where neither is known."""
    if model.predicted is not None and model.labels is not None:
        return np.equal(model.predicted, model.labels)
    return None if isnan(model.accuracy) else model.accuracy
