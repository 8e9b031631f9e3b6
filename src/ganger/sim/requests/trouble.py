"""Devices that fail and come back, and stragglers: devices that are slow for a while."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ganger.core.errors import BadInput
from ganger.core.units import NEVER
from ganger.sim.requests.plane import Plane

DOWN: Final = "its device was down"
_CHANGES_MAX: Final = 10_000_000
"""No run has more changes of devices: each is a step of its own."""
_FAILURES_MAX: Final = 100_000
"""After so many in a row in which no request ended, though some were there, none will end."""


class Change(NamedTuple):
    """What becomes of a device at a time (microseconds). `up`: it fails (False) or comes back
    (True), or None: from now on its batches take `times` as long as they were measured to."""

    at: int
    device: int
    up: bool | None = None
    times: float = 1.0


def drive(plane: Plane, changes: Iterable[Change]) -> None:
    """Work through all requests while devices change, in order of time.

    What runs on a device that fails is lost, and so is what lies in its memory. A batch that has
    begun keeps its pace. Requests that still wait when the last device that could answer them has
    failed for good are dropped. Raises BadInput where devices fail so often that none is ever
    answered.
    """
    failures, over, steps = 0, 0, 0
    lanes_of: dict[int, list[int]] = {}
    for lane in reversed(plane.world.lanes):  # those that copy first: they stop loading
        lanes_of.setdefault(lane.device, []).append(lane.number)
    for change in changes:
        if _is_over(plane):
            break
        steps += 1
        if steps > _CHANGES_MAX:
            raise BadInput(
                f"devices change more than {_CHANGES_MAX:,} times",
                where="--outages, --stragglers",
                mend="let them change less often, or give fewer requests",
            )
        plane.advance(change.at)
        if change.up is None:
            plane.physics.pace[change.device] = change.times
            continue
        ended = plane.arrived - plane.world.open
        failures = failures + 1 if ended == over and plane.world.open else 0
        over = ended
        if failures > _FAILURES_MAX:
            raise BadInput(
                f"devices failed {failures:,} times, and no request ended in between",
                where="--outages",
                mend="let them run for longer than a request takes",
            )
        for number in lanes_of[change.device]:
            plane.turn(number, change.at, up=change.up)
    plane.advance()
    if plane.world.open:
        plane.close(plane.world.now, DOWN)


def _is_over(plane: Plane) -> bool:
    """Nothing happens any more, and no device that comes back could change that."""
    if plane.next_time < NEVER:
        return False
    return not plane.world.open or not any(lane.down for lane in plane.world.lanes)
