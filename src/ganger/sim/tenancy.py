"""Jobs on one device that were given terms: what each has of its time, how long a rate controller
takes until that is so, and where their memory is.

A policy gives a job terms by the knobs of a Tune: `request` and `limit` (parts of a device's time),
`control` (what cuts the rate of a job without a request: `` nothing, `step-time` as in AntMan,
`arrival-rate` as in TGS), `settle_s` (seconds that a controller takes: of `step-time` until it has
found the rate, of `arrival-rate` for a period), `lane` (jobs of the same lane of a device, from 1
on, run iterations in turn; 0: the job does not), `turn` (of such a job: `time` equal time for all,
`iteration` one iteration each, `wait` none until that changes), `backward` (the fraction of the
layers through which all workers of a job but one back-propagate) and `full` (on which of its GPUs
that one is at first; it goes on to the next one in each step, as those of all jobs do).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ganger.core.errors import BadInput
from ganger.core.plan import Placement
from ganger.core.profiles import UNSTATED, Memory, Profile
from ganger.core.spec import Shape
from ganger.core.units import WHOLE
from ganger.estimate.sharing.lanes import IterationLane, needed, speeds
from ganger.estimate.sharing.rates import (
    ARRIVAL_RATE,
    FIRST,
    HOST_MIB_PER_SECOND,
    STEP_TIME,
    Tenant,
    divide,
    settling,
)

LEAST: Final = 0.001
"""The least factor on a speed: no job stands still for good."""
WAIT: Final = "wait"
BY_ITERATION: Final = "iteration"


class Terms(NamedTuple):
    """On what terms a job is on its devices."""

    request: float
    limit: float = 1.0
    control: str = ""
    settle_s: float = 0.0
    lane: int = 0
    turn: str = ""
    backward: float = 1.0
    full: int = 0

    @classmethod
    def of(cls, knobs: Mapping[str, float | bool | str]) -> Terms:
        """Those that a Tune gives, which has a `request`."""
        return cls(
            float(knobs["request"]),
            float(knobs.get("limit", 1.0)),
            str(knobs.get("control", "")),
            float(knobs.get("settle_s", 0.0)),
            int(knobs.get("lane", 0)),
            str(knobs.get("turn", "")),
            float(knobs.get("backward", 1.0)),
            int(knobs.get("full", 0)),
        )


class Guest(NamedTuple):
    """A job on a device. `demand`: the part of its time that the job uses alone; `asked`: the part
    at which the job's speed is 1, if it uses as much; `had`: the part that it has now, 0 if it is
    new; None for `terms` where it has none, and takes what it asked for. `step`: what its worker
    there does of a step, and `worth` what a step of the job is worth, where it back-propagates in
    part (see `estimate.partial_backprop`)."""

    job: int
    demand: float
    asked: float
    terms: Terms | None
    memory: Memory = UNSTATED
    had: float = 0.0
    step: float = 1.0
    worth: float = 1.0

    @property
    def tenant(self) -> Tenant:
        """As one between which the time is divided."""
        if self.terms is None:
            return Tenant(min(self.demand, self.asked), self.asked)
        return Tenant(self.demand, self.terms.request, self.terms.limit)

    @property
    def lane(self) -> int:
        """The lane in which it runs iterations in turn; 0 if it does not."""
        return self.terms.lane if self.terms is not None else 0

    @property
    def turn(self) -> float:
        """How long its turn in its lane is, beside those of others that turn alike."""
        turn = self.terms.turn if self.terms is not None else ""
        if turn == WAIT:
            return 0.0
        return self.memory.iteration * self.step if turn == BY_ITERATION else 1.0


class Has(NamedTuple):
    """A part of a device's time for `lasts` seconds, and from then on."""

    now: float
    lasts: float
    then: float


def parts(guests: Sequence[Guest]) -> dict[int, Has]:
    """What each has of the time of the device, by job."""
    lanes = in_lanes(guests)
    if lanes:
        return _in_turn(guests, lanes)
    divided = divide([guest.tenant for guest in guests])
    divisions = {
        guest.job: Has(part, 0.0, part) for guest, part in zip(guests, divided, strict=True)
    }
    firm = [guest for guest in guests if guest.tenant.request > 0.0]
    for guest in guests:
        terms = guest.terms
        if terms is None or terms.request > 0.0:
            continue
        if terms.control == STEP_TIME and firm:
            then = divisions[guest.job].then
            divisions[guest.job] = Has(then / 2.0, terms.settle_s, then)
        elif terms.control == ARRIVAL_RATE and len(guests) - len(firm) == 1:
            alone = sum(each.tenant.cap for each in firm)
            ramp = settling(min(alone, 1.0), guest.demand, round(guest.had, 3) or FIRST)
            lasts = ramp.periods * terms.settle_s
            divisions[guest.job] = Has(ramp.before[1], lasts, ramp.after[1])
            for each in firm:
                kept = each.tenant.cap / alone
                divisions[each.job] = Has(ramp.before[0] * kept, lasts, ramp.after[0] * kept)
    return divisions


