"""What a search pays for the GPUs that it holds where they are billed by whole minutes or hours, or
for a minimum: from when it gets each of them until it gives it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import NamedTuple, TypeAlias

from ganger.core.spec import GpuType
from ganger.core.units import HOUR, NEVER

Held: TypeAlias = tuple[int, int, int]
"""Since when (microseconds), on which node, which of its GPUs (a bit mask)."""


class Rate(NamedTuple):
    """What a GPU costs: by the hour, in whole multiples of `per` microseconds, and for `least`."""

    price: float
    per: int = 1
    least: int = 0

    @property
    def coarse(self) -> bool:
        """Whether it is not simply in proportion to time."""
        return self.price > 0 and (self.per > 1 or self.least > 0)

    def until(self, since: int, now: int) -> int:
        """Up to when a GPU is paid for that was held from `since` to `now`."""
        lasted = max(now - since, self.least)
        return since + -(-lasted // self.per) * self.per

    def cost(self, since: int, now: int) -> float:
        """Of one GPU that was held so long."""
        return self.price * (self.until(since, now) - since) / HOUR


def rates_of(types: Iterable[GpuType], prices: Mapping[str, float]) -> list[Rate]:
    """By GPU type, at the `prices` by its name if there are any, else at its own."""
    return [
        Rate(prices.get(each.name, 0.0) if prices else each.price, each.per, each.least)
        for each in types
    ]


def changed(
    held: Sequence[Held], holds: Mapping[int, int], rates: Sequence[Rate], now: int
) -> tuple[tuple[Held, ...], float]:
    """What is held since when, where from `now` on it is what `holds` says (masks by node), and
    what has to be paid for GPUs that were given back. `rates` by node."""
    kept, paid, seen = list[Held](), 0.0, dict[int, int]()
    for since, node, mask in held:
        stays = mask & holds.get(node, 0)
        gone = mask & ~stays
        paid += gone.bit_count() * rates[node].cost(since, now)
        if stays:
            kept.append((since, node, stays))
            seen[node] = seen.get(node, 0) | stays
    for node, mask in holds.items():
        if new := mask & ~seen.get(node, 0):
            kept.append((now, node, new))
    return tuple(kept), paid


def affordable(held: Sequence[Held], rates: Sequence[Rate], money: float, now: int) -> int:
    """Until when all that is held can be held so that it costs no more than `money` in all; `now`
    where it costs more already, NEVER where it costs nothing. It ends before a period of billing
    begins that would be too much."""
    groups = [
        (rate.until(since, now), mask.bit_count() * rate.price / HOUR, rate.per)
        for since, node, mask in held
        if (rate := rates[node]).price > 0
    ]
    budget = money - sum(mask.bit_count() * rates[n].cost(since, now) for since, n, mask in held)
    if budget < -1e-9 * money:
        return now
    if not groups:
        return NEVER
    every = sum(each for _, each, _ in groups)
    ahead = int(budget / every) - max(per for _, _, per in groups)
    if ahead > 0:  # so far in one step; the rest period by period
        steps = [ahead // per * per for _, _, per in groups]
        budget -= sum(step * each for step, (_, each, _) in zip(steps, groups, strict=True))
        groups = [(at + step, *rest) for step, (at, *rest) in zip(steps, groups, strict=True)]  # type: ignore[misc]
    heapify(groups)
    while True:
        at, each, per = groups[0]
        budget -= each * per
        if budget < -1e-9 * money:
            return max(at, now)
        heapreplace(groups, (at + per, each, per))
