"""The oracle that knows how long every job takes, and a wrapper that makes any oracle wrong."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ganger.core.profiles import Profile
from ganger.core.protocols import Knows, Oracle
from ganger.core.spec import Locality
from ganger.core.state.table import F64, Ids, Table
from ganger.core.view import View
from ganger.sim.physics import Physics

GRIDS = 4096
"""So many rows of speeds are remembered."""


class _Durations(Table):
    """By job, in microseconds."""

    duration: F64


class Truth:
    """Knows the durations and speeds that the simulator itself uses."""

    knows = Knows.TRUTH
    learns = False
    learnt: Any = None

    def __init__(self, duration: NDArray[np.int64], physics: Physics) -> None:
        self._known = _Durations()
        self._known.extend(len(duration), duration=duration)
        self._duration, self._one = self._known.duration, self._known.cells("duration")
        self.late: list[int] = []
        """The durations of jobs that came late, in order of rows."""
        self._physics = physics
        self.steady = not physics.paces
        self._told: dict[tuple[Any, ...], float] = {}
        """Speeds that do not change, by model, GPUs asked for, type, its speed, GPUs, spread."""
        self._rows: dict[tuple[Any, ...], NDArray[np.float64]] = {}
        """Speeds at all of a grid of sizes, by the grid and the kind of job."""

    def add(self, duration: int) -> None:
        """A job came late, as the next row."""
        self.late.append(duration)
        self._known.extend(1, duration=duration)
        self._duration, self._one = self._known.duration, self._known.cells("duration")

    def all(self) -> NDArray[np.int64]:
        """How long each job takes, also those that came late, microseconds."""
        return self._duration[: self._known.n].astype(np.int64)

    def duration(self, view: View, ids: Any) -> Any:
        """The true run time at the size asked for, on the reference type, microseconds."""
        return self._one[ids] if type(ids) is int else self._duration[ids]

    def throughput(
        self, view: View, ids: Ids, gpu_type: str, gpus: NDArray[Any], nodes: NDArray[Any]
    ) -> NDArray[np.float64]:
        """The true speed, relative to the reference; `ids`, `gpus` and `nodes` broadcast. Of a job
        that chooses its batch size: its goodput at the best batch, with the noise it has now."""
        profiles, jobs = self._physics.profiles, view.jobs
        speed = {kind.name: kind.speed for kind in view.nodes.type_specs}.get(gpu_type, 1.0)
        flat = ids.ndim == 1 and ids.shape == gpus.shape == nodes.shape
        if flat and not self._physics.paces:
            return self._static(view, ids, (gpu_type, speed), gpus, nodes > 1)
        grid = np.broadcast(gpus, nodes).shape
        alone = grid[: len(grid) - ids.ndim + 1] in ((), (1,))
        if 1 < ids.ndim >= len(grid) and ids.size == len(ids) and alone:
            return self._on_grid(view, ids, (gpu_type, speed), gpus, nodes)
        shape = np.broadcast_shapes(ids.shape, grid)
        many, spread = np.broadcast_to(gpus, shape), np.broadcast_to(nodes, shape)
        out = np.empty(shape)
        starts = self._starts(view, ids) if self._physics.paces else np.zeros_like(ids)
        kinds = np.stack([jobs.model[ids], jobs.gpus[ids], starts], axis=-1).reshape(-1, 3)
        alike, kind = np.unique(kinds, axis=0, return_inverse=True)
        kind = np.broadcast_to(kind.reshape(ids.shape), shape)
        for number, (model, asked, start) in enumerate(alike.tolist()):
            at = kind == number
            name = jobs.models[model]
            profile = profiles.of(name)
            if profile.goodput is None:
                tiers = np.where(spread[at] <= 1, int(Locality.ISLAND), int(Locality.ANY))
                computes, parts = self._spliced(many[at], asked)
                out[at] = parts * profile.rates(gpu_type, speed, computes, asked, tiers)
                continue
            pace, factor = self._physics.pace_on(name, gpu_type, speed)
            sizes = zip(spread[at].tolist(), many[at].tolist(), strict=True)
            out[at] = [factor * pace.even(*size)[start] for size in sizes]
        return out

    def _on_grid(
        self, view: View, ids: Ids, kind: tuple[str, float], gpus: NDArray[Any], nodes: Any
    ) -> NDArray[np.float64]:
        """`throughput` of everybody at the same sizes: of one job of each kind."""
        if len(self._rows) > GRIDS:
            self._rows.clear()
        jobs, flat, grid = view.jobs, ids.ravel(), np.broadcast(gpus, nodes).shape
        starts = self._starts(view, flat) if self._physics.paces else 0
        model, asked = (each[flat].astype(np.int64) for each in (jobs.model, jobs.gpus))
        kinds = (model << 42) + (asked << 16) + starts
        _, first, same = np.unique(kinds, return_index=True, return_inverse=True)
        sizes = (*kind, gpus.shape, gpus.tobytes(), nodes.shape, nodes.tobytes())
        rows = []
        for at in first.tolist():
            key = int(kinds[at]), sizes
            if key not in self._rows:
                many, spread = (np.broadcast_to(each, grid).ravel() for each in (gpus, nodes))
                one = np.full(len(many), flat[at])
                self._rows[key] = self.throughput(view, one, kind[0], many, spread)
            rows.append(self._rows[key])
        inner = (1,) * (ids.ndim - len(grid)) + grid
        return np.array(rows).reshape(-1, *inner[1:])[same]

    def _static(
        self, view: View, ids: Ids, kind: tuple[str, float], gpus: NDArray[Any], spread: Any
    ) -> NDArray[np.float64]:
        """`throughput` of jobs whose speed never changes, remembered."""
        jobs, told, out = view.jobs, self._told, []
        columns = (jobs.model[ids], jobs.gpus[ids], gpus, spread)
        for key in zip(*(column.tolist() for column in columns), strict=True):
            rate = told.get((kind, key))
            if rate is None:
                model, asked, many, apart = key
                profile = self._physics.profiles.of(jobs.models[model])
                tier = Locality.ANY if apart else Locality.ISLAND
                size, part = self._physics.spliced(many, asked)
                rate = told[kind, key] = part * profile.rate(*kind, size, asked, tier)
            out.append(rate)
        return np.array(out)

    def _spliced(self, gpus: NDArray[Any], asked: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Elementwise, the size at which a job computes, and what is left of its speed there."""
        if self._physics.protocol.splicing is None:
            return gpus, np.ones(gpus.shape)
        pairs = [self._physics.spliced(each, asked) for each in gpus.ravel().tolist()]
        sizes, parts = zip(*pairs, strict=True) if pairs else ((), ())
        return np.array(sizes, np.int64).reshape(gpus.shape), np.array(parts).reshape(gpus.shape)

    def _starts(self, view: View, ids: Ids) -> NDArray[np.int64]:
        """Which of its model's starts each job has reached."""
        flat = ids.ravel()
        shares = view.work(flat) / np.maximum(self._duration[flat], 1.0)
        names, paces = view.jobs.models, self._physics.paces
        at = [
            paces[name].at(share) if (name := names[code]) in paces else 0
            for code, share in zip(view.jobs.model[flat].tolist(), shares.tolist(), strict=True)
        ]
        return np.array(at, np.int64).reshape(ids.shape)

    def profile(self, model: str) -> Profile:
        """The profile that the simulator uses."""
        return self._physics.profiles.of(model)

    def interference(self, models: Sequence[str], gpu_type: str, gpus: int) -> NDArray[np.float64]:
        """What the simulator leaves each of them."""
        return np.array(self._physics.interference.parts(models, gpu_type, gpus))

    def observe(self, view: View) -> None:
        """It knows all there is."""


