"""Token models of a models file, as routers and the simulator know them on the lanes of a fleet."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.core.errors import BadInput
from ganger.core.serving.tokens import Times
from ganger.core.serving.world import Known, Lane, Latencies, World
from ganger.core.units import SECOND
from ganger.workloads.models.profiles import Model, Models, Tokens
from ganger.workloads.requests.columns import Requests

HEAD: Final = 4096
"""Requests of which the usual lengths are the means."""
_LARGEST: Final = 256
"""The largest batch of whole requests."""
_TOGETHER = re.compile(r"([1-9]\d{0,4})x(.+)")
_MIB: Final = 1 << 20
I64 = NDArray[np.int64]


class Usual(NamedTuple):
    """Mean tokens of prompts and outputs, of which a request has one at least."""

    prompt: int = 1
    output: int = 1


def usual_of(requests: Requests, models: Models) -> dict[str, Usual]:
    """By what requests name, the lengths of the first; empty where there is no token model. Routers
    that plan with the time of a batch believe every request to be such."""
    if not any(model.tokens for model in models.models.values()):
        return {}
    head = next(iter(requests.chunks(HEAD)), None)
    found: dict[str, Usual] = {}
    if head is None or head.prompt_tokens is None or head.output_tokens is None:
        return found
    for code in np.unique(head.model).tolist():
        here = head.model == code
        found[requests.models[code]] = Usual(
            max(round(float(head.prompt_tokens[here].mean())), 1),
            max(round(float(head.output_tokens[here].mean())), 1),
        )
    return found


def apart(type_: str) -> tuple[int, str]:
    """`2xA100` is a lane of two A100: how many devices, of which type."""
    match = _TOGETHER.fullmatch(type_)
    return (int(match[1]), match[2]) if match else (1, type_)


def lane_of(given: Tokens) -> str:
    """The type of lane on which this holds."""
    return given.device if given.devices == 1 else f"{given.devices}x{given.device}"


def tokens_on(model: Model, type_: str) -> Tokens | None:
    """What is known of a token model on a type of lane."""
    return next(
        (
            each
            for each in model.tokens
            if (each.devices, each.device) in (apart(type_), (1, type_))
        ),
        None,
    )


class Speaks(NamedTuple):
    """What steps of a token model take, whole requests by batch, and bytes of cache by token."""

    steps: Times
    whole: Latencies
    cache_bytes: int


def speaks(model: Model, type_: str, usual: Usual, room: int) -> Speaks | None:
    """Of a model on a type of lane; whole requests are of the usual lengths, and as many as `room`
    (bytes; -1: no limit) is enough for. None where it is not a token model there."""
    given = tokens_on(model, type_)
    if given is None:
        return None
    times = _times(given)
    each = (usual.prompt + usual.output - 1) * given.cache_bytes_per_token
    largest = min(room // each, _LARGEST) if room >= 0 and each else _LARGEST
    whole = [
        times.whole([usual.prompt] * count, usual.output) for count in range(1, max(largest, 1) + 1)
    ]
    rising = np.maximum.accumulate(np.rint(whole)).astype(np.int64)
    table = [0, *np.maximum(rising, 1).tolist()]
    return Speaks(times, Latencies(table, table), given.cache_bytes_per_token)


def _times(given: Tokens) -> Times:
    """In microseconds."""
    micros = tuple(each * SECOND for each in given.prefill or (0.0, 0.0, 0.0))
    rows = [] if given.decode is None else given.decode.tolist()
    return Times(
        (micros[0], micros[1], micros[2]),
        tuple(
            (most, base * SECOND, each * SECOND, context * SECOND)
            for most, base, each, context in rows
        ),
        _table(given.prefill_table),
        _table(given.decode_table),
    )


def _table(
    given: tuple[I64, NDArray[np.float64]] | None,
) -> tuple[tuple[int, ...], tuple[float, ...]] | None:
    if given is None:
        return None
    return tuple(given[0].tolist()), tuple((given[1] * SECOND).tolist())


def rooms_of(models: Models, types: Sequence[str]) -> dict[str, int]:
    """By type of lane, the bytes that are left for the cache beside the token models that run
    there; types whose memory, or models whose size, is not stated are left out. Raises BadInput
    where nothing is left."""
    found: dict[str, int] = {}
    for type_ in types:
        count, device = apart(type_)
        memory = models.devices.get(device, 0) * count * _MIB
        there = [each for each in models.models.values() if tokens_on(each, type_)]
        if not memory or not there or not all(each.bytes for each in there):
            continue
        found[type_] = memory - sum(each.bytes for each in there)
        if found[type_] <= 0:
            names = ", ".join(each.name for each in there)
            raise BadInput(
                f"{names} leave no memory of {type_} for a cache",
                where="--fleet",
                mend=f"spread them over more devices, as in {count + 1}x{device}:1",
            )
    return found


class Lengths:
    """Checks the lengths of requests to token models, and makes columns for the plane of them."""

    def __init__(self, world: World, row: Callable[[int], str]) -> None:
        self._row = row
        self.speaks = np.array(
            [any(world.models[model].tokens for model in those) for those in world.variants],
            np.bool_,
        )
        """By what is asked for: whether a token model may answer it."""
        self._room = np.array(
            [_least(world.models, world.lanes, those) for those in world.variants], np.int64
        )

    def columns(
        self,
        prompt: NDArray[np.int32] | None,
        output: NDArray[np.int32] | None,
        items: NDArray[np.int32] | None,
        model: I64,
        before: int,
    ) -> Mapping[str, list[int]]:
        """Prompts and outputs; an output of 0 tokens takes a step as one does. Raises BadInput."""
        here = self.speaks[model]
        if not here.any():
            return {}
        if prompt is None or output is None:
            self._wrong(
                before + int(here.argmax()),
                "it asks a token model and states no lengths",
                "give prompt_tokens and output_tokens",
            )
        assert prompt is not None
        assert output is not None
        silent = np.flatnonzero(here & (prompt < 1))
        if len(silent):
            self._wrong(
                before + int(silent[0]),
                "it asks a token model and has no prompt",
                "give prompt_tokens of 1 or more",
            )
        several = np.flatnonzero(here & ((np.ones(1) if items is None else items) > 1))
        if len(several):
            self._wrong(
                before + int(several[0]),
                "a token model takes one input a request",
                "give each a request of its own",
            )
        puts = np.maximum(output, 1)
        needs = prompt.astype(np.int64) + puts - 1
        over = np.flatnonzero(here & (needs > self._room[model]))
        if len(over):
            row = int(over[0])
            self._wrong(
                before + row,
                f"it needs a cache of {int(needs[row]):,} tokens, and a lane"
                f" has room for {int(self._room[model[row]]):,}",
                "use larger devices, or more for each lane, as in 2xA100:1",
            )
        return {"prompt": prompt.tolist(), "output": puts.tolist()}

    def _wrong(self, row: int, what: str, mend: str) -> None:
        raise BadInput(what, where=self._row(row), mend=mend)


def _least(models: Sequence[Known], lanes: Sequence[Lane], those: Sequence[int]) -> int:
    """Tokens for which any lane that may run one of these models has room."""
    rooms = [
        lane.cache // models[model].cache_bytes
        for model in those
        for lane in lanes
        if lane.type in models[model].tokens and lane.cache >= 0 and models[model].cache_bytes
    ]
    return min(rooms, default=1 << 60)
