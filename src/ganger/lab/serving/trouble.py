"""Which devices fail and which are slow, when: from files, or drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from ganger.core.errors import BadInput
from ganger.core.units import NEVER, SECOND
from ganger.lab.outages import parse_means, read_spans, span_of
from ganger.lab.serving.fleet import Fleet
from ganger.sim.requests.trouble import Change

_MOST: Final = 1e6
_SOONEST: Final = SECOND // 1000
"""Microseconds from one time in which a device is slow to the next, at least, on average."""
_OUTAGES: Final = "write a CSV file with the columns device,down,up, or like mtbf=2h,mttr=1m"
_SLOW: Final = (
    "write a CSV file with the columns device,from,to,times, or like every=10m,for=5s,times=4"
)


@dataclass(frozen=True)
class Trouble:
    """What befalls the devices of a fleet, which are numbered from 0 in its order.

    `outages`: a CSV file (`device`, `down`, `up`: durations since the first request could come,
    `up` empty for never) or `mtbf=2h,mttr=1m`: each device fails after exponential times of that
    mean, and comes back after exponential times of the other. `stragglers`: a CSV file (`device`,
    `from`, `to`, `times`) or `every=10m,for=5s,times=4`: each device's batches take `times` as long
    for exponential times. Empty: nothing of that kind.
    """

    outages: str = ""
    stragglers: str = ""

    def changes(self, fleet: Fleet, seed: int) -> Iterator[Change]:
        """In order of time; without an end where they are drawn. Raises BadInput."""
        return merge(self._failing(fleet, seed), self._slow(fleet, seed), key=_when)

    def _failing(self, fleet: Fleet, seed: int) -> Iterator[Change]:
        if not self.outages:
            return iter(())
        if "=" in self.outages and not Path(self.outages).is_file():
            fails, repaired = parse_means(self.outages, ("mtbf", "mttr"), "--outages", _OUTAGES)
            drawn = (_drawn_outages(device, fails, repaired, seed) for device in range(fleet.size))
            return merge(*drawn, key=_when)
        found = []
        for where, row in _rows(self.outages, ("device", "down", "up"), "--outages", _OUTAGES):
            device = _device(row["device"], fleet, where)
            found.append((device, *span_of(row, ("down", "up"), where), 1.0))
        changes = []
        for device, down, up, _ in _apart(found, self.outages):
            changes += [Change(down, device, False), Change(up, device, True)]
        return iter(sorted((each for each in changes if each.at < NEVER), key=_when))

    def _slow(self, fleet: Fleet, seed: int) -> Iterator[Change]:
        if not self.stragglers:
            return iter(())
        if "=" in self.stragglers and not Path(self.stragglers).is_file():
            parts = self.stragglers.split(",")
            stated = [part for part in parts if part.strip().startswith("times=")]
            times = _times(stated[-1].partition("=")[2] if stated else "", "--stragglers")
            left = ",".join(part for part in parts if part not in stated)
            every, lasts = parse_means(left, ("every", "for"), "--stragglers", _SLOW)
            if every + lasts < _SOONEST:
                raise BadInput(
                    "devices would change more often than batches end",
                    where="--stragglers",
                    mend="let every and for together be 1ms or more",
                )
            slow = (_drawn_slow(at, every, lasts, times, seed) for at in range(fleet.size))
            return merge(*slow, key=_when)
        found = []
        columns = ("device", "from", "to", "times")
        for where, row in _rows(self.stragglers, columns, "--stragglers", _SLOW):
            device, times = _device(row["device"], fleet, where), _times(row["times"], where)
            found.append((device, *span_of(row, ("from", "to"), where), times))
        changes = []
        for device, begins, ends, times in _apart(found, self.stragglers):
            changes += [Change(begins, device, None, times), Change(ends, device, None, 1.0)]
        return iter(sorted((each for each in changes if each.at < NEVER), key=_when))


UNTROUBLED: Final = Trouble()


def _when(change: Change) -> tuple[int, int]:
    return change.at, change.device


def _rows(
    text: str, columns: tuple[str, ...], option: str, mend: str
) -> Iterator[tuple[str, dict[str, str]]]:
    if not Path(text).is_file():
        raise BadInput(f"no file {text!r}", where=option, mend=mend)
    return read_spans(Path(text), columns, mend)


def _device(text: str, fleet: Fleet, where: str) -> int:
    device = int(text) if text.strip().isdecimal() and len(text) < 10 else -1
    if not 0 <= device < fleet.size:
        raise BadInput(
            f"no device {text!r} in {fleet}",
            where=f"{where}: device",
            mend=f"give a number from 0 to {fleet.size - 1}",
        )
    return device


def _times(text: str, where: str) -> float:
    try:
        times = float(text)
    except ValueError:
        times = 0.0
    if not 1 <= times <= _MOST:  # the bound counts on that none is faster than was measured
        raise BadInput(
            f"{text!r} is not a valid factor",
            where=f"{where}: times",
            mend="write like 4: batches take four times as long",
        )
    return times


def _apart(
    found: list[tuple[int, int, int, float]], where: str
) -> list[tuple[int, int, int, float]]:
    """By device and time. Raises BadInput where two of one device overlap."""
    ordered = sorted(found)
    for one, other in pairwise(ordered):
        if one[0] == other[0] and other[1] < one[2]:
            raise BadInput(
                f"two rows of device {one[0]} overlap", where=where, mend="make them one"
            )
    return ordered


def _drawn_outages(device: int, fails: int, repaired: int, seed: int) -> Iterator[Change]:
    rng = np.random.default_rng([seed, 0x0FF, device])
    at = 0
    while at < NEVER // 2:
        at += 1 + round(rng.exponential(fails))
        yield Change(at, device, False)
        at += 1 + round(rng.exponential(repaired))
        yield Change(at, device, True)


def _drawn_slow(device: int, every: int, lasts: int, times: float, seed: int) -> Iterator[Change]:
    rng = np.random.default_rng([seed, 0x510, device])
    at = 0
    while at < NEVER // 2:
        at += 1 + round(rng.exponential(every))
        yield Change(at, device, None, times)
        at += 1 + round(rng.exponential(lasts))
        yield Change(at, device, None, 1.0)
