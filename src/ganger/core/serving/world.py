"""What a router sees: requests as columns, tasks, lanes, stores, predictions. Times: microseconds.

Only the plane that drives the router changes lanes and stores; a router answers and refuses
requests through the world, and orders the rest.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ganger.core.errors import InvariantError
from ganger.core.serving.tokens import Cached, Times
from ganger.core.serving.verbs import Batch, Load
from ganger.core.state.names import Names
from ganger.core.units import NEVER

OPEN: Final = 0
ANSWERED: Final = 1
"""Outcomes of requests; every other is the number of a reason why it was dropped, plus 2."""


_WORD: Final = (1 << 64) - 1
_BLANKS: Final = {
    "deadline": NEVER,
    "model": 0,
    "tenant": 0,
    "items": 1,
    "input": -1,
    "label": -1,
    "prompt": 0,
}
"""What a request has that does not state it."""
_UNSTATED: Final = "b"
"""The type of a column that nobody stated."""


class Requests:
    """The requests that are not all over yet, as columns: row `i` stands at `i - base`.

    `model`: what is asked for, as a code; `deadline`: NEVER where none is; `items`: inputs;
    `input` and `label`: -1 where not known. `outcome`, `ended` and `by` are results: when a request
    was answered or dropped, and by which model it was answered (-1: by none). Of token models:
    `prompt`, in tokens; as results `made`, the tokens of its output so far, and `first`, when the
    first of them was there. How long the output will be stands nowhere here.

    A column that was never stated takes one byte a request, and so do the results of token models
    where there are none.
    """

    def __init__(self, *, speaks: bool = False) -> None:
        self.base = 0
        self.arrival = array("q")
        self.deadline = array("q")
        self.model = array(_UNSTATED)
        self.tenant = array(_UNSTATED)
        self.items = array(_UNSTATED)
        self.input = array(_UNSTATED)
        self.label = array(_UNSTATED)
        self.prompt = array(_UNSTATED)
        self.outcome = bytearray()
        self.ended = array("q")
        self.by = array("i")
        self.made = array("q" if speaks else _UNSTATED)
        self.first = array("q" if speaks else _UNSTATED)
        self.each_one_item = True
        """Whether no request brings more than one input."""

    @property
    def end(self) -> int:
        """The number of the next request that comes."""
        return self.base + len(self.arrival)

    def add(self, columns: Mapping[str, Sequence[int]]) -> None:
        """Take requests in order of arrival; columns that are not stated have their blanks."""
        count = len(columns["arrival"])
        self.arrival.extend(columns["arrival"])
        for name, blank in _BLANKS.items():
            column, stated = getattr(self, name), columns.get(name)
            if stated is None:
                column.extend(array(column.typecode, [blank]) * count)
                continue
            if column.typecode == _UNSTATED:
                column = array("q", column)
                setattr(self, name, column)
            column.extend(stated)
        if "items" in columns and max(columns["items"], default=1) > 1:
            self.each_one_item = False
        self.outcome.extend(bytes(count))
        self.by.extend(array("i", [-1]) * count)
        for column in (self.ended, self.made, self.first):
            column.extend(array(column.typecode, [0]) * count)

    def drop_first(self, count: int) -> None:
        """Forget the first rows, which are over."""
        for column in (
            self.arrival,
            self.deadline,
            self.model,
            self.tenant,
            self.items,
            self.input,
            self.label,
            self.prompt,
            self.outcome,
            self.ended,
            self.by,
            self.made,
            self.first,
        ):
            del column[:count]
        self.base += count


class Task(Struct):
    """Work for a request that is more than one batch entry: a stage, a copy, a member of an
    ensemble. `request`: whose it is; `step`: what the router calls this part of the work;
    `arrival` and `deadline`: of this part, where the router batches it by them; `inputs`: those of
    which it asks the sum of a parity model."""

    request: int
    model: int
    items: int = 1
    step: int = 0
    arrival: int = 0
    deadline: int = NEVER
    inputs: tuple[int, ...] = ()


class Lane(Struct, eq=False):
    """Something that runs one batch at a time, or copies one model.

    `type`: of device; `device`: lanes of one device share it; `store`: its memory, -1 where memory
    is not watched; `share`: of the device; `copies`: whether it loads models and runs none;
    `ahead`: how long before its batch should end it asks for the next; `cache`: bytes for what
    token models keep of sequences, -1 where that is not watched, and `cached`, those in use;
    `only`: the one model that it runs, -1: any.
    """

    number: int
    type: str
    device: int = 0
    store: int = -1
    share: float = 1.0
    copies: bool = False
    ahead: int = 0
    running: Batch | Load | None = None
    since: int = 0
    due: int = 0
    """When it should be free, by what is predicted."""
    queued: list[Batch | Load] = []
    """What it runs after that."""
    down: bool = False
    cache: int = -1
    cached: int = 0
    only: int = -1


class Store(Struct, eq=False):
    """Memory that models lie in: `capacity` and `used` in bytes, `resident` with the moment of
    last use; `loading`: what is being copied into it."""

    number: int
    capacity: int
    used: int = 0
    resident: dict[int, int] = {}
    loading: set[int] = set()


class Latencies(Struct, frozen=True):
    """Microseconds of a batch by its items: `mean[n]` and `p99[n]`, from 0 (0) to the largest that
    was measured."""

    mean: Sequence[int]
    p99: Sequence[int]

    @property
    def largest(self) -> int:
        """The largest batch."""
        return len(self.mean) - 1


class Quickest(NamedTuple):
    """Of what can answer on a lane, the model that takes least for a single input, what it takes,
    and `each`: microseconds of an input in its best batch."""

    model: int
    table: Latencies
    each: float


class Recorded(Struct, frozen=True, eq=False):
    """The answers of a model to a labelled data set, by input: the class that it gave (`gave`), the
    true one (`labels`), and `scores`, the numbers that it gave for every class (None: not
    recorded). The inputs are the same for all models of a family."""

    gave: NDArray[np.int64]
    labels: NDArray[np.int64]
    scores: NDArray[np.float64] | None = None


class Known(Struct, frozen=True):
    """What is known of a model: latency by (type of device, share), bytes, microseconds to load by
    type, accuracy (nan: not known), segment borders as shares of its time; `beside`: like latency,
    how many times longer a batch takes with 1, 2, ... others on the device (the last for more);
    `tokens`: of a token model, what steps take, by type of device, and then `latencies` are of
    whole requests of usual lengths; `cache_bytes`: of the cache for each token;
    `layers`: identities of the segments, "" for one that is like no other: models that begin with
    the same ones can run those together; `recorded`: its answers to a labelled data set;
    `peaks`: the greatest part of a device's compute that it uses, by the keys of `latencies`.
    Of a parity model: the model of whose answers it gives the sum (`parity_of`), if it is asked of
    the sum of `parity_k` inputs."""

    name: str
    latencies: Mapping[tuple[str, float], Latencies]
    bytes: int = 0
    load: int = 0
    accuracy: float = float("nan")
    borders: tuple[float, ...] = ()
    beside: Mapping[tuple[str, float], tuple[float, ...]] = {}
    tokens: Mapping[str, Times] = {}
    cache_bytes: int = 0
    layers: tuple[str, ...] = ()
    recorded: Recorded | None = None
    peaks: Mapping[tuple[str, float], float] = {}
    parity_of: str = ""
    parity_k: int = 0

    def part(self, first: int, last: int) -> float:
        """The part of its time that it takes from a segment on to another (0: to its end)."""
        borders = (0.0, *self.borders, 1.0)
        return borders[last or len(borders) - 1] - borders[first]


class Stage(Struct, frozen=True):
    """A step of a pipeline: `model` runs. `feeds`: the stages behind it, by number, and how many
    items each is handed for each of its own, on average; `after`: how many stages feed it."""

    name: str
    model: int
    feeds: tuple[tuple[int, float], ...] = ()
    after: int = 0


class Pipeline(Struct, frozen=True):
    """Models that answer a request together; a stage comes after those that feed it."""

    name: str
    stages: tuple[Stage, ...]


class World:
    """Everything that a router may look at. `models` by code, `lanes` and `stores` by number; lanes
    that copy come last. `families`: names of models among which a router may choose, with their
    codes; a request for the k-th family has the code `len(models) + k`. `pipelines`: the codes of
    requests for them come after those. `tenants`: their names by code, as far as requests of them
    have come."""

    def __init__(
        self,
        models: Sequence[Known],
        lanes: Sequence[Lane],
        stores: Sequence[Store] = (),
        *,
        families: Sequence[tuple[str, tuple[int, ...]]] = (),
        pipelines: Sequence[Pipeline] = (),
        seed: int = 0,
        tenants: Sequence[str] = ("",),
    ) -> None:
        for at, lane in enumerate(lanes):
            if lane.number != at or (at and lanes[at - 1].copies and not lane.copies):
                raise InvariantError(f"lane {lane.number} is out of order")
        self.now = 0
        self.requests = Requests(speaks=any(known.tokens for known in models))
        self.tasks: dict[int, Task] = {}
        self.models, self.lanes, self.stores = models, lanes, stores
        self.families, self.pipelines = families, pipelines
        self.variants = [
            *((model,) for model in range(len(models))),
            *(those for _, those in families),
            *(() for _ in pipelines),
        ]
        """By what a request may ask for: the models that can answer it; of a pipeline none can
        alone."""
        self.first_pipeline = len(models) + len(families)
        """The code of the first pipeline."""
        self.tenants = tenants
        self.cached: dict[int, Cached] = {}
        """By task: what a lane keeps of it for a token model."""
        self.cut: list[int] = []
        """Lanes that a router has asked to interrupt while requests came."""
        self.steps_done: Callable[[int], int] = lambda lane: 0
        """How many steps of what a lane runs are over already."""
        self.memory: Any = None
        self.future: Any = None
        """All requests before they come, for a router that `foresees`; None for every other."""
        self.reasons = Names[str]()
        self.heard: Callable[[Collection[int], int, int], None] | None = None
        """Who hears of requests that are over: rows, outcome, when."""
        self.open = 0
        """How many requests have come and are not over."""
        self.said: dict[int, int] = {}
        """The classes that requests were answered with, where it is not what `by` says: of votes.
        Whoever forgets a request forgets this too."""
        self.wanted = 0
        """How many lanes a router that `retires` wants, whether there are so many or not."""
        self._seed, self._last_task = seed, 0
        tables: dict[tuple[str, float, int], dict[int, Latencies | None]] = {}
        self._tables = [tables.setdefault((lane.type, lane.share, lane.only), {}) for lane in lanes]
        quick: dict[tuple[str, float, int], dict[int, Quickest | None]] = {}
        self._quick = [quick.setdefault((lane.type, lane.share, lane.only), {}) for lane in lanes]

    # ------------------------------------------------------------------ predictions

    def latencies(self, model: int, lane: Lane) -> Latencies | None:
        """What is predicted of batches of a model on a lane; None where it cannot run there."""
        tables = self._tables[lane.number]
        try:
            return tables[model]
        except KeyError:
            runs = lane.only in (-1, model)
            known = self.models[model].latencies.get((lane.type, lane.share))
            tables[model] = known if runs else None
            return tables[model]

    def quickest(self, asked: int, lane: Lane) -> Quickest | None:
        """Which model answers soonest on a lane what is asked for; None where none runs there."""
        known = self._quick[lane.number]
        if asked not in known:
            tables = [(model, self.latencies(model, lane)) for model in self.variants[asked]]
            able = [(table.mean[1], model, table) for model, table in tables if table is not None]
            known[asked] = None
            if able:
                _, model, table = min(able, key=lambda each: each[:2])
                mean = table.mean
                least = min(mean[items] / items for items in range(1, len(mean)))
                known[asked] = Quickest(model, table, least)
        return known[asked]

    def times(self, model: int, lane: Lane) -> Times | None:
        """What steps of a token model take on a lane; None where it is none there."""
        return self.models[model].tokens.get(lane.type)

    def draw(self, row: int, salt: int = 0) -> float:
        """A number from [0, 1), always the same for a request (and a `salt`, for a second one): it
        does not depend on the ranges in which requests come. (Steele et al.: Fast splittable
        pseudorandom number generators, OOPSLA 2014.)"""
        at = (self._seed * 0x9E3779B97F4A7C15 + row * 0xD1342543DE82EF95 + salt + 1) & _WORD
        at = ((at ^ at >> 30) * 0xBF58476D1CE4E5B9) & _WORD
        at = ((at ^ at >> 27) * 0x94D049BB133111EB) & _WORD
        return (at ^ at >> 31) / (1 << 64)

    def asked(self, code: int) -> str:
        """The name of the model, the family or the pipeline that a request asks for."""
        if code >= self.first_pipeline:
            return self.pipelines[code - self.first_pipeline].name
        count = len(self.models)
        return self.models[code].name if code < count else self.families[code - count][0]

    def interrupt(self, lane: int) -> None:
        """What an `Interrupt` does, from where requests come: the lane ends with the step of a
        token model that runs at the arrival, or, for a router that `cuts`, with the segment."""
        self.cut.append(lane)

    # ------------------------------------------------------------------ tasks

    def add_task(self, task: Task) -> int:
        """Note a task: its number, which is negative."""
        self._last_task -= 1
        self.tasks[self._last_task] = task
        return self._last_task

    def arrival_of(self, number: int) -> int:
        """When a request came, or a task began to be wanted."""
        if number < 0:
            return self.tasks[number].arrival
        return self.requests.arrival[number - self.requests.base]

    def deadline_of(self, number: int) -> int:
        """By when a request or a task is wanted."""
        if number < 0:
            return self.tasks[number].deadline
        return self.requests.deadline[number - self.requests.base]

    def count_items(self, numbers: Sequence[int]) -> int:
        """The inputs that these requests and tasks bring together."""
        if self.requests.each_one_item:
            return len(numbers)
        items, base, tasks = self.requests.items, self.requests.base, self.tasks
        return sum(items[each - base] if each >= 0 else tasks[each].items for each in numbers)

    # ------------------------------------------------------------------ ends of requests

    def answer(self, rows: Collection[int], by: int = -1, *, at: int = -1) -> None:
        """Requests are answered by this model, now or at `at`. Raises InvariantError for a request
        that is over."""
        self._over(rows, ANSWERED, by, self.now if at < 0 else at)

    def refuse(self, rows: Collection[int], reason: str, *, at: int = -1) -> None:
        """Requests are dropped for this reason, now or at `at`. Raises InvariantError for a request
        that is over."""
        code = self.reasons.code(reason) + 2
        self._over(rows, code, -1, self.now if at < 0 else at)

    def _over(self, rows: Collection[int], outcome: int, by: int, at: int) -> None:
        requests = self.requests
        base, outcomes, ended, models = (
            requests.base,
            requests.outcome,
            requests.ended,
            requests.by,
        )
        for row in rows:
            i = row - base
            if i < 0 or outcomes[i]:
                raise InvariantError(f"request {row} ends twice")
            outcomes[i] = outcome
            ended[i] = at
            models[i] = by
        self.open -= len(rows)
        if self.heard is not None:
            self.heard(rows, outcome, at)
