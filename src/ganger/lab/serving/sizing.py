"""The smallest fleet that keeps an SLO, for each recipe: many runs, chosen by bisection."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil, log2
from typing import Any, Final, NamedTuple

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.units import shown
from ganger.lab.metrics import confidence
from ganger.lab.serving.fleet import MOST, Fleet
from ganger.lab.serving.run import ServingRun, Setup
from ganger.lab.serving.sweep import Task, try_tasks
from ganger.lab.serving.tokens import apart
from ganger.workloads.models.profiles import Models
from ganger.workloads.requests.columns import Requests

_PART = re.compile(r"([A-Za-z0-9_. -]+?)\s*:\s*(\d{1,6})(?:\s*-\s*(\d{1,6}))?")
_BATCHES: Final = 30
"""Means of so many parts of the log give the interval."""
_MIXES: Final = 10_000
CANDIDATES: Final = ("serve.triton", "clipper", "nanily", "clockwork", "nexus")
"""Recipes that are tried where none is named and requests name models."""
CHOOSING: Final = (
    "clipper",
    "clipper(selection=exp4)",
    "model-switching",
    "tolerance-tiers",
    "cocktail",
)
"""The same where they name families."""
SPEAKING: Final = ("serve.triton", "serve.continuous-batching", "serve.fair")
"""The same where they name token models."""


class Sizes(NamedTuple):
    """Counts of each type of device, from the least to the most."""

    types: tuple[tuple[str, int, int], ...]

    def __str__(self) -> str:
        return "+".join(
            f"{name}:{least}-{most}" if least < most else f"{name}:{most}"
            for name, least, most in self.types
        )


@dataclass(frozen=True)
class Tried:
    """A recipe on a fleet: the part of requests in time with its 95 % interval, and the mean of the
    figures of its runs."""

    recipe: str
    fleet: Fleet
    attainment: float
    low: float
    high: float
    p99_seconds: float | None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "fleet": str(self.fleet),
            "attainment": self.attainment,
            "attainment_low": self.low,
            "attainment_high": self.high,
            "latency_p99_seconds": self.p99_seconds,
        }


@dataclass
class Found:
    """Of one recipe on one range of fleets: the cheapest that keeps the SLO, and the next smaller
    one, which does not (None: there is none); without one that does, the nearest miss."""

    recipe: str
    sizes: Sizes
    best: Tried | None = None
    cost: float = float("inf")
    below: Tried | None = None
    nearest: Tried | None = None
    refused: BadInput | None = None
    """Why the recipe cannot serve these requests there."""


@dataclass
class Advice:
    """What came out, the cheapest first; those that keep it nowhere come last."""

    target: float
    found: list[Found]
    runs: int = 0
    requests: int = 0
    remarks: list[str] = field(default_factory=list)

    @property
    def best(self) -> Found | None:
        """The recommendation."""
        return self.found[0] if self.found and self.found[0].best is not None else None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        rows = []
        for found in self.found:
            row: dict[str, Any] = {
                "recipe": found.recipe,
                "range": str(found.sizes),
                "refused": found.refused and str(found.refused),
            }
            row["cost"] = found.cost if found.best is not None else None
            for name in ("best", "below", "nearest"):
                tried: Tried | None = getattr(found, name)
                row[name] = tried and tried.to_json()
            rows.append(row)
        best = self.best
        return {
            "attainment": self.target,
            "requests": self.requests,
            "runs": self.runs,
            "pick": None
            if best is None or best.best is None
            else {"recipe": best.recipe, "fleet": str(best.best.fleet)},
            "found": rows,
        }


def read_sizes(text: str) -> list[Sizes]:
    """`T4:1-64,L4:1-64` or `T4:0-8+L4:0-8`. Raises BadInput."""
    mend = "write like T4:1-64,L4:1-64 or T4:0-8+L4:0-8"
    found: list[Sizes] = []
    for fleet in text.split(","):
        types: list[tuple[str, int, int]] = []
        for part in fleet.split("+"):
            match = _PART.fullmatch(part.strip())
            if match is None:
                raise BadInput(
                    f"{shown(part)} is not a range of devices", where="--fleets", mend=mend
                )
            name, least = match[1].strip(), int(match[2])
            most = int(match[3] or least)
            if least > most or any(name == other for other, *_ in types):
                raise BadInput(
                    f"{shown(part)} runs backwards or is named twice", where="--fleets", mend=mend
                )
            types.append((name, least, most))
        mixes = int(np.prod([most - least + 1 for _, least, most in types[:-1]], dtype=np.int64))
        total = sum(most for *_, most in types)
        if not 1 <= total <= MOST or mixes > _MIXES:
            raise BadInput(
                f"{shown(fleet)} has {total} devices and {mixes} mixes",
                where="--fleets",
                mend=f"give 1 to {MOST} devices, {_MIXES} mixes",
            )
        found.append(Sizes(tuple(types)))
    return found


def size(
    load: Callable[[], Requests],
    models: Models,
    recipes: Sequence[str],
    ranges: Sequence[Sizes],
    setup: Setup,
    *,
    target: float,
    seeds: Sequence[int],
    prices: Mapping[str, float],
    workers: int = 1,
    progress: Callable[[float], None] = lambda share: None,
) -> Advice:
    """For each recipe on each range the cheapest fleet of which the interval of attainment lies at
    or above `target`. A price counts for each device of its type, 1 where none is stated.

    More devices are taken to help; of each fleet that is named, the next smaller was run as well.
    Raises BadInput.
    """
    searches = [Search(recipe, sizes, target, prices) for recipe in recipes for sizes in ranges]
    runs = requests = 0
    remarks: list[str] = []
    while True:
        asked = [(search, fleet) for search in searches if (fleet := search.fleet) is not None]
        if not asked:
            break
        tasks, of = [], []
        for search, fleet in asked:
            for seed in seeds:
                tasks.append(Task(search.found.recipe, fleet, replace(setup, seed=seed)))
                of.append(search)
        done = try_tasks(load, models, tasks, workers=workers)
        runs += len(tasks)
        for search, fleet in asked:
            mine = [run for run, owner in zip(done, of, strict=True) if owner is search]
            refused = next((run for run in mine if isinstance(run, BadInput)), None)
            if refused is not None:
                search.refuse(refused)
                continue
            good = [run for run in mine if isinstance(run, ServingRun)]
            requests, remarks = int(good[0].metrics["requests"] or 0), good[0].remarks
            if not good[0].dated:
                raise BadInput(
                    "no request has a deadline, so any fleet keeps them all",
                    where="--slo",
                    mend="write like 100ms",
                )
            search.hear(tried_on(search.found.recipe, fleet, good))
        progress(sum(search.share for search in searches) / len(searches))
    progress(1.0)
    found = sorted((search.found for search in searches), key=_order)
    for each in found[:1]:
        if each.refused is not None and all(other.refused is not None for other in found):
            raise each.refused
    return Advice(target, found, runs, requests, remarks)


def _order(found: Found) -> tuple[Any, ...]:
    if found.best is not None:
        return 0, found.cost, -found.best.attainment, found.recipe
    nearest = found.nearest
    return 1, 0.0 if nearest is None else -nearest.attainment, 0.0, found.recipe


class Search:
    """Bisects the last type for every mix of the others. `fleet`: what it wants to know next."""

    def __init__(
        self, recipe: str, sizes: Sizes, target: float, prices: Mapping[str, float]
    ) -> None:
        self.found = Found(recipe, sizes)
        self._target, self._prices = target, prices
        self._done = 0
        *others, last = sizes.types
        self._mixes = list(product(*(range(least, most + 1) for _, least, most in others)))
        self._most = len(self._mixes) * (ceil(log2(last[2] - last[1] + 1)) + 1)
        self._steps = self._go()
        self.fleet: Fleet | None = next(self._steps, None)

    @property
    def share(self) -> float:
        """How much of the search is done, if it takes as long as it can."""
        return 1.0 if self.fleet is None else min(self._done / self._most, 1.0)

    def hear(self, tried: Tried) -> None:
        """What the fleet that was asked for does."""
        self._done += 1
        nearest = self.found.nearest
        if nearest is None or tried.attainment > nearest.attainment:
            self.found.nearest = tried
        try:
            self.fleet = self._steps.send(tried)
        except StopIteration:
            self.fleet = None

    def refuse(self, why: BadInput) -> None:
        """The recipe cannot serve there."""
        self.found.refused = why
        self.fleet = None
        self._steps.close()

    def _go(self) -> Generator[Fleet, Tried, None]:
        names = [name for name, *_ in self.found.sizes.types]
        _, least, most = self.found.sizes.types[-1]
        for mix in self._mixes:
            low, high = least - 1, most  # `low` does not keep it, or is no fleet
            if not sum(mix):
                low = max(low, 0)
            while low < high and self._cost([*mix, high]) >= self.found.cost:
                high -= 1  # would not be cheaper
            if low >= high:
                continue
            held: dict[int, Tried] = {}
            top = yield Fleet(tuple(_some(names, [*mix, high])))
            held[high] = top
            if top.low < self._target:
                continue
            while high - low > 1:
                middle = (low + high) // 2
                held[middle] = yield Fleet(tuple(_some(names, [*mix, middle])))
                if held[middle].low >= self._target:
                    high = middle
                else:
                    low = middle
            self.found.best, self.found.below = held[high], held.get(high - 1)
            self.found.cost = self._cost([*mix, high])

    def _price(self, type_: str) -> float:
        """Of a lane; of several devices together as many times that of one."""
        together, device = apart(type_)
        return self._prices.get(type_, together * self._prices.get(device, 1.0))

    def _cost(self, counts: Sequence[int]) -> float:
        return sum(
            self._price(name) * count
            for (name, *_), count in zip(self.found.sizes.types, counts, strict=True)
        )


def _some(names: Sequence[str], counts: Sequence[int]) -> list[tuple[str, int]]:
    return [(name, count) for name, count in zip(names, counts, strict=True) if count]


def tried_on(recipe: str, fleet: Fleet, runs: Sequence[ServingRun]) -> Tried:
    """Figures over seeds. The interval: of the means of parts of the log that follow each other,
    each averaged over the seeds first."""
    values = [run.metrics["attainment"] or 0.0 for run in runs]
    mean = float(np.mean(values))
    parts = np.mean([_parts(run.in_time) for run in runs], axis=0)
    half = confidence(parts).half_width if len(parts) > 1 else 1.0
    p99 = [run.metrics["latency_p99_seconds"] for run in runs]
    known = [each for each in p99 if each is not None]
    return Tried(
        recipe,
        fleet,
        mean,
        max(mean - half, 0.0),
        min(mean + half, 1.0),
        float(np.mean(known)) if known else None,
    )


def _parts(blocks: Sequence[tuple[int, int]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The part in time of so many equal parts of the log, from (requests, in time) of blocks."""
    some = np.array_split(np.array(blocks, np.float64), min(_BATCHES, len(blocks)))
    return np.array([each[:, 1].sum() / each[:, 0].sum() for each in some])


def candidates(models: Models, names: Sequence[str]) -> list[str]:
    """The recipes that are tried where none is named: by what requests name."""
    families = {model.family for model in models.models.values() if model.family}
    choosing = any(name in families and name not in models.models for name in names)
    known = [models.models[name] for name in names if name in models.models]
    if any(model.tokens for model in known):
        return list(SPEAKING)
    return list(CHOOSING if choosing else CANDIDATES)
