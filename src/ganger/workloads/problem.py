"""Allocation problems from a file: `ganger.problem/1`, described in docs/problem-format.md."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.workloads.files import open_text

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FORMAT: Final = "ganger.problem/1"
_FAMILY = "ganger.problem/"
_MEND = "see docs/problem-format.md"
PLACEMENTS = ("consolidated", "distributed")


class _Placed(msgspec.Struct, forbid_unknown_fields=True):
    consolidated: float
    distributed: float


class _PlacedPair(msgspec.Struct, forbid_unknown_fields=True):
    consolidated: tuple[float, float]
    distributed: tuple[float, float]


class _Job(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    throughput: dict[str, float | _Placed]
    gpus: int = 1
    weight: float = 1.0
    steps_remaining: float | None = None
    seconds_elapsed: float = 0.0
    isolated_seconds_elapsed: float = 0.0
    slo_seconds: float | None = None
    entity: str = ""


class _Entity(msgspec.Struct, forbid_unknown_fields=True):
    weight: float = 1.0
    inside: Literal["fairness", "fifo"] = "fairness"
    parent: str = ""


class _Pair(msgspec.Struct, forbid_unknown_fields=True):
    jobs: tuple[str, str]
    throughput: dict[str, tuple[float, float] | _PlacedPair]


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    gpu_types: dict[str, int]
    jobs: list[_Job]
    format: str = FORMAT
    prices: dict[str, float] = {}
    entities: dict[str, _Entity] = {}
    pairs: list[_Pair] = []


class Column(NamedTuple):
    """Where a job can run: a GPU type, and a placement where throughputs tell them apart."""

    gpu_type: str
    placement: str


class Problem(NamedTuple):
    """A problem as arrays. Jobs are rows, `columns` columns; throughputs in steps per second.

    `steps` and `slo_seconds` are nan where not stated, `price` (USD per GPU-hour, by type) too;
    `entity` is -1 for jobs of no entity, `parent` for those at the top; `pairs` are job rows.
    """

    names: list[str]
    types: tuple[str, ...]
    gpus_of_type: Floats
    columns: tuple[Column, ...]
    throughput: Floats
    gpus: Floats
    weight: Floats
    steps: Floats
    seconds_elapsed: Floats
    isolated_seconds_elapsed: Floats
    slo_seconds: Floats
    price: Floats
    entity: Ints
    entities: tuple[str, ...]
    entity_weight: Floats
    entity_fifo: NDArray[np.bool_]
    parent: Ints
    pairs: Ints
    pair_throughput: Floats

    @property
    def kind(self) -> Ints:
        """The type of each column."""
        return np.array([self.types.index(column.gpu_type) for column in self.columns])


def load_problem(source: str | Path | Mapping[str, Any] | Problem) -> Problem:
    """The problem in a JSON file, or as decoded. Raises BadInput with the path of what is wrong."""
    if isinstance(source, Problem):
        return source
    if isinstance(source, Mapping):
        return _checked(dict(source), "problem")
    if not isinstance(source, str | Path):
        raise BadInput(f"a {type(source).__name__}", where="problem", mend="give a file or a dict")
    file = open_text(Path(source))
    try:
        raw = msgspec.json.decode(file.text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise file.refuse(f"it cannot be parsed: {error}", "fix the syntax") from None
    return _checked(raw, str(file.where))


def _checked(raw: Any, where: str) -> Problem:
    version = raw.get("format", FORMAT) if isinstance(raw, dict) else FORMAT
    if version != FORMAT:
        newer = isinstance(version, str) and version.startswith(_FAMILY)
        said = f"{version!r} is newer than this Ganger reads" if newer else f"{version!r}"
        raise BadInput(
            said,
            where=f"{where}: format",
            mend="upgrade Ganger" if newer else f'write "{FORMAT}" or leave it out',
        )
    try:
        document = msgspec.convert(raw, _Document)
    except msgspec.ValidationError as error:
        what, path = _located(raw, error)
        raise BadInput(what, where=f"{where}: {path}" if path else where, mend=_MEND) from None
    return _Reader(document, where).read()


def _located(raw: Any, error: msgspec.ValidationError) -> tuple[str, str]:
    """What is wrong, and the path of the field: with the names that msgspec leaves out."""
    what, _, at = str(error).partition(" - at ")
    path = at.strip("`").removeprefix("$").removeprefix(".")
    before, dots, _ = path.partition("[...]")
    if dots:
        for key, value in _reached(raw, before).items():
            try:
                msgspec.convert(_with(raw, before, {key: value}), _Document)
            except msgspec.ValidationError:
                path = path.replace("[...]", f".{key}", 1)
                break
    field = re.search(r"field `(.*)`", what)
    if field:
        path = f"{path}.{field[1]}".removeprefix(".")
    return what, path


def _steps(path: str) -> list[str | int]:
    return [int(word) if word.isdigit() else word for word in re.findall(r"[^.\[\]]+", path)]


def _reached(raw: Any, path: str) -> Any:
    for step in _steps(path):
        raw = raw[step]
    return raw


def _with(raw: Any, path: str, value: Any) -> Any:
    """`raw` with another value at `path`."""
    *above, last = _steps(path)
    whole = copy.deepcopy(raw)
    at = whole
    for step in above:
        at = at[step]
    at[last] = value
    return whole


class _Reader:
    """Checks what the types of fields do not tell, and makes arrays."""

    def __init__(self, document: _Document, where: str) -> None:
        self.document, self.where = document, where
        self.types = tuple(document.gpu_types)
        self.row = {job.name: at for at, job in enumerate(document.jobs)}
        self.columns = self._columns()
        self.at = {column: number for number, column in enumerate(self.columns)}

    def wrong(self, path: str, what: str, mend: str = _MEND) -> BadInput:
        return BadInput(what, where=f"{self.where}: {path}", mend=mend)

    def number(self, path: str, value: float, *, above: bool = False) -> float:
        if not math.isfinite(value) or value < 0 or (above and value == 0):
            least = "a number above 0" if above else "a number of at least 0"
            raise self.wrong(path, f"{value} is out of range", f"give {least}")
        return value

    def read(self) -> Problem:
        document, jobs = self.document, self.document.jobs
        counts = [
            float(self.number(f"gpu_types.{name}", count))
            for name, count in document.gpu_types.items()
        ]
        if not sum(counts):
            raise self.wrong("gpu_types", "there is no GPU", 'write like {"v100": 4}')
        self._names()
        for name in document.prices:
            self._type(f"prices.{name}", name)
        price = [
            self.number(f"prices.{name}", document.prices.get(name, math.inf), above=True)
            if name in document.prices
            else math.nan
            for name in self.types
        ]
        entities, entity, parent = self._entities()

        def column(field: str, *, above: bool = False) -> Floats:
            values = (getattr(job, field) for job in jobs)
            return np.array(
                [
                    math.nan
                    if value is None
                    else self.number(f"jobs[{i}].{field}", value, above=above)
                    for i, value in enumerate(values)
                ],
                float,
            )

        gpus, throughput = column("gpus", above=True), self._throughputs()
        pairs, pair_throughput = self._pairs()
        return Problem(
            [job.name for job in jobs],
            self.types,
            np.array(counts),
            self.columns,
            throughput,
            gpus,
            column("weight", above=True),
            column("steps_remaining", above=True),
            column("seconds_elapsed"),
            column("isolated_seconds_elapsed"),
            column("slo_seconds", above=True),
            np.array(price),
            entity,
            entities,
            np.array(
                [
                    self.number(f"entities.{name}.weight", found.weight, above=True)
                    for name, found in document.entities.items()
                ],
                float,
            ),
            np.array([found.inside == "fifo" for found in document.entities.values()], bool),
            parent,
            pairs,
            pair_throughput,
        )

    def _names(self) -> None:
        seen: set[str] = set()
        if not self.document.jobs:
            raise self.wrong("jobs", "there is no job")
        for i, job in enumerate(self.document.jobs):
            if not job.name or "+" in job.name:
                raise self.wrong(
                    f"jobs[{i}].name",
                    f"{job.name!r} is not a valid name",
                    "give one without `+`, which joins pairs",
                )
            if job.name in seen:
                raise self.wrong(f"jobs[{i}].name", f"{job.name!r} is listed twice", "rename one")
            seen.add(job.name)

    def _type(self, path: str, name: str) -> None:
        if name not in self.document.gpu_types:
            raise self.wrong(
                path, f"{name!r} is not a GPU type of this problem", f"use {', '.join(self.types)}"
            )

    def _columns(self) -> tuple[Column, ...]:
        plain, placed = set[str](), set[str]()
        for job in self.document.jobs:
            for name, given in job.throughput.items():
                (placed if isinstance(given, _Placed) else plain).add(name)
        for pair in self.document.pairs:
            for name, both in pair.throughput.items():
                (placed if isinstance(both, _PlacedPair) else plain).add(name)
        columns = list[Column]()
        for name in self.types:
            if name in plain or name not in placed:
                columns.append(Column(name, ""))
            if name in placed:
                columns += [Column(name, placement) for placement in PLACEMENTS]
        return tuple(columns)

    def _throughputs(self) -> Floats:
        rate = np.zeros((len(self.document.jobs), len(self.columns)))
        for i, job in enumerate(self.document.jobs):
            path = f"jobs[{i}].throughput"
            for name, given in job.throughput.items():
                self._type(f"{path}.{name}", name)
                if isinstance(given, _Placed):
                    for placement in PLACEMENTS:
                        value = getattr(given, placement)
                        self.number(f"{path}.{name}.{placement}", value)
                        rate[i, self.at[Column(name, placement)]] = value
                else:
                    rate[i, self.at[Column(name, "")]] = self.number(f"{path}.{name}", given)
            there = [self.document.gpu_types[column.gpu_type] > 0 for column in self.columns]
            if not (rate[i] * there).any():
                raise self.wrong(
                    path,
                    f"{job.name!r} runs on no GPU that is there",
                    "give a throughput above 0, or leave the job out",
                )
        return rate

    def _entities(self) -> tuple[tuple[str, ...], Ints, Ints]:
        known = self.document.entities
        names = tuple(known)
        for name, entity in known.items():
            if entity.parent and entity.parent not in known:
                said = f"there is no entity {entity.parent!r}"
                raise self.wrong(f"entities.{name}.parent", said)
            above, steps = entity.parent, 0
            while above:
                above, steps = known[above].parent if above in known else "", steps + 1
                if steps > len(known):
                    raise self.wrong(f"entities.{name}.parent", "parents go round in a circle")
        for i, job in enumerate(self.document.jobs):
            if job.entity and job.entity not in known:
                raise self.wrong(f"jobs[{i}].entity", f"there is no entity {job.entity!r}")
        number = {name: at for at, name in enumerate(names)} | {"": -1}
        return (
            names,
            np.array([number[job.entity] for job in self.document.jobs]),
            np.array([number[entity.parent] for entity in known.values()], np.int64),
        )

    def _pairs(self) -> tuple[Ints, Floats]:
        rows = np.zeros((len(self.document.pairs), 2), np.int64)
        rate = np.zeros((len(rows), 2, len(self.columns)))
        seen: set[frozenset[str]] = set()
        for i, pair in enumerate(self.document.pairs):
            path = f"pairs[{i}]"
            for side, name in enumerate(pair.jobs):
                if name not in self.row:
                    raise self.wrong(f"{path}.jobs[{side}]", f"there is no job {name!r}")
            if pair.jobs[0] == pair.jobs[1] or frozenset(pair.jobs) in seen:
                joined = "+".join(pair.jobs)
                raise self.wrong(f"{path}.jobs", f"{joined!r} is not a new pair")
            seen.add(frozenset(pair.jobs))
            rows[i] = [self.row[name] for name in pair.jobs]
            gpus = [self.document.jobs[row].gpus for row in rows[i]]
            if gpus[0] != gpus[1]:
                raise self.wrong(
                    f"{path}.jobs",
                    f"they use {gpus[0]} and {gpus[1]} GPUs",
                    "only jobs with as many GPUs can share them",
                )
            self._pair(path, pair, rate[i])
        return rows, rate

    def _pair(self, path: str, pair: _Pair, rate: Floats) -> None:
        for name, both in pair.throughput.items():
            at = f"{path}.throughput.{name}"
            self._type(at, name)
            if isinstance(both, _PlacedPair):
                given = {Column(name, place): getattr(both, place) for place in PLACEMENTS}
            else:
                given = {Column(name, ""): both}
            for column, values in given.items():
                for side in range(2):
                    self.number(at, values[side])
                    rate[side, self.at[column]] = values[side]