def in_lanes(guests: Sequence[Guest]) -> dict[int, list[Guest]]:
    """By lane, those that run iterations in turn there."""
    lanes: dict[int, list[Guest]] = {}
    for guest in guests:
        if guest.lane:
            lanes.setdefault(guest.lane, []).append(guest)
    return lanes


def _in_turn(guests: Sequence[Guest], lanes: Mapping[int, Sequence[Guest]]) -> dict[int, Has]:
    """As `parts`, where some run iterations in turn. Rate controllers of others have settled."""
    others = [guest for guest in guests if not guest.lane]
    turning = [
        IterationLane(tuple(each.demand for each in lane), tuple(each.turn for each in lane))
        for lane in lanes.values()
    ]
    ours, theirs = speeds(turning, [guest.tenant for guest in others])
    divided = dict(zip([guest.job for guest in others], theirs, strict=True))
    for lane, rates in zip(lanes.values(), ours, strict=True):
        divided |= {each.job: each.demand * rate for each, rate in zip(lane, rates, strict=True)}
    return {guest.job: Has(divided[guest.job], 0.0, divided[guest.job]) for guest in guests}


def on_host(guests: Sequence[Guest], size: int) -> dict[int, float]:
    """By job, the MiB of its memory that are not on a device of `size` MiB: those with a request
    keep theirs, and so do lanes, the others lose, the last first. Raises BadInput where a job would
    lose memory that cannot be moved, or several in lanes need more than there is."""
    lanes = in_lanes(guests)
    turning = needed([[guest.memory for guest in lane] for lane in lanes.values()])
    if turning > size and sum(map(len, lanes.values())) > 1:
        raise _too_much([guest for lane in lanes.values() for guest in lane], size)
    others = [guest for guest in guests if not guest.lane]
    late = [guest for guest in others if guest.terms is not None and not guest.terms.request]
    free = size - turning - sum(guest.memory.peak for guest in others if guest not in late)
    moved: dict[int, float] = {}
    for guest in late:
        lacks = guest.memory.peak - max(free, 0.0)
        free -= guest.memory.peak
        if lacks > 0.0:
            moved[guest.job] = lacks
            if not guest.memory.iteration:
                raise _too_much(guests, size)
    return moved


def _too_much(guests: Sequence[Guest], size: int) -> BadInput:
    jobs = ", ".join(str(guest.job) for guest in guests)
    return BadInput(
        f"jobs {jobs} need more than the {size} MiB of the GPU that they share",
        where="memory of profiles",
        mend="a recipe may not put them together",
    )


def slowed(part: float, memory: Memory, moved: float) -> float:
    """What is left of a part of the speed alone where each iteration moves `moved` MiB from the
    host and back."""
    if not moved:
        return part
    return 1.0 / (1.0 / part + 2.0 * moved / (HOST_MIB_PER_SECOND * memory.iteration))


def speed(guest: Guest, has: Has, moved: float) -> Has:
    """The factor on a job's speed that its part of the device's time is."""
    usual = min(guest.asked, guest.demand) * guest.step
    now, then = (
        max(slowed(part / usual, guest.memory, moved) * guest.worth, LEAST) if part else LEAST
        for part in (has.now, has.then)
    )
    return Has(now, has.lasts, then)


def demand(stated: float, asked: float) -> float:
    """The part that a job uses alone: what is stated, else what it asks for."""
    return asked if math.isnan(stated) else stated


def guest_of(
    job: int, profile: Profile, shape: Shape, placement: Placement, terms: Terms | None
) -> Guest:
    """A job of this model as one on each of its devices."""
    asked = shape.roles[placement[0].role].needs.share / WHOLE
    stated = profile.compute(sum(slot.devices.bit_count() for slot in placement))
    memory = (profile.memory if placement[0].share else None) or UNSTATED
    return Guest(job, demand(stated, asked), asked, terms, memory)
