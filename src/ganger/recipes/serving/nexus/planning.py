"""The epochs of Nexus: rates are measured, queries split, sessions packed, lanes given cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ganger.core.serving.world import World
from ganger.core.units import NEVER, SECOND
from ganger.mechanisms.serving.pipeline import expected
from ganger.mechanisms.serving.queues import Fifo
from ganger.recipes.serving.nexus.memory import Flow, Line, Memory, Pool, Stream, spread
from ganger.recipes.serving.nexus.packing import Session, fitted, largest_batch, throughput
from ganger.recipes.serving.nexus.prefix import planned
from ganger.recipes.serving.nexus.query import budgets, is_tree

_LEAST: Final = 0.01
"""Requests a second; sessions with fewer are not planned for, and served by all lanes in turn."""
_DOUBLINGS: Final = 4
"""So often is the time over which rates are measured doubled at the beginning."""


@dataclass(frozen=True)
class Planning:
    """`epoch`: microseconds from one plan to the next; `soonest`: at least, even where a lane has
    more than `overload` to do; `weight`: of the last measurement in a rate; `execution`: a cycle is
    as long as its batches take; `fill`: all lanes are used; `segments`: of the SLO of a query;
    `every`: microseconds from one measurement of rates to the next."""

    epoch: int
    soonest: int
    overload: float
    weight: float
    execution: bool
    fill: bool
    segments: int
    every: int = SECOND

    def measure(self, world: World, memory: Memory, came: int) -> bool:
        """A request came when rates should be measured. Whether to plan anew: at first after each
        measurement, the first after a part of `every`, the next after twice as long."""
        if memory.beacon < 0:
            memory.lasts = max(self.every >> _DOUBLINGS, 1)
            memory.beacon = came + memory.lasts
            return False
        begins = memory.lasts < self.every
        weight = max(self.weight, 0.5) if begins else self.weight
        more = (came - memory.beacon) // memory.lasts
        for stream in memory.streams.values():
            rate = stream.count * SECOND / memory.lasts
            stream.rate = rate if stream.rate < 0 else (stream.rate + weight * (rate - stream.rate))
            stream.rate *= (1 - weight) ** more
            stream.count = 0
        now = memory.beacon + more * memory.lasts
        memory.lasts = min(2 * memory.lasts, self.every)
        memory.beacon = now + memory.lasts
        since = now - memory.planned
        if (
            begins
            or since >= self.epoch
            or (since >= self.soonest and (memory.new or self._overloaded(world, memory)))
        ):
            memory.planned = now
            return True
        return False

    def _overloaded(self, world: World, memory: Memory) -> bool:
        now = [0.0] * len(memory.flows)
        for stream in memory.streams.values():
            for session, items in zip(stream.sessions, _items(world, stream), strict=True):
                now[session] += max(stream.rate, 0.0) * items
        return any(
            sum(part * now[at] / memory.flows[at].rate for at, part in parts) > self.overload
            for parts in memory.busy
        )

    # ------------------------------------------------------------------ plans

    def plan(self, world: World, memory: Memory) -> None:
        """Sessions and lanes anew, of the rates that are known; nothing waits anywhere."""
        memory.flows, memory.index, memory.lines = [], {}, []
        memory.busy, memory.new = [], False
        up = [
            (pool, [at for at in pool.lanes if not world.lanes[at].down]) for pool in memory.pools
        ]
        for at in range(len(world.lanes)):
            memory.cycle[at], memory.pace[at], memory.turn[at] = [], 0, 0
        for stream in memory.streams.values():
            self.divide(world, memory, stream, up)
            needs = zip(_models(world, stream), _items(world, stream), strict=True)
            for at, (model, items) in zip(stream.sessions, needs, strict=True):
                rate = max(stream.rate, 0.0) * items
                memory.flows[at].rate += rate
                memory.flows[at].mix[model] += rate
        for pool in memory.pools:
            pool.mixed = {}
        entries: list[list[tuple[int, float]]] = [[] for _ in memory.flows]
        for pool, lanes in up:
            self._pack(world, memory, pool, lanes, up, entries)
        for at, flow in enumerate(memory.flows):
            if entries[at]:
                flow.order = spread(entries[at])
            else:
                flow.rate = 0.0
                self.serve_everywhere(world, memory, at)

    def divide(
        self, world: World, memory: Memory, stream: Stream, up: Sequence[tuple[Pool, list[int]]]
    ) -> None:
        """The sessions of a stream. A query's SLO is split so that it needs the fewest lanes; by
        what stages take alone where no split keeps it, or stages are joined."""
        if stream.code < world.first_pipeline:
            stream.sessions = [self.session(memory, stream.code, stream.slo)]
            return
        assert memory.staged is not None
        pipeline = world.pipelines[stream.code - world.first_pipeline]
        stages, slo = pipeline.stages, stream.slo
        stream.parts = memory.staged.parts[stream.code - world.first_pipeline]
        lanes = sum(len(some) for _, some in up)
        if is_tree(pipeline) and slo < NEVER and lanes:
            known: dict[tuple[int, int], float] = {}

            def does(stage: int, budget: int) -> float:
                model = stages[stage].model
                if (model, budget) not in known:
                    known[model, budget] = (
                        sum(
                            len(some)
                            * throughput(pool.latency[model], budget * slo // self.segments)
                            for pool, some in up
                            if model in pool.latency
                        )
                        / lanes
                    )
                return known[model, budget]

            gpus, split = budgets(pipeline, expected(pipeline), self.segments, does)
            if gpus < float("inf"):
                ends = [0] * len(stages)
                for at, stage in enumerate(stages):
                    ends[at] += split[at]
                    for to, _ in stage.feeds:
                        ends[to] = ends[at]
                stream.parts = [end / self.segments for end in ends]
        begins = [0.0] * len(stages)
        stream.sessions = []
        for at, stage in enumerate(stages):
            for to, _ in stage.feeds:
                begins[to] = max(begins[to], stream.parts[at])
            own = NEVER if slo >= NEVER else round((stream.parts[at] - begins[at]) * slo)
            stream.sessions.append(self.session(memory, stage.model, own))

    def session(self, memory: Memory, model: int, slo: int) -> int:
        """The number of the session with this model, or one that begins with the same layers, and
        this SLO."""
        first = memory.alike[model][0]
        found = memory.index.get((first, slo))
        if found is None:
            found = memory.index[first, slo] = len(memory.flows)
            memory.flows.append(Flow(first, slo))
        memory.flows[found].mix.setdefault(model, 0.0)
        return found

    def _latency(self, world: World, memory: Memory, pool: Pool, at: int) -> list[int] | None:
        """Microseconds by inputs of a session on the lanes of a pool; None where it cannot run
        there."""
        flow = memory.flows[at]
        group = memory.alike[flow.model]
        if len(group) == 1 or flow.model not in pool.latency:
            return pool.latency.get(flow.model)
        if at not in pool.mixed:
            mix = flow.mix
            pool.mixed[at] = planned(world.models, pool.latency, mix, group, flow.slo)
        return pool.mixed[at]

    def _pack(
        self,
        world: World,
        memory: Memory,
        pool: Pool,
        lanes: list[int],
        up: Sequence[tuple[Pool, list[int]]],
        entries: list[list[tuple[int, float]]],
    ) -> None:
        """Give lanes that are alike their cycles: a pool has of each session what it can do of it,
        as a part of what all can."""
        if not lanes:
            return
        sessions = []
        for at, flow in enumerate(memory.flows):
            all_ = sum(
                len(some) * throughput(known, flow.slo)
                for each, some in up
                if (known := self._latency(world, memory, each, at)) is not None
            )
            latency = self._latency(world, memory, pool, at)
            if flow.rate < _LEAST or not all_ or latency is None:
                continue
            part = len(lanes) * throughput(latency, flow.slo) / all_
            sessions.append(Session(at, latency, flow.slo, flow.rate * part))
        nodes, factor = fitted(sessions, len(lanes), fill=self.fill)
        for lane, node in zip(lanes, nodes, strict=False):
            if len(node.shares) > 1:
                memory.pace[lane] = node.took if self.execution else round(node.duty)
            memory.busy.append([])
            for share in node.shares:
                at = share.session.number
                line = self._line(memory, pool, lane, at, share.batch, share.session.latency)
                entries[at].append((line, share.session.rate))
                memory.busy[-1].append((at, share.took / node.duty / factor))

    def serve_everywhere(self, world: World, memory: Memory, at: int) -> None:
        """A session that is not planned for is served by all lanes in turn."""
        flow = memory.flows[at]
        flow.turn = 0
        flow.order = [
            self._line(memory, pool, lane, at, max(largest_batch(latency, flow.slo), 1), latency)
            for pool in memory.pools
            if (latency := self._latency(world, memory, pool, at)) is not None
            for lane in pool.lanes
            if not world.lanes[lane].down
        ]

    def _line(
        self,
        memory: Memory,
        pool: Pool,
        lane: int,
        session: int,
        batch: int,
        latency: Sequence[int],
    ) -> int:
        number, model = len(memory.lines), memory.flows[session].model
        tables = pool.latency if len(memory.alike[model]) > 1 else None
        memory.lines.append(Line(lane, Fifo(model, lane), batch, latency, tables))
        if memory.turn[lane] == len(memory.cycle[lane]):
            memory.turn[lane] += 1  # a cycle that is over stays so
        memory.cycle[lane].append(number)
        return number


def _models(world: World, stream: Stream) -> list[int]:
    """The model of each of its sessions."""
    if stream.code < world.first_pipeline:
        return [stream.code]
    return [stage.model for stage in world.pipelines[stream.code - world.first_pipeline].stages]


def _items(world: World, stream: Stream) -> list[float]:
    """Items of each of its sessions for a request, on average."""
    if stream.code < world.first_pipeline:
        return [1.0]
    return expected(world.pipelines[stream.code - world.first_pipeline])
