"""CODA's steps: how many cores a job is given per GPU, and how far CPU jobs are throttled.

Pure functions over plain values; `coda_policy` draws plans by them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from ganger.estimate.sharing.host_bandwidth import HostUser, stretch

UP: Final = 1
DOWN: Final = -1
SETTLED: Final = 0
THROTTLES: Final = 9
"""A throttle has so many steps, each a tenth of what a job moves alone: at most it leaves one."""


class Search(msgspec.Struct, frozen=True):
    """How many cores a running attempt has per GPU while it is found out what it can use.

    `way`: cores are added one by one, or taken away, or it has settled. `before`: its speed with
    the number before (-1: not measured); where cores are taken away, with those at the `start`.
    """

    attempt: int
    cores: int
    start: int
    since: int
    way: int = UP
    before: float = -1.0

    def settled(self, cores: int) -> Search:
        """It has settled at so many."""
        return msgspec.structs.replace(self, cores=cores, way=SETTLED)


def step(search: Search, speed: float, threshold: float, limit: int, now: int) -> Search:
    """What follows from the speed that was measured with the present number of cores.

    Cores are added while each adds more than `threshold` of the speed, up to `most`. If the first
    adds nothing, they are taken away, down to one, while all that went cost less than that.
    """
    cores, before = search.cores, search.before
    if search.way == DOWN:
        if speed < before * (1.0 - threshold):
            return search.settled(cores + 1)
        if cores == 1:
            return search.settled(1)
        return msgspec.structs.replace(search, cores=cores - 1, since=now)
    if before < 0.0 or speed > before * (1.0 + threshold):
        if cores < limit:
            return msgspec.structs.replace(search, cores=cores + 1, since=now, before=speed)
        return search.settled(cores) if before >= 0.0 else _down(search, speed, now)
    if cores == search.start + 1:
        return _down(search, before, now)
    return search.settled(cores - 1)


def _down(search: Search, speed: float, now: int) -> Search:
    """Take cores away from those at its start, with which the speed was this."""
    if search.start == 1:
        return search.settled(1)
    fewer = search.start - 1
    return msgspec.structs.replace(search, cores=fewer, since=now, way=DOWN, before=speed)


def throttled(
    training: Sequence[HostUser], others: Sequence[HostUser], capacity: float, loss: float
) -> list[float]:
    """For each of `others` the part of what it moves alone that it may move, so that no training
    job loses `loss` of its speed: the one that may move most is cut by a tenth, again and again."""
    tenths = [THROTTLES + 1] * len(others)

    def held() -> list[HostUser]:
        return [
            each if part > THROTTLES else each._replace(limit=each.demand * part / 10.0)
            for each, part in zip(others, tenths, strict=True)
        ]

    while training:
        slow = stretch((*training, *held()), capacity)
        if slow == 1.0 or min(each.speed(slow) for each in training) > 1.0 - loss:
            break
        cut = [at for at, part in enumerate(tenths) if part > 1]
        if not cut:
            break
        limit = max(cut, key=lambda at: (others[at].demand * tenths[at], -at))
        tenths[limit] -= 1
    return [part / 10.0 for part in tenths]


def divided(wanted: Sequence[tuple[int, float]], room: float, part: float) -> list[float]:
    """The cores per GPU that each of several jobs on a node gets, of `room` in all: (GPUs, cores
    per GPU wanted) each. First all up to `part` per GPU, in proportion where even that is too much;
    then the first what it still wants, and so on."""
    first = [min(want, part) for _, want in wanted]
    need = math.fsum(gpus * each for (gpus, _), each in zip(wanted, first, strict=True))
    if need > room:
        return [each * max(room, 0.0) / need for each in first]
    rest, given = room - need, list[float]()
    for (gpus, want), base in zip(wanted, first, strict=True):
        more = min(want - base, rest / gpus)
        rest -= gpus * more
        given.append(base + more)
    return given
