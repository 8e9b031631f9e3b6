"""For which part of the time each part of a job computes that shares its devices on terms.

The policy gives the terms, the engine passes them on. A job that requests nothing is opportunistic:
its rate follows the steps of the guaranteed jobs beside it, as AntMan's local coordinator does
(OSDI 2020) and TGS' controller (NSDI 2023). Requests and limits divide the time as KubeShare's
tokens do. What is decided here is what `sim.tenancy` takes these controllers to do.

There is no clock and no socket here.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from msgspec import structs

from ganger.engines.agent.protocol import Key, Rate, Terms, Used
from ganger.estimate.sharing.rates import ARRIVAL_RATE, Launches, Tenant, divide

LEAST: Final = 0.01
"""The least part of the time: no job stands still for good."""
UNMEASURED: Final = 0.1
"""What an opportunistic job has beside a guaranteed one that tells no steps."""
_LOOK_SECONDS: Final = 1.0
_ALONE_SECONDS: Final = 3.0
"""So long is the time of a step alone measured, while those beside it have the least."""
_SILENT_SECONDS: Final = 10.0
_TOLERATED: Final = 0.05
_FAR: Final = 0.1
"""By step time: a guaranteed job may lose so much of its speed; and so much is far too much."""
_CUT: Final = 0.9
_HALF: Final = 0.5
"""What the rate is multiplied by beyond either."""
_MORE: Final = 0.05
_FINE: Final = 0.01
"""What is added to the rate within what is tolerated: until the first cut, and from then on."""
_STRIKES: Final = 3
"""So often may a guaranteed job lose more than a job that keeps to its rate can take: then that one
is held for good."""


class Guest:
    """A part that runs, with its devices by their numbers on this machine."""

    def __init__(self, devices: Iterable[int], now: float, threads: float = 1.0) -> None:
        self.devices, self.threads = frozenset(devices), threads
        """And the part of the devices' threads that it is bound to anyway."""
        self.terms: Terms | None = None
        self.suspended = False
        self.rate = 1.0
        self.held = False
        """Whether it is held at its rate, whatever it does by itself."""
        self.strikes = 0
        self.known: tuple[float, bool] | None = (1.0, False)
        """The rate that its supervisor knows, and whether it holds the job; None: nobody knows."""
        self.launches = Launches(LEAST)
        self.used: Used | None = None
        """What it used at the last look."""
        self.beside = False
        """Whether there was a guaranteed one on its devices at the last look."""
        self.more = _MORE
        self.due = -inf
        """When an opportunistic one's rate may change next."""
        self.micros = self.alone = 0.0
        """What a step takes now, and took alone, microseconds; 0 while that is not known."""
        self.alone_from = now
        """Since when it has been as good as alone."""

    @property
    def loose(self) -> bool:
        """Whether its rate gives way to others."""
        return self.terms is not None and not self.terms.request and self.terms.control != ""