SIZES = 32
"""Sizes whose speeds are misjudged apart: two for each doubling of the GPUs."""


class Noisy:
    """Another oracle, wrong by a lognormal factor: of durations with spread `sigma`, drawn once per
    job, of speeds with spread `speeds`, drawn once per job, GPU type and size, and with the same
    spread of what sharing leaves of them, drawn once per model, those beside it, GPU type and size.

    The factors depend on the seed and on these alone, so the same job is misjudged the same way
    however often one asks.
    """

    knows = Knows.NOISY

    def __init__(
        self, inner: Oracle, sigma: float, seed: int, jobs: int, speeds: float = 0.0
    ) -> None:
        self._inner = inner
        self.late: list[int] = getattr(inner, "late", [])
        self.learns, self.steady = inner.learns, inner.steady
        self._factor = np.exp(np.random.default_rng([seed, 0x6E]).normal(0.0, sigma, jobs))
        self._seed, self._jobs, self._sigma, self._speeds = seed, jobs, sigma, speeds
        self._off: dict[str, NDArray[np.float32]] = {}
        """By GPU type: the factors of speeds, jobs x sizes."""

    @property
    def learnt(self) -> Any:
        """What the inner oracle has learnt."""
        return self._inner.learnt

    @learnt.setter
    def learnt(self, learnt: Any) -> None:
        """Go on from what was learnt before."""
        self._inner.learnt = learnt

    def duration(self, view: View, ids: Ids) -> NDArray[np.float64]:
        """The inner answer times the job's factor."""
        if view.jobs.n > len(self._factor):
            late = range(len(self._factor), view.jobs.n)
            drawn = [float(self._draw(0x6F, row).normal(0.0, self._sigma)) for row in late]
            self._factor = np.append(self._factor, np.exp(drawn))
        return self._inner.duration(view, ids) * self._factor[ids]

    def throughput(
        self, view: View, ids: Ids, gpu_type: str, gpus: NDArray[Any], nodes: NDArray[Any]
    ) -> NDArray[np.float64]:
        """The inner answer times the factors of the jobs at these sizes."""
        told = self._inner.throughput(view, ids, gpu_type, gpus, nodes)
        if not self._speeds:
            return told
        size = np.minimum(2 * np.log2(np.maximum(gpus, 1)), SIZES - 1).astype(np.int64)
        return np.asarray(told * self._misjudged(gpu_type, view.jobs.n)[ids, size])

    def _draw(self, *what: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *what])

    def _misjudged(self, gpu_type: str, rows: int) -> NDArray[np.float32]:
        """The factors of speeds, rows x sizes. Jobs that come late have draws of their own, so that
        they change nobody else's."""
        known, name = self._off.get(gpu_type), gpu_type.encode()
        if known is None:
            off = self._draw(0x73, *name).standard_normal((self._jobs, SIZES), np.float32)
            known = np.exp(np.float32(self._speeds) * off)
        if rows > len(known):
            late = [
                self._draw(0x74, row, *name).standard_normal(SIZES, np.float32)
                for row in range(len(known), rows)
            ]
            known = np.concatenate([known, np.exp(np.float32(self._speeds) * np.array(late))])
        self._off[gpu_type] = known
        return known

    def profile(self, model: str) -> Profile:
        """The inner answer."""
        return self._inner.profile(model)

    def interference(self, models: Sequence[str], gpu_type: str, gpus: int) -> NDArray[np.float64]:
        """The inner answer times a factor for each, whatever the order of the others; a job that is
        alone is never misjudged."""
        parts = self._inner.interference(models, gpu_type, gpus)
        if not self._speeds or len(models) < 2:
            return parts
        drawn = []
        for at, mine in enumerate(models):
            others = sorted([*models[:at], *models[at + 1 :]])
            words = "\0".join([gpu_type, str(gpus), mine, *others])
            drawn.append(self._draw(0x69, zlib.crc32(words.encode())).normal(0.0, self._speeds))
        return parts * np.exp(drawn)

    def observe(self, view: View) -> None:
        """Pass on."""
        self._inner.observe(view)
