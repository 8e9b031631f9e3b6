"""Services of a trace with their requests: what the simulator's host needs, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from ganger.core.errors import BadInput
from ganger.core.events import AnyEvent
from ganger.core.events import Served as WindowOver
from ganger.core.serving.router import Router
from ganger.core.serving.world import Known, Lane, World
from ganger.core.spec import Kind, Shape
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Declared
from ganger.core.units import NEVER, SECOND, WHOLE
from ganger.lab.serving.fleet import Fleet, give_caches
from ganger.lab.serving.run import SOON, all_known, foretold, right_of
from ganger.lab.serving.source import Source
from ganger.lab.serving.tally import Tally
from ganger.lab.serving.tokens import rooms_of
from ganger.lab.serving.watching import Watched, Watching
from ganger.lab.serving.windows.capacity import capacity_of
from ganger.lab.serving.windows.choosing import Parts
from ganger.lab.serving.windows.holding import HeldBack
from ganger.lab.serving.windows.words import check_windows
from ganger.lab.serving.yardsticks.bound import COARSE
from ganger.lab.serving.yardsticks.future import Columns
from ganger.lab.serving.yardsticks.rates import Rates, Talking
from ganger.lab.serving.yardsticks.services import Bounds
from ganger.recipes.registry import make_router
from ganger.sim.requests.host import Requested, Requesting
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import KEEP, Plane
from ganger.workloads.models.matching import matched
from ganger.workloads.models.pipelines import pipelines_of
from ganger.workloads.models.profiles import Models
from ganger.workloads.requests.columns import Chunk, Requests
from ganger.workloads.trace import Trace

ORACLE: Final = "serve.clairvoyant"
"""Knows all requests before they come."""
KEPT: Final = (
    "arrivals", "answered", "late", "dropped", "queue", "replicas", "p99", "batch", "busy",
)  # fmt: skip
"""Figures of a window that a report draws."""


@dataclass(frozen=True)
class Traffic:
    """Requests to the services of a trace: those that name a service's model are its own. `slo`:
    microseconds, for requests without a deadline; `router`: a recipe; `watch`: whether what a
    report draws of batches is kept; `yardsticks`: whether it is also found how many could be in
    time, and how many are under a router that knows them before they come; `remembers`: whether
    each window is reported with what the router remembers, for a log; `by_windows`: whether windows
    that are like others are read from a table."""

    requests: Requests
    models: Models
    router: str
    slo: int = NEVER
    noise: float = 1.0
    watch: bool = False
    yardsticks: bool = False
    remembers: bool = False
    by_windows: bool = False


class _Recorded(Requesting):
    """A host whose windows are kept for a report: figures by service, one entry a window."""

    def __init__(
        self,
        declared: Declared,
        services: Mapping[str, Requested],
        window: int,
        type_of: Callable[[int], str],
        *,
        validate: bool,
        remembers: bool,
    ) -> None:
        super().__init__(
            declared, services, window, type_of, validate=validate, remembers=remembers
        )
        self.kept: dict[int, dict[str, list[float | None]]] = {
            job: {} for job in range(declared.n) if declared.name(job) in services
        }

    def advance(self, now: int) -> list[AnyEvent]:
        """As the host does."""
        return self._keep(now, super().advance(now))

    def happened(self, now: int, events: Sequence[AnyEvent]) -> list[AnyEvent]:
        """As the host does."""
        return self._keep(now, super().happened(now, events))

    def _keep(self, now: int, events: list[AnyEvent]) -> list[AnyEvent]:
        for event in events:
            if isinstance(event, WindowOver):
                for at, service in enumerate(event.services):
                    series = self.kept.get(service)
                    if series is None:
                        continue  # of a replica it is only said that it was given back
                    series.setdefault("since", []).append(event.since / SECOND)
                    series.setdefault("until", []).append(now / SECOND)
                    for name in KEPT:
                        series.setdefault(name, []).append(event.figures[name][at])
        return events


class Served:
    """The host of a run, and the figures of its services at the end."""

    def __init__(
        self,
        trace: Trace,
        nodes: Nodes,
        traffic: Traffic,
        window: int,
        seed: int,
        *,
        validate: bool = False,
    ) -> None:
        self._tallies: dict[str, Tally] = {}
        self._watchings: dict[str, Watching] = {}
        self._bounds: dict[str, Bounds] = {}
        self._foreseen: dict[str, Tally | str] = {}
        """By service, what a router that knows the future did; or why there is none."""
        self._backs: dict[str, HeldBack] = {}
        self._thinned: list[tuple[HeldBack, Tally, Parts]] = []
        """Tallies that lack the windows that were read."""
        self._window = window
        declared = trace.declared
        services: dict[str, Requested] = {}
        known = {*traffic.models.models, *traffic.models.pipelines}
        for job in np.flatnonzero(declared.kind[: trace.jobs] == Kind.SERVE).tolist():
            name, model = declared.name(job), declared.models[int(declared.model[job])]
            if model in known:
                shape = declared.shapes[int(declared.shape[job])]
                begins = int(declared.submitted[job])
                services[name] = self._requested(name, model, shape, nodes, begins, traffic, seed)
        if not services:
            raise BadInput(
                "no job of kind serve names a model or a pipeline of the models file",
                where=trace.name,
                mend="give services a `model`",
            )
        self._declared = declared
        self._jobs = {declared.name(job): job for job in range(trace.jobs)}
        self.host = _Recorded(
            declared,
            services,
            window,
            lambda node: nodes.types[int(nodes.gpu_type[node])],
            validate=validate,
            remembers=traffic.remembers,
        )

    def _requested(
        self,
        name: str,
        model: str,
        shape: Shape,
        nodes: Nodes,
        begins: int,
        traffic: Traffic,
        seed: int,
    ) -> Requested:
        """A service that `begins` at that moment."""
        role, held = shape.roles[0], places_of(shape, nodes)
        most, share = role.range[1], role.needs.share / WHOLE
        made = _Made(model, tuple(held), most, share, traffic, seed)
        for stage, type_ in made.lacks:
            part = "" if share == 1 else f"{share:g} of a "
            raise BadInput(
                f"model {stage!r} was not measured on {part}{type_}",
                where=name,
                mend="add its latency there to the models file"
                + (f", with share = {share:g}" if part else ""),
            )
        router = make_router(traffic.router)
        if router.can.streams > 1:
            raise BadInput(
                f"{router.name} runs batches beside each other, and a replica runs one",
                where="--router",
                mend="name another recipe",
            )
        back = self._hold(name, made, router, traffic) if traffic.by_windows else None
        plane, self._tallies[name] = self._plane(made, router, back, Parts())
        if traffic.watch:
            self._watchings[name] = Watching(plane.world)
            plane.watch(self._watchings[name])
        beside = None
        if traffic.yardsticks:
            divides = router.can.divides
            self._bounds[name] = made.bounds(shape, nodes, begins, divides=divides)
            if not router.can.foresees:
                beside = self._beside(name, made, back)
        alone = made.models.models.get(model)
        says = None if alone is None or alone.predicted is None else alone.predicted.tolist()
        return Requested(plane, sum(known.load for known in made.known), says, beside, back)

    def _hold(self, name: str, made: _Made, router: Router, traffic: Traffic) -> HeldBack:
        """The requests of a service by windows. Raises BadInput where each has to be run."""
        others = {f"{name} is a pipeline": bool(made.models.pipelines)}
        others["a report draws every window"] = traffic.watch
        check_windows(router, "--by-windows", others)
        self._backs[name] = HeldBack(made.checked(), self._window, made.tally, made.needs)
        return self._backs[name]

    def _plane(
        self, made: _Made, router: Router, back: HeldBack | None, parts: Parts
    ) -> tuple[Plane, Tally]:
        """A router over the lanes of a service, and what counts how it does; `parts` of requests
        that are held back. Raises BadInput."""
        world = made.world()
        if back is None:
            return made.plane(world, router, made.source(world, router).chunks())
        chunks = back.outlet(made.source(world, router), parts)
        plane, tally = made.plane(world, router, chunks, SOON)
        plane.watch(parts)
        self._thinned.append((back, tally, parts))
        return plane, tally

    def _beside(self, name: str, made: _Made, back: HeldBack | None) -> Plane | None:
        """The same under a router that knows the future, where there can be one."""
        oracle = make_router(ORACLE)
        try:
            plane, self._foreseen[name] = self._plane(made, oracle, back, Parts(made.tally))
        except BadInput as error:
            self._foreseen[name] = error.what
            return None
        return plane

    def figures(self, now: int) -> dict[str, dict[str, Any]]:
        """By service, once the run is over: its figures, and why requests were dropped."""
        self.host.close(now)
        for back, tally, parts in self._thinned:
            back.complete(tally, parts)
        return {name: self._figures(name, tally) for name, tally in self._tallies.items()}

    def _figures(self, name: str, tally: Tally) -> dict[str, Any]:
        up = self.host.total_up(self._jobs[name])
        foreseen, classes = self._foreseen.get(name), tally.classes.rows()
        own = _metrics(tally, up)
        figures: dict[str, Any] = {
            **own, "dropped_by_reason": dict(tally.dropped), "classes": classes,
        }  # fmt: skip
        if name in self._backs:
            figures["windows"] = self._backs[name].to_json()
        if name in self._bounds:
            coarse = name in self._backs and tally.requests > COARSE
            shares = self.host.shares(self._jobs[name])
            bound = self._bounds[name].of(classes, shares, coarse=coarse)
            figures["attainment_bound"] = bound.attainment
            figures["goodput_bound_per_second"] = bound.goodput_per_second
        if isinstance(foreseen, Tally):  # whoever knows the future can do what the router does
            best = max((_metrics(foreseen, up), own), key=lambda some: some["attainment"] or 0.0)
            figures["clairvoyant"] = {**best, "needs": "future"}
        elif foreseen is not None:
            figures["clairvoyant_missing"] = foreseen
        return figures

    def watched(self) -> dict[str, Watched]:
        """By service to which anything came, what a report draws of its batches."""
        return {
            name: watching.found(self._tallies[name].latencies, self._tallies[name].requests)
            for name, watching in self._watchings.items()
            if self._tallies[name].requests
        }

    def windows(self) -> dict[str, dict[str, list[float | None]]]:
        """By service, what was reported of each window: when it began and ended (`since`, `until`,
        seconds), and the figures of `KEPT`."""
        names = {self._declared.name(job): series for job, series in self.host.kept.items()}
        return {name: names[name] for name in self._tallies if names.get(name)}


class _Kind(NamedTuple):
    """Of lanes: the type and share of device, and the one model that runs there (-1: all)."""

    type: str
    share: float
    only: int = -1


class _Made:
    """What the planes of a service are made of: so many `lanes` of each of these `types`."""

    def __init__(
        self,
        model: str,
        types: Sequence[str],
        lanes: int,
        share: float,
        traffic: Traffic,
        seed: int,
    ) -> None:
        self.model, self._types, self._lanes, self.share = model, types, lanes, share
        self._traffic, self._seed = traffic, seed
        self._only = _only(traffic.requests, model)
        self.models = _of_service(traffic.models, model)
        self._fleet = Fleet(tuple((type_, lanes) for type_ in types))
        self._shares = [share, *self._other_shares()]
        self.known = all_known(self._only, self.models, self._fleet, self._shares)

    def _other_shares(self) -> list[float]:
        """On which the model was measured, too: recipes may give replicas any of them. (A pipeline
        has replicas of one, and so have services that are run by windows.)"""
        if self.models.pipelines or self._traffic.by_windows:
            return []
        measured = self.models.models[self.model].latency
        shares = {round(each.share * WHOLE) for each in measured if each.device in self._types}
        return sorted(share / WHOLE for share in shares if share / WHOLE != self.share)

    @property
    def lacks(self) -> list[tuple[str, str]]:
        """Models and types on which they had to be measured: that of a service on each, those of a
        pipeline on any."""
        if self.models.pipelines:
            return [
                (known.name, self._types[0])
                for known in self.known
                if not any(self._runs(known, type_) for type_ in self._types)
            ]
        return [
            (self.known[0].name, each)
            for each in self._types
            if not self._runs(self.known[0], each)
        ]

    def _runs(self, known: Known, type_: str) -> bool:
        """Whether a model was measured on a type."""
        return (type_, self.share) in known.latencies

    def _kinds(self) -> list[_Kind]:
        """Of the lanes that there may be."""
        whole = [
            _Kind(type_, share)
            for share, type_ in product(self._shares, self._types)
            if all((type_, share) in known.latencies for known in self.known)
        ]
        if not self.models.pipelines:
            return whole
        stages = enumerate(self.known)
        return whole + [
            _Kind(type_, self.share, at)
            for at, known in stages
            for type_ in self._types
            if self._runs(known, type_)
        ]

    def world(self, up: Sequence[str] = ()) -> World:
        """Lanes that are all down; or lanes of these types that are up and run all models."""
        kinds = [_Kind(type_, self.share) for type_ in up]
        kinds = kinds or [kind for kind in self._kinds() for _ in range(self._lanes)]
        lanes = [
            Lane(at, kind.type, device=at, share=kind.share, down=not up, only=kind.only)
            for at, kind in enumerate(kinds)
        ]
        tenants = self._traffic.requests.tenants.values
        pipelines = pipelines_of(self.models)
        return World(self.known, lanes, pipelines=pipelines, seed=self._seed, tenants=tenants)

    def source(
        self, world: World, router: Router | None, faster: float = 1.0, some: Requests | None = None
    ) -> Source:
        """The requests of the service, or `some` of them."""
        return Source(
            some or self._only, self.models, self._fleet, world, router, self._traffic.slo, faster
        )

    def checked(self) -> Requests:
        """The requests of the service, of which each is possible; else reading raises BadInput."""
        return matched(self._only, self.models, slo=self._traffic.slo)

    def tally(self) -> Tally:
        """One in which nothing was counted."""
        return self._tally(self.world())

    def _tally(self, world: World) -> Tally:
        return Tally(world, [right_of(each) for each in self.models.models.values()])

    def plane(
        self, world: World, router: Router, chunks: Iterator[Columns], keep: int = KEEP
    ) -> tuple[Plane, Tally]:
        """A router over the lanes of a world, and what counts how it does. Raises BadInput."""
        give_caches(world.lanes, self.known, self.models, router)
        tally = self._tally(world)
        if router.can.foresees:
            chunks = foretold(world, router, chunks, self.source(world, router))
        physics = Physics(self.known, noise=self._traffic.noise, seed=self._seed)
        return Plane(world, router, physics, chunks, [tally], keep=keep), tally

    def needs(self, types: Sequence[str]) -> float:
        """The microseconds that an item takes of all of these lanes together, as the router uses
        them when it has more than it can do. Raises BadInput."""
        devices = [(type_, types.count(type_)) for type_ in self._types]
        rates = Rates(self.known, devices, [(0,)], share=self.share)
        cost = 1 / rates.rate(0)

        def answered(some: Requests, faster: float) -> tuple[dict[str, float], float]:
            router, world = make_router(self._traffic.router), self.world(types)
            chunks: Iterator[Columns] = self.source(world, router, faster, some).chunks()
            plane, tally = self.plane(world, router, chunks)
            plane.advance()
            plane.finish()
            figures = tally.metrics(0)
            part = tally.answered / tally.requests
            return {self.model: part}, (figures["span_seconds"] or 0.0) * SECOND

        return cost / capacity_of(self.checked(), lambda _: cost, answered)

    def bounds(self, shape: Shape, nodes: Nodes, begins: int, *, divides: bool) -> Bounds:
        """What the bound is found from, of a service that `begins` then; `divides`: whether
        requests may be cut that a batch could hold."""
        role = shape.roles[0]
        whole = replace(role, needs=replace(role.needs, share=WHOLE))
        held, devices = places_of(shape, nodes), places_of(replace(shape, roles=(whole,)), nodes)
        rooms = rooms_of(self.models, list(held)) if self.share == 1 else {}
        world = self.world()
        for lane in world.lanes:
            lane.cache = rooms.get(lane.type, -1)
        return Bounds(
            known=self.known,
            world=world,
            chunks=lambda: self.source(world, None).chunks(),
            begins=begins,
            replicas=self._lanes,
            share=self.share,
            held=held,
            shares=self._shares,
            devices=devices,
            divides=divides,
            talking=Talking(rooms),
            noise=self._traffic.noise,
            seed=self._seed,
        )


def _metrics(tally: Tally, up: int) -> dict[str, Any]:
    """Figures of a service whose lanes were up for so many microseconds in all."""
    busy = min(sum(tally.busy) / up, 1.0) if up else None
    return {**tally.metrics(0), "utilisation": busy}


def places_of(shape: Shape, nodes: Nodes) -> dict[str, int]:
    """By type of device, how many workers of a shape's first role an empty cluster has places for,
    as far as devices, pools and labels decide that; types without any are left out."""
    needs = shape.roles[0].needs
    places: dict[str, int] = {}
    for node in range(nodes.n):
        type_ = nodes.types[int(nodes.gpu_type[node])]
        pool = nodes.pools[int(nodes.pool[node])]
        labels = nodes.label_sets[int(nodes.labels[node])]
        if not type_ or (shape.gpu_types and type_ not in shape.gpu_types):
            continue
        if (shape.pool and pool != shape.pool) or not set(shape.labels) <= set(labels):
            continue
        gpus = int(nodes.gpus[node])
        count = gpus * (WHOLE // needs.share) if needs.share < WHOLE else gpus // max(needs.gpus, 1)
        if count:
            places[type_] = places.get(type_, 0) + count
    return places


def _of_service(models: Models, name: str) -> Models:
    """What answers the requests of a service: its model, or the pipeline with its models."""
    pipeline = models.pipelines.get(name)
    if pipeline is None:
        return Models({name: models.models[name]}, models.devices)
    stages = dict.fromkeys(model for _, model in pipeline.stages)
    return Models(
        {model: models.models[model] for model in stages}, models.devices, {name: pipeline}
    )


def _only(requests: Requests, model: str) -> Requests:
    """The requests that name this model."""

    def produce(some: Requests) -> Any:
        for chunk in requests.chunks():
            some.remarks = requests.remarks
            code = requests.models.find(model)
            rows: Chunk = chunk.take(chunk.model == code)
            if len(rows):
                yield rows

    return Requests(produce, requests.name, requests.source, requests.models, requests.tenants)
