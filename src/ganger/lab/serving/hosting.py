"""Services of a trace with their requests: what the simulator's host needs, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.events import AnyEvent
from ganger.core.events import Served as WindowOver
from ganger.core.serving.world import Lane, World
from ganger.core.spec import Kind, Role
from ganger.core.state.cluster import Nodes
from ganger.core.state.jobs import Declared
from ganger.core.units import NEVER, SECOND, WHOLE
from ganger.lab.serving.fleet import Fleet
from ganger.lab.serving.run import all_known, give_caches, right_of
from ganger.lab.serving.source import Source
from ganger.lab.serving.tally import Tally
from ganger.lab.serving.watching import Watched, Watching
from ganger.lab.serving.yardsticks.bound import Bound, bounded
from ganger.lab.serving.yardsticks.future import Future
from ganger.lab.serving.yardsticks.rates import Rates
from ganger.recipes.registry import make_router
from ganger.sim.requests.host import Requested, Requesting
from ganger.sim.requests.physics import Physics
from ganger.sim.requests.plane import Plane, Watch
from ganger.workloads.models.profiles import Models
from ganger.workloads.requests.columns import Chunk, Requests
from ganger.workloads.trace import Trace

KEPT: Final = (
    "arrivals", "answered", "late", "dropped", "queue", "replicas", "p99", "batch", "busy",
)  # fmt: skip
"""Figures of a window that a report draws."""


@dataclass(frozen=True)
class Traffic:
    """Requests to the services of a trace: those that name a service's model are its own. `slo`:
    microseconds, for requests without a deadline; `router`: a recipe; `watch`: whether what a
    report draws of batches is kept, and the bound on what is in time."""

    requests: Requests
    models: Models
    router: str
    slo: int = NEVER
    noise: float = 1.0
    watch: bool = False


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
    ) -> None:
        super().__init__(declared, services, window, type_of, validate=validate)
        self.kept: dict[int, dict[str, list[float | None]]] = {
            job: {} for job in range(declared.n) if declared.name(job) in services
        }

    def advance(self, now: int) -> list[AnyEvent]:
        """As the host does."""
        events = super().advance(now)
        for event in events:
            if isinstance(event, WindowOver):
                for at, service in enumerate(event.services):
                    series = self.kept.get(service)
                    if series is None:
                        continue  # of a replica it is only said that it was given back
                    series.setdefault("since", []).append(event.since / SECOND)
                    for name in KEPT:
                        series.setdefault(name, []).append(event.figures[name][at])
        return events


class Served:
    """The host of a run, and the figures of its services at the end."""

    def __init__(
        self, trace: Trace, nodes: Nodes, traffic: Traffic, window: int, seed: int, *,
        validate: bool = False,
    ) -> None:  # fmt: skip
        self._tallies: dict[str, Tally] = {}
        self._watchings: dict[str, Watching] = {}
        self._bounds: dict[str, Bound] = {}
        declared = trace.declared
        types = [name for name in nodes.types.values if name]
        services: dict[str, Requested] = {}
        known = {model.name for model in traffic.models.models.values()}
        for job in np.flatnonzero(declared.kind[: trace.jobs] == Kind.SERVE).tolist():
            name, model = declared.name(job), declared.models[int(declared.model[job])]
            if model in known:
                role = declared.shapes[int(declared.shape[job])].roles[0]
                services[name] = self._requested(name, model, types, role, traffic, seed)
        if not services:
            raise BadInput(
                "no job of kind serve names a model of the models file",
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
        )

    def _requested(
        self, name: str, model: str, types: Sequence[str], role: Role, traffic: Traffic, seed: int
    ) -> Requested:
        share, most = role.needs.share / WHOLE, role.range[1]
        fleet = Fleet(tuple((type_, most) for type_ in types))
        models = Models({model: traffic.models.models[model]}, traffic.models.devices)
        known = all_known(_only(traffic.requests, model), models, fleet, share)
        lanes: list[Lane] = []
        for type_, count in fleet.devices:
            lanes += [
                Lane(len(lanes) + at, type_, device=len(lanes) + at, share=share, down=True)
                for at in range(count)
            ]
        lacks = [type_ for type_ in types if (type_, share) not in known[0].latencies]
        if lacks:
            part = "" if share == 1 else f"{share:g} of a "
            raise BadInput(
                f"model {model!r} was not measured on {part}{lacks[0]}",
                where=name,
                mend="add its latency there to the models file"
                + (f", with share = {share:g}" if part else ""),
            )
        router = make_router(traffic.router)
        give_caches(lanes, known, models, router)
        world = World(known, lanes, seed=seed, tenants=traffic.requests.tenants.values)
        tally = Tally(world, [right_of(models.models[model])])
        if router.can.streams > 1:
            raise BadInput(
                f"{router.name} runs batches beside each other, and a replica runs one",
                where="--router",
                mend="name another recipe",
            )
        only = _only(traffic.requests, model)
        source = Source(only, models, fleet, world, router, traffic.slo)
        if router.can.foresees:
            again = Source(only, models, fleet, world, router, traffic.slo)
            world.future = Future.of(again.chunks())
        watches: list[Watch] = [tally]
        if traffic.watch:
            self._watchings[name] = Watching(world)
            watches.append(self._watchings[name])
            if not known[0].tokens:
                chunks = Source(only, models, fleet, world, None, traffic.slo).chunks()
                self._bounds[name] = bounded(
                    chunks, Rates(known, fleet.devices, [(0,)], share=share)
                )
        physics = Physics(known, noise=traffic.noise, seed=seed)
        plane = Plane(world, router, physics, source.chunks(), watches)
        self._tallies[name] = tally
        predicted = models.models[model].predicted
        says = None if predicted is None else predicted.tolist()
        return Requested(plane, known[0].load, says)

    def figures(self, now: int) -> dict[str, dict[str, Any]]:
        """By service, once the run is over: its figures, and why requests were dropped."""
        self.host.close(now)
        return {name: self._figures(name, tally) for name, tally in self._tallies.items()}

    def _figures(self, name: str, tally: Tally) -> dict[str, Any]:
        up = self.host.total_up(self._jobs[name])
        bound = self._bounds.get(name)
        return {
            **tally.metrics(0),
            "utilisation": min(sum(tally.busy) / up, 1.0) if up else None,
            **({} if bound is None else {"attainment_bound": bound.attainment}),
            "dropped_by_reason": dict(tally.dropped),
            "classes": tally.classes.rows(),
        }

    def watched(self) -> dict[str, Watched]:
        """By service to which anything came, what a report draws of its batches."""
        return {
            name: watching.found(self._tallies[name].latencies, self._tallies[name].requests)
            for name, watching in self._watchings.items()
            if self._tallies[name].requests
        }

    def windows(self) -> dict[str, dict[str, list[float | None]]]:
        """By service, what was reported of each window: when it began (`since`, seconds), and the
        figures of `KEPT`."""
        names = {self._declared.name(job): series for job, series in self.host.kept.items()}
        return {name: names[name] for name in self._tallies if names.get(name)}


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