class Pacing:
    """All parts that run on a machine."""

    def __init__(self) -> None:
        self._guests: dict[Key, Guest] = {}
        self.due = inf
        """When to `look` next (monotonic seconds)."""

    def add(
        self,
        key: Key,
        devices: Iterable[int],
        terms: Terms | None,
        now: float,
        threads: float = 1.0,
    ) -> None:
        """A part runs. Its supervisor may have forgotten its rate. `threads`: the part of the
        devices' threads to which it is bound anyway, in all of the time."""
        guest = self._guests.setdefault(key, Guest(devices, now, threads))
        guest.known = None
        if terms is not None:
            self.give(terms, now)
        self._hurry(now)

    def drop(self, key: Key, now: float) -> None:
        """It runs no more."""
        if self._guests.pop(key, None) is not None:
            self._hurry(now)

    def give(self, terms: Terms, now: float) -> None:
        """It shares on these terms from now on."""
        guest = self._guests.get(terms.key)
        if guest is not None and guest.terms != terms:
            was_loose, guest.terms = guest.loose, terms
            guest.held &= guest.loose
            if guest.loose and not was_loose:
                guest.rate, guest.launches = LEAST, Launches(LEAST)
            self._hurry(now)

    def suspend(self, key: Key, suspended: bool, now: float) -> None:
        """It computes not at all, or again."""
        guest = self._guests.get(key)
        if guest is not None and guest.suspended != suspended:
            guest.suspended = suspended
            guest.alone_from = now
            self._hurry(now)

    def stepped(self, key: Key, micros: float) -> None:
        """What a step of it takes now."""
        guest = self._guests.get(key)
        if guest is not None and micros > 0.0:
            guest.micros = micros

    def said_with(self, used: Used) -> Used:
        """What a part used, with its rate and its speed as they are now."""
        guest = self._guests.get(used.key)
        if guest is None:
            return used
        guest.used = used
        speed = guest.alone / guest.micros if guest.alone and guest.micros else 0.0
        return structs.replace(used, rate=round(guest.rate, 4), speed=round(speed, 4))

    def news(self, key: Key) -> list[Used]:
        """Of a part whose rate has changed, what it used at the last look, with that."""
        used = self._guests[key].used
        return [] if used is None else [self.said_with(used)]

    def _hurry(self, now: float) -> None:
        if any(guest.terms is not None for guest in self._guests.values()):
            self.due = now

    def look_if_due(self, now: float) -> list[Rate]:
        """As `look`, where something may have changed."""
        return self.look(now) if now >= self.due else []

    def look(self, now: float) -> list[Rate]:
        """The rates that are others than their supervisors know, from now on."""
        here = [guest for guest in self._guests.values() if not guest.suspended]
        loose = [guest for guest in here if guest.loose]
        for guest in here:
            if guest.terms is not None and not guest.loose:
                part = 1.0 if guest.terms.request >= 1.0 else _divided(guest, here)
                guest.rate = min(part / guest.threads, 1.0)
                guest.held = guest.rate < 1.0  # nothing tells whether it keeps to its limit
        for guest in loose:
            firm = [other for other in here if not other.loose and other.devices & guest.devices]
            self._steer(guest, firm, now)
        for guest in here:
            if not guest.loose:
                self._measure(guest, loose, now)
        unsteady = any(
            any(not other.loose and other.devices & guest.devices for other in here)
            or guest.rate < 1.0
            for guest in loose
        )
        self.due = now + _LOOK_SECONDS if unsteady else inf
        orders = list[Rate]()
        for key, guest in self._guests.items():
            if guest.known != (guest.rate, guest.held):
                guest.known = guest.rate, guest.held
                orders.append(Rate(key, guest.rate, guest.held))
        return orders

    @staticmethod
    def _measure(guest: Guest, loose: list[Guest], now: float) -> None:
        """Learn what a step takes alone, while those beside have next to nothing."""
        beside = any(
            other.rate > 2 * LEAST and other.devices & guest.devices
            for other in loose
            if other is not guest
        )
        if beside:
            guest.alone_from = inf
        elif guest.alone_from == inf:
            guest.alone_from = now
        elif now - guest.alone_from >= _ALONE_SECONDS and guest.micros:
            guest.alone = guest.micros  # those beside it are held: it may have grown by itself

    @staticmethod
    def _steer(guest: Guest, firm: list[Guest], now: float) -> None:
        """The next rate of an opportunistic part beside these guaranteed ones."""
        terms = guest.terms
        assert terms is not None, "it has none to steer by"
        if firm and not guest.beside and guest.rate >= 1.0 and guest.micros:
            guest.alone = guest.micros  # so far it had the devices for itself
        guest.beside = bool(firm)
        guest.held = guest.strikes >= _STRIKES or (bool(firm) and guest.rate <= LEAST)
        if not firm:
            guest.launches = guest.launches._replace(slow=True).after(0.0)
            guest.rate = guest.launches.rate if terms.control == ARRIVAL_RATE else 1.0
            guest.due = now
            return
        unknown = [other for other in firm if not other.alone]
        if unknown:
            silent = all(now - other.alone_from > _SILENT_SECONDS for other in unknown)
            guest.rate, guest.held = UNMEASURED if silent else LEAST, True
            guest.launches, guest.more, guest.due = Launches(LEAST), _MORE, now
            return
        if now < guest.due:
            return
        deviation = max(1.0 - other.alone / other.micros for other in firm)
        if deviation > guest.rate + _TOLERATED and not guest.held:
            guest.strikes += 1
            guest.rate, guest.launches, guest.due = LEAST, Launches(LEAST), now + _LOOK_SECONDS
        elif terms.control == ARRIVAL_RATE:
            guest.launches = guest.launches.after(deviation)
            guest.rate = guest.launches.rate
            guest.due = now + max(terms.settle_s, _LOOK_SECONDS)
        else:
            if deviation <= _TOLERATED:
                guest.rate += guest.more
            else:
                guest.rate *= _HALF if deviation > _FAR else _CUT
                guest.more = _FINE
            guest.due = now + _LOOK_SECONDS
        guest.rate = min(max(guest.rate, LEAST), 1.0)
        guest.held |= guest.rate <= LEAST  # so that what a step takes alone is seen again
        guest.launches = guest.launches._replace(rate=guest.rate)


def _divided(guest: Guest, here: list[Guest]) -> float:
    """What a part that requests something has of its devices, where all on them compute as much as
    they may."""
    least = 1.0
    for device in guest.devices:
        on = [other for other in here if device in other.devices and not other.loose]
        tenants = [
            Tenant(1.0, other.terms.request, other.terms.limit) if other.terms else Tenant(1.0, 1.0)
            for other in on
        ]
        least = min(least, divide(tenants)[on.index(guest)])
    return max(least, LEAST)
